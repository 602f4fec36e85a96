/* Shared by the centralized methods whose workers make several steps, with weights and an optimizer of their own,
 * before they exchange anything: a period.
 *
 *     worker   start --step--> w --step--> ... --step--> w        strategy.tau steps
 *                                                        |  w - start, or w
 *     server                                        rule of the method
 *                                                        |  the server weights
 *     worker                                           start --step--> ...
 *
 * A method's file has the server's rule, a handler, and no more. Periods go on over quiesce points: the steps of an
 * open one are not part of the server weights, which are evaluated and are the result. Statistics (nn/model.h) move at
 * the worker, and are sent with the weights.
 *
 * Staleness: the updates of the server weights by others during a period. */
#pragma once

#include "mpi/async/peers.h"
#include "mpi/async/server_weights.h"

/* Values of a SERVER_PUSH. */
enum local_work_value { LOCAL_STEPS, LOCAL_SPEED }; /* of the period; steps / s of the worker so far */

struct local_work_plan {
  server_handler *handler;
  int arrays;         /* of the server, with the weights */
  int method_states;  /* of a chunk */
  bool groups_of_workers; /* of struct worker_plan */
  bool sends_weights; /* pushes carry w; otherwise w - start */
  bool adapts;        /* the length of a period follows the worker's speed: local_work_fastest */
};

/* Kept in checkpoints. */
struct local_period {
  int64_t steps, length; /* that are done, and of the whole period */
  bool begun;            /* w and start have been read from the server */
  int64_t timed_steps;
  double timed_s;        /* in which the worker has made these */
};

/* The first member of worker->method. */
struct local_work {
  struct peers peers;
  struct local_work_plan plan;
  struct local_period period;
  float *start;      /* device, (elements) the weights at the period's begin; NULL: plan.sends_weights */
  double *per_chunk; /* (chunks) plan.adapts: what the handler has returned */
  double began_s;    /* when the step in progress began */
};

/* Options that these methods support. */
enum { LOCAL_WORK_TAKES = TRM_TAKES_ALL & ~(TRM_TAKES_GROUPS | TRM_TAKES_STALE_RATE | TRM_TAKES_AVERAGE) };

/* Collective: worker_create. */
int local_work_create(struct trm_strategy *strategy, const struct local_work_plan *plan, size_t method_bytes);

/* In a handler, plan.adapts: returns to the worker the speed of the fastest one in *fastest, which is updated. */
void local_work_fastest(struct server_call *call, double *fastest);

/* -- slots of the contract */
#define LOCAL_WORK_SLOTS                                                              \
  SERVER_WEIGHTS_SLOTS, .before_forward = local_work_before_forward, .step = local_work_step, \
  .restore = local_work_restore, .destroy = worker_destroy
int local_work_before_forward(struct trm_strategy *strategy);
int local_work_step(struct trm_strategy *strategy, double rate, struct trm_loss_sums *sums);
/* If a checkpoint has not restored each rank's local state, all workers begin a period with the server weights, and the
 * method's arrays and states are 0. */
int local_work_restore(struct trm_strategy *strategy, const float *const from[TRM_MAX_STATES], uint64_t updates);
