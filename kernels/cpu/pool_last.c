/* Pooling of images that have the channels last (pool.h): of a window's positions, one after the other, the rows of
 * channels. Work items are images; sums are floats, of an image's or a position's channels in a thread's buffer where
 * the values are not floats. Sums over a window have the order of its positions. */
#include <string.h>

#include "kernels/cpu/pool.h"

/* A call of either kind, forward or backward. */
struct images {
  const struct trm_window2d *window;
  const void *x; /* forward */
  void *y;
  const void *dy; /* backward */
  void *dx;
  int32_t *argmax; /* forward; NULL: not computed */
  const int32_t *chosen; /* backward: the same */
  enum trm_value_type type;
  size_t channels;
  float *sums; /* (threads, ..) buffers, if the values are not floats */
};

/* Rows [top, bottom) and columns [left, right) of a window that are inside the image. */
struct clip {
  size_t top, bottom, left, right;
};

CPU_INLINE struct clip pool_clip(const struct trm_window2d *win, size_t i, size_t j)
{
  struct clip clip;

  pool_clip_window(win, 0, i, &clip.top, &clip.bottom);
  pool_clip_window(win, 1, j, &clip.left, &clip.right);
  return clip;
}

static void pool_run(struct trm_device *device, const struct images *it, size_t planes, cpu_body *body)
{
  const struct trm_window2d *win = it->window;
  const double work = (double)(pool_out(win) * win->kernel[0] * win->kernel[1] + pool_in(win)) * (double)it->channels;

  cpu_for(device, planes / it->channels, 1, work, body, it);
}

/* The largest of a position's channels so far, and their places: v is at `place`. */
CPU_INLINE void pool_last_max_row(enum trm_value_type type, const void *v, int32_t place, void *y, int32_t *argmax,
                                  size_t n)
{
  if (!argmax) {
#pragma omp simd
    for (size_t c = 0; c < n; c++) {
      const float value = cpu_value(type, v, c), largest = cpu_value(type, y, c);

      cpu_set(type, y, c, pool_is_larger(value, largest) ? value : largest);
    }
    return;
  }
#pragma omp simd
  for (size_t c = 0; c < n; c++) {
    const float value = cpu_value(type, v, c), largest = cpu_value(type, y, c);
    const bool larger = pool_is_larger(value, largest);

    cpu_set(type, y, c, larger ? value : largest);
    argmax[c] = larger ? place : argmax[c];
  }
}

CPU_INLINE void pool_last_max(enum trm_value_type type, const struct images *it, size_t low, size_t high)
{
  const struct trm_window2d *win = it->window;
  const size_t channels = it->channels;

  for (size_t image = low; image < high; image++)
    for (size_t i = 0; i < win->out[0]; i++)
      for (size_t j = 0; j < win->out[1]; j++) {
        const struct clip clip = pool_clip(win, i, j);
        const void *x = cpu_at(type, it->x, image * pool_in(win) * channels);
        const size_t at = (image * pool_out(win) + i * win->out[1] + j) * channels;
        const size_t first = clip.top * win->in[1] + clip.left;
        void *y = cpu_at(type, it->y, at);
        int32_t *argmax = it->argmax ? it->argmax + at : NULL;

        memcpy(y, cpu_at(type, x, first * channels), channels * trm_value_bytes(type));
        for (size_t c = 0; argmax && c < channels; c++)
          argmax[c] = (int32_t)first;
        for (size_t r = clip.top; r < clip.bottom; r++)
          for (size_t c = clip.left; c < clip.right; c++) {
            const size_t place = r * win->in[1] + c;

            if (place != first)
              pool_last_max_row(type, cpu_at(type, x, place * channels), (int32_t)place, y, argmax, channels);
          }
      }
}

CPU_BODY_BY_TYPE(pool_last_max, images)

void pool_last_max_pool_forward(struct trm_device *device, const struct trm_max_pool_forward *call)
{
  const struct images it = {.window = &call->window, .x = call->x, .y = call->y, .argmax = call->argmax,
                            .type = call->type, .channels = call->last};

  pool_run(device, &it, call->planes, pool_last_max_body);
}

CPU_INLINE void pool_last_max_backward(enum trm_value_type type, const struct images *it, size_t low, size_t high)
{
  const size_t in = pool_in(it->window) * it->channels, out = pool_out(it->window) * it->channels;

  for (size_t image = low; image < high; image++) {
    void *values = cpu_at(type, it->dx, image * in);
    float *dx = cpu_place(type, values, it->sums, in);

    memset(dx, 0, in * sizeof *dx);
    for (size_t at = 0; at < out; at += it->channels) {
      const int32_t *argmax = it->chosen + image * out + at;
      const void *dy = cpu_at(type, it->dy, image * out + at);

      for (size_t c = 0; c < it->channels; c++)
        dx[(size_t)argmax[c] * it->channels + c] += cpu_value(type, dy, c);
    }
    cpu_write(type, dx, values, in);
  }
}

CPU_BODY_BY_TYPE(pool_last_max_backward, images)

void pool_last_max_pool_backward(struct trm_device *device, const struct trm_max_pool_backward *call)
{
  const struct images it = {.window = &call->window, .dy = call->dy, .dx = call->dx, .chosen = call->argmax,
                            .type = call->type, .channels = call->last,
                            .sums = cpu_buffers(device, call->type, pool_in(&call->window) * call->last)};

  pool_run(device, &it, call->planes, pool_last_max_backward_body);
}

CPU_INLINE void pool_last_avg(enum trm_value_type type, const struct images *it, size_t low, size_t high)
{
  const struct trm_window2d *win = it->window;
  const size_t channels = it->channels;
  const float scale = 1 / (float)(win->kernel[0] * win->kernel[1]);

  for (size_t image = low; image < high; image++)
    for (size_t i = 0; i < win->out[0]; i++)
      for (size_t j = 0; j < win->out[1]; j++) {
        const struct clip clip = pool_clip(win, i, j);
        void *y = cpu_at(type, it->y, (image * pool_out(win) + i * win->out[1] + j) * channels);
        float *sum = cpu_place(type, y, it->sums, channels);

        memset(sum, 0, channels * sizeof *sum);
        for (size_t r = clip.top; r < clip.bottom; r++)
          for (size_t c = clip.left; c < clip.right; c++) {
            const void *x = cpu_at(type, it->x, (image * pool_in(win) + r * win->in[1] + c) * channels);

#pragma omp simd
            for (size_t k = 0; k < channels; k++)
              sum[k] += cpu_value(type, x, k);
          }
#pragma omp simd
        for (size_t k = 0; k < channels; k++)
          sum[k] *= scale;
        cpu_write(type, sum, y, channels);
      }
}

CPU_BODY_BY_TYPE(pool_last_avg, images)

void pool_last_avg_pool_forward(struct trm_device *device, const struct trm_avg_pool_forward *call)
{
  const struct images it = {.window = &call->window, .x = call->x, .y = call->y, .type = call->type,
                            .channels = call->last, .sums = cpu_buffers(device, call->type, call->last)};

  pool_run(device, &it, call->planes, pool_last_avg_body);
}

CPU_INLINE void pool_last_avg_backward(enum trm_value_type type, const struct images *it, size_t low, size_t high)
{
  const struct trm_window2d *win = it->window;
  const size_t channels = it->channels, in = pool_in(win) * channels;
  const float scale = 1 / (float)(win->kernel[0] * win->kernel[1]);

  for (size_t image = low; image < high; image++) {
    void *values = cpu_at(type, it->dx, image * in);
    float *dx = cpu_place(type, values, it->sums, in);

    memset(dx, 0, in * sizeof *dx);
    for (size_t i = 0; i < win->out[0]; i++)
      for (size_t j = 0; j < win->out[1]; j++) {
        const struct clip clip = pool_clip(win, i, j);
        const void *dy = cpu_at(type, it->dy, (image * pool_out(win) + i * win->out[1] + j) * channels);

        for (size_t r = clip.top; r < clip.bottom; r++)
          for (size_t c = clip.left; c < clip.right; c++) {
            float *to = dx + (r * win->in[1] + c) * channels;

#pragma omp simd
            for (size_t k = 0; k < channels; k++)
              to[k] += scale * cpu_value(type, dy, k);
          }
      }
    cpu_write(type, dx, values, in);
  }
}

CPU_BODY_BY_TYPE(pool_last_avg_backward, images)

void pool_last_avg_pool_backward(struct trm_device *device, const struct trm_avg_pool_backward *call)
{
  const struct images it = {.window = &call->window, .dy = call->dy, .dx = call->dx, .type = call->type,
                            .channels = call->last,
                            .sums = cpu_buffers(device, call->type, pool_in(&call->window) * call->last)};

  pool_run(device, &it, call->planes, pool_last_avg_backward_body);
}
