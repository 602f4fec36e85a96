/* Optimizer updates in one pass over the arrays; nn/optimizer.h defines the rules. */
#include <math.h>

#include "kernels/cpu/cpu.h"

struct update {
  const struct trm_update *opt;
  float *w;       /* (n) */
  const float *g; /* (n) */
  float *first;   /* (n) */
  float *second;  /* (n) */
  float step;     /* adam: rate / (1 - beta1^t) */
  float root;     /* adam: 1 / sqrt(1 - beta2^t) */
};

CPU_CLONES static void update_sgd_body(const void *arguments, size_t low, size_t high)
{
  const struct update *it = arguments;
  const float rate = it->opt->rate, scale = it->opt->scale, l2 = it->opt->l2;
  float *w = it->w;
  const float *g = it->g;

#pragma omp simd
  for (size_t i = low; i < high; i++)
    w[i] -= rate * (scale * g[i] + l2 * w[i]);
}

CPU_CLONES static void update_momentum_body(const void *arguments, size_t low, size_t high)
{
  const struct update *it = arguments;
  const float rate = it->opt->rate, scale = it->opt->scale, l2 = it->opt->l2, momentum = it->opt->momentum;
  float *w = it->w, *m = it->first;
  const float *g = it->g;

#pragma omp simd
  for (size_t i = low; i < high; i++) {
    m[i] = momentum * m[i] + (scale * g[i] + l2 * w[i]);
    w[i] -= rate * m[i];
  }
}

CPU_CLONES static void update_nesterov_body(const void *arguments, size_t low, size_t high)
{
  const struct update *it = arguments;
  const float rate = it->opt->rate, scale = it->opt->scale, l2 = it->opt->l2, momentum = it->opt->momentum;
  float *w = it->w, *m = it->first;
  const float *g = it->g;

#pragma omp simd
  for (size_t i = low; i < high; i++) {
    const float gradient = scale * g[i] + l2 * w[i];

    m[i] = momentum * m[i] + gradient;
    w[i] -= rate * (gradient + momentum * m[i]);
  }
}

/* adam; adamw decays the weights first */
CPU_CLONES static void update_adam_body(const void *arguments, size_t low, size_t high)
{
  const struct update *it = arguments;
  const struct trm_update *opt = it->opt;
  const float scale = opt->scale, l2 = opt->l2, beta1 = opt->beta1, beta2 = opt->beta2, epsilon = opt->epsilon;
  const float rest1 = 1 - beta1, rest2 = 1 - beta2, step = it->step, root = it->root;
  const float keep = opt->rule == TRM_UPDATE_ADAMW ? 1 - opt->rate * opt->decay : 1;
  float *w = it->w, *m = it->first, *v = it->second;
  const float *g = it->g;

#pragma omp simd
  for (size_t i = low; i < high; i++) {
    const float gradient = scale * g[i] + l2 * w[i];

    m[i] = beta1 * m[i] + rest1 * gradient;
    v[i] = beta2 * v[i] + rest2 * gradient * gradient;
    w[i] = keep * w[i] - step * m[i] / (sqrtf(v[i]) * root + epsilon);
  }
}

/* m includes the learning rate, which may change between steps (You et al. 2017) */
CPU_CLONES static void update_lars_body(const void *arguments, size_t low, size_t high)
{
  const struct update *it = arguments;
  const float rate = it->opt->rate, scale = it->opt->scale, l2 = it->opt->l2, momentum = it->opt->momentum;
  float *w = it->w, *m = it->first;
  const float *g = it->g;

#pragma omp simd
  for (size_t i = low; i < high; i++) {
    m[i] = momentum * m[i] + rate * (scale * g[i] + l2 * w[i]);
    w[i] -= m[i];
  }
}

CPU_CLONES static void update_adagrad_body(const void *arguments, size_t low, size_t high)
{
  const struct update *it = arguments;
  const float rate = it->opt->rate, scale = it->opt->scale, l2 = it->opt->l2, epsilon = it->opt->epsilon;
  float *w = it->w, *sum = it->first;
  const float *g = it->g;

#pragma omp simd
  for (size_t i = low; i < high; i++) {
    const float gradient = scale * g[i] + l2 * w[i];

    sum[i] += gradient * gradient;
    w[i] -= rate * gradient / (sqrtf(sum[i]) + epsilon);
  }
}

struct direction {
  const struct trm_update *opt;
  const float *w; /* (n) */
  float *g;       /* (n) */
  float *first;   /* (n) */
  float *second;  /* (n) */
  float unbias;   /* 1 / (1 - beta1^t) */
  float root;     /* 1 / sqrt(1 - beta2^t) */
};

CPU_CLONES static void update_direction_body(const void *arguments, size_t low, size_t high)
{
  const struct direction *it = arguments;
  const struct trm_update *opt = it->opt;
  const float scale = opt->scale, l2 = opt->l2, beta1 = opt->beta1, beta2 = opt->beta2, epsilon = opt->epsilon;
  const float rest1 = 1 - beta1, rest2 = 1 - beta2, unbias = it->unbias, root = it->root, decay = opt->decay;
  const float *w = it->w;
  float *g = it->g, *m = it->first, *v = it->second;

#pragma omp simd
  for (size_t i = low; i < high; i++) {
    const float gradient = scale * g[i] + l2 * w[i];

    m[i] = beta1 * m[i] + rest1 * gradient;
    v[i] = beta2 * v[i] + rest2 * gradient * gradient;
    g[i] = unbias * m[i] / (sqrtf(v[i]) * root + epsilon) + decay * w[i];
  }
}

/* 1 - beta^t */
static double update_bias_correction(float beta, const struct trm_update *opt)
{
  return 1 - pow(beta, (double)opt->step);
}

void cpu_update(struct trm_device *device, const struct trm_update *opt, float *w, const float *g, float *first,
                float *second, size_t n)
{
  static cpu_body *const rule[] = {
    [TRM_UPDATE_SGD] = update_sgd_body,           [TRM_UPDATE_MOMENTUM] = update_momentum_body,
    [TRM_UPDATE_NESTEROV] = update_nesterov_body, [TRM_UPDATE_ADAM] = update_adam_body,
    [TRM_UPDATE_ADAMW] = update_adam_body,        [TRM_UPDATE_LARS] = update_lars_body,
    [TRM_UPDATE_ADAGRAD] = update_adagrad_body,
  };
  struct update it = {opt, w, g, first, second, 0, 0};

  if (opt->rule == TRM_UPDATE_ADAM || opt->rule == TRM_UPDATE_ADAMW) {
    it.step = (float)(opt->rate / update_bias_correction(opt->beta1, opt));
    it.root = (float)(1 / sqrt(update_bias_correction(opt->beta2, opt)));
  }
  cpu_for(device, n, CPU_GRANULE, 2, rule[opt->rule], &it);
}

void cpu_lamb_direction(struct trm_device *device, const struct trm_update *opt, const float *w, float *g, float *first,
                        float *second, size_t n)
{
  const struct direction it = {.opt = opt,
                               .w = w,
                               .g = g,
                               .first = first,
                               .second = second,
                               .unbias = (float)(1 / update_bias_correction(opt->beta1, opt)),
                               .root = (float)(1 / sqrt(update_bias_correction(opt->beta2, opt)))};

  cpu_for(device, n, CPU_GRANULE, 2, update_direction_body, &it);
}
