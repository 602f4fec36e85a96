/* Embedding: each token becomes a learned vector. The first layer of every model of tokens; what follows sees a
 * sequence (T, D). The vocabulary V is the data set's. */
#include "core/status.h"
#include "nn/graph.h"
#include "nn/layers/layers.h"

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

static void embedding_forward(struct trm_layer *layer, const struct trm_pass *pass, const float *x,
                              float *y /* (B, T, D) */, float *work)
{
  (void)x, (void)work;
  pass->device->ops->embedding_forward(pass->device, pass->input->tokens, layer->parameter[0].w, y,
                                       pass->input->rows * layer->in.size[0], layer->units, layer->classes);
}

static void embedding_backward(struct trm_layer *layer, const struct trm_pass *pass, const float *x, const float *y,
                               const float *dy, float *dx, float *work)
{
  (void)x, (void)y, (void)dx, (void)work;
  pass->device->ops->embedding_backward(pass->device, pass->input->tokens, dy, layer->shared ? 1 : pass->beta,
                                        layer->parameter[0].g, pass->input->rows * layer->in.size[0], layer->units,
                                        layer->classes);
}

static struct trm_cost embedding_cost(const struct trm_layer *layer)
{
  return (struct trm_cost){.bytes = 2 * sizeof(float) * (double)trm_shape_count(&layer->out)};
}

static int embedding_export(const struct trm_layer *layer, struct trm_graph *graph, int x)
{
  return trm_graph_two(graph, "Gather", graph->ops->parameter(graph, &layer->parameter[0]), x);
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
};
