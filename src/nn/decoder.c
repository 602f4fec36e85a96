#include "nn/decoder.h"

#include "core/memory.h"
#include "core/status.h"

static size_t decoder_context(const struct trm_decoder *decoder)
{
  return decoder->model->spec.shape.size[0];
}

/* Lets passes compute `positions` of a row, at most those that the model is bound for. */
static void decoder_set_positions(struct trm_decoder *decoder, size_t positions)
{
  for (int i = 0; i < decoder->model->layers; i++) {
    struct trm_layer *layer = &decoder->model->layer[i];
    if (layer->in.sequence || layer->token_input)
      layer->in.size[0] = positions;
    if (layer->out.sequence)
      layer->out.size[0] = positions;
  }
}

static int decoder_make_caches(struct trm_decoder *decoder)
{
  for (int i = 0; i < decoder->model->layers; i++) {
    struct trm_layer *layer = &decoder->model->layer[i];
    const size_t bytes = decoder_context(decoder) * layer->in.size[1] * trm_value_bytes(layer->values);
    if (layer->ops->caches)
      TRM_CHECK(decoder->device->ops->alloc(decoder->device, bytes, TRM_MEMORY_ACTIVATIONS, &layer->cache));
  }
  return TRM_OK;
}

int trm_decoder_open(struct trm_decoder *decoder, struct trm_model *model)
{
  *decoder = (struct trm_decoder){.model = model, .device = model->device};
  TRM_CHECK(decoder->device->ops->alloc(decoder->device, decoder_context(decoder) * sizeof(int32_t), TRM_MEMORY_BUFFERS,
                                        &decoder->tokens));
  return decoder_make_caches(decoder);
}

int trm_decoder_score_next(struct trm_decoder *decoder, const int32_t *token, size_t count, float *scores)
{
  struct trm_device *device = decoder->device;
  const size_t context = decoder_context(decoder), n = count < context ? count : context;
  const size_t past = decoder->past < n && count <= context ? decoder->past : 0, positions = n - past;
  const struct trm_input input = {.rows = 1, .tokens = decoder->tokens};
  const struct trm_pass pass = {.device = device, .input = &input, .past = past, .weights_kept = true};
  device->ops->upload(device, decoder->tokens, token + count - positions, positions * sizeof *token);
  decoder_set_positions(decoder, positions);
  trm_model_forward(decoder->model, &pass);
  trm_model_read_scores(decoder->model, positions - 1, 1, scores);
  decoder->past = n;
  return device->ops->sync(device);
}

void trm_decoder_close(struct trm_decoder *decoder)
{
  if (decoder->model)
    decoder_set_positions(decoder, decoder_context(decoder));
  for (int i = 0; decoder->model && i < decoder->model->layers; i++) {
    struct trm_layer *layer = &decoder->model->layer[i];
    decoder->device->ops->release(decoder->device, layer->cache);
    layer->cache = NULL;
  }
  if (decoder->device)
    decoder->device->ops->release(decoder->device, decoder->tokens);
  *decoder = (struct trm_decoder){.model = NULL};
}
