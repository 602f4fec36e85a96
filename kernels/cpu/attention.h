/* Attention: in float32, products of a strip by micro-kernels; in bfloat16, of blocks. Private to kernels/cpu.
 *
 * A strip is some queries of one head with all the keys that they attend to. Its products are small, and where the
 * scores are masked only a part of each is needed: a library copies both factors, and computes all. Here B is read in
 * place, and tiles of C that the mask leaves out are skipped. Each element of C is summed in order, one term after the
 * other. */
#pragma once

#include "kernels/cpu/cpu.h"

/* C (rows, columns) = A (rows, k) times B (k, columns), added to C if `adds`; columns rounded up to whole vectors. */
struct attention_tile {
  const float *a; /* element (i, j) is a[i * row + j * step] */
  size_t row, step;
  const float *b;
  size_t ldb;
  float *c;
  size_t ldc;
  size_t rows, columns, k; /* at least 1 */
  bool adds;
};

/* Numbers of a row of scores, in backward: of its softmax, the sum of p * ds, and the scores' factor. */
struct attention_row {
  float maximum, scale, mean, factor;
};

struct attention_kernels {
  const char *name;
  bool (*supported)(void); /* on this processor */
  size_t rows, columns, lanes; /* the largest tile; floats of a vector */
  void (*tile)(const struct attention_tile *it);
  /* to (columns, rows; ld_to) = factor times the transposed from (rows, columns; ld), columns a multiple of lanes */
  void (*transpose)(const float *from, size_t rows, size_t columns, size_t ld, float factor, float *to, size_t ld_to);
  /* Rows of n scores, rounded up to CPU_LANES; what follows up to `end` becomes 0. softmax: s becomes exponentials less
   * the maximum, which is returned, and *sum their sum. */
  float (*softmax)(float *s, size_t n, size_t end, float *sum);
  float (*product)(const float *a, const float *b, size_t n); /* sum of a * b, n a multiple of lanes */
  /* s becomes the probabilities, and ds, the gradient of those, that of the products q k */
  void (*slopes)(float *s, float *ds, size_t n, size_t end, const struct attention_row *row);
};

extern const struct attention_kernels attention_avx512, attention_avx2; /* only for x86-64 */
/* Best first, ends with NULL: none may be supported. */
extern const struct attention_kernels *const attention_kernels_table[];

/* Rows of E floats in `parts` arrays, which are `part` floats apart: those that are yet to be fetched. */
struct attention_prefetch {
  const float *first;
  size_t rows, ld, parts, part;
  size_t step; /* rows while a tile is computed */
};

/* A strip: its queries, and the keys that they attend to; causal: query i the first + i + 1 first ones. */
struct attention_strip {
  size_t first, queries, keys;
  size_t ld; /* of its scores, at least keys, rounded up to whole vectors */
  bool causal;
  struct attention_prefetch ahead; /* rows of the next head, which the next product fetches into a cache */
};

/* S (queries, keys; ld) = A (queries, E; lda) times B (E, keys; ldb), where queries see keys. B and S have rows of
 * whole vectors. E: a multiple of lanes, here and below. */
void attention_multiply_scores(const struct attention_kernels *kernels, struct attention_strip *strip, size_t e,
                               const float *a, size_t lda, const float *b, size_t ldb, float *s);

/* C (queries, E; ldc) = S (queries, keys; ld) times B (keys, E; ldb); S is 0 where masked. */
void attention_multiply_keys(const struct attention_kernels *kernels, struct attention_strip *strip, size_t e,
                             const float *s, const float *b, size_t ldb, float *c, size_t ldc);

/* C (keys, E; ldc) = transposed S (queries, keys; ld) times B (queries, E; ldb), added to C if `adds`; S is 0 where
 * masked. */
void attention_multiply_queries(const struct attention_kernels *kernels, struct attention_strip *strip, size_t e,
                                const float *s, const float *b, size_t ldb, float *c, size_t ldc, bool adds);

/* Attention with factors of products in bfloat16, in blocks: forward of several queries, backward. */
union tile; /* attention_bf16.h */
struct attention_blocks {
  const char *name;
  bool (*supported)(void);           /* on this processor */
  void (*begin)(void), (*end)(void); /* of a thread's products */
  /* sums (32, 32), in (2, 2) tiles, = the products of n blocks along k, added if `adds`. Each has its two tiles of 16
   * rows of A, or of 16 columns of B, behind one another, and begins step_a, step_b tiles after the one before. */
  void (*multiply)(const union tile *a, size_t step_a, const union tile *b, size_t step_b, size_t n, bool adds,
                   union tile *sums);
};

/* Best first, ends with NULL: none may be supported. */
extern const struct attention_blocks *const attention_blocks_table[];

void attention_bf16_forward(struct trm_device *device, const struct attention_blocks *blocks,
                            const struct trm_attention_forward *call);
void attention_bf16_backward(struct trm_device *device, const struct attention_blocks *blocks,
                             const struct trm_attention_backward *call);
