/* Two-level algorithms for communicators whose nodes have several ranks, as many or not: each block crosses the network
 * once for each node, not once for each rank (Traeff: Improved MPI all-to-all communication on a Giganet SMP cluster,
 * EuroPVM/MPI 2002, has the hierarchy). Every rank of a node takes a share of the other ranks' blocks: rank r's block
 * belongs to the share of rank r modulo L of each other node, which has L ranks. So all ranks of a node send and
 * receive, 3 of a node beside 1 of another as well.
 *
 *  * On P ranks, of n bytes in equal blocks, a node of L ranks receives (P - L)/P n bytes by an all-gather and sends as
 * many by a reduce-scatter; the least that is possible. Two rounds: about P - 1 messages of each rank, of one block
 * each, most of them inside the node. */
#pragma once

#include "mpi/coll/blocks.h"

/* The nodes are those of coll_schedule_nodes; where it has none, every rank is a node of its own. */

/* Fills the blocks of the other ranks. */
void coll_two_level_allgather(struct coll_schedule *schedule, const struct coll_blocks *blocks);
/* Sets mine (blocks->count[rank]) to the reduction of block `rank` of all ranks; mine may be that block. First each
 * node reduces, then the sums of the other nodes are added to that of the rank's own, in the order of their lowest
 * ranks. The other blocks are overwritten. */
void coll_two_level_reduce_scatter(struct coll_schedule *schedule, const struct coll_blocks *blocks, void *mine);
