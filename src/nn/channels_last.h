/* Training: values with the channels last, (B, H, W, C) in place of (B, C, H, W) (private to src/nn).
 *
 * A device's convolutions may want that layout, and reorder other arrays at each call. So a value has it if all layers
 * that write and read it compute in it: convolutions of whole blocks of channels, and batch norms, activations, adds
 * and pooling between them. Batches have the usual layout, so do all values at inference (conv_chain.h).
 *
 * Which values may have it is known for the whole model, before the pipeline cuts it: parts that exchange a value have
 * it in one layout, and the same bits as the whole. */
#pragma once

#include "nn/layer.h"

/* Sets in_last_allowed and out_last_allowed of all layers, whole or sharded. */
void trm_channels_last_allow(struct trm_layer *layer, int layers);
/* Sets in_last and out_last of layers [first, last). device: that of the training, or NULL: none has the layout. */
void trm_channels_last_set(struct trm_layer *layer, int first, int last, struct trm_device *device);
