/* A model's text (private to src/nn): its items, and presets, names for model texts. */
#pragma once

#include "nn/layer.h"

/* One item of a model's text, cut into words. word[0] is the name. */
struct trm_item {
  char *storage, *word[TRM_MAX_ARGUMENTS + 1];
  int words, number;
};

struct trm_preset {
  const char *name;
  /* Appends the text for these samples and classes. Errors name the item and the preset. */
  int (*expand)(const struct trm_item *item, const struct trm_input_spec *spec, char **to);
  size_t (*context)(const struct trm_item *item); /* tokens per sample, 0: any; NULL: not a token model */
};

extern const struct trm_preset trm_preset_table[]; /* ends with a name that is NULL */

/* Reads the text, resolves presets and infers every shape. *layer is released with trm_layers_free, *canonical
 * with trm_free; on error neither is set. */
int trm_model_parse(const char *text, const struct trm_input_spec *spec, struct trm_layer **layer, int *layers,
                    char **canonical);
