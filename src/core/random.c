/* Random numbers as pure functions of (seed, purpose, stream, index), over Philox4x32-10. */
#include "core/random.h"

#include <math.h>

static const double two_pi = 6.283185307179586476925286766559;

void trm_random_block(uint64_t seed, enum trm_purpose purpose, uint32_t stream, uint64_t index, uint32_t out[4])
{
  const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
  const uint32_t counter[4] = {(uint32_t)index, (uint32_t)(index >> 32), stream, (uint32_t)purpose};
  trm_philox(counter, key, out);
}

float trm_random_uniform(uint64_t seed, enum trm_purpose purpose, uint32_t stream, uint64_t index)
{
  uint32_t word[4];
  trm_random_block(seed, purpose, stream, index / 4, word);
  return trm_random_unit(word[index % 4]);
}

float trm_random_normal(uint64_t seed, enum trm_purpose purpose, uint32_t stream, uint64_t index)
{
  uint32_t word[4];
  trm_random_block(seed, purpose, stream, index / 2, word);
  const uint32_t *pair = word + 2 * (index % 2);
  const double u = (pair[0] + 1.0) * 0x1p-32; /* (0, 1]: its logarithm is finite */
  const double v = pair[1] * 0x1p-32;
  return (float)(sqrt(-2.0 * log(u)) * cos(two_pi * v));
}
