/* Forward and backward of a model over one batch. */
#include "core/axis.h"
#include "core/ledger.h"
#include "core/memory.h"
#include "core/status.h"
#include "core/trace.h"
#include "nn/layers/layers.h"
#include "nn/arena_plan.h"
#include "nn/model.h"
#include "nn/model_pass.h"

void *pass_array(const struct trm_model *model, size_t offset)
{
  const size_t transient = model->plan->transient_offset;
  return offset < transient ? (char *)model->arena + offset : (char *)model->transient + (offset - transient);
}

const void *pass_value(const struct trm_model *model, const struct trm_pass *pass, int reader, int layer,
                       enum pass_phase phase)
{
  const struct trm_arena_plan *plan = model->plan;
  if (layer == TRM_FROM_BATCH)
    return model->values == TRM_VALUES_F32 || !pass->input->dense ? pass->input->dense : pass_array(model, plan->input);
  const bool recomputed = phase != FORWARD && plan->segment_end[layer] == plan->segment_end[reader];
  return pass_array(model, plan->value[recomputed ? plan->last + layer : layer]);
}

static float *pass_workspace(const struct trm_model *model, int i, enum pass_phase phase)
{
  const bool any = model->layer[i].workspace || model->layer[i].workspace_fixed;
  return any ? pass_array(model, model->plan->work[phase == FORWARD ? i : model->plan->last + i]) : NULL;
}

static float *pass_scratch(const struct trm_model *model, int i, enum pass_phase phase)
{
  return pass_array(model, model->plan->scratch[(int)phase * model->plan->last + i]);
}

/* The sum of two arrays of the layer's output; `to` may be one of them. */
static void pass_add_arrays(const struct trm_layer *layer, const struct trm_pass *pass, void *to, const void *a,
                            const void *b)
{
  pass->device->ops->add(pass->device, &(struct trm_add){
    .a = a, .b = b, .y = to, .n = layer->output_rows * trm_shape_count(&layer->out), .type = layer->values});
}

/* Returns true if the layer needs sums over other parts of the batch, too. */
static bool pass_sums_batch(const struct trm_layer *layer, const struct trm_pass *pass)
{
  return pass->training && layer->batch_sums && pass->reduce;
}

/* Returns false without rows, unless the other parts of the batch wait for the layer. */
static bool pass_layer_runs(const struct trm_layer *layer, const struct trm_pass *pass)
{
  return pass->input->rows || pass_sums_batch(layer, pass);
}

const struct trm_pass *pass_enter(struct trm_model *model, const struct trm_pass *pass, int count, int lane)
{
  if (count > 1) {
    trm_model_select(model, model->current_chunk, lane);
    trm_layers_set_rows(model->layer, model->plan->first, model->plan->last, pass[lane].input->rows);
  }
  return &pass[lane];
}

/* The work of its neighbors that backward of layer i includes: the activation before it or the relu behind it, the
 * gradient's sum. */
static struct trm_fused pass_fused_backward(const struct trm_model *model, const struct trm_pass *pass, int i)
{
  const struct trm_arena_plan *plan = model->plan;
  const struct trm_layer *layer = &model->layer[i], *before = layer - 1;
  const struct trm_gradient_flow *flow = &plan->flow[2 * i];
  struct trm_fused fused = {0};
  fused.relu = i + 1 < plan->last && plan->backward_in[i + 1] == i;
  if (i > plan->first && plan->backward_in[i - 1] == i) {
    fused.activation = before->ops->variant;
    fused.through = true;
    fused.u = before->ops->keeps_input ? pass_value(model, pass, i - 1, before->from, BACKWARD) : NULL;
  }
  if (layer->ops->fuses_sum && flow->accumulates && !layer->grad_input_partial) {
    fused.grad_other = pass_array(model, flow->earlier);
    fused.grad_sum = pass_array(model, flow->sum);
  }
  return fused;
}

/* Before forward or backward of layer i in passes side by side: sums over the batch, in a binary tree over them. */
static void pass_sum_batch(struct trm_model *model, const struct trm_pass *pass, int count, int i,
                           enum pass_phase phase)
{
  struct trm_layer *layer = &model->layer[i];
  const size_t n = layer->batch_sums;
  double *sums = trm_alloc((size_t)count * n * sizeof *sums, "sums over the batch");
  for (int lane = 0; lane < count; lane++) {
    const struct trm_pass *one = pass_enter(model, pass, count, lane);
    if (phase == BACKWARD)
      layer->fused = pass_fused_backward(model, one, i);
    layer->ops->batch_sums(layer, one, pass_value(model, one, i, layer->from, phase),
                           phase == BACKWARD ? pass_array(model, model->plan->gradient[i]) : NULL,
                           pass_workspace(model, i, phase), sums + (size_t)lane * n);
  }
  for (int step = 1; step < count; step *= 2)
    for (int lane = 0; lane + step < count; lane += 2 * step)
      for (size_t k = 0; k < n; k++)
        sums[(size_t)lane * n + k] += sums[(size_t)(lane + step) * n + k];
  pass->reduce(pass->reduce_context, sums, n);
  for (int lane = 0; lane < count; lane++) {
    const struct trm_pass *one = pass_enter(model, pass, count, lane);
    layer->ops->take_batch_sums(layer, one, phase == BACKWARD, sums, pass_workspace(model, i, phase));
  }
  trm_free(sums);
}

/* -- types of values */

static void pass_convert(const struct trm_model *model, const float *from, void *to, size_t n)
{
  model->device->ops->convert(model->device, &(struct trm_convert){
    .from = from, .to = to, .n = n, .type_from = TRM_VALUES_F32, .type_to = model->values});
}

static void pass_await_weights(const struct trm_pass *pass, size_t low, size_t high)
{
  if (pass->await_weights && low < high)
    pass->await_weights(pass->weights_context, low, high);
}

void pass_await_layer(const struct trm_model *model, const struct trm_pass *pass, int i)
{
  const struct trm_layer *layer = &model->layer[i], *tied = layer->tied;
  pass_await_weights(pass, layer->low, layer->high);
  if (tied)
    pass_await_weights(pass, tied->low, tied->high);
}

float *pass_weights_in_use(const struct trm_model *model)
{
  for (int n = 0; n < trm_model_parameter_count(model); n++) {
    const struct trm_parameter *parameter = trm_model_parameter(model, n);
    if (!parameter->frozen)
      return parameter->w ? parameter->w - parameter->offset : NULL;
  }
  return NULL;
}

/* Brings the own copy of the weights that products read up to date. */
static void pass_round_weights(struct trm_model *model, const struct trm_pass *pass, bool kept)
{
  if (!model->rounded || model->rounded == model->shared_rounded || (kept && model->own_current))
    return;
  pass_await_weights(pass, 0, model->parameters);
  if (model->parameters > model->statistics)
    pass_convert(model, pass_weights_in_use(model), model->rounded, model->parameters - model->statistics);
  model->own_current = true;
}

/* Converts the batch for the layers that read its values. */
static void pass_convert_input(const struct trm_model *model, const struct trm_pass *pass)
{
  if (model->values != TRM_VALUES_F32 && pass->input->dense && model->plan->reads_input)
    pass_convert(model, pass->input->dense, pass_array(model, model->plan->input),
                 pass->input->rows * trm_shape_count(&model->spec.shape));
}

/* -- parameter providers */

static void pass_point_parameters(struct trm_layer *layer, bool statistics, size_t low, float *w, float *g)
{
  for (int p = 0; p < layer->parameters; p++) {
    struct trm_parameter *parameter = &layer->parameter[p];
    if (parameter->statistic != statistics || parameter->frozen)
      continue;
    parameter->w = w + (parameter->offset - low);
    parameter->values = parameter->w;
    parameter->g = g ? g + (parameter->offset - low) : NULL;
  }
}

/* Clears the padding of parameters, since the interval's buffer may have been used for others. */
static void pass_zero_padding(const struct trm_layer *layer, const struct trm_pass *pass)
{
  for (int p = 0; p < layer->parameters; p++) {
    const struct trm_parameter *parameter = &layer->parameter[p];
    const size_t unit = TRM_ALIGNMENT / sizeof(float), padding = (unit - parameter->count % unit) % unit;
    if (!parameter->statistic && !parameter->frozen && padding)
      pass->device->ops->fill(pass->device, parameter->g + parameter->count, 0, padding);
  }
}

/* Converts the weight that layer i's product reads. */
static void pass_copy_weight(struct trm_model *model, int i, enum trm_acquire_mode mode)
{
  const int phase = mode == TRM_ACQUIRE_BACKWARD ? BACKWARD : mode == TRM_ACQUIRE_RECOMPUTE ? RECOMPUTE : FORWARD;
  struct trm_parameter *weight = trm_layer_product_weight(&model->layer[i]);
  if (model->values == TRM_VALUES_F32 || !weight)
    return;
  void *copy = pass_array(model, model->plan->copy[phase * model->plan->last + i]);
  pass_convert(model, weight->w, copy, weight->count);
  weight->values = copy;
}

void pass_hold(struct trm_model *model, const struct trm_pass *pass, int i, enum trm_acquire_mode mode, bool acquire)
{
  const struct trm_param_provider *provider = pass->provider;
  struct trm_layer *const both[] = {&model->layer[i], model->layer[i].tied};
  for (int k = 0; provider && k < 2; k++) {
    struct trm_layer *layer = both[k];
    const enum trm_acquire_mode used_mode = k && mode == TRM_ACQUIRE_BACKWARD ? TRM_ACQUIRE_TIED : mode;
    float *w = NULL, *g = NULL;
    if (!layer || layer->low == layer->high)
      continue;
    if (!acquire) {
      provider->release(provider->context, layer->low, layer->high, used_mode);
      continue;
    }
    provider->acquire(provider->context, layer->low, layer->high, used_mode, &w, &g);
    pass_point_parameters(layer, false, layer->low, w, g);
    if (g && provider->overwrites_gradient)
      pass_zero_padding(layer, pass);
  }
  if (provider && acquire)
    pass_copy_weight(model, i, mode);
}

static void pass_hold_statistics(struct trm_model *model, const struct trm_pass *pass, enum trm_acquire_mode mode,
                                 bool acquire)
{
  const struct trm_param_provider *provider = pass->provider;
  const size_t low = model->parameters - model->statistics;
  float *w = NULL, *g = NULL;
  if (!provider || !model->statistics)
    return;
  if (!acquire) {
    provider->release(provider->context, low, model->parameters, mode);
    return;
  }
  provider->acquire(provider->context, low, model->parameters, mode, &w, &g);
  for (int i = model->plan->first; i < model->plan->last; i++)
    pass_point_parameters(&model->layer[i], true, low, w, g);
}

void trm_model_select(struct trm_model *model, int chunk, int slot)
{
  model->current_chunk = chunk;
  model->current_slot = slot;
  model->plan = model->chunk[chunk].plan;
  model->arena = model->chunk[chunk].arena[slot];
}

void *trm_model_chunk_input(const struct trm_model *model, bool gradient, const struct trm_shape **shape)
{
  const int first = model->plan->first;
  const struct trm_layer *layer = &model->layer[first];
  if (layer->ops != &layer_chunk_input)
    return NULL;
  *shape = &layer->out;
  return pass_array(model, (gradient ? model->plan->gradient : model->plan->value)[first]);
}

void *trm_model_chunk_output(const struct trm_model *model, bool gradient, const struct trm_shape **shape)
{
  const int end = model->plan->last - 1;
  if (model->layer[end].is_output)
    return NULL;
  *shape = &model->layer[end].out;
  return pass_array(model, (gradient ? model->plan->gradient : model->plan->value)[end]);
}

/* Returns the array of layer i's output. */
static void *pass_output(const struct trm_model *model, int i, enum pass_phase phase)
{
  return pass_array(model, model->plan->value[phase == FORWARD ? i : model->plan->last + i]);
}

/* The sum that the add, layer i, makes, of its operands or, first < i, with the dropout before it. */
static struct trm_add_norm_forward pass_sum(const struct trm_model *model, const struct trm_pass *pass, int first,
                                            int i, enum pass_phase phase)
{
  const struct trm_layer *add = &model->layer[i];
  struct trm_add_norm_forward sum = {
    .a = pass_value(model, pass, i, add->addend, phase),
    .b = pass_value(model, pass, first, model->layer[first].from, phase),
    .s = pass_output(model, i, phase),
    .norm = {.r = add->output_rows, .d = trm_shape_count(&add->out), .type = add->values}};
  if (first < i) {
    const struct trm_dropout dropout = trm_layer_dropout_call(&model->layer[first], pass);
    sum.mask = dropout.mask;
    sum.f = dropout.f;
  }
  return sum;
}

/* What the fused convolution i computes. */
static struct trm_conv2d_fused pass_chain(const struct trm_model *model, const struct trm_pass *pass, int i)
{
  const struct trm_arena_plan *plan = model->plan;
  const int end = plan->chain[i], from = model->layer[i].from;
  struct trm_conv2d_fused chain = {.conv.y = pass_output(model, end - 1, FORWARD),
                                   .x_blocked = from >= 0 && plan->blocked[from],
                                   .z_blocked = plan->blocked[end - 1]};
  for (int k = i + 1; k < end; k++)
    if (model->layer[k].ops == &layer_batch_norm)
      chain.norm = trm_layer_batch_norm_call(&model->layer[k]);
    else if (model->layer[k].ops == &layer_add)
      chain.addend = pass_value(model, pass, k, model->layer[k].addend, FORWARD);
    else
      chain.relu = true;
  return chain;
}

/* Forward of the layers that layer i's call computes. */
static void pass_layer_forward(struct trm_model *model, const struct trm_pass *pass, int i, enum pass_phase phase)
{
  struct trm_layer *layer = &model->layer[i];
  const struct trm_span span = model->plan->span[phase == FORWARD ? i : model->plan->last + i];
  if (span.first == span.end)
    return;
  const void *x = pass_value(model, pass, i, layer->from, phase);
  layer->scratch_at = pass_scratch(model, i, phase);
  layer->fused = (struct trm_fused){0};
  if (model->plan->chain[i]) {
    layer->fused.chain = pass_chain(model, pass, i);
  } else if (span.end > i + 1) {
    layer->fused.activation = model->layer[span.end - 1].ops->variant;
    layer->fused.z = pass_output(model, span.end - 1, phase);
    layer->fused.relu = layer->ops->fuses_relu;
    if (span.end > i + 2)
      layer->fused.addend = pass_value(model, pass, i + 1, model->layer[i + 1].addend, phase);
  }
  if (layer->addend == TRM_FROM_NONE) {
    if (span.first < i)
      layer->fused.sum = pass_sum(model, pass, span.first, i - 1, phase);
    layer->ops->forward(layer, pass, x, pass_output(model, i, phase), pass_workspace(model, i, phase));
  } else if (span.first < i) {
    const struct trm_add_norm_forward sum = pass_sum(model, pass, span.first, i, phase);
    pass->device->ops->add_norm_forward(pass->device, &sum);
  } else {
    pass_add_arrays(layer, pass, pass_output(model, i, phase), x, pass_value(model, pass, i, layer->addend, phase));
  }
}

/* Returns true if the layer is computed with the loss, in chunks. */
static bool pass_is_chunked(const struct trm_model *model, int i)
{
  return model->plan->loss_chunk && i == model->plan->last - 1;
}

/* Forward of layer i in passes side by side. */
static void pass_layer_forward_all(struct trm_model *model, const struct trm_pass *pass, int count, int i,
                                   enum pass_phase phase)
{
  if (pass_sums_batch(&model->layer[i], pass))
    pass_sum_batch(model, pass, count, i, phase);
  for (int lane = 0; lane < count; lane++) {
    const struct trm_pass *one = pass_enter(model, pass, count, lane);
    if (pass_layer_runs(&model->layer[i], one))
      pass_layer_forward(model, one, i, phase);
  }
}

/* Asks, between two layers, if the pass is still wanted. */
static bool pass_is_abandoned(struct trm_model *model, const struct trm_pass *pass)
{
  model->abandoned = pass->abandons && pass->abandons(pass->abandons_context);
  return model->abandoned;
}

void trm_model_forward(struct trm_model *model, const struct trm_pass *pass)
{
  pass_forward(model, pass, 1);
}

void pass_forward(struct trm_model *model, const struct trm_pass *pass, int count)
{
  const struct trm_arena_plan *plan = model->plan;
  const enum trm_acquire_mode mode = pass->training ? TRM_ACQUIRE_FORWARD : TRM_ACQUIRE_EVALUATE;
  trm_layers_set_rows(model->layer, plan->first, plan->last, pass->input->rows);
  pass_round_weights(model, pass, pass->weights_kept);
  for (int lane = 0; lane < count; lane++)
    pass_convert_input(model, pass_enter(model, pass, count, lane));
  pass_hold_statistics(model, pass, mode, true);
  pass_await_weights(pass, model->parameters - model->statistics, model->parameters);
  for (int i = plan->first; i < plan->last && !pass_is_chunked(model, i); i++) {
    trm_ledger_set_layer(model->layer[i].global_index, TRM_LEDGER_FORWARD);
    pass_hold(model, pass, i, mode, true);
    pass_await_layer(model, pass, i);
    for (int k = i + 1; k < plan->chain[i]; k++)
      pass_await_layer(model, pass, k);
    if (model->layer[i].from != TRM_FROM_NONE)
      pass_layer_forward_all(model, pass, count, i, FORWARD);
    pass_hold(model, pass, i, mode, false);
    if (pass->progress)
      pass->progress(pass->progress_context);
    if (pass_is_abandoned(model, pass))
      return;
  }
  pass_hold_statistics(model, pass, mode, false);
  model->scores = plan->loss_chunk ? NULL : pass_array(model, plan->value[plan->last - 1]);
}

void pass_reduce_input_gradient(struct trm_model *model, const struct trm_pass *pass, int i)
{
  const struct trm_layer *layer = &model->layer[i];
  if (layer->grad_input_partial && layer->needs_dx)
    trm_axis_allreduce(pass->tensor_axis, pass_array(model, model->plan->flow[2 * i].write),
                       layer->rows * trm_shape_count(&layer->in), layer->values);
}

/* Backward of layer i: its contributions to the gradients of its inputs. */
static void pass_layer_backward(struct trm_model *model, const struct trm_pass *pass, int i)
{
  const struct trm_arena_plan *plan = model->plan;
  struct trm_layer *layer = &model->layer[i];
  const struct trm_layer_ops *ops = layer->ops;
  layer->fused = pass_fused_backward(model, pass, i);
  if (layer->addend == TRM_FROM_NONE && !pass_is_chunked(model, i) && plan->backward_in[i] == i) {
    layer->scratch_at = pass_scratch(model, i, BACKWARD);
    ops->backward(
      layer, pass, ops->keeps_input ? pass_value(model, pass, i, layer->from, BACKWARD) : NULL,
      ops->keeps_output ? pass_value(model, pass, i, i, BACKWARD) : NULL, pass_array(model, plan->gradient[i]),
      layer->needs_dx ? pass_array(model, plan->flow[2 * i].write) : NULL, pass_workspace(model, i, BACKWARD));
    pass_reduce_input_gradient(model, pass, i);
  }
  const int to[2] = {layer->from, layer->addend};
  for (int k = 0; k < 2; k++) {
    const struct trm_gradient_flow *flow = &plan->flow[2 * i + k];
    if (flow->accumulates && !layer->fused.grad_sum)
      pass_add_arrays(&model->layer[to[k]], pass, pass_array(model, flow->sum), pass_array(model, flow->earlier),
                      pass_array(model, flow->write));
  }
}

/* Recomputes those values of the segment that its backward needs and forward has not kept. */
static void pass_recompute_segment(struct trm_model *model, const struct trm_pass *pass, int count, int end)
{
  const struct trm_arena_plan *plan = model->plan;
  int i = end - 1;
  while (i > plan->first && plan->segment_end[i - 1] == end)
    i--;
  for (; i < end; i++) {
    if (!plan->recompute[i])
      continue;
    const double began = trm_trace_begin("forward recompute");
    pass_hold(model, pass, i, TRM_ACQUIRE_RECOMPUTE, true);
    pass_layer_forward_all(model, pass, count, i, RECOMPUTE);
    pass_hold(model, pass, i, TRM_ACQUIRE_RECOMPUTE, false);
    trm_trace_end("forward recompute", TRM_TRACE_COMPUTE, began,
                  (struct trm_trace_ids){-1, -1, model->layer[i].number});
  }
}

/* Sets the gradients of an empty batch: 0. */
static void pass_clear_gradients(const struct trm_layer *layer, const struct trm_pass *pass)
{
  for (int p = 0; p < layer->parameters; p++)
    if (!layer->parameter[p].frozen)
      pass->device->ops->fill(pass->device, layer->parameter[p].g, 0, layer->parameter[p].count);
}

void pass_choose_tied_gradient(struct trm_model *model, const struct trm_pass *pass)
{
  for (int i = 0; i < model->layers && pass->beta == 0; i++)
    if (model->layer[i].tied)
      model->layer[i].tied_gradient = model->layer[i].tied->tied_gradient =
        pass->more_passes && !(pass->provider && pass->provider->overwrites_gradient) ? model->tied_gradient : NULL;
}

/* In the last accumulated pass, adds both contributions. */
static void pass_add_tied_gradient(const struct trm_layer *layer, const struct trm_pass *pass)
{
  const struct trm_parameter *weight = &layer->parameter[0];
  if (!layer->shared || !layer->tied_gradient || pass->more_passes || weight->frozen)
    return;
  const float *const both[] = {weight->g, layer->tied_gradient};
  pass->device->ops->sum(pass->device, &(struct trm_sum){
    .to = weight->g, .from = both, .count = 2, .n = weight->count});
}

struct trm_pass pass_with_beta(const struct trm_pass *pass)
{
  struct trm_pass inner = *pass;
  if (pass->provider && pass->provider->overwrites_gradient)
    inner.beta = 0;
  return inner;
}

/* Backward of layer i in one of the passes side by side; its gradient is then complete but for other passes. */
static void pass_layer_backward_one(struct trm_model *model, const struct trm_pass *pass, int i)
{
  const struct trm_layer *layer = &model->layer[i];
  if (!pass->input->rows && pass->beta == 0)
    pass_clear_gradients(layer, pass);
  if (!pass->input->rows && pass->beta == 0 && layer->tied && layer->tied_gradient && !layer->tied->parameter[0].frozen)
    pass->device->ops->fill(pass->device, layer->tied_gradient, 0, layer->tied->parameter[0].count);
  if (layer->needs_dy && layer->from != TRM_FROM_NONE && pass_layer_runs(layer, pass))
    pass_layer_backward(model, pass, i);
  if (layer->needs_moments && pass->input->rows)
    layer->ops->backward(&model->layer[i], pass, NULL, NULL, NULL, NULL, pass_workspace(model, i, BACKWARD));
}

/* Passes on the gradients of a layer in one of the passes side by side, which the next one overwrites. */
static void pass_add_lane(const struct trm_layer *layer, trm_lane_ready *lane_ready, void *context, int lane)
{
  if (layer->low < layer->high)
    lane_ready(context, lane, layer->low, layer->high);
  for (int p = 0; p < layer->parameters; p++)
    if (layer->parameter[p].statistic && !layer->parameter[p].frozen)
      lane_ready(context, lane, layer->parameter[p].offset, layer->parameter[p].offset + layer->parameter[p].count);
}

/* Backward of layer i in passes side by side. inner: the passes as layers get them. */
static void pass_layer_backward_all(struct trm_model *model, const struct trm_pass *inner, int count, int i,
                                    trm_lane_ready *lane_ready, void *context)
{
  const struct trm_layer *layer = &model->layer[i];
  if (layer->needs_dy && layer->from != TRM_FROM_NONE && pass_sums_batch(layer, inner))
    pass_sum_batch(model, inner, count, i, BACKWARD);
  for (int lane = 0; lane < count; lane++) {
    pass_layer_backward_one(model, pass_enter(model, inner, count, lane), i);
    if (count > 1)
      pass_add_lane(layer, lane_ready, context, lane);
  }
}

static int pass_backward_layers(struct trm_model *model, const struct trm_pass *pass, const struct trm_pass *inner,
                                int count, trm_lane_ready *lane_ready, trm_grad_ready *ready, void *context)
{
  const struct trm_arena_plan *plan = model->plan;
  trm_layers_set_rows(model->layer, plan->first, plan->last, pass->input->rows);
  pass_choose_tied_gradient(model, pass);
  pass_round_weights(model, pass, true);
  pass_hold_statistics(model, pass, TRM_ACQUIRE_BACKWARD, true);
  for (int i = plan->last - 1; i >= plan->first; i--) {
    const struct trm_layer *layer = &model->layer[i];
    trm_ledger_set_layer(layer->global_index, TRM_LEDGER_BACKWARD);
    if (i == plan->segment_end[i] - 1)
      pass_recompute_segment(model, inner, count, i + 1);
    if (!pass_is_chunked(model, i)) /* which the loss holds */
      pass_hold(model, pass, i, TRM_ACQUIRE_BACKWARD, true);
    pass_layer_backward_all(model, inner, count, i, lane_ready, context);
    pass_add_tied_gradient(layer, pass);
    if (layer->low < layer->high && ready)
      TRM_CHECK(ready(context, layer->low, layer->high));
    pass_hold(model, pass, i, TRM_ACQUIRE_BACKWARD, false);
    if (pass->progress)
      pass->progress(pass->progress_context);
    if (pass_is_abandoned(model, pass))
      return trm_pass_wait(pass);
  }
  if (ready && model->statistics && model->current_chunk == 0)
    TRM_CHECK(ready(context, model->parameters - model->statistics, model->parameters));
  pass_hold_statistics(model, pass, TRM_ACQUIRE_BACKWARD, false);
  return pass->step ? TRM_OK : trm_pass_wait(pass);
}

int pass_backward(struct trm_model *model, const struct trm_pass *pass, int count, trm_lane_ready *lane_ready,
                  trm_grad_ready *ready, void *context)
{
  struct trm_pass *inner = trm_alloc((size_t)count * sizeof *inner, "passes");
  for (int lane = 0; lane < count; lane++) {
    inner[lane] = pass_with_beta(&pass[lane]);
    inner[lane].auxiliary_loss = NULL; /* forward has added it; recomputation must not */
  }
  const int status = pass_backward_layers(model, pass, inner, count, lane_ready, ready, context);
  trm_free(inner);
  return status;
}

int trm_model_backward(struct trm_model *model, const struct trm_pass *pass, trm_grad_ready *ready, void *context)
{
  return pass_backward(model, pass, 1, NULL, ready, context);
}

int trm_pass_wait(const struct trm_pass *pass)
{
  return pass->wait ? pass->wait(pass->progress_context) : pass->device->ops->sync(pass->device);
}

int pass_check(const struct trm_model *model, const struct trm_pass *pass)
{
  const size_t rows = pass->input->rows;
  if (model->layer[0].tensor_size && !pass->tensor_axis)
    return trm_error(TRM_FAILED, "the model is one part of %d: a pass needs the other ranks",
                     model->layer[0].tensor_size);
  if (!model->device || rows > model->max_rows)
    return trm_error(TRM_FAILED, "a batch of %zu rows: the model has memory for %zu", rows,
                     model->device ? model->max_rows : 0);
  return TRM_OK;
}
