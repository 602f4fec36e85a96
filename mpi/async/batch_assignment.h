/* Batch assignment: which worker computes which part of which batch. A worker is a rank, or a group of ranks that share
 * a gradient. A batch is divided into `parts` parts (trm_interval), a gradient each; the parts of all batches in order
 * are numbered through.
 *
 *   ASSIGN_DYNAMIC  the next part that no worker has
 *   ASSIGN_STATIC   worker p of P has the parts p, p + P, ...: a straggler delays its own parts only
 *   ASSIGN_SPLIT    every worker computes its shard of every batch: a batch is a clock of bounded staleness
 *
 * No part is assigned once a rank wants the run to stop. At a quiesce point all batches below `end` are done, except
 * after a stop, and those that failed workers returned: then some parts are undone of batches before others that are
 * done. These are assigned first when the run goes on, in this process or on any number of ranks: dynamically, or
 * divided evenly among the workers. */
#pragma once

#include "mpi/async/call_order.h"
#include "mpi/async/shared_counters.h"
#include "train/strategy.h"

enum assignment_rule { ASSIGN_DYNAMIC, ASSIGN_STATIC, ASSIGN_SPLIT };

struct batch_assignment {
  /* set by the caller before create */
  enum assignment_rule rule;
  int worker, workers; /* worker: -1 if this rank computes nothing */
  int parts;           /* of a batch; split: 1 */
  int slack;           /* split: maximum distance of workers, in clocks */
  struct call_order *order; /* not owned; NULL: neither recorded nor followed */
  bool leader;         /* this rank requests its worker's parts: one rank of each worker does */
  /* set by the caller before next */
  uint64_t end;        /* batches below are assigned; the same on all ranks between two quiesce points */
  /* set by create */
  struct trm_comm *comm; /* not owned */
  struct shared_counters counters;
  int64_t next;        /* static: first part that this worker has not started; split: first batch */
  struct trm_batch_part assigned; /* last */
  uint64_t untouched;  /* first batch of which no part was assigned, as of the last quiesce point */
  /* (undones) Parts of earlier batches, owned: those that this worker will do, ascending; dynamic: the first `common`,
   * ascending, are every rank's, and assigned; then those that this worker has returned. */
  struct trm_batch_part *undone;
  size_t undones, undone_capacity, common;
};

/* Collective over comm; rank `owner` holds the counters. */
int batch_assignment_create(struct batch_assignment *batches, struct trm_comm *comm, struct trm_comm *node, int owner);
void batch_assignment_free(struct batch_assignment *batches); /* collective */

/* Assigns the worker's next part of a batch below `end`; false: none. Called by its leader. */
bool batch_assignment_next(struct batch_assignment *batches, struct trm_batch_part *part);
/* Returns false if the worker will be assigned nothing more before the next quiesce point. */
bool batch_assignment_has_next(struct batch_assignment *batches);
/* The part that was assigned last is not done. */
void batch_assignment_return(struct batch_assignment *batches);
/* Stops the assignment; split: after the clock at which all workers can end together. */
void batch_assignment_halt(struct batch_assignment *batches);

/* Collective over comm, at a quiesce point. Sets *updates to the batches done since the run began, rounded down, and
 * *undone to the parts before `untouched` that are not done, ascending: on rank 0, (*undones), owned by the caller;
 * NULL: none, and on other ranks. */
void batch_assignment_quiesce(struct batch_assignment *batches, uint64_t *updates, struct trm_batch_part **undone,
                              size_t *undones);
/* Collective over comm. The run continues after `updates` batches; undone (undones): as of quiesce, on every rank. */
void batch_assignment_restart(struct batch_assignment *batches, uint64_t updates, const struct trm_batch_part *undone,
                              size_t undones);
