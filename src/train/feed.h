/* From host batch to device input: the one place where samples change address space. */
#ifndef TRM_TRAIN_FEED_H
#define TRM_TRAIN_FEED_H

#include "nn/model.h"
#include "train/dataset.h"

/* Device copies of one batch; arrays grow as needed and belong to the feed. */
struct trm_feed {
  struct trm_device *device;
  const struct trm_loss *loss;
  struct trm_input_spec spec;
  struct {
    void *memory;
    size_t bytes;
  } dense, starts, columns, values, tokens, target_class, target_value;
};

void trm_feed_create(struct trm_feed *feed, struct trm_device *device, const struct trm_model *model);
/* Uploads the batch and describes it in *input, valid until the next call. Two classes become -1 and +1 in
 * target_value where the loss wants signed targets. */
int trm_feed_batch(struct trm_feed *feed, struct trm_host_batch *batch, struct trm_input *input);
void trm_feed_free(struct trm_feed *feed);

#endif
