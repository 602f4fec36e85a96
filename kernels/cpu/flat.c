/* Flat arrays: fill, sum in a fixed binary tree, squared norm. */
#include "kernels/cpu/cpu.h"

struct fill {
  float *to;
  float value;
};

CPU_CLONES static void flat_fill_body(const void *arguments, size_t low, size_t high)
{
  const struct fill *it = arguments;
  const float value = it->value;
  float *to = it->to;

  for (size_t i = low; i < high; i++)
    to[i] = value;
}

void cpu_fill(struct trm_device *device, float *to, float value, size_t n)
{
  const struct fill it = {to, value};

  cpu_for(device, n, CPU_GRANULE, 1, flat_fill_body, &it);
}

/* Sums of more than four arrays are computed by blocks: partial sums are in stack buffers, two per tree level. */
#define TREE_BLOCK 1024

/* Sets to (n) to the tree sum of from[0 .. count-1] at [low, low + n), 1 <= count <= 4. The pragma is valid because
 * `to` aliases none of the arrays, or the first one at the same elements. */
CPU_INLINE void flat_add_few(float *to, const float *const *from, int count, size_t low, size_t n)
{
  const float *a = from[0] + low, *b = from[count > 1] + low;
  const float *c = from[count > 2 ? 2 : 0] + low, *d = from[count > 3 ? 3 : 0] + low;

  if (count == 4) {
#pragma omp simd
    for (size_t i = 0; i < n; i++)
      to[i] = (a[i] + b[i]) + (c[i] + d[i]);
  } else if (count == 3) {
#pragma omp simd
    for (size_t i = 0; i < n; i++)
      to[i] = (a[i] + b[i]) + c[i];
  } else if (count == 2) {
#pragma omp simd
    for (size_t i = 0; i < n; i++)
      to[i] = a[i] + b[i];
  } else {
#pragma omp simd
    for (size_t i = 0; i < n; i++)
      to[i] = a[i];
  }
}

/* The same for any count and n <= TREE_BLOCK. `to` is written last. */
CPU_CLONES static void flat_sum_tree(float *to, const float *const *from, int count, size_t low, size_t n)
{
  float left[TREE_BLOCK], right[TREE_BLOCK];
  int half = 4;

  if (count <= 4) {
    flat_add_few(to, from, count, low, n);
    return;
  }
  while (half < count - half)
    half *= 2;
  flat_sum_tree(left, from, half, low, n);
  flat_sum_tree(right, from + half, count - half, low, n);
#pragma omp simd
  for (size_t i = 0; i < n; i++)
    to[i] = left[i] + right[i];
}

CPU_CLONES static void flat_sum_body(const void *arguments, size_t low, size_t high)
{
  const struct trm_sum *it = arguments;

  if (it->count <= 4) {
    flat_add_few(it->to + low, it->from, it->count, low, high - low);
    return;
  }
  for (size_t first = low; first < high; first += TREE_BLOCK)
    flat_sum_tree(it->to + first, it->from, it->count, first, high - first < TREE_BLOCK ? high - first : TREE_BLOCK);
}

void cpu_sum(struct trm_device *device, const struct trm_sum *call)
{
  if (call->count < 1)
    cpu_fill(device, call->to, 0, call->n);
  else if (call->count > 1 || call->to != call->from[0])
    cpu_for(device, call->n, CPU_GRANULE, call->count, flat_sum_body, call);
}

/* Squared norms of at most NORM_PARTS parts, whose length depends on n only, in double and in lanes. Parts are added in
 * order. */
#define NORM_PARTS 1024
#define NORM_MIN 4096

struct norm {
  const struct trm_norm_squared *call;
  size_t length;
  double *part; /* (parts) */
};

CPU_INLINE double flat_lane_squares(const float *x, size_t n)
{
  double lane[CPU_LANES] = {0};
  size_t i = 0;

  for (; i + CPU_LANES <= n; i += CPU_LANES)
#pragma omp simd
    for (int l = 0; l < CPU_LANES; l++)
      lane[l] += (double)x[i + (size_t)l] * (double)x[i + (size_t)l];
  for (size_t l = 0; i + l < n; l++)
    lane[l] += (double)x[i + l] * (double)x[i + l];
  for (int width = CPU_LANES / 2; width > 0; width /= 2)
    for (int l = 0; l < width; l++)
      lane[l] += lane[l + width];
  return lane[0];
}

CPU_CLONES static void flat_norm_body(const void *arguments, size_t low, size_t high)
{
  const struct norm *it = arguments;
  const size_t n = it->call->n;

  for (size_t p = low; p < high; p++) {
    const size_t first = p * it->length;

    it->part[p] = flat_lane_squares(it->call->x + first, n - first < it->length ? n - first : it->length);
  }
}

void cpu_norm_squared(struct trm_device *device, const struct trm_norm_squared *call)
{
  double part[NORM_PARTS], total = 0;
  size_t length = (call->n + NORM_PARTS - 1) / NORM_PARTS;

  if (length < NORM_MIN)
    length = NORM_MIN;
  const size_t parts = (call->n + length - 1) / length;
  const struct norm it = {call, length, part};

  cpu_for(device, parts, 1, (double)length, flat_norm_body, &it);
  for (size_t p = 0; p < parts; p++)
    total += part[p];
  *call->result = call->adds ? *call->result + total : total;
}
