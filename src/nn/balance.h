/* Cuts of a model for a pipeline. */
#pragma once

#include "nn/model.h"

/* Cuts the whole model into `chunks`, each with something to train; chunk (chunks). cuts: "auto", which minimizes the
 * time of the longest chunk; or the items of the model's text, counted from 0, before which it is cut: "4,9".
 * TRM_USAGE: the message says what is wrong and what can be done. */
int trm_balance(const struct trm_model *model, const char *cuts, int chunks, struct trm_layer_range *chunk);

/* Sets the chunks of part to those of stage `stage`: stage, stages + stage, ... of stages * chunks; 0 of them if the
 * model is not cut. */
int trm_balance_stage(const struct trm_model *model, const char *cuts, int stages, int chunks, int stage,
                      struct trm_model_part *part);

/* Modelled seconds of a row, forward and backward, of the whole model's layers [first, last): floating-point operations
 * at a rate, and bytes at a rate. Good for comparing pieces of a model, not for more. */
double trm_balance_seconds(const struct trm_model *model, int first, int last);
