/* From a model's text to its layers (private to src/nn). */
#pragma once

#include "nn/layer.h"

/* Reads the text, resolves presets and infers every shape. *layer is released with trm_layers_free, *canonical
 * with trm_free; on error neither is set. */
int trm_model_parse(const char *text, const struct trm_input_spec *spec, struct trm_layer **layer, int *layers,
                    char **canonical);
