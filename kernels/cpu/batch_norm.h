/* Batch normalization: what the files of it share. Private to kernels/cpu. batch_norm.c is for images by planes, (B, C,
 * S); batch_norm_rows.c for rows of channels, (B, C), which are vectors, or the positions of images that have the
 * channels last. */
#pragma once

#include <math.h>

#include "core/kernels.h"
#include "kernels/cpu/cpu.h"

/* Returns the number of a channel's values in the batch. */
CPU_INLINE double batch_norm_count(const struct trm_batch_norm *bn)
{
  return bn->counted ? *bn->counted : bn->count;
}

CPU_INLINE float batch_norm_inverse_std(const struct trm_batch_norm *bn, float square)
{
  return (float)(1 / sqrt((double)square / batch_norm_count(bn) + (double)bn->epsilon));
}

/* The calls of the contract with S = 1. */
void batch_norm_rows_moments(struct trm_device *device, const struct trm_batch_norm_moments *call);
void batch_norm_rows_forward(struct trm_device *device, const struct trm_batch_norm_forward *call);
void batch_norm_rows_sums(struct trm_device *device, const struct trm_batch_norm_sums *call);
void batch_norm_rows_backward(struct trm_device *device, const struct trm_batch_norm_backward *call);
