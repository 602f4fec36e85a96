/* What a stage's share of a step takes, with a layout: computation, the axes of tensor and data, the update (private to
 * src/train). */
#ifndef TRM_PLAN_STAGE_COST_H
#define TRM_PLAN_STAGE_COST_H

#include "plan/layout.h"

/* What is looked at. */
struct cost_context {
  const struct trm_layout_job *job;
  const struct trm_layout *layout;
  const struct trm_layout_models *models;
  const struct trm_machine *machine;
  size_t rows; /* of a micro-batch, on a rank of the data axis */
  int micros;
};

/* One micro-batch through one chunk. */
struct action_cost {
  double compute, tensor, data; /* seconds of passes, of the tensor axis, of the data axis */
};

struct stage_cost {
  struct action_cost cost[2][TRM_MAX_CHUNKS];      /* forward, backward */
  double message_bytes[TRM_MAX_CHUNKS];                  /* bytes a chunk takes from the piece before; 0: it has the batch */
  double update_s;                                   /* when all gradients are there, to the end of the update */
  double tensor_bytes, data_bytes, pipeline_bytes; /* from others, in a step */
};

/* cost: zeroed; of a rank of stage s that has a core to itself. */
void stage_cost_compute(const struct cost_context *c, int s, struct stage_cost *cost);
/* Seconds of a message between stages, with its copies into and out of its buffer. */
double stage_message_seconds(const struct cost_context *c, double bytes, bool on_node);

#endif
