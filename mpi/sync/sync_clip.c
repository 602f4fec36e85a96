/* Clipping by the norm of the whole gradient: of the sum over the nodes, which the update then scales (sync_update.c),
 * or of each node's gradient before it enters that sum.
 *
 * The latter is local gradient clipping, for strategy.compress=dgc (Lin, Han, Mao, Wang, Dally: Deep gradient
 * compression, ICLR 2018, section 3.2): each of N workers clips its gradient before it enters the momentum, with
 * N^(-1/2) of the threshold. A worker is a node. In the paper's algorithm 1 the gradient of worker k is
 * G_k = 1/(N b) times the sum over its b samples, so that G = sum over k of G_k is the mean gradient, whose threshold
 * is optim.clip; independent G_k of one distribution have |G| = N^(1/2) |G_k|. That is the scale of gradients here,
 * 1 / the rows of the global batch:
 *
 *   g_k *= min(1, optim.clip / (N^(1/2) |g_k|))
 *
 * The threshold of the node's own mean gradient N g_k is N^(1/2) optim.clip. */
#include <math.h>

#include "core/status.h"
#include "mpi/sync/sync_private.h"

void sync_clip_add(struct trm_strategy *strategy, struct interval slice)
{
  struct sync *s = strategy->impl;
  for (size_t at = slice.low; at < slice.high; at += SYNC_UNIT) {
    const size_t n = slice.high - at < SYNC_UNIT ? slice.high - at : SYNC_UNIT;
    s->unit_norms[at / SYNC_UNIT] =
      trm_optimizer_norm_squared(strategy->optimizer, strategy->device, at, n, strategy->g + at);
  }
}

int sync_clip_norm(struct trm_strategy *strategy, double *norm_squared)
{
  struct sync *s = strategy->impl;
  TRM_CHECK(sync_node_barrier(strategy));
  *norm_squared = 0;
  for (size_t i = 0; i < sync_units(strategy->elements); i++)
    *norm_squared += s->unit_norms[i];
  sync_reduce_model_norm(strategy, norm_squared);
  return TRM_OK;
}

int sync_clip_check(const struct trm_strategy *strategy)
{
  const struct sync *s = strategy->impl;
  struct trm_comm *model = strategy->norm_comm;
  const int32_t node = s->cross[0]->rank, nodes = s->cross[0]->size;
  int32_t bounds[] = {node, nodes, -node, -nodes};
  if (strategy->node_clip == 0 || !model)
    return TRM_OK;
  model->ops->allreduce(model, bounds, 4, TRM_INT32, TRM_MAX);
  if (bounds[0] == -bounds[2] && bounds[1] == -bounds[3])
    return TRM_OK;
  return trm_error(TRM_USAGE, "optim.clip: strategy.compress=dgc clips the gradient of each node, and the nodes divide "
                   "the data axis unlike from one part of the model to another; give every node whole copies of a "
                   "part, or leave optim.clip at 0");
}

int sync_clip_node(struct trm_strategy *strategy)
{
  struct sync *s = strategy->impl;
  const struct interval trained = {0, trm_optimizer_trained(strategy->optimizer)}; /* statistics are not clipped */
  const double limit = strategy->node_clip / sqrt(s->cross[0]->size);
  double norm_squared;
  TRM_CHECK(sync_clip_norm(strategy, &norm_squared));
  const float scale = norm_squared > limit * limit ? (float)(limit / sqrt(norm_squared)) : 1;
  for (int b = 0; b < s->buckets && scale < 1; b++) {
    const struct interval own = sync_overlap(s->bucket[b].slice, trained);
    for (size_t i = own.low; i < own.high; i++)
      strategy->g[i] *= scale;
    trm_strategy_pass_time(strategy, 2 * (own.high - own.low));
  }
  s->clipped = true;
  return TRM_OK;
}
