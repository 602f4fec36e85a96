/* Attention with factors in bfloat16: a head's copies in tiles, and results, as forward and backward use them. Private
 * to the files attention_bf16*.c and attention_blocks.c, compiled for processors with AVX-512's bfloat16 instructions.
 *
 * A head is copied to tiles once, in each form that its products read; zeros fill up the last block of positions and of
 * values. Blocks that the mask leaves out are skipped. Each sum runs over blocks of 32 terms in order, whatever the
 * number of threads, samples, and queries that are computed. */
#pragma once

#include <math.h>

#include "blas/bf16_tile.h"
#include "kernels/cpu/attention.h"

/* Positions, and values of a head, of a block: two tiles. */
enum { BLOCK = 2 * EDGE };
#define LOG2_E 1.442695041f

union tile {
  trm_bf16 values[TILE];
  uint32_t pairs[EDGE * EDGE]; /* of values of k */
  float sums[SUMS];
};

static inline size_t attention_bf16_blocks_of(size_t n)
{
  return (n + BLOCK - 1) / BLOCK;
}

struct attention_bf16 {
  const struct trm_attention *shape;
  const struct attention_blocks *products;
  enum trm_value_type type;
  const void *qkv; /* (B, T, 3, H, E) */
  const void *y;   /* (B, T - first, H, E) */
  float *row;      /* (B, H, T - first, 2): maximum of the scaled scores, 1 / sum of the exponentials */
  const void *dy;  /* (B, T, H, E) */
  void *to;        /* y, or the gradient of qkv */
  union tile *scratch; /* (threads, per_thread) */
  size_t per_thread;
  size_t blocks, depth; /* blocks of positions, of a head's values */
  size_t first;         /* block of the first query that is computed */
};

/* -- copies of a head */

/* Rows of a head in an array, (T, E; ld) from element `at` on. */
struct matrix {
  enum trm_value_type type;
  const void *values;
  size_t at, ld, rows, columns;
};

/* Copies X (T, E) to tiles, zeros beyond it. Each copy is (T / 32, E / 32, 2) tiles; NULL: not wanted. */
struct copies {
  union tile *rows, *columns;     /* X as a first factor; transposed X as a second: a sum over E */
  union tile *pairs, *transposed; /* X as a second factor; transposed X as a first: a sum over T */
};

/* Copies block b of positions, block t of values. */
static inline void attention_bf16_copy_block(const struct matrix *m, size_t b, size_t t, const struct copies *to,
                                             size_t at)
{
  const __mmask32 mask = bf16_tile_mask(m->columns - t * BLOCK);
  __m512i row[BLOCK], low[EDGE], high[EDGE];

  for (size_t i = 0; i < BLOCK; i++)
    row[i] = b * BLOCK + i < m->rows
               ? bf16_tile_load(m->type, m->values, m->at + (b * BLOCK + i) * m->ld + t * BLOCK, mask)
               : _mm512_setzero_si512();
  for (size_t i = 0; (to->pairs || to->transposed) && i < EDGE; i++)
    bf16_tile_interleave(row[2 * i], row[2 * i + 1], &low[i], &high[i]);
  if (to->rows) {
    bf16_tile_store(to->rows + at, row, false);
    bf16_tile_store(to->rows + at + 1, row + EDGE, false);
  }
  if (to->columns) {
    bf16_tile_store(to->columns + at, row, true);
    bf16_tile_store(to->columns + at + 1, row + EDGE, true);
  }
  if (to->pairs) {
    bf16_tile_store(to->pairs + at, low, false);
    bf16_tile_store(to->pairs + at + 1, high, false);
  }
  if (to->transposed) {
    bf16_tile_store(to->transposed + at, low, true);
    bf16_tile_store(to->transposed + at + 1, high, true);
  }
}

static inline void attention_bf16_copy(const struct attention_bf16 *it, const struct matrix *m, const struct copies *to)
{
  for (size_t b = 0; b < it->blocks; b++)
    for (size_t t = 0; t < it->depth; t++)
      attention_bf16_copy_block(m, b, t, to, 2 * (b * it->depth + t));
}

/* Queries (part 0), keys (1) or values (2) of head `number` of the batch. */
static inline struct matrix attention_bf16_part(const struct attention_bf16 *it, size_t number, size_t part)
{
  const struct trm_attention *shape = it->shape;
  const size_t e = shape->head_dim, d = shape->heads * e, b = number / shape->heads, h = number % shape->heads;

  return (struct matrix){it->type, it->qkv, (b * shape->t * 3 + part) * d + h * e, 3 * d, shape->t, e};
}

/* y or dy of it, in backward. */
static inline struct matrix attention_bf16_of_y(const struct attention_bf16 *it, size_t number, const void *values)
{
  const struct trm_attention *shape = it->shape;
  const size_t e = shape->head_dim, d = shape->heads * e, b = number / shape->heads, h = number % shape->heads;

  return (struct matrix){it->type, values, b * shape->t * d + h * e, d, shape->t, e};
}

/* Arrays of the next head, which are fetched into the second cache while this one is computed: the processor's own
 * prefetching does not follow rows with gaps. A few rows at a time: it has few reads in progress, and what is computed
 * would wait for those. */
struct ahead {
  struct matrix matrix[8];
  size_t count, written; /* matrices, and the first that will be written */
  size_t row, rows, step; /* the next row of all of them, and rows for each product of scores */
};

CPU_INLINE void attention_bf16_fetch_rows(const struct matrix *m, size_t low, size_t high, const bool writes)
{
  enum { TO_SECOND_CACHE = 2 };
  const size_t bytes = trm_value_bytes(m->type), row = m->columns * bytes, ld = m->ld * bytes;
  const char *first = (const char *)m->values + m->at * bytes + low * ld;

  for (; low < high; low++, first += ld)
    for (const char *line = first; line < first + row; line += LINE)
      if (writes)
        __builtin_prefetch(line, 1, TO_SECOND_CACHE);
      else
        __builtin_prefetch(line, 0, TO_SECOND_CACHE);
}

static inline void attention_bf16_fetch(struct ahead *ahead)
{
  const size_t low = ahead->row, high = low + ahead->step < ahead->rows ? low + ahead->step : ahead->rows;

  for (size_t i = 0; i < ahead->written; i++)
    attention_bf16_fetch_rows(&ahead->matrix[i], low, high, false);
  for (size_t i = ahead->written; i < ahead->count; i++)
    attention_bf16_fetch_rows(&ahead->matrix[i], low, high, true);
  ahead->row = high;
}

/* The next head after `number`: what forward or, with dy, backward reads and writes of it. */
static inline struct ahead attention_bf16_ahead(const struct attention_bf16 *it, size_t number)
{
  const size_t queries = it->blocks - it->first;
  const size_t blocks = it->shape->causal ? queries * (it->blocks + it->first + 1) / 2 : queries * it->blocks;
  const size_t products = (it->dy ? 2 : 1) * blocks;
  struct ahead ahead = {.count = 0, .rows = it->shape->t, .step = (it->shape->t + products - 1) / products};

  if (number + 1 == it->shape->b * it->shape->heads)
    return ahead;
  for (size_t part = 0; part < 3; part++)
    ahead.matrix[ahead.count++] = attention_bf16_part(it, number + 1, part);
  if (it->dy) {
    ahead.matrix[ahead.count++] = attention_bf16_of_y(it, number + 1, it->y);
    ahead.matrix[ahead.count++] = attention_bf16_of_y(it, number + 1, it->dy);
  }
  ahead.written = ahead.count;
  for (size_t part = 0; it->dy && part < 3; part++) {
    ahead.matrix[ahead.count] = attention_bf16_part(it, number + 1, part);
    ahead.matrix[ahead.count++].values = it->to;
  }
  return ahead;
}

/* -- results */

/* Rows of a block of sums as rows of a head, times factor (32), from element `at` on. */
struct rows {
  enum trm_value_type type;
  void *to;
  size_t at, ld;
  size_t low, high; /* those of the block that there are */
  __mmask32 mask;   /* values that there are */
};

static inline void attention_bf16_write_row(const struct rows *rows, size_t i, __m512 low, __m512 high, float factor)
{
  const size_t at = rows->at + i * rows->ld;
  const __m512 scale = _mm512_set1_ps(factor);

  if (i < rows->low || i >= rows->high)
    return;
  low = _mm512_mul_ps(low, scale);
  high = _mm512_mul_ps(high, scale);
  if (rows->type == TRM_VALUES_BF16) {
    _mm512_mask_storeu_epi16((trm_bf16 *)rows->to + at, rows->mask, (__m512i)_mm512_cvtne2ps_pbh(high, low));
    return;
  }
  _mm512_mask_storeu_ps((float *)rows->to + at, (__mmask16)rows->mask, low);
  _mm512_mask_storeu_ps((float *)rows->to + at + EDGE, (__mmask16)(rows->mask >> 16), high);
}

/* sums: (positions, values); factor: (32) */
static inline void attention_bf16_write(const struct rows *rows, const union tile *sums, const float *factor)
{
  for (size_t i = 0; i < BLOCK; i++) {
    const float *from = sums[i / EDGE * 2].sums + i % EDGE * EDGE;

    attention_bf16_write_row(rows, i, _mm512_load_ps(from), _mm512_load_ps(from + SUMS), factor[i]);
  }
}

/* -- exponentials */

/* 2^x, relative error below 2.7e-6: 2^floor(x) times a minimax polynomial of the fraction (Remez' exchange). */
CPU_INLINE __m512 attention_bf16_power(__mmask16 mask, __m512 x)
{
  enum { FLOOR = 9 };
  const __m512 r = _mm512_reduce_ps(x, FLOOR);
  __m512 p = _mm512_set1_ps(1.353416791e-02f);

  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(5.201146062e-02f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(2.414427569e-01f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(6.930038345e-01f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.000002593f));
  return _mm512_maskz_scalef_ps(mask, p, x);
}

/* Returns the sums of 16 vectors of lanes, or their maxima: all at once, because one waits for each of its steps. */
CPU_INLINE __m512 attention_bf16_reduce(__m512 row[EDGE], const bool sums)
{
  __m512i r[EDGE];

  for (size_t i = 0; i < EDGE; i++)
    r[i] = _mm512_castps_si512(row[i]);
  bf16_tile_transpose(r);
  CPU_UNROLL for (size_t n = EDGE / 2; n > 0; n /= 2)
    CPU_UNROLL for (size_t i = 0; i < n; i++) {
      const __m512 a = _mm512_castsi512_ps(r[i]), b = _mm512_castsi512_ps(r[i + n]);

      r[i] = _mm512_castps_si512(sums ? _mm512_add_ps(a, b) : _mm512_max_ps(a, b));
    }
  return _mm512_castsi512_ps(r[0]);
}

/* Returns the number of blocks of keys that block q of queries sees. */
static inline size_t attention_bf16_blocks_seen(const struct attention_bf16 *it, size_t q)
{
  return it->shape->causal ? q + 1 : it->blocks;
}

/* Runs a loop with `per_thread` tiles of scratch memory. */
static inline void attention_bf16_run(struct trm_device *device, struct attention_bf16 *it, size_t items,
                                      size_t queries, cpu_body *body)
{
  const double work = (double)queries * (double)it->shape->t * (double)it->shape->head_dim;

  it->scratch = cpu_scratch(device, (size_t)device->threads * it->per_thread * sizeof(union tile));
  cpu_for(device, items, 1, work, body, it);
}
