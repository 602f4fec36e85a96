/* Local states of the ranks (struct trm_local_state): gathered into a checkpoint, which one rank writes, and back. */
#ifndef TRM_TRAIN_LOCAL_STATE_H
#define TRM_TRAIN_LOCAL_STATE_H

#include "train/checkpoint.h"
#include "train/strategy.h"

/* Rank 0 asks one rank after the other, while it writes, and holds what one of them keeps at a time. */
struct trm_local_state_gather {
  struct trm_comm *comm;
  const struct trm_local_state *local; /* (owns) this rank's */
  int locals;
  int ranks;                  /* whose state there is to write: all, or 0 where no rank keeps any */
  int next_rank;                  /* rank 0: those below have been asked */
  struct trm_local_state received[TRM_MAX_LOCAL_STATES]; /* rank 0: of the rank asked last */
  struct trm_local_state_header *header;         /* rank 0: its names */
  char *buffer;
  size_t buffer_bytes;
};

/* All three between quiesce points, when nothing else is under way in comm.
 * begin: collective; every rank passes what it keeps, which must rest until end. TRM_USAGE on every rank if a name is
 * too long to be told. end: collective; the ranks other than 0 are in it while rank 0 writes. Errors of writing are
 * rank 0's alone. */
int trm_local_state_gather_begin(struct trm_local_state_gather *gather, struct trm_comm *comm,
                                 const struct trm_local_state *local, int locals);
void trm_local_state_gather_end(struct trm_local_state_gather *gather);

/* Rank 0, in between: the slot `kept_of` of a checkpoint whose kept_from is the gathering. */
int trm_local_state_gather_next(void *gather, int rank, const struct trm_local_state **states, int *count);

/* Collective: gives every rank what it kept, into kept[i].data. ranks: checkpoint->kept_ranks. *given: the same on all
 * ranks; false, and nothing is touched, where the file has that of another number of ranks, or a rank's names or sizes
 * are not those of the file; a line says so. Errors: what the file should have is damaged or missing. */
int trm_local_state_restore(struct trm_comm *comm, const struct trm_checkpoint_ops *ops, const char *path, int ranks,
                            const struct trm_local_state *states, int count, bool *restored);

#endif
