/* Memory shared by the ranks of a node: a barrier in it, and arrays that all of them load and store. */
#define _GNU_SOURCE
#include <string.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "core/memory.h"
#include "core/status.h"
#include "mpi/real_private.h"

/* -- the barrier */

void real_node_barrier_create(struct real_comm *real)
{
  void *local;
  MPI_Aint bytes = real->base.rank == 0 ? 4096 : 0; /* a page, to avoid false sharing */
  int unit;
  MPI_Win_allocate_shared(bytes, 1, MPI_INFO_NULL, real->mpi, &local, &real->barrier_window);
  MPI_Win_set_errhandler(real->barrier_window, real->job->window_errhandler);
  MPI_Win_shared_query(real->barrier_window, 0, &bytes, &unit, &real->barrier);
  if (real->base.rank == 0)
    atomic_init(&real->barrier->arrived, 0);
  MPI_Barrier(real->mpi);
}

void real_node_barrier_free(struct real_comm *real)
{
  MPI_Win_free(&real->barrier_window);
  real->barrier = NULL;
}

/* Spins briefly, then yields. It takes collectives over messages further; after 1 ms it also makes MPI progress: a
 * peer may need it for a transfer before it reaches the barrier. */
void real_node_barrier_wait(struct real_comm *real)
{
  _Atomic uint64_t *arrived = &real->barrier->arrived;
  const uint64_t all = ++real->barriers_entered * (uint64_t)real->base.size;
  atomic_fetch_add_explicit(arrived, 1, memory_order_acq_rel);
  for (int spin = 0; spin < 20; spin++)
    if (atomic_load_explicit(arrived, memory_order_acquire) >= all)
      return;
  const double since = MPI_Wtime();
  while (atomic_load_explicit(arrived, memory_order_acquire) < all) {
    real_pause(since);
    real_schedules_advance(real->job);
    if (MPI_Wtime() - since > 1e-3)
      real_probe(real->mpi);
  }
}

/* -- arrays */

size_t real_round_to_pages(size_t bytes)
{
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  return (bytes + page - 1) / page * page;
}

/* Too little shared memory would end in a bus error at some later store, too few addresses in a failure inside MPI; so
 * both are checked first. Another job on the node may still take the memory in between. */
int real_check_shm_capacity(MPI_Comm mpi, size_t bytes, const char *what)
{
  MPI_Comm node;
  MPI_Comm_split_type(mpi, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
  uint64_t required = bytes;
  MPI_Allreduce(MPI_IN_PLACE, &required, 1, MPI_UINT64_T, MPI_SUM, node);
  MPI_Comm_free(&node);
  double lacking[3] = {0, 0, 0}; /* where it does not fit: bytes required and free in /dev/shm; bytes required to map */
  struct statvfs space;
  if (statvfs("/dev/shm", &space) == 0 && required > (uint64_t)space.f_bavail * space.f_frsize) {
    lacking[0] = (double)required;
    lacking[1] = (double)space.f_bavail * (double)space.f_frsize;
  }
  void *addresses = mmap(NULL, (size_t)required, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (addresses != MAP_FAILED)
    munmap(addresses, (size_t)required);
  else
    lacking[2] = (double)required;
  MPI_Allreduce(MPI_IN_PLACE, lacking, 3, MPI_DOUBLE, MPI_MAX, mpi);
  if (lacking[0] > 0)
    return trm_error(TRM_FAILED,
                     "%s: %.1f MiB of shared memory wanted on a node, but /dev/shm has %.1f MiB left (make it larger, "
                     "in a container with --shm-size; or set parallel.share=none)",
                     what, lacking[0] / 1048576.0, lacking[1] / 1048576.0);
  if (lacking[2] > 0)
    return trm_error(TRM_FAILED,
                     "out of memory: %.1f MiB for %s, shared by the ranks of a node, are beyond a "
                     "process's limit",
                     lacking[2] / 1048576.0, what);
  return TRM_OK;
}

/* The handle of an array. */
struct real_shared {
  MPI_Win window;
  size_t bytes; /* of all ranks */
};

/* MPI lays the ranks' segments out one after the other. The first may begin inside a page; then all are moved up to the
 * next page, for which the last rank asks for a page more. Every rank zeroes its own segment, so that its pages are
 * placed on its NUMA node. */
int real_share(struct trm_comm *comm, size_t bytes, enum trm_memory_use use, struct trm_shared *shared)
{
  struct real_comm *real = real_of(comm);
  const char *what = trm_memory_name(use);
  if (comm->size == 1)
    return trm_comm_self_ops.share(comm, bytes, use, shared);
  if (!real->shares_memory)
    return trm_error(TRM_FAILED, "%s: shared memory asked of ranks that may not share any", what);
  const size_t page = real_round_to_pages(1);
  const size_t length = real_round_to_pages(bytes) + (comm->rank == comm->size - 1 ? page : 0);
  TRM_CHECK(real_check_shm_capacity(real->mpi, length, what));

  struct real_shared *handle = trm_alloc(sizeof *handle, what);
  void *local;
  MPI_Win_allocate_shared((MPI_Aint)length, 1, MPI_INFO_NULL, real->mpi, &local, &handle->window);
  MPI_Win_set_errhandler(handle->window, real->job->window_errhandler);
  *shared = (struct trm_shared){
    .base = trm_alloc((size_t)comm->size * sizeof(void *), what), .bytes = bytes, .handle = handle};
  /* an empty segment may have no address: uses that of the next one */
  char *at = NULL;
  for (int i = 0; i < comm->size; i++) {
    MPI_Aint segment;
    int unit;
    void *base;
    MPI_Win_shared_query(handle->window, i, &segment, &unit, &base);
    if (!at && segment > 0) {
      at = (char *)real_round_to_pages((size_t)base);
      for (int before = 0; before < i; before++)
        shared->base[before] = at;
    }
    shared->base[i] = at;
    at += at ? segment : 0;
    handle->bytes += (size_t)segment;
  }
  trm_memory_account(handle->bytes, 0);
  shared->local = shared->base[comm->rank];
  trm_advise_huge(shared->local, bytes);
  memset(shared->local, 0, bytes);
  comm->ops->barrier(comm);
  return TRM_OK;
}

void real_unshare(struct trm_comm *comm, struct trm_shared *shared)
{
  struct real_shared *handle = shared->handle;
  if (!handle) {
    trm_comm_self_ops.unshare(comm, shared);
    return;
  }
  trm_memory_account(0, handle->bytes);
  MPI_Win_free(&handle->window);
  trm_free(handle);
  trm_free(shared->base);
  *shared = (struct trm_shared){0};
}
