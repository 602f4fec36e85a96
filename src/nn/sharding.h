/* Tensor parallelism: turns the list of all layers into that of one rank of the tensor axis (private to src/nn).
 *
 * Each rank holds a slice of the weights of the layers that can be sharded. A value is sharded in one of three ways
 * (enum trm_sharding_kind); if a reader needs another one, reshard layers are inserted (layers/reshard.c). Other
 * layers never communicate. Each collective in forward has a conjugate in backward (Shoeybi et al. 2019; by position,
 * which is sequence parallelism: Korthikanti et al. 2022):
 *
 *   layer               forward                                 backward
 *   all_reduce          partial sums -> replicated: all-reduce  nothing
 *   grad_input_partial  nothing                                 all-reduce of dx, by the model: not a layer
 *   reduce_scatter      partial sums -> by position             all-gather
 *   all_gather_partial  by position -> replicated: all-gather   reduce-scatter of partial sums
 *   all_gather          shards -> replicated                    slice
 *   slice               replicated -> shard                     all-gather
 *
 * The gradient of a replicated value is replicated, too: on every rank the same bits, not a partial sum. Parameters
 * that every rank holds whole, such as the bias of a row-parallel layer, therefore get the same gradient on each. Those
 * of layers that see some positions only have partial gradients (trm_parameter.gradient_partial).
 *
 * Layers with weights are column-parallel on a replicated input: each rank computes some of the output features. They
 * are row-parallel on an input that is sharded by feature: each rank computes a partial sum of the output. Two linear
 * layers with activations between communicate once in forward and once in backward.
 */
#pragma once

#include "nn/partition.h"
#include "nn/layer.h"

TRM_BEGIN_DECLS

/* The arguments of a shard slot, and its results in and out. */
struct trm_shard_request {
  int rank, size;
  struct trm_sharding current;   /* of the input; the batch is replicated; of an add: one that both operands can have */
  struct trm_sharding preferred; /* the readers' preference for the output: by feature, or replicated: none */
  struct trm_sharding beside;    /* of the value that the next layer adds its output to; replicated: none */
  struct trm_sharding in, out;   /* results: sharding of its input and output (partial sums: replicated) */
};

/* Replaces *layer by the list of this rank; their settings move with them. sharded_loss: the loss takes scores that are
 * sharded by feature. Errors name the layer that cannot be sharded; *layer then still is the old list. */
int trm_model_shard(const struct trm_model_part *part, bool sharded_loss, struct trm_layer **layer, int *layers);

/* -- for preferred_sharding and shard slots */

extern const struct trm_sharding trm_sharding_replicated;
struct trm_sharding trm_sharding_by_feature(size_t groups, size_t units, size_t width);
/* By feature: images (C, H, W) by channel, sequences and vectors by single feature. */
struct trm_sharding trm_sharding_of_shape(const struct trm_shape *shape);

/* Sets request->in and out, and reduces layer->in and layer->out from the whole shapes to those of the shard. */
void trm_shard_layer(struct trm_layer *layer, struct trm_shard_request *request, struct trm_sharding in,
                     struct trm_sharding out);
/* Slots for element-wise layers: the output is sharded as the input; readers' preferences are passed on. */
int trm_shard_like_input(struct trm_layer *layer, struct trm_shard_request *request);
struct trm_sharding trm_prefer_output_sharding(const struct trm_layer *layer, const struct trm_sharding *out);
/* Reduces the parameter to this rank's slice of dimension dim, which is (groups, units, the rest). */
void trm_shard_parameter(const struct trm_shard_request *request, struct trm_parameter *parameter, int dim,
                         size_t groups, size_t units);
/* Shards a layer with weights (N, K, ..) and bias (N); N units, each of `size` values of a sample or position. Features
 * of the input meet columns of the weights and make partial sums; otherwise each rank has some units, if there are
 * enough. A tied layer has the embedding's rows. */
void trm_shard_weights(struct trm_layer *layer, struct trm_shard_request *request, struct trm_weight_settings *weights,
                       size_t size);
/* Returns this rank's number of units. */
size_t trm_shard_units(const struct trm_shard_request *request, size_t units);

TRM_END_DECLS
