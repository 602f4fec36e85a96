/* The passes of a model over one batch: forward, loss, backward. */
#include "core/axis.h"
#include "core/memory.h"
#include "core/status.h"
#include "core/trace.h"
#include "nn/layers/layers.h"
#include "nn/model.h"
#include "nn/plan.h"

/* When a layer computes; forward again is for the backward pass of its segment (recompute.h). */
enum moment { FORWARD, AGAIN, BACKWARD };

static float *array_at(const struct trm_model *model, size_t offset)
{
  const size_t apart = model->plan->apart;
  return offset < apart ? model->arena + offset : model->passing + (offset - apart);
}

/* The output of a layer as layer `reader` finds it, or the batch. */
static const float *value_at(const struct trm_model *model, const struct trm_pass *pass, int reader, int layer,
                             enum moment moment)
{
  const struct trm_plan *plan = model->plan;
  if (layer == TRM_FROM_BATCH)
    return pass->input->dense;
  const bool again = moment != FORWARD && plan->end[layer] == plan->end[reader];
  return array_at(model, plan->value[again ? plan->last + layer : layer]);
}

static float *work_at(const struct trm_model *model, int i, enum moment moment)
{
  const bool any = model->layer[i].workspace || model->layer[i].workspace_fixed;
  return any ? array_at(model, model->plan->work[moment == FORWARD ? i : model->plan->last + i]) : NULL;
}

static float *scratch_at(const struct trm_model *model, int i, enum moment moment)
{
  return array_at(model, model->plan->scratch[(int)moment * model->plan->last + i]);
}

/* The sum of two arrays of the layer's output shape; `to` may be one of them. */
static void add_arrays(const struct trm_layer *layer, const struct trm_pass *pass, float *to, const float *a,
                       const float *b)
{
  const float *const from[] = {to == b ? b : a, to == b ? a : b}; /* the sum may overwrite its first */
  pass->device->ops->sum(pass->device, to, from, 2, pass->input->rows * trm_shape_count(&layer->out));
}

/* Without rows a layer has nothing to do, but to be there for other ranks. */
static bool layer_runs(const struct trm_layer *layer, const struct trm_pass *pass)
{
  return pass->input->rows || (pass->training && layer->ops->meets && pass->reduce);
}

/* -- arrays that a holder has */

static void layer_point(struct trm_layer *layer, bool statistics, size_t low, float *w, float *g)
{
  for (int p = 0; p < layer->parameters; p++) {
    struct trm_parameter *parameter = &layer->parameter[p];
    if (parameter->statistic != statistics)
      continue;
    parameter->w = w + (parameter->offset - low);
    parameter->g = g ? g + (parameter->offset - low) : NULL;
  }
}

/* An interval that others used before may have left its values where this one is padded. */
static void layer_pad(const struct trm_layer *layer, const struct trm_pass *pass)
{
  for (int p = 0; p < layer->parameters; p++) {
    const struct trm_parameter *parameter = &layer->parameter[p];
    const size_t unit = TRM_ALIGNMENT / sizeof(float), padding = (unit - parameter->count % unit) % unit;
    if (!parameter->statistic && padding)
      pass->device->ops->fill(pass->device, parameter->g + parameter->count, 0, padding);
  }
}

/* What layer i computes with. */
static void hold_take(struct trm_model *model, const struct trm_pass *pass, int i, enum trm_hold how)
{
  const struct trm_holder *holder = pass->holder;
  struct trm_layer *const both[] = {&model->layer[i], model->layer[i].tied};
  for (int k = 0; holder && k < 2; k++) {
    if (!both[k] || both[k]->low == both[k]->high)
      continue;
    float *w = NULL, *g = NULL;
    holder->take(holder->context, both[k]->low, both[k]->high, k && how == TRM_HOLD_BACKWARD ? TRM_HOLD_TIED : how, &w,
                 &g);
    layer_point(both[k], false, both[k]->low, w, g);
    if (g && holder->anew)
      layer_pad(both[k], pass);
  }
}

static void hold_give(struct trm_model *model, const struct trm_pass *pass, int i, enum trm_hold how)
{
  const struct trm_holder *holder = pass->holder;
  const struct trm_layer *const both[] = {&model->layer[i], model->layer[i].tied};
  for (int k = 0; holder && k < 2; k++)
    if (both[k] && both[k]->low < both[k]->high)
      holder->give(holder->context, both[k]->low, both[k]->high, k && how == TRM_HOLD_BACKWARD ? TRM_HOLD_TIED : how);
}

static void statistics_take(struct trm_model *model, const struct trm_pass *pass, enum trm_hold how)
{
  if (!pass->holder || !model->statistics)
    return;
  const size_t low = model->parameters - model->statistics;
  float *w = NULL, *g = NULL;
  pass->holder->take(pass->holder->context, low, model->parameters, how, &w, &g);
  for (int i = model->plan->first; i < model->plan->last; i++)
    layer_point(&model->layer[i], true, low, w, g);
}

static void statistics_give(const struct trm_model *model, const struct trm_pass *pass, enum trm_hold how)
{
  if (pass->holder && model->statistics)
    pass->holder->give(pass->holder->context, model->parameters - model->statistics, model->parameters, how);
}

void trm_model_at(struct trm_model *model, int chunk, int slot)
{
  for (int at = 0; at < 2; at++) { /* what layers keep in themselves goes and comes */
    const struct trm_chunk *c = &model->chunk[model->chunk_now];
    double *count = c->count + (size_t)model->slot_now * (size_t)model->layers;
    for (int i = c->first; i < c->last; i++)
      *(at ? &model->layer[i].count : &count[i]) = at ? count[i] : model->layer[i].count;
    model->chunk_now = chunk;
    model->slot_now = slot;
  }
  model->plan = model->chunk[chunk].plan;
  model->arena = model->chunk[chunk].arena[slot];
}

float *trm_model_entry(const struct trm_model *model, bool gradient, const struct trm_shape **shape)
{
  const int first = model->plan->first;
  const struct trm_layer *layer = &model->layer[first];
  if (layer->ops != &layer_entry)
    return NULL;
  *shape = &layer->out;
  return array_at(model, (gradient ? model->plan->gradient : model->plan->value)[first]);
}

float *trm_model_exit(const struct trm_model *model, bool gradient, const struct trm_shape **shape)
{
  const int end = model->plan->last - 1;
  if (model->layer[end].scores)
    return NULL;
  *shape = &model->layer[end].out;
  return array_at(model, (gradient ? model->plan->gradient : model->plan->value)[end]);
}

static void layer_forward(struct trm_model *model, const struct trm_pass *pass, int i, enum moment moment)
{
  struct trm_layer *layer = &model->layer[i];
  const float *x = value_at(model, pass, i, layer->from, moment);
  float *y = array_at(model, model->plan->value[moment == FORWARD ? i : model->plan->last + i]);
  layer->scratch_at = scratch_at(model, i, moment);
  if (layer->with != TRM_FROM_NONE)
    add_arrays(layer, pass, y, x, value_at(model, pass, i, layer->with, moment));
  else
    layer->ops->forward(layer, pass, x, y, work_at(model, i, moment));
}

void trm_model_forward(struct trm_model *model, const struct trm_pass *pass)
{
  const struct trm_plan *plan = model->plan;
  const enum trm_hold how = pass->training ? TRM_HOLD_FORWARD : TRM_HOLD_EVALUATE;
  statistics_take(model, pass, how);
  for (int i = plan->first; i < plan->last; i++) {
    hold_take(model, pass, i, how);
    if (model->layer[i].from != TRM_FROM_NONE && layer_runs(&model->layer[i], pass))
      layer_forward(model, pass, i, FORWARD);
    hold_give(model, pass, i, how);
    if (pass->between)
      pass->between(pass->between_context);
  }
  statistics_give(model, pass, how);
  model->scores = array_at(model, plan->value[plan->last - 1]);
}

/* What layer i gives to the gradients of what it reads. */
static void layer_backward(struct trm_model *model, const struct trm_pass *pass, int i)
{
  const struct trm_plan *plan = model->plan;
  struct trm_layer *layer = &model->layer[i];
  const struct trm_layer_ops *ops = layer->ops;
  if (layer->with == TRM_FROM_NONE) {
    layer->scratch_at = scratch_at(model, i, BACKWARD);
    ops->backward(layer, pass, ops->keeps_input ? value_at(model, pass, i, layer->from, BACKWARD) : NULL,
                  ops->keeps_output ? value_at(model, pass, i, i, BACKWARD) : NULL, array_at(model, plan->gradient[i]),
                  layer->needs_dx ? array_at(model, plan->flow[2 * i].write) : NULL, work_at(model, i, BACKWARD));
    if (layer->fans && layer->needs_dx)
      trm_axis_sum(pass->tensor, array_at(model, plan->flow[2 * i].write),
                   pass->input->rows * trm_shape_count(&layer->in));
  }
  const int to[2] = {layer->from, layer->with};
  for (int k = 0; k < 2; k++) {
    const struct trm_flow *flow = &plan->flow[2 * i + k];
    if (flow->adds)
      add_arrays(&model->layer[to[k]], pass, array_at(model, flow->sum), array_at(model, flow->earlier),
                 array_at(model, flow->write));
  }
}

/* What backward of the segment that ends there needs and forward has not kept. */
static void segment_again(struct trm_model *model, const struct trm_pass *pass, int end)
{
  const struct trm_plan *plan = model->plan;
  int i = end - 1;
  while (i > plan->first && plan->end[i - 1] == end)
    i--;
  for (; i < end; i++) {
    if (!plan->again[i])
      continue;
    const double began = trm_trace_begin();
    hold_take(model, pass, i, TRM_HOLD_AGAIN);
    if (layer_runs(&model->layer[i], pass))
      layer_forward(model, pass, i, AGAIN);
    hold_give(model, pass, i, TRM_HOLD_AGAIN);
    trm_trace_end("forward again", TRM_TRACE_COMPUTE, began, (struct trm_trace_place){-1, -1, model->layer[i].number});
  }
}

/* Gradients of no rows. */
static void gradients_clear(const struct trm_layer *layer, const struct trm_pass *pass)
{
  for (int p = 0; p < layer->parameters; p++)
    pass->device->ops->fill(pass->device, layer->parameter[p].g, 0, layer->parameter[p].count);
}

/* With the first pass of a sum it is clear where a tied layer's part goes. */
static void tied_sum_choose(struct trm_model *model, const struct trm_pass *pass)
{
  for (int i = 0; i < model->layers && pass->beta == 0; i++)
    if (model->layer[i].tied)
      model->layer[i].tied_sum = model->layer[i].tied->tied_sum =
        pass->more && !(pass->holder && pass->holder->anew) ? model->tied_sum : NULL;
}

/* With the last one the parts come together. */
static void tied_sum_add(const struct trm_layer *layer, const struct trm_pass *pass)
{
  if (!layer->shared || !layer->tied_sum || pass->more)
    return;
  const struct trm_parameter *weight = &layer->parameter[0];
  const float *const both[] = {weight->g, layer->tied_sum};
  pass->device->ops->sum(pass->device, weight->g, both, 2, weight->count);
}

int trm_model_backward(struct trm_model *model, const struct trm_pass *pass, trm_grad_ready *ready, void *context)
{
  const struct trm_plan *plan = model->plan;
  struct trm_pass inner = *pass;
  if (pass->holder && pass->holder->anew)
    inner.beta = 0;
  tied_sum_choose(model, pass);
  statistics_take(model, pass, TRM_HOLD_BACKWARD);
  for (int i = plan->last - 1; i >= plan->first; i--) {
    const struct trm_layer *layer = &model->layer[i];
    if (i == plan->end[i] - 1)
      segment_again(model, &inner, i + 1);
    hold_take(model, pass, i, TRM_HOLD_BACKWARD);
    if (!pass->input->rows && inner.beta == 0)
      gradients_clear(layer, pass);
    if (!pass->input->rows && inner.beta == 0 && layer->tied && layer->tied_sum)
      pass->device->ops->fill(pass->device, layer->tied_sum, 0, layer->tied->parameter[0].count);
    if (layer->needs_dy && layer->from != TRM_FROM_NONE && layer_runs(layer, pass))
      layer_backward(model, &inner, i);
    tied_sum_add(layer, pass);
    if (layer->parameters && ready)
      TRM_CHECK(ready(context, layer->low, layer->high));
    hold_give(model, pass, i, TRM_HOLD_BACKWARD);
    if (pass->between)
      pass->between(pass->between_context);
  }
  if (ready && model->statistics && model->chunk_now == 0)
    TRM_CHECK(ready(context, model->parameters - model->statistics, model->parameters));
  statistics_give(model, pass, TRM_HOLD_BACKWARD);
  return pass->device->ops->sync(pass->device);
}

/* Pairwise: the error grows with the logarithm of n. */
static double sum_pairwise(const float *x, size_t n)
{
  if (n > 32)
    return sum_pairwise(x, n / 2) + sum_pairwise(x + n / 2, n - n / 2);
  double sum = 0;
  for (size_t i = 0; i < n; i++)
    sum += (double)x[i];
  return sum;
}

static void model_tally(struct trm_model *model, size_t samples, struct trm_tally *tally)
{
  if (!samples)
    return;
  struct trm_device *device = model->device;
  const size_t rows = samples * model->targets, room = model->max_rows * model->targets;
  device->ops->download(device, model->host_rows, model->row_loss, (room + rows) * sizeof(float));
  float *correct = model->host_rows + room;
  size_t ignored = 0;
  for (size_t i = 0; i < rows; i++)
    if (correct[i] < 0) {
      correct[i] = 0;
      ignored++;
    }
  tally->loss += sum_pairwise(model->host_rows, rows);
  tally->correct += sum_pairwise(correct, rows);
  tally->rows += (double)(rows - ignored);
}

static int pass_check(const struct trm_model *model, const struct trm_pass *pass)
{
  const size_t rows = pass->input->rows;
  if (model->layer[0].parts && !pass->tensor)
    return trm_error(TRM_FAILED, "the model is one part of %d: a pass needs the other ranks", model->layer[0].parts);
  if (!model->device || rows > model->max_rows)
    return trm_error(TRM_FAILED, "a batch of %zu rows: the model has memory for %zu", rows,
                     model->device ? model->max_rows : 0);
  return TRM_OK;
}

static void model_loss(struct trm_model *model, const struct trm_pass *pass, float scale, float *dz)
{
  const struct trm_layer *last = &model->layer[model->layers - 1];
  const float each = scale / (float)model->targets, smoothing = pass->training ? model->smoothing : 0;
  if (pass->input->rows && last->divided) {
    const struct trm_slice *slice = &last->slice;
    const struct trm_vocabulary v = {slice->low * slice->inner, slice->high * slice->inner,
                                     slice->whole * slice->inner};
    model->loss->run_part(pass->tensor, pass->input, &v, pass->input->rows * slice->outer, model->scores, each,
                          smoothing, model->row_loss, model->row_correct, dz, model->row_words, model->host_rows);
  } else if (pass->input->rows) {
    model->loss->run(pass->device, pass->input, &last->out, model->scores, each, smoothing, model->row_loss,
                     model->row_correct, dz);
  }
}

int trm_model_score(struct trm_model *model, const struct trm_pass *pass, struct trm_tally *tally)
{
  const struct trm_plan *plan = model->plan;
  if (pass->training)
    model_loss(model, pass, pass->scale, array_at(model, plan->gradient[plan->last - 1]));
  else
    model_loss(model, pass, 1, NULL);
  model_tally(model, pass->input->rows, tally);
  return pass->device->ops->sync(pass->device);
}

int trm_model_evaluate(struct trm_model *model, const struct trm_pass *pass, struct trm_tally *tally)
{
  TRM_CHECK(pass_check(model, pass));
  trm_model_forward(model, pass);
  model_loss(model, pass, 1, NULL);
  model_tally(model, pass->input->rows, tally);
  return pass->device->ops->sync(pass->device);
}

int trm_model_train(struct trm_model *model, const struct trm_pass *pass, float scale, struct trm_tally *tally,
                    trm_grad_ready *ready, void *context)
{
  TRM_CHECK(pass_check(model, pass));
  if (!model->training || (!model->g && !pass->holder))
    return trm_error(TRM_FAILED, "the model has no memory for gradients: it was made ready for evaluation");
  struct trm_pass scaled = *pass;
  scaled.scale = scale;
  const double began = trm_trace_begin();
  trm_model_forward(model, &scaled);
  /* before the gradients: who gets them first can see that they count */
  TRM_CHECK(trm_model_score(model, &scaled, tally));
  trm_trace_end("forward", TRM_TRACE_COMPUTE, began, TRM_TRACE_NOWHERE);
  const double half = trm_trace_begin();
  TRM_CHECK(trm_model_backward(model, &scaled, ready, context));
  trm_trace_end("backward", TRM_TRACE_COMPUTE, half, TRM_TRACE_NOWHERE);
  return TRM_OK;
}
