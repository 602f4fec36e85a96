/* Collectives over messages: the algorithms of mpi/coll/, over the messages of real_message.c. Each function begins one
 * and returns true, or returns false where the MPI library's own collective is to be used. Ranks of one node use the
 * library, which copies through memory; between nodes go messages, which make progress while ranks compute
 * (real_progress.c). */
#include <string.h>

#include "mpi/coll/collectives.h"
#include "mpi/real_private.h"

static bool coll_takes(struct trm_comm *comm, enum trm_op op)
{
  return real_of(comm)->over_messages || op == TRM_TREE_SUM;
}

/* True if there is nothing to do, nor to wait for. */
static bool coll_is_empty(struct trm_comm *comm, size_t count, struct trm_request **request)
{
  *request = NULL;
  return comm->size == 1 || count == 0;
}

static void coll_begin(struct trm_comm *comm, struct coll_schedule *schedule, struct trm_request **request)
{
  *request = real_request_create(comm, 0, true);
  (*request)->schedule = schedule;
  real_schedule_begin(real_of(comm));
}

bool real_coll_broadcast(struct trm_comm *comm, void *data, size_t count, enum trm_type type, int root,
                         struct trm_request **request)
{
  if (!coll_takes(comm, TRM_SUM))
    return false;
  if (coll_is_empty(comm, count, request))
    return true;
  real_schedule_lock(real_of(comm));
  coll_begin(comm, coll_broadcast(&real_of(comm)->coll, data, count, type, root), request);
  return true;
}

bool real_coll_allreduce(struct trm_comm *comm, void *data, size_t count, enum trm_type type, enum trm_op op,
                         struct trm_request **request)
{
  if (!coll_takes(comm, op))
    return false;
  if (coll_is_empty(comm, count, request))
    return true;
  real_schedule_lock(real_of(comm));
  coll_begin(comm, coll_allreduce(&real_of(comm)->coll, data, count, type, op), request);
  return true;
}

bool real_coll_allgather(struct trm_comm *comm, const void *mine, void *all, size_t count, enum trm_type type,
                         struct trm_request **request)
{
  if (!coll_takes(comm, TRM_SUM))
    return false;
  if (coll_is_empty(comm, count, request))
    return true;
  char *block = (char *)all + (size_t)comm->rank * count * trm_type_bytes(type);
  if (mine != block)
    memmove(block, mine, count * trm_type_bytes(type));
  real_schedule_lock(real_of(comm));
  coll_begin(comm, coll_allgather(&real_of(comm)->coll, all, count, type), request);
  return true;
}

bool real_coll_reduce_scatter(struct trm_comm *comm, void *all, void *mine, size_t count, enum trm_type type,
                              enum trm_op op, struct trm_request **request)
{
  if (!coll_takes(comm, op))
    return false;
  if (coll_is_empty(comm, count, request))
    return true;
  real_schedule_lock(real_of(comm));
  coll_begin(comm, coll_reduce_scatter(&real_of(comm)->coll, all, mine, count, type, op), request);
  return true;
}
