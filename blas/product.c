/* Division of a product into blocks for threads. */
#include "blas/product.h"

#include <pthread.h>
#include <string.h>

#include "core/bfloat16.h"
#include "core/comm.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/parallel.h"
#include "core/status.h"

/* Elements below which one thread copies as fast as several. */
#define PARALLEL_MIN ((size_t)1 << 15)
/* Packing a row or column of a block costs about as much as computing this many elements. */
#define PACKING 8

void product_scale_c(const struct trm_gemm *p)
{
  float *c = p->c;

  for (size_t i = 0; i < p->m; i++)
    if (p->beta == 0)
      memset((char *)p->c + i * p->ldc * trm_value_bytes(p->type_c), 0, p->n * trm_value_bytes(p->type_c));
    else
      for (size_t j = 0; j < p->n; j++)
        c[i * p->ldc + j] *= p->beta;
}

/* Interval `index` of `parts` of n rows or columns, a multiple of step; the last one includes the remainder. */
static void product_interval(size_t n, size_t step, size_t parts, size_t index, size_t *low, size_t *high)
{
  *low = 0;
  *high = n;
  if (parts == 1)
    return;
  trm_interval(n / step, parts, index, low, high);
  *low *= step;
  *high = index == parts - 1 ? n : *high * step;
}

/* Returns the size of the smallest and the largest interval. */
static size_t product_min_part(size_t n, size_t step, size_t parts)
{
  return parts == 1 ? n : n / step / parts * step;
}

static size_t product_max_part(size_t n, size_t step, size_t parts)
{
  return parts == 1 ? n : (n / step + parts - 1) / parts * step + n % step;
}

/* Finds the grid of at most limits->max_blocks blocks with the cheapest largest block; 1 x 1 for a small product. */
static void product_grid(const struct trm_gemm *p, const struct product_limits *limits, size_t *rows, size_t *columns)
{
  const size_t row_step = limits->row_step, column_step = limits->column_step;
  double best = 0;

  *rows = *columns = 1;
  if (p->m * p->n * p->k < 2 * limits->min_work)
    return;
  for (size_t r = 1; r <= (row_step ? limits->max_blocks : 1); r++)
    for (size_t c = 1; c <= (column_step ? limits->max_blocks / r : 1); c++) {
      const double height = (double)product_max_part(p->m, row_step, r);
      const double width = (double)product_max_part(p->n, column_step, c);
      const double cost = (height * width + PACKING * (height + width)) * (c > 1 ? limits->part_of_rows : 1);
      const size_t smallest = product_min_part(p->m, row_step, r) * product_min_part(p->n, column_step, c) * p->k;

      if ((r > 1 || c > 1) && (smallest < limits->min_work || cost >= best))
        continue;
      best = cost;
      *rows = r;
      *columns = c;
    }
}

/* A product in a grid of blocks. */
struct grid {
  const struct trm_gemm *product;
  const struct product_limits *limits;
  product_block *compute;
  size_t rows, columns;
};

static void product_blocks_body(const void *context, size_t low, size_t high)
{
  const struct grid *it = context;

  for (size_t i = low; i < high; i++) {
    const struct trm_gemm *p = it->product;
    struct block block;

    product_interval(p->m, it->limits->row_step, it->rows, i / it->columns, &block.top, &block.bottom);
    product_interval(p->n, it->limits->column_step, it->columns, i % it->columns, &block.left, &block.right);
    it->compute(p, &block);
  }
}

void product_run(const struct trm_gemm *p, const struct product_limits *limits, int threads, product_block *compute)
{
  struct grid it = {.product = p, .limits = limits, .compute = compute};

  if (p->m == 0 || p->n == 0)
    return;
  if (p->k == 0) {
    product_scale_c(p);
    return;
  }
  product_grid(p, limits, &it.rows, &it.columns);
  trm_parallel_for(threads, it.rows * it.columns, product_blocks_body, &it);
}

/* A thread's memory, kept until it ends: fresh pages would cost more than copying factors. */
struct memory {
  void *data[PRODUCT_USES];
  size_t bytes[PRODUCT_USES];
};
static pthread_key_t memory_key;
static pthread_once_t memory_once = PTHREAD_ONCE_INIT;

static void product_free_memory(void *context)
{
  struct memory *memory = context;

  for (int i = 0; i < PRODUCT_USES; i++)
    trm_free(memory->data[i]);
  trm_free(memory);
}

static void product_make_memory_key(void)
{
  if (pthread_key_create(&memory_key, product_free_memory))
    trm_abort_on_error(trm_error(TRM_FAILED, "products: too many keys of threads"));
}

void *product_memory(enum product_use use, size_t bytes)
{
  pthread_once(&memory_once, product_make_memory_key);
  struct memory *memory = pthread_getspecific(memory_key);

  if (!memory) {
    memory = trm_alloc(sizeof *memory, "products");
    pthread_setspecific(memory_key, memory);
  }
  if (memory->bytes[use] < bytes) {
    trm_free(memory->data[use]);
    memory->data[use] = trm_alloc(bytes, "copies of a product's factors");
    memory->bytes[use] = bytes;
  }
  return memory->data[use];
}

/* -- bfloat16 arrays with products of float32 */

struct widening {
  const trm_bf16 *from;
  float *to;
  size_t columns, ld;
};

static void product_widen_body(const void *context, size_t low, size_t high)
{
  const struct widening *it = context;

  for (size_t i = low; i < high; i++)
    trm_bf16_widen(it->to + i * it->columns, it->from + i * it->ld, it->columns);
}

/* Widens a matrix (rows, columns) to to (rows, columns), packed. */
static const float *product_widen(const trm_bf16 *from, size_t rows, size_t columns, size_t *ld, int threads, float *to)
{
  const struct widening it = {from, to, columns, *ld};

  trm_parallel_for(rows * columns >= PARALLEL_MIN ? threads : 1, rows, product_widen_body, &it);
  *ld = columns;
  return to;
}

void product_run_widened(const struct trm_gemm *p, const struct product_limits *limits, int threads,
                         product_block *compute)
{
  const size_t a = p->type_ab == TRM_VALUES_F32 ? 0 : p->m * p->k, b = p->type_ab == TRM_VALUES_F32 ? 0 : p->k * p->n;
  const size_t c = p->type_c == TRM_VALUES_F32 ? 0 : p->m * p->n;
  struct trm_gemm it = *p;

  if (a + b + c == 0 || p->m == 0 || p->n == 0 || p->k == 0) {
    product_run(p, limits, threads, compute);
    return;
  }
  float *memory = product_memory(PRODUCT_FACTORS, (a + b + c) * sizeof(float));
  if (p->type_ab == TRM_VALUES_BF16) {
    it.a = product_widen(p->a, p->transpose_a ? p->k : p->m, p->transpose_a ? p->m : p->k, &it.lda, threads, memory);
    it.b = product_widen(p->b, p->transpose_b ? p->n : p->k, p->transpose_b ? p->k : p->n, &it.ldb, threads,
                         memory + a);
    it.type_ab = TRM_VALUES_F32;
  }
  if (p->type_c == TRM_VALUES_BF16) {
    it.c = memory + a + b;
    it.ldc = p->n;
    it.type_c = TRM_VALUES_F32;
  }
  product_run(&it, limits, threads, compute);
  for (size_t i = 0; p->type_c == TRM_VALUES_BF16 && i < p->m; i++)
    trm_bf16_narrow((trm_bf16 *)p->c + i * p->ldc, memory + a + b + i * p->n, p->n);
}
