/* Elementary functions of floats as straight-line code, so that loops over them vectorize.
 *
 * The polynomials are weighted minimax fits made for this project (iteratively reweighted least squares in 30 digits,
 * low-order coefficients rounded to float first); tests/unit/test_kernels.c measures the functions against the C
 * library in double over dense sweeps, and its limits are the errors stated here. NaN goes in and comes out. The
 * comparisons are written so that a NaN takes the branch that keeps it. */
#pragma once

#include <stdint.h>
#include <string.h>

#include "kernels/cpu/cpu.h"

CPU_INLINE uint32_t math_bits(float x)
{
  uint32_t u;

  memcpy(&u, &x, sizeof(u));
  return u;
}

CPU_INLINE float math_float(uint32_t u)
{
  float x;

  memcpy(&x, &u, sizeof(x));
  return x;
}

CPU_INLINE float math_abs(float x)
{
  return math_float(math_bits(x) & 0x7fffffffu);
}

/* x's magnitude with s's sign */
CPU_INLINE float math_sign(float x, float s)
{
  return math_float((math_bits(x) & 0x7fffffffu) | (math_bits(s) & 0x80000000u));
}

/* Returns p of e^x = 2^n p, |p - 1| < 0.42, and n + 2^23 + 2^22 as a float: n is in its low bits.
 * x = n log 2 + r, |r| <= log(2) / 2; p = e^r = 1 + r + r^2 P(r). */
CPU_INLINE float math_exp_parts(float x, float *shifted)
{
  /* adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits */
  *shifted = x * 1.442695041f + 12582912.0f;
  const float n = *shifted - 12582912.0f;
  /* log 2 in two parts: the first has 9 bits, so that n * 0.693359375 is exact */
  float r = x - n * 0.693359375f;
  r = r - n * -2.12194440e-4f;
  float p = 1.381982584e-03f;
  p = p * r + 8.368686773e-03f;
  p = p * r + 4.166827723e-02f;
  p = p * r + 1.666652113e-01f;
  p = p * r + 4.999999404e-01f;
  return p * (r * r) + r + 1.0f;
}

/* e^x, error below 1.1 units in the last place; 0 under -103.98, infinity over 88.73, subnormal results in between.
 * 2^n in two factors, so that both ends are reached. */
CPU_INLINE float math_exp(float x)
{
  float shifted;

  x = x > 89.0f ? 89.0f : x;
  x = x < -104.0f ? -104.0f : x;
  const float p = math_exp_parts(x, &shifted);
  const uint32_t i = math_bits(shifted) - 0x4b400000u, half = (uint32_t)((int32_t)i >> 1);
  return p * math_float((half + 127u) << 23) * math_float((i - half + 127u) << 23);
}

/* e^x with fewer instructions: as math_exp from -87.3 to 88.3, 0 under -87.7, infinity over 88.4. */
CPU_INLINE float math_exp_short(float x)
{
  float shifted;

  x = x > 89.0f ? 89.0f : x;
  x = x < -88.0f ? -88.0f : x;
  const float p = math_exp_parts(x, &shifted);
  return p * math_float((math_bits(shifted) + 127u) << 23); /* at the ends 2^n is 0, infinity */
}

/* 1 / (1 + e^-x), relative error below 3e-7 where the result is normal */
CPU_INLINE float math_sigmoid(float x)
{
  return 1.0f / (1.0f + math_exp_short(-x));
}

/* tanh x, error below 2.5 units in the last place. |x| < 0.55: an odd polynomial; else 1 - 2 / (e^2|x| + 1). */
CPU_INLINE float math_tanh(float x)
{
  const float a = math_abs(x);
  const float t = x * x;
  float p = -6.295548752e-03f;
  p = p * t + 2.108826675e-02f;
  p = p * t - 5.385684595e-02f;
  p = p * t + 1.333263665e-01f;
  p = p * t - 3.333331943e-01f;
  const float small = p * t * x + x;
  const float large = math_sign(1.0f - 2.0f / (math_exp_short(2.0f * a) + 1.0f), x);
  return a < 0.55f ? small : large;
}

/* Phi(x), the normal distribution function, absolute error below 1.2e-7, and *density = phi(x).
 * For a >= 0, Phi(-a) = e^(-a^2/2) P(v), v = 0.3 a / (1 + 0.3 a): the form of Hastings (1955), fitted over
 * [0, 14.5] in a variable that is 0 at a = 0, so that the sum starts from the exact 1/2. Phi(a) = 1 - Phi(-a). */
CPU_INLINE float math_normal(float x, float *density)
{
  const float a = math_abs(x);
  const float e = math_exp_short(-0.5f * a * a);
  const float b = 0.3f * (a > 14.5f ? 14.5f : a);
  const float v = b / (1.0f + b);
  float p = 3.813804686e-02f;
  p = p * v - 1.369662434e-01f;
  p = p * v + 1.177108139e-01f;
  p = p * v + 1.089874059e-01f;
  p = p * v - 4.496917501e-02f;
  p = p * v - 7.011854649e-01f;
  p = p * v + 1.448102593e+00f;
  p = p * v - 1.329811215e+00f;
  p = p * v + 0.5f;
  const float tail = e * p;
  *density = 0.398942280f * e;
  return x > 0.0f ? 1.0f - tail : tail;
}
