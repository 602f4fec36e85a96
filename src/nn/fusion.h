/* Calls of neighboring layers that are one call of a fused kernel (private to src/nn).
 *
 * In forward a linear layer computes the activation that reads it; a norm, or an add, computes the add and the dropout
 * before it. In backward a linear layer computes the activation that it reads. All of them write the arrays that the
 * plan gives them: a fused call accesses at one time what the plan has at two, so it is made only if the arrays that it
 * writes lie apart from those that it reads. */
#pragma once

#include "nn/arena_plan.h"

/* Sets the spans and backward_in_next of a plan whose offsets are set, for so many rows as the layers have. */
void trm_fusion_plan(const struct trm_layer *layer, struct trm_arena_plan *plan,
                     const struct trm_arena_request *request);
