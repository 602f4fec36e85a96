/* Fully connected layer: y = x w^T + bias, for dense rows and, as a model's first layer, sparse ones.
 * Samples of several dimensions are taken as one vector. K inputs, N units. */
#include <math.h>

#include "core/status.h"
#include "nn/layers/layers.h"

enum { WEIGHT, BIAS };

static int linear_create(struct trm_layer *layer, const struct trm_arguments *arguments)
{
  static const char *const keys[] = {"units", "bias", NULL};
  layer->bias = true;
  TRM_CHECK(trm_argument_done(layer, arguments, 1, keys));
  TRM_CHECK(trm_argument_size(layer, arguments, 0, "units", &layer->units));
  return trm_argument_bool(layer, arguments, "bias", &layer->bias);
}

static int linear_shape(struct trm_layer *layer)
{
  const size_t k = trm_shape_count(&layer->in), n = layer->units;
  if (k < 1 || k > INT32_MAX)
    return trm_error(TRM_USAGE, "%s: an input of shape %s has %zu values, must have 1 to %d", trm_layer_text(layer),
                     trm_shape_text(&layer->in), k, INT32_MAX);
  layer->out = (struct trm_shape){.dims = 1, .size = {n}};
  /* As torch.nn.Linear: weight and bias uniform in +-1/sqrt(K). */
  const float bound = (float)(1 / sqrt((double)k));
  trm_layer_parameter(layer, "weight", &(struct trm_shape){.dims = 2, .size = {n, k}}, TRM_INIT_UNIFORM, bound);
  if (layer->bias)
    trm_layer_parameter(layer, "bias", &layer->out, TRM_INIT_UNIFORM, bound);
  return TRM_OK;
}

static void linear_forward(struct trm_layer *layer, const struct trm_pass *pass, const float *x /* (B, K) */,
                           float *y /* (B, N) */, float *work)
{
  (void)work;
  struct trm_device *device = pass->device;
  const size_t b = pass->input->rows, k = trm_shape_count(&layer->in), n = layer->units;
  const float *w = layer->parameter[WEIGHT].w; /* (N, K) */
  if (layer->sparse_input)
    device->ops->csr_forward(device, &pass->input->csr, w, y, n);
  else
    device->ops->gemm(device, false, true, b, n, k, 1, x, k, w, k, 0, y, n);
  if (layer->bias)
    device->ops->bias_add(device, y, layer->parameter[BIAS].w, b, n);
}

static void linear_backward(struct trm_layer *layer, const struct trm_pass *pass, const float *x, const float *y,
                            const float *dy, float *dx, float *work)
{
  (void)y, (void)work;
  struct trm_device *device = pass->device;
  const size_t b = pass->input->rows, k = trm_shape_count(&layer->in), n = layer->units;
  const struct trm_parameter *weight = &layer->parameter[WEIGHT];
  if (layer->sparse_input)
    device->ops->csr_backward(device, &pass->input->csr, dy, pass->beta, weight->g, n);
  else
    device->ops->gemm(device, true, false, n, k, b, 1, dy, n, x, k, pass->beta, weight->g, k);
  if (layer->bias)
    device->ops->bias_backward(device, dy, pass->beta, layer->parameter[BIAS].g, b, n);
  if (dx)
    device->ops->gemm(device, false, false, b, k, n, 1, dy, n, weight->w, k, 0, dx, k);
}

/* For sparse rows this is the cost as if they were dense: the entries are not known before the data is read. */
static struct trm_cost linear_cost(const struct trm_layer *layer)
{
  const double k = (double)trm_shape_count(&layer->in), n = (double)layer->units;
  return (struct trm_cost){.flop = 2 * k * n, .bytes = sizeof(float) * (k + n)};
}

const struct trm_layer_ops layer_linear = {
  .name = "linear",
  .usage = "linear UNITS [bias=yes|no]",
  .create = linear_create,
  .shape = linear_shape,
  .forward = linear_forward,
  .backward = linear_backward,
  .cost = linear_cost,
  .keeps_input = true,
};
