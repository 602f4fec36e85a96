/* The columns of an imported table, as the group /columns of a data set keeps them (private to datasets/), so that
 * another import can treat new rows alike. */
#pragma once

#include <hdf5.h>

#include "core/memory.h"
#include "train/dataset.h"

/* The treatment of missing values of a table. */
enum table_missing { TABLE_MISSING_ERROR, TABLE_MISSING_DROP, TABLE_MISSING_MEAN, TABLE_MISSING_RULES };
extern const char *const table_missing_name[TABLE_MISSING_RULES + 1]; /* "error", ...; ends with NULL */

struct data_table {
  size_t columns;
  char **name;         /* (columns) in the header, or numbers from 1 */
  bool has_header;
  double *mean;        /* (columns) a number x becomes (x - mean) / deviation; 0 and 1: not standardized */
  double *deviation;
  double *fill;        /* (columns) in place of a missing value: a number, or the place of a category */
  uint64_t *categories; /* (columns) how many; 0: a column of numbers */
  char **category;     /* (all categories) column after column, ascending in each */
  size_t all_categories;
  char **target;       /* (targets) names of the targets' columns */
  size_t targets;      /* more than one: values */
  enum trm_target_kind target_kind;
  char **label;        /* (labels) of classes, as the file writes them; NULL: values */
  size_t labels;
  bool onehot;         /* a category is as many numbers as the column has categories; else its place, from 0 */
  enum table_missing missing;
};

/* Writes the group. False: failed. */
bool table_put(hid_t file, const struct data_table *table);

/* Reads the group of an open data set. *found: there is one. The caller frees the table, also after an error. */
int table_get(hid_t file, const char *path, struct data_table *table, bool *found);
/* Opens and reads a data set's. Without one: an error. */
int table_read(const char *path, struct data_table *table);
void table_free(struct data_table *table);

size_t table_features(const struct data_table *table); /* numbers of a row */
char *table_feature_name(const struct data_table *table, size_t feature); /* "color=red"; owned by the caller */
