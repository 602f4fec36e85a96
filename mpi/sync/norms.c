/* Norms across the axes that divide the model. */
#include "mpi/sync/norms.h"

#include "core/memory.h"
#include "core/trace.h"

/* *values become the sums over the ranks of comm. */
static void add_over(struct trm_strategy *strategy, struct trm_comm *comm, double *values, size_t n)
{
  const double before = comm->ops->clock(comm);
  comm->ops->allreduce(comm, values, n, TRM_DOUBLE, TRM_SUM);
  strategy->comm_s += comm->ops->clock(comm) - before;
  trm_trace_end("sum of norms", TRM_TRACE_COMMUNICATION, before, TRM_TRACE_NOWHERE);
}

void sync_norm_whole(struct trm_strategy *strategy, double *norm_squared)
{
  if (strategy->norm_comm)
    add_over(strategy, strategy->norm_comm, norm_squared, 1);
}

void sync_ratios(struct trm_strategy *strategy, const struct trm_update *how, size_t unit, double (*norm)[2],
                 float *ratio)
{
  const struct trm_optimizer *optimizer = strategy->optimizer;
  if (!strategy->ratio_comm) {
    trm_optimizer_ratios(optimizer, how, unit, norm, ratio);
    return;
  }
  const size_t tensors = (size_t)optimizer->tensors;
  double(*own)[2] = trm_alloc(2 * tensors * sizeof *own, "norms"), (*all)[2] = own + tensors;
  trm_optimizer_norms_add(optimizer, unit, norm, own);
  for (size_t t = 0; t < tensors; t++)
    for (int k = 0; k < 2; k++)
      all[t][k] = optimizer->tensor[t].divided ? own[t][k] : 0;
  add_over(strategy, strategy->ratio_comm, all[0], 2 * tensors);
  for (size_t t = 0; t < tensors; t++)
    for (int k = 0; k < 2; k++)
      own[t][k] = optimizer->tensor[t].divided ? all[t][k] : own[t][k];
  trm_optimizer_ratios(optimizer, how, SIZE_MAX, own, ratio);
  trm_free(own);
}
