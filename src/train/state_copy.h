/* A copy of the state of a run, from which rank 0 writes a checkpoint while training goes on. Its memory is allocated
 * once: the pages of a new block would cost more time than the copy.
 *
 * With a method whose slot `own` says what each rank has, and if all that have something are in rank 0's node, the copy
 * is in memory that they share, and each rank copies its own elements in a background thread, during the next pass:
 * nobody waits, unless a pass takes less time than a copy. Otherwise rank 0 gathers the state by messages, at once. */
#pragma once

#include "core/background.h"
#include "core/counter.h"
#include "train/gather.h"
#include "train/local_state.h"

struct trm_state_copy {
  const struct trm_model *model, *local_model; /* the whole one, this rank's part; not owned */
  const struct trm_strategy *strategy;         /* not owned */
  int states;
  float *state[TRM_MAX_STATES];   /* (states) of (model->parameters): rank 0's, or shared; NULL elsewhere. Optimizer
                                     states of frozen parameters are not touched, and so take no memory */
  struct trm_rank_states *ranks;  /* (rank_count) rank 0: local states, owned */
  int rank_count;
  bool own;                       /* ranks copy their own elements; equal on all ranks. Else rank 0 gathers them */
  struct trm_comm *node;          /* own: the ranks that do, owned; NULL on the others */
  struct trm_shared shared;       /* node: `copied`, then the state */
  struct trm_counter *copied;     /* (node->size) number of copies that each rank has made */
  int64_t begun;                  /* copies that this rank has begun, in its background thread */
};

/* True if a run on so many samples saves before its last step. Not collective. */
bool trm_state_copy_is_used(const struct trm_options *options, size_t rows);
/* Of both, models: the whole one, and this rank's part. Collective. Returns the bytes of a copy; 0 on ranks other than
 * 0. */
size_t trm_state_copy_bytes(struct trm_comm *comm, const struct trm_model *model, const struct trm_model *local_model,
                            const struct trm_strategy *strategy);
/* Collective over comm. Allocates the memory; without enough memory to share, the state is gathered. host_memory: on
 * every rank the strategy computes in the host's. */
void trm_state_copy_open(struct trm_state_copy *copy, struct trm_comm *comm, const struct trm_model *model,
                         const struct trm_model *local_model, const struct trm_strategy *strategy, bool host_memory);
void trm_state_copy_free(struct trm_state_copy *copy); /* collective */

/* Touches the pages that this rank will write, so that the first copy takes no longer than later ones. Of a background
 * thread. context: struct trm_state_copy. */
int trm_state_copy_touch(void *context);
/* Rank 0: copies the local states that are gathered, and (without copy->own) the tensors, between begin and end of both.
 * Ends the gathering of tensors. */
int trm_state_copy_take(struct trm_state_copy *copy, struct trm_model_gather *tensors,
                        struct trm_local_state_gather *local_states);

/* Copies by the owners, where copy->node is set. None of the three is collective. begin_own: has this rank's elements
 * copied in its background thread. await_own: returns when that is done: before the rank's first call of grad_ready or
 * step. await_all: for rank 0's thread: returns when all ranks have copied. */
void trm_state_copy_begin_own(struct trm_state_copy *copy, struct trm_background *background);
void trm_state_copy_await_own(struct trm_state_copy *copy);
void trm_state_copy_await_all(const struct trm_state_copy *copy);

/* Slot read_local_states of struct trm_checkpoint. context: struct trm_state_copy. */
int trm_state_copy_local_states(void *context, int rank, const struct trm_local_state **states, int *count);
