#include "mpi/async/batch_assignment.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"

/* HALT_POINT: 0; then one more than the number (dynamic) or batch (split) before which all stop; 1 (static): at once;
 * less than 0: worker 0 is to decide. */
enum counter { NEXT, HALT_REQUESTS, HALT_POINT, COUNTERS };
enum { TAG_COUNT = 32005, TAG_PARTS };
#define PART_LIMIT ((int64_t)1 << 60) /* above all numbers of parts */

int batch_assignment_create(struct batch_assignment *a, struct trm_comm *comm, struct trm_comm *node, int owner)
{
  a->comm = comm;
  return shared_counters_create(&a->counters, comm, node, owner, COUNTERS);
}

void batch_assignment_free(struct batch_assignment *a)
{
  shared_counters_free(&a->counters);
  trm_free(a->undone);
}

/* One more than the batch before which all workers stop that split batches, so that they end at one clock: none is more
 * than slack ahead of this one, and may have been assigned one batch more. */
static int64_t assignment_halt_clock(const struct batch_assignment *a)
{
  return a->next + a->slack + 3;
}

static struct trm_batch_part assignment_part(const struct batch_assignment *a, int64_t number)
{
  return (struct trm_batch_part){
    .batch = (uint64_t)(number / a->parts), .part = (uint32_t)(number % a->parts), .parts = (uint32_t)a->parts};
}

static void assignment_add_undone(struct batch_assignment *a, struct trm_batch_part part)
{
  a->undone = trm_grow(a->undone, &a->undone_capacity, a->undones, a->undones + 1, sizeof *a->undone,
                       "parts of batches that are not done");
  a->undone[a->undones++] = part;
}

/* Forgets the first `count` undone parts. */
static void assignment_drop_undone(struct batch_assignment *a, size_t count)
{
  a->undones -= count;
  if (count > 0)
    memmove(a->undone, a->undone + count, a->undones * sizeof *a->undone);
}

/* Takes the first of the worker's undone parts, if it is of a batch below `end`. */
static bool assignment_take_undone(struct batch_assignment *a, struct trm_batch_part *part)
{
  if (a->undones == 0 || a->undone[0].batch >= a->end || shared_counters_read(&a->counters, HALT_REQUESTS) > 0)
    return false;
  *part = a->assigned = a->undone[0];
  assignment_drop_undone(a, 1);
  return true;
}

/* The first number that is assigned after the last quiesce point. Dynamic: those of the common undone parts come first,
 * then those of the parts from `untouched` on. */
static int64_t assignment_first(const struct batch_assignment *a)
{
  return (int64_t)a->untouched * a->parts;
}

/* One more than the last number of a part below `end`. */
static int64_t assignment_end(const struct batch_assignment *a)
{
  const int64_t first = assignment_first(a), end = (int64_t)a->end * a->parts;
  size_t below = 0;
  if (end >= first)
    return end + (int64_t)a->common;
  while (below < a->common && a->undone[below].batch < a->end)
    below++;
  return a->rule == ASSIGN_DYNAMIC ? first + (int64_t)below : end;
}

/* The number that the rule would assign from is below. Static and split: the batch before which all stop counts. */
static int64_t assignment_limit(const struct batch_assignment *a, int64_t halt)
{
  const int64_t limit = assignment_end(a);
  return a->rule != ASSIGN_DYNAMIC && halt > 0 && halt - 1 < limit ? halt - 1 : limit;
}

/* Returns the part of a dynamically assigned number. */
static struct trm_batch_part assignment_numbered(const struct batch_assignment *a, int64_t number)
{
  const size_t common = (size_t)(number - assignment_first(a));
  return common < a->common ? a->undone[common] : assignment_part(a, number - (int64_t)a->common);
}

bool batch_assignment_has_next(struct batch_assignment *a)
{
  if (a->rule != ASSIGN_DYNAMIC && a->undones > 0 && a->undone[0].batch < a->end)
    return shared_counters_read(&a->counters, HALT_REQUESTS) == 0;
  const int64_t next = a->rule == ASSIGN_DYNAMIC ? shared_counters_read(&a->counters, NEXT) : a->next;
  return next < assignment_limit(a, shared_counters_read(&a->counters, HALT_POINT));
}

void batch_assignment_return(struct batch_assignment *a)
{
  assignment_add_undone(a, a->assigned);
}

bool batch_assignment_next(struct batch_assignment *a, struct trm_batch_part *part)
{
  if (a->rule != ASSIGN_DYNAMIC && assignment_take_undone(a, part))
    return true;
  int64_t next = a->next, halt = 0;
  if (a->rule == ASSIGN_DYNAMIC) { /* one round trip per part */
    next = call_order_part(a->order, shared_counters_add(&a->counters, NEXT, 1));
  } else {
    halt = shared_counters_read(&a->counters, HALT_POINT);
    if (halt < 0 && a->worker == 0) {
      const int64_t decided = assignment_halt_clock(a);
      shared_counters_add(&a->counters, HALT_POINT, decided - halt);
      halt = decided;
    }
  }
  if (next >= assignment_limit(a, halt))
    return false;
  a->next = next + (a->rule == ASSIGN_STATIC ? a->workers : 1);
  *part = a->assigned = a->rule == ASSIGN_DYNAMIC ? assignment_numbered(a, next) : assignment_part(a, next);
  return true;
}

/* The first caller decides; a dedicated server does not know the clocks, and leaves it to worker 0. */
void batch_assignment_halt(struct batch_assignment *a)
{
  if (shared_counters_add(&a->counters, HALT_REQUESTS, 1) > 0)
    return;
  int64_t point = 1;
  if (a->rule == ASSIGN_DYNAMIC) {
    const int64_t assigned = shared_counters_add(&a->counters, NEXT, PART_LIMIT), all = assignment_end(a);
    point = (assigned < all ? assigned : all) + 1; /* workers that found no part have counted on */
  } else if (a->rule == ASSIGN_SPLIT) {
    point = a->worker < 0 ? -1 : assignment_halt_clock(a);
  }
  shared_counters_add(&a->counters, HALT_POINT, point);
}

/* -- quiesce points */

/* Batches that the parts are, by their sizes. */
static double assignment_batches(const struct trm_batch_part *part, size_t count)
{
  double sum = 0;
  for (size_t i = 0; i < count; i++)
    sum += 1.0 / part[i].parts;
  return sum;
}

/* Batches done, rounded down: those before `untouched` less the undone ones. */
static uint64_t assignment_updates(const struct batch_assignment *a, double undone)
{
  return a->untouched - (uint64_t)ceil(undone - 1e-6);
}

/* Dynamic: leaves the common undone parts that were not assigned to rank 0. Numbers below `assigned` were. Returns one
 * more than the last part that was. */
static int64_t assignment_end_common(struct batch_assignment *a, int64_t assigned)
{
  const size_t taken = (size_t)(assigned - assignment_first(a)), common = a->common;
  a->common = 0;
  assignment_drop_undone(a, a->comm->rank == 0 && taken < common ? taken : common);
  return assigned - (int64_t)common;
}

/* After a stop: keeps the parts that were not assigned of batches that were begun. assigned: one more than the last
 * part that was (dynamic); last_next: the maximum of `next` over the ranks. */
static void assignment_keep_rest(struct batch_assignment *a, int64_t assigned, int64_t last_next)
{
  const bool dynamic = a->rule == ASSIGN_DYNAMIC;
  const int64_t first = assignment_first(a);
  if (!dynamic)
    assigned = last_next - a->workers + 1;
  assigned = assigned > first ? assigned : first;
  a->untouched = (uint64_t)((assigned + a->parts - 1) / a->parts);
  const int64_t end = (int64_t)a->untouched * a->parts;
  if (dynamic)
    for (int64_t part = assigned; part < end && a->comm->rank == 0; part++)
      assignment_add_undone(a, assignment_part(a, part));
  else
    for (; a->leader && a->next < end; a->next += a->workers)
      assignment_add_undone(a, assignment_part(a, a->next));
}

static int assignment_compare(const void *one, const void *other)
{
  const struct trm_batch_part *x = one, *y = other;
  if (x->batch != y->batch)
    return x->batch < y->batch ? -1 : 1;
  const uint64_t a = (uint64_t)x->part * y->parts, b = (uint64_t)y->part * x->parts;
  return a < b ? -1 : a > b;
}

static void assignment_send(struct trm_comm *comm, const void *data, size_t bytes, int tag)
{
  struct trm_request *request;
  comm->ops->send_begin(comm, data, bytes, TRM_BYTE, 0, tag, &request);
  comm->ops->wait(&request);
}

static void assignment_receive(struct trm_comm *comm, void *data, size_t bytes, int from, int tag)
{
  struct trm_request *request;
  comm->ops->receive_begin(comm, data, bytes, TRM_BYTE, from, tag, &request);
  comm->ops->wait(&request);
}

/* Gathers the undone parts of all workers on rank 0, `total` of them. Returns them there, owned by the caller. */
static struct trm_batch_part *assignment_gather(struct batch_assignment *a, size_t total)
{
  struct trm_comm *comm = a->comm;
  uint64_t count = a->undones;
  if (comm->rank > 0) {
    assignment_send(comm, &count, sizeof count, TAG_COUNT);
    if (count > 0)
      assignment_send(comm, a->undone, count * sizeof *a->undone, TAG_PARTS);
    return NULL;
  }
  struct trm_batch_part *all = trm_alloc(total * sizeof *all, "parts of batches that are not done");
  if (count > 0)
    memcpy(all, a->undone, count * sizeof *all);
  size_t n = count;
  for (int rank = 1; rank < comm->size; rank++, n += count) {
    assignment_receive(comm, &count, sizeof count, rank, TAG_COUNT);
    if (count > 0)
      assignment_receive(comm, all + n, count * sizeof *all, rank, TAG_PARTS);
  }
  qsort(all, n, sizeof *all, assignment_compare);
  return all;
}

/* Divides the undone parts, which every rank has, among the workers; dynamic: all take from all. */
static void assignment_divide(struct batch_assignment *a, const struct trm_batch_part *undone, size_t undones)
{
  const bool dynamic = a->rule == ASSIGN_DYNAMIC;
  a->undones = 0;
  for (size_t i = 0; i < undones && (dynamic || a->leader); i++)
    if (dynamic || i % (size_t)a->workers == (size_t)a->worker)
      assignment_add_undone(a, undone[i]);
  a->common = dynamic ? undones : 0;
}

/* The same for parts that rank 0 has, *undone there. Collective. */
static void assignment_divide_from_root(struct batch_assignment *a, const struct trm_batch_part *undone, size_t undones)
{
  struct trm_batch_part *all = trm_alloc(undones * sizeof *all, "parts of batches that are not done");
  if (undone)
    memcpy(all, undone, undones * sizeof *all);
  a->comm->ops->broadcast(a->comm, all, undones * sizeof *all, TRM_BYTE, 0);
  assignment_divide(a, all, undones);
  trm_free(all);
}

/* Sets the counters, and static and split workers, for the batches from `untouched` on. */
static void assignment_reset(struct batch_assignment *a)
{
  const int64_t first = assignment_first(a), workers = a->workers, worker = a->worker;
  const int64_t value[COUNTERS] = {[NEXT] = first};
  a->next = a->rule == ASSIGN_STATIC ? first + ((worker - first) % workers + workers) % workers : first;
  for (size_t i = 0; i < COUNTERS && a->comm->rank == a->counters.owner; i++)
    shared_counters_add(&a->counters, i, value[i] - shared_counters_read(&a->counters, i));
  a->comm->ops->barrier(a->comm);
}

void batch_assignment_quiesce(struct batch_assignment *a, uint64_t *updates, struct trm_batch_part **undone,
                              size_t *undones)
{
  struct trm_comm *comm = a->comm;
  enum { HALTED, POINT, LAST, VALUES };
  comm->ops->barrier(comm);
  int64_t value[VALUES] = {0, 0, a->leader ? a->next : 0};
  if (comm->rank == a->counters.owner) {
    value[HALTED] = shared_counters_read(&a->counters, HALT_REQUESTS);
    value[POINT] = shared_counters_read(&a->counters, HALT_POINT) - 1;
  }
  comm->ops->allreduce(comm, value, VALUES, TRM_INT64, TRM_MAX);
  if (a->rule == ASSIGN_DYNAMIC)
    value[POINT] = assignment_end_common(a, value[HALTED] > 0 ? value[POINT] : assignment_end(a));
  if (a->rule == ASSIGN_SPLIT)
    a->untouched = (uint64_t)value[LAST];
  else if (value[HALTED] > 0)
    assignment_keep_rest(a, value[POINT], value[LAST]);
  else
    a->untouched = a->end > a->untouched ? a->end : a->untouched;
  double sum[] = {(double)a->undones, assignment_batches(a->undone, a->undones)};
  comm->ops->allreduce(comm, sum, 2, TRM_DOUBLE, TRM_SUM);
  *updates = assignment_updates(a, sum[1]);
  *undone = sum[0] > 0 ? assignment_gather(a, (size_t)sum[0]) : NULL;
  *undones = *undone ? (size_t)sum[0] : 0;
  if (sum[0] > 0 && a->rule == ASSIGN_DYNAMIC)
    assignment_divide_from_root(a, *undone, (size_t)sum[0]);
  assignment_reset(a);
}

void batch_assignment_restart(struct batch_assignment *a, uint64_t updates, const struct trm_batch_part *undone,
                              size_t undones)
{
  a->untouched = updates + (uint64_t)ceil(assignment_batches(undone, undones) - 1e-6);
  assignment_divide(a, undone, undones);
  a->comm->ops->barrier(a->comm);
  assignment_reset(a);
}
