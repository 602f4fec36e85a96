/* trireme bench rma: reaching another rank's memory, while that rank waits and while it computes.
 *
 * Every turn has the same form (turn): rank 1, the origin, does one operation again and again, and tells rank 0, the
 * target, when it has enough. What the target does until then is a row of a table of its own (struct manner). */
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/bench/bench.h"
#include "cli/bench/bench_access.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"

static const char usage[] =
  "usage: mpiexec -n N trireme bench rma [--repeat=R] [--naps=US,...] [--json]\n"
  "\n"
  "Rank 1 reads, writes and adds to memory of rank 0, 8 bytes to 4 MiB at a time; further ranks sleep. Medians of\n"
  "the time of one operation, complete at both sides. Windows:\n"
  "\n"
  "  mpi     the communicator's: get, put, accumulate, fetch_add (of one 64-bit integer)\n"
  "  shared  memory shared by the node, by loads and stores: get and put copy, accumulate adds by compare and swap,\n"
  "          add loads, adds and stores (what two ranks add to one element at a time may be lost), fetch_add\n"
  "\n"
  "What rank 0 does meanwhile:\n"
  "\n"
  "  idle    waits in the communicator: operations follow one another\n"
  "  busy    computes, and calls progress every 20 ms: operations come 0 to 10 ms apart\n"
  "  helper  computes, while a thread of its own looks 20 times what has come, naps, and so on; operations likewise\n"
  "\n"
  "speed: of rank 0's computing meanwhile, beside that of a busy one that nobody calls on.\n"
  "\n"
  "  --repeat=R    rounds (default: as many as fit into 0.2 s, at least 5)\n"
  "  --naps=US,... naps of the helper thread, microseconds (default 50,200,1000)\n"
  "  --json        a JSON object for each operation, size and occupation of rank 0\n";

static const size_t sizes[] = {8, 4096, (size_t)256 << 10, ACCESS_LARGEST};
enum { SIZES = sizeof sizes / sizeof *sizes, MOST_NAPS = 8, MOST_ROUNDS = 10000, QUIET_TURNS = 5, DONE_TAG = 1 };
#define SLICE_S 0.02
#define TURN_S 0.2
#define PAUSE_S 0.01

/* What the target does. */
struct manner {
  const char *name;
  bool computes, helped;
  int64_t nap_us;     /* of the helper */
  double quiet_speed; /* of the target's computing while nobody calls on it, beside that of the busy one; NAN: idle */
};

struct rma {
  struct trm_comm *pair; /* ranks 0 and 1 */
  struct access_memory memory;
  struct manner manner[2 + MOST_NAPS];
  int manners, ranks;
  size_t repeat;         /* 0: by time */
  double *took;          /* (MOST_ROUNDS) */
  float *work;           /* (WORK_FLOATS) what the target computes on */
  double units_per_s;    /* of the target, computing, that nobody calls on; 0: not yet known */
  bool json;
};

static void nap(double seconds)
{
  const struct timespec time = {(time_t)seconds, (long)(1e9 * (seconds - floor(seconds)))};
  nanosleep(&time, NULL);
}

/* -- the target */

enum { WORK_FLOATS = 2048, WORK_PASSES = 64 };

/* Some microseconds of arithmetic within the first cache; the same code for all who call. */
static __attribute__((noinline)) void work_unit(float *x)
{
  for (int pass = 0; pass < WORK_PASSES; pass++)
    for (int i = 0; i < WORK_FLOATS; i++)
      x[i] = 0.5f * x[i] + 1;
}

/* The thread beside a target that computes: it alone speaks to the communicator. It looks by test, which lets MPI work
 * as progress does, but does not give the core away: the computing thread would keep it for some milliseconds. Several
 * looks, because MPI takes in a large operation piece by piece. */
enum { LOOKS = 20 };
struct helper {
  struct trm_comm *pair;
  struct trm_request **told;
  double nap_s;
  atomic_bool done;
};

static void *helper_run(void *argument)
{
  struct helper *helper = argument;
  const struct trm_comm_ops *ops = helper->pair->ops;
  bool told = false;
  while (!told) {
    for (int i = 0; i < LOOKS && !told; i++)
      told = ops->test(helper->told);
    if (!told)
      nap(helper->nap_s);
  }
  atomic_store(&helper->done, true);
  return NULL;
}

static void helper_start(struct helper *helper, pthread_t *thread)
{
  const int reason = pthread_create(thread, NULL, helper_run, helper);
  if (reason == 0)
    return;
  trm_error(TRM_FAILED, "bench rma: cannot start a thread: %s", strerror(reason));
  trm_log_error();
  trm_abort(TRM_FAILED); /* the origin waits */
}

static double compute_helped(struct rma *r, const struct manner *manner, struct trm_request **told)
{
  struct trm_comm *pair = r->pair;
  struct helper helper = {.pair = pair, .told = told, .nap_s = 1e-6 * (double)manner->nap_us};
  pthread_t thread;
  size_t units = 0;
  helper_start(&helper, &thread);
  const double begin = pair->ops->clock(pair);
  for (; units == 0 || !atomic_load_explicit(&helper.done, memory_order_relaxed); units++)
    work_unit(r->work);
  const double took = pair->ops->clock(pair) - begin;
  pthread_join(thread, NULL);
  return (double)units / took;
}

static double compute_alone(struct rma *r, struct trm_request **told)
{
  struct trm_comm *pair = r->pair;
  const double begin = pair->ops->clock(pair);
  double now = begin;
  size_t units = 0;
  do {
    const double slice = now;
    for (; now - slice < SLICE_S; now = pair->ops->clock(pair), units++)
      work_unit(r->work);
    pair->ops->progress(pair);
  } while (!pair->ops->test(told));
  return (double)units / (now - begin);
}

/* Until the origin has enough. Returns units of work a second, NAN of an idle target. */
static double target_run(struct rma *r, const struct manner *manner)
{
  struct trm_comm *pair = r->pair;
  struct trm_request *told;
  char word;
  pair->ops->receive_begin(pair, &word, 1, TRM_BYTE, ACCESS_ORIGIN, DONE_TAG, &told);
  pair->ops->barrier(pair);
  if (manner->helped)
    return compute_helped(r, manner, &told);
  if (manner->computes)
    return compute_alone(r, &told);
  pair->ops->wait(&told);
  return NAN;
}

/* -- the origin */

static double operations_time(struct rma *r, const struct access *access, size_t bytes, size_t count)
{
  struct trm_comm *pair = r->pair;
  const double begin = pair->ops->clock(pair);
  for (size_t i = 0; i < count; i++)
    access->run(&r->memory, bytes);
  return (pair->ops->clock(pair) - begin) / (double)count;
}

/* The median time of an operation. Whoever looks after messages only now and then is called on at any moment of it. */
static double operations_measure(struct rma *r, const struct manner *manner, const struct access *access, size_t bytes)
{
  struct trm_comm *pair = r->pair;
  const bool asks = manner->computes && !access->shared;
  operations_time(r, access, bytes, 1);
  const double once = operations_time(r, access, bytes, 1);
  const size_t count = !asks && once < 2e-6 ? 100 : 1; /* the clock itself takes time */
  const double begin = pair->ops->clock(pair);
  double part = 0; /* walks evenly over [0, 1), far from one to the next */
  size_t n = 0;
  while (r->repeat ? n < r->repeat : n < 5 || (n < MOST_ROUNDS && pair->ops->clock(pair) - begin < TURN_S)) {
    if (asks)
      nap(PAUSE_S * part);
    r->took[n++] = operations_time(r, access, bytes, count);
    part = fmod(part + 0.618, 1);
  }
  return bench_median(r->took, n);
}

/* access NULL: nothing is done for a while, which takes no time. */
static double origin_run(struct rma *r, const struct manner *manner, const struct access *access, size_t bytes)
{
  struct trm_comm *pair = r->pair;
  struct trm_request *done;
  double median = NAN;
  pair->ops->barrier(pair);
  if (access)
    median = operations_measure(r, manner, access, bytes);
  else
    nap(TURN_S / 2);
  pair->ops->send_begin(pair, "", 1, TRM_BYTE, ACCESS_TARGET, DONE_TAG, &done);
  pair->ops->wait(&done);
  return median;
}

/* -- both */

struct found {
  double latency_s, units_per_s; /* NAN: none */
};

/* Collective over the pair; both have the answer. */
static struct found turn(struct rma *r, const struct manner *manner, const struct access *access, size_t bytes)
{
  const bool target = r->pair->rank == ACCESS_TARGET;
  struct found found;
  const double mine = target ? target_run(r, manner) : origin_run(r, manner, access, bytes);
  double both[2];
  r->pair->ops->allgather(r->pair, &mine, both, 1, TRM_DOUBLE);
  found.latency_s = both[ACCESS_ORIGIN];
  found.units_per_s = both[ACCESS_TARGET];
  return found;
}

/* What computing loses to each manner while nobody calls: they take turns, medians. The busy one sets the measure. */
static void quiet_measure(struct rma *r)
{
  const size_t turns = r->repeat && r->repeat < QUIET_TURNS ? r->repeat : QUIET_TURNS;
  double speed[2 + MOST_NAPS][QUIET_TURNS];
  for (size_t k = 0; k < turns; k++)
    for (int i = 0; i < r->manners; i++)
      if (r->manner[i].computes)
        speed[i][k] = turn(r, &r->manner[i], NULL, 0).units_per_s;
  for (int i = 0; i < r->manners; i++) {
    struct manner *manner = &r->manner[i];
    manner->quiet_speed = manner->computes ? bench_median(speed[i], turns) : NAN;
    if (manner->computes && !manner->helped)
      r->units_per_s = manner->quiet_speed;
    manner->quiet_speed /= r->units_per_s;
  }
}

/* -- the answer */

static void time_print(double seconds)
{
  if (isfinite(seconds))
    printf(seconds < 1e-4 ? " %11.3f" : " %11.1f", 1e6 * seconds);
  else
    printf(" %11s", "-");
}

static void speed_print(const char *form, double speed)
{
  if (isfinite(speed))
    printf(form, speed);
  else
    printf(" %7s", "-");
}

static void head_print(const struct rma *r)
{
  printf("%d ranks, rank 1 calls on rank 0; medians in us\n", r->ranks);
  for (int i = 0; i < r->manners; i++)
    if (r->manner[i].helped)
      printf("a helper that naps %lld us leaves rank 0 %.3f of its speed while nobody calls\n",
             (long long)r->manner[i].nap_us, r->manner[i].quiet_speed);
  if (!r->memory.shares)
    printf("the two are not of one node: no shared memory\n");
  printf("%-7s %-10s %-11s %11s %11s %11s %11s %8s %7s\n", "window", "operation", "rank 0", "8 B", "4 KiB", "256 KiB",
         "4 MiB", "GB/s", "speed");
}

static void row_print(const struct rma *r, const struct access *access, const struct manner *manner,
                      const struct found *found)
{
  const int n = access->one ? 1 : SIZES;
  double slowest = NAN;
  char name[24];
  if (manner->helped)
    snprintf(name, sizeof name, "helper %lld", (long long)manner->nap_us);
  else
    snprintf(name, sizeof name, "%s", manner->name);
  printf("%-7s %-10s %-11s", access->window, access->name, name);
  for (int i = 0; i < SIZES; i++)
    time_print(i < n ? found[i].latency_s : NAN);
  for (int i = 0; i < n; i++)
    slowest = fmin(slowest, found[i].units_per_s / r->units_per_s);
  printf(" %8.3f", 1e-9 * (double)sizes[n - 1] / found[n - 1].latency_s);
  speed_print(" %7.2f", slowest);
  printf("\n");
  fflush(stdout);
}

static void lines_print(const struct rma *r, const struct access *access, const struct manner *manner,
                        const struct found *found)
{
  for (int i = 0; i < (access->one ? 1 : SIZES); i++) {
    struct trm_json line;
    bench_line_open(&line, "rma");
    trm_json_integer(&line, "ranks", r->ranks);
    trm_json_text(&line, "window", access->window);
    trm_json_text(&line, "operation", access->name);
    trm_json_text(&line, "target", manner->name);
    if (manner->helped)
      trm_json_integer(&line, "nap_us", manner->nap_us);
    trm_json_integer(&line, "bytes", (int64_t)sizes[i]);
    trm_json_number(&line, "latency_s", found[i].latency_s);
    trm_json_number(&line, "gb_per_s", 1e-9 * (double)sizes[i] / found[i].latency_s);
    if (manner->computes) {
      trm_json_number(&line, "speed", found[i].units_per_s / r->units_per_s);
      trm_json_number(&line, "quiet_speed", manner->quiet_speed);
    }
    bench_line_close(&line);
  }
}

static void access_measure(struct rma *r, const struct access *access)
{
  for (int k = 0; k < r->manners; k++) {
    const struct manner *manner = &r->manner[k];
    struct found found[SIZES];
    if (access->shared && manner->helped)
      continue; /* loads and stores need no help */
    for (int i = 0; i < (access->one ? 1 : SIZES); i++)
      found[i] = turn(r, manner, access, sizes[i]);
    if (r->pair->rank == ACCESS_TARGET)
      (r->json ? lines_print : row_print)(r, access, manner, found);
  }
}

static int pair_run(struct rma *r)
{
  struct trm_comm *pair = r->pair;
  TRM_CHECK(trm_agree(pair, access_open(&r->memory, pair)));
  TRM_CHECK(trm_agree(pair, pair->rank == ACCESS_ORIGIN ? access_verify(&r->memory) : TRM_OK));
  quiet_measure(r);
  if (pair->rank == ACCESS_TARGET && !r->json)
    head_print(r);
  for (const struct access *access = access_table; access->name; access++)
    if (r->memory.shares || !access->shared)
      access_measure(r, access);
  return TRM_OK;
}

/* The others leave the cores to the pair. */
static void spectate(struct trm_comm *comm, struct trm_comm *pair)
{
  struct trm_request *request;
  char word = 0;
  if (comm->rank == 0)
    for (int i = pair->size; i < comm->size; i++) {
      comm->ops->send_begin(comm, &word, 1, TRM_BYTE, i, DONE_TAG, &request);
      comm->ops->wait(&request);
    }
  if (pair)
    return;
  comm->ops->receive_begin(comm, &word, 1, TRM_BYTE, 0, DONE_TAG, &request);
  while (!comm->ops->test(&request))
    nap(1e-3);
}

/* "50,200,1000" behind the manners that are always there */
static int naps_read(struct rma *r, const char *text)
{
  const char *at = text;
  for (int i = 0; i < MOST_NAPS; i++) {
    char *end;
    const long long us = strtoll(at, &end, 10);
    if (end == at || us < 1 || us > 1000000 || (*end && *end != ','))
      return trm_error(TRM_USAGE, "bench rma: --naps=%s: at \"%s\": wanted microseconds from 1 to 1000000", text, at);
    r->manner[r->manners++] = (struct manner){"helper", true, true, us, NAN};
    if (!*end)
      return TRM_OK;
    at = end + 1;
  }
  return trm_error(TRM_USAGE, "bench rma: --naps: more than %d", MOST_NAPS);
}

static int measure(struct rma *r, struct trm_comm *comm)
{
  if (comm->size < 2)
    return trm_error(TRM_USAGE, "bench rma: needs two ranks, one to call on the other: mpiexec -n 2 trireme bench rma");
  r->ranks = comm->size;
  r->took = trm_alloc(MOST_ROUNDS * sizeof *r->took, "bench: times");
  r->work = trm_alloc(WORK_FLOATS * sizeof *r->work, "bench: work");
  r->pair = comm->ops->split(comm, comm->rank < 2 ? 0 : -1, comm->rank);
  const int status = r->pair ? pair_run(r) : TRM_OK;
  spectate(comm, r->pair);
  if (r->pair) {
    access_close(&r->memory);
    comm->ops->release(r->pair);
  }
  trm_free(r->work);
  trm_free(r->took);
  return trm_agree(comm, status);
}

int bench_rma(int argc, char **argv)
{
  struct job job;
  struct rma r = {.manner = {{"idle", false, false, 0, NAN}, {"busy", true, false, 0, 1}}, .manners = 2};
  const char *naps = "50,200,1000";
  int64_t repeat = 0;
  bool helped;
  const struct flag table[] = {{"repeat", FLAG_INTEGER, &repeat, 1, MOST_ROUNDS},
                               {"naps", FLAG_TEXT, &naps, 0, 0},
                               {"json", FLAG_BOOL, &r.json, 0, 0},
                               {NULL, FLAG_BOOL, NULL, 0, 0}};
  const struct job_request request = {.command = "bench rma", .usage = usage, .flags = table};
  int words, status = job_open(&job, &request, argc, argv, &words, &helped);
  if (status == TRM_OK && !helped) {
    r.repeat = (size_t)repeat;
    status = naps_read(&r, naps);
    if (status == TRM_OK)
      status = measure(&r, job.parts.comm);
  }
  job_close(&job);
  return status;
}
