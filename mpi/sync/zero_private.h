/* What the files of sharded data parallelism have in common: zero.c makes the passes and steps, zero_arrays.c cuts and
 * takes the memory, zero_exchange.c brings weights and gradients to where they belong, zero_state.c is for
 * checkpoints. */
#ifndef TRM_MPI_SYNC_ZERO_PRIVATE_H
#define TRM_MPI_SYNC_ZERO_PRIVATE_H

#include <stdatomic.h>

#include "core/mapped.h"
#include "mpi/sync/sync.h"

/* Shards are whole lines of memory. Elements. */
#define ZERO_ALIGN ((size_t)16)

/* An interval of the flat arrays that is divided evenly over the ranks: rank r has [low + r part, low + (r + 1) part),
 * as far as the interval goes; what is beyond is padding, which travels and is never read. */
struct chunk {
  size_t low, high;
  size_t shard_size; /* of a rank */
  size_t shard_offset;  /* where this rank's part is in its arrays of shards */
};

/* Layers that come and go together. */
struct unit {
  size_t low, high; /* elements of the flat arrays: whole layers */
  size_t capacity;      /* elements of a buffer for it: the sum of size * part */
  size_t shard_size;      /* the sum of part */
  int first_chunk, last_chunk;  /* pieces [first, last) */
  int rotating_slot;         /* its slot where units take turns */
  bool tied;      /* used at both ends of the chain: no other one has that slot */
  bool accumulated;      /* this step's shard of the gradient has a sum already */
};

/* A buffer in which units take turns, or which is one unit's for good. */
struct slot {
  float *data;                  /* device, (room) */
  float *host;                  /* what the network sees of it: data, or a copy on the host */
  size_t capacity;
  int unit;                     /* whose values it has; -1: nobody's */
  int array;                    /* weights: 0, or the state that is in their place */
  int users;                     /* layers that work with it */
  bool in_flight;               /* to be finished (zero_exchange.c) */
  uint64_t completed;               /* gradients: how often */
  struct trm_request **request; /* (most pieces of a unit) */
  float *received;                   /* gradients: host, (most parts of a unit), once it is needed */
};

struct slots {
  struct slot *slot;
  int count;
  bool per_unit;      /* each unit has its own, by its number */
  float *memory; /* then: device, of all */
};

/* How far a rank is with a slot of gradients, for the others of its node. A cache line. */
struct zero_progress_flag {
  _Alignas(64) _Atomic uint64_t completed; /* times that it was complete */
  _Atomic uint64_t summed;             /* times that this rank has added its part of all ranks' */
};

struct zero {
  int level;
  struct trm_comm *group; /* those who divide the arrays among them */
  struct trm_comm *cross; /* one rank of each group, those of the same place; NULL: there is one group */
  bool cross_reduced;           /* this step's shards are sums over all groups */
  bool node_shared;          /* the group shares memory: weights stand there, gradients are read where they were made */
  struct trm_shared w_shared, average_shared, g_shared, scratch; /* then */
  struct zero_progress_flag *progress; /* (group->size, turns) */
  const float **addends;     /* (1 + group->size) what is added */
  struct trm_param_provider provider;
  struct unit *unit;   /* (units) ascending */
  int units, rotating_slots;    /* slots where they take turns */
  struct chunk *chunk; /* (pieces) */
  int chunks, max_chunks;
  size_t trainable, statistics;
  size_t shard_size;        /* elements of this rank's arrays of shards */

  float *w;            /* device, (shard); NULL: the slots have all weights */
  float *g;            /* device, (shard): sums of this step */
  float *state[TRM_MAX_STATES - 1]; /* device, (shard); NULL: slots of averages have all of them */
  struct trm_mapped mapped[TRM_MAX_STATES - 1]; /* where states are in files: their memory */
  float *received;         /* device, (largest part of a unit): a sum from the host; NULL: its memory is the same */
  struct slots weights, gradients, averages; /* the last: for evaluations, where weights do not take turns */

  /* statistics: every rank has them whole */
  float *w_statistics, *g_statistics, *statistics_sum, *average_statistics; /* device, (statistics) each */
  float *host_statistics;    /* (statistics) */
  double (*norms)[2];   /* (2, tensors) */
  float *ratios;        /* (tensors) */
  float *view[TRM_MAX_STATES]; /* host, (elements), on rank 0, from the first collect on */
};

/* What this rank has of a piece: [low, high) of the flat arrays; empty where the rank has padding alone. */
struct zero_interval {
  size_t low, high;
};
struct zero_interval zero_shard_interval(const struct chunk *chunk, int rank);

/* The unit of a trained element. */
int zero_unit_at(const struct zero *z, size_t element);

/* Where this rank has its part of a piece of unit u: of the weights (array 0), of a state (array > 0). Device. */
float *zero_shard_data(const struct zero *z, int array, int u, const struct chunk *chunk);

/* -- zero_arrays.c. Collective over strategy->comm. create cuts the units and takes all memory; after a failure, which is
 * that of every rank, destroy releases what there is. */
int zero_arrays_create(struct trm_strategy *strategy);
void zero_arrays_destroy(struct trm_strategy *strategy);

/* -- zero_exchange.c. All are called by all ranks in the same order, but those that say so. */

/* A unit's weights, or in their place a state (array > 0), for the time until give. */
float *zero_weights_acquire(struct trm_strategy *strategy, int unit, int array);
void zero_weights_release(struct trm_strategy *strategy, int unit, int array); /* of one rank */
/* Begins to bring them, if there is room. */
void zero_weights_prefetch(struct trm_strategy *strategy, int unit, int array);
/* The shards have changed: nothing of what the slots have is valid, those that have all weights get them. */
void zero_weights_invalidate(struct trm_strategy *strategy);
/* Barrier of the group, after what this rank has given its device to do. */
void zero_group_barrier(struct trm_strategy *strategy);
/* Ends what is under way. */
void zero_weights_wait(struct trm_strategy *strategy);

/* The buffer for a unit's gradient: what went out of it before is done. */
float *zero_gradient_acquire(struct trm_strategy *strategy, int unit);
/* It is complete on this rank: begins its way to the ranks' shards. */
void zero_gradient_release(struct trm_strategy *strategy, int unit);
/* All that was given is part of the shards. */
void zero_gradients_finish(struct trm_strategy *strategy);

/* -- zero_state.c: slots of the strategy */
int zero_read(struct trm_strategy *strategy, int state, size_t low, size_t n, float *to);
int zero_write(struct trm_strategy *strategy, int state, size_t low, size_t n, const float *from);
int zero_collect(struct trm_strategy *strategy, const float *view[TRM_MAX_STATES]);
int zero_restore(struct trm_strategy *strategy, const float *const from[TRM_MAX_STATES], uint64_t updates);

#endif
