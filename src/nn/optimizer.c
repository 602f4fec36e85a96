/* Turns options into the update rule that the device applies. */
#include "nn/optimizer.h"

#include <math.h>
#include <string.h>

#include "core/status.h"
#include "nn/model.h"

static const struct {
  int states;
  const char *state[2];
} rules[] = {
  [TRM_UPDATE_SGD] = {0, {NULL, NULL}},          [TRM_UPDATE_MOMENTUM] = {1, {"momentum", NULL}},
  [TRM_UPDATE_NESTEROV] = {1, {"momentum", NULL}}, [TRM_UPDATE_ADAGRAD] = {1, {"squares", NULL}},
  [TRM_UPDATE_ADAM] = {2, {"first", "second"}},  [TRM_UPDATE_ADAMW] = {2, {"first", "second"}},
  [TRM_UPDATE_LARS] = {1, {"momentum", NULL}},   [TRM_UPDATE_LAMB] = {2, {"first", "second"}},
};

/* Numbers that are at least 0 and below a limit. */
static int optim_check_ranges(const struct trm_optim_options *o)
{
  const struct {
    const char *option;
    double value, limit;
  } ranges[] = {
    {"optim.lr", o->rate, INFINITY}, {"optim.momentum", o->momentum, 1},  {"optim.beta1", o->beta1, 1},
    {"optim.beta2", o->beta2, 1},    {"optim.l2", o->l2, INFINITY},       {"optim.decay", o->decay, INFINITY},
    {"optim.clip", o->clip, INFINITY}, {"optim.trust", o->trust, INFINITY}, {"optim.ema", o->ema, 1},
  };
  for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
    if (!(ranges[i].value >= 0 && ranges[i].value < ranges[i].limit)) /* NaN is not */
      return trm_error(TRM_USAGE, "%s is %g, must be in [0, %g)", ranges[i].option, ranges[i].value, ranges[i].limit);
  return TRM_OK;
}

int trm_optimizer_create(struct trm_optimizer *optimizer, const struct trm_options *options,
                         const struct trm_model *model)
{
  const struct trm_optim_options *o = &options->optim;
  struct trm_update u = {.rule = o->name,
                         .scale = 1,
                         .l2 = (float)o->l2,
                         .decay = (float)o->decay,
                         .momentum = (float)o->momentum,
                         .beta1 = (float)o->beta1,
                         .beta2 = (float)o->beta2,
                         .epsilon = (float)o->epsilon};
  const char *name = trm_choice_text("optim.name", (int)u.rule);
  TRM_CHECK(optim_check_ranges(o));
  TRM_CHECK(trm_schedule_check(options));

  const bool adam = rules[u.rule].states == 2, adagrad = u.rule == TRM_UPDATE_ADAGRAD;
  if (o->decay > 0 && u.rule != TRM_UPDATE_ADAMW && u.rule != TRM_UPDATE_LAMB)
    return trm_error(TRM_USAGE, "optim.decay is %g: decoupled decay is for adamw and lamb, with %s use optim.l2",
                     o->decay, name);
  if ((adam || adagrad) && o->momentum > 0)
    return trm_error(TRM_USAGE, "optim.momentum is %g: %s has none%s", o->momentum, name,
                     adam ? ", its averages are set by optim.beta1, optim.beta2" : "");
  if ((adam || adagrad) && !(o->epsilon > 0 && o->epsilon < INFINITY))
    return trm_error(TRM_USAGE, "optim.epsilon is %g, must be above 0", o->epsilon);

  if (u.rule == TRM_UPDATE_SGD && u.momentum > 0)
    u.rule = TRM_UPDATE_MOMENTUM;
  if (!adam && !adagrad && u.rule != TRM_UPDATE_SGD && u.momentum == 0)
    u.momentum = 0.9f;
  *optimizer = (struct trm_optimizer){.update = u,
                                      .states = rules[u.rule].states + (o->ema > 0),
                                      .clip = o->clip,
                                      .trust = o->trust,
                                      .ema = o->ema,
                                      .decay_all = o->decay_all};
  if (model) {
    optimizer->tensor = model->tensor;
    optimizer->tensors = model->tensors;
    optimizer->statistics = model->statistic_tensors;
  }
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

/* The end of the trained elements among [low, low + n). */
static size_t optim_trained_end(const struct trm_optimizer *optimizer, size_t low, size_t n)
{
  const size_t trained = trm_optimizer_trained(optimizer);
  return low + n < trained ? low + n : trained;
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
  const size_t high = optim_trained_end(optimizer, low, n);
  double sum = 0;
  for (size_t at = low; at < high;) {
    int t = optim_tensor_at(optimizer, at);
    const bool replica = optimizer->tensor[t].replica;
    while (optimizer->tensor[t].end < high && optimizer->tensor[t + 1].replica == replica)
      t++;
    const size_t end = optimizer->tensor[t].end < high ? optimizer->tensor[t].end : high;
    if (!replica)
      sum += trm_device_norm_squared(device, g + (at - low), end - at);
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

/* The sgd kernel, w -= rate * (scale * g + l2 * w), also makes averages: w += weight (g - w). */
static void optim_average(struct trm_device *device, double weight, float *w, const float *g, size_t n)
{
  const struct trm_update move = {.rule = TRM_UPDATE_SGD, .rate = (float)weight, .scale = -1, .l2 = 1};
  device->ops->update(device, &(struct trm_update_arrays){.update = move, .w = w, .g = g, .n = n});
}

/* Moves the statistics of an interval by the weight of `batches` batches, or, if it adds, by that of the latest of
 * them among all. Statistics of one momentum make one run. */
static void optim_move_statistics(const struct trm_optimizer *optimizer, struct trm_device *device, int batches,
                                  bool adds, const struct trm_update_interval *to, const float *g)
{
  const struct trm_tensor *tensor = optimizer->tensor;
  const int last = optimizer->tensors + optimizer->statistics;
  for (int t = optimizer->tensors, next; t < last; t = next) {
    for (next = t + 1; next < last && tensor[next].momentum == tensor[t].momentum; next++)
      ;
    const size_t begin = optim_tensor_begin(optimizer, t), end = tensor[next - 1].end;
    const size_t low = begin > to->low ? begin : to->low, high = end < to->low + to->n ? end : to->low + to->n;
    const double momentum = (double)tensor[t].momentum, all = 1 - pow(1 - momentum, batches);
    const double latest = momentum > 0 ? momentum / all : 1.0 / batches;
    if (low < high)
      optim_average(device, adds ? latest : all, to->w + (low - to->low), g + (low - to->low), high - low);
  }
}

void trm_optimizer_add_moments(const struct trm_optimizer *optimizer, struct trm_device *device, int batch, size_t low,
                               size_t n, float *to, const float *g)
{
  const struct trm_update_interval all = {.low = low, .n = n, .w = to};
  optim_move_statistics(optimizer, device, batch, true, &all, g);
}

void trm_optimizer_apply(const struct trm_optimizer *optimizer, struct trm_device *device,
                         const struct trm_update *hyper, const float *ratio, const struct trm_update_interval *to,
                         const float *g)
{
  const int states = optimizer->states - (optimizer->ema > 0); /* of the rule */
  const size_t low = to->low, high = optim_trained_end(optimizer, low, to->n);
  size_t at = low;
  while (at < high) {
    struct trm_update update;
    const size_t end = optim_uniform_run(optimizer, hyper, ratio, at, high, &update), o = at - low;
    if (update.rule == TRM_UPDATE_LAMB) /* g contains the direction */
      update = (struct trm_update){.rule = TRM_UPDATE_SGD, .rate = update.rate, .scale = 1};
    device->ops->update(device, &(struct trm_update_arrays){
      .update = update, .w = to->w + o, .g = g + o, .first = states > 0 ? to->state[0] + o : NULL,
      .second = states > 1 ? to->state[1] + o : NULL, .n = end - at});
    at = end;
  }
  optim_move_statistics(optimizer, device, hyper->batches > 1 ? hyper->batches : 1, false, to, g);
  if (optimizer->ema > 0) {
    const double t = (double)hyper->step, decay = fmin(optimizer->ema, (1 + t) / (10 + t));
    optim_average(device, 1 - decay, to->state[optimizer->states - 1], to->w, to->n);
  }
}

/* -- trust ratios */

bool trm_optimizer_has_trust_ratios(const struct trm_optimizer *optimizer)
{
  return optimizer->update.rule == TRM_UPDATE_LARS || optimizer->update.rule == TRM_UPDATE_LAMB;
}

void trm_optimizer_prepare(const struct trm_optimizer *optimizer, struct trm_device *device,
                           const struct trm_update *hyper, const struct trm_update_interval *to, float *g)
{
  if (optimizer->update.rule != TRM_UPDATE_LAMB)
    return;
  const size_t high = optim_trained_end(optimizer, to->low, to->n);
  for (size_t at = to->low; at < high;) {
    struct trm_update update;
    const size_t end = optim_uniform_run(optimizer, hyper, NULL, at, high, &update), o = at - to->low;
    device->ops->lamb_direction(device, &(struct trm_lamb_direction){
      .update = update, .w = to->w + o, .g = g + o, .first = to->state[0] + o, .second = to->state[1] + o,
      .n = end - at});
    at = end;
  }
}

size_t trm_optimizer_norm_count(const struct trm_optimizer *optimizer, size_t unit)
{
  const size_t trained = trm_optimizer_trained(optimizer);
  return trained ? (trained - 1) / unit + (size_t)optimizer->tensors : 0;
}

void trm_optimizer_partial_norms(const struct trm_optimizer *optimizer, struct trm_device *device, size_t unit,
                                 const struct trm_update_interval *of, const float *g, double (*norm)[2])
{
  const size_t high = optim_trained_end(optimizer, of->low, of->n);
  for (size_t at = of->low; at < high;) {
    const int t = optim_tensor_at(optimizer, at);
    const size_t u = at / unit, rest = unit - at % unit; /* unit; elements to its end */
    const size_t left = optimizer->tensor[t].end < high ? optimizer->tensor[t].end - at : high - at;
    const size_t count = left < rest ? left : rest;
    if (!optimizer->tensor[t].vector) {
      norm[u + (size_t)t][0] = trm_device_norm_squared(device, of->w + (at - of->low), count);
      norm[u + (size_t)t][1] = trm_device_norm_squared(device, g + (at - of->low), count);
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
