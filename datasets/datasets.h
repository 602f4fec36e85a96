/* Public interface of the wing that knows HDF5: data sets made, imported, described and opened; checkpoints. */
#ifndef TRM_DATASETS_DATASETS_H
#define TRM_DATASETS_DATASETS_H

#include <stdbool.h>
#include <stdint.h>

#include "datasets/tokenizer.h" /* texts as tokens */
#include "train/checkpoint.h"
#include "train/dataset.h"

extern const struct trm_dataset_ops trm_dataset_hdf5;
extern const struct trm_checkpoint_ops trm_checkpoint_hdf5;

/* To be called before MPI starts: an HDF5 that comes up later hooks its clean-up to the end of MPI, where it takes up
 * files that could not be written, and dies of them. */
void trm_hdf5_init(void);

/* Makers and importers: one row a source in the table of datasets/import.c. */
struct trm_import_request {
  const char *const *paths; /* (count) input files or folders; libsvm, csv, text: train, then test */
  int count;
  const char *out;          /* the HDF5 file to write; refused if it exists unless overwrite */
  bool overwrite;
  int compress;             /* deflate level 0..9 */
  uint64_t seed;            /* digits; libsvm, csv: of the random split */
  uint64_t train, test;     /* digits: samples of each split (0: 60,000 and 10,000) */
  double test_part;         /* part of a single file's rows that becomes the test split, [0, 1); negative: the
                             * source's default (text 0.1, else 0) */
  const char *split;        /* which rows: "random" (libsvm, csv: NULL), by class in proportion; "last" (text: NULL) */
  const char *label;        /* csv: name or 1-based number of the target column (default: the last) */
  const char *target;       /* csv, libsvm: "class" | "value" */
  bool normalize;           /* libsvm: scale each row to unit Euclidean length */
  const char *tokens;       /* text: "characters" (NULL), "bytes", "bpe" */
  size_t vocabulary;        /* bpe: how many tokens are learned from the text; 0: they are in */
  const char *merges, *vocabulary_file; /* these files: merges.txt and vocab.json of GPT-2 */
  const char *names;        /* class names, separated by commas; NULL: the source's own */
};
struct trm_importer {
  const char *name; /* "mnist" */
  const char *help; /* one line for `trireme data --help` */
  int (*run)(const struct trm_import_request *request);
};
extern const struct trm_importer trm_importer_table[]; /* ends with a row whose name is NULL; `digits` is in it too */

/* Prints what a file holds (either a data set or a checkpoint). check: reads everything and verifies the sums and the
 * digest. */
int trm_data_info(const char *path, bool check, bool json);

/* Predictions of a model. All arrays are owned by the caller. */
struct trm_predictions {
  const float *scores;       /* (rows, columns) */
  const int32_t *predicted;  /* (rows) class of each row, or NULL: the targets are values */
  size_t rows, columns;
  char *const *class_names;  /* (classes) or NULL */
  size_t classes;
};

/* Writes an HDF5 file, which replaces `path` in one step. */
int trm_predictions_write(const char *path, const struct trm_predictions *predictions);

/* Times reading the train split's x (csr: values) whole, each rank its part, into memory that is there already, with
 * every check that the loader makes of the file. Collective. *seconds: median of the repetitions; *bytes: of all
 * ranks. */
int trm_data_read_rate(const char *path, struct trm_comm *comm, int repetitions, double *seconds, uint64_t *bytes);

#endif
