/* Counter-based random numbers: Philox4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel Random Numbers: As Easy as
 * 1, 2, 3, SC 2011). A number is a pure function of (seed, purpose, stream, index), so that weights, shuffles and masks
 * depend on global indices alone, never on ranks or threads. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "core/api.h"

/* Before functions that the kernels of a GPU call, too. */
#ifdef __CUDACC__
#define TRM_ON_DEVICE __host__ __device__
#else
#define TRM_ON_DEVICE
#endif

TRM_BEGIN_DECLS

/* The purpose of the numbers, which separates the streams of one seed. Append only: results depend on the values. */
enum trm_purpose {
  TRM_RANDOM_INIT = 1, /* initial weights: stream = parameter number, index = element */
  TRM_RANDOM_SHUFFLE = 2, /* order of samples: stream = epoch */
  TRM_RANDOM_DROPOUT = 3, /* masks: stream = layer number, index = global sample position * features + feature */
  TRM_RANDOM_DIGITS = 4, /* rendered digits: stream = split, index = sample */
  TRM_RANDOM_BENCH = 5, /* inputs of benchmarks and tests */
  TRM_RANDOM_AUGMENT = 6, /* shifts and flips of images: stream = epoch, index = position in it */
  TRM_RANDOM_SAMPLE = 7, /* generated tokens: index = tokens generated before */
  TRM_RANDOM_SLOWDOWN = 8, /* injected slowdown: stream = rank, index = batch */
  TRM_RANDOM_PEERS = 9, /* the peer of an exchange of weights: stream = rank, index = batches it has done */
  TRM_RANDOM_SPLIT = 10, /* rows of a data file that become its test split: stream = class */
  TRM_RANDOM_VALIDATION = 11, /* rows cut from the training split: stream = 0 */
  TRM_RANDOM_COMPRESS = 12, /* compressed gradients (mpi/compress/qsgd.c: stream = update; powersgd.c: = column) */
  TRM_RANDOM_CROP = 13, /* parts of images: stream = epoch, index = position in it * tries + try */
  TRM_RANDOM_JITTER = 14, /* their colors: stream = epoch, index = position in it */
  TRM_RANDOM_BALANCE = 15, /* training samples drawn by class: stream = epoch, index = position in it */
  TRM_RANDOM_SWEEP = 20, /* values of a random search: stream = axis, index = draw */
  TRM_RANDOM_CLUSTERS = 21, /* Gaussian clusters: stream = 0: centers, 1 + split; index = sample * features + feature */
};

/* out = Philox4x32-10(counter, key). Inline, for loops. */
TRM_ON_DEVICE static inline void trm_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
  uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3], k0 = key[0], k1 = key[1];
  for (int round = 0; round < 10; round++) {
    const uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
    c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
    c1 = (uint32_t)p1;
    c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
    c3 = (uint32_t)p0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  out[0] = c0;
  out[1] = c1;
  out[2] = c2;
  out[3] = c3;
}

/* Four 32-bit words of block `index`: key = seed (low, high), counter = (index low, index high, stream, purpose). */
void trm_random_block(uint64_t seed, enum trm_purpose purpose, uint32_t stream, uint64_t index, uint32_t out[4]);

/* The upper 24 bits of a word as a float in [0, 1). */
TRM_ON_DEVICE static inline float trm_random_unit(uint32_t word)
{
  return (float)(word >> 8) * 5.9604644775390625e-8f; /* 2^-24 */
}

/* Uniform in [0, 1), 24 bits: word `index % 4` of block `index / 4`. */
float trm_random_uniform(uint64_t seed, enum trm_purpose purpose, uint32_t stream, uint64_t index);

/* Standard normal (Box-Muller of the words 2*(index%2), +1 of block index / 2; computed in double, rounded). */
float trm_random_normal(uint64_t seed, enum trm_purpose purpose, uint32_t stream, uint64_t index);

/* Returns the element at a position of a permutation of 0..n-1, n >= 1, in O(1) memory: a balanced Feistel network of
 * Philox rounds on the smallest even number of bits that holds n, applied until the result is below n (Black & Rogaway
 * 2002). */
uint64_t trm_random_permute(uint64_t seed, enum trm_purpose purpose, uint32_t stream, uint64_t n, uint64_t position);

/* Writes the elements at `count` consecutive positions: element[i] is that of position first + i, which is below n. */
void trm_random_permute_many(uint64_t seed, enum trm_purpose purpose, uint32_t stream, uint64_t n, uint64_t first,
                             size_t count, uint64_t *element);

TRM_END_DECLS
