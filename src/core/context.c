#include "core/context.h"

#include "core/memory.h"

#define CONTEXT_RANK(state)                                                            \
  {                                                                                    \
    .log_size = 1, .threads = 1, .mailbox = {.lock = PTHREAD_MUTEX_INITIALIZER},       \
    .self = {.ops = &trm_comm_self_ops, .size = 1, .impl = &(state).mailbox}           \
  }

static struct trm_rank_state process_rank = CONTEXT_RANK(process_rank);
static _Thread_local struct trm_context own; /* default of the thread */
static _Thread_local struct trm_context *current;

void trm_rank_state_init(struct trm_rank_state *state)
{
  *state = (struct trm_rank_state)CONTEXT_RANK(*state);
}

struct trm_context *trm_context_current(void)
{
  return current ? current : &own;
}

void trm_context_set(struct trm_context *context)
{
  current = context;
}

struct trm_rank_state *trm_rank_current(void)
{
  struct trm_rank_state *rank = trm_context_current()->rank;
  return rank ? rank : &process_rank;
}

struct context_start {
  struct trm_rank_state *rank;
  void *(*run)(void *argument);
  void *argument;
};

static void *context_run(void *data)
{
  const struct context_start start = *(struct context_start *)data;
  trm_free(data);
  own.rank = start.rank;
  return start.run(start.argument);
}

int trm_context_start_thread(pthread_t *thread, void *(*run)(void *argument), void *argument)
{
  struct context_start *start = trm_alloc(sizeof *start, "a thread");
  *start = (struct context_start){trm_rank_current(), run, argument};
  const int reason = pthread_create(thread, NULL, context_run, start);
  if (reason)
    trm_free(start);
  return reason;
}

char *trm_context_text(void)
{
  struct trm_context *context = trm_context_current();
  return context->text[context->next_text++ % (sizeof context->text / sizeof *context->text)];
}
