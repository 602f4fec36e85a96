#ifdef HAVE_CONFIG_H
#include <config.h>
#endif
#define _GNU_SOURCE
#include "job/cores.h"

#include <sched.h>
#include <stdlib.h>

#include "core/log.h"
#include "core/memory.h"
#include "core/parallel.h"

/* Number of the set's core number i. */
static int cores_member(const cpu_set_t *set, int i)
{
  int core = 0;
  while (!CPU_ISSET(core, set) || i-- > 0)
    core++;
  return core;
}

void trm_cores_choose(struct trm_cores *cores, struct trm_comm *node, int requested)
{
  cpu_set_t mine;
  trm_parallel_unbind();
  CPU_ZERO(&mine);
  if (sched_getaffinity(0, sizeof mine, &mine) != 0)
    CPU_SET(0, &mine);
  cpu_set_t *all = trm_alloc((size_t)node->size * sizeof *all, "processor sets");
  node->ops->allgather(node, &mine, all, sizeof mine, TRM_BYTE);
  cpu_set_t any = mine;
  int sharing = 0;
  for (int i = 0; i < node->size; i++) {
    sharing += CPU_EQUAL(&all[i], &mine);
    CPU_OR(&any, &any, &all[i]);
  }
  trm_free(all);

  const int count = CPU_COUNT(&mine);
  const char *openmp = getenv("OMP_NUM_THREADS");
  int threads = requested;
  if (threads == 0 && openmp)
    threads = atoi(openmp);
  if (threads <= 0)
    threads = count / sharing;
  cores->threads = threads < 1 ? 1 : threads;

  int64_t busy = cores->threads;
  node->ops->allreduce(node, &busy, 1, TRM_INT64, TRM_SUM);
  cores->oversubscribed = busy > CPU_COUNT(&any);
  const bool divides = sharing == node->size && busy == node->size && node->size % count == 0;
  cores->binds = cores->oversubscribed && divides;
  cores->own = cores_member(&mine, node->rank % count);
  if (cores->oversubscribed && node->rank == 0)
    trm_warn("parallel.threads: %d ranks of this node have %lld threads in all for %d cores, so that they slow one "
             "another down: use fewer threads or ranks, or another binding",
             node->size, (long long)busy, CPU_COUNT(&any));
}

void trm_cores_bind(const struct trm_cores *cores)
{
  cpu_set_t own;
  CPU_ZERO(&own);
  CPU_SET(cores->own, &own);
  if (cores->binds && sched_setaffinity(0, sizeof own, &own) != 0)
    trm_warn("this rank cannot be bound to core %d", cores->own);
}
