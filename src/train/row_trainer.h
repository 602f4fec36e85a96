/* Training on single sparse rows without model passes: for strategies that compute a linear model with one score
 * themselves, on the shared weights in place. Such a strategy sets trm_strategy.row_trainer in create. */
#pragma once

#include "train/strategy.h"

TRM_BEGIN_DECLS

/* A linear model: one layer with one score over sparse rows, with a margin loss. */
struct trm_linear {
  enum trm_margin loss;
  size_t features, weights, bias; /* weights, bias: their offsets in the flat arrays; bias SIZE_MAX: none */
  const float *feature_frequency; /* (features) fraction of the rows that have each feature; NULL: optim.l2 is 0 */
};

/* The slots of a method that trains a linear model row by row. */
struct trm_row_trainer {
  /* Called after create, before restore. *linear outlives the strategy. From then on train replaces forward pass,
   * backward pass and grad_ready. */
  void (*begin)(struct trm_strategy *strategy, const struct trm_linear *linear);
  /* Updates w with this rank's shard of a batch, row by row. row, target (rows): -1 or +1. Adds to *sums. */
  int (*train)(struct trm_strategy *strategy, const struct trm_sparse_row *row, const float *target, size_t rows,
               double rate, struct trm_loss_sums *sums);
};

TRM_END_DECLS
