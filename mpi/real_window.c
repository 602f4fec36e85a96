/* One-sided access over MPI windows, in one access epoch for their whole life (lock_all).
 *
 * MPICH makes no progress while the target computes: an operation completes when the target next enters MPI, so a
 * target must wait in MPI, or call progress between layers. Accumulate goes in small chunks: from 256 KB on its rate
 * falls. Windows are whole pages: with other sizes MPICH 4.0 takes a neighbor's window on the same node to begin a few
 * bytes off. Do not mix accumulate with plain stores into a window: not every library keeps both. */
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "mpi/real_private.h"

#define ACCUMULATE_CHUNK_BYTES ((size_t)256 << 10)

struct trm_window {
  MPI_Win mpi;
  MPI_Datatype type;
  size_t element_bytes;
};

int real_window_create(struct trm_comm *comm, size_t count, enum trm_type type, const char *what,
                       struct trm_window **window, void **base)
{
  struct real_comm *real = real_of(comm);
  const size_t element_bytes = trm_type_bytes(type);
  const size_t bytes = real_round_to_pages(count * element_bytes);
  if (real_secure_has_remote(real->secure) && type != TRM_INT64) /* counters of batches hold no data */
    return trm_error(TRM_USAGE, "run.encrypt: %s would be read and written by ranks of other nodes one-sidedly, which "
                     "is not encrypted; take a method with a parameter server", what);
  TRM_CHECK(real_check_shm_capacity(real->mpi, bytes, what));
  struct trm_window *created = trm_alloc(sizeof *created, what);
  created->type = real_type(type);
  created->element_bytes = element_bytes;
  MPI_Win_allocate((MPI_Aint)bytes, (int)element_bytes, MPI_INFO_NULL, real->mpi, base, &created->mpi);
  MPI_Win_set_errhandler(created->mpi, real->job->window_errhandler);
  MPI_Win_lock_all(MPI_MODE_NOCHECK, created->mpi);
  if (bytes > 0)
    memset(*base, 0, bytes);
  MPI_Win_sync(created->mpi);
  MPI_Barrier(real->mpi);
  *window = created;
  return TRM_OK;
}

void real_window_free(struct trm_window **window)
{
  if (!*window)
    return;
  MPI_Win_unlock_all((*window)->mpi);
  MPI_Win_free(&(*window)->mpi);
  trm_free(*window);
  *window = NULL;
}

/* An accumulate that changes nothing: unlike MPI_Get it may meet others' accumulates. */
void real_get(struct trm_window *window, void *to, size_t count, int target, size_t offset)
{
  const size_t chunk = ACCUMULATE_CHUNK_BYTES / window->element_bytes;
  for (size_t at = 0; at < count; at += chunk) {
    const int n = real_chunk_size(at, count, chunk);
    MPI_Get_accumulate(NULL, 0, window->type, (char *)to + at * window->element_bytes, n, window->type, target,
                       (MPI_Aint)(offset + at), n, window->type, MPI_NO_OP, window->mpi);
  }
}

void real_put(struct trm_window *window, const void *from, size_t count, int target, size_t offset)
{
  const size_t chunk = REAL_MESSAGE_BYTES / window->element_bytes;
  for (size_t at = 0; at < count; at += chunk) {
    const int n = real_chunk_size(at, count, chunk);
    MPI_Put((const char *)from + at * window->element_bytes, n, window->type, target, (MPI_Aint)(offset + at), n,
            window->type, window->mpi);
  }
}

void real_accumulate(struct trm_window *window, const void *from, size_t count, int target, size_t offset)
{
  const size_t chunk = ACCUMULATE_CHUNK_BYTES / window->element_bytes;
  for (size_t at = 0; at < count; at += chunk) {
    const int n = real_chunk_size(at, count, chunk);
    MPI_Accumulate((const char *)from + at * window->element_bytes, n, window->type, target, (MPI_Aint)(offset + at), n,
                   window->type, MPI_SUM, window->mpi);
  }
}

int64_t real_fetch_add(struct trm_window *window, int64_t value, int target, size_t offset)
{
  int64_t before;
  MPI_Fetch_and_op(&value, &before, MPI_INT64_T, target, (MPI_Aint)offset, MPI_SUM, window->mpi);
  MPI_Win_flush(target, window->mpi);
  return before;
}

/* Completes this rank's operations at both ends, and makes others' writes to this rank visible to loads. */
void real_flush(struct trm_window *window, int target)
{
  MPI_Win_flush(target, window->mpi);
  MPI_Win_sync(window->mpi);
}
