/* The state of a run, tensor by tensor, whatever the layout: each tensor whole on its way out, cut into the ranks'
 * parts on its way in. No rank holds more than one whole tensor beside what it holds anyway. */
#ifndef TRM_TRAIN_GATHER_H
#define TRM_TRAIN_GATHER_H

#include "train/grid.h"
#include "train/strategy.h"

/* On the way out: rank 0 asks for one tensor after the other, the other ranks answer until it ends. */
struct trm_model_gather {
  const struct trm_grid *grid;
  struct trm_strategy *strategy;
  const struct trm_model *full_model, *local_model; /* of all, and of this rank */
  const float *view[TRM_MAX_STATES];    /* of strategy.collect */
  float *slice_buffer, *tensor_buffer;                /* of a rank, where layers are divided; rank 0: whole */
  bool rank0_has_all;                           /* rank 0 has all there is */
  bool open;
};

/* Collective, both; between them other ranks than 0 call nothing else. In end they answer; rank 0 may call it as soon
 * as it needs nothing more, and once more at the end. */
int trm_model_gather_begin(struct trm_model_gather *gather, const struct trm_grid *grid, struct trm_strategy *strategy,
                           const struct trm_model *full_model, const struct trm_model *local_model);
void trm_model_gather_end(struct trm_model_gather *gather);

/* Rank 0, in between: tensor `number` of state 0, the weights, or of the optimizer's. *values: host, valid until the
 * next call. context: the gathering. */
int trm_model_gather_tensor(void *context, int state, int number, const float **values);

/* On the way in: every rank is given the values of its own parts, one after the other. */
struct trm_model_restore {
  struct trm_strategy *strategy;
  float *array[TRM_MAX_STATES]; /* host, (elements), of strategies that take whole arrays */
  int states;
};

/* begin: for the weights and `states` - 1 of the optimizer's states; what is given no values is 0. give: not
 * collective; parameter is the part's, values (count) host; context: the filling. end: collective, the strategy begins
 * at `updates` with what was given; or, after a failure that all ranks know of (status), does not. */
void trm_model_restore_begin(struct trm_model_restore *restore, struct trm_strategy *strategy, int states);
int trm_model_restore_parameter(void *context, int state, const struct trm_parameter *parameter, const float *values);
int trm_model_restore_end(struct trm_model_restore *restore, uint64_t updates, int status);

#endif
