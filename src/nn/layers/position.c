/* Where in a sequence a position stands: a learned vector that is added to it (position), or turns of attention's
 * queries and keys (rotary, between the linear layer that makes them and attention). */
#include "core/status.h"
#include "nn/layers/layers.h"

/* -- position */

static int position_create(struct trm_layer *layer, const struct trm_arguments *arguments)
{
  return trm_argument_done(layer, arguments, 0, (const char *const[]){NULL});
}

static int position_shape(struct trm_layer *layer)
{
  TRM_CHECK(trm_layer_sequence(layer));
  layer->out = layer->in;
  const struct trm_shape weight = {.dims = 2, .size = {layer->in.size[0], layer->in.size[1]}};
  trm_layer_parameter(layer, "weight", &weight, TRM_INIT_NORMAL, 0.02f);
  return TRM_OK;
}

static void position_forward(struct trm_layer *layer, const struct trm_pass *pass, const float *x /* (B, T, D) */,
                             float *y /* (B, T, D) */, float *work)
{
  (void)work;
  const size_t b = pass->input->rows, n = trm_shape_count(&layer->in);
  if (y != x)
    pass->device->ops->copy(pass->device, y, x, b * n * sizeof(float));
  pass->device->ops->bias_add(pass->device, y, layer->parameter[0].w, b, n);
}

static void position_backward(struct trm_layer *layer, const struct trm_pass *pass, const float *x, const float *y,
                              const float *dy, float *dx, float *work)
{
  (void)x, (void)y, (void)work;
  const size_t b = pass->input->rows, n = trm_shape_count(&layer->in);
  pass->device->ops->bias_backward(pass->device, dy, pass->beta, layer->parameter[0].g, b, n);
  if (dx && dx != dy)
    pass->device->ops->copy(pass->device, dx, dy, b * n * sizeof(float));
}

static struct trm_cost position_cost(const struct trm_layer *layer)
{
  const double f = (double)trm_shape_count(&layer->in);
  return (struct trm_cost){.flop = f, .bytes = 2 * sizeof(float) * f};
}

const struct trm_layer_ops layer_position = {
  .name = "position",
  .usage = "position",
  .create = position_create,
  .shape = position_shape,
  .forward = position_forward,
  .backward = position_backward,
  .cost = position_cost,
  .in_place = true,
};

/* -- rotary */

static int rotary_create(struct trm_layer *layer, const struct trm_arguments *arguments)
{
  layer->base = 10000;
  TRM_CHECK(trm_argument_done(layer, arguments, 0, (const char *const[]){"heads", "base", NULL}));
  TRM_CHECK(trm_argument_size(layer, arguments, -1, "heads", &layer->heads));
  return trm_argument_real(layer, arguments, -1, "base", 1, 1e9, &layer->base);
}

static int rotary_shape(struct trm_layer *layer)
{
  TRM_CHECK(trm_layer_sequence(layer));
  if (layer->in.size[1] % (3 * 2 * layer->heads) != 0)
    return trm_error(TRM_USAGE, "%s: takes queries, keys and values of %zu heads of even width, (T, 3 D), not %s",
                     trm_layer_text(layer), layer->heads, trm_shape_text(&layer->in));
  layer->out = layer->in;
  return TRM_OK;
}

static void rotary_turn(const struct trm_layer *layer, const struct trm_pass *pass, bool back, const float *from,
                        float *to)
{
  const struct trm_attention shape = {.b = pass->input->rows,
                                      .t = layer->in.size[0],
                                      .heads = layer->heads,
                                      .width = layer->in.size[1] / 3 / layer->heads};
  if (to != from)
    pass->device->ops->copy(pass->device, to, from, shape.b * trm_shape_count(&layer->in) * sizeof(float));
  pass->device->ops->rotary(pass->device, &shape, layer->base, back, to);
}

static void rotary_forward(struct trm_layer *layer, const struct trm_pass *pass, const float *x /* (B, T, 3, H, E) */,
                           float *y, float *work)
{
  (void)work;
  rotary_turn(layer, pass, false, x, y);
}

static void rotary_backward(struct trm_layer *layer, const struct trm_pass *pass, const float *x, const float *y,
                            const float *dy, float *dx, float *work)
{
  (void)x, (void)y, (void)work;
  rotary_turn(layer, pass, true, dy, dx);
}

static struct trm_cost rotary_cost(const struct trm_layer *layer)
{
  const double f = (double)trm_shape_count(&layer->in) * 2 / 3;
  return (struct trm_cost){.flop = 3 * f, .bytes = 2 * sizeof(float) * f};
}

const struct trm_layer_ops layer_rotary = {
  .name = "rotary",
  .usage = "rotary heads=H [base=10000]",
  .create = rotary_create,
  .shape = rotary_shape,
  .forward = rotary_forward,
  .backward = rotary_backward,
  .cost = rotary_cost,
  .in_place = true,
};
