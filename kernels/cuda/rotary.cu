/* Rotary positions (Su et al. 2021): rotates pairs of elements of each query and key by position-dependent angles,
 * whose cosines and sines the host computes in double once. */
#include <stdlib.h>

#include "core/status.h"
#include "kernels/cuda/kernel.cuh"

template <typename value> __global__ static void rotary_run(const struct trm_rotary it, const float *table)
{
  const size_t half = it.shape.head_dim / 2, heads = it.shape.heads, t = it.shape.t - it.shape.first;
  const cuda_values<value> x(it.x);

  CUDA_ELEMENTS(i, it.shape.b * t * 2 * heads * half) {
    const size_t j = i % half, head = i / half % (2 * heads), position = i / half / (2 * heads);
    const size_t at = (position * 3 * heads + head) * 2 * half + j;
    const float *const row = table + (it.shape.first + position % t) * 2 * half;
    const float cosine = row[j], turn = row[half + j];
    const float a = x[at], b = x[at + half], sine = it.inverse ? -turn : turn;

    x.set(at, a * cosine - b * sine);
    x.set(at + half, b * cosine + a * sine);
  }
}

enum { ROTARY_STEP = 1024 }; /* positions by which the table grows, for one that is later than the one before */

/* Returns the table in device memory, NULL if there is no memory. */
static const float *rotary_table(struct trm_device *device, const struct trm_rotary *call)
{
  struct cuda_rotary_table *kept = &cuda_state_of(device)->rotary;
  const size_t t = (call->shape.t + ROTARY_STEP - 1) / ROTARY_STEP * ROTARY_STEP;
  const size_t half = call->shape.head_dim / 2, bytes = 2 * t * half * sizeof(float);
  void *memory;

  if (kept->table && kept->base == call->base && kept->t >= t && kept->half == half)
    return kept->table;
  if (cuda_refuses(device))
    return NULL;
  cuda_state_of(device)->replaced++;
  device->ops->release(device, kept->table);
  kept->table = NULL;
  float *host = (float *)malloc(bytes);
  if (!host || device->ops->alloc(device, bytes, TRM_MEMORY_BUFFERS, &memory) != TRM_OK) {
    free(host);
    cuda_fail(device, "rotary: no memory for a table of %zu positions", t);
    return NULL;
  }
  for (size_t j = 0; j < half; j++) {
    const double rate = pow((double)call->base, -(double)j / (double)half);

    for (size_t p = 0; p < t; p++) {
      host[p * 2 * half + j] = (float)cos((double)p * rate);
      host[p * 2 * half + half + j] = (float)sin((double)p * rate);
    }
  }
  cuda_upload(device, memory, host, bytes);
  free(host);
  kept->table = (float *)memory;
  kept->base = call->base;
  kept->t = t;
  kept->half = half;
  return kept->table;
}

void cuda_rotary(struct trm_device *device, const struct trm_rotary *call)
{
  const struct trm_attention *shape = &call->shape;
  const size_t pairs = shape->b * (shape->t - shape->first) * shape->heads * shape->head_dim;
  const float *table = pairs > 0 ? rotary_table(device, call) : NULL;

  if (table)
    CUDA_BY_TYPE(call->type, CUDA_LAUNCH(rotary_run<value>, cuda_blocks(pairs), CUDA_THREADS, device, *call, table));
}
