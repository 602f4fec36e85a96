/* A part of a model: what one rank holds of it where layers, or the chain of layers, are divided over ranks.
 *
 * The tensor axis divides layers: each rank has a slice of their weights (sharding.h). The pipeline cuts the chain: a rank
 * has one or several chunks of it, each the layers between two cuts. What crosses a cut is one value, and in backward
 * its gradient; so a cut lies where only one value that was computed before it is read after it.
 *
 * In the part a chunk that reads another chunk's value begins with an entry: a layer without arithmetic, whose output
 * is what the other rank sends.
 */
#ifndef TRM_NN_PARTITION_H
#define TRM_NN_PARTITION_H

#include "nn/layer.h"

TRM_BEGIN_DECLS

#define TRM_MAX_CHUNKS 16 /* of one rank */

struct trm_layer_range {
  int first, last; /* layers [first, last) of the whole model */
};

struct trm_model_part {
  int tensor_rank, tensor_size;  /* place of this rank in the tensor axis, and the ranks of that */
  bool sequence_parallel;    /* what is computed whole in a split model is divided by positions of the sequence (sharding.h) */
  int chunks;           /* of this rank, ascending; 0: the whole chain is one */
  struct trm_layer_range chunk[TRM_MAX_CHUNKS];
};

/* May the chain of `layers` whole layers be cut before layer `at`, 0 < at < layers? */
bool trm_partition_allowed(const struct trm_layer *layer, int layers, int at);

/* Cuts the chain, whose needs are known, down to the part's chunks: new arrays for *layer and *layers, where chunks
 * follow one another, each after its entry. end[c]: where chunk c ends. A weight that is tied to one of another rank
 * becomes a parameter here, too: a copy that does not count. Errors name the cut that is not allowed. */
int trm_partition(const struct trm_model_part *part, struct trm_layer **layer, int *layers, int *end);

TRM_END_DECLS
#endif
