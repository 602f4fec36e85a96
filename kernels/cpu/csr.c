/* Products with sparse rows. */
#include "kernels/cpu/cpu.h"

/* A work item is one output of one row. */
CPU_INLINE void csr_forward(enum trm_value_type type, const struct trm_csr_forward *it, size_t low, size_t high)
{
  const struct trm_csr *x = &it->x;

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
    cpu_set(type, it->y, item, (float)total);
  }
}

CPU_BODY_BY_TYPE(csr_forward, trm_csr_forward)

void cpu_csr_forward(struct trm_device *device, const struct trm_csr_forward *call)
{
  const size_t rows = call->x.rows, items = rows * call->n;

  if (items > 0)
    cpu_for(device, items, 16, 2 + 2 * (double)call->x.entries / (double)rows, csr_forward_body, call);
}

/* dw[o, low..high) of one output; terms are added in the order of the rows. */
static void csr_backward_output(const struct trm_csr_backward *it, size_t o, size_t low, size_t high)
{
  const struct trm_csr *x = &it->x;
  float *dw = it->dw + o * x->features;

  if (it->beta == 0)
    for (size_t j = low; j < high; j++)
      dw[j] = 0;
  for (size_t row = 0; row < x->rows; row++) {
    const float dy = cpu_value(it->type, it->dy, row * it->n + o);
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
  const struct trm_csr_backward *it = arguments;

  for (size_t o = low; o < high; o++)
    csr_backward_output(it, o, 0, it->x.features);
}

static void csr_backward_columns_body(const void *arguments, size_t low, size_t high)
{
  const struct trm_csr_backward *it = arguments;

  for (size_t o = 0; o < it->n; o++)
    csr_backward_output(it, o, low, high);
}

void cpu_csr_backward(struct trm_device *device, const struct trm_csr_backward *call)
{
  const size_t features = call->x.features, n = call->n;
  const double work = 4 * (double)call->x.entries + (double)features; /* per output */

  if (features == 0)
    return;
  if (n >= (size_t)device->threads)
    cpu_for(device, n, 1, work, csr_backward_outputs_body, call);
  else
    cpu_for(device, features, 16, work * (double)n / (double)features, csr_backward_columns_body, call);
}
