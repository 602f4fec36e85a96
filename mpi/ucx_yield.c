/* A workaround for MPICH over UCX, linked as an object into every program: it defines two functions of UCX, which the
 * dynamic linker then takes from here. (From an archive the linker would drop it; in a library they would not be found
 * first.)
 *
 * 1. MPICH polls without end. With more ranks than cores a polling rank keeps the core from the rank it waits for,
 *    until the scheduler takes it away: a small all-reduce of 4 ranks on 2 cores takes 7 ms, and 0.01 ms with this.
 *    MPIR_CVAR_POLLS_BEFORE_YIELD has no effect in MPICH's present device. So after 20 polls in a row that found
 *    nothing the core is yielded. With a core per rank that costs nothing measurable.
 * 2. MPICH 4.0 over TCP can hang in MPI_Finalize: it waits for endpoints to disconnect, which need the peers' help,
 *    while the peers are in a barrier. The endpoints end with the process, so there is nothing to wait for. (The
 *    barrier in trm_comm_stop keeps any rank from leaving early.)
 *
 * The build links it where the MPI library calls these functions; --disable-ucx-yield keeps it out. A program that uses
 * the installed library links it itself (pkg-config --variable=sources trireme). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

unsigned ucp_worker_progress(void *worker);
void *ucp_disconnect_nb(void *endpoint);

/* Returns true if this thread has done something else since its last empty poll, such as sleep: then it does not yield,
 * which would cost a time slice. */
static bool ucx_was_away(void)
{
  static _Thread_local struct timespec last_empty;
  const struct timespec before = last_empty;
  clock_gettime(CLOCK_MONOTONIC, &last_empty);
  return (last_empty.tv_sec - before.tv_sec) * 1000000000L + last_empty.tv_nsec - before.tv_nsec > 20000;
}

unsigned ucp_worker_progress(void *worker)
{
  static unsigned (*progress)(void *);
  static _Thread_local int empty;
  if (!progress) {
    void *next = dlsym(RTLD_NEXT, "ucp_worker_progress");
    if (!next)
      abort(); /* the calling library was linked to it */
    *(void **)&progress = next;
  }
  const unsigned events = progress(worker);
  if (events > 0)
    empty = 0;
  else if (empty < 20)
    empty++;
  else if (ucx_was_away())
    empty = 0;
  else
    sched_yield();
  return events;
}

void *ucp_disconnect_nb(void *endpoint)
{
  (void)endpoint;
  return NULL; /* "disconnected, nothing to wait for" */
}
