/* Ring algorithms: P - 1 rounds, in each of which every rank sends one block to the next rank and receives one from
 * the rank before (Patarasuk and Yuan: Bandwidth optimal all-reduce algorithms for clusters of workstations, JPDC
 * 69, 2009). Any number of ranks P, any sizes of blocks.
 *
 *  * Of n bytes, with alpha seconds a message, beta a byte on the wire and gamma a byte reduced, reduce-scatter
 * takes (P - 1) alpha + (P - 1)/P n (beta + gamma), all-gather the same without gamma, all-reduce both: no algorithm
 * sends fewer bytes, and each link carries one message at a time. For large arrays. */
#pragma once

#include "mpi/coll/blocks.h"

/* Sets mine (blocks->count[rank]) to the reduction of block `rank` of all ranks; mine may be that block. Block b is
 * reduced in the order b + 1, b + 2, ..., b, modulo P. The other blocks are overwritten. */
void coll_ring_reduce_scatter(struct coll_schedule *schedule, const struct coll_blocks *blocks, void *mine);
/* Fills the blocks of the other ranks. */
void coll_ring_allgather(struct coll_schedule *schedule, const struct coll_blocks *blocks);
/* Reduces data (count) in place, block b by the rank b of P. */
void coll_ring_allreduce(struct coll_schedule *schedule, void *data, size_t count);
