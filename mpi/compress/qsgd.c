/* qsgd: stochastic quantization, unbiased, so without error feedback (Alistarh, Grubic, Li, Tomioka, Vojnovic: QSGD,
 * NeurIPS 2017, section 3.1). Of each block g, with s levels:
 *
 *   Q(g_i) = |g|_2 sign(g_i) l / s,   l = floor(s |g_i| / |g|_2 + u),   u uniform in [0, 1)
 *
 * so that E Q(g_i) = g_i. A code of strategy.compress_bits has the sign in its highest bit and l below it: s = 2^(bits
 * - 1) - 1. (The paper's variable-length codes would shorten messages of very few levels.) u depends on run.seed, the
 * update, the node and the element's index in the flat array alone. Error feedback would diverge: the error of Q may
 * be larger than g. */
#include <math.h>
#include <string.h>

#include "core/clones.h"
#include "core/random.h"
#include "mpi/compress/blocks.h"

/* Elements of the flat arrays are fewer. */
#define QSGD_NODE_STRIDE ((uint64_t)1 << 40)

static int qsgd_bits(const struct compressor *c)
{
  return 2 << (int)c->strategy->options->compress_bits;
}

static void qsgd_measure(const struct compressor *c, struct compress_part *part, struct compress_sizes *sizes)
{
  blocks_measure(part, qsgd_bits(c), sizes);
}

/* Numbers of a block at any place of the arrays, in whole blocks of random.h. */
enum { DRAWN = BLOCK + 4 };

/* u = the numbers of elements [4 first, 4 first + DRAWN): those of trm_random_uniform. */
CPU_CLONES static void qsgd_draw(uint64_t seed, uint32_t stream, uint64_t first, float *u)
{
  const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
#pragma omp simd
  for (uint64_t i = 0; i < DRAWN / 4; i++) {
    const uint32_t counter[4] = {
      (uint32_t)(first + i), (uint32_t)((first + i) >> 32), stream, (uint32_t)TRM_RANDOM_COMPRESS};
    uint32_t word[4];
    trm_philox(counter, key, word);
    for (int j = 0; j < 4; j++)
      u[4 * i + (uint64_t)j] = trm_random_unit(word[j]);
  }
}

/* code (BLOCK) = the codes of g (n); those beyond n are 0. */
CPU_CLONES static void qsgd_code(uint32_t *code, const float *g, float norm, const float *u, size_t n, int bits)
{
  const int levels = (1 << (bits - 1)) - 1;
  const float factor = norm > 0 ? (float)levels / norm : 0;
#pragma omp simd
  for (size_t i = 0; i < n; i++) {
    const float level = fabsf(g[i]) * factor + u[i];
    const int l = level < (float)levels ? (int)level : levels;
    code[i] = (uint32_t)(g[i] < 0 ? l + levels + 1 : l);
  }
  memset(code + n, 0, (BLOCK - n) * sizeof *code);
}

/* data (n) += the values of the codes of a block. bits: a constant where this is inlined. */
static inline void qsgd_add_words(float *data, const uint32_t *words, float unit, size_t n, uint32_t bits)
{
  const uint32_t levels = (1u << (bits - 1)) - 1, per = 32 / bits;
  float value[BLOCK];
  for (size_t w = 0; w < BLOCK / per; w++)
    for (uint32_t j = 0; j < per; j++) {
      const uint32_t code = words[w] >> j * bits;
      const float size = unit * (float)(int)(code & levels);
      value[w * per + j] = code >> (bits - 1) & 1 ? -size : size;
    }
  for (size_t i = 0; i < n; i++)
    data[i] += value[i];
}

CPU_CLONES static void qsgd_add(float *data, const uint32_t *words, float norm, size_t n, int bits)
{
  const float unit = norm / (float)((1 << (bits - 1)) - 1);
  if (bits == 2)
    qsgd_add_words(data, words, unit, n, 2);
  else if (bits == 4)
    qsgd_add_words(data, words, unit, n, 4);
  else
    qsgd_add_words(data, words, unit, n, 8);
}

static void qsgd_pack(uint32_t *words, const uint32_t *code, int bits)
{
  const uint32_t per = 32 / (uint32_t)bits;
  for (size_t w = 0; w < blocks_words(bits); w++) {
    uint32_t word = 0;
    for (uint32_t j = 0; j < per; j++)
      word |= code[w * per + j] << j * (uint32_t)bits;
    words[w] = word;
  }
}

static float qsgd_norm(const float *g, size_t n)
{
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (size_t i = 0; i < n; i++)
    sum += (double)g[i] * (double)g[i];
  return (float)sqrt(sum);
}

static void qsgd_compress(struct compressor *c, struct compress_part *part)
{
  const struct trm_strategy *strategy = c->strategy;
  const int bits = qsgd_bits(c);
  const struct blocks_message to = blocks_message(part, part->nodes->rank, bits);
  for (size_t b = 0; b < blocks_of(part->n); b++) {
    const float *const g = part->data + b * BLOCK;
    const size_t n = block_size(part->n, b);
    const uint64_t first = (uint64_t)part->nodes->rank * QSGD_NODE_STRIDE + part->low + b * BLOCK;
    float u[DRAWN];
    uint32_t code[BLOCK];
    to.scale[b] = qsgd_norm(g, n);
    qsgd_draw(strategy->seed, (uint32_t)strategy->updates, first / 4, u);
    qsgd_code(code, g, to.scale[b], u + first % 4, n, bits);
    qsgd_pack(to.words + b * blocks_words(bits), code, bits);
  }
}

static bool qsgd_advance(struct compressor *c, struct compress_part *part)
{
  const int bits = qsgd_bits(c);
  if (part->round == 0) {
    qsgd_compress(c, part);
    compress_gather_rows_begin(c, part, part->buffer, blocks_message_bytes(part->n, bits));
    return false;
  }
  memset(part->data, 0, part->n * sizeof *part->data);
  for (int node = 0; node < part->nodes->size; node++) {
    const struct blocks_message from = blocks_message(part, node, bits);
    for (size_t b = 0; b < blocks_of(part->n); b++)
      qsgd_add(part->data + b * BLOCK, from.words + b * blocks_words(bits), from.scale[b], block_size(part->n, b),
               bits);
  }
  return true;
}

const struct compressor_ops compress_qsgd = {.measure = qsgd_measure, .advance = qsgd_advance};
