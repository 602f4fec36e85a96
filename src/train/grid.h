/* The process grid: the ranks of a job as data x pipeline x tensor.
 *
 *   data      ranks that shard each batch
 *   pipeline  stages, each with consecutive layers
 *   tensor    ranks that shard each layer
 *
 * A rank has one coordinate on each axis; the ranks that differ in one coordinate alone are the communicator of that
 * axis. Ranks of the tensor axis communicate in every layer, so their numbers are adjacent; then come those of the data
 * axis, which can share memory, then those of the pipeline:   rank = (stage * data + shard) * tensor + slice. */
#pragma once

#include "core/comm.h"
#include "core/options.h"

TRM_BEGIN_DECLS

enum trm_axis_name { TRM_AXIS_DATA, TRM_AXIS_PIPELINE, TRM_AXIS_TENSOR, TRM_AXES };

/* This rank's place in the process grid, and its communicators. */
struct trm_grid {
  int size[TRM_AXES], coord[TRM_AXES];
  struct trm_comm *axis[TRM_AXES]; /* this rank's communicator of each axis; its rank there is coord */
  struct trm_comm *all;            /* the job, ranks in the grid's order; rank 0 is the job's */
  struct trm_comm *model;          /* the ranks that hold the parts of one copy of the model: pipeline x tensor */
};

TRM_END_DECLS
