/* Cuts of a model into pipeline chunks. */
#pragma once

#include "nn/model.h"

/* Cuts the whole model into `chunks` with trainable layers each; chunk (chunks). cuts: "auto", which minimizes the time
 * of the slowest chunk; or the items of the model's text, counted from 0, before which it is cut: "4,9". TRM_USAGE:
 * invalid cuts. */
int trm_balance(const struct trm_model *model, const char *cuts, int chunks, struct trm_layer_range *chunk);

/* Sets the chunks of part to those of stage `stage`: stage, stages + stage, ... of stages * chunks; 0 of them if the
 * model is not cut. */
int trm_balance_stage(const struct trm_model *model, const char *cuts, int stages, int chunks, int stage,
                      struct trm_model_part *part);

/* Modeled seconds per row, forward and backward, of the whole model's layers [first, last): operations and bytes at
 * fixed rates. Only for comparing chunks. */
double trm_balance_seconds(const struct trm_model *model, int first, int last);
