/* The strategy contract: how the ranks' gradients become updates of the weights. One file a method, in mpi/sync and
 * mpi/async; each reaches other ranks through core/comm.h alone.
 *
 * The strategy owns the flat arrays (so that they can live where it needs them: private, shared by a node, in a window).
 * All slots marked collective are called by every rank of the data axis in the same order.
 */
#ifndef TRM_TRAIN_STRATEGY_H
#define TRM_TRAIN_STRATEGY_H

#include "core/comm.h"
#include "core/device.h"
#include "core/options.h"
#include "nn/model.h"
#include "nn/optimizer.h"

struct trm_strategy;

struct trm_strategy_ops {
  const char *name; /* strategy.name */
  const char *help; /* one line */
  bool lockstep;    /* all ranks compute the parts of one batch at the same time, so passes may reduce among them */

  /* Collective. Takes the arrays (elements = strategy->elements), sets w and g, index and parts. */
  int (*create)(struct trm_strategy *strategy);
  /* Before the forward pass of a step; NULL: nothing to do. */
  int (*before_forward)(struct trm_strategy *strategy);
  /* The gradients of the flat interval [low, high) are final on this rank for this step (after the last micro-batch or
   * lane). Intervals come in ascending order and cover the array. tally: this rank's sums, final, too. NULL: the strategy
   * waits for step. */
  int (*grad_ready)(struct trm_strategy *strategy, size_t low, size_t high, const struct trm_tally *tally);
  /* Collective for synchronous methods. Combines, updates: w is the next version on return. tally: in, this rank's sums;
   * out, the sums over the global batch. If the global loss is not finite nothing is updated and TRM_FAILED is returned
   * on every rank. */
  int (*step)(struct trm_strategy *strategy, double rate, struct trm_tally *tally);
  /* Collective: everything under way is done; w is the variable to evaluate. */
  int (*finish)(struct trm_strategy *strategy);

  /* -- state for checkpoints. Host views of the whole flat arrays: `state` 0 is the weights, 1.. the optimizer's.
   * collect: collective, makes the views current; valid on rank 0 of the data axis (at least) until the next step.
   * restore: collective; every rank passes the same whole arrays (host, `elements` floats each), or NULL to keep. */
  int (*collect)(struct trm_strategy *strategy, const float *view[TRM_MAX_STATES]);
  int (*restore)(struct trm_strategy *strategy, const float *const from[TRM_MAX_STATES], uint64_t updates);

  void (*destroy)(struct trm_strategy *strategy); /* collective */
};

struct trm_strategy {
  const struct trm_strategy_ops *ops;
  /* set by the caller before create; not owned */
  struct trm_comm *comm;       /* the data axis */
  struct trm_device *device;
  const struct trm_optimizer *optimizer;
  const struct trm_options *options;
  size_t elements;             /* of the flat arrays */
  const size_t *boundary;      /* ascending ends of the layers' intervals, (boundaries): where buckets may be cut */
  int boundaries;
  /* set by create */
  float *w, *g;                /* device: weights to read, gradients to write, (elements) */
  float *average;              /* device, (elements): the average of the weights (optim.ema), to read; NULL: none */
  int index, parts;            /* which part of each global batch this rank computes (trm_interval) */
  uint64_t updates;            /* steps done */
  double wait_s, comm_s;       /* seconds spent waiting for others, and in communication, so far */
  void *own;
};

#endif
