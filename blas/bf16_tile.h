/* Tiles of values in bfloat16, and what fills them, for files that are compiled for processors with AVX-512 and its
 * bfloat16 instructions. Private to blas and kernels/cpu.
 *
 * A tile of the first factor of a product has 16 rows of 32 values of k. One of the second has 16 rows of two values of
 * k, with those of 16 columns interleaved. Intel's AMX has the same tiles (amx_tile.h); an instruction of AVX-512
 * multiplies and adds two values of k for each of 16 sums. */
#pragma once

#include <immintrin.h>
#include <stdbool.h>
#include <stddef.h>

#include "core/bfloat16.h"

/* Edge of a tile; values of k in it, and in all of its rows. */
enum { EDGE = 16, DEPTH = 32, TILE = EDGE * DEPTH };
enum { LINE = 64, SUMS = EDGE * EDGE }; /* bytes of a tile's row; sums in a tile */

/* Bits for the first n of 32 values. */
static inline __mmask32 bf16_tile_mask(size_t n)
{
  return n >= 32 ? 0xffffffffu : (1u << n) - 1;
}

/* Loads 32 values in bfloat16 from element `at` on, zeros where mask has none; float32 ones are rounded to nearest,
 * ties to even. */
static inline __m512i bf16_tile_load(enum trm_value_type type, const void *values, size_t at, __mmask32 mask)
{
  if (type == TRM_VALUES_F32) {
    const float *from = (const float *)values + at;
    const __m512 low = _mm512_maskz_loadu_ps((__mmask16)mask, from);
    const __m512 high = _mm512_maskz_loadu_ps((__mmask16)(mask >> 16), from + 16);

    return (__m512i)_mm512_cvtne2ps_pbh(high, low);
  }
  return _mm512_maskz_loadu_epi16(mask, (const trm_bf16 *)values + at);
}

/* Interleaves two rows of 32 values: low has the first 16 of both, high the last. */
static inline void bf16_tile_interleave(__m512i even, __m512i odd, __m512i *low, __m512i *high)
{
  *low = _mm512_or_si512(_mm512_cvtepu16_epi32(_mm512_castsi512_si256(even)),
                         _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm512_castsi512_si256(odd)), 16));
  *high = _mm512_or_si512(_mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(even, 1)),
                          _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(odd, 1)), 16));
}

/* Transposes 16 x 16 values of 32 bits. */
static inline void bf16_tile_transpose(__m512i r[EDGE])
{
  __m512i t[EDGE];

  for (int i = 0; i < EDGE; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
  for (int i = 0; i < EDGE; i += 4)
    for (int j = 0; j < 2; j++) {
      r[i + 2 * j] = _mm512_unpacklo_epi64(t[i + j], t[i + j + 2]);
      r[i + 2 * j + 1] = _mm512_unpackhi_epi64(t[i + j], t[i + j + 2]);
    }
  for (int i = 0; i < 4; i++) {
    t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
    t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
    t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
    t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
  }
  for (int i = 0; i < 8; i++) {
    r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
    r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
  }
}

/* Stores a tile's rows, or its columns if `transposed`. */
static inline void bf16_tile_store(void *tile, __m512i row[EDGE], bool transposed)
{
  if (transposed)
    bf16_tile_transpose(row);
  for (int i = 0; i < EDGE; i++)
    _mm512_storeu_si512((char *)tile + i * LINE, row[i]);
}
