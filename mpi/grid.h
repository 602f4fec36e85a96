/* Making the process grid (train/grid.h) of a job. */
#ifndef TRM_MPI_GRID_H
#define TRM_MPI_GRID_H

#include "train/grid.h"

/* How many ranks each axis gets of `ranks`, as parallel.data, pipeline and tensor say; one of them may be -1: what the
 * others leave. TRM_USAGE names what does not fit. */
int trm_grid_shape(const struct trm_options *options, int ranks, int size[TRM_AXES]);

/* Collective over comm. Neighbors in the grid are on one node as far as the nodes' sizes allow. */
int trm_grid_create(struct trm_grid *grid, const struct trm_options *options, struct trm_comm *comm);
void trm_grid_free(struct trm_grid *grid); /* collective */

/* Says on rank 0 which rank is where. Collective. */
void trm_grid_announce(const struct trm_grid *grid);

#endif
