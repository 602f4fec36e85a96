/* Sharded data parallelism (ZeRO, FSDP): arrays that a rank does not need all the time are sharded over the ranks.
 *
 *   parallel.zero   weights   gradients   optimizer states     (Rajbhandari et al. 2020)
 *        1          whole     whole       1/P
 *        2          whole     1/P         1/P
 *        3          1/P       1/P         1/P                  fully sharded (Zhao et al. 2023)
 *
 * The flat arrays are cut into units, runs of whole layers, and each unit is divided evenly: rank r has its r-th shard.
 * A sharded unit is gathered into a buffer while its layers compute. Two buffers are used in turn, so that the next
 * unit is gathered meanwhile:
 *
 *   forward    .. gather 2 | compute with 2 | compute with 1 | compute with 0
 *                          | gather 1       | gather 0       |
 *   backward      compute with 0 | compute with 1   | compute with 2
 *                 gather 1       | gather 2         |
 *                                | reduce-scatter 0 | reduce-scatter 1 | ..2
 *   step          each rank updates its shards; whole weights are gathered then, while the next batch is read
 *
 * A rank sends and receives 2 (P - 1) / P of the model per step with levels 1 and 2, as an all-reduce does, and 3 (P -
 * 1) / P with level 3. Gradients of several micro-batches are added in the shards, so from level 2 on each micro-batch
 * is reduced. A weight that is used at both ends of the chain, an embedding with a tied head, has a buffer of its own.
 * Statistics are small, and whole on every rank.
 *
 * On several nodes of several ranks each number crosses the network once for each other node (mpi/coll/two_level.h).
 *
 * Ranks that share memory (parallel.share) need no copies: with levels 2 and 3 the node has one copy of the weights,
 * which layers read and in which each rank updates its shards; and each rank sums its shard of the gradients over the
 * buffers of all ranks. Level 1 is then what sync.c does anyway. With parallel.shard=node each node shards the arrays
 * over its ranks, and the shards of the gradient are all-reduced between the nodes: less memory is saved, but gathers,
 * which layers wait for, stay inside the node. */
#include <math.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "mpi/sync/zero_private.h"

/* -- the parameter provider */

/* The array that passes read as weights: 0, or the state with the averages (optim.ema) in evaluations. */
static int zero_array_for(const struct trm_strategy *strategy, enum trm_acquire_mode mode)
{
  return mode == TRM_ACQUIRE_EVALUATE && strategy->optimizer->ema > 0 ? strategy->optimizer->states : 0;
}

static bool zero_is_backward(enum trm_acquire_mode mode)
{
  return mode == TRM_ACQUIRE_BACKWARD || mode == TRM_ACQUIRE_TIED;
}

/* Adds the statistics of a pass to their sum, and clears them: the next pass, of another chunk of a pipeline, writes
 * those of its own layers only. */
static void zero_statistics_release(struct trm_strategy *strategy)
{
  struct zero *z = strategy->impl;
  if (!z->provider.overwrites_gradient)
    return;
  const float *const both[] = {z->statistics_sum, z->g_statistics};
  strategy->device->ops->sum(strategy->device, &(struct trm_sum){
    .to = z->statistics_sum, .from = both, .count = 2, .n = z->statistics});
  strategy->device->ops->fill(strategy->device, z->g_statistics, 0, z->statistics);
}

static void zero_acquire(void *context, size_t low, size_t high, enum trm_acquire_mode mode, float **w, float **g)
{
  (void)high;
  struct trm_strategy *strategy = context;
  struct zero *z = strategy->impl;
  const int array = zero_array_for(strategy, mode);
  if (low >= z->trainable) {
    *w = array ? z->average_statistics : z->w_statistics;
    *g = zero_is_backward(mode) ? z->g_statistics : NULL;
    return;
  }
  const int u = zero_unit_at(z, low);
  const size_t at = low - z->unit[u].low;
  *w = zero_weights_acquire(strategy, u, array) + at;
  *g = zero_is_backward(mode) ? zero_gradient_acquire(strategy, u) + at : NULL;
  if (mode == TRM_ACQUIRE_BACKWARD)
    zero_weights_prefetch(strategy, u + 1, array);
  else if (mode == TRM_ACQUIRE_FORWARD || mode == TRM_ACQUIRE_EVALUATE)
    zero_weights_prefetch(strategy, u - 1, array);
}

static void zero_release(void *context, size_t low, size_t high, enum trm_acquire_mode mode)
{
  struct trm_strategy *strategy = context;
  const struct zero *z = strategy->impl;
  if (low >= z->trainable) {
    if (mode == TRM_ACQUIRE_BACKWARD)
      zero_statistics_release(strategy);
    return;
  }
  const int u = zero_unit_at(z, low);
  zero_weights_release(strategy, u, zero_array_for(strategy, mode));
  if (z->provider.overwrites_gradient && mode == TRM_ACQUIRE_BACKWARD && high == z->unit[u].high)
    zero_gradient_release(strategy, u);
  strategy->comm->ops->progress(strategy->comm);
}

/* Level 1: begins the reduce-scatter of a unit whose whole gradient is complete. */
static int zero_grad_ready(struct trm_strategy *strategy, size_t low, size_t high, const struct trm_loss_sums *sums)
{
  (void)sums;
  const struct zero *z = strategy->impl;
  if (z->provider.overwrites_gradient || low >= z->trainable)
    return TRM_OK;
  const int u = zero_unit_at(z, low);
  if (high == z->unit[u].high)
    zero_gradient_release(strategy, u);
  return TRM_OK;
}

/* -- step */

/* This rank's shard of a chunk. */
struct shard {
  struct trm_update_interval to;
  float *g, *state[TRM_MAX_STATES - 1];
};

/* Sets *shard to the next nonempty shard of this rank, from chunk *p on. False: no more. */
static bool zero_next_shard(const struct trm_strategy *strategy, int *p, struct shard *shard)
{
  const struct zero *z = strategy->impl;
  for (; *p < z->chunks; ++*p) {
    const struct chunk *chunk = &z->chunk[*p];
    const struct interval owned = zero_shard_interval(chunk, z->group->rank);
    if (owned.low == owned.high)
      continue;
    *shard = (struct shard){.to = {owned.low, owned.high - owned.low, zero_shard_data(z, 0, chunk), shard->state, NULL},
                            .g = z->g + chunk->shard_offset};
    for (int i = 0; i < strategy->optimizer->states; i++)
      shard->state[i] = zero_shard_data(z, 1 + i, chunk);
    ++*p;
    return true;
  }
  return false;
}

static double zero_gradient_norm(struct trm_strategy *strategy)
{
  double norm_squared = 0;
  struct shard shard;
  for (int p = 0; zero_next_shard(strategy, &p, &shard);)
    norm_squared += trm_optimizer_norm_squared(strategy->optimizer, strategy->device, shard.to.low, shard.to.n,
                                               shard.g);
  sync_allreduce(strategy, ((struct zero *)strategy->impl)->group, &norm_squared, 1, TRM_DOUBLE, "sum of norms");
  sync_reduce_model_norm(strategy, &norm_squared);
  return norm_squared;
}

static void zero_tensor_ratios(struct trm_strategy *strategy, const struct trm_update *update)
{
  const struct zero *z = strategy->impl;
  const struct trm_optimizer *optimizer = strategy->optimizer;
  struct trm_device *device = strategy->device;
  const size_t tensors = (size_t)optimizer->tensors;
  double(*sum)[2] = z->norms, (*norms)[2] = sum + tensors; /* norms: of one shard */
  memset(sum, 0, tensors * sizeof *sum);
  struct shard shard;
  for (int p = 0; zero_next_shard(strategy, &p, &shard);) {
    trm_optimizer_prepare(optimizer, device, update, &shard.to, shard.g);
    memset(norms, 0, tensors * sizeof *norms);
    trm_optimizer_partial_norms(optimizer, device, SIZE_MAX, &shard.to, shard.g, norms);
    for (size_t t = 0; t < tensors; t++)
      for (int k = 0; k < 2; k++)
        sum[t][k] += norms[t][k];
  }
  sync_allreduce(strategy, z->group, sum, 2 * tensors, TRM_DOUBLE, "sum of norms");
  sync_ratios(strategy, update, SIZE_MAX, sum, z->ratios);
}

static void zero_update_shards(struct trm_strategy *strategy, const struct trm_update *update)
{
  const struct zero *z = strategy->impl;
  struct shard shard;
  for (int p = 0; zero_next_shard(strategy, &p, &shard);)
    trm_optimizer_apply(strategy->optimizer, strategy->device, update, z->ratios, &shard.to, shard.g);
}

/* Sums the statistics over all ranks, and updates them on every rank. */
static void zero_statistics_update(struct trm_strategy *strategy, const struct trm_update *update)
{
  struct zero *z = strategy->impl;
  struct trm_device *device = strategy->device;
  const size_t bytes = z->statistics * sizeof(float);
  if (!z->statistics)
    return;
  device->ops->download(device, z->host_statistics,
                        z->provider.overwrites_gradient ? z->statistics_sum : z->g_statistics, bytes);
  sync_allreduce(strategy, strategy->comm, z->host_statistics, z->statistics, TRM_FLOAT, "sum of norms");
  device->ops->upload(device, z->g_statistics, z->host_statistics, bytes);
  float *state[TRM_MAX_STATES - 1] = {NULL};
  if (z->average_statistics)
    state[strategy->optimizer->states - 1] = z->average_statistics;
  const struct trm_update_interval to = {z->trainable, z->statistics, z->w_statistics, state, NULL};
  trm_optimizer_apply(strategy->optimizer, device, update, z->ratios, &to, z->g_statistics);
  device->ops->fill(device, z->g_statistics, 0, z->statistics);
}

/* Marks the sums empty: the next gradients are the first of a step. */
static void zero_reset_sums(struct trm_strategy *strategy)
{
  struct zero *z = strategy->impl;
  for (int u = 0; u < z->units; u++)
    z->unit[u].accumulated = false;
  z->cross_reduced = false;
  if (z->statistics)
    strategy->device->ops->fill(strategy->device, z->statistics_sum, 0, z->statistics);
}

static int zero_step(struct trm_strategy *strategy, double rate, struct trm_loss_sums *sums)
{
  zero_gradients_finish(strategy);
  const int status = sync_sum_losses(strategy, strategy->comm, sums);
  if (status == TRM_OK) { /* on every rank */
    const struct trm_update update =
      sync_make_update(strategy, rate, strategy->optimizer->clip > 0 ? zero_gradient_norm(strategy) : 0);
    if (trm_optimizer_has_trust_ratios(strategy->optimizer))
      zero_tensor_ratios(strategy, &update);
    zero_weights_wait(strategy);
    zero_update_shards(strategy, &update);
    zero_statistics_update(strategy, &update);
    strategy->updates++;
    zero_weights_invalidate(strategy);
  }
  zero_reset_sums(strategy);
  TRM_CHECK(status);
  return strategy->device->ops->sync(strategy->device);
}

/* -- creation */

static void zero_destroy(struct trm_strategy *strategy)
{
  zero_weights_wait(strategy);
  zero_arrays_destroy(strategy);
  trm_free(strategy->impl);
  strategy->impl = NULL;
  strategy->provider = NULL;
}

static int zero_create(struct trm_strategy *strategy)
{
  struct zero *z = strategy->impl = trm_alloc(sizeof *z, "the strategy");
  strategy->batch_shard = strategy->comm->rank;
  strategy->batch_shards = strategy->comm->size;
  z->provider = (struct trm_param_provider){.overwrites_gradient = strategy->parallel->zero > 1,
                                            .acquire = zero_acquire,
                                            .release = zero_release,
                                            .context = strategy};
  strategy->provider = &z->provider;
  return zero_arrays_create(strategy);
}

const struct trm_strategy_ops sync_zero = {
  .name = "sync",
  .help = "every update uses the gradients of all ranks",
  .sharded = true,
  .lockstep = true,
  .create = zero_create,
  .grad_ready = zero_grad_ready,
  .step = zero_step,
  .collect = zero_collect,
  .restore = zero_restore,
  .read = zero_read,
  .write = zero_write,
  .own = zero_own,
  .destroy = zero_destroy,
};
