/* Numbers of ranks that are no power of two, P = p + r with p the largest power of two: rank p + i is added to rank
 * i, for i < r, the first p ranks do a collective, and rank p + i gets the result from rank i (Thakur, Rabenseifner,
 * Gropp: Optimization of collective communication operations in MPICH, IJHPCA 19, 2005, section 4.4).
 *
 *  * Of n bytes, with alpha seconds a message, beta a byte on the wire and gamma a byte reduced: 2 (alpha + n beta)
 * + n gamma with r > 0, else nothing. */
#pragma once

#include "mpi/coll/schedule.h"

/* The largest power of two that is at most `ranks`. */
int coll_fold_power(int ranks);
/* Adds what precedes the collective to a strand. Returns false at ranks p and above, which have no part in it. */
bool coll_fold(struct coll_schedule *schedule, void *data, size_t count);
/* Adds what follows it, at all ranks. */
void coll_unfold(struct coll_schedule *schedule, void *data, size_t count);
