/* Convolution as matrix products of the windows' elements: col (C/G KH KW, B OH OW), for as many images at a time as
 * scratch memory has room for; outputs are (N, B OH OW) in the products and (B, N, OH, OW) outside. */
#include "kernels/cuda/columns.cuh"

enum { CONV_SCRATCH = 1 << 26 }; /* floats of the two scratch arrays together, at most where one image needs fewer */

/* The products of one group, for images [first, first + images). */
struct conv {
  struct trm_conv2d shape;
  size_t first, images, group;
  size_t c, n, taps, size; /* channels and units of a group, C/G KH KW, OH OW */
};

static struct conv conv_of(const struct trm_conv2d *shape)
{
  const struct trm_window2d *win = &shape->window;
  struct conv it = {*shape, 0, 0, 0, shape->channels / shape->groups, shape->units / shape->groups, 0, 0};

  it.taps = it.c * win->kernel[0] * win->kernel[1];
  it.size = win->out[0] * win->out[1];
  return it;
}

/* Images at a time, at least one. */
static size_t conv_images(const struct conv *it, size_t b)
{
  const size_t images = CONV_SCRATCH / ((it->taps + it->n) * it->size + 1);

  return images < 1 ? 1 : images < b ? images : b;
}

/* col (taps, images, OH, OW) from x (B, C, H, W) */
template <typename value> __global__ static void conv_run_gather(const struct conv it, const void *images, void *to)
{
  const struct trm_window2d *win = &it.shape.window;
  const cuda_values<value> x(images), col(to);

  CUDA_ELEMENTS(i, it.taps * it.images * it.size) {
    const size_t out = i % it.size, image = it.first + i / it.size % it.images, tap = i / it.size / it.images;
    const size_t kx = tap % win->kernel[1], ky = tap / win->kernel[1] % win->kernel[0];
    const size_t channel = it.group * it.c + tap / win->kernel[1] / win->kernel[0];
    const size_t row = out / win->out[1] * win->stride[0] + ky, column = out % win->out[1] * win->stride[1] + kx;
    const bool inside = row >= win->pad[0] && row - win->pad[0] < win->in[0] && column >= win->pad[1] &&
                        column - win->pad[1] < win->in[1];

    col.set(i, inside ? x[((image * it.shape.channels + channel) * win->in[0] + row - win->pad[0]) * win->in[1] +
                          column - win->pad[1]]
                      : 0);
  }
}

/* dx (B, C, H, W) from the gradient of col, float: each element gathers from the windows that it is in. */
template <typename value> __global__ static void conv_run_scatter(const struct conv it, const float *col, void *images)
{
  const struct trm_window2d *win = &it.shape.window;
  const cuda_values<value> dx(images);
  const size_t in = win->in[0] * win->in[1];

  CUDA_ELEMENTS(i, it.images * it.c * in) {
    const size_t y = i % in / win->in[1] + win->pad[0], x = i % win->in[1] + win->pad[1], channel = i / in % it.c;
    float sum = 0;

    for (size_t ky = 0; ky < win->kernel[0]; ky++)
      for (size_t kx = 0; kx < win->kernel[1]; kx++) {
        if (y < ky || x < kx || (y - ky) % win->stride[0] > 0 || (x - kx) % win->stride[1] > 0)
          continue;
        const size_t row = (y - ky) / win->stride[0], column = (x - kx) / win->stride[1];
        const size_t tap = (channel * win->kernel[0] + ky) * win->kernel[1] + kx;

        if (row < win->out[0] && column < win->out[1])
          sum += col[(tap * it.images + i / in / it.c) * it.size + row * win->out[1] + column];
      }
    dx.set(((it.first + i / in / it.c) * it.shape.channels + it.group * it.c + channel) * in + i % in, sum);
  }
}

/* Element i of a product (N/G, images, OH OW) is this one of (B, N, OH, OW). */
__device__ static size_t conv_output(const struct conv *it, size_t i, size_t *unit)
{
  *unit = it->group * it->n + i / it->size / it->images;
  return ((it->first + i / it->size % it->images) * it->shape.units + *unit) * it->size + i % it->size;
}

/* y = product, float, + bias */
template <typename value>
__global__ static void conv_run_output(const struct conv it, const float *product, const float *bias, void *y)
{
  CUDA_ELEMENTS(i, it.n * it.images * it.size) {
    size_t unit;
    const size_t at = conv_output(&it, i, &unit);

    cuda_values<value>(y).set(at, product[i] + (bias ? bias[unit] : 0));
  }
}

/* to (N/G, images, OH OW) = dy */
template <typename value> __global__ static void conv_run_gradient(const struct conv it, const void *dy, void *to)
{
  CUDA_ELEMENTS(i, it.n * it.images * it.size) {
    size_t unit;

    cuda_values<value>(to).set(i, cuda_values<value>(dy)[conv_output(&it, i, &unit)]);
  }
}

/* Calls part with scratch arrays col and product, of room for floats, for each group and part of the images. */
template <typename work>
static void conv_parts(struct trm_device *device, const struct trm_conv2d *shape, size_t b, const work &part)
{
  struct conv it = conv_of(shape);
  const size_t images = conv_images(&it, b), columns = it.taps * images * it.size;
  float *col = b > 0 ? (float *)cuda_scratch(device, (columns + it.n * images * it.size) * sizeof *col) : NULL;

  for (it.first = 0; col && it.first < b; it.first += images)
    for (it.group = 0; it.group < shape->groups; it.group++) {
      it.images = b - it.first < images ? b - it.first : images;
      part(&it, col, col + columns);
    }
}

template <typename value> static void conv_forward(struct trm_device *device, const struct trm_conv2d_forward *call)
{
  conv_parts(device, &call->conv, call->b, [&](const struct conv *it, void *col, float *product) {
    const size_t n = it->images * it->size;
    const struct trm_gemm gemm = {false, false, it->n, n, it->taps, 1,
                                  (const value *)call->w + it->group * it->n * it->taps, it->taps, col, n, 0, product,
                                  n, call->type, TRM_VALUES_F32};

    CUDA_LAUNCH(conv_run_gather<value>, cuda_blocks(it->taps * n), CUDA_THREADS, device, *it, call->x, col);
    cuda_gemm(device, &gemm);
    CUDA_LAUNCH(conv_run_output<value>, cuda_blocks(it->n * n), CUDA_THREADS, device, *it, (const float *)product,
                call->bias, call->y);
  });
}

void cuda_conv2d_forward(struct trm_device *device, const struct trm_conv2d_forward *call)
{
  CUDA_BY_TYPE(call->type, conv_forward<value>(device, call));
}

template <typename value>
static void conv_backward_data(struct trm_device *device, const struct trm_conv2d_backward_data *call)
{
  conv_parts(device, &call->conv, call->b, [&](const struct conv *it, float *col, void *product) {
    const size_t n = it->images * it->size, in = it->shape.window.in[0] * it->shape.window.in[1];
    const struct trm_gemm gemm = {true, false, it->taps, n, it->n, 1,
                                  (const value *)call->w + it->group * it->n * it->taps, it->taps, product, n, 0, col,
                                  n, call->type, TRM_VALUES_F32};

    CUDA_LAUNCH(conv_run_gradient<value>, cuda_blocks(it->n * n), CUDA_THREADS, device, *it, call->dy, product);
    cuda_gemm(device, &gemm);
    CUDA_LAUNCH(conv_run_scatter<value>, cuda_blocks(it->images * it->c * in), CUDA_THREADS, device, *it,
                (const float *)col, call->dx);
  });
}

void cuda_conv2d_backward_data(struct trm_device *device, const struct trm_conv2d_backward_data *call)
{
  CUDA_BY_TYPE(call->type, conv_backward_data<value>(device, call));
}

template <typename value> struct conv_bias_term {
  const void *dy; /* (B, N, OH OW); rows are (B, OH OW) */
  size_t units, size;
  __device__ float operator()(size_t row, size_t unit) const
  {
    return cuda_values<value>(dy)[(row / size * units + unit) * size + row % size];
  }
};

template <typename value>
static void conv_backward_weights(struct trm_device *device, const struct trm_conv2d_backward_weights *call)
{
  const struct trm_window2d *win = &call->conv.window;
  const size_t size = win->out[0] * win->out[1];
  const conv_bias_term<value> at = {call->dy, call->conv.units, size};

  conv_parts(device, &call->conv, call->b, [&](const struct conv *it, void *col, void *product) {
    const size_t n = it->images * it->size;
    const struct trm_gemm gemm = {false, true, it->n, it->taps, n, 1, product, n, col, n,
                                  it->first > 0 ? 1 : call->beta, call->dw + it->group * it->n * it->taps, it->taps,
                                  call->type, TRM_VALUES_F32};

    CUDA_LAUNCH(conv_run_gather<value>, cuda_blocks(it->taps * n), CUDA_THREADS, device, *it, call->x, col);
    CUDA_LAUNCH(conv_run_gradient<value>, cuda_blocks(it->n * n), CUDA_THREADS, device, *it, call->dy, product);
    cuda_gemm(device, &gemm);
  });
  if (call->b == 0 && call->beta == 0)
    cuda_fill(device, call->dw, 0, call->conv.units * (call->conv.channels / call->conv.groups) * win->kernel[0] *
                                     win->kernel[1]);
  if (call->db)
    columns_sum(device, at, call->b * size, call->conv.units, call->beta, call->db);
}

void cuda_conv2d_backward_weights(struct trm_device *device, const struct trm_conv2d_backward_weights *call)
{
  CUDA_BY_TYPE(call->type, conv_backward_weights<value>(device, call));
}
