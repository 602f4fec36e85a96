/* Dropout: y = x * keep / (1 - rate). A thread computes four elements of a row that share a block of random numbers. */
#include "kernels/cuda/dropout.cuh"

/* quads: threads of a row */
template <typename value>
__global__ static void dropout_run(const struct trm_dropout call, const struct dropout_mask mask, size_t quads)
{
  const cuda_values<value> x(call.x), y(call.y);
  const size_t f = call.f;

  CUDA_ELEMENTS(i, call.b * quads) {
    const size_t row = i / quads;
    const uint64_t first = dropout_index(mask, row), block = first / 4 + i % quads;
    uint32_t word[4];

    dropout_words(mask, block, word);
#pragma unroll
    for (int k = 0; k < 4; k++) {
      const uint64_t index = block * 4 + k;

      if (index >= first && index - first < f) {
        const size_t at = row * f + (size_t)(index - first);

        y.set(at, x[at] * dropout_factor(mask, word[k])); /* NaN stays visible */
      }
    }
  }
}

void cuda_dropout(struct trm_device *device, const struct trm_dropout *call)
{
  const size_t quads = call->f / 4 + 2;

  CUDA_BY_TYPE(call->type, CUDA_LAUNCH(dropout_run<value>, cuda_blocks(call->b * quads), CUDA_THREADS, device, *call,
                                       dropout_mask_of(&call->mask, call->f), quads));
}
