/* Training on sparse rows without passes of the model: for strategies that compute a linear model with one score
 * themselves, on the weights as they lie. Such a strategy sets trm_strategy.row_trainer when it is created. */
#ifndef TRM_TRAIN_ROW_TRAINER_H
#define TRM_TRAIN_ROW_TRAINER_H

#include "train/strategy.h"

TRM_BEGIN_DECLS

/* A model that is one layer with one score over sparse rows, under a loss of margins. */
struct trm_linear {
  enum trm_margin loss;
  size_t features, weights, bias; /* first elements of the parameters in the flat arrays; bias SIZE_MAX: none */
  const float *feature_frequency; /* (features) fraction of the rows that have each feature; NULL: optim.l2 is 0 */
};

struct trm_row_trainer {
  /* After create, before restore. *linear outlives the strategy. From here on train replaces forward, gradient and
   * grad_ready. */
  void (*begin)(struct trm_strategy *strategy, const struct trm_linear *linear);
  /* Changes w by this rank's part of a batch, row by row. target (rows): -1, +1. Adds to *sums. */
  int (*train)(struct trm_strategy *strategy, const struct trm_sparse_row *row, const float *target, size_t rows,
               double rate, struct trm_loss_sums *sums);
};

TRM_END_DECLS
#endif
