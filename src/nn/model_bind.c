/* A model in a device's memory: arenas for the passes, and the weights that they read. */
#include "core/memory.h"
#include "core/status.h"
#include "nn/arena_plan.h"
#include "nn/model_private.h"

void model_unbind(struct trm_model *model)
{
  trm_recordings_free(&model->passes);
  for (int c = 0; c < model->chunks; c++) {
    struct trm_chunk *chunk = &model->chunk[c];
    for (int slot = 0; slot < model->slots && chunk->arena; slot++)
      model->device->ops->release(model->device, chunk->arena[slot]);
    trm_free(chunk->arena);
    trm_arena_plan_free(chunk->plan);
    *chunk = (struct trm_chunk){.first = chunk->first, .last = chunk->last};
  }
  void *const arrays[] = {model->sums, model->transient, model->tied_gradient, model->own_rounded};
  for (int i = 0; i < 4 && model->device; i++)
    model->device->ops->release(model->device, arrays[i]);
  model->device = NULL;
  model->arena = model->transient = NULL;
  model->tied_gradient = model->row_loss = model->row_correct = NULL;
  model->sums = NULL;
  model->rounded = model->own_rounded = NULL;
  model->scores = NULL;
  model->plan = NULL;
  model->slots = 0;
}

static bool model_separates_transient(const struct trm_model *model)
{
  return (model->slots > 1 && !model->side_by_side) || model->chunks > 1;
}

static bool model_infers(const struct trm_model *model)
{
  return !model->training && model->w && model->values == TRM_VALUES_F32 && model->device->ops->conv2d_fuses;
}

static struct trm_arena_plan *model_plan_chunk(const struct trm_model *model, const struct trm_chunk *chunk)
{
  const bool rounds = model->values != TRM_VALUES_F32;
  const struct trm_arena_request request = {.rows = model->max_rows,
                                            .training = model->training,
                                            .values = model->values,
                                            .convert_input = rounds ? trm_shape_count(&model->spec.shape) : 0,
                                            .copy_weights = rounds && !model->w,
                                            .recompute_blocks = model->recompute,
                                            .loss_chunk = chunk->last == model->layers ? model->loss_chunk : 0,
                                            .trains = model->training && !model->channels_first ? model->device : NULL,
                                            .infers = model_infers(model) ? model->device : NULL,
                                            .separate_transient = model_separates_transient(model)};
  return trm_arena_plan_create(model->layer, chunk->first, chunk->last, &request);
}

static size_t model_arena_bytes(const struct trm_model *model, const struct trm_arena_plan *plan)
{
  return model_separates_transient(model) ? plan->transient_offset : plan->bytes;
}

/* Bytes of the arrays of a single pass, which all chunks and slots share. */
static size_t model_transient_bytes(const struct trm_model *model)
{
  size_t max = 0;
  for (int c = 0; c < model->chunks; c++) {
    const struct trm_arena_plan *plan = model->chunk[c].plan;
    if (plan->transient_offset <= plan->bytes && max < plan->bytes - plan->transient_offset)
      max = plan->bytes - plan->transient_offset;
  }
  return max;
}

static size_t model_tied_gradient_bytes(const struct trm_model *model)
{
  for (int i = 0; i < model->layers && model->accumulates && model->training; i++)
    if (model->layer[i].shared && !model->layer[i].parameter[0].frozen)
      return model->layer[i].parameter[0].count * sizeof(float);
  return 0;
}

/* Plans all arenas, before any memory is allocated. */
static void model_plan_arenas(struct trm_model *model)
{
  model->arena_bytes = 0;
  for (int c = 0; c < model->chunks; c++) {
    struct trm_chunk *chunk = &model->chunk[c];
    chunk->plan = model_plan_chunk(model, chunk);
    chunk->arena = trm_alloc((size_t)model->slots * sizeof *chunk->arena, "activations");
    model->arena_bytes += (size_t)model->slots * model_arena_bytes(model, chunk->plan);
  }
  model->arena_bytes += model_transient_bytes(model) + model_tied_gradient_bytes(model);
}

static int model_alloc_array(struct trm_model *model, size_t bytes, void **array)
{
  return model->device->ops->alloc(model->device, bytes, TRM_MEMORY_ACTIVATIONS, array);
}

static int model_alloc_arenas(struct trm_model *model)
{
  const size_t transient = model_transient_bytes(model), tied = model_tied_gradient_bytes(model);
  for (int c = 0; c < model->chunks; c++)
    for (int slot = 0; slot < model->slots; slot++)
      TRM_CHECK(model_alloc_array(model, model_arena_bytes(model, model->chunk[c].plan),
                                  &model->chunk[c].arena[slot]));
  if (transient > 0)
    TRM_CHECK(model_alloc_array(model, transient, &model->transient));
  return tied > 0 ? model_alloc_array(model, tied, (void **)&model->tied_gradient) : TRM_OK;
}

/* Allocates the copy of the weights that products read, unless there is one. */
static int model_alloc_rounded(struct trm_model *model)
{
  void *memory;
  if (model->values == TRM_VALUES_F32 || !model->w || model->w == model->shared_w || model->own_rounded)
    return TRM_OK;
  const size_t bytes = (model->parameters - model->statistics) * sizeof *model->own_rounded;
  TRM_CHECK(model->device->ops->alloc(model->device, bytes, TRM_MEMORY_WEIGHTS, &memory));
  model->own_rounded = memory;
  return TRM_OK;
}

/* Allocates arenas and per-row losses. */
static int model_alloc(struct trm_model *model, struct trm_device *device, size_t rows, bool training, int slots)
{
  model_unbind(model);
  model->device = device;
  model->max_rows = rows;
  model->training = training;
  model->bound_recompute = model->recompute;
  model->bound_loss_chunk = model->loss_chunk;
  model->bound_channels_first = model->channels_first;
  model->slots = slots;
  model_plan_arenas(model);
  TRM_CHECK(model_alloc_arenas(model));
  const struct trm_layer *last = &model->layer[model->layers - 1];
  const size_t each = rows * model->targets;
  const size_t scratch = last->output_sharded ? 2 + TRM_SCORES_FIELDS * (1 + (size_t)last->tensor_size) : 0;
  TRM_CHECK(device->ops->alloc(device, sizeof *model->sums + (2 + scratch) * each * sizeof(float),
                               TRM_MEMORY_ACTIVATIONS, (void **)&model->sums));
  model->row_loss = (float *)(model->sums + 1);
  model->row_correct = model->row_loss + each;
  model->row_scratch = model->row_correct + each;
  model->current_chunk = model->current_slot = 0;
  trm_model_select(model, 0, 0);
  return TRM_OK;
}

int trm_model_bind(struct trm_model *model, struct trm_device *device, float *w, float *g, size_t max_rows,
                   bool training)
{
  return trm_model_bind_slots(model, device, w, g, max_rows, training, 1);
}

int trm_model_bind_slots(struct trm_model *model, struct trm_device *device, float *w, float *g, size_t max_rows,
                         bool training, int slots)
{
  const size_t rows = max_rows ? max_rows : 1;
  const bool same = model->device == device && model->max_rows == rows && model->training == training &&
                    model->slots == slots && model->bound_recompute == model->recompute &&
                    model->bound_loss_chunk == model->loss_chunk &&
                    model->bound_channels_first == model->channels_first && !model->w == !w;
  model->w = w;
  model->g = g;
  if (!same) {
    const int status = model_alloc(model, device, rows, training, slots);
    if (status != TRM_OK) {
      model_unbind(model);
      return status;
    }
  }
  TRM_CHECK(model_alloc_rounded(model));
  TRM_CHECK(model_alloc_frozen(model));
  for (int n = 0; n < trm_model_parameter_count(model); n++) {
    struct trm_parameter *parameter = trm_model_parameter(model, n);
    parameter->g = g ? g + parameter->offset : NULL; /* NULL: a parameter provider has them */
    if (!parameter->frozen)
      continue;
    parameter->g = model->discarded;
    parameter->frozen_w = model->frozen_host + parameter->offset;
  }
  trm_model_use_weights(model, w);
  return TRM_OK;
}

void trm_model_use_weights(struct trm_model *model, float *w)
{
  model->rounded = w && w == model->shared_w ? model->shared_rounded : model->own_rounded;
  model->own_current = false;
  for (int i = 0; i < model->layers; i++)
    for (int p = 0; p < model->layer[i].parameters; p++) {
      struct trm_parameter *parameter = &model->layer[i].parameter[p];
      const trm_bf16 *rounded = parameter->frozen ? model->frozen_rounded : model->rounded;
      if (parameter->frozen)
        parameter->w = model->frozen_w + parameter->offset;
      else
        parameter->w = w ? w + parameter->offset : NULL;
      parameter->values = parameter->w;
      if (rounded && !parameter->statistic)
        parameter->values = rounded + parameter->offset;
    }
}

void trm_model_share_rounded(struct trm_model *model, const float *w, trm_bf16 *rounded)
{
  model->shared_w = rounded ? w : NULL;
  model->shared_rounded = rounded;
}

int trm_model_set_values(struct trm_model *model, enum trm_value_type values)
{
  for (int i = 0; i < model->layers && values != TRM_VALUES_F32; i++)
    if (!model->layer[i].ops->takes_bf16)
      return trm_error(TRM_USAGE, "%s: takes values in float32 alone: train.activations=bf16 cannot be used with it",
                       trm_layer_text(&model->layer[i]));
  if (values != model->values)
    model_unbind(model);
  for (int i = 0; i < model->layers; i++)
    model->layer[i].values = values;
  model->values = values;
  return TRM_OK;
}

int trm_model_set_loss_chunk(struct trm_model *model, size_t rows)
{
  const struct trm_layer *last = &model->layer[model->layers - 1];
  if (rows && last->is_output && (!last->ops->by_vector || last->sparse_input))
    return trm_error(TRM_USAGE, "%s: train.loss_chunk is for models whose last layer is a linear or head of dense "
                     "values, which computes each row of scores by itself", trm_layer_text(last));
  model->loss_chunk = last->is_output ? rows : 0;
  return TRM_OK;
}
