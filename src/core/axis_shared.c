/* Divided arrays where the ranks share memory: each rank has a place there, and puts into it what is for others.
 *
 * A place has two halves that take turns. A half is written, the ranks meet, it is read; until it is written again they
 * have met once more, with the other half, so all have read it. Large arrays go through in pieces, which stay in the
 * caches on their way. Nothing is copied but that: what a rank has for itself is read where it lies, and results are
 * written to where they belong. Sums are added in order of the ranks. */
#include <string.h>

#include "core/axis_private.h"
#include "core/clones.h"
#include "core/log.h"
#include "core/status.h"

enum { ROOM = 1 << 18 }; /* floats of a half */

void trm_axis_share(struct trm_axis *axis, const char *domain)
{
  struct trm_comm *comm = axis->comm, *node = comm->ops->split_node(comm, domain);
  int32_t near = node->size == comm->size && comm->size > 1;
  comm->ops->allreduce(comm, &near, 1, TRM_INT32, TRM_MIN);
  if (near && node->ops->share(node, 2 * ROOM * sizeof(float), "values between ranks", &axis->shared) == TRM_OK) {
    axis->node = node;
    return;
  }
  if (near)
    trm_info("ranks that divide layers send messages: %s", trm_error_text());
  node->ops->release(node);
}

static float *place_of(const struct trm_axis *axis, size_t rank)
{
  return (float *)axis->shared.base[rank] + (size_t)axis->turn * ROOM;
}

static void meet(struct trm_axis *axis)
{
  axis->node->ops->barrier(axis->node);
}

static void turn(struct trm_axis *axis)
{
  axis->turn = 1 - axis->turn;
}

/* to (n) = a + b; to may be a */
CPU_CLONES static void axis_add(float *to, const float *a, const float *b, size_t n)
{
#pragma omp simd
  for (size_t i = 0; i < n; i++)
    to[i] = a[i] + b[i];
}

/* to (n) = the sum of what all ranks have, in their order: mine is this rank's, others have theirs at `at` of their
 * places. */
static void sum_places(const struct trm_axis *axis, float *to, const float *mine, size_t at, size_t n)
{
  const size_t own = (size_t)axis->node->rank;
  const float *before = own == 0 ? mine : place_of(axis, 0) + at;
  for (size_t rank = 1; rank < (size_t)axis->node->size; rank++) {
    axis_add(to, before, rank == own ? mine : place_of(axis, rank) + at, n);
    before = to;
  }
}

static size_t at_most(size_t n, size_t most)
{
  return n < most ? n : most;
}

void axis_shared_sum(struct trm_axis *axis, float *x, size_t n)
{
  const size_t ranks = (size_t)axis->node->size, own = (size_t)axis->node->rank;
  for (size_t at = 0; at < n; at += ROOM) {
    const size_t piece = at_most(n - at, ROOM);
    float *mine = place_of(axis, own), *here = x + at;
    size_t low, high;
    trm_interval(piece, ranks, own, &low, &high);
    memcpy(mine, here, low * sizeof *mine);
    memcpy(mine + high, here + high, (piece - high) * sizeof *mine);
    meet(axis);
    sum_places(axis, mine + low, here + low, low, high - low);
    meet(axis);
    for (size_t rank = 0; rank < ranks; rank++) {
      trm_interval(piece, ranks, rank, &low, &high);
      memcpy(here + low, place_of(axis, rank) + low, (high - low) * sizeof *here);
    }
    turn(axis);
  }
}

/* How much the rank's part has of [at, at + room). */
static size_t some_of(const struct division *d, size_t rank, size_t at, size_t room)
{
  const size_t count = axis_part_count(d, rank);
  return at < count ? at_most(count - at, room) : 0;
}

void axis_shared_gather(struct trm_axis *axis, const struct division *d, const float *part, float *whole)
{
  const size_t own = (size_t)axis->node->rank;
  for (size_t at = 0; at < axis_block_count(d); at += ROOM) {
    const size_t n = some_of(d, own, at, ROOM);
    memcpy(place_of(axis, own), part + at, n * sizeof *part);
    axis_part_place(d, own, at, n, part + at, whole);
    meet(axis);
    for (size_t rank = 0; rank < d->ranks; rank++)
      if (rank != own)
        axis_part_place(d, rank, at, some_of(d, rank, at, ROOM), place_of(axis, rank), whole);
    turn(axis);
  }
}

void axis_shared_scatter_sum(struct trm_axis *axis, const struct division *d, const float *whole, float *part)
{
  const size_t own = (size_t)axis->node->rank, room = ROOM / d->ranks; /* for each rank */
  for (size_t at = 0; at < axis_block_count(d); at += room) {
    for (size_t rank = 0; rank < d->ranks; rank++)
      if (rank != own)
        axis_part_copy(d, rank, at, some_of(d, rank, at, room), whole, place_of(axis, own) + rank * room);
    meet(axis);
    const size_t n = some_of(d, own, at, room);
    for (size_t done = 0, run, offset; done < n; done += run) {
      run = axis_run(d, own, at + done, n - done, &offset);
      sum_places(axis, part + at + done, whole + offset, own * room + done, run);
    }
    turn(axis);
  }
}
