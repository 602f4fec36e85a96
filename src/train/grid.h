/* The process grid: the ranks of a job as data x pipeline x tensor.
 *
 *   data      ranks that divide each batch
 *   pipeline  stages that divide the chain of layers
 *   tensor    ranks that divide each layer
 *
 * A rank has one place on each axis; the ranks that differ in one place alone are the communicator of that axis. Ranks
 * of the tensor axis talk most, in every layer, so they are neighbors; then those of the data axis, which can share
 * memory; those of the pipeline last:   rank = (stage * data + part) * tensor + slice. */
#ifndef TRM_TRAIN_GRID_H
#define TRM_TRAIN_GRID_H

#include "core/comm.h"
#include "core/options.h"

TRM_BEGIN_DECLS

enum trm_axis_name { TRM_AXIS_DATA, TRM_AXIS_PIPELINE, TRM_AXIS_TENSOR, TRM_AXES };

struct trm_grid {
  int size[TRM_AXES], coord[TRM_AXES];
  struct trm_comm *axis[TRM_AXES]; /* rank in it: the place */
  struct trm_comm *all;            /* the job, ranks in the grid's order; rank 0 is the job's */
  struct trm_comm *model;          /* the ranks that hold the parts of one copy of the model: pipeline x tensor */
};

TRM_END_DECLS
#endif
