/* Shared by the methods whose workers have weights (s->w) and optimizer states of their own, which live on over quiesce
 * points. Except with elastic averaging (easgd.c) the workers are peers: there are no server weights, the parameter
 * server holds a replica per rank, and the result of the run is the mean of the workers' weights. */
#pragma once

#include "mpi/async/worker.h"

/* Options that peer methods support (trm_strategy_ops.takes). */
enum {
  PEERS_TAKE = TRM_TAKES_ALL & ~(TRM_TAKES_SERVERS | TRM_TAKES_GROUPS | TRM_TAKES_STALE_RATE | TRM_TAKES_AVERAGE)
};

/* The first member of worker->method. */
struct peers {
  int64_t batches; /* steps that this worker has made */
  double *weight;  /* (chunks) of w in the mean; over the ranks they add up to their number. NULL: 1 */
};

/* Collective: worker_create, for a plan with local weights. */
int peers_create(struct trm_strategy *strategy, const struct worker_plan *plan, size_t method_bytes);
/* Starts a step: counts the batch, and sets the update of its gradient. *exchanges: strategy.tau batches have passed.
 * TRM_FAILED if the loss is not finite; then nothing has changed. */
int peers_step(struct trm_strategy *strategy, double rate, const struct trm_loss_sums *sums, struct trm_update *update,
               bool *exchanges);
/* A random number below `bound`, from the run's seed, the rank and the batches that it has done. */
int peers_draw(const struct trm_strategy *strategy, int bound);

/* param_server_exchange, whose time counts as communication, or as waiting while replies were held back. */
int64_t peers_exchange(struct trm_strategy *strategy, const struct server_request *request);
/* Array `array` (elements) of this rank's replica, in place: only while no other rank calls. */
float *peers_local_array(struct trm_strategy *strategy, int array);

/* Collective. eval_weights becomes the mean of weight * w over the ranks; sets strategy->consensus. */
void peers_mean(struct trm_strategy *strategy);
void peers_snapshot(struct trm_strategy *strategy); /* worker_plan.snapshot */

/* -- slots of the contract, or their first part. quiesce and restore: eval_weights becomes the mean. */
#define PEERS_SLOTS                                                                           \
  .next_batch = worker_next_batch, .collect = peers_collect, .snapshot = snapshots_request,   \
  .snapshot_weights = peers_snapshot_weights
int peers_snapshot_weights(struct trm_strategy *strategy, int number);
int peers_quiesce(struct trm_strategy *strategy);
int peers_collect(struct trm_strategy *strategy, const float *view[TRM_MAX_STATES]);
/* If a checkpoint has not restored each rank's local state, all workers begin with the same weights and states, and the
 * replicas are 0. */
int peers_restore(struct trm_strategy *strategy, const float *const from[TRM_MAX_STATES], uint64_t updates);
