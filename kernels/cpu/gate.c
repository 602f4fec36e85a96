/* Gated units: swiglu (Shazeer 2020), y = silu(a) * b with silu(a) = a * sigmoid(a), for rows (a, b). */
#include "kernels/cpu/math.h"
#include "kernels/cpu/values.h"

CPU_CLONES static void gate_swiglu_forward_body(const void *arguments, size_t low, size_t high)
{
  const struct trm_swiglu_forward *it = arguments;
  const size_t f = it->f;

  for (size_t i = low; i < high; i++) {
    const float *a = (const float *)it->x + 2 * i * f, *b = a + f;
    float *y = (float *)it->y + i * f;

#pragma omp simd
    for (size_t j = 0; j < f; j++)
      y[j] = a[j] * math_sigmoid(a[j]) * b[j];
  }
}

CPU_CLONES static void gate_swiglu_backward_body(const void *arguments, size_t low, size_t high)
{
  const struct trm_swiglu_backward *it = arguments;
  const size_t f = it->f;

  for (size_t i = low; i < high; i++) {
    const float *a = (const float *)it->x + 2 * i * f, *b = a + f, *dy = (const float *)it->dy + i * f;
    float *da = (float *)it->dx + 2 * i * f, *db = da + f;

#pragma omp simd
    for (size_t j = 0; j < f; j++) {
      const float s = math_sigmoid(a[j]), silu = a[j] * s;

      da[j] = dy[j] * b[j] * (s + silu * (1.0f - s));
      db[j] = dy[j] * silu;
    }
  }
}

void cpu_swiglu_forward(struct trm_device *device, const struct trm_swiglu_forward *call)
{
  cpu_for_values(device, call->r, 1, 8 * (double)call->f, gate_swiglu_forward_body, call,
                 CPU_VALUES(call->type, *call, CPU_READS(*call, x, 2 * call->f), CPU_WRITES(*call, y, call->f)));
}

void cpu_swiglu_backward(struct trm_device *device, const struct trm_swiglu_backward *call)
{
  cpu_for_values(device, call->r, 1, 8 * (double)call->f, gate_swiglu_backward_body, call,
                 CPU_VALUES(call->type, *call, CPU_READS(*call, x, 2 * call->f), CPU_READS(*call, dy, call->f),
                            CPU_WRITES(*call, dx, 2 * call->f)));
}
