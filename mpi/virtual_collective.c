/* Collectives of the virtual network. Each communicator numbers them: a rank's k-th collective is every rank's. The
 * call of the last rank does the work at once; the results count as there when the modeled time has passed. Sums are
 * added in one fixed tree, that of slot `sum` of a device, so that a synchronous method has the same bits on any number
 * of nodes. */
#include <stdio.h>
#include <string.h>

#include "core/memory.h"
#include "mpi/coll/reduce.h"
#include "mpi/virtual_private.h"

/* -- the work */

#define BLOCK_BYTES ((size_t)8 << 10) /* of a result, summed while it is in the cache; one block for each level */

/* Ranks of the tree: all; of TRM_TREE_SUM the largest power of two, and the others are added to them first. */
static int collective_tree_ranks(const struct virtual_collective *collective)
{
  const int size = collective->group->size;
  int power = 1;
  while (2 * power <= size)
    power *= 2;
  return collective->shape.op == TRM_TREE_SUM ? power : size;
}

/* Reduces elements [at, at + count), at most a block, of the data of `ranks` ranks of the tree into `to` (count). The
 * left half of the tree has the smallest power of two of the ranks that is at least half of them. */
static void collective_reduce_part(const struct virtual_collective *collective, int first, int ranks, size_t at,
                                   size_t count, void *to)
{
  const struct virtual_shape *shape = &collective->shape;
  const struct virtual_part *part = collective->part;
  const size_t bytes = trm_type_bytes(shape->type);
  _Alignas(TRM_ALIGNMENT) char right[BLOCK_BYTES];
  int half = 1;
  if (ranks == 1) {
    const int extra = first + collective_tree_ranks(collective);
    memcpy(to, (const char *)part[first].data + at * bytes, count * bytes);
    if (extra < collective->group->size)
      coll_reduce(shape->type, shape->op, to, to, (const char *)part[extra].data + at * bytes, count);
    return;
  }
  while (half < ranks - half)
    half *= 2;
  collective_reduce_part(collective, first, half, at, count, to);
  const bool leaf = ranks - half == 1 && first + half + collective_tree_ranks(collective) >= collective->group->size;
  if (!leaf)
    collective_reduce_part(collective, first + half, ranks - half, at, count, right);
  coll_reduce(shape->type, shape->op, to, to, leaf ? (const char *)part[first + half].data + at * bytes : right, count);
}

static void collective_reduce(const struct virtual_collective *collective, size_t at, size_t count, void *to)
{
  collective_reduce_part(collective, 0, collective_tree_ranks(collective), at, count, to);
}

static void collective_allreduce(const struct virtual_collective *collective)
{
  const size_t bytes = trm_type_bytes(collective->shape.type), count = collective->shape.count;
  const size_t block = BLOCK_BYTES / bytes;
  _Alignas(TRM_ALIGNMENT) char sum[BLOCK_BYTES];
  for (size_t at = 0; collective->group->size > 1 && at < count; at += block) {
    const size_t n = count - at < block ? count - at : block;
    collective_reduce(collective, at, n, sum);
    for (int i = 0; i < collective->group->size; i++)
      memcpy((char *)collective->part[i].data + at * bytes, sum, n * bytes);
  }
}

static void collective_reduce_scatter(const struct virtual_collective *collective)
{
  const size_t bytes = trm_type_bytes(collective->shape.type), count = collective->shape.count;
  const size_t block = BLOCK_BYTES / bytes;
  for (int i = 0; i < collective->group->size; i++)
    for (size_t at = 0; at < count; at += block)
      collective_reduce(collective, (size_t)i * count + at, count - at < block ? count - at : block,
                        (char *)collective->part[i].request->data + at * bytes);
}

static void collective_allgather(const struct virtual_collective *collective)
{
  const size_t bytes = collective->shape.count * trm_type_bytes(collective->shape.type);
  for (int to = 0; bytes > 0 && to < collective->group->size; to++)
    for (int from = 0; from < collective->group->size; from++) {
      char *row = (char *)collective->part[to].data + (size_t)from * bytes;
      if (row != collective->part[from].mine)
        memmove(row, collective->part[from].mine, bytes);
    }
}

static void collective_broadcast(const struct virtual_collective *collective)
{
  const size_t bytes = collective->shape.count * trm_type_bytes(collective->shape.type);
  const int root = collective->shape.root;
  for (int i = 0; bytes > 0 && i < collective->group->size; i++)
    if (i != root)
      memcpy(collective->part[i].data, collective->part[root].data, bytes);
}

static void collective_work(struct virtual_collective *collective)
{
  switch (collective->shape.kind) {
  case VIRTUAL_BARRIER:
    break;
  case VIRTUAL_BROADCAST:
    collective_broadcast(collective);
    break;
  case VIRTUAL_ALLREDUCE:
    collective_allreduce(collective);
    break;
  case VIRTUAL_ALLGATHER:
    collective_allgather(collective);
    break;
  case VIRTUAL_REDUCE_SCATTER:
    collective_reduce_scatter(collective);
    break;
  case VIRTUAL_INTERNAL:
    collective->shape.work(collective);
    break;
  }
}

/* -- collective */

static void collective_text(const struct virtual_shape *shape, char *text, size_t bytes)
{
  static const char *const name[] = {"barrier", "broadcast", "allreduce", "allgather", "reduce_scatter"};
  static const char *const type[] = {"float", "double", "int32", "int64", "byte"};
  static const char *const op[] = {"sum", "min", "max", "sum in a tree"};
  switch (shape->kind) {
  case VIRTUAL_BARRIER:
    snprintf(text, bytes, "barrier");
    break;
  case VIRTUAL_INTERNAL:
    snprintf(text, bytes, "%s", shape->name);
    break;
  case VIRTUAL_BROADCAST:
    snprintf(text, bytes, "broadcast of %zu %s from %d", shape->count, type[shape->type], shape->root);
    break;
  default:
    snprintf(text, bytes, "%s of %zu %s%s%s", name[shape->kind], shape->count, type[shape->type],
             shape->kind == VIRTUAL_ALLGATHER ? "" : ", ", shape->kind == VIRTUAL_ALLGATHER ? "" : op[shape->op]);
  }
}

static void collective_describe(const void *of, char *text, size_t bytes)
{
  const struct trm_request *request = of;
  const struct virtual_collective *collective = request->collective;
  const int size = collective->group->size;
  char shape[96];
  int missing = 0;
  collective_text(&collective->shape, shape, sizeof shape);
  while (missing < size && collective->part[missing].request)
    missing++;
  snprintf(text, bytes, "%s on %d ranks, of which %d have begun it; rank %d of the job has not", shape, size,
           collective->arrived, missing < size ? collective->group->member[missing] : -1);
}

static bool collective_is_equal(const struct virtual_shape *a, const struct virtual_shape *b)
{
  return a->kind == b->kind && a->count == b->count && a->type == b->type && a->op == b->op && a->root == b->root &&
         a->work == b->work;
}

/* Returns the collective with this number; the first rank makes it. */
static struct virtual_collective *collective_find(struct virtual_group *group, uint64_t number,
                                               const struct virtual_shape *shape)
{
  struct virtual_collective *collective = group->first;
  while (collective && collective->number != number)
    collective = collective->next;
  if (collective)
    return collective;
  collective = group->unused;
  if (collective)
    group->unused = collective->next;
  else
    collective = trm_alloc(sizeof *collective + (size_t)group->size * sizeof *collective->part, "a collective");
  collective->group = group;
  collective->number = number;
  collective->shape = *shape;
  collective->arrived = 0;
  collective->next = NULL;
  if (group->last)
    group->last->next = collective;
  else
    group->first = collective;
  group->last = collective;
  return collective;
}

/* Later collectives may be complete before earlier ones: no rank waits in between for those that do not block. */
static void collective_remove(struct virtual_collective *collective)
{
  struct virtual_group *group = collective->group;
  struct virtual_collective **link = &group->first, *before = NULL;
  while (*link != collective) {
    before = *link;
    link = &before->next;
  }
  *link = collective->next;
  if (group->last == collective)
    group->last = before;
  memset(collective->part, 0, (size_t)group->size * sizeof *collective->part);
  collective->next = group->unused;
  group->unused = collective;
}

void virtual_collective_begin(struct trm_comm *comm, const struct virtual_shape *shape, struct virtual_part part,
                              struct trm_request *request)
{
  struct virtual_group *group = virtual_of(comm)->group;
  struct virtual_net *net = group->net;
  struct virtual_collective *collective = collective_find(group, virtual_of(comm)->collectives++, shape);
  if (!collective_is_equal(&collective->shape, shape)) {
    char mine[96], others[96];
    collective_text(shape, mine, sizeof mine);
    collective_text(&collective->shape, others, sizeof others);
    virtual_fail(net, "rank %d of %d begins %s, but another rank of the communicator has begun %s", comm->rank,
                 comm->size, mine, others);
  }
  part.request = request;
  request->net = net;
  request->when = INFINITY;
  request->collective = collective;
  request->describe = collective_describe;
  collective->part[comm->rank] = part;
  if (++collective->arrived < group->size)
    return;
  collective_work(collective);
  const double end = virtual_collective_end(collective);
  for (int i = 0; i < group->size; i++)
    virtual_request_complete(collective->part[i].request, end + virtual_random_delay(net));
  collective_remove(collective);
}

/* Ranks go on in their order, whichever came last: what comes next does not depend on what was before. result: where
 * the operation puts it if not in place. */
static void collective_run(struct trm_comm *comm, const struct virtual_shape *shape, struct virtual_part part,
                           void *result)
{
  const struct virtual_group *group = virtual_of(comm)->group;
  struct trm_request request = {.placed = true, .data = result};
  if (group->size == 1 && (shape->kind == VIRTUAL_BARRIER || shape->kind == VIRTUAL_BROADCAST))
    return;
  if (group->size == 1) {
    virtual_collective_begin(comm, shape, part, &request);
    virtual_request_wait(&request);
    return;
  }
  const double began = group->net->now;
  request.waiter = group->net->current;
  virtual_collective_begin(comm, shape, part, &request);
  virtual_park(group->net, collective_describe, &request);
  virtual_trace_request(&request, began);
}

void virtual_collective_run(struct trm_comm *comm, const struct virtual_shape *shape, struct virtual_part part)
{
  collective_run(comm, shape, part, NULL);
}

/* -- the slots */

void virtual_barrier(struct trm_comm *comm)
{
  virtual_collective_run(comm, &(struct virtual_shape){.kind = VIRTUAL_BARRIER}, (struct virtual_part){0});
}

void virtual_broadcast(struct trm_comm *comm, void *data, size_t count, enum trm_type type, int root)
{
  const struct virtual_shape shape = {.kind = VIRTUAL_BROADCAST, .count = count, .type = type, .root = root};
  virtual_collective_run(comm, &shape, (struct virtual_part){.data = data});
}

static struct trm_request *collective_begin(struct trm_comm *comm, const struct virtual_shape *shape,
                                            struct virtual_part part, void *result)
{
  struct trm_request *request = virtual_request_create(virtual_net_of(comm), collective_describe);
  request->data = result;
  virtual_collective_begin(comm, shape, part, request);
  return request;
}

void virtual_allreduce_begin(struct trm_comm *comm, void *data, size_t count, enum trm_type type, enum trm_op op,
                             struct trm_request **request)
{
  const struct virtual_shape shape = {.kind = VIRTUAL_ALLREDUCE, .count = count, .type = type, .op = op};
  *request = comm->size == 1 ? NULL : collective_begin(comm, &shape, (struct virtual_part){.data = data}, NULL);
}

void virtual_allreduce(struct trm_comm *comm, void *data, size_t count, enum trm_type type, enum trm_op op)
{
  const struct virtual_shape shape = {.kind = VIRTUAL_ALLREDUCE, .count = count, .type = type, .op = op};
  if (comm->size > 1)
    collective_run(comm, &shape, (struct virtual_part){.data = data}, NULL);
}

void virtual_allgather_begin(struct trm_comm *comm, const void *mine, void *all, size_t count, enum trm_type type,
                             struct trm_request **request)
{
  const struct virtual_shape shape = {.kind = VIRTUAL_ALLGATHER, .count = count, .type = type};
  *request = collective_begin(comm, &shape, (struct virtual_part){.data = all, .mine = mine}, NULL);
}

void virtual_allgather(struct trm_comm *comm, const void *mine, void *all, size_t count, enum trm_type type)
{
  const struct virtual_shape shape = {.kind = VIRTUAL_ALLGATHER, .count = count, .type = type};
  collective_run(comm, &shape, (struct virtual_part){.data = all, .mine = mine}, NULL);
}

void virtual_reduce_scatter_begin(struct trm_comm *comm, void *all, void *mine, size_t count, enum trm_type type,
                                  enum trm_op op, struct trm_request **request)
{
  const struct virtual_shape shape = {.kind = VIRTUAL_REDUCE_SCATTER, .count = count, .type = type, .op = op};
  *request = collective_begin(comm, &shape, (struct virtual_part){.data = all}, mine);
}

void virtual_reduce_scatter(struct trm_comm *comm, void *all, void *mine, size_t count, enum trm_type type,
                            enum trm_op op)
{
  const struct virtual_shape shape = {.kind = VIRTUAL_REDUCE_SCATTER, .count = count, .type = type, .op = op};
  collective_run(comm, &shape, (struct virtual_part){.data = all}, mine);
}
