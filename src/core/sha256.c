/* SHA-256 (FIPS 180-4). */
#include "core/sha256.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#ifdef __x86_64__
#include <cpuid.h>
#include <immintrin.h>
#include <pthread.h>
#endif

#include "core/status.h"

static const uint32_t constant[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static inline uint32_t sha_rotr(uint32_t x, int bits)
{
  return x >> bits | x << (32 - bits);
}

static inline uint32_t sha_load_be(const uint8_t *p)
{
  return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* Round i: the working variables a to h are s[-i], s[1 - i], ..., s[7 - i] modulo 8, renamed rather than moved. */
static inline void sha_round(uint32_t s[8], int i, uint32_t word)
{
  const uint32_t a = s[-i & 7], b = s[(1 - i) & 7], c = s[(2 - i) & 7];
  const uint32_t e = s[(4 - i) & 7], f = s[(5 - i) & 7], g = s[(6 - i) & 7], h = s[(7 - i) & 7];
  const uint32_t t = h + (sha_rotr(e, 6) ^ sha_rotr(e, 11) ^ sha_rotr(e, 25)) + (g ^ (e & (f ^ g))) + word;
  s[(3 - i) & 7] += t;
  s[(7 - i) & 7] = t + (sha_rotr(a, 2) ^ sha_rotr(a, 13) ^ sha_rotr(a, 22)) + ((a & b) | (c & (a | b)));
}

static void sha_add_blocks_plain(uint32_t state[8], const uint8_t *data, size_t blocks)
{
  for (; blocks > 0; blocks--, data += 64) {
    uint32_t s[8], w[64];
    memcpy(s, state, sizeof s);
    for (int i = 0; i < 16; i++)
      w[i] = sha_load_be(data + 4 * i);
    for (int i = 16; i < 64; i++) {
      const uint32_t x = w[i - 15], y = w[i - 2];
      w[i] = w[i - 16] + (sha_rotr(x, 7) ^ sha_rotr(x, 18) ^ x >> 3) + w[i - 7] +
             (sha_rotr(y, 17) ^ sha_rotr(y, 19) ^ y >> 10);
    }
    for (int i = 0; i < 64; i += 8)
#pragma GCC unroll 8 /* the variables stay in registers */
      for (int k = 0; k < 8; k++)
        sha_round(s, k, constant[i + k] + w[i + k]);
    for (int i = 0; i < 8; i++)
      state[i] += s[i];
  }
}

#ifdef __x86_64__
/* The same by the processor's instructions, which keep the variables a, b, e, f in one register and c, d, g, h in
 * another, highest first, and compute two rounds. */
__attribute__((target("sha,sse4.1"))) static void sha_add_blocks_native(uint32_t state[8], const uint8_t *data,
                                                                        size_t blocks)
{
  const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203); /* big-endian words */
  const __m128i badc = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)state), 0xb1);
  const __m128i hgfe = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)(state + 4)), 0x1b);
  __m128i abef = _mm_alignr_epi8(badc, hgfe, 8), cdgh = _mm_blend_epi16(hgfe, badc, 0xf0);

  for (; blocks > 0; blocks--, data += 64) {
    const __m128i abef_before = abef, cdgh_before = cdgh;
    __m128i w[16]; /* four words each */

    for (int i = 0; i < 16; i++) {
      if (i < 4)
        w[i] = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(data + 16 * i)), swap);
      else
        w[i] = _mm_sha256msg2_epu32(_mm_add_epi32(_mm_sha256msg1_epu32(w[i - 4], w[i - 3]),
                                                  _mm_alignr_epi8(w[i - 1], w[i - 2], 4)), w[i - 1]);
      const __m128i word = _mm_add_epi32(w[i], _mm_loadu_si128((const __m128i *)(constant + 4 * i)));
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, word);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(word, 0x0e));
    }
    abef = _mm_add_epi32(abef, abef_before);
    cdgh = _mm_add_epi32(cdgh, cdgh_before);
  }
  const __m128i feba = _mm_shuffle_epi32(abef, 0x1b), dchg = _mm_shuffle_epi32(cdgh, 0xb1);
  _mm_storeu_si128((__m128i *)state, _mm_blend_epi16(feba, dchg, 0xf0));
  _mm_storeu_si128((__m128i *)(state + 4), _mm_alignr_epi8(dchg, feba, 8));
}

static pthread_once_t sha_once = PTHREAD_ONCE_INIT;
static bool sha_instructions;

static void sha_look_for_instructions(void)
{
  unsigned a, b, c, d;

  sha_instructions = __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b >> 29 & 1) && __builtin_cpu_supports("sse4.1");
}

/* Asks the processor once: a virtual machine traps the instruction, which then takes longer than the hash of a line. */
static bool sha_has_instructions(void)
{
  pthread_once(&sha_once, sha_look_for_instructions);
  return sha_instructions;
}
#else
#define sha_add_blocks_native sha_add_blocks_plain
static bool sha_has_instructions(void)
{
  return false;
}
#endif

static void sha_add_blocks(struct trm_sha256 *hash, const uint8_t *data, size_t blocks)
{
  (hash->is_native ? sha_add_blocks_native : sha_add_blocks_plain)(hash->state, data, blocks);
}

void trm_sha256_begin(struct trm_sha256 *hash)
{
  *hash = (struct trm_sha256){.state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c,
                                        0x1f83d9ab, 0x5be0cd19},
                               .is_native = sha_has_instructions()};
}

void trm_sha256_add(struct trm_sha256 *hash, const void *data, size_t bytes)
{
  const uint8_t *from = data;
  const size_t held = hash->bytes % 64;
  hash->bytes += bytes;
  if (held > 0) {
    const size_t part = bytes < 64 - held ? bytes : 64 - held;
    if (part > 0)
      memcpy(hash->block + held, from, part);
    if (held + part < 64)
      return;
    sha_add_blocks(hash, hash->block, 1);
    from += part;
    bytes -= part;
  }
  sha_add_blocks(hash, from, bytes / 64);
  if (bytes % 64 > 0)
    memcpy(hash->block, from + bytes / 64 * 64, bytes % 64);
}

void trm_sha256_end(struct trm_sha256 *hash, char hex[65])
{
  static const uint8_t padding[64] = {0x80};
  static const char digit[] = "0123456789abcdef";
  const uint64_t bits = hash->bytes * 8;
  const size_t held = hash->bytes % 64;
  trm_sha256_add(hash, padding, held < 56 ? 56 - held : 120 - held);
  uint8_t length[8];
  for (int i = 0; i < 8; i++)
    length[i] = (uint8_t)(bits >> (56 - 8 * i));
  trm_sha256_add(hash, length, sizeof length);
  for (int i = 0; i < 64; i++)
    hex[i] = digit[hash->state[i / 8] >> (28 - 4 * (i % 8)) & 15];
  hex[64] = '\0';
}

int trm_sha256_file(const char *path, char hex[65])
{
  char block[16384];
  struct trm_sha256 sha;
  FILE *in = fopen(path, "rb");
  if (!in)
    return trm_error(TRM_FAILED, "%s: %s", path, strerror(errno));
  trm_sha256_begin(&sha);
  for (size_t n; (n = fread(block, 1, sizeof block, in)) > 0;)
    trm_sha256_add(&sha, block, n);
  trm_sha256_end(&sha, hex);
  const int reason = ferror(in) ? errno : 0;
  fclose(in);
  return reason ? trm_error(TRM_FAILED, "%s: cannot be read: %s", path, strerror(reason)) : TRM_OK;
}
