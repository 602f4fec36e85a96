/* Values: sums and conversions, element by element. */
#include <string.h>

#include "kernels/cpu/cpu.h"

CPU_INLINE void values_add(enum trm_value_type type, const struct trm_add *it, size_t low, size_t high)
{
  const bool streams = it->y != it->a && it->y != it->b && cpu_streams(type, it->y, high - low);
  struct cpu_block block;

  for (size_t first = low; first < high; first += CPU_STEP) {
    const size_t n = high - first < CPU_STEP ? high - first : CPU_STEP;
    const void *a = cpu_at(type, it->a, first), *b = cpu_at(type, it->b, first);
    void *y = cpu_results(streams, type, it->y, first, n, &block);

    cpu_prefetch(type, a, CPU_AHEAD, CPU_STEP);
    cpu_prefetch(type, b, CPU_AHEAD, CPU_STEP);
#pragma omp simd
    for (size_t i = 0; i < n; i++)
      cpu_set(type, y, i, cpu_value(type, a, i) + cpu_value(type, b, i));
    cpu_store_results(streams, type, it->y, first, n, &block);
  }
  cpu_stream_end();
}

CPU_BODY_BY_TYPE(values_add, trm_add)

void cpu_add(struct trm_device *device, const struct trm_add *call)
{
  cpu_for(device, call->n, CPU_GRANULE, 2, values_add_body, call);
}

static void values_convert_body(const void *arguments, size_t low, size_t high)
{
  const struct trm_convert *it = arguments;
  const size_t bytes = trm_value_bytes(it->type_to);

  if (it->type_from == it->type_to)
    memcpy((char *)it->to + low * bytes, (const char *)it->from + low * bytes, (high - low) * bytes);
  else if (it->type_to == TRM_VALUES_BF16)
    trm_bf16_narrow((trm_bf16 *)it->to + low, (const float *)it->from + low, high - low);
  else
    trm_bf16_widen((float *)it->to + low, (const trm_bf16 *)it->from + low, high - low);
}

void cpu_convert(struct trm_device *device, const struct trm_convert *call)
{
  cpu_for(device, call->n, CPU_GRANULE, 2, values_convert_body, call);
}
