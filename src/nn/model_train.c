/* Whole passes of training: forward, loss, backward; recorded where they repeat (core/recordings.h). */
#include <string.h>

#include "core/recordings.h"
#include "core/status.h"
#include "core/trace.h"
#include "nn/arena_plan.h"
#include "nn/model_pass.h"

/* All of `count` passes side by side. pass->scale is set. */
static int train_passes(struct trm_model *model, const struct trm_pass *pass, int count, struct trm_loss_sums *sums,
                        trm_lane_ready *lane_ready, trm_grad_ready *ready, void *context)
{
  const double began = trm_trace_begin("forward");
  pass_forward(model, pass, count);
  if (model->abandoned) {
    trm_trace_leave_region("forward");
    return trm_pass_wait(pass);
  }
  /* before gradients: their first receiver checks the loss */
  for (int lane = 0; lane < count; lane++)
    TRM_CHECK(trm_model_loss(model, pass_enter(model, pass, count, lane), sums));
  trm_trace_end("forward", TRM_TRACE_COMPUTE, began, TRM_TRACE_NO_IDS);
  const double backward_began = trm_trace_begin("backward");
  TRM_CHECK(pass_backward(model, pass, count, lane_ready, ready, context));
  trm_trace_end("backward", TRM_TRACE_COMPUTE, backward_began, TRM_TRACE_NO_IDS);
  return TRM_OK;
}

/* -- recorded passes */

/* What the calls of a pass that repeats depend on, besides what is bound. Of zeros, with its padding. */
struct train_key {
  struct trm_input input;
  const struct trm_step *step;
  uint64_t seed, first_row;
  float scale, beta, smoothing, huber_delta;
  bool more_passes, weights_current, tied_gradient;
  const float *w, *g; /* those in use: flat arrays */
  const trm_bf16 *rounded;
  int slot, chunk;
};

/* True if the pass is calls of the device alone, with the same arguments whenever the key is the same. */
static bool train_repeats(const struct trm_model *model, const struct trm_pass *pass)
{
  return pass->step && pass->training && !pass->provider && !pass->await_weights && !pass->reduce &&
         !pass->tensor_axis && !pass->progress && !pass->abandons && !pass->auxiliary_loss && !model->spec.sparse;
}

/* Returns true if contributions to a tied weight are added separately. */
static bool train_has_tied_gradient(const struct trm_model *model)
{
  bool has = false;
  for (int i = 0; i < model->layers; i++)
    has |= model->layer[i].tied && model->layer[i].tied_gradient;
  return has;
}

static void train_make_key(const struct trm_model *model, const struct trm_pass *pass, struct train_key *key)
{
  const struct trm_input *input = pass->input;
  memset(key, 0, sizeof *key);
  key->input.rows = input->rows;
  key->input.dense = input->dense;
  key->input.tokens = input->tokens;
  key->input.target_class = input->target_class;
  key->input.target_value = input->target_value;
  key->input.row_weight = input->row_weight;
  key->input.class_weight = input->class_weight;
  key->step = pass->step;
  key->seed = pass->seed;
  key->first_row = pass->first_row;
  key->scale = pass->scale;
  key->beta = pass->beta;
  key->smoothing = model->smoothing;
  key->huber_delta = model->huber_delta;
  key->more_passes = pass->more_passes;
  key->weights_current = pass->weights_kept && model->own_current;
  key->tied_gradient = train_has_tied_gradient(model);
  key->w = pass_weights_in_use(model);
  key->g = model->g;
  key->rounded = model->rounded;
  key->slot = model->current_slot;
  key->chunk = model->current_chunk;
}

/* Arguments of pass_make. */
struct train_calls {
  struct trm_model *model;
  const struct trm_pass *pass;
  struct trm_loss_sums *sums;
};

static int train_make(void *context)
{
  const struct train_calls *calls = context;
  return train_passes(calls->model, calls->pass, 1, calls->sums, NULL, NULL, NULL);
}

/* Makes the calls of a pass that repeats, or replays them, and leaves the model as they do. */
static int train_recorded(struct trm_model *model, const struct trm_pass *pass, struct trm_loss_sums *sums)
{
  struct train_calls calls = {model, pass, sums};
  struct train_key key;
  pass_choose_tied_gradient(model, pass);
  train_make_key(model, pass, &key);
  const double began = trm_trace_begin("forward and backward");
  TRM_CHECK(trm_recordings_run(&model->passes, pass->device, &key, sizeof key, train_make, &calls));
  trm_trace_end("forward and backward", TRM_TRACE_COMPUTE, began, TRM_TRACE_NO_IDS);
  trm_layers_set_rows(model->layer, model->plan->first, model->plan->last, pass->input->rows);
  model->own_current = model->rounded && model->rounded != model->shared_rounded;
  model->scores = model->plan->loss_chunk ? NULL : pass_array(model, model->plan->value[model->plan->last - 1]);
  return TRM_OK;
}

static int train_check(const struct trm_model *model, const struct trm_pass *pass)
{
  TRM_CHECK(pass_check(model, pass));
  if (!model->training || (!model->g && !pass->provider))
    return trm_error(TRM_FAILED, "the model has no memory for gradients: it was made ready for evaluation");
  return TRM_OK;
}

int trm_model_train(struct trm_model *model, const struct trm_pass *pass, float scale, struct trm_loss_sums *sums,
                    trm_grad_ready *ready, void *context)
{
  TRM_CHECK(train_check(model, pass));
  struct trm_pass scaled = *pass;
  scaled.scale = scale;
  if (!pass->device->graphs || !train_repeats(model, pass))
    return train_passes(model, &scaled, 1, sums, NULL, ready, context);
  TRM_CHECK(train_recorded(model, &scaled, sums));
  return ready ? ready(context, 0, model->parameters) : TRM_OK;
}

int trm_model_train_lanes(struct trm_model *model, struct trm_pass *pass, int lanes, float scale,
                          struct trm_loss_sums *sums, trm_lane_ready *lane_ready, trm_grad_ready *ready, void *context)
{
  bool tied = false;
  for (int i = 0; i < model->layers; i++)
    tied |= model->layer[i].tied != NULL;
  if (tied || model->loss_chunk || pass->provider || !model->side_by_side || model->slots < lanes || model->chunks > 1)
    return trm_error(TRM_FAILED, "the model cannot compute %d passes side by side", lanes);
  for (int lane = 0; lane < lanes; lane++) {
    TRM_CHECK(train_check(model, &pass[lane]));
    pass[lane].scale = scale;
  }
  return train_passes(model, pass, lanes, sums, lane_ready, ready, context);
}
