/* Sums over nodes of compressed arrays (strategy.compress): each node sends an approximation C(p) of its part, and all
 * nodes get the same bits of sum over nodes C(p). What a node did not send it adds to what it sends next time:
 *
 *   p = g + e;   send C(p);   e = p - C(p)                                        (error feedback)
 *
 * (Seide et al.: 1-bit stochastic gradient descent, Interspeech 2014; Karimireddy et al.: Error feedback fixes SignSGD
 * and other gradient compression schemes, ICML 2019). g is the gradient, not the step rate * g: at a constant rate the
 * two are the same, and any optimizer can follow, as in PowerSGD's algorithm 2. With local steps it is what a replica
 * has moved since the latest exchange (mpi/sync/replicas_exchange.c). With strategy.error_feedback=no e is 0, for
 * comparison.
 *
 * A rank has slices of the flat arrays, those that it sums with the ranks of the other nodes that have the same ones.
 * Of each slice it begins the sum, tests and waits for it, as for a non-blocking all-reduce. Several may be in
 * progress: all messages go from point to point, with tags of their slice, so later rounds need no order among slices.
 * Statistics (nn/optimizer.h) behind the trained elements are summed in float32, whatever the compressor. */
#pragma once

#include "train/strategy.h"

struct compressor;

/* Elements [low, high) of the flat arrays, and the ranks of all nodes that have them. Not owned. */
struct compress_slice {
  size_t low, high;
  struct trm_comm *nodes;
};

/* Allocates the memory of a rank, for slices (slices) in ascending order: those of one communicator are the same on all
 * its ranks. Keeps the errors in the strategy's local state. Not collective. TRM_FAILED: out of memory, or more slices
 * than tags. After a failure there is nothing to free. */
int compressor_create(struct compressor **compressor, struct trm_strategy *strategy,
                      const struct compress_slice *slice, int slices);
void compressor_free(struct compressor **compressor); /* NULL is allowed */

/* Adds a sum of all slices to what an exchange sends and computes; sets its rounds. */
void compressor_describe(const struct compressor *compressor, struct trm_exchange *exchange);

/* Begins the sum of a slice. data: its first element; the sum replaces what it has, and it must stay untouched until
 * then. The update's number is strategy->updates. All ranks begin the same slices, in ascending order. */
void compressor_begin(struct compressor *compressor, int slice, float *data);
/* Returns true if the sum is in data, or none has begun. Takes all slices in progress further, but never blocks. */
bool compressor_test(struct compressor *compressor, int slice);
void compressor_wait(struct compressor *compressor, int slice);
