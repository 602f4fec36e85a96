/* The exchange: files of other programs that hold a model. One function per format and direction; none is collective.
 * Weights are full flat arrays on the host, in the model's order (nn/model.h). */
#pragma once

#include "nn/model.h"
#include "nn/param_load.h"

/* One format that models are written in. */
struct trm_export {
  const char *name; /* "safetensors" */
  const char *help; /* one line */
  /* Writes a new file, which replaces path atomically; on any error an older file is untouched. */
  int (*write)(const char *path, const struct trm_model *model, const float *host_w);
};
extern const struct trm_export trm_export_table[]; /* ends with a row whose name is NULL */

/* Refuses a file of PyTorch's pickle format (.pt, .pth, .bin) with the way to convert it; TRM_OK for all others. */
int trm_weights_check_format(const char *path);

/* Reads the weights of the model from a safetensors file, under the names of nn/param_names.h; F64, F16 and BF16 become
 * float32. Every parameter must be there, in its shape and finite, and nothing else but what the names leave out.
 * Errors name the file and the tensor: TRM_USAGE where it does not fit the model, TRM_FAILED where it is damaged. The
 * padding of host_w (model->parameters) is set to 0. */
int trm_safetensors_read(const char *path, const struct trm_model *model, float *host_w);
/* The same for those parameters that load does not skip; the others are set to 0. */
int trm_safetensors_load(struct trm_param_load *load, float *host_w);
