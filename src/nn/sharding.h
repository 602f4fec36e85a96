/* Tensor parallelism: the list of all layers becomes that of one rank of the tensor axis (private to src/nn).
 *
 * Each rank has a slice of the weights of the layers that can be divided. A value then lies on the ranks in one of
 * three ways (enum trm_sharding_kind), and where it lies otherwise than its reader takes it, layers that move it are put
 * between (layers/reshard.c). Arithmetic never communicates. What moves forward has a conjugate that moves the gradient
 * back (Shoeybi et al. 2019; with positions Korthikanti et al. 2022):
 *
 *   sum       of summands, to a whole       forward: all-reduce        backward: nothing
 *   fan       of a whole, to layers each    forward: nothing           backward: all-reduce (layer->fans: no layer
 *             with a part of the work                                            of its own, the model sums what the
 *                                                                                layer gives)
 *   scatter   of summands, to positions     forward: reduce-scatter    backward: all-gather
 *   spread    of positions, to layers each  forward: all-gather        backward: reduce-scatter
 *             with a part of the work
 *   gather    of parts, to a whole          forward: all-gather        backward: the own part
 *   take      of a whole, to parts          forward: the own part      backward: all-gather
 *
 * The gradient of a whole value is whole, too: on every rank the gradient of the loss, not a summand of it, and the
 * same bits. So parameters that every rank has whole, such as the bias of a row-split layer, get the same gradient on
 * each, but those of layers that see some positions alone, whose gradients are `partial`.
 *
 * Layers with weights: from a whole input, columns: each rank computes some of the output's features; from features,
 * rows: each rank computes a summand of the output from those features that it has. So of two linear layers, with
 * activations between, the first is split by columns and the second by rows, and they communicate once in forward and
 * once in backward.
 */
#ifndef TRM_NN_SHARDING_H
#define TRM_NN_SHARDING_H

#include "nn/partition.h"
#include "nn/layer.h"

TRM_BEGIN_DECLS

/* What a layer is told, and what it answers. */
struct trm_shard_request {
  int rank, size;
  struct trm_sharding current;     /* how the input lies; of an embedding's: whole */
  struct trm_sharding preferred;    /* how readers would like the output: features, or whole: nobody has a wish */
  struct trm_sharding in, out; /* the answer: how it takes its input, how its output lies (sums: whole) */
};

/* takes_features: the loss takes scores that lie as features. New arrays for *layer and *layers. */
int trm_model_shard(const struct trm_model_part *part, bool sharded_loss, struct trm_layer **layer, int *layers);

/* -- for the layers' wish and divide */

struct trm_sharding trm_sharding_by_feature(size_t groups, size_t units, size_t width);
/* (C, H, W): by channels; sequences and vectors: by single features */
struct trm_sharding trm_sharding_of_shape(const struct trm_shape *shape);

/* Answers, and makes layer->in and layer->out those of the part. On entry they are the whole ones. */
void trm_shard_layer(struct trm_layer *layer, struct trm_shard_request *request, struct trm_sharding in,
                     struct trm_sharding out);
/* Input and output lie alike, as the input does; the wish is the readers'. For layers that work element by element. */
int trm_shard_like_input(struct trm_layer *layer, struct trm_shard_request *request);
struct trm_sharding trm_prefer_output_sharding(const struct trm_layer *layer, const struct trm_sharding *out);
/* Leaves of the parameter the part of dimension dim, which is (groups, units, the rest). */
void trm_shard_parameter(const struct trm_shard_request *request, struct trm_parameter *parameter, int dim,
                         size_t groups, size_t units);
/* The features' part that is this rank's, and how many units of them. */
size_t trm_shard_units(const struct trm_shard_request *request, size_t units);

TRM_END_DECLS
#endif
