/* Rotary positions (Su et al. 2021): rotates pairs of elements of each query and key by position-dependent angles. */
#include <math.h>

#include "kernels/cpu/cpu.h"

struct rotary {
  const struct trm_attention *shape;
  const float *table; /* (T - first, 2, E / 2): cosines, sines */
  void *x;            /* (B, T - first, 3, H, E) */
  enum trm_value_type type;
};

CPU_INLINE void rotary(enum trm_value_type type, const struct rotary *it, size_t low, size_t high)
{
  const size_t half = it->shape->head_dim / 2, heads = it->shape->heads;
  const size_t t = it->shape->t - it->shape->first;

  for (size_t i = low; i < high; i++) {
    const float *cosine = it->table + i % t * 2 * half, *sine = cosine + half;

    for (size_t h = 0; h < 2 * heads; h++) { /* queries and keys */
      void *head = cpu_at(type, it->x, (i * 3 * heads + h) * 2 * half);

#pragma omp simd
      for (size_t j = 0; j < half; j++) {
        const float x = cpu_value(type, head, j), y = cpu_value(type, head, half + j);

        cpu_set(type, head, j, x * cosine[j] - y * sine[j]);
        cpu_set(type, head, half + j, y * cosine[j] + x * sine[j]);
      }
    }
  }
}

CPU_BODY_BY_TYPE(rotary, rotary)

void cpu_rotary(struct trm_device *device, const struct trm_rotary *call)
{
  const struct trm_attention *shape = &call->shape;
  const size_t half = shape->head_dim / 2, positions = shape->t - shape->first;
  float *table = cpu_scratch(device, positions * 2 * half * sizeof(*table));
  const struct rotary it = {shape, table, call->x, call->type};

  for (size_t j = 0; j < half; j++) {
    const double rate = pow(call->base, -(double)j / (double)half);

    for (size_t t = 0; t < positions; t++) {
      const double angle = (double)(shape->first + t) * rate;

      table[t * 2 * half + j] = (float)cos(angle);
      table[t * 2 * half + half + j] = (float)(call->inverse ? -sin(angle) : sin(angle));
    }
  }
  cpu_for(device, shape->b * positions, 1, 4 * (double)(shape->heads * shape->head_dim), rotary_body, &it);
}
