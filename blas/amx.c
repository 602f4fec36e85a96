/* Matrix products of bfloat16 on the tiles of Intel's AMX (Sapphire Rapids and later; amx_tile.h).
 *
 * Both factors are first copied to tiles, float32 ones rounded to nearest, ties to even. Threads then divide C. Every
 * element of C is summed in the order of k, in float32, and rounded once: results depend on nothing else, neither on
 * the number of threads nor on the size of C. */
#include "blas/amx.h"

#ifdef BLAS_AMX

#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "blas/blas.h"
#include "blas/product.h"
#include "core/bfloat16.h"
#include "core/comm.h"
#include "core/parallel.h"
#include "core/status.h"

#ifdef __clang__
#pragma clang attribute push(                                                                                        \
  __attribute__((target("amx-tile,amx-bf16,avx512f,avx512bw,avx512vl,avx512bf16"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("amx-tile,amx-bf16,avx512f,avx512bw,avx512vl,avx512bf16")
#endif

#include "blas/amx_tile.h"

enum { STRIP = 2 * EDGE }; /* rows of two tiles */
/* Tiles along k that are multiplied before the next ones: two rows of them fit the first cache. */
enum { RUN = 16 };
/* Largest edge of a block of C: its sums, and RUN tiles of its rows and columns, fit the second cache. */
enum { BLOCK = 256 };
/* Multiply-adds and values from which several threads are faster than one. */
#define PARALLEL_WORK ((size_t)1 << 20)
#define PARALLEL_VALUES ((size_t)1 << 14)

static int amx_threads = 1;

static size_t amx_tiles(size_t n, size_t edge)
{
  return (n + edge - 1) / edge;
}

/* -- copies of the factors */

/* A factor as strips of 32 rows of op(A), or columns of op(B). Of each strip first the tile of all its k for its first
 * 16, then for its last: tile t of half h of strip s begins at ((2 s + h) depth + t) TILE. Zeros fill up. */
struct factor {
  const void *from;
  enum trm_value_type type;
  size_t ld;
  size_t count, k; /* rows of op(A) or columns of op(B), and their values */
  size_t depth;    /* tiles along k */
  bool along_k;    /* values of successive k follow one another in memory */
  bool is_b;
  bool is_read_in_place; /* a factor A in bfloat16 that consists of whole tiles: no copy */
  trm_bf16 *to;
};

static __m512i amx_load(const struct factor *f, size_t at, __mmask32 mask)
{
  return bf16_tile_load(f->type, f->from, at, mask);
}

/* Copies tile t of a half strip whose rows are contiguous along k. */
static void amx_copy_along_k(const struct factor *f, size_t first, size_t t, trm_bf16 *to)
{
  const __mmask32 mask = bf16_tile_mask(f->k - t * DEPTH);
  __m512i row[EDGE];

  for (size_t i = 0; i < EDGE; i++)
    row[i] = first + i < f->count ? amx_load(f, (first + i) * f->ld + t * DEPTH, mask) : _mm512_setzero_si512();
  bf16_tile_store(to, row, f->is_b);
}

/* Copies tile t of both halves of a strip whose values of one k are contiguous. */
static void amx_copy_across_k(const struct factor *f, size_t first, size_t t, trm_bf16 *to, size_t half)
{
  const __mmask32 mask = bf16_tile_mask(f->count - first);
  __m512i low[EDGE], high[EDGE];

  for (size_t i = 0; i < EDGE; i++) {
    const size_t k = t * DEPTH + 2 * i;
    __m512i even = _mm512_setzero_si512(), odd = even;

    if (k < f->k)
      even = amx_load(f, k * f->ld + first, mask);
    if (k + 1 < f->k)
      odd = amx_load(f, (k + 1) * f->ld + first, mask);
    bf16_tile_interleave(even, odd, &low[i], &high[i]);
  }
  bf16_tile_store(to, low, !f->is_b);
  bf16_tile_store(to + half, high, !f->is_b);
}

/* Copies strips [low, high), in the order of the values in memory. */
static void amx_copy_body(const void *context, size_t low, size_t high)
{
  const struct factor *f = context;
  const size_t half = f->depth * TILE;

  for (size_t s = low; f->along_k && s < high; s++)
    for (size_t h = 0; h < 2; h++)
      for (size_t t = 0; t < f->depth; t++)
        amx_copy_along_k(f, s * STRIP + h * EDGE, t, f->to + (2 * s + h) * half + t * TILE);
  for (size_t t = 0; !f->along_k && t < f->depth; t++)
    for (size_t s = low; s < high; s++)
      amx_copy_across_k(f, s * STRIP, t, f->to + 2 * s * half + t * TILE, half);
}

/* -- products of tiles */

/* Where a factor's tiles begin: the one at k = 32 t of half h of strip s at values + s strip + h half + t tile, its
 * rows line bytes apart. */
struct operand {
  const trm_bf16 *values;
  size_t strip, half, tile, line;
};

struct multiplication {
  const struct trm_gemm *product;
  struct operand a, b;
  size_t depth;              /* tiles along k */
  size_t strips_a, strips_b; /* of C */
  size_t rows, columns;      /* blocks of C */
};

/* Adds the products of n tiles from a and b of two strips to the 32 x 32 sums, or starts with them. Tile registers: 0
 * to 3 sums, 4 and 5 of A, 6 and 7 of B. */
static void amx_multiply_strips(const struct operand *a_of, const trm_bf16 *a, const struct operand *b_of,
                                const trm_bf16 *b, size_t n, float *sums, bool starts)
{
  if (starts) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  } else {
    _tile_loadd(0, sums, LINE);
    _tile_loadd(1, sums + SUMS, LINE);
    _tile_loadd(2, sums + 2 * SUMS, LINE);
    _tile_loadd(3, sums + 3 * SUMS, LINE);
  }
  for (size_t t = 0; t < n; t++, a += a_of->tile, b += b_of->tile) {
    _tile_stream_loadd(4, a, a_of->line);
    _tile_loadd(6, b, LINE);
    _tile_dpbf16ps(0, 4, 6);
    _tile_stream_loadd(5, a + a_of->half, a_of->line);
    _tile_dpbf16ps(2, 5, 6);
    _tile_loadd(7, b + b_of->half, LINE);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, sums, LINE);
  _tile_stored(1, sums + SUMS, LINE);
  _tile_stored(2, sums + 2 * SUMS, LINE);
  _tile_stored(3, sums + 3 * SUMS, LINE);
}

/* C = alpha sums + beta C for a strip's 32 x 32 elements, as far as C has them. */
static void amx_store_sums(const struct trm_gemm *p, const float *sums, size_t row, size_t column)
{
  const __mmask32 mask = bf16_tile_mask(p->n - column);
  const __mmask16 mask_low = (__mmask16)mask, mask_high = (__mmask16)(mask >> 16);
  const __m512 alpha = _mm512_set1_ps(p->alpha), beta = _mm512_set1_ps(p->beta);
  const size_t rows = p->m - row < STRIP ? p->m - row : STRIP;

  for (size_t i = 0; i < rows; i++) {
    const float *from = sums + i / EDGE * 2 * SUMS + i % EDGE * EDGE;
    __m512 low = _mm512_mul_ps(alpha, _mm512_load_ps(from)), high = _mm512_mul_ps(alpha, _mm512_load_ps(from + SUMS));

    if (p->type_c == TRM_VALUES_BF16) {
      _mm512_mask_storeu_epi16((trm_bf16 *)p->c + (row + i) * p->ldc + column, mask,
                               (__m512i)_mm512_cvtne2ps_pbh(high, low));
      continue;
    }
    float *c = (float *)p->c + (row + i) * p->ldc + column;
    if (p->beta != 0) {
      low = _mm512_fmadd_ps(beta, _mm512_maskz_loadu_ps(mask_low, c), low);
      high = _mm512_fmadd_ps(beta, _mm512_maskz_loadu_ps(mask_high, c + EDGE), high);
    }
    _mm512_mask_storeu_ps(c, mask_low, low);
    _mm512_mask_storeu_ps(c + EDGE, mask_high, high);
  }
}

/* Computes the strips [top, bottom) x [left, right) of C. */
static void amx_multiply_block(const struct multiplication *it, size_t top, size_t bottom, size_t left, size_t right,
                               float *sums)
{
  const size_t columns = right - left;

  for (size_t t = 0; t < it->depth; t += RUN) {
    const bool ends = t + RUN >= it->depth;
    const size_t n = ends ? it->depth - t : RUN;

    for (size_t j = left; j < right; j++)
      for (size_t i = top; i < bottom; i++) {
        float *own = sums + (t == 0 && ends ? 0 : ((i - top) * columns + j - left) * 4 * SUMS);

        amx_multiply_strips(&it->a, it->a.values + i * it->a.strip + t * it->a.tile, &it->b,
                            it->b.values + j * it->b.strip + t * it->b.tile, n, own, t == 0);
        if (ends)
          amx_store_sums(it->product, own, i * STRIP, j * STRIP);
      }
  }
}

static void amx_multiply_body(const void *context, size_t low, size_t high)
{
  const struct multiplication *it = context;
  float *sums = product_memory(PRODUCT_SUMS, BLOCK * BLOCK * sizeof(float));

  amx_tile_configure();
  for (size_t i = low; i < high; i++) {
    size_t top, bottom, left, right;

    trm_interval(it->strips_a, it->rows, i / it->columns, &top, &bottom);
    trm_interval(it->strips_b, it->columns, i % it->columns, &left, &right);
    amx_multiply_block(it, top, bottom, left, right, sums);
  }
  _tile_release();
}

/* Divides C into blocks of at most BLOCK x BLOCK, two for each thread where strips suffice. */
static void amx_divide(struct multiplication *it, int threads)
{
  it->rows = amx_tiles(it->strips_a, BLOCK / STRIP);
  it->columns = amx_tiles(it->strips_b, BLOCK / STRIP);
  while (it->rows * it->columns < 2 * (size_t)threads && (it->rows < it->strips_a || it->columns < it->strips_b)) {
    const bool high = it->strips_a * it->columns > it->strips_b * it->rows; /* blocks are higher than wide */
    size_t *parts = high ? &it->rows : &it->columns;
    const size_t limit = high ? it->strips_a : it->strips_b;

    *parts = 2 * *parts < limit ? 2 * *parts : limit;
  }
}

/* Copies a factor to `to`, unless its tiles can be read where it is. */
static struct operand amx_prepare(struct factor *f, trm_bf16 *to)
{
  const size_t half = f->depth * TILE;

  if (f->is_read_in_place)
    return (struct operand){f->from, STRIP * f->ld, EDGE * f->ld, DEPTH, f->ld * sizeof(trm_bf16)};
  f->to = to;
  trm_parallel_for(f->count * f->k >= PARALLEL_VALUES ? amx_threads : 1, amx_tiles(f->count, STRIP), amx_copy_body, f);
  return (struct operand){to, 2 * half, half, TILE, LINE};
}

static void amx_gemm(const struct trm_gemm *p)
{
  const size_t depth = amx_tiles(p->k, DEPTH), strips_a = amx_tiles(p->m, STRIP), strips_b = amx_tiles(p->n, STRIP);
  const bool in_place = p->type_ab == TRM_VALUES_BF16 && !p->transpose_a && p->k % DEPTH == 0 && p->m % STRIP == 0;
  struct factor a = {p->a, p->type_ab, p->lda, p->m, p->k, depth, !p->transpose_a, false, in_place, NULL};
  struct factor b = {p->b, p->type_ab, p->ldb, p->n, p->k, depth, p->transpose_b, true, false, NULL};
  const size_t values_a = in_place ? 0 : 2 * strips_a * depth * TILE, values_b = 2 * strips_b * depth * TILE;
  const int threads = p->m * p->n * p->k >= PARALLEL_WORK ? amx_threads : 1;

  if (p->m == 0 || p->n == 0)
    return;
  if (p->k == 0) {
    product_scale_c(p);
    return;
  }
  trm_bf16 *copies = product_memory(PRODUCT_FACTORS, (values_a + values_b) * sizeof(trm_bf16));
  struct multiplication it = {p, amx_prepare(&a, copies), amx_prepare(&b, copies + values_a), depth, strips_a, strips_b,
                              1, 1};
  amx_divide(&it, threads);
  trm_parallel_for(threads, it.rows * it.columns, amx_multiply_body, &it);
}

#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

/* -- opening */

/* Whether the processor has the instructions, and the system lets this process use the tiles (Linux 5.16 and later). */
static bool amx_supported(void)
{
  enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 }; /* arch_prctl(2) */
  unsigned a, b, c, d;

  if (!__builtin_cpu_supports("avx512bf16") || !__builtin_cpu_supports("avx512bw"))
    return false;
  __asm__("cpuid" : "=a"(a), "=b"(b), "=c"(c), "=d"(d) : "a"(7), "c"(0));
  return (d >> 22 & 1) && (d >> 24 & 1) && syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}

static const char *amx_detail(void)
{
  return "own products on AMX, factors in bfloat16";
}

static int amx_open(int threads)
{
  if (threads < 1)
    return trm_error(TRM_USAGE, "device.blas=amx: threads must be at least 1, not %d", threads);
  if (!amx_supported())
    return trm_error(TRM_FAILED, "device.blas=amx: this processor, or this system, has no AMX for bfloat16");
  amx_threads = threads;
  return TRM_OK;
}

const struct trm_blas_ops trm_blas_amx = {
  .name = "amx",
  .matmul = TRM_MATMUL_BF16,
  .supported = amx_supported,
  .detail = amx_detail,
  .open = amx_open,
  .gemm = amx_gemm,
};

#endif
