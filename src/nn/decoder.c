#include "nn/decoder.h"

#include <string.h>

#include "core/memory.h"
#include "core/status.h"

static size_t decoder_context(const struct trm_decoder *decoder)
{
  return decoder->model->spec.shape.size[0];
}

/* The model of one position. */
static int decoder_make_step(struct trm_decoder *decoder)
{
  struct trm_model *model = decoder->model;
  struct trm_input_spec spec = model->spec;
  spec.context = decoder_context(decoder);
  spec.shape.size[0] = 1;
  TRM_CHECK(trm_model_create(&decoder->step, model->text, model->loss->name, &spec));
  TRM_CHECK(trm_model_set_values(&decoder->step, model->values));
  return trm_model_bind(&decoder->step, decoder->device, model->w, NULL, 1, false);
}

/* Both models have the caches. */
static int decoder_make_caches(struct trm_decoder *decoder)
{
  for (int i = 0; i < decoder->model->layers; i++) {
    struct trm_layer *layer = &decoder->model->layer[i];
    const size_t bytes = decoder_context(decoder) * layer->in.size[1] * trm_value_bytes(layer->values);
    if (!layer->ops->caches)
      continue;
    TRM_CHECK(decoder->device->ops->alloc(decoder->device, bytes, TRM_MEMORY_ACTIVATIONS, &layer->cache));
    decoder->step.layer[i].cache = layer->cache;
  }
  return TRM_OK;
}

int trm_decoder_open(struct trm_decoder *decoder, struct trm_model *model)
{
  *decoder = (struct trm_decoder){.model = model, .device = model->device};
  const size_t bytes = decoder_context(decoder) * sizeof(int32_t);
  decoder->window = trm_alloc(bytes, "tokens");
  TRM_CHECK(decoder->device->ops->alloc(decoder->device, bytes, TRM_MEMORY_BUFFERS, &decoder->tokens));
  TRM_CHECK(decoder_make_step(decoder));
  return decoder_make_caches(decoder);
}

/* Computes the scores after the last of n tokens, of which `past` are in the caches, by a model of some positions. */
static int decoder_run(struct trm_decoder *decoder, struct trm_model *model, const int32_t *token, size_t n,
                       float *scores)
{
  const size_t positions = model->spec.shape.size[0], past = decoder->past;
  struct trm_device *device = decoder->device;
  memset(decoder->window, 0, positions * sizeof *token);
  memcpy(decoder->window, token + past, (n - past) * sizeof *token); /* zeros follow, which no position before sees */
  device->ops->upload(device, decoder->tokens, decoder->window, positions * sizeof *token);
  const struct trm_input input = {.rows = 1, .tokens = decoder->tokens};
  const struct trm_pass pass = {.device = device, .input = &input, .past = past, .weights_kept = true};
  trm_model_forward(model, &pass);
  trm_model_read_scores(model, n - past - 1, 1, scores);
  return device->ops->sync(device);
}

int trm_decoder_score_next(struct trm_decoder *decoder, const int32_t *token, size_t count, float *scores)
{
  const size_t context = decoder_context(decoder), n = count < context ? count : context;
  const bool one_more = count <= context && decoder->past > 0 && decoder->past + 1 == count;
  decoder->past = one_more ? decoder->past : 0;
  TRM_CHECK(decoder_run(decoder, one_more ? &decoder->step : decoder->model, token + count - n, n, scores));
  decoder->past = n;
  return TRM_OK;
}

void trm_decoder_close(struct trm_decoder *decoder)
{
  for (int i = 0; decoder->model && i < decoder->model->layers; i++) {
    struct trm_layer *layer = &decoder->model->layer[i];
    decoder->device->ops->release(decoder->device, layer->cache);
    layer->cache = NULL;
  }
  trm_model_free(&decoder->step);
  if (decoder->device)
    decoder->device->ops->release(decoder->device, decoder->tokens);
  trm_free(decoder->window);
  *decoder = (struct trm_decoder){.model = NULL};
}
