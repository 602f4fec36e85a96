/* Activation checkpointing (Chen et al. 2016; private to src/nn).
 *
 * The chain of a chunk consists of segments. Of all but the last segment forward keeps only the values that another
 * segment reads: the segments' inputs. Before the backward of such a segment the layers whose values it needs are
 * recomputed.
 *
 * Segments consist of blocks. With residual branches a block ends where a branch begins, and behind a branch before the
 * next layer with parameters, so that it is a branch with the activation or pooling that follows it; what comes before
 * the first branch is a segment of its own. Without branches it is a layer with parameters and what follows it up to
 * the next one. */
#pragma once

#include "nn/layer.h"

/* Plans layers [first, last) in segments of `blocks` blocks, 0: one segment. For each layer, by its index: end of its
 * segment, and recompute. recompute_last: the last segment is recomputed, too. */
void trm_recompute_plan(const struct trm_layer *layer, int first, int last, int blocks, bool recompute_last, int *end,
                        bool *recompute);
