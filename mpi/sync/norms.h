/* Norms of a whole model, of which this rank may hold a part: what was added over the data axis becomes that of all. */
#ifndef TRM_MPI_SYNC_NORMS_H
#define TRM_MPI_SYNC_NORMS_H

#include "train/strategy.h"

/* Collective over norm_comm, if there is one. *norm_squared: of the elements that this rank's arrays count
 * (trm_optimizer_norm_squared), all of them; becomes that of the whole model. */
void sync_reduce_model_norm(struct trm_strategy *strategy, double *norm_squared);

/* Collective over ratio_comm, if there is one. trm_optimizer_trust_ratios for tensors that other ranks have parts of, too. */
void sync_ratios(struct trm_strategy *strategy, const struct trm_update *update, size_t unit, double (*norm)[2],
                 float *ratio);

#endif
