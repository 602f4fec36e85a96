/* Which worker computes which batch. A worker is a rank, or a group of ranks that work on a batch together.
 *
 *   dynamic  the next batch that nobody has taken: all those taken are a prefix of the run at any quiesce point
 *   static   worker p of P has the batches p, p + P, ...: a slow worker is late with its own
 *   each     every worker has its part of every batch: bounded staleness counts its clocks so
 *
 * No batch is given out once a rank wants the run to stop. */
#ifndef TRM_MPI_ASYNC_BATCH_ASSIGNMENT_H
#define TRM_MPI_ASYNC_BATCH_ASSIGNMENT_H

#include "mpi/async/shared_counters.h"

enum assignment_rule { ASSIGN_DYNAMIC, ASSIGN_STATIC, ASSIGN_SPLIT };

struct batch_assignment {
  struct shared_counters counters;
  enum assignment_rule rule;
  int worker, workers; /* worker: -1 where this rank computes nothing */
  int64_t next;        /* static, each: the first batch that this worker has not done */
  int64_t done;        /* batches of this rank's worker since the last quiesce point */
  int slack;           /* each: clocks by which workers may be apart */
};

/* Collective over comm; the words stand at rank `home`. */
int batch_assignment_create(struct batch_assignment *batches, struct trm_comm *comm, struct trm_comm *node, int owner,
                            enum assignment_rule rule, int worker, int workers, int slack);
void batch_assignment_free(struct batch_assignment *batches); /* collective */

/* The next batch of this worker below `end`; false: none. Called by one rank of a worker. */
bool batch_assignment_next(struct batch_assignment *batches, uint64_t end, uint64_t *batch);
/* Nobody gets another batch (each: but those that all need to end at the same clock). */
void batch_assignment_halt(struct batch_assignment *batches);
/* This worker has no batch left, and nothing under way. Once a worker between two quiesce points. */
void batch_assignment_finish(struct batch_assignment *batches);
bool batch_assignment_all_finished(struct batch_assignment *batches);

/* Collective. Between a worker's last batch and the next one's: counts what is done. *updates: in, the batches done at
 * the last quiesce point; out, now. leads: this rank is the one of its worker that claims. */
void batch_assignment_quiesce(struct batch_assignment *batches, struct trm_comm *comm, bool is_leader,
                              uint64_t *updates);
/* Collective. The run goes on at batch `updates`. given: claims->next is that of a checkpoint. */
void batch_assignment_restart(struct batch_assignment *batches, struct trm_comm *comm, uint64_t updates, bool restored);

#endif
