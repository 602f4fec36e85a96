/* Shared by the files of the synchronous method over shared memory: sync.c makes the steps, sync_arrays.c the arrays,
 * buckets and communicators. */
#pragma once

#include "core/counter.h"
#include "core/mapped.h"
#include "core/recordings.h"
#include "mpi/sync/sync.h"

/* In elements. Buckets and slices begin at multiples of SYNC_UNIT, and the norm for clipping is added unit by unit, so
 * that its bits do not depend on the layout. A block, of at most SYNC_BLOCK, is summed and updated while it is in the
 * cache. */
#define SYNC_UNIT ((size_t)4096)
#define SYNC_BLOCK (32 * SYNC_UNIT)

struct bucket {
  struct interval full, slice; /* the whole bucket; this rank's slice of it */
  struct trm_request *request; /* of its all-reduce between the nodes */
};

/* A rank's progress, read by the other ranks of its node. A cache line. */
struct progress_flag {
  _Alignas(64) struct trm_counter gradients_complete; /* elements since create: a step has strategy->elements of them */
  struct trm_loss_sums sums; /* this rank's, set before the step's first elements, unchanged until the step's end */
};

/* Counters and flags in memory shared by the ranks of a node. */
struct node_shared {
  _Alignas(64) struct trm_counter blocks_taken; /* blocks, since create, that a rank has taken to update */
  struct progress_flag progress[];              /* (node->size) */
};

/* An array (elements), one for the node or one for each of its ranks, on the device: private if the node is one rank,
 * else shared by the node; or a file mapped by the node. */
struct array {
  float *data;
  struct trm_shared shared;
  struct trm_mapped mapped;
};

struct sync {
  struct trm_comm *node;  /* the ranks that share the arrays */
  struct trm_comm *cross; /* one rank per node: those with this rank's number in its node */
  struct array w, gradients, state[TRM_MAX_STATES - 1]; /* gradients: one for each rank */
  struct array rounded;  /* strategy->rounded, in half the floats */
  const float **addends; /* (node->size) scratch: gradients of the node's ranks */
  size_t block;          /* elements of a block: a rank's share of the arrays, if that is less than SYNC_BLOCK */
  float *block_sum;      /* device, (block) */

  struct bucket *bucket; /* (buckets) ascending */
  int buckets;
  uint64_t steps;        /* since create */
  int buckets_begun;     /* in this step: summed over the node, and their all-reduce begun */

  /* shared by the node */
  struct trm_shared scratch;
  struct node_shared *node_shared;
  double *unit_norms;        /* (units) squared norms, if gradients are clipped */
  double (*tensor_norms)[2]; /* (trm_optimizer_norm_count) if the rule has trust ratios */

  float *ratios; /* device, (tensors) trust ratios; private */
  double (*device_norms)[2]; /* (tensors) of one rank, whose device's memory is not the host's */
  float *view[TRM_MAX_STATES]; /* host, (elements): copies for checkpoints, from the first one on, of arrays in the
                                  device's own memory */
  struct trm_recordings updates; /* of one rank alone */
};

static inline size_t sync_units(size_t elements)
{
  return (elements + SYNC_UNIT - 1) / SYNC_UNIT;
}

static inline bool sync_has_other_nodes(const struct sync *s)
{
  return s->cross->size > 1;
}

/* Collective. Selects the implementation of synchronous training for the options, ranks and device of a run. */
const struct trm_strategy_ops *sync_select(const struct trm_strategy *strategy);
/* Collective over strategy->comm. Makes the communicators, defines the buckets, allocates all memory; sets w, g,
 * eval_weights, batch_shard and batch_shards. */
int sync_create(struct trm_strategy *strategy);
void sync_destroy(struct trm_strategy *strategy); /* collective */

/* Sets state to the addresses of element `at` in the states; NULL beyond the last. */
void sync_states_at(const struct sync *s, size_t at, float *state[TRM_MAX_STATES - 1]);

/* Slot step of one rank alone, which has strategy->now (sync_alone.c). */
int sync_alone_step(struct trm_strategy *strategy, struct trm_loss_sums *sums);
