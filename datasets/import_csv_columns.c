/* Columns of a table as text: their names, and which are the target, features, categories, or left out. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "core/log.h"
#include "core/memory.h"
#include "core/options.h"
#include "core/status.h"
#include "datasets/file_reader.h"
#include "datasets/import_csv.h"

bool csv_is_missing(const char *text)
{
  static const char *const forms[] = {"", "?", "NA", "N/A", "nan", "null"};
  if (*text && *text != '?' && *text != 'n' && *text != 'N')
    return false;
  for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
    if (!strcasecmp(text, forms[i]))
      return true;
  return false;
}

static bool csv_is_number(const char *text)
{
  return *text && !text[strspn(text, "0123456789")];
}

/* Finds a column by its name in the header or, unless by_name, its number from 1. The message for an unknown name
 * suggests the nearest one. */
static int csv_column_find(const struct csv *csv, const char *text, bool by_name, size_t *column)
{
  for (*column = 0; csv->name && *column < csv->columns; ++*column)
    if (!strcmp(csv->name[*column], text))
      return TRM_OK;
  const char *path = trm_reader_path(csv->reader.file);
  if (csv_is_number(text) && !by_name) {
    *column = strtoul(text, NULL, 10) - 1;
    return *column < csv->columns ? TRM_OK
                                  : trm_error(TRM_USAGE, "%s: there is no column %s; there are columns 1 to %zu", path,
                                              text, csv->columns);
  }
  if (!csv->name)
    return trm_error(TRM_USAGE, "%s: has no column \"%s\": it has no header, so columns are numbers", path, text);
  const char **known = trm_alloc((csv->columns + 1) * sizeof *known, "column names");
  memcpy(known, csv->name, csv->columns * sizeof *known);
  const char *near = trm_nearest_word(text, known);
  trm_error(TRM_USAGE, "%s:%zu: has no column \"%s\"%s%s%s", path, csv->reader.line, text,
            near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "");
  trm_free(known);
  return TRM_USAGE;
}

/* Sets mark[i] for each column that a list "a,b,3" names. */
static int csv_columns_mark(const struct csv *csv, const char *list, bool *mark)
{
  char *copy = trm_strdup(list), *rest = copy;
  int status = TRM_OK;
  for (char *text; status == TRM_OK && (text = strsep(&rest, ",")) != NULL;) {
    size_t column;
    status = csv_column_find(csv, text, false, &column);
    if (status == TRM_OK)
      mark[column] = true;
  }
  trm_free(copy);
  return status;
}

size_t csv_labels_count(const char *label)
{
  size_t count = 1;
  for (const char *c = label ? label : ""; *c; c++)
    count += *c == ',';
  return count;
}

static bool csv_is_target(const struct csv *csv, size_t column)
{
  for (size_t k = 0; k < csv->table.targets; k++)
    if (csv->target[k] == column)
      return true;
  return false;
}

/* Finds the targets: the columns of --label, in their order, or the last one. */
static int csv_targets_find(struct csv *csv)
{
  char *copy = csv->request->label ? trm_strdup(csv->request->label) : NULL, *rest = copy;
  int status = TRM_OK;
  csv->target = trm_alloc(csv_labels_count(copy) * sizeof *csv->target, "label columns");
  csv->target[0] = csv->columns - 1;
  csv->table.targets = copy ? 0 : 1;
  for (char *text; status == TRM_OK && (text = strsep(&rest, ",")) != NULL;) {
    size_t column;
    status = csv_column_find(csv, text, false, &column);
    if (status == TRM_OK && csv_is_target(csv, column))
      status = trm_error(TRM_USAGE, "--label: names column %zu twice", column + 1);
    if (status == TRM_OK)
      csv->target[csv->table.targets++] = column;
  }
  trm_free(copy);
  return status;
}

/* Returns true if a list has names, not numbers alone. *column: whether the list has that number. */
static bool csv_has_names(const char *list, size_t column, bool *found)
{
  bool names = false;
  char *copy = trm_strdup(list), *rest = copy;
  *found = false;
  for (char *text; (text = strsep(&rest, ",")) != NULL;) {
    names |= !csv_is_number(text);
    *found |= csv_is_number(text) && strtoul(text, NULL, 10) == column + 1;
  }
  trm_free(copy);
  return names;
}

/* Returns true if the first record is a header: a feature of it is neither missing nor a number. */
static bool csv_is_header(const struct csv *csv)
{
  double number;
  const char *header = csv->request->header, *label = csv->request->label;
  if (header && *header)
    return !strcmp(header, "yes");
  if (csv->like)
    return csv->table.has_header;
  for (size_t i = 0; i < csv->columns; i++) {
    bool is_target = i == csv->columns - 1;
    if (label && csv_has_names(label, i, &is_target))
      return true;
    if (!is_target && !csv_is_missing(csv->reader.field[i]) && !trm_parse_number(csv->reader.field[i], &number))
      return true;
  }
  return false;
}

/* Makes the table's columns: those asked for, or all but the target and those to drop. */
static int csv_columns_choose(struct csv *csv)
{
  const struct trm_import_request *request = csv->request;
  bool *chosen = trm_alloc(csv->columns, "columns"), *dropped = trm_alloc(csv->columns, "columns");
  bool *categorical = trm_alloc(csv->columns, "columns");
  int status = request->columns ? csv_columns_mark(csv, request->columns, chosen) : TRM_OK;
  if (status == TRM_OK && request->drop)
    status = csv_columns_mark(csv, request->drop, dropped);
  if (status == TRM_OK && request->categorical)
    status = csv_columns_mark(csv, request->categorical, categorical);
  for (size_t k = 0; k < csv->table.targets && status == TRM_OK && request->columns; k++)
    if (chosen[csv->target[k]])
      status = trm_error(TRM_USAGE, "--columns: column %zu is the label", csv->target[k] + 1);
  csv->feature = trm_alloc(csv->columns * sizeof *csv->feature, "columns");
  const char **names = trm_alloc(csv->columns * sizeof *names, "column names");
  char (*number)[24] = trm_alloc(csv->columns * sizeof *number, "column numbers");
  size_t n = 0;
  for (size_t i = 0; i < csv->columns && status == TRM_OK; i++) {
    snprintf(number[i], sizeof number[i], "%zu", i + 1);
    if (csv_is_target(csv, i) || dropped[i] || (request->columns && !chosen[i]))
      continue;
    csv->feature[n] = (struct feature){.field = i, .kind = categorical[i] ? FEATURE_CATEGORY : FEATURE_UNDECIDED};
    names[n++] = csv->name ? csv->name[i] : number[i];
  }
  if (status == TRM_OK && n == 0)
    status = trm_error(TRM_USAGE, "--columns, --drop: leave no feature of %s", trm_reader_path(csv->reader.file));
  csv->table.columns = n;
  csv->table.name = trm_texts_copy(names, n);
  csv->table.has_header = csv->name != NULL;
  const char **targets = trm_alloc(csv->table.targets * sizeof *targets, "label columns");
  for (size_t k = 0; k < csv->table.targets; k++) {
    snprintf(number[csv->target[k]], sizeof *number, "%zu", csv->target[k] + 1);
    targets[k] = csv->name ? csv->name[csv->target[k]] : number[csv->target[k]];
  }
  csv->table.target = trm_texts_copy(targets, csv->table.targets);
  trm_free(targets);
  trm_free(number);
  trm_free(names);
  trm_free(chosen);
  trm_free(dropped);
  trm_free(categorical);
  return status;
}

/* Finds the targets of the table of --like in this file: all of them, or none. */
static int csv_targets_match(struct csv *csv)
{
  const struct data_table *table = &csv->table;
  size_t found = 0, missing = 0;
  csv->target = trm_alloc(table->targets * sizeof *csv->target, "label columns");
  for (size_t k = 0; k < table->targets; k++) {
    csv->target[k] = ABSENT;
    for (size_t i = 0; i < csv->columns; i++)
      if (csv->name ? !strcmp(csv->name[i], table->target[k]) : strtoul(table->target[k], NULL, 10) == i + 1)
        csv->target[k] = i;
    found += csv->target[k] != ABSENT;
    missing = csv->target[k] == ABSENT ? k : missing;
  }
  if (found == table->targets)
    return TRM_OK;
  const char *path = trm_reader_path(csv->reader.file);
  if (found)
    return trm_error(TRM_USAGE, "%s: has no column \"%s\", but another one of the labels", path,
                     table->target[missing]);
  csv->target[0] = ABSENT;
  trm_warn("%s: has no column \"%s\": its rows get the label %s, and evaluations of them say nothing", path,
           table->target[0], table->labels ? table->label[0] : "0");
  return TRM_OK;
}

/* Finds the columns of the table of --like in this file: by name, without a header by place. */
static int csv_columns_match(struct csv *csv)
{
  struct data_table *table = &csv->table;
  csv->feature = trm_alloc(table->columns * sizeof *csv->feature, "columns");
  for (size_t i = 0, category = 0; i < table->columns; i++) {
    struct feature *feature = &csv->feature[i];
    TRM_CHECK(csv_column_find(csv, table->name[i], csv->name && table->has_header, &feature->field));
    feature->kind = table->categories[i] ? FEATURE_CATEGORY : FEATURE_NUMBER;
    feature->place = trm_alloc((size_t)(table->categories[i] + 1) * sizeof *feature->place, "categories");
    for (size_t k = 0; k < table->categories[i]; k++, category++) {
      bool added;
      wordset_add(&feature->words, table->category[category], strlen(table->category[category]), &added);
      feature->place[k] = k;
    }
  }
  return csv_targets_match(csv);
}

int csv_columns_detect(struct csv *csv)
{
  struct csv_reader *reader = &csv->reader;
  csv->columns = reader->fields;
  if (csv->columns < 2 && !csv->like)
    return csv_reader_error(reader, "one column alone: a target and at least one feature are wanted, separated by "
                                    "commas, semicolons or tabs (--separator)");
  if (csv_is_header(csv))
    csv->name = trm_texts_copy((const char *const *)reader->field, csv->columns);
  if (csv->like)
    return csv_columns_match(csv);
  TRM_CHECK(csv_targets_find(csv));
  return csv_columns_choose(csv);
}

int csv_header_check(const struct csv *csv)
{
  const char *path = trm_reader_path(csv->reader.file);
  if (csv->reader.fields != csv->columns)
    return trm_error(TRM_FAILED, "%s:%zu: %zu columns in place of %zu", path, csv->reader.line, csv->reader.fields,
                     csv->columns);
  for (size_t i = 0; i < csv->columns; i++)
    if (strcmp(csv->reader.field[i], csv->name[i]) != 0)
      return trm_error(TRM_FAILED, "%s:%zu: column %zu is \"%s\" in place of \"%s\"", path, csv->reader.line, i + 1,
                       csv->reader.field[i], csv->name[i]);
  return TRM_OK;
}
