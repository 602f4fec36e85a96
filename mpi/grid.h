/* Making the process grid (train/grid.h) of a job. */
#pragma once

#include "train/grid.h"

/* Sets the size of each axis from parallel.data, .pipeline and .tensor, of which one may be -1: the remaining ranks.
 * TRM_USAGE if their product is not `ranks`. */
int trm_grid_shape(const struct trm_options *options, int ranks, int size[TRM_AXES]);

/* Collective over comm. Neighbors in the grid are on one node as far as the nodes' sizes allow. */
int trm_grid_create(struct trm_grid *grid, const struct trm_options *options, struct trm_comm *comm);
void trm_grid_free(struct trm_grid *grid); /* collective */

/* Logs the axes and the order of ranks on rank 0. Collective. */
void trm_grid_announce(const struct trm_grid *grid);
