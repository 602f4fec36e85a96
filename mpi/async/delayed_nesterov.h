/* Delayed Nesterov momentum (Liu et al. 2024, arXiv 2401.09135, algorithm 3): a server makes a step by each difference
 * that it gets, at once, but moves its momentum only once in N of them, by their mean. With g = start - w_i, push
 * number t:
 *
 *   D += g
 *   t mod N = 0:  m = mu m + D / N     w -= rate ((1 - c N + c) mu m + g / N)     D = 0
 *   otherwise:                         w -= rate (c mu m + g / N)
 *
 * Written like mpi/sync/diloco.c, which it is, to the bit, where N is 1. Statistics move by 1 / N of their
 * difference. */
#pragma once

#include "train/strategy.h"

struct delayed_nesterov {
  int64_t period; /* N */
  double rate, momentum, activation; /* activation: c */
};

/* In a handler: push number `push`, 1-based, of n elements, of which the first `trained` are no statistics. w,
 * momentum, sum, difference (-g) (n) */
void delayed_nesterov_update(const struct trm_strategy *strategy, const struct delayed_nesterov *rule, int64_t push,
                             size_t n, size_t trained, float *w, float *momentum, float *sum, const float *difference);
/* TRM_USAGE: c above 1 / N. */
int delayed_nesterov_check(const struct delayed_nesterov *rule);
