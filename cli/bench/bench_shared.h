/* Sums over arrays that the ranks of a node share, as strategy sync makes them (private to cli). */
#pragma once

#include "cli/bench/bench_collective.h"

/* The sum is in rank 0's part of the memory of each node. It is cut into as many slices as the largest node has
 * ranks; a rank adds the arrays of its node in the slices that it owns, and all-reduces these with their owners on
 * other nodes. */
struct bench_shared {
  struct trm_device *device;
  struct trm_comm *comm, *node; /* comm: not owned */
  struct trm_shared inputs, sum;
  struct bench_pool pool;       /* this rank's part of inputs */
  const float **from;           /* (node->size) */
  int slices, first, owned;     /* of each array; the first one that this rank owns, and how many */
  struct trm_comm **cross;      /* (owned) owners of the slice on all nodes */
};

/* Collective over comm. The device's memory is the host's. For bench_shared_close, also after a failure. */
int bench_shared_open(struct bench_shared *shared, struct trm_device *device, struct trm_comm *comm, size_t pool_bytes,
                      size_t max_bytes);
void bench_shared_close(struct bench_shared *shared);

/* Collective. Verifies one sum, then measures `rounds` (0: by time), at most max_rounds: the slowest rank's seconds.
 * Sets *measured to the number of rounds. */
int bench_shared_run(struct bench_shared *shared, size_t bytes, size_t rounds, size_t max_rounds, double *seconds,
                     size_t *measured);
