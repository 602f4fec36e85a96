/* Values element by element: sums, and conversions between types. */
#include <string.h>

#include "kernels/cpu/cpu.h"

CPU_CLONES static void values_add_body(const void *arguments, size_t low, size_t high)
{
  const struct trm_add *it = arguments;
  const float *a = it->a, *b = it->b;
  float *y = it->y;

#pragma omp simd
  for (size_t i = low; i < high; i++)
    y[i] = a[i] + b[i];
}

void cpu_add(struct trm_device *device, const struct trm_add *call)
{
  cpu_for(device, call->n, CPU_GRANULE, 2, values_add_body, call);
}

CPU_CLONES static void values_round_body(const void *arguments, size_t low, size_t high)
{
  const struct trm_convert *it = arguments;
  const float *from = it->from;
  trm_bf16 *to = it->to;

#pragma omp simd
  for (size_t i = low; i < high; i++)
    to[i] = trm_bf16_round(from[i]);
}

CPU_CLONES static void values_widen_body(const void *arguments, size_t low, size_t high)
{
  const struct trm_convert *it = arguments;
  const trm_bf16 *from = it->from;
  float *to = it->to;

#pragma omp simd
  for (size_t i = low; i < high; i++)
    to[i] = trm_bf16_value(from[i]);
}

CPU_CLONES static void values_copy_body(const void *arguments, size_t low, size_t high)
{
  const struct trm_convert *it = arguments;
  const size_t bytes = trm_value_bytes(it->type_to);

  memcpy((char *)it->to + low * bytes, (const char *)it->from + low * bytes, (high - low) * bytes);
}

void cpu_convert(struct trm_device *device, const struct trm_convert *call)
{
  cpu_body *const body = call->type_from == call->type_to         ? values_copy_body
                         : call->type_to == TRM_VALUES_BF16 ? values_round_body
                                                            : values_widen_body;

  cpu_for(device, call->n, CPU_GRANULE, 2, body, call);
}
