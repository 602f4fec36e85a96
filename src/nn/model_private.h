/* Declarations shared by the files that create a model and bind it (private to src/nn): model.c, model_freeze.c,
 * model_bind.c. */
#pragma once

#include "nn/model.h"

/* Marks the layers with adapters as frozen, and what the pattern of model.freeze names. TRM_USAGE: it names nothing,
 * or leaves nothing to train. */
int model_freeze(struct trm_model *model, const char *text);
/* Allocates the frozen values, and room for gradients that nobody reads, unless there is some. The model has a
 * device, and owns them. */
int model_alloc_frozen(struct trm_model *model);
void model_free_frozen(struct trm_model *model);

/* Releases what trm_model_bind has allocated, but for the frozen values. */
void model_unbind(struct trm_model *model);
