/* Embedding: maps tokens to learned vectors. The first layer of every token model, with output (T, D). The vocabulary V
 * is the data set's.
 * Position encodings: position adds a learned vector to each position; rotary (Su et al. 2021) rotates attention's
 * queries and keys, between the linear layer that makes them and attention. */
#include <math.h>

#include "core/memory.h"
#include "core/status.h"
#include "nn/graph.h"
#include "nn/layers/layers.h"
#include "nn/sharding.h"

/* -- embedding */

/* The settings are the dimension D. */
static int position_embedding_create(struct trm_layer *layer, const struct trm_arguments *arguments)
{
  TRM_CHECK(trm_argument_reject_unknown(layer, arguments, 1, (const char *const[]){"dim", NULL}));
  return trm_argument_size(layer, arguments, 0, "dim", layer->settings);
}

static int position_embedding_shape(struct trm_layer *layer)
{
  const size_t dim = *(const size_t *)layer->settings;
  if (!layer->token_input)
    return trm_error(TRM_USAGE, "%s: takes tokens, and must be the first to: here are samples of shape %s",
                     trm_layer_text(layer), trm_shape_text(&layer->in));
  layer->out = (struct trm_shape){.dims = 2, .size = {layer->in.size[0], dim}, .sequence = true};
  const struct trm_shape table = {.dims = 2, .size = {layer->classes, dim}};
  trm_layer_add_parameter(layer, "weight", &table, TRM_INIT_NORMAL, 0.02f);
  return TRM_OK;
}

/* Returns this rank's rows of the table. */
static struct trm_vocab_shard position_vocabulary(const struct trm_layer *layer)
{
  const struct trm_slice *slice = &layer->parameter[0].slice;
  return layer->tensor_size ? (struct trm_vocab_shard){slice->low, slice->high, layer->classes}
                      : (struct trm_vocab_shard){0, layer->classes, layer->classes};
}

static void position_embedding_forward(struct trm_layer *layer, const struct trm_pass *pass, const void *x,
                                       void *y /* (B, T, D) */, float *work)
{
  (void)x, (void)work;
  const struct trm_vocab_shard v = position_vocabulary(layer);
  pass->device->ops->embedding_forward(pass->device, &(struct trm_embedding_forward){
    .token = pass->input->tokens, .w = layer->parameter[0].w, .y = y, .r = layer->rows * layer->in.size[0],
    .d = layer->out.size[1], .v = v, .type = layer->values});
}

static void position_embedding_backward(struct trm_layer *layer, const struct trm_pass *pass, const void *x,
                                        const void *y, const void *dy, void *dx, float *work)
{
  (void)x, (void)y, (void)dx, (void)work;
  const struct trm_vocab_shard v = position_vocabulary(layer);
  const bool has_tied = layer->shared && !layer->tied_gradient; /* the tied layer's contribution is in it */
  pass->device->ops->embedding_backward(pass->device, &(struct trm_embedding_backward){
    .token = pass->input->tokens, .dy = dy, .beta = has_tied ? 1 : pass->beta, .dw = layer->parameter[0].g,
    .r = layer->rows * layer->in.size[0], .d = layer->out.size[1], .v = v, .type = layer->values});
}

static struct trm_cost position_embedding_cost(const struct trm_layer *layer)
{
  return (struct trm_cost){.bytes = 2 * sizeof(float) * (double)trm_shape_count(&layer->out)};
}

static int position_embedding_export(const struct trm_layer *layer, struct trm_graph *graph, int x)
{
  return trm_graph_binary(graph, "Gather", graph->ops->parameter(graph, &layer->parameter[0]), x);
}

/* Shards by vocabulary. */
static int position_embedding_shard(struct trm_layer *layer, struct trm_shard_request *request)
{
  if (layer->classes < (size_t)request->size)
    return trm_error(TRM_USAGE, "%s: a vocabulary of %zu cannot be divided among %d ranks", trm_layer_text(layer),
                     layer->classes, request->size);
  trm_shard_parameter(request, &layer->parameter[0], 0, 1, layer->classes);
  layer->output_partial = true;
  trm_shard_layer(layer, request, trm_sharding_replicated, trm_sharding_replicated);
  return TRM_OK;
}

const struct trm_layer_ops layer_embedding = {
  .name = "embedding",
  .takes_bf16 = true,
  .usage = "embedding DIM",
  .settings_bytes = sizeof(size_t),
  .create = position_embedding_create,
  .shape = position_embedding_shape,
  .forward = position_embedding_forward,
  .backward = position_embedding_backward,
  .cost = position_embedding_cost,
  .export_graph = position_embedding_export,
  .shard = position_embedding_shard,
};

/* -- position */

static int position_shape(struct trm_layer *layer)
{
  TRM_CHECK(trm_layer_require_sequence(layer));
  layer->out = layer->in;
  const size_t positions = layer->context ? layer->context : layer->in.size[0];
  const struct trm_shape weight = {.dims = 2, .size = {positions, layer->in.size[1]}};
  trm_layer_add_parameter(layer, "weight", &weight, TRM_INIT_NORMAL, 0.02f);
  return TRM_OK;
}

static void position_forward(struct trm_layer *layer, const struct trm_pass *pass, const void *x /* (B, T, D) */,
                             void *y /* (B, T, D) */, float *work)
{
  (void)work;
  const size_t b = layer->rows, n = trm_shape_count(&layer->in);
  if (y != x)
    pass->device->ops->copy(pass->device, y, x, b * n * trm_value_bytes(layer->values));
  pass->device->ops->bias_add(pass->device, &(struct trm_bias_add){
    .y = y, .bias = layer->parameter[0].w + pass->past * layer->in.size[1], .b = b, .n = n, .type = layer->values});
}

static void position_backward(struct trm_layer *layer, const struct trm_pass *pass, const void *x, const void *y,
                              const void *dy, void *dx, float *work)
{
  (void)x, (void)y, (void)work;
  const size_t b = layer->rows, n = trm_shape_count(&layer->in);
  if (!layer->parameter[0].frozen)
    pass->device->ops->bias_backward(pass->device, &(struct trm_bias_backward){
      .dy = dy, .beta = pass->beta, .db = layer->parameter[0].g, .b = b, .n = n, .type = layer->values});
  if (dx && dx != dy)
    pass->device->ops->copy(pass->device, dx, dy, b * n * trm_value_bytes(layer->values));
}

static int position_export(const struct trm_layer *layer, struct trm_graph *graph, int x)
{
  return trm_graph_binary(graph, "Add", x, graph->ops->parameter(graph, &layer->parameter[0]));
}

static int position_shard(struct trm_layer *layer, struct trm_shard_request *request)
{
  const struct trm_sharding current = request->current;
  if (current.kind == TRM_SHARDED_BY_POSITION)
    trm_shard_parameter(request, &layer->parameter[0], 0, 1, layer->in.size[0]);
  else if (current.kind == TRM_SHARDED_BY_FEATURE)
    trm_shard_parameter(request, &layer->parameter[0], 1, current.groups, current.units);
  return trm_shard_like_input(layer, request);
}

const struct trm_layer_ops layer_position = {
  .name = "position",
  .takes_bf16 = true,
  .usage = "position",
  .shape = position_shape,
  .forward = position_forward,
  .backward = position_backward,
  .export_graph = position_export,
  .preferred_sharding = trm_prefer_output_sharding,
  .shard = position_shard,
  .in_place = true,
};

/* -- rotary */

struct rotary {
  size_t heads; /* of this rank */
  float base;
};

static int position_rotary_create(struct trm_layer *layer, const struct trm_arguments *arguments)
{
  struct rotary *s = layer->settings;
  s->base = 10000;
  TRM_CHECK(trm_argument_reject_unknown(layer, arguments, 0, (const char *const[]){"heads", "base", NULL}));
  TRM_CHECK(trm_argument_size(layer, arguments, -1, "heads", &s->heads));
  return trm_argument_real(layer, arguments, -1, "base", 1, 1e9, &s->base);
}

static int position_rotary_shape(struct trm_layer *layer)
{
  const struct rotary *s = layer->settings;
  TRM_CHECK(trm_layer_require_sequence(layer));
  if (layer->in.size[1] % (3 * 2 * s->heads) != 0)
    return trm_error(TRM_USAGE, "%s: takes queries, keys and values of %zu heads of even width, (T, 3 D), not %s",
                     trm_layer_text(layer), s->heads, trm_shape_text(&layer->in));
  layer->out = layer->in;
  return TRM_OK;
}

static void position_rotary_apply(const struct trm_layer *layer, const struct trm_pass *pass, bool backward,
                                  const void *from, void *to)
{
  const struct rotary *s = layer->settings;
  const struct trm_attention shape = {.b = layer->rows, .t = pass->past + layer->in.size[0], .heads = s->heads,
                                      .head_dim = layer->in.size[1] / 3 / s->heads, .first = pass->past};
  if (to != from)
    pass->device->ops->copy(pass->device, to, from,
                            shape.b * trm_shape_count(&layer->in) * trm_value_bytes(layer->values));
  pass->device->ops->rotary(pass->device, &(struct trm_rotary){
    .shape = shape, .base = s->base, .inverse = backward, .x = to, .type = layer->values});
}

/* Exports rotated queries or keys (B, T, H E). */
static int position_rotary_export_one(struct trm_graph *graph, const struct trm_shape *full,
                                      const struct trm_shape *heads, int x, int cosine, int sine)
{
  const int a = trm_graph_split(graph, trm_graph_reshape(graph, x, heads), 2), b = a + 1;
  const int a_along = trm_graph_binary(graph, "Mul", a, cosine), b_across = trm_graph_binary(graph, "Mul", b, sine);
  const int b_along = trm_graph_binary(graph, "Mul", b, cosine), a_across = trm_graph_binary(graph, "Mul", a, sine);
  int turned[2];
  turned[0] = trm_graph_binary(graph, "Sub", a_along, b_across);
  turned[1] = trm_graph_binary(graph, "Add", b_along, a_across);
  return trm_graph_reshape(graph, trm_graph_concat(graph, turned, 2), full);
}

static int position_rotary_export(const struct trm_layer *layer, struct trm_graph *graph, int x)
{
  const struct rotary *s = layer->settings;
  const size_t t = layer->in.size[0], d = layer->in.size[1] / 3, half = d / s->heads / 2;
  const struct trm_shape full = {.dims = 2, .size = {t, d}}, heads = {.dims = 3, .size = {t, s->heads, 2 * half}};
  const struct trm_shape angles = {.dims = 3, .size = {t, 1, half}};
  float *rotation = trm_alloc(2 * t * half * sizeof *rotation, "angles"); /* (2, T, E / 2): cosines, sines */
  for (size_t i = 0; i < t * half; i++) {
    const double angle = (double)(i / half) * pow((double)s->base, -(double)(i % half) / (double)half);
    rotation[i] = (float)cos(angle);
    rotation[t * half + i] = (float)sin(angle);
  }
  const int cosine = graph->ops->floats(graph, &angles, rotation);
  const int sine = graph->ops->floats(graph, &angles, rotation + t * half);
  trm_free(rotation);
  const int q = trm_graph_split(graph, x, 3), k = q + 1, v = q + 2;
  int qkv[] = {q, k, v};
  for (int i = 0; i < 2; i++)
    qkv[i] = position_rotary_export_one(graph, &full, &heads, qkv[i], cosine, sine);
  return trm_graph_concat(graph, qkv, 3);
}

static struct trm_sharding position_rotary_sharding(const struct trm_layer *layer)
{
  const size_t heads = ((const struct rotary *)layer->settings)->heads;
  return trm_sharding_by_feature(3, heads, layer->in.size[1] / 3 / heads);
}

static struct trm_sharding position_rotary_preferred(const struct trm_layer *layer, const struct trm_sharding *out)
{
  (void)out;
  return position_rotary_sharding(layer);
}

/* Shards by heads. */
static int position_rotary_shard(struct trm_layer *layer, struct trm_shard_request *request)
{
  const struct trm_sharding sharding = position_rotary_sharding(layer);
  struct rotary *s = layer->settings;
  if (s->heads < (size_t)request->size)
    return trm_error(TRM_USAGE, "%s: %zu heads cannot be divided among %d ranks", trm_layer_text(layer), s->heads,
                     request->size);
  s->heads = trm_shard_units(request, s->heads);
  trm_shard_layer(layer, request, sharding, sharding);
  return TRM_OK;
}

const struct trm_layer_ops layer_rotary = {
  .name = "rotary",
  .takes_bf16 = true,
  .usage = "rotary heads=H [base=10000]",
  .settings_bytes = sizeof(struct rotary),
  .create = position_rotary_create,
  .shape = position_rotary_shape,
  .forward = trm_layer_apply_forward,
  .backward = trm_layer_apply_backward,
  .apply = position_rotary_apply,
  .cost_per_value = {.flop = 2, .bytes = sizeof(float) * 4.0 / 3}, /* v, a third, is unchanged */
  .export_graph = position_rotary_export,
  .preferred_sharding = position_rotary_preferred,
  .shard = position_rotary_shard,
  .in_place = true,
};
