/* Gated units: swiglu (Shazeer 2020), y = silu(a) * b with silu(a) = a * sigmoid(a), for rows (a, b). */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/math.h"

CPU_INLINE void gate_forward(enum trm_value_type type, const struct trm_swiglu_forward *it, size_t low, size_t high)
{
  const size_t f = it->f;

  for (size_t i = low; i < high; i++) {
    const void *x = cpu_at(type, it->x, 2 * i * f);
    void *y = cpu_at(type, it->y, i * f);

#pragma omp simd
    for (size_t j = 0; j < f; j++) {
      const float a = cpu_value(type, x, j);

      cpu_set(type, y, j, a * math_sigmoid(a) * cpu_value(type, x, f + j));
    }
  }
}

CPU_BODY_BY_TYPE(gate_forward, trm_swiglu_forward)

CPU_INLINE void gate_backward(enum trm_value_type type, const struct trm_swiglu_backward *it, size_t low, size_t high)
{
  const size_t f = it->f;

  for (size_t i = low; i < high; i++) {
    const void *x = cpu_at(type, it->x, 2 * i * f), *dy = cpu_at(type, it->dy, i * f);
    void *dx = cpu_at(type, it->dx, 2 * i * f);

#pragma omp simd
    for (size_t j = 0; j < f; j++) {
      const float a = cpu_value(type, x, j), slope = cpu_value(type, dy, j), s = math_sigmoid(a), silu = a * s;

      cpu_set(type, dx, j, slope * cpu_value(type, x, f + j) * (s + silu * (1.0f - s)));
      cpu_set(type, dx, f + j, slope * silu);
    }
  }
}

CPU_BODY_BY_TYPE(gate_backward, trm_swiglu_backward)

void cpu_swiglu_forward(struct trm_device *device, const struct trm_swiglu_forward *call)
{
  cpu_for(device, call->r, 1, 8 * (double)call->f, gate_forward_body, call);
}

void cpu_swiglu_backward(struct trm_device *device, const struct trm_swiglu_backward *call)
{
  cpu_for(device, call->r, 1, 8 * (double)call->f, gate_backward_body, call);
}
