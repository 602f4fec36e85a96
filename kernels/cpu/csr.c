/* Products with sparse rows. */
#include "kernels/cpu/cpu.h"

struct product {
  const struct trm_csr *x; /* (B, K) */
  const float *w;          /* (N, K) */
  float *y;                /* (B, N) */
  const float *dy;         /* (B, N) */
  float *dw;               /* (N, K) */
  float beta;
  size_t n;
};

static size_t csr_entries(const struct trm_csr *x)
{
  return x->rows > 0 ? (size_t)(x->starts[x->rows] - x->starts[0]) : 0;
}

/* A work item is one output of one row. */
CPU_CLONES static void csr_forward_body(const void *arguments, size_t low, size_t high)
{
  const struct product *it = arguments;
  const struct trm_csr *x = it->x;

  for (size_t item = low; item < high; item++) {
    const size_t row = item / it->n;
    const float *w = it->w + item % it->n * x->features;
    const size_t begin = (size_t)(x->starts[row] - x->starts[0]), end = (size_t)(x->starts[row + 1] - x->starts[0]);
    float term[CPU_BLOCK];
    double total = 0;

    for (size_t first = begin; first < end; first += CPU_BLOCK) {
      const size_t width = end - first < CPU_BLOCK ? end - first : CPU_BLOCK;
#pragma omp simd
      for (size_t e = 0; e < width; e++)
        term[e] = x->values[first + e] * w[x->columns[first + e]];
      total += cpu_lane_sum(term, width);
    }
    it->y[item] = (float)total;
  }
}

void cpu_csr_forward(struct trm_device *device, const struct trm_csr *x, const float *w, float *y, size_t n)
{
  const struct product it = {.x = x, .w = w, .y = y, .n = n};
  const size_t items = x->rows * n;

  if (items > 0)
    cpu_for(device, items, 16, 2 + 2 * (double)csr_entries(x) / (double)x->rows, csr_forward_body, &it);
}

/* dw[o, low..high) of one output; terms are added in the order of the rows. */
static void csr_backward_output(const struct product *it, size_t o, size_t low, size_t high)
{
  const struct trm_csr *x = it->x;
  float *dw = it->dw + o * x->features;

  if (it->beta == 0)
    for (size_t j = low; j < high; j++)
      dw[j] = 0;
  for (size_t row = 0; row < x->rows; row++) {
    const float dy = it->dy[row * it->n + o];
    size_t e = (size_t)(x->starts[row] - x->starts[0]), end = (size_t)(x->starts[row + 1] - x->starts[0]);

    if (low > 0) /* first entry with column >= low */
      for (size_t past = end; e < past;) {
        const size_t middle = e + (past - e) / 2;

        if ((size_t)x->columns[middle] < low)
          e = middle + 1;
        else
          past = middle;
      }
    for (; e < end && (size_t)x->columns[e] < high; e++)
      dw[x->columns[e]] += dy * x->values[e];
  }
}

static void csr_backward_outputs_body(const void *arguments, size_t low, size_t high)
{
  const struct product *it = arguments;

  for (size_t o = low; o < high; o++)
    csr_backward_output(it, o, 0, it->x->features);
}

static void csr_backward_columns_body(const void *arguments, size_t low, size_t high)
{
  const struct product *it = arguments;

  for (size_t o = 0; o < it->n; o++)
    csr_backward_output(it, o, low, high);
}

void cpu_csr_backward(struct trm_device *device, const struct trm_csr *x, const float *dy, float beta, float *dw,
                      size_t n)
{
  const struct product it = {.x = x, .dy = dy, .dw = dw, .beta = beta, .n = n};
  const double work = 4 * (double)csr_entries(x) + (double)x->features; /* per output */

  if (x->features == 0)
    return;
  if (n >= (size_t)device->threads)
    cpu_for(device, n, 1, work, csr_backward_outputs_body, &it);
  else
    cpu_for(device, x->features, 16, work * (double)n / (double)x->features, csr_backward_columns_body, &it);
}
