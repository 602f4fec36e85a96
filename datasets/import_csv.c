/* Tables of numbers separated by commas (RFC 4180: fields may be quoted, a quote within is written twice). One
 * column is the target, the others are the features. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "core/memory.h"
#include "core/options.h"
#include "core/status.h"
#include "datasets/file_reader.h"
#include "datasets/import.h"

#define CHUNK 256 /* rows at once */

struct csv {
  const char *label; /* name or number of the target's column, as requested; NULL: the last one */
  /* the open file, read record by record */
  struct trm_reader *reader;
  char *text;        /* the current record, split into fields */
  size_t text_capacity;
  char **field;      /* (fields) */
  size_t fields, field_capacity;
  size_t line;       /* number of the first line of the record */
  /* columns of the train file, which those of the test file must equal */
  size_t columns;    /* with the target */
  size_t target;     /* index of the target */
  char **name;       /* (columns) of the header, NULL: there is none */
  float *x;          /* (CHUNK, columns - 1) rows gathered */
};

static void csv_close(void *impl)
{
  struct csv *csv = impl;
  trm_reader_close(csv->reader);
  csv->reader = NULL;
}

static int csv_error(const struct csv *csv, const char *what)
{
  return trm_error(TRM_FAILED, "%s:%zu: %s", trm_reader_path(csv->reader), csv->line, what);
}

/* Parses the field that begins at `at`: unquotes, trims and NUL-terminates it. Returns the begin of the next field,
 * NULL after the last one. *bad: a quote is misplaced. */
static char *csv_field_parse(struct csv *csv, char *at, bool *bad)
{
  csv->field =
    trm_grow(csv->field, &csv->field_capacity, csv->fields, csv->fields + 1, sizeof *csv->field, "csv fields");
  at += strspn(at, " \t");
  char **field = &csv->field[csv->fields++];
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
static int csv_record_next(struct csv *csv, bool *found)
{
  char *line;
  size_t length, used = 0;
  bool open = false; /* a quoted field continues in the next line */
  *found = false;
  do {
    TRM_CHECK(trm_reader_line(csv->reader, &line, &length));
    if (!line)
      return open ? csv_error(csv, "a quoted field is not closed") : TRM_OK;
    if (!open) {
      csv->line = trm_reader_line_number(csv->reader);
      if (csv->line == 1 && !strncmp(line, "\xef\xbb\xbf", 3)) { /* byte order mark */
        line += 3;
        length -= 3;
      }
    }
    for (const char *c = line; *c; c++)
      open ^= *c == '"';
    csv->text = trm_grow(csv->text, &csv->text_capacity, used, used + length + 2, 1, "a csv record");
    memcpy(csv->text + used, line, length + 1);
    used += length;
    if (open)
      csv->text[used++] = '\n';
  } while (open || strspn(csv->text, " \t") == used);
  csv->fields = 0;
  bool bad = false;
  for (char *at = csv->text; at; at = csv_field_parse(csv, at, &bad))
    ;
  *found = true;
  return bad ? csv_error(csv, "a quote in the middle of a field") : TRM_OK;
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
static bool csv_is_header(const struct csv *csv)
{
  double number;
  for (size_t i = 0; i < csv->fields; i++)
    if (i != csv->target && !csv_is_missing(csv->field[i]) && !trm_parse_number(csv->field[i], &number))
      return true;
  return false;
}

/* Finds the target by name in a header. The message for an unknown name suggests the nearest one. */
static int csv_label_find(struct csv *csv)
{
  for (csv->target = 0; csv->target < csv->fields; csv->target++)
    if (!strcmp(csv->field[csv->target], csv->label))
      return TRM_OK;
  const char **known = trm_alloc((csv->fields + 1) * sizeof *known, "column names");
  memcpy(known, csv->field, csv->fields * sizeof *known);
  const char *near = trm_nearest_word(csv->label, known);
  trm_error(TRM_USAGE, "%s:%zu: has no column \"%s\"%s%s%s", trm_reader_path(csv->reader), csv->line, csv->label,
            near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "");
  trm_free(known);
  return TRM_USAGE;
}

/* Determines the columns from the first record of the train file. */
static int csv_columns_detect(struct csv *csv)
{
  const char *label = csv->label;
  csv->columns = csv->fields;
  if (csv->columns < 2)
    return csv_error(csv, "one column alone: a target and at least one feature are wanted, separated by commas");
  const bool by_name = label && (!*label || label[strspn(label, "0123456789")]);
  if (by_name) {
    TRM_CHECK(csv_label_find(csv));
  } else {
    const unsigned long number = label ? strtoul(label, NULL, 10) : csv->columns;
    if (number < 1 || number > csv->columns)
      return trm_error(TRM_USAGE, "%s: there is no column %s; there are columns 1 to %zu",
                       trm_reader_path(csv->reader), label, csv->columns);
    csv->target = number - 1;
  }
  if (by_name || csv_is_header(csv)) {
    csv->name = trm_alloc(csv->columns * sizeof *csv->name, "column names");
    for (size_t i = 0; i < csv->columns; i++)
      csv->name[i] = trm_strdup(csv->field[i]);
  }
  return TRM_OK;
}

/* Compares the header of a file with that of the train file. */
static int csv_header_check(const struct csv *csv)
{
  for (size_t i = 0; i < csv->columns; i++)
    if (i >= csv->fields || strcmp(csv->name[i], csv->field[i]) != 0)
      return trm_error(TRM_FAILED, "%s:%zu: column %zu is \"%s\" in place of \"%s\", as the train file has it",
                       trm_reader_path(csv->reader), csv->line, i + 1, i < csv->fields ? csv->field[i] : "",
                       csv->name[i]);
  return TRM_OK;
}

static int csv_field_error(const struct csv *csv, size_t column, const char *what)
{
  const char *name = csv->name ? csv->name[column] : NULL;
  return trm_error(TRM_FAILED, "%s:%zu: column %zu%s%s%s: \"%s\" %s", trm_reader_path(csv->reader), csv->line,
                   column + 1, name ? " (" : "", name ? name : "", name ? ")" : "", csv->field[column], what);
}

static int csv_field_number(const struct csv *csv, size_t column, float *value)
{
  const char *text = csv->field[column];
  const char *wrong = csv_is_missing(text) ? "is a missing value" : trm_parse_float(text, value);
  return wrong ? csv_field_error(csv, column, wrong) : TRM_OK;
}

/* -- the slots of the format */

/* Opens a file. The file that is opened first, the train file, determines the columns. */
static int csv_open(void *impl, const char *path)
{
  struct csv *csv = impl;
  csv->line = 0;
  TRM_CHECK(trm_reader_open(&csv->reader, path));
  if (csv->columns)
    return TRM_OK;
  bool found;
  TRM_CHECK(csv_record_next(csv, &found));
  if (!found)
    return trm_error(TRM_FAILED, "%s: is empty", path);
  TRM_CHECK(csv_columns_detect(csv));
  csv_close(csv); /* reopens: the first record may be a row */
  return csv_open(csv, path);
}

/* Reads the next row; the header is checked and skipped. */
static int csv_next(void *impl, const char **label)
{
  struct csv *csv = impl;
  const bool first = csv->line == 0;
  bool found;
  *label = NULL;
  TRM_CHECK(csv_record_next(csv, &found));
  if (first && found && csv->name) {
    TRM_CHECK(csv_header_check(csv));
    TRM_CHECK(csv_record_next(csv, &found));
  }
  if (!found)
    return TRM_OK;
  if (csv->fields != csv->columns)
    return trm_error(TRM_FAILED, "%s:%zu: %zu columns in place of %zu", trm_reader_path(csv->reader), csv->line,
                     csv->fields, csv->columns);
  *label = csv->field[csv->target];
  return csv_is_missing(*label) ? csv_field_error(csv, csv->target, "is a missing label") : TRM_OK;
}

static int csv_label_error(const void *impl, const char *what)
{
  const struct csv *csv = impl;
  return csv_field_error(csv, csv->target, what);
}

static int csv_add(void *impl, struct trm_data_rows *rows, bool *full)
{
  struct csv *csv = impl;
  const size_t features = csv->columns - 1;
  if (!csv->x)
    csv->x = trm_alloc(CHUNK * features * sizeof *csv->x, "csv rows");
  float *x = csv->x + rows->rows * features;
  for (size_t i = 0; i < csv->columns; i++)
    if (i != csv->target)
      TRM_CHECK(csv_field_number(csv, i, x++));
  rows->floats = csv->x;
  *full = rows->rows + 1 == CHUNK;
  return TRM_OK;
}

static void csv_describe(const void *impl, struct trm_data_spec *spec)
{
  spec->kind = TRM_DATA_VECTOR;
  spec->element = TRM_ELEMENT_FLOAT;
  spec->shape = (struct trm_shape){.dims = 1, .size = {((const struct csv *)impl)->columns - 1}};
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
  for (size_t i = 0; i < csv.columns && csv.name; i++)
    trm_free(csv.name[i]);
  trm_free(csv.name);
  trm_free(csv.text);
  trm_free(csv.field);
  trm_free(csv.x);
  return status;
}
