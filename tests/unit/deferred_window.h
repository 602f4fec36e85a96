/* Windows as late as MPI allows: put, accumulate and get have no effect before flush; until then the origin's memory is
 * still used, and a get's is NaN. (MPICH within a node acts at once, so that a missing flush shows nowhere.) */
#pragma once

#include <string.h>

#include "core/memory.h"
#include "ranks.h"

/* Of this program: another unit has another one. */
struct trm_window {
  struct trm_window *window; /* of the communicator's own operations */
  size_t element_bytes;
  struct deferred {
    enum { DEFERRED_PUT, DEFERRED_ACCUMULATE, DEFERRED_GET } kind;
    void *origin;
    size_t count, offset;
    int target;
  } *one; /* (count), in order */
  size_t count, capacity;
};

static const struct trm_comm_ops *immediate_ops; /* while deferred_ops replaces them */

static int deferred_create(struct trm_comm *comm, size_t count, enum trm_type type, const char *what,
                           struct trm_window **window, void **local)
{
  *window = trm_alloc(sizeof **window, what);
  **window = (struct trm_window){.element_bytes = trm_type_bytes(type)};
  return immediate_ops->window_create(comm, count, type, what, &(*window)->window, local);
}

static void deferred_free(struct trm_window **window)
{
  if (!*window)
    return;
  CU_ASSERT_EQUAL((*window)->count, 0); /* all are flushed */
  immediate_ops->window_free(&(*window)->window);
  trm_free((*window)->one);
  trm_free(*window);
  *window = NULL;
}

static void deferred_add(struct trm_window *w, struct deferred one)
{
  w->one = trm_grow(w->one, &w->capacity, w->count, w->count + 1, sizeof *w->one, "test");
  w->one[w->count++] = one;
}

static void deferred_put(struct trm_window *w, const void *from, size_t count, int target, size_t offset)
{
  deferred_add(w, (struct deferred){DEFERRED_PUT, (void *)(uintptr_t)from, count, offset, target});
}

static void deferred_accumulate(struct trm_window *w, const void *from, size_t count, int target, size_t offset)
{
  deferred_add(w, (struct deferred){DEFERRED_ACCUMULATE, (void *)(uintptr_t)from, count, offset, target});
}

static void deferred_get(struct trm_window *w, void *to, size_t count, int target, size_t offset)
{
  memset(to, 0xff, count * w->element_bytes);
  deferred_add(w, (struct deferred){DEFERRED_GET, to, count, offset, target});
}

static int64_t deferred_fetch_add(struct trm_window *w, int64_t value, int target, size_t offset)
{
  return immediate_ops->fetch_add(w->window, value, target, offset);
}

static void deferred_flush(struct trm_window *w, int target)
{
  size_t left = 0;
  for (size_t i = 0; i < w->count; i++) {
    const struct deferred *it = &w->one[i];
    if (it->target != target)
      w->one[left++] = *it;
    else if (it->kind == DEFERRED_PUT)
      immediate_ops->put(w->window, it->origin, it->count, target, it->offset);
    else if (it->kind == DEFERRED_ACCUMULATE)
      immediate_ops->accumulate(w->window, it->origin, it->count, target, it->offset);
    else
      immediate_ops->get(w->window, it->origin, it->count, target, it->offset);
  }
  w->count = left;
  immediate_ops->flush(w->window, target);
}

/* Runs a test with such windows in world, and in the communicators that it is split into. Collective over world. */
static inline void with_deferred_windows(void (*test)(void))
{
  static struct trm_comm_ops deferred_ops;
  immediate_ops = world->ops;
  deferred_ops = *world->ops;
  deferred_ops.window_create = deferred_create;
  deferred_ops.window_free = deferred_free;
  deferred_ops.put = deferred_put;
  deferred_ops.accumulate = deferred_accumulate;
  deferred_ops.get = deferred_get;
  deferred_ops.fetch_add = deferred_fetch_add;
  deferred_ops.flush = deferred_flush;
  world->ops = &deferred_ops;
  test();
  world->ops = immediate_ops;
}
