/* Flat arrays: sums, the norm, the optimizers' updates. */
#include <CUnit/CUnit.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "kernels.h"

#define MOST 70

static float tree(const float *const *x, int count, size_t i)
{
  int left = 1;

  if (count == 1)
    return x[0][i];
  while (left * 2 < count)
    left *= 2;
  return tree(x, left, i) + tree(x + left, count - left, i);
}

void sum_tree(struct trm_device *device)
{
  static const size_t sizes[] = {0, 1, 3, 17, 600, 17001};

  for (size_t s = 0; s < COUNT(sizes); s++) {
    const size_t n = sizes[s];
    const float *host[MOST], *on[MOST];
    float *want = host_floats(n), *to = device_nan(device, n);

    for (int i = 0; i < MOST; i++) {
      host[i] = host_random(n, (uint32_t)i);
      on[i] = device_floats(device, host[i], n);
    }
    for (int count = 1; count <= MOST; count++) {
      for (size_t i = 0; i < n; i++)
        want[i] = tree(host, count, i);
      device->ops->sum(device, &(struct trm_sum){.to = to, .from = on, .count = count, .n = n});
      check_same("sum", read_floats(device, to, n), want, n);
      if (count > 9 && n > 600) /* a sample of the long ones */
        count += 17;
    }
    for (int count = 0; count < 10; count++) { /* the output is the first summand */
      float *first = device_floats(device, host[0], n);

      on[0] = first;
      for (size_t i = 0; i < n; i++)
        want[i] = count > 0 ? tree(host, count, i) : 0;
      device->ops->sum(device, &(struct trm_sum){.to = first, .from = on, .count = count, .n = n});
      check_same("sum in place", read_floats(device, first, n), want, n);
    }
  }
}

void norm_reference(struct trm_device *device)
{
  static const size_t sizes[] = {0, 1, 3, 17, 1000, 4096, 4097, 100003, 4200011};

  for (size_t s = 0; s < COUNT(sizes); s++) {
    const size_t n = sizes[s];
    float *x = host_random(n, 1);
    long double want = 0;

    for (size_t i = 0; i < n; i++)
      want += (long double)x[i] * x[i];
    const double got = trm_device_norm_squared(device, device_floats(device, x, n), n);
    CU_ASSERT(fabsl(got - want) <= 1e-13 * want);
    float bits[2];
    memcpy(bits, &got, sizeof(got));
    read_floats(device, device_floats(device, bits, 2), 2); /* into the digest: equal for every number of threads */
    if (n == 0)
      CU_ASSERT(got == 0);
    if (n > 2 && n <= 4097) {
      x[n / 2] = NAN;
      CU_ASSERT(isnan(trm_device_norm_squared(device, device_floats(device, x, n), n)));
      x[n / 2] = 3e38f; /* overflows a float sum */
      CU_ASSERT(isfinite(trm_device_norm_squared(device, device_floats(device, x, n), n)));
    }
  }
}

static const char *const rule_name[] = {
  [TRM_UPDATE_SGD] = "sgd",         [TRM_UPDATE_MOMENTUM] = "momentum", [TRM_UPDATE_NESTEROV] = "nesterov",
  [TRM_UPDATE_ADAGRAD] = "adagrad", [TRM_UPDATE_ADAM] = "adam",         [TRM_UPDATE_ADAMW] = "adamw",
  [TRM_UPDATE_NADAMW] = "nadamw",   [TRM_UPDATE_LARS] = "lars",         [TRM_UPDATE_LAMB] = "lamb"};

static struct trm_update update_of(enum trm_update_rule rule, uint64_t step)
{
  return (struct trm_update){.rule = rule, .rate = 0.01f, .scale = 0.5f, .l2 = 0.001f, .decay = 0.1f,
                             .momentum = 0.9f, .beta1 = 0.9f, .beta2 = 0.999f, .epsilon = 1e-8f, .step = step};
}

/* The rules in double precision, as in PyTorch (torch.optim: SGD, Adagrad, Adam, AdamW, NAdam). lamb: the direction. */
static void update_want(const struct trm_update *how, double *w, const float *g, double *m, double *v,
                        double *direction, size_t n)
{
  const double rate = how->rate, beta1 = how->beta1, beta2 = how->beta2;
  const double correction1 = 1 - pow(beta1, (double)how->step), correction2 = 1 - pow(beta2, (double)how->step);
  double mu = 1, product = 1; /* of nadamw */

  for (uint64_t t = 1; t <= how->step; t++) {
    mu = beta1 * (1 - 0.5 * pow(0.96, 0.004 * (double)t));
    product *= mu;
  }
  const double mu_next = beta1 * (1 - 0.5 * pow(0.96, 0.004 * (double)(how->step + 1)));

  for (size_t i = 0; i < n; i++) {
    const double gradient = (double)how->scale * g[i] + (double)how->l2 * w[i];

    switch (how->rule) {
    case TRM_UPDATE_SGD:
      w[i] -= rate * gradient;
      break;
    case TRM_UPDATE_MOMENTUM:
      m[i] = how->momentum * m[i] + gradient;
      w[i] -= rate * m[i];
      break;
    case TRM_UPDATE_NESTEROV:
      m[i] = how->momentum * m[i] + gradient;
      w[i] -= rate * (gradient + how->momentum * m[i]);
      break;
    case TRM_UPDATE_ADAMW:
    case TRM_UPDATE_ADAM:
      if (how->rule == TRM_UPDATE_ADAMW)
        w[i] *= 1 - rate * how->decay;
      m[i] = beta1 * m[i] + (1 - beta1) * gradient;
      v[i] = beta2 * v[i] + (1 - beta2) * gradient * gradient;
      w[i] -= rate / correction1 * m[i] / (sqrt(v[i]) / sqrt(correction2) + how->epsilon);
      break;
    case TRM_UPDATE_NADAMW:
      w[i] *= 1 - rate * how->decay;
      m[i] = beta1 * m[i] + (1 - beta1) * gradient;
      v[i] = beta2 * v[i] + (1 - beta2) * gradient * gradient;
      w[i] -= rate * (mu_next / (1 - product * mu_next) * m[i] + (1 - mu) / (1 - product) * gradient) /
              (sqrt(v[i]) / sqrt(correction2) + how->epsilon);
      break;
    case TRM_UPDATE_LARS:
      m[i] = how->momentum * m[i] + rate * gradient;
      w[i] -= m[i];
      break;
    case TRM_UPDATE_ADAGRAD:
      m[i] += gradient * gradient;
      w[i] -= rate * gradient / (sqrt(m[i]) + how->epsilon);
      break;
    case TRM_UPDATE_MUON: /* no rule of the kernel */
    case TRM_UPDATE_RULES:
      break;
    case TRM_UPDATE_LAMB:
      m[i] = beta1 * m[i] + (1 - beta1) * gradient;
      v[i] = beta2 * v[i] + (1 - beta2) * gradient * gradient;
      direction[i] = m[i] / correction1 / (sqrt(v[i] / correction2) + how->epsilon) + how->decay * w[i];
      break;
    }
  }
}

static bool has_first(enum trm_update_rule rule)
{
  return rule != TRM_UPDATE_SGD;
}

static bool has_second(enum trm_update_rule rule)
{
  return rule >= TRM_UPDATE_ADAM && rule != TRM_UPDATE_LARS && rule < TRM_UPDATE_RULES;
}

/* lamb overwrites g. */
static void update_do(struct trm_device *device, const struct trm_update *how, float *w, float *g, float *first,
                      float *second, size_t n)
{
  if (how->rule == TRM_UPDATE_LAMB)
    device->ops->lamb_direction(device, &(struct trm_lamb_direction){
      .update = *how, .w = w, .g = g, .first = first, .second = second, .n = n});
  else
    device->ops->update(device, &(struct trm_update_arrays){
      .update = *how, .w = w, .g = g, .first = first, .second = second, .n = n});
}

void update_reference(struct trm_device *device)
{
  static const size_t sizes[] = {0, 1, 3, 17, 1000, 17001};

  for (enum trm_update_rule rule = TRM_UPDATE_SGD; rule <= TRM_UPDATE_LAMB; rule++)
    for (size_t s = 0; s < COUNT(sizes); s++) {
      const size_t n = sizes[s];
      const float *start = host_random(n, 1);
      double *w = trm_alloc(4 * n * sizeof(*w), "want"), *m = w + n, *v = m + n, *direction = v + n;
      float *on_w = device_floats(device, start, n), *zero = host_floats(n);
      float *first = has_first(rule) ? device_floats(device, zero, n) : NULL;
      float *second = has_second(rule) ? device_floats(device, zero, n) : NULL;

      for (size_t i = 0; i < n; i++)
        w[i] = start[i];
      for (uint64_t step = 1; step <= 5; step++) {
        const float *g = host_random(n, 10 + (uint32_t)step);
        const struct trm_update how = update_of(rule, step);

        float *on_g = device_floats(device, g, n);

        update_want(&how, w, g, m, v, direction, n);
        update_do(device, &how, on_w, on_g, first, second, n);
        if (rule == TRM_UPDATE_LAMB)
          check_close("direction", read_floats(device, on_g, n), direction, n, 1e-6, 1e-6);
      }
      check_close(rule_name[rule], read_floats(device, on_w, n), w, n, 1e-6, 0);
      if (first)
        check_close(rule_name[rule], read_floats(device, first, n), m, n, 1e-6, 0);
      if (second)
        check_close(rule_name[rule], read_floats(device, second, n), v, n, 1e-12, 1e-6);
      trm_free(w);
    }
}

/* An element's update does not depend on the slice or rank that computes it. */
void update_slices(struct trm_device *device)
{
  enum { N = 5003 };
  static const size_t cut[] = {0, 1, 34, 1000, 1777, N};

  for (enum trm_update_rule rule = TRM_UPDATE_SGD; rule <= TRM_UPDATE_LAMB; rule++) {
    const struct trm_update how = update_of(rule, 3);
    float *array[2][4]; /* w, m, v, g */

    for (int part = 0; part < 2; part++)
      for (uint32_t k = 0; k < 4; k++) {
        float *x = host_random(N, 2 + k);

        for (int i = 0; i < N; i++)
          x[i] = k == 2 || (k == 1 && rule == TRM_UPDATE_ADAGRAD) ? fabsf(x[i]) : x[i]; /* squares */
        array[part][k] = device_floats(device, x, N);
      }
    update_do(device, &how, array[0][0], array[0][3], array[0][1], array[0][2], N);
    for (size_t c = 0; c + 1 < COUNT(cut); c++)
      update_do(device, &how, array[1][0] + cut[c], array[1][3] + cut[c], array[1][1] + cut[c], array[1][2] + cut[c],
                cut[c + 1] - cut[c]);
    for (int k = 0; k < 4; k++)
      check_same(rule_name[rule], read_floats(device, array[1][k], N), read_floats(device, array[0][k], N), N);
  }
}

/* Error feedback of steps against a loop in double: w -= u + (u - u'), u the rule's step; the first one plain. */
void update_feedback(struct trm_device *device)
{
  static const size_t sizes[] = {0, 1, 1000, 17001};

  for (enum trm_update_rule rule = TRM_UPDATE_SGD; rule < TRM_UPDATE_LAMB; rule++)
    for (size_t s = 0; s < COUNT(sizes); s++) {
      const size_t n = sizes[s];
      const float *start = host_random(n, 1);
      double *w = trm_alloc(5 * n * sizeof(*w), "want"), *m = w + n, *v = m + n, *before = v + n, *last = before + n;
      float *on_w = device_floats(device, start, n), *zero = host_floats(n), *on_last = device_floats(device, zero, n);
      float *first = has_first(rule) ? device_floats(device, zero, n) : NULL;
      float *second = has_second(rule) ? device_floats(device, zero, n) : NULL;

      for (size_t i = 0; i < n; i++)
        w[i] = start[i];
      for (uint64_t step = 1; step <= 4; step++) {
        const float *g = host_random(n, 10 + (uint32_t)step);
        const struct trm_update how = update_of(rule, step);

        memcpy(before, w, n * sizeof(*w));
        update_want(&how, w, g, m, v, NULL, n);
        for (size_t i = 0; i < n; i++) {
          const double u = before[i] - w[i];

          w[i] = step == 1 ? before[i] - u : before[i] - (u + (u - last[i]));
          last[i] = u;
        }
        device->ops->update(device, &(struct trm_update_arrays){
          .update = how, .w = on_w, .g = device_floats(device, g, n), .first = first, .second = second,
          .last_step = on_last, .n = n});
      }
      check_close(rule_name[rule], read_floats(device, on_w, n), w, n, 2e-6, 0);
      check_close(rule_name[rule], read_floats(device, on_last, n), last, n, 1e-6, 0);
      trm_free(w);
    }
}

/* Numbers whose sums are exact: equal gradients make the steps of the rule alone; of any gradients, n corrected steps
 * are n plain ones, the last of which counts twice, less the first. */
void update_feedback_identities(struct trm_device *device)
{
  enum { N = 1500, STEPS = 6 };

  for (int equal = 0; equal < 2; equal++) {
    float *start = host_floats(N), *g[STEPS], *zero = host_floats(N);

    for (int i = 0; i < N; i++)
      start[i] = (float)(i % 64) / 64;
    float *on_w = device_floats(device, start, N), *plain = device_floats(device, start, N);
    float *last = device_floats(device, zero, N);
    for (uint64_t step = 1; step <= STEPS; step++) {
      struct trm_update how = {.rule = TRM_UPDATE_SGD, .rate = 0.5f, .scale = 1, .step = step};

      g[step - 1] = host_floats(N);
      for (int i = 0; i < N; i++)
        g[step - 1][i] = (float)((i * 7 + (equal ? 0 : (int)step * 5)) % 32) / 16 - 1;
      const float *on_g = device_floats(device, g[step - 1], N);
      device->ops->update(device, &(struct trm_update_arrays){
        .update = how, .w = on_w, .g = on_g, .last_step = last, .n = N});
      device->ops->update(device, &(struct trm_update_arrays){.update = how, .w = plain, .g = on_g, .n = N});
      if (step == 1)
        check_same("the first step", read_floats(device, on_w, N), read_floats(device, plain, N), N);
    }
    float *want = read_floats(device, plain, N);
    for (int i = 0; i < N; i++)
      want[i] -= 0.5f * (g[STEPS - 1][i] - g[0][i]);
    check_same(equal ? "equal gradients" : "a sum of steps", read_floats(device, on_w, N), want, N);
  }
}
