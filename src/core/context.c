#include "core/context.h"

#include <errno.h>
#include <semaphore.h>

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

/* On the stack of the thread that creates the other one, until that one has taken it: memory that the other one would
 * free when it first runs would make the bytes in use (trm_memory_allocated) depend on that time. */
struct context_start {
  struct trm_rank_state *rank;
  void *(*run)(void *argument);
  void *argument;
  sem_t taken;
};

static void *context_run(void *data)
{
  struct context_start *from = data;
  void *(*const run)(void *) = from->run;
  void *const argument = from->argument;
  own.rank = from->rank;
  sem_post(&from->taken);
  return run(argument);
}

int trm_context_start_thread(pthread_t *thread, void *(*run)(void *argument), void *argument)
{
  struct context_start start = {.rank = trm_rank_current(), .run = run, .argument = argument};
  if (sem_init(&start.taken, 0, 0) != 0)
    return errno;
  const int reason = pthread_create(thread, NULL, context_run, &start);
  while (!reason && sem_wait(&start.taken) != 0 && errno == EINTR)
    ;
  sem_destroy(&start.taken);
  return reason;
}

char *trm_context_text(void)
{
  struct trm_context *context = trm_context_current();
  return context->text[context->next_text++ % (sizeof context->text / sizeof *context->text)];
}
