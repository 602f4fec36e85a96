/* One-sided access in the virtual network. An operation acts on the target's memory when it arrives there, and is
 * complete at the origin when its answer, or the word that it is done, has come back. */
#include <stdio.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "mpi/coll/reduce.h"
#include "mpi/virtual_private.h"

/* Of all ranks. */
struct window_memory {
  enum trm_type type;
  int references;
  struct {
    char *base;
    size_t count;
  } of[]; /* (size) */
};

struct window_pending {
  int target;
  double when; /* the operation is complete at both ends */
};

struct trm_window {
  struct trm_comm *comm;
  struct window_memory *memory;
  struct window_pending *pending; /* (pendings) */
  size_t pendings, pending_capacity;
};

/* -- creation */

struct window_part {
  void *base;
  size_t count;
  enum trm_type type;
  struct window_memory *memory;
};

static void window_create_all(struct virtual_collective *collective)
{
  const int size = collective->group->size;
  struct window_memory *memory = trm_alloc(sizeof *memory + (size_t)size * sizeof *memory->of, "a window");
  memory->references = size;
  for (int i = 0; i < size; i++) {
    struct window_part *part = collective->part[i].data;
    memory->type = part->type;
    memory->of[i].base = part->base;
    memory->of[i].count = part->count;
    part->memory = memory;
  }
}

int virtual_window_create(struct trm_comm *comm, size_t count, enum trm_type type, const char *what,
                          struct trm_window **window, void **local)
{
  const struct virtual_shape shape = {.kind = VIRTUAL_INTERNAL, .work = window_create_all, .name = "window_create"};
  struct window_part part = {.base = trm_alloc(count * trm_type_bytes(type), what), .count = count, .type = type};
  virtual_collective_run(comm, &shape, (struct virtual_part){.data = &part});
  struct trm_window *created = trm_alloc(sizeof *created, what);
  *created = (struct trm_window){.comm = comm, .memory = part.memory};
  *window = created;
  *local = part.base;
  return TRM_OK;
}

void virtual_window_free(struct trm_window **window)
{
  struct trm_window *it = *window;
  if (!it)
    return;
  virtual_barrier(it->comm);
  trm_free(it->memory->of[it->comm->rank].base);
  if (--it->memory->references == 0)
    trm_free(it->memory);
  trm_free(it->pending);
  trm_free(it);
  *window = NULL;
}

/* -- operations */

enum window_kind { WINDOW_GET, WINDOW_PUT, WINDOW_ACCUMULATE, WINDOW_FETCH_ADD };

struct window_operation {
  enum window_kind kind;
  struct virtual_rank *target;
  enum trm_type type;
  void *at;     /* in the target's memory */
  void *origin; /* fetch_add: the value, then the element before */
  size_t count;
};
_Static_assert(sizeof(struct window_operation) <= VIRTUAL_BLOCK, "an operation is small");

static void window_act(struct virtual_net *net, void *of)
{
  struct window_operation *it = of;
  const size_t bytes = it->count * trm_type_bytes(it->type);
  int64_t before;
  switch (it->kind) {
  case WINDOW_GET:
    memcpy(it->origin, it->at, bytes);
    break;
  case WINDOW_PUT:
    memmove(it->at, it->origin, bytes);
    break;
  case WINDOW_ACCUMULATE:
    coll_reduce(it->type, TRM_SUM, it->at, it->at, it->origin, it->count);
    break;
  case WINDOW_FETCH_ADD:
    before = *(int64_t *)it->at;
    coll_reduce(TRM_INT64, TRM_SUM, it->at, it->at, it->origin, 1);
    *(int64_t *)it->origin = before;
    break;
  }
  if (it->kind != WINDOW_GET)
    virtual_check_rank(it->target);
  virtual_block_return(net, it);
}

/* Begins the operation; returns when it is complete at both ends. */
static double window_begin(struct trm_window *window, enum window_kind kind, void *origin, size_t count, int target,
                           size_t offset)
{
  const struct virtual_rank *rank = virtual_rank_of(window->comm);
  const struct virtual_group *group = virtual_of(window->comm)->group;
  struct virtual_net *net = rank->net;
  const struct window_memory *memory = window->memory;
  const size_t element = trm_type_bytes(memory->type);
  if (target < 0 || target >= group->size || offset > memory->of[target].count ||
      count > memory->of[target].count - offset)
    virtual_fail(net, "elements %zu to %zu of the window of rank %d, which has %zu", offset, offset + count, target,
                 target >= 0 && target < group->size ? memory->of[target].count : 0);
  struct window_operation *it = virtual_block_take(net);
  struct virtual_rank *at = virtual_rank_at(group, target);
  *it = (struct window_operation){kind, at, memory->type, memory->of[target].base + offset * element, origin, count};
  const size_t bytes = count * element;
  const double arrives = virtual_transfer(rank, at, kind == WINDOW_GET ? 0 : bytes);
  /* the way back; a get's answer uses the links as if it left now */
  const double back = kind == WINDOW_GET        ? virtual_transfer(at, rank, bytes) - net->now
                      : at->node == rank->node ? virtual_random_delay(net)
                                               : net->plan.latency + virtual_random_delay(net);
  if (arrives <= net->now)
    window_act(net, it);
  else
    virtual_act_at(net, arrives, window_act, it);
  return arrives + back;
}

static void window_remember(struct trm_window *window, int target, double when)
{
  const double now = virtual_net_of(window->comm)->now;
  size_t left = 0;
  for (size_t i = 0; i < window->pendings; i++)
    if (window->pending[i].when > now)
      window->pending[left++] = window->pending[i];
  window->pending = trm_grow(window->pending, &window->pending_capacity, left, left + 1, sizeof *window->pending,
                             "operations on a window");
  window->pending[left] = (struct window_pending){target, when};
  window->pendings = left + 1;
}

void virtual_get(struct trm_window *window, void *to, size_t count, int target, size_t offset)
{
  window_remember(window, target, window_begin(window, WINDOW_GET, to, count, target, offset));
}

void virtual_put(struct trm_window *window, const void *from, size_t count, int target, size_t offset)
{
  void *origin = (void *)(uintptr_t)from;
  window_remember(window, target, window_begin(window, WINDOW_PUT, origin, count, target, offset));
}

void virtual_accumulate(struct trm_window *window, const void *from, size_t count, int target, size_t offset)
{
  void *origin = (void *)(uintptr_t)from;
  window_remember(window, target, window_begin(window, WINDOW_ACCUMULATE, origin, count, target, offset));
}

int64_t virtual_fetch_add(struct trm_window *window, int64_t value, int target, size_t offset)
{
  struct virtual_net *net = virtual_net_of(window->comm);
  if (window->memory->type != TRM_INT64)
    virtual_fail(net, "fetch_add: the window does not hold 64-bit integers");
  const double began = net->now;
  virtual_sleep_until(net, window_begin(window, WINDOW_FETCH_ADD, &value, 1, target, offset));
  virtual_trace(net, "transfer", TRM_TRACE_COMMUNICATION, began);
  return value;
}

void virtual_flush(struct trm_window *window, int target)
{
  struct virtual_net *net = virtual_net_of(window->comm);
  const double began = net->now;
  double when = began;
  for (size_t i = 0; i < window->pendings; i++)
    if (window->pending[i].target == target)
      when = fmax(when, window->pending[i].when);
  virtual_sleep_until(net, when);
  virtual_trace(net, "transfer", TRM_TRACE_COMMUNICATION, began);
}
