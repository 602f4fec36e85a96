/* Optimizers: rules on intervals of the flat arrays. Rate and schedule are functions of the step alone.
 *
 *   sgd       w -= rate * g
 *   momentum  m = momentum * m + g;               w -= rate * m                  (Polyak 1964, PyTorch's form)
 *   nesterov  m = momentum * m + g;               w -= rate * (g + momentum * m) (Sutskever et al. 2013, likewise)
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

/* Reads and checks the options of section optim, schedule included. sgd with a momentum is momentum; momentum and
 * nesterov without one take 0.9. TRM_USAGE names the option and why. Nothing to free. */
int trm_optimizer_create(struct trm_optimizer *optimizer, const struct trm_options *options);
/* "momentum"; "first", "second"; NULL beyond the last */
const char *trm_optimizer_state_name(const struct trm_optimizer *optimizer, int state);

/* The factor that brings a gradient of this squared global norm under the clip (1 if it is under, or no clip). */
float trm_clip_scale(const struct trm_optimizer *optimizer, double norm_squared);

/* Applies the update to elements [low, low + n) of the flat arrays, of which [0, trained) are parameters; from there on
 * they are statistics, to which g is added (nn/model.h). All pointers are device pointers to element `low`; states that
 * the rule does not have are NULL. */
void trm_optimizer_apply(struct trm_device *device, const struct trm_update *how, size_t trained, size_t low, size_t n,
                         float *w, const float *g, float *first, float *second);

/* Learning rate of 0-based step of `steps` in all. With p = step / steps:
 *   constant  rate
 *   step      rate * gamma^(milestones reached); optim.milestones is a list such as "0.5,0.75" or "30,60": a number
 *             below 1 or with a point is a fraction of the run, a whole number an epoch
 *   cosine    rate * (final + (1 - final) (1 + cos(pi p)) / 2)                   (Loshchilov & Hutter 2017)
 *   linear    rate * (1 - (1 - final) p)
 * Warm-up multiplies any of them by (step + 1) / W over the first W steps: W = optim.warmup, or, below 1, that fraction
 * of the run. */
double trm_schedule_rate(const struct trm_options *options, uint64_t step, uint64_t steps, uint64_t steps_per_epoch);

/* Checks the schedule's options; part of trm_optimizer_create. */
int trm_schedule_check(const struct trm_options *options);

#endif
