/* Groups of ranks: communicators of the contract around those of MPI, splits, and the ranks of a node. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "mpi/real_private.h"

/* TRM_NODE_SIZE=k takes each k ranks of the job in a row as a node, to test several nodes on one machine. 0: not set */
static int real_group_node_size(void)
{
  const char *size = getenv("TRM_NODE_SIZE");
  return size ? atoi(size) : 0;
}

/* Sets over_messages, nodes and nodes_of_several. Collective over mpi. */
static void real_group_find_nodes(struct real_comm *real, MPI_Comm mpi, const struct real_job *job)
{
  const int size = real_group_node_size(), node = size > 0 ? job->rank / size : 0;
  int highest[] = {job->host, -job->host, node, -node};
  MPI_Allreduce(MPI_IN_PLACE, highest, 4, MPI_INT, MPI_MAX, mpi);
  real->over_messages = highest[0] != -highest[1] || highest[2] != -highest[3];
  if (!real->over_messages)
    return;
  int ranks, own[] = {job->host, node};
  MPI_Comm_size(mpi, &ranks);
  int(*all)[2] = trm_alloc((size_t)ranks * sizeof *all, "nodes");
  MPI_Allgather(own, 2, MPI_INT, all, 2, MPI_INT, mpi);
  real->nodes = trm_alloc((size_t)ranks * sizeof *real->nodes, "nodes");
  for (int rank = 1; rank < ranks; rank++) {
    int same = memcmp(all[rank], all[rank - 1], sizeof *all) == 0 ? rank - 1 : 0;
    while (memcmp(all[rank], all[same], sizeof *all) != 0)
      same++;
    real->nodes[rank] = same < rank ? real->nodes[same] : rank;
    real->nodes_of_several |= same < rank;
  }
  trm_free(all);
}

struct trm_comm *real_wrap(MPI_Comm mpi, struct real_comm *parent, bool shares_memory)
{
  const uint64_t number = parent->children++;
  if (mpi == MPI_COMM_NULL)
    return NULL;
  struct real_comm *real = trm_alloc(sizeof *real, "a communicator");
  real->mpi = mpi;
  real->shares_memory = shares_memory;
  real->job = parent->job;
  real_group_find_nodes(real, mpi, parent->job);
  real->max_begin_bytes = parent->max_begin_bytes;
  real->group = real_ledger_group(mpi, parent);
  real->secure = real_secure_derive(parent->secure, mpi, number);
  real->base.ops = parent->base.ops;
  real->base.device_memory = parent->base.device_memory;
  real->base.impl = real;
  MPI_Comm_rank(mpi, &real->base.rank);
  MPI_Comm_size(mpi, &real->base.size);
  real->messages = real->base;
  real->messages.ops = &real_message_ops;
  real->coll.comm = &real->messages;
  real->coll.nodes = real->nodes;
  if (shares_memory && real->base.size > 1)
    real_node_barrier_create(real);
  return &real->base;
}

struct trm_comm *real_split(struct trm_comm *comm, int color, int key)
{
  MPI_Comm group;
  MPI_Comm_split(real_of(comm)->mpi, color < 0 ? MPI_UNDEFINED : color, key, &group);
  return real_wrap(group, real_of(comm), real_of(comm)->shares_memory);
}

void real_release(struct trm_comm *comm)
{
  if (!comm)
    return;
  struct real_comm *real = real_of(comm);
  if (real->barrier)
    real_node_barrier_free(real);
  MPI_Comm_free(&real->mpi);
  real_secure_free(real->secure);
  trm_free(real->nodes);
  trm_free(real);
}

/* -- ranks that share memory */

/* 1 if this NUMA node's list of processors ("0-3,8") has every one of the set, -1 if some; 0 if none, or no such node.
 */
static int real_group_numa_has_cpus(int node, const cpu_set_t *set)
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

/* The NUMA node that this process is bound to; -1: it may run on several. */
static int real_group_numa_bound(void)
{
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0)
    return -1;
  for (int node = 0; node < 1024; node++) {
    const int held = real_group_numa_has_cpus(node, &set);
    if (held != 0)
      return held > 0 ? node : -1;
  }
  return -1;
}

/* Splits mpi, which it frees, by color. */
static MPI_Comm real_group_split_and_free(MPI_Comm mpi, int color)
{
  MPI_Comm group;
  MPI_Comm_split(mpi, color, 0, &group);
  MPI_Comm_free(&mpi);
  return group;
}

/* TRM_SHARE_NUMA is TRM_SHARE_NODE where not every rank is bound to one NUMA node. */
struct trm_comm *real_split_node(struct trm_comm *comm, enum trm_share domain)
{
  MPI_Comm node;
  if (domain == TRM_SHARE_PROCESS) {
    MPI_Comm_split(real_of(comm)->mpi, comm->rank, 0, &node);
    return real_wrap(node, real_of(comm), true);
  }
  MPI_Comm_split_type(real_of(comm)->mpi, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
  if (domain == TRM_SHARE_NUMA) {
    const int numa = real_group_numa_bound();
    int lowest;
    MPI_Allreduce(&numa, &lowest, 1, MPI_INT, MPI_MIN, node);
    if (lowest >= 0)
      node = real_group_split_and_free(node, numa);
  }
  const int size = real_group_node_size();
  if (size > 0)
    node = real_group_split_and_free(node, real_of(comm)->job->rank / size);
  return real_wrap(node, real_of(comm), true);
}
