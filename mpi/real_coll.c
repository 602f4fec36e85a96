/* Collectives over messages: the algorithms of mpi/coll/, over the messages of real_message.c. Each function begins
 * one and returns true, or returns false where the MPI library's own collective is to be used: as the choices of the
 * job say (mpi/coll/choices.h). Without measurements ranks of one node use the library, but for large all-reduces;
 * between nodes go messages, which make progress while ranks compute (real_progress.c). */
#include <string.h>

#include "mpi/coll/choices.h"
#include "mpi/coll/collectives.h"
#include "mpi/real.h"
#include "mpi/real_private.h"

void trm_comm_set_collectives(struct trm_comm *world, const struct coll_choices *choices)
{
  real_of(world)->job->choices = choices;
}

/* NULL: the library's own, which encrypts nothing. bytes: of the array, of all ranks together where each has a row. */
static const struct coll_ops *coll_chosen(struct trm_comm *comm, enum coll_kind kind, size_t bytes)
{
  const struct real_comm *real = real_of(comm);
  const enum coll_domain several = real->nodes_of_several ? COLL_NODES_OF_SEVERAL : COLL_NODES;
  const struct coll_ops *ops = coll_choose(real->job->choices, kind, comm->size,
                                           real->over_messages ? several : COLL_NODE, bytes);
  return ops || !real_secure_has_remote(real->secure) ? ops : coll_choose(NULL, kind, comm->size, several, bytes);
}

/* True if there is nothing to do, nor to wait for. */
static bool coll_is_empty(struct trm_comm *comm, size_t count, struct trm_request **request)
{
  *request = NULL;
  return comm->size == 1 || count == 0;
}

static void coll_begin(struct trm_comm *comm, const struct coll_ops *ops, const struct coll_arrays *arrays,
                       struct trm_request **request)
{
  struct real_comm *real = real_of(comm);
  *request = real_request_create(comm, 0, true);
  real_schedule_lock(real);
  (*request)->schedule = coll_begin_by(&real->coll, ops, arrays);
  real_schedule_begin(real);
}

bool real_coll_broadcast(struct trm_comm *comm, void *data, size_t count, enum trm_type type, int root,
                         struct trm_request **request)
{
  const struct coll_ops *ops = coll_chosen(comm, COLL_BROADCAST, count * trm_type_bytes(type));
  if (!ops)
    return false;
  if (!coll_is_empty(comm, count, request))
    coll_begin(comm, ops, &(struct coll_arrays){.data = data, .count = count, .type = type, .root = root}, request);
  return true;
}

bool real_coll_allreduce(struct trm_comm *comm, void *data, size_t count, enum trm_type type, enum trm_op op,
                         struct trm_request **request)
{
  const enum coll_kind kind = op == TRM_TREE_SUM ? COLL_TREE_SUM : COLL_ALLREDUCE;
  const struct coll_ops *ops = coll_chosen(comm, kind, count * trm_type_bytes(type));
  if (!ops)
    return false;
  if (!coll_is_empty(comm, count, request))
    coll_begin(comm, ops, &(struct coll_arrays){.data = data, .count = count, .type = type, .op = op}, request);
  return true;
}

bool real_coll_allgather(struct trm_comm *comm, const void *mine, void *all, size_t count, enum trm_type type,
                         struct trm_request **request)
{
  const size_t bytes = count * trm_type_bytes(type);
  const struct coll_ops *ops = coll_chosen(comm, COLL_ALLGATHER, bytes * (size_t)comm->size);
  char *block = (char *)all + (size_t)comm->rank * bytes;
  if (!ops)
    return false;
  if (bytes > 0 && mine != block)
    memmove(block, mine, bytes);
  if (!coll_is_empty(comm, count, request))
    coll_begin(comm, ops, &(struct coll_arrays){.data = all, .count = count, .type = type}, request);
  return true;
}

bool real_coll_reduce_scatter(struct trm_comm *comm, void *all, void *mine, size_t count, enum trm_type type,
                              enum trm_op op, struct trm_request **request)
{
  const size_t bytes = count * trm_type_bytes(type);
  const struct coll_ops *ops = coll_chosen(comm, COLL_REDUCE_SCATTER, bytes * (size_t)comm->size);
  if (!ops)
    return false;
  if (!coll_is_empty(comm, count, request))
    coll_begin(comm, ops, &(struct coll_arrays){.data = all, .mine = mine, .count = count, .type = type, .op = op},
               request);
  else if (bytes > 0)
    memcpy(mine, all, bytes);
  return true;
}
