/* Creation of a model: from text to layers, layout of the flat arrays, initial weights, description. */
#include "nn/model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/context.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/random.h"
#include "core/sha256.h"
#include "core/status.h"
#include "nn/channels_last.h"
#include "nn/model_text.h"
#include "core/pattern.h"
#include "nn/arena_plan.h"
#include "nn/param_names.h"
#include "nn/sharding.h"

enum { PAD = TRM_ALIGNMENT / (int)sizeof(float) };

static const size_t max_elements = (size_t)1 << 48; /* elements: larger than any memory, but safe from overflow */

/* Returns true if backward computes a gradient of the layer's parameters. */
static bool model_layer_trains(const struct trm_layer *layer)
{
  for (int p = 0; p < layer->parameters; p++)
    if (!layer->parameter[p].frozen && !layer->parameter[p].statistic)
      return true;
  return layer->tied && !layer->tied->parameter[0].frozen;
}

/* Returns true if backward computes moments of the layer's statistics. */
static bool model_layer_measures(const struct trm_layer *layer)
{
  for (int p = 0; p < layer->parameters; p++)
    if (!layer->parameter[p].frozen && layer->parameter[p].statistic)
      return true;
  return false;
}

/* A layer whose statistics are frozen, all of them, sums nothing over the batch. */
static int model_freeze_statistics(struct trm_layer *layer)
{
  int statistics = 0, frozen = 0;
  for (int p = 0; p < layer->parameters; p++) {
    statistics += layer->parameter[p].statistic;
    frozen += layer->parameter[p].statistic && layer->parameter[p].frozen;
  }
  if (frozen && frozen < statistics)
    return trm_error(TRM_USAGE, "model.freeze: matches some of the statistics of %s: all of them, or none, are frozen",
                     trm_layer_text(layer));
  if (frozen)
    layer->batch_sums = 0;
  return TRM_OK;
}

/* Marks the frozen parameters of the whole model. */
static int model_mark_frozen(struct trm_model *model, const struct trm_pattern *pattern,
                             const struct trm_param_names *names)
{
  const int count = trm_model_parameter_count(model);
  size_t trained = 0;
  bool matched = false;
  model->frozen_number = trm_alloc((size_t)count * sizeof *model->frozen_number, "frozen parameters");
  for (int n = 0; n < count; n++) {
    struct trm_parameter *parameter = trm_model_parameter(model, n);
    const bool named = !parameter->adapter && trm_pattern_matches(pattern, names->name[n].text);
    parameter->frozen = model->frozen_number[n] = parameter->frozen || named;
    matched = matched || named;
    model->frozen_count += parameter->frozen;
    model->frozen_size += parameter->frozen && !parameter->statistic ? parameter->count : 0;
    trained += !parameter->frozen && !parameter->statistic;
  }
  if (pattern && !matched)
    return trm_error(TRM_USAGE, "model.freeze: matches no parameter; the first one is called %s, the last one %s",
                     names->name[0].text, names->name[count - 1].text);
  if (!trained)
    return trm_error(TRM_USAGE, "model.freeze: matches every parameter: there is nothing to train");
  for (int i = 0; i < model->layers; i++)
    TRM_CHECK(model_freeze_statistics(&model->layer[i]));
  return TRM_OK;
}

/* Freezes the layers with adapters, and what the pattern names. */
static int model_freeze(struct trm_model *model, const char *text)
{
  struct trm_pattern *pattern;
  struct trm_param_names names;
  bool adapted = false;
  TRM_CHECK(trm_pattern_create(&pattern, "model.freeze", text));
  for (int i = 0; i < model->layers; i++) {
    struct trm_layer *layer = &model->layer[i];
    adapted = adapted || layer->adapted;
    for (int p = 0; p < layer->parameters; p++)
      layer->parameter[p].frozen = layer->adapted;
  }
  if (!pattern && !adapted)
    return TRM_OK;
  trm_param_names_create(&names, model);
  const int status = model_mark_frozen(model, pattern, &names);
  trm_param_names_free(&names);
  trm_pattern_free(pattern);
  return status;
}

/* Sets needs_dy and needs_dx: a gradient is needed if a parameter that is trained is at or before it. */
static int model_set_needs(struct trm_model *model)
{
  bool any = false;
  for (int i = 0; i < model->layers; i++) {
    struct trm_layer *layer = &model->layer[i];
    layer->needs_dx = layer->from >= 0 && model->layer[layer->from].needs_dy;
    layer->needs_dy = model_layer_trains(layer) || layer->needs_dx ||
                      (layer->addend >= 0 && model->layer[layer->addend].needs_dy);
    layer->needs_moments = !layer->needs_dy && model_layer_measures(layer);
    any = any || layer->parameters;
  }
  if (!any)
    return trm_error(TRM_USAGE, "model '%s' has no layer with parameters: there is nothing to train", model->text);
  return TRM_OK;
}

/* Assigns the next offsets to the layer's parameters, or to its statistics. */
static int model_layout_layer(struct trm_model *model, struct trm_layer *layer, bool statistics)
{
  for (int p = 0; p < layer->parameters; p++) {
    struct trm_parameter *parameter = &layer->parameter[p];
    if (parameter->statistic != statistics)
      continue;
    parameter->offset = parameter->frozen ? model->frozen : model->parameters;
    if (parameter->count > max_elements)
      return trm_error(TRM_USAGE, "%s: %s of shape %s is too large", trm_layer_text(layer), parameter->name,
                       trm_shape_text(&parameter->shape));
    *(parameter->frozen ? &model->frozen : &model->parameters) += (parameter->count + PAD - 1) / PAD * PAD;
    if (parameter->frozen)
      continue;
    struct trm_tensor *tensor = &model->tensor[model->tensors + model->statistic_tensors];
    *tensor = (struct trm_tensor){.end = model->parameters,
                                  .padding = (PAD - parameter->count % PAD) % PAD,
                                  .columns = parameter->shape.dims ? parameter->count / parameter->shape.size[0] : 1,
                                  .momentum = parameter->momentum,
                                  .vector = parameter->shape.dims < 2,
                                  .hidden = parameter->hidden,
                                  .replica = !parameter->primary,
                                  .sharded = trm_slice_is_shard(&parameter->slice),
                                  .shared = layer->shared};
    ++*(statistics ? &model->statistic_tensors : &model->tensors);
  }
  return TRM_OK;
}

/* Numbers the parameters of the whole model, from the first layer up. */
static void model_number_parameters(struct trm_model *model)
{
  int number = 0;
  for (int i = 0; i < model->layers; i++) {
    model->layer[i].global_index = i;
    for (int p = 0; p < model->layer[i].parameters; p++)
      model->layer[i].parameter[p].number = number++;
  }
}

/* True if the layer has a matrix, or uses that of another. */
static bool model_has_matrix(const struct trm_layer *layer)
{
  for (int p = 0; p < layer->parameters; p++)
    if (layer->parameter[p].shape.dims > 1)
      return true;
  return layer->tied != NULL;
}

/* Marks the hidden matrices of the whole model. */
static void model_mark_hidden(struct trm_model *model)
{
  int first = 0, last = model->layers - 1;
  while (first < last && !model_has_matrix(&model->layer[first]))
    first++;
  while (last > first && !model_has_matrix(&model->layer[last]))
    last--;
  for (int i = first + 1; i < last; i++) {
    struct trm_layer *layer = &model->layer[i];
    for (int p = 0; p < layer->parameters; p++)
      layer->parameter[p].hidden =
        layer->parameter[p].product && layer->parameter[p].shape.dims > 1 && !layer->shared && !layer->tied;
  }
}

/* Reduces the model to the part. end (chunks) */
static int model_partition(struct trm_model *model, const struct trm_model_part *part)
{
  int end[TRM_MAX_CHUNKS] = {model->layers};
  if (part && part->chunks)
    TRM_CHECK(trm_partition(part, &model->layer, &model->layers, end));
  model->chunks = part && part->chunks ? part->chunks : 1;
  model->chunk = trm_alloc((size_t)model->chunks * sizeof *model->chunk, "chunks");
  for (int c = 0; c < model->chunks; c++)
    model->chunk[c] = (struct trm_chunk){.first = c ? end[c - 1] : 0, .last = end[c]};
  return TRM_OK;
}

/* Lays out the flat arrays: the last layer's parameters first. */
static int model_layout(struct trm_model *model)
{
  model->boundary = trm_alloc(((size_t)model->layers + 1) * sizeof *model->boundary, "layer boundaries");
  model->tensor = trm_alloc((size_t)trm_model_parameter_count(model) * sizeof *model->tensor, "tensors");
  for (int i = model->layers - 1; i >= 0; i--) {
    struct trm_layer *layer = &model->layer[i];
    layer->low = model->parameters;
    TRM_CHECK(model_layout_layer(model, layer, false));
    layer->high = model->parameters;
    for (int c = 1; c < model->chunks; c++)
      if (i == model->chunk[c].first && model->tensors)
        model->tensor[model->tensors - 1].last_of_chunk = true;
    if (layer->low < layer->high)
      model->boundary[model->boundaries++] = layer->high;
  }
  const size_t trained = model->parameters;
  for (int i = model->layers - 1; i >= 0; i--)
    TRM_CHECK(model_layout_layer(model, &model->layer[i], true));
  model->statistics = model->parameters - trained;
  if (model->statistics)
    model->boundary[model->boundaries++] = model->parameters;
  return TRM_OK;
}

static int model_build(struct trm_model *model, const char *text, const char *loss_name,
                       const struct trm_model_part *part)
{
  const struct trm_input_spec *spec = &model->spec;
  TRM_CHECK(trm_model_parse(text, spec, &model->layer, &model->layers, &model->text));
  if (part && part->freeze)
    TRM_CHECK(model_freeze(model, part->freeze));
  TRM_CHECK(model_set_needs(model));
  model->train_flop = trm_model_train_flop(model);
  model_number_parameters(model);
  model_mark_hidden(model);
  model->layer[model->layers - 1].is_output = true;
  model->targets = spec->tokens ? trm_shape_count(&spec->shape) : 1;
  const struct trm_shape scores = model->layer[model->layers - 1].out;
  model->huber_delta = 1;
  model->loss = trm_loss_find(loss_name, &scores, spec);
  if (!model->loss)
    return TRM_USAGE;
  if (part && part->tensor_size > 1)
    TRM_CHECK(trm_model_shard(part, model->loss->run_sharded != NULL, &model->layer, &model->layers));
  trm_channels_last_allow(model->layer, model->layers);
  TRM_CHECK(model_partition(model, part));
  TRM_CHECK(model_layout(model));
  return model->loss->check(model->loss, &scores, spec);
}

int trm_model_create(struct trm_model *model, const char *text, const char *loss_name,
                     const struct trm_input_spec *spec)
{
  return trm_model_create_part(model, text, loss_name, spec, NULL);
}

int trm_model_create_part(struct trm_model *model, const char *text, const char *loss_name,
                          const struct trm_input_spec *spec, const struct trm_model_part *part)
{
  *model = (struct trm_model){.spec = *spec};
  const int status = model_build(model, text, loss_name, part);
  if (status != TRM_OK)
    trm_model_free(model);
  return status;
}

static void model_unbind(struct trm_model *model)
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

static void model_free_frozen(struct trm_model *model)
{
  struct trm_device *device = model->frozen_device;
  if (!device)
    return;
  if (model->frozen_w != model->frozen_host)
    device->ops->release(device, model->frozen_w);
  device->ops->release(device, model->frozen_rounded);
  device->ops->release(device, model->discarded);
  trm_free(model->frozen_host);
}

void trm_model_free(struct trm_model *model)
{
  model_free_frozen(model);
  model_unbind(model);
  trm_free(model->frozen_number);
  trm_free(model->chunk);
  trm_layers_free(model->layer, model->layers);
  trm_free(model->text);
  trm_free(model->boundary);
  trm_free(model->tensor);
  *model = (struct trm_model){0};
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

/* Allocates the frozen values, and room for gradients that nobody reads, unless there is some. */
static int model_alloc_frozen(struct trm_model *model)
{
  struct trm_device *device = model->device;
  size_t max_count = 0;
  if (!model->frozen || model->frozen_device)
    return TRM_OK;
  for (int n = 0; n < trm_model_parameter_count(model); n++) {
    const struct trm_parameter *p = trm_model_parameter(model, n);
    max_count = p->frozen && p->count > max_count ? p->count : max_count;
  }
  model->frozen_device = device;
  model->frozen_host = trm_alloc(model->frozen * sizeof(float), "frozen weights");
  model->frozen_w = model->frozen_host;
  if (!device->host_memory)
    TRM_CHECK(device->ops->alloc(device, model->frozen * sizeof(float), TRM_MEMORY_WEIGHTS,
                                 (void **)&model->frozen_w));
  if (model->values != TRM_VALUES_F32)
    TRM_CHECK(device->ops->alloc(device, model->frozen * sizeof(trm_bf16), TRM_MEMORY_WEIGHTS,
                                 (void **)&model->frozen_rounded));
  TRM_CHECK(device->ops->alloc(device, max_count * sizeof(float), TRM_MEMORY_GRADIENTS, (void **)&model->discarded));
  device->ops->fill(device, model->discarded, 0, max_count);
  return TRM_OK;
}

int trm_model_load_frozen(struct trm_model *model)
{
  struct trm_device *device = model->frozen_device;
  if (!model->frozen)
    return TRM_OK;
  if (model->frozen_w != model->frozen_host)
    device->ops->upload(device, model->frozen_w, model->frozen_host, model->frozen * sizeof(float));
  if (model->frozen_rounded)
    device->ops->convert(device, &(struct trm_convert){
      .from = model->frozen_w, .to = model->frozen_rounded, .n = model->frozen, .type_from = TRM_VALUES_F32,
      .type_to = model->values});
  return device->ops->sync(device);
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

bool trm_slice_is_shard(const struct trm_slice *slice)
{
  return slice->high - slice->low < slice->extent;
}

size_t trm_slice_full_index(const struct trm_slice *slice, size_t element)
{
  const size_t run = (slice->high - slice->low) * slice->inner;
  return element / run * slice->extent * slice->inner + slice->low * slice->inner + element % run;
}

int trm_model_parameter_count(const struct trm_model *model)
{
  int count = 0;
  for (int i = 0; i < model->layers; i++)
    count += model->layer[i].parameters;
  return count;
}

struct trm_parameter *trm_model_parameter(const struct trm_model *model, int number)
{
  for (int i = 0; number >= 0 && i < model->layers; number -= model->layer[i++].parameters)
    if (number < model->layer[i].parameters)
      return &model->layer[i].parameter[number];
  return NULL;
}

size_t trm_model_size(const struct trm_model *model)
{
  size_t count = 0;
  for (int n = 0; n < trm_model_parameter_count(model); n++)
    count += trm_model_parameter(model, n)->statistic ? 0 : trm_model_parameter(model, n)->count;
  return count;
}

static float model_init_value(const struct trm_parameter *p, uint64_t seed, uint32_t number, uint64_t element)
{
  switch (p->init) {
  case TRM_INIT_ONE:
    return 1;
  case TRM_INIT_UNIFORM:
    return p->scale * (2 * trm_random_uniform(seed, TRM_RANDOM_INIT, number, element) - 1);
  case TRM_INIT_NORMAL:
    return p->scale * trm_random_normal(seed, TRM_RANDOM_INIT, number, element);
  case TRM_INIT_ZERO:
    break;
  }
  return 0;
}

void trm_parameter_init(const struct trm_parameter *p, uint64_t seed, float *host)
{
  for (size_t e = 0; e < p->count; e++)
    host[e] = model_init_value(p, seed, (uint32_t)p->number, trm_slice_full_index(&p->slice, e));
}

void trm_model_init(const struct trm_model *model, uint64_t seed, float *host_w)
{
  memset(host_w, 0, model->parameters * sizeof *host_w);
  for (int n = 0; n < trm_model_parameter_count(model); n++) {
    const struct trm_parameter *p = trm_model_parameter(model, n);
    trm_parameter_init(p, seed, host_w + p->offset);
  }
}

static int model_compare_names(const void *a, const void *b)
{
  const struct trm_parameter *x = *(const struct trm_parameter *const *)a, *y = *(const struct trm_parameter *const *)b;
  return strcmp(x->name, y->name);
}

/* Adds the values as little-endian floats. */
static void model_hash_add(struct trm_sha256 *hash, const float *values, size_t count)
{
  uint8_t bytes[4096];
  while (count) {
    const size_t batch = count < sizeof bytes / 4 ? count : sizeof bytes / 4;
    for (size_t i = 0; i < batch; i++) {
      uint32_t word;
      memcpy(&word, &values[i], 4);
      for (int b = 0; b < 4; b++)
        bytes[4 * i + (size_t)b] = (uint8_t)(word >> 8 * b);
    }
    trm_sha256_add(hash, bytes, 4 * batch);
    values += batch;
    count -= batch;
  }
}

int trm_model_hash_tensors(const struct trm_model *model,
                           int (*read_tensor)(void *context, int state, int number, const float **values),
                           void *context, char hex[65])
{
  const int count = trm_model_parameter_count(model);
  const struct trm_parameter **order = trm_alloc((size_t)count * sizeof *order, "order of the parameters");
  for (int n = 0; n < count; n++)
    order[n] = trm_model_parameter(model, n);
  qsort(order, (size_t)count, sizeof *order, model_compare_names);
  struct trm_sha256 hash;
  trm_sha256_begin(&hash);
  int status = TRM_OK;
  for (int n = 0; n < count && status == TRM_OK; n++) {
    const float *values = NULL;
    status = read_tensor(context, 0, order[n]->number, &values);
    if (status == TRM_OK)
      model_hash_add(&hash, values, order[n]->count);
  }
  trm_sha256_end(&hash, hex);
  trm_free(order);
  return status;
}

struct flat {
  const struct trm_model *model;
  const float *host_w;
};

static int model_flat_tensor(void *context, int state, int number, const float **values)
{
  (void)state;
  const struct flat *flat = context;
  *values = flat->host_w + trm_model_parameter(flat->model, number)->offset;
  return TRM_OK;
}

void trm_model_hash(const struct trm_model *model, const float *host_w, char hex[65])
{
  struct flat flat = {model, host_w};
  trm_model_hash_tensors(model, model_flat_tensor, &flat, hex);
}

void trm_model_log(const struct trm_model *model)
{
  for (int i = 1; i < model->layers; i++) {
    const struct trm_layer *layer = &model->layer[i];
    if (layer->ops->removes_bias && layer->from >= 0 && model->layer[layer->from].bias_removed)
      trm_info("%s: bias left out: the %s after it removes any constant", trm_layer_text(&model->layer[layer->from]),
               layer->ops->name);
  }
}

const char *trm_model_bias_hint(const struct trm_model *model, const char *parameter)
{
  int number = -1;
  sscanf(parameter, "layer%d.", &number);
  for (int i = 0; i < model->layers; i++)
    if (model->layer[i].number == number && model->layer[i].bias_removed) {
      char *text = trm_context_text();
      snprintf(text, 128, "; write bias=yes on %s: a bias before a batch norm is omitted unless asked for",
               trm_layer_text(&model->layer[i]));
      return text;
    }
  return "";
}

char *trm_model_describe(const struct trm_model *model)
{
  char *text = trm_strdup("");
  for (int i = 0; i < model->layers; i++) {
    const struct trm_layer *layer = &model->layer[i];
    size_t parameters = 0;
    for (int p = 0; p < layer->parameters; p++)
      parameters += layer->parameter[p].statistic ? 0 : layer->parameter[p].count;
    char *more = trm_format("%s%-4d%-12s%16s -> %-16s%12zu parameters\n", text, layer->number, layer->ops->name,
                            trm_shape_text(&layer->in), trm_shape_text(&layer->out), parameters);
    trm_free(text);
    text = more;
  }
  return text;
}

struct trm_cost trm_model_cost(const struct trm_model *model)
{
  return trm_layers_cost(model->layer, 0, model->layers);
}

double trm_model_train_flop(const struct trm_model *model)
{
  double flop = 3 * trm_model_cost(model).flop;
  for (int i = 0; i < model->layers && model->frozen_count; i++) {
    const struct trm_layer *layer = &model->layer[i];
    const double less = !layer->needs_dy ? 2 : layer->parameters && !model_layer_trains(layer) ? 1 : 0;
    flop -= less * trm_layer_cost(layer).flop;
  }
  return flop;
}
