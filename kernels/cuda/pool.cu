/* Pooling: maximum or mean over windows of image planes. Backward, each element of an image gathers from the windows
 * that it is in. */
#include "kernels/cuda/kernel.cuh"

/* Sets [*low, *high) to the part of window i that is inside the image, in one dimension. */
__device__ static void pool_clip_window(const struct trm_window2d *win, int d, size_t i, size_t *low, size_t *high)
{
  const size_t first = i * win->stride[d], last = first + win->kernel[d];

  *low = first > win->pad[d] ? first - win->pad[d] : 0;
  *high = last > win->pad[d] ? last - win->pad[d] : 0;
  *high = *high < win->in[d] ? *high : win->in[d];
}

/* Sets [*low, *high) to the windows that element i is in, in one dimension. */
__device__ static void pool_find_windows(const struct trm_window2d *win, int d, size_t i, size_t *low, size_t *high)
{
  const size_t at = i + win->pad[d];

  *low = at >= win->kernel[d] ? (at - win->kernel[d]) / win->stride[d] + 1 : 0;
  *high = at / win->stride[d] + 1;
  *high = *high < win->out[d] ? *high : win->out[d];
}

template <typename value> __global__ static void pool_run_max(const struct trm_max_pool_forward it)
{
  const struct trm_window2d *win = &it.window;
  const size_t out = win->out[0] * win->out[1];

  CUDA_ELEMENTS(i, it.planes * out) {
    const cuda_values<value> x((const value *)it.x + i / out * win->in[0] * win->in[1]);
    size_t top, bottom, left, right;

    pool_clip_window(win, 0, i % out / win->out[1], &top, &bottom);
    pool_clip_window(win, 1, i % win->out[1], &left, &right);
    size_t best = top * win->in[1] + left;
    float max = x[best];
    for (size_t r = top; r < bottom; r++)
      for (size_t c = left; c < right; c++) {
        const float v = x[r * win->in[1] + c];

        if (!(max >= v) && max == max) { /* not <: NaN counts as the largest */
          max = v;
          best = r * win->in[1] + c;
        }
      }
    cuda_values<value>(it.y).set(i, max);
    if (it.argmax)
      it.argmax[i] = (int32_t)best;
  }
}

void cuda_max_pool_forward(struct trm_device *device, const struct trm_max_pool_forward *call)
{
  const size_t out = call->planes * call->window.out[0] * call->window.out[1];

  CUDA_BY_TYPE(call->type, CUDA_LAUNCH(pool_run_max<value>, cuda_blocks(out), CUDA_THREADS, device, *call));
}

template <typename value> __global__ static void pool_run_max_backward(const struct trm_max_pool_backward it)
{
  const struct trm_window2d *win = &it.window;
  const size_t in = win->in[0] * win->in[1], out = win->out[0] * win->out[1];

  CUDA_ELEMENTS(i, it.planes * in) {
    const size_t plane = i / in * out, element = i % in;
    size_t top, bottom, left, right;
    float sum = 0;

    pool_find_windows(win, 0, element / win->in[1], &top, &bottom);
    pool_find_windows(win, 1, element % win->in[1], &left, &right);
    for (size_t r = top; r < bottom; r++)
      for (size_t c = left; c < right; c++)
        if ((size_t)it.argmax[plane + r * win->out[1] + c] == element)
          sum += cuda_values<value>(it.dy)[plane + r * win->out[1] + c];
    cuda_values<value>(it.dx).set(i, sum);
  }
}

void cuda_max_pool_backward(struct trm_device *device, const struct trm_max_pool_backward *call)
{
  const size_t in = call->planes * call->window.in[0] * call->window.in[1];

  CUDA_BY_TYPE(call->type, CUDA_LAUNCH(pool_run_max_backward<value>, cuda_blocks(in), CUDA_THREADS, device, *call));
}

template <typename value> __global__ static void pool_run_avg(const struct trm_avg_pool_forward it)
{
  const struct trm_window2d *win = &it.window;
  const size_t out = win->out[0] * win->out[1];
  const float scale = 1 / (float)(win->kernel[0] * win->kernel[1]);

  CUDA_ELEMENTS(i, it.planes * out) {
    const cuda_values<value> x((const value *)it.x + i / out * win->in[0] * win->in[1]);
    size_t top, bottom, left, right;
    float sum = 0;

    pool_clip_window(win, 0, i % out / win->out[1], &top, &bottom);
    pool_clip_window(win, 1, i % win->out[1], &left, &right);
    for (size_t r = top; r < bottom; r++)
      for (size_t c = left; c < right; c++)
        sum += x[r * win->in[1] + c];
    cuda_values<value>(it.y).set(i, scale * sum);
  }
}

void cuda_avg_pool_forward(struct trm_device *device, const struct trm_avg_pool_forward *call)
{
  const size_t out = call->planes * call->window.out[0] * call->window.out[1];

  CUDA_BY_TYPE(call->type, CUDA_LAUNCH(pool_run_avg<value>, cuda_blocks(out), CUDA_THREADS, device, *call));
}

template <typename value> __global__ static void pool_run_avg_backward(const struct trm_avg_pool_backward it)
{
  const struct trm_window2d *win = &it.window;
  const size_t in = win->in[0] * win->in[1], out = win->out[0] * win->out[1];
  const float scale = 1 / (float)(win->kernel[0] * win->kernel[1]);

  CUDA_ELEMENTS(i, it.planes * in) {
    const cuda_values<value> dy((const value *)it.dy + i / in * out);
    size_t top, bottom, left, right;
    float sum = 0;

    pool_find_windows(win, 0, i % in / win->in[1], &top, &bottom);
    pool_find_windows(win, 1, i % win->in[1], &left, &right);
    for (size_t r = top; r < bottom; r++)
      for (size_t c = left; c < right; c++)
        sum += dy[r * win->out[1] + c];
    cuda_values<value>(it.dx).set(i, scale * sum);
  }
}

void cuda_avg_pool_backward(struct trm_device *device, const struct trm_avg_pool_backward *call)
{
  const size_t in = call->planes * call->window.in[0] * call->window.in[1];

  CUDA_BY_TYPE(call->type, CUDA_LAUNCH(pool_run_avg_backward<value>, cuda_blocks(in), CUDA_THREADS, device, *call));
}
