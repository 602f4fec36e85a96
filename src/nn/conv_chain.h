/* Inference: calls that compute a convolution and the layers behind it, by a kernel for both (private to src/nn).
 *
 * A chain is a convolution and, as far as they follow it and nothing else reads what is between, a batch norm, which is
 * folded into the weights, an add and a ReLU. Values that only chains read stay in the device's layout. Evaluation of a
 * model that is bound for training, or whose weights are not whole, has no chains. */
#pragma once

#include "nn/arena_plan.h"

/* Sets chain, blocked and the chains' spans of a plan that trm_fusion_plan has seen. */
void trm_conv_chain_plan(const struct trm_layer *layer, struct trm_arena_plan *plan,
                         const struct trm_arena_request *request);
