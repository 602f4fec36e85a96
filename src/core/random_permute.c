/* Permutations in O(1) memory: single elements and batches. */
#include "core/random.h"

#ifdef __x86_64__
#include <immintrin.h>
#endif

#define ROUNDS 8
#define STEPS 10 /* of Philox */
/* Set in counter word 1 of the permutation's draws: no index of trm_random_block reaches it. */
#define PERMUTE_FLAG 0x80000000u

/* A Feistel network on numbers of 2 * half bits. */
struct feistel {
  uint32_t key[2], stream, purpose, mask;
  unsigned half; /* bits per half */
  uint64_t n;
};

static void permute_init(struct feistel *f, uint64_t seed, enum trm_purpose purpose, uint32_t stream, uint64_t n)
{
  *f = (struct feistel){
    .key = {(uint32_t)seed, (uint32_t)(seed >> 32)}, .stream = stream, .purpose = (uint32_t)purpose, .half = 1, .n = n};
  while (f->half < 32 && (n - 1) >> (2 * f->half))
    f->half++;
  f->mask = f->half < 32 ? (UINT32_C(1) << f->half) - 1 : UINT32_MAX;
}

static uint64_t permute_one(const struct feistel *f, uint64_t value)
{
  do { /* at most 4 times on average: the domain is less than four times n */
    uint32_t left = (uint32_t)(value >> f->half) & f->mask, right = (uint32_t)value & f->mask;
    for (uint32_t round = 0; round < ROUNDS; round++) {
      const uint32_t counter[4] = {right, PERMUTE_FLAG | round, f->stream, f->purpose};
      uint32_t word[4];
      trm_philox(counter, f->key, word);
      const uint32_t next = left ^ (word[0] & f->mask);
      left = right;
      right = next;
    }
    value = (uint64_t)left << f->half | right;
  } while (value >= f->n);
  return value;
}

uint64_t trm_random_permute(uint64_t seed, enum trm_purpose purpose, uint32_t stream, uint64_t n, uint64_t position)
{
  struct feistel f;
  if (n <= 1)
    return 0;
  permute_init(&f, seed, purpose, stream, n);
  return permute_one(&f, position);
}

#ifdef __x86_64__
#define CLONE(name) name##_avx2
#define TARGET __attribute__((target("avx2")))
#define V __m256i
#define V_SET1(n) _mm256_set1_epi64x(n)
#define V_LOAD(p) _mm256_loadu_si256(p)
#define V_STORE(p, v) _mm256_storeu_si256(p, v)
#define V_MUL(a, b) _mm256_mul_epu32(a, b)
#define V_UPPER(v) _mm256_srli_epi64(v, 32)
#define V_XOR(a, b) _mm256_xor_si256(a, b)
#define V_AND(a, b) _mm256_and_si256(a, b)
#include "core/random_permute_simd.h"

#define CLONE(name) name##_avx512
#define TARGET __attribute__((target("avx512f")))
#define V __m512i
#define V_SET1(n) _mm512_set1_epi64(n)
#define V_LOAD(p) _mm512_loadu_si512(p)
#define V_STORE(p, v) _mm512_storeu_si512(p, v)
#define V_MUL(a, b) _mm512_mul_epu32(a, b)
#define V_UPPER(v) _mm512_srli_epi64(v, 32)
#define V_XOR(a, b) _mm512_xor_si512(a, b)
#define V_AND(a, b) _mm512_and_si512(a, b)
#include "core/random_permute_simd.h"
#endif

void trm_random_permute_many(uint64_t seed, enum trm_purpose purpose, uint32_t stream, uint64_t n, uint64_t first,
                             size_t count, uint64_t *element)
{
  struct feistel f = {.n = n};
  if (n > 1)
    permute_init(&f, seed, purpose, stream, n);
#ifdef __x86_64__
  if (n > 1 && __builtin_cpu_supports("avx512f")) {
    permute_many_avx512(&f, first, count, element);
    return;
  }
  if (n > 1 && __builtin_cpu_supports("avx2")) {
    permute_many_avx2(&f, first, count, element);
    return;
  }
#endif
  for (size_t i = 0; i < count; i++)
    element[i] = n > 1 ? permute_one(&f, first + i) : 0;
}
