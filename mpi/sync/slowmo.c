/* Slow momentum (Wang et al. 2019, arXiv 1910.00643, algorithm 1). After a round of steps from x0, with the learning
 * rate gamma of its last one,
 *
 *   u = beta u + (x0 - mean) / gamma        x = x0 - alpha gamma u
 *
 * alpha: strategy.outer_rate; beta: strategy.outer_momentum. Written from the mean, so that alpha = 1, beta = 0 is
 * local SGD to the bit: x = mean + (1 - alpha) (x0 - mean) - alpha beta gamma u. The inner optimizer's states stay. */
#include "mpi/sync/replicas.h"

static void slowmo_update(const struct trm_strategy *strategy, const struct replicas_part *part)
{
  const double alpha = replicas_outer_rate(strategy), beta = replicas_outer_momentum(strategy), gamma = part->rate;
  float *x0 = part->array[0], *u = part->array[1], *w = part->w;
  for (size_t i = 0; i < part->n; i++) {
    const double mean = (double)w[i], moved = (double)x0[i] - mean, before = (double)u[i];
    u[i] = gamma > 0 ? (float)(beta * before + moved / gamma) : u[i];
    x0[i] = w[i] = (float)(mean + ((1 - alpha) * moved - alpha * beta * gamma * before));
  }
}

static int slowmo_create(struct trm_strategy *strategy)
{
  return replicas_create(strategy, &(struct replicas_method){
    .arrays = 2, .moves_alone = true, .update = slowmo_update, .outer_rate = 1, .outer_momentum = 0.5});
}

const struct trm_strategy_ops trm_strategy_slowmo = {
  .name = "slowmo",
  .help = "local SGD with a momentum over rounds, in units of the learning rate (SlowMo)",
  .takes = TRM_TAKES_FRAGMENTS | TRM_TAKES_TENSOR_AXIS,
  .create = slowmo_create,
  REPLICAS_SLOTS,
};
