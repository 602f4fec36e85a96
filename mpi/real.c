/* The communication contract over MPI: start and stop, messages, collectives, groups. Node-shared memory is in
 * real_node.c, one-sided access in real_window.c.
 *
 * Every MPI call that fails ends the job through real_on_error: the contract's slots succeed or do not return. */
#include "mpi/real.h"

#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/context.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"
#include "mpi/real_private.h"

/* -- requests: one operation of the contract is one or several of MPI's, because large arrays go in pieces */

struct trm_request {
  int count, completed; /* the first `done` are complete */
  bool collective;   /* the others need this rank to go on */
  MPI_Request mpi[];
};

static size_t real_chunk_count(size_t count, size_t chunk)
{
  return count > chunk ? (count + chunk - 1) / chunk : 1;
}

static struct trm_request *real_request_create(size_t count, bool collective)
{
  struct trm_request *request = trm_alloc(sizeof *request + count * sizeof(MPI_Request), "a request");
  request->count = (int)count;
  request->collective = collective;
  return request;
}

static bool real_test(struct trm_request **request)
{
  struct trm_request *r = *request;
  if (!r)
    return true;
  for (; r->completed < r->count; r->completed++) {
    int complete;
    MPI_Test(&r->mpi[r->completed], &complete, MPI_STATUS_IGNORE);
    if (!complete)
      return false;
  }
  trm_free(r);
  *request = NULL;
  return true;
}

enum { TAG_BARRIER = 32767 }; /* above those of the contract; all libraries have it */

void trm_comm_set_oversubscribed(void)
{
  trm_rank_current()->oversubscribed = true;
}

/* A poller that offers its core gets it back each time its turn comes; one that naps takes no turns. A nap is an eighth
 * of the time before it: so much later than without it the waiting ends at most. */
static void real_pause_at_most(double since, double max_s)
{
  const double waited = MPI_Wtime() - since;
  if (trm_rank_current()->oversubscribed && waited > 200e-6)
    nanosleep(&(struct timespec){.tv_nsec = (long)(fmin(waited / 8, max_s) * 1e9)}, NULL);
  else
    sched_yield();
}

void real_pause(double since)
{
  real_pause_at_most(since, 1e-3);
}

static void real_wait_sleeping(struct trm_request **request)
{
  const double max_s = *request && (*request)->collective ? 50e-6 : 1e-3;
  for (const double since = MPI_Wtime(); !real_test(request);)
    real_pause_at_most(since, max_s);
}

static void real_wait(struct trm_request **request)
{
  struct trm_request *r = *request;
  if (!r)
    return;
  if (trm_rank_current()->oversubscribed) {
    real_wait_sleeping(request);
    return;
  }
  for (; r->completed < r->count; r->completed++)
    MPI_Wait(&r->mpi[r->completed], MPI_STATUS_IGNORE);
  trm_free(r);
  *request = NULL;
}

static void real_progress(struct trm_comm *comm)
{
  int found;
  MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, real_of(comm)->mpi, &found, MPI_STATUS_IGNORE);
  sched_yield(); /* with more ranks than cores whoever is waited for must get one */
}

static void real_idle(struct trm_comm *comm, double since)
{
  int found;
  MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, real_of(comm)->mpi, &found, MPI_STATUS_IGNORE);
  real_pause(since);
}

/* -- types */

MPI_Datatype real_type(enum trm_type type)
{
  switch (type) {
  case TRM_FLOAT:
    return MPI_FLOAT;
  case TRM_DOUBLE:
    return MPI_DOUBLE;
  case TRM_INT32:
    return MPI_INT32_T;
  case TRM_INT64:
    return MPI_INT64_T;
  case TRM_BYTE:
    return MPI_UINT8_T;
  }
  return MPI_DATATYPE_NULL;
}

static MPI_Op real_op(enum trm_op op)
{
  return op == TRM_SUM ? MPI_SUM : op == TRM_MIN ? MPI_MIN : MPI_MAX;
}

/* Elements of a piece that starts at `from`. */
static int real_chunk_size(size_t from, size_t count, size_t chunk)
{
  return (int)(count - from < chunk ? count - from : chunk);
}

/* -- messages */

static void real_send_begin(struct trm_comm *comm, const void *data, size_t count, enum trm_type type, int to, int tag,
                            struct trm_request **request)
{
  const size_t bytes = trm_type_bytes(type), chunk = REAL_MESSAGE_BYTES / bytes;
  *request = real_request_create(real_chunk_count(count, chunk), false);
  for (int i = 0; i < (*request)->count; i++) {
    const size_t at = (size_t)i * chunk;
    MPI_Isend((const char *)data + at * bytes, real_chunk_size(at, count, chunk), real_type(type), to, tag,
              real_of(comm)->mpi, &(*request)->mpi[i]);
  }
}

static void real_receive_begin(struct trm_comm *comm, void *data, size_t count, enum trm_type type, int from, int tag,
                               struct trm_request **request)
{
  const size_t bytes = trm_type_bytes(type), chunk = REAL_MESSAGE_BYTES / bytes;
  *request = real_request_create(real_chunk_count(count, chunk), false);
  for (int i = 0; i < (*request)->count; i++) {
    const size_t at = (size_t)i * chunk;
    MPI_Irecv((char *)data + at * bytes, real_chunk_size(at, count, chunk), real_type(type), from, tag,
              real_of(comm)->mpi, &(*request)->mpi[i]);
  }
}

/* -- collectives */

/* A barrier of messages (Hensgen, Finkel and Manber 1988): after round k a rank has heard of 2^k others. Each round is
 * a wait of its own, the later ones short. */
static void real_barrier_dissemination(struct trm_comm *comm)
{
  for (int step = 1; step < comm->size; step *= 2) {
    const int to = (comm->rank + step) % comm->size, from = (comm->rank + comm->size - step) % comm->size;
    struct trm_request *send, *receive;
    char token = 0, received;
    real_receive_begin(comm, &received, 1, TRM_BYTE, from, TAG_BARRIER, &receive);
    real_send_begin(comm, &token, 1, TRM_BYTE, to, TAG_BARRIER, &send);
    real_wait_sleeping(&receive);
    real_wait_sleeping(&send);
  }
}

static void real_barrier(struct trm_comm *comm)
{
  struct real_comm *real = real_of(comm);
  if (real->barrier) {
    real_node_barrier_wait(real);
  } else if (trm_rank_current()->oversubscribed) {
    real_barrier_dissemination(comm);
  } else {
    MPI_Barrier(real->mpi);
  }
}

/* Before a collective that MPI waits in: in an oversubscribed job all are there when it begins. */
static void real_barrier_before_collective(struct trm_comm *comm)
{
  if (trm_rank_current()->oversubscribed && comm->size > 1)
    real_barrier(comm);
}

static void real_broadcast(struct trm_comm *comm, void *data, size_t count, enum trm_type type, int root)
{
  real_barrier_before_collective(comm);
  const size_t bytes = trm_type_bytes(type), chunk = REAL_CHUNK_BYTES / bytes;
  for (size_t at = 0; at < count; at += chunk)
    MPI_Bcast((char *)data + at * bytes, real_chunk_size(at, count, chunk), real_type(type), root, real_of(comm)->mpi);
}

static void real_allreduce(struct trm_comm *comm, void *data, size_t count, enum trm_type type, enum trm_op op)
{
  if (comm->size == 1)
    return;
  real_barrier_before_collective(comm);
  const size_t bytes = trm_type_bytes(type), chunk = REAL_CHUNK_BYTES / bytes;
  for (size_t at = 0; at < count; at += chunk)
    MPI_Allreduce(MPI_IN_PLACE, (char *)data + at * bytes, real_chunk_size(at, count, chunk), real_type(type),
                  real_op(op), real_of(comm)->mpi);
}

static void real_allgather(struct trm_comm *comm, const void *mine, void *all, size_t count, enum trm_type type)
{
  const size_t bytes = count * trm_type_bytes(type);
  char *block = (char *)all + (size_t)comm->rank * bytes;
  if (bytes > 0 && mine != block)
    memmove(block, mine, bytes);
  real_barrier_before_collective(comm);
  if (bytes <= REAL_CHUNK_BYTES)
    MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all, (int)count, real_type(type), real_of(comm)->mpi);
  else
    for (int i = 0; i < comm->size; i++)
      real_broadcast(comm, (char *)all + (size_t)i * bytes, count, type, i);
}

/* Large ones in pieces: the same interval of every rank's block, side by side. */
static void real_reduce_scatter(struct trm_comm *comm, void *all, void *mine, size_t count, enum trm_type type,
                                enum trm_op op)
{
  const MPI_Comm mpi = real_of(comm)->mpi;
  const size_t bytes = trm_type_bytes(type), size = (size_t)comm->size;
  if (comm->size == 1) {
    if (count > 0)
      memcpy(mine, all, count * bytes);
    return;
  }
  real_barrier_before_collective(comm);
  if (count * bytes * size <= REAL_CHUNK_BYTES) {
    MPI_Reduce_scatter_block(all, mine, (int)count, real_type(type), real_op(op), mpi);
    return;
  }
  const size_t chunk = REAL_CHUNK_BYTES / (bytes * size) ? REAL_CHUNK_BYTES / (bytes * size) : 1;
  char *packed = trm_alloc(chunk * bytes * size, "chunks of a reduce-scatter");
  for (size_t at = 0; at < count; at += chunk) {
    const size_t n = (size_t)real_chunk_size(at, count, chunk) * bytes;
    for (size_t i = 0; i < size; i++)
      memcpy(packed + i * n, (char *)all + (i * count + at) * bytes, n);
    MPI_Reduce_scatter_block(packed, (char *)mine + at * bytes, (int)(n / bytes), real_type(type), real_op(op), mpi);
  }
  trm_free(packed);
}

static void real_allreduce_begin(struct trm_comm *comm, void *data, size_t count, enum trm_type type, enum trm_op op,
                                 struct trm_request **request)
{
  *request = NULL;
  if (comm->size == 1 || count == 0)
    return;
  const size_t bytes = trm_type_bytes(type), chunk = REAL_CHUNK_BYTES / bytes;
  *request = real_request_create(real_chunk_count(count, chunk), true);
  MPI_Request *next = (*request)->mpi;
  for (size_t at = 0; at < count; at += chunk)
    MPI_Iallreduce(MPI_IN_PLACE, (char *)data + at * bytes, real_chunk_size(at, count, chunk), real_type(type),
                   real_op(op), real_of(comm)->mpi, next++);
}

static void real_allgather_begin(struct trm_comm *comm, const void *mine, void *all, size_t count, enum trm_type type,
                                 struct trm_request **request)
{
  const size_t bytes = count * trm_type_bytes(type);
  char *block = (char *)all + (size_t)comm->rank * bytes;
  *request = NULL;
  if (bytes > 0 && mine != block)
    memmove(block, mine, bytes);
  if (comm->size == 1 || count == 0)
    return;
  *request = real_request_create(1, true);
  MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all, (int)count, real_type(type), real_of(comm)->mpi,
                 &(*request)->mpi[0]);
}

static void real_reduce_scatter_begin(struct trm_comm *comm, void *all, void *mine, size_t count, enum trm_type type,
                                      enum trm_op op, struct trm_request **request)
{
  *request = NULL;
  if (comm->size == 1 || count == 0) {
    real_reduce_scatter(comm, all, mine, count, type, op);
    return;
  }
  *request = real_request_create(1, true);
  MPI_Ireduce_scatter_block(all, mine, (int)count, real_type(type), real_op(op), real_of(comm)->mpi,
                            &(*request)->mpi[0]);
}

/* -- groups */

struct trm_comm *real_wrap(MPI_Comm mpi, bool shares_memory)
{
  if (mpi == MPI_COMM_NULL)
    return NULL;
  struct real_comm *real = trm_alloc(sizeof *real, "a communicator");
  real->mpi = mpi;
  real->shares_memory = shares_memory;
  real->base.ops = &real_ops;
  real->base.impl = real;
  MPI_Comm_rank(mpi, &real->base.rank);
  MPI_Comm_size(mpi, &real->base.size);
  if (shares_memory && real->base.size > 1)
    real_node_barrier_create(real);
  return &real->base;
}

static struct trm_comm *real_split(struct trm_comm *comm, int color, int key)
{
  MPI_Comm group;
  MPI_Comm_split(real_of(comm)->mpi, color < 0 ? MPI_UNDEFINED : color, key, &group);
  return real_wrap(group, real_of(comm)->shares_memory);
}

static void real_release(struct trm_comm *comm)
{
  if (!comm)
    return;
  struct real_comm *real = real_of(comm);
  if (real->barrier)
    real_node_barrier_free(real);
  MPI_Comm_free(&real->mpi);
  trm_free(real);
}

static double real_clock(struct trm_comm *comm)
{
  (void)comm;
  return MPI_Wtime();
}

static void *real_native(struct trm_comm *comm)
{
  return &real_of(comm)->mpi;
}

/* -- the end of the job, and errors */

static void real_abort_job(int status)
{
  MPI_Abort(MPI_COMM_WORLD, status == TRM_OK ? TRM_FAILED : status);
}

static __attribute__((noreturn)) void real_abort(struct trm_comm *comm, int status)
{
  (void)comm;
  real_abort_job(status);
  _Exit(status == TRM_OK ? TRM_FAILED : status); /* MPI_Abort does not return; the compiler cannot know */
}

static void real_report_error(int code)
{
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  for (char *newline = text; (newline = strchr(newline, '\n'));)
    *newline = ' ';
  trm_error(TRM_FAILED, "MPI: %s", text);
  trm_log_error();
  real_abort_job(TRM_FAILED);
}

static void real_on_error(MPI_Comm *mpi, int *code, ...)
{
  (void)mpi;
  real_report_error(*code);
}

static void real_on_window_error(MPI_Win *window, int *code, ...)
{
  (void)window;
  real_report_error(*code);
}

static MPI_Errhandler real_error_handler, real_window_error_handler;

void real_window_set_errhandler(MPI_Win window)
{
  MPI_Win_set_errhandler(window, real_window_error_handler);
}

/* -- start and stop */

int trm_comm_start(int *argc, char ***argv, bool allow_singletons, struct trm_comm **world)
{
  int provided, size, rank;
  if (MPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &provided) != MPI_SUCCESS)
    return trm_error(TRM_FAILED, "MPI did not start");
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const int status = allow_singletons ? TRM_OK : real_check_launch(size);
  if (status != TRM_OK) {
    MPI_Finalize();
    return status;
  }
  trm_log_set_rank(rank, size);
  trm_set_abort(real_abort_job);
  if (provided < MPI_THREAD_MULTIPLE && rank == 0)
    trm_warn("this MPI library (%s) lets only one thread at a time speak: set data.threads=0", trm_comm_library());

  MPI_Comm_create_errhandler(real_on_error, &real_error_handler);
  MPI_Win_create_errhandler(real_on_window_error, &real_window_error_handler);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, real_error_handler); /* inherited by all communicators made of it */
  MPI_Comm duplicate;
  MPI_Comm_dup(MPI_COMM_WORLD, &duplicate);
  *world = real_wrap(duplicate, false);
  return TRM_OK;
}

void trm_comm_stop(struct trm_comm *world)
{
  /* nobody leaves while a peer still has words for it (mpi/ucx_yield.c relies on this) */
  MPI_Barrier(real_of(world)->mpi);
  real_release(world);
  trm_set_abort(NULL);
  MPI_Errhandler_free(&real_window_error_handler);
  MPI_Errhandler_free(&real_error_handler);
  MPI_Finalize();
}

const char *trm_comm_library(void)
{
  static char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length;
  MPI_Get_library_version(text, &length);
  text[strcspn(text, "\n")] = '\0';
  for (char *tab = text; (tab = strchr(tab, '\t'));)
    *tab = ' ';
  return text;
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
  .idle = real_idle,
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
  .clock = real_clock,
  .abort = real_abort,
  .native = real_native,
};
