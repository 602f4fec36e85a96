/* Binomial tree: in round k the 2^k ranks that have the data send it to as many others. log2(P) (alpha + n beta),
 * rounded up, for n bytes, alpha seconds a message and beta a byte. Any number of ranks. */
#pragma once

#include "mpi/coll/schedule.h"

void coll_tree_broadcast(struct coll_schedule *schedule, void *data, size_t count, int root);
