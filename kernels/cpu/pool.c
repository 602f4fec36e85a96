/* Pooling: maximum or mean over windows of image planes. */
#include <math.h>

#include "kernels/cpu/values.h"

/* Sets [*low, *high) to the part of window i that is inside the image, in one dimension. */
CPU_INLINE void pool_clip_window(const struct trm_window2d *win, int d, size_t i, size_t *low, size_t *high)
{
  const size_t first = i * win->stride[d], last = first + win->kernel[d];

  *low = first > win->pad[d] ? first - win->pad[d] : 0;
  *high = last > win->pad[d] ? last - win->pad[d] : 0;
  *high = *high < win->in[d] ? *high : win->in[d];
}

/* Values of a plane. */
static size_t pool_in(const struct trm_window2d *win)
{
  return win->in[0] * win->in[1];
}

static size_t pool_out(const struct trm_window2d *win)
{
  return win->out[0] * win->out[1];
}

/* Work per plane: the elements of all windows. */
static double pool_forward_work(const struct trm_window2d *win)
{
  return (double)(win->out[0] * win->out[1] * win->kernel[0] * win->kernel[1]);
}

/* Windows of 2 x 2, stride 2, no padding; branch-free. */
CPU_INLINE void pool_max_row_2x2(const float *x, size_t base, size_t width, size_t count, float *y, int32_t *argmax)
{
  const float *upper = x + base, *lower = upper + width;

  for (size_t j = 0; j < count; j++) {
    const float a = upper[2 * j], b = upper[2 * j + 1], c = lower[2 * j], d = lower[2 * j + 1];
    const int32_t top = (int32_t)(base + 2 * j), low = (int32_t)(base + width + 2 * j);
    /* not >=: NaN counts as the largest */
    const bool second = !(a >= b) && a == a, fourth = !(c >= d) && c == c;
    const float max = second ? b : a, other = fourth ? d : c;
    const bool below = !(max >= other) && max == max;

    y[j] = below ? other : max;
    argmax[j] = below ? low + fourth : top + second;
  }
}

CPU_CLONES static void pool_max_body(const void *arguments, size_t low, size_t high)
{
  const struct trm_max_pool_forward *it = arguments;
  const struct trm_window2d *win = &it->window;
  const size_t size_in = win->in[0] * win->in[1], size_out = win->out[0] * win->out[1];
  const bool pairs = win->kernel[0] == 2 && win->kernel[1] == 2 && win->stride[0] == 2 && win->stride[1] == 2 &&
                     !win->pad[0] && !win->pad[1];

  for (size_t p = low; p < high; p++) {
    const float *x = (const float *)it->x + p * size_in;
    float *y = (float *)it->y + p * size_out;
    int32_t *argmax = it->argmax + p * size_out;

    for (size_t i = 0; i < win->out[0]; i++, y += win->out[1], argmax += win->out[1]) {
      if (pairs) {
        pool_max_row_2x2(x, 2 * i * win->in[1], win->in[1], win->out[1], y, argmax);
        continue;
      }
      size_t top, bottom;

      pool_clip_window(win, 0, i, &top, &bottom);
      for (size_t j = 0; j < win->out[1]; j++) {
        size_t left, right;

        pool_clip_window(win, 1, j, &left, &right);
        float max = x[top * win->in[1] + left];
        size_t best = top * win->in[1] + left;

        for (size_t r = top; r < bottom; r++)
          for (size_t c = left; c < right; c++) {
            const float v = x[r * win->in[1] + c];

            if (!(max >= v) && max == max) {
              max = v;
              best = r * win->in[1] + c;
            }
          }
        y[j] = max;
        argmax[j] = (int32_t)best;
      }
    }
  }
}

void cpu_max_pool_forward(struct trm_device *device, const struct trm_max_pool_forward *call)
{
  cpu_for_values(device, call->planes, 1, pool_forward_work(&call->window), pool_max_body, call,
                 CPU_VALUES(call->type, *call, CPU_READS(*call, x, pool_in(&call->window)),
                            CPU_WRITES(*call, y, pool_out(&call->window))));
}

CPU_CLONES static void pool_max_backward_body(const void *arguments, size_t low, size_t high)
{
  const struct trm_max_pool_backward *it = arguments;
  const size_t size_in = it->window.in[0] * it->window.in[1], size_out = it->window.out[0] * it->window.out[1];

  for (size_t i = low * size_in; i < high * size_in; i++)
    ((float *)it->dx)[i] = 0;
  for (size_t p = low; p < high; p++) {
    const float *dy = (const float *)it->dy + p * size_out;
    const int32_t *argmax = it->argmax + p * size_out;
    float *dx = (float *)it->dx + p * size_in;

    for (size_t i = 0; i < size_out; i++)
      dx[argmax[i]] += dy[i];
  }
}

void cpu_max_pool_backward(struct trm_device *device, const struct trm_max_pool_backward *call)
{
  cpu_for_values(device, call->planes, 1, (double)pool_in(&call->window), pool_max_backward_body, call,
                 CPU_VALUES(call->type, *call, CPU_READS(*call, dy, pool_out(&call->window)),
                            CPU_WRITES(*call, dx, pool_in(&call->window))));
}

CPU_CLONES static void pool_avg_body(const void *arguments, size_t low, size_t high)
{
  const struct trm_avg_pool_forward *it = arguments;
  const struct trm_window2d *win = &it->window;
  const float scale = 1 / (float)(win->kernel[0] * win->kernel[1]);
  const bool global = win->kernel[0] == win->in[0] && win->kernel[1] == win->in[1] && !win->pad[0] && !win->pad[1];

  for (size_t p = low; p < high; p++) {
    const float *x = (const float *)it->x + p * win->in[0] * win->in[1];
    float *y = (float *)it->y + p * win->out[0] * win->out[1];

    if (global) {
      *y = scale * cpu_lane_sum(x, win->in[0] * win->in[1]);
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
            sum += x[r * win->in[1] + c];
        *y++ = scale * sum;
      }
  }
}

void cpu_avg_pool_forward(struct trm_device *device, const struct trm_avg_pool_forward *call)
{
  cpu_for_values(device, call->planes, 1, pool_forward_work(&call->window), pool_avg_body, call,
                 CPU_VALUES(call->type, *call, CPU_READS(*call, x, pool_in(&call->window)),
                            CPU_WRITES(*call, y, pool_out(&call->window))));
}

CPU_CLONES static void pool_avg_backward_body(const void *arguments, size_t low, size_t high)
{
  const struct trm_avg_pool_backward *it = arguments;
  const struct trm_window2d *win = &it->window;
  const float scale = 1 / (float)(win->kernel[0] * win->kernel[1]);
  const size_t size_in = win->in[0] * win->in[1], size_out = win->out[0] * win->out[1];

  for (size_t i = low * size_in; i < high * size_in; i++)
    ((float *)it->dx)[i] = 0;
  for (size_t p = low; p < high; p++) {
    const float *dy = (const float *)it->dy + p * size_out;
    float *dx = (float *)it->dx + p * size_in;

    for (size_t i = 0; i < win->out[0]; i++)
      for (size_t j = 0; j < win->out[1]; j++) {
        const float share = scale * *dy++;
        size_t top, bottom, left, right;

        pool_clip_window(win, 0, i, &top, &bottom);
        pool_clip_window(win, 1, j, &left, &right);
        for (size_t r = top; r < bottom; r++)
          for (size_t c = left; c < right; c++)
            dx[r * win->in[1] + c] += share;
      }
  }
}

void cpu_avg_pool_backward(struct trm_device *device, const struct trm_avg_pool_backward *call)
{
  cpu_for_values(device, call->planes, 1, (double)pool_in(&call->window), pool_avg_backward_body, call,
                 CPU_VALUES(call->type, *call, CPU_READS(*call, dy, pool_out(&call->window)),
                            CPU_WRITES(*call, dx, pool_in(&call->window))));
}
