/* A copy of the state of a run in the memory of rank 0, from which a checkpoint is written while training goes on. Its
 * memory is allocated once: the pages of a new block would cost more time than the copy. */
#pragma once

#include "train/gather.h"
#include "train/local_state.h"

struct trm_state_copy {
  const struct trm_model *model;  /* the whole one, not owned */
  int states;
  float *state[TRM_MAX_STATES];   /* (states) of (model->parameters), owned */
  struct trm_rank_states *ranks;  /* (rank_count) local states, owned */
  int rank_count;
};

/* True if a run on so many samples saves before its last step. Not collective. */
bool trm_state_copy_is_used(const struct trm_options *options, size_t rows);
/* Collective. Returns the bytes of a copy; 0 on ranks other than 0. */
size_t trm_state_copy_bytes(struct trm_comm *comm, const struct trm_model *model, const struct trm_strategy *strategy);
/* Collective. Allocates the memory on rank 0; the copy stays empty on the others. */
void trm_state_copy_open(struct trm_state_copy *copy, struct trm_comm *comm, const struct trm_model *model,
                         const struct trm_strategy *strategy);
void trm_state_copy_free(struct trm_state_copy *copy);

/* Touches all pages, so that the first copy takes no longer than later ones. context: struct trm_state_copy. */
int trm_state_copy_touch(void *context);
/* Rank 0: between begin and end of both: copies what they gather, and ends the first. */
int trm_state_copy_take(struct trm_state_copy *copy, struct trm_model_gather *tensors,
                        struct trm_local_state_gather *local_states);
/* Slot read_local_states of struct trm_checkpoint. context: struct trm_state_copy. */
int trm_state_copy_local_states(void *context, int rank, const struct trm_local_state **states, int *count);
