/* Pooling of images (C, H, W), as torch.nn.MaxPool2d and AvgPool2d; global_avg_pool leaves the mean of each channel. */
#include "core/status.h"
#include "nn/graph.h"
#include "nn/layers/layers.h"
#include "nn/split.h"

static int pool_create(struct trm_layer *layer, const struct trm_arguments *arguments)
{
  static const char *const keys[] = {"kernel", "stride", "pad", NULL};
  struct trm_window2d *window = &layer->window;
  TRM_CHECK(trm_argument_done(layer, arguments, 1, keys));
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

static int global_create(struct trm_layer *layer, const struct trm_arguments *arguments)
{
  return trm_argument_done(layer, arguments, 0, (const char *const[]){NULL});
}

static int max_shape(struct trm_layer *layer)
{
  TRM_CHECK(trm_layer_window(layer));
  layer->workspace = trm_shape_count(&layer->out); /* which element was the largest: int32 */
  return TRM_OK;
}

static int global_shape(struct trm_layer *layer)
{
  TRM_CHECK(trm_layer_image(layer));
  const size_t height = layer->in.size[1], width = layer->in.size[2];
  layer->window = (struct trm_window2d){
    .kernel = {height, width}, .stride = {1, 1}, .in = {height, width}, .out = {1, 1}};
  layer->out = (struct trm_shape){.dims = 1, .size = {layer->in.size[0]}};
  return TRM_OK;
}

static size_t planes_of(const struct trm_layer *layer, const struct trm_pass *pass)
{
  return pass->input->rows * layer->in.size[0];
}

static void max_forward(struct trm_layer *layer, const struct trm_pass *pass, const float *x /* (B, C, H, W) */,
                        float *y /* (B, C, OH, OW) */, float *work /* (B, C, OH, OW) */)
{
  pass->device->ops->max_pool_forward(pass->device, &layer->window, x, y, (int32_t *)work, planes_of(layer, pass));
}

static void max_backward(struct trm_layer *layer, const struct trm_pass *pass, const float *x, const float *y,
                         const float *dy, float *dx, float *work)
{
  (void)x, (void)y;
  if (dx)
    pass->device->ops->max_pool_backward(pass->device, &layer->window, dy, (const int32_t *)work, dx,
                                         planes_of(layer, pass));
}

static void avg_forward(struct trm_layer *layer, const struct trm_pass *pass, const float *x /* (B, C, H, W) */,
                        float *y /* (B, C, OH, OW) */, float *work)
{
  (void)work;
  pass->device->ops->avg_pool_forward(pass->device, &layer->window, x, y, planes_of(layer, pass));
}

static void avg_backward(struct trm_layer *layer, const struct trm_pass *pass, const float *x, const float *y,
                         const float *dy, float *dx, float *work)
{
  (void)x, (void)y, (void)work;
  if (dx)
    pass->device->ops->avg_pool_backward(pass->device, &layer->window, dy, dx, planes_of(layer, pass));
}

static struct trm_cost pool_cost(const struct trm_layer *layer)
{
  const double in = (double)trm_shape_count(&layer->in), out = (double)trm_shape_count(&layer->out);
  return (struct trm_cost){.flop = out * (double)(layer->window.kernel[0] * layer->window.kernel[1]),
                           .bytes = sizeof(float) * (in + out)};
}

static int max_export(const struct trm_layer *layer, struct trm_graph *graph, int x)
{
  const int y = trm_graph_one(graph, "MaxPool", x);
  trm_graph_window(graph, &layer->window);
  return y;
}

static int avg_export(const struct trm_layer *layer, struct trm_graph *graph, int x)
{
  const int y = trm_graph_one(graph, "AveragePool", x);
  trm_graph_window(graph, &layer->window);
  graph->ops->set_integer(graph, "count_include_pad", 1);
  return y;
}

static int global_export(const struct trm_layer *layer, struct trm_graph *graph, int x)
{
  return trm_graph_reshape(graph, trm_graph_one(graph, "GlobalAveragePool", x), &layer->out);
}

static struct trm_lay pool_wish(const struct trm_layer *layer, const struct trm_lay *out)
{
  (void)out;
  return trm_lay_of_shape(&layer->in);
}

/* By channels. */
static int pool_divide(struct trm_layer *layer, struct trm_division *division)
{
  struct trm_lay out = division->has;
  if (out.kind == TRM_FEATURES)
    out.width = out.width / (layer->window.in[0] * layer->window.in[1]) * layer->window.out[0] * layer->window.out[1];
  trm_divide(layer, division, division->has, out);
  if (layer->ops == &layer_max_pool)
    layer->workspace = trm_shape_count(&layer->out);
  return TRM_OK;
}

const struct trm_layer_ops layer_max_pool = {
  .name = "max_pool",
  .usage = "max_pool KERNEL [stride=S pad=P], each N or HxW; S is KERNEL unless given",
  .create = pool_create,
  .shape = max_shape,
  .forward = max_forward,
  .backward = max_backward,
  .cost = pool_cost,
  .export = max_export,
  .wish = pool_wish,
  .divide = pool_divide,
};

const struct trm_layer_ops layer_avg_pool = {
  .name = "avg_pool",
  .usage = "avg_pool KERNEL [stride=S pad=P], each N or HxW; S is KERNEL unless given",
  .create = pool_create,
  .shape = trm_layer_window,
  .forward = avg_forward,
  .backward = avg_backward,
  .cost = pool_cost,
  .export = avg_export,
  .wish = pool_wish,
  .divide = pool_divide,
};

const struct trm_layer_ops layer_global_avg_pool = {
  .name = "global_avg_pool",
  .usage = "global_avg_pool",
  .create = global_create,
  .shape = global_shape,
  .forward = avg_forward,
  .backward = avg_backward,
  .cost = pool_cost,
  .export = global_export,
  .wish = pool_wish,
  .divide = pool_divide,
};
