/* `trireme data info`: describes a file as text or JSON, and verifies it. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "core/document.h"
#include "core/memory.h"
#include "core/printable.h"
#include "core/sha256.h"
#include "core/status.h"
#include "checkpoint_verify.h"
#include "data_reader.h"
#include "datasets.h"

/* Output: lines of text, or one JSON object. */
struct report {
  bool json;
  struct trm_json out;
};

/* Prints a line of two columns, of which either may be text of the file. */
static void info_print_line(const char *key, int width, const char *value)
{
  char *shown_key = trm_printable(key), *shown = trm_printable(value);
  printf("%-*s %s\n", width, shown_key, shown);
  trm_free(shown_key);
  trm_free(shown);
}

static void info_print_text(struct report *report, const char *key, const char *value)
{
  if (report->json)
    trm_json_text(&report->out, key, value);
  else if (value && *value)
    info_print_line(key, 14, value);
}

static void info_print_pair(const char *key, const char *value)
{
  printf("  ");
  info_print_line(key, 20, value);
}

static void info_print_integer(struct report *report, const char *key, uint64_t value)
{
  if (report->json)
    trm_json_integer(&report->out, key, (int64_t)value);
  else
    printf("%-14s %" PRIu64 "\n", key, value);
}

static void info_print_real(struct report *report, const char *key, double value)
{
  if (report->json)
    trm_json_number(&report->out, key, value);
  else
    printf("%-14s %.6g\n", key, value);
}

/* As text: two columns, of tensors indented ones. */
static void info_print_shape(struct report *report, const char *key, bool is_tensor, const struct trm_shape *shape)
{
  if (!report->json) {
    if (is_tensor)
      printf("  ");
    info_print_line(key, is_tensor ? 20 : 14, trm_shape_text(shape));
    return;
  }
  trm_json_list(&report->out, key);
  for (int d = 0; d < shape->dims; d++)
    trm_json_integer(&report->out, NULL, (int64_t)shape->size[d]);
  trm_json_end(&report->out);
}

static void info_print_texts(struct report *report, const char *key, const char *label, const char *const *text,
                             size_t count)
{
  if (!text)
    return;
  if (report->json)
    trm_json_list(&report->out, key);
  else
    printf("%-14s", label);
  for (size_t i = 0; i < count; i++) {
    char *shown = trm_printable(text[i]);
    if (report->json)
      trm_json_text(&report->out, NULL, text[i]);
    else
      printf("%s %s", i ? "," : "", shown);
    trm_free(shown);
  }
  if (report->json)
    trm_json_end(&report->out);
  else
    printf("\n");
}

/* Prints the names of classes, or the encoding of a text. Names of tokens are printed in JSON only: they may be line
 * feeds. */
static void info_print_names(struct report *report, const struct trm_encoding *encoding, bool tokens, bool classes,
                             char **names, size_t count)
{
  if (tokens)
    info_print_text(report, "tokenizer", encoding->name);
  if (encoding->merges)
    info_print_integer(report, "merges", encoding->merges);
  if (report->json || !tokens)
    info_print_texts(report, classes ? "class_names" : "value_names", classes ? "class names" : "value names",
                     (const char *const *)names, count);
}

static void info_print_file(struct report *report, const char *path, const char *kind)
{
  struct stat info = {0};
  stat(path, &info);
  info_print_text(report, "file", path);
  info_print_text(report, "is", kind);
  info_print_integer(report, "bytes", (uint64_t)info.st_size);
}

/* -- data sets */

static void info_print_array(struct report *report, const struct data_array *array)
{
  const bool checked = array->checksums || array->fletcher32;
  const char *name = strchr(array->name, '/') + 1;
  if (report->json) {
    trm_json_object(&report->out, name);
    trm_json_integer(&report->out, "rows", (int64_t)array->rows);
    info_print_shape(report, "shape", false, &array->row);
    trm_json_text(&report->out, "type", block_type_name(array->type));
    trm_json_integer(&report->out, "deflate", array->deflate);
    trm_json_bool(&report->out, "checked", checked);
    trm_json_integer(&report->out, "bytes", (int64_t)array->stored_bytes);
    trm_json_text(&report->out, "sha256", array->sha256[0] ? array->sha256 : NULL);
    trm_json_end(&report->out);
    return;
  }
  printf("  %-12s %" PRIu64 "%s%s %s, %" PRIu64 " bytes", name, array->rows, array->row.dims ? " x " : "",
         array->row.dims ? trm_shape_text(&array->row) : "", block_type_name(array->type), array->stored_bytes);
  if (array->deflate)
    printf(", deflate level %d (%.2f of %" PRIu64 ")", array->deflate,
           (double)array->stored_bytes / ((double)(array->rows * array->row_bytes) + 1e-9),
           array->rows * (uint64_t)array->row_bytes);
  printf(checked ? "\n" : ", without checksums\n");
}

/* Reads all labels and prints the number of rows of each class. */
static int info_print_class_counts(struct report *report, struct data_split *split, const struct data_head *head)
{
  uint64_t *count = trm_alloc(head->classes * sizeof *count, "counts of classes");
  const size_t step = data_array_rows_per_read(&split->y);
  int32_t *class = trm_alloc(step * sizeof *class, "labels");
  int status = TRM_OK;
  for (uint64_t at = 0; at < split->rows && status == TRM_OK; at += step) {
    const size_t rows = split->rows - at < step ? (size_t)(split->rows - at) : step;
    status = data_array_read(&split->y, at, rows, class);
    for (size_t i = 0; i < rows && status == TRM_OK; i++) {
      if (class[i] < 0 || (size_t)class[i] >= head->classes)
        status = trm_error(TRM_FAILED, "%s: %s row %" PRIu64 " has class %d, but the classes are 0 to %zu",
                           split->y.path, split->name, at + i, class[i], head->classes - 1);
      else
        count[class[i]]++;
    }
  }
  if (status == TRM_OK && report->json) {
    trm_json_list(&report->out, "class_counts");
    for (size_t i = 0; i < head->classes; i++)
      trm_json_integer(&report->out, NULL, (int64_t)count[i]);
    trm_json_end(&report->out);
  } else if (status == TRM_OK) {
    printf("  %-12s", "per class");
    for (size_t i = 0; i < head->classes && i < 100; i++)
      printf(" %" PRIu64, count[i]);
    printf(head->classes > 100 ? " ...\n" : "\n");
  }
  trm_free(class);
  trm_free(count);
  return status;
}

/* Reads a whole array, verifies every block, and compares its SHA-256. */
static int info_array_check(struct data_array *array, char hex[65])
{
  struct trm_sha256 hash;
  const size_t step = data_array_rows_per_read(array);
  void *data = trm_alloc(step * array->row_bytes, "rows to check");
  int status = TRM_OK;
  trm_sha256_begin(&hash);
  for (uint64_t at = 0; at < array->rows && status == TRM_OK; at += step) {
    const size_t rows = array->rows - at < step ? (size_t)(array->rows - at) : step;
    status = data_array_read(array, at, rows, data);
    if (status == TRM_OK)
      trm_sha256_add(&hash, data, rows * array->row_bytes);
  }
  trm_sha256_end(&hash, hex);
  trm_free(data);
  if (status == TRM_OK && array->sha256[0] && strcmp(hex, array->sha256))
    return trm_error(TRM_FAILED, "%s: %s is damaged: its SHA-256 is not the one that was written", array->path,
                     array->name);
  return status;
}

static int info_split_report(struct report *report, struct data_split *split, const struct data_head *head, bool check,
                             struct trm_sha256 *digest)
{
  int status = TRM_OK;
  if (report->json) {
    trm_json_object(&report->out, split->name);
    trm_json_integer(&report->out, "rows", (int64_t)split->rows);
  } else {
    printf("%-14s %" PRIu64 " %s\n", split->name, split->rows, head->kind == TRM_DATA_TOKENS ? "tokens" : "rows");
  }
  if (split->text_bytes && report->json)
    trm_json_integer(&report->out, "text_bytes", (int64_t)split->text_bytes);
  else if (split->text_bytes)
    printf("  %-12s %" PRIu64 " bytes, %.3f a token\n", "text", split->text_bytes,
           (double)split->text_bytes / ((double)split->rows + 1e-9));
  for (struct data_array *array = split->array; array < split->array + DATA_ARRAYS; array++)
    if (array->name[0])
      info_print_array(report, array);
  if (head->kind != TRM_DATA_TOKENS && head->target == TRM_TARGET_CLASS)
    status = info_print_class_counts(report, split, head);
  for (struct data_array *array = split->array; array < split->array + DATA_ARRAYS && check; array++)
    if (array->name[0] && status == TRM_OK) {
      char hex[65];
      status = info_array_check(array, hex);
      data_digest_add(digest, array->name, array->type, array->rows, hex);
    }
  if (report->json)
    trm_json_end(&report->out);
  return status;
}

/* Prints how an import cut the test split from a single file. */
static void info_print_split_rule(struct report *report, hid_t file)
{
  char *split = h5_get_text(file, "split");
  uint64_t seed;
  info_print_text(report, "split_rule", split);
  if (h5_get_integer(file, "split_seed", &seed))
    info_print_integer(report, "split_seed", seed);
  trm_free(split);
}

static void info_print_head(struct report *report, const char *path, hid_t file, const struct data_head *head)
{
  const bool tokens = head->kind == TRM_DATA_TOKENS, classes = head->target == TRM_TARGET_CLASS;
  const size_t count = tokens ? head->vocabulary : head->classes;
  info_print_file(report, path, "data set");
  info_print_text(report, "kind", trm_data_kind_name(head->kind));
  if (!tokens)
    info_print_shape(report, "shape", false, &head->shape);
  info_print_text(report, "target", tokens ? "next token" : data_target_name(head));
  info_print_integer(report, tokens ? "vocabulary" : classes ? "classes" : "values", count);
  info_print_names(report, &head->encoding, tokens, classes, head->class_names, count);
  if (head->scale != 1 || head->shift != 0) {
    info_print_real(report, "scale", (double)head->scale);
    info_print_real(report, "shift", (double)head->shift);
  }
  info_print_text(report, "source", head->source);
  info_print_split_rule(report, file);
  info_print_text(report, "digest", head->digest);
}

static int info_splits_report(struct report *report, const char *path, hid_t file, const struct data_head *head,
                              bool check)
{
  struct trm_sha256 digest;
  int splits = 0;
  trm_sha256_begin(&digest);
  for (int i = TRM_SPLIT_TRAIN; i <= TRM_SPLIT_TEST; i++) {
    const char *name = trm_split_name((enum trm_split)i);
    if (!h5_exists(file, name))
      continue;
    splits++;
    struct data_split split;
    int status = data_split_open(&split, head, file, path, name);
    if (status == TRM_OK)
      status = info_split_report(report, &split, head, check, &digest);
    data_split_close(&split);
    TRM_CHECK(status);
  }
  if (splits == 0)
    return trm_error(TRM_FAILED, "%s: has no train, validation or test split", path);
  if (!check)
    return TRM_OK;
  char hex[65];
  data_digest_end(&digest, head, hex);
  if (head->digest && strcmp(hex, head->digest))
    return trm_error(TRM_FAILED, "%s: is damaged: its digest is not the one that was written", path);
  info_print_text(report, "check",
                  head->digest ? "every block and the digest are as they were written"
                               : "everything can be read; the file has no digest to compare");
  return TRM_OK;
}

static int info_dataset_report(struct report *report, const char *path, hid_t file, bool check)
{
  struct data_head head;
  TRM_CHECK(data_head_read(&head, file, path));
  info_print_head(report, path, file, &head);
  const int status = info_splits_report(report, path, file, &head, check);
  data_head_free(&head);
  return status;
}

/* -- checkpoints */

/* Prints the values below a node as lines, each under its path in the record: "software.blas". Those of a list are one
 * line. */
static void info_print_values(const struct trm_node *node, const char *path)
{
  char *list = NULL;
  for (const struct trm_node *entry = node->first; entry; entry = entry->next) {
    char *name = trm_format("%s%s%s", path, *path && entry->key ? "." : "", entry->key ? entry->key : "");
    if (entry->kind != TRM_NODE_SCALAR)
      info_print_values(entry, name);
    else if (!entry->key)
      trm_append(&list, "%s%s", list ? " " : "", entry->text);
    else if (strcmp(entry->text, "null") != 0)
      info_print_pair(name, entry->text);
    trm_free(name);
  }
  if (list)
    info_print_pair(path, list);
  trm_free(list);
}

/* Prints record.json of the run, as text if a build cannot read it. */
static void info_print_record(struct report *report, const char *path, const char *record)
{
  struct trm_node *root;
  if (report->json || !record || trm_document_parse(record, strlen(record), path, &root) != TRM_OK) {
    info_print_text(report, "record", record);
    return;
  }
  printf("record\n");
  info_print_values(root, "");
  trm_node_free(root);
}

/* The weights of a checkpoint. */
struct tensor_group {
  struct report *report;
  const char *path;
  int status;
};

/* Prints the shape of a tensor. */
static herr_t info_tensor_visit(hid_t group, const char *name, const H5L_info_t *link, void *context)
{
  struct tensor_group *tensors = context;
  hsize_t size[H5S_MAX_RANK];
  struct trm_shape shape = {0};
  (void)link;
  H5_CLOSED const hid_t dataset = h5_array_open(group, name, &shape.dims, size);
  if (dataset < 0)
    tensors->status = h5_error(tensors->path, "weights/%s cannot be opened", name);
  else if (shape.dims > TRM_MAX_DIMS)
    tensors->status = h5_error(tensors->path, "weights/%s has no readable shape", name);
  if (tensors->status != TRM_OK)
    return 1;
  for (int d = 0; d < shape.dims; d++)
    shape.size[d] = (size_t)size[d];
  info_print_shape(tensors->report, name, true, &shape);
  return 0;
}

/* Prints the shapes of the weights in the order of their names. */
static int info_tensors_report(struct report *report, const char *path, hid_t file)
{
  struct tensor_group tensors = {.report = report, .path = path};
  H5_CLOSED const hid_t group = H5Gopen2(file, "weights", H5P_DEFAULT);
  if (group < 0)
    return h5_error(path, "weights is missing or damaged");
  if (report->json)
    trm_json_object(&report->out, "parameters");
  if (H5Literate(group, H5_INDEX_NAME, H5_ITER_INC, NULL, info_tensor_visit, &tensors) < 0)
    tensors.status = h5_error(path, "weights is damaged");
  if (report->json)
    trm_json_end(&report->out);
  return tensors.status;
}

static void info_print_checkpoint(struct report *report, const char *path, const struct trm_checkpoint *c)
{
  info_print_file(report, path, "checkpoint");
  info_print_text(report, "model", c->model_text);
  info_print_text(report, "loss", c->loss_name);
  info_print_shape(report, "shape", false, &c->spec.shape);
  info_print_integer(report, c->spec.target == TRM_TARGET_CLASS ? "classes" : "values", c->spec.classes);
  info_print_names(report, &c->encoding, c->spec.tokens, c->spec.target == TRM_TARGET_CLASS, c->class_names,
                   c->spec.classes);
  info_print_integer(report, "updates", c->updates);
  info_print_integer(report, "epoch", c->epoch);
  info_print_integer(report, "position", c->position);
  info_print_integer(report, "samples", c->samples);
  info_print_integer(report, "batch", c->batch);
  info_print_integer(report, "seed", c->seed);
  info_print_real(report, "best_loss", c->best_loss);
  info_print_real(report, "best_accuracy", c->best_accuracy);
  info_print_real(report, "wall_s", c->wall_s);
  info_print_text(report, "data_digest", c->data_digest);
  info_print_text(report, "weights_sha256", c->weights_sha256);
  info_print_texts(report, "states", "states", c->state_name, (size_t)c->states);
}

static int info_checkpoint_report(struct report *report, const char *path, hid_t file, bool check)
{
  struct trm_checkpoint c;
  TRM_CHECK(trm_checkpoint_hdf5.read_head(path, &c));
  info_print_checkpoint(report, path, &c);
  info_print_record(report, path, c.record);
  if (!report->json)
    printf("parameters\n");
  int status = info_tensors_report(report, path, file);
  if (status == TRM_OK && check)
    status = checkpoint_verify(file, path, &c);
  if (status == TRM_OK && check)
    info_print_text(report, "check", "every array and the SHA-256 of the weights are as they were written");
  trm_checkpoint_free(&c);
  return status;
}

int trm_data_info(const char *path, bool check, bool json)
{
  hid_t file;
  bool is_checkpoint;
  TRM_CHECK(h5_open(path, NULL, &is_checkpoint, &file));
  struct report report = {.json = json};
  if (json) {
    trm_json_open(&report.out, stdout);
    trm_json_object(&report.out, NULL);
  }
  H5_LOCKED;
  const int status = is_checkpoint ? info_checkpoint_report(&report, path, file, check)
                                   : info_dataset_report(&report, path, file, check);
  h5_close(file);
  if (json)
    trm_json_end(&report.out);
  return status;
}
