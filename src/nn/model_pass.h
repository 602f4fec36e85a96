/* Declarations shared by the files of a model's passes (private to src/nn): model_pass.c has forward and backward,
 * model_loss.c the loss between them, model_train.c whole passes of training. */
#pragma once

#include "nn/model.h"

/* Phases of a layer; RECOMPUTE: forward again, for the backward pass of its segment (arena_plan.h). */
enum pass_phase { FORWARD, RECOMPUTE, BACKWARD };

/* Returns TRM_FAILED if the model is not ready for the pass. */
int pass_check(const struct trm_model *model, const struct trm_pass *pass);

/* The flat array of the weights in use; NULL: nothing is trained in this part. */
float *pass_weights_in_use(const struct trm_model *model);
/* Returns the array at an offset of the plan. */
void *pass_array(const struct trm_model *model, size_t offset);
/* Returns the output of a layer that layer `reader` reads, or the batch. */
const void *pass_value(const struct trm_model *model, const struct trm_pass *pass, int reader, int layer,
                       enum pass_phase phase);

/* Makes the device's calls wait for the weights of layer i, and of the one that it is tied to. */
void pass_await_layer(const struct trm_model *model, const struct trm_pass *pass, int i);
/* Acquires the parameters of layer i, and those of the layer it is tied to; or releases them. */
void pass_hold(struct trm_model *model, const struct trm_pass *pass, int i, enum trm_acquire_mode mode, bool acquire);

/* Passes side by side, pass (count): makes the model compute the one in slot `lane`, and returns it. */
const struct trm_pass *pass_enter(struct trm_model *model, const struct trm_pass *pass, int count, int lane);
/* Forward and backward of `count` passes side by side, pass (count); several are in slots 0, 1, ... and have no
 * parameter provider. lane_ready is for several alone. */
void pass_forward(struct trm_model *model, const struct trm_pass *pass, int count);
int pass_backward(struct trm_model *model, const struct trm_pass *pass, int count, trm_lane_ready *lane_ready,
                  trm_grad_ready *ready, void *context);

/* In the first accumulated pass, chooses the buffer for the tied layer's contributions. */
void pass_choose_tied_gradient(struct trm_model *model, const struct trm_pass *pass);
/* Returns the pass with the beta of its gradients. */
struct trm_pass pass_with_beta(const struct trm_pass *pass);
/* After backward of layer i: sums the parts of dx of all ranks. */
void pass_reduce_input_gradient(struct trm_model *model, const struct trm_pass *pass, int i);
