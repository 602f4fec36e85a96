/* Convolution as matrix products of the windows' elements: col (C/G KH KW, B OH OW), for as many images at a time as
 * scratch memory has room for; outputs are (N, B OH OW) in the products and (B, N, OH, OW) outside. */
#include "kernels/cuda/columns.cuh"

enum { CONV_SCRATCH = 1 << 26 }; /* values of the two scratch arrays together, at most where one image needs fewer */

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

/* dx (B, C, H, W) from the gradient of col: each element gathers from the windows that it is in. */
template <typename value> __global__ static void conv_run_scatter(const struct conv it, const void *from, void *images)
{
  const struct trm_window2d *win = &it.shape.window;
  const cuda_values<value> col(from), dx(images);
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

/* y (B, N, OH, OW) = product (N/G, images, OH OW) + bias, or the other way about without a bias. */
template <typename value, bool out>
__global__ static void conv_run_permute(const struct conv it, void *batch, void *product, const float *bias)
{
  const cuda_values<value> y(batch), p(product);

  CUDA_ELEMENTS(i, it.n * it.images * it.size) {
    const size_t unit = it.group * it.n + i / it.size / it.images, image = it.first + i / it.size % it.images;
    const size_t at = (image * it.shape.units + unit) * it.size + i % it.size;

    if (out)
      y.set(at, p[i] + (bias ? bias[unit] : 0));
    else
      p.set(i, y[at]);
  }
}

template <typename value, bool out>
static void conv_permute(struct trm_device *device, const struct conv *it, const void *batch, void *product,
                         const float *bias)
{
  void (*const run)(const struct conv, void *, void *, const float *) = conv_run_permute<value, out>;

  CUDA_LAUNCH(run, cuda_blocks(it->n * it->images * it->size), CUDA_THREADS, device, *it, (void *)batch, product, bias);
}

/* Calls `work` with scratch arrays col and product for each group and part of the images. */
template <typename value, typename work>
static void conv_parts(struct trm_device *device, const struct trm_conv2d *shape, size_t b, const work &part)
{
  struct conv it = conv_of(shape);
  const size_t images = conv_images(&it, b), columns = it.taps * images * it.size;
  value *col = b > 0 ? (value *)cuda_scratch(device, (columns + it.n * images * it.size) * sizeof *col) : NULL;

  for (it.first = 0; col && it.first < b; it.first += images)
    for (it.group = 0; it.group < shape->groups; it.group++) {
      it.images = b - it.first < images ? b - it.first : images;
      part(&it, col, col + columns);
    }
}

template <typename value> static void conv_forward(struct trm_device *device, const struct trm_conv2d_forward *call)
{
  conv_parts<value>(device, &call->conv, call->b, [&](const struct conv *it, value *col, value *product) {
    const size_t n = it->images * it->size;
    const struct trm_gemm gemm = {false, false, it->n, n, it->taps, 1,
                                  (const value *)call->w + it->group * it->n * it->taps, it->taps, col, n, 0, product, n,
                                  call->type, call->type};

    CUDA_LAUNCH(conv_run_gather<value>, cuda_blocks(it->taps * n), CUDA_THREADS, device, *it, call->x, (void *)col);
    cuda_gemm(device, &gemm);
    conv_permute<value, true>(device, it, call->y, product, call->bias);
  });
}

void cuda_conv2d_forward(struct trm_device *device, const struct trm_conv2d_forward *call)
{
  CUDA_BY_TYPE(call->type, conv_forward<value>(device, call));
}

template <typename value>
static void conv_backward_data(struct trm_device *device, const struct trm_conv2d_backward_data *call)
{
  conv_parts<value>(device, &call->conv, call->b, [&](const struct conv *it, value *col, value *product) {
    const size_t n = it->images * it->size, in = it->shape.window.in[0] * it->shape.window.in[1];
    const struct trm_gemm gemm = {true, false, it->taps, n, it->n, 1,
                                  (const value *)call->w + it->group * it->n * it->taps, it->taps, product, n, 0, col, n,
                                  call->type, call->type};

    conv_permute<value, false>(device, it, call->dy, product, NULL);
    cuda_gemm(device, &gemm);
    CUDA_LAUNCH(conv_run_scatter<value>, cuda_blocks(it->images * it->c * in), CUDA_THREADS, device, *it,
                (const void *)col, call->dx);
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

  conv_parts<value>(device, &call->conv, call->b, [&](const struct conv *it, value *col, value *product) {
    const size_t n = it->images * it->size;
    const struct trm_gemm gemm = {false, true, it->n, it->taps, n, 1, product, n, col, n,
                                  it->first > 0 ? 1 : call->beta, call->dw + it->group * it->n * it->taps, it->taps,
                                  call->type, TRM_VALUES_F32};

    CUDA_LAUNCH(conv_run_gather<value>, cuda_blocks(it->taps * n), CUDA_THREADS, device, *it, call->x, (void *)col);
    conv_permute<value, false>(device, it, call->dy, product, NULL);
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
