/* trireme bench rma: one-sided access to another rank's memory, while that rank waits and while it computes.
 *
 * In each measurement rank 1, the origin, repeats one operation and tells rank 0, the target, when it is done. Until
 * then the target does what its mode says (struct target_mode). */
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/bench/bench.h"
#include "cli/bench/bench_rma_ops.h"
#include "cli/planning.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"

static const char usage[] =
  "usage: mpiexec -n N trireme bench rma [--repeat=R] [--sleep=US,...] [--json]\n"
  "\n"
  "Rank 1 reads, writes and adds to memory of rank 0, 8 bytes to 4 MiB at a time; other ranks sleep. Medians of\n"
  "the time of one operation, complete at both ranks. Windows:\n"
  "\n"
  "  mpi     a window of the communicator: get, put, accumulate, fetch_add (of one 64-bit integer)\n"
  "  shared  memory shared by the node, by loads and stores: get and put copy, accumulate adds by compare and swap,\n"
  "          add loads, adds and stores (what two ranks add to one element at a time may be lost), fetch_add\n"
  "\n"
  "What rank 0 does meanwhile:\n"
  "\n"
  "  idle    waits in the communicator: operations follow one another\n"
  "  busy    computes, and calls progress every 20 ms: operations come 0 to 10 ms apart\n"
  "  helper  computes, while a second thread tests for messages 20 times, sleeps, and repeats; operations likewise\n"
  "\n"
  "speed: rank 0's computation meanwhile, relative to that of mode busy without operations.\n"
  "\n"
  "  --repeat=R    rounds (default: as many as fit into 0.2 s, at least 5)\n"
  "  --sleep=US,.. sleep of the helper thread in microseconds (default 50,200,1000)\n"
  "  --json        a JSON object for each operation, size and mode of rank 0\n";

/* -- the measurement */

static const size_t sizes[] = {8, 4096, (size_t)256 << 10, RMA_MAX_BYTES};
enum { SIZES = sizeof sizes / sizeof *sizes, MAX_HELPERS = 8, MAX_ROUNDS = 10000, QUIET_TRIALS = 5, DONE_TAG = 1 };
#define SLICE_S 0.02
#define TRIAL_S 0.2
#define PAUSE_S 0.01

/* Activity of the target during a measurement. */
struct target_mode {
  const char *name;
  bool computes, has_helper;
  int64_t sleep_us;     /* sleep of the progress thread between polls */
  double quiet_speed; /* of its computation without operations, relative to mode busy; NAN: idle */
};

struct rma {
  const char *sleeps;    /* the flags */
  int64_t repeat;        /* rounds; 0: as many as fit into TRIAL_S */
  bool json;
  struct trm_comm *pair; /* ranks 0 and 1 */
  struct rma_memory memory;
  struct target_mode mode[2 + MAX_HELPERS];
  int modes, ranks;
  double *seconds;       /* (MAX_ROUNDS) */
  float *work;           /* (WORK_FLOATS) of the target */
  double units_per_s;    /* of the busy target without operations; 0: not known yet */
};
#define AT(field) offsetof(struct rma, field)
static const struct trm_option flags[] = {{"repeat", TRM_OPTION_INT, AT(repeat), NULL, RANGE(1, MAX_ROUNDS)},
                                          {"sleep", TRM_OPTION_TEXT, AT(sleeps), "50,200,1000", NO_RANGE},
                                          {"json", TRM_OPTION_BOOL, AT(json), NULL, NO_RANGE},
                                          END_OF_FLAGS};

static void bench_rma_sleep(double seconds)
{
  const struct timespec time = {(time_t)seconds, (long)(1e9 * (seconds - floor(seconds)))};
  nanosleep(&time, NULL);
}

/* -- the target */

enum { WORK_FLOATS = 2048, WORK_PASSES = 64 };

/* Computes for some microseconds within the first cache. Not inlined: all modes run the same code. */
static __attribute__((noinline)) void bench_rma_work_unit(float *x)
{
  for (int pass = 0; pass < WORK_PASSES; pass++)
    for (int i = 0; i < WORK_FLOATS; i++)
      x[i] = 0.5f * x[i] + 1;
}

/* The progress thread of a computing target; the only one that calls the communicator. It uses test, which makes MPI
 * progress but, unlike progress, does not yield the core, which the computing thread would keep for milliseconds. It
 * tests several times because MPI handles a large operation in parts. */
enum { TESTS_PER_WAKE = 20 };
struct progress_thread {
  struct trm_comm *pair;
  struct trm_request **stop;
  double sleep_s;
  atomic_bool done;
};

static void *bench_rma_run_helper(void *argument)
{
  struct progress_thread *helper = argument;
  const struct trm_comm_ops *ops = helper->pair->ops;
  bool stopped = false;
  while (!stopped) {
    for (int i = 0; i < TESTS_PER_WAKE && !stopped; i++)
      stopped = ops->test(helper->stop);
    if (!stopped)
      bench_rma_sleep(helper->sleep_s);
  }
  atomic_store(&helper->done, true);
  return NULL;
}

static double bench_rma_compute_with_helper(struct rma *r, const struct target_mode *mode, struct trm_request **stop)
{
  struct trm_comm *pair = r->pair;
  struct progress_thread helper = {.pair = pair, .stop = stop, .sleep_s = 1e-6 * (double)mode->sleep_us};
  pthread_t thread;
  size_t units = 0;
  const int reason = pthread_create(&thread, NULL, bench_rma_run_helper, &helper);
  if (reason != 0) {
    trm_error(TRM_FAILED, "bench rma: cannot start a thread: %s", strerror(reason));
    trm_log_error();
    trm_abort(TRM_FAILED); /* the origin waits */
  }
  const double begin = pair->ops->clock(pair);
  for (; units == 0 || !atomic_load_explicit(&helper.done, memory_order_relaxed); units++)
    bench_rma_work_unit(r->work);
  const double took = pair->ops->clock(pair) - begin;
  pthread_join(thread, NULL);
  return (double)units / took;
}

static double bench_rma_compute_alone(struct rma *r, struct trm_request **stop)
{
  struct trm_comm *pair = r->pair;
  const double begin = pair->ops->clock(pair);
  double now = begin;
  size_t units = 0;
  do {
    const double slice = now;
    for (; now - slice < SLICE_S; now = pair->ops->clock(pair), units++)
      bench_rma_work_unit(r->work);
    pair->ops->progress(pair);
  } while (!pair->ops->test(stop));
  return (double)units / (now - begin);
}

/* Runs the target until the origin is done. Returns units of work per second; NAN if idle. */
static double bench_rma_run_target(struct rma *r, const struct target_mode *mode)
{
  struct trm_comm *pair = r->pair;
  struct trm_request *stop;
  char byte;
  pair->ops->receive_begin(pair, &byte, 1, TRM_BYTE, RMA_ORIGIN, DONE_TAG, &stop);
  pair->ops->barrier(pair);
  if (mode->has_helper)
    return bench_rma_compute_with_helper(r, mode, &stop);
  if (mode->computes)
    return bench_rma_compute_alone(r, &stop);
  pair->ops->wait(&stop);
  return NAN;
}

/* -- the origin */

static double bench_rma_time_operations(struct rma *r, const struct rma_op *op, size_t bytes, size_t count)
{
  struct trm_comm *pair = r->pair;
  const double begin = pair->ops->clock(pair);
  for (size_t i = 0; i < count; i++)
    op->run(&r->memory, bytes);
  return (pair->ops->clock(pair) - begin) / (double)count;
}

/* The median seconds of an operation. Operations on a target that gives progress now and then begin at phases spread
 * evenly over its interval. */
static double bench_rma_measure_operation(struct rma *r, const struct target_mode *mode, const struct rma_op *op,
                                          size_t bytes)
{
  struct trm_comm *pair = r->pair;
  const bool needs_progress = mode->computes && !op->shared;
  bench_rma_time_operations(r, op, bytes, 1);
  const double once = bench_rma_time_operations(r, op, bytes, 1);
  const size_t count = !needs_progress && once < 2e-6 ? 100 : 1; /* amortizes the clock's overhead */
  const double begin = pair->ops->clock(pair);
  double phase = 0; /* a low-discrepancy sequence in [0, 1) */
  int64_t n = 0;
  while (r->repeat ? n < r->repeat : n < 5 || (n < MAX_ROUNDS && pair->ops->clock(pair) - begin < TRIAL_S)) {
    if (needs_progress)
      bench_rma_sleep(PAUSE_S * phase);
    r->seconds[n++] = bench_rma_time_operations(r, op, bytes, count);
    phase = fmod(phase + 0.618, 1);
  }
  return bench_median(r->seconds, (size_t)n);
}

/* Runs the origin. op NULL: waits for a while and measures nothing. */
static double bench_rma_run_origin(struct rma *r, const struct target_mode *mode, const struct rma_op *op, size_t bytes)
{
  struct trm_comm *pair = r->pair;
  struct trm_request *done;
  double median = NAN;
  pair->ops->barrier(pair);
  if (op)
    median = bench_rma_measure_operation(r, mode, op, bytes);
  else
    bench_rma_sleep(TRIAL_S / 2);
  pair->ops->send_begin(pair, "", 1, TRM_BYTE, RMA_TARGET, DONE_TAG, &done);
  pair->ops->wait(&done);
  return median;
}

/* -- trials */

struct rma_result {
  double latency_s, units_per_s; /* NAN: none */
};

/* Collective over the pair. Both ranks get the result. */
static struct rma_result bench_rma_run_trial(struct rma *r, const struct target_mode *mode, const struct rma_op *op,
                                             size_t bytes)
{
  const bool target = r->pair->rank == RMA_TARGET;
  struct rma_result result;
  const double mine = target ? bench_rma_run_target(r, mode) : bench_rma_run_origin(r, mode, op, bytes);
  double values[2];
  r->pair->ops->allgather(r->pair, &mine, values, 1, TRM_DOUBLE);
  result.latency_s = values[RMA_ORIGIN];
  result.units_per_s = values[RMA_TARGET];
  return result;
}

/* Measures the computation of each mode without operations, in turns; sets quiet_speed relative to mode busy. */
static void bench_rma_measure_quiet(struct rma *r)
{
  const size_t trials = r->repeat && r->repeat < QUIET_TRIALS ? (size_t)r->repeat : QUIET_TRIALS;
  double speed[2 + MAX_HELPERS][QUIET_TRIALS];
  for (size_t k = 0; k < trials; k++)
    for (int i = 0; i < r->modes; i++)
      if (r->mode[i].computes)
        speed[i][k] = bench_rma_run_trial(r, &r->mode[i], NULL, 0).units_per_s;
  for (int i = 0; i < r->modes; i++) {
    struct target_mode *mode = &r->mode[i];
    mode->quiet_speed = mode->computes ? bench_median(speed[i], trials) : NAN;
    if (mode->computes && !mode->has_helper)
      r->units_per_s = mode->quiet_speed;
    mode->quiet_speed /= r->units_per_s;
  }
}

/* -- the output */

static void bench_rma_print_head(const struct rma *r)
{
  printf("%d ranks, rank 1 calls on rank 0; medians in us\n", r->ranks);
  for (int i = 0; i < r->modes; i++)
    if (r->mode[i].has_helper)
      printf("a helper that sleeps %lld us leaves rank 0 %.3f of its speed without operations\n",
             (long long)r->mode[i].sleep_us, r->mode[i].quiet_speed);
  if (!r->memory.shares_memory)
    printf("the two are not of one node: no shared memory\n");
  printf("%-7s %-10s %-11s %11s %11s %11s %11s %8s %7s\n", "window", "operation", "rank 0", "8 B", "4 KiB", "256 KiB",
         "4 MiB", "GB/s", "speed");
}

static void bench_rma_print_row(const struct rma *r, const struct rma_op *op, const struct target_mode *mode,
                                const struct rma_result *result)
{
  const int n = op->single_element ? 1 : SIZES;
  struct figure row[SIZES + 2];
  double slowest = NAN;
  printf("%-7s %-10s ", op->window, op->name);
  if (mode->has_helper)
    printf("helper %-4lld", (long long)mode->sleep_us);
  else
    printf("%-11s", mode->name);
  for (int i = 0; i < SIZES; i++) {
    const double s = i < n ? result[i].latency_s : NAN;
    row[i] = figure_number(NULL, s < 1e-4 ? " %11.3f" : " %11.1f", s, 1e6);
    if (i < n)
      slowest = fmin(slowest, result[i].units_per_s / r->units_per_s);
  }
  row[SIZES] = figure_number(NULL, " %8.3f", 1e-9 * (double)sizes[n - 1] / result[n - 1].latency_s, 1);
  row[SIZES + 1] = figure_number(NULL, " %7.2f", slowest, 1);
  bench_print_row("rma", false, row, SIZES + 2);
}

static void bench_rma_print_json(const struct rma *r, const struct rma_op *op, const struct target_mode *mode,
                                 const struct rma_result *result)
{
  for (int i = 0; i < (op->single_element ? 1 : SIZES); i++) {
    const struct figure row[] = {
      figure_number("ranks", NULL, r->ranks, 1),
      figure_text("window", NULL, op->window),
      figure_text("operation", NULL, op->name),
      figure_text("target", NULL, mode->name),
      figure_number(mode->has_helper ? "sleep_us" : NULL, NULL, (double)mode->sleep_us, 1),
      figure_number("bytes", NULL, (double)sizes[i], 1),
      figure_number("latency_s", NULL, result[i].latency_s, 1),
      figure_number("gb_per_s", NULL, 1e-9 * (double)sizes[i] / result[i].latency_s, 1),
      figure_number(mode->computes ? "speed" : NULL, NULL, result[i].units_per_s / r->units_per_s, 1),
      figure_number(mode->computes ? "quiet_speed" : NULL, NULL, mode->quiet_speed, 1),
    };
    bench_print_row("rma", true, row, sizeof row / sizeof *row);
  }
}

static void bench_rma_measure_op(struct rma *r, const struct rma_op *op)
{
  for (int k = 0; k < r->modes; k++) {
    const struct target_mode *mode = &r->mode[k];
    struct rma_result result[SIZES];
    if (op->shared && mode->has_helper)
      continue; /* loads and stores need no progress */
    for (int i = 0; i < (op->single_element ? 1 : SIZES); i++)
      result[i] = bench_rma_run_trial(r, mode, op, sizes[i]);
    if (r->pair->rank == RMA_TARGET)
      (r->json ? bench_rma_print_json : bench_rma_print_row)(r, op, mode, result);
  }
}

static int bench_rma_run_pair(struct rma *r)
{
  struct trm_comm *pair = r->pair;
  TRM_CHECK(trm_agree(pair, rma_memory_open(&r->memory, pair)));
  TRM_CHECK(trm_agree(pair, pair->rank == RMA_ORIGIN ? rma_memory_verify(&r->memory) : TRM_OK));
  bench_rma_measure_quiet(r);
  if (pair->rank == RMA_TARGET && !r->json)
    bench_rma_print_head(r);
  for (const struct rma_op *op = rma_op_table; op->name; op++)
    if (r->memory.shares_memory || !op->shared)
      bench_rma_measure_op(r, op);
  return TRM_OK;
}

/* Adds a mode with a progress thread for each time in "50,200,1000". */
static int bench_rma_parse_sleeps(struct rma *r)
{
  const char *text = r->sleeps;
  const char *at = text;
  for (int i = 0; i < MAX_HELPERS; i++) {
    char *end;
    const long long us = strtoll(at, &end, 10);
    if (end == at || us < 1 || us > 1000000 || (*end && *end != ','))
      return trm_error(TRM_USAGE, "bench rma: --sleep=%s: at \"%s\": wanted microseconds from 1 to 1000000", text, at);
    r->mode[r->modes++] = (struct target_mode){"helper", true, true, us, NAN};
    if (!*end)
      return TRM_OK;
    at = end + 1;
  }
  return trm_error(TRM_USAGE, "bench rma: --sleep: more than %d", MAX_HELPERS);
}

static int bench_rma_measure(struct rma *r, struct trm_comm *comm)
{
  if (comm->size < 2)
    return trm_error(TRM_USAGE, "bench rma: needs two ranks, one to call on the other: mpiexec -n 2 trireme bench rma");
  r->ranks = comm->size;
  r->seconds = trm_alloc(MAX_ROUNDS * sizeof *r->seconds, "bench: times");
  r->work = trm_alloc(WORK_FLOATS * sizeof *r->work, "bench: work");
  r->pair = comm->ops->split(comm, comm->rank < 2 ? 0 : -1, comm->rank);
  const int status = r->pair ? bench_rma_run_pair(r) : TRM_OK;
  if (comm->rank == 0)
    planning_wake(comm, r->pair->size);
  else if (!r->pair)
    planning_sleep_until_woken(comm);
  if (r->pair) {
    rma_memory_close(&r->memory);
    comm->ops->release(r->pair);
  }
  trm_free(r->work);
  trm_free(r->seconds);
  return trm_agree(comm, status);
}

static int bench_rma_run(const struct call *call)
{
  struct rma *r = call->values;
  r->mode[0] = (struct target_mode){"idle", false, false, 0, NAN};
  r->mode[1] = (struct target_mode){"busy", true, false, 0, 1};
  r->modes = 2;
  TRM_CHECK(bench_rma_parse_sleeps(r));
  return bench_rma_measure(r, call->job->modules.comm);
}

const struct command bench_rma = {
  .name = "bench rma",
  .help = "one-sided access to another rank's memory, while that rank waits and while it computes",
  .usage = usage, .flags = flags, .bytes = sizeof(struct rma),
  .job = JOB_OF_RANKS, .run = bench_rma_run,
};
