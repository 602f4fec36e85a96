#include "mpi/pipeline/ends.h"

static void channel_create(struct channel *channel, struct trm_pipeline *pipeline, struct trm_comm *comm, bool receives,
                           int peer, int tag, size_t width)
{
  *channel = (struct channel){.comm = comm,
                              .peer = peer,
                              .tag = tag,
                              .open = true,
                              .receives = receives,
                              .width = width,
                              .wait_s = &pipeline->wait_s,
                              .comm_s = &pipeline->comm_s};
}

/* Tags: of values and gradients, by the chunk of the stage that gets them. */
void ends_create(struct ends *ends, struct trm_pipeline *pipeline, struct trm_comm *comm, int chunk)
{
  const struct trm_model *model = pipeline->model;
  const struct trm_chunk *at = &model->chunk[chunk];
  const struct trm_layer *first = &model->layer[at->first], *last = &model->layer[at->last - 1];
  const int stage = comm->rank, stages = comm->size;
  const int before = (stage + stages - 1) % stages, after = (stage + 1) % stages;
  *ends = (struct ends){0};
  if (chunk > 0 || stage > 0) {
    const size_t width = trm_shape_count(&first->out);
    channel_create(&ends->value_in, pipeline, comm, true, before, 2 * chunk, width);
    if (first->needs_dy)
      channel_create(&ends->gradient_out, pipeline, comm, false, before, 2 * (stage ? chunk : chunk - 1) + 1, width);
  }
  if (chunk < pipeline->schedule.chunks - 1 || after > 0) {
    const size_t width = trm_shape_count(&last->out);
    channel_create(&ends->value_out, pipeline, comm, false, after, 2 * (after ? chunk : chunk + 1), width);
    if (last->needs_dy)
      channel_create(&ends->gradient_in, pipeline, comm, true, after, 2 * chunk + 1, width);
  }
}

void ends_begin(struct ends *ends, const size_t *rows, int messages, bool backward)
{
  channel_begin(&ends->value_in, rows, messages);
  channel_begin(&ends->value_out, rows, messages);
  if (backward) {
    channel_begin(&ends->gradient_in, rows, messages);
    channel_begin(&ends->gradient_out, rows, messages);
  }
}

void ends_shorten(struct ends *ends, int messages)
{
  ends->value_in.messages = ends->gradient_in.messages = messages;
}

void ends_free(struct ends *ends)
{
  channel_free(&ends->value_in);
  channel_free(&ends->value_out);
  channel_free(&ends->gradient_in);
  channel_free(&ends->gradient_out);
}
