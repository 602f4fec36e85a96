/* Functions over any implementation of the communication contract. */
#include "core/comm.h"

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
    return comm->ops->group(comm, group);
  return comm->ops->split(comm, group == TRM_GROUP_SELF ? comm->rank : group == TRM_GROUP_ALL ? 0 : node->rank, key);
}
