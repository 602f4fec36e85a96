/* Delay watch: a worker learns, while it computes, that its weights have missed so many updates that the server will
 * drop the gradient. What it watches is the first chunk of the server weights.
 *
 * In memory that it shares with the chunk's owner it reads the chunk's clock. Otherwise it leaves a call there, which
 * the owner holds back until the delay of the worker's latest weights has reached the limit. The call stays when the
 * worker reads newer weights, so a gradient costs no message more than without the watch:
 *
 *   worker k                          the chunk, at its owner
 *   reads weights             -->     READ_AT of k = clock
 *   DELAY_WATCH_BEGIN         -->     held back while clock - READ_AT of k < limit
 *   sends its gradient,
 *   gets weights              <-->    READ_AT of k = clock; has the call been answered? Then k makes another
 *
 * An answer under way when the worker sends its gradient is of weights that it no longer has; by the reply, which tells
 * of it, the worker takes it for what it is. */
#pragma once

#include "mpi/async/server_weights.h"

/* Calls. STOPPED: the worker has abandoned a gradient. LEAVE: it computes nothing before the next quiesce point. */
enum delay_watch_call { DELAY_WATCH_STOPPED = SERVER_CALL_KINDS, DELAY_WATCH_BEGIN, DELAY_WATCH_LEAVE };
enum { DELAY_WATCH_SLOTS = 1 }; /* of param_server_begin */

struct delay_watch {
  int64_t limit;    /* updates */
  bool computes;    /* a gradient */
  bool in_progress; /* the call */
  bool is_reached;     /* it has been answered while this gradient was computed */
};

/* method_states of a chunk: the first of the method's. */
static inline int delay_watch_states(const struct trm_strategy *strategy)
{
  return 2 * worker_count(strategy);
}

/* -- within a handler */
/* The caller gets the chunk's weights: of every call that reads them. */
void delay_watch_read(const struct server_chunk *chunk, struct server_call *call);
/* Answers DELAY_WATCH_BEGIN and DELAY_WATCH_LEAVE, or (false) holds the reply back. */
bool delay_watch_serve(const struct server_chunk *chunk, const struct server_call *call, int64_t limit);

/* -- at a worker; calls that read weights are made by worker_exchange */
void delay_watch_create(struct trm_strategy *strategy, struct delay_watch *watch, int64_t limit);
/* A gradient begins at the weights that were read last. */
void delay_watch_begin(struct trm_strategy *strategy, struct delay_watch *watch);
/* Returns true if the gradient will be dropped. */
bool delay_watch_is_reached(const struct trm_strategy *strategy, struct delay_watch *watch);
/* The worker computes nothing before the next quiesce point. */
void delay_watch_leave(struct trm_strategy *strategy, struct delay_watch *watch);
