/* Creation of a model: from text to layers, layout of the flat arrays, description. */
#include <stdio.h>

#include "core/context.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"
#include "nn/channels_last.h"
#include "nn/model_private.h"
#include "nn/model_text.h"
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
