/* sign: one bit an element (EF-signSGD, Karimireddy, Rebjock, Stich, Jaggi: Error feedback fixes SignSGD and other
 * gradient compression schemes, ICML 2019, algorithm 1; 1-bit SGD, Seide et al. 2014). Of each block of d elements
 *
 *   C(p) = (|p|_1 / d) sign p
 *
 * with sign 0 = 1; the padding of tensors stays 0. The update is the sum over the nodes of their C(p): no majority
 * vote, which would lose their sizes. */
#include <math.h>
#include <string.h>

#include "core/clones.h"
#include "mpi/compress/blocks.h"

static void sign_measure(const struct compressor *c, struct compress_part *part, struct compress_sizes *sizes)
{
  (void)c;
  sizes->state[0] = part->n;
  blocks_measure(part, 1, sizes);
}

/* |p|_1 / n */
static float sign_mean(const float *p, size_t n)
{
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (size_t i = 0; i < n; i++)
    sum += fabsf(p[i]);
  return sum / (float)n;
}

static uint32_t sign_bits(float x)
{
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

static float sign_value(uint32_t bits)
{
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

/* Bit j of word i is 1 where p[32 i + j] is negative; elements beyond n count as 0. */
CPU_CLONES static void sign_pack(uint32_t *to, const float *p, size_t n)
{
  for (size_t at = 0; at < n; at += 32) {
    float rest[32] = {0};
    const float *from = p + at;
    if (n - at < 32)
      from = memcpy(rest, from, (n - at) * sizeof *rest);
    uint32_t word = 0;
#pragma omp simd reduction(| : word)
    for (uint32_t j = 0; j < 32; j++)
      word |= sign_bits(from[j] + 0.0f) >> 31 << j; /* -0 + 0 is 0 */
    *to++ = word;
  }
}

/* to (n) += scale, or -scale where the bit is 1. */
CPU_CLONES static void sign_add(float *to, const uint32_t *words, float scale, size_t n)
{
  const uint32_t bits = sign_bits(scale);
  for (size_t at = 0; at < n; at += 32) {
    const uint32_t word = words[at / 32], count = n - at < 32 ? (uint32_t)(n - at) : 32;
    if (count == 32) {
#pragma omp simd
      for (uint32_t j = 0; j < 32; j++)
        to[at + j] += sign_value(bits ^ (word >> j & 1) << 31);
    } else {
      for (uint32_t j = 0; j < count; j++)
        to[at + j] += sign_value(bits ^ (word >> j & 1) << 31);
    }
  }
}

static void sign_compress(struct compress_part *part)
{
  float *const p = part->state[0];
  const struct blocks_message to = blocks_message(part, part->nodes->rank, 1);
  for (size_t b = 0; b < blocks_of(part->n); b++) {
    const size_t n = block_size(part->n, b);
    uint32_t *const words = to.words + b * blocks_words(1);
    to.scale[b] = sign_mean(p + b * BLOCK, n);
    sign_pack(words, p + b * BLOCK, n);
    sign_add(p + b * BLOCK, words, -to.scale[b], n); /* e = p - C(p) */
  }
}

/* A rank's gradient is added to what its padding has: there the sum must not become C(0). */
static void sign_clear_padding(const struct trm_optimizer *optimizer, const struct compress_part *part)
{
  for (int t = 0; t < optimizer->tensors; t++)
    for (size_t at = optimizer->tensor[t].end - optimizer->tensor[t].padding; at < optimizer->tensor[t].end; at++)
      if (at >= part->low && at < part->low + part->n)
        part->data[at - part->low] = 0;
}

static bool sign_advance(struct compressor *c, struct compress_part *part)
{
  if (part->round == 0) {
    compress_add_gradient(part);
    sign_compress(part);
    compress_gather_rows_begin(c, part, part->buffer, blocks_message_bytes(part->n, 1));
    return false;
  }
  memset(part->data, 0, part->n * sizeof *part->data);
  for (int node = 0; node < part->nodes->size; node++) {
    const struct blocks_message from = blocks_message(part, node, 1);
    for (size_t b = 0; b < blocks_of(part->n); b++)
      sign_add(part->data + b * BLOCK, from.words + b * blocks_words(1), from.scale[b], block_size(part->n, b));
  }
  sign_clear_padding(c->strategy->optimizer, part);
  return true;
}

const struct compressor_ops compress_sign = {
  .state_name = {"sign error"}, .measure = sign_measure, .advance = sign_advance};
