/* Layers that move values between the ranks of the tensor axis, and their gradients back: nn/sharding.c puts them between
 * others. Their slice says how the whole, (outer, whole, inner) of a sample, is divided. */
#include "core/axis.h"
#include "nn/layers/layers.h"

static void reshard_apply(const struct trm_layer *layer, const struct trm_pass *pass, enum trm_reshard kind,
                          const struct trm_shape *from_shape, const float *from, float *to)
{
  const struct trm_slice *slice = &layer->slice;
  const size_t b = pass->input->rows, outer = b * slice->outer;
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
  reshard_apply(layer, pass, layer->reshard[0], &layer->in, x, y);
}

static void reshard_backward(struct trm_layer *layer, const struct trm_pass *pass, const float *x, const float *y,
                             const float *dy, float *dx, float *work)
{
  (void)x, (void)y, (void)work;
  if (dx)
    reshard_apply(layer, pass, layer->reshard[1], &layer->out, dy, dx);
}

static struct trm_cost reshard_cost(const struct trm_layer *layer)
{
  (void)layer;
  return (struct trm_cost){0};
}

const struct trm_layer_ops layer_all_reduce = {
  .name = "sum",
  .usage = "sum",
  .forward = reshard_forward,
  .backward = reshard_backward,
  .cost = reshard_cost,
  .in_place = true,
};

const struct trm_layer_ops layer_reduce_scatter = {
  .name = "scatter",
  .usage = "scatter",
  .forward = reshard_forward,
  .backward = reshard_backward,
  .cost = reshard_cost,
};

const struct trm_layer_ops layer_all_gather_partial = {
  .name = "spread",
  .usage = "spread",
  .forward = reshard_forward,
  .backward = reshard_backward,
  .cost = reshard_cost,
};

const struct trm_layer_ops layer_all_gather = {
  .name = "gather",
  .usage = "gather",
  .forward = reshard_forward,
  .backward = reshard_backward,
  .cost = reshard_cost,
};

const struct trm_layer_ops layer_slice = {
  .name = "take",
  .usage = "take",
  .forward = reshard_forward,
  .backward = reshard_backward,
  .cost = reshard_cost,
};
