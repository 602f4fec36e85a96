#include "train/feed.h"

#include <string.h>

#include "core/memory.h"
#include "core/status.h"

void trm_feed_create(struct trm_feed *feed, struct trm_device *device, const struct trm_model *model)
{
  memset(feed, 0, sizeof *feed);
  feed->device = device;
  feed->loss = model->loss;
  feed->spec = model->spec;
}

/* Makes room for n elements on the device and copies them there. The address is left in *to. */
#define SEND(array, host, n, to)                                                    \
  do {                                                                              \
    TRM_CHECK(send(feed->device, &(array).memory, &(array).bytes, host, (n) * sizeof *(host))); \
    (to) = (array).memory;                                                          \
  } while (0)

static int send(struct trm_device *device, void **memory, size_t *room, const void *host, size_t bytes)
{
  if (bytes > *room || !*memory) {
    const size_t wanted = bytes + bytes / 4 + 64; /* sparse rows vary in length: do not grow for each */
    device->ops->release(device, *memory);
    *memory = NULL;
    *room = 0;
    TRM_CHECK(device->ops->alloc(device, wanted, "a batch of samples", memory));
    *room = wanted;
  }
  device->ops->upload(device, *memory, host, bytes);
  return TRM_OK;
}

/* Classes {0, 1} as targets {-1, +1}. */
static void sign_targets(struct trm_host_batch *batch)
{
  if (batch->value_room < batch->rows || !batch->target_value) {
    trm_free(batch->target_value);
    batch->target_value = trm_alloc(batch->rows * sizeof *batch->target_value, "signed targets");
    batch->value_room = batch->rows;
  }
  for (size_t i = 0; i < batch->rows; i++)
    batch->target_value[i] = batch->target_class[i] == 1 ? 1.0f : -1.0f;
}

int trm_feed_batch(struct trm_feed *feed, struct trm_host_batch *batch, struct trm_input *input)
{
  const struct trm_input_spec *spec = &feed->spec;
  const size_t rows = batch->rows;
  *input = (struct trm_input){.rows = rows};
  if (rows == 0)
    return TRM_OK;

  size_t targets = rows;
  if (spec->sparse) {
    const size_t entries = (size_t)batch->starts[rows];
    input->csr.rows = rows;
    input->csr.features = spec->shape.size[0];
    SEND(feed->starts, batch->starts, rows + 1, input->csr.starts);
    SEND(feed->columns, batch->columns, entries, input->csr.columns);
    SEND(feed->values, batch->values, entries, input->csr.values);
  } else if (spec->tokens) {
    targets = rows * trm_shape_count(&spec->shape);
    SEND(feed->tokens, batch->tokens, targets, input->tokens);
  } else {
    SEND(feed->dense, batch->dense, rows * trm_shape_count(&spec->shape), input->dense);
  }

  const bool classes = spec->target == TRM_TARGET_CLASS;
  if (classes && feed->loss->signed_target)
    sign_targets(batch);
  if (classes)
    SEND(feed->target_class, batch->target_class, targets, input->target_class);
  if (!classes || feed->loss->signed_target)
    SEND(feed->target_value, batch->target_value, rows * (classes ? 1 : spec->classes), input->target_value);
  return TRM_OK;
}

void trm_feed_free(struct trm_feed *feed)
{
  if (!feed->device)
    return;
  void *all[] = {feed->dense.memory,  feed->starts.memory,       feed->columns.memory,     feed->values.memory,
                 feed->tokens.memory, feed->target_class.memory, feed->target_value.memory};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    feed->device->ops->release(feed->device, all[i]);
  memset(feed, 0, sizeof *feed);
}
