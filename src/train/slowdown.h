/* Computing times on purpose: some ranks slower than others (run.slow), times that differ from batch to batch
 * (run.jitter), and modeled times in place of real ones (device.compute=sleep), so that many ranks on few cores meet
 * one another as many machines would. A gradient stays what it is; only when it is ready changes. */
#ifndef TRM_TRAIN_SLOWDOWN_H
#define TRM_TRAIN_SLOWDOWN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/comm.h"
#include "core/options.h"

enum trm_jitter { TRM_JITTER_NONE, TRM_JITTER_LOGNORMAL, TRM_JITTER_EXPONENTIAL };

struct trm_slowdown {
  bool modeled;           /* modeled times */
  double seconds_per_flop, flop_per_row; /* modelled, of a rank that is not slow */
  double slow_factor;           /* this rank's factor, at least 1 */
  enum trm_jitter jitter;
  double sigma;          /* lognormal */
  uint64_t seed;
  int rank;
  uint64_t batches, overruns; /* held so far; of them: those that took longer than modelled */
  double overrun_s;              /* seconds, all overruns together */
};

/* Reads run.slow, run.jitter, device.compute and device.gflops for rank `rank` of `size`. flop_per_row: floating-point
 * operations of the gradient of one row. TRM_USAGE, the same on every rank: an option's text is wrong, or names a rank
 * that there is not. Nothing to release. */
int trm_slowdown_create(struct trm_slowdown *slowdown, const struct trm_options *options, int rank, int size,
                        double flop_per_row);

double trm_slowdown_clock(void); /* seconds, CLOCK_MONOTONIC */

/* Factor by which this rank's time for the batch is longer: a pure function of seed, rank and batch. lognormal:
 * exp(sigma z), z standard normal, of median 1; exponential: of mean 1; without jitter 1. */
double trm_slowdown_factor(const struct trm_slowdown *slowdown, uint64_t batch);

/* Seconds that a part of the work on a batch is to last: `flop` operations of it have taken `took`. Overruns are
 * counted. */
double trm_slowdown_duration(struct trm_slowdown *slowdown, double flop, double elapsed_s, uint64_t batch);

/* After the gradient of `rows` rows of batch number `batch` is computed, before it is handed on: returns when it is to
 * be ready. began_s: trm_slowdown_clock() when its computation began. Signals do not shorten it.
 *   modelled  began_s + rows * flop_per_row * seconds_per_flop * slow * factor; an overrun is counted if that has
 *             passed already
 *   real      the time that has passed, lengthened to max(1, slow * factor) times itself */
void trm_slowdown_wait(struct trm_slowdown *slowdown, double began_s, size_t rows, uint64_t batch);

/* Collective, at the end of a run: rank 0 warns of the batches of all ranks that took longer than modelled, if there
 * are any: then the run was not the one that was asked for. */
void trm_slowdown_report(const struct trm_slowdown *slowdown, struct trm_comm *comm);

#endif
