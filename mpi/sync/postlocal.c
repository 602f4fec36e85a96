/* Post-local SGD (Lin et al. 2018, arXiv 1808.07217): the mean of the replicas' weights after every step until the
 * learning rate decays for the first time, then after H = strategy.tau steps. The decay is that of the schedule;
 * warm-up comes before it. */
#include "mpi/sync/replicas.h"

static int postlocal_create(struct trm_strategy *strategy)
{
  return replicas_create(strategy, &(struct replicas_method){.awaits_decay = true});
}

const struct trm_strategy_ops trm_strategy_postlocal = {
  .name = "postlocal",
  .help = "local SGD that exchanges after every step until the learning rate decays",
  .takes = TRM_TAKES_TENSOR_AXIS,
  .create = postlocal_create,
  REPLICAS_SLOTS,
};
