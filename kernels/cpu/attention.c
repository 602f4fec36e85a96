/* Multi-head self-attention (Vaswani et al. 2017), tiled: a strip is STRIP queries of one head with all the keys that
 * they attend to, so that memory is linear in T. Backward recomputes a strip's probabilities from the saved maximum and
 * sum of each row (Rabe & Staats 2021, Dao et al. 2022). The products of a strip are small and run in one thread. A
 * work item is a strip in forward and a head in backward, since the strips of a head add to the gradients of the same
 * keys and values. So no sum depends on the number of threads.
 *
 * float32: micro-kernels compute the products (attention.h) where the processor has them and a head has whole vectors;
 * the keys, and in backward the values, of a head are transposed first, so that rows of them are read in place.
 *
 * bfloat16: scores, exponentials and sums are float32; exponentials and the scores' gradients are rounded where they
 * are factors of products, as the queries, keys, values and dy are. Of these a head's are copied to rows without gaps:
 * oneDNN's products of such are faster. Where the processor has instructions for bfloat16, attention_bf16.c and
 * attention_bf16_backward.c compute. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/attention.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/math.h"

#define STRIP 64

struct attention {
  const struct trm_attention *shape;
  const struct trm_blas_ops *blas;
  const struct attention_kernels *kernels; /* NULL: products by blas */
  enum trm_value_type type;
  const void *qkv; /* (B, T, 3, H, E) */
  void *y;         /* (B, T - first, H, E) */
  float *row;      /* (B, H, T - first, 2): maximum of the scaled scores, 1 / sum of the exponentials */
  const void *dy;  /* (B, T, H, E) */
  void *dqkv;      /* (B, T, 3, H, E) */
  float *scratch;  /* (threads, per_thread) */
  size_t per_thread;
  size_t strips;   /* per head */
};

static float attention_factor(const struct trm_attention *shape)
{
  return 1 / sqrtf((float)shape->head_dim);
}

/* A thread's part of the scratch memory. */
struct tiles {
  float *s, *ds;    /* (queries, ld) of a strip: scores, gradient of the probabilities */
  void *p, *dp;     /* (queries, ld) values: factors of products; float32: s and ds themselves */
  float *k_t, *v_t; /* (E, ld_t) of a head for the micro-kernels: transposed keys, times alpha, and values */
  float *q, *k, *v; /* bfloat16: sums of products, (STRIP, E), (T, E), (T, E) */
  trm_bf16 *copies; /* bfloat16: (5, T, E) queries, keys, values, y, dy of a head */
};

/* Returns the leading dimension of n scores: an odd number of whole lanes, so that a column's elements are in different
 * sets of a cache. */
static size_t attention_ld(size_t n)
{
  return ((n + CPU_LANES - 1) / CPU_LANES | 1) * CPU_LANES;
}

static struct tiles attention_tiles(const struct attention *it)
{
  const size_t e = it->shape->head_dim, ld_t = attention_ld(it->shape->t), scores = STRIP * ld_t;
  float *s = it->scratch + (size_t)cpu_thread() * it->per_thread, *q = s + 3 * scores;

  if (it->kernels)
    return (struct tiles){.s = s, .ds = s + scores, .p = s, .dp = s + scores, .k_t = s + 2 * scores,
                          .v_t = s + 2 * scores + e * ld_t};
  if (it->type == TRM_VALUES_F32)
    return (struct tiles){.s = s, .ds = s + scores, .p = s, .dp = s + scores};
  return (struct tiles){.s = s, .ds = s + scores, .p = s + 2 * scores, .dp = (trm_bf16 *)(s + 2 * scores) + scores,
                        .q = q, .k = q + STRIP * e, .v = q + (STRIP + it->shape->t) * e,
                        .copies = (trm_bf16 *)(q + (STRIP + 2 * it->shape->t) * e)};
}

/* Arrays of a head that are read, (T, E) each. */
struct head {
  const void *q, *k, *v, *y, *dy;
  size_t ld, ld_y;        /* of y and dy */
  const float *k_t, *v_t; /* as of struct tiles; NULL: products by blas */
};

/* Returns the head's rows of an array, which begin at element `at`: in place, or their copy. */
static const void *attention_rows(const struct attention *it, const void *values, size_t at, size_t ld, trm_bf16 *copy)
{
  const size_t e = it->shape->head_dim;

  if (it->type == TRM_VALUES_F32)
    return cpu_at(it->type, values, at);
  for (size_t i = 0; i < it->shape->t; i++)
    memcpy(copy + i * e, (const trm_bf16 *)values + at + i * ld, e * sizeof *copy);
  return copy;
}

/* Head h of sample b. */
static struct head attention_head(const struct attention *it, const struct tiles *tiles, size_t b, size_t h)
{
  const size_t e = it->shape->head_dim, d = it->shape->heads * e, t = it->shape->t;
  const size_t q = b * t * 3 * d + h * e, y = b * t * d + h * e;
  const bool copied = it->type == TRM_VALUES_BF16;
  trm_bf16 *copies = tiles->copies;
  const size_t ld_t = attention_ld(t);

  if (tiles->k_t)
    it->kernels->transpose((const float *)it->qkv + q + d, t, e, 3 * d, attention_factor(it->shape), tiles->k_t, ld_t);
  if (tiles->v_t && it->dy)
    it->kernels->transpose((const float *)it->qkv + q + 2 * d, t, e, 3 * d, 1, tiles->v_t, ld_t);
  return (struct head){.q = attention_rows(it, it->qkv, q, 3 * d, copies),
                       .k = attention_rows(it, it->qkv, q + d, 3 * d, copies + t * e),
                       .v = attention_rows(it, it->qkv, q + 2 * d, 3 * d, copies + 2 * t * e),
                       .y = it->dy ? attention_rows(it, it->y, y, d, copies + 3 * t * e) : NULL,
                       .dy = it->dy ? attention_rows(it, it->dy, y, d, copies + 4 * t * e) : NULL,
                       .ld = copied ? e : 3 * d, .ld_y = copied ? e : d, .k_t = tiles->k_t, .v_t = tiles->v_t};
}

static struct attention_strip attention_strip(const struct attention *it, size_t number)
{
  const struct trm_attention *shape = it->shape;
  const size_t first = shape->first + number * STRIP, end = shape->t - first < STRIP ? shape->t : first + STRIP;
  const size_t keys = shape->causal ? end : shape->t;

  return (struct attention_strip){
    .first = first, .queries = end - first, .keys = keys, .ld = it->kernels ? attention_ld(keys) : keys,
    .causal = shape->causal};
}

/* Returns the rows of the strip's positions in the head after head `number`, of some arrays, read or written: `parts`
 * of the `all` that `values` (B, T, all, H, E) has, from element `at` of a position on. */
static struct attention_prefetch attention_next_head(const struct attention *it, const struct attention_strip *strip,
                                                     size_t number, const void *values, size_t all, size_t at,
                                                     size_t parts)
{
  const struct trm_attention *shape = it->shape;
  const size_t next = number + 1, d = shape->heads * shape->head_dim;
  const size_t position = next / shape->heads * shape->t + strip->first;

  if (!it->kernels || next == shape->b * shape->heads)
    return (struct attention_prefetch){.rows = 0};
  return (struct attention_prefetch){
    .first = (const float *)values + position * all * d + at + next % shape->heads * shape->head_dim,
    .rows = strip->queries, .ld = all * d, .parts = parts, .part = d};
}

/* Returns the number of keys that query i of the strip attends to. */
static size_t attention_keys_seen(const struct trm_attention *shape, const struct attention_strip *strip, size_t i)
{
  return shape->causal ? strip->first + i + 1 : strip->keys;
}

/* Returns n rounded up to whole lanes: loops over so many keys have no remainder, masked ones are overwritten. */
static size_t attention_lanes_end(const struct attention_strip *strip, size_t n)
{
  const size_t end = (n + CPU_LANES - 1) / CPU_LANES * CPU_LANES;

  return end < strip->ld ? end : strip->ld;
}

/* The factor of the scores in their product: 1 for bfloat16, which oneDNN would scale in a pass of its own, and the
 * exponentials scale. */
static float attention_alpha(const struct attention *it)
{
  return it->type == TRM_VALUES_F32 ? attention_factor(it->shape) : 1;
}

/* -- products of a strip */

/* S (queries, keys; ld) = alpha * A (queries, E; lda) times the transposed B (keys, E); b_t: that times alpha, for the
 * micro-kernels. */
static void attention_scores(const struct attention *it, struct attention_strip *strip, const struct head *head,
                             float alpha, const void *a, size_t lda, const void *b, const float *b_t, float *s)
{
  const size_t e = it->shape->head_dim;

  if (it->kernels)
    attention_multiply_scores(it->kernels, strip, e, a, lda, b_t, attention_ld(it->shape->t), s);
  else
    it->blas->gemm(&(struct trm_gemm){
      .transpose_b = true, .m = strip->queries, .n = strip->keys, .k = e, .alpha = alpha, .a = a, .lda = lda, .b = b,
      .ldb = head->ld, .c = s, .ldc = strip->ld, .type_ab = it->type});
}

/* C (queries, E; ldc) = P (queries, keys; ld) times B (keys, E). */
static void attention_sum_keys(const struct attention *it, struct attention_strip *strip, const struct head *head,
                               const void *p, const void *b, float *c, size_t ldc)
{
  const size_t e = it->shape->head_dim;

  if (it->kernels)
    attention_multiply_keys(it->kernels, strip, e, p, b, head->ld, c, ldc);
  else
    it->blas->gemm(&(struct trm_gemm){
      .m = strip->queries, .n = e, .k = strip->keys, .alpha = 1, .a = p, .lda = strip->ld, .b = b, .ldb = head->ld,
      .c = c, .ldc = ldc, .type_ab = it->type});
}

/* C (keys, E; ldc) = the transposed P (queries, keys; ld) times B (queries, E; ldb), added to C if `adds`. */
static void attention_sum_queries(const struct attention *it, struct attention_strip *strip, const void *p,
                                  const void *b, size_t ldb, float *c, size_t ldc, bool adds)
{
  const size_t e = it->shape->head_dim;

  if (it->kernels)
    attention_multiply_queries(it->kernels, strip, e, p, b, ldb, c, ldc, adds);
  else
    it->blas->gemm(&(struct trm_gemm){
      .transpose_a = true, .m = strip->keys, .n = e, .k = strip->queries, .alpha = 1, .a = p, .lda = strip->ld, .b = b,
      .ldb = ldb, .beta = adds, .c = c, .ldc = ldc, .type_ab = it->type});
}

/* Turns s (queries, keys) from scores into exponentials, 0 where masked, which p has as values; sets row (queries,
 * 2). */
CPU_CLONES static void attention_strip_exp(const struct attention *it, const struct attention_strip *strip,
                                           const struct tiles *tiles, float *row)
{
  const struct trm_attention *shape = it->shape;
  /* rounding keeps the order of numbers: the maximum can be scaled after it is found */
  const float factor = it->type == TRM_VALUES_F32 ? 1 : attention_factor(shape);
  float *s = tiles->s;

  for (size_t i = 0; i < strip->queries; i++, s += strip->ld, row += 2) {
    const size_t n = attention_keys_seen(shape, strip, i), end = attention_lanes_end(strip, n);
    const float maximum = cpu_lane_maximum(TRM_VALUES_F32, s, n) * factor;
    double total = 0;

#pragma omp simd
    for (size_t j = 0; j < end; j++)
      s[j] = math_exp(s[j] * factor - maximum);
    for (size_t low = 0; low < n; low += CPU_BLOCK)
      total += cpu_lane_sum(s + low, n - low < CPU_BLOCK ? n - low : CPU_BLOCK);
    for (size_t j = n; j < strip->keys; j++)
      s[j] = 0;
    cpu_write(it->type, s, cpu_at(it->type, tiles->p, i * strip->ld), strip->keys);
    row[0] = maximum;
    row[1] = (float)(1 / total);
  }
}

/* Returns the end of a row of the strip's scores that products read, n of which are seen: whole lanes. */
static size_t attention_row_end(const struct attention_strip *strip, size_t n)
{
  const size_t end = attention_lanes_end(strip, n);

  return end > strip->keys ? end : strip->keys;
}

/* The same by the micro-kernels. */
static void attention_strip_softmax(const struct attention *it, const struct attention_strip *strip, float *s,
                                    float *row)
{
  for (size_t i = 0; i < strip->queries; i++, s += strip->ld, row += 2) {
    const size_t n = attention_keys_seen(it->shape, strip, i);
    float sum;

    row[0] = it->kernels->softmax(s, n, attention_row_end(strip, n), &sum);
    row[1] = 1 / sum;
  }
}

/* Multiplies the strip's rows of y (queries, ld) by 1 / sum; they begin at element `at` of the call's y. */
CPU_CLONES static void attention_strip_scale(const struct attention *it, const struct attention_strip *strip, float *y,
                                             size_t ld, const float *row, size_t at)
{
  const size_t e = it->shape->head_dim;

  for (size_t i = 0; i < strip->queries; i++, y += ld) {
    const float scale = row[2 * i + 1];

#pragma omp simd
    for (size_t j = 0; j < e; j++)
      y[j] *= scale;
    cpu_write(it->type, y, cpu_at(it->type, it->y, at + i * it->shape->heads * e), e);
  }
}

static void attention_forward_body(const void *arguments, size_t low, size_t high)
{
  const struct attention *it = arguments;
  const struct trm_attention *shape = it->shape;
  const size_t e = shape->head_dim, d = shape->heads * e, computed = shape->t - shape->first;
  const struct tiles tiles = attention_tiles(it);
  struct head head = {.q = NULL};

  for (size_t item = low; item < high; item++) {
    const size_t number = item / it->strips, b = number / shape->heads, h = number % shape->heads;
    struct attention_strip strip = attention_strip(it, item % it->strips);
    const size_t to = strip.first - shape->first, at = (b * computed + to) * d + h * e, ld = tiles.q ? e : d;
    float *y = tiles.q ? tiles.q : (float *)it->y + at, *row = it->row + 2 * (number * computed + to);

    if (item == low || to == 0)
      head = attention_head(it, &tiles, b, h);
    strip.ahead = attention_next_head(it, &strip, number, it->qkv, 3, 0, 3);
    attention_scores(it, &strip, &head, attention_alpha(it), cpu_at(it->type, head.q, strip.first * head.ld), head.ld,
                     head.k, head.k_t, tiles.s);
    if (it->kernels)
      attention_strip_softmax(it, &strip, tiles.s, row);
    else
      attention_strip_exp(it, &strip, &tiles, row);
    if (shape->first == 0)
      strip.ahead = attention_next_head(it, &strip, number, it->y, 1, 0, 1);
    attention_sum_keys(it, &strip, &head, tiles.p, head.v, y, ld);
    attention_strip_scale(it, &strip, y, ld, row, at);
  }
}

/* Forward of one query per head, the last position's, which attends to all keys: as another token of a text has it. The
 * keys and values are read in place, once. Work item: head. */
CPU_INLINE void attention_query(enum trm_value_type type, const struct attention *it, size_t low, size_t high)
{
  const struct trm_attention *shape = it->shape;
  const size_t e = shape->head_dim, d = shape->heads * e, t = shape->t, rows_ahead = CPU_STREAM_AHEAD / e + 1;
  float *s = it->scratch + (size_t)cpu_thread() * it->per_thread, *q = s + t, *y = q + e;

  for (size_t number = low; number < high; number++) {
    const size_t at = number / shape->heads * t * 3 * d + number % shape->heads * e;
    const void *k = cpu_at(type, it->qkv, at + d), *v = cpu_at(type, it->qkv, at + 2 * d);
    double total = 0;

    for (size_t i = 0; i < e; i++) {
      q[i] = cpu_value(type, it->qkv, at + (t - 1) * 3 * d + i) * attention_factor(shape);
      y[i] = 0;
    }
    for (size_t j = 0; j < t; j++) {
      cpu_prefetch(type, k, (j + rows_ahead) * 3 * d, e);
      s[j] = cpu_lane_product(TRM_VALUES_F32, q, type, cpu_at(type, k, j * 3 * d), e);
    }
    const float maximum = cpu_lane_maximum(TRM_VALUES_F32, s, t);
#pragma omp simd
    for (size_t j = 0; j < t; j++)
      s[j] = math_exp(s[j] - maximum);
    for (size_t first = 0; first < t; first += CPU_BLOCK)
      total += (double)cpu_lane_sum(s + first, t - first < CPU_BLOCK ? t - first : CPU_BLOCK);
    for (size_t j = 0; j < t; j++) {
      cpu_prefetch(type, v, (j + rows_ahead) * 3 * d, e);
#pragma omp simd
      for (size_t i = 0; i < e; i++)
        y[i] += s[j] * cpu_value(type, v, j * 3 * d + i);
    }
    it->row[2 * number] = maximum;
    it->row[2 * number + 1] = (float)(1 / total);
    for (size_t i = 0; i < e; i++)
      cpu_set(type, it->y, number * e + i, y[i] * it->row[2 * number + 1]);
  }
}
CPU_BODY_BY_TYPE(attention_query, attention)

/* Sets p (queries, keys) to the probabilities, and dp to the gradient of the products q k, from the scores s and the
 * gradient of the probabilities, ds. The sum of p * ds over a row is that of dy * y (Dao et al. 2022, appendix B); y,
 * dy: (queries, E; ld_y). */
CPU_INLINE void attention_strip_slopes(enum trm_value_type type, const struct attention *it,
                                       const struct attention_strip *strip, const struct tiles *tiles, const float *row,
                                       const void *y, const void *dy, size_t ld_y)
{
  const float factor = attention_factor(it->shape), factor_of_scores = type == TRM_VALUES_F32 ? 1 : factor;

  for (size_t i = 0; i < strip->queries; i++, row += 2) {
    const size_t n = attention_keys_seen(it->shape, strip, i), end = attention_lanes_end(strip, n);
    const size_t first = i * strip->ld, at = i * ld_y;
    const float maximum = row[0], scale = row[1], *s = tiles->s + first, *ds = tiles->ds + first;
    const float mean = cpu_lane_product(type, cpu_at(type, y, at), type, cpu_at(type, dy, at), it->shape->head_dim);
    void *p = cpu_at(type, tiles->p, first), *dp = cpu_at(type, tiles->dp, first);

#pragma omp simd
    for (size_t j = 0; j < end; j++) {
      const float prob = math_exp(s[j] * factor_of_scores - maximum) * scale, slope = prob * (ds[j] - mean) * factor;

      cpu_set(type, p, j, prob);
      cpu_set(type, dp, j, slope);
    }
    for (size_t j = n; j < strip->keys; j++) {
      cpu_set(type, p, j, 0);
      cpu_set(type, dp, j, 0);
    }
  }
}

/* The same by the micro-kernels. */
static void attention_strip_slopes_f32(const struct attention *it, const struct attention_strip *strip,
                                       const struct tiles *tiles, const float *row, const float *y, const float *dy,
                                       size_t ld_y)
{
  for (size_t i = 0; i < strip->queries; i++) {
    const size_t n = attention_keys_seen(it->shape, strip, i);
    const struct attention_row numbers = {
      .maximum = row[2 * i], .scale = row[2 * i + 1], .factor = attention_factor(it->shape),
      .mean = it->kernels->product(y + i * ld_y, dy + i * ld_y, it->shape->head_dim)};

    it->kernels->slopes(tiles->s + i * strip->ld, tiles->ds + i * strip->ld, n, attention_row_end(strip, n), &numbers);
  }
}

CPU_CLONES static void attention_strip_gradient(const struct attention *it, const struct attention_strip *strip,
                                                const struct tiles *tiles, const float *row, const void *y,
                                                const void *dy, size_t ld_y)
{
  if (it->kernels)
    attention_strip_slopes_f32(it, strip, tiles, row, y, dy, ld_y);
  else if (it->type == TRM_VALUES_F32)
    attention_strip_slopes(TRM_VALUES_F32, it, strip, tiles, row, y, dy, ld_y);
  else
    attention_strip_slopes(TRM_VALUES_BF16, it, strip, tiles, row, y, dy, ld_y);
}

/* Rounds rows of sums (rows, E) to values (rows, 3, H, E) from element `at` on. */
CPU_CLONES static void attention_round(const struct attention *it, const float *sums, size_t rows, size_t at)
{
  const size_t e = it->shape->head_dim;

  for (size_t i = 0; i < rows; i++)
    cpu_write(it->type, sums + i * e, cpu_at(it->type, it->dqkv, at + i * 3 * it->shape->heads * e), e);
}

/* Adds the strip to dk and dv, and computes its dq; q: the element of qkv where head `number` begins. */
static void attention_backward_strip(const struct attention *it, struct attention_strip *strip,
                                     const struct tiles *tiles, const struct head *head, size_t number, size_t q)
{
  const size_t e = it->shape->head_dim, d = it->shape->heads * e, t = it->shape->t, ld = tiles->q ? e : 3 * d;
  const size_t q_first = q + strip->first * 3 * d, y_first = strip->first * head->ld_y;
  const void *q_strip = cpu_at(it->type, head->q, strip->first * head->ld);
  const void *dy_strip = cpu_at(it->type, head->dy, y_first);
  const float *row = it->row + 2 * (number * t + strip->first);
  /* the last strip attends to all keys: it comes first, and overwrites */
  const bool adds = strip->first + strip->queries < t;
  float *dq = tiles->q ? tiles->q : (float *)it->dqkv + q_first, *dk = tiles->q ? tiles->k : (float *)it->dqkv + q + d;
  float *dv = tiles->q ? tiles->v : dk + d;

  strip->ahead = attention_next_head(it, strip, number, it->qkv, 3, 0, 2);
  attention_scores(it, strip, head, attention_alpha(it), q_strip, head->ld, head->k, head->k_t, tiles->s);
  strip->ahead = attention_next_head(it, strip, number, it->qkv, 3, 2 * d, 1);
  attention_scores(it, strip, head, 1, dy_strip, head->ld_y, head->v, head->v_t, tiles->ds);
  attention_strip_gradient(it, strip, tiles, row, cpu_at(it->type, head->y, y_first), dy_strip, head->ld_y);
  strip->ahead = attention_next_head(it, strip, number, it->dy, 1, 0, 1);
  attention_sum_queries(it, strip, tiles->p, dy_strip, head->ld_y, dv, ld, adds);
  strip->ahead = attention_next_head(it, strip, number, it->y, 1, 0, 1);
  attention_sum_queries(it, strip, tiles->dp, q_strip, head->ld, dk, ld, adds);
  strip->ahead = attention_next_head(it, strip, number, it->dqkv, 3, 0, 3);
  attention_sum_keys(it, strip, head, tiles->dp, head->k, dq, ld);
  attention_round(it, dq, strip->queries, q_first);
}

static void attention_backward_body(const void *arguments, size_t low, size_t high)
{
  const struct attention *it = arguments;
  const struct trm_attention *shape = it->shape;
  const size_t e = shape->head_dim, d = shape->heads * e, t = shape->t;
  const struct tiles tiles = attention_tiles(it);

  for (size_t number = low; number < high; number++) {
    const size_t b = number / shape->heads, h = number % shape->heads, q = b * t * 3 * d + h * e;
    const struct head head = attention_head(it, &tiles, b, h);

    for (size_t i = it->strips; i-- > 0;) {
      struct attention_strip strip = attention_strip(it, i);

      attention_backward_strip(it, &strip, &tiles, &head, number, q);
    }
    if (tiles.q) {
      attention_round(it, tiles.k, t, q + d);
      attention_round(it, tiles.v, t, q + 2 * d);
    }
  }
}

/* Returns the micro-kernels for the call's products: float32 ones, not those that blas rounds; NULL: none fit. */
static const struct attention_kernels *attention_kernels_for(const struct trm_device *device,
                                                             const struct attention *it)
{
  const struct attention_kernels *kernels = ((const struct cpu_state *)device->impl)->attention;
  const bool fits = kernels && it->shape->head_dim % kernels->lanes == 0;

  return fits && it->type == TRM_VALUES_F32 && device->blas->matmul == TRM_MATMUL_F32 ? kernels : NULL;
}

/* Returns what computes the call if its factors are in bfloat16, as values or for blas; NULL: nothing does. */
static const struct attention_blocks *attention_blocks_for(const struct trm_device *device, enum trm_value_type type)
{
  const bool rounds = type == TRM_VALUES_BF16 || device->blas->matmul == TRM_MATMUL_BF16;

  return rounds ? ((const struct cpu_state *)device->impl)->attention_blocks : NULL;
}

/* Runs a loop with scratch memory; its products stay in the calling thread. */
static void attention_run(struct trm_device *device, struct attention *it, size_t items, size_t strips, cpu_body *body)
{
  const struct trm_attention *shape = it->shape;
  const double work = (double)strips * STRIP * (double)shape->t * (double)shape->head_dim;
  const size_t e = shape->head_dim, ld_t = attention_ld(shape->t), scores = STRIP * ld_t;

  it->blas = device->blas;
  it->kernels = attention_kernels_for(device, it);
  it->per_thread = it->type == TRM_VALUES_F32 ? 2 * scores + (it->kernels ? 2 * e * ld_t : 0)
                                              : 3 * scores + (STRIP + 5 * shape->t) * e;
  it->scratch = cpu_scratch(device, (size_t)device->threads * it->per_thread * sizeof(float));
  cpu_for(device, items, 1, work, body, it);
}

void cpu_attention_forward(struct trm_device *device, const struct trm_attention_forward *call)
{
  const struct trm_attention *shape = &call->shape;
  struct attention it = {
    .shape = shape, .type = call->type, .qkv = call->qkv, .y = call->y, .row = call->row,
    .strips = (shape->t - shape->first + STRIP - 1) / STRIP};

  if (shape->t - shape->first > 1) {
    const struct attention_blocks *blocks = attention_blocks_for(device, call->type);

    if (blocks) {
      attention_bf16_forward(device, blocks, call);
      return;
    }
    attention_run(device, &it, shape->b * shape->heads * it.strips, 1, attention_forward_body);
    return;
  }
  it.per_thread = shape->t + 2 * shape->head_dim;
  it.scratch = cpu_scratch(device, (size_t)device->threads * it.per_thread * sizeof(float));
  cpu_for(device, shape->b * shape->heads, 1, (double)(2 * shape->t * shape->head_dim), attention_query_body, &it);
}

void cpu_attention_backward(struct trm_device *device, const struct trm_attention_backward *call)
{
  const struct trm_attention *shape = &call->shape;
  struct attention it = {
    .shape = shape, .type = call->type, .qkv = call->qkv, .y = (void *)call->y, .row = (float *)call->row,
    .dy = call->dy, .dqkv = call->dqkv, .strips = (shape->t + STRIP - 1) / STRIP};
  const struct attention_blocks *blocks = attention_blocks_for(device, call->type);

  if (blocks)
    attention_bf16_backward(device, blocks, call);
  else
    attention_run(device, &it, shape->b * shape->heads, it.strips, attention_backward_body);
}
