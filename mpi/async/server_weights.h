/* What methods with a centre have in common. Array 0 of the one object is the weights, those after it
 * are the optimizer's states; statistics (nn/model.h) lie at the end of each. */
#ifndef TRM_MPI_ASYNC_SERVER_WEIGHTS_H
#define TRM_MPI_ASYNC_SERVER_WEIGHTS_H

#include "mpi/async/worker.h"

/* Calls, and what comes with them. A method may have more. */
enum server_weights_call { SERVER_PULL, SERVER_PUSH, SERVER_CALL_KINDS };
enum server_weights_value { SERVER_RATE, SERVER_SCALE }; /* of the update; the scale that clipping asks for */

/* TRM_USAGE where the options ask for what such a method cannot mean: strategy.tau, and strategy.rate=staleness where
 * it does not divide. */
int server_weights_check(const struct trm_strategy *strategy, bool divides);

/* -- slots of the contract, of methods whose workers send every gradient and wait for the answer */
int server_weights_before_forward(struct trm_strategy *strategy); /* SERVER_PULL, after a quiesce point */
int server_weights_step(struct trm_strategy *strategy, double rate, struct trm_loss_sums *sums); /* SERVER_PUSH */

/* Of the gradient at hand. Statistics are measured by all workers at the same time: each one's count a share, or those
 * that come late would overshoot, and with many workers swing up. */
void server_weights_share_statistics(struct trm_strategy *strategy);

/* -- slots of all methods with a centre. settle: evaluated becomes the centre, or its average. */
int server_weights_quiesce(struct trm_strategy *strategy);
int server_weights_collect(struct trm_strategy *strategy, const float *view[TRM_MAX_STATES]);
int server_weights_restore(struct trm_strategy *strategy, const float *const from[TRM_MAX_STATES], uint64_t updates);

/* -- within the service */
/* The optimizer's rule on one piece; g (piece->n). */
void server_weights_update(const struct trm_strategy *strategy, const struct server_chunk *chunk,
                           const struct trm_update *update, const float *g);
/* Gives the caller the weights, if it wants them. */
void server_weights_reply(const struct server_chunk *chunk, struct server_call *call);

/* to += factor * g, statistics: to += share * g. Elements [low, low + n) of the flat arrays, to and g (n). */
void server_weights_add_scaled(const struct trm_strategy *strategy, double factor, double share, size_t low, size_t n,
                               float *to, const float *g);
/* How many of the elements [low, low + n) are trained; statistics come after them. */
size_t server_weights_trained(const struct trm_strategy *strategy, size_t low, size_t n);

#endif
