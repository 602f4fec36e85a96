/* Import of text files whose rows have one label each: libsvm, csv (private to datasets/). A file is read in passes,
 * once for its labels, then once for each split, so that it may be larger than memory. */
#pragma once

#include "datasets/import.h"

#define TRM_IMPORT_ROWS 1024 /* maximum rows appended to the writer at once */

/* A file format. `impl` holds the open file and the rows gathered from it. */
struct trm_row_format {
  const char *name;                                        /* "csv" */
  int (*open)(void *impl, const char *path);
  void (*close)(void *impl);                               /* also after a failed open */
  int (*next)(void *impl, const char **label);             /* steps to the next row; *label: NULL at the end */
  int (*label_error)(const void *impl, const char *what);  /* "PATH:LINE: ... LABEL what"; returns TRM_FAILED */
  /* Parses the features of the current row into impl's arrays as row rows->rows, and points `rows` to them. *full: the
   * arrays must go to the writer before the next row. */
  int (*add)(void *impl, struct trm_data_rows *rows, bool *full);
  void (*describe)(const void *impl, struct trm_data_spec *spec); /* kind, element, shape; after the first passes */
  size_t (*features)(const void *impl);                    /* csr: largest index of all rows; else NULL */
};

/* Imports TRAIN [TEST]. A part of the rows of a single file becomes the test split: the last ones, or random ones,
 * stratified by class. */
int trm_import_rows(const struct trm_import_request *request, const struct trm_row_format *format, void *impl);
