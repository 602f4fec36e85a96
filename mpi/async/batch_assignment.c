#include "mpi/async/batch_assignment.h"

enum counter { NEXT, HALT_REQUESTS, HALT_CLOCK, COUNTERS };
#define BATCH_LIMIT ((int64_t)1 << 60) /* above all batch numbers */

int batch_assignment_create(struct batch_assignment *a, struct trm_comm *comm, struct trm_comm *node, int owner)
{
  a->comm = comm;
  return shared_counters_create(&a->counters, comm, node, owner, COUNTERS);
}

void batch_assignment_free(struct batch_assignment *a)
{
  shared_counters_free(&a->counters);
}

/* One more than the batch before which all workers stop that split batches, so that they end at one clock: none is more
 * than slack ahead of this one, and may have been assigned one batch more. */
static int64_t batch_assignment_halt_clock(const struct batch_assignment *a)
{
  return a->next + a->slack + 3;
}

/* HALT_CLOCK: 0, or one more than the batch before which all stop, or less than 0: worker 0 is to decide. */
bool batch_assignment_next(struct batch_assignment *a, uint64_t end, uint64_t *batch)
{
  int64_t next = a->next, limit = (int64_t)end;
  if (a->rule == ASSIGN_DYNAMIC) { /* one round trip per batch */
    next = shared_counters_add(&a->counters, NEXT, 1);
  } else {
    int64_t halt = shared_counters_read(&a->counters, HALT_CLOCK);
    if (halt < 0 && a->worker == 0) {
      const int64_t decided = batch_assignment_halt_clock(a);
      shared_counters_add(&a->counters, HALT_CLOCK, decided - halt);
      halt = decided;
    }
    limit = halt > 0 && halt - 1 < limit ? halt - 1 : limit;
  }
  if (next >= limit)
    return false;
  a->next = next + (a->rule == ASSIGN_STATIC ? a->workers : 1);
  a->done++;
  *batch = (uint64_t)next;
  return true;
}

/* The first caller decides; a dedicated server does not know the clocks, and leaves it to worker 0. */
void batch_assignment_halt(struct batch_assignment *a)
{
  if (shared_counters_add(&a->counters, HALT_REQUESTS, 1) > 0)
    return;
  if (a->rule == ASSIGN_DYNAMIC)
    shared_counters_add(&a->counters, NEXT, BATCH_LIMIT);
  else if (a->rule == ASSIGN_STATIC)
    shared_counters_add(&a->counters, HALT_CLOCK, 1);
  else
    shared_counters_add(&a->counters, HALT_CLOCK, a->worker < 0 ? -1 : batch_assignment_halt_clock(a));
}

/* Sets the counters for the next batch. */
static void batch_assignment_reset_counters(struct batch_assignment *a, uint64_t updates)
{
  const int64_t value[COUNTERS] = {[NEXT] = (int64_t)updates};
  for (size_t i = 0; i < COUNTERS && a->comm->rank == a->counters.owner; i++)
    shared_counters_add(&a->counters, i, value[i] - shared_counters_read(&a->counters, i));
  a->done = 0;
  a->comm->ops->barrier(a->comm);
}

void batch_assignment_quiesce(struct batch_assignment *a, bool is_leader, uint64_t *updates)
{
  a->comm->ops->barrier(a->comm);
  int64_t done = is_leader ? a->done : 0;
  a->comm->ops->allreduce(a->comm, &done, 1, TRM_INT64, a->rule == ASSIGN_SPLIT ? TRM_MAX : TRM_SUM);
  *updates += (uint64_t)done;
  batch_assignment_reset_counters(a, *updates);
}

void batch_assignment_restart(struct batch_assignment *a, uint64_t updates, bool restored)
{
  if (!restored || a->rule != ASSIGN_STATIC) {
    const int64_t first = (int64_t)updates, workers = a->workers, worker = a->worker;
    a->next = a->rule == ASSIGN_STATIC ? first + ((worker - first) % workers + workers) % workers : first;
  }
  a->comm->ops->barrier(a->comm);
  batch_assignment_reset_counters(a, updates);
}
