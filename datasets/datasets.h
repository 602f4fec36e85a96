/* Public interface of datasets/: HDF5 data sets (generate, import, describe, open) and checkpoints. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "datasets/tokenizer.h" /* texts as tokens */
#include "train/checkpoint.h"
#include "train/dataset.h"

extern const struct trm_dataset_ops trm_dataset_hdf5;
extern const struct trm_checkpoint_ops trm_checkpoint_hdf5;

/* Initializes HDF5. Must be called before MPI_Init: if HDF5 is initialized later, its clean-up runs in MPI_Finalize,
 * where it crashes on files that could not be written. */
void trm_hdf5_init(void);
/* Writes the version of the HDF5 library: "1.10.8". */
void trm_hdf5_version(char text[32]);

/* Request to an importer: one row of the table in datasets/import.c makes or imports one data set. */
struct trm_import_request {
  const char *const *paths; /* (count) input files or folders; libsvm, csv, text: train, then test */
  int count;
  const char *out;          /* the HDF5 file to write; refused if it exists unless overwrite */
  bool overwrite;
  int compress;             /* deflate level 0..9 */
  uint64_t seed;            /* digits, clusters; libsvm, csv: of the random split */
  uint64_t train, test;     /* digits, clusters: samples of each split (0: 60,000, of clusters 128,000; 10,000) */
  uint64_t clusters, classes, features; /* clusters: how many (0: 32, 4, 512) */
  double noise;             /* clusters: standard deviation in every dimension */
  double test_part;         /* fraction of a single source's rows for the test split, [0, 1); negative: the source's
                               default (text 0.1, else 0) */
  const char *split;        /* which rows: "random" (libsvm, csv: NULL), stratified by class; "last" (text: NULL) */
  const char *label;        /* csv: name or 1-based number of the target column (default: the last) */
  const char *separator;    /* csv: one character or "tab"; NULL: comma, semicolon or tab, as in the first record */
  const char *header;       /* csv: "yes", "no"; NULL: yes if a feature of the first record is not a number */
  const char *columns, *drop; /* csv: names or 1-based numbers, separated by commas: those used (NULL: all), not used */
  const char *categorical;  /* csv: the same, of columns whose values are names, numbers too; others are detected */
  const char *categories;   /* csv: "index" (NULL), "onehot" */
  const char *missing;      /* csv: rows with missing values: "error" (NULL), "drop", "mean" */
  bool standardize;         /* csv: to mean 0 and deviation 1 of the train split */
  const char *like;         /* csv: a data set, whose columns, categories, statistics and labels are used */
  const char *target;       /* csv, libsvm: "class" | "value" */
  const char *x, *y;        /* npz: names of the arrays; NULL: "x" and "y", or x_train, y_train, x_test, y_test */
  const char *size;         /* images: "HxW" or "N", to which they are resized; NULL: all have one size */
  size_t channels;          /* images: 1, 3, or 0: those of the first file */
  bool normalize;           /* libsvm: scale each row to unit Euclidean length */
  const char *tokens;       /* text: "characters" (NULL), "bytes", "bpe" */
  size_t vocabulary;        /* bpe: number of tokens to learn from the text; 0: they are read from the next two files */
  const char *merges, *vocabulary_file; /* merges.txt and vocab.json of GPT-2 */
  const char *names;        /* class names, separated by commas; NULL: the source's own */
  struct trm_comm *comm;    /* libsvm, csv: ranks that share the work, each with the same request; NULL: one */
};
struct trm_importer {
  const char *name; /* "mnist" */
  int (*run)(const struct trm_import_request *request);
};
extern const struct trm_importer trm_importer_table[]; /* ends with a row whose name is NULL; digits is in it, too */

/* Prints the description of a data set or a checkpoint. check: reads everything and verifies checksums and digest. */
int trm_data_info(const char *path, bool check, bool json);

/* Prints the first rows of a split: classes and values, of vectors and sparse rows the first 12; of tokens the text, 80
 * tokens for a row. Errors name the file. */
int trm_data_head(const char *path, const char *split, size_t rows);

/* Images of a split as PNG files. */
struct trm_data_pictures {
  size_t count, height, width;
  struct trm_data_picture {
    unsigned char *png; /* (bytes) */
    size_t bytes;
    char *label;        /* class name, or values; printable */
  } *picture;           /* (count) */
};
/* Reads `count` images at equal distances in a split. Needs libpng. The caller frees, also after an error. */
int trm_data_pictures_read(const char *path, const char *split, size_t count, struct trm_data_pictures *pictures);
void trm_data_pictures_free(struct trm_data_pictures *pictures);

/* Reads the digest that a data set was written with; "": it has none. Errors name the file. */
int trm_data_digest(const char *path, char digest[65]);

/* Predictions of a model. All arrays are owned by the caller. */
struct trm_predictions {
  const float *scores;       /* (rows, columns) */
  const int32_t *predicted;  /* (rows) class of each row, or NULL: the targets are values */
  size_t rows, columns;
  char *const *class_names;  /* (classes) of classes or values, or NULL */
  size_t classes;
};

/* Writes an HDF5 file, which replaces `path` atomically. */
int trm_predictions_write(const char *path, const struct trm_predictions *predictions);

/* Measures the time to read x (csr: values) of the train split, sharded over the ranks, into memory that is already
 * allocated, verified as in the loader. Collective over comm. *bytes: sum over the ranks. */
int trm_data_read_rate(const char *path, struct trm_comm *comm, double *seconds, uint64_t *bytes);
