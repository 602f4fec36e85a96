/* Injected slowdown: stragglers (run.slow), times that vary from batch to batch (run.jitter), outages (run.outages),
 * and modeled in place of measured times (device.compute=sleep), so that many ranks on few cores have the timing of as
 * many machines. Changes the time at which a gradient is ready, never its values.
 *
 * An outage is a time in which a rank computes nothing: a pause, or its failure, which does not end. It answers calls,
 * and takes part in collectives and evaluations. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/comm.h"
#include "core/options.h"
#include "train/costs.h"

enum trm_jitter { TRM_JITTER_NONE, TRM_JITTER_LOGNORMAL, TRM_JITTER_EXPONENTIAL };

enum { TRM_MAX_OUTAGES = 16 }; /* of a rank */

struct trm_outage {
  double from, to; /* seconds since training began; to: INFINITY: the rank fails */
};

struct trm_slowdown {
  /* set by trm_slowdown_create */
  bool modeled;               /* times are modeled: device.compute=sleep, or comm has slot compute */
  double seconds_per_flop, flop_per_row; /* modeled, at slow_factor 1 */
  double slow_factor;         /* this rank's factor of run.slow, at least 1 */
  enum trm_jitter jitter;
  double sigma;               /* of lognormal */
  uint64_t seed;
  int rank;
  struct trm_comm *comm;      /* not owned */
  /* modeled times in place of seconds_per_flop, set by the caller; NULL: none */
  const struct trm_costs *costs;
  const struct trm_model *model; /* of the gradients */
  size_t passes;                 /* that a gradient is computed in */
  size_t pass_rows;              /* of the latest pass; its seconds */
  double pass_s;
  size_t batch_rows;          /* train.batch */
  struct trm_outage outage[TRM_MAX_OUTAGES]; /* (outages) of this rank, ascending */
  int outages;
  bool fails;                 /* the last of them does not end */
  /* set by the caller: a computation for which this returns true is of no use, and ends. It is called with the context
   * as done of wait_at_most (core/comm.h). NULL: all are of use */
  bool (*abandons)(void *context);
  void *abandons_context;
  double abandon_at;          /* comm's clock: the computation is abandoned then; 0: it is not. Set before each one */
  /* set by the caller when training begins */
  double origin_s;            /* comm's clock */
  /* set when it happens */
  bool failed;
  bool abandoned;             /* the latest computation ended before its time */
  /* counted */
  uint64_t batches, overruns; /* durations so far; of them, those whose computation took longer than modeled */
  double overrun_s;           /* seconds, sum over all overruns */
};

/* True if an outage of run.outages does not end. */
bool trm_slowdown_has_failures(const char *outages);

/* Reads run.slow, run.jitter, run.outages, device.compute and device.gflops for comm's rank; comm gives the time, and
 * must outlive the slowdown. flop_per_row: floating-point operations of the gradient of one row. TRM_USAGE, the same on
 * every rank: an option's text is wrong or names a rank that does not exist. Nothing to release. Not collective. */
int trm_slowdown_create(struct trm_slowdown *slowdown, const struct trm_options *options, struct trm_comm *comm,
                        double flop_per_row);

/* Returns the jitter factor of this rank's time for the batch, a pure function of seed, rank and batch. lognormal:
 * exp(sigma z), z standard normal, median 1; exponential: mean 1; without jitter 1. */
double trm_slowdown_factor(const struct trm_slowdown *slowdown, uint64_t batch);

/* Returns the modeled seconds of a gradient of `rows` rows, at slow_factor 1 and without jitter. */
double trm_slowdown_modeled(struct trm_slowdown *slowdown, size_t rows);
/* Returns the seconds that a computation should take; it is modeled to take modeled_s, and took elapsed_s. Counts
 * overruns. */
double trm_slowdown_duration(struct trm_slowdown *slowdown, double modeled_s, double elapsed_s, uint64_t batch);

/* Returns when a computation that takes so many seconds ends by comm's clock: later by the pauses that it overlaps;
 * INFINITY: the rank fails before. */
double trm_slowdown_end(const struct trm_slowdown *slowdown, double began_s, double seconds);

/* Sleeps, after the gradient of `rows` rows of batch number `batch` is computed, until it should be ready. began_s:
 * comm's clock at the start of the computation. Signals do not shorten the sleep.
 *   modeled   until began_s + trm_slowdown_modeled * slow_factor * trm_slowdown_factor; counts an overrun if that time
 *             has passed
 *   measured  until max(1, slow_factor * trm_slowdown_factor) times the elapsed time has passed
 * and longer by the pauses that the computation overlaps. Sets slowdown->failed if the rank fails before. */
void trm_slowdown_wait(struct trm_slowdown *slowdown, double began_s, size_t rows, uint64_t batch);
/* Runs work(context), the computation of the gradient, in its time (NULL: the time passes alone), where comm has slot
 * compute. Returns its status. If the rank fails before its end, sets slowdown->failed; if the computation is
 * abandoned, slowdown->abandoned: work may not have run. */
int trm_slowdown_compute(struct trm_slowdown *slowdown, size_t rows, uint64_t batch, int (*work)(void *context),
                         void *context);

/* Returns true in an outage; sets slowdown->failed if it does not end. rest: sleeps until its end, or for the
 * time of a batch. */
bool trm_slowdown_is_out(struct trm_slowdown *slowdown);
void trm_slowdown_rest(struct trm_slowdown *slowdown);

/* Collective. Warns on rank 0 if any rank had overruns: the run did not have the modeled timing. */
void trm_slowdown_report(const struct trm_slowdown *slowdown, struct trm_comm *comm);
