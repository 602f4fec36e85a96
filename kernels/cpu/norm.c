/* Normalization of rows: layer norm (Ba, Kiros, Hinton 2016) and RMS norm (Zhang & Sennrich 2019). */
#include <math.h>

#include "kernels/cpu/values.h"

/* Sum of (x - mean)^2. */
CPU_INLINE double norm_squares_sum(const float *x, float mean, size_t d)
{
  float term[CPU_BLOCK];
  double total = 0;

  for (size_t low = 0; low < d; low += CPU_BLOCK) {
    const size_t width = d - low < CPU_BLOCK ? d - low : CPU_BLOCK;

#pragma omp simd
    for (size_t j = 0; j < width; j++)
      term[j] = (x[low + j] - mean) * (x[low + j] - mean);
    total += cpu_lane_sum(term, width);
  }
  return total;
}

CPU_INLINE double norm_row_sum(const float *x, size_t d)
{
  double total = 0;

  for (size_t low = 0; low < d; low += CPU_BLOCK)
    total += cpu_lane_sum(x + low, d - low < CPU_BLOCK ? d - low : CPU_BLOCK);
  return total;
}

CPU_CLONES static void norm_forward_body(const void *arguments, size_t low, size_t high)
{
  const struct trm_norm_forward *it = arguments;
  const size_t d = it->d;
  const float *gain = it->gain, *bias = it->bias;

  for (size_t i = low; i < high; i++) {
    const float *x = (const float *)it->x + i * d;
    float *y = (float *)it->y + i * d;
    const float mean = it->mean ? (float)(norm_row_sum(x, d) / (double)d) : 0;
    const float scale = (float)(1 / sqrt(norm_squares_sum(x, mean, d) / (double)d + it->epsilon));

    it->scale[i] = scale;
    if (it->mean)
      it->mean[i] = mean;
    if (bias) {
#pragma omp simd
      for (size_t j = 0; j < d; j++)
        y[j] = (x[j] - mean) * scale * gain[j] + bias[j];
    } else {
#pragma omp simd
      for (size_t j = 0; j < d; j++)
        y[j] = (x[j] - mean) * scale * gain[j];
    }
  }
}

void cpu_norm_forward(struct trm_device *device, const struct trm_norm_forward *call)
{
  cpu_for_values(device, call->r, 1, 4 * (double)call->d, norm_forward_body, call,
                 CPU_VALUES(call->type, *call, CPU_READS(*call, x, call->d), CPU_WRITES(*call, y, call->d)));
}

/* The division of rows into parts depends on their number only. dgain and dbias are summed in float within a part, and
 * over parts in double, in order. */
#define MAX_PARTS 256
#define MIN_ROWS 16

struct norm {
  const struct trm_norm_backward *call;
  float *sums;        /* (parts, 2, D): partial dgain and dbias */
  size_t part, parts; /* part: rows per part */
  float *rows;        /* (threads, 3, D): of bfloat16 values, x, dy and dx of a row */
};

/* Means over a row of g = dy * gain and of g * n, with n the normalized x. */
CPU_INLINE void norm_row_means(const struct trm_norm_backward *it, const float *x, const float *dy, float mean,
                               float scale, float *g_mean, float *gn_mean)
{
  float g[CPU_BLOCK], gn[CPU_BLOCK];
  double g_sum = 0, gn_sum = 0;

  for (size_t low = 0; low < it->d; low += CPU_BLOCK) {
    const size_t width = it->d - low < CPU_BLOCK ? it->d - low : CPU_BLOCK;
    const float *gain = it->gain + low;

#pragma omp simd
    for (size_t j = 0; j < width; j++) {
      g[j] = dy[low + j] * gain[j];
      gn[j] = g[j] * ((x[low + j] - mean) * scale);
    }
    g_sum += cpu_lane_sum(g, width);
    gn_sum += cpu_lane_sum(gn, width);
  }
  *g_mean = it->mean ? (float)(g_sum / (double)it->d) : 0; /* RMS norm subtracts no mean */
  *gn_mean = (float)(gn_sum / (double)it->d);
}

/* A work item is a part. */
CPU_CLONES static void norm_backward_body(const void *arguments, size_t low, size_t high)
{
  const struct norm *parts = arguments;
  const struct trm_norm_backward *it = parts->call;
  const size_t d = it->d;
  const float *gain = it->gain;
  float *row = parts->rows + (size_t)cpu_thread() * 3 * d;

  for (size_t p = low; p < high; p++) {
    float *dgain = parts->sums + 2 * p * d, *dbias = dgain + d;
    const size_t first = p * parts->part, end = it->r - first < parts->part ? it->r : first + parts->part;

    for (size_t j = 0; j < 2 * d; j++)
      dgain[j] = 0;
    for (size_t i = first; i < end; i++) {
      const float *x = cpu_read(it->type, it->x, i * d, d, row);
      const float *dy = cpu_read(it->type, it->dy, i * d, d, row + d);
      const float mean = it->mean ? it->mean[i] : 0, scale = it->scale[i];

#pragma omp simd
      for (size_t j = 0; j < d; j++) {
        dgain[j] += dy[j] * ((x[j] - mean) * scale);
        dbias[j] += dy[j];
      }
      if (it->dx) {
        float *dx = cpu_place(it->type, it->dx, i * d, row + 2 * d), g_mean, gn_mean;

        norm_row_means(it, x, dy, mean, scale, &g_mean, &gn_mean);
#pragma omp simd
        for (size_t j = 0; j < d; j++)
          dx[j] = scale * (dy[j] * gain[j] - g_mean - (x[j] - mean) * scale * gn_mean);
        cpu_write(it->type, dx, it->dx, i * d, d);
      }
    }
  }
}

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
  struct norm it = {.call = call, .part = rows < MIN_ROWS ? MIN_ROWS : rows};

  it.parts = (call->r + it.part - 1) / it.part;
  it.rows = cpu_copies(device, (size_t)device->threads * 3 * d * sizeof(float));
  it.sums = cpu_scratch(device, it.parts * 2 * d * sizeof(float));
  cpu_for(device, it.parts, 1, 8 * (double)(it.part * d), norm_backward_body, &it);
  cpu_for(device, d, 16, 2 * (double)it.parts, norm_parts_body, &it);
}
