/* Synchronous data parallelism: every update uses the gradients of all ranks, and all ranks see the same weights.
 *
 * The ranks of a node share one array of weights, one of each optimizer state, and a gradient array per rank:
 *
 *                    slice 0     slice 1     slice 2
 *     gradient of 0  ..........  ..........  ..........
 *     gradient of 1  ..........  ..........  ..........
 *     gradient of 2  ..........  ..........  ..........
 *                    a rank sums a rank sums a rank sums   one column, and runs the optimizer on that slice of
 *     weights        ----------  ----------  ----------    the weights and
 *     states         ----------  ----------  ----------    of the states.
 *
 * Nothing is copied or sent, and weights and states take memory once per node. On one node the slices are small blocks,
 * taken by the ranks as they become free: a leading rank updates the upper layers while others still compute the lower
 * ones (sync_node_update).
 *
 * Between nodes the flat array is cut into buckets, in the order in which the backward pass completes it, and each
 * bucket into slices, as many as the largest node has ranks. In each node a slice has one owner, which sums its column
 * and adds it to those of the slice's owners in the other nodes; a rank of a smaller node owns several slices, which
 * follow one another. So all ranks send all the time, and each number crosses the network once per node. One step:
 *
 *   backward     u u u u u | l l l l l | . . .       layers: u, l, ...: part_ready, grad_ready
 *   losses       ->~~>                               summed first: with the first interval that all ranks have
 *   bucket 0         ->~~~~~~~>#                     -> the column summed, begun; ~ on the wire; # updated
 *   bucket 1              ->~~~~~~~~~~>#
 *   bucket 2                       ->~~~~~~~~~~>#    the last ones in slot step
 *
 *   sync_part_ready, sync_grad_ready   publish what is final on this rank, then sync_advance:
 *     sync_between_nodes_advance       the sum of the losses begins when all ranks of the node have published theirs;
 *                                      buckets begin in order, each when it is final on all ranks of the node; what has
 *                                      arrived is noted
 *     sync_update_bucket               buckets that have arrived are updated, in order
 *   sync_step                          the same until all buckets have begun; the sum of the losses; then waits for
 *                                      bucket b and updates it while b + 1, ... are on the wire; a barrier of the node
 *
 * When a bucket may be updated: the sum of the losses over all ranks is known and finite, so that a step that fails has
 * changed nothing anywhere; and all ranks of the node have called grad_ready for the bucket (SYNC_RELEASED): the
 * backward pass of its layers is over, and no rank reads these weights again before the barrier that ends the step. A
 * gradient that is final earlier, while the layer still computes the gradient of its input from the weights
 * (part_ready: SYNC_FINAL), can be sent but not used. The first grad_ready of a rank comes after its copy of the state
 * (slot own), so no copy sees an updated value. With clipping or trust ratios the updates need norms of the whole
 * gradient: norms of a bucket are computed where it would be updated, and all updates come at the end. Where each node
 * clips its own gradient (sync_clip.c), buckets are summed inside the node as above, and all begin after the last one.
 *
 * Ranks that do not share memory (parallel.share=none) are nodes of one rank; so are, with run.lanes, those of nodes
 * with unequal numbers of ranks, whose sums are no subtrees of the lanes' tree. */
#include <math.h>

#include "core/memory.h"
#include "core/status.h"
#include "core/trace.h"
#include "mpi/sync/sync_private.h"

/* Begins, notes and updates what can be now. Does not wait. */
static int sync_advance(struct trm_strategy *strategy)
{
  struct sync *s = strategy->impl;
  TRM_CHECK(sync_between_nodes_advance(strategy));
  const bool finite = s->losses_known && isfinite(s->losses[0].sums.loss) && strategy->rate > 0;
  while (finite && s->updated < s->arrived && sync_node_has(strategy, SYNC_RELEASED, s->bucket[s->updated].full.high))
    sync_update_bucket(strategy, &s->bucket[s->updated++]);
  return TRM_OK;
}

static int sync_ready(struct trm_strategy *strategy, enum sync_progress progress, size_t high,
                      const struct trm_loss_sums *sums)
{
  const struct sync *s = strategy->impl;
  if (strategy->now)
    return TRM_OK;
  TRM_CHECK(sync_node_publish(strategy, progress, high, sums));
  if (!sync_has_other_nodes(s))
    return TRM_OK;
  const double before = s->node->ops->clock(s->node) - strategy->comm_s;
  TRM_CHECK(sync_advance(strategy));
  strategy->early_s += s->node->ops->clock(s->node) - strategy->comm_s - before;
  return TRM_OK;
}

/* A failure of the device is also that of grad_ready, which follows. */
static void sync_part_ready(struct trm_strategy *strategy, size_t high, const struct trm_loss_sums *sums)
{
  (void)sync_ready(strategy, SYNC_FINAL, high, sums);
}

static int sync_grad_ready(struct trm_strategy *strategy, size_t low, size_t high, const struct trm_loss_sums *sums)
{
  (void)low;
  return sync_ready(strategy, SYNC_RELEASED, high, sums);
}

/* -- step */

/* Makes the sums of all buckets, and updates buckets or computes their norms as they arrive. Not finite: neither, and
 * the sums on the wire are awaited all the same. */
static int sync_finish_buckets(struct trm_strategy *strategy, struct trm_loss_sums *sums)
{
  struct sync *s = strategy->impl;
  while (s->summed < s->buckets) {
    sync_node_await(strategy, SYNC_FINAL, s->bucket[s->summed].full.high);
    TRM_CHECK(sync_advance(strategy));
  }
  if (strategy->node_clip > 0) {
    TRM_CHECK(sync_clip_node(strategy));
    TRM_CHECK(sync_advance(strategy));
  }
  const int status = sync_between_nodes_losses(strategy, sums);
  sync_node_await(strategy, SYNC_RELEASED, strategy->elements);
  while (s->updated < s->buckets) {
    if (s->arrived == s->updated)
      sync_between_nodes_await_bucket(strategy);
    if (status == TRM_OK)
      sync_update_bucket(strategy, &s->bucket[s->updated]);
    s->updated++;
  }
  return status;
}

static int sync_step(struct trm_strategy *strategy, double rate, struct trm_loss_sums *sums)
{
  struct sync *s = strategy->impl;
  const bool whole = sync_update_is_whole(strategy);
  int status;
  if (strategy->now)
    return sync_alone_step(strategy, sums);
  strategy->rate = rate;
  TRM_CHECK(sync_node_publish(strategy, SYNC_RELEASED, strategy->elements, sums));
  if (whole || sync_has_other_nodes(s)) {
    status = sync_finish_buckets(strategy, sums);
  } else {
    const struct trm_update update = sync_make_update(strategy, rate, 0);
    const double began = trm_trace_begin("sum and update");
    sync_node_update(strategy, &update);
    trm_trace_end("sum and update", TRM_TRACE_COMPUTE, began, TRM_TRACE_NO_IDS);
    sync_node_await(strategy, SYNC_FINAL, strategy->elements);
    sync_node_sum_losses(s, sums);
    status = sync_check_losses(strategy, sums);
  }
  s->summed = s->begun = s->arrived = s->updated = 0;
  s->losses_begun = s->losses_known = s->clipped = false;
  if (status == TRM_OK && whole)
    TRM_CHECK(sync_update_whole(strategy));
  strategy->rate = 0;
  s->steps++;
  strategy->wire.steps++;
  strategy->updates += status == TRM_OK;
  TRM_CHECK(sync_node_barrier(strategy)); /* all have read the losses of the node, and made their updates */
  return status;
}

/* -- checkpoints: the shared arrays are the views */

/* Returns the values of an array in host memory: itself, or the copy i. */
static const float *sync_host_view(const struct trm_strategy *strategy, int i, const float *array)
{
  struct sync *s = strategy->impl;
  const size_t bytes = strategy->elements * sizeof *array;
  if (strategy->device->host_memory || !array)
    return array;
  if (!s->view[i])
    s->view[i] = trm_alloc(bytes, "a checkpoint's arrays");
  strategy->device->ops->download(strategy->device, s->view[i], array, bytes);
  return s->view[i];
}

static int sync_collect(struct trm_strategy *strategy, const float *view[TRM_MAX_STATES])
{
  const struct sync *s = strategy->impl;
  TRM_CHECK(sync_node_barrier(strategy));
  for (int i = 0; i < TRM_MAX_STATES; i++)
    view[i] = sync_host_view(strategy, i, i ? s->state[i - 1].data : s->w.data);
  return TRM_OK;
}

/* The ranks of the first node divide the arrays, which they share. */
static bool sync_own(const struct trm_strategy *strategy, int state, size_t from, struct trm_own_elements *next)
{
  const struct sync *s = strategy->impl;
  const float *array = state ? s->state[state - 1].data : s->w.data;
  trm_interval(strategy->elements, (size_t)s->node->size, (size_t)s->node->rank, &next->low, &next->high);
  next->low = from > next->low ? from : next->low;
  if (s->cross[0]->rank != 0 || next->low >= next->high)
    return false;
  next->values = array + next->low;
  return true;
}

static int sync_restore(struct trm_strategy *strategy, const float *const from[TRM_MAX_STATES], uint64_t updates)
{
  struct sync *s = strategy->impl;
  float *to[TRM_MAX_STATES];
  sync_states_at(s, 0, to + 1);
  to[0] = s->w.data;
  TRM_CHECK(sync_node_barrier(strategy)); /* all ranks have read them */
  for (int i = 0; i < TRM_MAX_STATES; i++)
    if (s->node->rank == 0 && from[i] && to[i])
      strategy->device->ops->upload(strategy->device, to[i], from[i], strategy->elements * sizeof(float));
  if (s->node->rank == 0 && strategy->rounded)
    strategy->device->ops->convert(strategy->device, &(struct trm_convert){
      .from = strategy->w, .to = strategy->rounded, .n = strategy->elements, .type_from = TRM_VALUES_F32,
      .type_to = TRM_VALUES_BF16});
  strategy->updates = updates;
  return sync_node_barrier(strategy);
}

const struct trm_strategy_ops trm_strategy_sync = {
  .name = "sync",
  .help = "every update uses the gradients of all ranks",
  .on_device = true,
  .lockstep = true,
  .select = sync_select,
  .create = sync_create,
  .part_ready = sync_part_ready,
  .grad_ready = sync_grad_ready,
  .step = sync_step,
  .collect = sync_collect,
  .restore = sync_restore,
  .own = sync_own,
  .destroy = sync_destroy,
};
