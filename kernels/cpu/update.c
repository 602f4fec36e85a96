/* Optimizer updates in one pass over the arrays; nn/optimizer.h defines the rules. */
#include <math.h>

#include "kernels/cpu/cpu.h"

struct update {
  const struct trm_update *opt;
  cpu_body *body;
  trm_bf16 *rounded;      /* (n) NULL: not written */
  float *w, *g;           /* (n) */
  float *first, *second;  /* (n) */
  float step, root;       /* of adam and lamb: learning rate (lamb: 1) / (1 - beta1^t), 1 / sqrt(1 - beta2^t) */
};

CPU_CLONES static void update_body(const void *arguments, size_t low, size_t high)
{
  const struct update *it = arguments;
  const float rate = it->opt->rate, scale = it->opt->scale, l2 = it->opt->l2;
  const float momentum = it->opt->momentum, epsilon = it->opt->epsilon;
  float *w = it->w, *m = it->first;
  const float *g = it->g;

  switch (it->opt->rule) {
  case TRM_UPDATE_MOMENTUM:
#pragma omp simd
    for (size_t i = low; i < high; i++) {
      m[i] = momentum * m[i] + (scale * g[i] + l2 * w[i]);
      w[i] -= rate * m[i];
    }
    break;
  case TRM_UPDATE_NESTEROV:
#pragma omp simd
    for (size_t i = low; i < high; i++) {
      const float gradient = scale * g[i] + l2 * w[i];

      m[i] = momentum * m[i] + gradient;
      w[i] -= rate * (gradient + momentum * m[i]);
    }
    break;
  case TRM_UPDATE_LARS: /* m includes the learning rate, which may change between steps (You et al. 2017) */
#pragma omp simd
    for (size_t i = low; i < high; i++) {
      m[i] = momentum * m[i] + rate * (scale * g[i] + l2 * w[i]);
      w[i] -= m[i];
    }
    break;
  case TRM_UPDATE_ADAGRAD: /* m: the sum of squares */
#pragma omp simd
    for (size_t i = low; i < high; i++) {
      const float gradient = scale * g[i] + l2 * w[i];

      m[i] += gradient * gradient;
      w[i] -= rate * gradient / (sqrtf(m[i]) + epsilon);
    }
    break;
  default: /* sgd */
#pragma omp simd
    for (size_t i = low; i < high; i++)
      w[i] -= rate * (scale * g[i] + l2 * w[i]);
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

CPU_CLONES static void update_direction_body(const void *arguments, size_t low, size_t high)
{
  const struct update *it = arguments;
  const struct trm_update *opt = it->opt;
  const float scale = opt->scale, l2 = opt->l2, beta1 = opt->beta1, beta2 = opt->beta2, epsilon = opt->epsilon;
  const float rest1 = 1 - beta1, rest2 = 1 - beta2, step = it->step, root = it->root, decay = opt->decay;
  const float *w = it->w;
  float *g = it->g, *m = it->first, *v = it->second;

#pragma omp simd
  for (size_t i = low; i < high; i++) {
    const float gradient = scale * g[i] + l2 * w[i];

    m[i] = beta1 * m[i] + rest1 * gradient;
    v[i] = beta2 * v[i] + rest2 * gradient * gradient;
    g[i] = step * m[i] / (sqrtf(v[i]) * root + epsilon) + decay * w[i];
  }
}

/* Blocks, which are rounded while they are in cache. */
CPU_CLONES static void update_rounded_body(const void *arguments, size_t low, size_t high)
{
  const struct update *it = arguments;
  const float *w = it->w;
  trm_bf16 *rounded = it->rounded;

  for (size_t first = low; first < high; first += CPU_BLOCK) {
    const size_t end = high - first < CPU_BLOCK ? high : first + CPU_BLOCK;

    it->body(it, first, end);
#pragma omp simd
    for (size_t i = first; i < end; i++)
      rounded[i] = trm_bf16_round(w[i]);
  }
}

/* Sets the factors of the bias correction. */
static void update_correct_bias(struct update *it, float rate)
{
  const double t = (double)it->opt->step;

  it->step = (float)(rate / (1 - pow(it->opt->beta1, t)));
  it->root = (float)(1 / sqrt(1 - pow(it->opt->beta2, t)));
}

void cpu_update(struct trm_device *device, const struct trm_update_arrays *call)
{
  const struct trm_update *opt = &call->update;
  const bool adam = opt->rule == TRM_UPDATE_ADAM || opt->rule == TRM_UPDATE_ADAMW;
  struct update it = {.opt = opt, .body = adam ? update_adam_body : update_body, .rounded = call->rounded, .w = call->w,
                      .g = (float *)call->g, .first = call->first, .second = call->second};

  if (adam)
    update_correct_bias(&it, opt->rate);
  cpu_for(device, call->n, CPU_GRANULE, 2, it.rounded ? update_rounded_body : it.body, &it);
}

void cpu_lamb_direction(struct trm_device *device, const struct trm_lamb_direction *call)
{
  struct update it = {
    .opt = &call->update, .w = (float *)call->w, .g = call->g, .first = call->first, .second = call->second};

  update_correct_bias(&it, 1);
  cpu_for(device, call->n, CPU_GRANULE, 2, update_direction_body, &it);
}
