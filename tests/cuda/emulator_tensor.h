/* The instructions of tensor_core.cuh on the host, each lane for itself from what all lanes of the warp give, in the
 * layouts of PTX. Products are sums of float32 in the order of the terms. A copy is made when its thread waits for it,
 * so that values that are read before are not there. */
#pragma once

#include "cuda/emulator.h"

#define TENSOR_CORES 1

static inline bool tensor_cores(const struct trm_device *)
{
  return true;
}

static inline float emulator_value(uint32_t pair, unsigned upper)
{
  return trm_bf16_value((trm_bf16)(upper ? pair >> 16 : pair));
}

/* Rows of 8 values, one a lane. */
template <bool transposed>
static inline tensor_factor tensor_load(const __nv_bfloat16 *own, int line = __builtin_LINE())
{
  const unsigned lane = emulator_lane(), g = lane / 4, p = lane % 4;
  const __nv_bfloat16 *row[32];
  tensor_factor x;

  emulator_aligned(own, 16);
  emulator_collect(&own, sizeof own, row, line);
  for (unsigned j = 0; j < 4; j++) {
    const __nv_bfloat16 low = transposed ? row[8 * j + 2 * p][g] : row[8 * j + g][2 * p];
    const __nv_bfloat16 high = transposed ? row[8 * j + 2 * p + 1][g] : row[8 * j + g][2 * p + 1];

    x.pair[j] = (uint32_t)high.bits << 16 | low.bits;
  }
  return x;
}

static inline void tensor_multiply_half(float sum[4], const uint32_t a[4], const uint32_t b[2],
                                        int line = __builtin_LINE())
{
  struct {
    uint32_t a[4], b[2];
  } own, lane[32];
  const unsigned g = emulator_lane() / 4, p = emulator_lane() % 4;

  memcpy(own.a, a, sizeof own.a);
  memcpy(own.b, b, sizeof own.b);
  emulator_collect(&own, sizeof own, lane, line);
  for (unsigned i = 0; i < 4; i++) {
    const unsigned row = g + 8 * (i / 2), column = 2 * p + i % 2;

    for (unsigned k = 0; k < 16; k++)
      sum[i] += emulator_value(lane[row % 8 * 4 + k % 8 / 2].a[row / 8 + 2 * (k / 8)], k % 2) *
                emulator_value(lane[column * 4 + k % 8 / 2].b[k / 8], k % 2);
  }
}

static inline void tensor_copy(void *to, const void *from, bool inside)
{
  emulator_aligned(to, 16);
  emulator_aligned(from, 16);
  emulator_copy(to, inside ? from : nullptr, 16);
}

static inline void tensor_copies_end()
{
  emulator_copies_end();
}

template <int but> static inline void tensor_copies_wait()
{
  emulator_copies_wait(but);
}

static inline float tensor_exp2(float x)
{
  return x < -126 ? 0 : exp2f(x);
}
