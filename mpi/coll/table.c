#include "mpi/coll/table.h"

#include <math.h>
#include <string.h>

#include "mpi/coll/circulant.h"
#include "mpi/coll/doubling.h"
#include "mpi/coll/fold.h"
#include "mpi/coll/halving.h"
#include "mpi/coll/ring.h"
#include "mpi/coll/tree.h"
#include "mpi/coll/two_level.h"

/* -- costs, as in the headers of the algorithms */

static double table_log2(int ranks)
{
  return ceil(log2(ranks));
}

/* The part of an array that a rank has to send. */
static double table_others(int ranks, double bytes)
{
  return (ranks - 1) * bytes / ranks;
}

static double table_fold(const struct coll_costs *c, int ranks, double bytes)
{
  return coll_fold_power(ranks) == ranks ? 0 : 2 * (c->alpha + bytes * c->beta) + bytes * c->gamma;
}

static double table_doubling(const struct coll_costs *c, int ranks, double bytes)
{
  return table_fold(c, ranks, bytes) +
         table_log2(coll_fold_power(ranks)) * (c->alpha + bytes * (c->beta + c->gamma));
}

static double table_halving(const struct coll_costs *c, int ranks, double bytes)
{
  const int power = coll_fold_power(ranks);
  return table_fold(c, ranks, bytes) + 2 * table_log2(power) * c->alpha +
         table_others(power, bytes) * (2 * c->beta + c->gamma);
}

static double table_ring_allgather(const struct coll_costs *c, int ranks, double bytes)
{
  return (ranks - 1) * c->alpha + table_others(ranks, bytes) * c->beta;
}

static double table_ring_reduce_scatter(const struct coll_costs *c, int ranks, double bytes)
{
  return table_ring_allgather(c, ranks, bytes) + table_others(ranks, bytes) * c->gamma;
}

static double table_ring_allreduce(const struct coll_costs *c, int ranks, double bytes)
{
  return table_ring_reduce_scatter(c, ranks, bytes) + table_ring_allgather(c, ranks, bytes);
}

static double table_circulant_allgather(const struct coll_costs *c, int ranks, double bytes)
{
  return table_log2(ranks) * c->alpha + table_others(ranks, bytes) * c->beta;
}

static double table_circulant_reduce_scatter(const struct coll_costs *c, int ranks, double bytes)
{
  return table_circulant_allgather(c, ranks, bytes) + table_others(ranks, bytes) * c->gamma;
}

static double table_circulant_allreduce(const struct coll_costs *c, int ranks, double bytes)
{
  return table_circulant_reduce_scatter(c, ranks, bytes) + table_circulant_allgather(c, ranks, bytes);
}

static double table_tree(const struct coll_costs *c, int ranks, double bytes)
{
  return table_log2(ranks) * (c->alpha + bytes * c->beta);
}

/* -- the table */

#define CHUNK_BYTES ((size_t)1 << 20)

const struct coll_ops coll_table[] = {
  {"doubling", COLL_ALLREDUCE, CHUNK_BYTES, table_doubling, .allreduce = coll_doubling_allreduce},
  {"halving", COLL_ALLREDUCE, CHUNK_BYTES, table_halving, .allreduce = coll_halving_allreduce},
  {"circulant", COLL_ALLREDUCE, CHUNK_BYTES, table_circulant_allreduce, .allreduce = coll_circulant_allreduce},
  {"ring", COLL_ALLREDUCE, CHUNK_BYTES, table_ring_allreduce, .allreduce = coll_ring_allreduce},
  {"doubling", COLL_TREE_SUM, CHUNK_BYTES, table_doubling, .allreduce = coll_doubling_allreduce},
  {"halving", COLL_TREE_SUM, CHUNK_BYTES, table_halving, .allreduce = coll_halving_allreduce},
  {"circulant", COLL_ALLGATHER, CHUNK_BYTES, table_circulant_allgather, .allgather = coll_circulant_allgather},
  {"ring", COLL_ALLGATHER, CHUNK_BYTES, table_ring_allgather, .allgather = coll_ring_allgather},
  {"circulant", COLL_REDUCE_SCATTER, CHUNK_BYTES, table_circulant_reduce_scatter,
   .reduce_scatter = coll_circulant_reduce_scatter},
  {"ring", COLL_REDUCE_SCATTER, CHUNK_BYTES, table_ring_reduce_scatter,
   .reduce_scatter = coll_ring_reduce_scatter},
  {COLL_TWO_LEVEL, COLL_ALLGATHER, CHUNK_BYTES, table_ring_allgather, .allgather = coll_two_level_allgather},
  {COLL_TWO_LEVEL, COLL_REDUCE_SCATTER, CHUNK_BYTES, table_ring_reduce_scatter,
   .reduce_scatter = coll_two_level_reduce_scatter},
  {"tree", COLL_BROADCAST, CHUNK_BYTES, table_tree, .broadcast = coll_tree_broadcast},
  {.name = NULL},
};

const char *const coll_kind_names[] = {"allreduce", "tree sum", "allgather", "reduce-scatter", "broadcast", NULL};

const struct coll_ops *coll_find(enum coll_kind kind, const char *name)
{
  for (const struct coll_ops *ops = coll_table; ops->name; ops++)
    if (ops->kind == kind && strcmp(ops->name, name) == 0)
      return ops;
  return NULL;
}
