/* Per-rank copies of weights shared by a node, merged periodically, as in HogWild++ (Zhang, Hsieh & Akella 2016).
 *
 * Ranks that constantly write one small array spend more time waiting for cache lines than computing. A merge is one
 * pass over the array, so that many lines are in flight at once, and transfers changes both ways: the array gets this
 * rank's since its last merge, the copy those of others. The array is divided into chunks with a lock each; concurrent
 * merges start at different chunks.
 *
 * The rule: a weight that no other rank has changed since this rank's last merge gets this rank's value; one that
 * others have changed, too, moves by 1 / (ranks of the node) of this rank's change. So steps of several ranks on a
 * frequent feature do not add up to too large a step, and a rare feature learns as fast as on one rank, unlike with
 * averaging of whole models (Zinkevich et al. 2010). Measured in tests/bench/README.md. */
#pragma once

#include "core/comm.h"

struct weight_copy {
  struct trm_comm *node; /* not owned */
  float *array;          /* (elements) shared by the ranks of the node, not owned */
  float *base;           /* (elements) the copy after the latest merge */
  size_t elements;
  struct trm_shared locks;
};

/* Collective over the node. array (elements): in memory that its ranks share. */
int weight_copy_create(struct weight_copy *state, struct trm_comm *node, float *array, size_t elements);
void weight_copy_free(struct weight_copy *state); /* collective; zeroed: no effect */

/* Copies the shared array into copy (elements). */
void weight_copy_pull(struct weight_copy *state, float *copy);
/* Merges copy (elements) with the shared array. If no other rank merges, the array becomes the copy, bit for bit. */
void weight_copy_merge(struct weight_copy *state, float *copy);
