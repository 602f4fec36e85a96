/* Local SGD (Stich 2018, arXiv 1805.09767): replicas make H = strategy.tau steps each, then all take the mean of their
 * weights. With H = 1, plain SGD and equal shares this is synchronous SGD, up to rounding: the mean of w - rate g_i is
 * w - rate mean(g_i). The optimizer's states stay the replica's own. */
#include "mpi/sync/replicas.h"

static int local_create(struct trm_strategy *strategy)
{
  return replicas_create(strategy, &(struct replicas_method){.arrays = 0});
}

const struct trm_strategy_ops trm_strategy_local = {
  .name = "local",
  .help = "replicas make several steps, then take the mean of their weights (local SGD)",
  .takes = TRM_TAKES_FRAGMENTS | TRM_TAKES_TENSOR_AXIS,
  .create = local_create,
  REPLICAS_SLOTS,
};
