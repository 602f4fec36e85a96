/* Optimizer updates in one pass over the arrays; nn/optimizer.h defines the rules. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/cpu.h"

struct update {
  const struct trm_update *opt;
  cpu_body *body;
  trm_bf16 *rounded;      /* (n) NULL: not written */
  float *w, *g;           /* (n) */
  float *first, *second;  /* (n) */
  float *last_step;       /* (n) NULL: no error feedback */
  float step, root;       /* of adam and lamb: learning rate (lamb: 1) / (1 - beta1^t), 1 / sqrt(1 - beta2^t) */
  float gradient;         /* factor of the gradient beside `step`, that of the first moment; 0 but for nadamw */
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

/* adam; adamw and nadamw decay the weights first */
CPU_CLONES static void update_adam_body(const void *arguments, size_t low, size_t high)
{
  const struct update *it = arguments;
  const struct trm_update *opt = it->opt;
  const float scale = opt->scale, l2 = opt->l2, beta1 = opt->beta1, beta2 = opt->beta2, epsilon = opt->epsilon;
  const float rest1 = 1 - beta1, rest2 = 1 - beta2, step = it->step, root = it->root;
  const float ahead = it->gradient, keep = opt->rule == TRM_UPDATE_ADAM ? 1 : 1 - opt->rate * opt->decay;
  float *w = it->w, *m = it->first, *v = it->second;
  const float *g = it->g;

#pragma omp simd
  for (size_t i = low; i < high; i++) {
    const float gradient = scale * g[i] + l2 * w[i];

    m[i] = beta1 * m[i] + rest1 * gradient;
    v[i] = beta2 * v[i] + rest2 * gradient * gradient;
    w[i] = keep * w[i] - (step * m[i] + ahead * gradient) / (sqrtf(v[i]) * root + epsilon);
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

/* The rule, and the error feedback of its steps. At most CPU_BLOCK elements. */
CPU_CLONES static void update_feedback_body(const struct update *it, size_t low, size_t high)
{
  float before[CPU_BLOCK], *w = it->w, *last = it->last_step;
  const bool plain = it->opt->step == 1;

  memcpy(before, w + low, (high - low) * sizeof *w);
  it->body(it, low, high);
#pragma omp simd
  for (size_t i = low; i < high; i++) {
    const float step = before[i - low] - w[i];

    w[i] -= plain ? 0 : step - last[i];
    last[i] = step;
  }
}

/* Blocks, which are in cache for the passes after the rule: error feedback, rounding. */
CPU_CLONES static void update_blocks_body(const void *arguments, size_t low, size_t high)
{
  const struct update *it = arguments;
  const float *w = it->w;
  trm_bf16 *rounded = it->rounded;

  for (size_t first = low; first < high; first += CPU_BLOCK) {
    const size_t end = high - first < CPU_BLOCK ? high : first + CPU_BLOCK;

    if (it->last_step)
      update_feedback_body(it, first, end);
    else
      it->body(it, first, end);
#pragma omp simd
    for (size_t i = first; i < (rounded ? end : first); i++)
      rounded[i] = trm_bf16_round(w[i]);
  }
}

/* The momentum of nadamw in update t (Dozat 2016; 0.004 as in PyTorch). */
static double update_nadam_momentum(double beta1, double t)
{
  return beta1 * (1 - 0.5 * pow(0.96, 0.004 * t));
}

/* Sets the factors of nadamw's step. The product of all momenta is below 2^-60, and 1 less the product is 1, after some
 * 60 updates, because the first ones are near beta1 / 2: so it is made anew from the number of the update. */
static void update_nadam(struct update *it, float rate)
{
  const double beta1 = it->opt->beta1, t = (double)it->opt->step;
  const double now = update_nadam_momentum(beta1, t), next = update_nadam_momentum(beta1, t + 1);
  double product = 1;

  for (double i = 1; i <= t && product > 0x1p-60; i++)
    product *= update_nadam_momentum(beta1, i);
  it->step = (float)(rate * next / (1 - product * next));
  it->gradient = (float)(rate * (1 - now) / (1 - product));
}

/* Sets the factors of the bias correction. */
static void update_correct_bias(struct update *it, float rate)
{
  const double t = (double)it->opt->step;

  it->step = (float)(rate / (1 - pow(it->opt->beta1, t)));
  it->root = (float)(1 / sqrt(1 - pow(it->opt->beta2, t)));
  it->gradient = 0;
  if (it->opt->rule == TRM_UPDATE_NADAMW)
    update_nadam(it, rate);
}

/* Sets what the step in device memory says. */
static void update_take_step(struct trm_update *opt)
{
  const struct trm_step *step = opt->now;

  if (!step)
    return;
  if (opt->use == TRM_STEP_RULE || opt->use == TRM_STEP_RATE)
    opt->rate *= step->rate;
  if (opt->use == TRM_STEP_RULE || opt->use == TRM_STEP_SCALE)
    opt->scale = step->scale;
  if (opt->use == TRM_STEP_RULE || opt->use == TRM_STEP_RATE)
    opt->step = step->number;
  if (opt->use == TRM_STEP_AVERAGE)
    opt->rate = step->average;
}

static bool update_is_skipped(const struct trm_update *update)
{
  return update->now && update->now->skip;
}

/* Returns the constants of run i, now; without runs all is one. */
static struct trm_update update_of_run(const struct trm_update *update, const struct trm_update_run *run, size_t i,
                                       const float *ratio)
{
  struct trm_update opt = *update;

  if (run) {
    opt.rate = run[i].rate;
    opt.l2 = run[i].l2;
    opt.decay = run[i].decay;
  }
  if (run && ratio)
    opt.rate *= ratio[run[i].ratio];
  update_take_step(&opt);
  return opt;
}

static float *update_at(float *array, size_t low)
{
  return array ? array + low : NULL;
}

void cpu_update(struct trm_device *device, const struct trm_update_arrays *call)
{
  const enum trm_update_rule rule = call->update.rule;
  const bool adam = rule == TRM_UPDATE_ADAM || rule == TRM_UPDATE_ADAMW || rule == TRM_UPDATE_NADAMW;

  if (update_is_skipped(&call->update))
    return;
  for (size_t i = 0, low = 0; i < (call->run ? call->runs : 1); i++) {
    const size_t end = call->run ? call->run[i].end : call->n;
    const struct trm_update opt = update_of_run(&call->update, call->run, i, call->ratio);
    struct update it = {.opt = &opt, .body = adam ? update_adam_body : update_body,
                        .rounded = call->rounded ? call->rounded + low : NULL, .w = call->w + low,
                        .g = (float *)call->g + low, .first = update_at(call->first, low),
                        .second = update_at(call->second, low), .last_step = update_at(call->last_step, low)};

    if (adam)
      update_correct_bias(&it, opt.rate);
    cpu_for(device, end - low, CPU_GRANULE, 2, it.rounded || it.last_step ? update_blocks_body : it.body, &it);
    low = end;
  }
}

void cpu_lamb_direction(struct trm_device *device, const struct trm_lamb_direction *call)
{
  if (update_is_skipped(&call->update))
    return;
  for (size_t i = 0, low = 0; i < (call->run ? call->runs : 1); i++) {
    const size_t end = call->run ? call->run[i].end : call->n;
    const struct trm_update opt = update_of_run(&call->update, call->run, i, NULL);
    struct update it = {.opt = &opt, .w = (float *)call->w + low, .g = call->g + low, .first = call->first + low,
                        .second = call->second + low};

    update_correct_bias(&it, 1);
    cpu_for(device, end - low, CPU_GRANULE, 2, update_direction_body, &it);
    low = end;
  }
}

/* -- what an update needs of the whole gradient */

void cpu_clip(struct trm_device *device, const struct trm_clip *call)
{
  struct trm_step *step = call->step;
  const double norm = sqrt(step->norm_squared);

  (void)device;
  step->scale = call->limit > 0 && norm > call->limit ? (float)(call->limit / norm) : 1;
  step->skip = !isfinite(step->loss);
}

static float update_trust_ratio(const struct trm_trust_ratios *call, float scale, double w, double g)
{
  if (!(w > 0 && g > 0))
    return 1;
  if (call->update.rule == TRM_UPDATE_LAMB)
    return (float)(w / g);
  return (float)(call->trust * w / ((double)scale * g + (double)call->update.l2 * w));
}

void cpu_trust_ratios(struct trm_device *device, const struct trm_trust_ratios *call)
{
  const float scale = call->update.now ? call->update.now->scale : call->update.scale;

  (void)device;
  for (size_t t = 0; t < call->tensors; t++)
    call->ratio[t] = update_trust_ratio(call, scale, sqrt(call->norm[2 * t]), sqrt(call->norm[2 * t + 1]));
}
