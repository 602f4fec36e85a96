/* Synchronous data parallelism for a device with separate memory: weights, states and gradient are on the rank's
 * device. A step copies the gradient to the host, all-reduces it there, and copies it back. */
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "mpi/coll/allreduce_tree.h"
#include "mpi/sync/sync.h"

struct staged {
  float *array[TRM_MAX_STATES]; /* device, (elements): weights, states; NULL beyond the optimizer's */
  float *host_gradient;         /* host, (elements) during the all-reduce; NULL for one rank */
  float *view[TRM_MAX_STATES];  /* host, (elements), on rank 0: for checkpoints, from the first one on */
  double (*norm)[2];            /* (tensors) squared norms of w and g, where the rule has trust ratios */
  float *ratio;                 /* (tensors) trust ratios */
};

static void staged_destroy(struct trm_strategy *strategy)
{
  struct staged *s = strategy->impl;
  const struct trm_device_ops *ops = strategy->device->ops;
  for (int i = 0; i < TRM_MAX_STATES; i++) {
    if (s->array[i])
      ops->release(strategy->device, s->array[i]);
    trm_free(s->view[i]);
  }
  if (strategy->g)
    ops->release(strategy->device, strategy->g);
  trm_free(s->host_gradient);
  trm_free(s->norm);
  trm_free(s->ratio);
  trm_free(s);
  strategy->impl = NULL;
}

static int staged_alloc_arrays(struct trm_strategy *strategy, struct staged *s)
{
  const struct trm_device_ops *ops = strategy->device->ops;
  const size_t bytes = strategy->elements * sizeof(float);
  for (int i = 0; i <= strategy->optimizer->states; i++)
    TRM_CHECK(ops->alloc(strategy->device, bytes, i ? TRM_MEMORY_STATES : TRM_MEMORY_WEIGHTS, (void **)&s->array[i]));
  return ops->alloc(strategy->device, bytes, TRM_MEMORY_GRADIENTS, (void **)&strategy->g);
}

static int staged_create(struct trm_strategy *strategy)
{
  struct staged *s = trm_alloc(sizeof *s, "the strategy");
  strategy->impl = s;
  strategy->batch_shard = strategy->comm->rank;
  strategy->batch_shards = strategy->comm->size;
  if (strategy->batch_shards > 1)
    s->host_gradient = trm_alloc(strategy->elements * sizeof(float), "gradients on the host");
  const size_t tensors = (size_t)strategy->optimizer->tensors;
  s->norm = trm_alloc(tensors * sizeof *s->norm, "norms");
  s->ratio = trm_alloc(tensors * sizeof *s->ratio, "norms");
  TRM_CHECK(trm_agree(strategy->comm, staged_alloc_arrays(strategy, s)));
  strategy->w = s->array[0];
  strategy->eval_weights = strategy->optimizer->ema > 0 ? s->array[strategy->optimizer->states] : NULL;
  return TRM_OK;
}

/* All-reduces the gradient through host memory. */
static void staged_sum_gradients(struct trm_strategy *strategy, struct staged *s)
{
  struct trm_comm *comm = strategy->comm;
  struct trm_device *device = strategy->device;
  const size_t elements = strategy->elements, bytes = elements * sizeof(float);
  device->ops->download(device, s->host_gradient, strategy->g, bytes);
  const double before = comm->ops->clock(comm);
  if (strategy->lanes > 0)
    trm_allreduce_tree(comm, s->host_gradient, elements, TRM_FLOAT);
  else
    comm->ops->allreduce(comm, s->host_gradient, elements, TRM_FLOAT, TRM_SUM);
  sync_end_timing(comm, before, &strategy->comm_s, "gradient sum", TRM_TRACE_COMMUNICATION);
  device->ops->upload(device, strategy->g, s->host_gradient, bytes);
}

static int staged_step(struct trm_strategy *strategy, double rate, struct trm_loss_sums *sums)
{
  struct staged *s = strategy->impl;
  struct trm_device *device = strategy->device;
  TRM_CHECK(sync_sum_losses(strategy, strategy->comm, sums));
  if (strategy->batch_shards > 1)
    staged_sum_gradients(strategy, s);
  const struct trm_optimizer *optimizer = strategy->optimizer;
  float *g = strategy->g;
  const size_t n = strategy->elements;
  const struct trm_update_interval all = {0, n, strategy->w, s->array + 1};
  double norm_squared = optimizer->clip > 0 ? trm_optimizer_norm_squared(optimizer, device, 0, n, g) : 0;
  if (optimizer->clip > 0)
    sync_reduce_model_norm(strategy, &norm_squared);
  const struct trm_update update = sync_make_update(strategy, rate, norm_squared);
  if (trm_optimizer_has_trust_ratios(optimizer)) { /* one norm per tensor */
    trm_optimizer_prepare(optimizer, device, &update, &all, g);
    trm_optimizer_partial_norms(optimizer, device, SIZE_MAX, &all, g, s->norm);
    sync_ratios(strategy, &update, SIZE_MAX, s->norm, s->ratio);
  }
  trm_optimizer_apply(optimizer, device, &update, s->ratio, &all, g);
  strategy->updates++;
  return device->ops->sync(device);
}

static int staged_collect(struct trm_strategy *strategy, const float *view[TRM_MAX_STATES])
{
  struct staged *s = strategy->impl;
  const size_t bytes = strategy->elements * sizeof(float);
  for (int i = 0; i < TRM_MAX_STATES; i++) {
    view[i] = NULL;
    if (strategy->comm->rank != 0 || !s->array[i])
      continue;
    if (!s->view[i])
      s->view[i] = trm_alloc(bytes, "a checkpoint's arrays");
    strategy->device->ops->download(strategy->device, s->view[i], s->array[i], bytes);
    view[i] = s->view[i];
  }
  return TRM_OK;
}

static int staged_restore(struct trm_strategy *strategy, const float *const from[TRM_MAX_STATES], uint64_t updates)
{
  struct staged *s = strategy->impl;
  for (int i = 0; i < TRM_MAX_STATES; i++)
    if (from[i] && s->array[i])
      strategy->device->ops->upload(strategy->device, s->array[i], from[i], strategy->elements * sizeof(float));
  strategy->updates = updates;
  return strategy->device->ops->sync(strategy->device);
}

const struct trm_strategy_ops sync_staged = {
  .name = "sync",
  .help = "every update uses the gradients of all ranks",
  .lockstep = true,
  .create = staged_create,
  .step = staged_step,
  .collect = staged_collect,
  .restore = staged_restore,
  .destroy = staged_destroy,
};
