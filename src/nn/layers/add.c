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

const struct trm_layer_ops layer_add = {
  .name = "add",
  .takes_bf16 = true,
  .usage = "add NAME",
  .shape = add_shape,
  .cost_per_value = {.flop = 1, .bytes = 3 * sizeof(float)},
  .preferred_sharding = trm_prefer_output_sharding,
  .shard = trm_shard_like_input,
  .in_place = true,
};
