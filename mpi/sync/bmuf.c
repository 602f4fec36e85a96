/* Blockwise model-update filtering (Chen & Huo 2016), with classical block momentum. After a round of steps from x0,
 *
 *   d = eta d + zeta (mean - x0)        x = x0 + d
 *
 * zeta: strategy.outer_rate, the block learning rate; eta: strategy.outer_momentum, the block momentum, by default
 * 1 - 1 / replicas. With d = -alpha gamma u it is SlowMo at a constant learning rate gamma. Written from the mean, as
 * SlowMo is. */
#include "mpi/sync/replicas.h"

static void bmuf_update(const struct trm_strategy *strategy, const struct replicas_part *part)
{
  const double zeta = replicas_outer_rate(strategy), set = replicas_outer_momentum(strategy);
  const double eta = set < 0 ? 1 - 1.0 / replicas_count(strategy) : set;
  float *x0 = part->array[0], *d = part->array[1], *w = part->w;
  for (size_t i = 0; i < part->n; i++) {
    const double mean = (double)w[i], moved = (double)x0[i] - mean, before = (double)d[i];
    d[i] = (float)(eta * before - zeta * moved);
    x0[i] = w[i] = (float)(mean + ((1 - zeta) * moved + eta * before));
  }
}

static int bmuf_create(struct trm_strategy *strategy)
{
  return replicas_create(strategy, &(struct replicas_method){
    .arrays = 2, .moves_alone = true, .update = bmuf_update, .outer_rate = 1, .outer_momentum = -1});
}

const struct trm_strategy_ops trm_strategy_bmuf = {
  .name = "bmuf",
  .help = "local SGD with a momentum over rounds (blockwise model-update filtering)",
  .takes = TRM_TAKES_FRAGMENTS | TRM_TAKES_TENSOR_AXIS,
  .create = bmuf_create,
  REPLICAS_SLOTS,
};
