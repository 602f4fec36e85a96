/* Synchronous data parallelism: every update is made of the gradients of all ranks, and all ranks see the same weights.
 *
 * The ranks of a node share memory. One array of weights and one of each optimizer state stand there, and a gradient
 * array for each rank:
 *
 *                    slice 0     slice 1     slice 2
 *     gradient of 0  ..........  ..........  ..........
 *     gradient of 1  ..........  ..........  ..........
 *     gradient of 2  ..........  ..........  ..........
 *                    a rank adds a rank adds a rank adds   a column, and runs the optimizer on that slice of
 *     weights        ----------  ----------  ----------    the weights and
 *     states         ----------  ----------  ----------    of the states.
 *
 * Nothing is copied or sent, and weights and states take memory once a node. On one node the slices are small blocks,
 * and whoever has time takes the next: a rank that is early updates the upper layers while others still compute the
 * lower ones, instead of waiting for them (update_together).
 *
 * Between nodes each rank carries slices of its own: it adds its column in place, then allreduces it with the ranks of
 * the other nodes that have the same place. The flat array is cut into buckets, at the ends of layers: a bucket travels
 * while the layers below still compute. Each bucket is cut into slices for itself, so that all ranks always carry.
 *
 * Ranks that do not share memory (parallel.share=none, or another number of ranks on some node) are nodes of one rank.
 */
#include <math.h>

#include "core/status.h"
#include "core/trace.h"
#include "mpi/coll/allreduce_tree.h"
#include "mpi/sync/norms.h"
#include "mpi/sync/sync_private.h"

static bool has_lanes(const struct trm_strategy *strategy)
{
  return strategy->options->run.lanes > 0;
}

/* Barrier of the node, after what this rank has given its device to do. */
static int meet(struct trm_strategy *strategy)
{
  struct trm_comm *node = ((struct sync *)strategy->own)->node;
  TRM_CHECK(strategy->device->ops->sync(strategy->device));
  const double before = node->ops->clock(node);
  node->ops->barrier(node);
  strategy->wait_s += node->ops->clock(node) - before;
  trm_trace_end("meet the node", TRM_TRACE_WAIT, before, TRM_TRACE_NOWHERE);
  return TRM_OK;
}

/* -- adding up */

/* One block, at most, of the sum over the node's gradients. Elements [at, at + n). */
static void sum_block(struct trm_strategy *strategy, float *to, size_t at, size_t n)
{
  struct sync *s = strategy->own;
  for (int i = 0; i < s->node->size; i++)
    s->from[i] = s->g[i] + at;
  strategy->device->ops->sum(strategy->device, to, s->from, s->node->size, n);
}

static size_t block_at(size_t at, size_t high)
{
  return high - at < BLOCK ? high - at : BLOCK;
}

/* Brings the sum over the node into this rank's own gradient array. Nobody else reads that slice of that array. */
static void sum_in_place(struct trm_strategy *strategy, struct interval slice)
{
  struct sync *s = strategy->own;
  if (s->node->size == 1)
    return;
  for (size_t at = slice.low; at < slice.high; at += BLOCK) {
    const size_t n = block_at(at, slice.high);
    sum_block(strategy, s->work, at, n);
    strategy->device->ops->copy(strategy->device, strategy->g + at, s->work, n * sizeof(float));
  }
}

/* A bucket that is complete on the whole node: adds my slice, and begins its way between the nodes. With lanes the
 * order of that sum is fixed, too: (node 0 + node 1) + (node 2 + node 3)... goes on where the order of the node's sum
 * ends. */
static int bucket_begin(struct trm_strategy *strategy, struct bucket *bucket)
{
  struct sync *s = strategy->own;
  const struct interval mine = bucket->mine;
  sum_in_place(strategy, mine);
  if (!has_peers(s))
    return TRM_OK;
  TRM_CHECK(strategy->device->ops->sync(strategy->device));
  const double before = s->cross->ops->clock(s->cross);
  if (has_lanes(strategy))
    trm_allreduce_tree(s->cross, strategy->g + mine.low, mine.high - mine.low, TRM_FLOAT);
  else
    s->cross->ops->allreduce_begin(s->cross, strategy->g + mine.low, mine.high - mine.low, TRM_FLOAT, TRM_SUM,
                                   &bucket->request);
  strategy->comm_s += s->cross->ops->clock(s->cross) - before;
  trm_trace_end("gradient sum, begun", TRM_TRACE_COMMUNICATION, before, TRM_TRACE_NOWHERE);
  return TRM_OK;
}

/* Tells the node that this rank's gradients are complete up to `high`. */
static int mark_complete(struct trm_strategy *strategy, size_t high, const struct trm_tally *tally)
{
  struct sync *s = strategy->own;
  struct mark *mine = &s->board->rank[s->node->rank];
  TRM_CHECK(strategy->device->ops->sync(strategy->device));
  const uint64_t before = s->steps * strategy->elements;
  if (atomic_load_explicit(&mine->complete, memory_order_relaxed) <= before)
    mine->loss = tally->loss; /* once a step: the others may read it from the first mark on */
  atomic_store_explicit(&mine->complete, before + high, memory_order_release);
  return TRM_OK;
}

/* Are the gradients complete up to `high` on all ranks of the node? */
static bool node_complete(const struct trm_strategy *strategy, size_t high)
{
  const struct sync *s = strategy->own;
  const uint64_t wanted = s->steps * strategy->elements + high;
  for (int i = 0; i < s->node->size; i++)
    if (atomic_load_explicit(&s->board->rank[i].complete, memory_order_acquire) < wanted)
      return false;
  return true;
}

/* The lower layers still compute: begin what is complete on the node, in order. */
static int sync_grad_ready(struct trm_strategy *strategy, size_t low, size_t high, const struct trm_tally *tally)
{
  (void)low;
  struct sync *s = strategy->own;
  TRM_CHECK(mark_complete(strategy, high, tally));
  if (!has_peers(s) || has_lanes(strategy))
    return TRM_OK;
  while (s->begun < s->buckets && node_complete(strategy, s->bucket[s->begun].whole.high))
    TRM_CHECK(bucket_begin(strategy, &s->bucket[s->begun++]));
  s->cross->ops->progress(s->cross);
  return TRM_OK;
}

/* -- step */

int sync_tally(struct trm_strategy *strategy, struct trm_comm *all, struct trm_tally *tally)
{
  double sums[] = {tally->loss, tally->correct, tally->rows, tally->stop};
  const size_t count = sizeof sums / sizeof sums[0];
  const double before = all->ops->clock(all);
  if (has_lanes(strategy))
    trm_allreduce_tree(all, sums, count, TRM_DOUBLE);
  else
    all->ops->allreduce(all, sums, count, TRM_DOUBLE, TRM_SUM);
  strategy->comm_s += all->ops->clock(all) - before;
  trm_trace_end("sum of losses", TRM_TRACE_COMMUNICATION, before, TRM_TRACE_NOWHERE);
  *tally = (struct trm_tally){.loss = sums[0], .correct = sums[1], .rows = sums[2], .stop = sums[3]};
  if (!isfinite(tally->loss))
    return trm_error(TRM_FAILED,
                     "step %llu: the loss is %s; the weights are those of the step before (a lower optim.lr, "
                     "optim.clip or optim.warmup may help)",
                     (unsigned long long)strategy->updates + 1, isnan(tally->loss) ? "nan" : "inf");
  return TRM_OK;
}

struct trm_update sync_update(const struct trm_strategy *strategy, double rate, double norm_squared)
{
  struct trm_update update = strategy->optimizer->update;
  update.rate = (float)rate;
  update.scale = strategy->optimizer->clip > 0 ? trm_clip_scale(strategy->optimizer, norm_squared) : 1;
  update.step = strategy->updates + 1;
  return update;
}

/* Squared norm of the whole summed gradient, added unit by unit: the same bits on every rank of any layout. */
static int whole_norm(struct trm_strategy *strategy, double *norm_squared)
{
  struct sync *s = strategy->own;
  for (int b = 0; b < s->buckets; b++) {
    const struct interval mine = s->bucket[b].mine;
    for (size_t at = mine.low; at < mine.high; at += UNIT) {
      const size_t n = mine.high - at < UNIT ? mine.high - at : UNIT;
      s->norm[at / UNIT] =
        trm_optimizer_norm_squared(strategy->optimizer, strategy->device, at, n, strategy->g + at);
    }
  }
  TRM_CHECK(meet(strategy));
  *norm_squared = 0;
  for (size_t i = 0; i < units_of(strategy->elements); i++)
    *norm_squared += s->norm[i];
  sync_norm_whole(strategy, norm_squared);
  return TRM_OK;
}

/* The places of element `at` in the states. */
static void states_at(const struct sync *s, size_t at, float *state[TRM_MAX_STATES - 1])
{
  for (int i = 0; i < TRM_MAX_STATES - 1; i++)
    state[i] = s->state[i].data ? s->state[i].data + at : NULL;
}

static void update(struct trm_strategy *strategy, const struct trm_update *how, const float *g, size_t at, size_t n)
{
  struct sync *s = strategy->own;
  float *state[TRM_MAX_STATES - 1];
  states_at(s, at, state);
  trm_optimizer_apply(strategy->optimizer, strategy->device, how, s->ratio, at, n, strategy->w + at, g, state);
}

/* The ratios of all tensors, from norms that are added unit by unit, too. */
static int whole_ratios(struct trm_strategy *strategy, const struct trm_update *how)
{
  struct sync *s = strategy->own;
  const struct trm_optimizer *optimizer = strategy->optimizer;
  for (int b = 0; b < s->buckets; b++) {
    const size_t at = s->bucket[b].mine.low, n = s->bucket[b].mine.high - at;
    float *w = strategy->w + at, *g = strategy->g + at, *state[TRM_MAX_STATES - 1];
    states_at(s, at, state);
    trm_optimizer_prepare(optimizer, strategy->device, how, at, n, w, g, state);
    trm_optimizer_norms(optimizer, strategy->device, UNIT, at, n, w, g, s->norms);
  }
  TRM_CHECK(meet(strategy));
  sync_ratios(strategy, how, UNIT, s->norms, s->ratio);
  return TRM_OK;
}

/* The losses of the node, when gradients of this step are complete on all its ranks. */
static bool losses_finite(const struct sync *s)
{
  for (int i = 0; i < s->node->size; i++)
    if (!isfinite(s->board->rank[i].loss))
      return false;
  return true;
}

static void await_node(struct trm_strategy *strategy, size_t high)
{
  struct trm_comm *node = ((struct sync *)strategy->own)->node;
  const double before = node->ops->clock(node);
  while (!node_complete(strategy, high))
    node->ops->idle(node, before);
  strategy->wait_s += node->ops->clock(node) - before;
  trm_trace_end("wait for the node", TRM_TRACE_WAIT, before, TRM_TRACE_NOWHERE);
}

/* One node: adds up and updates block after block, while the sum is in the cache, together with the other ranks.
 * Each block is taken by one rank, as soon as all gradients of it are complete; nobody reads its weights any more in
 * this step. Which rank makes no difference to the bits. Ends when all blocks are taken, or when the loss is not
 * finite. */
static void update_together(struct trm_strategy *strategy, const struct trm_update *how)
{
  struct sync *s = strategy->own;
  const uint64_t blocks = (strategy->elements + BLOCK - 1) / BLOCK, first = s->steps * blocks;
  for (;;) {
    uint64_t taken = atomic_load_explicit(&s->board->taken, memory_order_relaxed);
    const uint64_t next = taken > first ? taken : first; /* a step that failed has left blocks */
    if (next == first + blocks)
      return;
    const size_t at = (size_t)(next - first) * BLOCK, n = block_at(at, strategy->elements);
    if (!node_complete(strategy, at + n))
      await_node(strategy, at + n);
    if (!losses_finite(s))
      return;
    if (!atomic_compare_exchange_strong_explicit(&s->board->taken, &taken, next + 1, memory_order_relaxed,
                                                 memory_order_relaxed))
      continue; /* another rank was quicker */
    sum_block(strategy, s->work, at, n);
    update(strategy, how, s->work, at, n);
  }
}

static int sync_step(struct trm_strategy *strategy, double rate, struct trm_tally *tally)
{
  struct sync *s = strategy->own;
  const bool clips = strategy->optimizer->clip > 0;
  /* does anything need the summed gradient before the update? */
  const bool ratios = trm_optimizer_has_ratios(strategy->optimizer);
  const bool sums_first = clips || ratios || has_peers(s) || s->node->size == 1;

  TRM_CHECK(mark_complete(strategy, strategy->elements, tally));
  if (sums_first) {
    TRM_CHECK(meet(strategy)); /* all gradients of the node are complete */
    for (; s->begun < s->buckets; s->begun++)
      TRM_CHECK(bucket_begin(strategy, &s->bucket[s->begun]));
  } else {
    const struct trm_update how = sync_update(strategy, rate, 0);
    const double began = trm_trace_begin();
    update_together(strategy, &how);
    trm_trace_end("sum and update", TRM_TRACE_COMPUTE, began, TRM_TRACE_NOWHERE);
  }
  const int status = sync_tally(strategy, s->all, tally);
  const double before = s->cross->ops->clock(s->cross);
  for (int b = 0; b < s->buckets; b++)
    s->cross->ops->wait(&s->bucket[b].request);
  strategy->comm_s += s->cross->ops->clock(s->cross) - before;
  trm_trace_end("wait for sums", TRM_TRACE_WAIT, before, TRM_TRACE_NOWHERE);
  s->begun = 0;
  s->steps++;
  TRM_CHECK(status); /* on every rank */

  if (sums_first) {
    double norm_squared = 0;
    if (clips)
      TRM_CHECK(whole_norm(strategy, &norm_squared));
    const struct trm_update how = sync_update(strategy, rate, norm_squared);
    if (ratios)
      TRM_CHECK(whole_ratios(strategy, &how));
    const double began = trm_trace_begin();
    for (int b = 0; b < s->buckets; b++) {
      const struct interval mine = s->bucket[b].mine;
      update(strategy, &how, strategy->g + mine.low, mine.low, mine.high - mine.low);
    }
    trm_trace_end("update", TRM_TRACE_COMPUTE, began, TRM_TRACE_NOWHERE);
  }
  strategy->updates++;
  return meet(strategy); /* all slices of the weights are new */
}

/* -- checkpoints: the shared arrays are the views */

static int sync_collect(struct trm_strategy *strategy, const float *view[TRM_MAX_STATES])
{
  const struct sync *s = strategy->own;
  TRM_CHECK(meet(strategy));
  view[0] = s->w.data;
  for (int i = 1; i < TRM_MAX_STATES; i++)
    view[i] = s->state[i - 1].data;
  return TRM_OK;
}

static int sync_restore(struct trm_strategy *strategy, const float *const from[TRM_MAX_STATES], uint64_t updates)
{
  struct sync *s = strategy->own;
  float *to[TRM_MAX_STATES];
  states_at(s, 0, to + 1);
  to[0] = s->w.data;
  TRM_CHECK(meet(strategy)); /* nobody reads them any more */
  for (int i = 0; i < TRM_MAX_STATES; i++)
    if (s->node->rank == 0 && from[i] && to[i])
      strategy->device->ops->upload(strategy->device, to[i], from[i], strategy->elements * sizeof(float));
  strategy->updates = updates;
  return meet(strategy);
}

const struct trm_strategy_ops trm_strategy_sync = {
  .name = "sync",
  .help = "every update is made of the gradients of all ranks",
  .lockstep = true,
  .create = sync_create,
  .grad_ready = sync_grad_ready,
  .step = sync_step,
  .collect = sync_collect,
  .restore = sync_restore,
  .destroy = sync_destroy,
};
