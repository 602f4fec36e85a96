/* Calls of neighboring layers that are one call of a fused kernel (private to src/nn).
 *
 * In forward a linear layer computes the activation that reads it; a batch norm, in training, the relu that reads it or
 * an add of it; a norm, or an add, computes the add and the dropout before it. In backward a linear layer computes the
 * activation that it reads, and a batch norm the relu that reads it. All of them write the arrays that the
 * plan gives them: a fused call accesses at one time what the plan has at two, so it is made only if the arrays that it
 * writes lie apart from those that it reads. */
#pragma once

#include "nn/arena_plan.h"

/* Returns the layer that reads layer i's value, if it is a single one, once; else -1. */
int trm_fusion_single_reader(const struct trm_layer *layer, const struct trm_arena_plan *plan, int i);

/* Sets the spans and backward_in of a plan whose offsets are set, for so many rows as the layers have. */
void trm_fusion_plan(const struct trm_layer *layer, struct trm_arena_plan *plan,
                     const struct trm_arena_request *request);
