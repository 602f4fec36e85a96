/* The layers that exist, for the table, and what others need to know of some (private to src/nn). */
#pragma once

#include "nn/layer.h"

/* The sum of two values: not in the table, the model's text makes it (nn/model_text.c) and the model runs it. */
extern const struct trm_layer_ops layer_add;

/* The low-rank adapter of a linear layer (Hu et al. 2021): lora_A, scale, lora_B, of which lora_B's value is added to
 * the layer's. Not in the table either, the layer's arguments lora= and alpha= make them (nn/model_text.c). */
extern const struct trm_layer_ops layer_lora_a, layer_scale, layer_lora_b;

/* Stands for the value that another rank computes: not in the table, cutting a model makes it (nn/partition.c). */
extern const struct trm_layer_ops layer_chunk_input;

/* Reshard layers, put between others by tensor parallelism (nn/sharding.c): not in the table either. */
extern const struct trm_layer_ops layer_all_reduce, layer_reduce_scatter, layer_all_gather_partial, layer_all_gather,
  layer_slice;

extern const struct trm_layer_ops layer_linear, layer_relu, layer_leaky_relu, layer_silu,
  layer_gelu, layer_gelu_tanh, layer_tanh, layer_sigmoid,
  layer_dropout, layer_layer_norm, layer_rms_norm, layer_embedding, layer_position, layer_rotary, layer_attention,
  layer_swiglu, layer_head, layer_conv2d, layer_max_pool, layer_avg_pool, layer_global_avg_pool, layer_batch_norm,
  layer_flatten;

/* Returns true if the layer is an element-wise activation that linear layers fuse; its kind is ops->variant. */
bool trm_layer_is_activation(const struct trm_layer *layer);

/* Of a linear layer: the rank of its adapter, 0: it has none, and *scale, alpha / rank. */
size_t trm_layer_adapter(const struct trm_layer *layer, float *scale);

/* Returns the arguments of a dropout layer's kernel, without arrays; without a mask the rate is 0. */
struct trm_dropout trm_layer_dropout_call(const struct trm_layer *layer, const struct trm_pass *pass);

struct trm_conv2d trm_layer_conv2d(const struct trm_layer *layer);

/* Returns the arguments of a batch norm's kernel in evaluation, without x and y. */
struct trm_batch_norm_forward trm_layer_batch_norm_call(const struct trm_layer *layer);
