/* Exports a model's graph layer by layer, and the layers' shared helpers. */
#include "nn/graph.h"

#include "core/memory.h"
#include "core/status.h"
#include "nn/layers/layers.h"

int trm_graph_unary(struct trm_graph *graph, const char *op, int x)
{
  return graph->ops->node(graph, op, &x, 1, 1);
}

int trm_graph_binary(struct trm_graph *graph, const char *op, int x, int y)
{
  return graph->ops->node(graph, op, (const int[]){x, y}, 2, 1);
}

int trm_graph_scalar(struct trm_graph *graph, const char *op, int x, double y)
{
  const struct trm_shape scalar = {.dims = 0};
  return trm_graph_binary(graph, op, x, graph->ops->floats(graph, &scalar, &(const float){(float)y}));
}

int trm_graph_transpose(struct trm_graph *graph, int x, const int64_t *order, int dims)
{
  const int y = trm_graph_unary(graph, "Transpose", x);
  graph->ops->set_integers(graph, "perm", order, dims);
  return y;
}

int trm_graph_reshape(struct trm_graph *graph, int x, const struct trm_shape *shape)
{
  int64_t size[1 + TRM_MAX_DIMS] = {0}; /* 0: unchanged */
  for (int d = 0; d < shape->dims; d++)
    size[1 + d] = (int64_t)shape->size[d];
  return trm_graph_binary(graph, "Reshape", x, graph->ops->integers(graph, size, 1 + shape->dims));
}

int trm_graph_split(struct trm_graph *graph, int x, int count)
{
  const int y = graph->ops->node(graph, "Split", &x, 1, count);
  graph->ops->set_integer(graph, "axis", -1);
  return y;
}

int trm_graph_concat(struct trm_graph *graph, const int *x, int count)
{
  const int y = graph->ops->node(graph, "Concat", x, count, 1);
  graph->ops->set_integer(graph, "axis", -1);
  return y;
}

void trm_graph_window(struct trm_graph *graph, const struct trm_window2d *window)
{
  const int64_t kernel[] = {(int64_t)window->kernel[0], (int64_t)window->kernel[1]};
  const int64_t stride[] = {(int64_t)window->stride[0], (int64_t)window->stride[1]};
  const int64_t high = (int64_t)window->pad[0], wide = (int64_t)window->pad[1], pad[] = {high, wide, high, wide};
  graph->ops->set_integers(graph, "kernel_shape", kernel, 2);
  graph->ops->set_integers(graph, "strides", stride, 2);
  graph->ops->set_integers(graph, "pads", pad, 4);
}

int trm_graph_vectors(struct trm_graph *graph, const struct trm_layer *layer, int x)
{
  if (layer->in.sequence || layer->in.dims == 1)
    return x;
  const int y = trm_graph_unary(graph, "Flatten", x);
  graph->ops->set_integer(graph, "axis", 1);
  return y;
}

int trm_model_graph(const struct trm_model *model, struct trm_graph *graph, int samples, int *scores)
{
  int *value = trm_alloc((size_t)model->layers * sizeof *value, "values"); /* of each layer's output */
  int status = TRM_OK;
  for (int i = 0; i < model->layers && status == TRM_OK; i++) {
    const struct trm_layer *layer = graph->layer = &model->layer[i];
    const int x = layer->from == TRM_FROM_BATCH ? samples : value[layer->from];
    if (layer->ops == &layer_add)
      value[i] = trm_graph_binary(graph, "Add", layer->addend == TRM_FROM_BATCH ? samples : value[layer->addend], x);
    else if (layer->ops->export_graph)
      value[i] = layer->ops->export_graph(layer, graph, x);
    else
      status = trm_error(TRM_USAGE, "%s: cannot be exported", trm_layer_text(layer));
  }
  *scores = value[model->layers - 1];
  trm_free(value);
  return status;
}
