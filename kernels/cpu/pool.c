/* Pooling: the largest or the mean of windows of image planes. */
#include <math.h>

#include "kernels/cpu/cpu.h"

struct pool {
  const struct trm_window2d *how;
  const float *from; /* forward: (planes, H, W); backward: (planes, OH, OW) */
  float *to;
  int32_t *at;
  const int32_t *chosen;
};

/* The part [*low, *high) of window i that lies within the image, in one dimension. */
CPU_INLINE void window_clip(const struct trm_window2d *how, int d, size_t i, size_t *low, size_t *high)
{
  const size_t first = i * how->stride[d], last = first + how->kernel[d];

  *low = first > how->pad[d] ? first - how->pad[d] : 0;
  *high = last > how->pad[d] ? last - how->pad[d] : 0;
  *high = *high < how->in[d] ? *high : how->in[d];
}

/* Windows of 2 x 2 side by side: no borders, no branches. */
CPU_INLINE void max_row_pairs(const float *x, size_t base, size_t width, size_t count, float *y, int32_t *at)
{
  const float *upper = x + base, *lower = upper + width;

  for (size_t j = 0; j < count; j++) {
    const float a = upper[2 * j], b = upper[2 * j + 1], c = lower[2 * j], d = lower[2 * j + 1];
    const int32_t top = (int32_t)(base + 2 * j), low = (int32_t)(base + width + 2 * j);
    /* not >=: a NaN that leads stays, one that comes later wins */
    const bool second = !(a >= b) && a == a, fourth = !(c >= d) && c == c;
    const float most = second ? b : a, other = fourth ? d : c;
    const bool below = !(most >= other) && most == most;

    y[j] = below ? other : most;
    at[j] = below ? low + fourth : top + second;
  }
}

CPU_CLONES static void max_pool_body(const void *arguments, size_t low, size_t high)
{
  const struct pool *it = arguments;
  const struct trm_window2d *how = it->how;
  const size_t size_in = how->in[0] * how->in[1], size_out = how->out[0] * how->out[1];
  const bool pairs = how->kernel[0] == 2 && how->kernel[1] == 2 && how->stride[0] == 2 && how->stride[1] == 2 &&
                     !how->pad[0] && !how->pad[1];

  for (size_t p = low; p < high; p++) {
    const float *x = it->from + p * size_in;
    float *y = it->to + p * size_out;
    int32_t *at = it->at + p * size_out;

    for (size_t i = 0; i < how->out[0]; i++, y += how->out[1], at += how->out[1]) {
      if (pairs) {
        max_row_pairs(x, 2 * i * how->in[1], how->in[1], how->out[1], y, at);
        continue;
      }
      size_t top, bottom;

      window_clip(how, 0, i, &top, &bottom);
      for (size_t j = 0; j < how->out[1]; j++) {
        size_t left, right;

        window_clip(how, 1, j, &left, &right);
        float most = x[top * how->in[1] + left];
        size_t best = top * how->in[1] + left;

        for (size_t r = top; r < bottom; r++)
          for (size_t c = left; c < right; c++) {
            const float v = x[r * how->in[1] + c];

            if (!(most >= v) && most == most) {
              most = v;
              best = r * how->in[1] + c;
            }
          }
        y[j] = most;
        at[j] = (int32_t)best;
      }
    }
  }
}

void cpu_max_pool_forward(struct trm_device *device, const struct trm_window2d *how, const float *x, float *y,
                          int32_t *at, size_t planes)
{
  const struct pool it = {.how = how, .from = x, .to = y, .at = at};

  cpu_for(device, planes, 1, (double)(how->out[0] * how->out[1] * how->kernel[0] * how->kernel[1]), max_pool_body, &it);
}

CPU_CLONES static void max_pool_backward_body(const void *arguments, size_t low, size_t high)
{
  const struct pool *it = arguments;
  const size_t size_in = it->how->in[0] * it->how->in[1], size_out = it->how->out[0] * it->how->out[1];

  for (size_t i = low * size_in; i < high * size_in; i++)
    it->to[i] = 0;
  for (size_t p = low; p < high; p++) {
    const float *dy = it->from + p * size_out;
    const int32_t *at = it->chosen + p * size_out;
    float *dx = it->to + p * size_in;

    for (size_t i = 0; i < size_out; i++)
      dx[at[i]] += dy[i];
  }
}

void cpu_max_pool_backward(struct trm_device *device, const struct trm_window2d *how, const float *dy,
                           const int32_t *at, float *dx, size_t planes)
{
  const struct pool it = {.how = how, .from = dy, .to = dx, .chosen = at};

  cpu_for(device, planes, 1, (double)(how->in[0] * how->in[1]), max_pool_backward_body, &it);
}

CPU_CLONES static void avg_pool_body(const void *arguments, size_t low, size_t high)
{
  const struct pool *it = arguments;
  const struct trm_window2d *how = it->how;
  const float scale = 1 / (float)(how->kernel[0] * how->kernel[1]);
  const bool whole = how->kernel[0] == how->in[0] && how->kernel[1] == how->in[1] && !how->pad[0] && !how->pad[1];

  for (size_t p = low; p < high; p++) {
    const float *x = it->from + p * how->in[0] * how->in[1];
    float *y = it->to + p * how->out[0] * how->out[1];

    if (whole) {
      *y = scale * cpu_lane_sum(x, how->in[0] * how->in[1]);
      continue;
    }
    for (size_t i = 0; i < how->out[0]; i++)
      for (size_t j = 0; j < how->out[1]; j++) {
        size_t top, bottom, left, right;
        float sum = 0;

        window_clip(how, 0, i, &top, &bottom);
        window_clip(how, 1, j, &left, &right);
        for (size_t r = top; r < bottom; r++)
          for (size_t c = left; c < right; c++)
            sum += x[r * how->in[1] + c];
        *y++ = scale * sum;
      }
  }
}

void cpu_avg_pool_forward(struct trm_device *device, const struct trm_window2d *how, const float *x, float *y,
                          size_t planes)
{
  const struct pool it = {.how = how, .from = x, .to = y};

  cpu_for(device, planes, 1, (double)(how->out[0] * how->out[1] * how->kernel[0] * how->kernel[1]), avg_pool_body, &it);
}

CPU_CLONES static void avg_pool_backward_body(const void *arguments, size_t low, size_t high)
{
  const struct pool *it = arguments;
  const struct trm_window2d *how = it->how;
  const float scale = 1 / (float)(how->kernel[0] * how->kernel[1]);
  const size_t size_in = how->in[0] * how->in[1], size_out = how->out[0] * how->out[1];

  for (size_t i = low * size_in; i < high * size_in; i++)
    it->to[i] = 0;
  for (size_t p = low; p < high; p++) {
    const float *dy = it->from + p * size_out;
    float *dx = it->to + p * size_in;

    for (size_t i = 0; i < how->out[0]; i++)
      for (size_t j = 0; j < how->out[1]; j++) {
        const float share = scale * *dy++;
        size_t top, bottom, left, right;

        window_clip(how, 0, i, &top, &bottom);
        window_clip(how, 1, j, &left, &right);
        for (size_t r = top; r < bottom; r++)
          for (size_t c = left; c < right; c++)
            dx[r * how->in[1] + c] += share;
      }
  }
}

void cpu_avg_pool_backward(struct trm_device *device, const struct trm_window2d *how, const float *dy, float *dx,
                           size_t planes)
{
  const struct pool it = {.how = how, .from = dy, .to = dx};

  cpu_for(device, planes, 1, (double)(how->in[0] * how->in[1]), avg_pool_backward_body, &it);
}
