/* Recursive doubling: in round k every rank exchanges its array with the rank whose number differs in bit k, so that
 * each group of 2^(k+1) ranks then has the reduction of the group (Thakur, Rabenseifner, Gropp: Optimization of
 * collective communication operations in MPICH, IJHPCA 19, 2005). Any number of ranks, by fold.h.
 *
 * Of n bytes on 2^k ranks, with alpha seconds a message, beta a byte on the wire and gamma a byte reduced: k (alpha + n
 * (beta + gamma)). For small arrays. */
#pragma once

#include "mpi/coll/schedule.h"

/* Reduces data (count) in place. Sums are added in the order of the binary tree ((0+1)+(2+3))+..., as in device->sum,
 * after the additions of fold.h; all ranks get the same bits, since a + b and b + a have the same. */
void coll_doubling_allreduce(struct coll_schedule *schedule, void *data, size_t count);
