/* Presets: names for model texts (private to src/nn). */
#pragma once

#include <stdio.h>

#include "nn/layer.h"

/* One item of a model's text, cut into words. word[0] is the name. */
struct trm_item {
  char *storage, *word[TRM_MAX_ARGUMENTS + 1];
  int words, number;
};

struct trm_preset {
  const char *name;
  /* Writes the text for these samples and classes. Errors name the item and the preset. */
  int (*expand)(const struct trm_item *item, const struct trm_input_spec *spec, FILE *to);
  size_t (*context)(const struct trm_item *item); /* tokens per sample, 0: any; NULL: not a token model */
};

/* presets_images.c */
int trm_preset_lenet5(const struct trm_item *item, const struct trm_input_spec *spec, FILE *to);
int trm_preset_resnet(const struct trm_item *item, const struct trm_input_spec *spec, FILE *to);
int trm_preset_resnet18(const struct trm_item *item, const struct trm_input_spec *spec, FILE *to);
int trm_preset_vgg11(const struct trm_item *item, const struct trm_input_spec *spec, FILE *to);

/* presets_gpt.c */
int trm_preset_gpt(const struct trm_item *item, const struct trm_input_spec *spec, FILE *to);
size_t trm_preset_gpt_context(const struct trm_item *item);

extern const struct trm_preset trm_preset_table[]; /* ends with a name that is NULL */
