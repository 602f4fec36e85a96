/* Tables of numbers and categories as text (csv_reader.h). One column is the target, others are the features. The train
 * file, or the data set of --like, determines the columns and what becomes of their values (table.h). */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "core/memory.h"
#include "core/options.h"
#include "core/status.h"
#include "datasets/file_reader.h"
#include "datasets/import_csv.h"
#include "datasets/import_ranks.h"

#define CHUNK 256 /* rows at once */
#define MAX_CATEGORIES 65536

/* "FILE:LINE: column N (name): "text" WRONG"; returns TRM_FAILED. */
static int csv_field_error(const struct csv *csv, size_t field, const char *wrong)
{
  const char *name = csv->name ? csv->name[field] : NULL;
  return trm_error(TRM_FAILED, "%s:%zu: column %zu%s%s%s: \"%s\" %s", trm_reader_path(csv->reader.file),
                   csv->reader.line, field + 1, name ? " (" : "", name ? name : "", name ? ")" : "",
                   csv->reader.field[field], wrong);
}

/* -- rows */

static int csv_next(void *impl, const char **label);
static int csv_kinds_decide(struct csv *csv);

/* Reads the first record of the open file: that of the train file determines the columns. */
static int csv_begin(struct csv *csv, const char *path)
{
  bool found;
  TRM_CHECK(csv_record_next(&csv->reader, &found));
  csv->first_line = csv->reader.line;
  if (csv->opened)
    return TRM_OK;
  if (!found)
    return trm_error(TRM_FAILED, "%s: is empty", path);
  TRM_CHECK(csv_columns_detect(csv));
  csv->learns = !csv->like;
  if (csv->comm->size == 1 || csv->like)
    return TRM_OK;
  csv_reader_close(&csv->reader); /* the first record may be a row */
  TRM_CHECK(csv_reader_open(&csv->reader, path));
  return csv_kinds_decide(csv);
}

/* Opens a file. The file that is opened first, the train file, determines the columns. */
static int csv_open(void *impl, const char *path)
{
  struct csv *csv = impl;
  TRM_CHECK(csv_reader_open(&csv->reader, path));
  TRM_CHECK(csv_begin(csv, path));
  csv->opened = true;
  csv->dropped = 0;
  csv_reader_close(&csv->reader); /* reopens: the first record may be a row */
  return csv_reader_open(&csv->reader, path);
}

static void csv_close(void *impl)
{
  struct csv *csv = impl;
  int64_t dropped = (int64_t)csv->dropped;
  csv->comm->ops->allreduce(csv->comm, &dropped, 1, TRM_INT64, TRM_SUM);
  if (csv->passes++ < csv->request->count && dropped && csv->comm->rank == 0 && csv->reader.file)
    trm_warn("%s: %lld rows with missing values are dropped", trm_reader_path(csv->reader.file), (long long)dropped);
  csv->dropped = 0;
  csv_reader_close(&csv->reader);
}

static struct trm_reader *csv_file(const void *impl)
{
  return ((const struct csv *)impl)->reader.file;
}

/* Returns true if the row lacks its label or a feature. */
static bool csv_lacks(const struct csv *csv)
{
  for (size_t k = 0; csv->target[0] != ABSENT && k < csv->table.targets; k++)
    if (csv_is_missing(csv->reader.field[csv->target[k]]))
      return true;
  for (size_t i = 0; i < csv->table.columns; i++)
    if (csv_is_missing(csv->reader.field[csv->feature[i].field]))
      return true;
  return false;
}

/* Reads the next row; the header is checked and skipped, and so are rows to drop. */
static int csv_next(void *impl, const char **label)
{
  struct csv *csv = impl;
  bool found;
  *label = NULL;
  TRM_CHECK(csv_record_next(&csv->reader, &found));
  if (found && csv->name && csv->reader.line == csv->first_line) {
    TRM_CHECK(csv_header_check(csv));
    TRM_CHECK(csv_record_next(&csv->reader, &found));
  }
  for (;; csv->dropped++) {
    if (!found)
      return TRM_OK;
    if (csv->reader.fields != csv->columns)
      return trm_error(TRM_FAILED, "%s:%zu: %zu columns in place of %zu", trm_reader_path(csv->reader.file),
                       csv->reader.line, csv->reader.fields, csv->columns);
    if (csv->table.missing != TABLE_MISSING_DROP || !csv_lacks(csv))
      break;
    TRM_CHECK(csv_record_next(&csv->reader, &found));
  }
  if (csv->target[0] == ABSENT) {
    *label = csv->table.labels ? csv->table.label[0] : "0";
    return TRM_OK;
  }
  *label = csv->reader.field[csv->target[0]];
  return csv_is_missing(*label) ? csv_field_error(csv, csv->target[0], "is a missing label") : TRM_OK;
}

static int csv_label_error(const void *impl, const char *what)
{
  const struct csv *csv = impl;
  return csv_field_error(csv, csv->target[0], what);
}

static size_t csv_values(const void *impl)
{
  return ((const struct csv *)impl)->table.targets;
}

static int csv_values_parse(const void *impl, float *values)
{
  const struct csv *csv = impl;
  for (size_t k = 0; k < csv->table.targets; k++) {
    values[k] = 0;
    if (csv->target[0] == ABSENT)
      continue;
    const char *text = csv->reader.field[csv->target[k]];
    const char *wrong = csv_is_missing(text) ? "is a missing label" : trm_parse_float(text, &values[k]);
    if (wrong && csv->table.targets > 1)
      wrong = "is not a finite number: label columns, if they are several, hold values, or 0 and 1";
    if (wrong)
      return csv_field_error(csv, csv->target[k], wrong);
  }
  return TRM_OK;
}

static void csv_kind_set(struct feature *feature, const char *text)
{
  double number;
  feature->kind = trm_number_scan(text, &number) != text && trm_parse_number(text, &number) ? FEATURE_NUMBER
                                                                                           : FEATURE_CATEGORY;
}

/* Decides the kinds of columns, which are those of the first values: the same on every rank. */
static int csv_kinds_decide(struct csv *csv)
{
  const char *label;
  for (bool undecided = true; undecided;) {
    TRM_CHECK(csv_next(csv, &label));
    undecided = false;
    for (size_t i = 0; label && i < csv->table.columns; i++) {
      struct feature *feature = &csv->feature[i];
      const char *text = csv->reader.field[feature->field];
      if (feature->kind == FEATURE_UNDECIDED && !csv_is_missing(text))
        csv_kind_set(feature, text);
      undecided |= feature->kind == FEATURE_UNDECIDED;
    }
  }
  return TRM_OK;
}

/* Decides the kinds of columns and collects categories. */
static int csv_learn(void *impl)
{
  struct csv *csv = impl;
  bool learns = false;
  for (size_t i = 0; csv->learns && i < csv->table.columns; i++) {
    struct feature *feature = &csv->feature[i];
    const char *text = csv->reader.field[feature->field];
    bool added;
    if (feature->kind != FEATURE_NUMBER && !csv_is_missing(text)) {
      if (feature->kind == FEATURE_UNDECIDED)
        csv_kind_set(feature, text);
      if (feature->kind == FEATURE_CATEGORY)
        wordset_add(&feature->words, text, strlen(text), &added);
      if (feature->words.count > MAX_CATEGORIES)
        return csv_field_error(csv, feature->field, "is one category too many: is it an identifier? --drop=COLUMN");
    }
    learns |= feature->kind != FEATURE_NUMBER;
  }
  csv->learns = learns;
  if (!learns && csv->table.missing != TABLE_MISSING_DROP && csv->target[0] != ABSENT)
    csv->reader.only = csv->target[0]; /* in the rest of this pass */
  return TRM_OK;
}

/* Replaces a column's categories by those of all ranks, in the order of the ranks. */
static void csv_categories_join(struct feature *feature, struct trm_comm *comm)
{
  int64_t *length = trm_alloc((size_t)comm->size * sizeof *length, "categories");
  char *texts = NULL;
  size_t bytes = 0, capacity = 0, stride;
  for (size_t k = 0; k < feature->words.count; k++) {
    const struct wordset_word *word = &feature->words.word[k];
    texts = trm_grow(texts, &capacity, bytes, bytes + word->length + 1, 1, "categories");
    memcpy(texts + bytes, feature->words.text + word->at, word->length);
    bytes += word->length;
    texts[bytes++] = '\0';
  }
  char *all = import_gather(comm, texts, bytes, length, &stride);
  wordset_free(&feature->words);
  for (int r = 0; r < comm->size; r++)
    for (const char *text = all + (size_t)r * stride, *end = text + length[r]; text < end; text += strlen(text) + 1) {
      bool added;
      wordset_add(&feature->words, text, strlen(text), &added);
    }
  trm_free(texts);
  trm_free(length);
  trm_free(all);
}

static int csv_join(void *impl, struct trm_comm *comm)
{
  struct csv *csv = impl;
  for (size_t i = 0; !csv->like && i < csv->table.columns; i++) {
    if (csv->feature[i].kind != FEATURE_CATEGORY)
      continue;
    csv_categories_join(&csv->feature[i], comm);
    if (csv->feature[i].words.count > MAX_CATEGORIES)
      return trm_error(TRM_FAILED, "%s: column \"%s\" has more than %d categories: is it an identifier? --drop=COLUMN",
                       csv->request->paths[0], csv->table.name[i], MAX_CATEGORIES);
  }
  return TRM_OK;
}

static int csv_number_parse(const struct csv *csv, size_t field, double *value)
{
  const char *text = csv->reader.field[field], *end = trm_number_scan(text, value);
  if (end == text || *end)
    return csv_field_error(csv, field, csv->like ? "is not a number" :
                           "is not a number, and the column begins with one (--categorical=COLUMN: all are names)");
  return fabs(*value) <= (double)FLT_MAX ? TRM_OK : csv_field_error(csv, field, "is not finite in single precision");
}

static bool csv_is_measured(const void *impl)
{
  const struct csv *csv = impl;
  return !csv->like && (csv->standardize || csv->table.missing == TABLE_MISSING_MEAN);
}

/* Adds a training row to the statistics. */
static int csv_measure(void *impl)
{
  struct csv *csv = impl;
  for (size_t i = 0; i < csv->table.columns; i++) {
    struct feature *feature = &csv->feature[i];
    const char *text = csv->reader.field[feature->field];
    if (csv_is_missing(text))
      continue;
    if (feature->kind == FEATURE_CATEGORY) {
      if (!feature->count)
        feature->count = trm_alloc(feature->words.count * sizeof *feature->count, "categories");
      const size_t word = wordset_find(&feature->words, text, strlen(text));
      if (word != WORDSET_NONE)
        feature->count[word]++;
      continue;
    }
    double value;
    TRM_CHECK(csv_number_parse(csv, feature->field, &value));
    if (!feature->values++)
      feature->first = value;
    feature->sum += value - feature->first;
    feature->squares += (value - feature->first) * (value - feature->first);
  }
  return TRM_OK;
}

/* Adds the moments of other rows (Chan, Golub & LeVeque 1983, "Algorithms for computing the sample variance"). */
static void csv_moments_add(struct moments *all, const struct moments *other)
{
  if (!(other->values > 0))
    return;
  if (!(all->values > 0)) {
    *all = *other;
    return;
  }
  const double values = all->values + other->values, step = other->mean - all->mean;
  all->squares += other->squares + step * step * (all->values * other->values / values);
  all->mean += step * (other->values / values);
  all->values = values;
}

static void *csv_sums(void *impl, size_t *bytes)
{
  struct csv *csv = impl;
  *bytes = csv->table.columns * sizeof *csv->moments;
  if (!csv->moments)
    csv->moments = trm_alloc(*bytes, "columns");
  return csv->moments;
}

/* Adds the moments of a segment to those of the segments before, so that sums do not depend on the number of ranks. */
static void csv_add_up(void *impl)
{
  struct csv *csv = impl;
  for (size_t i = 0; i < csv->table.columns; i++) {
    struct feature *feature = &csv->feature[i];
    if (!feature->values)
      continue;
    const double values = (double)feature->values, mean = feature->sum / values;
    csv_moments_add(&csv->moments[i],
                    &(struct moments){values, feature->first + mean, feature->squares - feature->sum * mean});
    feature->sum = feature->squares = 0;
    feature->values = 0;
  }
}

/* Adds the training rows of the categories of all ranks. */
static void csv_counts_add_up(struct csv *csv, struct trm_comm *comm)
{
  for (size_t i = 0; csv_is_measured(csv) && i < csv->table.columns; i++) {
    struct feature *feature = &csv->feature[i];
    if (!feature->words.count)
      continue;
    if (!feature->count)
      feature->count = trm_alloc(feature->words.count * sizeof *feature->count, "categories");
    comm->ops->allreduce(comm, feature->count, feature->words.count, TRM_INT64, TRM_SUM);
  }
}

/* -- the table */

struct place {
  const char *text;
  size_t word;
};

static int csv_place_compare(const void *a, const void *b)
{
  return strcmp(((const struct place *)a)->text, ((const struct place *)b)->text);
}

/* Orders the categories of a column, and adds their names to the list. */
static double csv_categories_order(struct feature *feature, const char **list, char **texts)
{
  const size_t n = feature->words.count;
  struct place *place = trm_alloc(n * sizeof *place, "categories");
  size_t bytes = 0, frequent = 0;
  for (size_t k = 0; k < n; k++)
    bytes += feature->words.word[k].length + 1;
  char *to = *texts = trm_alloc(bytes + 1, "categories");
  for (size_t k = 0; k < n; k++) {
    const struct wordset_word *word = &feature->words.word[k];
    memcpy(to, feature->words.text + word->at, word->length);
    place[k] = (struct place){.text = to, .word = k};
    to += word->length + 1;
  }
  qsort(place, n, sizeof *place, csv_place_compare);
  feature->place = trm_alloc((n + 1) * sizeof *feature->place, "categories");
  for (size_t k = 0; k < n; k++) {
    list[k] = place[k].text;
    feature->place[place[k].word] = k;
    if (feature->count && feature->count[place[k].word] > feature->count[place[frequent].word])
      frequent = k;
  }
  trm_free(place);
  return (double)frequent;
}

/* Fills the table in from what the passes have learned. */
static void csv_table_make(struct csv *csv)
{
  struct data_table *table = &csv->table;
  const size_t n = table->columns;
  table->mean = trm_alloc(n * sizeof *table->mean, "columns");
  table->deviation = trm_alloc(n * sizeof *table->deviation, "columns");
  table->fill = trm_alloc(n * sizeof *table->fill, "columns");
  table->categories = trm_alloc(n * sizeof *table->categories, "columns");
  for (size_t i = 0; i < n; i++)
    table->all_categories += csv->feature[i].words.count;
  const char **list = trm_alloc((table->all_categories + 1) * sizeof *list, "categories");
  char **texts = trm_alloc(n * sizeof *texts, "categories");
  for (size_t i = 0, at = 0; i < n; at += csv->feature[i++].words.count) {
    struct feature *feature = &csv->feature[i];
    const struct moments moments = csv->moments ? csv->moments[i] : (struct moments){0};
    const double variance = moments.values > 0 ? moments.squares / moments.values : 0;
    table->deviation[i] = 1;
    table->categories[i] = feature->words.count;
    if (feature->words.count) {
      table->fill[i] = csv_categories_order(feature, list + at, &texts[i]);
      continue;
    }
    table->fill[i] = moments.mean;
    if (csv->standardize) {
      table->mean[i] = moments.mean;
      table->deviation[i] = variance > 0 ? sqrt(variance) : 1;
    }
  }
  table->category = trm_texts_copy(list, table->all_categories);
  for (size_t i = 0; i < n; i++)
    trm_free(texts[i]);
  trm_free(texts);
  trm_free(list);
}

static int csv_describe(void *impl, struct trm_data_spec *spec, struct trm_comm *comm)
{
  struct csv *csv = impl;
  if (!csv->like) {
    csv_counts_add_up(csv, comm);
    csv_table_make(csv);
    csv->table.target_kind = spec->target;
    csv->table.labels = spec->target == TRM_TARGET_CLASS ? spec->classes : 0;
    csv->table.label = csv->table.labels ? trm_texts_copy(spec->class_names, spec->classes) : NULL;
  }
  csv->width = table_features(&csv->table);
  if (csv->width > 1 << 20)
    return trm_error(TRM_FAILED, "%s: the categories make %zu features: --drop=COLUMN, or --categories=index",
                     csv->request->paths[0], csv->width);
  spec->kind = TRM_DATA_VECTOR;
  spec->element = TRM_ELEMENT_FLOAT;
  spec->shape = (struct trm_shape){.dims = 1, .size = {csv->width}};
  spec->table = &csv->table;
  if (csv->table.targets > 1)
    spec->class_names = (const char *const *)csv->table.target;
  return TRM_OK;
}

/* The labels of the data set of --like. */
static const char *const *csv_labels(const void *impl, size_t *count)
{
  const struct csv *csv = impl;
  *count = csv->like ? csv->table.labels : 0;
  return (const char *const *)csv->table.label;
}

/* -- features */

/* Writes the features of a category. */
static int csv_category_add(const struct csv *csv, size_t column, bool missing, float **x)
{
  const struct feature *feature = &csv->feature[column];
  const char *text = csv->reader.field[feature->field];
  const size_t word = missing ? 0 : wordset_find(&feature->words, text, strlen(text));
  if (word == WORDSET_NONE)
    return csv_field_error(csv, feature->field, "is not among the column's categories");
  const size_t place = missing ? (size_t)csv->table.fill[column] : feature->place[word];
  if (!csv->table.onehot) {
    *(*x)++ = (float)place;
    return TRM_OK;
  }
  const size_t n = (size_t)csv->table.categories[column];
  for (size_t k = 0; k < n; k++)
    *(*x)++ = k == place;
  return TRM_OK;
}

static int csv_number_add(const struct csv *csv, size_t column, bool missing, float **x)
{
  double value = csv->table.fill[column];
  if (!missing)
    TRM_CHECK(csv_number_parse(csv, csv->feature[column].field, &value));
  if (csv->table.deviation[column] < 1 || csv->table.deviation[column] > 1 || csv->table.mean[column] < 0 ||
      csv->table.mean[column] > 0)
    value = (value - csv->table.mean[column]) / csv->table.deviation[column];
  *(*x)++ = (float)value;
  return TRM_OK;
}

static int csv_add(void *impl, struct trm_data_rows *rows, bool *full)
{
  struct csv *csv = impl;
  if (!csv->x)
    csv->x = trm_alloc(CHUNK * csv->width * sizeof *csv->x, "csv rows");
  float *x = csv->x + rows->rows * csv->width;
  for (size_t i = 0; i < csv->table.columns; i++) {
    const size_t field = csv->feature[i].field;
    const bool missing = csv_is_missing(csv->reader.field[field]);
    if (missing && csv->table.missing != TABLE_MISSING_MEAN)
      return csv_field_error(csv, field, "is a missing value (--missing=drop|mean)");
    TRM_CHECK(csv->table.categories[i] ? csv_category_add(csv, i, missing, &x) : csv_number_add(csv, i, missing, &x));
  }
  rows->floats = csv->x;
  *full = rows->rows + 1 == CHUNK;
  return TRM_OK;
}

/* -- the import */

static int csv_choice(const char *option, const char *text, const char *const *choices, int *choice)
{
  for (*choice = 0; choices[*choice]; ++*choice)
    if (!text || !strcmp(text, choices[*choice]))
      return TRM_OK;
  char *list = NULL;
  for (int i = 0; choices[i]; i++)
    trm_append(&list, "%s%s", i ? ", " : "", choices[i]);
  trm_error(TRM_USAGE, "--%s=%s: must be one of %s", option, text, list);
  trm_free(list);
  return TRM_USAGE;
}

static int csv_separator_parse(const char *text, char *separator)
{
  *separator = !text || !*text ? '\0' : !strcmp(text, "tab") || !strcmp(text, "\\t") ? '\t' : *text;
  const bool good = !*separator || *separator == '\t' || (!text[1] && !strchr("\" .-+\n\r", *separator));
  return good ? TRM_OK : trm_error(TRM_USAGE, "--separator=%s: must be one character, or tab", text);
}

/* Options that the data set of --like decides. */
static int csv_like_check(const struct trm_import_request *request)
{
  const struct {
    const char *name;
    bool given;
  } options[] = {{"columns", request->columns}, {"drop", request->drop}, {"label", request->label},
                 {"categorical", request->categorical}, {"categories", request->categories},
                 {"standardize", request->standardize}};
  for (size_t i = 0; i < sizeof options / sizeof *options; i++)
    if (options[i].given)
      return trm_error(TRM_USAGE, "--%s: %s decides it (--like)", options[i].name, request->like);
  return TRM_OK;
}

/* Reads the options that are not columns. `with`: the request, to which the target of --like is added. */
static int csv_options_read(struct csv *csv, struct trm_import_request *with)
{
  static const char *const codes[] = {"index", "onehot", NULL}, *const headers[] = {"yes", "no", NULL};
  int onehot, missing, header;
  TRM_CHECK(csv_separator_parse(with->separator, &csv->reader.separator));
  TRM_CHECK(csv_choice("categories", with->categories, codes, &onehot));
  TRM_CHECK(csv_choice("missing", with->missing, table_missing_name, &missing));
  TRM_CHECK(csv_choice("header", with->header, headers, &header));
  csv->like = with->like != NULL;
  csv->standardize = with->standardize;
  if (csv->like) {
    TRM_CHECK(csv_like_check(with));
    TRM_CHECK(table_read(with->like, &csv->table));
    with->target = csv->table.target_kind == TRM_TARGET_CLASS ? "class" : "value";
  } else {
    csv->table.onehot = onehot == 1;
  }
  if (csv_labels_count(with->label) > 1 && with->target && strcmp(with->target, "class") == 0)
    return trm_error(TRM_USAGE, "--target=class: a class is one column; --label names several");
  if (csv_labels_count(with->label) > 1 && !with->target)
    with->target = "value";
  if (!csv->like || with->missing)
    csv->table.missing = (enum table_missing)missing;
  return TRM_OK;
}

static void csv_free(struct csv *csv)
{
  for (size_t i = 0; csv->feature && i < csv->table.columns; i++) {
    wordset_free(&csv->feature[i].words);
    trm_free(csv->feature[i].place);
    trm_free(csv->feature[i].count);
  }
  trm_free(csv->feature);
  trm_free(csv->target);
  trm_free(csv->moments);
  table_free(&csv->table);
  csv_reader_free(&csv->reader);
  trm_free(csv->name);
  trm_free(csv->x);
}

int trm_import_csv(const struct trm_import_request *request)
{
  static const struct trm_row_format format = {
    .name = "csv",
    .open = csv_open,
    .close = csv_close,
    .file = csv_file,
    .quotes = true,
    .next = csv_next,
    .label_error = csv_label_error,
    .values = csv_values,
    .values_parse = csv_values_parse,
    .add = csv_add,
    .describe = csv_describe,
    .labels = csv_labels,
    .learn = csv_learn,
    .join = csv_join,
    .is_measured = csv_is_measured,
    .measure = csv_measure,
    .add_up = csv_add_up,
    .sums = csv_sums,
  };
  struct trm_import_request with = *request;
  struct csv csv = {.request = &with, .comm = request->comm ? request->comm : trm_comm_self()};
  int status = trm_agree(csv.comm, csv_options_read(&csv, &with));
  if (status == TRM_OK)
    status = trm_import_rows(&with, &format, &csv);
  csv_free(&csv);
  return status;
}
