/* The MPI library's own collectives. A large array goes in chunks that run well, and that MPI's int counts can hold. A
 * blocking one makes no progress of collectives over messages meanwhile; see real_may_block. */
#include <string.h>

#include "core/memory.h"
#include "mpi/real_private.h"

static MPI_Op library_op(enum trm_op op)
{
  return op == TRM_MIN ? MPI_MIN : op == TRM_MAX ? MPI_MAX : MPI_SUM;
}

/* -- blocking */

void real_library_broadcast(struct trm_comm *comm, void *data, size_t count, enum trm_type type, int root)
{
  real_barrier_before_collective(comm);
  const size_t bytes = trm_type_bytes(type), chunk = REAL_CHUNK_BYTES / bytes;
  for (size_t at = 0; at < count; at += chunk)
    MPI_Bcast((char *)data + at * bytes, real_chunk_size(at, count, chunk), real_type(type), root, real_of(comm)->mpi);
}

void real_library_allreduce(struct trm_comm *comm, void *data, size_t count, enum trm_type type, enum trm_op op)
{
  if (comm->size == 1)
    return;
  real_barrier_before_collective(comm);
  const size_t bytes = trm_type_bytes(type), chunk = REAL_CHUNK_BYTES / bytes;
  for (size_t at = 0; at < count; at += chunk)
    MPI_Allreduce(MPI_IN_PLACE, (char *)data + at * bytes, real_chunk_size(at, count, chunk), real_type(type),
                  library_op(op), real_of(comm)->mpi);
}

void real_library_allgather(struct trm_comm *comm, const void *mine, void *all, size_t count, enum trm_type type)
{
  const size_t bytes = count * trm_type_bytes(type);
  char *block = (char *)all + (size_t)comm->rank * bytes;
  if (bytes > 0 && mine != block)
    memmove(block, mine, bytes);
  real_barrier_before_collective(comm);
  if (bytes <= REAL_CHUNK_BYTES)
    /* in place the first type is ignored, but profilers ask for its size */
    MPI_Allgather(MPI_IN_PLACE, 0, MPI_BYTE, all, (int)count, real_type(type), real_of(comm)->mpi);
  else
    for (int i = 0; i < comm->size; i++)
      real_library_broadcast(comm, (char *)all + (size_t)i * bytes, count, type, i);
}

/* A large array goes in chunks: the same interval of every rank's block, packed side by side. */
void real_library_reduce_scatter(struct trm_comm *comm, void *all, void *mine, size_t count, enum trm_type type,
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
    MPI_Reduce_scatter_block(all, mine, (int)count, real_type(type), library_op(op), mpi);
    return;
  }
  const size_t chunk = REAL_CHUNK_BYTES / (bytes * size) ? REAL_CHUNK_BYTES / (bytes * size) : 1;
  char *packed = trm_alloc(chunk * bytes * size, "chunks of a reduce-scatter");
  for (size_t at = 0; at < count; at += chunk) {
    const size_t n = (size_t)real_chunk_size(at, count, chunk) * bytes;
    for (size_t i = 0; i < size; i++)
      memcpy(packed + i * n, (char *)all + (i * count + at) * bytes, n);
    MPI_Reduce_scatter_block(packed, (char *)mine + at * bytes, (int)(n / bytes), real_type(type), library_op(op), mpi);
  }
  trm_free(packed);
}

/* -- non-blocking */

void real_library_broadcast_begin(struct trm_comm *comm, void *data, size_t count, enum trm_type type, int root,
                                  struct trm_request **request)
{
  const size_t bytes = trm_type_bytes(type), chunk = REAL_CHUNK_BYTES / bytes;
  *request = real_request_create(comm, real_chunk_count(count, chunk), true);
  MPI_Request *next = (*request)->mpi;
  *next = MPI_REQUEST_NULL; /* of no element */
  for (size_t at = 0; at < count; at += chunk)
    MPI_Ibcast((char *)data + at * bytes, real_chunk_size(at, count, chunk), real_type(type), root,
               real_of(comm)->mpi, next++);
}

void real_library_allreduce_begin(struct trm_comm *comm, void *data, size_t count, enum trm_type type, enum trm_op op,
                                 struct trm_request **request)
{
  *request = NULL;
  if (comm->size == 1 || count == 0)
    return;
  const size_t bytes = trm_type_bytes(type), chunk = REAL_CHUNK_BYTES / bytes;
  *request = real_request_create(comm, real_chunk_count(count, chunk), true);
  MPI_Request *next = (*request)->mpi;
  for (size_t at = 0; at < count; at += chunk)
    MPI_Iallreduce(MPI_IN_PLACE, (char *)data + at * bytes, real_chunk_size(at, count, chunk), real_type(type),
                   library_op(op), real_of(comm)->mpi, next++);
}

/* Elements of each rank's block that one call of a non-blocking collective moves: those of all ranks together are at
 * most max_begin_bytes. */
static size_t library_begin_chunk(struct trm_comm *comm, size_t count, enum trm_type type)
{
  const size_t max = real_of(comm)->max_begin_bytes / trm_type_bytes(type) / (size_t)comm->size;
  return count <= max ? count : max > 0 ? max : 1;
}

/* A large array goes in chunks of every rank's block. The receive type then has the extent of a block, which places the
 * next rank's chunk one block further. */
void real_library_allgather_begin(struct trm_comm *comm, const void *mine, void *all, size_t count, enum trm_type type,
                                 struct trm_request **request)
{
  const size_t bytes = trm_type_bytes(type);
  char *block = (char *)all + (size_t)comm->rank * count * bytes;
  *request = NULL;
  if (count > 0 && mine != block)
    memmove(block, mine, count * bytes);
  if (comm->size == 1 || count == 0)
    return;
  const size_t chunk = library_begin_chunk(comm, count, type);
  *request = real_request_create(comm, real_chunk_count(count, chunk), true);
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
    MPI_Iallgather(MPI_IN_PLACE, 0, MPI_BYTE, (char *)all + at * bytes, chunk < count ? 1 : n, strided,
                   real_of(comm)->mpi, &(*request)->mpi[i]);
    if (chunk < count)
      MPI_Type_free(&strided); /* MPI keeps it until the call is complete */
  }
}

/* A large array goes as one reduction per rank and chunk. */
void real_library_reduce_scatter_begin(struct trm_comm *comm, void *all, void *mine, size_t count, enum trm_type type,
                                      enum trm_op op, struct trm_request **request)
{
  *request = NULL;
  if (comm->size == 1 || count == 0) {
    real_library_reduce_scatter(comm, all, mine, count, type, op);
    return;
  }
  const size_t bytes = trm_type_bytes(type), chunk = library_begin_chunk(comm, count, type);
  const size_t chunks = real_chunk_count(count, chunk);
  *request = real_request_create(comm, chunks == 1 ? 1 : chunks * (size_t)comm->size, true);
  MPI_Request *next = (*request)->mpi;
  if (chunks == 1)
    MPI_Ireduce_scatter_block(all, mine, (int)count, real_type(type), library_op(op), real_of(comm)->mpi, next);
  else
    for (int root = 0; root < comm->size; root++)
      for (size_t at = 0; at < count; at += chunk)
        MPI_Ireduce((char *)all + ((size_t)root * count + at) * bytes, (char *)mine + at * bytes,
                    real_chunk_size(at, count, chunk), real_type(type), library_op(op), root, real_of(comm)->mpi,
                    next++);
}

