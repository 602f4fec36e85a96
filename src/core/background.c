#include "core/background.h"

#include <pthread.h>
#include <signal.h>
#include <time.h>

#include "core/context.h"
#include "core/memory.h"
#include "core/status.h"

struct call {
  int (*function)(void *context);
  void *context;
  struct call *next; /* owned */
};

struct trm_background {
  pthread_t thread;
  bool runs; /* the thread does */
  pthread_mutex_t lock;   /* of all below */
  pthread_cond_t changed;
  struct call *first;     /* the one that is made, and those that wait for it; owned */
  int status;             /* the first failure since the last wait */
  char *error;            /* its message, owned */
  bool ends;
};

/* Makes a call unless one has failed. The lock is held, but not during the call. */
static void background_make(struct trm_background *b, const struct call *call)
{
  if (b->status != TRM_OK)
    return;
  pthread_mutex_unlock(&b->lock);
  const int status = call->function(call->context);
  pthread_mutex_lock(&b->lock);
  b->status = status;
  b->error = status == TRM_OK ? NULL : trm_strdup(trm_error_text());
}

static void *background_run(void *argument)
{
  struct trm_background *b = argument;
  pthread_mutex_lock(&b->lock);
  while (b->first || !b->ends) {
    if (!b->first) {
      pthread_cond_wait(&b->changed, &b->lock);
      continue;
    }
    struct call *call = b->first;
    background_make(b, call);
    b->first = call->next;
    trm_free(call);
    pthread_cond_broadcast(&b->changed);
  }
  pthread_mutex_unlock(&b->lock);
  return NULL;
}

struct trm_background *trm_background_open(void)
{
  struct trm_background *b = trm_alloc(sizeof *b, "a background thread");
  pthread_mutex_init(&b->lock, NULL);
  pthread_cond_init(&b->changed, NULL);
  sigset_t all, before; /* signals are the main thread's */
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  b->runs = trm_context_start_thread(&b->thread, background_run, b) == 0;
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return b;
}

void trm_background_begin(struct trm_background *b, int (*function)(void *context), void *context)
{
  struct call *call = trm_alloc(sizeof *call, "a call in the background");
  *call = (struct call){.function = function, .context = context};
  pthread_mutex_lock(&b->lock);
  if (b->runs) {
    struct call **last = &b->first;
    while (*last)
      last = &(*last)->next;
    *last = call;
    pthread_cond_broadcast(&b->changed);
  } else {
    background_make(b, call);
    trm_free(call);
  }
  pthread_mutex_unlock(&b->lock);
}

void trm_background_poll(bool (*done)(const void *context), const void *context)
{
  while (!done(context))
    nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
}

bool trm_background_failed(struct trm_background *b)
{
  pthread_mutex_lock(&b->lock);
  const bool failed = b->status != TRM_OK;
  pthread_mutex_unlock(&b->lock);
  return failed;
}

bool trm_background_is_idle(struct trm_background *b)
{
  pthread_mutex_lock(&b->lock);
  const bool idle = !b->first;
  pthread_mutex_unlock(&b->lock);
  return idle;
}

int trm_background_wait(struct trm_background *b)
{
  pthread_mutex_lock(&b->lock);
  while (b->first)
    pthread_cond_wait(&b->changed, &b->lock);
  const int status = b->status;
  if (status != TRM_OK)
    trm_error(status, "%s", b->error);
  trm_free(b->error);
  b->error = NULL;
  b->status = TRM_OK;
  pthread_mutex_unlock(&b->lock);
  return status;
}

void trm_background_close(struct trm_background *b)
{
  if (!b)
    return;
  pthread_mutex_lock(&b->lock);
  b->ends = true;
  pthread_cond_broadcast(&b->changed);
  pthread_mutex_unlock(&b->lock);
  if (b->runs)
    pthread_join(b->thread, NULL);
  pthread_mutex_destroy(&b->lock);
  pthread_cond_destroy(&b->changed);
  trm_free(b->error);
  trm_free(b);
}
