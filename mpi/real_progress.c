/* Progress of collectives over messages (real_coll.c). Their messages need calls at every rank: MPI moves little while
 * no call is made, and the next round of a collective begins by a call of its own. These are made
 *
 * 1. by the rank's main thread wherever it waits, tests a request or calls progress, and
 * 2. by a thread (parallel.progress=thread) while the rank computes or is inside an MPI call that blocks. It is created
 *    when a non-blocking collective over messages begins for the first time. It sleeps between polls, since the rank's
 *    own threads have the cores, and until the next collective begins where there is nothing to do.
 *
 * Either takes all collectives of the rank further, on all of its communicators: another rank may need any of them to
 * come to the one that this rank waits for. One lock is held while one thread does so, and while a collective is made.
 * It is not held in a sleep. */
#include <signal.h>
#include <time.h>

#include "core/context.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"
#include "mpi/real.h"
#include "mpi/real_private.h"

/* Sleeps between polls: at 0.2 ms a core that computes loses up to a sixth of its time, at 1 ms 3 %. */
#define SHORT_SLEEP_NS 200000L
#define SLEEP_NS 1000000L

void real_progress_init(struct real_progress *progress)
{
  pthread_mutex_init(&progress->lock, NULL);
  pthread_cond_init(&progress->begun, NULL);
}

void real_progress_end(struct real_progress *progress)
{
  if (progress->threaded) {
    pthread_mutex_lock(&progress->lock);
    progress->stop = true;
    pthread_cond_signal(&progress->begun);
    pthread_mutex_unlock(&progress->lock);
    pthread_join(progress->thread, NULL);
  }
  pthread_cond_destroy(&progress->begun);
  pthread_mutex_destroy(&progress->lock);
}

void trm_comm_set_progress(struct trm_comm *world, enum trm_progress progress)
{
  real_of(world)->job->progress.by = progress;
}

/* Under the lock. Returns true if all collectives of the rank are complete. */
static bool progress_advance(struct real_progress *progress)
{
  bool complete = true;
  for (struct real_comm *real = progress->first; real; real = real->next_in_progress)
    complete &= coll_progress(&real->coll);
  return complete;
}

static void *progress_thread(void *context)
{
  struct real_progress *progress = context;
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, NULL); /* signals go to the main thread */
  pthread_mutex_lock(&progress->lock);
  for (long sleep_ns = SHORT_SLEEP_NS; !progress->stop;) {
    if (progress_advance(progress)) {
      pthread_cond_wait(&progress->begun, &progress->lock);
      sleep_ns = SHORT_SLEEP_NS;
      continue;
    }
    pthread_mutex_unlock(&progress->lock);
    nanosleep(&(struct timespec){.tv_nsec = sleep_ns}, NULL);
    sleep_ns = sleep_ns < SLEEP_NS / 2 ? 2 * sleep_ns : SLEEP_NS;
    pthread_mutex_lock(&progress->lock);
  }
  pthread_mutex_unlock(&progress->lock);
  return NULL;
}

void real_progress_in_background(struct trm_comm *comm)
{
  struct real_progress *progress = &real_of(comm)->job->progress;
  if (progress->by != TRM_PROGRESS_THREAD || progress->threaded)
    return;
  progress->threaded = trm_context_start_thread(&progress->thread, progress_thread, progress) == 0;
  if (!progress->threaded)
    trm_abort_on_error(trm_error(TRM_FAILED, "parallel.progress: cannot begin a thread; use parallel.progress=calls"));
}

bool real_may_block(struct trm_comm *comm)
{
  return real_of(comm)->job->progress.by == TRM_PROGRESS_THREAD;
}

/* -- schedules */

void real_schedule_lock(struct real_comm *real)
{
  pthread_mutex_lock(&real->job->progress.lock);
}

void real_schedule_begin(struct real_comm *real)
{
  struct real_progress *progress = &real->job->progress;
  if (!real->in_progress) {
    real->in_progress = true;
    real->next_in_progress = progress->first;
    progress->first = real;
  }
  atomic_fetch_add_explicit(&progress->schedules, 1, memory_order_relaxed);
  coll_progress(&real->coll);
  pthread_cond_signal(&progress->begun);
  pthread_mutex_unlock(&progress->lock);
}

bool real_schedule_test(struct real_comm *real, struct coll_schedule **schedule)
{
  struct real_progress *progress = &real->job->progress;
  if (!*schedule)
    return true;
  pthread_mutex_lock(&progress->lock);
  progress_advance(progress);
  const bool complete = coll_schedule_test(schedule);
  if (complete)
    atomic_fetch_sub_explicit(&progress->schedules, 1, memory_order_relaxed);
  if (!real->coll.oldest) {
    struct real_comm **link = &progress->first;
    while (*link != real)
      link = &(*link)->next_in_progress;
    *link = real->next_in_progress;
    real->in_progress = false;
  }
  pthread_mutex_unlock(&progress->lock);
  return complete;
}

bool real_schedules_exist(struct real_job *job)
{
  return atomic_load_explicit(&job->progress.schedules, memory_order_relaxed) > 0;
}

void real_schedules_advance(struct real_job *job)
{
  if (!real_schedules_exist(job) || pthread_mutex_trylock(&job->progress.lock) != 0)
    return; /* there is nothing to do, or another thread does it */
  progress_advance(&job->progress);
  pthread_mutex_unlock(&job->progress.lock);
}
