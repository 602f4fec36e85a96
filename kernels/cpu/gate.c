/* Gated units: swiglu (Shazeer 2020), y = silu(a) * b with silu(a) = a * sigmoid(a), for rows (a, b). */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/math.h"

struct gate {
  const float *x;  /* (R, 2, F) */
  float *y;        /* (R, F) */
  const float *dy; /* (R, F) */
  float *dx;       /* (R, 2, F) */
  size_t f;
};

CPU_CLONES static void gate_swiglu_forward_body(const void *arguments, size_t low, size_t high)
{
  const struct gate *it = arguments;
  const size_t f = it->f;

  for (size_t i = low; i < high; i++) {
    const float *a = it->x + 2 * i * f, *b = a + f;
    float *y = it->y + i * f;

#pragma omp simd
    for (size_t j = 0; j < f; j++)
      y[j] = a[j] * math_sigmoid(a[j]) * b[j];
  }
}

CPU_CLONES static void gate_swiglu_backward_body(const void *arguments, size_t low, size_t high)
{
  const struct gate *it = arguments;
  const size_t f = it->f;

  for (size_t i = low; i < high; i++) {
    const float *a = it->x + 2 * i * f, *b = a + f, *dy = it->dy + i * f;
    float *da = it->dx + 2 * i * f, *db = da + f;

#pragma omp simd
    for (size_t j = 0; j < f; j++) {
      const float s = math_sigmoid(a[j]), silu = a[j] * s;

      da[j] = dy[j] * b[j] * (s + silu * (1.0f - s));
      db[j] = dy[j] * silu;
    }
  }
}

void cpu_swiglu_forward(struct trm_device *device, const float *x, float *y, size_t r, size_t f)
{
  const struct gate it = {.x = x, .y = y, .f = f};

  cpu_for(device, r, 1, 8 * (double)f, gate_swiglu_forward_body, &it);
}

void cpu_swiglu_backward(struct trm_device *device, const float *x, const float *dy, float *dx, size_t r, size_t f)
{
  const struct gate it = {.x = x, .dy = dy, .dx = dx, .f = f};

  cpu_for(device, r, 1, 8 * (double)f, gate_swiglu_backward_body, &it);
}
