/* Convolution as products of matrices (implicit GEMM): the weights times the windows' matrix (conv.cuh), tiles of which
 * are gathered from the images. The gradient of the input is the same product with windows over dy, once for each
 * phase: rows and columns of dx that are equal modulo the stride meet the same taps. The gradient of the weights is dy
 * times the transposed matrix: long sums, made in parts, which are then added in their order. */
#include "core/device_arrays.h"
#include "kernels/cuda/columns.cuh"
#include "kernels/cuda/conv_tile.cuh"

/* y (B, groups, rows, ..) = w * windows + bias, or one phase of y. */
struct conv_product {
  struct conv_windows windows;
  struct conv_weights weights;    /* of group 0, row 0 */
  int group_weights, row_weights; /* from one group or row to the next */
  int rows;                       /* of a group */
  int out_start, out_step[2];     /* output (i, j) is at out_start + (i, j) * out_step of a channel of y */
  int out_size;                   /* of a channel of y */
  bool copies;                    /* the taps of a row of w are neighbors, in whole pieces of 16 bytes */
  const void *images, *w;
  const float *bias;
  void *y;
};

/* Writes the n taps first .. of a group. All threads call. */
template <int n>
__device__ static void conv_set_taps(const struct conv_product &it, int group, int first, struct conv_tap *taps)
{
  if ((int)threadIdx.x < n) {
    struct conv_tap tap = conv_tap_of(it.windows, it.weights, first + (int)threadIdx.x);

    tap.weight += group * it.group_weights;
    taps[threadIdx.x] = tap;
  }
}

/* The left factor of a tile as what a thread has of it. */
template <typename tile> using conv_left = conv_staged<typename tile::value, tile::ROWS, tile::STEPS>;

/* Begins to load the weights of a tile, steps first .. with these taps. */
template <typename tile>
__device__ static void conv_load_weights(const struct conv_product &it, int group, int row, int first,
                                         const struct conv_tap *taps, conv_left<tile> *left,
                                         typename tile::factor *to)
{
  const typename tile::value *const w = (const typename tile::value *)it.w + row * it.row_weights, *begin[2];

  if constexpr (tile::COPIES)
    if (it.copies) {
      const int k = first + tile::piece();

      tile::copy(to, w + group * it.group_weights + (k < it.windows.taps ? k : 0), k < it.windows.taps,
                 it.row_weights, it.rows - row);
      return;
    }
#pragma unroll
  for (int e = 0; e < 2; e++)
    begin[e] = first + left->column() + e < it.windows.taps ? w + taps[left->column() + e].weight : NULL;
  left->load_rows(begin, it.row_weights, it.rows - row);
}

/* Ends what was begun. */
template <typename tile>
__device__ static void conv_store_left(bool copies, const conv_left<tile> &left, typename tile::factor *to)
{
  if constexpr (tile::COPIES)
    if (copies) {
      tile::copied();
      return;
    }
  left.store(to, tile::LEFT_PITCH);
}

/* Stores a tile of sums, whose first element is that of row and column. */
template <typename tile>
__device__ static void conv_store(const struct conv_product &it, const tile &sums, int group, int row, int column)
{
  sums.each([&](int down, int across, float sum) {
    if (row + down < it.rows && column + across < it.windows.positions) {
      const struct conv_place place = conv_place_of(it.windows, column + across);
      const int unit = group * it.rows + row + down;
      const size_t at = ((size_t)place.image * it.windows.groups * it.rows + unit) * it.out_size + it.out_start +
                        place.row * it.out_step[0] + place.column * it.out_step[1];

      cuda_values<typename tile::value>(it.y).set(at, sum + (it.bias ? it.bias[unit] : 0));
    }
  });
}

/* Blocks (positions / COLUMNS, rows / ROWS, groups). The next tiles come from memory while these are multiplied. */
template <typename tile>
__global__ static void __launch_bounds__(CONV_THREADS) conv_run_product(const struct conv_product it)
{
  typedef typename tile::value value;
  typedef typename tile::factor factor;
  constexpr int n = tile::STEPS;
  CUDA_SHARED(factor, tiles, 2 * tile::TILE);
  CUDA_SHARED(struct conv_tap, taps, 2 * n);
  const int column = (int)blockIdx.x * tile::COLUMNS, row = (int)blockIdx.y * tile::ROWS, group = (int)blockIdx.z;
  const int count = (it.windows.taps + n - 1) / n;
  conv_left<tile> left = {};
  conv_staged<value, n, tile::COLUMNS> right;
  conv_window<value> window[2];
  tile sums = {};

#pragma unroll
  for (int e = 0; e < 2; e++)
    window[e] = conv_window_of(it.windows, (const value *)it.images, group, column + right.column() + e,
                               it.windows.positions);
  conv_set_taps<n>(it, group, 0, taps);
  conv_set_taps<n>(it, group, n, taps + n);
  __syncthreads();
  for (int i = -1; i < count; i++) {
    factor *const own = tiles + (i & 1) * tile::TILE, *const next = tiles + ((i + 1) & 1) * tile::TILE;

    if (i + 1 < count) {
      const struct conv_tap *const tap = taps + ((i + 1) & 1) * n;

      conv_load_weights<tile>(it, group, row, (i + 1) * n, tap, &left, next);
      right.load_windows(it.windows, window, tap);
    }
    if (i >= 0) {
      sums.add(own, own + tile::LEFT);
      conv_set_taps<n>(it, group, (i + 2) * n, taps + (i & 1) * n);
    }
    if (i + 1 < count) {
      conv_store_left<tile>(it.copies, left, next);
      right.store(next + tile::LEFT, tile::RIGHT_PITCH);
    }
    __syncthreads();
  }
  conv_store(it, sums, group, row, column);
}

/* parts (.., N, taps): sums of dy times windows, over `part` positions each. */
struct conv_gradient {
  struct conv_windows windows;
  int rows;      /* units of a group */
  int row_tiles; /* for them */
  int part;      /* positions */
  bool copies;   /* a unit's output in dy is whole pieces of 16 bytes */
  const void *images, *dy;
  float *parts;
};

/* The gradient of a position of y, of the group's unit `row`. */
template <typename value>
__device__ static const value *conv_gradient_at(const struct conv_gradient &it, int group, int row, int position)
{
  const struct conv_place place = conv_place_of(it.windows, position);

  return (const value *)it.dy + (((size_t)place.image * it.windows.groups + group) * it.rows + row) *
                                  it.windows.out.by + place.out;
}

/* Begins to load dy of a tile, positions first .. */
template <typename tile>
__device__ static void conv_load_gradient(const struct conv_gradient &it, int group, int row, int first, int end,
                                          conv_left<tile> *left, typename tile::factor *to)
{
  const typename tile::value *begin[2];

  if constexpr (tile::COPIES)
    if (it.copies) {
      const int position = first + tile::piece();

      tile::copy(to, conv_gradient_at<typename tile::value>(it, group, row, position < end ? position : 0),
                 position < end, it.windows.out.by, it.rows - row);
      return;
    }
#pragma unroll
  for (int e = 0; e < 2; e++) {
    const int position = first + left->column() + e;

    begin[e] = position < end ? conv_gradient_at<typename tile::value>(it, group, row, position) : NULL;
  }
  left->load_rows(begin, it.windows.out.by, it.rows - row);
}

/* Blocks (taps / COLUMNS times rows / ROWS, parts, groups). */
template <typename tile>
__global__ static void __launch_bounds__(CONV_THREADS) conv_run_gradient(const struct conv_gradient it)
{
  typedef typename tile::value value;
  typedef typename tile::factor factor;
  constexpr int n = tile::STEPS;
  const struct conv_windows &win = it.windows;
  CUDA_SHARED(factor, tiles, 2 * tile::TILE);
  CUDA_SHARED(struct conv_tap, taps, tile::COLUMNS);
  const int row = (int)blockIdx.x % it.row_tiles * tile::ROWS, column = (int)blockIdx.x / it.row_tiles * tile::COLUMNS;
  const int first = (int)blockIdx.y * it.part, group = (int)blockIdx.z;
  const int end = win.positions - first < it.part ? win.positions : first + it.part, count = (end - first + n - 1) / n;
  conv_left<tile> left = {};
  conv_staged<value, tile::COLUMNS, n> right;
  tile sums = {};

  for (int i = (int)threadIdx.x; i < tile::COLUMNS; i += CONV_THREADS)
    taps[i] = conv_tap_of(win, {}, column + i);
  __syncthreads();
  for (int i = -1; i < count; i++) {
    factor *const own = tiles + (i & 1) * tile::TILE, *const next = tiles + ((i + 1) & 1) * tile::TILE;

    if (i + 1 < count) {
      const int next_first = first + (i + 1) * n;
      conv_window<value> window[2];

#pragma unroll
      for (int e = 0; e < 2; e++)
        window[e] = conv_window_of(win, (const value *)it.images, group, next_first + right.column() + e, end);
      conv_load_gradient<tile>(it, group, row, next_first, end, &left, next);
      right.load_windows(win, window, taps);
    }
    if (i >= 0)
      sums.add(own, own + tile::LEFT);
    if (i + 1 < count) {
      conv_store_left<tile>(it.copies, left, next);
      right.store(next + tile::LEFT, tile::RIGHT_PITCH);
    }
    __syncthreads();
  }
  float *const to = it.parts + (((size_t)blockIdx.y * win.groups + group) * it.rows + row) * win.taps + column;
  sums.each([&](int down, int across, float sum) {
    if (row + down < it.rows && column + across < win.taps)
      to[down * win.taps + across] = sum;
  });
}

/* -- host */

/* Runs a statement with `tile` as the smallest of three types of tiles that has the rows of a group, or the largest. */
#define CONV_BY_ROWS(rows, tiles, value, by_steps, small, medium, large, ...) \
  do {                                                                        \
    if ((rows) <= (small)) {                                                  \
      typedef tiles<value, small, by_steps> tile;                             \
      __VA_ARGS__;                                                            \
    } else if ((rows) <= (medium)) {                                          \
      typedef tiles<value, medium, by_steps> tile;                            \
      __VA_ARGS__;                                                            \
    } else {                                                                  \
      typedef tiles<value, large, by_steps> tile;                             \
      __VA_ARGS__;                                                            \
    }                                                                         \
  } while (0)

/* The same, with the arithmetic for values of this type. Tensor cores are so fast that gathering takes as long: it is
 * shared by more rows. */
#define CONV_BY_TILE(device, type, rows, by_steps, ...)                                   \
  do {                                                                                    \
    if ((type) != TRM_VALUES_BF16)                                                        \
      CONV_BY_ROWS(rows, conv_floats, float, by_steps, 16, 32, 64, __VA_ARGS__);          \
    else if (tensor_cores(device))                                                        \
      CONV_BY_ROWS(rows, conv_tensors, cuda_bf16, by_steps, 16, 64, 128, __VA_ARGS__);    \
    else                                                                                  \
      CONV_BY_ROWS(rows, conv_floats, cuda_bf16, by_steps, 16, 32, 64, __VA_ARGS__);      \
  } while (0)

static unsigned conv_tiles(size_t n, size_t tile)
{
  return (unsigned)((n + tile - 1) / tile);
}

/* Whether 32-bit indices do; otherwise a failure is recorded. */
static bool conv_fits(struct trm_device *device, const struct trm_conv2d *conv, size_t b)
{
  const struct trm_window2d *win = &conv->window;
  const size_t in = win->in[0] * win->in[1], out = win->out[0] * win->out[1];
  const size_t counts[] = {conv->channels * in, conv->units * out, trm_conv2d_weights(conv), b * in, b * out};

  for (size_t count : counts)
    if (count > CONV_MOST) {
      cuda_fail(device, "convolution of %zu images: %zu positions or values are too many for 32-bit indices", b, count);
      return false;
    }
  return true;
}

static struct conv_windows conv_windows_of(const struct trm_conv2d *conv, size_t b)
{
  const struct trm_window2d *win = &conv->window;
  struct conv_windows it = {};

  it.groups = (int)conv->groups;
  it.c = (int)(conv->channels / conv->groups);
  it.kernel = conv_divider_of(win->kernel[0] * win->kernel[1]);
  it.kernel_row = conv_divider_of(win->kernel[1]);
  it.out = conv_divider_of(win->out[0] * win->out[1]);
  it.out_row = conv_divider_of(win->out[1]);
  for (int d = 0; d < 2; d++) {
    it.in[d] = (int)win->in[d];
    it.first[d] = -(int)win->pad[d];
    it.stride[d] = (int)win->stride[d];
  }
  it.image = (int)conv->channels * it.in[0] * it.in[1];
  it.taps = it.c * it.kernel.by;
  it.positions = (int)b * it.out.by;
  return it;
}

static void conv_launch(struct trm_device *device, const struct conv_product *it, enum trm_value_type type)
{
  CONV_BY_TILE(device, type, it->rows, true, {
    const dim3 blocks(conv_tiles((size_t)it->windows.positions, tile::COLUMNS),
                      conv_tiles((size_t)it->rows, tile::ROWS), (unsigned)it->windows.groups);

    CUDA_LAUNCH(conv_run_product<tile>, blocks, CONV_THREADS, device, *it);
  });
}

void cuda_conv2d_forward(struct trm_device *device, const struct trm_conv2d_forward *call)
{
  struct conv_product it = {};

  if (!conv_fits(device, &call->conv, call->b))
    return;
  it.windows = conv_windows_of(&call->conv, call->b);
  it.rows = (int)(call->conv.units / call->conv.groups);
  it.weights = {0, {it.windows.kernel.by, it.windows.kernel_row.by, 1}};
  it.row_weights = it.windows.taps;
  it.group_weights = it.rows * it.windows.taps;
  it.out_step[0] = it.windows.out_row.by;
  it.out_step[1] = 1;
  it.out_size = it.windows.out.by;
  it.images = call->x;
  it.w = call->w;
  it.copies = it.windows.taps % TENSOR_PIECE == 0 && (uintptr_t)call->w % 16 == 0;
  it.bias = call->bias;
  it.y = call->y;
  conv_launch(device, &it, call->type);
}

/* The windows over dy of the phase (row, column) of dx: output (i, j) is the element of dx at first + (i, j) * stride,
 * whose window's taps meet, from the last to the first one, every stride-th tap of the kernel. */
static void conv_phase(struct conv_product *it, const struct trm_window2d *win, size_t b, const size_t phase[2])
{
  size_t taps[2], out[2], first[2], last[2];

  for (int d = 0; d < 2; d++) {
    const size_t stride = win->stride[d];

    first[d] = (phase[d] + win->pad[d] * (stride - 1)) % stride; /* + pad is phase, modulo stride */
    out[d] = first[d] < win->in[d] ? (win->in[d] - first[d] + stride - 1) / stride : 0;
    taps[d] = phase[d] < win->kernel[d] ? (win->kernel[d] - phase[d] + stride - 1) / stride : 0;
    last[d] = phase[d] + (taps[d] > 0 ? taps[d] - 1 : 0) * stride;
    it->windows.first[d] = (int)((first[d] + win->pad[d]) / stride) - (int)(last[d] / stride);
  }
  it->windows.kernel = conv_divider_of(taps[0] * taps[1]);
  it->windows.kernel_row = conv_divider_of(taps[1]);
  it->windows.out = conv_divider_of(out[0] * out[1]);
  it->windows.out_row = conv_divider_of(out[1]);
  it->windows.taps = it->windows.c * (int)(taps[0] * taps[1]);
  it->windows.positions = (int)(b * out[0] * out[1]);
  it->weights.start = (int)(last[0] * win->kernel[1] + last[1]);
  it->out_start = (int)(first[0] * win->in[1] + first[1]);
}

static void conv_backward_data(struct trm_device *device, const struct trm_conv2d_backward *call)
{
  const struct trm_conv2d *conv = &call->conv;
  const struct trm_window2d *win = &conv->window;
  const int kernel = (int)(win->kernel[0] * win->kernel[1]);
  struct conv_product it = {};

  it.rows = (int)(conv->channels / conv->groups);
  it.windows.groups = (int)conv->groups;
  it.windows.c = (int)(conv->units / conv->groups);
  it.windows.image = (int)(conv->units * win->out[0] * win->out[1]);
  it.weights.step[0] = it.rows * kernel;
  it.weights.step[1] = -(int)(win->stride[0] * win->kernel[1]);
  it.weights.step[2] = -(int)win->stride[1];
  it.row_weights = kernel;
  it.group_weights = it.windows.c * it.weights.step[0];
  for (int d = 0; d < 2; d++) {
    it.windows.in[d] = (int)win->out[d];
    it.windows.stride[d] = 1;
  }
  it.out_step[0] = (int)(win->stride[0] * win->in[1]);
  it.out_step[1] = (int)win->stride[1];
  it.out_size = (int)(win->in[0] * win->in[1]);
  it.images = call->dy;
  it.w = call->w;
  it.y = call->dx;
  for (size_t p = 0; p < win->stride[0] * win->stride[1]; p++) {
    const size_t phase[2] = {p / win->stride[1], p % win->stride[1]};

    conv_phase(&it, win, call->b, phase);
    conv_launch(device, &it, call->type);
  }
}

enum { CONV_BLOCKS = 432, CONV_LEAST = 512 }; /* blocks that parts are made for; positions of a part, at least */

/* Returns the positions of a part: of full tiles, and the same on every processor. */
static size_t conv_part(size_t positions, size_t tiles)
{
  const size_t most = positions / CONV_LEAST, want = CONV_BLOCKS / tiles, parts = want < most ? want : most;
  const size_t part = parts > 1 ? (positions + parts - 1) / parts : positions;

  return (part + CONV_LEAST - 1) / CONV_LEAST * CONV_LEAST;
}

template <typename tile>
static void conv_launch_gradient(struct trm_device *device, struct conv_gradient *it, float beta, float *dw)
{
  const size_t taps = (size_t)it->windows.taps, n = (size_t)it->rows * it->windows.groups * taps;
  const unsigned rows = conv_tiles((size_t)it->rows, tile::ROWS), tiles = rows * conv_tiles(taps, tile::COLUMNS);
  const size_t part = conv_part((size_t)it->windows.positions, (size_t)tiles * it->windows.groups);
  const unsigned parts = part > 0 ? conv_tiles((size_t)it->windows.positions, part) : 0;

  it->part = (int)part;
  it->row_tiles = (int)rows;
  it->parts = (float *)cuda_scratch(device, parts * n * sizeof *it->parts);
  if (!it->parts)
    return;
  CUDA_LAUNCH(conv_run_gradient<tile>, dim3(tiles, parts, (unsigned)it->windows.groups), CONV_THREADS, device, *it);
  CUDA_LAUNCH(columns_add_parts, cuda_blocks(n), CUDA_THREADS, device, it->parts, parts, n, beta, dw);
}

template <typename value> struct conv_bias_term {
  const void *dy; /* (B, N, OH, OW); rows are (B, OH OW) */
  size_t units, size;
  __device__ float operator()(size_t row, size_t unit) const
  {
    return cuda_values<value>(dy)[(row / size * units + unit) * size + row % size];
  }
};

template <typename value>
static void conv_bias_gradient(struct trm_device *device, const struct trm_conv2d_backward *call)
{
  const size_t size = call->conv.window.out[0] * call->conv.window.out[1];
  const conv_bias_term<value> at = {call->dy, call->conv.units, size};

  columns_sum(device, at, call->b * size, call->conv.units, call->beta, call->db);
}

static void conv_backward_weights(struct trm_device *device, const struct trm_conv2d_backward *call)
{
  struct conv_gradient it = {};

  it.windows = conv_windows_of(&call->conv, call->b);
  it.rows = (int)(call->conv.units / call->conv.groups);
  it.images = call->x;
  it.dy = call->dy;
  it.copies = it.windows.out.by % TENSOR_PIECE == 0 && (uintptr_t)call->dy % 16 == 0;
  CONV_BY_TILE(device, call->type, it.rows, false,
               conv_launch_gradient<tile>(device, &it, call->beta, call->dw));
  if (call->db)
    CUDA_BY_TYPE(call->type, conv_bias_gradient<value>(device, call));
}

void cuda_conv2d_backward(struct trm_device *device, const struct trm_conv2d_backward *call)
{
  if (!conv_fits(device, &call->conv, call->b))
    return;
  if (call->dw)
    conv_backward_weights(device, call);
  if (call->dx)
    conv_backward_data(device, call);
}
