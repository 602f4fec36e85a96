#include "train/device_batch.h"

#include <string.h>

#include "core/memory.h"
#include "core/status.h"

void trm_device_batch_create(struct trm_device_batch *device_batch, struct trm_device *device,
                             const struct trm_model *model)
{
  memset(device_batch, 0, sizeof *device_batch);
  device_batch->device = device;
  device_batch->loss = model->loss;
  device_batch->spec = model->spec;
}

/* Copies n elements to the device array, which grows as needed, and sets `to` to its address. */
#define UPLOAD(array, host, n, to)                                                                                  \
  do {                                                                                                              \
    TRM_CHECK(device_batch_upload_array(device_batch->device, &(array).memory, &(array).bytes, host,                \
                                        (n) * sizeof *(host)));                                                     \
    (to) = (array).memory;                                                                                          \
  } while (0)

static int device_batch_upload_array(struct trm_device *device, void **memory, size_t *capacity, const void *host,
                                     size_t bytes)
{
  if (bytes > *capacity || !*memory) {
    const size_t new_capacity = bytes + bytes / 4 + 64; /* extra capacity: sparse rows vary in length */
    device->ops->release(device, *memory);
    *memory = NULL;
    *capacity = 0;
    TRM_CHECK(device->ops->alloc(device, new_capacity, TRM_MEMORY_BUFFERS, memory));
    *capacity = new_capacity;
  }
  device->ops->upload(device, *memory, host, bytes);
  return TRM_OK;
}

/* Sets target_value to -1 for class 0 and +1 for class 1. */
static void device_batch_sign_targets(struct trm_host_batch *batch)
{
  if (batch->value_capacity < batch->rows || !batch->target_value) {
    trm_free(batch->target_value);
    batch->target_value = trm_alloc(batch->rows * sizeof *batch->target_value, "signed targets");
    batch->value_capacity = batch->rows;
  }
  for (size_t i = 0; i < batch->rows; i++)
    batch->target_value[i] = batch->target_class[i] == 1 ? 1.0f : -1.0f;
}

int trm_device_batch_upload(struct trm_device_batch *device_batch, struct trm_host_batch *batch,
                            struct trm_input *input)
{
  const struct trm_input_spec *spec = &device_batch->spec;
  const size_t rows = batch->rows;
  *input = (struct trm_input){.rows = rows};
  if (rows == 0)
    return TRM_OK;

  size_t targets = rows;
  if (spec->sparse) {
    const size_t entries = (size_t)batch->starts[rows];
    input->csr.rows = rows;
    input->csr.features = spec->shape.size[0];
    input->csr.entries = entries;
    UPLOAD(device_batch->starts, batch->starts, rows + 1, input->csr.starts);
    UPLOAD(device_batch->columns, batch->columns, entries, input->csr.columns);
    UPLOAD(device_batch->values, batch->values, entries, input->csr.values);
  } else if (spec->tokens) {
    targets = rows * trm_shape_count(&spec->shape);
    UPLOAD(device_batch->tokens, batch->tokens, targets, input->tokens);
  } else {
    UPLOAD(device_batch->dense, batch->dense, rows * trm_shape_count(&spec->shape), input->dense);
  }

  const bool classes = spec->target == TRM_TARGET_CLASS;
  if (classes && device_batch->loss->signed_target)
    device_batch_sign_targets(batch);
  if (classes)
    UPLOAD(device_batch->target_class, batch->target_class, targets, input->target_class);
  if (!classes || device_batch->loss->signed_target)
    UPLOAD(device_batch->target_value, batch->target_value, rows * (classes ? 1 : spec->classes), input->target_value);
  return TRM_OK;
}

void trm_device_batch_free(struct trm_device_batch *device_batch)
{
  if (!device_batch->device)
    return;
  void *all[] = {device_batch->dense.memory,       device_batch->starts.memory, device_batch->columns.memory,
                 device_batch->values.memory,      device_batch->tokens.memory, device_batch->target_class.memory,
                 device_batch->target_value.memory};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    device_batch->device->ops->release(device_batch->device, all[i]);
  memset(device_batch, 0, sizeof *device_batch);
}
