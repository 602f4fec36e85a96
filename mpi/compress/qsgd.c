/* qsgd: stochastic quantization, unbiased, so without error feedback (Alistarh, Grubic, Li, Tomioka, Vojnovic: QSGD,
 * NeurIPS 2017, section 3.1). Of each block g, with s levels:
 *
 *   Q(g_i) = |g|_2 sign(g_i) l / s,   l = floor(s |g_i| / |g|_2 + u),   u uniform in [0, 1)
 *
 * so that E Q(g_i) = g_i. A code of strategy.compress_bits has the sign in its highest bit and l below it: s = 2^(bits -
 * 1) - 1. (The paper's variable-length codes would shorten messages of very few levels.) u depends on run.seed, the
 * update, the node and the element's index in the flat array alone. Error feedback would diverge: the error of Q may be
 * larger than g. */
#include <math.h>
#include <string.h>

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
  sizes->buffer = (size_t)part->nodes->size * blocks_message_bytes(part->n, qsgd_bits(c));
}

/* u (n) = the random numbers of elements [first, first + n), those of trm_random_uniform. */
static void qsgd_draw(const struct trm_strategy *strategy, uint64_t first, float *u, size_t n)
{
  for (size_t i = 0; i < n;) {
    uint32_t word[4];
    trm_random_block(strategy->seed, TRM_RANDOM_COMPRESS, (uint32_t)strategy->updates, (first + i) / 4, word);
    for (size_t j = (first + i) % 4; j < 4 && i < n; j++)
      u[i++] = trm_random_unit(word[j]);
  }
}

/* Codes of a block (n, at most BLOCK); elements beyond n count as 0. */
static void qsgd_pack(uint8_t *to, const float *g, float norm, const float *u, size_t n, int bits)
{
  const uint32_t levels = (1u << (bits - 1)) - 1;
  const float factor = norm > 0 ? (float)levels / norm : 0;
  uint8_t code[BLOCK] = {0};
  for (size_t i = 0; i < n; i++) {
    const float level = fabsf(g[i]) * factor + u[i];
    const uint32_t l = level < (float)levels ? (uint32_t)level : levels;
    code[i] = (uint8_t)(l | (g[i] < 0 ? levels + 1 : 0));
  }
  const int per_byte = 8 / bits;
  for (size_t i = 0; i < BLOCK / (size_t)per_byte; i++) {
    uint32_t byte = 0;
    for (int j = 0; j < per_byte; j++)
      byte |= (uint32_t)code[i * (size_t)per_byte + (size_t)j] << j * bits;
    to[i] = (uint8_t)byte;
  }
}

/* data (n) += what the codes of a block are. */
static void qsgd_add(float *data, const uint8_t *codes, float norm, size_t n, int bits)
{
  const uint32_t levels = (1u << (bits - 1)) - 1;
  const size_t per_byte = 8 / (size_t)bits;
  float value[256]; /* of each code */
  for (uint32_t l = 0; l <= levels; l++) {
    value[l] = norm * (float)l / (float)levels;
    value[l + levels + 1] = -value[l];
  }
  for (size_t i = 0; i < n; i++)
    data[i] += value[codes[i / per_byte] >> i % per_byte * (size_t)bits & (2 * levels + 1)];
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
  const int bits = qsgd_bits(c);
  const struct blocks_message to = blocks_message(part, part->nodes->rank, bits);
  for (size_t b = 0; b < blocks_of(part->n); b++) {
    const size_t n = block_size(part->n, b), at = b * BLOCK;
    float u[BLOCK];
    to.scale[b] = qsgd_norm(part->data + at, n);
    qsgd_draw(c->strategy, (uint64_t)part->nodes->rank * QSGD_NODE_STRIDE + part->low + at, u, n);
    qsgd_pack(to.codes + b * (BLOCK / 8 * (size_t)bits), part->data + at, to.scale[b], u, n, bits);
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
      qsgd_add(part->data + b * BLOCK, from.codes + b * (BLOCK / 8 * (size_t)bits), from.scale[b],
               block_size(part->n, b), bits);
  }
  return true;
}

const struct compressor_ops compress_qsgd = {.measure = qsgd_measure, .advance = qsgd_advance};
