/* The choice of the algorithm of a collective: by what it computes, the number of ranks, whether they are on several
 * nodes, and the bytes. From a file that `trireme bench allreduce --tune` has measured, or by the costs of the table.
 *
 * All ranks of a communicator must choose alike: their choices are the same, and so is all that a choice depends on. */
#pragma once

#include "mpi/coll/table.h"

/* The domain of a communicator's ranks: one node; several nodes, a rank on each; several nodes, of which some have
 * several ranks. A measurement on several nodes is for both. */
enum coll_domain { COLL_NODE, COLL_NODES, COLL_NODES_OF_SEVERAL };

/* Measured: from so many bytes up, on so many ranks. */
struct coll_choice {
  enum coll_kind kind;
  bool across_nodes;
  int ranks;
  size_t bytes;
  const struct coll_ops *ops; /* NULL: the communication library's own */
  double seconds;             /* as measured, for readers; NAN: not known */
};

struct coll_choices {
  struct coll_choice *choice; /* (count) */
  size_t count, capacity;
};

/* The algorithm; NULL: the communication library's own. bytes: of the array, of all ranks together for all-gather and
 * reduce-scatter. It is that of the choice of the kind and domain whose ranks are nearest (in ratio, the fewer of two),
 * and whose bytes are the most that are not above `bytes`, or else the fewest. Without such a choice, and if choices is
 * NULL, it is the two-level row where nodes have several ranks and the kind has one; else the cheapest row of the table
 * by typical costs, or in a node, but for all-reduces of 16 MB or more, the library's own. */
const struct coll_ops *coll_choose(const struct coll_choices *choices, enum coll_kind kind, int ranks,
                                   enum coll_domain domain, size_t bytes);

/* choices is zeroed before the first one. */
void coll_choices_add(struct coll_choices *choices, const struct coll_choice *choice);
void coll_choices_free(struct coll_choices *choices);

/* The name of an algorithm in files; ops may be NULL. */
const char *coll_name(const struct coll_ops *ops);

/* -- files (choices_file.c). Errors name file and line; TRM_USAGE: the contents are wrong. After an error choices is
 * empty. */
int coll_choices_read(struct coll_choices *choices, const char *path);
/* Rank 0 reads, and all ranks get the same choices, or the same error. Collective. */
int coll_choices_read_together(struct coll_choices *choices, const char *path, struct trm_comm *comm);
int coll_choices_write(const struct coll_choices *choices, const char *path);
