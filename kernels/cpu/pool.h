/* Pooling: what the files of it share. Private to kernels/cpu. pool.c is for planes, pool_last.c for images that have
 * the channels last. */
#pragma once

#include "core/kernels.h"
#include "kernels/cpu/cpu.h"

/* Sets [*low, *high) to the part of window i that is inside the image, in one dimension. */
CPU_INLINE void pool_clip_window(const struct trm_window2d *win, int d, size_t i, size_t *low, size_t *high)
{
  const size_t first = i * win->stride[d], last = first + win->kernel[d];

  *low = first > win->pad[d] ? first - win->pad[d] : 0;
  *high = last > win->pad[d] ? last - win->pad[d] : 0;
  *high = *high < win->in[d] ? *high : win->in[d];
}

/* Values of a plane. */
CPU_INLINE size_t pool_in(const struct trm_window2d *win)
{
  return win->in[0] * win->in[1];
}

CPU_INLINE size_t pool_out(const struct trm_window2d *win)
{
  return win->out[0] * win->out[1];
}

/* not >=: NaN counts as the largest */
CPU_INLINE bool pool_is_larger(float b, float a)
{
  return !(a >= b) && a == a;
}

/* The calls of the contract with the channels last. */
void pool_last_max_pool_forward(struct trm_device *device, const struct trm_max_pool_forward *call);
void pool_last_max_pool_backward(struct trm_device *device, const struct trm_max_pool_backward *call);
void pool_last_avg_pool_forward(struct trm_device *device, const struct trm_avg_pool_forward *call);
void pool_last_avg_pool_backward(struct trm_device *device, const struct trm_avg_pool_backward *call);
