/* The data set contract: batches of rows by position in the order of an epoch. */
#pragma once

#include "core/comm.h"
#include "core/options.h"
#include "nn/input.h"

TRM_BEGIN_DECLS

struct trm_dataset;

/* A batch in host memory. It owns its arrays, which grow as needed. */
struct trm_host_batch {
  size_t rows;
  float *dense;          /* (B, F) */
  int64_t *starts;       /* (B + 1), CSR, starts[0] = 0 */
  int32_t *columns;      /* (entries) */
  float *values;         /* (entries) */
  int32_t *tokens;       /* (B, T) */
  int32_t *target_class; /* (B) */
  float *target_value;   /* (B, values) */
  bool weighted;         /* the losses have weights: */
  float *row_weight;     /* (B) */
  const float *class_weight; /* (classes), of mean 1; of the data set */
  /* capacities of the arrays, elements */
  size_t dense_capacity, starts_capacity, entries_capacity, tokens_capacity, class_capacity, value_capacity,
    weight_capacity;
};

enum trm_split { TRM_SPLIT_TRAIN, TRM_SPLIT_VALIDATION, TRM_SPLIT_TEST };
/* Returns the split's name in files and messages: "train", "validation", "test". */
const char *trm_split_name(enum trm_split split);

/* Parses options->data.validation: *fraction of the training split that it cuts, 0 < *fraction < 1, or the *file that
 * it names; otherwise 0 and NULL. TRM_USAGE: a number outside of [0, 1). */
int trm_validation_option(const struct trm_options *options, double *fraction, const char **file);

/* The encoding of text as tokens (datasets/tokenizer.h). The class names are the tokens' texts. */
struct trm_encoding {
  char *name;          /* "characters", "bytes", "bpe"; NULL: not known */
  int32_t (*merge)[2]; /* bpe: (merges, 2) pairs of tokens that are merged, in order of application */
  size_t merges;
};
void trm_encoding_free(struct trm_encoding *encoding);

/* The slots of a kind of data set. */
struct trm_dataset_ops {
  const char *name;
  /* Opens one split for training or evaluation. TRM_SPLIT_TRAIN: without the rows that data.validation cuts from it.
   * TRM_SPLIT_VALIDATION: with a fraction in data.validation those rows; otherwise the first of the splits validation,
   * test and train that the file has. Collective over comm: its ranks share memory by its node split as
   * options->parallel.share says, and each reads its part of the rows. Errors name the file. */
  int (*open)(struct trm_dataset **dataset, const char *path, enum trm_split split, const struct trm_options *options,
              struct trm_comm *comm);
  /* Fills the batch with the samples at positions [low, high) of the epoch's order. The order of epoch e is a function
   * of (seed, e, rows, row bytes, data.memory, train.batch) alone, the identity for the test split and with shuffle
   * off; with data.balance of the samples' classes, too. Not collective, no messages. With the identity order, a rank
   * may fetch any positions. With another order, the ranks that share memory read the data together: each fetches its
   * shard of every global batch, even an empty one (low == high at the shard's position); positions do not decrease
   * within an epoch, and epoch e + 1 follows e. A fetch at another position (a resumed run) waits until all these ranks
   * have made it. With `independent` this holds for the first fetch and for one of an earlier epoch alone. Signed
   * targets are not set. Batches of the training split have weights with train.class_weights. */
  int (*fetch)(struct trm_dataset *dataset, uint64_t epoch, size_t low, size_t high, struct trm_host_batch *batch);
  /* Fetches sparse rows as fetch does, without copying entries where possible. row (high - low): valid until the next
   * fetch. Of the batch only rows and targets are set. */
  int (*fetch_rows)(struct trm_dataset *dataset, uint64_t epoch, size_t low, size_t high, struct trm_host_batch *batch,
                    struct trm_sparse_row *row);
  void (*close)(struct trm_dataset *dataset); /* collective */
  /* Sets *has if the file has this split. Errors name the file. Not collective. */
  int (*has_split)(const char *path, enum trm_split split, bool *has);
};

/* An open split, as one rank reads it. */
struct trm_dataset {
  const struct trm_dataset_ops *ops;
  struct trm_input_spec spec;
  size_t rows;            /* samples of the split (after data.limit) */
  bool independent;       /* set by the caller before the first fetch, the same on all ranks: each rank fetches batches
                             of its own, at its own speed, and waits for no other one */
  bool streamed;          /* not all rows are in memory at once: ranks that share memory read them together (fetch) */
  const char *path;
  const char *digest;     /* of the file's contents, NULL: unknown */
  char **class_names;     /* (spec.classes) of classes or values, NULL if the file has none */
  struct trm_encoding encoding; /* of tokens; owned */
  double token_bytes;     /* bytes of text per token, mean over the split; 0: not known */
  void *impl;
};

/* Sets *path to the file that TRM_SPLIT_VALIDATION is opened from, by data.validation and the splits of data.file;
 * NULL: there are no validation rows. Not collective. */
int trm_validation_find(const struct trm_dataset_ops *ops, const struct trm_options *options, const char **path);

/* The data sets of a run. */
struct trm_splits {
  struct trm_dataset *train, *validation, *test; /* the last two: NULL if absent */
};

/* Opens the splits that the options name: of data.file and data.test, and for validation the rows that data.validation
 * cuts, the file that it names, or the split of that name in data.file. TRM_USAGE: samples of two splits differ in
 * shape. Collective over comm. The caller closes the splits, even after a failure. */
int trm_splits_open(struct trm_splits *splits, const struct trm_dataset_ops *ops, const struct trm_options *options,
                    struct trm_comm *comm);
void trm_splits_close(struct trm_splits *splits); /* collective */

void trm_host_batch_free(struct trm_host_batch *batch);

TRM_END_DECLS
