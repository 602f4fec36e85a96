/* Norms of a whole model that is divided over the tensor and pipeline axes. */
#pragma once

#include "mpi/sync/sync.h"

/* Sums values (n) over comm, whose time counts as communication ("sum of norms" in the trace). Collective over comm. */
void sync_allreduce(struct trm_strategy *strategy, struct trm_comm *comm, void *values, size_t n, enum trm_type type);

/* Sums *norm_squared, that of the elements this rank's arrays count (trm_optimizer_norm_squared), over the model's
 * ranks. Collective over norm_comm; does nothing if it is NULL. */
void sync_reduce_model_norm(struct trm_strategy *strategy, double *norm_squared);

/* trm_optimizer_trust_ratios for tensors of which other ranks have shards. Collective over ratio_comm, unless NULL. */
void sync_ratios(struct trm_strategy *strategy, const struct trm_update *update, size_t unit, double (*norm)[2],
                 float *ratio);
