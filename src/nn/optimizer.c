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
  [TRM_UPDATE_NADAMW] = {2, {"first", "second"}},
  [TRM_UPDATE_LARS] = {1, {"momentum", NULL}},   [TRM_UPDATE_LAMB] = {2, {"first", "second"}},
  [TRM_UPDATE_MUON] = {2, {"first", "second"}}, /* first: of hidden matrices the momentum */
};

/* Numbers that are at least 0 and below a limit. */
static int optim_check_ranges(const struct trm_optim_options *o)
{
  const struct {
    const char *option;
    double value, limit;
  } ranges[] = {
    {"optim.lr", o->rate, INFINITY}, {"optim.adamw_lr", o->adamw_rate, INFINITY},
    {"optim.momentum", o->momentum, 1},  {"optim.beta1", o->beta1, 1},
    {"optim.beta2", o->beta2, 1},    {"optim.l2", o->l2, INFINITY},       {"optim.decay", o->decay, INFINITY},
    {"optim.clip", o->clip, INFINITY}, {"optim.trust", o->trust, INFINITY}, {"optim.ema", o->ema, 1},
  };
  for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
    if (!(ranges[i].value >= 0 && ranges[i].value < ranges[i].limit)) /* NaN is not */
      return trm_error(TRM_USAGE, "%s is %g, must be in [0, %g)", ranges[i].option, ranges[i].value, ranges[i].limit);
  return TRM_OK;
}

static bool optim_decays(enum trm_update_rule rule)
{
  return rule == TRM_UPDATE_ADAMW || rule == TRM_UPDATE_NADAMW || rule == TRM_UPDATE_LAMB ||
         rule == TRM_UPDATE_MUON;
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
  if (o->decay > 0 && !optim_decays(u.rule))
    return trm_error(TRM_USAGE, "optim.decay is %g: decoupled decay is for adamw, nadamw, lamb and muon, with %s use "
                     "optim.l2", o->decay, name);
  if (u.rule == TRM_UPDATE_MUON && o->l2 > 0)
    return trm_error(TRM_USAGE, "optim.l2 is %g: muon has decoupled decay alone, use optim.decay", o->l2);
  if (((adam && u.rule != TRM_UPDATE_MUON) || adagrad) && o->momentum > 0)
    return trm_error(TRM_USAGE, "optim.momentum is %g: %s has none%s", o->momentum, name,
                     adam ? ", its averages are set by optim.beta1, optim.beta2" : "");
  if ((adam || adagrad) && !(o->epsilon > 0 && o->epsilon < INFINITY))
    return trm_error(TRM_USAGE, "optim.epsilon is %g, must be above 0", o->epsilon);

  if (u.rule == TRM_UPDATE_SGD && u.momentum > 0 && options->strategy.compress != TRM_COMPRESS_DGC)
    u.rule = TRM_UPDATE_MOMENTUM;
  if (u.rule == TRM_UPDATE_MUON && u.momentum == 0)
    u.momentum = 0.95f;
  if (!adam && !adagrad && u.rule != TRM_UPDATE_SGD && u.momentum == 0)
    u.momentum = 0.9f;
  *optimizer = (struct trm_optimizer){.update = u,
                                      .states = rules[u.rule].states + options->parallel.error_feedback + (o->ema > 0),
                                      .clip = options->strategy.compress == TRM_COMPRESS_DGC ? 0 : o->clip,
                                      .trust = o->trust,
                                      .adamw = o->rate > 0 ? o->adamw_rate / o->rate : 0,
                                      .ema = o->ema,
                                      .error_feedback = options->parallel.error_feedback,
                                      .decay_all = o->decay_all};
  for (int t = 0; model && t < model->tensors && u.rule == TRM_UPDATE_LARS; t++)
    if (model->tensor[t].grouped && (model->tensor[t].decay < 1 || model->tensor[t].decay > 1))
      return trm_error(TRM_USAGE, "optim.groups: lars takes no decay=F: its ratios are computed with one optim.l2");
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
  const int of_rule = rules[optimizer->update.rule].states;
  if (state < of_rule)
    return rules[optimizer->update.rule].state[state];
  return optimizer->error_feedback && state == of_rule ? "last_step" : "ema";
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

/* Sets [at, *end) to the run of elements from `at` on, below high, that are all counted in norms by this rank or all
 * by another, and returns true if it is this rank. */
static bool optim_counted_run(const struct trm_optimizer *optimizer, size_t at, size_t high, size_t *end)
{
  int t = optim_tensor_at(optimizer, at);
  const bool replica = optimizer->tensor[t].replica;
  while (optimizer->tensor[t].end < high && optimizer->tensor[t + 1].replica == replica)
    t++;
  *end = optimizer->tensor[t].end < high ? optimizer->tensor[t].end : high;
  return !replica;
}

void trm_optimizer_add_norm(const struct trm_optimizer *optimizer, struct trm_device *device, size_t low, size_t n,
                            const float *g, double *sum)
{
  const size_t high = optim_trained_end(optimizer, low, n);
  for (size_t at = low, end; at < high; at = end)
    if (optim_counted_run(optimizer, at, high, &end))
      device->ops->norm_squared(device, &(struct trm_norm_squared){
        .x = g + (at - low), .n = end - at, .adds = true, .result = sum});
}

double trm_optimizer_norm_squared(const struct trm_optimizer *optimizer, struct trm_device *device, size_t low,
                                  size_t n, const float *g)
{
  double result = 0;
  if (device->host_memory) {
    trm_optimizer_add_norm(optimizer, device, low, n, g, &result);
    return result;
  }
  device->ops->upload(device, device->number, &result, sizeof result);
  trm_optimizer_add_norm(optimizer, device, low, n, g, device->number);
  device->ops->download(device, &result, device->number, sizeof result);
  return result;
}

/* The rule for one tensor, up to element `end`. ratio (tensors): host, or NULL. */
static struct trm_update_run optim_tensor_run(const struct trm_optimizer *optimizer, const struct trm_update *hyper,
                                              const float *ratio, int t, size_t end)
{
  struct trm_update_run run = {.end = end, .rate = hyper->rate, .l2 = hyper->l2, .decay = hyper->decay, .ratio = t};
  if (optimizer->tensor[t].vector && !optimizer->decay_all) {
    run.decay = 0;
    if (hyper->rule == TRM_UPDATE_LARS)
      run.l2 = 0;
  }
  if (optimizer->tensor[t].grouped) {
    run.rate *= optimizer->tensor[t].rate;
    run.l2 *= optimizer->tensor[t].decay;
    run.decay *= optimizer->tensor[t].decay;
  }
  if (ratio)
    run.rate *= ratio[t];
  return run;
}

/* The runs of one call. */
enum { OPTIM_RUNS = 64 };
struct optim_runs {
  struct trm_update_run run[OPTIM_RUNS];
  size_t runs;
};

/* Sets the runs of the trained elements in [at, high), relative to `at`, which may span several tensors, unless tensors
 * have ratios on the device. Returns the end of the last one: they may be too many for one call. */
static size_t optim_make_runs(const struct trm_optimizer *optimizer, const struct trm_update *hyper, const float *ratio,
                              bool device_ratios, size_t at, size_t high, struct optim_runs *to)
{
  const size_t low = at;
  to->runs = 0;
  for (int t = optim_tensor_at(optimizer, at); at < high; t++) {
    at = optimizer->tensor[t].end < high ? optimizer->tensor[t].end : high;
    const struct trm_update_run next = optim_tensor_run(optimizer, hyper, ratio, t, at - low);
    struct trm_update_run *last = to->runs ? &to->run[to->runs - 1] : NULL;
    if (last && !device_ratios && next.decay == last->decay && next.l2 == last->l2 && next.rate == last->rate)
      last->end = next.end;
    else if (to->runs < OPTIM_RUNS)
      to->run[to->runs++] = next;
    else
      return low + last->end;
  }
  return high;
}

/* The sgd kernel, w -= rate * (scale * g + l2 * w), also makes averages: w += weight (g - w). use: of step `now`, or
 * now NULL. */
static struct trm_update optim_average(double weight, const struct trm_step *now, enum trm_step_use use)
{
  return (struct trm_update){
    .rule = TRM_UPDATE_SGD, .rate = (float)weight, .scale = -1, .l2 = 1, .now = now, .use = use};
}

/* Moves the statistics of an interval by the weight of hyper's batches, or, if it adds, by that of the latest of them
 * among all. Statistics of one momentum make one run. */
static void optim_move_statistics(const struct trm_optimizer *optimizer, struct trm_device *device,
                                  const struct trm_update *hyper, bool adds, const struct trm_update_interval *to,
                                  const float *g)
{
  const struct trm_tensor *tensor = optimizer->tensor;
  const int last = optimizer->tensors + optimizer->statistics, batches = hyper->batches > 1 ? hyper->batches : 1;
  for (int t = optimizer->tensors, next; t < last; t = next) {
    for (next = t + 1; next < last && tensor[next].momentum == tensor[t].momentum; next++)
      ;
    const size_t begin = optim_tensor_begin(optimizer, t), end = tensor[next - 1].end;
    const size_t low = begin > to->low ? begin : to->low, high = end < to->low + to->n ? end : to->low + to->n;
    const double momentum = (double)tensor[t].momentum, all = 1 - pow(1 - momentum, batches);
    const double latest = momentum > 0 ? momentum / all : 1.0 / batches;
    if (low < high)
      device->ops->update(device, &(struct trm_update_arrays){
        .update = optim_average(adds ? latest : all, hyper->now, TRM_STEP_SKIP), .w = to->w + (low - to->low),
        .g = g + (low - to->low), .n = high - low});
  }
}

void trm_optimizer_add_moments(const struct trm_optimizer *optimizer, struct trm_device *device, int batch, size_t low,
                               size_t n, float *to, const float *g)
{
  const struct trm_update_interval all = {.low = low, .n = n, .w = to};
  optim_move_statistics(optimizer, device, &(struct trm_update){.batches = batch}, true, &all, g);
}

static double optim_average_weight(const struct trm_optimizer *optimizer, uint64_t step)
{
  const double t = (double)step;
  return 1 - fmin(optimizer->ema, (1 + t) / (10 + t));
}

struct trm_step trm_optimizer_step(const struct trm_optimizer *optimizer, uint64_t number, double rate)
{
  return (struct trm_step){
    .number = number, .rate = (float)rate, .average = (float)optim_average_weight(optimizer, number), .scale = 1};
}

struct trm_update trm_optimizer_update_now(const struct trm_optimizer *optimizer, const struct trm_step *now)
{
  struct trm_update update = optimizer->update;
  update.rate = update.scale = 1;
  update.now = now;
  update.use = TRM_STEP_RULE;
  return update;
}

/* The rule of the tensor at element `at`, once directions are in the gradient's place, and *end, at most high, of the
 * tensors with the same rule. */
static struct trm_update optim_rule_at(const struct trm_optimizer *optimizer, const struct trm_update *hyper, size_t at,
                                       size_t high, size_t *end)
{
  const struct trm_update sgd = {.rule = TRM_UPDATE_SGD, .rate = hyper->rate, .scale = 1, .step = hyper->step,
                                 .now = hyper->now, .use = TRM_STEP_RATE};
  struct trm_update rule = hyper->rule == TRM_UPDATE_LAMB ? sgd : *hyper;
  int t = optim_tensor_at(optimizer, at);
  const bool hidden = optimizer->tensor[t].hidden;
  *end = high;
  if (hyper->rule != TRM_UPDATE_MUON)
    return rule;
  while (optimizer->tensor[t].end < high && optimizer->tensor[t + 1].hidden == hidden)
    t++;
  if (optimizer->tensor[t].end < high)
    *end = optimizer->tensor[t].end;
  if (hidden) {
    rule = sgd;
    rule.l2 = hyper->decay;
  } else {
    rule.rule = TRM_UPDATE_ADAMW;
    rule.rate *= (float)optimizer->adamw;
  }
  return rule;
}

void trm_optimizer_apply(const struct trm_optimizer *optimizer, struct trm_device *device,
                         const struct trm_update *hyper, const float *ratio, const struct trm_update_interval *to,
                         const float *g)
{
  const int states = optimizer->states - (optimizer->ema > 0) - optimizer->error_feedback; /* of the rule */
  const bool ratios = trm_optimizer_has_trust_ratios(optimizer), on_device = ratios && hyper->now;
  const size_t low = to->low, high = optim_trained_end(optimizer, low, to->n);
  struct optim_runs runs;
  for (size_t at = low, end; at < high; at = end) {
    const size_t o = at - low;
    const struct trm_update rule = optim_rule_at(optimizer, hyper, at, high, &end);
    end = optim_make_runs(optimizer, &rule, ratios && !on_device ? ratio : NULL, on_device, at, end, &runs);
    device->ops->update(device, &(struct trm_update_arrays){
      .update = rule, .run = runs.run, .runs = runs.runs, .ratio = on_device ? ratio : NULL, .w = to->w + o,
      .rounded = to->rounded ? to->rounded + o : NULL, .g = g + o, .first = states > 0 ? to->state[0] + o : NULL,
      .second = states > 1 ? to->state[1] + o : NULL,
      .last_step = optimizer->error_feedback ? to->state[states] + o : NULL, .n = end - at});
  }
  optim_move_statistics(optimizer, device, hyper, false, to, g);
  if (optimizer->ema > 0)
    device->ops->update(device, &(struct trm_update_arrays){
      .update = optim_average(hyper->now ? 0 : optim_average_weight(optimizer, hyper->step), hyper->now,
                              TRM_STEP_AVERAGE),
      .w = to->state[optimizer->states - 1], .g = to->w, .n = to->n});
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
  struct optim_runs runs;
  for (size_t at = to->low, end; at < high; at = end) {
    const size_t o = at - to->low;
    end = optim_make_runs(optimizer, hyper, NULL, false, at, high, &runs);
    device->ops->lamb_direction(device, &(struct trm_lamb_direction){
      .update = *hyper, .run = runs.run, .runs = runs.runs, .w = to->w + o, .g = g + o, .first = to->state[0] + o,
      .second = to->state[1] + o, .n = end - at});
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

void trm_optimizer_tensor_norms(const struct trm_optimizer *optimizer, struct trm_device *device,
                                const struct trm_update_interval *of, const float *g, double (*norm)[2])
{
  for (int t = 0; t < optimizer->tensors; t++) {
    const size_t begin = optim_tensor_begin(optimizer, t), n = optimizer->tensor[t].end - begin;
    if (optimizer->tensor[t].vector)
      continue;
    device->ops->norm_squared(device, &(struct trm_norm_squared){.x = of->w + begin, .n = n, .result = norm[t]});
    device->ops->norm_squared(device, &(struct trm_norm_squared){.x = g + begin, .n = n, .result = norm[t] + 1});
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
