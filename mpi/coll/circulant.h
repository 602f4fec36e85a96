/* Algorithms on the circulant graph, whose edges lead from rank r to r - 1, r - 2, r - 4, ..., modulo P. The
 * all-gather doubles the blocks that a rank has (Bruck, Ho, Kipnis, Upfal, Weathersby: Efficient algorithms for
 * all-to-all communications in multiport message-passing systems, IEEE TPDS 8, 1997; each block goes to its place at
 * once, so that nothing is rotated at the end). The reduce-scatter is the same backwards (Träff: Optimal,
 * non-pipelined reduce-scatter and allreduce algorithms, arXiv:2410.14234, 2024). Any number of ranks P, any sizes
 * of blocks.
 *
 *  * Of n bytes, with alpha seconds a message, beta a byte on the wire and gamma a byte reduced, reduce-scatter
 * takes ceil(log2 P) alpha + (P - 1)/P n (beta + gamma), all-gather the same without gamma, all-reduce both: fewer
 * messages than a ring's and as few bytes, but to ranks that are far. A range of blocks that passes the last rank,
 * or whose blocks are not adjacent, takes several messages. */
#pragma once

#include "mpi/coll/blocks.h"

/* Sets mine (blocks->count[rank]) to the reduction of block `rank` of all ranks; mine may be that block. One order of
 * additions for each block and P. The other blocks are overwritten. */
void coll_circulant_reduce_scatter(struct coll_schedule *schedule, const struct coll_blocks *blocks, void *mine);
/* Fills the blocks of the other ranks. */
void coll_circulant_allgather(struct coll_schedule *schedule, const struct coll_blocks *blocks);
/* Reduces data (count) in place, block b by the rank b of P. */
void coll_circulant_allreduce(struct coll_schedule *schedule, void *data, size_t count);
