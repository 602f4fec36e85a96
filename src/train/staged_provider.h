/* The parameter provider of passes on a device whose memory is not the host's, where that of the strategy provides host
 * memory (private to the library). While a layer computes, its weights and gradient are in buffers on the device: there
 * are as many as intervals are acquired at a time, of the largest of these. Whole gradients keep theirs, to which later
 * micro-batches add. */
#pragma once

#include "core/device.h"
#include "nn/layer.h"

struct staged_buffer; /* of an interval */

struct trm_staged_provider {
  struct trm_param_provider provider;     /* for passes; context: this struct */
  const struct trm_param_provider *inner; /* the strategy's; not owned */
  struct trm_device *device;              /* of passes; not owned */
  struct staged_buffer *buffers;          /* owned */
};

void trm_staged_provider_open(struct trm_staged_provider *staged, const struct trm_param_provider *inner,
                              struct trm_device *device);
void trm_staged_provider_free(struct trm_staged_provider *staged); /* also where it is not open */
/* The whole gradient's interval that begins at element `low` is final: downloads it, unless the provider has taken it
 * from the pass (overwrites_gradient). */
void trm_staged_provider_ready(struct trm_staged_provider *staged, size_t low);
