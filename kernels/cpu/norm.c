/* Normalization of rows: layer norm (Ba, Kiros, Hinton 2016) and RMS norm (Zhang & Sennrich 2019). */
#include <math.h>

#include "kernels/cpu/cpu.h"

/* Rows at a time: the additions of a row's sum, each of which waits for the one before, run beside the others'. */
enum { ROWS = 4 };

/* lane (CPU_LANES) += x or, with a mean, (x - mean)^2. */
CPU_INLINE void norm_add_terms(const float *x, const float *mean, size_t lanes, float *lane)
{
#pragma omp simd
  for (size_t l = 0; l < lanes; l++)
    lane[l] += mean ? (x[l] - *mean) * (x[l] - *mean) : x[l];
}

/* Computes the sums of rows of x (rows, d) of x or, with means (rows), of (x - mean)^2. */
CPU_INLINE void norm_sums(const float *x, size_t rows, size_t d, const float *mean, double *sum)
{
  for (size_t r = 0; r < rows; r++)
    sum[r] = 0;
  for (size_t low = 0; low < d; low += CPU_BLOCK) {
    const size_t high = d - low < CPU_BLOCK ? d : low + CPU_BLOCK;
    float lane[ROWS][CPU_LANES] = {{0}};
    size_t i = low;

    for (; i + CPU_LANES <= high; i += CPU_LANES)
      CPU_UNROLL
      for (size_t r = 0; r < rows; r++)
        norm_add_terms(x + r * d + i, mean ? mean + r : NULL, CPU_LANES, lane[r]);
    for (size_t r = 0; r < rows; r++) {
      norm_add_terms(x + r * d + i, mean ? mean + r : NULL, high - i, lane[r]);
      sum[r] += (double)cpu_lane_tree(lane[r]);
    }
  }
}

/* Row `row` of y from the same of x (D). */
CPU_INLINE void norm_forward_row(enum trm_value_type type, const struct trm_norm_forward *it, bool streams, size_t row,
                                 const float *x, float mean, float scale)
{
  const size_t d = it->d;
  struct cpu_block block;

  for (size_t low = 0; low < d; low += CPU_STEP) {
    const size_t n = d - low < CPU_STEP ? d - low : CPU_STEP;
    const float *gain = it->gain + low, *bias = it->bias ? it->bias + low : NULL;
    void *y = cpu_results(streams, type, it->y, row * d + low, n, &block);

    if (bias) {
#pragma omp simd
      for (size_t j = 0; j < n; j++)
        cpu_set(type, y, j, (x[low + j] - mean) * scale * gain[j] + bias[j]);
    } else {
#pragma omp simd
      for (size_t j = 0; j < n; j++)
        cpu_set(type, y, j, (x[low + j] - mean) * scale * gain[j]);
    }
    cpu_store_results(streams, type, it->y, row * d + low, n, &block);
  }
}

/* Rows [first, first + rows). Fetches as many further on. `buffer`: (rows, D), if x has another type than float. */
CPU_INLINE void norm_forward_rows(enum trm_value_type type, const struct trm_norm_forward *it, bool streams,
                                  size_t first, size_t rows, float *buffer)
{
  const size_t d = it->d;
  const float *x = cpu_read(type, cpu_at(type, it->x, first * d), buffer, rows * d);
  float mean[ROWS] = {0};
  double sum[ROWS];

  if (it->mean) {
    norm_sums(x, rows, d, NULL, sum);
    for (size_t r = 0; r < rows; r++)
      it->mean[first + r] = mean[r] = (float)(sum[r] / (double)d);
  }
  norm_sums(x, rows, d, mean, sum);
  for (size_t r = 0; r < rows; r++) {
    const float scale = (float)(1 / sqrt(sum[r] / (double)d + it->epsilon));

    it->scale[first + r] = scale;
    cpu_prefetch(type, it->x, (first + rows + r) * d, d);
    norm_forward_row(type, it, streams, first + r, x + r * d, mean[r], scale);
  }
}

struct norm_forward {
  enum trm_value_type type;
  const struct trm_norm_forward *call;
  float *buffers; /* (threads, ROWS, D) or NULL */
};

CPU_INLINE void norm_forward(enum trm_value_type type, const struct norm_forward *it, size_t low, size_t high)
{
  const struct trm_norm_forward *call = it->call;
  const bool streams = call->y != call->x && cpu_streams(type, call->y, (high - low) * call->d);
  float *buffer = it->buffers ? cpu_buffer(it->buffers, ROWS * call->d) : NULL;

  for (; low + ROWS <= high; low += ROWS)
    norm_forward_rows(type, call, streams, low, ROWS, buffer);
  for (; low < high; low++)
    norm_forward_rows(type, call, streams, low, 1, buffer);
  cpu_stream_end();
}

CPU_BODY_BY_TYPE(norm_forward, norm_forward)

void cpu_norm_forward(struct trm_device *device, const struct trm_norm_forward *call)
{
  const struct norm_forward it = {call->type, call, cpu_buffers(device, call->type, ROWS * call->d)};

  cpu_for(device, call->r, ROWS, 4 * (double)call->d, norm_forward_body, &it);
}

/* The division of rows into parts depends on their number only. dgain and dbias are summed in float within a part, and
 * over parts in double, in order. */
#define MAX_PARTS 256
#define MIN_ROWS 16

struct norm {
  const struct trm_norm_backward *call;
  enum trm_value_type type;
  float *sums;        /* (parts, 2, D): partial dgain and dbias */
  float *buffers;     /* (threads, 2, D): norm_row's g and n */
  size_t part, parts; /* part: rows per part */
};

/* A row backward: g = dy * gain, and n, the normalized x. */
struct norm_row {
  const float *x, *dy; /* (D); may be n, g */
  float mean, scale;
  float *g, *n; /* (D) */
};

/* Computes lanes columns of g and n from column `at` on, and adds to the sums of dgain and dbias (D), and to those of g
 * and g * n (CPU_LANES). */
CPU_INLINE void norm_backward_lanes(const struct norm_row *row, const float *gain, size_t at,
                                    size_t lanes, float *dgain, float *dbias, float *g_sum, float *gn_sum)
{
#pragma omp simd
  for (size_t l = 0; l < lanes; l++) {
    const float slope = row->dy[at + l], n = (row->x[at + l] - row->mean) * row->scale;
    const float g = slope * gain[at + l];

    dgain[at + l] += slope * n;
    dbias[at + l] += slope;
    g_sum[l] += g;
    gn_sum[l] += g * n;
    row->g[at + l] = g;
    row->n[at + l] = n;
  }
}

/* Fetches what is read AHEAD values after value `at`: a few rows, as each takes less time than a fetch. */
CPU_INLINE void norm_backward_prefetch(enum trm_value_type type, const struct trm_norm_backward *it, size_t at)
{
  enum { AHEAD = 1536 };

  cpu_prefetch(type, it->x, at + AHEAD, CPU_LANES);
  cpu_prefetch(type, it->dy, at + AHEAD, CPU_LANES);
}

/* Computes row i's g and n and their means, of g and of g * n, and adds to dgain and dbias. */
CPU_INLINE void norm_backward_sums(enum trm_value_type type, const struct trm_norm_backward *it, size_t i, float *g,
                                   float *n, float *dgain, float *dbias, float *g_mean, float *gn_mean)
{
  const size_t d = it->d;
  const struct norm_row row = {
    .x = cpu_read(type, cpu_at(type, it->x, i * d), n, d),
    .dy = cpu_read(type, cpu_at(type, it->dy, i * d), g, d),
    .mean = it->mean ? it->mean[i] : 0,
    .scale = it->scale[i],
    .g = g,
    .n = n,
  };
  double g_total = 0, gn_total = 0;

  for (size_t low = 0; low < d; low += CPU_BLOCK) {
    const size_t high = d - low < CPU_BLOCK ? d : low + CPU_BLOCK;
    float g_sum[CPU_LANES] = {0}, gn_sum[CPU_LANES] = {0};
    size_t at = low;

    for (; at + CPU_LANES <= high; at += CPU_LANES) {
      norm_backward_prefetch(type, it, i * d + at);
      norm_backward_lanes(&row, it->gain, at, CPU_LANES, dgain, dbias, g_sum, gn_sum);
    }
    norm_backward_lanes(&row, it->gain, at, high - at, dgain, dbias, g_sum, gn_sum);
    g_total += (double)cpu_lane_tree(g_sum);
    gn_total += (double)cpu_lane_tree(gn_sum);
  }
  *g_mean = it->mean ? (float)(g_total / (double)d) : 0; /* RMS norm subtracts no mean */
  *gn_mean = (float)(gn_total / (double)d);
}

/* Row `row` of dx. */
CPU_INLINE void norm_backward_row(enum trm_value_type type, const struct trm_norm_backward *it, bool streams,
                                  size_t row, const float *g, const float *n, float g_mean, float gn_mean)
{
  const size_t d = it->d;
  const float scale = it->scale[row];
  struct cpu_block block;

  for (size_t low = 0; low < d; low += CPU_STEP) {
    const size_t values = d - low < CPU_STEP ? d - low : CPU_STEP;
    void *dx = cpu_results(streams, type, it->dx, row * d + low, values, &block);

#pragma omp simd
    for (size_t j = 0; j < values; j++)
      cpu_set(type, dx, j, scale * (g[low + j] - g_mean - n[low + j] * gn_mean));
    cpu_store_results(streams, type, it->dx, row * d + low, values, &block);
  }
}

/* A work item is a part. */
CPU_INLINE void norm_backward(enum trm_value_type type, const struct norm *parts, size_t low, size_t high)
{
  const struct trm_norm_backward *it = parts->call;
  const size_t d = it->d;
  const bool streams = it->dx != it->x && it->dx != it->dy && cpu_streams(type, it->dx, (high - low) * parts->part * d);
  float *g = cpu_buffer(parts->buffers, 2 * d), *n = g + d;

  for (size_t p = low; p < high; p++) {
    float *dgain = parts->sums + 2 * p * d, *dbias = dgain + d;
    const size_t first = p * parts->part, end = it->r - first < parts->part ? it->r : first + parts->part;

    for (size_t j = 0; j < 2 * d; j++)
      dgain[j] = 0;
    for (size_t i = first; i < end; i++) {
      float g_mean, gn_mean;

      norm_backward_sums(type, it, i, g, n, dgain, dbias, &g_mean, &gn_mean);
      if (it->dx)
        norm_backward_row(type, it, streams, i, g, n, g_mean, gn_mean);
    }
  }
  cpu_stream_end();
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
  it.buffers = cpu_scratch(device, ((size_t)device->threads * cpu_buffer_stride(2 * d) + it.parts * 2 * d) *
                                     sizeof(float));
  it.sums = it.buffers + (size_t)device->threads * cpu_buffer_stride(2 * d);
  cpu_for(device, it.parts, 1, 8 * (double)(it.part * d), norm_backward_body, &it);
  cpu_for(device, d, 16, 2 * (double)it.parts, norm_parts_body, &it);
}
