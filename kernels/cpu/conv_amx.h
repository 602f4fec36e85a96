/* Convolutions in bfloat16 on AMX, of images that have their channels last. Private to kernels/cpu. conv_amx.c has the
 * forward pass and the gradient of the data, conv_amx_weights.c that of the weights. Each returns false, and computes
 * nothing, where the processor has no AMX, or the call is not for it: it takes values in bfloat16, in one group, of
 * whole blocks of 16 channels and units. */
#pragma once

#include "core/kernels.h"
#include "kernels/cpu/cpu.h"

bool conv_amx_forward(struct trm_device *device, const struct trm_conv2d_forward *call);
/* Computes dx, where the stride is 1. */
bool conv_amx_backward_data(struct trm_device *device, const struct trm_conv2d_backward *call);
/* Computes dw and db. */
bool conv_amx_backward_weights(struct trm_device *device, const struct trm_conv2d_backward *call);

/* Private to both files. Whether the processor and the layout are those that they need. */
bool conv_amx_takes(const struct trm_conv2d *conv, enum trm_value_type type);
/* Positions from an output row to the next in a copy: with as many zeros behind a row as before it. */
size_t conv_amx_line(const struct trm_window2d *window);
