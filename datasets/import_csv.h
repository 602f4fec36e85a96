/* An import of a table as text: its file, its columns, and what becomes of them. Private to import_csv*.c. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "datasets/csv_reader.h"
#include "datasets/import.h"
#include "datasets/table.h"
#include "datasets/wordset.h"

#define ABSENT SIZE_MAX

enum feature_kind { FEATURE_UNDECIDED, FEATURE_NUMBER, FEATURE_CATEGORY };

/* A column that becomes features. */
struct feature {
  size_t field;          /* its place in a record */
  enum feature_kind kind; /* that of the first value that is not missing */
  struct wordset words;  /* categories, in order of appearance */
  size_t *place;         /* (words) their places in ascending order */
  size_t *count;         /* (words) training rows; NULL before they are measured */
  /* of the training rows of the current segment: sums of differences to the first value */
  double first, sum, squares;
  uint64_t values;
};

/* Moments of the training rows of a column. */
struct moments {
  double values, mean, squares; /* squares: sum of squared differences to the mean */
};

struct csv {
  const struct trm_import_request *request;
  struct csv_reader reader;
  struct trm_comm *comm;
  bool opened;           /* the columns are known */
  size_t first_line;     /* of the open file's first record */
  size_t columns;        /* of the files, with the target */
  char **name;           /* (columns) of the header, one block; NULL: there is none */
  size_t *target;        /* (table.targets) fields of the targets; the first one ABSENT: of rows without them */
  struct feature *feature; /* (table.columns) */
  struct moments *moments; /* (table.columns) of all segments so far; NULL: not measured */
  struct data_table table;
  bool like;             /* the table is that of another data set */
  bool standardize;
  bool learns;           /* a feature is undecided or has categories */
  size_t width;          /* features of a row */
  uint64_t dropped;      /* rows of this pass */
  int passes;
  float *x;              /* (CHUNK, width) rows gathered */
};

/* Returns true for the text of a missing value. */
bool csv_is_missing(const char *text);

/* Columns named by --label. */
size_t csv_labels_count(const char *label);

/* Determines the columns from the first record of the train file, which has been read. Errors name the file. */
int csv_columns_detect(struct csv *csv);

/* Compares the header of another file, the record that has been read, with that of the train file. */
int csv_header_check(const struct csv *csv);
