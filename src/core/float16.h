/* IEEE 754 binary16: 1 sign, 5 exponent and 10 fraction bits. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "core/api.h"

TRM_BEGIN_DECLS

typedef uint16_t trm_f16;

/* Returns the nearest value, ties to even; infinity from 65520 on. NaN stays NaN. Loops over it are vectorized. */
static inline trm_f16 trm_f16_round(float x)
{
  uint32_t word;
  memcpy(&word, &x, sizeof word);
  const uint32_t sign = word >> 16 & 0x8000, size = word & 0x7fffffff;
  /* below 2^-14 a value is a multiple of 2^-24, the last bit of 1/2, to which it is added: the processor rounds it */
  float sum;
  memcpy(&sum, &size, sizeof sum);
  sum += 0.5f;
  uint32_t small;
  memcpy(&small, &sum, sizeof small);
  small -= 0x3f000000;
  const uint32_t normal = (size - 0x38000000 + 0xfff + (size >> 13 & 1)) >> 13;
  const uint32_t large = size > 0x7f800000 ? 0x7e00 : 0x7c00;
  const uint32_t finite = size < 0x38800000 ? small : normal;
  return (trm_f16)(sign | (size >= 0x47800000 ? large : finite));
}

static inline float trm_f16_value(trm_f16 x)
{
  const uint32_t size = x & 0x7fffu, normal = (size << 13) + 0x38000000, special = (size << 13) | 0x7f800000;
  const float small = (float)size * 5.9604644775390625e-8f; /* 2^-24 */
  uint32_t small_word, word;
  memcpy(&small_word, &small, sizeof small_word);
  word = (size < 0x400 ? small_word : size >= 0x7c00 ? special : normal) | (uint32_t)(x & 0x8000) << 16;
  float value;
  memcpy(&value, &word, sizeof value);
  return value;
}

/* Host arrays: to (n) = from (n), exactly; rounded. */
void trm_f16_widen(float *to, const trm_f16 *from, size_t n);
void trm_f16_narrow(trm_f16 *to, const float *from, size_t n);

TRM_END_DECLS
