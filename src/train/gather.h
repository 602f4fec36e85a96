/* Gathers the state of a run on rank 0 tensor by tensor, in any layout, and restores each rank's slices. No rank needs
 * memory for more than one whole tensor beside its own arrays. */
#pragma once

#include "train/grid.h"
#include "train/strategy.h"

/* The gathering of a model: rank 0 requests one tensor after the other, the other ranks reply until it ends. */
struct trm_model_gather {
  const struct trm_grid *grid;
  struct trm_strategy *strategy;
  const struct trm_model *full_model, *local_model; /* the whole model; this rank's part */
  const float *view[TRM_MAX_STATES]; /* host, (elements) each, from strategy collect; unused with strategy read */
  float *slice_buffer;               /* owned, data rank 0: the largest slice of any rank; NULL: layers are whole */
  float *tensor_buffer;              /* owned, rank 0: the largest whole tensor; NULL: rank0_has_all */
  bool rank0_has_all;                /* the views of rank 0 are the whole model: nothing is sent */
  bool open;
};

/* Collective over grid->model. Returns the bytes that gathering takes on this rank. */
size_t trm_model_gather_bytes(const struct trm_grid *grid, const struct trm_strategy *strategy,
                              const struct trm_model *full_model, const struct trm_model *local_model);
/* Both are collective over grid->all; between them ranks other than 0 make no collective call. In end these ranks reply
 * to rank 0, which may call end early, when it needs no more tensors, and once more at the end. */
int trm_model_gather_begin(struct trm_model_gather *gather, const struct trm_grid *grid, struct trm_strategy *strategy,
                           const struct trm_model *full_model, const struct trm_model *local_model);
void trm_model_gather_end(struct trm_model_gather *gather);

/* Rank 0, between begin and end: gathers tensor `number` of state 0, the weights, or 1.., the optimizer states;
 * those of a frozen parameter are its weights, as their average is. *values: (count) host, valid until the next call.
 * context: struct trm_model_gather. */
int trm_model_gather_tensor(void *context, int state, int number, const float **values);
/* The same, into memory of the caller: to (count), host. */
void trm_model_gather_copy(struct trm_model_gather *gather, int state, int number, float *to);

/* The restoring of a model: each rank passes the values of its own slices, one parameter after the other. */
struct trm_model_restore {
  struct trm_strategy *strategy;
  float *array[TRM_MAX_STATES]; /* owned; host, (elements); NULL where the strategy has the slot write */
  int states;
};

/* begin: for the weights and `states` - 1 optimizer states, 0 where no values follow; not collective. parameter: sets
 * one of this rank's slices, values (count) host; context: struct trm_model_restore; not collective. end: collective
 * over the data axis; the strategy continues at `updates` with these values. With a failed status, the same on all
 * ranks, it only releases memory and returns status. */
void trm_model_restore_begin(struct trm_model_restore *restore, struct trm_strategy *strategy, int states);
int trm_model_restore_parameter(void *context, int state, const struct trm_parameter *parameter, const float *values);
int trm_model_restore_end(struct trm_model_restore *restore, uint64_t updates, int status);
