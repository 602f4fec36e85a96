/* Reduction of two arrays, element by element. */
#pragma once

#include "core/comm.h"

/* to[i] = with[i] op from[i], i < count. to may be with; from lies apart. TRM_TREE_SUM is a sum. Sums of integers
 * wrap around, as in MPI. */
void coll_reduce(enum trm_type type, enum trm_op op, void *to, const void *with, const void *from, size_t count);
