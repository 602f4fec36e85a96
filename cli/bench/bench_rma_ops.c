#include "cli/bench/bench_rma_ops.h"

#include <stdatomic.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"

#define MAX_ELEMENTS (RMA_MAX_BYTES / sizeof(float))

/* -- through the communicator */

static void bench_rma_comm_get(struct rma_memory *m, size_t bytes)
{
  m->pair->ops->get(m->floats, m->local, bytes / sizeof(float), RMA_TARGET, 0);
  m->pair->ops->flush(m->floats, RMA_TARGET);
}

static void bench_rma_comm_put(struct rma_memory *m, size_t bytes)
{
  m->pair->ops->put(m->floats, m->local, bytes / sizeof(float), RMA_TARGET, 0);
  m->pair->ops->flush(m->floats, RMA_TARGET);
}

static void bench_rma_comm_accumulate(struct rma_memory *m, size_t bytes)
{
  m->pair->ops->accumulate(m->floats, m->local, bytes / sizeof(float), RMA_TARGET, 0);
  m->pair->ops->flush(m->floats, RMA_TARGET);
}

static void bench_rma_comm_fetch_add(struct rma_memory *m, size_t bytes)
{
  (void)bytes;
  m->pair->ops->fetch_add(m->counter, 1, RMA_TARGET, 0);
}

/* -- loads and stores */

static _Atomic int64_t *bench_rma_shared_counter(const struct rma_memory *m)
{
  return (_Atomic int64_t *)((char *)m->shared.base[RMA_TARGET] + RMA_MAX_BYTES);
}

static void bench_rma_shared_get(struct rma_memory *m, size_t bytes)
{
  memcpy(m->local, m->shared.base[RMA_TARGET], bytes);
}

static void bench_rma_shared_put(struct rma_memory *m, size_t bytes)
{
  memcpy(m->shared.base[RMA_TARGET], m->local, bytes);
}

/* Adds by load, add and store: concurrent additions to an element can be lost. */
static void bench_rma_shared_add(struct rma_memory *m, size_t bytes)
{
  _Atomic float *to = m->shared.base[RMA_TARGET];
  const float *from = m->local;
  for (size_t i = 0; i < bytes / sizeof(float); i++)
    atomic_store_explicit(&to[i], atomic_load_explicit(&to[i], memory_order_relaxed) + from[i], memory_order_relaxed);
}

/* Adds by compare and swap: nothing is lost, as with the communicator's accumulate. */
static void bench_rma_shared_accumulate(struct rma_memory *m, size_t bytes)
{
  _Atomic float *to = m->shared.base[RMA_TARGET];
  const float *from = m->local;
  for (size_t i = 0; i < bytes / sizeof(float); i++) {
    float before = atomic_load_explicit(&to[i], memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&to[i], &before, before + from[i], memory_order_relaxed,
                                                  memory_order_relaxed))
      continue;
  }
}

static void bench_rma_shared_fetch_add(struct rma_memory *m, size_t bytes)
{
  (void)bytes;
  atomic_fetch_add_explicit(bench_rma_shared_counter(m), 1, memory_order_relaxed);
}

/* To add an operation, write its function and a row here. */
const struct rma_op rma_op_table[] = {
  {"mpi", "get", bench_rma_comm_get, false, false},
  {"mpi", "put", bench_rma_comm_put, false, false},
  {"mpi", "accumulate", bench_rma_comm_accumulate, false, false},
  {"mpi", "fetch_add", bench_rma_comm_fetch_add, false, true},
  {"shared", "get", bench_rma_shared_get, true, false},
  {"shared", "put", bench_rma_shared_put, true, false},
  {"shared", "accumulate", bench_rma_shared_accumulate, true, false},
  {"shared", "add", bench_rma_shared_add, true, false},
  {"shared", "fetch_add", bench_rma_shared_fetch_add, true, true},
  {NULL, NULL, NULL, false, false},
};

/* -- the memory */

int rma_memory_open(struct rma_memory *m, struct trm_comm *pair)
{
  const struct trm_comm_ops *ops = pair->ops;
  const bool target = pair->rank == RMA_TARGET;
  void *base;
  *m = (struct rma_memory){.pair = pair};
  m->local = trm_alloc(RMA_MAX_BYTES, "bench: an array");
  m->node = ops->split_node(pair, TRM_SHARE_NODE);
  m->shares_memory = m->node->size == pair->size;
  TRM_CHECK(ops->window_create(pair, target ? MAX_ELEMENTS : 0, TRM_FLOAT, "bench: a window", &m->floats, &base));
  TRM_CHECK(ops->window_create(pair, target ? 1 : 0, TRM_INT64, "bench: a counter", &m->counter, &base));
  if (!m->shares_memory)
    return TRM_OK;
  return ops->share(m->node, target ? RMA_MAX_BYTES + sizeof(int64_t) : 0, TRM_MEMORY_BUFFERS, &m->shared);
}

void rma_memory_close(struct rma_memory *m)
{
  const struct trm_comm_ops *ops = m->pair->ops;
  if (m->shared.base)
    ops->unshare(m->node, &m->shared);
  if (m->counter)
    ops->window_free(&m->counter);
  if (m->floats)
    ops->window_free(&m->floats);
  ops->release(m->node);
  trm_free(m->local);
}

/* -- verification */

static void bench_rma_set_pattern(struct rma_memory *m, float factor)
{
  for (size_t i = 0; i < MAX_ELEMENTS; i++)
    m->local[i] = factor * (float)(i % 1024);
}

static int bench_rma_check_pattern(const struct rma_memory *m, const struct rma_op *op, float factor)
{
  for (size_t i = 0; i < MAX_ELEMENTS; i++)
    if (m->local[i] != factor * (float)(i % 1024))
      return trm_error(TRM_FAILED, "bench rma: %s %s of %zu floats: element %zu is %g, must be %g", op->window,
                       op->name, MAX_ELEMENTS, i, (double)m->local[i], (double)(factor * (float)(i % 1024)));
  return TRM_OK;
}

/* Puts the pattern, or adds it; *factor: how often the target's memory contains it then. */
static int bench_rma_verify_floats(struct rma_memory *m, const struct rma_op *op, const struct rma_op *get,
                                   float *factor)
{
  bench_rma_set_pattern(m, 1);
  op->run(m, RMA_MAX_BYTES);
  if (op != get)
    *factor = strcmp(op->name, "put") == 0 ? 1 : *factor + 1;
  bench_rma_set_pattern(m, -1);
  get->run(m, RMA_MAX_BYTES);
  return bench_rma_check_pattern(m, op, *factor);
}

int rma_memory_verify(struct rma_memory *m)
{
  const struct rma_op *get = NULL; /* of the kind of window, its first operation */
  float factor = 0;
  for (const struct rma_op *op = rma_op_table; op->name && (m->shares_memory || !op->shared); op++) {
    if (!get || get->shared != op->shared) {
      get = op;
      factor = 0;
    }
    if (op->single_element)
      op->run(m, 0);
    else
      TRM_CHECK(bench_rma_verify_floats(m, op, get, &factor));
  }
  const long long sum = m->pair->ops->fetch_add(m->counter, 0, RMA_TARGET, 0),
                  shared_sum = m->shares_memory ? atomic_load(bench_rma_shared_counter(m)) : 1;
  if (sum != 1 || shared_sum != 1)
    return trm_error(TRM_FAILED, "bench rma: fetch_add: the sums are %lld and %lld, must be 1", sum, shared_sum);
  return TRM_OK;
}
