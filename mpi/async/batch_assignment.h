/* Batch assignment: which worker computes which batch. A worker is a rank, or a group of ranks that share a batch.
 *
 *   ASSIGN_DYNAMIC  the next batch that no worker has: at a quiesce point the batches done are a prefix of the run
 *   ASSIGN_STATIC   worker p of P has the batches p, p + P, ...: a straggler delays its own batches only
 *   ASSIGN_SPLIT    every worker computes its shard of every batch: a batch is a clock of bounded staleness
 *
 * No batch is assigned once a rank wants the run to stop. */
#pragma once

#include "mpi/async/shared_counters.h"

enum assignment_rule { ASSIGN_DYNAMIC, ASSIGN_STATIC, ASSIGN_SPLIT };

struct batch_assignment {
  /* set by the caller before create */
  enum assignment_rule rule;
  int worker, workers; /* worker: -1 if this rank computes nothing */
  int slack;           /* split: maximum distance of workers, in clocks */
  /* set by create */
  struct trm_comm *comm; /* not owned */
  struct shared_counters counters;
  int64_t next;        /* static, split: first batch that this worker has not started */
  int64_t done;        /* batches of this rank's worker since the last quiesce point */
};

/* Collective over comm; rank `owner` holds the counters. */
int batch_assignment_create(struct batch_assignment *batches, struct trm_comm *comm, struct trm_comm *node, int owner);
void batch_assignment_free(struct batch_assignment *batches); /* collective */

/* Assigns the worker's next batch below `end`; false: none. Called by one rank of a worker. */
bool batch_assignment_next(struct batch_assignment *batches, uint64_t end, uint64_t *batch);
/* Stops the assignment of batches; split: after the clock at which all workers can end together. */
void batch_assignment_halt(struct batch_assignment *batches);

/* Collective over comm, at a quiesce point. *updates: in, the batches done at the last quiesce point; out, now.
 * is_leader: this rank requests its worker's batches. */
void batch_assignment_quiesce(struct batch_assignment *batches, bool is_leader, uint64_t *updates);
/* Collective over comm. The run continues at batch `updates`. restored: batches->next is that of a checkpoint. */
void batch_assignment_restart(struct batch_assignment *batches, uint64_t updates, bool restored);
