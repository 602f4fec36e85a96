/* The operations of bench rma. To add one: its function, a row of the table, what it needs in struct access_memory. */
#include "cli/bench/bench_access.h"

#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"

#define ELEMENTS (ACCESS_LARGEST / sizeof(float))

/* -- through the communicator */

static void mpi_get(struct access_memory *m, size_t bytes)
{
  m->pair->ops->get(m->floats, m->mine, bytes / sizeof(float), ACCESS_TARGET, 0);
  m->pair->ops->flush(m->floats, ACCESS_TARGET);
}

static void mpi_put(struct access_memory *m, size_t bytes)
{
  m->pair->ops->put(m->floats, m->mine, bytes / sizeof(float), ACCESS_TARGET, 0);
  m->pair->ops->flush(m->floats, ACCESS_TARGET);
}

static void mpi_accumulate(struct access_memory *m, size_t bytes)
{
  m->pair->ops->accumulate(m->floats, m->mine, bytes / sizeof(float), ACCESS_TARGET, 0);
  m->pair->ops->flush(m->floats, ACCESS_TARGET);
}

static void mpi_fetch_add(struct access_memory *m, size_t bytes)
{
  (void)bytes;
  m->pair->ops->fetch_add(m->counter, 1, ACCESS_TARGET, 0);
}

/* -- loads and stores */

static void *shared_floats(const struct access_memory *m)
{
  return m->shared.base[ACCESS_TARGET];
}

static _Atomic int64_t *shared_counter(const struct access_memory *m)
{
  return (_Atomic int64_t *)((char *)m->shared.base[ACCESS_TARGET] + ACCESS_LARGEST);
}

static void shared_get(struct access_memory *m, size_t bytes)
{
  memcpy(m->mine, shared_floats(m), bytes);
}

static void shared_put(struct access_memory *m, size_t bytes)
{
  memcpy(shared_floats(m), m->mine, bytes);
}

/* Loads, adds and stores: of two that add to one element at the same time, one may be lost. */
static void shared_add(struct access_memory *m, size_t bytes)
{
  _Atomic float *to = shared_floats(m);
  const float *from = m->mine;
  for (size_t i = 0; i < bytes / sizeof(float); i++)
    atomic_store_explicit(&to[i], atomic_load_explicit(&to[i], memory_order_relaxed) + from[i], memory_order_relaxed);
}

/* Nothing is lost, as with the communicator's accumulate. */
static void shared_accumulate(struct access_memory *m, size_t bytes)
{
  _Atomic float *to = shared_floats(m);
  const float *from = m->mine;
  for (size_t i = 0; i < bytes / sizeof(float); i++) {
    float before = atomic_load_explicit(&to[i], memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&to[i], &before, before + from[i], memory_order_relaxed,
                                                  memory_order_relaxed))
      continue;
  }
}

static void shared_fetch_add(struct access_memory *m, size_t bytes)
{
  (void)bytes;
  atomic_fetch_add_explicit(shared_counter(m), 1, memory_order_relaxed);
}

const struct access access_table[] = {
  {"mpi", "get", mpi_get, false, false},
  {"mpi", "put", mpi_put, false, false},
  {"mpi", "accumulate", mpi_accumulate, false, false},
  {"mpi", "fetch_add", mpi_fetch_add, false, true},
  {"shared", "get", shared_get, true, false},
  {"shared", "put", shared_put, true, false},
  {"shared", "accumulate", shared_accumulate, true, false},
  {"shared", "add", shared_add, true, false},
  {"shared", "fetch_add", shared_fetch_add, true, true},
  {NULL, NULL, NULL, false, false},
};

/* -- the memory */

int access_open(struct access_memory *m, struct trm_comm *pair)
{
  const struct trm_comm_ops *ops = pair->ops;
  const bool target = pair->rank == ACCESS_TARGET;
  void *own;
  *m = (struct access_memory){.pair = pair};
  m->mine = trm_alloc(ACCESS_LARGEST, "bench: an array");
  m->node = ops->split_node(pair, "node");
  m->shares = m->node->size == pair->size;
  TRM_CHECK(ops->window_create(pair, target ? ELEMENTS : 0, TRM_FLOAT, "bench: a window", &m->floats, &own));
  TRM_CHECK(ops->window_create(pair, target ? 1 : 0, TRM_INT64, "bench: a counter", &m->counter, &own));
  if (!m->shares)
    return TRM_OK;
  return ops->share(m->node, target ? ACCESS_LARGEST + sizeof(int64_t) : 0, "bench: shared memory", &m->shared);
}

void access_close(struct access_memory *m)
{
  const struct trm_comm_ops *ops = m->pair->ops;
  if (m->shared.base)
    ops->unshare(m->node, &m->shared);
  if (m->counter)
    ops->window_free(&m->counter);
  if (m->floats)
    ops->window_free(&m->floats);
  ops->release(m->node);
  trm_free(m->mine);
}

/* -- do they do what they say? */

static void mine_set(struct access_memory *m, float factor)
{
  for (size_t i = 0; i < ELEMENTS; i++)
    m->mine[i] = factor * (float)(i % 1024);
}

static int mine_check(const struct access_memory *m, const struct access *access, float factor)
{
  for (size_t i = 0; i < ELEMENTS; i++)
    if (m->mine[i] != factor * (float)(i % 1024))
      return trm_error(TRM_FAILED, "bench rma: %s %s of %zu floats: element %zu is %g, must be %g", access->window,
                       access->name, ELEMENTS, i, (double)m->mine[i], (double)(factor * (float)(i % 1024)));
  return TRM_OK;
}

/* Puts the pattern, or adds it once more; *factor: so many times it lies at the target. */
static int floats_verify(struct access_memory *m, const struct access *access, const struct access *get, float *factor)
{
  mine_set(m, 1);
  access->run(m, ACCESS_LARGEST);
  if (access != get)
    *factor = strcmp(access->name, "put") == 0 ? 1 : *factor + 1;
  mine_set(m, -1);
  get->run(m, ACCESS_LARGEST);
  return mine_check(m, access, *factor);
}

/* Those of one kind of window; get is the first of them. */
static int window_verify(struct access_memory *m, const char *window)
{
  const struct access *get = NULL;
  float factor = 0;
  for (const struct access *access = access_table; access->name; access++) {
    if (strcmp(access->window, window) != 0)
      continue;
    if (!get)
      get = access;
    if (access->one)
      access->run(m, 0);
    else
      TRM_CHECK(floats_verify(m, access, get, &factor));
  }
  return TRM_OK;
}

static int counter_verify(const char *window, int64_t sum)
{
  if (sum != 1)
    return trm_error(TRM_FAILED, "bench rma: %s fetch_add: the sum is %lld, must be 1", window, (long long)sum);
  return TRM_OK;
}

int access_verify(struct access_memory *m)
{
  TRM_CHECK(window_verify(m, "mpi"));
  TRM_CHECK(counter_verify("mpi", m->pair->ops->fetch_add(m->counter, 0, ACCESS_TARGET, 0)));
  if (!m->shares)
    return TRM_OK;
  TRM_CHECK(window_verify(m, "shared"));
  return counter_verify("shared", atomic_load(shared_counter(m)));
}
