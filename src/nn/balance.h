/* Where the chain of a model is cut for a pipeline. */
#ifndef TRM_NN_BALANCE_H
#define TRM_NN_BALANCE_H

#include "nn/model.h"

/* Cuts the whole model into `pieces`, each with something to train. how: "auto", so that the piece that takes longest
 * takes as little time as can be; or the items of the model's text, counted from 0, before which it is cut: "4,9". cut
 * (pieces). TRM_USAGE: says what is wrong, and what could be done. */
int trm_balance(const struct trm_model *model, const char *cuts, int chunks, struct trm_layer_range *chunk);

/* The chunks of stage `stage` in part, which is not touched otherwise: pieces stage, stages + stage, ... of
 * stages * chunks. One piece: part->chunks is 0. */
int trm_balance_stage(const struct trm_model *model, const char *cuts, int stages, int chunks, int stage,
                      struct trm_model_part *part);

/* Modelled seconds of a row, forward and backward, of the whole model's layers [first, last): floating-point operations
 * at a rate, and bytes at a rate. Good for comparing pieces of a model, not for more. */
double trm_balance_seconds(const struct trm_model *model, int first, int last);

#endif
