/* The activation arena, planned before any memory is taken (private to src/nn).
 *
 * Every array of a step lives from one moment to another; arrays whose lives do not meet share memory. What backward
 * reads is kept, or computed again (recompute.h), layers that may work in place do, gradients alternate between few
 * places. A value that several layers read collects its gradient. */
#ifndef TRM_NN_ARENA_PLAN_H
#define TRM_NN_ARENA_PLAN_H

#include "nn/layer.h"

/* What happens to a layer's gradient of one value that it reads. Offsets into the arena; contributions of several
 * readers of a value are added, the later one in backward order to what is there. */
struct trm_gradient_flow {
  size_t write;          /* where backward writes its contribution; an add's is the gradient of its output itself */
  bool accumulates;             /* then: sum = earlier + write */
  size_t earlier, sum;
};

struct trm_arena_plan {
  int first, last;        /* of these layers: [first, last) of the model's; the arrays have places for all */
  bool recompute_last;             /* the last segment computes again, too */
  int *segment_end;               /* (layers) end of the layer's segment */
  bool *recompute;            /* (layers) forward runs again before the segment's backward */
  size_t *value;          /* (2, layers) offset of the layer's output in forward, and where backward finds it; equal to
                             what it reads: in place */
  size_t *gradient;       /* (layers) offset of the whole gradient of that output; where needs_dy */
  size_t *work;           /* (2, layers) of the workspace, likewise; unused where the layer wants none */
  size_t *scratch;        /* (3, layers) of the scratch: in forward, when forward runs again, in backward; likewise */
  struct trm_gradient_flow *flow;  /* (layers, 2): from, with; where they need the gradient */
  size_t elements;        /* of the arena, for `rows` rows */
  size_t transient_offset;           /* offsets from here on are into what the slots share; no larger than elements, or SIZE_MAX */
};

struct trm_arena_request {
  size_t rows;    /* batches of up to so many */
  bool training;  /* with backward */
  int recompute_blocks;  /* blocks a segment, 0: nothing is computed again */
  bool
    separate_transient; /* what does not outlast a pass lies behind what does: other micro-batches may use its memory between
                     forward and backward. The values and gradients at the ends of the chain stay. Then the last segment
                     is computed again, too, unless it ends with the scores: backward does not follow at once. */
};

/* Plans layers [first, last). Release with trm_arena_plan_free. */
struct trm_arena_plan *trm_arena_plan_create(struct trm_layer *layer, int first, int last,
                                             const struct trm_arena_request *request);
void trm_arena_plan_free(struct trm_arena_plan *plan);

#endif
