/* Division of a product into blocks for threads. */
#include "blas/product.h"

#ifdef _OPENMP
#include <omp.h>
#endif

#include "core/comm.h"

/* Block sizes are multiples of the micro-kernels' size. */
#define STEP 16
/* Packing a row or column of a block costs about as much as computing this many elements. */
#define PACKING 8

int product_thread(void)
{
#ifdef _OPENMP
  return omp_get_thread_num();
#else
  return 0;
#endif
}

/* C = beta * C, for k = 0: libraries refuse a leading dimension of 0. */
static void product_scale_c(const struct product *p)
{
  for (size_t i = 0; i < p->m; i++)
    for (size_t j = 0; j < p->n; j++)
      p->c[i * p->ldc + j] = p->beta == 0 ? 0 : p->beta * p->c[i * p->ldc + j];
}

/* Interval `index` of `parts` of n rows or columns, a multiple of STEP; the last one includes the remainder. */
static void product_interval(size_t n, size_t parts, size_t index, size_t *low, size_t *high)
{
  trm_interval(n / STEP, parts, index, low, high);
  *low *= STEP;
  *high = index == parts - 1 ? n : *high * STEP;
}

/* Returns the size of the smallest and the largest interval. */
static size_t product_min_part(size_t n, size_t parts)
{
  return parts == 1 ? n : n / STEP / parts * STEP;
}

static size_t product_max_part(size_t n, size_t parts)
{
  return parts == 1 ? n : (n / STEP + parts - 1) / parts * STEP + n % STEP;
}

/* Finds the grid of at most limits->max_blocks blocks with the cheapest largest block; 1 x 1 for a small product. */
static void product_grid(const struct product *p, const struct product_limits *limits, size_t *rows, size_t *columns)
{
  double best = 0;

  *rows = *columns = 1;
  for (size_t r = 1; r <= limits->max_blocks; r++)
    for (size_t c = 1; c <= limits->max_blocks / r; c++) {
      const double height = (double)product_max_part(p->m, r), width = (double)product_max_part(p->n, c);
      const double cost = height * width + PACKING * (height + width);
      const size_t smallest = product_min_part(p->m, r) * product_min_part(p->n, c) * p->k;

      if ((r > 1 || c > 1) && (smallest < limits->min_work || cost >= best))
        continue;
      best = cost;
      *rows = r;
      *columns = c;
    }
}

void product_run(const struct product *p, const struct product_limits *limits, int threads, product_block *compute)
{
  size_t rows, columns;

  if (p->m == 0 || p->n == 0)
    return;
  if (p->k == 0) {
    product_scale_c(p);
    return;
  }
  product_grid(p, limits, &rows, &columns);
  const size_t blocks = rows * columns;
#ifdef _OPENMP
  const bool serial = blocks == 1 || threads == 1 || omp_in_parallel();
  const int caller = omp_get_thread_num();
#pragma omp parallel for num_threads((size_t)threads < blocks ? threads : (int)blocks) schedule(static, 1) if (!serial)
#else
  (void)threads;
#endif
  for (size_t i = 0; i < blocks; i++) {
    struct block block;

    product_interval(p->m, rows, i / columns, &block.top, &block.bottom);
    product_interval(p->n, columns, i % columns, &block.left, &block.right);
#ifdef _OPENMP
    compute(p, &block, serial ? caller : omp_get_thread_num());
#else
    compute(p, &block, 0);
#endif
  }
}
