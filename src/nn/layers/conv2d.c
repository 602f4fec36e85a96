/* Two-dimensional convolution of images (C, H, W), as torch.nn.Conv2d: N units, kernels of KH x KW, in groups. */
#include "core/status.h"
#include "nn/graph.h"
#include "nn/layers/layers.h"
#include "nn/sharding.h"

enum { WEIGHT, BIAS };

struct conv2d {
  struct trm_weight_settings weights; /* first: trm_layer_remove_bias */
  struct trm_window2d window;
  size_t groups; /* of this rank */
};

static int conv2d_create(struct trm_layer *layer, const struct trm_arguments *arguments)
{
  static const char *const keys[] = {"units", "kernel", "stride", "pad", "groups", "bias", "init", "residuals", NULL};
  struct conv2d *s = layer->settings;
  *s = (struct conv2d){.weights = {.bias = true}, .window = {.stride = {1, 1}}, .groups = 1};
  TRM_CHECK(trm_argument_reject_unknown(layer, arguments, 2, keys));
  TRM_CHECK(trm_argument_size(layer, arguments, 0, "units", &s->weights.units));
  TRM_CHECK(trm_argument_pair(layer, arguments, 1, "kernel", 1, s->window.kernel));
  TRM_CHECK(trm_argument_pair(layer, arguments, -1, "stride", 1, s->window.stride));
  TRM_CHECK(trm_argument_pair(layer, arguments, -1, "pad", 0, s->window.pad));
  TRM_CHECK(trm_argument_size(layer, arguments, -1, "groups", &s->groups));
  return trm_argument_weights(layer, arguments, &s->weights);
}

static int conv2d_shape(struct trm_layer *layer)
{
  struct conv2d *s = layer->settings;
  TRM_CHECK(trm_layer_shape_window(layer, &s->window));
  const size_t channels = layer->in.size[0], units = s->weights.units;
  if (channels % s->groups != 0 || units % s->groups != 0)
    return trm_error(TRM_USAGE, "%s: %zu channels and %zu units cannot both be divided among %zu groups",
                     trm_layer_text(layer), channels, units, s->groups);
  layer->out.size[0] = units;
  const size_t *kernel = s->window.kernel, k = channels / s->groups * kernel[0] * kernel[1];
  const struct trm_shape weight = {.dims = 4, .size = {units, channels / s->groups, kernel[0], kernel[1]}};
  trm_layer_add_weights(layer, &s->weights, &weight, k, units / s->groups * kernel[0] * kernel[1]);
  return TRM_OK;
}

struct trm_conv2d trm_layer_conv2d(const struct trm_layer *layer)
{
  const struct conv2d *s = layer->settings;
  return (struct trm_conv2d){
    .window = s->window, .channels = layer->in.size[0], .units = s->weights.units, .groups = s->groups,
    .x_last = layer->in_last, .y_last = layer->out_last};
}

static bool conv2d_has_bias(const struct trm_layer *layer)
{
  return layer->parameters > BIAS;
}

static void conv2d_forward(struct trm_layer *layer, const struct trm_pass *pass, const void *x /* (B, C, H, W) */,
                           void *y /* (B, N, OH, OW) */, float *work)
{
  (void)work;
  const struct trm_conv2d conv = trm_layer_conv2d(layer);
  const bool biased = conv2d_has_bias(layer) && !(layer->output_partial && layer->tensor_rank); /* rank 0 only */
  /* a provider's weights may be where another layer's were */
  const bool kept = pass->weights_kept && !pass->training && !pass->provider;
  const struct trm_conv2d_forward call = {
    .conv = conv, .x = x, .w = layer->parameter[WEIGHT].values, .bias = biased ? layer->parameter[BIAS].w : NULL,
    .y = y, .b = layer->rows, .weights_kept = kept, .type = layer->values};
  struct trm_conv2d_fused chain = layer->fused.chain;
  if (!chain.conv.y) {
    pass->device->ops->conv2d_forward(pass->device, &call);
    return;
  }
  chain.conv = call;
  chain.conv.y = layer->fused.chain.conv.y;
  pass->device->ops->conv2d_fused(pass->device, &chain);
}

static void conv2d_backward(struct trm_layer *layer, const struct trm_pass *pass, const void *x, const void *y,
                            const void *dy, void *dx, float *work)
{
  (void)y, (void)work;
  const struct trm_parameter *weight = &layer->parameter[WEIGHT];
  const struct trm_parameter *bias = conv2d_has_bias(layer) ? &layer->parameter[BIAS] : NULL;
  const bool trains = !weight->frozen || (bias && !bias->frozen);
  if (trains || dx)
    pass->device->ops->conv2d_backward(pass->device, &(struct trm_conv2d_backward){
      .conv = trm_layer_conv2d(layer), .x = x, .w = weight->values, .dy = dy, .beta = pass->beta,
      .dw = trains ? weight->g : NULL, .db = bias && !bias->frozen ? bias->g : NULL, .dx = dx, .b = layer->rows,
      .type = layer->values});
}

static struct trm_cost conv2d_cost(const struct trm_layer *layer)
{
  const double in = (double)trm_shape_count(&layer->in), out = (double)trm_shape_count(&layer->out);
  const struct conv2d *s = layer->settings;
  const double k = (double)(layer->in.size[0] / s->groups * s->window.kernel[0] * s->window.kernel[1]);
  return (struct trm_cost){.flop = 2 * out * k, .bytes = sizeof(float) * (in + out)};
}

static int conv2d_export(const struct trm_layer *layer, struct trm_graph *graph, int x)
{
  const struct conv2d *s = layer->settings;
  const struct trm_graph_ops *ops = graph->ops;
  const bool biased = conv2d_has_bias(layer);
  const int w = ops->parameter(graph, &layer->parameter[WEIGHT]);
  const int inputs[] = {x, w, biased ? ops->parameter(graph, &layer->parameter[BIAS]) : -1};
  const int y = ops->node(graph, "Conv", inputs, biased ? 3 : 2, 1);
  trm_graph_window(graph, &s->window);
  ops->set_integer(graph, "group", (int64_t)s->groups);
  return y;
}

static struct trm_sharding conv2d_preferred_sharding(const struct trm_layer *layer, const struct trm_sharding *out)
{
  (void)out;
  const size_t groups = ((const struct conv2d *)layer->settings)->groups;
  return groups > 1 ? trm_sharding_by_feature(1, groups, trm_shape_count(&layer->in) / groups)
                    : trm_sharding_of_shape(&layer->in);
}

/* Shards by groups if there are several. */
static int conv2d_shard(struct trm_layer *layer, struct trm_shard_request *request)
{
  struct conv2d *s = layer->settings;
  const size_t groups = s->groups, pixels = layer->out.size[1] * layer->out.size[2];
  if (groups == 1) {
    trm_shard_weights(layer, request, &s->weights, pixels);
  } else if (groups < (size_t)request->size) { /* too small to shard */
    trm_shard_layer(layer, request, trm_sharding_replicated, trm_sharding_replicated);
  } else {
    const struct trm_sharding in = conv2d_preferred_sharding(layer, NULL);
    const struct trm_sharding out = trm_sharding_by_feature(1, groups, trm_shape_count(&layer->out) / groups);
    for (int p = 0; p < layer->parameters; p++)
      trm_shard_parameter(request, &layer->parameter[p], 0, 1, groups);
    s->groups = trm_shard_units(request, groups);
    s->weights.units = s->groups * (out.width / pixels);
    trm_shard_layer(layer, request, in, out);
  }
  return TRM_OK;
}

const struct trm_layer_ops layer_conv2d = {
  .name = "conv2d",
  .takes_bf16 = true,
  .usage = "conv2d UNITS KERNEL [stride=S pad=P groups=G bias=yes|no init=default|he|xavier], KERNEL, S, P: N or HxW",
  .settings_bytes = sizeof(struct conv2d),
  .create = conv2d_create,
  .shape = conv2d_shape,
  .forward = conv2d_forward,
  .backward = conv2d_backward,
  .cost = conv2d_cost,
  .export_graph = conv2d_export,
  .remove_bias = trm_layer_remove_bias,
  .preferred_sharding = conv2d_preferred_sharding,
  .shard = conv2d_shard,
  .keeps_input = true,
};
