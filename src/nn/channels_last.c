#include "nn/channels_last.h"

#include "nn/layers/layers.h"

/* Returns true if the layer computes in either layout, and writes the one that it reads. */
static bool last_keeps_layout(const struct trm_layer *layer)
{
  return layer->ops == &layer_batch_norm || layer->ops == &layer_add || layer->ops == &layer_max_pool ||
         layer->ops == &layer_avg_pool || layer->ops == &layer_global_avg_pool || trm_layer_is_activation(layer);
}

/* Returns true if it is a convolution of whole blocks of channels, or of an image of one or three, to whole blocks: its
 * input, its output, or both can have the layout. */
static bool last_converts(const struct trm_layer *layer)
{
  if (layer->ops != &layer_conv2d || layer->output_partial)
    return false;
  const struct trm_conv2d conv = trm_layer_conv2d(layer);
  return conv.groups == 1 && conv.units % TRM_CHANNEL_BLOCK == 0 &&
         (conv.channels % TRM_CHANNEL_BLOCK == 0 || conv.channels <= 3);
}

/* The values that a layer writes and reads: indices of layers, or TRM_FROM_BATCH, TRM_FROM_NONE. */
static void last_values(const struct trm_layer *layer, int i, int value[3])
{
  value[0] = layer[i].out.dims == 3 ? i : layer[i].from; /* a vector is one in both layouts */
  value[1] = layer[i].from;
  value[2] = layer[i].addend == TRM_FROM_NONE ? layer[i].from : layer[i].addend;
}

static bool last_may_have(const struct trm_layer *layer, int value)
{
  return value >= 0 && layer[value].out_last_allowed;
}

/* Takes the layout from the layer's values; returns true if one had it. */
static bool last_forbid(struct trm_layer *layer, const int value[3])
{
  bool changed = false;
  for (int k = 0; k < 3; k++)
    if (last_may_have(layer, value[k])) {
      layer[value[k]].out_last_allowed = false;
      changed = true;
    }
  return changed;
}

/* Begins with all images; layers take the layout from values that they cannot read or write in it. */
void trm_channels_last_allow(struct trm_layer *layer, int layers)
{
  int value[3];
  for (int i = 0; i < layers; i++)
    layer[i].out_last_allowed = layer[i].out.dims == 3;
  for (bool changed = true; changed;) {
    changed = false;
    for (int i = 0; i < layers; i++) {
      last_values(layer, i, value);
      const bool all = last_may_have(layer, value[0]) && last_may_have(layer, value[1]) &&
                       last_may_have(layer, value[2]);
      if (!last_converts(&layer[i]) && !(last_keeps_layout(&layer[i]) && all))
        changed = last_forbid(layer, value) || changed;
    }
  }
  for (int i = 0; i < layers; i++)
    layer[i].in_last_allowed = last_may_have(layer, layer[i].from);
}

void trm_channels_last_set(struct trm_layer *layer, int first, int last, struct trm_device *device)
{
  for (int i = first; i < last; i++) {
    const bool allowed = layer[i].in_last_allowed || layer[i].out_last_allowed;
    const bool here = allowed && device && device->ops->channels_last &&
                      device->ops->channels_last(device, layer[i].values);
    layer[i].in_last = here && layer[i].in_last_allowed;
    layer[i].out_last = here && layer[i].out_last_allowed;
  }
}
