/* All-reduce with one fixed order of addition: for lanes, where the bits must not depend on the layout. */
#pragma once

#include "core/comm.h"

/* Sums data (count) over the ranks of comm, in place. Collective over comm. type: TRM_FLOAT or TRM_DOUBLE. All ranks
 * get the same bits. Over 2^k ranks the order is the binary tree ((0+1)+(2+3))+..., as in device->sum. Over p + r
 * ranks, p the largest power of two: rank p + i is first added to rank i, for i < r, then the tree of the first p.
 * Cost: log2(p) exchanges of the whole array, and two more with r > 0: meant for few ranks (nodes). */
void trm_allreduce_tree(struct trm_comm *comm, void *data, size_t count, enum trm_type type);
