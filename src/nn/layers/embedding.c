/* Embedding: each token becomes a learned vector. The first layer of every model of tokens; what follows sees a
 * sequence (T, D). The vocabulary V is the data set's. */
#include "core/status.h"
#include "nn/graph.h"
#include "nn/layers/layers.h"
#include "nn/split.h"

static int embedding_create(struct trm_layer *layer, const struct trm_arguments *arguments)
{
  TRM_CHECK(trm_argument_done(layer, arguments, 1, (const char *const[]){"dim", NULL}));
  return trm_argument_size(layer, arguments, 0, "dim", &layer->units);
}

static int embedding_shape(struct trm_layer *layer)
{
  if (!layer->token_input)
    return trm_error(TRM_USAGE, "%s: takes tokens, and must be the first to: here are samples of shape %s",
                     trm_layer_text(layer), trm_shape_text(&layer->in));
  layer->out = (struct trm_shape){.dims = 2, .size = {layer->in.size[0], layer->units}, .sequence = true};
  trm_layer_parameter(layer, "weight", &(struct trm_shape){.dims = 2, .size = {layer->classes, layer->units}},
                      TRM_INIT_NORMAL, 0.02f);
  return TRM_OK;
}

/* The rows of the table that are here. */
static struct trm_vocabulary vocabulary_of(const struct trm_layer *layer)
{
  const struct trm_slice *slice = &layer->parameter[0].slice;
  return layer->parts ? (struct trm_vocabulary){slice->low, slice->high, layer->classes}
                      : (struct trm_vocabulary){0, layer->classes, layer->classes};
}

static void embedding_forward(struct trm_layer *layer, const struct trm_pass *pass, const float *x,
                              float *y /* (B, T, D) */, float *work)
{
  (void)x, (void)work;
  const struct trm_vocabulary v = vocabulary_of(layer);
  pass->device->ops->embedding_forward(pass->device, pass->input->tokens, layer->parameter[0].w, y,
                                       pass->input->rows * layer->in.size[0], layer->units, &v);
}

static void embedding_backward(struct trm_layer *layer, const struct trm_pass *pass, const float *x, const float *y,
                               const float *dy, float *dx, float *work)
{
  (void)x, (void)y, (void)dx, (void)work;
  const struct trm_vocabulary v = vocabulary_of(layer);
  const bool has_tied = layer->shared && !layer->tied_sum; /* the tied layer's part stands there already */
  pass->device->ops->embedding_backward(pass->device, pass->input->tokens, dy, has_tied ? 1 : pass->beta,
                                        layer->parameter[0].g, pass->input->rows * layer->in.size[0], layer->units,
                                        &v);
}

static struct trm_cost embedding_cost(const struct trm_layer *layer)
{
  return (struct trm_cost){.bytes = 2 * sizeof(float) * (double)trm_shape_count(&layer->out)};
}

static int embedding_export(const struct trm_layer *layer, struct trm_graph *graph, int x)
{
  return trm_graph_two(graph, "Gather", graph->ops->parameter(graph, &layer->parameter[0]), x);
}

/* By the vocabulary. */
static int embedding_divide(struct trm_layer *layer, struct trm_division *division)
{
  if (layer->classes < (size_t)division->parts)
    return trm_error(TRM_USAGE, "%s: a vocabulary of %zu cannot be divided among %d ranks", trm_layer_text(layer),
                     layer->classes, division->parts);
  trm_divide_parameter(division, &layer->parameter[0], 0, 1, layer->classes);
  layer->sums = true;
  trm_divide(layer, division, (struct trm_lay){.kind = TRM_WHOLE}, (struct trm_lay){.kind = TRM_WHOLE});
  return TRM_OK;
}

const struct trm_layer_ops layer_embedding = {
  .name = "embedding",
  .usage = "embedding DIM",
  .create = embedding_create,
  .shape = embedding_shape,
  .forward = embedding_forward,
  .backward = embedding_backward,
  .cost = embedding_cost,
  .export = embedding_export,
  .divide = embedding_divide,
};
