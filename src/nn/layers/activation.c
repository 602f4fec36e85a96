/* Element-wise activations; ops->variant is the enum trm_activation. Backward of relu, leaky_relu (Maas et
 * al. 2013), tanh and sigmoid reads the output, that of gelu (exact or tanh form; Hendrycks & Gimpel 2016) and silu the
 * input. */
#include <math.h>

#include "core/status.h"
#include "nn/graph.h"
#include "nn/layers/layers.h"
#include "nn/sharding.h"

static int activation_create_gelu(struct trm_layer *layer, const struct trm_arguments *arguments)
{
  bool by_tanh;
  TRM_CHECK(trm_argument_reject_unknown(layer, arguments, 1, NULL));
  TRM_CHECK(trm_argument_word(layer, arguments, "tanh", &by_tanh));
  if (by_tanh)
    layer->ops = &layer_gelu_tanh;
  return TRM_OK;
}

static int activation_create_leaky_relu(struct trm_layer *layer, const struct trm_arguments *arguments)
{
  float *slope = layer->settings;
  *slope = 0.01f;
  TRM_CHECK(trm_argument_reject_unknown(layer, arguments, 1, NULL));
  return trm_argument_real(layer, arguments, 0, "slope", 0, 1, slope);
}

/* Of leaky_relu, below 0, and of scale. */
static float activation_slope(const struct trm_layer *layer)
{
  return layer->settings ? *(const float *)layer->settings : 0;
}

static void activation_forward(struct trm_layer *layer, const struct trm_pass *pass, const void *x /* (B, F) */,
                               void *y /* (B, F) */, float *work)
{
  (void)work;
  pass->device->ops->activation_forward(pass->device, &(struct trm_activation_forward){
    .kind = layer->ops->variant, .slope = activation_slope(layer), .x = x, .y = y,
    .n = layer->rows * trm_shape_count(&layer->in), .type = layer->values});
}

static void activation_backward(struct trm_layer *layer, const struct trm_pass *pass, const void *x, const void *y,
                                const void *dy, void *dx, float *work)
{
  (void)work;
  pass->device->ops->activation_backward(pass->device, &(struct trm_activation_backward){
    .kind = layer->ops->variant, .slope = activation_slope(layer), .x = x, .y = y, .dy = dy, .dx = dx,
    .n = layer->rows * trm_shape_count(&layer->in), .type = layer->values});
}

bool trm_layer_is_activation(const struct trm_layer *layer)
{
  return layer->ops->forward == activation_forward && layer->ops->variant < TRM_LEAKY_RELU;
}

/* y = x / 2 (1 + z) */
static int activation_gelu(struct trm_graph *graph, int x, int z)
{
  return trm_graph_scalar(graph, "Mul", trm_graph_binary(graph, "Mul", x, trm_graph_scalar(graph, "Add", z, 1)), 0.5);
}

static int activation_export(const struct trm_layer *layer, struct trm_graph *graph, int x)
{
  switch ((enum trm_activation)layer->ops->variant) {
  case TRM_RELU:
    return trm_graph_unary(graph, "Relu", x);
  case TRM_TANH:
    return trm_graph_unary(graph, "Tanh", x);
  case TRM_SIGMOID:
    return trm_graph_unary(graph, "Sigmoid", x);
  case TRM_GELU:
    return activation_gelu(graph, x, trm_graph_unary(graph, "Erf", trm_graph_scalar(graph, "Mul", x, sqrt(0.5))));
  case TRM_SILU:
    return trm_graph_binary(graph, "Mul", x, trm_graph_unary(graph, "Sigmoid", x));
  case TRM_LEAKY_RELU: {
    const int y = trm_graph_unary(graph, "LeakyRelu", x);
    graph->ops->set_real(graph, "alpha", activation_slope(layer));
    return y;
  }
  case TRM_SCALE:
    return trm_graph_scalar(graph, "Mul", x, activation_slope(layer));
  case TRM_GELU_TANH:
    break;
  }
  const int cube = trm_graph_binary(graph, "Mul", trm_graph_binary(graph, "Mul", x, x), x);
  const int sum = trm_graph_binary(graph, "Add", x, trm_graph_scalar(graph, "Mul", cube, 0.044715));
  return activation_gelu(graph, x, trm_graph_unary(graph, "Tanh", trm_graph_scalar(graph, "Mul", sum, sqrt(2 / M_PI))));
}

#define ACTIVATION                                                                     \
  .takes_bf16 = true, .forward = activation_forward, .backward = activation_backward,  \
  .export_graph = activation_export, .preferred_sharding = trm_prefer_output_sharding, \
  .shard = trm_shard_like_input, .in_place = true

const struct trm_layer_ops layer_relu = {
  ACTIVATION, .name = "relu", .usage = "relu", .variant = TRM_RELU, .keeps_output = true};

const struct trm_layer_ops layer_tanh = {
  ACTIVATION, .name = "tanh", .usage = "tanh", .variant = TRM_TANH, .keeps_output = true};

const struct trm_layer_ops layer_sigmoid = {
  ACTIVATION, .name = "sigmoid", .usage = "sigmoid", .variant = TRM_SIGMOID, .keeps_output = true};

const struct trm_layer_ops layer_gelu = {
  ACTIVATION, .name = "gelu", .usage = "gelu [tanh]", .variant = TRM_GELU, .create = activation_create_gelu,
  .keeps_input = true};

const struct trm_layer_ops layer_gelu_tanh = {
  ACTIVATION, .name = "gelu_tanh", .usage = "gelu_tanh", .variant = TRM_GELU_TANH, .keeps_input = true};

const struct trm_layer_ops layer_silu = {
  ACTIVATION, .name = "silu", .usage = "silu", .variant = TRM_SILU, .keeps_input = true};

const struct trm_layer_ops layer_leaky_relu = {
  ACTIVATION, .name = "leaky_relu", .usage = "leaky_relu [SLOPE]", .variant = TRM_LEAKY_RELU,
  .settings_bytes = sizeof(float), .create = activation_create_leaky_relu, .keeps_output = true};

const struct trm_layer_ops layer_scale = {
  ACTIVATION, .name = "scale", .variant = TRM_SCALE, .settings_bytes = sizeof(float)};

/* -- swiglu (Shazeer 2020): the first half of the values, through silu, gates the second */

static int activation_swiglu_shape(struct trm_layer *layer)
{
  TRM_CHECK(trm_layer_require_dense(layer));
  if ((layer->in.dims != 1 && !layer->in.sequence) || trm_layer_width(layer) % 2 != 0)
    return trm_error(TRM_USAGE, "%s: takes vectors or sequences of an even number of values, not samples of shape %s",
                     trm_layer_text(layer), trm_shape_text(&layer->in));
  layer->out = layer->in;
  layer->out.size[layer->in.dims - 1] /= 2;
  return TRM_OK;
}

static void activation_swiglu_forward(struct trm_layer *layer, const struct trm_pass *pass,
                                      const void *x /* (R, 2, F) */, void *y /* (R, F) */, float *work)
{
  (void)work;
  pass->device->ops->swiglu_forward(pass->device, &(struct trm_swiglu_forward){
    .x = x, .y = y, .r = trm_layer_rows(layer), .f = trm_layer_width(layer) / 2, .type = layer->values});
}

static void activation_swiglu_backward(struct trm_layer *layer, const struct trm_pass *pass, const void *x,
                                       const void *y, const void *dy, void *dx, float *work)
{
  (void)y, (void)work;
  const size_t r = trm_layer_rows(layer), f = trm_layer_width(layer) / 2;
  if (dx)
    pass->device->ops->swiglu_backward(pass->device, &(struct trm_swiglu_backward){
      .x = x, .dy = dy, .dx = dx, .r = r, .f = f, .type = layer->values});
}

static int activation_swiglu_export(const struct trm_layer *layer, struct trm_graph *graph, int x)
{
  (void)layer;
  const int a = trm_graph_split(graph, x, 2), b = a + 1;
  return trm_graph_binary(graph, "Mul", trm_graph_binary(graph, "Mul", a, trm_graph_unary(graph, "Sigmoid", a)), b);
}

/* Both halves are sharded alike. */
static struct trm_sharding activation_swiglu_preferred(const struct trm_layer *layer, const struct trm_sharding *out)
{
  return out->kind == TRM_SHARDED_BY_FEATURE && out->groups == 1
           ? trm_sharding_by_feature(2, out->units, out->width)
           : trm_sharding_by_feature(2, trm_layer_width(layer) / 2, 1);
}

static int activation_swiglu_shard(struct trm_layer *layer, struct trm_shard_request *request)
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
  .takes_bf16 = true,
  .usage = "swiglu",
  .shape = activation_swiglu_shape,
  .forward = activation_swiglu_forward,
  .backward = activation_swiglu_backward,
  .cost_per_value = {.flop = 2, .bytes = 1.5 * sizeof(float)},
  .export_graph = activation_swiglu_export,
  .preferred_sharding = activation_swiglu_preferred,
  .shard = activation_swiglu_shard,
  .keeps_input = true,
};
