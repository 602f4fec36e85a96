/* Layers that move values between the ranks of the tensor axis, and their gradients back: nn/split.c puts them between
 * others. Their slice says how the whole, (outer, whole, inner) of a sample, is divided. */
#include "core/axis.h"
#include "nn/layers/layers.h"

static void values_move(const struct trm_layer *layer, const struct trm_pass *pass, enum trm_move move,
                        const struct trm_shape *from_shape, const float *from, float *to)
{
  const struct trm_slice *slice = &layer->slice;
  const size_t b = pass->input->rows, outer = b * slice->outer;
  const size_t n = b * trm_shape_count(from_shape);
  switch (move) {
  case TRM_MOVE_NONE:
  case TRM_MOVE_SUM:
    if (to != from)
      pass->device->ops->copy(pass->device, to, from, n * sizeof *to);
    if (move == TRM_MOVE_SUM)
      trm_axis_sum(pass->tensor, to, n);
    break;
  case TRM_MOVE_GATHER:
    trm_axis_gather(pass->tensor, from, to, outer, slice->whole, slice->inner);
    break;
  case TRM_MOVE_TAKE:
    trm_axis_take(pass->tensor, from, to, outer, slice->whole, slice->inner);
    break;
  case TRM_MOVE_SCATTER:
    trm_axis_scatter_sum(pass->tensor, from, to, outer, slice->whole, slice->inner);
    break;
  }
}

static void move_forward(struct trm_layer *layer, const struct trm_pass *pass, const float *x, float *y, float *work)
{
  (void)work;
  values_move(layer, pass, layer->move[0], &layer->in, x, y);
}

static void move_backward(struct trm_layer *layer, const struct trm_pass *pass, const float *x, const float *y,
                          const float *dy, float *dx, float *work)
{
  (void)x, (void)y, (void)work;
  if (dx)
    values_move(layer, pass, layer->move[1], &layer->out, dy, dx);
}

static struct trm_cost move_cost(const struct trm_layer *layer)
{
  (void)layer;
  return (struct trm_cost){0};
}

const struct trm_layer_ops layer_move_sum = {
  .name = "sum",
  .usage = "sum",
  .forward = move_forward,
  .backward = move_backward,
  .cost = move_cost,
  .in_place = true,
};

const struct trm_layer_ops layer_move_scatter = {
  .name = "scatter",
  .usage = "scatter",
  .forward = move_forward,
  .backward = move_backward,
  .cost = move_cost,
};

const struct trm_layer_ops layer_move_spread = {
  .name = "spread",
  .usage = "spread",
  .forward = move_forward,
  .backward = move_backward,
  .cost = move_cost,
};

const struct trm_layer_ops layer_move_gather = {
  .name = "gather",
  .usage = "gather",
  .forward = move_forward,
  .backward = move_backward,
  .cost = move_cost,
};

const struct trm_layer_ops layer_move_take = {
  .name = "take",
  .usage = "take",
  .forward = move_forward,
  .backward = move_backward,
  .cost = move_cost,
};
