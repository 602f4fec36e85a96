#include "mpi/async/shared_counters.h"

#include "core/status.h"

/* In counters: one per cache line, since many ranks write them. */
#define STRIDE 8

int shared_counters_create(struct shared_counters *c, struct trm_comm *comm, struct trm_comm *node, int owner,
                           size_t count)
{
  *c = (struct shared_counters){.node = node, .owner = owner};
  const size_t slots = count * STRIDE;
  if (node->size < comm->size) {
    void *memory;
    return comm->ops->window_create(comm, comm->rank == owner ? slots : 0, TRM_INT64, "counters", &c->window, &memory);
  }
  const int status = node->ops->share(node, node->rank == 0 ? slots * sizeof(int64_t) : 0,
                                       TRM_MEMORY_BUFFERS, &c->shared);
  if (status == TRM_OK)
    c->counter = c->shared.base[0];
  return status;
}

void shared_counters_free(struct shared_counters *c)
{
  if (c->window)
    c->node->ops->window_free(&c->window);
  if (c->shared.base)
    c->node->ops->unshare(c->node, &c->shared);
}

int64_t shared_counters_add(struct shared_counters *c, size_t index, int64_t value)
{
  if (c->counter)
    return trm_counter_add(c->node, &c->counter[index * STRIDE], value);
  return c->node->ops->fetch_add(c->window, value, c->owner, index * STRIDE);
}

int64_t shared_counters_read(struct shared_counters *c, size_t index)
{
  return c->counter ? trm_counter_get(&c->counter[index * STRIDE]) : shared_counters_add(c, index, 0);
}
