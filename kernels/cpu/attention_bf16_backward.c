/* Attention with factors in bfloat16: backward. The scores of 32 keys and 32 queries are computed transposed, (keys,
 * queries): so the numbers of a query are lanes of a vector, and the probabilities are the factors that the sums over
 * queries read, and those over keys with two rows interleaved (attention_bf16.h). */
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

/* Blocks of queries of a strip: their sums are added to those of the keys at once. */
enum { STRIP = 4 };

/* A thread's memory in backward. */
struct backward {
  struct copies q, k, v, dy;
  union tile *dk, *dv;        /* sums: (T / 32, E / 32, 4) */
  union tile *s, *ds;         /* scores and gradients of the probabilities of a block, (4) */
  union tile *p, *slopes;     /* first factors: (STRIP, 2) */
  union tile *slope_pairs;    /* second factors: (STRIP, T / 32, 2) */
  float *maximum, *scale, *mean; /* (T) of a query: maximum in powers of two, 1 / sum, sum of p * ds */
  float factor[2][BLOCK];        /* of the results: the scores', and 1 */
};

static struct backward attention_bf16_backward_memory(const struct attention_bf16 *it)
{
  const size_t copy = 2 * it->blocks * it->depth;
  union tile *tiles = it->scratch + (size_t)cpu_thread() * it->per_thread;
  struct backward memory = {
    .q = {.columns = tiles, .pairs = tiles + copy}, .k = {.rows = tiles + 2 * copy, .transposed = tiles + 3 * copy},
    .v = {.rows = tiles + 4 * copy}, .dy = {.columns = tiles + 5 * copy, .pairs = tiles + 6 * copy},
    .dk = tiles + 7 * copy, .dv = tiles + 9 * copy, .s = tiles + 11 * copy};

  memory.ds = memory.s + 4;
  memory.p = memory.ds + 4;
  memory.slopes = memory.p + 2 * STRIP;
  memory.slope_pairs = memory.slopes + 2 * STRIP;
  memory.maximum = memory.slope_pairs[2 * STRIP * it->blocks].sums;
  memory.scale = memory.maximum + it->blocks * BLOCK;
  memory.mean = memory.scale + it->blocks * BLOCK;
  for (size_t i = 0; i < BLOCK; i++) {
    memory.factor[0][i] = 1 / sqrtf((float)it->shape->head_dim);
    memory.factor[1][i] = 1;
  }
  return memory;
}

static size_t attention_bf16_backward_tiles(const struct attention_bf16 *it)
{
  const size_t floats = 3 * it->blocks * BLOCK;

  return 22 * it->blocks * it->depth + 8 + 4 * STRIP + 2 * STRIP * it->blocks + (floats + SUMS - 1) / SUMS;
}

/* Bits for those of the 16 queries from `query` on that see the key. */
CPU_INLINE __mmask16 attention_bf16_seen(const struct trm_attention *shape, size_t key, size_t query)
{
  if (key >= shape->t)
    return 0;
  if (!shape->causal || key <= query)
    return 0xffff;
  return key - query < EDGE ? (__mmask16)(0xffffu << (key - query)) : 0;
}

/* Whether some queries of block q do not see some keys of block k, which others see. */
static bool attention_bf16_at_edge(const struct trm_attention *shape, size_t q, size_t k)
{
  return shape->causal ? q == k : (k + 1) * BLOCK > shape->t;
}

/* Interleaves the rows of two keys, 32 queries each, to row i of the two tiles of a second factor: the queries of even
 * numbers, and of odd ones. */
CPU_INLINE void attention_bf16_pair(__m512i even, __m512i odd, union tile *to, size_t i)
{
  const __mmask32 upper = 0xaaaaaaaau;

  _mm512_store_si512(to[0].values + i * DEPTH, _mm512_mask_blend_epi16(upper, even, _mm512_slli_epi32(odd, 16)));
  _mm512_store_si512(to[1].values + i * DEPTH, _mm512_mask_blend_epi16(upper, _mm512_srli_epi32(even, 16), odd));
}

/* Returns the scores' factor in powers of two. */
static __m512 attention_bf16_factor(const struct trm_attention *shape)
{
  return _mm512_set1_ps(LOG2_E / sqrtf((float)shape->head_dim));
}

/* p = the probabilities, slopes = the gradient of the scaled scores, from a block of scores and ds; both as first
 * factors, the slopes as second ones, too. */
CPU_INLINE void attention_bf16_slopes(const struct trm_attention *shape, const struct backward *memory, size_t q,
                                      size_t k, const bool at_edge, union tile *p, union tile *slopes,
                                      union tile *pairs)
{
  const __m512 factor = attention_bf16_factor(shape);
  __m512 maximum[2], scale[2], mean[2];

  for (size_t h = 0; h < 2; h++) {
    maximum[h] = _mm512_load_ps(memory->maximum + q * BLOCK + h * EDGE);
    scale[h] = _mm512_load_ps(memory->scale + q * BLOCK + h * EDGE);
    mean[h] = _mm512_load_ps(memory->mean + q * BLOCK + h * EDGE);
  }
  for (size_t i = 0; i < EDGE; i++) {
    __m512i row[2];

    CPU_UNROLL for (size_t odd = 0; odd < 2; odd++) {
      const size_t key = 2 * i + odd, tile = key / EDGE, at = key % EDGE * EDGE;
      __m512 prob[2], slope[2];

      CPU_UNROLL for (size_t h = 0; h < 2; h++) {
        const __m512 score = _mm512_load_ps(memory->s[2 * tile + h].sums + at);
        const __m512 ds = _mm512_load_ps(memory->ds[2 * tile + h].sums + at);
        const __mmask16 mask = at_edge ? attention_bf16_seen(shape, k * BLOCK + key, q * BLOCK + h * EDGE) : 0xffff;

        prob[h] = _mm512_mul_ps(attention_bf16_power(mask, _mm512_fmsub_ps(score, factor, maximum[h])), scale[h]);
        slope[h] = _mm512_maskz_mul_ps(mask, prob[h], _mm512_sub_ps(ds, mean[h]));
      }
      _mm512_store_si512(p[tile].values + 2 * at, (__m512i)_mm512_cvtne2ps_pbh(prob[1], prob[0]));
      row[odd] = (__m512i)_mm512_cvtne2ps_pbh(slope[1], slope[0]);
      _mm512_store_si512(slopes[tile].values + 2 * at, row[odd]);
    }
    attention_bf16_pair(row[0], row[1], pairs, i);
  }
}

/* Adds the products of n blocks of queries to block k of the sums of dk or dv. */
static void attention_bf16_add(const struct attention_bf16 *it, const union tile *a, const union tile *pairs, size_t n,
                               union tile *sums, bool adds)
{
  for (size_t t = 0; t < it->depth; t++)
    it->products->multiply(a, 2, pairs + 2 * t, 2 * it->depth, n, adds, sums + 4 * t);
}

/* Block k of keys with the blocks [first, end) of queries, of the strip that begins at block `strip`. */
static void attention_bf16_backward_keys(const struct attention_bf16 *it, const struct backward *memory,
                                         struct ahead *ahead, size_t strip, size_t first, size_t end, size_t k)
{
  const struct trm_attention *shape = it->shape;
  const size_t depth = it->depth, at = 2 * k * depth;
  const bool adds = end < it->blocks; /* the last strip comes first */

  for (size_t q = first; q < end; q++) {
    union tile *p = memory->p + 2 * (q - first), *slopes = memory->slopes + 2 * (q - first);
    union tile *pairs = memory->slope_pairs + 2 * ((q - strip) * it->blocks + k);

    attention_bf16_fetch(ahead);
    it->products->multiply(memory->k.rows + at, 2, memory->q.columns + 2 * q * depth, 2, depth, false, memory->s);
    attention_bf16_fetch(ahead);
    it->products->multiply(memory->v.rows + at, 2, memory->dy.columns + 2 * q * depth, 2, depth, false, memory->ds);
    if (attention_bf16_at_edge(shape, q, k))
      attention_bf16_slopes(shape, memory, q, k, true, p, slopes, pairs);
    else
      attention_bf16_slopes(shape, memory, q, k, false, p, slopes, pairs);
  }
  attention_bf16_add(it, memory->p, memory->dy.pairs + 2 * first * depth, end - first, memory->dv + 2 * at, adds);
  attention_bf16_add(it, memory->slopes, memory->q.pairs + 2 * first * depth, end - first, memory->dk + 2 * at, adds);
}

/* Block `block` of positions of part `part` of the gradient, values from block t on. */
static struct rows attention_bf16_gradient(const struct attention_bf16 *it, size_t number, size_t part, size_t block,
                                           size_t t)
{
  const struct matrix m = attention_bf16_part(it, number, part);
  const size_t high = m.rows - block * BLOCK < BLOCK ? m.rows - block * BLOCK : BLOCK;

  return (struct rows){it->type, it->to, m.at + block * BLOCK * m.ld + t * BLOCK, m.ld, 0, high,
                       bf16_tile_mask(m.columns - t * BLOCK)};
}

/* sums: (values, positions), positions of even numbers first; factor: (32) */
static void attention_bf16_write_transposed(const struct rows *rows, const union tile *sums, const float *factor)
{
  for (size_t odd = 0; odd < 2; odd++) {
    __m512i low[EDGE], high[EDGE];

    for (size_t i = 0; i < EDGE; i++) {
      low[i] = _mm512_load_si512(sums[odd].sums + i * EDGE);
      high[i] = _mm512_load_si512(sums[2 + odd].sums + i * EDGE);
    }
    bf16_tile_transpose(low);
    bf16_tile_transpose(high);
    for (size_t i = 0; i < EDGE; i++)
      attention_bf16_write_row(rows, 2 * i + odd, _mm512_castsi512_ps(low[i]), _mm512_castsi512_ps(high[i]),
                               factor[2 * i + odd]);
  }
}

/* The gradient of block q of queries; pairs: its slopes. */
static void attention_bf16_backward_queries(const struct attention_bf16 *it, const struct backward *memory,
                                            const union tile *pairs, size_t number, size_t q)
{
  for (size_t t = 0; t < it->depth; t++) {
    const struct rows rows = attention_bf16_gradient(it, number, 0, q, t);

    it->products->multiply(memory->k.transposed + 2 * t, 2 * it->depth, pairs, 2, attention_bf16_blocks_seen(it, q),
                           false, memory->s);
    attention_bf16_write_transposed(&rows, memory->s, memory->factor[0]);
  }
}

/* Loads 16 values, zeros where mask has none. */
CPU_INLINE __m512 attention_bf16_floats(const struct matrix *m, size_t at, __mmask16 mask)
{
  if (m->type == TRM_VALUES_F32)
    return _mm512_maskz_loadu_ps(mask, (const float *)m->values + at);
  const __m256i values = _mm256_maskz_loadu_epi16(mask, (const trm_bf16 *)m->values + at);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(values), 16));
}

/* Returns the product of rows i of two matrices, in lanes. */
static inline __m512 attention_bf16_row_product(const struct matrix *a, const struct matrix *b, size_t i)
{
  __m512 sum = _mm512_setzero_ps();

  for (size_t j = 0; j < a->columns; j += EDGE) {
    const __mmask16 mask = (__mmask16)bf16_tile_mask(a->columns - j);

    sum = _mm512_fmadd_ps(attention_bf16_floats(a, a->at + i * a->ld + j, mask),
                          attention_bf16_floats(b, b->at + i * b->ld + j, mask), sum);
  }
  return sum;
}

/* Copies a head to tiles, and prepares the numbers of its queries. */
static void attention_bf16_backward_begin(const struct attention_bf16 *it, const struct backward *memory, size_t number)
{
  const size_t t = it->shape->t, positions = it->blocks * BLOCK;
  const struct matrix q = attention_bf16_part(it, number, 0), k = attention_bf16_part(it, number, 1);
  const struct matrix v = attention_bf16_part(it, number, 2);
  const struct matrix y = attention_bf16_of_y(it, number, it->y), dy = attention_bf16_of_y(it, number, it->dy);

  attention_bf16_copy(it, &q, &memory->q);
  attention_bf16_copy(it, &k, &memory->k);
  attention_bf16_copy(it, &v, &memory->v);
  attention_bf16_copy(it, &dy, &memory->dy);
  for (size_t i = 0; i < positions; i++) {
    const float *row = it->row + 2 * (number * t + i);

    memory->maximum[i] = i < t ? row[0] * LOG2_E : 0;
    memory->scale[i] = i < t ? row[1] : 0;
  }
  for (size_t first = 0; first < positions; first += EDGE) {
    __m512 lanes[EDGE];

    for (size_t i = 0; i < EDGE; i++)
      lanes[i] = first + i < t ? attention_bf16_row_product(&y, &dy, first + i) : _mm512_setzero_ps();
    _mm512_storeu_ps(memory->mean + first, attention_bf16_reduce(lanes, true));
  }
}

static void attention_bf16_backward_head(const struct attention_bf16 *it, const struct backward *memory, size_t number)
{
  struct ahead ahead = attention_bf16_ahead(it, number);
  attention_bf16_backward_begin(it, memory, number);
  for (size_t strip = (it->blocks - 1) / STRIP * STRIP, end = it->blocks;; end = strip, strip -= STRIP) {
    const size_t seen = attention_bf16_blocks_seen(it, end - 1);

    for (size_t k = 0; k < seen; k++)
      attention_bf16_backward_keys(it, memory, &ahead, strip, it->shape->causal && k > strip ? k : strip, end, k);
    for (size_t q = strip; q < end; q++)
      attention_bf16_backward_queries(it, memory, memory->slope_pairs + 2 * (q - strip) * it->blocks, number, q);
    if (strip == 0)
      break;
  }
  for (size_t k = 0; k < it->blocks; k++)
    for (size_t t = 0; t < it->depth; t++) {
      const struct rows dk = attention_bf16_gradient(it, number, 1, k, t);
      const struct rows dv = attention_bf16_gradient(it, number, 2, k, t);

      attention_bf16_write(&dk, memory->dk + 4 * (k * it->depth + t), memory->factor[0]);
      attention_bf16_write(&dv, memory->dv + 4 * (k * it->depth + t), memory->factor[1]);
    }
}

/* Item: a head. */
static void attention_bf16_backward_body(const void *arguments, size_t low, size_t high)
{
  const struct attention_bf16 *it = arguments;
  const struct backward memory = attention_bf16_backward_memory(it);

  it->products->begin();
  for (size_t number = low; number < high; number++)
    attention_bf16_backward_head(it, &memory, number);
  it->products->end();
}

#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

void attention_bf16_backward(struct trm_device *device, const struct attention_blocks *blocks,
                             const struct trm_attention_backward *call)
{
  const struct trm_attention *shape = &call->shape;
  struct attention_bf16 it = {
    .shape = shape, .products = blocks, .type = call->type, .qkv = call->qkv, .y = call->y, .row = (float *)call->row,
    .dy = call->dy, .to = call->dqkv, .blocks = attention_bf16_blocks_of(shape->t),
    .depth = attention_bf16_blocks_of(shape->head_dim)};

  it.per_thread = attention_bf16_backward_tiles(&it);
  attention_bf16_run(device, &it, shape->b * shape->heads, shape->t, attention_bf16_backward_body);
}

#else

void attention_bf16_backward(struct trm_device *device, const struct attention_blocks *blocks,
                             const struct trm_attention_backward *call)
{
  (void)device;
  (void)blocks;
  (void)call;
}
#endif
