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

/* Copies n elements to the device array `which`, and sets `to` to its address. */
#define UPLOAD(which, host, n, to)                                                                             \
  do {                                                                                                         \
    struct trm_batch_array *array = &device_batch->array[device_batch->turn][which];                           \
    TRM_CHECK(device_batch_upload_array(device_batch->device, array, host, (n) * sizeof *(host)));             \
    (to) = array->memory;                                                                                      \
  } while (0)

static void device_batch_free_array(struct trm_device *device, struct trm_batch_array *array)
{
  device->ops->event_wait(device, &array->event);
  device->ops->event_free(device, &array->event);
  device->ops->release(device, array->memory);
  if (array->staging)
    device->ops->unpin(device, array->staging);
  trm_free(array->staging);
  *array = (struct trm_batch_array){.bytes = 0};
}

static int device_batch_grow_array(struct trm_device *device, struct trm_batch_array *array, size_t bytes)
{
  const size_t capacity = bytes + bytes / 4 + 64; /* extra capacity: sparse rows vary in length */
  device_batch_free_array(device, array);
  TRM_CHECK(device->ops->alloc(device, capacity, TRM_MEMORY_BUFFERS, &array->memory));
  array->bytes = capacity;
  if (device->host_memory)
    return TRM_OK;
  array->staging = trm_alloc(capacity, "batches on their way to the device");
  device->ops->pin(device, array->staging, capacity);
  return TRM_OK;
}

static int device_batch_upload_array(struct trm_device *device, struct trm_batch_array *array, const void *host,
                                     size_t bytes)
{
  const struct trm_device_ops *ops = device->ops;
  if (bytes > array->bytes || !array->memory)
    TRM_CHECK(device_batch_grow_array(device, array, bytes));
  if (device->host_memory) {
    ops->upload(device, array->memory, host, bytes);
    return TRM_OK;
  }
  ops->event_wait(device, &array->event); /* of the batch before the last one */
  memcpy(array->staging, host, bytes);
  ops->upload_begin(device, array->memory, array->staging, bytes, &array->event);
  array->uploads = true;
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

static int device_batch_check_labels(const struct trm_host_batch *batch, size_t values)
{
  for (size_t i = 0; i < batch->rows * values; i++)
    if (batch->target_value[i] != 0 && batch->target_value[i] != 1)
      return trm_error(TRM_USAGE, "loss binary_cross_entropy: target value %zu of a sample is %g, must be 0 or 1",
                       i % values + 1, (double)batch->target_value[i]);
  return TRM_OK;
}

int trm_device_batch_begin(struct trm_device_batch *device_batch, struct trm_host_batch *batch)
{
  const struct trm_input_spec *spec = &device_batch->spec;
  const size_t rows = batch->rows;
  struct trm_input *input = &device_batch->begun;
  *input = (struct trm_input){.rows = rows};
  if (rows == 0)
    return TRM_OK;
  if (!device_batch->device->host_memory)
    device_batch->turn = !device_batch->turn;

  size_t targets = rows;
  if (spec->sparse) {
    const size_t entries = (size_t)batch->starts[rows];
    input->csr.rows = rows;
    input->csr.features = spec->shape.size[0];
    input->csr.entries = entries;
    UPLOAD(TRM_BATCH_STARTS, batch->starts, rows + 1, input->csr.starts);
    UPLOAD(TRM_BATCH_COLUMNS, batch->columns, entries, input->csr.columns);
    UPLOAD(TRM_BATCH_VALUES, batch->values, entries, input->csr.values);
  } else if (spec->tokens) {
    targets = rows * trm_shape_count(&spec->shape);
    UPLOAD(TRM_BATCH_TOKENS, batch->tokens, targets, input->tokens);
  } else {
    UPLOAD(TRM_BATCH_DENSE, batch->dense, rows * trm_shape_count(&spec->shape), input->dense);
  }

  if (device_batch->loss->labels)
    TRM_CHECK(device_batch_check_labels(batch, spec->classes));
  const bool classes = spec->target == TRM_TARGET_CLASS;
  if (classes && device_batch->loss->signed_target)
    device_batch_sign_targets(batch);
  if (classes)
    UPLOAD(TRM_BATCH_CLASS, batch->target_class, targets, input->target_class);
  if (!classes || device_batch->loss->signed_target)
    UPLOAD(TRM_BATCH_TARGET, batch->target_value, rows * (classes ? 1 : spec->classes), input->target_value);
  if (batch->weighted) {
    UPLOAD(TRM_BATCH_ROW_WEIGHT, batch->row_weight, rows, input->row_weight);
    UPLOAD(TRM_BATCH_CLASS_WEIGHT, batch->class_weight, spec->classes, input->class_weight);
  }
  return TRM_OK;
}

void trm_device_batch_await(struct trm_device_batch *device_batch, struct trm_input *input)
{
  struct trm_device *device = device_batch->device;
  for (int i = 0; i < TRM_BATCH_ARRAYS; i++) {
    struct trm_batch_array *array = &device_batch->array[device_batch->turn][i];
    if (array->uploads)
      device->ops->await(device, &array->event);
    array->uploads = false;
  }
  *input = device_batch->begun;
}

int trm_device_batch_upload(struct trm_device_batch *device_batch, struct trm_host_batch *batch,
                            struct trm_input *input)
{
  TRM_CHECK(trm_device_batch_begin(device_batch, batch));
  trm_device_batch_await(device_batch, input);
  return TRM_OK;
}

void trm_device_batch_free(struct trm_device_batch *device_batch)
{
  if (!device_batch->device)
    return;
  for (int turn = 0; turn < 2; turn++)
    for (int i = 0; i < TRM_BATCH_ARRAYS; i++)
      device_batch_free_array(device_batch->device, &device_batch->array[turn][i]);
  memset(device_batch, 0, sizeof *device_batch);
}
