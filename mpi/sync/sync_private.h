/* Shared by the files of the synchronous method over shared memory: sync.c makes the steps, sync_node.c the sums of a
 * node, sync_between_nodes.c those over the nodes, sync_clip.c the norms that gradients are clipped by,
 * sync_update.c the updates, sync_arrays.c the arrays, buckets and communicators. */
#pragma once

#include "core/counter.h"
#include "core/mapped.h"
#include "core/recordings.h"
#include "mpi/compress/compressor.h"
#include "mpi/sync/sync.h"

/* In elements. Buckets and slices begin at multiples of SYNC_UNIT, and the norm for clipping is added unit by unit, so
 * that its bits do not depend on the layout. A block, of at most SYNC_BLOCK, is summed and updated while it is in the
 * cache. */
#define SYNC_UNIT ((size_t)4096)
#define SYNC_BLOCK (32 * SYNC_UNIT)

/* A slice of a bucket that this rank owns. */
struct bucket {
  struct interval full, slice; /* the whole bucket; the slice */
  struct trm_comm *cross;      /* the owners of the slice, one in each node; one of sync->cross */
  struct trm_request *request; /* of its sum over the nodes */
  double began;                /* seconds of cross's clock: when the sum began */
};

/* The sum of the losses over the nodes. */
struct losses {
  struct trm_loss_sums sums;
  struct trm_request *request;
};

/* Facts about an interval of this rank's gradient, each of which includes the one before. */
enum sync_progress {
  SYNC_FINAL,    /* it is final */
  SYNC_RELEASED, /* and the backward pass of its layers is over: this rank does not read their weights any more */
  SYNC_PROGRESS
};

/* A rank's progress, read by the other ranks of its node. Cache lines of its own. */
struct progress_flag {
  /* by enum sync_progress: elements since create; a step has strategy->elements of them */
  _Alignas(64) struct trm_counter upto[SYNC_PROGRESS];
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
  /* (crosses) of each slice of a bucket that this rank owns: the slice's owners, one in each node, in the order of the
   * nodes. More than one only on a node with fewer ranks than another has. */
  struct trm_comm **cross;
  struct losses *losses; /* (crosses) */
  int crosses;
  int slices, first_slice; /* of a bucket; the first of those that this rank owns */
  struct array w, gradients, state[TRM_MAX_STATES - 1]; /* gradients: one for each rank */
  struct array rounded;  /* strategy->rounded, in half the floats */
  const float **addends; /* (node->size) scratch: gradients of the node's ranks */
  size_t block;          /* elements of a block: a rank's share of the arrays, if that is less than SYNC_BLOCK */
  float *block_sum;      /* device, (block) */

  struct bucket *bucket; /* (buckets) ascending */
  int buckets;
  struct compressor *compressor; /* of the sums over the nodes, a slice for each bucket; NULL: all-reduces */
  uint64_t steps;        /* since create */

  /* of this step */
  bool losses_begun, losses_known;
  int summed;  /* buckets that are summed over the node */
  bool clipped; /* these are all, and the node's gradient is clipped */
  int begun;   /* buckets whose sum over the nodes has begun */
  int arrived; /* buckets whose sum over the nodes has arrived */
  int updated; /* buckets whose weights, or with sync_update_is_whole norms, are made */

  int on_wire;          /* sums between nodes that have begun and not arrived */
  double on_wire_since; /* seconds: when the first of them began */

  /* shared by the node */
  struct trm_shared scratch;
  struct node_shared *node_shared;
  double *unit_norms;        /* (units) squared norms, if gradients are clipped */
  double (*tensor_norms)[2]; /* (trm_optimizer_norm_count) if the rule has trust ratios */

  float *matrices; /* device, (trm_muon_scratch) */
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
  return s->cross[0]->size > 1;
}

/* Collective. Selects the implementation of synchronous training for the options, ranks and device of a run. */
const struct trm_strategy_ops *sync_select(const struct trm_strategy *strategy);
/* Collective over strategy->comm. Makes the communicators, defines the buckets, allocates all memory; sets w, g,
 * eval_weights, batch_shard and batch_shards. */
int sync_create(struct trm_strategy *strategy);
void sync_destroy(struct trm_strategy *strategy); /* collective */

/* -- sync_node.c */

/* Barrier of the node, after this rank's device has finished. */
int sync_node_barrier(struct trm_strategy *strategy);
/* Publishes to the node that `progress` is true of this rank's gradients up to element `high`; sums: of this rank, in
 * this step. */
int sync_node_publish(struct trm_strategy *strategy, enum sync_progress progress, size_t high,
                      const struct trm_loss_sums *sums);
/* Returns true if `progress` is true up to element `high` on all ranks of the node; await: waits for it. */
bool sync_node_has(const struct trm_strategy *strategy, enum sync_progress progress, size_t high);
void sync_node_await(struct trm_strategy *strategy, enum sync_progress progress, size_t high);
/* Sums the gradients of the node into this rank's slice of its own gradient array, which no other rank reads. */
void sync_node_sum_slice(struct trm_strategy *strategy, struct interval slice);
/* Sums the losses of the node's ranks in a binary tree. They must have been published. */
void sync_node_sum_losses(const struct sync *s, struct trm_loss_sums *sums);
/* One node: sums and updates block after block, while the sum is in the cache, together with the other ranks. One rank
 * takes each block, once it is released on all ranks. The bits do not depend on which rank it is. Ends when all blocks
 * are taken, or when the loss is not finite. */
void sync_node_update(struct trm_strategy *strategy, const struct trm_update *update);

/* -- sync_clip.c */

/* Adds the elements of a slice of strategy->g to the squared norm that sync_clip_norm returns, unit by unit: the same
 * bits on every rank of any layout. */
void sync_clip_add(struct trm_strategy *strategy, struct interval slice);
/* Computes the squared norm of the whole model's gradient, after all slices of the node have been added once.
 * Collective over the node and strategy->norm_comm. */
int sync_clip_norm(struct trm_strategy *strategy, double *norm_squared);

/* Returns TRM_USAGE if nodes clip their gradients, and the ranks that have the parts of a node's model are not the same
 * ones for all parts. Collective over strategy->norm_comm. */
int sync_clip_check(const struct trm_strategy *strategy);
/* Clips the node's gradient (strategy->node_clip), which is summed and added up: strategy->g in the slices that this
 * rank owns. Collective over the node and strategy->norm_comm. */
int sync_clip_node(struct trm_strategy *strategy);

/* -- bucket_sum.c: the rest of the method knows no more of how nodes add a slice */

/* Makes the compressor, where the run has one and there are other nodes. sync_destroy frees it. Not collective. */
int sync_bucket_sums_create(struct trm_strategy *strategy);
/* Sets strategy->exchange. */
void sync_bucket_sums_describe(struct trm_strategy *strategy);

/* Begins to add this rank's slice of a bucket, strategy->g there, to those of the other nodes. With lanes in the order
 * of the tree. Collective over bucket->cross, as test and wait are together: all owners begin buckets in one order. */
void sync_bucket_sum_begin(struct trm_strategy *strategy, struct bucket *bucket);
/* Returns true if the sum is there; does not wait. Its bits do not depend on when it is called. */
bool sync_bucket_sum_test(struct trm_strategy *strategy, struct bucket *bucket);
void sync_bucket_sum_wait(struct trm_strategy *strategy, struct bucket *bucket);

/* -- sync_between_nodes.c, also where there is no other node */

/* Begins the sums over the nodes that can begin, and notes those that have arrived. Does not wait. */
int sync_between_nodes_advance(struct trm_strategy *strategy);
/* Waits for the sum of the losses, which must have begun. TRM_FAILED on every rank if it is not finite. */
int sync_between_nodes_losses(struct trm_strategy *strategy, struct trm_loss_sums *sums);
/* Waits for the next bucket, which must have begun. */
void sync_between_nodes_await_bucket(struct trm_strategy *strategy);

/* -- sync_update.c */

/* Sets state to the addresses of element `at` in the states; NULL beyond the last. */
void sync_states_at(const struct sync *s, size_t at, float *state[TRM_MAX_STATES - 1]);
/* Updates elements [at, at + n); g: their gradient, (n). */
void sync_update_apply(struct trm_strategy *strategy, const struct trm_update *update, const float *g, size_t at,
                       size_t n);
/* Returns true if the update needs norms of the whole gradient: clipping, trust ratios. */
bool sync_update_is_whole(const struct trm_strategy *strategy);
/* Updates this rank's slice of a bucket that has arrived or, if the update is whole, computes its norms. */
void sync_update_bucket(struct trm_strategy *strategy, const struct bucket *bucket);
/* Makes the updates of all buckets after their norms. Collective over the model's ranks. */
int sync_update_whole(struct trm_strategy *strategy);

/* Slot step of one rank alone, which has strategy->now (sync_alone.c). */
int sync_alone_step(struct trm_strategy *strategy, struct trm_loss_sums *sums);
