/* swiglu (Shazeer 2020): the first half of the values, through silu, gates the second. */
#include "core/status.h"
#include "nn/graph.h"
#include "nn/layers/layers.h"
#include "nn/sharding.h"

static int swiglu_shape(struct trm_layer *layer)
{
  TRM_CHECK(trm_layer_require_dense(layer));
  if ((layer->in.dims != 1 && !layer->in.sequence) || trm_layer_width(layer) % 2 != 0)
    return trm_error(TRM_USAGE, "%s: takes vectors or sequences of an even number of values, not samples of shape %s",
                     trm_layer_text(layer), trm_shape_text(&layer->in));
  layer->out = layer->in;
  layer->out.size[layer->in.dims - 1] /= 2;
  return TRM_OK;
}

static void swiglu_forward(struct trm_layer *layer, const struct trm_pass *pass, const float *x /* (R, 2, F) */,
                           float *y /* (R, F) */, float *work)
{
  (void)work;
  pass->device->ops->swiglu_forward(pass->device, x, y, trm_layer_rows(layer), trm_layer_width(layer) / 2);
}

static void swiglu_backward(struct trm_layer *layer, const struct trm_pass *pass, const float *x, const float *y,
                            const float *dy, float *dx, float *work)
{
  (void)y, (void)work;
  const size_t r = trm_layer_rows(layer), f = trm_layer_width(layer) / 2;
  if (dx)
    pass->device->ops->swiglu_backward(pass->device, x, dy, dx, r, f);
}

static int swiglu_export(const struct trm_layer *layer, struct trm_graph *graph, int x)
{
  (void)layer;
  const int a = trm_graph_split(graph, x, 2), b = a + 1;
  return trm_graph_binary(graph, "Mul", trm_graph_binary(graph, "Mul", a, trm_graph_unary(graph, "Sigmoid", a)), b);
}

/* Both halves are sharded alike. */
static struct trm_sharding swiglu_preferred_sharding(const struct trm_layer *layer, const struct trm_sharding *out)
{
  return out->kind == TRM_SHARDED_BY_FEATURE && out->groups == 1
           ? trm_sharding_by_feature(2, out->units, out->width)
           : trm_sharding_by_feature(2, trm_layer_width(layer) / 2, 1);
}

static int swiglu_shard(struct trm_layer *layer, struct trm_shard_request *request)
{
  struct trm_sharding in = request->current, out = in;
  if (in.kind == TRM_SHARDED_BY_FEATURE && in.groups == 2)
    out = trm_sharding_by_feature(1, in.units, in.width);
  else if (in.kind == TRM_SHARDED_BY_FEATURE)
    in = out = trm_sharding_replicated;
  trm_shard_layer(layer, request, in, out);
  return TRM_OK;
}

const struct trm_layer_ops layer_swiglu = {
  .name = "swiglu",
  .usage = "swiglu",
  .shape = swiglu_shape,
  .forward = swiglu_forward,
  .backward = swiglu_backward,
  .cost_per_value = {.flop = 2, .bytes = 1.5 * sizeof(float)},
  .export_graph = swiglu_export,
  .preferred_sharding = swiglu_preferred_sharding,
  .shard = swiglu_shard,
  .keeps_input = true,
};
