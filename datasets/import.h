/* Importers and shared functions (private to datasets/). Each import_NAME.c implements one row of the table in
 * import.c. */
#pragma once

#include "core/comm.h"
#include "datasets/datasets.h"
#include "datasets/format.h"

int trm_import_digits(const struct trm_import_request *request);
int trm_import_clusters(const struct trm_import_request *request);
int trm_import_mnist(const struct trm_import_request *request);
int trm_import_cifar10(const struct trm_import_request *request);
int trm_import_libsvm(const struct trm_import_request *request);
int trm_import_csv(const struct trm_import_request *request);
int trm_import_images(const struct trm_import_request *request);
int trm_import_npy(const struct trm_import_request *request);
int trm_import_npz(const struct trm_import_request *request);
int trm_import_text(const struct trm_import_request *request);

/* Opens the writer for a request. Refuses an output that exists unless `overwrite` is set. The request's compress and
 * class names replace the spec's; the number of names must be spec.classes. */
int trm_import_begin(const struct trm_import_request *request, struct trm_data_spec spec,
                     struct trm_data_writer **writer);

/* The same for images of bytes in TRM_IMAGE_CLASSES classes. */
#define TRM_IMAGE_CLASSES 10
int trm_import_begin_images(const struct trm_import_request *request, struct trm_shape shape,
                            const char *const *class_names, const char *source, struct trm_data_writer **writer);

/* Finishes the output if status is TRM_OK, abandons it otherwise. Returns the first error of both. features: of csr
 * rows, else 0. */
int trm_import_end(struct trm_data_writer *writer, int status, size_t features);

/* (10) "0" to "9". */
extern const char *const trm_digit_names[10];

/* Returns FOLDER/NAME or FOLDER/NAME.gz, the one that exists; NULL and an error if neither does. Owned by the
 * caller: trm_free. */
char *trm_import_find(const char *folder, const char *name);
bool trm_is_folder(const char *path);

/* Computes the number of training rows of a single file from request->test_part (default_part if that is negative). */
int trm_import_train_rows(const struct trm_import_request *request, double default_part, uint64_t rows,
                          uint64_t *train_rows);

/* Checks requests of importers of TRAIN [TEST]: one or two paths, no test_part or split with a second path, a known
 * target and split rule. */
int trm_import_check(const struct trm_import_request *request, enum trm_target_kind *target, bool *random_split);

/* Copies a list of texts as one block, owned by the caller: trm_free. */
char **trm_texts_copy(const char *const *texts, size_t count);

/* qsort's order of `char *` elements: by bytes. */
int trm_import_text_compare(const void *a, const void *b);

/* -- class labels as texts. Those that are numbers are equal if their values are, and come first, ascending; others in
 * order of their bytes. */
struct trm_label {
  char *name; /* not copied */
  bool is_number;
  double number;
};
struct trm_label trm_label_parse(const char *name);
int trm_label_compare(const struct trm_label *a, const struct trm_label *b);

/* -- the test split of a single source */

/* Rows of one class, or all rows if they are not stratified. */
struct trm_stratum {
  uint64_t rows, test_rows;
  uint64_t seen; /* in this pass */
};

/* Sets the number of test rows of each stratum: differences of rounded cumulative shares. So each is within one row of
 * its share, and the sum is the rounded share of all rows. */
void trm_strata_plan(struct trm_stratum *stratum, size_t count, double test_part);

/* Returns true if the next row of a stratum, in the order of the source, is a test row. Random: the rows of a stratum
 * are permuted (core/random.h), and the last of the permutation are test rows. */
bool trm_stratum_next(struct trm_stratum *stratum, bool is_random, uint64_t seed, uint32_t class);

/* -- text files whose rows have one label each: libsvm, csv. A file is read in passes, once for its labels, then once
 * for each split, so that it may be larger than memory. In each pass the ranks share its records (import_ranks.h). */

#define TRM_IMPORT_ROWS 1024 /* maximum rows appended to the writer at once */

/* A file format. `impl` holds the open file and the rows gathered from it. */
struct trm_row_format {
  const char *name;                                        /* "csv" */
  int (*open)(void *impl, const char *path);
  void (*close)(void *impl);                               /* also after a failed open */
  struct trm_reader *(*file)(const void *impl);            /* that is open */
  bool quotes;                                             /* line feeds between quotes belong to a record */
  /* Steps to the next row; *label: NULL at the end of the file or at its reader's limit. */
  int (*next)(void *impl, const char **label);
  int (*label_error)(const void *impl, const char *what);  /* "PATH:LINE: ... LABEL what"; returns TRM_FAILED */
  size_t (*values)(const void *impl);                      /* of a row's target; after the first pass */
  int (*values_parse)(const void *impl, float *values);    /* those of the current row */
  /* Parses the features of the current row into impl's arrays as row rows->rows, and points `rows` to them. *full: the
   * arrays must go to the writer before the next row. */
  int (*add)(void *impl, struct trm_data_rows *rows, bool *full);
  /* Sets kind, element, shape and table; after the first passes. The spec has the target and the classes.
   * Collective. */
  int (*describe)(void *impl, struct trm_data_spec *spec, struct trm_comm *comm);
  size_t (*features)(const void *impl);                    /* csr: largest index of all rows; else NULL */
  /* The next ones may be NULL. Those that take comm are collective. */
  const char *const *(*labels)(const void *impl, size_t *count); /* that rows may have; *count = 0: any */
  int (*learn)(void *impl);                                /* sees each row of the first file in the first pass */
  int (*join)(void *impl, struct trm_comm *comm);          /* after it: shares what the ranks have learned */
  bool (*is_measured)(const void *impl);                   /* measure is to be called */
  int (*measure)(void *impl);                              /* sees each training row in a pass before describe */
  void (*add_up)(void *impl);                              /* after each segment of that pass, in order: to sums */
  void *(*sums)(void *impl, size_t *bytes);                /* owned by impl */
};

/* Imports TRAIN [TEST]. A part of the rows of a single file becomes the test split: the last ones, or random ones,
 * stratified by class. Collective over request->comm; the data set does not depend on the number of ranks. */
int trm_import_rows(const struct trm_import_request *request, const struct trm_row_format *format, void *impl);
