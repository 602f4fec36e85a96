/* Multi-head self-attention (Vaswani et al. 2017) of queries, keys and values side by side (T, 3 D), as one linear
 * layer makes them: linear 3*D | attention heads=H | linear D. H heads of E = D / H values. */
#include "core/status.h"
#include "nn/layers/layers.h"

static int attention_create(struct trm_layer *layer, const struct trm_arguments *arguments)
{
  layer->causal = true;
  TRM_CHECK(trm_argument_done(layer, arguments, 0, (const char *const[]){"heads", "causal", NULL}));
  TRM_CHECK(trm_argument_size(layer, arguments, -1, "heads", &layer->heads));
  return trm_argument_bool(layer, arguments, "causal", &layer->causal);
}

static int attention_shape(struct trm_layer *layer)
{
  TRM_CHECK(trm_layer_sequence(layer));
  if (layer->in.size[1] % (3 * layer->heads) != 0)
    return trm_error(TRM_USAGE, "%s: takes queries, keys and values of %zu heads, (T, 3 D), not %s",
                     trm_layer_text(layer), layer->heads, trm_shape_text(&layer->in));
  layer->out = layer->in;
  layer->out.size[1] /= 3;
  layer->workspace = 2 * layer->heads * layer->in.size[0];
  return TRM_OK;
}

static struct trm_attention shape_of(const struct trm_layer *layer, const struct trm_pass *pass)
{
  return (struct trm_attention){.b = pass->input->rows,
                                .t = layer->in.size[0],
                                .heads = layer->heads,
                                .width = layer->out.size[1] / layer->heads,
                                .causal = layer->causal};
}

static void attention_forward(struct trm_layer *layer, const struct trm_pass *pass,
                              const float *x /* (B, T, 3, H, E) */, float *y /* (B, T, H, E) */, float *work /* (B, H, T, 2) */)
{
  const struct trm_attention shape = shape_of(layer, pass);
  pass->device->ops->attention_forward(pass->device, &shape, x, y, work);
}

static void attention_backward(struct trm_layer *layer, const struct trm_pass *pass, const float *x, const float *y,
                               const float *dy, float *dx, float *work)
{
  (void)y;
  const struct trm_attention shape = shape_of(layer, pass);
  if (dx)
    pass->device->ops->attention_backward(pass->device, &shape, x, work, dy, dx);
}

/* Two products of (T, D) with its transpose, half of it if causal. Backward makes five of them. */
static struct trm_cost attention_cost(const struct trm_layer *layer)
{
  const double t = (double)layer->out.size[0], d = (double)layer->out.size[1];
  return (struct trm_cost){.flop = 4 * t * t * d / (layer->causal ? 2 : 1), .bytes = 4 * sizeof(float) * t * d};
}

const struct trm_layer_ops layer_attention = {
  .name = "attention",
  .usage = "attention heads=H [causal=yes|no]",
  .create = attention_create,
  .shape = attention_shape,
  .forward = attention_forward,
  .backward = attention_backward,
  .cost = attention_cost,
  .keeps_input = true,
};
