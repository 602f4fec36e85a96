/* Synchronous data parallelism: every update uses the gradients of all ranks. */
#pragma once

#include "core/trace.h"
#include "mpi/strategies.h"

/* Method sync is in memory shared by the ranks of a node, or of one rank on its device; its slot select chooses this
 * row for optimizer states, gradients and weights that are sharded over the ranks (parallel.zero). */
extern const struct trm_strategy_ops sync_zero;

/* Shared arrays are taken in whole segments of this many bytes: whole pages of any size from 4 to 64 KiB. */
#define SYNC_SEGMENT_BYTES ((size_t)65536)

struct interval {
  size_t low, high; /* elements of the flat arrays */
};

/* The elements of both; low == high: none. */
static inline struct interval sync_overlap(struct interval a, struct interval b)
{
  const size_t low = a.low > b.low ? a.low : b.low, high = a.high < b.high ? a.high : b.high;
  return (struct interval){low, low < high ? high : low};
}

/* Returns the folder of parallel.offload, not owned; NULL: states stay in memory. */
const char *sync_offload_dir(const struct trm_strategy *strategy);

/* Collective over strategy->comm. Returns its ranks that share memory with this one, for the caller to release; NULL if
 * nodes have unequal numbers of ranks. consequence: logged then; NULL: nothing is. */
struct trm_comm *sync_equal_node(const struct trm_strategy *strategy, enum trm_share share, const char *consequence);

/* Adds the seconds since `before` (comm's clock) to *total, and to the trace under this name. */
static inline void sync_end_timing(struct trm_comm *comm, double before, double *total, const char *name,
                                   enum trm_trace_kind kind)
{
  const double now = comm->ops->clock(comm);
  *total += now - before;
  trm_trace_add(name, kind, before, now, TRM_TRACE_NO_IDS);
}

/* Returns how gradients and losses are added over ranks: with lanes in the fixed tree. */
static inline enum trm_op sync_sum_op(const struct trm_strategy *strategy)
{
  return strategy->lanes > 0 ? TRM_TREE_SUM : TRM_SUM;
}

/* Returns TRM_FAILED if the loss, of all ranks, is not finite. */
int sync_check_losses(const struct trm_strategy *strategy, const struct trm_loss_sums *sums);
/* Sums the losses over the ranks of `all`. Collective over `all`. TRM_FAILED on every rank if the loss is not
 * finite. */
int sync_sum_losses(struct trm_strategy *strategy, struct trm_comm *all, struct trm_loss_sums *sums);

/* Sums values (n) over comm; the time counts as communication, in the trace under this name. Collective over comm. */
void sync_allreduce(struct trm_strategy *strategy, struct trm_comm *comm, void *values, size_t n, enum trm_type type,
                    const char *name);

/* -- norms of a whole model where ranks of the tensor and pipeline axes hold parts of it */

/* Sums *norm_squared, that of the elements this rank's arrays count (trm_optimizer_norm_squared), over the model's
 * ranks. Collective over norm_comm; does nothing if it is NULL. */
void sync_reduce_model_norm(struct trm_strategy *strategy, double *norm_squared);

/* trm_optimizer_trust_ratios for tensors of which other ranks have shards. Collective over ratio_comm, unless NULL. */
void sync_ratios(struct trm_strategy *strategy, const struct trm_update *update, size_t unit, double (*norm)[2],
                 float *ratio);

/* Returns the parameters of the next update. norm_squared: of the whole gradient; unused without clipping. */
struct trm_update sync_make_update(const struct trm_strategy *strategy, double rate, double norm_squared);
