/* The host form of kernels, and of copies beside the calls, that a device does not have. Private to kernels. */
#pragma once

#include "core/device.h"

/* Puts the host form into the empty slots of an open device, which then computes with the CPU's kernels and `threads`
 * threads there. Undone by host_kernels_remove, before the device is closed, also after an error. */
int host_kernels_add(struct trm_device *device, int index, int threads);
void host_kernels_remove(struct trm_device *device);

/* Copies beside the calls that are made at once: slots of any device. */
void host_upload_begin(struct trm_device *device, void *to, const void *host, size_t bytes, struct trm_event *event);
void host_download_begin(struct trm_device *device, void *host, const void *from, size_t bytes,
                         struct trm_event *event);
void host_await(struct trm_device *device, struct trm_event *event);
bool host_event_done(struct trm_device *device, struct trm_event *event);
void host_event_wait(struct trm_device *device, struct trm_event *event);
void host_event_free(struct trm_device *device, struct trm_event *event);
void host_pin(struct trm_device *device, void *host, size_t bytes);
void host_unpin(struct trm_device *device, void *host);

#define HOST_COPIES                                                                                    \
  .upload_begin = host_upload_begin, .download_begin = host_download_begin, .await = host_await,       \
  .event_done = host_event_done, .event_wait = host_event_wait, .event_free = host_event_free,         \
  .pin = host_pin, .unpin = host_unpin
