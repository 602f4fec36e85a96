/* One array of weights that the ranks of a node change on copies of their own, merged now and then, as HogWild++ does
 * with many arrays (Zhang, Hsieh & Akella 2016).
 *
 * Ranks that write to the same small array at every moment wait for its cache lines more than they compute: each line
 * comes alone, when it is needed. A merge passes over the array from one end to the other, so that many are under way
 * at once, and brings both ways in one pass: the array gets what this rank has changed since its last merge, the copy
 * what others have. The array is cut into pieces, each with a gate; ranks that merge at the same time begin at
 * different ones.
 *
 * What counts: a weight that nobody else has changed since this rank's last merge takes its value; one that others have
 * changed as well moves by 1 / (ranks of the node) of this rank's change. So ranks that push a frequent feature from
 * the same place in the same direction do not go too far together, as they would if all changes were added, and a rare
 * one learns as fast as it does alone, which it would not if whole models were averaged (Zinkevich et al. 2010).
 * Measured in tests/bench/README.md. */
#ifndef TRM_MPI_ASYNC_WEIGHT_COPY_H
#define TRM_MPI_ASYNC_WEIGHT_COPY_H

#include "core/comm.h"

struct weight_copy {
  struct trm_comm *node; /* not owned */
  float *array;          /* (elements) shared by the ranks of the node, not owned */
  float *base;           /* (elements) the copy as it was after the latest merge */
  size_t elements;
  struct trm_shared locks;
};

/* Collective over the node. array: in memory that its ranks share. */
int weight_copy_create(struct weight_copy *state, struct trm_comm *node, float *array, size_t elements);
void weight_copy_free(struct weight_copy *state); /* collective; of one that is all 0, too */

/* The copy becomes what the array is. */
void weight_copy_pull(struct weight_copy *state, float *copy);
/* Where one rank alone merges, the array becomes its copy, bit for bit. */
void weight_copy_merge(struct weight_copy *state, float *copy);

#endif
