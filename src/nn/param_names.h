/* The names of a model's parameters in other programs, under which weights are exchanged.
 *
 *   GPT-2 (Hugging Face)    wte.weight, wpe.weight, h.N.ln_1, h.N.attn.c_attn, h.N.attn.c_proj, h.N.ln_2, h.N.mlp.c_fc,
 *                           h.N.mlp.c_proj, ln_f, and lm_head.weight where the head is not tied. The weights of linear
 *                           layers are (in, out) there. With or without "transformer." in front.
 *   ResNet (torchvision)    conv1, bn1, layerL.B.conv1, .bn1, .conv2, .bn2, .downsample.0, .downsample.1, fc, for any
 *                           residual network of basic blocks or of bottlenecks: resnet18, 34, 50,
 *                           and resnet20 to 110 alike
 *   VGG (torchvision)       features.N, classifier.N: layer N before and after flatten, for any list of convolutions,
 *                           flatten and linear layers: vgg11, lenet5
 *   any other model         its own names, as in a checkpoint: layerN.weight, N the item in the model's text
 * Each followed by .weight, .bias, .running_mean, .running_var. */
#pragma once

#include "nn/model.h"

struct trm_param_name {
  char text[64];
  bool transposed; /* a matrix stored as (in, out) */
};

struct trm_param_names {
  const char *scheme;                  /* "gpt2", "resnet", "vgg", "own" */
  const char *prefix;                  /* optional prefix of names; NULL: none */
  const char *const *ignored_suffixes; /* suffixes of names to ignore, NULL-terminated */
  struct trm_param_name *name;         /* of trm_model_parameter(model, n) */
};

/* Finds the names by the model's layers. Release with trm_param_names_free. */
void trm_param_names_create(struct trm_param_names *names, const struct trm_model *model);
void trm_param_names_free(struct trm_param_names *names);

/* Returns the number of the parameter with this name, with or without prefix; -1: none, -2: to be ignored. */
int trm_param_names_find(const struct trm_param_names *names, const struct trm_model *model, const char *text);
