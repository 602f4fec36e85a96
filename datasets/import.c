/* The table of importers, and functions that they have in common. */
#include "datasets/import.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/memory.h"
#include "core/random.h"
#include "core/status.h"
#include "datasets/file_reader.h"

const struct trm_importer trm_importer_table[] = {
  {"digits", trm_import_digits},
  {"clusters", trm_import_clusters},
  {"mnist", trm_import_mnist},
  {"cifar10", trm_import_cifar10},
  {"libsvm", trm_import_libsvm},
  {"csv", trm_import_csv},
  {"images", trm_import_images},
  {"npy", trm_import_npy},
  {"npz", trm_import_npz},
  {"text", trm_import_text},
  {NULL, NULL},
};

const char *const trm_digit_names[10] = {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"};

/* Splits text at commas. The array and its texts are one block, owned by the caller: trm_free. */
static char **import_names_split(const char *text, size_t *count)
{
  size_t names = 1;
  for (const char *c = text; *c; c++)
    names += *c == ',';
  char **name = trm_alloc(names * sizeof *name + strlen(text) + 1, "names");
  char *copy = strcpy((char *)(name + names), text);
  for (size_t i = 0; i < names; i++) {
    name[i] = copy;
    copy += strcspn(copy, ",");
    *copy++ = '\0';
  }
  *count = names;
  return name;
}

int trm_import_begin(const struct trm_import_request *request, struct trm_data_spec spec,
                     struct trm_data_writer **writer)
{
  const bool makes_file = !spec.comm || spec.comm->rank == 0;
  if (makes_file && !request->overwrite && access(request->out, F_OK) == 0)
    return trm_error(TRM_USAGE, "%s: exists; --overwrite replaces it", request->out);
  if (request->names && (spec.target != TRM_TARGET_CLASS || spec.kind == TRM_DATA_TOKENS))
    return trm_error(TRM_USAGE, "--names: these rows have no classes");
  size_t count = spec.classes;
  char **names = request->names ? import_names_split(request->names, &count) : NULL;
  if (names)
    spec.class_names = (const char *const *)names;
  spec.compress = request->compress;
  const int status =
    count == spec.classes
      ? trm_data_writer_open(writer, request->out, &spec)
      : trm_error(TRM_USAGE, "--names: gives %zu names, but the rows have %zu classes", count, spec.classes);
  trm_free(names);
  return status;
}

int trm_import_begin_images(const struct trm_import_request *request, struct trm_shape shape,
                            const char *const *class_names, const char *source, struct trm_data_writer **writer)
{
  const struct trm_data_spec spec = {
    .kind = TRM_DATA_IMAGE, .element = TRM_ELEMENT_UINT8, .shape = shape, .scale = 1.0f / 255,
    .target = TRM_TARGET_CLASS, .classes = TRM_IMAGE_CLASSES, .class_names = class_names, .source = source,
  };
  return trm_import_begin(request, spec, writer);
}

int trm_import_end(struct trm_data_writer *writer, int status, size_t features)
{
  if (status == TRM_OK)
    return trm_data_writer_finish(writer, features);
  trm_data_writer_abandon(writer);
  return status;
}

bool trm_is_folder(const char *path)
{
  struct stat info;
  return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

char *trm_import_find(const char *folder, const char *name)
{
  for (int zipped = 0; zipped < 2; zipped++) {
    char *path = trm_format("%s/%s%s", folder, name, zipped ? ".gz" : "");
    if (access(path, F_OK) == 0)
      return path;
    trm_free(path);
  }
  trm_error(TRM_FAILED, "%s: holds no %s, plain or .gz", folder, name);
  return NULL;
}

int trm_import_train_rows(const struct trm_import_request *request, double default_part, uint64_t rows,
                          uint64_t *train_rows)
{
  const double part = request->test_part < 0 ? default_part : request->test_part;
  const uint64_t test_rows = (uint64_t)((double)rows * part + 0.5);
  if (test_rows >= rows)
    return trm_error(TRM_USAGE, "--test-part=%g: leaves none of the %llu rows of %s for training", part,
                     (unsigned long long)rows, request->paths[0]);
  *train_rows = rows - test_rows;
  return TRM_OK;
}

int trm_import_check(const struct trm_import_request *request, enum trm_target_kind *target, bool *random_split)
{
  const char *split = request->split ? request->split : "random";
  if (request->count < 1 || request->count > 2)
    return trm_error(TRM_USAGE, "data import: needs one or two files, TRAIN [TEST]; %d were given", request->count);
  if (request->test_part >= 1)
    return trm_error(TRM_USAGE, "--test-part=%g: must be less than 1", request->test_part);
  if (request->count == 2 && (request->test_part >= 0 || request->split))
    return trm_error(TRM_USAGE, "%s: %s is the test split; leave out %s", request->test_part >= 0 ? "--test-part" :
                     "--split", request->paths[1], request->test_part >= 0 ? "--test-part" : "--split");
  *random_split = !strcmp(split, "random");
  if (!*random_split && strcmp(split, "last") != 0)
    return trm_error(TRM_USAGE, "--split=%s: must be random or last", split);
  *target = request->target && !strcmp(request->target, "value") ? TRM_TARGET_VALUE : TRM_TARGET_CLASS;
  if (request->target && *target == TRM_TARGET_CLASS && strcmp(request->target, "class") != 0)
    return trm_error(TRM_USAGE, "--target=%s: must be class or value", request->target);
  return TRM_OK;
}

char **trm_texts_copy(const char *const *texts, size_t count)
{
  size_t bytes = (count + 1) * sizeof(char *);
  for (size_t i = 0; i < count; i++)
    bytes += strlen(texts[i]) + 1;
  char **copy = trm_alloc(bytes, "texts"), *to = (char *)(copy + count + 1);
  for (size_t i = 0; i < count; i++) {
    copy[i] = strcpy(to, texts[i]);
    to += strlen(to) + 1;
  }
  return copy;
}

int trm_import_text_compare(const void *a, const void *b)
{
  return strcmp(*(char *const *)a, *(char *const *)b);
}

struct trm_label trm_label_parse(const char *name)
{
  struct trm_label label = {.name = (char *)name};
  label.is_number = trm_parse_number(name, &label.number);
  return label;
}

int trm_label_compare(const struct trm_label *a, const struct trm_label *b)
{
  if (a->is_number != b->is_number)
    return a->is_number ? -1 : 1;
  return a->is_number ? (a->number > b->number) - (a->number < b->number) : strcmp(a->name, b->name);
}

void trm_strata_plan(struct trm_stratum *stratum, size_t count, double test_part)
{
  uint64_t rows = 0, test_rows = 0;
  for (size_t i = 0; i < count; i++) {
    rows += stratum[i].rows;
    stratum[i].test_rows = (uint64_t)((double)rows * test_part + 0.5) - test_rows;
    test_rows += stratum[i].test_rows;
  }
}

bool trm_stratum_next(struct trm_stratum *stratum, bool is_random, uint64_t seed, uint32_t class)
{
  uint64_t place = stratum->seen++;
  if (is_random && place < stratum->rows)
    place = trm_random_permute(seed, TRM_RANDOM_SPLIT, class, stratum->rows, place);
  return place >= stratum->rows - stratum->test_rows;
}
