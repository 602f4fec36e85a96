#include "datasets/table.h"

#include <math.h>
#include <string.h>

#include "core/status.h"
#include "datasets/h5.h"
#include "datasets/import.h"

#define MAX_COLUMNS ((uint64_t)1 << 20)

const char *const table_missing_name[TABLE_MISSING_RULES + 1] = {"error", "drop", "mean", NULL};

/* -- writing */

static bool table_put_numbers(hid_t group, const char *name, size_t count, hid_t file_type, hid_t memory_type,
                              const void *numbers)
{
  const hsize_t size = count;
  const struct h5_array array = {
    .dims = 1, .size = &size, .file_type = file_type, .memory_type = memory_type, .chunk_rows = count};
  return h5_array_write(group, name, &array, numbers);
}

bool table_put(hid_t file, const struct data_table *table)
{
  const size_t n = table->columns;
  H5_LOCKED;
  H5_CLOSED const hid_t group = H5Gcreate2(file, "columns", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  return group >= 0 && h5_put_integer(group, "columns", n) && h5_put_integer(group, "header", table->has_header) &&
         h5_put_text(group, "target", table->target[0]) &&
         (table->targets == 1 ||
          (h5_put_integer(group, "targets", table->targets) &&
           h5_put_texts(group, "target_names", (const char *const *)table->target, table->targets))) &&
         h5_put_text(group, "target_kind", table->target_kind == TRM_TARGET_CLASS ? "class" : "value") &&
         h5_put_text(group, "categories", table->onehot ? "onehot" : "index") &&
         h5_put_text(group, "missing", table_missing_name[table->missing]) &&
         h5_put_texts(group, "names", (const char *const *)table->name, n) &&
         table_put_numbers(group, "mean", n, H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, table->mean) &&
         table_put_numbers(group, "deviation", n, H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, table->deviation) &&
         table_put_numbers(group, "fill", n, H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, table->fill) &&
         table_put_numbers(group, "category_counts", n, H5T_STD_U64LE, H5T_NATIVE_UINT64, table->categories) &&
         (!table->all_categories ||
          h5_put_texts(group, "category_names", (const char *const *)table->category, table->all_categories)) &&
         h5_put_integer(group, "labels", table->labels) &&
         (!table->labels || h5_put_texts(group, "label_names", (const char *const *)table->label, table->labels));
}

/* -- reading */

/* Reads an array of `count` numbers of 8 bytes; NULL: absent, damaged or of another length. */
static void *table_get_numbers(hid_t group, const char *name, size_t count, hid_t type)
{
  hsize_t size[H5S_MAX_RANK];
  int dims;
  H5_CLOSED const hid_t array = h5_array_open(group, name, &dims, size);
  if (array < 0 || dims != 1 || size[0] != count)
    return NULL;
  double *numbers = trm_alloc(count * sizeof *numbers, name);
  if (H5Dread(array, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, numbers) >= 0)
    return numbers;
  trm_free(numbers);
  return NULL;
}

/* Reads a text that is one of a list; returns its place, or -1. */
static int table_get_choice(hid_t group, const char *name, const char *const *choices)
{
  char *text = h5_get_text(group, name);
  int choice = -1;
  for (int i = 0; text && choices[i]; i++)
    if (!strcmp(text, choices[i]))
      choice = i;
  trm_free(text);
  return choice;
}

/* Reads the numbers and checks that they can be used. */
static bool table_get_columns(hid_t group, struct data_table *table)
{
  const size_t n = table->columns;
  if (!h5_get_texts(group, "names", n, &table->name) || !table->name ||
      !(table->mean = table_get_numbers(group, "mean", n, H5T_NATIVE_DOUBLE)) ||
      !(table->deviation = table_get_numbers(group, "deviation", n, H5T_NATIVE_DOUBLE)) ||
      !(table->fill = table_get_numbers(group, "fill", n, H5T_NATIVE_DOUBLE)) ||
      !(table->categories = table_get_numbers(group, "category_counts", n, H5T_NATIVE_UINT64)))
    return false;
  for (size_t i = 0; i < n; i++) {
    const uint64_t categories = table->categories[i];
    if (!isfinite(table->mean[i]) || !isfinite(table->fill[i]) || !(table->deviation[i] > 0) ||
        !isfinite(table->deviation[i]) || categories > MAX_COLUMNS ||
        (categories && (table->fill[i] < 0 || table->fill[i] >= (double)categories)))
      return false;
    table->all_categories += categories;
    if (table->all_categories > MAX_COLUMNS)
      return false;
  }
  return !table->all_categories ||
         (h5_get_texts(group, "category_names", table->all_categories, &table->category) && table->category);
}

/* Reads the names of the targets' columns. */
static bool table_get_targets(hid_t group, struct data_table *table)
{
  uint64_t targets = 1;
  char *first = h5_get_text(group, "target");
  h5_get_integer(group, "targets", &targets); /* there are several */
  if (first && targets == 1)
    table->target = trm_texts_copy((const char *const *)&first, 1);
  else if (first && targets > 0 && targets <= MAX_COLUMNS)
    h5_get_texts(group, "target_names", (size_t)targets, &table->target);
  trm_free(first);
  table->targets = (size_t)targets;
  return table->target != NULL;
}

static bool table_get_group(hid_t group, struct data_table *table)
{
  static const char *const kinds[] = {"class", "value", NULL}, *const codes[] = {"index", "onehot", NULL};
  uint64_t columns, header, labels;
  if (!h5_get_integer(group, "columns", &columns) || columns == 0 || columns > MAX_COLUMNS ||
      !h5_get_integer(group, "header", &header) || !h5_get_integer(group, "labels", &labels) || labels > MAX_COLUMNS)
    return false;
  const int kind = table_get_choice(group, "target_kind", kinds), code = table_get_choice(group, "categories", codes);
  const int missing = table_get_choice(group, "missing", table_missing_name);
  table->columns = (size_t)columns;
  table->has_header = header != 0;
  table->labels = (size_t)labels;
  if (kind < 0 || code < 0 || missing < 0 || !table_get_targets(group, table) || (kind == 0) != (labels > 0) ||
      (kind == 0 && table->targets > 1))
    return false;
  table->target_kind = kind == 0 ? TRM_TARGET_CLASS : TRM_TARGET_VALUE;
  table->onehot = code == 1;
  table->missing = (enum table_missing)missing;
  return table_get_columns(group, table) &&
         (!labels || (h5_get_texts(group, "label_names", table->labels, &table->label) && table->label));
}

int table_get(hid_t file, const char *path, struct data_table *table, bool *found)
{
  *table = (struct data_table){.columns = 0};
  *found = h5_exists(file, "columns");
  if (!*found)
    return TRM_OK;
  H5_LOCKED;
  H5_CLOSED const hid_t group = H5Gopen2(file, "columns", H5P_DEFAULT);
  return group >= 0 && table_get_group(group, table) ? TRM_OK : h5_error(path, "columns is damaged");
}

int table_read(const char *path, struct data_table *table)
{
  hid_t file;
  bool found;
  *table = (struct data_table){.columns = 0};
  TRM_CHECK(h5_open(path, H5_DATASET, NULL, &file));
  const int status = table_get(file, path, table, &found);
  h5_close(file);
  TRM_CHECK(status);
  return found ? TRM_OK : trm_error(TRM_FAILED, "%s: keeps no columns: it was not imported from csv", path);
}

void table_free(struct data_table *table)
{
  trm_free(table->name);
  trm_free(table->mean);
  trm_free(table->deviation);
  trm_free(table->fill);
  trm_free(table->categories);
  trm_free(table->category);
  trm_free(table->target);
  trm_free(table->label);
  *table = (struct data_table){.columns = 0};
}

/* -- features */

size_t table_features(const struct data_table *table)
{
  size_t features = 0;
  for (size_t i = 0; i < table->columns; i++)
    features += table->onehot && table->categories[i] ? (size_t)table->categories[i] : 1;
  return features;
}

char *table_feature_name(const struct data_table *table, size_t feature)
{
  size_t category = 0;
  for (size_t i = 0; i < table->columns; category += (size_t)table->categories[i++]) {
    const size_t width = table->onehot && table->categories[i] ? (size_t)table->categories[i] : 1;
    if (feature < width)
      return width == 1 && !(table->onehot && table->categories[i])
               ? trm_strdup(table->name[i])
               : trm_format("%s=%s", table->name[i], table->category[category + feature]);
    feature -= width;
  }
  return trm_strdup("");
}
