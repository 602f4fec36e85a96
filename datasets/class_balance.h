/* Training samples by class: weights of their losses, and draws that favor no class (private to datasets/). All of it
 * is a function of the classes of the split, the options, and (seed, epoch, position): never of ranks. */
#pragma once

#include "core/options.h"
#include "train/dataset.h"

struct loader;

struct class_balance {
  /* train.class_weights: in training, the loss of a batch is sum(l) / sum(w) over its rows, l being a row's loss with
   * the classes' weights, w the weight of its class, as in PyTorch. So a row has the weight (rows of the batch) /
   * sum(w) in the batch's mean. */
  float *weight; /* (classes), of mean 1; NULL: losses have no weights */
  size_t batch;  /* rows of a global batch */
  struct {
    bool known;
    uint64_t epoch, number;
    double factor; /* rows / sum(w) */
  } latest;        /* the batch that was weighed last */
  /* data.balance: the row at a position of an epoch is drawn with replacement: its class, then the row in it, both
   * uniformly, by block (seed, BALANCE, epoch, position) */
  uint32_t *row;  /* (rows) the data set's rows, class by class; NULL: they are not drawn */
  size_t *first;  /* (drawn + 1) first of each class that has rows, in `row` */
  size_t drawn;
};

/* Sets loader->balance by the options, for the training split. TRM_USAGE: targets that are no classes, a list of
 * weights that does not suit them, samples that are not all in memory. */
int class_balance_open(struct loader *loader, enum trm_split split, const struct trm_options *options);
void class_balance_free(struct class_balance *balance);

/* Returns the row at a position of an epoch; with data.balance. */
uint64_t class_balance_row(const struct loader *loader, uint64_t epoch, uint64_t position);
/* Sets the weights of the batch's rows, at positions [low, high) of the epoch; with train.class_weights. */
void class_balance_weigh(struct loader *loader, uint64_t epoch, uint64_t low, uint64_t high,
                         struct trm_host_batch *batch);
