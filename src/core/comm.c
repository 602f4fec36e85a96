/* Functions over any implementation of the communication contract. */
#include "core/comm.h"

#include <string.h>

#include "core/counter.h"
#include "core/status.h"

size_t trm_type_bytes(enum trm_type type)
{
  switch (type) {
  case TRM_FLOAT:
    return sizeof(float);
  case TRM_DOUBLE:
    return sizeof(double);
  case TRM_INT32:
    return sizeof(int32_t);
  case TRM_INT64:
    return sizeof(int64_t);
  case TRM_BYTE:
    return 1;
  }
  return 0;
}

/* floor(n * i / parts), without the overflow of n * i. */
static size_t comm_interval_start(size_t n, size_t parts, size_t i)
{
  return n / parts * i + n % parts * i / parts;
}

void trm_interval(size_t n, size_t parts, size_t index, size_t *low, size_t *high)
{
  *low = comm_interval_start(n, parts, index);
  *high = comm_interval_start(n, parts, index + 1);
}

struct trm_comm *trm_comm_group(struct trm_comm *comm, enum trm_group group, const struct trm_comm *node, int key)
{
  if (comm->ops->group)
    return comm->ops->group(comm, group, node);
  const int color = group == TRM_GROUP_SELF ? comm->rank : group == TRM_GROUP_ALL ? 0 : node->rank;
  struct trm_comm *made = comm->ops->split(comm, color, key);
  made->role = group == TRM_GROUP_ACROSS_NODES ? TRM_COMM_ACROSS_NODES : comm->role;
  return made;
}

static bool comm_try_lock(void *context)
{
  struct trm_lock *lock = context;
  return trm_counter_get(&lock->taken) == 0 && __atomic_exchange_n(&lock->taken.value, 1, __ATOMIC_ACQUIRE) == 0;
}

void trm_lock_acquire(struct trm_comm *comm, struct trm_lock *lock)
{
  if (comm->ops->notify || !comm_try_lock(lock)) /* such a network may stop the rank here */
    comm->ops->wait_until(comm, comm_try_lock, lock);
}

void trm_lock_release(struct trm_comm *comm, struct trm_lock *lock)
{
  trm_counter_set(comm, &lock->taken, 0);
}

int trm_agree(struct trm_comm *comm, int status)
{
  if (comm->size == 1)
    return status;
  /* the lowest rank that failed */
  int32_t root = status == TRM_OK ? comm->size : comm->rank;
  comm->ops->allreduce(comm, &root, 1, TRM_INT32, TRM_MIN);
  if (root == comm->size)
    return TRM_OK;
  struct {
    int32_t status;
    char text[1020];
  } message = {.status = status};
  if (comm->rank == root)
    strncpy(message.text, trm_error_text(), sizeof message.text - 1);
  comm->ops->broadcast(comm, &message, sizeof message, TRM_BYTE, root);
  if (comm->rank == root)
    return status;
  return trm_error(message.status, "%s", message.text);
}
