/* Injected slowdown: options, reproducible draws of the right distribution, and resulting durations. */
#include <math.h>
#include <signal.h>
#include <string.h>
#include <sys/time.h>

#include "core/log.h"
#include "core/status.h"
#include "suite.h"
#include "train/slowdown.h"

/* A rank whose clock is set by its computations and sleeps alone. */
static double now_s;

static double set_clock(struct trm_comm *comm)
{
  (void)comm;
  return now_s;
}

static void sleep_until(struct trm_comm *comm, double when, bool progress)
{
  (void)comm, (void)progress;
  now_s = fmax(now_s, when);
}

static struct trm_comm *rank_of(int rank, int size)
{
  static struct trm_comm_ops ops;
  static struct trm_comm comm;
  ops = trm_comm_self_ops;
  ops.clock = set_clock;
  ops.sleep_until = sleep_until;
  comm = (struct trm_comm){.ops = &ops, .rank = rank, .size = size};
  return &comm;
}

/* 1e6 operations per row at 1 gflop/s: 1 ms modeled time per row. */
static int make(struct trm_slowdown *pace, const char *slow, const char *jitter, enum trm_compute compute, int rank,
                int size)
{
  const struct trm_options options = {
    .run = {.slow = (char *)slow, .jitter = (char *)jitter, .outages = (char *)"", .seed = 7},
    .device = {.compute = compute, .gflops = 1}};
  return trm_slowdown_create(pace, &options, rank_of(rank, size), 1e6);
}

static void test_options(void)
{
  struct trm_slowdown pace;
  CU_ASSERT_EQUAL(make(&pace, "", "", TRM_COMPUTE_REAL, 0, 1), TRM_OK);
  CU_ASSERT(!pace.modeled && pace.slow_factor == 1 && pace.jitter == TRM_JITTER_NONE);
  for (int rank = 0; rank < 12; rank++) {
    CU_ASSERT_EQUAL(make(&pace, "3:2.5,0:1,11:1e3", "lognormal  .25", TRM_COMPUTE_SLEEP, rank, 12), TRM_OK);
    CU_ASSERT_EQUAL(pace.slow_factor, rank == 3 ? 2.5 : rank == 11 ? 1000 : 1);
    CU_ASSERT(pace.modeled && pace.jitter == TRM_JITTER_LOGNORMAL && pace.sigma == 0.25);
    CU_ASSERT_DOUBLE_EQUAL(pace.flop_per_row * pace.seconds_per_flop, 1e-3, 1e-12);
  }
  for (int rank = 0; rank < 16; rank++) { /* sqrt(i) of the i-th worker, and i */
    static const double root[] = {[0] = 1, [3] = 2, [8] = 3, [15] = 4};
    CU_ASSERT_EQUAL(make(&pace, "power 0.5", "", TRM_COMPUTE_SLEEP, rank, 16), TRM_OK);
    if (root[rank] > 0)
      CU_ASSERT_EQUAL(pace.slow_factor, root[rank]);
    CU_ASSERT_DOUBLE_EQUAL(pace.slow_factor * pace.slow_factor, rank + 1, 1e-12);
    CU_ASSERT_DOUBLE_EQUAL(trm_slowdown_duration(&pace, 10e-3, 0, 5), 0.010 * pace.slow_factor, 1e-12);
    CU_ASSERT_EQUAL(make(&pace, "power  1", "exponential", TRM_COMPUTE_REAL, rank, 16), TRM_OK);
    CU_ASSERT(pace.slow_factor == rank + 1 && pace.jitter == TRM_JITTER_EXPONENTIAL);
  }
  CU_ASSERT_EQUAL(make(&pace, "0:1", "exponential", TRM_COMPUTE_REAL, 0, 1), TRM_OK);
  CU_ASSERT_EQUAL(pace.jitter, TRM_JITTER_EXPONENTIAL);
}

/* Invalid options are refused on every rank, whichever rank they name. */
static void refused(const char *slow, const char *jitter, const char *message)
{
  struct trm_slowdown pace;
  for (int rank = 0; rank < 4; rank++) {
    CU_ASSERT_EQUAL(make(&pace, slow, jitter, TRM_COMPUTE_REAL, rank, 4), TRM_USAGE);
    CU_ASSERT_PTR_NOT_NULL(strstr(trm_error_text(), message));
    CU_ASSERT_PTR_NOT_NULL(strstr(trm_error_text(), *slow ? "run.slow: " : "run.jitter: "));
  }
  if (!strstr(trm_error_text(), message))
    printf("expected: %s\nfound: %s\n", message, trm_error_text());
}

static void test_errors(void)
{
  static const char *const malformed[] = {"2",     "1:",   ":2",   "a:2",  "1:b",  "1:2,",  ",1:2",  "1:2;2:3", "1.5:2",
                                          "-1:2",  "1:-2", "1: 2", " 1:2", "1:2 ", "1:nan", "1:inf", "1:1e999", "1:2:3",
                                          "0x1:2", "1:0x2"};
  for (size_t i = 0; i < sizeof malformed / sizeof *malformed; i++)
    refused(malformed[i], "", "is not RANK:FACTOR");
  refused("4:2", "", "there is no rank 4, the job has 4 ranks, from 0");
  refused("1:2,99999999999:3", "", "there is no rank 99999999999");
  refused("1:0.5", "", "rank 1 cannot take 0.5 times its time, only 1 to 1000000 times");
  refused("1:2000000", "", "rank 1 cannot take 2e+06 times its time");
  refused("1:2,2:3,1:4", "", "names rank 1 twice");
  refused("power ", "", "is not \"power EXPONENT\"");
  refused("power", "", "is not RANK:FACTOR");
  refused("power x", "", "is not \"power EXPONENT\"");
  refused("power -1", "", "is not \"power EXPONENT\"");
  refused("power 1,2:3", "", "is not \"power EXPONENT\"");
  refused("power 11", "", "rank 3 cannot take 4.1943e+06 times its time, only 1 to 1000000 times");
  refused("", "lognormal", "is not \"lognormal SIGMA\"");
  refused("", "lognormal x", "is not \"lognormal SIGMA\"");
  refused("", "lognormal 0.5x", "is not \"lognormal SIGMA\"");
  refused("", "lognormal -1", "is not \"lognormal SIGMA\"");
  refused("", "lognormal 5", "SIGMA is at most 4");
  refused("", "exponential 2", "exponential takes no number");
  refused("", "lognromal 0.5", "there is no \"lognromal\"; did you mean \"lognormal\"?");
  refused("", "exponental", "did you mean \"exponential\"?");
  refused("", "uniform", "is neither \"lognormal SIGMA\" nor \"exponential\"");
  refused("", " exponential", "is neither");
  struct trm_slowdown pace;
  CU_ASSERT_EQUAL(make(&pace, "1:2", "", TRM_COMPUTE_REAL, 0, 1), TRM_USAGE);
  CU_ASSERT_PTR_NOT_NULL(strstr(trm_error_text(), "there is no rank 1, the job has 1 rank: 0"));
}

static int make_outages(struct trm_slowdown *pace, const char *text, int rank, int size, int servers)
{
  const struct trm_options options = {
    .run = {.slow = (char *)"", .jitter = (char *)"", .outages = (char *)text},
    .train = {.batch = 10}, .strategy = {.servers = servers}, .device = {.compute = TRM_COMPUTE_REAL, .gflops = 1}};
  return trm_slowdown_create(pace, &options, rank_of(rank, size), 1e6);
}

/* Ends of computations that begin at 100 + began, where training began at 100. */
static double end(struct trm_slowdown *pace, double began, double seconds)
{
  pace->origin_s = 100;
  return trm_slowdown_end(pace, 100 + began, seconds) - 100;
}

static void test_outages(void)
{
  static const char text[] = "3:1.5-2.5, 5:10-,7:0-4, 3:4-4.25, 7:8-";
  struct trm_slowdown pace;
  for (int rank = 0; rank < 8; rank++) {
    CU_ASSERT_EQUAL(make_outages(&pace, text, rank, 8, 0), TRM_OK);
    CU_ASSERT_EQUAL(pace.outages, rank == 3 || rank == 7 ? 2 : rank == 5);
    CU_ASSERT_EQUAL(pace.fails, rank == 5 || rank == 7);
  }
  CU_ASSERT_EQUAL(make_outages(&pace, text, 3, 8, 0), TRM_OK);
  CU_ASSERT_EQUAL(end(&pace, 0, 1), 1);
  CU_ASSERT_EQUAL(end(&pace, 0, 1.5), 1.5);   /* done as the pause begins */
  CU_ASSERT_EQUAL(end(&pace, 0, 1.75), 2.75); /* a quarter of a second after it */
  CU_ASSERT_EQUAL(end(&pace, 2, 0.5), 3);     /* begun in it */
  CU_ASSERT_EQUAL(end(&pace, 1, 3), 5.25);    /* both */
  CU_ASSERT_EQUAL(end(&pace, 2.5, 1.5), 4);
  CU_ASSERT_EQUAL(end(&pace, 5, 1), 6);
  CU_ASSERT_EQUAL(make_outages(&pace, text, 7, 8, 0), TRM_OK);
  CU_ASSERT_EQUAL(end(&pace, 0, 4), 8);
  CU_ASSERT_EQUAL(end(&pace, 0, 4.5), INFINITY);
  CU_ASSERT_EQUAL(make_outages(&pace, text, 0, 8, 0), TRM_OK);
  CU_ASSERT_EQUAL(end(&pace, 0, 50), 50);
  CU_ASSERT(trm_slowdown_has_failures(text) && trm_slowdown_has_failures("0:1-"));
  CU_ASSERT(trm_slowdown_has_failures("0:1-,1:1-2"));
  CU_ASSERT(!trm_slowdown_has_failures("") && !trm_slowdown_has_failures("0:1-2, 1:2-3"));
}

static void test_outage_errors(void)
{
  static const struct {
    const char *text, *message;
  } bad[] = {
    {"3", "is not RANK:FROM-TO"}, {"3:1", "is not RANK:FROM-TO"}, {"3:-2", "is not RANK:FROM-TO"},
    {"3:1-2,", "is not RANK:FROM-TO"}, {"3:1-2 4:1-2", "is not RANK:FROM-TO"}, {"3:1-x", "is not RANK:FROM-TO"},
    {"1.5:1-2", "is not RANK:FROM-TO"}, {"3:1--2", "is not RANK:FROM-TO"}, {" 3:1-2", "is not RANK:FROM-TO"},
    {"3:2-1", "an outage of rank 3 ends before it begins"}, {"3:2-2", "ends before it begins"},
    {"8:1-2", "there is no rank 8, the job has 8 ranks, from 0"}, {"7:1-2", "rank 7 is a parameter server"},
    {"3:1-3,2:1-,3:2-4", "those of rank 3 are not one after the other"}, {"3:1-,3:2-4", "not one after the other"},
    {"0:0-,1:0-,2:0-,3:0-,4:0-,5:0-,6:9-", "leaves no worker"},
    {"1:0-1,1:1-2,1:2-3,1:3-4,1:4-5,1:5-6,1:6-7,1:7-8,1:8-9,1:9-10,1:10-11,1:11-12,1:12-13,1:13-14,1:14-15,1:15-16,"
     "1:16-17", "rank 1 has more than 16 outages"}};
  struct trm_slowdown pace;
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    for (int rank = 0; rank < 8; rank++) { /* on every rank */
      CU_ASSERT_EQUAL(make_outages(&pace, bad[i].text, rank, 8, 1), TRM_USAGE);
      CU_ASSERT_PTR_NOT_NULL(strstr(trm_error_text(), bad[i].message));
      CU_ASSERT_PTR_NOT_NULL(strstr(trm_error_text(), "run.outages: "));
    }
}

#define DRAWS 10000

static int by_value(const void *a, const void *b)
{
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static void test_draws(void)
{
  static double draw[DRAWS];
  struct trm_slowdown pace, other;
  double sum = 0, logs = 0, squares = 0;
  size_t above = 0;
  CU_ASSERT_EQUAL(make(&pace, "", "lognormal 0.5", TRM_COMPUTE_SLEEP, 2, 4), TRM_OK);
  for (int i = 0; i < DRAWS; i++) {
    draw[i] = trm_slowdown_factor(&pace, (uint64_t)i);
    logs += log(draw[i]) / DRAWS;
    squares += log(draw[i]) * log(draw[i]) / DRAWS;
  }
  qsort(draw, DRAWS, sizeof *draw, by_value);
  CU_ASSERT_DOUBLE_EQUAL(draw[DRAWS / 2], 1, 0.02);
  CU_ASSERT_DOUBLE_EQUAL(logs, 0, 0.02);
  CU_ASSERT_DOUBLE_EQUAL(sqrt(squares), 0.5, 0.015);
  CU_ASSERT_EQUAL(make(&pace, "", "exponential", TRM_COMPUTE_SLEEP, 2, 4), TRM_OK);
  for (int i = 0; i < DRAWS; i++) {
    const double factor = trm_slowdown_factor(&pace, (uint64_t)i);
    CU_ASSERT(factor >= 0 && isfinite(factor));
    sum += factor / DRAWS;
    above += factor > 2;
  }
  CU_ASSERT_DOUBLE_EQUAL(sum, 1, 0.03);
  CU_ASSERT_DOUBLE_EQUAL((double)above / DRAWS, exp(-2), 0.011); /* three standard deviations */
  /* draws depend on rank, batch and seed only */
  CU_ASSERT_EQUAL(make(&other, "", "exponential", TRM_COMPUTE_SLEEP, 2, 4), TRM_OK);
  CU_ASSERT_EQUAL(trm_slowdown_factor(&pace, 77), trm_slowdown_factor(&other, 77));
  CU_ASSERT_NOT_EQUAL(trm_slowdown_factor(&pace, 77), trm_slowdown_factor(&pace, 78));
  other.rank = 3;
  CU_ASSERT_NOT_EQUAL(trm_slowdown_factor(&pace, 77), trm_slowdown_factor(&other, 77));
  other.rank = 2;
  other.seed = 8;
  CU_ASSERT_NOT_EQUAL(trm_slowdown_factor(&pace, 77), trm_slowdown_factor(&other, 77));
}

/* Computes for `seconds`, then waits as for a batch of so many rows. Returns the seconds of both. */
static double took(struct trm_slowdown *pace, double seconds, size_t rows, uint64_t batch)
{
  const double began = now_s;
  now_s += seconds;
  trm_slowdown_wait(pace, began, rows, batch);
  return now_s - began;
}

static void test_times(void)
{
  struct trm_slowdown pace;
  /* modeled: includes computation */
  CU_ASSERT_EQUAL(make(&pace, "1:3", "", TRM_COMPUTE_SLEEP, 1, 4), TRM_OK);
  CU_ASSERT_DOUBLE_EQUAL(took(&pace, 0.002, 10, 3), 0.030, 1e-9);
  CU_ASSERT_EQUAL(pace.batches, 1);
  CU_ASSERT_EQUAL(make(&pace, "", "lognormal 0.5", TRM_COMPUTE_SLEEP, 0, 4), TRM_OK);
  CU_ASSERT_DOUBLE_EQUAL(took(&pace, 0, 30, 3), 0.030 * trm_slowdown_factor(&pace, 3), 1e-9);
  /* measured, then lengthened */
  CU_ASSERT_EQUAL(make(&pace, "1:3", "", TRM_COMPUTE_REAL, 1, 4), TRM_OK);
  CU_ASSERT_DOUBLE_EQUAL(took(&pace, 0.010, 1000000, 3), 0.030, 1e-9);
  /* never shortened */
  CU_ASSERT_EQUAL(make(&pace, "", "exponential", TRM_COMPUTE_REAL, 1, 4), TRM_OK);
  for (uint64_t batch = 0; batch < 20; batch++)
    CU_ASSERT_DOUBLE_EQUAL(took(&pace, 0.002, 1, batch), 0.002 * fmax(1, trm_slowdown_factor(&pace, batch)), 1e-9);
  uint64_t fast = 0;
  while (trm_slowdown_factor(&pace, fast) > 0.9)
    fast++;
  CU_ASSERT_EQUAL(trm_slowdown_duration(&pace, 0, 0.002, fast), 0.002);
  CU_ASSERT_EQUAL(pace.overruns, 0);
  /* an option for another rank */
  CU_ASSERT_EQUAL(make(&pace, "2:3", "", TRM_COMPUTE_REAL, 1, 4), TRM_OK);
  CU_ASSERT_EQUAL(took(&pace, 0, 1000000, 3), 0);
}

/* On a real network: what was computed before a pause or a failure began, and rests. */
static void test_outage_times(void)
{
  struct trm_slowdown pace;
  CU_ASSERT_EQUAL(make_outages(&pace, "0:0.005-0.030, 1:0.005-", 0, 2, 0), TRM_OK);
  pace.origin_s = now_s;
  CU_ASSERT(!trm_slowdown_is_out(&pace));
  CU_ASSERT_DOUBLE_EQUAL(took(&pace, 0.010, 1, 0), 0.035, 1e-9);
  CU_ASSERT(!pace.failed);
  pace.origin_s = now_s - 0.010;
  int rests = 0;
  for (; trm_slowdown_is_out(&pace); rests++)
    trm_slowdown_rest(&pace);
  CU_ASSERT_EQUAL(rests, 2); /* the 10 ms of a batch, and what is left of 20 ms */
  CU_ASSERT_DOUBLE_EQUAL(now_s, pace.origin_s + 0.030, 1e-9);
  CU_ASSERT_EQUAL(make_outages(&pace, "0:0.005-0.030, 1:0.005-", 1, 2, 0), TRM_OK);
  const double began = pace.origin_s = now_s;
  took(&pace, 0.002, 1, 0);
  CU_ASSERT(!pace.failed);
  now_s += 0.004;
  trm_slowdown_wait(&pace, began, 1, 1);
  CU_ASSERT(pace.failed && trm_slowdown_is_out(&pace));
}

static void test_overruns(void)
{
  struct trm_slowdown pace;
  CU_ASSERT_EQUAL(make(&pace, "", "", TRM_COMPUTE_SLEEP, 0, 1), TRM_OK);
  trm_log_set_quiet(true);
  trm_slowdown_report(&pace, trm_comm_self()); /* not slowed: no output */
  for (int i = 0; i < 5; i++)
    took(&pace, 0.010, 2, 3);
  CU_ASSERT_EQUAL(pace.overruns, 5);
  CU_ASSERT_DOUBLE_EQUAL(pace.overrun_s, 5 * 0.008, 1e-9);
  took(&pace, 0, 20, 4);
  CU_ASSERT_EQUAL(pace.overruns, 5);
  CU_ASSERT_EQUAL(pace.batches, 6);
}

static void on_alarm(int number)
{
  (void)number;
}

/* On a real clock: an interrupting signal every millisecond. */
static void test_signals(void)
{
  struct trm_slowdown pace;
  const struct sigaction action = {.sa_handler = on_alarm}; /* no SA_RESTART */
  struct sigaction before;
  const struct itimerval often = {{0, 1000}, {0, 1000}}, never = {{0, 0}, {0, 0}};
  const unsigned watchdog = alarm(0); /* the suite's watchdog uses the same timer */
  sigaction(SIGALRM, &action, &before);
  setitimer(ITIMER_REAL, &often, NULL);
  CU_ASSERT_EQUAL(make(&pace, "", "", TRM_COMPUTE_SLEEP, 0, 1), TRM_OK);
  pace.comm = trm_comm_self();
  const double began = pace.comm->ops->clock(pace.comm);
  trm_slowdown_wait(&pace, began, 50, 0);
  const double seconds = pace.comm->ops->clock(pace.comm) - began;
  setitimer(ITIMER_REAL, &never, NULL);
  sigaction(SIGALRM, &before, NULL);
  alarm(watchdog);
  CU_ASSERT(seconds >= 0.050);
}

/* Overruns are reported in one line; without overruns there is no report. */
static void test_report(void)
{
  struct trm_slowdown pace = {.overruns = 3, .batches = 40, .overrun_s = 0.25};
  char text[512] = "";
  FILE *file = tmpfile();
  const int screen = dup(STDERR_FILENO);
  fflush(stderr);
  dup2(fileno(file), STDERR_FILENO);
  trm_slowdown_report(&pace, trm_comm_self());
  pace.overruns = 0;
  trm_slowdown_report(&pace, trm_comm_self());
  fflush(stderr);
  dup2(screen, STDERR_FILENO);
  close(screen);
  rewind(file);
  const size_t length = fread(text, 1, sizeof text - 1, file);
  fclose(file);
  CU_ASSERT_PTR_NOT_NULL(strstr(text, "warning: device.compute=sleep: 3 of 40 batches took longer to compute than "
                                      "modeled, 0.25 s in all"));
  CU_ASSERT_PTR_EQUAL(strchr(text, '\n'), text + length - 1); /* one line */
}

int main(void)
{
  CU_TestInfo tests[] = {
    {"options", test_options},
    {"errors", test_errors},
    {"outages", test_outages},
    {"outage errors", test_outage_errors},
    {"outage times", test_outage_times},
    {"draws", test_draws},
    {"times", test_times},
    {"overruns", test_overruns},
    {"signals", test_signals},
    {"report", test_report},
    CU_TEST_INFO_NULL,
  };
  return suite_run("pace", tests);
}
