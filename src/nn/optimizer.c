/* Turns options into the update rule that the device applies. */
#include "nn/optimizer.h"

#include <math.h>
#include <string.h>

#include "core/status.h"

static const struct {
  int states;
  const char *state[2];
} rules[] = {
  [TRM_UPDATE_SGD] = {0, {NULL, NULL}},          [TRM_UPDATE_MOMENTUM] = {1, {"momentum", NULL}},
  [TRM_UPDATE_NESTEROV] = {1, {"momentum", NULL}}, [TRM_UPDATE_ADAGRAD] = {1, {"squares", NULL}},
  [TRM_UPDATE_ADAM] = {2, {"first", "second"}},  [TRM_UPDATE_ADAMW] = {2, {"first", "second"}},
  [TRM_UPDATE_LARS] = {1, {"momentum", NULL}},   [TRM_UPDATE_LAMB] = {2, {"first", "second"}},
};

/* Checks that value is in [low, high); NaN is not. */
static int optim_check_range(const char *option, double value, double low, double high)
{
  if (!(value >= low && value < high))
    return trm_error(TRM_USAGE, "%s is %g, must be in [%g, %g)", option, value, low, high);
  return TRM_OK;
}

int trm_optimizer_create(struct trm_optimizer *optimizer, const struct trm_options *options,
                         const struct trm_tensor *tensor, int tensors)
{
  struct trm_update u = {.rule = options->optim.name, .scale = 1};
  const char *name = trm_choice_text("optim.name", (int)u.rule);
  TRM_CHECK(optim_check_range("optim.lr", options->optim.rate, 0, INFINITY));
  TRM_CHECK(optim_check_range("optim.momentum", options->optim.momentum, 0, 1));
  TRM_CHECK(optim_check_range("optim.beta1", options->optim.beta1, 0, 1));
  TRM_CHECK(optim_check_range("optim.beta2", options->optim.beta2, 0, 1));
  TRM_CHECK(optim_check_range("optim.l2", options->optim.l2, 0, INFINITY));
  TRM_CHECK(optim_check_range("optim.decay", options->optim.decay, 0, INFINITY));
  TRM_CHECK(optim_check_range("optim.clip", options->optim.clip, 0, INFINITY));
  TRM_CHECK(optim_check_range("optim.trust", options->optim.trust, 0, INFINITY));
  TRM_CHECK(optim_check_range("optim.ema", options->optim.ema, 0, 1));
  TRM_CHECK(trm_schedule_check(options));

  const bool adam = u.rule == TRM_UPDATE_ADAM || u.rule == TRM_UPDATE_ADAMW || u.rule == TRM_UPDATE_LAMB;
  if (options->optim.decay > 0 && u.rule != TRM_UPDATE_ADAMW && u.rule != TRM_UPDATE_LAMB)
    return trm_error(TRM_USAGE, "optim.decay is %g: decoupled decay is for adamw and lamb, with %s use optim.l2",
                     options->optim.decay, name);
  if (adam && options->optim.momentum > 0)
    return trm_error(TRM_USAGE, "optim.momentum is %g: %s has none, its averages are set by optim.beta1, optim.beta2",
                     options->optim.momentum, name);
  const bool adagrad = u.rule == TRM_UPDATE_ADAGRAD;
  if (adagrad && options->optim.momentum > 0)
    return trm_error(TRM_USAGE, "optim.momentum is %g: adagrad has none", options->optim.momentum);
  if ((adam || adagrad) && !(options->optim.epsilon > 0 && options->optim.epsilon < INFINITY))
    return trm_error(TRM_USAGE, "optim.epsilon is %g, must be above 0", options->optim.epsilon);

  u.l2 = (float)options->optim.l2;
  u.decay = (float)options->optim.decay;
  u.momentum = (float)options->optim.momentum;
  u.beta1 = (float)options->optim.beta1;
  u.beta2 = (float)options->optim.beta2;
  u.epsilon = (float)options->optim.epsilon;
  if (u.rule == TRM_UPDATE_SGD && u.momentum > 0)
    u.rule = TRM_UPDATE_MOMENTUM;
  if (!adam && !adagrad && u.rule != TRM_UPDATE_SGD && u.momentum == 0)
    u.momentum = 0.9f;
  *optimizer = (struct trm_optimizer){.update = u,
                                      .states = rules[u.rule].states + (options->optim.ema > 0),
                                      .clip = options->optim.clip,
                                      .trust = options->optim.trust,
                                      .ema = options->optim.ema,
                                      .decay_all = options->optim.decay_all,
                                      .tensor = tensor,
                                      .tensors = tensors};
  return TRM_OK;
}

const char *trm_optimizer_state_name(const struct trm_optimizer *optimizer, int state)
{
  if (state < 0 || state >= optimizer->states)
    return NULL;
  return state < rules[optimizer->update.rule].states ? rules[optimizer->update.rule].state[state] : "ema";
}

float trm_clip_scale(const struct trm_optimizer *optimizer, double norm_squared)
{
  const double norm = sqrt(norm_squared);
  return optimizer->clip > 0 && norm > optimizer->clip ? (float)(optimizer->clip / norm) : 1;
}

/* -- an update */

static size_t optim_tensor_begin(const struct trm_optimizer *optimizer, int t)
{
  return t ? optimizer->tensor[t - 1].end : 0;
}

size_t trm_optimizer_trained(const struct trm_optimizer *optimizer)
{
  return optim_tensor_begin(optimizer, optimizer->tensors);
}

/* Returns the tensor of a trained element. */
static int optim_tensor_at(const struct trm_optimizer *optimizer, size_t element)
{
  int low = 0, high = optimizer->tensors - 1;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (element < optimizer->tensor[middle].end)
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

double trm_optimizer_norm_squared(const struct trm_optimizer *optimizer, struct trm_device *device, size_t low,
                                  size_t n, const float *g)
{
  const size_t trained = trm_optimizer_trained(optimizer), high = low + n < trained ? low + n : trained;
  double sum = 0;
  for (size_t at = low; at < high;) {
    int t = optim_tensor_at(optimizer, at);
    const bool replica = optimizer->tensor[t].replica;
    while (optimizer->tensor[t].end < high && optimizer->tensor[t + 1].replica == replica)
      t++;
    const size_t end = optimizer->tensor[t].end < high ? optimizer->tensor[t].end : high;
    if (!replica)
      sum += device->ops->norm_squared(device, g + (at - low), end - at);
    at = end;
  }
  return sum;
}

/* Returns the rule for one tensor. */
static struct trm_update optim_tensor_update(const struct trm_optimizer *optimizer, const struct trm_update *hyper,
                                             const float *ratio, int t)
{
  struct trm_update u = *hyper;
  if (optimizer->tensor[t].vector && !optimizer->decay_all) {
    u.decay = 0;
    if (u.rule == TRM_UPDATE_LARS)
      u.l2 = 0;
  }
  if (ratio && trm_optimizer_has_trust_ratios(optimizer))
    u.rate *= ratio[t];
  return u;
}

/* Returns the end of the run of trained elements in [at, high) with one rule, which may span several tensors. */
static size_t optim_uniform_run(const struct trm_optimizer *optimizer, const struct trm_update *hyper,
                                const float *ratio, size_t at, size_t high, struct trm_update *update)
{
  int t = optim_tensor_at(optimizer, at);
  *update = optim_tensor_update(optimizer, hyper, ratio, t);
  while (optimizer->tensor[t].end < high && t + 1 < optimizer->tensors) {
    const struct trm_update next = optim_tensor_update(optimizer, hyper, ratio, t + 1);
    if (next.decay != update->decay || next.l2 != update->l2 || next.rate != update->rate)
      break;
    t++;
  }
  return optimizer->tensor[t].end < high ? optimizer->tensor[t].end : high;
}

static float *optim_state_at(const struct trm_optimizer *optimizer, float *const *state, int i, size_t offset)
{
  const int states = optimizer->states - (optimizer->ema > 0);
  return i < states ? state[i] + offset : NULL;
}

/* The sgd kernel, w -= rate * (scale * g + l2 * w), is also used to add and to average. */
static void optim_add_statistics(struct trm_device *device, float *w, const float *g, size_t n)
{
  const struct trm_update add = {.rule = TRM_UPDATE_SGD, .rate = -1, .scale = 1};
  device->ops->update(device, &add, w, g, NULL, NULL, n);
}

static void optim_update_ema(const struct trm_optimizer *optimizer, struct trm_device *device, uint64_t step,
                             float *average, const float *w, size_t n)
{
  const double t = (double)step, decay = fmin(optimizer->ema, (1 + t) / (10 + t));
  const struct trm_update move = {.rule = TRM_UPDATE_SGD, .rate = (float)(1 - decay), .scale = -1, .l2 = 1};
  device->ops->update(device, &move, average, w, NULL, NULL, n);
}

void trm_optimizer_apply(const struct trm_optimizer *optimizer, struct trm_device *device,
                         const struct trm_update *hyper, const float *ratio, size_t low, size_t n, float *w,
                         const float *g, float *const *state)
{
  const size_t trained = trm_optimizer_trained(optimizer), high = low + n < trained ? low + n : trained;
  size_t at = low;
  while (at < high) {
    struct trm_update update;
    const size_t end = optim_uniform_run(optimizer, hyper, ratio, at, high, &update), o = at - low;
    if (update.rule == TRM_UPDATE_LAMB) /* g contains the direction */
      update = (struct trm_update){.rule = TRM_UPDATE_SGD, .rate = update.rate, .scale = 1};
    float *first = optim_state_at(optimizer, state, 0, o), *second = optim_state_at(optimizer, state, 1, o);
    device->ops->update(device, &update, w + o, g + o, first, second, end - at);
    at = end;
  }
  if (at < low + n)
    optim_add_statistics(device, w + (at - low), g + (at - low), low + n - at);
  if (optimizer->ema > 0)
    optim_update_ema(optimizer, device, hyper->step, state[optimizer->states - 1], w, n);
}

/* -- trust ratios */

bool trm_optimizer_has_trust_ratios(const struct trm_optimizer *optimizer)
{
  return optimizer->update.rule == TRM_UPDATE_LARS || optimizer->update.rule == TRM_UPDATE_LAMB;
}

void trm_optimizer_prepare(const struct trm_optimizer *optimizer, struct trm_device *device,
                           const struct trm_update *hyper, size_t low, size_t n, const float *w, float *g,
                           float *const *state)
{
  if (optimizer->update.rule != TRM_UPDATE_LAMB)
    return;
  const size_t trained = trm_optimizer_trained(optimizer), high = low + n < trained ? low + n : trained;
  for (size_t at = low; at < high;) {
    struct trm_update update;
    const size_t end = optim_uniform_run(optimizer, hyper, NULL, at, high, &update), o = at - low;
    device->ops->lamb_direction(device, &update, w + o, g + o, state[0] + o, state[1] + o, end - at);
    at = end;
  }
}

size_t trm_optimizer_norm_count(const struct trm_optimizer *optimizer, size_t unit)
{
  const size_t trained = trm_optimizer_trained(optimizer);
  return trained ? (trained - 1) / unit + (size_t)optimizer->tensors : 0;
}

void trm_optimizer_partial_norms(const struct trm_optimizer *optimizer, struct trm_device *device, size_t unit,
                                 size_t low, size_t n, const float *w, const float *g, double (*norm)[2])
{
  const size_t trained = trm_optimizer_trained(optimizer), high = low + n < trained ? low + n : trained;
  for (size_t at = low; at < high;) {
    const int t = optim_tensor_at(optimizer, at);
    const size_t u = at / unit, rest = unit - at % unit; /* unit; elements to its end */
    const size_t left = optimizer->tensor[t].end < high ? optimizer->tensor[t].end - at : high - at;
    const size_t count = left < rest ? left : rest;
    if (!optimizer->tensor[t].vector) {
      norm[u + (size_t)t][0] = device->ops->norm_squared(device, w + (at - low), count);
      norm[u + (size_t)t][1] = device->ops->norm_squared(device, g + (at - low), count);
    }
    at += count;
  }
}

static float optim_trust_ratio(const struct trm_optimizer *optimizer, const struct trm_update *hyper, double w,
                               double g)
{
  if (!(w > 0 && g > 0))
    return 1;
  if (hyper->rule == TRM_UPDATE_LAMB)
    return (float)(w / g);
  return (float)(optimizer->trust * w / ((double)hyper->scale * g + (double)hyper->l2 * w));
}

/* Sums the partial norms of tensor t. */
static void optim_sum_norms(const struct trm_optimizer *optimizer, size_t unit, double (*norm)[2], int t, double sum[2])
{
  const size_t first = optim_tensor_begin(optimizer, t) / unit, last = (optimizer->tensor[t].end - 1) / unit;
  sum[0] = sum[1] = 0;
  for (size_t u = first; u <= last && !optimizer->tensor[t].vector; u++) {
    sum[0] += norm[u + (size_t)t][0];
    sum[1] += norm[u + (size_t)t][1];
  }
}

void trm_optimizer_sum_norms(const struct trm_optimizer *optimizer, size_t unit, double (*norm)[2], double (*sum)[2])
{
  for (int t = 0; t < optimizer->tensors; t++)
    optim_sum_norms(optimizer, unit, norm, t, sum[t]);
}

void trm_optimizer_trust_ratios(const struct trm_optimizer *optimizer, const struct trm_update *hyper, size_t unit,
                                double (*norm)[2], float *ratio)
{
  for (int t = 0; t < optimizer->tensors; t++) {
    double sum[2];
    optim_sum_norms(optimizer, unit, norm, t, sum);
    ratio[t] = optim_trust_ratio(optimizer, hyper, sqrt(sum[0]), sqrt(sum[1]));
  }
}
