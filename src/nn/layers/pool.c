/* Pooling of images (C, H, W), as torch.nn.MaxPool2d and AvgPool2d; global_avg_pool gives the mean of each channel. The
 * settings are the window. */
#include "core/status.h"
#include "nn/graph.h"
#include "nn/layers/layers.h"
#include "nn/sharding.h"

static int pool_create(struct trm_layer *layer, const struct trm_arguments *arguments)
{
  static const char *const keys[] = {"kernel", "stride", "pad", NULL};
  struct trm_window2d *window = layer->settings;
  TRM_CHECK(trm_argument_reject_unknown(layer, arguments, 1, keys));
  TRM_CHECK(trm_argument_pair(layer, arguments, 0, "kernel", 1, window->kernel));
  window->stride[0] = window->kernel[0];
  window->stride[1] = window->kernel[1];
  TRM_CHECK(trm_argument_pair(layer, arguments, -1, "stride", 1, window->stride));
  TRM_CHECK(trm_argument_pair(layer, arguments, -1, "pad", 0, window->pad));
  for (int d = 0; d < 2; d++)
    if (2 * window->pad[d] > window->kernel[d])
      return trm_error(TRM_USAGE, "%s: pad is %zu, must be at most half of the kernel's %zu", trm_layer_text(layer),
                       window->pad[d], window->kernel[d]);
  return TRM_OK;
}

static int pool_shape(struct trm_layer *layer)
{
  return trm_layer_shape_window(layer, layer->settings);
}

static int pool_shape_max(struct trm_layer *layer)
{
  TRM_CHECK(pool_shape(layer));
  layer->workspace = trm_shape_count(&layer->out); /* index of the largest element: int32 */
  return TRM_OK;
}

static int pool_shape_global(struct trm_layer *layer)
{
  TRM_CHECK(trm_layer_require_image(layer));
  struct trm_window2d *window = layer->settings;
  const size_t height = layer->in.size[1], width = layer->in.size[2];
  *window = (struct trm_window2d){.kernel = {height, width}, .stride = {1, 1}, .in = {height, width}, .out = {1, 1}};
  layer->out = (struct trm_shape){.dims = 1, .size = {layer->in.size[0]}};
  return TRM_OK;
}

static const struct trm_window2d *pool_window(const struct trm_layer *layer)
{
  return layer->settings;
}

static size_t pool_planes(const struct trm_layer *layer)
{
  return layer->rows * layer->in.size[0];
}

/* Channels, if they are last. */
static size_t pool_last(const struct trm_layer *layer)
{
  return layer->in_last ? layer->in.size[0] : 0;
}

static void pool_max_forward(struct trm_layer *layer, const struct trm_pass *pass, const void *x /* (B, C, H, W) */,
                             void *y /* (B, C, OH, OW) */, float *work /* (B, C, OH, OW) */)
{
  pass->device->ops->max_pool_forward(pass->device, &(struct trm_max_pool_forward){
    .window = *pool_window(layer), .x = x, .y = y, .argmax = pass->training ? (int32_t *)work : NULL,
    .planes = pool_planes(layer), .last = pool_last(layer), .type = layer->values});
}

static void pool_max_backward(struct trm_layer *layer, const struct trm_pass *pass, const void *x, const void *y,
                              const void *dy, void *dx, float *work)
{
  (void)x, (void)y;
  if (dx)
    pass->device->ops->max_pool_backward(pass->device, &(struct trm_max_pool_backward){
      .window = *pool_window(layer), .dy = dy, .argmax = (const int32_t *)work, .dx = dx,
      .planes = pool_planes(layer), .last = pool_last(layer), .type = layer->values});
}

static void pool_avg_forward(struct trm_layer *layer, const struct trm_pass *pass, const void *x /* (B, C, H, W) */,
                             void *y /* (B, C, OH, OW) */, float *work)
{
  (void)work;
  pass->device->ops->avg_pool_forward(pass->device, &(struct trm_avg_pool_forward){
    .window = *pool_window(layer), .x = x, .y = y, .planes = pool_planes(layer), .last = pool_last(layer),
    .type = layer->values});
}

static void pool_avg_backward(struct trm_layer *layer, const struct trm_pass *pass, const void *x, const void *y,
                              const void *dy, void *dx, float *work)
{
  (void)x, (void)y, (void)work;
  if (dx)
    pass->device->ops->avg_pool_backward(pass->device, &(struct trm_avg_pool_backward){
      .window = *pool_window(layer), .dy = dy, .dx = dx, .planes = pool_planes(layer), .last = pool_last(layer),
      .type = layer->values});
}

static struct trm_cost pool_cost(const struct trm_layer *layer)
{
  const double in = (double)trm_shape_count(&layer->in), out = (double)trm_shape_count(&layer->out);
  const struct trm_window2d *window = layer->settings;
  return (struct trm_cost){.flop = out * (double)(window->kernel[0] * window->kernel[1]),
                           .bytes = sizeof(float) * (in + out)};
}

static int pool_export_max(const struct trm_layer *layer, struct trm_graph *graph, int x)
{
  const int y = trm_graph_unary(graph, "MaxPool", x);
  trm_graph_window(graph, layer->settings);
  return y;
}

static int pool_export_avg(const struct trm_layer *layer, struct trm_graph *graph, int x)
{
  const int y = trm_graph_unary(graph, "AveragePool", x);
  trm_graph_window(graph, layer->settings);
  graph->ops->set_integer(graph, "count_include_pad", 1);
  return y;
}

static int pool_export_global(const struct trm_layer *layer, struct trm_graph *graph, int x)
{
  return trm_graph_reshape(graph, trm_graph_unary(graph, "GlobalAveragePool", x), &layer->out);
}

static struct trm_sharding pool_preferred_sharding(const struct trm_layer *layer, const struct trm_sharding *out)
{
  (void)out;
  return trm_sharding_of_shape(&layer->in);
}

/* Shards by channels. */
static int pool_shard(struct trm_layer *layer, struct trm_shard_request *request)
{
  const struct trm_window2d *window = layer->settings;
  struct trm_sharding out = request->current;
  if (out.kind == TRM_SHARDED_BY_FEATURE)
    out.width = out.width / (window->in[0] * window->in[1]) * window->out[0] * window->out[1];
  trm_shard_layer(layer, request, request->current, out);
  if (layer->workspace)
    layer->workspace = trm_shape_count(&layer->out);
  return TRM_OK;
}

#define POOL                                                                            \
  .takes_bf16 = true, .settings_bytes = sizeof(struct trm_window2d), .cost = pool_cost, \
  .preferred_sharding = pool_preferred_sharding, .shard = pool_shard
#define AVG_POOL POOL, .forward = pool_avg_forward, .backward = pool_avg_backward

const struct trm_layer_ops layer_max_pool = {
  POOL,
  .name = "max_pool",
  .usage = "max_pool KERNEL [stride=S pad=P], each N or HxW; S is KERNEL unless given",
  .create = pool_create,
  .shape = pool_shape_max,
  .forward = pool_max_forward,
  .backward = pool_max_backward,
  .export_graph = pool_export_max,
};

const struct trm_layer_ops layer_avg_pool = {
  AVG_POOL,
  .name = "avg_pool",
  .usage = "avg_pool KERNEL [stride=S pad=P], each N or HxW; S is KERNEL unless given",
  .create = pool_create,
  .shape = pool_shape,
  .export_graph = pool_export_avg,
};

const struct trm_layer_ops layer_global_avg_pool = {
  AVG_POOL, .name = "global_avg_pool", .usage = "global_avg_pool", .shape = pool_shape_global,
  .export_graph = pool_export_global};
