#include "mpi/async/delay_watch.h"

#include <math.h>

/* Of each worker. READ_AT: the clock of its weights, -INFINITY: it has left. ANSWERED: 1 if its call has been answered
 * since it read weights. */
enum state { READ_AT, ANSWERED, STATES };

static double *watch_state(const struct server_chunk *chunk, const struct server_call *call, enum state state)
{
  return &chunk->method_state[call->caller * STATES + (int)state];
}

/* per_chunk of the reply: ANSWERED. */
void delay_watch_read(const struct server_chunk *chunk, struct server_call *call)
{
  double *answered = watch_state(chunk, call, ANSWERED);
  *watch_state(chunk, call, READ_AT) = (double)*chunk->clock;
  call->per_chunk = *answered;
  *answered = 0;
}

bool delay_watch_serve(const struct server_chunk *chunk, const struct server_call *call, int64_t limit)
{
  double *read_at = watch_state(chunk, call, READ_AT);
  if (call->kind == DELAY_WATCH_LEAVE) {
    *read_at = -INFINITY;
    return true;
  }
  if ((double)*chunk->clock - *read_at < (double)limit)
    return false;
  *watch_state(chunk, call, ANSWERED) = 1;
  return true;
}

/* -- at a worker */

static bool watch_reads_memory(const struct trm_strategy *s)
{
  return param_server_runs_calls(worker_of(s)->server, 0, 0);
}

/* Returns true if the call is not in progress. */
static bool watch_is_answered(const struct trm_strategy *s, struct delay_watch *watch, bool waits)
{
  int64_t clock;
  if (watch->in_progress && param_server_end(worker_of(s)->server, 0, 0, waits, &clock))
    watch->in_progress = false;
  return !watch->in_progress;
}

void delay_watch_create(struct trm_strategy *s, struct delay_watch *watch, int64_t limit)
{
  struct worker *w = worker_of(s);
  *watch = (struct delay_watch){.limit = limit};
  w->per_chunk = worker_alloc(s, param_server_chunks(w->server) * sizeof *w->per_chunk);
}

void delay_watch_begin(struct trm_strategy *s, struct delay_watch *watch)
{
  const struct worker *w = worker_of(s);
  watch->computes = true;
  watch->is_reached = false;
  if (watch_reads_memory(s))
    return;
  if (w->per_chunk[0] > 0)
    watch_is_answered(s, watch, true);
  w->per_chunk[0] = 0;
  if (watch->in_progress)
    return;
  const struct server_request request = {.kind = DELAY_WATCH_BEGIN, .last = 1};
  param_server_begin(w->server, &request, 0);
  watch->in_progress = true;
}

bool delay_watch_is_reached(const struct trm_strategy *s, struct delay_watch *watch)
{
  const struct worker *w = worker_of(s);
  if (!watch->computes)
    return false;
  if (watch_reads_memory(s))
    return param_server_clock(w->server, 0, 0) - w->seen[0] >= watch->limit;
  watch->is_reached |= watch_is_answered(s, watch, false);
  return watch->is_reached;
}

void delay_watch_leave(struct trm_strategy *s, struct delay_watch *watch)
{
  watch->computes = false;
  if (!watch->in_progress)
    return;
  const struct server_request request = {.kind = DELAY_WATCH_LEAVE, .last = 1};
  param_server_exchange(worker_of(s)->server, &request);
  watch_is_answered(s, watch, true);
}
