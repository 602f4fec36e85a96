/* The composed form of the fused kernels (core/kernels.h): calls of the device's other kernels. Private to kernels. */
#pragma once

#include "core/device.h"

/* composed_linear_forward, ...: slots of any device. */
#define COMPOSED_DECLARE(slot, type) void composed_##slot(struct trm_device *device, const struct type *call);
TRM_FUSED_KERNELS(COMPOSED_DECLARE)

/* The parts of composed_linear_backward: dw and db; dx. */
void composed_linear_backward_weights(struct trm_device *device, const struct trm_linear_backward *call);
void composed_linear_backward_input(struct trm_device *device, const struct trm_linear_backward *call);
