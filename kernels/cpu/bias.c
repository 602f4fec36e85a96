/* Bias: added to every row; its gradient is the sum over rows. */
#include "kernels/cpu/values.h"

CPU_CLONES static void bias_add_body(const void *arguments, size_t low, size_t high)
{
  const struct trm_bias_add *it = arguments;
  const size_t n = it->n;
  const float *bias = it->bias;

  for (size_t i = low; i < high; i++) {
    float *y = (float *)it->y + i * n;

#pragma omp simd
    for (size_t j = 0; j < n; j++)
      y[j] += bias[j];
  }
}

void cpu_bias_add(struct trm_device *device, const struct trm_bias_add *call)
{
  cpu_for_values(device, call->b, 1, (double)call->n, bias_add_body, call,
                 CPU_VALUES(call->type, *call, CPU_UPDATES(*call, y, call->n)));
}

/* A work item is a column. Rows are added in blocks of SUM_ROWS in float, blocks in double, in order: a column's sum
 * does not depend on the interval. */
#define SUM_ROWS 16
#define SUM_COLUMNS 512

CPU_CLONES static void bias_backward_body(const void *arguments, size_t low, size_t high)
{
  const struct trm_bias_backward *it = arguments;
  const size_t n = it->n;
  double total[SUM_COLUMNS];
  float block[SUM_COLUMNS], widened[SUM_COLUMNS];

  for (size_t first = low; first < high; first += SUM_COLUMNS) {
    const size_t width = high - first < SUM_COLUMNS ? high - first : SUM_COLUMNS;
    float *db = it->db + first;

    for (size_t j = 0; j < width; j++)
      total[j] = 0;
    for (size_t row = 0; row < it->b; row += SUM_ROWS) {
      const size_t end = it->b - row < SUM_ROWS ? it->b : row + SUM_ROWS;

      for (size_t j = 0; j < width; j++)
        block[j] = 0;
      for (size_t i = row; i < end; i++) {
        const float *dy = cpu_read(it->type, it->dy, i * n + first, width, widened);

#pragma omp simd
        for (size_t j = 0; j < width; j++)
          block[j] += dy[j];
      }
#pragma omp simd
      for (size_t j = 0; j < width; j++)
        total[j] += block[j];
    }
    for (size_t j = 0; j < width; j++)
      db[j] = it->beta == 0 ? (float)total[j] : (float)((double)it->beta * db[j] + total[j]);
  }
}

void cpu_bias_backward(struct trm_device *device, const struct trm_bias_backward *call)
{
  cpu_for(device, call->n, 64, (double)call->b, bias_backward_body, call);
}
