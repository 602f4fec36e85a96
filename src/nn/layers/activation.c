/* Activations, element by element: relu, tanh, sigmoid (backward from the output), gelu (backward from the input). */
#include <math.h>
#include <string.h>

#include "core/status.h"
#include "nn/graph.h"
#include "nn/layers/layers.h"
#include "nn/sharding.h"

static int activation_create(struct trm_layer *layer, const struct trm_arguments *arguments, enum trm_activation kind)
{
  layer->activation = kind;
  return trm_argument_reject_unknown(layer, arguments, 0, (const char *const[]){NULL});
}

static int activation_create_relu(struct trm_layer *layer, const struct trm_arguments *arguments)
{
  return activation_create(layer, arguments, TRM_RELU);
}

static int activation_create_tanh(struct trm_layer *layer, const struct trm_arguments *arguments)
{
  return activation_create(layer, arguments, TRM_TANH);
}

static int activation_create_sigmoid(struct trm_layer *layer, const struct trm_arguments *arguments)
{
  return activation_create(layer, arguments, TRM_SIGMOID);
}

static int activation_create_gelu_tanh(struct trm_layer *layer, const struct trm_arguments *arguments)
{
  return activation_create(layer, arguments, TRM_GELU_TANH);
}

static int activation_create_gelu(struct trm_layer *layer, const struct trm_arguments *arguments)
{
  layer->activation = TRM_GELU;
  TRM_CHECK(trm_argument_reject_unknown(layer, arguments, 1, (const char *const[]){NULL}));
  if (arguments->count) {
    if (strcmp(arguments->item[0].value, "tanh") != 0)
      return trm_error(TRM_USAGE, "%s: '%s' is not known; usage: %s", trm_layer_text(layer), arguments->item[0].value,
                       layer->ops->usage);
    layer->activation = TRM_GELU_TANH;
  }
  return TRM_OK;
}

static int activation_shape(struct trm_layer *layer)
{
  TRM_CHECK(trm_layer_require_dense(layer));
  layer->out = layer->in;
  return TRM_OK;
}

static void activation_forward(struct trm_layer *layer, const struct trm_pass *pass, const float *x /* (B, F) */,
                               float *y /* (B, F) */, float *work)
{
  (void)work;
  pass->device->ops->activation_forward(pass->device, layer->activation, x, y,
                                        pass->input->rows * trm_shape_count(&layer->in));
}

static void activation_backward(struct trm_layer *layer, const struct trm_pass *pass, const float *x, const float *y,
                                const float *dy, float *dx, float *work)
{
  (void)work;
  pass->device->ops->activation_backward(pass->device, layer->activation, x, y, dy, dx,
                                         pass->input->rows * trm_shape_count(&layer->in));
}

static struct trm_cost activation_cost(const struct trm_layer *layer)
{
  const double f = (double)trm_shape_count(&layer->in);
  return (struct trm_cost){.flop = f, .bytes = 2 * sizeof(float) * f};
}

/* y = x / 2 (1 + z) */
static int activation_gelu(struct trm_graph *graph, int x, int z)
{
  return trm_graph_scalar(graph, "Mul", trm_graph_binary(graph, "Mul", x, trm_graph_scalar(graph, "Add", z, 1)), 0.5);
}

static int activation_export(const struct trm_layer *layer, struct trm_graph *graph, int x)
{
  switch (layer->activation) {
  case TRM_RELU:
    return trm_graph_unary(graph, "Relu", x);
  case TRM_TANH:
    return trm_graph_unary(graph, "Tanh", x);
  case TRM_SIGMOID:
    return trm_graph_unary(graph, "Sigmoid", x);
  case TRM_GELU:
    return activation_gelu(graph, x, trm_graph_unary(graph, "Erf", trm_graph_scalar(graph, "Mul", x, sqrt(0.5))));
  case TRM_GELU_TANH:
    break;
  }
  const int cube = trm_graph_binary(graph, "Mul", trm_graph_binary(graph, "Mul", x, x), x);
  const int sum = trm_graph_binary(graph, "Add", x, trm_graph_scalar(graph, "Mul", cube, 0.044715));
  return activation_gelu(graph, x, trm_graph_unary(graph, "Tanh", trm_graph_scalar(graph, "Mul", sum, sqrt(2 / M_PI))));
}

const struct trm_layer_ops layer_relu = {
  .name = "relu",
  .usage = "relu",
  .create = activation_create_relu,
  .shape = activation_shape,
  .forward = activation_forward,
  .backward = activation_backward,
  .cost = activation_cost,
  .export_graph = activation_export,
  .preferred_sharding = trm_prefer_output_sharding,
  .shard = trm_shard_like_input,
  .keeps_output = true,
  .in_place = true,
};

const struct trm_layer_ops layer_tanh = {
  .name = "tanh",
  .usage = "tanh",
  .create = activation_create_tanh,
  .shape = activation_shape,
  .forward = activation_forward,
  .backward = activation_backward,
  .cost = activation_cost,
  .export_graph = activation_export,
  .preferred_sharding = trm_prefer_output_sharding,
  .shard = trm_shard_like_input,
  .keeps_output = true,
  .in_place = true,
};

const struct trm_layer_ops layer_sigmoid = {
  .name = "sigmoid",
  .usage = "sigmoid",
  .create = activation_create_sigmoid,
  .shape = activation_shape,
  .forward = activation_forward,
  .backward = activation_backward,
  .cost = activation_cost,
  .export_graph = activation_export,
  .preferred_sharding = trm_prefer_output_sharding,
  .shard = trm_shard_like_input,
  .keeps_output = true,
  .in_place = true,
};

const struct trm_layer_ops layer_gelu = {
  .name = "gelu",
  .usage = "gelu [tanh]",
  .create = activation_create_gelu,
  .shape = activation_shape,
  .forward = activation_forward,
  .backward = activation_backward,
  .cost = activation_cost,
  .export_graph = activation_export,
  .preferred_sharding = trm_prefer_output_sharding,
  .shard = trm_shard_like_input,
  .keeps_input = true,
  .in_place = true,
};

const struct trm_layer_ops layer_gelu_tanh = {
  .name = "gelu_tanh",
  .usage = "gelu_tanh",
  .create = activation_create_gelu_tanh,
  .shape = activation_shape,
  .forward = activation_forward,
  .backward = activation_backward,
  .cost = activation_cost,
  .export_graph = activation_export,
  .preferred_sharding = trm_prefer_output_sharding,
  .shard = trm_shard_like_input,
  .keeps_input = true,
  .in_place = true,
};
