/* The host form of kernels that a device does not have. Private to kernels. */
#pragma once

#include "core/device.h"

/* Puts the host form into the empty slots of an open device, which then computes with the CPU's kernels and `threads`
 * threads there. Undone by host_kernels_remove, before the device is closed, also after an error. */
int host_kernels_add(struct trm_device *device, int index, int threads);
void host_kernels_remove(struct trm_device *device);
