#include "plan/dry_run.h"

#include <stdint.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"

/* -- counting allocations */

/* Returns a fake base address. */
static void *dry_run_address(void)
{
  return (void *)((uintptr_t)1 << 40);
}

/* -- the communicator */

static struct trm_dry_run_comm *dry_run_comm_of(struct trm_comm *comm)
{
  return (struct trm_dry_run_comm *)comm;
}

static void dry_run_broadcast(struct trm_comm *comm, void *data, size_t count, enum trm_type type, int root)
{
  (void)comm, (void)data, (void)count, (void)type, (void)root;
}

static void dry_run_allgather(struct trm_comm *comm, const void *mine, void *all, size_t count, enum trm_type type)
{
  const size_t bytes = count * trm_type_bytes(type);
  for (int i = 0; i < comm->size; i++)
    memmove((char *)all + (size_t)i * bytes, mine, bytes);
}

static struct trm_comm *dry_run_comm_create(struct trm_comm *comm, int size, int node_ranks)
{
  struct trm_dry_run_comm *created = trm_alloc(sizeof *created, "a dry-run communicator");
  trm_dry_run_comm_open(created, size, node_ranks, dry_run_comm_of(comm)->account);
  return &created->base;
}

/* Of `groups` groups of equal size. Each node has ranks of as many of them as it can. */
static struct trm_comm *dry_run_divide(struct trm_comm *comm, int groups)
{
  const int node_ranks = dry_run_comm_of(comm)->node_ranks / groups;
  return dry_run_comm_create(comm, comm->size / groups, node_ranks > 1 ? node_ranks : 1);
}

static struct trm_comm *dry_run_group(struct trm_comm *comm, enum trm_group group, const struct trm_comm *node)
{
  return dry_run_divide(comm, group == TRM_GROUP_SELF ? comm->size : group == TRM_GROUP_ALL ? 1 : node->size);
}

static struct trm_comm *dry_run_split(struct trm_comm *comm, int color, int key)
{
  (void)key;
  return color < 0 ? NULL : dry_run_divide(comm, color + 1);
}

static struct trm_comm *dry_run_split_node(struct trm_comm *comm, enum trm_share domain)
{
  (void)domain;
  const int node_ranks = dry_run_comm_of(comm)->node_ranks;
  return dry_run_comm_create(comm, node_ranks, node_ranks);
}

static void dry_run_release(struct trm_comm *comm)
{
  trm_free(comm);
}

static int dry_run_share(struct trm_comm *comm, size_t bytes, enum trm_memory_use use, struct trm_shared *shared)
{
  struct trm_dry_run_account *account = dry_run_comm_of(comm)->account;
  const size_t size = (size_t)comm->size, others = (size - 1) * bytes;
  account->bytes[use] += bytes;
  account->peer_bytes += use == TRM_MEMORY_UNITS ? others / size : others; /* it reads its slice of those */
  *shared = (struct trm_shared){
    .base = trm_alloc(size * sizeof(void *), "a dry run"), .local = dry_run_address(), .bytes = bytes};
  for (int i = 0; i < comm->size; i++)
    shared->base[i] = shared->local;
  return TRM_OK;
}

static void dry_run_unshare(struct trm_comm *comm, struct trm_shared *shared)
{
  (void)comm;
  trm_free(shared->base);
  *shared = (struct trm_shared){0};
}

/* Everything else is as with one rank, without messages. */
void trm_dry_run_comm_open(struct trm_dry_run_comm *comm, int size, int node_ranks, struct trm_dry_run_account *account)
{
  *comm = (struct trm_dry_run_comm){.ops = *trm_comm_self()->ops, .node_ranks = node_ranks, .account = account};
  comm->base = (struct trm_comm){.ops = &comm->ops, .rank = size - 1, .size = size};
  comm->ops.name = "dry_run";
  comm->ops.broadcast = dry_run_broadcast;
  comm->ops.allgather = dry_run_allgather;
  comm->ops.group = dry_run_group;
  comm->ops.split = dry_run_split;
  comm->ops.split_node = dry_run_split_node;
  comm->ops.release = dry_run_release;
  comm->ops.share = dry_run_share;
  comm->ops.unshare = dry_run_unshare;
}

/* -- the device */

static int dry_run_device_alloc(struct trm_device *device, size_t bytes, enum trm_memory_use use, void **memory)
{
  ((struct trm_dry_run_device *)device)->account->bytes[use] += bytes;
  *memory = dry_run_address();
  return TRM_OK;
}

static void dry_run_device_release(struct trm_device *device, void *memory)
{
  (void)device, (void)memory;
}

static void dry_run_device_fill(struct trm_device *device, float *to, float value, size_t n)
{
  (void)device, (void)to, (void)value, (void)n;
}

static int dry_run_device_sync(struct trm_device *device)
{
  (void)device;
  return TRM_OK;
}

/* All events are done. */
static void dry_run_device_event(struct trm_device *device, struct trm_event *event)
{
  (void)device, (void)event;
}

static void dry_run_device_pin(struct trm_device *device, void *host, size_t bytes)
{
  (void)device, (void)host, (void)bytes;
}

static void dry_run_device_unpin(struct trm_device *device, void *host)
{
  (void)device, (void)host;
}

static const struct trm_device_ops dry_run_device_ops = {
  .name = "dry_run",
  .alloc = dry_run_device_alloc,
  .release = dry_run_device_release,
  .fill = dry_run_device_fill,
  .sync = dry_run_device_sync,
  .event_wait = dry_run_device_event,
  .event_free = dry_run_device_event,
  .pin = dry_run_device_pin,
  .unpin = dry_run_device_unpin,
};

void trm_dry_run_device_open(struct trm_dry_run_device *device, const struct trm_device *real,
                             struct trm_dry_run_account *account)
{
  *device = (struct trm_dry_run_device){.base = *real, .account = account};
  device->base.ops = &dry_run_device_ops;
}
