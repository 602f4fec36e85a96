/* The activation arena, planned before any memory is taken (private to src/nn).
 *
 * Every array of a step lives from one moment to another; arrays whose lives do not meet share memory. What backward
 * reads is kept, layers that may work in place do, gradients alternate between few places. */
#ifndef TRM_NN_PLAN_H
#define TRM_NN_PLAN_H

#include "nn/layer.h"

struct trm_plan {
  int layers;
  int bottom;       /* the lowest layer that has parameters: backward ends there */
  size_t *value;    /* (layers) offset of the layer's output; equal to the one before: in place */
  size_t *gradient; /* (layers) offset of the gradient of that output; unused below bottom */
  size_t *work;     /* (layers) offset of the workspace; unused where the layer wants none */
  size_t elements;  /* of the arena, for `rows` rows */
};

/* Plans for batches of up to `rows` rows; training: with backward. Release with trm_plan_free. */
struct trm_plan *trm_plan_create(const struct trm_layer *layer, int layers, size_t rows, bool training);
void trm_plan_free(struct trm_plan *plan);

#endif
