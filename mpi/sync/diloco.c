/* DiLoCo (Douillard et al. 2023, arXiv 2311.08105, algorithm 1): replicas make H = strategy.tau steps of the inner
 * optimizer, AdamW in the paper, from x0; the outer optimizer, SGD with Nesterov's momentum, takes what they have moved
 * on average for a gradient:
 *
 *   g = x0 - mean        m = mu m + g        x = x0 - rate (g + mu m)
 *
 * rate, mu: strategy.outer_rate (0.7) and strategy.outer_momentum (0.9). With strategy.fragments the parts of the model
 * take turns (Streaming DiLoCo, Douillard et al. 2025, arXiv 2501.18512, without overlap). Written from the mean, so
 * that rate 1 and mu 0 is local SGD to the bit. */
#include "mpi/sync/replicas.h"

static void diloco_update(const struct trm_strategy *strategy, const struct replicas_part *part)
{
  const double rate = replicas_outer_rate(strategy), mu = replicas_outer_momentum(strategy);
  float *x0 = part->array[0], *m = part->array[1], *w = part->w;
  for (size_t i = 0; i < part->n; i++) {
    const double mean = (double)w[i], g = (double)x0[i] - mean;
    m[i] = (float)(mu * (double)m[i] + g);
    x0[i] = w[i] = (float)(mean + ((1 - rate) * g - rate * mu * (double)m[i]));
  }
}

static int diloco_create(struct trm_strategy *strategy)
{
  return replicas_create(strategy, &(struct replicas_method){
    .arrays = 2, .moves_alone = true, .update = diloco_update, .outer_rate = 0.7, .outer_momentum = 0.9});
}

const struct trm_strategy_ops trm_strategy_diloco = {
  .name = "diloco",
  .help = "local steps, whose mean is the gradient of an outer optimizer with Nesterov's momentum (DiLoCo)",
  .takes = TRM_TAKES_FRAGMENTS | TRM_TAKES_TENSOR_AXIS,
  .create = diloco_create,
  REPLICAS_SLOTS,
};
