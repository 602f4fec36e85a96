/* One rank's part of a model.
 *
 * The tensor axis shards layers (sharding.h). The pipeline cuts the chain of layers: a rank has one or several chunks
 * of it. One value crosses a cut in forward, and its gradient in backward, so a cut is allowed where exactly one
 * earlier value is read later. A chunk that reads a value of another rank starts with a chunk_input layer, which
 * computes nothing: its output is received. */
#pragma once

#include "nn/layer.h"

TRM_BEGIN_DECLS

#define TRM_MAX_CHUNKS 16 /* of one rank */

/* An interval of layers. */
struct trm_layer_range {
  int first, last; /* layers [first, last) of the whole model */
};

/* This rank's part of a model. */
struct trm_model_part {
  int tensor_rank, tensor_size; /* rank on the tensor axis, and its size */
  bool sequence_parallel;       /* replicated values are sharded by position where possible (sharding.h) */
  int chunks;                   /* of this rank, ascending; 0: the whole chain is one */
  struct trm_layer_range chunk[TRM_MAX_CHUNKS];
  const char *freeze;           /* pattern of the names of parameters that are not trained ("": none), besides those of
                                   layers with adapters; NULL: all parameters are trained */
};

/* Returns true if the chain of `layers` whole layers may be cut before layer `at`, 0 < at < layers. */
bool trm_partition_allowed(const struct trm_layer *layer, int layers, int at);

/* Cuts the chain, whose needs are known, down to the part's chunks: new arrays for *layer and *layers, where chunks
 * follow one another, each after its entry. end[c]: where chunk c ends. A weight that is tied to one of another rank
 * becomes a parameter here, too: a copy that does not count. Errors name the cut that is not allowed. */
int trm_partition(const struct trm_model_part *part, struct trm_layer **layer, int *layers, int *end);

TRM_END_DECLS
