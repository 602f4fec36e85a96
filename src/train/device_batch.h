/* Uploads host batches to the device as model input. Not collective. */
#pragma once

#include "nn/model.h"
#include "train/dataset.h"

enum { TRM_BATCH_DENSE, TRM_BATCH_STARTS, TRM_BATCH_COLUMNS, TRM_BATCH_VALUES, TRM_BATCH_TOKENS, TRM_BATCH_CLASS,
       TRM_BATCH_TARGET, TRM_BATCH_ROW_WEIGHT, TRM_BATCH_CLASS_WEIGHT, TRM_BATCH_ARRAYS };

/* Grows as needed, and then stays where it is. */
struct trm_batch_array {
  void *memory;           /* device */
  void *staging;          /* host; NULL if the device's memory is the host's */
  size_t bytes;           /* of each */
  struct trm_event event; /* of the copy from staging */
  bool uploads;           /* this copy has begun, and no call comes after it yet */
};

/* Device copies of two batches by turns, of which the host fills one while the device may compute with the other; of
 * one if the device's memory is the host's. */
struct trm_device_batch {
  struct trm_device *device;
  const struct trm_loss *loss;
  struct trm_input_spec spec;
  int turn; /* of the batch that was begun last */
  struct trm_batch_array array[2][TRM_BATCH_ARRAYS];
  struct trm_input begun; /* that batch */
};

void trm_device_batch_create(struct trm_device_batch *device_batch, struct trm_device *device,
                             const struct trm_model *model);
/* Begins to upload the batch, which may change on return, in place of the batch before the last one. Two classes become
 * -1 and +1 in target_value if the loss needs signed targets. TRM_USAGE: targets of a loss of labels that are not 0 or
 * 1. */
int trm_device_batch_begin(struct trm_device_batch *device_batch, struct trm_host_batch *batch);
/* Lets later calls of the device come after the upload of the batch that was begun last, and describes it in *input,
 * valid until the next but one has begun; until the next one if the device's memory is the host's. */
void trm_device_batch_await(struct trm_device_batch *device_batch, struct trm_input *input);
/* Both of them. */
int trm_device_batch_upload(struct trm_device_batch *device_batch, struct trm_host_batch *batch,
                            struct trm_input *input);
void trm_device_batch_free(struct trm_device_batch *device_batch);
