/* From options to the update rule that the device applies. */
#include "nn/optimizer.h"

#include <math.h>
#include <string.h>

#include "core/status.h"

static const struct {
  const char *name;
  enum trm_update_rule rule;
  int states;
  const char *state[2];
} rules[] = {
  {"sgd", TRM_UPDATE_SGD, 0, {NULL, NULL}},
  {"momentum", TRM_UPDATE_MOMENTUM, 1, {"momentum", NULL}},
  {"nesterov", TRM_UPDATE_NESTEROV, 1, {"momentum", NULL}},
  {"adam", TRM_UPDATE_ADAM, 2, {"first", "second"}},
  {"adamw", TRM_UPDATE_ADAMW, 2, {"first", "second"}},
};
enum { RULES = sizeof rules / sizeof *rules };

static int rule_find(const char *name, enum trm_update_rule *rule)
{
  const char *known[RULES + 1] = {NULL};
  for (int i = 0; i < RULES; i++) {
    known[i] = rules[i].name;
    if (strcmp(rules[i].name, name) == 0) {
      *rule = rules[i].rule;
      return TRM_OK;
    }
  }
  const char *near = trm_nearest(name, known);
  return trm_error(TRM_USAGE, "optim.name: there is no optimizer '%s'%s%s%s", name, near ? ", did you mean '" : "",
                   near ? near : "", near ? "'?" : "");
}

/* value must be in [low, high); NaN is not. */
static int range_check(const char *option, double value, double low, double high)
{
  if (!(value >= low && value < high))
    return trm_error(TRM_USAGE, "%s is %g, must be in [%g, %g)", option, value, low, high);
  return TRM_OK;
}

int trm_optimizer_create(struct trm_optimizer *optimizer, const struct trm_options *options)
{
  struct trm_update u = {.scale = 1};
  TRM_CHECK(rule_find(options->optim.name, &u.rule));
  TRM_CHECK(range_check("optim.lr", options->optim.rate, 0, INFINITY));
  TRM_CHECK(range_check("optim.momentum", options->optim.momentum, 0, 1));
  TRM_CHECK(range_check("optim.beta1", options->optim.beta1, 0, 1));
  TRM_CHECK(range_check("optim.beta2", options->optim.beta2, 0, 1));
  TRM_CHECK(range_check("optim.l2", options->optim.l2, 0, INFINITY));
  TRM_CHECK(range_check("optim.decay", options->optim.decay, 0, INFINITY));
  TRM_CHECK(range_check("optim.clip", options->optim.clip, 0, INFINITY));
  TRM_CHECK(trm_schedule_check(options));

  const bool adam = u.rule == TRM_UPDATE_ADAM || u.rule == TRM_UPDATE_ADAMW;
  if (options->optim.decay > 0 && u.rule != TRM_UPDATE_ADAMW)
    return trm_error(TRM_USAGE, "optim.decay is %g: decoupled decay is for adamw, with %s use optim.l2",
                     options->optim.decay, options->optim.name);
  if (adam && options->optim.momentum > 0)
    return trm_error(TRM_USAGE, "optim.momentum is %g: %s has none, its averages are set by optim.beta1, optim.beta2",
                     options->optim.momentum, options->optim.name);
  if (adam && !(options->optim.epsilon > 0 && options->optim.epsilon < INFINITY))
    return trm_error(TRM_USAGE, "optim.epsilon is %g, must be above 0", options->optim.epsilon);

  u.l2 = (float)options->optim.l2;
  u.decay = (float)options->optim.decay;
  u.momentum = (float)options->optim.momentum;
  u.beta1 = (float)options->optim.beta1;
  u.beta2 = (float)options->optim.beta2;
  u.epsilon = (float)options->optim.epsilon;
  if (u.rule == TRM_UPDATE_SGD && u.momentum > 0)
    u.rule = TRM_UPDATE_MOMENTUM;
  if ((u.rule == TRM_UPDATE_MOMENTUM || u.rule == TRM_UPDATE_NESTEROV) && u.momentum == 0)
    u.momentum = 0.9f;
  *optimizer = (struct trm_optimizer){.update = u, .clip = options->optim.clip};
  for (int i = 0; i < RULES; i++)
    if (rules[i].rule == u.rule)
      optimizer->states = rules[i].states;
  return TRM_OK;
}

const char *trm_optimizer_state_name(const struct trm_optimizer *optimizer, int state)
{
  if (state < 0 || state >= optimizer->states)
    return NULL;
  for (int i = 0; i < RULES; i++)
    if (rules[i].rule == optimizer->update.rule)
      return rules[i].state[state];
  return NULL;
}

float trm_clip_scale(const struct trm_optimizer *optimizer, double norm_squared)
{
  const double norm = sqrt(norm_squared);
  return optimizer->clip > 0 && norm > optimizer->clip ? (float)(optimizer->clip / norm) : 1;
}

void trm_optimizer_apply(struct trm_device *device, const struct trm_update *how, size_t trained, size_t low, size_t n,
                         float *w, const float *g, float *first, float *second)
{
  const struct trm_update add = {.rule = TRM_UPDATE_SGD, .rate = -1, .scale = 1};
  const size_t parameters = low >= trained ? 0 : trained - low < n ? trained - low : n;
  if (parameters)
    device->ops->update(device, how, w, g, first, second, parameters);
  if (parameters < n)
    device->ops->update(device, &add, w + parameters, g + parameters, NULL, NULL, n - parameters);
}
