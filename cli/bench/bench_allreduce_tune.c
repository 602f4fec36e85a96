/* trireme bench allreduce --tune: which algorithm is the fastest, by kind, communicator and size. */
#include <math.h>
#include <stdio.h>

#include "cli/bench/bench_collective.h"
#include "core/memory.h"
#include "core/status.h"

enum { MAX_ROUNDS = 200 };
#define MIN_BYTES ((size_t)4096)

/* What is measured now, and what was chosen. */
struct tuning {
  struct trm_comm *world;
  const struct bench_pool *pool;
  size_t max_bytes, rounds;
  double seconds[MAX_ROUNDS];
  struct coll_choices choices;
};

static void tune_print(const struct coll_choice *choice, double library)
{
  printf("%-15s  %-5s  %5d  %9.0f KiB  %-10s  %10.4f", coll_kind_names[choice->kind],
         choice->across_nodes ? "nodes" : "node", choice->ranks, (double)choice->bytes / 1024, coll_name(choice->ops),
         1e3 * choice->seconds);
  if (isnan(library))
    puts("           -");
  else
    printf("  %10.4f\n", 1e3 * library);
  fflush(stdout);
}

/* Adds the fastest algorithm to the choices. All ranks have the same times, and so choose alike. */
static int tune_size(struct tuning *t, struct trm_comm *comm, bool across_nodes, enum coll_kind kind, size_t bytes)
{
  struct coll_choice best = {kind, across_nodes, comm->size, bytes, NULL, INFINITY};
  double library = NAN;
  for (int row = -1; row < 0 || coll_table[row].name; row++) { /* the library first */
    const struct coll_ops *ops = row < 0 ? NULL : &coll_table[row];
    if (ops ? ops->kind != kind : kind == COLL_TREE_SUM)
      continue;
    struct bench_collective c = {.world = t->world, .comm = comm, .pool = t->pool, .kind = kind,
                                 .ops = ops, .bytes = bytes, .rounds = t->rounds, .max_rounds = MAX_ROUNDS,
                                 .seconds = t->seconds};
    TRM_CHECK(bench_collective_run(&c));
    const double median = bench_median(c.seconds, c.measured);
    if (!ops)
      library = median;
    if (median < best.seconds) {
      best.seconds = median;
      best.ops = ops;
    }
  }
  coll_choices_add(&t->choices, &best);
  if (t->world->rank == 0)
    tune_print(&best, library);
  return TRM_OK;
}

/* Collective over the job: every rank has a communicator, and rank 0's is recorded. */
static int tune_comm(struct tuning *t, struct trm_comm *comm, bool across_nodes)
{
  int32_t size = comm->size; /* all ranks measure as many sizes and kinds, whatever their own communicator has */
  t->world->ops->broadcast(t->world, &size, 1, TRM_INT32, 0);
  if (size < 2)
    return TRM_OK;
  for (int kind = 0; kind < COLL_KINDS; kind++)
    for (size_t bytes = MIN_BYTES; bytes <= t->max_bytes; bytes *= 4)
      TRM_CHECK(tune_size(t, comm, across_nodes, (enum coll_kind)kind, bytes));
  return TRM_OK;
}

/* Of the ranks of the job, those of a node, and one of each node. */
static int tune_all(struct tuning *t)
{
  struct trm_comm *world = t->world, *node = world->ops->split_node(world, TRM_SHARE_NODE);
  int32_t several_nodes = node->size < world->size;
  world->ops->allreduce(world, &several_nodes, 1, TRM_INT32, TRM_MAX);
  int status = tune_comm(t, world, several_nodes);
  if (status == TRM_OK && several_nodes) {
    struct trm_comm *across = world->ops->split(world, node->rank, world->rank);
    status = tune_comm(t, node, false);
    if (status == TRM_OK)
      status = tune_comm(t, across, true);
    across->ops->release(across);
  }
  node->ops->release(node);
  return status;
}

int bench_allreduce_tune(struct trm_job *job, const struct bench_pool *pool, size_t max_bytes, size_t rounds,
                         const char *path)
{
  struct tuning *t = trm_alloc(sizeof *t, "bench: a table of collectives");
  t->world = job->modules.comm;
  t->pool = pool;
  t->max_bytes = max_bytes;
  t->rounds = rounds;
  if (t->world->rank == 0)
    printf("%-15s  %-5s  %5s  %13s  %-10s  %10s  %10s\n", "collective", "of", "ranks", "size", "fastest", "ms",
           "library");
  int status = tune_all(t);
  if (status == TRM_OK)
    status = trm_agree(t->world, t->world->rank == 0 ? coll_choices_write(&t->choices, path) : TRM_OK);
  if (status == TRM_OK && t->world->rank == 0)
    printf("written to %s: trireme train --parallel.collectives=%s\n", path, path);
  coll_choices_free(&t->choices);
  trm_free(t);
  return status;
}
