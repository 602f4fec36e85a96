/* Sharded data parallelism: what a rank does not need all the time is divided over the ranks.
 *
 *   parallel.zero   weights   gradients   optimizer states     (Rajbhandari et al. 2020)
 *        1          whole     whole       1/P
 *        2          whole     1/P         1/P
 *        3          1/P       1/P         1/P                  fully sharded (Zhao et al. 2023)
 *
 * The flat arrays are cut into units, runs of whole layers, and each unit is divided evenly: rank r has the r-th part
 * of it, its shard. Of what is not there as a whole a unit has a buffer for as long as its layers compute. Two
 * buffers take turns, so that the next unit is on its way already:
 *
 *   forward    .. gather 2 | compute with 2 | compute with 1 | compute with 0
 *                          | gather 1       | gather 0       |
 *   backward      compute with 0 | compute with 1   | compute with 2
 *                 gather 1       | gather 2         |
 *                                | reduce-scatter 0 | reduce-scatter 1 | ..2
 *   step          each rank updates its shards; with whole weights they are gathered then, while the next batch is read
 *
 * A rank sends and receives 2 (P - 1) / P of the model a step with levels 1 and 2, as an allreduce does, and
 * 3 (P - 1) / P with level 3. Gradients of several micro-batches are added in the shards, so from level 2 on each
 * micro-batch sends. A weight that is used at both ends of the chain, an embedding with a tied head, stays in its
 * buffer from the one end to the other. Statistics are small, and whole everywhere.
 *
 * Ranks that share memory (parallel.share) need no copies: of levels 2 and 3 the weights then stand once in the
 * memory of the node, where layers read them and each rank updates its shards; and each rank reads its part of the
 * gradients where the others' layers have left them. Level 1 is then what sync.c does anyway. With
 * parallel.shard=node the ranks of each node divide the arrays among them, and the shards of the gradient are
 * allreduced between the nodes: less memory is saved, but all that comes before a layer can compute stays within the
 * node.
 */
#include <math.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "core/trace.h"
#include "mpi/sync/norms.h"
#include "mpi/sync/zero_private.h"

/* -- the holder: what passes compute with */

/* What stands in the place of the weights. */
static int array_for(const struct trm_strategy *strategy, enum trm_hold how)
{
  return how == TRM_HOLD_EVALUATE && strategy->optimizer->ema > 0 ? strategy->optimizer->states : 0;
}

static bool is_backward(enum trm_hold how)
{
  return how == TRM_HOLD_BACKWARD || how == TRM_HOLD_TIED;
}

static void rest_take(struct trm_strategy *strategy, enum trm_hold how, float **w, float **g)
{
  const struct zero *z = strategy->own;
  *w = array_for(strategy, how) ? z->average_rest : z->w_rest;
  *g = is_backward(how) ? z->g_rest : NULL;
}

/* Adds the statistics of a pass. What other chunks of the model have there is nothing, then. */
static void rest_give(struct trm_strategy *strategy)
{
  struct zero *z = strategy->own;
  if (!z->holder.anew)
    return;
  const float *const both[] = {z->sum_rest, z->g_rest};
  strategy->device->ops->sum(strategy->device, z->sum_rest, both, 2, z->statistics);
  strategy->device->ops->fill(strategy->device, z->g_rest, 0, z->statistics);
}

static void holder_take(void *context, size_t low, size_t high, enum trm_hold how, float **w, float **g)
{
  (void)high;
  struct trm_strategy *strategy = context;
  struct zero *z = strategy->own;
  if (low >= z->trained) {
    rest_take(strategy, how, w, g);
    return;
  }
  const int u = zero_unit_at(z, low), array = array_for(strategy, how);
  const size_t at = low - z->unit[u].low;
  *w = zero_weights_take(strategy, u, array) + at;
  *g = is_backward(how) ? zero_gradient_take(strategy, u) + at : NULL;
  if (how == TRM_HOLD_BACKWARD)
    zero_weights_ahead(strategy, u + 1, array);
  else if (how == TRM_HOLD_FORWARD || how == TRM_HOLD_EVALUATE)
    zero_weights_ahead(strategy, u - 1, array);
}

static void holder_give(void *context, size_t low, size_t high, enum trm_hold how)
{
  struct trm_strategy *strategy = context;
  const struct zero *z = strategy->own;
  if (low >= z->trained) {
    if (how == TRM_HOLD_BACKWARD)
      rest_give(strategy);
    return;
  }
  const int u = zero_unit_at(z, low);
  zero_weights_give(strategy, u, array_for(strategy, how));
  if (z->holder.anew && how == TRM_HOLD_BACKWARD && high == z->unit[u].high)
    zero_gradient_give(strategy, u);
  strategy->comm->ops->progress(strategy->comm);
}

struct trm_holder zero_holder(struct trm_strategy *strategy)
{
  const struct zero *z = strategy->own;
  return (struct trm_holder){
    .anew = z->level > 1, .take = holder_take, .give = holder_give, .context = strategy};
}

/* Whole gradients are complete. */
static int zero_grad_ready(struct trm_strategy *strategy, size_t low, size_t high, const struct trm_tally *tally)
{
  (void)tally;
  const struct zero *z = strategy->own;
  if (z->holder.anew || low >= z->trained)
    return TRM_OK;
  const int u = zero_unit_at(z, low);
  if (high == z->unit[u].high)
    zero_gradient_give(strategy, u);
  return TRM_OK;
}

/* -- step */

/* This rank's part of each piece. */
struct shard {
  size_t low, n;
  float *w, *g, *state[TRM_MAX_STATES - 1];
};

static struct shard shard_of(const struct trm_strategy *strategy, int u, int p)
{
  const struct zero *z = strategy->own;
  const struct piece *piece = &z->piece[p];
  const struct interval_of part = zero_part(piece, z->group->rank);
  struct shard shard = {.low = part.low, .n = part.high - part.low};
  shard.w = zero_own(z, 0, u, piece);
  shard.g = z->g + piece->own;
  for (int i = 0; i < strategy->optimizer->states; i++)
    shard.state[i] = zero_own(z, 1 + i, u, piece);
  return shard;
}

/* Calls what for all of them that are not empty. */
typedef void each_shard(struct trm_strategy *strategy, struct shard *shard, void *context);

static void shards_visit(struct trm_strategy *strategy, each_shard *what, void *context)
{
  const struct zero *z = strategy->own;
  for (int u = 0; u < z->units; u++)
    for (int p = z->unit[u].first; p < z->unit[u].last; p++) {
      struct shard shard = shard_of(strategy, u, p);
      if (shard.n)
        what(strategy, &shard, context);
    }
}

static void sum_over(struct trm_strategy *strategy, struct trm_comm *comm, void *data, size_t n, enum trm_type type)
{
  const double before = comm->ops->clock(comm);
  comm->ops->allreduce(comm, data, n, type, TRM_SUM);
  strategy->comm_s += comm->ops->clock(comm) - before;
  trm_trace_end("sum of norms", TRM_TRACE_COMMUNICATION, before, TRM_TRACE_NOWHERE);
}

static void shard_norm(struct trm_strategy *strategy, struct shard *shard, void *context)
{
  double *sum = context;
  *sum += trm_optimizer_norm_squared(strategy->optimizer, strategy->device, shard->low, shard->n, shard->g);
}

static double whole_norm(struct trm_strategy *strategy)
{
  double norm_squared = 0;
  shards_visit(strategy, shard_norm, &norm_squared);
  sum_over(strategy, ((struct zero *)strategy->own)->group, &norm_squared, 1, TRM_DOUBLE);
  sync_norm_whole(strategy, &norm_squared);
  return norm_squared;
}

/* Adds the shard's part of the norms of the tensors, of which it may have but some. */
static void shard_norms(struct trm_strategy *strategy, struct shard *shard, void *context)
{
  const struct zero *z = strategy->own;
  const struct trm_optimizer *optimizer = strategy->optimizer;
  const size_t tensors = (size_t)optimizer->tensors;
  double(*some)[2] = z->norm + tensors;
  trm_optimizer_prepare(optimizer, strategy->device, context, shard->low, shard->n, shard->w, shard->g, shard->state);
  memset(some, 0, tensors * sizeof *some);
  trm_optimizer_norms(optimizer, strategy->device, SIZE_MAX, shard->low, shard->n, shard->w, shard->g, some);
  for (size_t t = 0; t < tensors; t++)
    for (int k = 0; k < 2; k++)
      z->norm[t][k] += some[t][k];
}

static void whole_ratios(struct trm_strategy *strategy, struct trm_update *how)
{
  const struct zero *z = strategy->own;
  const size_t tensors = (size_t)strategy->optimizer->tensors;
  memset(z->norm, 0, tensors * sizeof *z->norm);
  shards_visit(strategy, shard_norms, how);
  sum_over(strategy, z->group, z->norm, 2 * tensors, TRM_DOUBLE);
  sync_ratios(strategy, how, SIZE_MAX, z->norm, z->ratio);
}

static void shard_apply(struct trm_strategy *strategy, struct shard *shard, void *context)
{
  const struct zero *z = strategy->own;
  trm_optimizer_apply(strategy->optimizer, strategy->device, context, z->ratio, shard->low, shard->n, shard->w,
                      shard->g, shard->state);
}

/* The statistics of all ranks, on all of them. */
static void rest_apply(struct trm_strategy *strategy, const struct trm_update *how)
{
  struct zero *z = strategy->own;
  struct trm_device *device = strategy->device;
  const size_t bytes = z->statistics * sizeof(float);
  if (!z->statistics)
    return;
  device->ops->download(device, z->host_rest, z->holder.anew ? z->sum_rest : z->g_rest, bytes);
  sum_over(strategy, strategy->comm, z->host_rest, z->statistics, TRM_FLOAT);
  device->ops->upload(device, z->g_rest, z->host_rest, bytes);
  float *state[TRM_MAX_STATES - 1] = {NULL};
  if (z->average_rest)
    state[strategy->optimizer->states - 1] = z->average_rest;
  trm_optimizer_apply(strategy->optimizer, device, how, z->ratio, z->trained, z->statistics, z->w_rest, z->g_rest,
                      state);
  device->ops->fill(device, z->g_rest, 0, z->statistics);
}

/* The next gradients are the first of a step. */
static void sums_forget(struct trm_strategy *strategy)
{
  struct zero *z = strategy->own;
  for (int u = 0; u < z->units; u++)
    z->unit[u].filled = false;
  z->crossed = false;
  if (z->statistics)
    strategy->device->ops->fill(strategy->device, z->sum_rest, 0, z->statistics);
}

static int zero_step(struct trm_strategy *strategy, double rate, struct trm_tally *tally)
{
  zero_gradients_finish(strategy);
  const int status = sync_tally(strategy, strategy->comm, tally);
  if (status == TRM_OK) { /* on every rank */
    struct trm_update how = sync_update(strategy, rate, strategy->optimizer->clip > 0 ? whole_norm(strategy) : 0);
    if (trm_optimizer_has_ratios(strategy->optimizer))
      whole_ratios(strategy, &how);
    zero_weights_rest(strategy);
    shards_visit(strategy, shard_apply, &how);
    rest_apply(strategy, &how);
    strategy->updates++;
    zero_weights_changed(strategy);
  }
  sums_forget(strategy);
  TRM_CHECK(status);
  return strategy->device->ops->sync(strategy->device);
}

const struct trm_strategy_ops sync_zero = {
  .name = "sync",
  .help = "every update is made of the gradients of all ranks",
  .lockstep = true,
  .create = zero_create,
  .grad_ready = zero_grad_ready,
  .step = zero_step,
  .collect = zero_collect,
  .restore = zero_restore,
  .read = zero_read,
  .write = zero_write,
  .destroy = zero_destroy,
};
