/* Sparse rows in the text format of SVMlight and LIBSVM (Joachims 1999; Chang & Lin 2011):
 *   label index:value index:value ...   # comment
 * Indices count from 1 in the file and from 0 in the data set; they must ascend. The file is read twice: first for its
 * labels, which become classes in ascending order, then for its rows; so memory does not limit its size. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "datasets/import.h"
#include "datasets/file_reader.h"

#define CHUNK_ROWS 1024
#define CHUNK_ENTRIES ((size_t)1 << 20)

/* Rows on their way to the writer. */
struct batch {
  size_t rows, entries_capacity;
  int64_t starts[CHUNK_ROWS + 1];
  int32_t *columns; /* (entries_room) */
  float *values;
  int32_t target_class[CHUNK_ROWS];
  float target_value[CHUNK_ROWS];
};

struct import {
  const struct trm_import_request *request;
  enum trm_target_kind target;
  struct trm_labels labels;
  struct trm_data_writer *writer;
  struct batch *batch;
  size_t features; /* largest index so far */
};

static void libsvm_batch_grow(struct batch *batch, size_t entries)
{
  if (entries <= batch->entries_capacity)
    return;
  const size_t capacity = 2 * entries, used = (size_t)batch->starts[batch->rows + 1];
  int32_t *columns = trm_alloc(capacity * sizeof *columns, "libsvm indices");
  float *values = trm_alloc(capacity * sizeof *values, "libsvm values");
  if (used) {
    memcpy(columns, batch->columns, used * sizeof *columns);
    memcpy(values, batch->values, used * sizeof *values);
  }
  trm_free(batch->columns);
  trm_free(batch->values);
  batch->columns = columns;
  batch->values = values;
  batch->entries_capacity = capacity;
}

static int libsvm_batch_flush(struct import *import)
{
  struct batch *batch = import->batch;
  const struct trm_data_rows rows = {
    .rows = batch->rows,
    .starts = batch->starts,
    .columns = batch->columns,
    .values = batch->values,
    .target_class = import->target == TRM_TARGET_CLASS ? batch->target_class : NULL,
    .target_value = import->target == TRM_TARGET_VALUE ? batch->target_value : NULL,
  };
  batch->rows = 0;
  return rows.rows ? trm_data_writer_append(import->writer, &rows) : TRM_OK;
}

static bool libsvm_is_blank(char c)
{
  return c == ' ' || c == '\t';
}

/* The next line that holds a row: its label, ended by a NUL, and what follows. *label is NULL at the end of the
 * file. */
static int libsvm_row_next(struct trm_reader *reader, char **label, char **rest)
{
  char *line;
  size_t length;
  *label = NULL;
  while (!*label) {
    TRM_CHECK(trm_reader_line(reader, &line, &length));
    if (!line)
      return TRM_OK;
    line[strcspn(line, "#")] = '\0';
    while (libsvm_is_blank(*line))
      line++;
    if (*line)
      *label = line;
  }
  char *end = *label + strcspn(*label, " \t");
  *rest = *end ? end + 1 : end;
  *end = '\0';
  if (strchr(*label, ':'))
    return trm_reader_error(reader, "the row begins with \"%s\" in place of a label", *label);
  if (strchr(*label, ','))
    return trm_reader_error(reader, "several labels in one row (\"%s\") are not supported", *label);
  return TRM_OK;
}

/* First pass: counts rows, gathers labels. */
static int libsvm_labels_scan(struct import *import, const char *path, uint64_t *rows)
{
  struct trm_reader *reader;
  TRM_CHECK(trm_reader_open(&reader, path));
  char *label, *rest;
  int status;
  *rows = 0;
  while ((status = libsvm_row_next(reader, &label, &rest)) == TRM_OK && label) {
    ++*rows;
    if (import->target == TRM_TARGET_CLASS && !trm_labels_add(&import->labels, label)) {
      status = trm_reader_error(reader, "more than %d different labels; are they values? --target=value",
                                TRM_MAX_LABELS);
      break;
    }
  }
  trm_reader_close(reader);
  if (status == TRM_OK && *rows == 0)
    return trm_error(TRM_FAILED, "%s: holds no rows", path);
  return status;
}

/* Reads "index:value" at *text and steps over it. */
static int libsvm_entry_parse(const struct trm_reader *reader, char **text, int64_t before, int32_t *column,
                              float *value)
{
  char *token = *text, *at = token;
  const int shown = (int)strcspn(token, " \t");
  *text = token + shown;
  if (!strncmp(token, "qid:", 4))
    return trm_reader_error(reader, "\"%.*s\": query groups are not supported", shown, token);
  int64_t index = 0;
  while (*at >= '0' && *at <= '9' && index <= INT32_MAX)
    index = 10 * index + (*at++ - '0');
  if (at == token || *at != ':')
    return trm_reader_error(reader, index > INT32_MAX ? "\"%.*s\": the index is too large"
                                                      : "\"%.*s\" is not index:value", shown, token);
  if (index == 0)
    return trm_reader_error(reader, "\"%.*s\": indices begin at 1", shown, token);
  if (index > INT32_MAX)
    return trm_reader_error(reader, "\"%.*s\": the index is too large", shown, token);
  if (index == before)
    return trm_reader_error(reader, "\"%.*s\": index %lld is there twice", shown, token, (long long)index);
  if (index < before)
    return trm_reader_error(reader, "\"%.*s\": index %lld comes after %lld; they must ascend", shown, token,
                            (long long)index, (long long)before);
  const char *number = at + 1;
  char *end;
  const double parsed = strtod(number, &end);
  if (end == number || end != *text || libsvm_is_blank(*number))
    return trm_reader_error(reader, "\"%.*s\": the value is not a number", shown, token);
  if (!(fabs(parsed) <= (double)FLT_MAX))
    return trm_reader_error(reader, "\"%.*s\": the value is not finite in single precision", shown, token);
  *column = (int32_t)(index - 1);
  *value = (float)parsed;
  return TRM_OK;
}

static void libsvm_row_normalize(float *values, size_t n)
{
  double sum = 0;
  for (size_t i = 0; i < n; i++)
    sum += (double)values[i] * values[i];
  if (sum > 0) /* a row of zeros stays one */
    for (size_t i = 0; i < n; i++)
      values[i] = (float)(values[i] / sqrt(sum));
}

static int libsvm_row_add(struct import *import, const struct trm_reader *reader, const char *label, char *text)
{
  struct batch *batch = import->batch;
  const size_t row = batch->rows, first = (size_t)batch->starts[row];
  if (import->target == TRM_TARGET_CLASS) {
    batch->target_class[row] = trm_labels_index(&import->labels, label);
    if (batch->target_class[row] < 0)
      return trm_reader_error(reader, "label \"%s\" was not there a moment ago: the file changes", label);
  } else {
    double value;
    if (!trm_parse_number(label, &value) || fabs(value) > (double)FLT_MAX)
      return trm_reader_error(reader, "label \"%s\" is not a number", label);
    batch->target_value[row] = (float)value;
  }
  int64_t before = 0;
  batch->starts[row + 1] = batch->starts[row];
  while (libsvm_is_blank(*text))
    text++;
  while (*text) {
    const size_t entry = (size_t)batch->starts[row + 1];
    libsvm_batch_grow(batch, entry + 1);
    TRM_CHECK(libsvm_entry_parse(reader, &text, before, &batch->columns[entry], &batch->values[entry]));
    before = batch->columns[entry] + (int64_t)1;
    batch->starts[row + 1]++;
    while (libsvm_is_blank(*text))
      text++;
  }
  if ((size_t)before > import->features)
    import->features = (size_t)before;
  if (import->request->normalize)
    libsvm_row_normalize(batch->values + first, (size_t)batch->starts[row + 1] - first);
  batch->rows++;
  if (batch->rows == CHUNK_ROWS || (size_t)batch->starts[batch->rows] >= CHUNK_ENTRIES)
    return libsvm_batch_flush(import);
  return TRM_OK;
}

/* Second pass: a file's rows become a split; after `cut` of them the test split begins. */
static int libsvm_rows_copy(struct import *import, const char *path, const char *split, uint64_t train_rows)
{
  struct trm_reader *reader;
  TRM_CHECK(trm_reader_open(&reader, path));
  char *label, *rest;
  uint64_t rows = 0;
  int status = trm_data_writer_split(import->writer, split);
  while (status == TRM_OK && (status = libsvm_row_next(reader, &label, &rest)) == TRM_OK && label) {
    if (rows++ == train_rows) {
      status = libsvm_batch_flush(import);
      if (status == TRM_OK)
        status = trm_data_writer_split(import->writer, "test");
    }
    if (status == TRM_OK)
      status = libsvm_row_add(import, reader, label, rest);
  }
  if (status == TRM_OK)
    status = libsvm_batch_flush(import);
  trm_reader_close(reader);
  return status;
}

static int libsvm_files_import(struct import *import)
{
  const struct trm_import_request *request = import->request;
  const char *train = request->paths[0], *test = request->count == 2 ? request->paths[1] : NULL;
  uint64_t rows, test_rows, train_rows = UINT64_MAX;
  TRM_CHECK(libsvm_labels_scan(import, train, &rows));
  if (test)
    TRM_CHECK(libsvm_labels_scan(import, test, &test_rows));
  else
    TRM_CHECK(trm_import_train_rows(request, 0, rows, &train_rows));
  const struct trm_data_spec spec = {.kind = TRM_DATA_CSR, .element = TRM_ELEMENT_FLOAT, .shape = {.dims = 1}};
  TRM_CHECK(trm_import_begin_labels(request, spec, "libsvm", import->target, &import->labels, &import->writer));
  int status = libsvm_rows_copy(import, train, "train", train_rows);
  if (status == TRM_OK && test)
    status = libsvm_rows_copy(import, test, "test", UINT64_MAX);
  if (status == TRM_OK && import->features == 0)
    status = trm_error(TRM_FAILED, "%s: no row has an entry", train);
  return trm_import_end(import->writer, status, import->features);
}

int trm_import_libsvm(const struct trm_import_request *request)
{
  struct import import = {.request = request};
  TRM_CHECK(trm_import_check(request, &import.target));
  import.batch = trm_alloc(sizeof *import.batch, "libsvm rows");
  const int status = libsvm_files_import(&import);
  trm_free(import.batch->columns);
  trm_free(import.batch->values);
  trm_free(import.batch);
  trm_labels_free(&import.labels);
  return status;
}
