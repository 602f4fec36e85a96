/* Which worker computes which batch. A worker is a rank, or a group of ranks that work on a batch together.
 *
 *   dynamic  the next batch that nobody has taken: all those taken are a prefix of the run at any settling
 *   static   worker p of P has the batches p, p + P, ...: a slow worker is late with its own
 *   each     every worker has its part of every batch: bounded staleness counts its clocks so
 *
 * No batch is given out once a rank wants the run to stop. */
#ifndef TRM_MPI_ASYNC_CLAIMS_H
#define TRM_MPI_ASYNC_CLAIMS_H

#include "mpi/async/words.h"

enum claims_rule { CLAIMS_DYNAMIC, CLAIMS_STATIC, CLAIMS_EACH };

struct claims {
  struct words words;
  enum claims_rule rule;
  int worker, workers; /* worker: -1 where this rank computes nothing */
  int64_t next;        /* static, each: the first batch that this worker has not done */
  int64_t done;        /* batches of this rank's worker since the last settling */
  int slack;           /* each: clocks by which workers may be apart */
};

/* Collective over comm; the words stand at rank `home`. */
int claims_create(struct claims *claims, struct trm_comm *comm, struct trm_comm *node, int home, enum claims_rule rule,
                  int worker, int workers, int slack);
void claims_free(struct claims *claims); /* collective */

/* The next batch of this worker below `end`; false: none. Called by one rank of a worker. */
bool claims_next(struct claims *claims, uint64_t end, uint64_t *batch);
/* Nobody gets another batch (each: but those that all need to end at the same clock). */
void claims_halt(struct claims *claims);
/* This worker has no batch left, and nothing under way. Once a worker between two settlings. */
void claims_finish(struct claims *claims);
bool claims_all_finished(struct claims *claims);

/* Collective. Between a worker's last batch and the next one's: counts what is done. *updates: in, the batches done at
 * the last settling; out, now. leads: this rank is the one of its worker that claims. */
void claims_settle(struct claims *claims, struct trm_comm *comm, bool leads, uint64_t *updates);
/* Collective. The run goes on at batch `updates`. given: claims->next is that of a checkpoint. */
void claims_restart(struct claims *claims, struct trm_comm *comm, uint64_t updates, bool given);

#endif
