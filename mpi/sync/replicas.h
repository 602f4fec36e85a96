/* Shared by the synchronous methods with local steps: replicas of the model, which each train by themselves on their
 * shards of every batch, and exchange weights from time to time.
 *
 * A replica is a node, or with strategy.replica=rank a rank. Inside it runs the synchronous method (sync.h), over the
 * replica's ranks, with the mean gradient over the replica's rows. After every strategy.tau steps, a round, the weights
 * of all replicas are combined by the method's rule, of which a method's file has no more than struct replicas_method.
 *
 *     replica 0   w ----steps----> w0 --+               +--> w ----steps---->
 *                                       |  mean, rule   |
 *     replica 1   w ----steps----> w1 --+               +--> w ----steps---->
 *
 * The flat arrays are cut into as many slices as the smallest replica has ranks. The ranks of all replicas that have
 * the same slice exchange it, in messages of parallel.bucket, and have the method's arrays of it: inside a replica
 * there is one copy of them. With strategy.fragments=F the arrays are exchanged in F intervals in turn, one after every
 * strategy.tau / F steps, so that each is exchanged once a round.
 *
 * Between exchanges replicas do not communicate, and may drift apart in time. So losses, failures and requests to stop
 * become known at an exchange, or at a quiesce point (train/strategy.h). There eval_weights are the mean over the
 * replicas, in an array of their own: the round goes on as if they had not been computed. Checkpoints have that mean,
 * and as local state all that a job of the same ranks needs to go on with the round. */
#pragma once

#include "mpi/sync/sync.h"

enum { REPLICAS_MAX_ARRAYS = 3 };

/* Elements of this rank's slice, all of them trained. */
struct replicas_part {
  size_t n;
  float *w;                           /* (n) in: the mean over the replicas; out: the next weights of all replicas */
  float *array[REPLICAS_MAX_ARRAYS];  /* (n) each */
  double rate;                        /* learning rate of the latest step */
};

struct replicas_method {
  int arrays;         /* of the method's own. Array 0 begins as the weights, the others as zeros */
  int scratch;        /* the last `scratch` of these are empty between exchanges: not in checkpoints */
  bool moves_alone;   /* a replica that is the only one makes the method's updates, too; otherwise it is sync */
  bool awaits_decay;  /* a round is one step until the learning rate decays for the first time (strategy->decayed) */
  double outer_rate, outer_momentum; /* strategy.outer_rate and outer_momentum, where these are -1 */
  /* The rule, element by element. NULL: the mean */
  void (*update)(const struct trm_strategy *strategy, const struct replicas_part *part);
  /* The rule where it is of whole tensors: combines the elements [low, high) of w, all trained, over the replicas, by
   * replicas_get_cross; called by the ranks that have a slice, at the end of a round. NULL: update */
  void (*combine)(struct trm_strategy *strategy, struct interval slice);
  /* Of combine: sets the bytes, rounds and floats of an exchange of n elements. */
  void (*describe)(size_t n, struct trm_exchange *exchange);
};

struct replicas; /* strategy->impl */

/* -- slots of the contract. create: collective; for slot create, which passes the method. */
int replicas_create(struct trm_strategy *strategy, const struct replicas_method *method);
int replicas_before_forward(struct trm_strategy *strategy);
void replicas_part_ready(struct trm_strategy *strategy, size_t high, const struct trm_loss_sums *sums);
int replicas_grad_ready(struct trm_strategy *strategy, size_t low, size_t high, const struct trm_loss_sums *sums);
int replicas_step(struct trm_strategy *strategy, double rate, struct trm_loss_sums *sums);
int replicas_quiesce(struct trm_strategy *strategy);
int replicas_collect(struct trm_strategy *strategy, const float *view[TRM_MAX_STATES]);
int replicas_restore(struct trm_strategy *strategy, const float *const from[TRM_MAX_STATES], uint64_t updates);
void replicas_destroy(struct trm_strategy *strategy);

#define REPLICAS_SLOTS                                                                                              \
  .lockstep = true, .local_steps = true, .before_forward = replicas_before_forward,                                 \
  .part_ready = replicas_part_ready, .grad_ready = replicas_grad_ready, .step = replicas_step,                      \
  .quiesce = replicas_quiesce, .collect = replicas_collect, .restore = replicas_restore, .destroy = replicas_destroy

/* -- for rules */

/* strategy.outer_rate and strategy.outer_momentum, or the method's. */
double replicas_outer_rate(const struct trm_strategy *strategy);
double replicas_outer_momentum(const struct trm_strategy *strategy);
/* Counts a message of n elements to another replica, and the seconds since `before` (the clock of cross) in which the
 * rank did nothing else, as communication. */
void replicas_count_message(struct trm_strategy *strategy, size_t n);
void replicas_count_exposed(struct trm_strategy *strategy, double before, const char *name, enum trm_trace_kind kind);
int replicas_count(const struct trm_strategy *strategy);
/* The ranks of all replicas with this rank's slice, in order of the replicas; NULL: this rank has none. Not owned. */
struct trm_comm *replicas_get_cross(const struct trm_strategy *strategy);
/* The ranks of this replica that have a slice, in order of the slices; NULL: this rank has none. Not owned. */
struct trm_comm *replicas_get_slices(const struct trm_strategy *strategy);
/* Element `at` of an array of the method, which lies in this rank's slice. */
float *replicas_array_at(const struct trm_strategy *strategy, int array, size_t at);
