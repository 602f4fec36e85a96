/* Times of collectives on cold arrays, by an algorithm of mpi/coll or the MPI library's own (private to cli). */
#pragma once

#include "cli/bench/bench.h"
#include "mpi/coll/choices.h"

/* Arrays of one rank, together larger than the caches. A batch of rounds begins by filling all of them; then each round
 * uses one of the first half, which the second half has displaced from the caches. */
struct bench_pool {
  char *data; /* page-aligned */
  size_t bytes;
};

/* Bytes of the pool of each of `ranks` ranks of a node for arrays of at most max_bytes. */
size_t bench_pool_bytes(int ranks, size_t max_bytes);
/* Rounds that one batch can have with arrays of `bytes` bytes: at least 1. */
size_t bench_pool_rounds(const struct bench_pool *pool, size_t bytes);
/* Sets every float to `value`. */
void bench_pool_fill(const struct bench_pool *pool, float value);
/* The array of a round, below bench_pool_rounds. */
void *bench_pool_array(const struct bench_pool *pool, size_t bytes, size_t round);

struct bench_collective {
  struct trm_comm *world;     /* times are those of its slowest rank; all of its ranks measure */
  struct trm_comm *comm;      /* of the collective */
  const struct bench_pool *pool;
  enum coll_kind kind;
  const struct coll_ops *ops; /* NULL: the library's own */
  size_t bytes;               /* of the array, of all ranks together for all-gather and reduce-scatter */
  size_t rounds, max_rounds;  /* wanted (0: by time), and room in seconds */
  double *seconds;            /* (max_rounds) */
  size_t measured;            /* rounds, set by bench_collective_run */
};

/* Collective over world. Verifies the result of one round, then measures. The choices of the network are those of this
 * algorithm meanwhile, and none after. */
int bench_collective_run(struct bench_collective *c);

/* Quantiles of the slowest rank's seconds (n), which are sorted. */
struct bench_spread {
  double median, low, high; /* low, high: quartiles */
};
struct bench_spread bench_spread(double *seconds, size_t n);

/* Collective. Measures all algorithms of all kinds for the job's ranks, those of a node and one of each node, up to
 * max_bytes, and writes the fastest to a file of choices (bench_allreduce_tune.c). */
int bench_allreduce_tune(struct trm_job *job, const struct bench_pool *pool, size_t max_bytes, size_t rounds,
                         const char *path);
