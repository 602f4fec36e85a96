/* The algorithms of collectives over messages. A new one is a file that adds the rounds of a strand (schedule.h) and a
 * row of the table, which the choice (choices.h), the benchmark and the tests go through. */
#pragma once

#include "mpi/coll/blocks.h"

/* The result. TREE_SUM: an all-reduce whose sums are added in the order of coll_doubling_allreduce. */
enum coll_kind { COLL_ALLREDUCE, COLL_TREE_SUM, COLL_ALLGATHER, COLL_REDUCE_SCATTER, COLL_BROADCAST, COLL_KINDS };

/* The names of the kinds in files, in their order, then NULL. */
extern const char *const coll_kind_names[];

/* Seconds of a message, of a byte on the wire, and of a byte reduced. */
struct coll_costs {
  double alpha, beta, gamma;
};

/* The name of the rows that know which ranks share a node (two_level.h); their costs are those of ranks that are all on
 * nodes of their own. */
#define COLL_TWO_LEVEL "two-level"

struct coll_ops {
  const char *name; /* of the algorithm: unique among those of a kind */
  enum coll_kind kind;
  size_t chunk_bytes; /* a larger array is cut into chunks of this size, each a strand */
  /* Seconds of the collective of an array of so many bytes, of all ranks together for all-gather and reduce-scatter. */
  double (*seconds)(const struct coll_costs *costs, int ranks, double bytes);
  /* Adds the rounds of a strand. Set is the one that the kind names. Any number of ranks, any counts. */
  union {
    void (*allreduce)(struct coll_schedule *schedule, void *data, size_t count); /* in place; and TREE_SUM */
    void (*allgather)(struct coll_schedule *schedule, const struct coll_blocks *blocks);
    /* mine may be block `rank`. The blocks are overwritten. */
    void (*reduce_scatter)(struct coll_schedule *schedule, const struct coll_blocks *blocks, void *mine);
    void (*broadcast)(struct coll_schedule *schedule, void *data, size_t count, int root);
  };
};

/* Ends with a row without a name. */
extern const struct coll_ops coll_table[];

/* The row of this name and kind; NULL: there is none. */
const struct coll_ops *coll_find(enum coll_kind kind, const char *name);
