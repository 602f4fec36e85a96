#include "mpi/pipeline/channel.h"

#include "core/memory.h"
#include "core/status.h"

static size_t channel_elements(const struct channel *channel, int number)
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
  const size_t n = channel_elements(channel, number);
  const int at = number % CHANNEL_DEPTH;
  if (n)
    channel->comm->ops->receive_begin(channel->comm, channel->buffer[at], n, TRM_FLOAT, channel->peer, channel->tag,
                                      &channel->request[at]);
}

/* Makes the buffers large enough for all messages of the run. */
static void channel_reserve(struct channel *channel)
{
  size_t max = 0;
  for (int i = 0; i < channel->messages; i++)
    max = channel_elements(channel, i) > max ? channel_elements(channel, i) : max;
  if (max <= channel->capacity)
    return;
  for (int i = 0; i < CHANNEL_DEPTH; i++) {
    channel_wait(channel, i);
    trm_free(channel->buffer[i]);
    channel->buffer[i] = trm_alloc(max * sizeof(float), "messages between stages");
  }
  channel->capacity = max;
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

void channel_send(struct channel *channel, struct trm_device *device, const float *from, int number)
{
  const size_t n = channel->open ? channel_elements(channel, number) : 0;
  const int at = number % CHANNEL_DEPTH;
  struct trm_comm *comm = channel->comm;
  if (!n)
    return;
  channel_wait(channel, number); /* for the previous send from this buffer */
  const double before = comm->ops->clock(comm);
  device->ops->download(device, channel->buffer[at], from, n * sizeof(float));
  comm->ops->send_begin(comm, channel->buffer[at], n, TRM_FLOAT, channel->peer, channel->tag, &channel->request[at]);
  *channel->comm_s += comm->ops->clock(comm) - before;
}

int channel_receive(struct channel *channel, struct trm_device *device, float *to, int number)
{
  const size_t n = channel->open ? channel_elements(channel, number) : 0;
  struct trm_comm *comm = channel->comm;
  if (!channel->open)
    return TRM_OK;
  if (n) {
    channel_wait(channel, number);
    const double before = comm->ops->clock(comm);
    device->ops->upload(device, to, channel->buffer[number % CHANNEL_DEPTH], n * sizeof(float));
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
