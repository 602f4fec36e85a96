/* The communication contract over MPI: start and stop, messages, collectives, groups. Node-shared memory is in
 * real_node.c, one-sided access in real_window.c.
 *
 * Every MPI call that fails ends the job through on_error: the contract's slots succeed or do not return. */
#include "mpi/real.h"

#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"
#include "mpi/real_private.h"

/* -- requests: one operation of the contract is one or several of MPI's, because large arrays go in pieces */

struct trm_request {
  int parts, done; /* the first `done` are complete */
  bool together;   /* the others need this rank to go on */
  MPI_Request part[];
};

static size_t piece_count(size_t count, size_t piece)
{
  return count > piece ? (count + piece - 1) / piece : 1;
}

static struct trm_request *request_create(size_t parts, bool together)
{
  struct trm_request *request = trm_alloc(sizeof *request + parts * sizeof(MPI_Request), "a request");
  request->parts = (int)parts;
  request->together = together;
  return request;
}

static bool real_test(struct trm_request **request)
{
  struct trm_request *r = *request;
  if (!r)
    return true;
  for (; r->done < r->parts; r->done++) {
    int complete;
    MPI_Test(&r->part[r->done], &complete, MPI_STATUS_IGNORE);
    if (!complete)
      return false;
  }
  trm_free(r);
  *request = NULL;
  return true;
}

enum { TAG_HERE = 32767 }; /* above those of the contract; all libraries have it */

static bool crowded;

void trm_comm_crowded(void)
{
  crowded = true;
}

/* A poller that offers its core gets it back each time its turn comes; one that naps takes no turns. A nap is an eighth
 * of the time before it: so much later than without it the waiting ends at most. */
static void pause_for(double since, double most)
{
  const double waited = MPI_Wtime() - since;
  if (crowded && waited > 200e-6)
    nanosleep(&(struct timespec){.tv_nsec = (long)(fmin(waited / 8, most) * 1e9)}, NULL);
  else
    sched_yield();
}

void real_pause(double since)
{
  pause_for(since, 1e-3);
}

static void wait_politely(struct trm_request **request)
{
  const double most = *request && (*request)->together ? 50e-6 : 1e-3;
  for (const double since = MPI_Wtime(); !real_test(request);)
    pause_for(since, most);
}

static void real_wait(struct trm_request **request)
{
  struct trm_request *r = *request;
  if (!r)
    return;
  if (crowded) {
    wait_politely(request);
    return;
  }
  for (; r->done < r->parts; r->done++)
    MPI_Wait(&r->part[r->done], MPI_STATUS_IGNORE);
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
static int piece_at(size_t from, size_t count, size_t piece)
{
  return (int)(count - from < piece ? count - from : piece);
}

/* -- messages */

static void real_send_begin(struct trm_comm *comm, const void *data, size_t count, enum trm_type type, int to, int tag,
                            struct trm_request **request)
{
  const size_t bytes = trm_type_bytes(type), piece = REAL_MESSAGE_BYTES / bytes;
  *request = request_create(piece_count(count, piece), false);
  for (int i = 0; i < (*request)->parts; i++) {
    const size_t at = (size_t)i * piece;
    MPI_Isend((const char *)data + at * bytes, piece_at(at, count, piece), real_type(type), to, tag, real_of(comm)->mpi,
              &(*request)->part[i]);
  }
}

static void real_receive_begin(struct trm_comm *comm, void *data, size_t count, enum trm_type type, int from, int tag,
                               struct trm_request **request)
{
  const size_t bytes = trm_type_bytes(type), piece = REAL_MESSAGE_BYTES / bytes;
  *request = request_create(piece_count(count, piece), false);
  for (int i = 0; i < (*request)->parts; i++) {
    const size_t at = (size_t)i * piece;
    MPI_Irecv((char *)data + at * bytes, piece_at(at, count, piece), real_type(type), from, tag, real_of(comm)->mpi,
              &(*request)->part[i]);
  }
}

/* -- collectives */

/* A barrier of messages (Hensgen, Finkel and Manber 1988): after round k a rank has heard of 2^k others. Each round is
 * a wait of its own, the later ones short. */
static void disseminate(struct trm_comm *comm)
{
  for (int step = 1; step < comm->size; step *= 2) {
    const int to = (comm->rank + step) % comm->size, from = (comm->rank + comm->size - step) % comm->size;
    struct trm_request *send, *receive;
    char word = 0, heard;
    real_receive_begin(comm, &heard, 1, TRM_BYTE, from, TAG_HERE, &receive);
    real_send_begin(comm, &word, 1, TRM_BYTE, to, TAG_HERE, &send);
    wait_politely(&receive);
    wait_politely(&send);
  }
}

static void real_barrier(struct trm_comm *comm)
{
  struct real_comm *real = real_of(comm);
  if (real->meeting) {
    real_meet(real);
  } else if (crowded) {
    disseminate(comm);
  } else {
    MPI_Barrier(real->mpi);
  }
}

/* Before a collective that MPI waits in: in a crowded job all are there when it begins. */
static void come_politely(struct trm_comm *comm)
{
  if (crowded && comm->size > 1)
    real_barrier(comm);
}

static void real_broadcast(struct trm_comm *comm, void *data, size_t count, enum trm_type type, int root)
{
  come_politely(comm);
  const size_t bytes = trm_type_bytes(type), piece = REAL_PIECE_BYTES / bytes;
  for (size_t at = 0; at < count; at += piece)
    MPI_Bcast((char *)data + at * bytes, piece_at(at, count, piece), real_type(type), root, real_of(comm)->mpi);
}

static void real_allreduce(struct trm_comm *comm, void *data, size_t count, enum trm_type type, enum trm_op op)
{
  if (comm->size == 1)
    return;
  come_politely(comm);
  const size_t bytes = trm_type_bytes(type), piece = REAL_PIECE_BYTES / bytes;
  for (size_t at = 0; at < count; at += piece)
    MPI_Allreduce(MPI_IN_PLACE, (char *)data + at * bytes, piece_at(at, count, piece), real_type(type), real_op(op),
                  real_of(comm)->mpi);
}

static void real_allgather(struct trm_comm *comm, const void *mine, void *all, size_t count, enum trm_type type)
{
  const size_t bytes = count * trm_type_bytes(type);
  char *own = (char *)all + (size_t)comm->rank * bytes;
  if (bytes > 0 && mine != own)
    memmove(own, mine, bytes);
  come_politely(comm);
  if (bytes <= REAL_PIECE_BYTES)
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
  come_politely(comm);
  if (count * bytes * size <= REAL_PIECE_BYTES) {
    MPI_Reduce_scatter_block(all, mine, (int)count, real_type(type), real_op(op), mpi);
    return;
  }
  const size_t piece = REAL_PIECE_BYTES / (bytes * size) ? REAL_PIECE_BYTES / (bytes * size) : 1;
  char *some = trm_alloc(piece * bytes * size, "pieces of a sum");
  for (size_t at = 0; at < count; at += piece) {
    const size_t n = (size_t)piece_at(at, count, piece) * bytes;
    for (size_t i = 0; i < size; i++)
      memcpy(some + i * n, (char *)all + (i * count + at) * bytes, n);
    MPI_Reduce_scatter_block(some, (char *)mine + at * bytes, (int)(n / bytes), real_type(type), real_op(op), mpi);
  }
  trm_free(some);
}

static void real_allreduce_begin(struct trm_comm *comm, void *data, size_t count, enum trm_type type, enum trm_op op,
                                 struct trm_request **request)
{
  *request = NULL;
  if (comm->size == 1 || count == 0)
    return;
  const size_t bytes = trm_type_bytes(type), piece = REAL_PIECE_BYTES / bytes;
  *request = request_create(piece_count(count, piece), true);
  MPI_Request *part = (*request)->part;
  for (size_t at = 0; at < count; at += piece)
    MPI_Iallreduce(MPI_IN_PLACE, (char *)data + at * bytes, piece_at(at, count, piece), real_type(type), real_op(op),
                   real_of(comm)->mpi, part++);
}

static void real_allgather_begin(struct trm_comm *comm, const void *mine, void *all, size_t count, enum trm_type type,
                                 struct trm_request **request)
{
  const size_t bytes = count * trm_type_bytes(type);
  char *own = (char *)all + (size_t)comm->rank * bytes;
  *request = NULL;
  if (bytes > 0 && mine != own)
    memmove(own, mine, bytes);
  if (comm->size == 1 || count == 0)
    return;
  *request = request_create(1, true);
  MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all, (int)count, real_type(type), real_of(comm)->mpi,
                 &(*request)->part[0]);
}

static void real_reduce_scatter_begin(struct trm_comm *comm, void *all, void *mine, size_t count, enum trm_type type,
                                      enum trm_op op, struct trm_request **request)
{
  *request = NULL;
  if (comm->size == 1 || count == 0) {
    real_reduce_scatter(comm, all, mine, count, type, op);
    return;
  }
  *request = request_create(1, true);
  MPI_Ireduce_scatter_block(all, mine, (int)count, real_type(type), real_op(op), real_of(comm)->mpi,
                            &(*request)->part[0]);
}

/* -- groups */

struct trm_comm *real_wrap(MPI_Comm mpi, bool shares_memory)
{
  if (mpi == MPI_COMM_NULL)
    return NULL;
  struct real_comm *real = trm_alloc(sizeof *real, "a communicator");
  real->mpi = mpi;
  real->shares_memory = shares_memory;
  real->face.ops = &real_ops;
  real->face.own = real;
  MPI_Comm_rank(mpi, &real->face.rank);
  MPI_Comm_size(mpi, &real->face.size);
  if (shares_memory && real->face.size > 1)
    real_meeting_create(real);
  return &real->face;
}

static struct trm_comm *real_split(struct trm_comm *comm, int colour, int key)
{
  MPI_Comm part;
  MPI_Comm_split(real_of(comm)->mpi, colour < 0 ? MPI_UNDEFINED : colour, key, &part);
  return real_wrap(part, real_of(comm)->shares_memory);
}

static void real_release(struct trm_comm *comm)
{
  if (!comm)
    return;
  struct real_comm *real = real_of(comm);
  if (real->meeting)
    real_meeting_free(real);
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

static void abort_job(int status)
{
  MPI_Abort(MPI_COMM_WORLD, status == TRM_OK ? TRM_FAILED : status);
}

static __attribute__((noreturn)) void real_abort(struct trm_comm *comm, int status)
{
  (void)comm;
  abort_job(status);
  _Exit(status == TRM_OK ? TRM_FAILED : status); /* MPI_Abort does not return; the compiler cannot know */
}

static void say_error(int code)
{
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  for (char *newline = text; (newline = strchr(newline, '\n'));)
    *newline = ' ';
  trm_error(TRM_FAILED, "MPI: %s", text);
  trm_log_error();
  abort_job(TRM_FAILED);
}

static void on_error(MPI_Comm *mpi, int *code, ...)
{
  (void)mpi;
  say_error(*code);
}

static void on_window_error(MPI_Win *window, int *code, ...)
{
  (void)window;
  say_error(*code);
}

static MPI_Errhandler error_handler, window_error_handler;

void real_watch_window(MPI_Win window)
{
  MPI_Win_set_errhandler(window, window_error_handler);
}

/* -- start and stop */

int trm_comm_start(int *argc, char ***argv, bool allow_singletons, struct trm_comm **world)
{
  int given, size, rank;
  if (MPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &given) != MPI_SUCCESS)
    return trm_error(TRM_FAILED, "MPI did not start");
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const int status = allow_singletons ? TRM_OK : real_check_launch(size);
  if (status != TRM_OK) {
    MPI_Finalize();
    return status;
  }
  trm_log_identity(rank, size);
  trm_set_abort(abort_job);
  if (given < MPI_THREAD_MULTIPLE && rank == 0)
    trm_warn("this MPI library (%s) lets only one thread at a time speak: set data.threads=0", trm_comm_library());

  MPI_Comm_create_errhandler(on_error, &error_handler);
  MPI_Win_create_errhandler(on_window_error, &window_error_handler);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, error_handler); /* inherited by all communicators made of it */
  MPI_Comm own;
  MPI_Comm_dup(MPI_COMM_WORLD, &own);
  *world = real_wrap(own, false);
  return TRM_OK;
}

void trm_comm_stop(struct trm_comm *world)
{
  /* nobody leaves while a peer still has words for it (mpi/ucx_yield.c relies on this) */
  MPI_Barrier(real_of(world)->mpi);
  real_release(world);
  trm_set_abort(NULL);
  MPI_Errhandler_free(&window_error_handler);
  MPI_Errhandler_free(&error_handler);
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
