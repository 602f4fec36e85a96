/* Random numbers: published vectors, distributions, permutations. */
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "core/memory.h"
#include "core/random.h"
#include "suite.h"

/* Test vectors of Random123 for philox4x32, 10 rounds (kat_vectors). */
static void test_philox(void)
{
  static const struct {
    uint32_t counter[4], key[2], out[4];
  } known[] = {
      {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
      {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
       {0xffffffff, 0xffffffff},
       {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
      {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
       {0xa4093822, 0x299f31d0},
       {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
  };
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    uint32_t out[4];
    trm_philox(known[i].counter, known[i].key, out);
    CU_ASSERT_EQUAL(memcmp(out, known[i].out, sizeof out), 0);
  }
  uint32_t block[4], out[4];
  const uint32_t counter[4] = {0x55667788, 0x11223344, 9, TRM_RANDOM_BENCH}, key[2] = {0xddeeff00, 0xaabbcc};
  trm_random_block(UINT64_C(0x00aabbccddeeff00), TRM_RANDOM_BENCH, 9, UINT64_C(0x1122334455667788), block);
  trm_philox(counter, key, out);
  CU_ASSERT_EQUAL(memcmp(block, out, sizeof out), 0);
}

static void test_uniform(void)
{
  enum { N = 100000 };
  double sum = 0, squares = 0, lagged = 0;
  float last = 0;
  int bin[16] = {0};
  bool inside = true;
  for (uint64_t i = 0; i < N; i++) {
    const float u = trm_random_uniform(7, TRM_RANDOM_BENCH, 3, i);
    inside = inside && u >= 0 && u < 1;
    bin[(int)(u * 16) & 15]++;
    sum += u;
    squares += (double)u * u;
    lagged += ((double)u - 0.5) * ((double)last - 0.5);
    last = u;
  }
  CU_ASSERT(inside);
  CU_ASSERT_DOUBLE_EQUAL(sum / N, 0.5, 5 * sqrt(1.0 / 12 / N));
  CU_ASSERT_DOUBLE_EQUAL(squares / N, 1.0 / 3, 5 * sqrt(4.0 / 45 / N));
  CU_ASSERT_DOUBLE_EQUAL(lagged / N, 0, 5 * sqrt(1.0 / 144 / N));
  double chi = 0;
  for (int i = 0; i < 16; i++)
    chi += (bin[i] - N / 16.0) * (bin[i] - N / 16.0) / (N / 16.0);
  CU_ASSERT(chi < 44.3); /* 15 degrees of freedom: exceeded with probability 1e-4 */

  /* word i % 4 of block i / 4 */
  uint32_t word[4];
  trm_random_block(7, TRM_RANDOM_BENCH, 3, 25, word);
  for (uint64_t i = 0; i < 4; i++)
    CU_ASSERT_EQUAL(trm_random_uniform(7, TRM_RANDOM_BENCH, 3, 100 + i), (float)(word[i] >> 8) / 16777216.0f);
  /* seeds, purposes and streams give different numbers */
  const float u = trm_random_uniform(7, TRM_RANDOM_BENCH, 3, 0);
  CU_ASSERT_NOT_EQUAL(u, trm_random_uniform(8, TRM_RANDOM_BENCH, 3, 0));
  CU_ASSERT_NOT_EQUAL(u, trm_random_uniform(7 + (UINT64_C(1) << 32), TRM_RANDOM_BENCH, 3, 0));
  CU_ASSERT_NOT_EQUAL(u, trm_random_uniform(7, TRM_RANDOM_INIT, 3, 0));
  CU_ASSERT_NOT_EQUAL(u, trm_random_uniform(7, TRM_RANDOM_BENCH, 4, 0));
  CU_ASSERT_NOT_EQUAL(u, trm_random_uniform(7, TRM_RANDOM_BENCH, 3, UINT64_C(4) << 32));
}

static void test_normal(void)
{
  enum { N = 100000 };
  double moment[5] = {0}, lagged = 0, last = 0;
  for (uint64_t i = 0; i < N; i++) {
    const double x = trm_random_normal(11, TRM_RANDOM_INIT, 1, i);
    for (int m = 1; m <= 4; m++)
      moment[m] += pow(x, m) / N;
    lagged += x * last / N;
    last = x;
  }
  CU_ASSERT_DOUBLE_EQUAL(moment[1], 0, 5 * sqrt(1.0 / N));
  CU_ASSERT_DOUBLE_EQUAL(moment[2], 1, 5 * sqrt(2.0 / N));
  CU_ASSERT_DOUBLE_EQUAL(moment[3], 0, 5 * sqrt(15.0 / N));
  CU_ASSERT_DOUBLE_EQUAL(moment[4], 3, 5 * sqrt(96.0 / N));
  CU_ASSERT_DOUBLE_EQUAL(lagged, 0, 5 * sqrt(1.0 / N));

  uint32_t word[4];
  trm_random_block(11, TRM_RANDOM_INIT, 1, 2, word);
  const double radius = sqrt(-2 * log((word[2] + 1.0) / 4294967296.0));
  CU_ASSERT_DOUBLE_EQUAL(trm_random_normal(11, TRM_RANDOM_INIT, 1, 5),
                         radius * cos(2 * 3.14159265358979323846 * word[3] / 4294967296.0), 1e-6);
  /* a word of 13 (found by a search), where the 1 that keeps the logarithm finite shows */
  trm_random_block(5, TRM_RANDOM_INIT, 1, 42042393 / 2, word);
  CU_ASSERT_EQUAL(word[2], 13);
  CU_ASSERT_DOUBLE_EQUAL(trm_random_normal(5, TRM_RANDOM_INIT, 1, 42042393),
                         sqrt(-2 * log(14 / 4294967296.0)) * cos(2 * 3.14159265358979323846 * word[3] / 4294967296.0),
                         1e-6);
}

/* Returns true if position -> element is a bijection of 0..n-1. */
static bool permutes(uint64_t n, uint32_t stream)
{
  unsigned char *hit = trm_alloc(n, "a test");
  uint64_t hits = 0;
  for (uint64_t i = 0; i < n; i++) {
    const uint64_t element = trm_random_permute(5, TRM_RANDOM_SHUFFLE, stream, n, i);
    if (element < n && !hit[element]) {
      hit[element] = 1;
      hits++;
    }
  }
  trm_free(hit);
  return hits == n;
}

static void test_permute(void)
{
  uint64_t whole = 0;
  for (uint64_t n = 1; n <= 300; n++)
    whole += permutes(n, (uint32_t)n);
  CU_ASSERT_EQUAL(whole, 300);
  CU_ASSERT(permutes(60000, 0));
  CU_ASSERT(permutes(65536, 1));
  CU_ASSERT(permutes(65537, 1));

  /* epochs and seeds differ: two random orders of 60,000 agree in one place on average */
  int same_stream = 0, same_seed = 0, fixed = 0, followed = 0;
  uint64_t last = 0;
  for (uint64_t i = 0; i < 60000; i++) {
    const uint64_t element = trm_random_permute(5, TRM_RANDOM_SHUFFLE, 0, 60000, i);
    same_stream += element == trm_random_permute(5, TRM_RANDOM_SHUFFLE, 1, 60000, i);
    same_seed += element == trm_random_permute(6, TRM_RANDOM_SHUFFLE, 0, 60000, i);
    fixed += element == i;
    followed += element == last + 1;
    last = element;
  }
  CU_ASSERT(same_stream < 12);
  CU_ASSERT(same_seed < 12);
  CU_ASSERT(fixed < 12);
  CU_ASSERT(followed < 12);

  /* small n: all 24 orders of 4 occur, about equally often */
  int orders[256] = {0};
  enum { DRAWS = 24000 };
  for (uint32_t stream = 0; stream < DRAWS; stream++) {
    unsigned order = 0;
    for (uint64_t i = 0; i < 4; i++)
      order = order << 2 | (unsigned)trm_random_permute(5, TRM_RANDOM_SHUFFLE, stream, 4, i);
    orders[order]++;
  }
  int seen = 0, least = DRAWS, most = 0;
  for (int i = 0; i < 256; i++) {
    if (orders[i] == 0)
      continue;
    seen++;
    least = orders[i] < least ? orders[i] : least;
    most = orders[i] > most ? orders[i] : most;
  }
  CU_ASSERT_EQUAL(seen, 24);
  CU_ASSERT(least > 800 && most < 1200);

  CU_ASSERT_EQUAL(trm_random_permute(5, TRM_RANDOM_SHUFFLE, 0, 1, 0), 0);
  const uint64_t huge = UINT64_MAX;
  CU_ASSERT_NOT_EQUAL(trm_random_permute(5, TRM_RANDOM_SHUFFLE, 0, huge, 0),
                      trm_random_permute(5, TRM_RANDOM_SHUFFLE, 0, huge, 1));
}

/* Batched permutation equals single calls. */
static void test_permute_many(void)
{
  const uint64_t sizes[] = {1, 2, 3, 4, 5, 16, 17, 1000, 65536, 65537, (UINT64_C(1) << 34) + 7, UINT64_MAX};
  const size_t counts[] = {0, 1, 7, 8, 9, 64, 1000};
  uint64_t many[1000];
  for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
    for (size_t c = 0; c < sizeof counts / sizeof counts[0] && counts[c] <= sizes[s]; c++) {
      const uint64_t n = sizes[s], seed = UINT64_C(0x123456789abcdef0) + c, last = n - counts[c];
      const uint64_t firsts[] = {0, last / 2, last};
      size_t wrong = 0;
      for (int f = 0; f < 3; f++) {
        trm_random_permute_many(seed, TRM_RANDOM_SHUFFLE, UINT32_C(0xfedcba98), n, firsts[f], counts[c], many);
        for (size_t i = 0; i < counts[c]; i++)
          wrong += many[i] != trm_random_permute(seed, TRM_RANDOM_SHUFFLE, UINT32_C(0xfedcba98), n, firsts[f] + i);
      }
      CU_ASSERT_EQUAL(wrong, 0);
    }
}

int main(void)
{
  CU_TestInfo tests[] = {
    {"philox: published vectors", test_philox},
    {"uniform numbers", test_uniform},
    {"normal numbers", test_normal},
    {"permutations", test_permute},
    {"batched permutations", test_permute_many},
    CU_TEST_INFO_NULL,
  };
  return suite_run("random", tests);
}
