/* Optimizers: rules on intervals of the flat arrays. Rate and schedule are functions of the step alone.
 *
 *   sgd       w -= rate * g
 *   momentum  m = momentum * m + g;               w -= rate * m                  (Polyak 1964, PyTorch's form)
 *   nesterov  m = momentum * m + g;               w -= rate * (g + momentum * m) (Sutskever et al. 2013, PyTorch's form)
 *   adam      Kingma & Ba 2015, with bias correction
 *   adamw     Loshchilov & Hutter 2019: decay decoupled from the gradient
 * Before the rule: g = clip scale * g + l2 * w. Decoupled decay (optim.decay) is for adamw.
 */
#ifndef TRM_NN_OPTIMIZER_H
#define TRM_NN_OPTIMIZER_H

#include "core/device.h"
#include "core/options.h"

struct trm_optimizer {
  struct trm_update update; /* rule and constants; rate, scale and step are set per step */
  int states;               /* arrays of state: 0, 1 or 2 */
  double clip;              /* largest global norm of the gradient, 0: none */
};

int trm_optimizer_create(struct trm_optimizer *optimizer, const struct trm_options *options);
const char *trm_optimizer_state_name(const struct trm_optimizer *optimizer, int state); /* "momentum"; "first", "second" */

/* The factor that brings a gradient of this squared global norm under the clip (1 if it is under, or no clip). */
float trm_clip_scale(const struct trm_optimizer *optimizer, double norm_squared);

/* Learning rate of 0-based step of `steps` in all. Schedules: constant; step (times gamma at each milestone, given as
 * fractions of the run or epochs: see the option); cosine and linear (from rate to final * rate). Warm-up: linear from
 * rate / warm-up steps over the first optim.warmup steps (or, below 1, that fraction of the run), multiplying any. */
double trm_schedule_rate(const struct trm_options *options, uint64_t step, uint64_t steps, uint64_t steps_per_epoch);

#endif
