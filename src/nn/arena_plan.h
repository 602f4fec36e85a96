/* The activation arena, planned before any memory is taken (private to src/nn).
 *
 * Every array of a step has a lifetime; arrays whose lifetimes do not overlap share memory. Values that backward reads
 * are kept or recomputed (trm_recompute_plan); layers work in place where they may. The gradient of a value with several
 * readers is the sum of their contributions. */
#pragma once

#include "nn/layer.h"

/* The places of a layer's contribution to the gradient of one value that it reads: offsets into the arena.
 * Contributions of several readers are added in backward order. */
struct trm_gradient_flow {
  size_t write;     /* where backward writes its contribution; an add's is the gradient of its output itself */
  bool accumulates; /* then: sum = earlier + write */
  size_t earlier, sum;
};

struct trm_arena_plan {
  int first, last; /* of these layers: [first, last) of the model's; the arrays have places for all */
  bool recompute_last; /* the last segment is recomputed, too */
  int *segment_end; /* (layers) end of the layer's segment */
  bool *recompute; /* (layers) forward runs again before the segment's backward */
  size_t *value; /* (2, layers) offset of the layer's output in forward, and where backward finds it; equal to
                    what it reads: in place */
  size_t *gradient; /* (layers) offset of the whole gradient of that output; where needs_dy */
  size_t *work; /* (2, layers) of the workspace, likewise; unused where the layer wants none */
  size_t *scratch; /* (3, layers) of the scratch: in forward, when forward runs again, in backward; likewise */
  struct trm_gradient_flow *flow; /* (layers, 2): from, with; where they need the gradient */
  size_t elements; /* of the arena, for `rows` rows */
  size_t transient_offset; /* offsets from here on are into the memory that the slots share; SIZE_MAX: none are */
};

struct trm_arena_request {
  size_t rows;             /* batches of up to so many */
  bool training;           /* with backward */
  int recompute_blocks;    /* blocks a segment, 0: nothing is computed again */
  bool separate_transient; /* arrays of one pass only are placed behind the others, in memory that micro-batches in
                              flight share; values and gradients at the ends of the chain are not among them. The last
                              segment is then recomputed, too, unless it ends with the scores */
};

/* Plans layers [first, last). Release with trm_arena_plan_free. */
struct trm_arena_plan *trm_arena_plan_create(struct trm_layer *layer, int first, int last,
                                             const struct trm_arena_request *request);
void trm_arena_plan_free(struct trm_arena_plan *plan);

/* Activation checkpointing (Chen et al. 2016), recompute.c.
 *
 * The chain of a chunk consists of segments. Of all but the last segment forward keeps only the values that another
 * segment reads: the segments' inputs. Before the backward of such a segment the layers whose values it needs are
 * recomputed.
 *
 * Segments consist of blocks. With residual branches a block ends where a branch begins, and behind a branch before the
 * next layer with parameters, so that it is a branch with the activation or pooling that follows it; what comes before
 * the first branch is a segment of its own. Without branches it is a layer with parameters and what follows it up to
 * the next one.
 *
 * Plans layers [first, last) in segments of `blocks` blocks, 0: one segment. For each layer, by its index: end of its
 * segment, and recompute. recompute_last: the last segment is recomputed, too. */
void trm_recompute_plan(const struct trm_layer *layer, int first, int last, int blocks, bool recompute_last, int *end,
                        bool *recompute);
