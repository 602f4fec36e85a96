/* Waiting in MPI: requests, and sharing of cores. A polling rank keeps its core busy. In an oversubscribed job (more
 * threads than cores on some node) the awaited rank may need that core, so a waiting rank sleeps between polls, and
 * ranks enter blocking MPI collectives together, after a barrier that sleeps (real_barrier_before_collective in
 * mpi/real.c). */
#include <math.h>
#include <sched.h>
#include <time.h>

#include "core/context.h"
#include "mpi/real.h"
#include "mpi/real_private.h"

void trm_comm_set_oversubscribed(void)
{
  trm_rank_current()->oversubscribed = true;
}

bool real_is_oversubscribed(void)
{
  return trm_rank_current()->oversubscribed;
}

/* Sleeps an eighth of the time waited so far, at most max_s: the wait ends at most that much later. For the first
 * 200 us, and without oversubscription, it yields: a thread that yields gets the core back at its next turn. */
static void real_polling_pause(double since, double max_s)
{
  const double waited = MPI_Wtime() - since;
  if (real_is_oversubscribed() && waited > 200e-6)
    nanosleep(&(struct timespec){.tv_nsec = (long)(fmin(waited / 8, max_s) * 1e9)}, NULL);
  else
    sched_yield();
}

void real_pause(double since)
{
  real_polling_pause(since, 1e-3);
}

void real_probe(MPI_Comm mpi)
{
  int found;
  MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, mpi, &found, MPI_STATUS_IGNORE);
}

void real_progress(struct trm_comm *comm)
{
  real_schedules_advance(real_of(comm)->job);
  real_probe(real_of(comm)->mpi);
  sched_yield();
}

/* What other ranks write nearly always changes within a few polls; after these each poll makes MPI progress. */
void real_wait_until(struct trm_comm *comm, bool (*done)(void *context), void *context)
{
  for (int poll = 0; poll < 20; poll++)
    if (done(context))
      return;
  struct real_comm *real = real_of(comm);
  for (double since = MPI_Wtime(); !done(context);) {
    if (real_calls_attend(real)) {
      trm_ledger_add_answer();
      since = MPI_Wtime();
      continue;
    }
    real_schedules_advance(real->job);
    real_probe(real->mpi);
    real_pause(since);
  }
}

bool real_wait_at_most(struct trm_comm *comm, bool (*done)(void *context), void *context, double when)
{
  struct real_comm *real = real_of(comm);
  for (double since = MPI_Wtime(); !done(context);) {
    const double left = when - real_clock(comm);
    if (left <= 0)
      return false;
    real_schedules_advance(real->job);
    real_probe(real->mpi);
    real_polling_pause(since, fmin(left, 1e-3));
  }
  return true;
}

/* The remaining time is computed anew after each sleep, so that a signal does not change the end. */
void real_sleep_until(struct trm_comm *comm, double when, bool progress)
{
  for (double left; (left = when - real_clock(NULL)) > 0;) {
    if (progress)
      left = fmin(left, 200e-6);
    const time_t seconds = (time_t)left;
    nanosleep(&(struct timespec){.tv_sec = seconds, .tv_nsec = (long)((left - (double)seconds) * 1e9)}, NULL);
    if (progress)
      real_progress(comm);
  }
}

/* -- requests */

bool real_test(struct trm_request **request)
{
  struct trm_request *r = *request;
  if (!r)
    return true;
  if (!r->schedule) {
    real_schedules_advance(r->comm->job);
    return real_message_test(request);
  }
  return real_schedule_test(r->comm, &r->schedule) && real_message_test(request);
}

/* MPI_Wait takes no collective over messages further. */
void real_wait(struct trm_request **request)
{
  struct trm_request *r = *request;
  const double since = MPI_Wtime(), max_s = r && r->collective ? 50e-6 : 1e-3;
  while (r && !real_is_oversubscribed() && r->completed < r->count && !real_schedules_exist(r->comm->job))
    MPI_Wait(&r->mpi[r->completed++], MPI_STATUS_IGNORE);
  while (!real_test(request))
    real_polling_pause(since, max_s);
}
