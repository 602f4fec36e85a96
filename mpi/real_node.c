/* Ranks that share memory: who they are, a barrier in memory, and arrays that all of them can load and store. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "core/memory.h"
#include "core/status.h"
#include "mpi/real_private.h"

/* -- who */

/* Does the list "0-3,8" of this NUMA node hold every processor of the set? Some: -1. None, or no such node: 0. */
static int real_node_numa_has_cpus(int node, const cpu_set_t *set)
{
  char path[64];
  snprintf(path, sizeof path, "/sys/devices/system/node/node%d/cpulist", node);
  FILE *file = fopen(path, "r");
  if (!file)
    return 0;
  int low, high, held = 0;
  while (fscanf(file, "%d", &low) == 1) {
    int next = fgetc(file);
    high = low;
    if (next == '-' && fscanf(file, "%d", &high) == 1)
      next = fgetc(file);
    for (int cpu = low; cpu <= high && cpu < CPU_SETSIZE; cpu++)
      held += CPU_ISSET(cpu, set) != 0;
    if (next != ',')
      break;
  }
  fclose(file);
  return held == CPU_COUNT(set) ? 1 : held > 0 ? -1 : 0;
}

/* The NUMA node that this process is bound to, -1 if it may run on several. */
static int real_node_numa_bound(void)
{
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0)
    return -1;
  for (int node = 0; node < 1024; node++) {
    const int held = real_node_numa_has_cpus(node, &set);
    if (held != 0)
      return held > 0 ? node : -1;
  }
  return -1;
}

/* Splits mpi, which it frees, by color. */
static MPI_Comm real_node_split_and_free(MPI_Comm mpi, int color)
{
  MPI_Comm group;
  MPI_Comm_split(mpi, color, 0, &group);
  MPI_Comm_free(&mpi);
  return group;
}

/* TRM_SHARE_NUMA: ranks that are not all bound to one NUMA node each share by node. TRM_NODE_SIZE=k takes k ranks of
 * the job in a row for a node, whoever asks: several nodes to try on one machine. */
struct trm_comm *real_split_node(struct trm_comm *comm, enum trm_share domain)
{
  MPI_Comm node;
  MPI_Comm_split_type(real_of(comm)->mpi, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
  if (domain == TRM_SHARE_NUMA) {
    const int numa = real_node_numa_bound();
    int lowest;
    MPI_Allreduce(&numa, &lowest, 1, MPI_INT, MPI_MIN, node);
    if (lowest >= 0)
      node = real_node_split_and_free(node, numa);
  }
  const char *size_text = getenv("TRM_NODE_SIZE");
  const int size = size_text ? atoi(size_text) : 0;
  if (size > 0) {
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    node = real_node_split_and_free(node, rank / size);
  }
  return real_wrap(node, true);
}

/* -- the barrier */

void real_node_barrier_create(struct real_comm *real)
{
  void *local;
  MPI_Aint bytes = real->base.rank == 0 ? 4096 : 0; /* a page, so that nothing else shares the cache line */
  int unit;
  MPI_Win_allocate_shared(bytes, 1, MPI_INFO_NULL, real->mpi, &local, &real->barrier_window);
  real_window_set_errhandler(real->barrier_window);
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

/* Spins shortly, then pauses: with more ranks than cores, whoever is waited for must get one. Who waits long lets MPI
 * work: a peer may need our half of a transfer to get here. */
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
    if (MPI_Wtime() - since > 1e-3) {
      int found;
      MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, real->mpi, &found, MPI_STATUS_IGNORE);
    }
  }
}

/* -- arrays */

size_t real_round_to_pages(size_t bytes)
{
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  return (bytes + page - 1) / page * page;
}

/* Shared memory that does not fit would end in a bus error at some later store, and inside the MPI library where a
 * process may not have the addresses; so ask first. The answer can be outrun by another job on the node. */
int real_check_shm_capacity(MPI_Comm mpi, size_t bytes, const char *what)
{
  MPI_Comm node;
  MPI_Comm_split_type(mpi, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
  uint64_t required = bytes;
  MPI_Allreduce(MPI_IN_PLACE, &required, 1, MPI_UINT64_T, MPI_SUM, node);
  MPI_Comm_free(&node);
  struct statvfs space;
  double shortage[2] = {0, 0}; /* wanted and free bytes where it does not fit */
  if (statvfs("/dev/shm", &space) == 0 && required > (uint64_t)space.f_bavail * space.f_frsize) {
    shortage[0] = (double)required;
    shortage[1] = (double)space.f_bavail * (double)space.f_frsize;
  }
  MPI_Allreduce(MPI_IN_PLACE, shortage, 2, MPI_DOUBLE, MPI_MAX, mpi);
  if (shortage[0] > 0)
    return trm_error(TRM_FAILED,
                     "%s: %.1f MiB of shared memory wanted on a node, but /dev/shm has %.1f MiB left (make it larger, "
                     "in a container with --shm-size; or set parallel.share=none)",
                     what, shortage[0] / 1048576.0, shortage[1] / 1048576.0);
  void *addresses = mmap(NULL, (size_t)required, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  double unmappable = addresses == MAP_FAILED && required > 0 ? (double)required : 0;
  if (addresses != MAP_FAILED)
    munmap(addresses, (size_t)required);
  MPI_Allreduce(MPI_IN_PLACE, &unmappable, 1, MPI_DOUBLE, MPI_MAX, mpi);
  if (unmappable > 0)
    return trm_error(TRM_FAILED,
                     "out of memory: %.1f MiB for %s, shared by the ranks of a node, are beyond a "
                     "process's limit",
                     unmappable / 1048576.0, what);
  return TRM_OK;
}

static size_t real_node_shared_bytes(const struct trm_comm *comm, MPI_Win window)
{
  size_t bytes = 0;
  for (int i = 0; i < comm->size; i++) {
    MPI_Aint segment;
    int unit;
    void *base;
    MPI_Win_shared_query(window, i, &segment, &unit, &base);
    bytes += (size_t)segment;
  }
  return bytes;
}

/* Parts follow one another in order of rank, each in whole pages: MPI lays them out so unless told otherwise. The first
 * may begin inside a page; then all are moved up to the next, for which the last rank asks for a page more. Every rank
 * writes its own part's zeros, so that the pages lie in its own NUMA node. */
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

  MPI_Win *window = trm_alloc(sizeof *window, what);
  void *local;
  MPI_Win_allocate_shared((MPI_Aint)length, 1, MPI_INFO_NULL, real->mpi, &local, window);
  real_window_set_errhandler(*window);
  *shared = (struct trm_shared){
    .base = trm_alloc((size_t)comm->size * sizeof(void *), what), .bytes = bytes, .handle = window};
  /* a part of no bytes may have no address: count on from the first that has one */
  char *at = NULL;
  for (int i = 0; i < comm->size; i++) {
    MPI_Aint segment;
    int unit;
    void *base;
    MPI_Win_shared_query(*window, i, &segment, &unit, &base);
    if (!at && segment > 0) {
      at = (char *)real_round_to_pages((size_t)base);
      for (int before = 0; before < i; before++)
        shared->base[before] = at;
    }
    shared->base[i] = at;
    at += at ? segment : 0;
  }
  trm_memory_account(real_node_shared_bytes(comm, *window), 0);
  shared->local = shared->base[comm->rank];
  trm_advise_huge(shared->local, bytes);
  memset(shared->local, 0, bytes);
  comm->ops->barrier(comm);
  return TRM_OK;
}

void real_unshare(struct trm_comm *comm, struct trm_shared *shared)
{
  if (!shared->handle) {
    trm_comm_self_ops.unshare(comm, shared);
    return;
  }
  trm_memory_account(0, real_node_shared_bytes(comm, *(MPI_Win *)shared->handle));
  MPI_Win_free(shared->handle);
  trm_free(shared->handle);
  trm_free(shared->base);
  *shared = (struct trm_shared){0};
}
