/* Recursive halving and doubling (Rabenseifner: Optimization of collective reduction operations, ICCS 2004; Thakur,
 * Rabenseifner, Gropp, IJHPCA 19, 2005). In round k of the reduce-scatter every rank exchanges halves of its
 * interval with the rank whose number differs in bit k, and reduces the half that it keeps. The all-gather goes the
 * same way back. Any number of ranks, by fold.h, and any count.
 *
 *  * Of n bytes on P = 2^k ranks, with alpha seconds a message, beta a byte on the wire and gamma a byte reduced: 2
 * k alpha + (P - 1)/P n (2 beta + gamma).
 *
 *  * Partners are next to each other first, not last as in the papers, so that sums are added in the order of
 * recursive doubling: intervals are then the ranks' in the order of their reversed bits. */
#pragma once

#include "mpi/coll/schedule.h"

/* Reduces data (count) in place, with the bits of coll_doubling_allreduce. */
void coll_halving_allreduce(struct coll_schedule *schedule, void *data, size_t count);
