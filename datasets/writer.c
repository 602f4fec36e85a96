/* Writing of data set files. Rows are appended in order, arrays are written in blocks.
 *
 * Compressed arrays grow chunk by chunk in the file. Uncompressed arrays are contiguous, and HDF5 must know their size
 * when it creates them: they are spooled to unlinked files in the same folder and copied when the split is complete. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/log.h"
#include "core/memory.h"
#include "core/security.h"
#include "core/sha256.h"
#include "core/status.h"
#include "table.h"
#include "writer.h"

/* -- one array */

static int writer_dataset_create(struct trm_data_writer *writer, struct output *out)
{
  hsize_t size[TRM_MAX_DIMS + 1];
  const struct h5_array array = {
    .dims = h5_row_dims(writer_is_helper(writer) ? out->block_rows : out->rows, &out->row, size), .size = size,
    .file_type = block_type_file(out->type), .chunk_rows = out->spool ? 0 : out->block_rows,
    .deflate = writer->spec.compress, .grows = !out->spool,
  };
  out->dataset = h5_array_create(writer->group, out->name, &array);
  return out->dataset < 0 ? h5_error(writer->path, "%s/%s cannot be made", writer->split, out->name) : TRM_OK;
}

/* Opens an unnamed file. */
static int writer_spool_open(struct trm_data_writer *writer, struct output *out)
{
  char *path = trm_format("%s.%s", writer->h5.temporary, out->name);
  const int status = security_scratch(path, &out->spool);
  if (status == TRM_OK) {
    unlink(path);
    setvbuf(out->spool, NULL, _IONBF, 0); /* unbuffered: blocks are large */
  }
  trm_free(path);
  return status;
}

static int writer_output_begin(struct trm_data_writer *writer, const struct data_array_plan *plan)
{
  struct output *out = &writer->output[writer->outputs++];
  *out = (struct output){
    .type = plan->type, .row = plan->row, .row_bytes = block_type_bytes(plan->type) * trm_shape_count(&plan->row),
    .dataset = -1,
  };
  snprintf(out->name, sizeof out->name, "%s", plan->name);
  out->block_rows = block_rows(out->row_bytes);
  out->block = trm_alloc(out->block_rows * out->row_bytes, "a block of rows to write");
  trm_sha256_begin(&out->hash);
  if (writer->spec.compress)
    return writer_dataset_create(writer, out);
  return writer_is_helper(writer) ? TRM_OK : writer_spool_open(writer, out);
}

int writer_rows_reserve(struct trm_data_writer *writer, struct output *out, uint64_t rows)
{
  hsize_t size[TRM_MAX_DIMS + 1];
  if (rows <= out->stored_rows)
    return TRM_OK;
  out->stored_rows = rows;
  h5_row_dims(rows, &out->row, size);
  H5_LOCKED;
  return H5Dset_extent(out->dataset, size) < 0 ? h5_error(writer->path, "%s/%s cannot grow", writer->split, out->name)
                                               : TRM_OK;
}

/* Writes `rows` rows of an array from row `first` on. */
static int writer_rows_write(struct trm_data_writer *writer, struct output *out, uint64_t first, size_t rows,
                             const void *data)
{
  if (h5_rows_write(out->dataset, block_type_memory(out->type), &out->row, first, rows, data))
    return TRM_OK;
  return h5_error(writer->path, "%s/%s cannot be written", writer->split, out->name);
}

int writer_rows_store(struct trm_data_writer *writer, struct output *out, uint64_t first, size_t rows,
                      const void *data)
{
  if (out->spool) {
    const size_t bytes = rows * out->row_bytes;
    out->checksums = trm_grow(out->checksums, &out->checksum_capacity, out->checksum_count, out->checksum_count + 1,
                              sizeof *out->checksums, "block sums");
    out->checksums[out->checksum_count++] = block_checksum(data, bytes);
    return fwrite(data, bytes, 1, out->spool) == 1
             ? TRM_OK : trm_error(TRM_FAILED, "%s: cannot be written: %s", writer->path, strerror(errno));
  }
  TRM_CHECK(writer_rows_reserve(writer, out, first + rows));
  return writer_rows_write(writer, out, first, rows, data);
}

/* Writes the current block, or leaves it to the end of this rank's turn. */
static int writer_output_flush(struct trm_data_writer *writer, struct output *out)
{
  const uint64_t first = out->rows;
  const size_t rows = out->filled;
  if (!rows)
    return TRM_OK;
  trm_sha256_add(&out->hash, out->block, rows * out->row_bytes);
  out->rows += rows;
  out->filled = 0;
  return writer->queue && rows == out->block_rows ? writer_queue_add(writer, out, first)
                                                  : writer_rows_store(writer, out, first, rows, out->block);
}

static int writer_output_add(struct trm_data_writer *writer, struct output *out, const void *data, size_t rows)
{
  const unsigned char *from = data;
  while (rows) {
    size_t count = out->block_rows - out->filled;
    count = count < rows ? count : rows;
    memcpy(out->block + out->filled * out->row_bytes, from, count * out->row_bytes);
    out->filled += count;
    from += count * out->row_bytes;
    rows -= count;
    if (out->filled == out->block_rows)
      TRM_CHECK(writer_output_flush(writer, out));
  }
  return TRM_OK;
}

/* Copies a spooled array into a contiguous one, and writes its table of sums. */
static int writer_spool_copy(struct trm_data_writer *writer, struct output *out)
{
  const hsize_t checksums = out->checksum_count;
  const struct h5_array table = {
    .dims = 1, .size = &checksums, .file_type = H5T_STD_U64LE, .memory_type = H5T_NATIVE_UINT64};
  char name[sizeof out->name + 5];
  snprintf(name, sizeof name, "%s_sums", out->name);
  if (!h5_array_write(writer->group, name, &table, out->checksums))
    return h5_error(writer->path, "%s/%s cannot be written", writer->split, name);
  TRM_CHECK(writer_dataset_create(writer, out));
  rewind(out->spool);
  for (uint64_t first = 0; first < out->rows; first += out->block_rows) {
    const uint64_t left = out->rows - first;
    const size_t rows = left < out->block_rows ? (size_t)left : out->block_rows;
    if (fread(out->block, rows * out->row_bytes, 1, out->spool) != 1)
      return trm_error(TRM_FAILED, "%s: cannot be written: its temporary file cannot be read: %s", writer->path,
                       ferror(out->spool) ? strerror(errno) : "it was cut short");
    TRM_CHECK(writer_rows_write(writer, out, first, rows, out->block));
  }
  return TRM_OK;
}

/* Completes an array in the file, with its attributes and hash. */
static int writer_output_end(struct trm_data_writer *writer, struct output *out)
{
  TRM_CHECK(writer_output_flush(writer, out));
  if (out->spool)
    TRM_CHECK(writer_spool_copy(writer, out));
  char hex[65];
  trm_sha256_end(&out->hash, hex);
  char *name = trm_format("%s/%s", writer->split, out->name);
  data_digest_add(&writer->digest, name, out->type, out->rows, hex);
  trm_free(name);
  H5_LOCKED;
  if (!h5_put_integer(out->dataset, "block_rows", out->block_rows) || !h5_put_text(out->dataset, "sha256", hex))
    return h5_error(writer->path, "%s/%s cannot be described", writer->split, out->name);
  return H5Dclose(out->dataset) < 0 ? h5_error(writer->path, "%s/%s cannot be written", writer->split, out->name)
                                    : TRM_OK;
}

/* -- splits */

/* Frees the memory of a split. Its data sets and group are closed, or left to h5_output_discard. */
static void writer_split_free(struct trm_data_writer *writer)
{
  for (struct output *out = writer->output; out < writer->output + writer->outputs; out++) {
    if (out->spool)
      fclose(out->spool);
    if (writer_is_helper(writer))
      h5_close(out->dataset);
    trm_free(out->block);
    trm_free(out->checksums);
  }
  if (writer_is_helper(writer))
    h5_close(writer->group);
  writer->outputs = 0;
  writer->group = -1;
  writer->split[0] = '\0';
}

/* Warns of classes without rows in the split, and resets the list. */
static void writer_classes_check(struct trm_data_writer *writer)
{
  size_t missing = 0, first = 0;
  for (size_t i = writer->spec.classes; writer->class_present && i-- > 0; writer->class_present[i] = false)
    if (!writer->class_present[i]) {
      missing++;
      first = i;
    }
  if (missing)
    trm_warn("%s: the %s split has no row of class %zu%s%s%s (%zu of %zu classes have none)", writer->path,
             writer->split, first, writer->names ? " (" : "", writer->names ? writer->names[first] : "",
             writer->names ? ")" : "", missing, writer->spec.classes);
}

static int writer_arrays_end(struct trm_data_writer *writer)
{
  if (writer->spec.kind == TRM_DATA_CSR) { /* starts ends with the end of the last row */
    const int64_t end = (int64_t)writer->entries;
    TRM_CHECK(writer_output_add(writer, &writer->output[0], &end, 1));
  }
  for (int i = 0; i < writer->outputs; i++)
    TRM_CHECK(writer_output_end(writer, &writer->output[i]));
  H5_LOCKED;
  if ((writer->text_bytes && !h5_put_integer(writer->group, "text_bytes", writer->text_bytes)) ||
      !h5_put_integer(writer->group, "rows", writer->rows) || H5Gclose(writer->group) < 0)
    return h5_error(writer->path, "%s cannot be described", writer->split);
  return TRM_OK;
}

static int writer_split_end(struct trm_data_writer *writer)
{
  int status = TRM_OK;
  if (*writer->split && !writer_is_helper(writer)) {
    writer_classes_check(writer);
    status = writer_arrays_end(writer);
  }
  writer_split_free(writer);
  return status;
}

static struct data_head writer_head(const struct trm_data_writer *writer)
{
  const struct trm_data_spec *spec = &writer->spec;
  const bool bytes = writer->x_type == BLOCK_UINT8;
  return (struct data_head){
    .kind = spec->kind, .target = spec->target, .classes = spec->classes, .vocabulary = spec->vocabulary,
    .shape = spec->shape, .scale = bytes ? spec->scale : 1, .shift = bytes ? spec->shift : 0,
  };
}

int trm_data_writer_split(struct trm_data_writer *writer, const char *split)
{
  TRM_CHECK(writer_split_end(writer));
  snprintf(writer->split, sizeof writer->split, "%s", split);
  writer->rows = writer->entries = writer->text_bytes = 0;
  H5_LOCKED;
  if (writer->file >= 0) {
    writer->group = H5Gcreate2(writer->file, split, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    if (writer->group < 0)
      return h5_error(writer->path, "%s cannot be made", split);
  }
  const struct data_head head = writer_head(writer);
  struct data_array_plan plan[DATA_ARRAYS];
  data_arrays_plan(&head, plan);
  plan[0].type = writer->x_type;
  for (int i = 0; i < DATA_ARRAYS; i++)
    if (plan[i].present)
      TRM_CHECK(writer_output_begin(writer, &plan[i]));
  return TRM_OK;
}

/* -- rows */

static int writer_csr_append(struct trm_data_writer *writer, const struct trm_data_rows *rows)
{
  const int64_t entries = rows->starts[rows->rows];
  if (rows->starts[0] != 0)
    return trm_error(TRM_FAILED, "%s: rows to append begin at entry %lld in place of 0", writer->path,
                     (long long)rows->starts[0]);
  for (size_t i = 0; i < rows->rows; i++) {
    if (rows->starts[i + 1] < rows->starts[i])
      return trm_error(TRM_FAILED, "%s: %s row %llu ends before it begins", writer->path, writer->split,
                       (unsigned long long)(writer->rows + i));
    for (int64_t e = rows->starts[i]; e < rows->starts[i + 1]; e++) {
      if (rows->columns[e] < 0 || (e > rows->starts[i] && rows->columns[e] <= rows->columns[e - 1]))
        return trm_error(TRM_FAILED, "%s: columns of %s row %llu are not ascending from 0", writer->path,
                         writer->split, (unsigned long long)(writer->rows + i));
      if (rows->columns[e] > writer->largest_column)
        writer->largest_column = rows->columns[e];
    }
    const int64_t start = (int64_t)writer->entries + rows->starts[i];
    TRM_CHECK(writer_output_add(writer, &writer->output[0], &start, 1));
  }
  TRM_CHECK(writer_output_add(writer, &writer->output[1], rows->columns, (size_t)entries));
  TRM_CHECK(writer_output_add(writer, &writer->output[2], rows->values, (size_t)entries));
  writer->entries += (uint64_t)entries;
  return TRM_OK;
}

static int writer_tokens_append(struct trm_data_writer *writer, const struct trm_data_rows *rows)
{
  struct output *out = &writer->output[0];
  for (size_t i = 0; i < rows->rows; i++) {
    if (rows->tokens[i] < 0 || (size_t)rows->tokens[i] >= writer->spec.vocabulary)
      return trm_error(TRM_FAILED, "%s: %s token %llu is %d, outside of the vocabulary of %zu", writer->path,
                       writer->split, (unsigned long long)(writer->rows + i), rows->tokens[i],
                       writer->spec.vocabulary);
    const uint16_t narrow = (uint16_t)rows->tokens[i];
    TRM_CHECK(writer_output_add(writer, out, out->type == BLOCK_UINT16 ? (const void *)&narrow : &rows->tokens[i], 1));
  }
  return TRM_OK;
}

static int writer_classes_append(struct trm_data_writer *writer, const struct trm_data_rows *rows)
{
  for (size_t i = 0; i < rows->rows; i++) {
    const int32_t class = rows->target_class[i];
    if (class < 0 || (size_t)class >= writer->spec.classes)
      return trm_error(TRM_FAILED, "%s: the class of %s row %llu is %d, of %zu classes", writer->path, writer->split,
                       (unsigned long long)(writer->rows + i), class, writer->spec.classes);
    writer->class_present[class] = true;
  }
  return writer_output_add(writer, &writer->output[writer->outputs - 1], rows->target_class, rows->rows);
}

int trm_data_writer_append(struct trm_data_writer *writer, const struct trm_data_rows *rows)
{
  if (!*writer->split)
    return trm_error(TRM_FAILED, "%s: rows before the first split", writer->path);
  if (rows->rows == 0)
    return TRM_OK;
  struct output *x = &writer->output[0], *y = &writer->output[writer->outputs - 1];
  if (writer->spec.kind == TRM_DATA_TOKENS)
    TRM_CHECK(writer_tokens_append(writer, rows));
  else if (writer->spec.kind == TRM_DATA_CSR)
    TRM_CHECK(writer_csr_append(writer, rows));
  else
    TRM_CHECK(writer_output_add(writer, x, x->type == BLOCK_UINT8 ? (const void *)rows->bytes : rows->floats,
                                rows->rows));
  if (writer->class_present)
    TRM_CHECK(writer_classes_append(writer, rows));
  else if (writer->spec.kind != TRM_DATA_TOKENS)
    TRM_CHECK(writer_output_add(writer, y, rows->target_value, rows->rows));
  writer->rows += rows->rows;
  writer->text_bytes += rows->text_bytes;
  return TRM_OK;
}

/* -- the file */

static void writer_free(struct trm_data_writer *writer)
{
  writer_turns_free(writer);
  writer_split_free(writer);
  trm_free(writer->path);
  trm_free((char *)writer->spec.source);
  trm_free(writer->names);
  trm_free(writer->class_present);
  trm_free(writer);
}

int trm_data_writer_open(struct trm_data_writer **handle, const char *path, const struct trm_data_spec *spec)
{
  *handle = NULL;
  if ((spec->kind == TRM_DATA_IMAGE || spec->kind == TRM_DATA_VECTOR) && trm_shape_count(&spec->shape) == 0)
    return trm_error(TRM_FAILED, "%s: samples of shape %s have no elements", path, trm_shape_text(&spec->shape));
  if (spec->kind != TRM_DATA_TOKENS && spec->target == TRM_TARGET_VALUE && spec->classes == 0)
    return trm_error(TRM_FAILED, "%s: samples have no target values", path);
  struct trm_data_writer *writer = trm_alloc(sizeof *writer, "the data set writer");
  writer->group = writer->file = -1;
  writer->largest_column = -1;
  writer->path = trm_strdup(path);
  writer->spec = *spec;
  writer->spec.source = trm_strdup(spec->source ? spec->source : "");
  if (spec->class_names) {
    size_t bytes = spec->classes * sizeof(char *);
    for (size_t i = 0; i < spec->classes; i++)
      bytes += strlen(spec->class_names[i]) + 1;
    writer->names = trm_alloc(bytes, "class names");
    char *to = (char *)(writer->names + spec->classes);
    for (size_t i = 0; i < spec->classes; i++) {
      writer->names[i] = strcpy(to, spec->class_names[i]);
      to += strlen(to) + 1;
    }
  }
  writer->spec.class_names = (const char *const *)writer->names;
  writer->x_type = spec->kind == TRM_DATA_TOKENS ? spec->vocabulary <= 1 << 16 ? BLOCK_UINT16 : BLOCK_INT32
                   : spec->kind != TRM_DATA_CSR && spec->element == TRM_ELEMENT_UINT8 ? BLOCK_UINT8
                                                                                       : BLOCK_FLOAT;
  if (spec->kind != TRM_DATA_TOKENS && spec->target == TRM_TARGET_CLASS)
    writer->class_present = trm_alloc(spec->classes, "classes of a split");
  trm_sha256_begin(&writer->digest);
  int status = writer_turns_open(writer);
  if (status == TRM_OK && !writer_is_helper(writer)) {
    status = h5_output_open(&writer->h5, path, H5_DATASET, true);
    writer->file = writer->h5.file;
  }
  if (status != TRM_OK) {
    writer_free(writer);
    return status;
  }
  *handle = writer;
  return TRM_OK;
}

/* Writes the attributes of the file, and the digest over them and all arrays. */
static int writer_describe(struct trm_data_writer *writer)
{
  const struct trm_data_spec *spec = &writer->spec;
  const struct data_head head = writer_head(writer);
  const hid_t file = writer->file;
  const bool tokens = spec->kind == TRM_DATA_TOKENS, bytes = writer->x_type == BLOCK_UINT8;
  const bool random = spec->split && !strcmp(spec->split, "random");
  char hex[65];
  data_digest_end(&writer->digest, &head, hex);
  const bool done =
    h5_put_text(file, "kind", trm_data_kind_name(spec->kind)) && h5_put_text(file, "target", data_target_name(&head)) &&
    h5_put_text(file, "source", spec->source) && h5_put_text(file, "digest", hex) &&
    (!tokens || h5_put_integer(file, "vocabulary", spec->vocabulary)) &&
    (tokens || (h5_put_integer(file, "classes", spec->classes) && h5_put_shape(file, "shape", &spec->shape))) &&
    (!bytes || (h5_put_real(file, "scale", spec->scale) && h5_put_real(file, "shift", spec->shift))) &&
    (!spec->split || h5_put_text(file, "split", spec->split)) &&
    (!random || h5_put_integer(file, "split_seed", spec->split_seed)) &&
    (!spec->encoding || encoding_put(file, spec->encoding)) && (!spec->table || table_put(file, spec->table)) &&
    (!spec->class_names || h5_put_texts(file, "class_names", spec->class_names, spec->classes));
  return done ? TRM_OK : h5_error(writer->path, "cannot be described");
}

int trm_data_writer_finish(struct trm_data_writer *writer, size_t features)
{
  struct trm_data_spec *spec = &writer->spec;
  int status = writer_split_end(writer);
  if (spec->kind == TRM_DATA_CSR && features)
    spec->shape = (struct trm_shape){.dims = 1, .size = {features}};
  if (status == TRM_OK && spec->kind == TRM_DATA_CSR &&
      writer->largest_column >= (int64_t)trm_shape_count(&spec->shape))
    status = trm_error(TRM_FAILED, "%s: has column %lld, but %zu features", writer->path,
                       (long long)writer->largest_column, trm_shape_count(&spec->shape));
  if (status == TRM_OK)
    status = writer_describe(writer);
  if (status == TRM_OK)
    status = h5_output_commit(&writer->h5);
  else
    h5_output_discard(&writer->h5);
  writer_free(writer);
  return status;
}

void trm_data_writer_abandon(struct trm_data_writer *writer)
{
  if (!writer)
    return;
  if (!writer_is_helper(writer))
    h5_output_discard(&writer->h5);
  writer_free(writer);
}
