/* The sum of two values of equal shape. The model adds the values and routes gradients (nn/model_pass.c); here is only
 * the layer's description. */
#include "core/status.h"
#include "nn/layers/layers.h"
#include "nn/sharding.h"

/* layer->out is the shape of the named value on entry. */
static int add_shape(struct trm_layer *layer)
{
  TRM_CHECK(trm_layer_require_dense(layer));
  bool same = layer->in.dims == layer->out.dims;
  for (int d = 0; same && d < layer->in.dims; d++)
    same = layer->in.size[d] == layer->out.size[d];
  if (!same)
    return trm_error(TRM_USAGE, "%s: adds a value of shape %s to one of shape %s: the two must agree",
                     trm_layer_text(layer), trm_shape_text(&layer->out), trm_shape_text(&layer->in));
  return TRM_OK;
}

static struct trm_cost add_cost(const struct trm_layer *layer)
{
  const double f = (double)trm_shape_count(&layer->in);
  return (struct trm_cost){.flop = f, .bytes = 3 * sizeof(float) * f};
}

const struct trm_layer_ops layer_add = {
  .name = "add",
  .usage = "add NAME",
  .shape = add_shape,
  .cost = add_cost,
  .preferred_sharding = trm_prefer_output_sharding,
  .in_place = true,
};
