/* Images in bfloat16 with their channels last, the layout of oneDNN's kernels for AMX: 16 x 16 values at a time, in the
 * registers of AVX2, which every processor has that the library computes bfloat16 on; faster than its own reorder. */
#include "kernels/cpu/conv_onednn.h"

#ifdef __x86_64__
#include <immintrin.h>

#include "kernels/cpu/conv.h"

enum { TILE = 16 };

/* to (16, 16), rows `to_step` values apart, is the transposed of from, rows `step` values apart. */
__attribute__((target("avx2"))) static void transpose_tile(trm_bf16 *to, size_t to_step, const trm_bf16 *from,
                                                           size_t step)
{
  __m256i a[TILE], b[TILE];

  for (size_t i = 0; i < TILE; i++)
    a[i] = _mm256_loadu_si256((const __m256i *)(from + i * step));
  for (size_t i = 0; i < TILE; i += 2) { /* pairs of rows: values in turn */
    b[i] = _mm256_unpacklo_epi16(a[i], a[i + 1]);
    b[i + 1] = _mm256_unpackhi_epi16(a[i], a[i + 1]);
  }
  for (size_t i = 0; i < TILE; i += 4) /* of four rows */
    for (size_t j = 0; j < 2; j++) {
      a[i + 2 * j] = _mm256_unpacklo_epi32(b[i + j], b[i + j + 2]);
      a[i + 2 * j + 1] = _mm256_unpackhi_epi32(b[i + j], b[i + j + 2]);
    }
  for (size_t i = 0; i < TILE; i += 8) /* of eight */
    for (size_t j = 0; j < 4; j++) {
      b[i + 2 * j] = _mm256_unpacklo_epi64(a[i + j], a[i + j + 4]);
      b[i + 2 * j + 1] = _mm256_unpackhi_epi64(a[i + j], a[i + j + 4]);
    }
  for (size_t j = 0; j < TILE / 2; j++) { /* columns 0 to 7 are in the lower halves, 8 to 15 in the upper ones */
    _mm256_storeu_si256((__m256i *)(to + j * to_step), _mm256_permute2x128_si256(b[j], b[j + 8], 0x20));
    _mm256_storeu_si256((__m256i *)(to + (j + 8) * to_step), _mm256_permute2x128_si256(b[j], b[j + 8], 0x31));
  }
}

void conv_transpose_bf16(trm_bf16 *to, const trm_bf16 *from, size_t images, size_t rows, size_t columns)
{
  for (size_t image = 0; image < images; image++, to += rows * columns, from += rows * columns)
    for (size_t i = 0; i < rows; i += TILE)
      for (size_t j = 0; j < columns; j += TILE) {
        const size_t low = conv_min(TILE, rows - i), wide = conv_min(TILE, columns - j);

        if (low == TILE && wide == TILE)
          transpose_tile(to + j * rows + i, rows, from + i * columns + j, columns);
        for (size_t k = 0; k < low && (low < TILE || wide < TILE); k++)
          for (size_t l = 0; l < wide; l++)
            to[(j + l) * rows + i + k] = from[(i + k) * columns + j + l];
      }
}

#else
void conv_transpose_bf16(trm_bf16 *to, const trm_bf16 *from, size_t images, size_t rows, size_t columns)
{
  for (size_t image = 0; image < images; image++, to += rows * columns, from += rows * columns)
    for (size_t i = 0; i < rows; i++)
      for (size_t j = 0; j < columns; j++)
        to[j * rows + i] = from[i * columns + j];
}
#endif
