/* Importers and shared functions (private to datasets/). Each import_NAME.c implements one row of the table in
 * import.c. */
#pragma once

#include "datasets/datasets.h"
#include "datasets/format.h"

int trm_import_digits(const struct trm_import_request *request);
int trm_import_mnist(const struct trm_import_request *request);
int trm_import_cifar10(const struct trm_import_request *request);
int trm_import_libsvm(const struct trm_import_request *request);
int trm_import_csv(const struct trm_import_request *request);
int trm_import_text(const struct trm_import_request *request);
int trm_import_tokens(const struct trm_import_request *request); /* text by bytes or byte pairs */

/* Opens the writer for a request. Refuses an output that exists unless `overwrite` is set. The request's compress and
 * class names replace the spec's; the number of names must be spec.classes. */
int trm_import_begin(const struct trm_import_request *request, struct trm_data_spec spec,
                     struct trm_data_writer **writer);

/* Finishes the output if status is TRM_OK, abandons it otherwise. Returns the first error of both. features: of csr
 * rows, else 0. */
int trm_import_end(struct trm_data_writer *writer, int status, size_t features);

/* (10) "0" to "9". */
extern const char *const trm_digit_names[10];

/* Splits text at commas. The array and its texts are one block, owned by the caller: trm_free. */
char **trm_names_split(const char *text, size_t *count);

/* Returns FOLDER/NAME or FOLDER/NAME.gz, the one that exists; NULL if neither does. Owned by the caller: trm_free. */
char *trm_import_find(const char *folder, const char *name);
bool trm_is_folder(const char *path);

/* Computes the number of training rows of a single file from request->test_part (default_part if that is negative). */
int trm_import_train_rows(const struct trm_import_request *request, double default_part, uint64_t rows,
                          uint64_t *train_rows);

/* Checks requests of importers of TRAIN [TEST]: one or two paths, no test_part or split with a second path, a known
 * target and split rule. */
int trm_import_check(const struct trm_import_request *request, enum trm_target_kind *target, bool *random_split);
