/* Pooling: maximum or mean over windows of image planes (pool.h). */
#include "kernels/cpu/pool.h"

#include <math.h>

/* Work per plane: the elements of all windows. */
static double pool_forward_work(const struct trm_window2d *win)
{
  return (double)(win->out[0] * win->out[1] * win->kernel[0] * win->kernel[1]);
}

CPU_INLINE float pool_larger(float a, float b)
{
  const float larger = b > a ? b : a;

  return b != b ? b : larger;
}

/* A row of windows of 2 x 2, stride 2, no padding; branch-free. */
CPU_INLINE void pool_max_row_2x2(enum trm_value_type type, const void *upper, size_t width, size_t count, void *y)
{
  const void *lower = cpu_at(type, upper, width);

#pragma omp simd
  for (size_t j = 0; j < count; j++)
    cpu_set(type, y, j, pool_larger(pool_larger(cpu_value(type, upper, 2 * j), cpu_value(type, upper, 2 * j + 1)),
                                    pool_larger(cpu_value(type, lower, 2 * j), cpu_value(type, lower, 2 * j + 1))));
}

/* The same with the places. */
CPU_INLINE void pool_argmax_row_2x2(enum trm_value_type type, const void *x, size_t base, size_t width, size_t count,
                                 void *y, int32_t *argmax)
{
  const void *upper = cpu_at(type, x, base), *lower = cpu_at(type, upper, width);

  for (size_t j = 0; j < count; j++) {
    const float a = cpu_value(type, upper, 2 * j), b = cpu_value(type, upper, 2 * j + 1);
    const float c = cpu_value(type, lower, 2 * j), d = cpu_value(type, lower, 2 * j + 1);
    const int32_t top = (int32_t)(base + 2 * j), low = (int32_t)(base + width + 2 * j);
    const bool second = pool_is_larger(b, a), fourth = pool_is_larger(d, c);
    const float max = second ? b : a, other = fourth ? d : c;
    const bool below = pool_is_larger(other, max);

    cpu_set(type, y, j, below ? other : max);
    argmax[j] = below ? low + fourth : top + second;
  }
}

CPU_INLINE void pool_max(enum trm_value_type type, const struct trm_max_pool_forward *it, size_t low, size_t high)
{
  const struct trm_window2d *win = &it->window;
  const size_t size_in = pool_in(win), size_out = pool_out(win);
  const bool pairs = win->kernel[0] == 2 && win->kernel[1] == 2 && win->stride[0] == 2 && win->stride[1] == 2 &&
                     !win->pad[0] && !win->pad[1];

  for (size_t p = low; p < high; p++) {
    const void *x = cpu_at(type, it->x, p * size_in);

    for (size_t i = 0; i < win->out[0]; i++) {
      const size_t out = p * size_out + i * win->out[1], row = 2 * i * win->in[1];
      void *y = cpu_at(type, it->y, out);
      int32_t *argmax = it->argmax ? it->argmax + out : NULL;

      if (pairs && argmax)
        pool_argmax_row_2x2(type, x, row, win->in[1], win->out[1], y, argmax);
      else if (pairs)
        pool_max_row_2x2(type, cpu_at(type, x, row), win->in[1], win->out[1], y);
      if (pairs)
        continue;
      size_t top, bottom;

      pool_clip_window(win, 0, i, &top, &bottom);
      for (size_t j = 0; j < win->out[1]; j++) {
        size_t left, right;

        pool_clip_window(win, 1, j, &left, &right);
        float max = cpu_value(type, x, top * win->in[1] + left);
        size_t best = top * win->in[1] + left;

        for (size_t r = top; r < bottom; r++)
          for (size_t c = left; c < right; c++) {
            const float v = cpu_value(type, x, r * win->in[1] + c);

            if (pool_is_larger(v, max)) {
              max = v;
              best = r * win->in[1] + c;
            }
          }
        cpu_set(type, y, j, max);
        if (argmax)
          argmax[j] = (int32_t)best;
      }
    }
  }
}

CPU_BODY_BY_TYPE(pool_max, trm_max_pool_forward)

void cpu_max_pool_forward(struct trm_device *device, const struct trm_max_pool_forward *call)
{
  if (call->last)
    pool_last_max_pool_forward(device, call);
  else
    cpu_for(device, call->planes, 1, pool_forward_work(&call->window), pool_max_body, call);
}

/* Backward: the gradient of a plane is a sum of floats, which is rounded once. */
struct max_gradient {
  const struct trm_max_pool_backward *call;
  enum trm_value_type type;
  float *sums; /* (threads, H, W), if the values are not floats */
};

CPU_INLINE void pool_max_backward(enum trm_value_type type, const struct max_gradient *gradient, size_t low,
                                  size_t high)
{
  const struct trm_max_pool_backward *it = gradient->call;
  const size_t size_in = pool_in(&it->window), size_out = pool_out(&it->window);

  for (size_t p = low; p < high; p++) {
    const void *dy = cpu_at(type, it->dy, p * size_out);
    const int32_t *argmax = it->argmax + p * size_out;
    void *values = cpu_at(type, it->dx, p * size_in);
    float *dx = cpu_place(type, values, gradient->sums, size_in);

    for (size_t i = 0; i < size_in; i++)
      dx[i] = 0;
    for (size_t i = 0; i < size_out; i++)
      dx[argmax[i]] += cpu_value(type, dy, i);
    cpu_write(type, dx, values, size_in);
  }
}

CPU_BODY_BY_TYPE(pool_max_backward, max_gradient)

void cpu_max_pool_backward(struct trm_device *device, const struct trm_max_pool_backward *call)
{
  if (call->last) {
    pool_last_max_pool_backward(device, call);
    return;
  }
  const struct max_gradient it = {call, call->type, cpu_buffers(device, call->type, pool_in(&call->window))};

  cpu_for(device, call->planes, 1, (double)pool_in(&call->window), pool_max_backward_body, &it);
}

CPU_INLINE void pool_avg(enum trm_value_type type, const struct trm_avg_pool_forward *it, size_t low, size_t high)
{
  const struct trm_window2d *win = &it->window;
  const float scale = 1 / (float)(win->kernel[0] * win->kernel[1]);
  const bool global = win->kernel[0] == win->in[0] && win->kernel[1] == win->in[1] && !win->pad[0] && !win->pad[1];

  for (size_t p = low; p < high; p++) {
    const void *x = cpu_at(type, it->x, p * pool_in(win));
    void *y = cpu_at(type, it->y, p * pool_out(win));

    if (global) {
      cpu_set(type, y, 0, scale * cpu_lane_sum_of(type, x, pool_in(win)));
      continue;
    }
    for (size_t i = 0; i < win->out[0]; i++)
      for (size_t j = 0; j < win->out[1]; j++) {
        size_t top, bottom, left, right;
        float sum = 0;

        pool_clip_window(win, 0, i, &top, &bottom);
        pool_clip_window(win, 1, j, &left, &right);
        for (size_t r = top; r < bottom; r++)
          for (size_t c = left; c < right; c++)
            sum += cpu_value(type, x, r * win->in[1] + c);
        cpu_set(type, y, i * win->out[1] + j, scale * sum);
      }
  }
}

CPU_BODY_BY_TYPE(pool_avg, trm_avg_pool_forward)

void cpu_avg_pool_forward(struct trm_device *device, const struct trm_avg_pool_forward *call)
{
  if (call->last)
    pool_last_avg_pool_forward(device, call);
  else
    cpu_for(device, call->planes, 1, pool_forward_work(&call->window), pool_avg_body, call);
}

struct avg_gradient {
  const struct trm_avg_pool_backward *call;
  enum trm_value_type type;
  float *sums; /* (threads, H, W), if the values are not floats */
};

CPU_INLINE void pool_avg_backward(enum trm_value_type type, const struct avg_gradient *gradient, size_t low,
                                  size_t high)
{
  const struct trm_avg_pool_backward *it = gradient->call;
  const struct trm_window2d *win = &it->window;
  const float scale = 1 / (float)(win->kernel[0] * win->kernel[1]);
  const size_t size_in = pool_in(win), size_out = pool_out(win);

  for (size_t p = low; p < high; p++) {
    const void *dy = cpu_at(type, it->dy, p * size_out);
    void *values = cpu_at(type, it->dx, p * size_in);
    float *dx = cpu_place(type, values, gradient->sums, size_in);

    for (size_t i = 0; i < size_in; i++)
      dx[i] = 0;
    for (size_t i = 0; i < win->out[0]; i++)
      for (size_t j = 0; j < win->out[1]; j++) {
        const float share = scale * cpu_value(type, dy, i * win->out[1] + j);
        size_t top, bottom, left, right;

        pool_clip_window(win, 0, i, &top, &bottom);
        pool_clip_window(win, 1, j, &left, &right);
        for (size_t r = top; r < bottom; r++)
          for (size_t c = left; c < right; c++)
            dx[r * win->in[1] + c] += share;
      }
    cpu_write(type, dx, values, size_in);
  }
}

CPU_BODY_BY_TYPE(pool_avg_backward, avg_gradient)

void cpu_avg_pool_backward(struct trm_device *device, const struct trm_avg_pool_backward *call)
{
  if (call->last) {
    pool_last_avg_pool_backward(device, call);
    return;
  }
  const struct avg_gradient it = {call, call->type, cpu_buffers(device, call->type, pool_in(&call->window))};

  cpu_for(device, call->planes, 1, (double)pool_in(&call->window), pool_avg_backward_body, &it);
}
