/* What the two files of the synchronous method over shared memory have in common: sync.c makes the steps, sync_arrays.c
 * all that they work on. */
#ifndef TRM_MPI_SYNC_SYNC_PRIVATE_H
#define TRM_MPI_SYNC_SYNC_PRIVATE_H

#include <stdatomic.h>

#include "core/mapped.h"
#include "mpi/sync/sync.h"

/* Elements. Buckets and slices begin at multiples of SYNC_UNIT, and the norm for clipping is added unit by unit: so that its
 * bits do not depend on who owns what. SYNC_BLOCK is what is added and updated while it is in the cache. */
#define SYNC_UNIT ((size_t)4096)
#define SYNC_BLOCK (32 * SYNC_UNIT)

struct interval {
  size_t low, high; /* elements of the flat arrays */
};

struct bucket {
  struct interval full, slice;
  struct trm_request *request; /* its way between the nodes */
};

/* How far a rank is, for the other ranks of its node. A cache line. */
struct progress_flag {
  _Alignas(64) _Atomic uint64_t gradients_complete; /* elements of gradients, since create: a step has `elements` of them */
  double loss;                            /* this rank's part of it in this step, set before the first of them */
};

/* What the ranks of a node tell one another. */
struct node_shared {
  _Alignas(64) _Atomic uint64_t blocks_taken; /* blocks, since create, that have been taken to be updated */
  struct progress_flag progress[];                  /* (node->size) */
};

/* An array (elements) on the device: of this rank alone where the node is one rank, else shared by the node; or in a
 * file that the node maps. */
struct array {
  float *data;
  struct trm_shared shared;
  struct trm_mapped mapped;
};

struct sync {
  struct trm_comm *node;  /* the ranks that share the arrays */
  struct trm_comm *cross; /* one rank a node: those with this rank's place in it */
  struct trm_comm *all;   /* everybody, in order of strategy->index */
  struct array w, state[TRM_MAX_STATES - 1];
  struct trm_shared gradients; /* one whole array a rank */
  const float **g, **addends;     /* (node->size) the gradients of the node's ranks; those places in them that are added */
  float *block_sum;                 /* device, (SYNC_BLOCK) */

  struct bucket *bucket; /* (buckets) ascending */
  int buckets;
  uint64_t steps; /* since create */
  int buckets_begun;      /* buckets, in this step: added up and sent on their way */

  /* shared by the node */
  struct trm_shared scratch;
  struct node_shared *node_shared;
  double *unit_norms;       /* (units) sums of squares, where gradients are clipped */
  double (*tensor_norms)[2]; /* (pieces of nn/optimizer.h) where the rule has ratios */

  float *ratios; /* (tensors) of each its ratio, in this rank's own memory */
};

static inline size_t sync_units(size_t elements)
{
  return (elements + SYNC_UNIT - 1) / SYNC_UNIT;
}

static inline bool sync_has_other_nodes(const struct sync *s)
{
  return s->cross->size > 1;
}

/* Collective. Makes the groups, cuts the buckets, takes all memory; sets w, g, evaluated, index and parts. */
int sync_create(struct trm_strategy *strategy);
void sync_destroy(struct trm_strategy *strategy); /* collective */

#endif
