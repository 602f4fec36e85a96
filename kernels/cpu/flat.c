/* Flat arrays: filling, the fixed binary tree of sums, the squared norm. */
#include <string.h>

#include "kernels/cpu/cpu.h"

struct fill {
  float *to;
  float value;
};

CPU_CLONES static void fill_body(const void *arguments, size_t low, size_t high)
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

  cpu_for(device, n, CPU_GRANULE, 1, fill_body, &it);
}

/* A block of the tree: right halves wait in a buffer of the stack, one a level. */
#define TREE_BLOCK 512

struct sum {
  float *to;                /* (n) */
  const float *const *from; /* (count) arrays (n) */
  int count;
};

CPU_INLINE void add_two(float *to, const float *a, const float *b, size_t n)
{
#pragma omp simd
  for (size_t i = 0; i < n; i++)
    to[i] = a[i] + b[i];
}

CPU_INLINE void add_four(float *to, const float *a, const float *b, const float *c, const float *d, size_t n)
{
#pragma omp simd
  for (size_t i = 0; i < n; i++)
    to[i] = (a[i] + b[i]) + (c[i] + d[i]);
}

/* to (n) = the tree over from[0 .. count-1] at [low, low + n), count >= 1. The first array is read before `to` is
 * written, so it may be `to` itself. */
CPU_CLONES static void add_tree(float *to, const float *const *from, int count, size_t low, size_t n)
{
  if (count == 1) {
    memmove(to, from[0] + low, n * sizeof(float));
  } else if (count == 2) {
    add_two(to, from[0] + low, from[1] + low, n);
  } else if (count == 4) {
    add_four(to, from[0] + low, from[1] + low, from[2] + low, from[3] + low, n);
  } else {
    float right[TREE_BLOCK];
    int left = 1;

    while (left < count - left)
      left *= 2;
    add_tree(to, from, left, low, n);
    if (count - left == 1) {
      add_two(to, to, from[left] + low, n);
    } else {
      add_tree(right, from + left, count - left, low, n);
      add_two(to, to, right, n);
    }
  }
}

static void sum_body(const void *arguments, size_t low, size_t high)
{
  const struct sum *it = arguments;

  for (size_t first = low; first < high; first += TREE_BLOCK)
    add_tree(it->to + first, it->from, it->count, first, high - first < TREE_BLOCK ? high - first : TREE_BLOCK);
}

void cpu_sum(struct trm_device *device, float *to, const float *const *from, int count, size_t n)
{
  const struct sum it = {to, from, count};

  if (count < 1)
    cpu_fill(device, to, 0, n);
  else if (count > 1 || to != from[0])
    cpu_for(device, n, CPU_GRANULE, count, sum_body, &it);
}

/* At most NORM_PARTS fixed parts, whose length depends on n alone; each is summed in double, in lanes, and the parts
 * are added in order. */
#define NORM_PARTS 1024
#define NORM_LEAST 4096

struct norm {
  const float *x; /* (n) */
  size_t n, length;
  double *part; /* (parts) */
};

CPU_CLONES static void norm_body(const void *arguments, size_t low, size_t high)
{
  const struct norm *it = arguments;

  for (size_t p = low; p < high; p++) {
    const size_t first = p * it->length, end = it->n - first < it->length ? it->n : first + it->length;
    const float *x = it->x;
    double lane[CPU_LANES] = {0};
    size_t i = first;

    for (; i + CPU_LANES <= end; i += CPU_LANES)
      for (size_t l = 0; l < CPU_LANES; l++)
        lane[l] += (double)x[i + l] * (double)x[i + l];
    for (size_t l = 0; i + l < end; l++)
      lane[l] += (double)x[i + l] * (double)x[i + l];
    for (size_t width = CPU_LANES / 2; width > 0; width /= 2)
      for (size_t l = 0; l < width; l++)
        lane[l] += lane[l + width];
    it->part[p] = lane[0];
  }
}

double cpu_norm_squared(struct trm_device *device, const float *x, size_t n)
{
  double part[NORM_PARTS], total = 0;
  size_t length = (n + NORM_PARTS - 1) / NORM_PARTS;

  if (length < NORM_LEAST)
    length = NORM_LEAST;
  const size_t parts = (n + length - 1) / length;
  const struct norm it = {x, n, length, part};

  cpu_for(device, parts, 1, (double)length, norm_body, &it);
  for (size_t p = 0; p < parts; p++)
    total += part[p];
  return total;
}
