/* The two arithmetics of convolutions: a block's tile of sums, ROWS x COLUMNS, to which products of STEPS terms are
 * added. left (ROWS, LEFT_PITCH): the steps of a row are neighbors. right: rows are steps (by_steps), or columns. */
#pragma once

#include "kernels/cuda/conv.cuh"
#include "kernels/cuda/tensor_core.cuh"

enum { CONV_COLUMNS = 128 };

/* Sizes in shared memory; pad: of a row, against conflicts of banks. */
template <int rows, bool by_steps, int steps, int pad> struct conv_sizes {
  static constexpr int ROWS = rows, COLUMNS = CONV_COLUMNS, STEPS = steps;
  static constexpr int TAPS = by_steps ? STEPS : COLUMNS, WIDTH = by_steps ? COLUMNS : STEPS;
  static constexpr int LEFT_PITCH = STEPS + pad, RIGHT_PITCH = WIDTH + pad;
  static constexpr int LEFT = ROWS * LEFT_PITCH, TILE = LEFT + TAPS * RIGHT_PITCH;
};

/* float32 products: a thread has every 8th row and every 16th column. */
template <typename values, int rows, bool by_steps> struct conv_floats : conv_sizes<rows, by_steps, 16, 1> {
  typedef values value;
  typedef float factor;
  static constexpr bool COPIES = false;
  typedef conv_sizes<rows, by_steps, 16, 1> sizes;
  static constexpr int ACROSS = 16, DOWN = CONV_THREADS / ACROSS;
  float sum[rows / DOWN][CONV_COLUMNS / ACROSS];

  __device__ void add(const float *left, const float *right)
  {
    left += (int)threadIdx.x / ACROSS * sizes::LEFT_PITCH;
    right += (int)threadIdx.x % ACROSS * (by_steps ? 1 : sizes::RIGHT_PITCH);
#pragma unroll 4
    for (int k = 0; k < sizes::STEPS; k++) {
      float a[rows / DOWN];

#pragma unroll
      for (int i = 0; i < rows / DOWN; i++)
        a[i] = left[i * DOWN * sizes::LEFT_PITCH + k];
#pragma unroll
      for (int j = 0; j < CONV_COLUMNS / ACROSS; j++) {
        const float b = right[by_steps ? k * sizes::RIGHT_PITCH + j * ACROSS : j * ACROSS * sizes::RIGHT_PITCH + k];

#pragma unroll
        for (int i = 0; i < rows / DOWN; i++)
          sum[i][j] = fmaf(a[i], b, sum[i][j]);
      }
    }
  }

  /* Calls store(row, column, sum) for each of the thread's sums. */
  template <typename function> __device__ void each(const function &store) const
  {
#pragma unroll
    for (int j = 0; j < CONV_COLUMNS / ACROSS; j++)
#pragma unroll
      for (int i = 0; i < rows / DOWN; i++)
        store((int)threadIdx.x / ACROSS + i * DOWN, (int)threadIdx.x % ACROSS + j * ACROSS, sum[i][j]);
  }
};

/* Products of bfloat16 by tensor cores: a warp has a part of DOWN x ACROSS matrices. */
template <typename values, int rows, bool by_steps>
struct conv_tensors : conv_sizes<rows, by_steps, 32, TENSOR_PIECE> {
  typedef values value;
  typedef cuda_bf16 factor;
  typedef conv_sizes<rows, by_steps, 32, TENSOR_PIECE> sizes;
  static constexpr int WARPS = CONV_THREADS / CUDA_WARP, WARPS_DOWN = rows < 64 ? 1 : 2;
  static constexpr int DOWN = rows / WARPS_DOWN / TENSOR_SIDE;
  static constexpr int ACROSS = CONV_COLUMNS * WARPS_DOWN / WARPS / TENSOR_SIDE;
  static constexpr bool COPIES = TENSOR_CORES;
  tensor_sum sum[DOWN][ACROSS];

  /* of the warp's part */
  __device__ static int row() { return (int)threadIdx.x / CUDA_WARP % WARPS_DOWN * DOWN * TENSOR_SIDE; }
  __device__ static int column() { return (int)threadIdx.x / CUDA_WARP / WARPS_DOWN * ACROSS * TENSOR_SIDE; }

#if TENSOR_CORES
  /* The first step of the thread's pieces of the left factor. */
  __device__ static int piece() { return (int)threadIdx.x % (sizes::STEPS / TENSOR_PIECE) * TENSOR_PIECE; }

  /* Begins to copy `count` rows of the left factor, row_step apart in memory; begin: of the thread's piece, whose
   * address is a multiple of 16 bytes. Rows beyond, and pieces that are not inside, become zeros. */
  __device__ static void copy(cuda_bf16 *left, const cuda_bf16 *begin, bool inside, int row_step, int count)
  {
    constexpr int pieces = sizes::STEPS / TENSOR_PIECE;

#pragma unroll
    for (int row = (int)threadIdx.x / pieces; row < rows; row += CONV_THREADS / pieces)
      tensor_copy(left + row * sizes::LEFT_PITCH + piece(), row < count ? begin + row * row_step : begin,
                  inside && row < count);
    tensor_copies_end();
  }

  __device__ static void copied() { tensor_copies_wait<0>(); }

  __device__ void add(const cuda_bf16 *left, const cuda_bf16 *right)
  {
    left += row() * sizes::LEFT_PITCH;
    right += column() * (by_steps ? 1 : sizes::RIGHT_PITCH);
#pragma unroll
    for (int k = 0; k < sizes::STEPS; k += TENSOR_SIDE) {
      tensor_factor a[DOWN];

#pragma unroll
      for (int i = 0; i < DOWN; i++)
        a[i] = tensor_load_left(left + i * TENSOR_SIDE * sizes::LEFT_PITCH + k, sizes::LEFT_PITCH);
#pragma unroll
      for (int j = 0; j < ACROSS; j++) {
        const tensor_factor b =
          by_steps ? tensor_load_right(right + k * sizes::RIGHT_PITCH + j * TENSOR_SIDE, sizes::RIGHT_PITCH)
                   : tensor_load_right_transposed(right + j * TENSOR_SIDE * sizes::RIGHT_PITCH + k, sizes::RIGHT_PITCH);

#pragma unroll
        for (int i = 0; i < DOWN; i++)
          tensor_multiply(&sum[i][j], a[i], b);
      }
    }
  }
#else
  __device__ void add(const cuda_bf16 *, const cuda_bf16 *) {}
#endif

  template <typename function> __device__ void each(const function &store) const
  {
#pragma unroll
    for (int j = 0; j < ACROSS; j++)
#pragma unroll
      for (int e = 0; e < 8; e++)
#pragma unroll
        for (int i = 0; i < DOWN; i++)
          store(row() + i * TENSOR_SIDE + tensor_row(e), column() + j * TENSOR_SIDE + tensor_column(e),
                sum[i][j].at[e]);
  }
};
