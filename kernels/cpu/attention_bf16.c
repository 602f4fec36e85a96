/* Attention with factors in bfloat16: forward (attention_bf16.h). Of 32 queries: scores of all keys that they see,
 * (queries, keys); maximum, exponentials and sum of each row; their product with the values. */
#include "blas/amx.h"
#include "kernels/cpu/attention.h"

#ifdef BLAS_AMX
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,prfchw"))), \
                             apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,prfchw")
#endif

#include "kernels/cpu/attention_bf16.h"

/* A thread's memory in forward. */
struct forward {
  union tile *keys, *values, *queries; /* copies: columns, pairs; rows of one block */
  union tile *s, *p, *y;               /* (T / 32, 4), (T / 32, 2); (4) */
};

static struct forward attention_bf16_forward_memory(const struct attention_bf16 *it)
{
  const size_t copy = 2 * it->blocks * it->depth;
  union tile *tiles = it->scratch + (size_t)cpu_thread() * it->per_thread;
  struct forward memory = {.keys = tiles, .values = tiles + copy, .queries = tiles + 2 * copy};

  memory.s = memory.queries + 2 * it->depth;
  memory.p = memory.s + 4 * it->blocks;
  memory.y = memory.p + 2 * it->blocks;
  return memory;
}

/* Bits for the keys of the last of `seen` blocks that query i of block q sees. */
static __mmask32 attention_bf16_last_keys(const struct trm_attention *shape, size_t seen, size_t i)
{
  return bf16_tile_mask(shape->causal ? i + 1 : shape->t - (seen - 1) * BLOCK);
}

/* Returns the maximum of a row of scores, in lanes: 32 of each block, 2 tiles of 4; mask: those of the last block. */
static inline __m512 attention_bf16_maximum(const float *s, size_t blocks, __mmask32 mask)
{
  __m512 low = _mm512_set1_ps(-INFINITY), high = low;

  for (; blocks > 1; blocks--, s += 4 * SUMS) {
    low = _mm512_max_ps(_mm512_load_ps(s), low);
    high = _mm512_max_ps(_mm512_load_ps(s + SUMS), high);
  }
  low = _mm512_mask_max_ps(low, (__mmask16)mask, _mm512_load_ps(s), low);
  high = _mm512_mask_max_ps(high, (__mmask16)(mask >> 16), _mm512_load_ps(s + SUMS), high);
  return _mm512_max_ps(low, high);
}

/* Sets a row of p, 32 of each block, 1 tile of 2, to 2^(factor s - maximum), 0 where masked. Returns its sum, in
 * lanes. */
static inline __m512 attention_bf16_exponentials(const float *s, size_t blocks, __mmask32 mask, float factor,
                                                 float maximum, trm_bf16 *p)
{
  const __m512 scale = _mm512_set1_ps(factor), shift = _mm512_set1_ps(maximum);
  __m512 low_sum = _mm512_setzero_ps(), high_sum = low_sum;

  for (; blocks > 0; blocks--, s += 4 * SUMS, p += 2 * TILE) {
    const __mmask32 kept = blocks > 1 ? 0xffffffffu : mask;
    const __m512 low = attention_bf16_power((__mmask16)kept, _mm512_fmsub_ps(_mm512_load_ps(s), scale, shift));
    const __m512 high = attention_bf16_power((__mmask16)(kept >> 16),
                                             _mm512_fmsub_ps(_mm512_load_ps(s + SUMS), scale, shift));

    low_sum = _mm512_add_ps(low_sum, low);
    high_sum = _mm512_add_ps(high_sum, high);
    _mm512_store_si512(p, (__m512i)_mm512_cvtne2ps_pbh(high, low));
  }
  return _mm512_add_ps(low_sum, high_sum);
}

/* Turns the scores of block q, (queries, keys), into exponentials p. Returns their maxima, scaled, in row[0], and 1 /
 * sums in row[1]. */
static void attention_bf16_softmax(const struct attention_bf16 *it, const struct forward *memory, size_t q,
                                   float row[2][BLOCK])
{
  const size_t seen = attention_bf16_blocks_seen(it, q);
  const float factor = 1 / sqrtf((float)it->shape->head_dim);

  for (size_t half = 0; half < 2; half++) {
    const float *s = memory->s[2 * half].sums;
    float *maximum = row[0] + half * EDGE;
    __m512 lanes[EDGE];

    for (size_t i = 0; i < EDGE; i++)
      lanes[i] = attention_bf16_maximum(s + i * EDGE, seen, attention_bf16_last_keys(it->shape, seen, half * EDGE + i));
    _mm512_storeu_ps(maximum, _mm512_mul_ps(attention_bf16_reduce(lanes, false), _mm512_set1_ps(factor)));
    for (size_t i = 0; i < EDGE; i++)
      lanes[i] = attention_bf16_exponentials(
        s + i * EDGE, seen, attention_bf16_last_keys(it->shape, seen, half * EDGE + i), factor * LOG2_E,
        maximum[i] * LOG2_E, memory->p[half].values + i * DEPTH);
    _mm512_storeu_ps(row[1] + half * EDGE, _mm512_div_ps(_mm512_set1_ps(1), attention_bf16_reduce(lanes, true)));
  }
}

/* Block q of queries of head `number`. */
static void attention_bf16_forward_block(const struct attention_bf16 *it, const struct forward *memory,
                                         struct ahead *ahead, size_t number, size_t q)
{
  const struct trm_attention *shape = it->shape;
  const size_t e = shape->head_dim, d = shape->heads * e, left = shape->t - shape->first;
  const size_t seen = attention_bf16_blocks_seen(it, q), depth = it->depth;
  const struct matrix queries = attention_bf16_part(it, number, 0);
  const size_t low = q * BLOCK < shape->first ? shape->first - q * BLOCK : 0;
  const size_t high = shape->t - q * BLOCK < BLOCK ? shape->t - q * BLOCK : BLOCK;
  /* position 0 of the head, which may be before the array */
  const size_t to = number / shape->heads * left * d + number % shape->heads * e + (q * BLOCK - shape->first) * d;
  float row[2][BLOCK];

  for (size_t t = 0; t < depth; t++)
    attention_bf16_copy_block(&queries, q, t, &(struct copies){.rows = memory->queries}, 2 * t);
  for (size_t k = 0; k < seen; k++) {
    attention_bf16_fetch(ahead);
    it->products->multiply(memory->queries, 2, memory->keys + 2 * k * depth, 2, depth, false, memory->s + 4 * k);
  }
  attention_bf16_softmax(it, memory, q, row);
  for (size_t t = 0; t < depth; t++) {
    const struct rows rows = {it->type, it->to, to + t * BLOCK, d, low, high, bf16_tile_mask(e - t * BLOCK)};

    it->products->multiply(memory->p, 2, memory->values + 2 * t, 2 * depth, seen, false, memory->y);
    attention_bf16_write(&rows, memory->y, row[1]);
  }
  for (size_t i = low; i < high; i++) {
    float *of = it->row + 2 * (number * left + q * BLOCK + i - shape->first);

    of[0] = row[0][i];
    of[1] = row[1][i];
  }
}

/* Item: a block of queries. */
static void attention_bf16_forward_body(const void *arguments, size_t low, size_t high)
{
  const struct attention_bf16 *it = arguments;
  const struct forward memory = attention_bf16_forward_memory(it);
  const size_t blocks = it->blocks - it->first;
  struct ahead ahead = {.count = 0};

  it->products->begin();
  for (size_t item = low; item < high; item++) {
    const size_t number = item / blocks, q = it->first + item % blocks;

    if (item == low || item % blocks == 0) {
      ahead = attention_bf16_ahead(it, number);
      const struct matrix keys = attention_bf16_part(it, number, 1), values = attention_bf16_part(it, number, 2);

      attention_bf16_copy(it, &keys, &(struct copies){.columns = memory.keys});
      attention_bf16_copy(it, &values, &(struct copies){.pairs = memory.values});
    }
    attention_bf16_forward_block(it, &memory, &ahead, number, q);
  }
  it->products->end();
}

#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

void attention_bf16_forward(struct trm_device *device, const struct attention_blocks *blocks,
                            const struct trm_attention_forward *call)
{
  const struct trm_attention *shape = &call->shape;
  struct attention_bf16 it = {
    .shape = shape, .products = blocks, .type = call->type, .qkv = call->qkv, .row = call->row, .to = call->y,
    .first = shape->first / BLOCK, .blocks = attention_bf16_blocks_of(shape->t),
    .depth = attention_bf16_blocks_of(shape->head_dim)};

  it.per_thread = 4 * it.blocks * it.depth + 2 * it.depth + 6 * it.blocks + 4;
  attention_bf16_run(device, &it, shape->b * shape->heads * (it.blocks - it.first), BLOCK, attention_bf16_forward_body);
}

#else

void attention_bf16_forward(struct trm_device *device, const struct attention_blocks *blocks,
                            const struct trm_attention_forward *call)
{
  (void)device;
  (void)blocks;
  (void)call;
}
#endif
