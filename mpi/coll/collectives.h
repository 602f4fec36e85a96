/* Complete collectives over messages: an array in chunks, each by the algorithm of a row of the table (table.h).
 * Sums are added in one order for a given row, count and number of ranks, whatever the network, and all ranks get
 * the same bits.
 *
 *  * Collective over coll->comm, which may have one rank. Each begins a schedule: see coll_schedule_test and _wait. */
#pragma once

#include "mpi/coll/table.h"

struct coll_arrays {
  void *data;    /* all-reduce, broadcast: (count), in place; all-gather, reduce-scatter: (size, count) */
  void *mine;    /* (count): of reduce-scatter alone */
  size_t count;
  enum trm_type type;
  enum trm_op op; /* all-reduce: TRM_TREE_SUM with a row of COLL_TREE_SUM alone; reduce-scatter */
  int root;       /* broadcast */
};

/* All-gather: row `rank` of data has what this rank gives. Reduce-scatter: mine becomes row `rank` of the reduction of
 * data, which is overwritten. */
struct coll_schedule *coll_begin_by(struct coll *coll, const struct coll_ops *ops, const struct coll_arrays *arrays);
