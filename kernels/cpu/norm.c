/* Normalization of rows: layer norm (Ba, Kiros, Hinton 2016) and RMS norm (Zhang & Sennrich 2019). */
#include <math.h>

#include "kernels/cpu/cpu.h"

CPU_INLINE double norm_row_sum(enum trm_value_type type, const void *x, size_t d)
{
  double total = 0;

  for (size_t low = 0; low < d; low += CPU_BLOCK)
    total += cpu_lane_sum_of(type, cpu_at(type, x, low), d - low < CPU_BLOCK ? d - low : CPU_BLOCK);
  return total;
}

/* Sum of (x - mean)^2. */
CPU_INLINE double norm_squares_sum(enum trm_value_type type, const void *x, float mean, size_t d)
{
  double total = 0;

  for (size_t low = 0; low < d; low += CPU_BLOCK)
    total += cpu_lane_squares(type, cpu_at(type, x, low), mean, d - low < CPU_BLOCK ? d - low : CPU_BLOCK);
  return total;
}

CPU_INLINE void norm_forward(enum trm_value_type type, const struct trm_norm_forward *it, size_t low, size_t high)
{
  const size_t d = it->d;
  const float *gain = it->gain, *bias = it->bias;

  for (size_t i = low; i < high; i++) {
    const void *x = cpu_at(type, it->x, i * d);
    void *y = cpu_at(type, it->y, i * d);
    const float mean = it->mean ? (float)(norm_row_sum(type, x, d) / (double)d) : 0;
    const float scale = (float)(1 / sqrt(norm_squares_sum(type, x, mean, d) / (double)d + it->epsilon));

    it->scale[i] = scale;
    if (it->mean)
      it->mean[i] = mean;
    if (bias) {
#pragma omp simd
      for (size_t j = 0; j < d; j++)
        cpu_set(type, y, j, (cpu_value(type, x, j) - mean) * scale * gain[j] + bias[j]);
    } else {
#pragma omp simd
      for (size_t j = 0; j < d; j++)
        cpu_set(type, y, j, (cpu_value(type, x, j) - mean) * scale * gain[j]);
    }
  }
}

CPU_BODY_BY_TYPE(norm_forward, trm_norm_forward)

void cpu_norm_forward(struct trm_device *device, const struct trm_norm_forward *call)
{
  cpu_for(device, call->r, 1, 4 * (double)call->d, norm_forward_body, call);
}

/* The division of rows into parts depends on their number only. dgain and dbias are summed in float within a part, and
 * over parts in double, in order. */
#define MAX_PARTS 256
#define MIN_ROWS 16

struct norm {
  const struct trm_norm_backward *call;
  enum trm_value_type type;
  float *sums;        /* (parts, 2, D): partial dgain and dbias */
  size_t part, parts; /* part: rows per part */
};

/* Adds a row to dgain and dbias, and computes its means of g = dy * gain and of g * n, with n the normalized x. */
CPU_INLINE void norm_backward_sums(enum trm_value_type type, const struct trm_norm_backward *it, const void *x,
                                   const void *dy, float mean, float scale, float *dgain, float *dbias, float *g_mean,
                                   float *gn_mean)
{
  float g[CPU_BLOCK], gn[CPU_BLOCK];
  double g_sum = 0, gn_sum = 0;

  for (size_t low = 0; low < it->d; low += CPU_BLOCK) {
    const size_t width = it->d - low < CPU_BLOCK ? it->d - low : CPU_BLOCK;
    const float *gain = it->gain + low;
    float *dgain_block = dgain + low, *dbias_block = dbias + low;

#pragma omp simd
    for (size_t j = 0; j < width; j++) {
      const float slope = cpu_value(type, dy, low + j), n = (cpu_value(type, x, low + j) - mean) * scale;

      dgain_block[j] += slope * n;
      dbias_block[j] += slope;
      g[j] = slope * gain[j];
      gn[j] = g[j] * n;
    }
    g_sum += cpu_lane_sum(g, width);
    gn_sum += cpu_lane_sum(gn, width);
  }
  *g_mean = it->mean ? (float)(g_sum / (double)it->d) : 0; /* RMS norm subtracts no mean */
  *gn_mean = (float)(gn_sum / (double)it->d);
}

/* A work item is a part. */
CPU_INLINE void norm_backward(enum trm_value_type type, const struct norm *parts, size_t low, size_t high)
{
  const struct trm_norm_backward *it = parts->call;
  const size_t d = it->d;
  const float *gain = it->gain;

  for (size_t p = low; p < high; p++) {
    float *dgain = parts->sums + 2 * p * d, *dbias = dgain + d;
    const size_t first = p * parts->part, end = it->r - first < parts->part ? it->r : first + parts->part;

    for (size_t j = 0; j < 2 * d; j++)
      dgain[j] = 0;
    for (size_t i = first; i < end; i++) {
      const void *x = cpu_at(type, it->x, i * d), *dy = cpu_at(type, it->dy, i * d);
      const float mean = it->mean ? it->mean[i] : 0, scale = it->scale[i];
      float g_mean, gn_mean;

      norm_backward_sums(type, it, x, dy, mean, scale, dgain, dbias, &g_mean, &gn_mean);
      if (it->dx) {
        void *dx = cpu_at(type, it->dx, i * d);

#pragma omp simd
        for (size_t j = 0; j < d; j++)
          cpu_set(type, dx, j, scale * (cpu_value(type, dy, j) * gain[j] - g_mean -
                                        (cpu_value(type, x, j) - mean) * scale * gn_mean));
      }
    }
  }
}

CPU_BODY_BY_TYPE(norm_backward, norm)

/* Adds the parts for columns [low, high). */
CPU_CLONES static void norm_parts_body(const void *arguments, size_t low, size_t high)
{
  const struct norm *parts = arguments;
  const struct trm_norm_backward *it = parts->call;

  for (size_t first = low; first < high; first += CPU_BLOCK) {
    const size_t width = high - first < CPU_BLOCK ? high - first : CPU_BLOCK;

    for (int which = 0; which < (it->dbias ? 2 : 1); which++) {
      float *to = (which ? it->dbias : it->dgain) + first;
      double total[CPU_BLOCK];

      for (size_t j = 0; j < width; j++)
        total[j] = it->beta == 0 ? 0 : (double)it->beta * to[j];
      for (size_t p = 0; p < parts->parts; p++) {
        const float *from = parts->sums + (2 * p + (size_t)which) * it->d + first;

#pragma omp simd
        for (size_t j = 0; j < width; j++)
          total[j] += from[j];
      }
      for (size_t j = 0; j < width; j++)
        to[j] = (float)total[j];
    }
  }
}

void cpu_norm_backward(struct trm_device *device, const struct trm_norm_backward *call)
{
  const size_t rows = (call->r + MAX_PARTS - 1) / MAX_PARTS, d = call->d;
  struct norm it = {.call = call, .type = call->type, .part = rows < MIN_ROWS ? MIN_ROWS : rows};

  it.parts = (call->r + it.part - 1) / it.part;
  it.sums = cpu_scratch(device, it.parts * 2 * d * sizeof(float));
  cpu_for(device, it.parts, 1, 8 * (double)(it.part * d), norm_backward_body, &it);
  cpu_for(device, d, 16, 2 * (double)it.parts, norm_parts_body, &it);
}
