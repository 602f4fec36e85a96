/* Tables of numbers separated by commas (RFC 4180: fields may be quoted, a quote within is written twice). One
 * column is the target, the others are the features. The file is read twice: first for its labels, then for its
 * rows. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "core/memory.h"
#include "core/options.h"
#include "core/status.h"
#include "datasets/import.h"
#include "datasets/file_reader.h"

#define CHUNK 256 /* rows at once */

/* A file, record by record. */
struct table {
  struct trm_reader *reader;
  char *text;      /* the record at hand, cut into fields */
  size_t capacity;
  char **field;    /* (fields) */
  size_t fields, field_capacity;
  size_t line;     /* where the record begins */
};

/* What the first lines of the train file tell of all. */
struct columns {
  size_t count;   /* with the target */
  size_t label;   /* index of the target */
  bool header;
  char **name;    /* (count) or NULL without a header */
};

struct import {
  const struct trm_import_request *request;
  enum trm_target_kind target;
  struct columns columns;
  struct trm_labels labels;
  struct trm_data_writer *writer;
  size_t rows;             /* gathered */
  float *x;                /* (CHUNK, count - 1) */
  int32_t target_class[CHUNK];
  float target_value[CHUNK];
};

static int csv_table_open(struct table *table, const char *path)
{
  *table = (struct table){.reader = NULL};
  return trm_reader_open(&table->reader, path);
}

static void csv_table_close(struct table *table)
{
  trm_reader_close(table->reader);
  trm_free(table->text);
  trm_free(table->field);
}

static int csv_table_error(const struct table *table, const char *what)
{
  return trm_error(TRM_FAILED, "%s:%zu: %s", trm_reader_path(table->reader), table->line, what);
}

static void csv_text_add(struct table *table, size_t used, const char *line, size_t length)
{
  if (used + length + 2 > table->capacity) {
    const size_t capacity = 2 * (used + length) + 256;
    char *text = trm_alloc(capacity, "a csv record");
    if (used)
      memcpy(text, table->text, used);
    trm_free(table->text);
    table->text = text;
    table->capacity = capacity;
  }
  memcpy(table->text + used, line, length);
  table->text[used + length] = '\0';
}

/* A field begins at `at`; it is unquoted, trimmed and ended by a NUL. Returns what follows its comma, NULL after the
 * last field. *bad: a quote is where none may be. */
static char *csv_field_parse(struct table *table, char *at, bool *bad)
{
  if (table->fields == table->field_capacity) {
    const size_t capacity = 2 * table->fields + 64;
    char **field = trm_alloc(capacity * sizeof *field, "csv fields");
    if (table->fields)
      memcpy(field, table->field, table->fields * sizeof *field);
    trm_free(table->field);
    table->field = field;
    table->field_capacity = capacity;
  }
  at += strspn(at, " \t");
  char **field = &table->field[table->fields++];
  if (*at == '"') {
    char *to = ++at;
    *field = to;
    for (; *at && (*at != '"' || at[1] == '"'); *to++ = *at++)
      at += *at == '"';
    *bad |= !*at;
    at += *at == '"';
    *to = '\0';
    at += strspn(at, " \t");
    *bad |= *at && *at != ',';
    return *at ? at + 1 : NULL;
  }
  *field = at;
  char *end = at + strcspn(at, ",");
  char *next = *end ? end + 1 : NULL;
  while (end > at && (end[-1] == ' ' || end[-1] == '\t'))
    end--;
  *end = '\0';
  *bad |= strchr(at, '"') != NULL;
  return next;
}

/* The next record; *found is false at the end of the file. Lines without anything are passed over. */
static int csv_record_next(struct table *table, bool *found)
{
  char *line;
  size_t length, used = 0;
  bool open = false; /* a quoted field goes on in the next line */
  *found = false;
  do {
    TRM_CHECK(trm_reader_line(table->reader, &line, &length));
    if (!line)
      return open ? csv_table_error(table, "a quoted field is not closed") : TRM_OK;
    if (!open) {
      table->line = trm_reader_line_number(table->reader);
      if (table->line == 1 && !strncmp(line, "\xef\xbb\xbf", 3)) { /* byte order mark */
        line += 3;
        length -= 3;
      }
    }
    for (const char *c = line; *c; c++)
      open ^= *c == '"';
    csv_text_add(table, used, line, length);
    used += length;
    if (open)
      table->text[used++] = '\n';
  } while (open || strspn(table->text, " \t") == used);
  table->fields = 0;
  bool bad = false;
  for (char *at = table->text; at; at = csv_field_parse(table, at, &bad))
    ;
  *found = true;
  return bad ? csv_table_error(table, "a quote in the middle of a field") : TRM_OK;
}

static bool csv_is_missing(const char *text)
{
  static const char *const forms[] = {"", "?", "NA", "N/A", "nan", "null"};
  for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
    if (!strcasecmp(text, forms[i]))
      return true;
  return false;
}

/* A first record with a feature that is there and is no number is a header. */
static bool csv_is_header(const struct table *table, size_t label)
{
  double number;
  for (size_t i = 0; i < table->fields; i++)
    if (i != label && !csv_is_missing(table->field[i]) && !trm_parse_number(table->field[i], &number))
      return true;
  return false;
}

/* Finds the target by name in a header; a name that is not there is answered with the nearest one. */
static int csv_label_find(const struct table *table, const char *label, size_t *index)
{
  for (*index = 0; *index < table->fields; ++*index)
    if (!strcmp(table->field[*index], label))
      return TRM_OK;
  const char **known = trm_alloc((table->fields + 1) * sizeof *known, "column names");
  memcpy(known, table->field, table->fields * sizeof *known);
  const char *near = trm_nearest_word(label, known);
  const int status = near ? trm_error(TRM_USAGE, "%s:%zu: has no column \"%s\"; did you mean \"%s\"?",
                                      trm_reader_path(table->reader), table->line, label, near)
                          : trm_error(TRM_USAGE, "%s:%zu: has no column \"%s\"", trm_reader_path(table->reader),
                                      table->line, label);
  trm_free(known);
  return status;
}

/* Learns the columns from the first record of the train file. */
static int csv_columns_detect(struct columns *columns, const struct table *table, const char *label)
{
  columns->count = table->fields;
  if (columns->count < 2)
    return csv_table_error(table,
                           "one column alone: a target and at least one feature are wanted, separated by commas");
  const bool by_number = label && *label && strspn(label, "0123456789") == strlen(label);
  columns->label = columns->count - 1;
  if (label && !by_number) {
    columns->header = true;
    TRM_CHECK(csv_label_find(table, label, &columns->label));
  } else {
    const unsigned long number = by_number ? strtoul(label, NULL, 10) : columns->count;
    if (number < 1 || number > columns->count)
      return trm_error(TRM_USAGE, "%s: there is no column %s; there are columns 1 to %zu",
                       trm_reader_path(table->reader), label, columns->count);
    columns->label = number - 1;
    columns->header = csv_is_header(table, columns->label);
  }
  if (columns->header) {
    columns->name = trm_alloc(columns->count * sizeof *columns->name, "column names");
    for (size_t i = 0; i < columns->count; i++)
      columns->name[i] = trm_strdup(table->field[i]);
  }
  return TRM_OK;
}

/* The first record of a file is its header exactly if the train file has one; then the names must agree. */
static int csv_header_check(const struct columns *columns, const struct table *table)
{
  for (size_t i = 0; i < columns->count; i++)
    if (i >= table->fields || strcmp(columns->name[i], table->field[i]) != 0)
      return trm_error(TRM_FAILED, "%s:%zu: column %zu is \"%s\" in place of \"%s\", as the train file has it",
                       trm_reader_path(table->reader), table->line, i + 1, i < table->fields ? table->field[i] : "",
                       columns->name[i]);
  return TRM_OK;
}

/* The next row of numbers, behind the header. */
static int csv_row_next(const struct columns *columns, struct table *table, bool *found)
{
  const bool first = table->line == 0;
  TRM_CHECK(csv_record_next(table, found));
  if (first && *found && columns->header) {
    TRM_CHECK(csv_header_check(columns, table));
    TRM_CHECK(csv_record_next(table, found));
  }
  if (*found && table->fields != columns->count)
    return trm_error(TRM_FAILED, "%s:%zu: %zu columns in place of %zu", trm_reader_path(table->reader), table->line,
                     table->fields, columns->count);
  return TRM_OK;
}

/* "column 3 (age)", for messages. Owned by the caller: trm_free. */
static char *csv_column_text(const struct columns *columns, size_t column)
{
  return columns->name ? trm_format("column %zu (%s)", column + 1, columns->name[column])
                       : trm_format("column %zu", column + 1);
}

static int csv_field_error(const struct import *import, const struct table *table, size_t column, const char *what)
{
  char *place = csv_column_text(&import->columns, column);
  const int status = trm_error(TRM_FAILED, "%s:%zu: %s: \"%s\" %s", trm_reader_path(table->reader), table->line, place,
                               table->field[column], what);
  trm_free(place);
  return status;
}

static int csv_field_number(const struct import *import, const struct table *table, size_t column, float *value)
{
  double number;
  if (csv_is_missing(table->field[column]))
    return csv_field_error(import, table, column, "is a missing value");
  if (!trm_parse_number(table->field[column], &number))
    return csv_field_error(import, table, column, "is not a number");
  if (fabs(number) > (double)FLT_MAX)
    return csv_field_error(import, table, column, "is not finite in single precision");
  *value = (float)number;
  return TRM_OK;
}

/* First pass: counts rows, gathers labels. */
static int csv_labels_scan(struct import *import, struct table *table, uint64_t *rows)
{
  const size_t label = import->columns.label;
  bool found;
  *rows = 0;
  for (;;) {
    TRM_CHECK(csv_row_next(&import->columns, table, &found));
    if (!found)
      break;
    ++*rows;
    if (import->target != TRM_TARGET_CLASS)
      continue;
    if (csv_is_missing(table->field[label]))
      return csv_field_error(import, table, label, "is a missing label");
    if (!trm_labels_add(&import->labels, table->field[label]))
      return csv_field_error(import, table, label, "is one label too many; are they values? --target=value");
  }
  return *rows ? TRM_OK : trm_error(TRM_FAILED, "%s: holds no rows", trm_reader_path(table->reader));
}

static int csv_file_scan(struct import *import, const char *path, uint64_t *rows)
{
  struct table table;
  int status = csv_table_open(&table, path);
  if (status == TRM_OK && !import->columns.count) {
    bool found;
    status = csv_record_next(&table, &found);
    if (status == TRM_OK && !found)
      status = trm_error(TRM_FAILED, "%s: is empty", path);
    if (status == TRM_OK)
      status = csv_columns_detect(&import->columns, &table, import->request->label);
    csv_table_close(&table); /* begin again: the first record may be a row */
    if (status == TRM_OK)
      status = csv_table_open(&table, path);
    else
      table = (struct table){.reader = NULL};
  }
  if (status == TRM_OK)
    status = csv_labels_scan(import, &table, rows);
  csv_table_close(&table);
  return status;
}

static int csv_rows_flush(struct import *import)
{
  const struct trm_data_rows rows = {
    .rows = import->rows,
    .floats = import->x,
    .target_class = import->target == TRM_TARGET_CLASS ? import->target_class : NULL,
    .target_value = import->target == TRM_TARGET_VALUE ? import->target_value : NULL,
  };
  import->rows = 0;
  return rows.rows ? trm_data_writer_append(import->writer, &rows) : TRM_OK;
}

static int csv_row_add(struct import *import, const struct table *table)
{
  const size_t label = import->columns.label, row = import->rows;
  float *x = import->x + row * (import->columns.count - 1);
  for (size_t i = 0; i < table->fields; i++)
    if (i != label)
      TRM_CHECK(csv_field_number(import, table, i, x++));
  if (import->target == TRM_TARGET_VALUE)
    TRM_CHECK(csv_field_number(import, table, label, &import->target_value[row]));
  else if ((import->target_class[row] = trm_labels_index(&import->labels, table->field[label])) < 0)
    return csv_field_error(import, table, label, "was not there a moment ago: the file changes");
  import->rows++;
  return import->rows == CHUNK ? csv_rows_flush(import) : TRM_OK;
}

/* Second pass: a file's rows become a split; after `cut` of them the test split begins. */
static int csv_rows_copy(struct import *import, struct table *table, const char *split, uint64_t train_rows)
{
  TRM_CHECK(trm_data_writer_split(import->writer, split));
  bool found;
  for (uint64_t rows = 0;; rows++) {
    TRM_CHECK(csv_row_next(&import->columns, table, &found));
    if (!found)
      return csv_rows_flush(import);
    if (rows == train_rows) {
      TRM_CHECK(csv_rows_flush(import));
      TRM_CHECK(trm_data_writer_split(import->writer, "test"));
    }
    TRM_CHECK(csv_row_add(import, table));
  }
}

static int csv_file_copy(struct import *import, const char *path, const char *split, uint64_t train_rows)
{
  struct table table;
  int status = csv_table_open(&table, path);
  if (status == TRM_OK)
    status = csv_rows_copy(import, &table, split, train_rows);
  csv_table_close(&table);
  return status;
}

static int csv_files_import(struct import *import)
{
  const struct trm_import_request *request = import->request;
  const char *train = request->paths[0], *test = request->count == 2 ? request->paths[1] : NULL;
  uint64_t rows, test_rows, train_rows = UINT64_MAX;
  TRM_CHECK(csv_file_scan(import, train, &rows));
  if (test)
    TRM_CHECK(csv_file_scan(import, test, &test_rows));
  else
    TRM_CHECK(trm_import_train_rows(request, 0, rows, &train_rows));
  const size_t features = import->columns.count - 1;
  const struct trm_data_spec spec = {
    .kind = TRM_DATA_VECTOR, .element = TRM_ELEMENT_FLOAT, .shape = {.dims = 1, .size = {features}}};
  TRM_CHECK(trm_import_begin_labels(request, spec, "csv", import->target, &import->labels, &import->writer));
  import->x = trm_alloc(CHUNK * features * sizeof *import->x, "csv rows");
  int status = csv_file_copy(import, train, "train", train_rows);
  if (status == TRM_OK && test)
    status = csv_file_copy(import, test, "test", UINT64_MAX);
  return trm_import_end(import->writer, status, 0);
}

int trm_import_csv(const struct trm_import_request *request)
{
  struct import *import = trm_alloc(sizeof *import, "csv import");
  import->request = request;
  int status = trm_import_check(request, &import->target);
  if (status == TRM_OK)
    status = csv_files_import(import);
  for (size_t i = 0; i < import->columns.count && import->columns.name; i++)
    trm_free(import->columns.name[i]);
  trm_free(import->columns.name);
  trm_labels_free(&import->labels);
  trm_free(import->x);
  trm_free(import);
  return status;
}
