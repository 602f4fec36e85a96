/* Embedding: maps tokens to learned vectors. The first layer of every token model, with output (T, D). The vocabulary V
 * is the data set's. */
#include "core/status.h"
#include "nn/graph.h"
#include "nn/layers/layers.h"
#include "nn/sharding.h"

struct embedding {
  size_t dim;
};

static int embedding_create(struct trm_layer *layer, const struct trm_arguments *arguments)
{
  struct embedding *s = layer->settings;
  TRM_CHECK(trm_argument_reject_unknown(layer, arguments, 1, (const char *const[]){"dim", NULL}));
  return trm_argument_size(layer, arguments, 0, "dim", &s->dim);
}

static int embedding_shape(struct trm_layer *layer)
{
  const size_t dim = ((const struct embedding *)layer->settings)->dim;
  if (!layer->token_input)
    return trm_error(TRM_USAGE, "%s: takes tokens, and must be the first to: here are samples of shape %s",
                     trm_layer_text(layer), trm_shape_text(&layer->in));
  layer->out = (struct trm_shape){.dims = 2, .size = {layer->in.size[0], dim}, .sequence = true};
  const struct trm_shape table = {.dims = 2, .size = {layer->classes, dim}};
  trm_layer_add_parameter(layer, "weight", &table, TRM_INIT_NORMAL, 0.02f);
  return TRM_OK;
}

/* Returns this rank's rows of the table. */
static struct trm_vocab_shard embedding_vocabulary(const struct trm_layer *layer)
{
  const struct trm_slice *slice = &layer->parameter[0].slice;
  return layer->tensor_size ? (struct trm_vocab_shard){slice->low, slice->high, layer->classes}
                      : (struct trm_vocab_shard){0, layer->classes, layer->classes};
}

static void embedding_forward(struct trm_layer *layer, const struct trm_pass *pass, const float *x,
                              float *y /* (B, T, D) */, float *work)
{
  (void)x, (void)work;
  const struct trm_vocab_shard v = embedding_vocabulary(layer);
  pass->device->ops->embedding_forward(pass->device, pass->input->tokens, layer->parameter[0].w, y,
                                       layer->rows * layer->in.size[0], layer->out.size[1], &v);
}

static void embedding_backward(struct trm_layer *layer, const struct trm_pass *pass, const float *x, const float *y,
                               const float *dy, float *dx, float *work)
{
  (void)x, (void)y, (void)dx, (void)work;
  const struct trm_vocab_shard v = embedding_vocabulary(layer);
  const bool has_tied = layer->shared && !layer->tied_gradient; /* the tied layer's contribution is in it */
  pass->device->ops->embedding_backward(pass->device, pass->input->tokens, dy, has_tied ? 1 : pass->beta,
                                        layer->parameter[0].g, layer->rows * layer->in.size[0], layer->out.size[1], &v);
}

static struct trm_cost embedding_cost(const struct trm_layer *layer)
{
  return (struct trm_cost){.bytes = 2 * sizeof(float) * (double)trm_shape_count(&layer->out)};
}

static int embedding_export(const struct trm_layer *layer, struct trm_graph *graph, int x)
{
  return trm_graph_binary(graph, "Gather", graph->ops->parameter(graph, &layer->parameter[0]), x);
}

/* Shards by vocabulary. */
static int embedding_shard(struct trm_layer *layer, struct trm_shard_request *request)
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
  .usage = "embedding DIM",
  .settings_bytes = sizeof(struct embedding),
  .create = embedding_create,
  .shape = embedding_shape,
  .forward = embedding_forward,
  .backward = embedding_backward,
  .cost = embedding_cost,
  .export_graph = embedding_export,
  .shard = embedding_shard,
};
