/* Shared by the centralized methods: server weights. Array 0 of the one replica is the weights, the arrays after it are
 * the optimizer's states; statistics (nn/model.h) are at the end of each. */
#pragma once

#include "mpi/async/worker.h"

/* Calls and the values they carry. A method may add more. */
enum server_weights_call { SERVER_PULL, SERVER_PUSH, SERVER_CALL_KINDS };
enum server_weights_value { SERVER_RATE, SERVER_SCALE }; /* of the update; the scale of clipping */

/* Within a step: sums the gradient over the worker's group. *scale: that of clipping. Collective over the group.
 * TRM_FAILED if the loss is not finite. */
int server_weights_prepare(struct trm_strategy *strategy, const struct trm_loss_sums *sums, double *scale);
/* SERVER_PUSH of g (elements); w becomes the server weights. */
void server_weights_push(struct trm_strategy *strategy, const float *g, double rate, double scale);

/* -- operations of the contract, for methods whose workers send every gradient and wait for the reply */
int server_weights_before_forward(struct trm_strategy *strategy); /* SERVER_PULL, after a quiesce point */
int server_weights_step(struct trm_strategy *strategy, double rate, struct trm_loss_sums *sums); /* SERVER_PUSH */

/* -- slots of all centralized methods. quiesce: eval_weights becomes the server weights, or their average. */
#define SERVER_WEIGHTS_SLOTS                                                                  \
  .next_batch = worker_next_batch, .quiesce = server_weights_quiesce,                         \
  .snapshot = snapshots_request, .snapshot_weights = snapshots_server_weights,                \
  .read = server_weights_read, .write = server_weights_write
int server_weights_quiesce(struct trm_strategy *strategy);
int server_weights_read(struct trm_strategy *strategy, int state, size_t low, size_t n, float *to);
int server_weights_write(struct trm_strategy *strategy, int state, size_t low, size_t n, const float *from);
int server_weights_restore(struct trm_strategy *strategy, const float *const from[TRM_MAX_STATES], uint64_t updates);

/* -- within a handler */
/* Returns the optimizer's rule with this rate and scale of clipping. */
struct trm_update server_weights_rule(const struct trm_strategy *strategy, double rate, double scale);
/* Applies a rule to one chunk, whose clock counts the updates; g (chunk->n). apply: without counting the gradients for
 * snapshots. */
void server_weights_apply(const struct trm_strategy *strategy, const struct server_chunk *chunk,
                          struct trm_update update, const float *g);
void server_weights_update(const struct trm_strategy *strategy, const struct server_chunk *chunk,
                           struct trm_update update, const float *g);
/* Returns what strategy.rate divides the rate of the call's gradient by, at least 1: its staleness; delay: that over
 * the number of workers; polynomial, hinge: Xie et al. 2019; constant: 1. */
double server_weights_rate_divisor(const struct trm_strategy *strategy, const struct server_call *call);
/* Returns the weights if the call requests them. */
void server_weights_reply(const struct trm_strategy *strategy, const struct server_chunk *chunk,
                          struct server_call *call);

/* to += factor * g; to, g (n) */
void server_weights_axpy(const struct trm_strategy *strategy, double factor, size_t n, float *to, const float *g);
/* mean (chunk->n) += the call's gradient / count, of trained elements times `scale` too. */
void server_weights_add_to_mean(const struct trm_strategy *strategy, const struct server_chunk *chunk,
                                const struct server_call *call, double scale, int count, float *mean);
/* Returns the number of trained elements in [low, low + n); statistics come after them. */
size_t server_weights_trained(const struct trm_strategy *strategy, size_t low, size_t n);
