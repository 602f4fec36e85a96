/* The gradient of a convolution's weights in bfloat16 on AMX. Private to kernels/cpu. */
#pragma once

#include "core/kernels.h"
#include "kernels/cpu/cpu.h"

/* Computes dw and db; returns false, and computes nothing, where images do not have their channels last in bfloat16,
 * or not whole blocks of 16 of them, in one group, or the processor has no AMX. */
bool conv_amx_backward_weights(struct trm_device *device, const struct trm_conv2d_backward *call);
