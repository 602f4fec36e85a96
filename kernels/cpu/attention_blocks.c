/* Products of blocks in bfloat16 (contract: attention.h): by the tiles of Intel's AMX, and by AVX-512. */
#include "blas/blas.h"
#include "kernels/cpu/attention.h"

#ifdef BLAS_AMX
static bool attention_amx_supported(void)
{
  return trm_blas_amx.supported() && __builtin_cpu_supports("avx512dq");
}

static bool attention_avx512_supported(void)
{
  return __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

#ifdef __clang__
#pragma clang attribute push(__attribute__((target("amx-tile,amx-bf16,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16," \
                                                   "prfchw"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("amx-tile,amx-bf16,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,prfchw")
#endif

#include "blas/amx_tile.h"
#include "kernels/cpu/attention_bf16.h"

/* -- AMX */

static void attention_amx_end(void)
{
  _tile_release();
}

/* Tile registers 0 to 3 have the sums, 4 and 5 factors A, 6 and 7 factors B. */
static void attention_amx_multiply(const union tile *a, size_t step_a, const union tile *b, size_t step_b, size_t n,
                                   bool adds, union tile *sums)
{
  amx_tile_written(a);
  if (adds) {
    _tile_loadd(0, sums, LINE);
    _tile_loadd(1, sums + 1, LINE);
    _tile_loadd(2, sums + 2, LINE);
    _tile_loadd(3, sums + 3, LINE);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  for (; n > 0; n--, a += step_a, b += step_b) {
    _tile_loadd(4, a, LINE);
    _tile_loadd(6, b, LINE);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(5, a + 1, LINE);
    _tile_dpbf16ps(2, 5, 6);
    _tile_loadd(7, b + 1, LINE);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, sums, LINE);
  _tile_stored(1, sums + 1, LINE);
  _tile_stored(2, sums + 2, LINE);
  _tile_stored(3, sums + 3, LINE);
}

static const struct attention_blocks attention_amx = {"amx", attention_amx_supported, amx_tile_configure,
                                                      attention_amx_end, attention_amx_multiply};

/* -- AVX-512 */

/* Rows of sums at a time: two vectors of each, those of B and one of A fit into the registers. */
enum { ROWS = 8 };

/* sum (ROWS, 2) += the product of rows of tile a, from pair `first` on, and the two tiles at b. */
CPU_INLINE void attention_avx512_add(const union tile *a, size_t first, const union tile *b, __m512 sum[ROWS][2])
{
  for (size_t k = 0; k < EDGE; k++) {
    const __m512bh low = (__m512bh)_mm512_load_si512(b[0].pairs + k * EDGE);
    const __m512bh high = (__m512bh)_mm512_load_si512(b[1].pairs + k * EDGE);

    CPU_UNROLL for (size_t i = 0; i < ROWS; i++) {
      const __m512bh x = (__m512bh)_mm512_set1_epi32((int)a->pairs[first + i * EDGE + k]);

      sum[i][0] = _mm512_dpbf16_ps(sum[i][0], x, low);
      sum[i][1] = _mm512_dpbf16_ps(sum[i][1], x, high);
    }
  }
}

static void attention_avx512_multiply(const union tile *a, size_t step_a, const union tile *b, size_t step_b, size_t n,
                                      bool adds, union tile *sums)
{
  for (size_t row = 0; row < 2 * EDGE; row += ROWS) {
    const size_t tile = row / EDGE, first = row % EDGE * EDGE;
    float *to[2] = {sums[2 * tile].sums + first, sums[2 * tile + 1].sums + first};
    __m512 sum[ROWS][2];

    CPU_UNROLL for (size_t i = 0; i < ROWS; i++)
      CPU_UNROLL for (size_t h = 0; h < 2; h++)
        sum[i][h] = adds ? _mm512_load_ps(to[h] + i * EDGE) : _mm512_setzero_ps();
    for (size_t k = 0; k < n; k++)
      attention_avx512_add(a + k * step_a + tile, first, b + k * step_b, sum);
    CPU_UNROLL for (size_t i = 0; i < ROWS; i++)
      CPU_UNROLL for (size_t h = 0; h < 2; h++)
        _mm512_store_ps(to[h] + i * EDGE, sum[i][h]);
  }
}

static void attention_avx512_nothing(void)
{
}

static const struct attention_blocks attention_avx512_bf16 = {
  "avx512_bf16", attention_avx512_supported, attention_avx512_nothing, attention_avx512_nothing,
  attention_avx512_multiply};

#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

const struct attention_blocks *const attention_blocks_table[] = {&attention_amx, &attention_avx512_bf16, NULL};

#else

const struct attention_blocks *const attention_blocks_table[] = {NULL};
#endif
