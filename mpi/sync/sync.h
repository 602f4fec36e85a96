/* Synchronous data parallelism: every update uses the gradients of all ranks. */
#pragma once

#include "core/trace.h"
#include "train/strategy.h"

/* In host memory, shared by the ranks of a node. Its operation select chooses among the three. */
extern const struct trm_strategy_ops trm_strategy_sync;
/* In the memory of each rank's device. */
extern const struct trm_strategy_ops sync_staged;
/* With optimizer states, gradients and weights sharded over the ranks (parallel.zero). */
extern const struct trm_strategy_ops sync_zero;

/* Returns the folder of parallel.offload, not owned; NULL: states stay in memory. */
const char *sync_offload_dir(const struct trm_strategy *strategy);

/* Adds the seconds since `before` (comm's clock) to *total, and to the trace under this name. */
static inline void sync_end_timing(struct trm_comm *comm, double before, double *total, const char *name,
                                   enum trm_trace_kind kind)
{
  *total += comm->ops->clock(comm) - before;
  trm_trace_end(name, kind, before, TRM_TRACE_NO_IDS);
}

/* Sums the losses over the ranks of `all`, with lanes in the fixed tree. Collective over `all`. TRM_FAILED on every
 * rank if the loss is not finite. */
int sync_sum_losses(struct trm_strategy *strategy, struct trm_comm *all, struct trm_loss_sums *sums);

/* Returns the parameters of the next update. norm_squared: of the whole gradient; unused without clipping. */
struct trm_update sync_make_update(const struct trm_strategy *strategy, double rate, double norm_squared);
