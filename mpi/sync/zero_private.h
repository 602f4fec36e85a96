/* Shared by the files of sharded data parallelism: zero.c has the parameter provider and the step, zero_arrays.c
 * defines units and allocates memory, zero_exchange.c gathers weights and reduces gradients, zero_state.c is for
 * checkpoints. */
#pragma once

#include "core/counter.h"
#include "core/mapped.h"
#include "mpi/sync/sync.h"

/* Shards are multiples of a cache line. Elements. */
#define ZERO_ALIGN ((size_t)16)

/* An interval of the flat arrays that is divided evenly: rank r's shard is [low + r shard_size,
 * low + (r + 1) shard_size), cut off at high; the rest is padding, which is sent and never read. */
struct chunk {
  size_t low, high;    /* elements of the flat arrays */
  size_t shard_size;   /* elements of each rank */
  size_t shard_offset; /* offset of this rank's shard in its arrays of shards */
  int unit;            /* that it is a part of */
};

/* Layers whose weights are gathered, and gradients reduced, together (FSDP unit). */
struct unit {
  size_t low, high;            /* elements of the flat arrays: whole layers */
  size_t capacity;             /* elements of a buffer for it: its padded chunks */
  size_t shard_size;           /* elements of each rank, over all its chunks */
  int first_chunk, last_chunk; /* chunks [first_chunk, last_chunk) */
  int rotating_slot;           /* number of its slot where units share slots */
  bool tied;                   /* weights used at both ends of the chain: no other unit has that slot */
  bool accumulated;            /* its gradient shard has an earlier micro-batch's sum of this step */
};

/* A buffer that units use in turn, or that belongs to one unit. */
struct slot {
  float *data;                  /* (capacity) */
  size_t capacity;
  int unit;                     /* unit whose values it has; -1: none */
  int array;                    /* weights: 0; > 0: a state instead */
  int users;                    /* layers that have it acquired */
  bool in_flight;               /* a collective on it is in flight */
  int64_t completed;            /* gradients: number of completions on this rank */
  struct trm_request **request; /* (max_chunks) */
  float *received;              /* gradients: (shard of a unit), from its first use on; NULL before */
};

struct slots {
  struct slot *slot; /* (count) */
  int count;
  bool per_unit;     /* each unit has its own, by its number; otherwise rotating_slot */
  float *memory;     /* device: data of all slots */
  struct trm_shared shared; /* node_shared: that memory */
};

enum { ZERO_MAX_ARRAYS = 16 };

/* A rank's progress with a slot of gradients, read by the other ranks of its node. A cache line. */
struct zero_progress_flag {
  _Alignas(64) struct trm_counter completed; /* number of completions of its gradients */
  struct trm_counter summed;                 /* number of times that this rank has summed its shard */
};

struct zero {
  int level;
  struct trm_comm *group; /* the ranks that shard the arrays among them */
  struct trm_comm *cross; /* the ranks of all groups with the same shards; NULL: there is one group */
  bool cross_reduced;     /* this step's shards are sums over all groups */
  bool node_shared;       /* the group shares memory: one copy of the weights, gradients are summed in place */
  struct trm_shared scratch;           /* node_shared: memory of progress */
  struct zero_progress_flag *progress; /* node_shared: (group->size, rotating_slots) */
  const float **addends;               /* node_shared: (1 + group->size) scratch */
  struct trm_param_provider provider;
  struct unit *unit;         /* (units) ascending */
  int units, rotating_slots; /* rotating_slots: slots where units share them */
  struct chunk *chunk;       /* (chunks) */
  int chunks, max_chunks;    /* max_chunks: of a unit */
  size_t trainable, statistics;
  size_t shard_size;         /* elements of this rank's arrays of shards */

  float *w;                                     /* device, (shard_size); NULL: the slots have all weights */
  float *g;                                     /* device, (shard_size): sums of this step */
  float *state[TRM_MAX_STATES - 1];             /* device, (shard_size); NULL: the slots of averages have it */
  struct trm_mapped mapped[TRM_MAX_STATES - 1]; /* parallel.offload: memory of the states */
  struct slots weights, gradients, averages;    /* averages: optim.ema, where each unit has slots of weights */
  void *array[ZERO_MAX_ARRAYS];                 /* (arrays) device: all that are private to this rank */
  int arrays;

  /* statistics: whole on every rank */
  float *w_statistics, *g_statistics, *statistics_sum, *average_statistics; /* device, (statistics) each */
  float *host_statistics;    /* (statistics) */
  double (*norms)[2];   /* (2, tensors) sums; those of one shard */
  float *ratios;        /* (tensors) trust ratios */
  float *view[TRM_MAX_STATES]; /* host, (elements), on rank 0, from the first collect on */
};

/* A rank's shard of a chunk; empty if it is padding alone. */
struct interval zero_shard_interval(const struct chunk *chunk, int rank);

/* Returns the unit of a trained element. */
int zero_unit_at(const struct zero *z, size_t element);

/* This rank's shard of a chunk, device: of the weights (array 0) or of a state (array > 0). */
float *zero_shard_data(const struct zero *z, int array, const struct chunk *chunk);

/* -- zero_arrays.c. Collective over strategy->comm. create defines the units and allocates all memory; a failure is
 * that of every rank, and destroy then releases everything. */
int zero_arrays_create(struct trm_strategy *strategy);
void zero_arrays_destroy(struct trm_strategy *strategy);

/* -- zero_exchange.c. Collective over the group: all ranks call them in the same order, except zero_weights_release. */

/* Gathers a unit's weights, or a state instead (array > 0): device, valid until release. */
float *zero_weights_acquire(struct trm_strategy *strategy, int unit, int array);
void zero_weights_release(struct trm_strategy *strategy, int unit, int array); /* not collective */
/* Starts gathering them if their slot is free. */
void zero_weights_prefetch(struct trm_strategy *strategy, int unit, int array);
/* After the shards have changed: marks all slots invalid, and begins to gather the units of the next forward pass. */
void zero_weights_invalidate(struct trm_strategy *strategy);
/* Barrier of the group, after this rank's device has finished. */
void zero_group_barrier(struct trm_strategy *strategy);
/* Completes all gathers that have begun. */
void zero_weights_wait(struct trm_strategy *strategy);

/* Returns the buffer for a unit's gradient, device; completes the reduce-scatter started from it before. */
float *zero_gradient_acquire(struct trm_strategy *strategy, int unit);
/* Begins the reduce-scatter of a unit's gradient, which is complete on this rank. */
void zero_gradient_release(struct trm_strategy *strategy, int unit);
/* Completes all reduce-scatters: the shards hold the sums over all ranks. */
void zero_gradients_finish(struct trm_strategy *strategy);

/* -- zero_state.c: slots of the strategy */
int zero_read(struct trm_strategy *strategy, int state, size_t low, size_t n, float *to);
bool zero_own(const struct trm_strategy *strategy, int state, size_t from, struct trm_own_elements *next);
int zero_write(struct trm_strategy *strategy, int state, size_t low, size_t n, const float *from);
int zero_collect(struct trm_strategy *strategy, const float *view[TRM_MAX_STATES]);
int zero_restore(struct trm_strategy *strategy, const float *const from[TRM_MAX_STATES], uint64_t updates);
