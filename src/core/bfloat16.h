/* bfloat16: the upper half of a float32, 8 bits of significand. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "core/api.h"
#include "core/choices.h"

TRM_BEGIN_DECLS

typedef uint16_t trm_bf16;

/* Returns the bytes of a value. */
static inline size_t trm_value_bytes(enum trm_value_type type)
{
  return type == TRM_VALUES_BF16 ? sizeof(trm_bf16) : sizeof(float);
}

/* Returns the nearest value, ties to even; NaN stays NaN. Loops over it are vectorized. */
static inline trm_bf16 trm_bf16_round(float x)
{
  uint32_t word;

  memcpy(&word, &x, sizeof word);
  const uint32_t rounded = word + 0x7fff + (word >> 16 & 1), quiet = word | 0x400000;
  const uint32_t is_nan = -(uint32_t)(x != x); /* all bits */
  return (trm_bf16)((rounded ^ ((rounded ^ quiet) & is_nan)) >> 16);
}

static inline float trm_bf16_value(trm_bf16 x)
{
  const uint32_t word = (uint32_t)x << 16;
  float value;

  memcpy(&value, &word, sizeof value);
  return value;
}

/* Host arrays: to (n) = from (n), exactly; rounded. */
void trm_bf16_widen(float *to, const trm_bf16 *from, size_t n);
void trm_bf16_narrow(trm_bf16 *to, const float *from, size_t n);

TRM_END_DECLS
