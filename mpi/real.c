/* The communication contract over MPI: messages and collectives, and the table of its slots. Waiting is in
 * real_polling.c, groups in real_group.c, node-shared memory in real_node.c, one-sided access in real_window.c, calls
 * in real_calls.c, start and stop of MPI in real_launch.c.
 *
 * Arrays of any length are cut into chunks that MPI's int counts can hold. An MPI call that fails ends the job
 * (real_launch.c): the contract's slots succeed or do not return. */
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "mpi/coll/collectives.h"
#include "mpi/real_private.h"

enum { TAG_BARRIER = 32767 }; /* above the contract's tags; supported by every MPI */

static size_t real_chunk_count(size_t count, size_t chunk)
{
  return count > chunk ? (count + chunk - 1) / chunk : 1;
}

/* -- types */

MPI_Datatype real_type(enum trm_type type)
{
  const MPI_Datatype types[] = {
    [TRM_FLOAT] = MPI_FLOAT,   [TRM_DOUBLE] = MPI_DOUBLE, [TRM_INT32] = MPI_INT32_T,
    [TRM_INT64] = MPI_INT64_T, [TRM_BYTE] = MPI_UINT8_T,
  };
  return types[type];
}

static MPI_Op real_op(enum trm_op op)
{
  return op == TRM_SUM ? MPI_SUM : op == TRM_MIN ? MPI_MIN : MPI_MAX;
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

/* Dissemination barrier (Hensgen, Finkel and Manber 1988): after round k a rank depends on 2^k others. Unlike
 * MPI_Barrier it waits in real_wait, which sleeps. */
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
  else if (real_is_oversubscribed())
    real_barrier_dissemination(comm);
  else
    MPI_Barrier(real->mpi);
}

/* In an oversubscribed job: a barrier that sleeps, so that early ranks do not poll inside MPI. */
static void real_barrier_before_collective(struct trm_comm *comm)
{
  if (real_is_oversubscribed() && comm->size > 1)
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
  if (op == TRM_TREE_SUM) {
    struct trm_request *request;
    real_ops.allreduce_begin(comm, data, count, type, op, &request);
    real_wait(&request);
    return;
  }
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

/* A large array goes in chunks: the same interval of every rank's block, packed side by side. */
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
  if (op == TRM_TREE_SUM) {
    *request = real_request_create(0, true);
    (*request)->schedule = coll_allreduce(&real_of(comm)->coll, data, count, type, op);
    return;
  }
  const size_t bytes = trm_type_bytes(type), chunk = REAL_CHUNK_BYTES / bytes;
  *request = real_request_create(real_chunk_count(count, chunk), true);
  MPI_Request *next = (*request)->mpi;
  for (size_t at = 0; at < count; at += chunk)
    MPI_Iallreduce(MPI_IN_PLACE, (char *)data + at * bytes, real_chunk_size(at, count, chunk), real_type(type),
                   real_op(op), real_of(comm)->mpi, next++);
}

/* Elements of each rank's block that one call of a non-blocking collective moves: those of all ranks together are at
 * most max_begin_bytes. */
static size_t real_begin_chunk(struct trm_comm *comm, size_t count, enum trm_type type)
{
  const size_t max = real_of(comm)->max_begin_bytes / trm_type_bytes(type) / (size_t)comm->size;
  return count <= max ? count : max > 0 ? max : 1;
}

/* A large array goes in chunks of every rank's block. The receive type then has the extent of a block, which places the
 * next rank's chunk one block further. */
static void real_allgather_begin(struct trm_comm *comm, const void *mine, void *all, size_t count, enum trm_type type,
                                 struct trm_request **request)
{
  const size_t bytes = trm_type_bytes(type);
  char *block = (char *)all + (size_t)comm->rank * count * bytes;
  *request = NULL;
  if (count > 0 && mine != block)
    memmove(block, mine, count * bytes);
  if (comm->size == 1 || count == 0)
    return;
  const size_t chunk = real_begin_chunk(comm, count, type);
  *request = real_request_create(real_chunk_count(count, chunk), true);
  for (int i = 0; i < (*request)->count; i++) {
    const size_t at = (size_t)i * chunk;
    const int n = real_chunk_size(at, count, chunk);
    MPI_Datatype strided = real_type(type), contiguous;
    if (chunk < count) {
      MPI_Type_contiguous(n, real_type(type), &contiguous);
      MPI_Type_create_resized(contiguous, 0, (MPI_Aint)(count * bytes), &strided);
      MPI_Type_commit(&strided);
      MPI_Type_free(&contiguous);
    }
    MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, (char *)all + at * bytes, chunk < count ? 1 : n, strided,
                   real_of(comm)->mpi, &(*request)->mpi[i]);
    if (chunk < count)
      MPI_Type_free(&strided); /* MPI keeps it until the call is complete */
  }
}

/* A large array goes as one reduction per rank and chunk. */
static void real_reduce_scatter_begin(struct trm_comm *comm, void *all, void *mine, size_t count, enum trm_type type,
                                      enum trm_op op, struct trm_request **request)
{
  *request = NULL;
  if (comm->size == 1 || count == 0) {
    real_reduce_scatter(comm, all, mine, count, type, op);
    return;
  }
  const size_t bytes = trm_type_bytes(type), chunk = real_begin_chunk(comm, count, type);
  const size_t chunks = real_chunk_count(count, chunk);
  *request = real_request_create(chunks == 1 ? 1 : chunks * (size_t)comm->size, true);
  MPI_Request *next = (*request)->mpi;
  if (chunks == 1)
    MPI_Ireduce_scatter_block(all, mine, (int)count, real_type(type), real_op(op), real_of(comm)->mpi, next);
  else
    for (int root = 0; root < comm->size; root++)
      for (size_t at = 0; at < count; at += chunk)
        MPI_Ireduce((char *)all + ((size_t)root * count + at) * bytes, (char *)mine + at * bytes,
                    real_chunk_size(at, count, chunk), real_type(type), real_op(op), root, real_of(comm)->mpi, next++);
}

/* -- the table */

double real_clock(struct trm_comm *comm)
{
  (void)comm;
  return MPI_Wtime();
}

void *real_native(struct trm_comm *comm)
{
  return &real_of(comm)->mpi;
}

void real_abort(struct trm_comm *comm, int status)
{
  (void)comm;
  MPI_Abort(MPI_COMM_WORLD, status == TRM_OK ? TRM_FAILED : status);
  _Exit(TRM_FAILED); /* MPI_Abort does not return; the compiler cannot know */
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
  .sleep_until = real_sleep_until,
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
