/* Frozen parameters of a model: those that are not trained, and their values, which are not in the flat arrays. */
#include "core/memory.h"
#include "core/pattern.h"
#include "core/status.h"
#include "nn/model_private.h"
#include "nn/param_names.h"

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

int model_freeze(struct trm_model *model, const char *text)
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

int model_alloc_frozen(struct trm_model *model)
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

void model_free_frozen(struct trm_model *model)
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
