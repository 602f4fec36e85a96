/* Losses: per row the loss, whether the answer was right, and the gradient with respect to the scores. */
#include <math.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/math.h"

struct loss {
  const float *z;      /* (B, C) */
  const int32_t *label; /* (B) */
  const float *target; /* (B, C) */
  float scale;
  float *loss, *correct, *dz; /* (B), (B), (B, C) */
  size_t c;
};

/* Largest score; a NaN may be passed over here and shows in the sum of exponentials. In lanes by hand: not every
 * compiler knows how to do that with a maximum. */
CPU_INLINE float row_maximum(const float *z, size_t c)
{
  float maximum = z[0], lane[CPU_LANES];
  size_t j = 0;

  if (c >= CPU_LANES) {
    for (size_t l = 0; l < CPU_LANES; l++)
      lane[l] = z[l];
    for (j = CPU_LANES; j + CPU_LANES <= c; j += CPU_LANES)
      for (size_t l = 0; l < CPU_LANES; l++)
        lane[l] = z[j + l] > lane[l] ? z[j + l] : lane[l];
    for (size_t l = 0; l < CPU_LANES; l++)
      maximum = lane[l] > maximum ? lane[l] : maximum;
  }
  for (; j < c; j++)
    maximum = z[j] > maximum ? z[j] : maximum;
  return maximum;
}

/* Sum of e^(z - maximum), the terms left in dz unless it is NULL. */
CPU_INLINE double row_exponentials(const float *z, float maximum, float *dz, size_t c)
{
  float own[CPU_BLOCK];
  double total = 0;

  for (size_t low = 0; low < c; low += CPU_BLOCK) {
    const size_t width = c - low < CPU_BLOCK ? c - low : CPU_BLOCK;
    float *term = dz ? dz + low : own;

#pragma omp simd
    for (size_t j = 0; j < width; j++)
      term[j] = math_exp(z[low + j] - maximum);
    total += cpu_lane_sum(term, width);
  }
  return total;
}

/* Is the label the first largest score? */
CPU_INLINE float is_first_maximum(const float *z, float maximum, size_t label)
{
  if (!(z[label] >= maximum))
    return 0;
  for (size_t j = 0; j < label; j++)
    if (z[j] >= maximum)
      return 0;
  return 1;
}

CPU_CLONES static void softmax_body(const void *arguments, size_t low, size_t high)
{
  const struct loss *it = arguments;
  const size_t c = it->c;

  for (size_t i = low; i < high; i++) {
    const float *z = it->z + i * c;
    float *dz = it->dz ? it->dz + i * c : NULL;

    if (it->label[i] < 0 || (size_t)it->label[i] >= c) { /* reported by the caller */
      it->loss[i] = NAN;
      if (it->correct)
        it->correct[i] = 0;
      for (size_t j = 0; dz && j < c; j++)
        dz[j] = NAN;
      continue;
    }
    const size_t label = (size_t)it->label[i];
    const float maximum = row_maximum(z, c), own = z[label], right = is_first_maximum(z, maximum, label);
    const double sum = row_exponentials(z, maximum, dz, c); /* z is gone from here on where dz is z */

    it->loss[i] = (float)(log(sum) + ((double)maximum - own));
    if (it->correct)
      it->correct[i] = isnan(sum) ? 0 : right;
    if (dz) {
      const float factor = (float)(it->scale / sum);

#pragma omp simd
      for (size_t j = 0; j < c; j++)
        dz[j] *= factor;
      dz[label] -= it->scale;
    }
  }
}

void cpu_softmax_cross_entropy(struct trm_device *device, const float *z, const int32_t *target, float scale,
                               float *loss, float *correct, float *dz, size_t b, size_t c)
{
  const struct loss it = {z, target, NULL, scale, loss, correct, dz, c};

  for (size_t i = 0; i < b; i++)
    if (target[i] < 0 || (size_t)target[i] >= c) {
      cpu_fail(device, "softmax_cross_entropy: the target of row %zu is %d, but there are %zu classes", i,
               (int)target[i], c);
      break;
    }
  cpu_for(device, b, 1, 8 * (double)c, softmax_body, &it);
}

CPU_CLONES static void squares_body(const void *arguments, size_t low, size_t high)
{
  const struct loss *it = arguments;
  const size_t f = it->c;
  const float factor = 2 * it->scale / (float)f;

  for (size_t i = low; i < high; i++) {
    const float *z = it->z + i * f, *t = it->target + i * f;
    float *dz = it->dz ? it->dz + i * f : NULL;
    float square[CPU_BLOCK];
    double total = 0;

    for (size_t first = 0; first < f; first += CPU_BLOCK) {
      const size_t width = f - first < CPU_BLOCK ? f - first : CPU_BLOCK;

#pragma omp simd
      for (size_t j = 0; j < width; j++)
        square[j] = (z[first + j] - t[first + j]) * (z[first + j] - t[first + j]);
      total += cpu_lane_sum(square, width);
    }
    it->loss[i] = (float)(total / (double)f);
    if (it->correct)
      it->correct[i] = 0;
    if (dz) {
#pragma omp simd
      for (size_t j = 0; j < f; j++)
        dz[j] = factor * (z[j] - t[j]);
    }
  }
}

void cpu_mean_squared_error(struct trm_device *device, const float *z, const float *target, float scale, float *loss,
                            float *correct, float *dz, size_t b, size_t f)
{
  const struct loss it = {z, NULL, target, scale, loss, correct, dz, f};

  cpu_for(device, b, 1, 2 * (double)f, squares_body, &it);
}

/* The sign of the score is the answer, 0 counts as -1; a NaN is no answer. */
static float sign_correct(float z, float t)
{
  return t > 0 ? z > 0 : z <= 0;
}

static void logistic_body(const void *arguments, size_t low, size_t high)
{
  const struct loss *it = arguments;

  for (size_t i = low; i < high; i++) {
    const float z = it->z[i], t = it->target[i], margin = t * z;

    it->loss[i] = (margin < 0 ? -margin : 0) + log1pf(expf(-fabsf(margin)));
    if (it->correct)
      it->correct[i] = sign_correct(z, t);
    if (it->dz)
      it->dz[i] = -t * it->scale / (1 + expf(margin));
  }
}

void cpu_logistic(struct trm_device *device, const float *z, const float *target, float scale, float *loss,
                  float *correct, float *dz, size_t b)
{
  const struct loss it = {z, NULL, target, scale, loss, correct, dz, 1};

  cpu_for(device, b, 16, 32, logistic_body, &it);
}

static void hinge_body(const void *arguments, size_t low, size_t high)
{
  const struct loss *it = arguments;

  for (size_t i = low; i < high; i++) {
    const float z = it->z[i], t = it->target[i], margin = t * z;

    it->loss[i] = margin >= 1 ? 0 : 1 - margin;
    if (it->correct)
      it->correct[i] = sign_correct(z, t);
    if (it->dz)
      it->dz[i] = margin >= 1 ? 0 : isnan(margin) ? margin : -t * it->scale;
  }
}

void cpu_hinge(struct trm_device *device, const float *z, const float *target, float scale, float *loss, float *correct,
               float *dz, size_t b)
{
  const struct loss it = {z, NULL, target, scale, loss, correct, dz, 1};

  cpu_for(device, b, 16, 2, hinge_body, &it);
}
