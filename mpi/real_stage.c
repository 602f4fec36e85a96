/* Stages: what calls send and return between ranks that share memory. A caller has some stages there, each of two
 * buffers, which an owner reads and writes in place: a copy at the caller replaces a message with its handshake. */
#include <stdatomic.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "mpi/real_private.h"

enum { STAGES = 8 }; /* of a caller; further calls at a time send messages */

struct real_stages {
  struct trm_comm *node; /* not owned */
  int32_t *rank;         /* (node->size) ranks of the communicator of the calls */
  size_t bytes;          /* of a buffer */
  struct trm_shared shared;
  atomic_bool used[STAGES];
};

int real_stages_create(const struct trm_call_plan *plan, int rank, struct real_stages **stages)
{
  struct trm_comm *node = plan->node;
  if (!node || node->size == 1 || plan->max_bytes == 0)
    return TRM_OK;
  struct real_stages *created = *stages = trm_alloc(sizeof *created, "stages of calls");
  created->node = node;
  created->rank = trm_alloc((size_t)node->size * sizeof *created->rank, "stages of calls");
  node->ops->allgather(node, &(int32_t){rank}, created->rank, 1, TRM_INT32);
  int owners = 0;
  for (int i = 0; i < node->size; i++)
    owners += plan->owner[created->rank[i]];
  created->bytes = real_round_to_pages(plan->max_bytes);
  const bool calls = owners > plan->owner[rank];
  return node->ops->share(node, calls ? 2 * STAGES * created->bytes : 0, TRM_MEMORY_BUFFERS, &created->shared);
}

void real_stages_free(struct real_stages **stages)
{
  struct real_stages *freed = *stages;
  if (!freed)
    return;
  if (freed->shared.base)
    freed->node->ops->unshare(freed->node, &freed->shared);
  trm_free(freed->rank);
  trm_free(freed);
  *stages = NULL;
}

static int stage_node_rank(const struct real_stages *stages, int rank)
{
  for (int i = 0; i < stages->node->size; i++)
    if (stages->rank[i] == rank)
      return i;
  return -1;
}

int real_stage_acquire(struct real_stages *stages, int owner)
{
  if (stages && stage_node_rank(stages, owner) >= 0)
    for (int i = 0; i < STAGES; i++)
      if (!atomic_exchange_explicit(&stages->used[i], true, memory_order_acquire))
        return i;
  return -1;
}

void real_stage_release(struct real_stages *stages, int stage)
{
  atomic_store_explicit(&stages->used[stage], false, memory_order_release);
}

void *real_stage_buffer(const struct real_stages *stages, int caller, int stage, enum real_stage_use use)
{
  char *base = stages->shared.base[stage_node_rank(stages, caller)];
  return base + (2 * (size_t)stage + use) * stages->bytes;
}
