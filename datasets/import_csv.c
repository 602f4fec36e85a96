/* Tables of numbers separated by commas (RFC 4180: fields may be quoted, a quote within is written twice). One
 * column is the target, the others are the features. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "core/memory.h"
#include "core/options.h"
#include "core/status.h"
#include "datasets/file_reader.h"
#include "datasets/import_rows.h"

#define CHUNK 256 /* rows at once */

/* A file that is read record by record. */
struct table {
  struct trm_reader *reader;
  char *text;      /* the current record, split into fields */
  size_t capacity;
  char **field;    /* (fields) */
  size_t fields, field_capacity;
  size_t line;     /* number of the first line of the record */
};

/* Columns of the train file, which those of the test file must equal. */
struct columns {
  size_t count;   /* with the target */
  size_t label;   /* index of the target */
  bool header;
  char **name;    /* (count) or NULL without a header */
};

struct csv {
  struct table table;
  struct columns columns;
  const char *label; /* name or number of the target's column, as requested; NULL: the last one */
  float *x;          /* (CHUNK, columns - 1) rows gathered */
};

static int csv_table_open(struct table *table, const char *path)
{
  *table = (struct table){.reader = NULL};
  return trm_reader_open(&table->reader, path);
}

static void csv_close(void *impl)
{
  struct table *table = &((struct csv *)impl)->table;
  trm_reader_close(table->reader);
  trm_free(table->text);
  trm_free(table->field);
  *table = (struct table){.reader = NULL};
}

static int csv_table_error(const struct table *table, const char *what)
{
  return trm_error(TRM_FAILED, "%s:%zu: %s", trm_reader_path(table->reader), table->line, what);
}

static void csv_text_add(struct table *table, size_t used, const char *line, size_t length)
{
  table->text = trm_grow(table->text, &table->capacity, used, used + length + 2, 1, "a csv record");
  memcpy(table->text + used, line, length);
  table->text[used + length] = '\0';
}

/* Parses the field that begins at `at`: unquotes, trims and NUL-terminates it. Returns the begin of the next field,
 * NULL after the last one. *bad: a quote is misplaced. */
static char *csv_field_parse(struct table *table, char *at, bool *bad)
{
  table->field = trm_grow(table->field, &table->field_capacity, table->fields, table->fields + 1, sizeof *table->field,
                          "csv fields");
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

/* Reads the next record; *found is false at the end of the file. Blank lines are skipped. */
static int csv_record_next(struct table *table, bool *found)
{
  char *line;
  size_t length, used = 0;
  bool open = false; /* a quoted field continues in the next line */
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

/* Returns true if the first record is a header: a feature of it is neither missing nor a number. */
static bool csv_is_header(const struct table *table, size_t label)
{
  double number;
  for (size_t i = 0; i < table->fields; i++)
    if (i != label && !csv_is_missing(table->field[i]) && !trm_parse_number(table->field[i], &number))
      return true;
  return false;
}

/* Finds the target by name in a header. The message for an unknown name suggests the nearest one. */
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

/* Determines the columns from the first record of the train file. */
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

/* Compares the header of a file with that of the train file. */
static int csv_header_check(const struct columns *columns, const struct table *table)
{
  for (size_t i = 0; i < columns->count; i++)
    if (i >= table->fields || strcmp(columns->name[i], table->field[i]) != 0)
      return trm_error(TRM_FAILED, "%s:%zu: column %zu is \"%s\" in place of \"%s\", as the train file has it",
                       trm_reader_path(table->reader), table->line, i + 1, i < table->fields ? table->field[i] : "",
                       columns->name[i]);
  return TRM_OK;
}

/* Reads the next row; the header is checked and skipped. */
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

static int csv_field_error(const struct csv *csv, size_t column, const char *what)
{
  const struct table *table = &csv->table;
  const char *name = csv->columns.name ? csv->columns.name[column] : NULL;
  return trm_error(TRM_FAILED, "%s:%zu: column %zu%s%s%s: \"%s\" %s", trm_reader_path(table->reader), table->line,
                   column + 1, name ? " (" : "", name ? name : "", name ? ")" : "", table->field[column], what);
}

static int csv_field_number(const struct csv *csv, size_t column, float *value)
{
  const char *text = csv->table.field[column];
  double number;
  if (csv_is_missing(text))
    return csv_field_error(csv, column, "is a missing value");
  if (!trm_parse_number(text, &number))
    return csv_field_error(csv, column, "is not a number");
  if (fabs(number) > (double)FLT_MAX)
    return csv_field_error(csv, column, "is not finite in single precision");
  *value = (float)number;
  return TRM_OK;
}

/* -- the slots of the format */

/* Opens a file. The file that is opened first, the train file, determines the columns. */
static int csv_open(void *impl, const char *path)
{
  struct csv *csv = impl;
  if (!csv->columns.count) {
    bool found;
    TRM_CHECK(csv_table_open(&csv->table, path));
    TRM_CHECK(csv_record_next(&csv->table, &found));
    if (!found)
      return trm_error(TRM_FAILED, "%s: is empty", path);
    TRM_CHECK(csv_columns_detect(&csv->columns, &csv->table, csv->label));
    csv_close(csv); /* reopens: the first record may be a row */
  }
  return csv_table_open(&csv->table, path);
}

static int csv_next(void *impl, const char **label)
{
  struct csv *csv = impl;
  bool found;
  *label = NULL;
  TRM_CHECK(csv_row_next(&csv->columns, &csv->table, &found));
  if (!found)
    return TRM_OK;
  *label = csv->table.field[csv->columns.label];
  return csv_is_missing(*label) ? csv_field_error(csv, csv->columns.label, "is a missing label") : TRM_OK;
}

static int csv_label_error(const void *impl, const char *what)
{
  const struct csv *csv = impl;
  return csv_field_error(csv, csv->columns.label, what);
}

static int csv_add(void *impl, struct trm_data_rows *rows, bool *full)
{
  struct csv *csv = impl;
  const size_t features = csv->columns.count - 1;
  if (!csv->x)
    csv->x = trm_alloc(CHUNK * features * sizeof *csv->x, "csv rows");
  float *x = csv->x + rows->rows * features;
  for (size_t i = 0; i < csv->columns.count; i++)
    if (i != csv->columns.label)
      TRM_CHECK(csv_field_number(csv, i, x++));
  rows->floats = csv->x;
  *full = rows->rows + 1 == CHUNK;
  return TRM_OK;
}

static void csv_describe(const void *impl, struct trm_data_spec *spec)
{
  spec->kind = TRM_DATA_VECTOR;
  spec->element = TRM_ELEMENT_FLOAT;
  spec->shape = (struct trm_shape){.dims = 1, .size = {((const struct csv *)impl)->columns.count - 1}};
}

int trm_import_csv(const struct trm_import_request *request)
{
  static const struct trm_row_format format = {
    .name = "csv",
    .open = csv_open,
    .close = csv_close,
    .next = csv_next,
    .label_error = csv_label_error,
    .add = csv_add,
    .describe = csv_describe,
  };
  struct csv csv = {.label = request->label};
  const int status = trm_import_rows(request, &format, &csv);
  for (size_t i = 0; i < csv.columns.count && csv.columns.name; i++)
    trm_free(csv.columns.name[i]);
  trm_free(csv.columns.name);
  trm_free(csv.x);
  return status;
}
