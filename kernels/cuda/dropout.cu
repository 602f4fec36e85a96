/* Dropout: y = x * keep / (1 - rate), with a mask that depends on the element's global index only; the CPU's, bit for
 * bit. A thread computes four elements of a row that share a block of random numbers. */
#include "core/random.h"
#include "kernels/cuda/kernel.cuh"

struct dropout {
  struct trm_dropout call;
  uint64_t stride; /* elements of a full row */
  size_t quads;           /* threads of a row */
  float scale;
};

template <typename value> __global__ static void dropout_run(const struct dropout it)
{
  const cuda_values<value> x(it.call.x), y(it.call.y);
  const struct trm_mask *mask = &it.call.mask;
  const uint32_t key[2] = {(uint32_t)mask->seed, (uint32_t)(mask->seed >> 32)};
  const size_t f = it.call.f;
  const uint64_t first_row = mask->first_row + (mask->step ? mask->step->first_row * mask->row_parts : 0);

  CUDA_ELEMENTS(i, it.call.b * it.quads) {
    const size_t row = i / it.quads;
    const uint64_t first = (first_row + row) * it.stride + mask->offset, block = first / 4 + i % it.quads;
    const uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), mask->stream, TRM_RANDOM_DROPOUT};
    uint32_t word[4];

    trm_philox(counter, key, word);
#pragma unroll
    for (int k = 0; k < 4; k++) {
      const uint64_t index = block * 4 + k;

      if (index >= first && index - first < f) {
        const size_t at = row * f + (size_t)(index - first);

        y.set(at, x[at] * (trm_random_unit(word[k]) < mask->rate ? 0.0f : it.scale)); /* NaN stays visible */
      }
    }
  }
}

void cuda_dropout(struct trm_device *device, const struct trm_dropout *call)
{
  const struct trm_mask *mask = &call->mask;
  struct dropout it = {*call, mask->stride ? mask->stride : call->f, 0, 1.0f / (1.0f - mask->rate)};

  it.quads = it.call.f / 4 + 2;
  CUDA_BY_TYPE(call->type,
               CUDA_LAUNCH(dropout_run<value>, cuda_blocks(it.call.b * it.quads), CUDA_THREADS, device, it));
}
