#include "mpi/pipeline/channel.h"

#include "core/memory.h"
#include "core/status.h"

static size_t channel_bytes(const struct channel *channel, int number)
{
  return number < channel->messages ? channel->rows[number] * channel->width : 0;
}

static void channel_wait(struct channel *channel, int number)
{
  struct trm_comm *comm = channel->comm;
  const double before = comm->ops->clock(comm);
  comm->ops->wait(&channel->request[number % CHANNEL_DEPTH]);
  *channel->wait_s += comm->ops->clock(comm) - before;
}

static void channel_post(struct channel *channel, int number)
{
  const size_t n = channel_bytes(channel, number);
  const int at = number % CHANNEL_DEPTH;
  if (n)
    channel->comm->ops->receive_begin(channel->comm, channel->buffer[at], n, TRM_BYTE, channel->peer, channel->tag,
                                      &channel->request[at]);
}

/* Makes the buffers large enough for all messages of the run. */
static void channel_reserve(struct channel *channel)
{
  size_t max = 0;
  for (int i = 0; i < channel->messages; i++)
    max = channel_bytes(channel, i) > max ? channel_bytes(channel, i) : max;
  if (max <= channel->capacity)
    return;
  for (int i = 0; i < CHANNEL_DEPTH; i++) {
    channel_wait(channel, i);
    trm_free(channel->buffer[i]);
    channel->buffer[i] = trm_alloc(max, "messages between stages");
  }
  channel->capacity = max;
}

/* Tags: 2 c for activations, 2 c + 1 for gradients, c the chunk of the stage that receives. */
void channels_create(struct channel channel[CHANNELS], struct trm_pipeline *pipeline, struct trm_comm *comm, int chunk)
{
  const struct trm_model *model = pipeline->model;
  const struct trm_chunk *at = &model->chunk[chunk];
  const int stage = comm->rank, stages = comm->size;
  const int before = (stage + stages - 1) % stages, after = (stage + 1) % stages;
  for (int kind = 0; kind < CHANNELS; kind++) {
    const bool gradient = kind == GRADIENT_IN || kind == GRADIENT_OUT;
    const bool receives = kind == ACTIVATION_IN || kind == GRADIENT_IN;
    const bool at_begin = kind == ACTIVATION_IN || kind == GRADIENT_OUT;
    const struct trm_layer *layer = &model->layer[at_begin ? at->first : at->last - 1];
    const int chunk_before = stage > 0 ? chunk : chunk - 1, chunk_after = after > 0 ? chunk : chunk + 1;
    const int to = receives ? chunk : at_begin ? chunk_before : chunk_after;
    const bool inside = at_begin ? chunk_before >= 0 : chunk_after < pipeline->schedule.chunks;
    channel[kind] = (struct channel){
      .comm = comm,
      .peer = at_begin ? before : after,
      .tag = 2 * to + gradient,
      .open = inside && (layer->needs_dy || !gradient),
      .receives = receives,
      .width = trm_shape_count(&layer->out) * trm_value_bytes(model->values),
      .wait_s = &pipeline->wait_s,
      .comm_s = &pipeline->comm_s,
    };
  }
}

void channel_begin(struct channel *channel, const size_t *rows, int messages)
{
  if (!channel->open)
    return;
  channel->rows = rows;
  channel->messages = messages;
  channel_reserve(channel);
  for (int i = 0; i < CHANNEL_DEPTH && channel->receives; i++)
    channel_post(channel, i);
}

void channel_send(struct channel *channel, struct trm_device *device, const void *from, int number)
{
  const size_t n = channel->open ? channel_bytes(channel, number) : 0;
  const int at = number % CHANNEL_DEPTH;
  struct trm_comm *comm = channel->comm;
  if (!n)
    return;
  channel_wait(channel, number); /* for the previous send from this buffer */
  const double before = comm->ops->clock(comm);
  device->ops->download(device, channel->buffer[at], from, n);
  comm->ops->send_begin(comm, channel->buffer[at], n, TRM_BYTE, channel->peer, channel->tag, &channel->request[at]);
  *channel->comm_s += comm->ops->clock(comm) - before;
}

int channel_receive(struct channel *channel, struct trm_device *device, void *to, int number)
{
  const size_t n = channel->open ? channel_bytes(channel, number) : 0;
  struct trm_comm *comm = channel->comm;
  if (!channel->open)
    return TRM_OK;
  if (n) {
    channel_wait(channel, number);
    const double before = comm->ops->clock(comm);
    device->ops->upload(device, to, channel->buffer[number % CHANNEL_DEPTH], n);
    if (!device->host_memory)
      TRM_CHECK(device->ops->sync(device)); /* before the buffer is reused */
    *channel->comm_s += comm->ops->clock(comm) - before;
  }
  channel_post(channel, number + CHANNEL_DEPTH);
  return TRM_OK;
}

void channel_free(struct channel *channel)
{
  if (!channel->open)
    return;
  for (int i = 0; i < CHANNEL_DEPTH; i++) {
    channel->comm->ops->wait(&channel->request[i]);
    trm_free(channel->buffer[i]);
  }
}
