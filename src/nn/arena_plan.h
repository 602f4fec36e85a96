/* The activation arena, planned before any memory is taken (private to src/nn).
 *
 * Every array of a step has a lifetime; arrays whose lifetimes do not overlap share memory. Values that backward reads
 * are kept or recomputed (trm_recompute_plan); layers work in place where they may. The gradient of a value with
 * several readers is the sum of their contributions. */
#pragma once

#include "nn/layer.h"

/* Offsets into the arena, in bytes, of a layer's contribution to the gradient of one value that it reads. Contributions
 * of several readers are added in backward order. */
struct trm_gradient_flow {
  size_t write;     /* the contribution; an add's is the gradient of its output */
  bool accumulates; /* if so: sum = earlier + write */
  size_t earlier, sum;
};

/* The layers [first, end) that a layer's call computes; none: another layer's call computes it. */
struct trm_span {
  int first, end;
};

struct trm_arena_plan {
  int first, last; /* layers [first, last) of the model's; arrays have entries for all layers */
  int *segment_end; /* (layers) end of the layer's segment */
  bool *recompute; /* (layers) recomputed before the segment's backward */
  size_t *value; /* (2, layers) offset, in bytes, of the output in forward, and in backward; its input's: in place */
  size_t *gradient; /* (layers) offset of the output's whole gradient; if needs_dy */
  size_t *work; /* (2, layers) of the workspace, likewise; unused without one */
  size_t *scratch; /* (3, layers) of the scratch: in forward, recomputation, backward */
  size_t *copy; /* (3, layers) of the copies of the layer's weights, likewise; unused without copy_weights */
  struct trm_gradient_flow *flow; /* (layers, 2): for the operands that need a gradient */
  struct trm_span *span; /* (2, layers) of forward, of recomputation (fusion.h) */
  int *backward_in; /* (layers) the layer whose backward computes this one's: itself or a neighbor (fusion.h) */
  int *chain; /* (layers) inference: the end of the layers that a fused convolution computes (conv_chain.h); 0: none */
  bool *blocked; /* (layers) the layer's value is a blocked array (core/kernels.h) */
  size_t input; /* offset of the batch as values; unused unless reads_input */
  size_t loss_chunk; /* vectors of the last layer that are computed at a time; 0: all. The layer's forward and backward
                        are then at the time of the loss */
  bool reads_input; /* the batch is converted (convert_input), and a layer reads it */
  size_t bytes; /* of the arena, for `rows` rows */
  size_t transient_offset; /* larger offsets are into memory shared by the slots; SIZE_MAX: none */
};

struct trm_arena_request {
  size_t rows;             /* maximum rows of a batch */
  bool training;           /* with backward */
  enum trm_value_type values;
  size_t convert_input;    /* values of a row of the batch, which is converted to the type; 0: it is read as it is */
  bool copy_weights;       /* a layer converts the weights that its products read just before each use */
  int recompute_blocks;    /* blocks per segment, 0: no recomputation */
  size_t loss_chunk;       /* of the plan, in training; 0: all vectors at a time */
  struct trm_device *trains; /* training: the device, which may want images with the channels last; NULL: usual ones */
  struct trm_device *infers; /* inference with whole weights on this device, in float32; NULL: it is not */
  bool separate_transient; /* arrays of a single pass are placed after the others, in memory shared by micro-batches in
                              flight, except values and gradients at the ends of the chain. The last segment is then
                              recomputed, too, unless it ends with the scores */
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
