/* Low-rank adapters of linear layers (LoRA, Hu et al. 2021): y = x W^T + bias + alpha / R (x A^T) B^T, of which A
 * (R, K) and B (N, R) alone are trained. A model's text has them as the arguments lora=R and alpha=ALPHA of linear
 * layers. */
#pragma once

#include "nn/model.h"

TRM_BEGIN_DECLS

/* Gives adapters to those linear layers of a model whose weights' names (nn/param_names.h) the pattern matches:
 * *adapted is its text with the arguments; trm_free. TRM_USAGE: pattern is no regular expression, or matches no such
 * layer. */
int trm_lora_add(const struct trm_model *model, const char *pattern, size_t rank, float alpha, char **adapted);

/* Makes *base the model without adapters, and *base_w (base->parameters), host, its weights: W + alpha / R B A where w
 * (model->parameters), host, has an adapter. The caller releases both, with trm_model_free and trm_free. */
int trm_lora_merge(const struct trm_model *model, const float *w, struct trm_model *base, float **base_w);

TRM_END_DECLS
