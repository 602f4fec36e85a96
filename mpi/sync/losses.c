/* Sums of the losses of a step over ranks. */
#include <math.h>

#include "core/status.h"
#include "mpi/sync/sync.h"

int sync_check_losses(const struct trm_strategy *strategy, const struct trm_loss_sums *sums)
{
  if (!isfinite(sums->loss))
    return trm_error(TRM_FAILED,
                     "step %llu: the loss is %s; the weights are those of the step before " TRM_LOSS_NOT_FINITE,
                     (unsigned long long)strategy->updates + 1, isnan(sums->loss) ? "nan" : "inf");
  return TRM_OK;
}

int sync_sum_losses(struct trm_strategy *strategy, struct trm_comm *all, struct trm_loss_sums *sums)
{
  const double before = all->ops->clock(all);
  all->ops->allreduce(all, sums, TRM_LOSS_SUMS, TRM_DOUBLE, sync_sum_op(strategy));
  sync_end_timing(all, before, &strategy->comm_s, "sum of losses", TRM_TRACE_COMMUNICATION);
  return sync_check_losses(strategy, sums);
}
