/* Norms of a whole model where ranks of the tensor and pipeline axes hold parts of it. */
#include "core/memory.h"
#include "mpi/sync/sync.h"

void sync_allreduce(struct trm_strategy *strategy, struct trm_comm *comm, void *values, size_t n, enum trm_type type,
                    const char *name)
{
  const double before = comm->ops->clock(comm);
  comm->ops->allreduce(comm, values, n, type, TRM_SUM);
  sync_end_timing(comm, before, &strategy->comm_s, name, TRM_TRACE_COMMUNICATION);
}

void sync_reduce_model_norm(struct trm_strategy *strategy, double *norm_squared)
{
  if (strategy->norm_comm)
    sync_allreduce(strategy, strategy->norm_comm, norm_squared, 1, TRM_DOUBLE, "sum of norms");
}

void sync_ratios(struct trm_strategy *strategy, const struct trm_update *update, size_t unit, double (*norm)[2],
                 float *ratio)
{
  const struct trm_optimizer *optimizer = strategy->optimizer;
  if (!strategy->ratio_comm) {
    trm_optimizer_trust_ratios(optimizer, update, unit, norm, ratio);
    return;
  }
  const size_t tensors = (size_t)optimizer->tensors;
  double(*local)[2] = trm_alloc(2 * tensors * sizeof *local, "norms"), (*summed)[2] = local + tensors;
  trm_optimizer_sum_norms(optimizer, unit, norm, local);
  for (size_t t = 0; t < tensors; t++)
    for (int k = 0; k < 2; k++)
      summed[t][k] = optimizer->tensor[t].sharded ? local[t][k] : 0;
  sync_allreduce(strategy, strategy->ratio_comm, summed[0], 2 * tensors, TRM_DOUBLE, "sum of norms");
  for (size_t t = 0; t < tensors; t++)
    for (int k = 0; k < 2; k++)
      local[t][k] = optimizer->tensor[t].sharded ? summed[t][k] : local[t][k];
  trm_optimizer_trust_ratios(optimizer, update, SIZE_MAX, local, ratio);
  trm_free(local);
}
