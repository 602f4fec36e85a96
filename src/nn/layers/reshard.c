/* Layers that are not in a model's text. Reshard layers move values over the tensor axis, and their gradients in
 * backward; sharding.c inserts them between others. layer->slice is this rank's part of a row, (outer, extent, inner).
 * Collective over pass->tensor_axis, except TRM_RESHARD_NONE and TRM_RESHARD_SLICE. */
#include "core/axis.h"
#include "nn/layers/layers.h"

static void reshard_apply(const struct trm_layer *layer, const struct trm_pass *pass, bool backward, const void *from,
                          void *to)
{
  const enum trm_reshard kind = layer->ops->reshard[backward];
  const struct trm_slice *slice = &layer->slice;
  const size_t outer = layer->rows * slice->outer;
  const size_t n = layer->rows * trm_shape_count(backward ? &layer->out : &layer->in);
  switch (kind) {
  case TRM_RESHARD_NONE:
  case TRM_RESHARD_ALL_REDUCE:
    if (to != from)
      pass->device->ops->copy(pass->device, to, from, n * trm_value_bytes(layer->values));
    if (kind == TRM_RESHARD_ALL_REDUCE)
      trm_axis_allreduce(pass->tensor_axis, to, n, layer->values);
    break;
  case TRM_RESHARD_ALL_GATHER:
    trm_axis_allgather(pass->tensor_axis, from, to, outer, slice->extent, slice->inner, layer->values);
    break;
  case TRM_RESHARD_SLICE:
    trm_axis_slice(pass->tensor_axis, from, to, outer, slice->extent, slice->inner, layer->values);
    break;
  case TRM_RESHARD_REDUCE_SCATTER:
    trm_axis_reduce_scatter(pass->tensor_axis, from, to, outer, slice->extent, slice->inner, layer->values);
    break;
  }
}

#define RESHARD                                                                                 \
  .takes_bf16 = true, .forward = trm_layer_apply_forward, .backward = trm_layer_apply_backward, \
  .apply = reshard_apply, .cost = trm_layer_cost_none

const struct trm_layer_ops layer_all_reduce = {
  RESHARD, .name = "all_reduce", .usage = "all_reduce", .reshard = {TRM_RESHARD_ALL_REDUCE, TRM_RESHARD_NONE},
  .in_place = true};

const struct trm_layer_ops layer_reduce_scatter = {
  RESHARD, .name = "reduce_scatter", .usage = "reduce_scatter",
  .reshard = {TRM_RESHARD_REDUCE_SCATTER, TRM_RESHARD_ALL_GATHER}};

const struct trm_layer_ops layer_all_gather_partial = {
  RESHARD, .name = "all_gather_partial", .usage = "all_gather_partial",
  .reshard = {TRM_RESHARD_ALL_GATHER, TRM_RESHARD_REDUCE_SCATTER}};

const struct trm_layer_ops layer_all_gather = {
  RESHARD, .name = "all_gather", .usage = "all_gather", .reshard = {TRM_RESHARD_ALL_GATHER, TRM_RESHARD_SLICE}};

const struct trm_layer_ops layer_slice = {
  RESHARD, .name = "slice", .usage = "slice", .reshard = {TRM_RESHARD_SLICE, TRM_RESHARD_ALL_GATHER}};

/* The first layer of a pipeline chunk: its output is the value that another rank computes and sends (partition.h), its
 * gradient is sent back. It computes nothing. */
const struct trm_layer_ops layer_chunk_input = {
  .takes_bf16 = true, .name = "chunk_input", .usage = "chunk_input", .cost = trm_layer_cost_none};
