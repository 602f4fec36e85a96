/* Gathers the ranks' local states (struct trm_local_state) for a checkpoint, which rank 0 writes, and restores them. */
#pragma once

#include "train/checkpoint.h"
#include "train/strategy.h"

/* The gathering: rank 0, while it writes, requests the states of one rank after the other. */
struct trm_local_state_gather {
  struct trm_comm *comm;
  const struct trm_local_state *local; /* (locals) this rank's; not owned */
  int locals;
  int ranks;                           /* comm->size, or 0: no rank has local state */
  int next_rank;                       /* rank 0: the ranks below have replied */
  struct trm_local_state received[TRM_MAX_LOCAL_STATES]; /* rank 0: of the latest rank; data in buffer */
  struct trm_local_state_header *header; /* owned; sizes and names of the latest reply */
  char *buffer;                          /* owned, rank 0 */
  size_t buffer_bytes;
};

/* Collective. Returns the bytes that gathering takes on rank 0: the states of another rank; 0 on the others. */
size_t trm_local_state_gather_bytes(struct trm_comm *comm, const struct trm_local_state *local, int locals);
/* To be called at a quiesce point, with no other message in flight on comm.
 * begin: collective; `local` (locals) must not change until end.
 * end: collective; ranks other than 0 reply to rank 0's requests in it. Errors of writing are rank 0's alone. */
void trm_local_state_gather_begin(struct trm_local_state_gather *gather, struct trm_comm *comm,
                                  const struct trm_local_state *local, int locals);
void trm_local_state_gather_end(struct trm_local_state_gather *gather);

/* Rank 0, between begin and end: slot read_local_states of struct trm_checkpoint; its context is the gathering. */
int trm_local_state_gather_next(void *gather, int rank, const struct trm_local_state **states, int *count);

/* Collective over comm. Reads every rank's local states into states[i].data (count). ranks: local_state_ranks of the
 * checkpoint. *restored: the same on all ranks; false, with nothing changed and a line in the log, if the file is of
 * another number of ranks, or names or sizes of a rank differ. Fails if an item of the file is damaged or missing. */
int trm_local_state_restore(struct trm_comm *comm, const struct trm_checkpoint_ops *ops, const char *path, int ranks,
                            const struct trm_local_state *states, int count, bool *restored);
