#include "mpi/pipeline/channel.h"

#include "core/memory.h"
#include "core/status.h"

static size_t channel_bytes(const struct channel *channel, int number)
{
  return number < channel->messages ? channel->rows[number] * channel->width : 0;
}

static void channel_event_wait(struct channel *channel, int number)
{
  channel->device->ops->event_wait(channel->device, &channel->event[number % CHANNEL_DEPTH]);
}

static void channel_wait(struct channel *channel, int number)
{
  struct trm_comm *comm = channel->comm;
  const double before = comm->ops->clock(comm);
  comm->ops->wait(&channel->request[number % CHANNEL_DEPTH]);
  *channel->wait_s += comm->ops->clock(comm) - before;
}

/* Begins the send or the receive of a message. */
static void channel_post(struct channel *channel, int number)
{
  struct trm_comm *comm = channel->comm;
  const size_t n = channel_bytes(channel, number);
  const int at = number % CHANNEL_DEPTH;
  if (n && channel->receives)
    comm->ops->receive_begin(comm, channel->buffer[at], n, TRM_BYTE, channel->peer, channel->tag,
                             &channel->request[at]);
  else if (n)
    comm->ops->send_begin(comm, channel->buffer[at], n, TRM_BYTE, channel->peer, channel->tag, &channel->request[at]);
}

/* Begins those sends or receives before message `end` whose buffers are ready, in order; all: waits for them. */
static bool channel_post_ready(struct channel *channel, int end, bool all)
{
  struct trm_device *device = channel->device;
  for (; channel->posted < end; channel->posted++) {
    if (all)
      channel_event_wait(channel, channel->posted);
    else if (!device->ops->event_done(device, &channel->event[channel->posted % CHANNEL_DEPTH]))
      return false;
    channel_post(channel, channel->posted);
  }
  return true;
}

bool channel_progress(struct channel *channel, bool all)
{
  if (!channel->device) /* it is not open, or has not begun */
    return true;
  if (!channel->receives)
    return channel_post_ready(channel, channel->copied, all);
  channel_post_ready(channel, channel->copied + CHANNEL_DEPTH, false);
  return true;
}

/* Releases the buffers, when their sends are complete. */
static void channel_release(struct channel *channel)
{
  struct trm_device *device = channel->device;
  for (int i = 0; i < CHANNEL_DEPTH; i++) {
    channel_wait(channel, i);
    if (channel->direct) {
      device->ops->release(device, channel->buffer[i]);
    } else if (channel->buffer[i]) {
      device->ops->unpin(device, channel->buffer[i]);
      trm_free(channel->buffer[i]);
    }
    channel->buffer[i] = NULL;
  }
  channel->capacity = 0;
}

static int channel_alloc(struct channel *channel, size_t bytes)
{
  struct trm_device *device = channel->device;
  for (int i = 0; i < CHANNEL_DEPTH; i++) {
    if (channel->direct) {
      TRM_CHECK(device->ops->alloc(device, bytes, TRM_MEMORY_BUFFERS, &channel->buffer[i]));
    } else {
      channel->buffer[i] = trm_alloc(bytes, "messages between stages");
      device->ops->pin(device, channel->buffer[i], bytes);
    }
  }
  channel->capacity = bytes;
  return channel->direct ? device->ops->sync(device) : TRM_OK; /* zeroed, before a message arrives there */
}

/* Makes the buffers large enough for all messages of the run. */
static int channel_reserve(struct channel *channel)
{
  size_t max = 0;
  for (int i = 0; i < channel->messages; i++)
    max = channel_bytes(channel, i) > max ? channel_bytes(channel, i) : max;
  if (max <= channel->capacity)
    return TRM_OK;
  channel_release(channel);
  return channel_alloc(channel, max);
}

/* Begins the copy between a device array and the buffer of message `number`; the event tells when it is done. */
static void channel_copy(struct channel *channel, void *to, const void *from, int number)
{
  struct trm_device *device = channel->device;
  struct trm_event *event = &channel->event[number % CHANNEL_DEPTH];
  const size_t n = channel_bytes(channel, number);
  if (channel->direct) {
    device->ops->copy(device, to, from, n);
    device->ops->download_begin(device, channel->buffer, to, 0, event); /* of no bytes: the end of the calls */
  } else if (channel->receives) {
    device->ops->upload_begin(device, to, from, n, event);
    device->ops->await(device, event);
  } else {
    device->ops->download_begin(device, to, from, n, event);
  }
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

int channel_begin(struct channel *channel, struct trm_device *device, const size_t *rows, int messages)
{
  if (!channel->open)
    return TRM_OK;
  channel->device = device;
  channel->direct = trm_comm_takes_memory(channel->comm, device->ops->name);
  channel->rows = rows;
  channel->messages = messages;
  TRM_CHECK(channel_reserve(channel));
  channel->copied = channel->posted = 0;
  channel_progress(channel, false);
  return TRM_OK;
}

void channel_end(struct channel *channel)
{
  channel_progress(channel, true);
  for (int i = 0; i < CHANNEL_DEPTH && channel->open; i++)
    channel_event_wait(channel, i);
}

void channel_send(struct channel *channel, const void *from, int number)
{
  const size_t n = channel->open ? channel_bytes(channel, number) : 0;
  const int at = number % CHANNEL_DEPTH;
  struct trm_comm *comm = channel->comm;
  if (!channel->open)
    return;
  if (n) {
    channel_post_ready(channel, number - CHANNEL_DEPTH + 1, true);
    channel_wait(channel, number); /* for the previous send from this buffer */
  }
  const double before = comm->ops->clock(comm);
  if (n)
    channel_copy(channel, channel->buffer[at], from, number);
  channel->copied = number + 1;
  channel_progress(channel, false);
  *channel->comm_s += comm->ops->clock(comm) - before;
}

void channel_protect(struct channel *channel, int slot, int slots)
{
  if (!channel->open || channel->direct) /* copies are calls */
    return;
  for (int i = channel->copied - CHANNEL_DEPTH; i < channel->copied; i++)
    if (i >= 0 && i % slots == slot)
      channel->device->ops->await(channel->device, &channel->event[i % CHANNEL_DEPTH]);
}

bool channel_has_arrived(struct channel *channel, int number)
{
  return !channel->open || channel->comm->ops->test(&channel->request[number % CHANNEL_DEPTH]);
}

void channel_receive(struct channel *channel, void *to, int number)
{
  const size_t n = channel->open ? channel_bytes(channel, number) : 0;
  const int at = number % CHANNEL_DEPTH;
  struct trm_comm *comm = channel->comm;
  if (!channel->open)
    return;
  channel_wait(channel, number);
  const double before = comm->ops->clock(comm);
  if (n)
    channel_copy(channel, to, channel->buffer[at], number);
  channel->copied = number + 1;
  channel_post_ready(channel, number + 2, true); /* the next one at least */
  channel_progress(channel, false);
  *channel->comm_s += comm->ops->clock(comm) - before;
}

void channel_free(struct channel *channel)
{
  if (!channel->device)
    return;
  for (int i = 0; i < CHANNEL_DEPTH; i++) {
    channel_event_wait(channel, i); /* after a failure */
    channel->device->ops->event_free(channel->device, &channel->event[i]);
  }
  channel_release(channel);
}
