#include "mpi/pipeline/chunk_channels.h"

static void chunk_channels_open(struct channel *channel, struct trm_pipeline *pipeline, struct trm_comm *comm,
                                bool receives, int peer, int tag, size_t width)
{
  *channel = (struct channel){
    .comm = comm, .peer = peer, .tag = tag, .open = true, .receives = receives, .width = width,
    .wait_s = &pipeline->wait_s, .comm_s = &pipeline->comm_s};
}

/* Tags: 2 c for activations, 2 c + 1 for gradients, c the chunk of the stage that is later in the chain. */
void chunk_channels_create(struct chunk_channels *channels, struct trm_pipeline *pipeline, struct trm_comm *comm,
                           int chunk)
{
  const struct trm_model *model = pipeline->model;
  const struct trm_chunk *at = &model->chunk[chunk];
  const struct trm_layer *first = &model->layer[at->first], *last = &model->layer[at->last - 1];
  const int stage = comm->rank, stages = comm->size;
  const int before = (stage + stages - 1) % stages, after = (stage + 1) % stages;
  *channels = (struct chunk_channels){0};
  if (chunk > 0 || stage > 0) {
    const size_t width = trm_shape_count(&first->out);
    chunk_channels_open(&channels->activation_in, pipeline, comm, true, before, 2 * chunk, width);
    if (first->needs_dy)
      chunk_channels_open(&channels->gradient_out, pipeline, comm, false, before, 2 * (stage ? chunk : chunk - 1) + 1,
                          width);
  }
  if (chunk < pipeline->schedule.chunks - 1 || after > 0) {
    const size_t width = trm_shape_count(&last->out);
    chunk_channels_open(&channels->activation_out, pipeline, comm, false, after, 2 * (after ? chunk : chunk + 1),
                        width);
    if (last->needs_dy)
      chunk_channels_open(&channels->gradient_in, pipeline, comm, true, after, 2 * chunk + 1, width);
  }
}

void chunk_channels_begin(struct chunk_channels *channels, const size_t *rows, int messages, bool backward)
{
  channel_begin(&channels->activation_in, rows, messages);
  channel_begin(&channels->activation_out, rows, messages);
  if (backward) {
    channel_begin(&channels->gradient_in, rows, messages);
    channel_begin(&channels->gradient_out, rows, messages);
  }
}

void chunk_channels_truncate(struct chunk_channels *channels, int messages)
{
  channels->activation_in.messages = channels->gradient_in.messages = messages;
}

void chunk_channels_free(struct chunk_channels *channels)
{
  channel_free(&channels->activation_in);
  channel_free(&channels->activation_out);
  channel_free(&channels->gradient_in);
  channel_free(&channels->gradient_out);
}
