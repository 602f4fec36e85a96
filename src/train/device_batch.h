/* Uploads host batches to the device as model input. Not collective. */
#pragma once

#include "nn/model.h"
#include "train/dataset.h"

/* Device copies of one batch; owns its arrays, which grow as needed. */
struct trm_device_batch {
  struct trm_device *device;
  const struct trm_loss *loss;
  struct trm_input_spec spec;
  struct {
    void *memory;
    size_t bytes;
  } dense, starts, columns, values, tokens, target_class, target_value;
};

void trm_device_batch_create(struct trm_device_batch *device_batch, struct trm_device *device,
                             const struct trm_model *model);
/* Uploads the batch and describes it in *input, valid until the next call. Two classes become -1 and +1 in target_value
 * if the loss needs signed targets. */
int trm_device_batch_upload(struct trm_device_batch *device_batch, struct trm_host_batch *batch,
                            struct trm_input *input);
void trm_device_batch_free(struct trm_device_batch *device_batch);
