/* Flattens a sample to a vector. Layers that need vectors do so implicitly; this makes it explicit. */
#include "core/status.h"
#include "nn/graph.h"
#include "nn/layers/layers.h"
#include "nn/sharding.h"

static int flatten_shape(struct trm_layer *layer)
{
  TRM_CHECK(trm_layer_require_dense(layer));
  layer->out = (struct trm_shape){.dims = 1, .size = {trm_shape_count(&layer->in)}};
  return TRM_OK;
}

static void flatten_copy(const struct trm_layer *layer, const struct trm_pass *pass, bool backward, const void *from,
                         void *to)
{
  (void)backward;
  if (to != from)
    pass->device->ops->copy(pass->device, to, from, layer->rows * layer->out.size[0] * trm_value_bytes(layer->values));
}

static int flatten_export(const struct trm_layer *layer, struct trm_graph *graph, int x)
{
  return trm_graph_reshape(graph, x, &layer->out);
}

static struct trm_sharding flatten_preferred_sharding(const struct trm_layer *layer, const struct trm_sharding *out)
{
  return layer->in.dims == 1 ? *out : trm_sharding_of_shape(&layer->in);
}

/* A feature sharding becomes one of groups of the vector; a position sharding becomes a slice of it. */
static int flatten_shard(struct trm_layer *layer, struct trm_shard_request *request)
{
  const struct trm_sharding current = request->current;
  struct trm_sharding out = current;
  if (current.kind == TRM_SHARDED_BY_POSITION)
    out = trm_sharding_by_feature(1, layer->in.size[0], layer->in.size[1]);
  else if (current.kind == TRM_SHARDED_BY_FEATURE && layer->in.sequence)
    out.groups *= layer->in.size[0];
  trm_shard_layer(layer, request, current, out);
  return TRM_OK;
}

const struct trm_layer_ops layer_flatten = {
  .name = "flatten",
  .takes_bf16 = true,
  .usage = "flatten",
  .shape = flatten_shape,
  .forward = trm_layer_apply_forward,
  .backward = trm_layer_apply_backward,
  .apply = flatten_copy,
  .cost = trm_layer_cost_none,
  .export_graph = flatten_export,
  .preferred_sharding = flatten_preferred_sharding,
  .shard = flatten_shard,
  .in_place = true,
};
