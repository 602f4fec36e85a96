/* Learning rate as a function of the step. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/status.h"
#include "nn/optimizer.h"

/* Reads the next milestone of a list; false at its end. Moves *text on, or to NULL on a syntax error. */
static bool schedule_next_milestone(const char **text, double *value, bool *fraction)
{
  const char *at = *text + strspn(*text, " ,\t");
  if (!*at)
    return false;
  char *end;
  *value = strtod(at, &end);
  const bool good = end != at && (!*end || strchr(" ,\t", *end)) && *value >= 0 && *value < 1e15;
  *fraction = good && (*value < 1 || memchr(at, '.', (size_t)(end - at)));
  *text = good && !(*fraction && *value > 1) && (*fraction || *value == floor(*value)) ? end : NULL;
  return true;
}

int trm_schedule_check(const struct trm_options *options)
{
  const enum trm_lr_schedule schedule = options->optim.schedule;
  if (!(options->optim.warmup >= 0 && options->optim.warmup < 1e15) ||
      (options->optim.warmup >= 1 && options->optim.warmup != floor(options->optim.warmup)))
    return trm_error(TRM_USAGE, "optim.warmup is %g, must be a whole number of steps, or a fraction of the run below 1",
                     options->optim.warmup);
  if ((schedule == TRM_LR_COSINE || schedule == TRM_LR_LINEAR || schedule == TRM_LR_ONECYCLE ||
       schedule == TRM_LR_PLATEAU) &&
      !(options->optim.final >= 0 && options->optim.final <= 1))
    return trm_error(TRM_USAGE, "optim.final is %g, must be in [0, 1]: the part of optim.lr that is left at the end",
                     options->optim.final);
  if (schedule == TRM_LR_PLATEAU && !(options->optim.gamma > 0 && options->optim.gamma < 1))
    return trm_error(TRM_USAGE, "optim.gamma is %g, must be above 0 and below 1: a plateau lowers the rate by it",
                     options->optim.gamma);
  if (schedule != TRM_LR_STEP)
    return TRM_OK;
  if (!(options->optim.gamma > 0 && options->optim.gamma <= 1))
    return trm_error(TRM_USAGE, "optim.gamma is %g, must be above 0 and at most 1", options->optim.gamma);
  const char *text = options->optim.milestones ? options->optim.milestones : "";
  double value;
  bool fraction;
  int count = 0;
  for (; schedule_next_milestone(&text, &value, &fraction); count++)
    if (!text)
      return trm_error(TRM_USAGE, "optim.milestones is '%s', must be fractions of the run (0.5,0.75) or epochs (30,60)",
                       options->optim.milestones);
  if (!count)
    return trm_error(TRM_USAGE, "optim.schedule is step: optim.milestones must say when");
  return TRM_OK;
}

static double schedule_step_factor(const struct trm_options *options, uint64_t step, uint64_t steps,
                                   uint64_t steps_per_epoch)
{
  const char *text = options->optim.milestones ? options->optim.milestones : "";
  double factor = 1, value;
  bool fraction;
  while (text && schedule_next_milestone(&text, &value, &fraction))
    if (text && (double)step >= (fraction ? round(value * (double)steps) : value * (double)steps_per_epoch))
      factor *= options->optim.gamma;
  return factor;
}

uint64_t trm_schedule_warmup(const struct trm_options *options, uint64_t steps)
{
  const double warmup = options->optim.warmup;
  return (uint64_t)(warmup < 1 ? round(warmup * (double)steps) : warmup);
}

/* From `from` to `to` along half a cosine, at part p of the way. */
static double schedule_anneal(double from, double to, double p)
{
  return to + (from - to) * (1 + cos(3.14159265358979323846 * p)) / 2;
}

static double schedule_onecycle_factor(const struct trm_options *options, uint64_t step, uint64_t steps)
{
  const double warmup = options->optim.warmup > 0 ? options->optim.warmup : 0.3;
  const double top = (warmup < 1 ? warmup * (double)steps : warmup) - 1, end = (double)steps - 1, at = (double)step;
  if (at <= top && top > 0)
    return schedule_anneal(1.0 / 25, 1, at / top);
  return schedule_anneal(1, options->optim.final, end > top ? (fmin(at, end) - top) / (end - top) : 1);
}

double trm_schedule_rate(const struct trm_options *options, uint64_t step, uint64_t steps, uint64_t steps_per_epoch)
{
  const double pi = 3.14159265358979323846;
  const double p = steps ? (double)(step < steps ? step : steps) / (double)steps : 0;
  const double final = options->optim.final;
  double rate = options->optim.rate;
  switch (options->optim.schedule) {
  case TRM_LR_STEP:
    rate *= schedule_step_factor(options, step, steps, steps_per_epoch);
    break;
  case TRM_LR_COSINE:
    rate *= final + (1 - final) * (1 + cos(pi * p)) / 2;
    break;
  case TRM_LR_LINEAR:
    rate *= 1 - (1 - final) * p;
    break;
  case TRM_LR_ONECYCLE:
    return rate * schedule_onecycle_factor(options, step, steps);
  default:
    break;
  }
  const uint64_t warmup = trm_schedule_warmup(options, steps);
  return step < warmup ? rate * ((double)step + 1) / (double)warmup : rate;
}

bool trm_plateau_add(struct trm_plateau *plateau, const struct trm_options *options, double loss)
{
  const double before = plateau->factor;
  if (loss < plateau->best * (1 - options->optim.threshold)) {
    plateau->best = loss;
    plateau->waited = 0;
  } else if (++plateau->waited > (uint64_t)options->optim.patience) {
    plateau->factor = fmax(plateau->factor * options->optim.gamma, options->optim.final);
    plateau->waited = 0;
  }
  return plateau->factor != before;
}
