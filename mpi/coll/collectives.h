/* The collectives of the communication contract (core/comm.h) by the library's own algorithms over messages: chunks of
 * the array, each by an algorithm that is chosen by size. Sums are added in one order for given counts and numbers of
 * ranks, whatever the network, and all ranks get the same bits.
 *
 * Collective over coll->comm, which may have one rank. Each begins a schedule: see coll_schedule_test and _wait. */
#pragma once

#include "mpi/coll/schedule.h"

struct coll_schedule *coll_broadcast(struct coll *coll, void *data, size_t count, enum trm_type type, int root);
/* TRM_TREE_SUM: by recursive doubling, whatever the size. */
struct coll_schedule *coll_allreduce(struct coll *coll, void *data, size_t count, enum trm_type type, enum trm_op op);
/* all (size, count); row `rank` of it has what this rank gives */
struct coll_schedule *coll_allgather(struct coll *coll, void *all, size_t count, enum trm_type type);
/* Sets mine (count) to row `rank` of the reduction of all (size, count), which is overwritten. */
struct coll_schedule *coll_reduce_scatter(struct coll *coll, void *all, void *mine, size_t count, enum trm_type type,
                                          enum trm_op op);
