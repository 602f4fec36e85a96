#include "datasets/import.h"

#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "datasets/file_reader.h"

#define MAX_LABELS 65536

/* A class label. Labels that are numbers are equal if their values are; the name is the first spelling seen. */
struct label {
  char *name;
  bool is_number;
  double number;
};

struct import {
  const struct trm_import_request *request;
  const struct trm_row_format *format;
  void *impl;
  enum trm_target_kind target;
  struct label *label; /* (labels) numbers first, ascending, then other texts in order of their bytes */
  size_t labels, label_capacity;
  bool labels_are_known; /* no others may be there */
  struct trm_stratum *stratum; /* (labels) */
  size_t stratum_capacity;
  bool random_split;
  struct trm_stratum all;  /* the only stratum unless the split is random and the target a class */
  struct trm_data_writer *writer;
  int32_t target_class[TRM_IMPORT_ROWS];
  float target_value[TRM_IMPORT_ROWS];
};

enum part { PART_ALL, PART_TRAIN, PART_TEST };

/* -- labels */

static int rows_label_compare(const struct label *a, const struct label *b)
{
  if (a->is_number != b->is_number)
    return a->is_number ? -1 : 1;
  return a->is_number ? (a->number > b->number) - (a->number < b->number) : strcmp(a->name, b->name);
}

/* Returns the index of a label, or that at which it is to be inserted. */
static size_t rows_label_find(const struct import *import, const struct label *label, bool *found)
{
  size_t low = 0, high = import->labels;
  *found = false;
  while (low < high && !*found) {
    const size_t middle = low + (high - low) / 2;
    const int order = rows_label_compare(&import->label[middle], label);
    if (order < 0)
      low = middle + 1;
    else
      high = middle;
    if (order == 0) {
      *found = true;
      low = middle;
    }
  }
  return low;
}

static struct label rows_label_parse(const char *name)
{
  struct label label = {.name = (char *)name};
  label.is_number = trm_parse_number(name, &label.number);
  return label;
}

/* Adds a label, unless it is known. Returns its place. */
static size_t rows_label_insert(struct import *import, const char *name, bool *found)
{
  struct label label = rows_label_parse(name);
  const size_t place = rows_label_find(import, &label, found);
  if (!*found) {
    import->label = trm_grow(import->label, &import->label_capacity, import->labels, import->labels + 1,
                               sizeof label, "labels");
    import->stratum = trm_grow(import->stratum, &import->stratum_capacity, import->labels, import->labels + 1,
                               sizeof *import->stratum, "labels");
    memmove(import->label + place + 1, import->label + place, (import->labels - place) * sizeof label);
    memmove(import->stratum + place + 1, import->stratum + place, (import->labels - place) * sizeof *import->stratum);
    import->stratum[place] = (struct trm_stratum){.rows = 0};
    import->labels++;
    label.name = trm_strdup(name);
    import->label[place] = label;
  }
  return place;
}

/* Counts a row of the label. */
static int rows_label_count(struct import *import, const char *name)
{
  bool found;
  const size_t place = rows_label_insert(import, name, &found);
  import->stratum[place].rows++;
  if (!found && import->labels_are_known)
    return import->format->label_error(import->impl, "is not among the labels of --like");
  return import->labels <= MAX_LABELS ? TRM_OK : import->format->label_error(
    import->impl, "is one label too many; are they values? --target=value");
}

static const char **rows_label_names(const struct import *import)
{
  const char **names = trm_alloc((import->labels + 1) * sizeof *names, "label names");
  for (size_t i = 0; i < import->labels; i++)
    names[i] = import->label[i].name;
  return names;
}

/* -- the split of a single file */

static int rows_split_plan(struct import *import)
{
  uint64_t train_rows;
  const double part = import->request->test_part < 0 ? 0 : import->request->test_part;
  TRM_CHECK(trm_import_train_rows(import->request, 0, import->all.rows, &train_rows));
  import->all.test_rows = import->all.rows - train_rows;
  trm_strata_plan(import->stratum, import->labels, part);
  return TRM_OK;
}

/* Returns true if the next row of a class is a test row; called in file order. */
static bool rows_is_test(struct import *import, size_t class)
{
  const bool stratified = import->random_split && import->target == TRM_TARGET_CLASS;
  return trm_stratum_next(stratified ? &import->stratum[class] : &import->all, import->random_split,
                          import->request->seed, (uint32_t)class);
}

/* -- passes over a file */

/* Takes over the labels that rows may have. */
static void rows_labels_know(struct import *import)
{
  size_t count = 0;
  const struct trm_row_format *format = import->format;
  const char *const *labels = format->labels && import->target == TRM_TARGET_CLASS
                                ? format->labels(import->impl, &count) : NULL;
  import->labels_are_known = count > 0;
  for (size_t i = 0; i < count; i++) {
    bool found;
    rows_label_insert(import, labels[i], &found);
  }
}

/* Counts rows and collects labels. learns: of the file that determines the columns. */
static int rows_scan(struct import *import, const char *path, bool learns, uint64_t *rows)
{
  const struct trm_row_format *format = import->format;
  const char *label;
  *rows = 0;
  int status = format->open(import->impl, path);
  while (status == TRM_OK && (status = format->next(import->impl, &label)) == TRM_OK && label) {
    ++*rows;
    if (import->target == TRM_TARGET_CLASS)
      status = rows_label_count(import, label);
    if (status == TRM_OK && learns && format->learn)
      status = format->learn(import->impl);
  }
  format->close(import->impl);
  return status == TRM_OK && !*rows ? trm_error(TRM_FAILED, "%s: holds no rows", path) : status;
}

static int rows_flush(struct import *import, struct trm_data_rows *rows)
{
  const int status = rows->rows ? trm_data_writer_append(import->writer, rows) : TRM_OK;
  rows->rows = 0;
  return status;
}

/* Sets the class of the current row, and *chosen if the row belongs to the part. */
static int rows_choose(struct import *import, const char *label, enum part part, size_t *class, bool *chosen)
{
  *class = 0;
  if (import->target == TRM_TARGET_CLASS) {
    bool found;
    const struct label parsed = rows_label_parse(label);
    *class = rows_label_find(import, &parsed, &found);
    if (!found)
      return import->format->label_error(import->impl, "was not there in the first pass: the file changes");
  }
  *chosen = part == PART_ALL || rows_is_test(import, *class) == (part == PART_TEST);
  return TRM_OK;
}

/* Appends the current row. */
static int rows_add(struct import *import, const char *label, size_t class, struct trm_data_rows *rows)
{
  import->target_class[rows->rows] = (int32_t)class;
  const char *wrong =
    import->target == TRM_TARGET_CLASS ? NULL : trm_parse_float(label, &import->target_value[rows->rows]);
  if (wrong)
    return import->format->label_error(import->impl, wrong);
  bool full = false;
  TRM_CHECK(import->format->add(import->impl, rows, &full));
  return ++rows->rows == TRM_IMPORT_ROWS || full ? rows_flush(import, rows) : TRM_OK;
}

/* Reads the rows of a part of a file: appends them to the split that the writer is at, or measures them. */
static int rows_pass(struct import *import, const char *path, enum part part, bool measures)
{
  const struct trm_row_format *format = import->format;
  struct trm_data_rows rows = {.target_class = import->target_class, .target_value = import->target_value};
  const char *label;
  size_t class;
  bool chosen;
  import->all.seen = 0;
  for (size_t i = 0; i < import->labels; i++)
    import->stratum[i].seen = 0;
  int status = format->open(import->impl, path);
  while (status == TRM_OK && (status = format->next(import->impl, &label)) == TRM_OK && label) {
    status = rows_choose(import, label, part, &class, &chosen);
    if (status == TRM_OK && chosen)
      status = measures ? format->measure(import->impl) : rows_add(import, label, class, &rows);
  }
  if (status == TRM_OK)
    status = rows_flush(import, &rows);
  format->close(import->impl);
  return status;
}

/* Copies a file, or a part of it, as one split. */
static int rows_copy(struct import *import, const char *path, const char *split, enum part part)
{
  TRM_CHECK(trm_data_writer_split(import->writer, split));
  return rows_pass(import, path, part, false);
}

/* -- the import */

static int rows_writer_open(struct import *import)
{
  const struct trm_import_request *request = import->request;
  const bool classes = import->target == TRM_TARGET_CLASS;
  const char **names = rows_label_names(import);
  char *source = trm_format("%s file %s", import->format->name, request->paths[0]);
  struct trm_data_spec spec = {
    .target = import->target,
    .classes = classes ? import->labels : 1,
    .class_names = classes ? names : NULL,
    .source = source,
    .split = !import->all.test_rows ? NULL : import->random_split ? "random" : "last",
    .split_seed = request->seed,
  };
  int status = import->format->describe(import->impl, &spec);
  if (status == TRM_OK)
    status = trm_import_begin(request, spec, &import->writer);
  trm_free(names);
  trm_free(source);
  return status;
}

static int rows_files_import(struct import *import)
{
  const struct trm_import_request *request = import->request;
  const char *train = request->paths[0], *test = request->count == 2 ? request->paths[1] : NULL;
  uint64_t test_rows;
  size_t features = 0;
  TRM_CHECK(trm_import_check(request, &import->target, &import->random_split));
  rows_labels_know(import);
  TRM_CHECK(rows_scan(import, train, true, &import->all.rows));
  TRM_CHECK(test ? rows_scan(import, test, false, &test_rows) : rows_split_plan(import));
  const bool cut = import->all.test_rows > 0;
  if (import->format->is_measured && import->format->is_measured(import->impl))
    TRM_CHECK(rows_pass(import, train, cut ? PART_TRAIN : PART_ALL, true));
  TRM_CHECK(rows_writer_open(import));
  int status = rows_copy(import, train, "train", cut ? PART_TRAIN : PART_ALL);
  if (status == TRM_OK && (test || cut))
    status = rows_copy(import, cut ? train : test, "test", cut ? PART_TEST : PART_ALL);
  if (status == TRM_OK && import->format->features && !(features = import->format->features(import->impl)))
    status = trm_error(TRM_FAILED, "%s: no row has an entry", train);
  return trm_import_end(import->writer, status, features);
}

int trm_import_rows(const struct trm_import_request *request, const struct trm_row_format *format, void *impl)
{
  struct import *import = trm_alloc(sizeof *import, "rows to import");
  *import = (struct import){.request = request, .format = format, .impl = impl};
  const int status = rows_files_import(import);
  for (size_t i = 0; i < import->labels; i++)
    trm_free(import->label[i].name);
  trm_free(import->label);
  trm_free(import->stratum);
  trm_free(import);
  return status;
}
