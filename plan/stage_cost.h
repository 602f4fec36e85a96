/* The cost of a stage's part of a step: computation, tensor and data axes, update (private to plan). */
#pragma once

#include "plan/layout.h"

/* The layout whose stages are estimated. Nothing is owned. */
struct cost_context {
  const struct trm_layout_job *job;
  const struct trm_layout *layout;
  const struct trm_layout_models *models;
  size_t rows; /* of a micro-batch on one rank */
  int micros;  /* micro-batches of a step */
};

/* One pass of a micro-batch through a chunk. */
struct action_cost {
  double compute, tensor, data; /* seconds of computation, and of communication by axis */
};

struct stage_cost {
  struct action_cost cost[2][TRM_MAX_CHUNKS];      /* forward, backward */
  double message_bytes[TRM_MAX_CHUNKS];            /* that a chunk receives for a micro-batch; 0: it reads the batch */
  double update_s;                                 /* from the last gradient to the end of the update */
  double tensor_bytes, data_bytes, pipeline_bytes; /* received in a step */
  double between_nodes;                            /* bytes of sums sent to other nodes or replicas in a step */
};

/* Computes the cost of stage s for a rank with a dedicated core. cost: zeroed by the caller. */
void stage_cost_compute(const struct cost_context *c, int s, struct stage_cost *cost);
/* Seconds of a micro-batch of so many rows through a whole model on one core, forward, loss and backward. */
double stage_gradient_seconds(const struct trm_machine *machine, const struct trm_model *model, size_t rows);
/* Seconds of a message between stages, its copies into and out of the buffers included. */
double stage_message_seconds(const struct cost_context *c, double bytes, bool on_node);
