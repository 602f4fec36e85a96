/* The loss of a model's scores, whole or with the last layer in chunks of rows, and its sums. */
#include <string.h>

#include "core/ledger.h"
#include "core/memory.h"
#include "core/status.h"
#include "nn/arena_plan.h"
#include "nn/model_pass.h"

/* Returns the sums of the losses to the host. */
static int loss_read_sums(struct trm_model *model, const struct trm_pass *pass, struct trm_loss_sums *sums)
{
  struct trm_device *device = model->device;
  struct trm_step step;
  if (pass->wait)
    TRM_CHECK(trm_pass_wait(pass));
  device->ops->download(device, &step, model->sums, sizeof step);
  sums->loss += step.loss;
  sums->correct += step.correct;
  sums->rows += step.rows;
  return device->ops->sync(device);
}

void trm_model_read_scores(const struct trm_model *model, size_t first, size_t rows, float *host)
{
  const struct trm_layer *last = &model->layer[model->layers - 1];
  const size_t bytes = trm_value_bytes(model->values), ld = trm_layer_output_ld(last);
  const size_t c = trm_shape_count(&last->out) / trm_layer_output_vectors(last);
  char *copy = trm_alloc(rows * ld * bytes, "scores");
  model->device->ops->download(model->device, copy, (const char *)model->scores + first * ld * bytes,
                               rows ? ((rows - 1) * ld + c) * bytes : 0);
  for (size_t i = 0; i < rows; i++)
    if (model->values == TRM_VALUES_F32)
      memcpy(host + i * c, copy + i * ld * bytes, c * bytes);
    else
      trm_bf16_widen(host + i * c, (const trm_bf16 *)(copy + i * ld * bytes), c);
  trm_free(copy);
}

/* Computes the loss of rows from the scores that `last` gave for pass->input, and the gradient dz unless that is NULL.
 * first: of all vectors of the batch. */
static void loss_run(struct trm_model *model, const struct trm_pass *pass, const struct trm_layer *last,
                          size_t first, const void *scores, void *dz)
{
  const struct trm_slice *slice = &last->slice; /* of sharded scores */
  struct trm_loss_call call = {
    .device = pass->device,
    .input = pass->input,
    .scores = scores,
    .type = model->values,
    .scale = (dz ? pass->scale : 1) / (float)model->targets,
    .smoothing = pass->training ? model->smoothing : 0,
    .delta = model->huber_delta,
    .row_weight = pass->training ? pass->input->row_weight : NULL,
    .class_weight = pass->training ? pass->input->class_weight : NULL,
    .row_loss = model->row_loss + first,
    .row_correct = model->row_correct + first,
    .gradient = dz,
    .axis = pass->tensor_axis,
    .shard = {slice->low * slice->inner, slice->high * slice->inner, slice->extent * slice->inner},
    .scratch = model->row_scratch,
  };
  trm_loss_call_shape(&call, last);
  (last->output_sharded ? model->loss->run_sharded : model->loss->run)(&call);
  if (pass->scored)
    pass->scored(pass->scored_context, &call);
}

/* Forward of the last layer, loss and, if backward, the layer's backward, for some vectors at a time, each of which is
 * a row of its own. */
static void loss_run_chunks(struct trm_model *model, const struct trm_pass *pass, bool backward)
{
  const struct trm_arena_plan *plan = model->plan;
  const int end = plan->last - 1;
  struct trm_layer last = model->layer[end]; /* of single vectors */
  struct trm_input input = *pass->input;
  struct trm_pass inner = pass_with_beta(pass);
  const size_t vectors = trm_layer_rows(&last), bytes = trm_layer_width(&last) * trm_value_bytes(model->values);
  const size_t values = !input.target_value ? 0 : model->loss->signed_target ? 1 : model->spec.classes;
  const char *x = pass_value(model, pass, end, last.from, FORWARD);
  char *dx = backward && last.needs_dx ? pass_array(model, plan->flow[2 * end].write) : NULL;
  void *scores = pass_array(model, plan->value[end]);
  last.out = (struct trm_shape){.dims = 1, .size = {trm_shape_count(&last.out) / trm_layer_output_vectors(&last)}};
  last.in = (struct trm_shape){.dims = 1, .size = {trm_layer_width(&last)}};
  last.fused = (struct trm_fused){0};
  inner.input = &input;
  inner.part_ready = NULL; /* gradients are final with the last chunk */
  for (size_t first = 0; first < vectors; first += input.rows) {
    input.rows = vectors - first < plan->loss_chunk ? vectors - first : plan->loss_chunk;
    input.target_class = pass->input->target_class + (pass->input->target_class ? first : 0);
    input.target_value = pass->input->target_value + first * values;
    input.row_weight = pass->input->row_weight ? pass->input->row_weight + first : NULL;
    last.rows = last.output_rows = input.rows;
    trm_ledger_add_progress();
    last.ops->forward(&last, &inner, x + first * bytes, scores, NULL);
    loss_run(model, &inner, &last, first, scores, backward ? scores : NULL);
    if (backward)
      last.ops->backward(&last, &inner, x + first * bytes, NULL, scores, dx ? dx + first * bytes : NULL, NULL);
    inner.beta = 1;
  }
}

/* The same, with what passes do around a layer. Backward is left to trm_model_backward to complete. */
static void loss_in_chunks(struct trm_model *model, const struct trm_pass *pass, bool backward)
{
  const int end = model->plan->last - 1;
  const enum trm_acquire_mode mode = backward ? TRM_ACQUIRE_BACKWARD : TRM_ACQUIRE_EVALUATE;
  trm_layers_set_rows(model->layer, model->plan->first, model->plan->last, pass->input->rows);
  if (backward)
    pass_choose_tied_gradient(model, pass);
  pass_hold(model, pass, end, mode, true);
  pass_await_layer(model, pass, end);
  if (pass->input->rows)
    loss_run_chunks(model, pass, backward);
  if (pass->input->rows && backward)
    pass_reduce_input_gradient(model, pass, end);
  if (!backward)
    pass_hold(model, pass, end, mode, false);
}

/* Computes the loss, adds to the sums and, if backward, sets the gradient of the scores. */
static int loss_compute(struct trm_model *model, const struct trm_pass *pass, bool backward, struct trm_loss_sums *sums)
{
  const struct trm_arena_plan *plan = model->plan;
  const struct trm_layer *last = &model->layer[plan->last - 1];
  const struct trm_device_ops *ops = pass->device->ops;
  struct trm_step *step = pass->step ? pass->step : model->sums;
  if (!pass->step)
    ops->fill(pass->device, (float *)model->sums, 0, sizeof *model->sums / sizeof(float));
  if (plan->loss_chunk)
    loss_in_chunks(model, pass, backward);
  else if (pass->input->rows)
    loss_run(model, pass, last, 0, pass_array(model, plan->value[plan->last - 1]),
                  backward ? pass_array(model, plan->gradient[plan->last - 1]) : NULL);
  if (pass->input->rows)
    ops->sum_losses(pass->device, &(struct trm_sum_losses){
      .loss = model->row_loss, .correct = model->row_correct, .step = step,
      .rows = pass->input->rows * trm_layer_output_vectors(last)});
  return pass->step ? TRM_OK : loss_read_sums(model, pass, sums);
}

int trm_model_loss(struct trm_model *model, const struct trm_pass *pass, struct trm_loss_sums *sums)
{
  return loss_compute(model, pass, pass->training, sums);
}

int trm_model_evaluate(struct trm_model *model, const struct trm_pass *pass, struct trm_loss_sums *sums)
{
  TRM_CHECK(pass_check(model, pass));
  trm_model_forward(model, pass);
  return loss_compute(model, pass, false, sums);
}
