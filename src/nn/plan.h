/* The activation arena, planned before any memory is taken (private to src/nn).
 *
 * Every array of a step lives from one moment to another; arrays whose lives do not meet share memory. What backward
 * reads is kept, layers that may work in place do, gradients alternate between few places. A value that several layers
 * read collects its gradient. */
#ifndef TRM_NN_PLAN_H
#define TRM_NN_PLAN_H

#include "nn/layer.h"

/* What happens to a layer's gradient of one value that it reads. Offsets into the arena; contributions of several
 * readers of a value are added, the later one in backward order to what is there. */
struct trm_flow {
  size_t write;          /* where backward writes its contribution; an add's is the gradient of its output itself */
  bool adds;             /* then: sum = earlier + write */
  size_t earlier, sum;
};

struct trm_plan {
  int first, last;        /* of these layers: [first, last) of the model's; the arrays have places for all */
  size_t *value;          /* (layers) offset of the layer's output; equal to what it reads: in place */
  size_t *gradient;       /* (layers) offset of the whole gradient of that output; where needs_dy */
  size_t *work;           /* (layers) offset of the workspace; unused where the layer wants none */
  size_t *scratch;        /* (2, layers) of the scratch, in forward and in backward; likewise */
  struct trm_flow *flow;  /* (layers, 2): from, with; where they need the gradient */
  size_t elements;        /* of the arena, for `rows` rows */
};

/* Plans layers [first, last) for batches of up to `rows` rows; training: with backward. Release with trm_plan_free. */
struct trm_plan *trm_plan_create(const struct trm_layer *layer, int first, int last, size_t rows, bool training);
void trm_plan_free(struct trm_plan *plan);

#endif
