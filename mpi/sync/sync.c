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
 * ones (sync_update_node).
 *
 * Between nodes each rank has its own slices: it sums its column in place, then all-reduces it with the ranks of the
 * other nodes that have the same slice. The flat array is cut into buckets at the ends of layers: a bucket's all-reduce
 * runs while the layers below still compute. Each bucket is cut into slices, so that all ranks send all the time.
 *
 * Ranks that do not share memory (parallel.share=none, or nodes of unequal numbers of ranks) are nodes of one rank. */
#include <math.h>

#include "core/memory.h"
#include "core/status.h"
#include "core/trace.h"
#include "mpi/sync/sync_private.h"

/* Barrier of the node, after this rank's device has finished. */
static int sync_node_barrier(struct trm_strategy *strategy)
{
  struct trm_comm *node = ((struct sync *)strategy->impl)->node;
  TRM_CHECK(strategy->device->ops->sync(strategy->device));
  const double before = node->ops->clock(node);
  node->ops->barrier(node);
  sync_end_timing(node, before, &strategy->wait_s, "node barrier", TRM_TRACE_WAIT);
  return TRM_OK;
}

/* -- sums */

/* to (n) = the sum of the elements [at, at + n) of the node's gradients, several arrays. n: at most a block. */
static void sync_sum_block(struct trm_strategy *strategy, float *to, size_t at, size_t n)
{
  struct sync *s = strategy->impl;
  for (int i = 0; i < s->node->size; i++)
    s->addends[i] = (const float *)s->gradients.shared.base[i] + at;
  strategy->device->ops->sum(strategy->device, &(struct trm_sum){
    .to = to, .from = s->addends, .count = s->node->size, .n = n});
}

static size_t sync_block_size(const struct sync *s, size_t at, size_t high)
{
  return high - at < s->block ? high - at : s->block;
}

/* Sums the gradients of the node into this rank's slice of its own gradient array, which no other rank reads. */
static void sync_sum_slice(struct trm_strategy *strategy, struct interval slice)
{
  struct sync *s = strategy->impl;
  if (s->node->size == 1)
    return;
  for (size_t at = slice.low; at < slice.high; at += s->block) {
    const size_t n = sync_block_size(s, at, slice.high);
    sync_sum_block(strategy, s->block_sum, at, n);
    strategy->device->ops->copy(strategy->device, strategy->g + at, s->block_sum, n * sizeof(float));
  }
}

/* Sums this rank's slice of a bucket that is complete on the whole node, and begins its all-reduce between the nodes.
 * With lanes the order of that sum is fixed, too: (node 0 + node 1) + (node 2 + node 3)..., which continues the tree of
 * the node's sum. */
static int sync_bucket_begin(struct trm_strategy *strategy, struct bucket *bucket)
{
  struct sync *s = strategy->impl;
  const struct interval slice = bucket->slice;
  sync_sum_slice(strategy, slice);
  if (!sync_has_other_nodes(s))
    return TRM_OK;
  TRM_CHECK(strategy->device->ops->sync(strategy->device));
  const double before = s->cross->ops->clock(s->cross);
  if (strategy->lanes > 0)
    s->cross->ops->allreduce(s->cross, strategy->g + slice.low, slice.high - slice.low, TRM_FLOAT, TRM_TREE_SUM);
  else
    s->cross->ops->allreduce_begin(s->cross, strategy->g + slice.low, slice.high - slice.low, TRM_FLOAT, TRM_SUM,
                                   &bucket->request);
  sync_end_timing(s->cross, before, &strategy->comm_s, "gradient all-reduce, begun", TRM_TRACE_COMMUNICATION);
  return TRM_OK;
}

/* Publishes to the node that this rank's gradients are complete up to element `high`. */
static int sync_publish_progress(struct trm_strategy *strategy, size_t high, const struct trm_loss_sums *sums)
{
  struct sync *s = strategy->impl;
  struct progress_flag *flag = &s->node_shared->progress[s->node->rank];
  TRM_CHECK(strategy->device->ops->sync(strategy->device));
  const int64_t before = (int64_t)(s->steps * strategy->elements);
  if (trm_counter_get(&flag->gradients_complete) <= before)
    flag->sums = *sums; /* once per step: others may read it after the first change below */
  trm_counter_set(s->node, &flag->gradients_complete, before + (int64_t)high);
  return TRM_OK;
}

/* True if the gradients are complete up to element `high` on all ranks of the node. */
static bool sync_node_complete(const struct trm_strategy *strategy, size_t high)
{
  const struct sync *s = strategy->impl;
  const int64_t required = (int64_t)(s->steps * strategy->elements + high);
  for (int i = 0; i < s->node->size; i++)
    if (trm_counter_get(&s->node_shared->progress[i].gradients_complete) < required)
      return false;
  return true;
}

/* Publishes the interval, and begins the all-reduce of buckets that are complete on the node, in order. */
static int sync_grad_ready(struct trm_strategy *strategy, size_t low, size_t high, const struct trm_loss_sums *sums)
{
  (void)low;
  struct sync *s = strategy->impl;
  if (strategy->now)
    return TRM_OK;
  TRM_CHECK(sync_publish_progress(strategy, high, sums));
  if (!sync_has_other_nodes(s) || strategy->lanes > 0)
    return TRM_OK;
  while (s->buckets_begun < s->buckets && sync_node_complete(strategy, s->bucket[s->buckets_begun].full.high))
    TRM_CHECK(sync_bucket_begin(strategy, &s->bucket[s->buckets_begun++]));
  s->cross->ops->progress(s->cross);
  return TRM_OK;
}

/* -- step */

int sync_sum_losses(struct trm_strategy *strategy, struct trm_comm *all, struct trm_loss_sums *sums)
{
  const double before = all->ops->clock(all);
  all->ops->allreduce(all, sums, TRM_LOSS_SUMS, TRM_DOUBLE, strategy->lanes > 0 ? TRM_TREE_SUM : TRM_SUM);
  sync_end_timing(all, before, &strategy->comm_s, "sum of losses", TRM_TRACE_COMMUNICATION);
  if (!isfinite(sums->loss))
    return trm_error(TRM_FAILED,
                     "step %llu: the loss is %s; the weights are those of the step before (a lower optim.lr, "
                     "optim.clip or optim.warmup may help)",
                     (unsigned long long)strategy->updates + 1, isnan(sums->loss) ? "nan" : "inf");
  return TRM_OK;
}

struct trm_update sync_make_update(const struct trm_strategy *strategy, double rate, double norm_squared)
{
  struct trm_update update = strategy->optimizer->update;
  update.rate = (float)rate;
  update.scale = strategy->optimizer->clip > 0 ? trm_clip_scale(strategy->optimizer, norm_squared) : 1;
  update.step = strategy->updates + 1;
  return update;
}

/* Computes the squared norm of the whole summed gradient, unit by unit: the same bits on every rank of any layout. */
static int sync_gradient_norm(struct trm_strategy *strategy, double *norm_squared)
{
  struct sync *s = strategy->impl;
  for (int b = 0; b < s->buckets; b++) {
    const struct interval slice = s->bucket[b].slice;
    for (size_t at = slice.low; at < slice.high; at += SYNC_UNIT) {
      const size_t n = slice.high - at < SYNC_UNIT ? slice.high - at : SYNC_UNIT;
      s->unit_norms[at / SYNC_UNIT] =
        trm_optimizer_norm_squared(strategy->optimizer, strategy->device, at, n, strategy->g + at);
    }
  }
  TRM_CHECK(sync_node_barrier(strategy));
  *norm_squared = 0;
  for (size_t i = 0; i < sync_units(strategy->elements); i++)
    *norm_squared += s->unit_norms[i];
  sync_reduce_model_norm(strategy, norm_squared);
  return TRM_OK;
}

void sync_states_at(const struct sync *s, size_t at, float *state[TRM_MAX_STATES - 1])
{
  for (int i = 0; i < TRM_MAX_STATES - 1; i++)
    state[i] = s->state[i].data ? s->state[i].data + at : NULL;
}

static void sync_apply_update(struct trm_strategy *strategy, const struct trm_update *update, const float *g, size_t at,
                              size_t n)
{
  struct sync *s = strategy->impl;
  float *state[TRM_MAX_STATES - 1];
  sync_states_at(s, at, state);
  trm_bf16 *rounded = strategy->rounded ? strategy->rounded + at : NULL;
  const struct trm_update_interval to = {at, n, strategy->w + at, state, rounded};
  trm_optimizer_apply(strategy->optimizer, strategy->device, update, s->ratios, &to, g);
}

/* Computes the trust ratios of all tensors, from norms that are added unit by unit, too. */
static int sync_tensor_ratios(struct trm_strategy *strategy, const struct trm_update *update)
{
  struct sync *s = strategy->impl;
  const struct trm_optimizer *optimizer = strategy->optimizer;
  for (int b = 0; b < s->buckets; b++) {
    const size_t at = s->bucket[b].slice.low, n = s->bucket[b].slice.high - at;
    float *g = strategy->g + at, *state[TRM_MAX_STATES - 1];
    sync_states_at(s, at, state);
    const struct trm_update_interval to = {at, n, strategy->w + at, state, NULL};
    trm_optimizer_prepare(optimizer, strategy->device, update, &to, g);
    trm_optimizer_partial_norms(optimizer, strategy->device, SYNC_UNIT, &to, g, s->tensor_norms);
  }
  TRM_CHECK(sync_node_barrier(strategy));
  sync_ratios(strategy, update, SYNC_UNIT, s->tensor_norms, s->ratios);
  return TRM_OK;
}

/* True if the losses of all ranks of the node are finite. Needs sync_node_complete for this step. */
static bool sync_losses_finite(const struct sync *s)
{
  for (int i = 0; i < s->node->size; i++)
    if (!isfinite(s->node_shared->progress[i].sums.loss))
      return false;
  return true;
}

/* Arguments of sync_node_complete, for wait_until. */
struct sync_condition {
  const struct trm_strategy *strategy;
  size_t high;
};

static bool sync_is_complete(void *context)
{
  const struct sync_condition *condition = context;
  return sync_node_complete(condition->strategy, condition->high);
}

static void sync_await_node(struct trm_strategy *strategy, size_t high)
{
  struct trm_comm *node = ((struct sync *)strategy->impl)->node;
  struct sync_condition condition = {strategy, high};
  const double before = node->ops->clock(node);
  node->ops->wait_until(node, sync_is_complete, &condition);
  sync_end_timing(node, before, &strategy->wait_s, "wait for the node", TRM_TRACE_WAIT);
}

static void sync_add_losses(struct trm_loss_sums *to, const struct trm_loss_sums *from)
{
  double *const value = (double *)to;
  for (int i = 0; i < TRM_LOSS_SUMS; i++)
    value[i] += ((const double *)from)[i];
}

/* Sums the losses of the node's ranks in a binary tree: subtree[k] has the sum of 2^k ranks whose right neighbors are
 * to come. */
static void sync_sum_node_losses(const struct sync *s, struct trm_loss_sums *sums)
{
  struct trm_loss_sums subtree[32];
  const unsigned ranks = (unsigned)s->node->size;
  int level;
  for (unsigned i = 0; i < ranks; i++) {
    *sums = s->node_shared->progress[i].sums;
    for (level = 0; i >> level & 1; level++)
      sync_add_losses(sums, &subtree[level]);
    subtree[level] = *sums;
  }
  for (*sums = (struct trm_loss_sums){0}, level = 0; level < 32; level++)
    if (ranks >> level & 1)
      sync_add_losses(sums, &subtree[level]);
}

/* Sums the losses of all ranks: within a node in its shared memory, then between nodes. Collective. */
static int sync_total_losses(struct trm_strategy *strategy, struct trm_loss_sums *sums)
{
  const struct sync *s = strategy->impl;
  if (!sync_node_complete(strategy, strategy->elements))
    sync_await_node(strategy, strategy->elements);
  sync_sum_node_losses(s, sums);
  return sync_sum_losses(strategy, s->cross, sums);
}

/* One node: sums and updates block after block, while the sum is in the cache, together with the other ranks. One rank
 * takes each block, once its gradients are complete on all ranks; then no rank reads its weights any more in this step.
 * The bits do not depend on which rank it is. Ends when all blocks are taken, or when the loss is not finite. */
static void sync_update_node(struct trm_strategy *strategy, const struct trm_update *update)
{
  struct sync *s = strategy->impl;
  const int64_t blocks = (int64_t)((strategy->elements + s->block - 1) / s->block);
  const int64_t first = (int64_t)s->steps * blocks;
  for (;;) {
    int64_t taken = trm_counter_get(&s->node_shared->blocks_taken);
    const int64_t next = taken > first ? taken : first; /* a failed step may leave blocks */
    if (next == first + blocks)
      return;
    const size_t at = (size_t)(next - first) * s->block, n = sync_block_size(s, at, strategy->elements);
    if (!sync_node_complete(strategy, at + n))
      sync_await_node(strategy, at + n);
    if (!sync_losses_finite(s))
      return;
    if (!trm_counter_swap(s->node, &s->node_shared->blocks_taken, &taken, next + 1))
      continue; /* taken by another rank */
    sync_sum_block(strategy, s->block_sum, at, n);
    sync_apply_update(strategy, update, s->block_sum, at, n);
  }
}

static int sync_step(struct trm_strategy *strategy, double rate, struct trm_loss_sums *sums)
{
  struct sync *s = strategy->impl;
  const bool clips = strategy->optimizer->clip > 0;
  /* true: the update needs the whole summed gradient */
  const bool ratios = trm_optimizer_has_trust_ratios(strategy->optimizer);
  const bool sums_first = clips || ratios || sync_has_other_nodes(s) || s->node->size == 1;

  if (strategy->now)
    return sync_alone_step(strategy, sums);
  TRM_CHECK(sync_publish_progress(strategy, strategy->elements, sums));
  if (sums_first) {
    TRM_CHECK(sync_node_barrier(strategy)); /* all gradients of the node are complete */
    for (; s->buckets_begun < s->buckets; s->buckets_begun++)
      TRM_CHECK(sync_bucket_begin(strategy, &s->bucket[s->buckets_begun]));
  } else {
    const struct trm_update update = sync_make_update(strategy, rate, 0);
    const double began = trm_trace_begin();
    sync_update_node(strategy, &update);
    trm_trace_end("sum and update", TRM_TRACE_COMPUTE, began, TRM_TRACE_NO_IDS);
  }
  const int status = sync_total_losses(strategy, sums);
  const double before = s->cross->ops->clock(s->cross);
  for (int b = 0; b < s->buckets; b++)
    s->cross->ops->wait(&s->bucket[b].request);
  sync_end_timing(s->cross, before, &strategy->comm_s, "wait for all-reduce", TRM_TRACE_WAIT);
  s->buckets_begun = 0;
  s->steps++;
  if (status != TRM_OK) { /* on every rank */
    TRM_CHECK(sync_node_barrier(strategy)); /* all have read the losses of the node */
    return status;
  }
  if (sums_first) {
    double norm_squared = 0;
    if (clips)
      TRM_CHECK(sync_gradient_norm(strategy, &norm_squared));
    const struct trm_update update = sync_make_update(strategy, rate, norm_squared);
    if (ratios)
      TRM_CHECK(sync_tensor_ratios(strategy, &update));
    const double began = trm_trace_begin();
    for (int b = 0; b < s->buckets; b++) {
      const struct interval slice = s->bucket[b].slice;
      sync_apply_update(strategy, &update, strategy->g + slice.low, slice.low, slice.high - slice.low);
    }
    trm_trace_end("update", TRM_TRACE_COMPUTE, began, TRM_TRACE_NO_IDS);
  }
  strategy->updates++;
  return sync_node_barrier(strategy); /* all slices of the weights are updated */
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
  if (s->cross->rank != 0 || next->low >= next->high)
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
  .grad_ready = sync_grad_ready,
  .step = sync_step,
  .collect = sync_collect,
  .restore = sync_restore,
  .own = sync_own,
  .destroy = sync_destroy,
};
