#include "plan/imagined.h"

#include <string.h>

#include "core/memory.h"
#include "core/status.h"

/* -- what is asked for */

/* An address that looks like one, to count on from. */
static void *nowhere(void)
{
  return (void *)((uintptr_t)1 << 40);
}

static size_t *place_of(struct trm_imagined_account *account, const char *what)
{
  static const struct {
    const char *what;
    enum trm_imagined_use use;
  } uses[] = {
    {"weights", TRM_IMAGINED_WEIGHTS},         {"gradients", TRM_IMAGINED_GRADIENTS},
    {"optimizer states", TRM_IMAGINED_STATES}, {"averaged weights", TRM_IMAGINED_STATES},
    {"activations", TRM_IMAGINED_ACTIVATIONS}, {"losses of the rows", TRM_IMAGINED_ACTIVATIONS},
  };
  for (size_t i = 0; i < sizeof uses / sizeof *uses; i++)
    if (strcmp(uses[i].what, what) == 0)
      return &account->own[uses[i].use];
  return &account->own[TRM_IMAGINED_BUFFERS];
}

/* -- ranks */

static struct trm_imagined_comm *imagined_of(struct trm_comm *comm)
{
  return (struct trm_imagined_comm *)comm;
}

static void imagined_barrier(struct trm_comm *comm)
{
  (void)comm;
}

static void imagined_broadcast(struct trm_comm *comm, void *data, size_t count, enum trm_type type, int root)
{
  (void)comm, (void)data, (void)count, (void)type, (void)root;
}

/* Sums are asked for while steps are made, never before. */
static void imagined_allreduce(struct trm_comm *comm, void *data, size_t count, enum trm_type type, enum trm_op op)
{
  (void)comm, (void)data, (void)count, (void)type, (void)op;
}

static void imagined_allgather(struct trm_comm *comm, const void *mine, void *all, size_t count, enum trm_type type)
{
  const size_t bytes = count * trm_type_bytes(type);
  for (int i = 0; i < comm->size; i++)
    memmove((char *)all + (size_t)i * bytes, mine, bytes);
}

static struct trm_comm *group(struct trm_comm *comm, int size, int near)
{
  struct trm_imagined_comm *made = trm_alloc(sizeof *made, "an imagined communicator");
  trm_imagined_comm_open(made, size, near < size ? near : size, imagined_of(comm)->account);
  return &made->face;
}

/* This is the last rank of all and of its node: by its colour the split is told. */
static struct trm_comm *imagined_split(struct trm_comm *comm, int colour, int key)
{
  (void)key;
  const int near = imagined_of(comm)->near;
  if (colour < 0)
    return NULL;
  if (colour == 0)
    return group(comm, comm->size, near);
  return colour == comm->size - 1 ? group(comm, 1, 1) : group(comm, comm->size / near, 1);
}

static struct trm_comm *imagined_split_node(struct trm_comm *comm, const char *domain)
{
  (void)domain;
  return group(comm, imagined_of(comm)->near, imagined_of(comm)->near);
}

static void imagined_release(struct trm_comm *comm)
{
  trm_free(comm);
}

static int imagined_share(struct trm_comm *comm, size_t bytes, const char *what, struct trm_shared *shared)
{
  struct trm_imagined_account *account = imagined_of(comm)->account;
  const size_t size = (size_t)comm->size, others = (size - 1) * bytes;
  *place_of(account, what) += bytes;
  account->others += strcmp(what, "buffers of units") == 0 ? others / size : others;
  *shared =
    (struct trm_shared){.base = trm_alloc((size_t)comm->size * sizeof(void *), what), .own = nowhere(), .bytes = bytes};
  for (int i = 0; i < comm->size; i++)
    shared->base[i] = shared->own;
  return TRM_OK;
}

static void imagined_unshare(struct trm_comm *comm, struct trm_shared *shared)
{
  (void)comm;
  trm_free(shared->base);
  *shared = (struct trm_shared){0};
}

static void imagined_wait(struct trm_request **request)
{
  *request = NULL;
}

static double imagined_clock(struct trm_comm *comm)
{
  (void)comm;
  return 0;
}

static const struct trm_comm_ops comm_ops = {
  .name = "imagined",
  .barrier = imagined_barrier,
  .broadcast = imagined_broadcast,
  .allreduce = imagined_allreduce,
  .allgather = imagined_allgather,
  .wait = imagined_wait,
  .split = imagined_split,
  .split_node = imagined_split_node,
  .release = imagined_release,
  .share = imagined_share,
  .unshare = imagined_unshare,
  .clock = imagined_clock,
};

void trm_imagined_comm_open(struct trm_imagined_comm *comm, int size, int near, struct trm_imagined_account *account)
{
  *comm = (struct trm_imagined_comm){
    .face = {.ops = &comm_ops, .rank = size - 1, .size = size}, .near = near, .account = account};
}

/* -- the device */

static int device_alloc(struct trm_device *device, size_t bytes, const char *what, void **memory)
{
  *place_of(((struct trm_imagined_device *)device)->account, what) += bytes;
  *memory = nowhere();
  return TRM_OK;
}

static void device_release(struct trm_device *device, void *memory)
{
  (void)device, (void)memory;
}

static void device_fill(struct trm_device *device, float *to, float value, size_t n)
{
  (void)device, (void)to, (void)value, (void)n;
}

static int device_sync(struct trm_device *device)
{
  (void)device;
  return TRM_OK;
}

static const struct trm_device_ops device_ops = {
  .name = "imagined",
  .alloc = device_alloc,
  .release = device_release,
  .fill = device_fill,
  .sync = device_sync,
};

void trm_imagined_device_open(struct trm_imagined_device *device, const struct trm_device *real,
                              struct trm_imagined_account *account)
{
  *device = (struct trm_imagined_device){.face = *real, .account = account};
  device->face.ops = &device_ops;
}
