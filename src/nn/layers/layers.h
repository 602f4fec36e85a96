/* The layers that exist, for the table (private to src/nn). */
#ifndef TRM_NN_LAYERS_H
#define TRM_NN_LAYERS_H

#include "nn/layer.h"

extern const struct trm_layer_ops layer_linear, layer_relu, layer_gelu, layer_gelu_tanh, layer_tanh, layer_sigmoid,
  layer_dropout;

#endif
