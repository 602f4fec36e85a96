/* The communication contract over MPI: the barrier, the choice of how a collective is done, and the table of slots.
 * Messages are in real_message.c, collectives over them in real_coll.c and the library's own in real_library.c,
 * progress in real_progress.c, waiting in real_polling.c, groups in real_group.c, node-shared memory in real_node.c,
 * one-sided access in real_window.c, calls in real_calls.c, start and stop of MPI in real_launch.c.
 * An MPI call that fails ends the job (real_launch.c): the contract's slots succeed or do not return. */
#include <stdlib.h>
#include <time.h>

#include "core/status.h"
#include "mpi/real_private.h"

enum { TAG_BARRIER = 32767 }; /* above the contract's tags; supported by every MPI */

/* -- barrier */

/* Dissemination barrier (Hensgen, Finkel and Manber 1988): after round k a rank depends on 2^k others. Unlike
 * MPI_Barrier it waits in real_wait, which sleeps and takes other collectives further. */
static void real_barrier_dissemination(struct trm_comm *comm)
{
  for (int step = 1; step < comm->size; step *= 2) {
    const int to = (comm->rank + step) % comm->size, from = (comm->rank + comm->size - step) % comm->size;
    struct trm_request *send, *receive;
    char token = 0, received;
    real_receive_begin(comm, &received, 1, TRM_BYTE, from, TAG_BARRIER, &receive);
    real_send_begin(comm, &token, 1, TRM_BYTE, to, TAG_BARRIER, &send);
    real_wait(&receive);
    real_wait(&send);
  }
}

static void real_barrier(struct trm_comm *comm)
{
  struct real_comm *real = real_of(comm);
  if (real->barrier)
    real_node_barrier_wait(real);
  else if (real_is_oversubscribed() || real->over_messages || !real_may_block(comm))
    real_barrier_dissemination(comm);
  else
    MPI_Barrier(real->mpi);
}

void real_barrier_before_collective(struct trm_comm *comm)
{
  if (real_is_oversubscribed() && comm->size > 1)
    real_barrier(comm);
}

/* -- collectives: over messages, or the library's. Where the library may not block, it begins and real_wait waits. */

static void real_broadcast(struct trm_comm *comm, void *data, size_t count, enum trm_type type, int root)
{
  struct trm_request *request;
  if (real_coll_broadcast(comm, data, count, type, root, &request)) {
    real_wait(&request);
  } else if (real_may_block(comm)) {
    real_library_broadcast(comm, data, count, type, root);
  } else {
    real_library_broadcast_begin(comm, data, count, type, root, &request);
    real_wait(&request);
  }
}

static void real_allreduce(struct trm_comm *comm, void *data, size_t count, enum trm_type type, enum trm_op op)
{
  struct trm_request *request;
  if (real_coll_allreduce(comm, data, count, type, op, &request)) {
    real_wait(&request);
  } else if (real_may_block(comm)) {
    real_library_allreduce(comm, data, count, type, op);
  } else {
    real_library_allreduce_begin(comm, data, count, type, op, &request);
    real_wait(&request);
  }
}

static void real_allgather(struct trm_comm *comm, const void *mine, void *all, size_t count, enum trm_type type)
{
  struct trm_request *request;
  if (real_coll_allgather(comm, mine, all, count, type, &request)) {
    real_wait(&request);
  } else if (real_may_block(comm)) {
    real_library_allgather(comm, mine, all, count, type);
  } else {
    real_library_allgather_begin(comm, mine, all, count, type, &request);
    real_wait(&request);
  }
}

static void real_reduce_scatter(struct trm_comm *comm, void *all, void *mine, size_t count, enum trm_type type,
                                enum trm_op op)
{
  struct trm_request *request;
  if (real_coll_reduce_scatter(comm, all, mine, count, type, op, &request)) {
    real_wait(&request);
  } else if (real_may_block(comm)) {
    real_library_reduce_scatter(comm, all, mine, count, type, op);
  } else {
    real_library_reduce_scatter_begin(comm, all, mine, count, type, op, &request);
    real_wait(&request);
  }
}

static void real_allreduce_begin(struct trm_comm *comm, void *data, size_t count, enum trm_type type, enum trm_op op,
                                 struct trm_request **request)
{
  if (real_coll_allreduce(comm, data, count, type, op, request))
    real_progress_in_background(comm);
  else
    real_library_allreduce_begin(comm, data, count, type, op, request);
}

static void real_allgather_begin(struct trm_comm *comm, const void *mine, void *all, size_t count, enum trm_type type,
                                 struct trm_request **request)
{
  if (real_coll_allgather(comm, mine, all, count, type, request))
    real_progress_in_background(comm);
  else
    real_library_allgather_begin(comm, mine, all, count, type, request);
}

static void real_reduce_scatter_begin(struct trm_comm *comm, void *all, void *mine, size_t count, enum trm_type type,
                                      enum trm_op op, struct trm_request **request)
{
  if (real_coll_reduce_scatter(comm, all, mine, count, type, op, request))
    real_progress_in_background(comm);
  else
    real_library_reduce_scatter_begin(comm, all, mine, count, type, op, request);
}

/* -- the table */

/* MPI_Wtime may begin with the process. */
double real_clock(struct trm_comm *comm)
{
  (void)comm;
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* As IPM defines it (its user guide, "User Defined Regions"); the MPI library itself does nothing. */
void real_region(struct trm_comm *comm, const char *name, bool begins)
{
  (void)comm;
  MPI_Pcontrol(begins ? 1 : -1, name);
}

void *real_native(struct trm_comm *comm)
{
  return &real_of(comm)->mpi;
}

const struct trm_comm_ops real_ops = {
  .name = "mpi",
  .barrier = real_barrier,
  .broadcast = real_broadcast,
  .allreduce = real_allreduce,
  .allgather = real_allgather,
  .reduce_scatter = real_reduce_scatter,
  .allreduce_begin = real_allreduce_begin,
  .allgather_begin = real_allgather_begin,
  .reduce_scatter_begin = real_reduce_scatter_begin,
  .send_begin = real_send_begin,
  .receive_begin = real_receive_begin,
  .test = real_test,
  .wait = real_wait,
  .progress = real_progress,
  .wait_until = real_wait_until,
  .wait_at_most = real_wait_at_most,
  .sleep_until = real_sleep_until,
  .region = real_region,
  .split = real_split,
  .split_node = real_split_node,
  .release = real_release,
  .share = real_share,
  .unshare = real_unshare,
  .window_create = real_window_create,
  .window_free = real_window_free,
  .get = real_get,
  .put = real_put,
  .accumulate = real_accumulate,
  .fetch_add = real_fetch_add,
  .flush = real_flush,
  .calls_create = real_calls_create,
  .calls_free = real_calls_free,
  .call_begin = real_call_begin,
  .clock = real_clock,
  .abort = real_abort,
  .native = real_native,
};
