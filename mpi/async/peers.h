/* What the methods share whose workers have weights of their own: s->w, and the optimizer's states, both of which live
 * on over quiesce points. The workers of all but elastic averaging (easgd.c) are peers: there is no centre, the service has
 * an object for each rank, and the result of the run is the mean of the workers' weights. */
#ifndef TRM_MPI_ASYNC_PEERS_H
#define TRM_MPI_ASYNC_PEERS_H

#include "mpi/async/worker.h"

/* What worker->own begins with. */
struct peers {
  int64_t batches; /* that this worker has made a step with */
};

/* Collective: worker_create, for a plan with local weights. TRM_USAGE where options make no sense to such methods. */
int peers_create(struct trm_strategy *strategy, const struct worker_plan *plan, size_t method_bytes);
/* What every step begins with: counts the batch, and says how its gradient is applied. *exchanges: strategy.tau batches
 * have passed. An error if the loss is not finite: then nothing has happened. */
int peers_step(struct trm_strategy *strategy, double rate, const struct trm_loss_sums *sums, struct trm_update *update,
               bool *exchanges);
/* A number below `below`: a function of the run's seed, the rank and the batches that it has done. */
int peers_draw(const struct trm_strategy *strategy, int bound);

/* service_exchange, whose time counts as communication. */
int64_t peers_exchange(struct trm_strategy *strategy, const struct server_request *request);
/* Array `array` of this rank's object, (elements), where it lies: for when nobody else can reach it. */
float *peers_local_array(struct trm_strategy *strategy, int array);

/* Collective. evaluated becomes sum of weight * w over the ranks / their number, where the weights, (pieces) on each
 * rank, add up to that number for every piece; NULL: 1. */
void peers_mean(struct trm_strategy *strategy, const double *weight);

/* -- slots of the contract, or what they begin with */
int peers_quiesce(struct trm_strategy *strategy); /* without the mean */
int peers_collect(struct trm_strategy *strategy, const float *view[TRM_MAX_STATES]);
/* Without the mean. Where a checkpoint has not given back what each rank had, all workers begin with the same weights
 * and states, and the objects are empty. */
int peers_restore(struct trm_strategy *strategy, const float *const from[TRM_MAX_STATES], uint64_t updates);

#endif
