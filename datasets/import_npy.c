/* Arrays of NumPy: x and y of one split or of two, in .npy files or in an .npz archive. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "datasets/import.h"
#include "datasets/npy.h"
#include "datasets/zip_stream.h"

#define CHUNK_BYTES ((size_t)1 << 20) /* of x, read at once */

/* An array's place: a file, or a member of an archive. */
struct place {
  const char *path, *member;
};

/* The arrays of a split, and its targets in memory. */
struct arrays {
  struct place x, y;
  uint64_t rows;
  size_t values;       /* of a target */
  float *target_value; /* (rows, values) */
  int32_t *target_class; /* (rows) or NULL */
};

struct import {
  const struct trm_import_request *request;
  enum trm_target_kind target;
  bool random_split;
  struct arrays train, test; /* test.x.path NULL: there is none */
  double *class;        /* (classes) labels, ascending; of texts 0, 1, ... */
  char **name;          /* (classes) of texts, else NULL */
  size_t classes;
  struct trm_stratum *stratum; /* (classes; of values 1) if a test split is cut, else NULL */
  struct trm_data_spec spec;
  bool last_channels;   /* images (H, W, C) */
};

/* -- targets */

static int npy_compare(const void *a, const void *b)
{
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Converts the numbers of y. */
static int npy_numbers_convert(const struct npy_array *y, const void *raw, double *to, size_t count)
{
  for (size_t i = 0; i < count; i++) {
    to[i] = npy_value(y, raw, i);
    if (!(fabs(to[i]) <= (double)FLT_MAX))
      return trm_error(TRM_FAILED, "%s: element %zu is not finite in single precision", y->name, i);
  }
  return TRM_OK;
}

static int npy_texts_convert(const struct npy_array *y, const void *raw, char **to, size_t count)
{
  for (size_t i = 0; i < count; i++) {
    to[i] = npy_text(y, raw, i);
    if (!to[i])
      return TRM_FAILED;
  }
  return TRM_OK;
}

static void npy_texts_free(char **text, size_t count)
{
  for (size_t i = 0; text && i < count; i++)
    trm_free(text[i]);
  trm_free(text);
}

/* Reads all of y, (rows, values), as doubles; or as texts, and then the doubles are left to npy_texts_sort. */
static int npy_targets_read(struct arrays *arrays, enum trm_target_kind target, double **targets, char ***texts)
{
  struct npy_array y;
  int status = npy_open(&y, arrays->y.path, arrays->y.member);
  if (status == TRM_OK && (y.dims > 2 || (target == TRM_TARGET_CLASS && y.row_items != 1)))
    status = trm_error(TRM_FAILED, "%s: has %d dimensions: a label for each row is wanted (--target=value: several "
                       "values)", y.name, y.dims);
  if (status == TRM_OK && target == TRM_TARGET_VALUE && npy_is_text(&y))
    status = trm_error(TRM_FAILED, "%s: holds texts, which are no values (--target=value)", y.name);
  if (status == TRM_OK) {
    arrays->rows = y.size[0];
    arrays->values = y.row_items;
    const size_t count = (size_t)arrays->rows * y.row_items;
    void *raw = trm_alloc(count * y.item, "targets");
    *targets = trm_alloc(count * sizeof **targets, "targets");
    if (npy_is_text(&y))
      *texts = trm_alloc(count * sizeof **texts, "labels");
    status = npy_read(&y, (size_t)arrays->rows, raw);
    if (status == TRM_OK)
      status = *texts ? npy_texts_convert(&y, raw, *texts, count) : npy_numbers_convert(&y, raw, *targets, count);
    trm_free(raw);
  }
  npy_close(&y);
  return status;
}

/* A label as a text: of a row, and where its class goes. */
struct text {
  struct trm_label label;
  size_t at;
  double *class;
};

static int npy_text_compare(const void *a, const void *b)
{
  const struct text *x = a, *y = b;
  const int order = trm_label_compare(&x->label, &y->label);
  return order ? order : (x->at > y->at) - (x->at < y->at);
}

/* Sets the targets of texts to 0, 1, ... in the order of their labels, and the names to the first spelling of each. */
static void npy_texts_sort(struct import *import, char **const texts[2], double *const targets[2])
{
  const size_t first = (size_t)import->train.rows, n = first + (texts[1] ? (size_t)import->test.rows : 0);
  struct text *all = trm_alloc(n * sizeof *all, "labels");
  const char **name = trm_alloc(n * sizeof *name, "labels");
  size_t classes = 0;
  for (size_t i = 0; i < n; i++)
    all[i] = (struct text){.label = trm_label_parse(i < first ? texts[0][i] : texts[1][i - first]), .at = i,
                           .class = i < first ? &targets[0][i] : &targets[1][i - first]};
  qsort(all, n, sizeof *all, npy_text_compare);
  for (size_t i = 0; i < n; i++) {
    if (i == 0 || trm_label_compare(&all[i - 1].label, &all[i].label) != 0)
      name[classes++] = all[i].label.name;
    *all[i].class = (double)(classes - 1);
  }
  import->name = trm_texts_copy(name, classes);
  trm_free(name);
  trm_free(all);
}

/* Adds the labels that are new, in ascending order. */
static void npy_classes_add(struct import *import, const double *label, size_t count)
{
  double *all = trm_alloc((import->classes + count) * sizeof *all, "labels");
  memcpy(all, label, count * sizeof *all);
  if (import->classes)
    memcpy(all + count, import->class, import->classes * sizeof *all);
  qsort(all, import->classes + count, sizeof *all, npy_compare);
  size_t classes = 0;
  for (size_t i = 0; i < import->classes + count; i++)
    if (i == 0 || all[i] > all[classes - 1])
      all[classes++] = all[i];
  trm_free(import->class);
  import->class = all;
  import->classes = classes;
}

static int32_t npy_class_find(const struct import *import, double label)
{
  const double *found = bsearch(&label, import->class, import->classes, sizeof label, npy_compare);
  return (int32_t)(found - import->class);
}

/* Reads the targets of both splits and gives labels their classes. */
static int npy_targets_import(struct import *import)
{
  struct arrays *const both[] = {&import->train, &import->test};
  double *targets[2] = {NULL};
  char **texts[2] = {NULL};
  int status = TRM_OK;
  for (int i = 0; i < 2 && status == TRM_OK && both[i]->x.path; i++)
    status = npy_targets_read(both[i], import->target, &targets[i], &texts[i]);
  if (status == TRM_OK && targets[1] && !texts[0] != !texts[1])
    status = trm_error(TRM_FAILED, "%s: holds %s as labels, and the train split %s", import->test.y.path,
                       texts[1] ? "texts" : "numbers", texts[0] ? "texts" : "numbers");
  if (status == TRM_OK && texts[0])
    npy_texts_sort(import, texts, targets);
  for (int i = 0; i < 2 && status == TRM_OK && targets[i] && import->target == TRM_TARGET_CLASS; i++)
    npy_classes_add(import, targets[i], (size_t)both[i]->rows);
  if (status == TRM_OK && import->classes > 65536)
    status = trm_error(TRM_FAILED, "%s: has %zu labels; are they values? --target=value", import->train.y.path,
                       import->classes);
  if (status == TRM_OK && targets[1] && import->train.values != import->test.values)
    status = trm_error(TRM_FAILED, "%s: has %zu values a row, and the train split %zu", import->test.y.path,
                       import->test.values, import->train.values);
  for (int i = 0; i < 2 && status == TRM_OK && targets[i]; i++) {
    const size_t count = (size_t)both[i]->rows * both[i]->values;
    both[i]->target_class = trm_alloc(count * sizeof(int32_t), "targets");
    both[i]->target_value = trm_alloc(count * sizeof(float), "targets");
    for (size_t k = 0; k < count; k++) {
      both[i]->target_class[k] = import->target == TRM_TARGET_CLASS ? npy_class_find(import, targets[i][k]) : 0;
      both[i]->target_value[k] = (float)targets[i][k];
    }
  }
  for (int i = 0; i < 2; i++) {
    npy_texts_free(texts[i], (size_t)both[i]->rows);
    trm_free(targets[i]);
  }
  return status;
}

/* -- rows */

/* Sets kind, shape and element from x: rows of two or three dimensions are images, (C, H, W) if C is 1 or 3, else
 * (H, W, C); of two (H, W). */
static int npy_spec_make(struct import *import, const struct npy_array *x)
{
  struct trm_data_spec *spec = &import->spec;
  const bool image = x->dims == 3 || x->dims == 4;
  if (x->dims < 2 || x->dims > 4)
    return trm_error(TRM_FAILED, "%s: has %d dimensions; rows of 1 to 3 dimensions are wanted", x->name, x->dims);
  import->last_channels = x->dims == 4 && x->size[1] != 1 && x->size[1] != 3 && (x->size[3] == 1 || x->size[3] == 3);
  spec->kind = image ? TRM_DATA_IMAGE : TRM_DATA_VECTOR;
  spec->element = x->kind == 'u' && x->item == 1 ? TRM_ELEMENT_UINT8 : TRM_ELEMENT_FLOAT;
  spec->scale = image ? 1.0f / 255 : 1;
  size_t *size = spec->shape.size;
  spec->shape.dims = image ? 3 : 1;
  if (x->dims == 3)
    size[0] = 1;
  for (int d = 1; d < x->dims; d++)
    size[d - 1 + (x->dims == 3)] = (size_t)x->size[d];
  if (import->last_channels) {
    const size_t channels = size[2];
    size[2] = size[1];
    size[1] = size[0];
    size[0] = channels;
  }
  return TRM_OK;
}

/* Opens x, whose rows must be those of y and of the same shape as in the other split. */
static int npy_rows_open(struct import *import, const struct arrays *arrays, bool first, struct npy_array *x)
{
  TRM_CHECK(npy_open(x, arrays->x.path, arrays->x.member));
  if (npy_is_text(x))
    return trm_error(TRM_FAILED, "%s: holds texts; rows of numbers are wanted", x->name);
  if (x->size[0] != arrays->rows)
    return trm_error(TRM_FAILED, "%s: has %llu rows, but y has %llu", x->name, (unsigned long long)x->size[0],
                     (unsigned long long)arrays->rows);
  const struct trm_data_spec spec = import->spec;
  TRM_CHECK(npy_spec_make(import, x));
  const size_t *a = spec.shape.size, *b = import->spec.shape.size;
  const bool equal = spec.shape.dims == import->spec.shape.dims && spec.element == import->spec.element &&
                     !memcmp(a, b, (size_t)spec.shape.dims * sizeof *a);
  if (!first && !equal)
    return trm_error(TRM_FAILED, "%s: has rows of another shape or type than the train split", x->name);
  return TRM_OK;
}

/* The place of element i of a row (C, H, W) in a row as stored. */
static size_t npy_element_place(const struct import *import, size_t i)
{
  if (!import->last_channels)
    return i;
  const size_t pixels = import->spec.shape.size[1] * import->spec.shape.size[2];
  return i % pixels * import->spec.shape.size[0] + i / pixels;
}

/* Converts a row. */
static int npy_row_convert(const struct import *import, const struct npy_array *x, const void *raw, size_t row,
                           uint8_t *bytes, float *floats)
{
  for (size_t i = 0; i < x->row_items; i++) {
    const size_t from = row * x->row_items + npy_element_place(import, i);
    if (import->spec.element == TRM_ELEMENT_UINT8) {
      bytes[i] = ((const uint8_t *)raw)[from];
      continue;
    }
    const double value = npy_value(x, raw, from);
    if (!(fabs(value) <= (double)FLT_MAX))
      return trm_error(TRM_FAILED, "%s: a number in it is not finite in single precision", x->name);
    floats[i] = (float)value;
  }
  return TRM_OK;
}

/* Appends the rows of the train or the test part; all if no test split is cut. */
static int npy_rows_copy(struct import *import, const struct arrays *arrays, struct npy_array *x, bool test,
                         struct trm_data_writer *writer)
{
  const size_t row_bytes = x->row_items * x->item, chunk = row_bytes < CHUNK_BYTES ? CHUNK_BYTES / row_bytes : 1;
  void *raw = trm_alloc(chunk * row_bytes, "rows");
  uint8_t *bytes = trm_alloc(x->row_items, "a row");
  float *floats = trm_alloc(x->row_items * sizeof *floats, "a row");
  int status = TRM_OK;
  for (uint64_t first = 0; first < arrays->rows && status == TRM_OK; first += chunk) {
    const size_t rows = arrays->rows - first < chunk ? (size_t)(arrays->rows - first) : chunk;
    status = npy_read(x, rows, raw);
    for (size_t i = 0; i < rows && status == TRM_OK; i++) {
      const size_t row = (size_t)first + i;
      const int32_t class = import->target == TRM_TARGET_CLASS ? arrays->target_class[row] : 0;
      const int32_t stratum = import->random_split ? class : 0;
      if (import->stratum && trm_stratum_next(&import->stratum[stratum], import->random_split, import->request->seed,
                                              (uint32_t)stratum) != test)
        continue;
      status = npy_row_convert(import, x, raw, i, bytes, floats);
      if (status == TRM_OK)
        status = trm_data_writer_append(writer, &(struct trm_data_rows){
          .rows = 1, .bytes = bytes, .floats = floats, .target_class = &class,
          .target_value = arrays->target_value + row * arrays->values});
    }
  }
  trm_free(raw);
  trm_free(bytes);
  trm_free(floats);
  return status;
}

static int npy_split_copy(struct import *import, const struct arrays *arrays, bool test, struct trm_data_writer *writer)
{
  struct npy_array x;
  for (size_t i = 0; import->stratum && i < (import->classes ? import->classes : 1); i++)
    import->stratum[i].seen = 0;
  int status = trm_data_writer_split(writer, test ? "test" : "train");
  if (status == TRM_OK) {
    status = npy_rows_open(import, arrays, false, &x);
    if (status == TRM_OK)
      status = npy_rows_copy(import, arrays, &x, test, writer);
    npy_close(&x);
  }
  return status;
}

/* -- the import */

static int npy_split_plan(struct import *import)
{
  const double part = import->request->test_part;
  if (part <= 0)
    return TRM_OK;
  uint64_t train_rows;
  TRM_CHECK(trm_import_train_rows(import->request, 0, import->train.rows, &train_rows));
  const bool strata = import->random_split && import->target == TRM_TARGET_CLASS;
  import->stratum = trm_alloc((import->classes + 1) * sizeof *import->stratum, "classes");
  if (!strata) {
    import->stratum[0].rows = import->train.rows;
  } else {
    for (uint64_t i = 0; i < import->train.rows; i++)
      import->stratum[import->train.target_class[i]].rows++;
  }
  trm_strata_plan(import->stratum, strata ? import->classes : 1, part);
  return TRM_OK;
}

static int npy_write(struct import *import)
{
  char *source = trm_format("NumPy arrays of %s", import->request->paths[0]);
  char (*label)[32] = trm_alloc((import->classes + 1) * sizeof *label, "labels");
  const char **list = trm_alloc((import->classes + 1) * sizeof *list, "labels");
  for (size_t i = 0; i < import->classes; i++) {
    snprintf(label[i], sizeof label[i], "%.15g", import->class[i]);
    list[i] = import->name ? import->name[i] : label[i];
  }
  struct trm_data_spec spec = import->spec;
  spec.target = import->target;
  spec.classes = import->target == TRM_TARGET_CLASS ? import->classes : import->train.values;
  spec.class_names = import->target == TRM_TARGET_CLASS ? list : NULL;
  spec.source = source;
  spec.split = !import->stratum ? NULL : import->random_split ? "random" : "last";
  spec.split_seed = import->request->seed;
  struct trm_data_writer *writer;
  int status = trm_import_begin(import->request, spec, &writer);
  trm_free(list);
  trm_free(label);
  trm_free(source);
  TRM_CHECK(status);
  status = npy_split_copy(import, &import->train, false, writer);
  if (status == TRM_OK && (import->stratum || import->test.x.path))
    status = npy_split_copy(import, import->stratum ? &import->train : &import->test, true, writer);
  return trm_import_end(writer, status, 0);
}

static int npy_import(struct import *import)
{
  const struct trm_import_request *request = import->request;
  if (import->test.x.path && (request->test_part >= 0 || request->split))
    return trm_error(TRM_USAGE, "--test-part, --split: %s has a test split", request->paths[0]);
  struct npy_array x;
  TRM_CHECK(npy_targets_import(import));
  int status = npy_rows_open(import, &import->train, true, &x);
  npy_close(&x);
  TRM_CHECK(status);
  TRM_CHECK(npy_split_plan(import));
  return npy_write(import);
}

static int npy_import_run(struct import *import)
{
  /* the check counts a source, not its arrays */
  struct trm_import_request one = *import->request;
  one.count = 1;
  int status = trm_import_check(&one, &import->target, &import->random_split);
  if (status == TRM_OK)
    status = npy_import(import);
  struct arrays *const both[] = {&import->train, &import->test};
  for (int i = 0; i < 2; i++) {
    trm_free(both[i]->target_class);
    trm_free(both[i]->target_value);
  }
  trm_free(import->class);
  trm_free(import->name);
  trm_free(import->stratum);
  return status;
}

int trm_import_npy(const struct trm_import_request *request)
{
  if (request->count != 2 && request->count != 4)
    return trm_error(TRM_USAGE, "data import npy: takes X.npy Y.npy, or these and the test split's; %d were given",
                     request->count);
  struct import import = {.request = request, .train = {.x.path = request->paths[0], .y.path = request->paths[1]}};
  if (request->count == 4)
    import.test = (struct arrays){.x.path = request->paths[2], .y.path = request->paths[3]};
  return npy_import_run(&import);
}

int trm_import_npz(const struct trm_import_request *request)
{
  if (request->count != 1)
    return trm_error(TRM_USAGE, "data import npz: takes one archive; %d were given", request->count);
  const char *path = request->paths[0];
  bool splits = false, test = false;
  if (!request->x && !request->y)
    TRM_CHECK(zip_has_member(path, "x_train", &splits));
  if (splits)
    TRM_CHECK(zip_has_member(path, "x_test", &test));
  struct import import = {
    .request = request,
    .train = {.x = {path, splits ? "x_train" : request->x ? request->x : "x"},
              .y = {path, splits ? "y_train" : request->y ? request->y : "y"}}};
  if (test)
    import.test = (struct arrays){.x = {path, "x_test"}, .y = {path, "y_test"}};
  return npy_import_run(&import);
}
