/* Bias: added to every row; its gradient is the sum over rows. */
#include "kernels/cpu/cpu.h"

CPU_INLINE void bias_add(enum trm_value_type type, const struct trm_bias_add *it, size_t low, size_t high)
{
  const size_t n = it->n;
  const float *bias = it->bias;

  for (size_t i = low; i < high; i++) {
    void *y = cpu_at(type, it->y, i * n);

    for (size_t first = 0; first < n; first += CPU_STEP) {
      const size_t end = n - first < CPU_STEP ? n : first + CPU_STEP;

      cpu_prefetch_write(type, y, first + CPU_AHEAD, CPU_STEP);
#pragma omp simd
      for (size_t j = first; j < end; j++)
        cpu_set(type, y, j, cpu_value(type, y, j) + bias[j]);
    }
  }
}

CPU_BODY_BY_TYPE(bias_add, trm_bias_add)

void cpu_bias_add(struct trm_device *device, const struct trm_bias_add *call)
{
  cpu_for(device, call->b, 1, (double)call->n, bias_add_body, call);
}

/* A work item is a column. Rows are added in blocks of SUM_ROWS in float, blocks in double, in order: a column's sum
 * does not depend on the interval. */
#define SUM_ROWS 16
#define SUM_COLUMNS 2048

/* Adds the columns' sums over the rows dy (rows, ld) to total (width). Reads from all rows at once: one that is far
 * away does not delay the others. Fetches as many rows further on. */
CPU_INLINE void bias_add_rows(enum trm_value_type type, const void *dy, size_t ld, size_t rows, size_t width,
                              double *total)
{
  for (size_t first = 0; first < width; first += CPU_STEP) {
    const size_t end = width - first < CPU_STEP ? width : first + CPU_STEP;

    for (size_t i = rows; i < 2 * rows; i++)
      cpu_prefetch(type, dy, i * ld + first, CPU_STEP);
    for (size_t j = first; j < end; j++) {
      float sum = 0;

      for (size_t i = 0; i < rows; i++)
        sum += cpu_value(type, dy, i * ld + j);
      total[j] += sum;
    }
  }
}

CPU_INLINE void bias_backward(enum trm_value_type type, const struct trm_bias_backward *it, size_t low, size_t high)
{
  const size_t n = it->n, rest = it->b % SUM_ROWS;
  double total[SUM_COLUMNS];

  for (size_t first = low; first < high; first += SUM_COLUMNS) {
    const size_t width = high - first < SUM_COLUMNS ? high - first : SUM_COLUMNS;
    const void *dy = cpu_at(type, it->dy, first);
    float *db = it->db + first;

    for (size_t j = 0; j < width; j++)
      total[j] = 0;
    for (size_t row = 0; row < it->b - rest; row += SUM_ROWS)
      bias_add_rows(type, cpu_at(type, dy, row * n), n, SUM_ROWS, width, total);
    bias_add_rows(type, cpu_at(type, dy, (it->b - rest) * n), n, rest, width, total);
    for (size_t j = 0; j < width; j++)
      db[j] = it->beta == 0 ? (float)total[j] : (float)((double)it->beta * db[j] + total[j]);
  }
}

CPU_BODY_BY_TYPE(bias_backward, trm_bias_backward)

void cpu_bias_backward(struct trm_device *device, const struct trm_bias_backward *call)
{
  cpu_for(device, call->n, 64, (double)call->b, bias_backward_body, call);
}
