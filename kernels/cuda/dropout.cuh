/* Masks of dropout, which depend on the element's global index only: the CPU's, bit for bit. */
#pragma once

#include "core/random.h"
#include "kernels/cuda/kernel.cuh"

struct dropout_mask {
  struct trm_mask mask;
  size_t f;        /* values of a row */
  uint64_t stride; /* elements of a full row */
  float scale;
};

static inline struct dropout_mask dropout_mask_of(const struct trm_mask *mask, size_t f)
{
  return {*mask, f, mask->stride ? mask->stride : f, 1.0f / (1.0f - mask->rate)};
}

/* Returns the global index of a row's first element. */
__device__ inline uint64_t dropout_index(const struct dropout_mask &it, size_t row)
{
  const uint64_t first_row = it.mask.first_row + (it.mask.step ? it.mask.step->first_row * it.mask.row_parts : 0);

  return (first_row + row) * it.stride + it.mask.offset;
}

/* word: the random numbers of the elements with the global indices 4 block .. */
__device__ inline void dropout_words(const struct dropout_mask &it, uint64_t block, uint32_t word[4])
{
  const uint32_t key[2] = {(uint32_t)it.mask.seed, (uint32_t)(it.mask.seed >> 32)};
  const uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), it.mask.stream, TRM_RANDOM_DROPOUT};

  trm_philox(counter, key, word);
}

__device__ inline float dropout_factor(const struct dropout_mask &it, uint32_t word)
{
  return trm_random_unit(word) < it.mask.rate ? 0.0f : it.scale;
}

/* The factors of consecutive elements: a block of random numbers is made once. */
struct dropout_factors {
  struct dropout_mask it;
  size_t row, column;
  uint64_t block;
  uint32_t word[4];

  __device__ dropout_factors(const struct dropout_mask &mask, size_t at)
    : it(mask), row(at / mask.f), column(at % mask.f), block(UINT64_MAX)
  {
  }

  __device__ float next()
  {
    const uint64_t index = dropout_index(it, row) + column;

    if (index / 4 != block) {
      block = index / 4;
      dropout_words(it, block, word);
    }
    if (++column == it.f) {
      column = 0;
      row++;
    }
    return dropout_factor(it, index % 4 < 2 ? word[index % 2] : word[2 + index % 2]);
  }
};
