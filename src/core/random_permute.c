/* Permutations in O(1) memory: one element, and many at a time. */
#include "core/random.h"

#ifdef __x86_64__
#include <immintrin.h>
#endif

#define ROUNDS 8
/* Set in counter word 1 of the permutation's draws, where an index of trm_random_block does not reach. */
#define MARK 0x80000000u

/* A Feistel network on numbers of 2 * half bits. */
struct feistel {
  uint32_t key[2], stream, purpose, mask;
  unsigned half; /* bits of each side */
  uint64_t n;
};

static void feistel_make(struct feistel *f, uint64_t seed, enum trm_purpose purpose, uint32_t stream, uint64_t n)
{
  *f = (struct feistel){
    .key = {(uint32_t)seed, (uint32_t)(seed >> 32)}, .stream = stream, .purpose = (uint32_t)purpose, .half = 1, .n = n};
  while (f->half < 32 && (n - 1) >> (2 * f->half))
    f->half++;
  f->mask = f->half < 32 ? (UINT32_C(1) << f->half) - 1 : UINT32_MAX;
}

static uint64_t feistel_one(const struct feistel *f, uint64_t value)
{
  do { /* at most 4 times on average: the domain is less than four times n */
    uint32_t left = (uint32_t)(value >> f->half) & f->mask, right = (uint32_t)value & f->mask;
    for (uint32_t round = 0; round < ROUNDS; round++) {
      const uint32_t counter[4] = {right, MARK | round, f->stream, f->purpose};
      uint32_t word[4];
      trm_philox_inline(counter, f->key, word);
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
  feistel_make(&f, seed, purpose, stream, n);
  return feistel_one(&f, position);
}

#ifdef __x86_64__
/* Eight numbers in lockstep, in the low halves of 64-bit lanes: the multiplication is the one of SSE2 and its heirs that
 * compilers do not find. What is in the upper halves does not matter. */
#define LANES 8
#define AVX2 __attribute__((target("avx2")))

struct words {
  __m256i c0, c1, c2, c3;
};

AVX2 static inline void philox_step(struct words *w, __m256i k0, __m256i k1)
{
  const __m256i p0 = _mm256_mul_epu32(w->c0, _mm256_set1_epi64x(0xD2511F53));
  const __m256i p1 = _mm256_mul_epu32(w->c2, _mm256_set1_epi64x(0xCD9E8D57));
  w->c0 = _mm256_xor_si256(_mm256_srli_epi64(p1, 32), _mm256_xor_si256(w->c1, k0));
  w->c1 = p1;
  w->c2 = _mm256_xor_si256(_mm256_srli_epi64(p0, 32), _mm256_xor_si256(w->c3, k1));
  w->c3 = p0;
}

AVX2 static void feistel_pass(const struct feistel *f, uint64_t left[LANES], uint64_t right[LANES])
{
  const __m256i mask = _mm256_set1_epi64x(f->mask);
  __m256i left_a = _mm256_loadu_si256((const __m256i *)left), left_b = _mm256_loadu_si256((const __m256i *)left + 1);
  __m256i right_a = _mm256_loadu_si256((const __m256i *)right), right_b = _mm256_loadu_si256((const __m256i *)right + 1);
  for (uint32_t round = 0; round < ROUNDS; round++) {
    uint32_t k0 = f->key[0], k1 = f->key[1];
    struct words a = {right_a, _mm256_set1_epi64x(MARK | round), _mm256_set1_epi64x(f->stream),
                      _mm256_set1_epi64x(f->purpose)};
    struct words b = {right_b, a.c1, a.c2, a.c3};
    for (int step = 0; step < 10; step++) {
      const __m256i key0 = _mm256_set1_epi64x(k0), key1 = _mm256_set1_epi64x(k1);
      philox_step(&a, key0, key1);
      philox_step(&b, key0, key1);
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    const __m256i next_a = _mm256_xor_si256(left_a, _mm256_and_si256(a.c0, mask));
    const __m256i next_b = _mm256_xor_si256(left_b, _mm256_and_si256(b.c0, mask));
    left_a = right_a;
    left_b = right_b;
    right_a = next_a;
    right_b = next_b;
  }
  _mm256_storeu_si256((__m256i *)left, left_a);
  _mm256_storeu_si256((__m256i *)left + 1, left_b);
  _mm256_storeu_si256((__m256i *)right, right_a);
  _mm256_storeu_si256((__m256i *)right + 1, right_b);
}

/* A lane whose number has come to lie below n takes the next position; the others go on. */
static void feistel_many(const struct feistel *f, uint64_t first, size_t count, uint64_t *element)
{
  uint64_t left[LANES] = {0}, right[LANES] = {0};
  size_t of[LANES], next = 0, done = 0;
  for (; next < LANES; next++) {
    of[next] = next; /* beyond count: idle */
    left[next] = (first + next) >> f->half & f->mask;
    right[next] = (first + next) & f->mask;
  }
  while (done < count) {
    feistel_pass(f, left, right);
    for (int l = 0; l < LANES; l++) {
      const uint64_t value = left[l] << f->half | right[l];
      if (value >= f->n || of[l] >= count)
        continue;
      element[of[l]] = value;
      done++;
      of[l] = next;
      left[l] = (first + next) >> f->half & f->mask;
      right[l] = (first + next) & f->mask;
      next++;
    }
  }
}
#endif

void trm_random_permute_many(uint64_t seed, enum trm_purpose purpose, uint32_t stream, uint64_t n, uint64_t first,
                             size_t count, uint64_t *element)
{
  struct feistel f = {.n = n};
  if (n > 1)
    feistel_make(&f, seed, purpose, stream, n);
#ifdef __x86_64__
  if (n > 1 && __builtin_cpu_supports("avx2")) {
    feistel_many(&f, first, count, element);
    return;
  }
#endif
  for (size_t i = 0; i < count; i++)
    element[i] = n > 1 ? feistel_one(&f, first + i) : 0;
}
