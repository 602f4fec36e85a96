/* Windows over images as a matrix that is never in memory: rows are taps (channel, kernel row, kernel column), columns
 * are positions (image, output row, output column), and tiles of it are gathered into shared memory. */
#pragma once

#include "kernels/cuda/kernel.cuh"

enum {
  CONV_THREADS = 128,
  CONV_MOST = 1 << 29,   /* positions, weights, values of an image: indices are 32-bit */
  CONV_OUTSIDE = 1 << 29 /* a row that no image has */
};

/* Division of [0, 2^31) by a constant as a product (Granlund and Montgomery 1994). */
struct conv_divider {
  uint32_t factor;
  int by, shift;
};

static inline struct conv_divider conv_divider_of(size_t by)
{
  struct conv_divider it = {0, by > 0 ? (int)by : 1, 31};

  while ((int64_t)1 << (it.shift - 31) < it.by)
    it.shift++;
  it.factor = (uint32_t)(((uint64_t)1 << it.shift) / (uint64_t)it.by + 1);
  return it;
}

__device__ inline int conv_divide(int n, const struct conv_divider &it)
{
  return (int)((uint64_t)n * it.factor >> it.shift);
}

/* Windows over images (B, groups, c, in): that of output (i, j) has its first tap at first + (i, j) * stride. */
struct conv_windows {
  int groups, c, in[2], image; /* image: values of all groups */
  int first[2], stride[2];
  int taps, positions; /* c times the kernel's size; B times the output's size */
  struct conv_divider kernel, kernel_row, out, out_row; /* sizes of a kernel and its row, of an output and its row */
};

/* A row of the matrix. */
struct alignas(16) conv_tap {
  int offset, row, column; /* from a window's first tap */
  int weight;              /* offset of the tap in the weights */
};

/* A column of the matrix. */
template <typename value> struct conv_window {
  const value *image;      /* the group's channels */
  int offset, row, column; /* of the first tap, which may be outside of the image */
};

/* A position: image, and where in the output. */
struct conv_place {
  int image, out, row, column;
};

__device__ inline struct conv_place conv_place_of(const struct conv_windows &it, int position)
{
  struct conv_place place;

  place.image = conv_divide(position, it.out);
  place.out = position - place.image * it.out.by;
  place.row = conv_divide(place.out, it.out_row);
  place.column = place.out - place.row * it.out_row.by;
  return place;
}

/* The window of a position; from `end` on, one outside of every image. */
template <typename value>
__device__ inline conv_window<value> conv_window_of(const struct conv_windows &it, const value *images, int group,
                                                    int position, int end)
{
  const struct conv_place place = conv_place_of(it, position);
  const int row = it.first[0] + place.row * it.stride[0], column = it.first[1] + place.column * it.stride[1];
  const bool inside = position < end;

  return {images + (size_t)(inside ? place.image : 0) * it.image + group * it.c * it.in[0] * it.in[1],
          row * it.in[1] + column, inside ? row : (int)CONV_OUTSIDE, column};
}

/* The weight of tap (channel, kernel row, kernel column) is at start + the sum of indices times steps. */
struct conv_weights {
  int start, step[3];
};

/* The tap of this number; those beyond the last one are outside of every image. */
__device__ inline struct conv_tap conv_tap_of(const struct conv_windows &it, const struct conv_weights &at, int tap)
{
  const int channel = conv_divide(tap, it.kernel), rest = tap - channel * it.kernel.by;
  const int row = conv_divide(rest, it.kernel_row), column = rest - row * it.kernel_row.by;

  return {(channel * it.in[0] + row) * it.in[1] + column, tap < it.taps ? row : (int)CONV_OUTSIDE, column,
          at.start + channel * at.step[0] + row * at.step[1] + column * at.step[2]};
}

/* Two neighboring values of a tile in shared memory. */
template <typename value> __device__ inline void conv_put(float *to, const value pair[2])
{
  to[0] = cuda_load(pair);
  to[1] = cuda_load(pair + 1);
}

__device__ inline void conv_put(cuda_bf16 *to, const cuda_bf16 pair[2])
{
  uint32_t word;

  memcpy(&word, pair, sizeof word);
  *(uint32_t *)to = word;
}

/* What a thread moves of a tile of ROWS x WIDTH values: two neighboring columns, and every STEP-th row. */
template <typename value, int ROWS, int WIDTH> struct conv_staged {
  static constexpr int PAIRS = WIDTH / 2, STEP = CONV_THREADS / PAIRS, OWN = ROWS / STEP;
  value at[OWN][2];

  /* The first of the thread's columns, and of its rows. */
  __device__ static int column() { return (int)threadIdx.x % PAIRS * 2; }
  __device__ static int row() { return (int)threadIdx.x / PAIRS; }

  /* Loads the windows' values; taps (ROWS). */
  __device__ void load_windows(const struct conv_windows &it, const conv_window<value> window[2],
                               const struct conv_tap *taps)
  {
#pragma unroll
    for (int j = 0; j < OWN; j++) {
      const struct conv_tap tap = taps[row() + j * STEP];

#pragma unroll
      for (int e = 0; e < 2; e++) {
        const bool inside = (unsigned)(window[e].row + tap.row) < (unsigned)it.in[0] &&
                            (unsigned)(window[e].column + tap.column) < (unsigned)it.in[1];

        at[j][e] = inside ? window[e].image[window[e].offset + tap.offset] : value();
      }
    }
  }

  /* Loads rows of a matrix in memory, row_step apart, whose columns begin at two addresses (NULL: zeros). */
  __device__ void load_rows(const value *const begin[2], int row_step, int rows)
  {
#pragma unroll
    for (int j = 0; j < OWN; j++)
#pragma unroll
      for (int e = 0; e < 2; e++)
        at[j][e] = begin[e] && row() + j * STEP < rows ? begin[e][(row() + j * STEP) * row_step] : value();
  }

  template <typename factor> __device__ void store(factor *to, int pitch) const
  {
#pragma unroll
    for (int j = 0; j < OWN; j++)
      conv_put(to + (row() + j * STEP) * pitch + column(), at[j]);
  }
};
