/* Multi-head self-attention (Vaswani et al. 2017) of queries, keys and values side by side (T, 3 D), as one linear
 * layer makes them: linear 3*D | attention heads=H | linear D. H heads of E = D / H values. */
#include <math.h>

#include "core/memory.h"
#include "core/status.h"
#include "nn/graph.h"
#include "nn/layers/layers.h"
#include "nn/sharding.h"

struct attention {
  size_t heads; /* of this rank */
  bool causal;
};

static int attention_create(struct trm_layer *layer, const struct trm_arguments *arguments)
{
  struct attention *a = layer->settings;
  a->causal = true;
  TRM_CHECK(trm_argument_reject_unknown(layer, arguments, 0, (const char *const[]){"heads", "causal", NULL}));
  TRM_CHECK(trm_argument_size(layer, arguments, -1, "heads", &a->heads));
  return trm_argument_bool(layer, arguments, "causal", &a->causal);
}

static int attention_shape(struct trm_layer *layer)
{
  const struct attention *a = layer->settings;
  TRM_CHECK(trm_layer_require_sequence(layer));
  if (layer->in.size[1] % (3 * a->heads) != 0)
    return trm_error(TRM_USAGE, "%s: takes queries, keys and values of %zu heads, (T, 3 D), not %s",
                     trm_layer_text(layer), a->heads, trm_shape_text(&layer->in));
  layer->out = layer->in;
  layer->out.size[1] /= 3;
  layer->workspace = 2 * a->heads * layer->in.size[0];
  return TRM_OK;
}

static struct trm_attention attention_dims(const struct trm_layer *layer)
{
  const struct attention *a = layer->settings;
  return (struct trm_attention){.b = layer->rows,
                                .t = layer->in.size[0],
                                .heads = a->heads,
                                .head_dim = layer->out.size[1] / a->heads,
                                .causal = a->causal};
}

static void attention_forward(struct trm_layer *layer, const struct trm_pass *pass,
                              const void *x /* (B, T, 3, H, E) */, void *y /* (B, T, H, E) */,
                              float *work /* (B, H, T, 2) */)
{
  struct trm_attention shape = attention_dims(layer);
  if (layer->cache) {
    const size_t position = layer->in.size[1] * trm_value_bytes(layer->values);
    pass->device->ops->copy(pass->device, (char *)layer->cache + pass->past * position, x, shape.t * position);
    x = layer->cache;
    shape.first = pass->past;
    shape.t += pass->past;
  }
  pass->device->ops->attention_forward(pass->device, &(struct trm_attention_forward){
    .shape = shape, .qkv = x, .y = y, .row = work, .type = layer->values});
}

static void attention_backward(struct trm_layer *layer, const struct trm_pass *pass, const void *x, const void *y,
                               const void *dy, void *dx, float *work)
{
  const struct trm_attention shape = attention_dims(layer);
  if (dx)
    pass->device->ops->attention_backward(pass->device, &(struct trm_attention_backward){
      .shape = shape, .qkv = x, .y = y, .row = work, .dy = dy, .dqkv = dx, .type = layer->values});
}

/* Two products (T, D) x (D, T), half of each if causal. Backward has five. */
static struct trm_cost attention_cost(const struct trm_layer *layer)
{
  const struct attention *a = layer->settings;
  const double t = (double)layer->out.size[0], d = (double)layer->out.size[1];
  return (struct trm_cost){.flop = 4 * t * t * d / (a->causal ? 2 : 1), .bytes = 4 * sizeof(float) * t * d};
}

/* 0 where position t sees position s, else -infinity: (T, T). */
static int attention_export_mask(struct trm_graph *graph, size_t t)
{
  float *mask = trm_alloc(t * t * sizeof *mask, "mask");
  for (size_t i = 0; i < t * t; i++)
    mask[i] = i % t > i / t ? -INFINITY : 0;
  const int value = graph->ops->floats(graph, &(struct trm_shape){.dims = 2, .size = {t, t}}, mask);
  trm_free(mask);
  return value;
}

static int attention_export(const struct trm_layer *layer, struct trm_graph *graph, int x)
{
  static const int64_t heads_first[] = {0, 2, 1, 3}, keys[] = {0, 2, 3, 1};
  const struct attention *a = layer->settings;
  const size_t t = layer->out.size[0], e = layer->out.size[1] / a->heads;
  const struct trm_shape heads = {.dims = 3, .size = {t, a->heads, e}};
  const int qkv = trm_graph_split(graph, x, 3);
  const int q = trm_graph_transpose(graph, trm_graph_reshape(graph, qkv, &heads), heads_first, 4);
  const int k = trm_graph_transpose(graph, trm_graph_reshape(graph, qkv + 1, &heads), keys, 4);
  const int v = trm_graph_transpose(graph, trm_graph_reshape(graph, qkv + 2, &heads), heads_first, 4);
  int scores = trm_graph_scalar(graph, "Mul", trm_graph_binary(graph, "MatMul", q, k), 1 / sqrt((double)e));
  if (a->causal)
    scores = trm_graph_binary(graph, "Add", scores, attention_export_mask(graph, t));
  const int weights = trm_graph_unary(graph, "Softmax", scores); /* over the last dimension by default */
  const int y = trm_graph_transpose(graph, trm_graph_binary(graph, "MatMul", weights, v), heads_first, 4);
  return trm_graph_reshape(graph, y, &layer->out);
}

static bool attention_reads_ahead(const struct trm_layer *layer)
{
  return !((const struct attention *)layer->settings)->causal;
}

static struct trm_sharding attention_preferred_sharding(const struct trm_layer *layer, const struct trm_sharding *out)
{
  (void)out;
  const struct attention *a = layer->settings;
  return trm_sharding_by_feature(3, a->heads, layer->out.size[1] / a->heads);
}

/* Shards by heads. */
static int attention_shard(struct trm_layer *layer, struct trm_shard_request *request)
{
  struct attention *a = layer->settings;
  const size_t heads = a->heads, width = layer->out.size[1] / heads;
  if (heads < (size_t)request->size)
    return trm_error(TRM_USAGE, "%s: %zu heads cannot be divided among %d ranks", trm_layer_text(layer), heads,
                     request->size);
  a->heads = trm_shard_units(request, heads);
  trm_shard_layer(layer, request, trm_sharding_by_feature(3, heads, width), trm_sharding_by_feature(1, heads, width));
  layer->workspace = 2 * a->heads * layer->in.size[0];
  return TRM_OK;
}

const struct trm_layer_ops layer_attention = {
  .name = "attention",
  .takes_bf16 = true,
  .usage = "attention heads=H [causal=yes|no]",
  .settings_bytes = sizeof(struct attention),
  .create = attention_create,
  .shape = attention_shape,
  .forward = attention_forward,
  .backward = attention_backward,
  .cost = attention_cost,
  .export_graph = attention_export,
  .reads_ahead = attention_reads_ahead,
  .preferred_sharding = attention_preferred_sharding,
  .shard = attention_shard,
  .caches = true,
  .keeps_input = true,
  .keeps_output = true,
};
