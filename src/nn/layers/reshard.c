/* Layers that reshard values over the tensor axis, and their gradients in backward; sharding.c inserts them between
 * others. layer->slice is this rank's part of a row, (outer, extent, inner). Collective over pass->tensor_axis, except
 * TRM_RESHARD_NONE and TRM_RESHARD_SLICE. */
#include "core/axis.h"
#include "nn/layers/layers.h"

static void reshard_apply(const struct trm_layer *layer, const struct trm_pass *pass, enum trm_reshard kind,
                          const struct trm_shape *from_shape, const float *from, float *to)
{
  const struct trm_slice *slice = &layer->slice;
  const size_t b = layer->rows, outer = b * slice->outer;
  const size_t n = b * trm_shape_count(from_shape);
  switch (kind) {
  case TRM_RESHARD_NONE:
  case TRM_RESHARD_ALL_REDUCE:
    if (to != from)
      pass->device->ops->copy(pass->device, to, from, n * sizeof *to);
    if (kind == TRM_RESHARD_ALL_REDUCE)
      trm_axis_allreduce(pass->tensor_axis, to, n);
    break;
  case TRM_RESHARD_ALL_GATHER:
    trm_axis_allgather(pass->tensor_axis, from, to, outer, slice->extent, slice->inner);
    break;
  case TRM_RESHARD_SLICE:
    trm_axis_slice(pass->tensor_axis, from, to, outer, slice->extent, slice->inner);
    break;
  case TRM_RESHARD_REDUCE_SCATTER:
    trm_axis_reduce_scatter(pass->tensor_axis, from, to, outer, slice->extent, slice->inner);
    break;
  }
}

static void reshard_forward(struct trm_layer *layer, const struct trm_pass *pass, const float *x, float *y, float *work)
{
  (void)work;
  reshard_apply(layer, pass, layer->ops->reshard[0], &layer->in, x, y);
}

static void reshard_backward(struct trm_layer *layer, const struct trm_pass *pass, const float *x, const float *y,
                             const float *dy, float *dx, float *work)
{
  (void)x, (void)y, (void)work;
  if (dx)
    reshard_apply(layer, pass, layer->ops->reshard[1], &layer->out, dy, dx);
}

const struct trm_layer_ops layer_all_reduce = {
  .name = "all_reduce",
  .usage = "all_reduce",
  .forward = reshard_forward,
  .backward = reshard_backward,
  .reshard = {TRM_RESHARD_ALL_REDUCE, TRM_RESHARD_NONE},
  .cost = trm_layer_cost_none,
  .in_place = true,
};

const struct trm_layer_ops layer_reduce_scatter = {
  .name = "reduce_scatter",
  .usage = "reduce_scatter",
  .forward = reshard_forward,
  .backward = reshard_backward,
  .reshard = {TRM_RESHARD_REDUCE_SCATTER, TRM_RESHARD_ALL_GATHER},
  .cost = trm_layer_cost_none,
};

const struct trm_layer_ops layer_all_gather_partial = {
  .name = "all_gather_partial",
  .usage = "all_gather_partial",
  .forward = reshard_forward,
  .backward = reshard_backward,
  .reshard = {TRM_RESHARD_ALL_GATHER, TRM_RESHARD_REDUCE_SCATTER},
  .cost = trm_layer_cost_none,
};

const struct trm_layer_ops layer_all_gather = {
  .name = "all_gather",
  .usage = "all_gather",
  .forward = reshard_forward,
  .backward = reshard_backward,
  .reshard = {TRM_RESHARD_ALL_GATHER, TRM_RESHARD_SLICE},
  .cost = trm_layer_cost_none,
};

const struct trm_layer_ops layer_slice = {
  .name = "slice",
  .usage = "slice",
  .forward = reshard_forward,
  .backward = reshard_backward,
  .reshard = {TRM_RESHARD_SLICE, TRM_RESHARD_ALL_GATHER},
  .cost = trm_layer_cost_none,
};
