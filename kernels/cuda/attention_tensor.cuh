/* Attention by tensor cores: what forward and backward share. A block has positions of its own, 16 of which are the
 * rows of a warp's matrices, and runs over tiles of other positions, two arrays of them, copied to shared memory one
 * tile ahead. bfloat16 values; heads of a multiple of 16 values, at most ATTENTION_TENSOR_MOST. */
#pragma once

#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/tensor_core.cuh"

enum { ATTENTION_TENSOR_MOST = 128 };

/* e: heads are padded with zeros to this size. */
template <int e> struct attention_sizes {
  static constexpr int STEPS = e / TENSOR_SIDE; /* matrices of a row */
  static constexpr int PITCH = e + TENSOR_PIECE; /* so that eight rows of a matrix are in different banks */
  static constexpr int OTHERS = e <= 64 ? 64 : 32; /* positions of a tile */
  static constexpr int TILE = OTHERS * PITCH;
};

#if TENSOR_CORES

/* Begins to copy rows first .. first + n - 1 of a head to shared memory (n, PITCH), zeros beyond T and the head's size.
 * All threads call. */
template <int e, int n>
__device__ static void attention_copy(const attention_rows<cuda_bf16> rows, int t, int head_dim, int first,
                                      cuda_bf16 *to)
{
  constexpr int pieces = e / TENSOR_PIECE;

#pragma unroll 4
  for (int i = (int)threadIdx.x; i < n * pieces; i += ATTENTION_THREADS) {
    const int row = i / pieces, column = i % pieces * TENSOR_PIECE;
    const bool inside = first + row < t && column < head_dim;

    tensor_copy(to + row * attention_sizes<e>::PITCH + column,
                inside ? rows.at + (size_t)(first + row) * rows.stride + column : rows.at, inside);
  }
}

/* Begins to copy the tile of positions first .. of two arrays, unless it is beyond `end`. All threads call. */
template <int e>
__device__ static void attention_copy_tile(const attention_rows<cuda_bf16> c, const attention_rows<cuda_bf16> d,
                                           int t, int head_dim, int first, int end, cuda_bf16 *to)
{
  constexpr int n = attention_sizes<e>::OTHERS;

  if (first < end) {
    attention_copy<e, n>(c, t, head_dim, first, to);
    attention_copy<e, n>(d, t, head_dim, first, to + attention_sizes<e>::TILE);
  }
  tensor_copies_end();
}

/* Stores factor[row / 8] * sum in rows first .. of a head, 16 of them. */
template <int e>
__device__ static void attention_store_sums(const tensor_sum sum[attention_sizes<e>::STEPS], const float factor[2],
                                            const attention_rows<cuda_bf16> rows, int t, int head_dim,
                                            int first)
{
#pragma unroll
  for (int i = 0; i < 8; i += 2) {
    const int row = first + tensor_row(i);

    if (row < t) {
      cuda_bf16 *const to = (cuda_bf16 *)rows.at + row * rows.stride + tensor_column(i);

#pragma unroll
      for (int s = 0; s < attention_sizes<e>::STEPS; s++)
        if (s * TENSOR_SIDE < head_dim)
          *(uint32_t *)(to + s * TENSOR_SIDE) =
            tensor_pair(factor[i / 2 % 2] * sum[s].at[i], factor[i / 2 % 2] * sum[s].at[i + 1]);
    }
  }
}

#endif

/* Returns whether tensor cores compute this call; addresses: of its arrays of values, ored. */
static inline bool attention_by_tensors(const struct trm_device *device, const struct trm_attention &shape,
                                        enum trm_value_type type, uintptr_t addresses)
{
  return type == TRM_VALUES_BF16 && shape.head_dim % TENSOR_SIDE == 0 && shape.head_dim <= ATTENTION_TENSOR_MOST &&
         addresses % 16 == 0 && tensor_cores(device);
}

/* Runs a statement with the constant `e`, the size that heads are padded to. */
#define ATTENTION_BY_SIZE(head_dim, ...) \
  do {                                   \
    if ((head_dim) <= 32) {              \
      constexpr int e = 32;              \
      __VA_ARGS__;                       \
    } else if ((head_dim) <= 64) {       \
      constexpr int e = 64;              \
      __VA_ARGS__;                       \
    } else if ((head_dim) <= 96) {       \
      constexpr int e = 96;              \
      __VA_ARGS__;                       \
    } else {                             \
      constexpr int e = 128;             \
      __VA_ARGS__;                       \
    }                                    \
  } while (0)
