#include "train/slowdown.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/ledger.h"
#include "core/log.h"
#include "core/random.h"
#include "core/status.h"
#include "core/trace.h"

/* Limits of the options; larger factors are probably typos. */
#define MAX_SLOW 1e6
#define MAX_SIGMA 4.0
#define MIN_REAL_REST 1e-3 /* seconds, on a real network */

/* -- the options */

/* Reads a decimal number at *text and moves *text behind it. strtod alone would take spaces, signs, "nan" and 0x2. */
static bool slowdown_read_number(const char **text, double *value)
{
  const char *digit = **text == '.' ? *text + 1 : *text;
  char *end;
  if (*digit < '0' || *digit > '9' || digit[1] == 'x' || digit[1] == 'X')
    return false;
  *value = strtod(*text, &end);
  *text = end;
  return isfinite(*value);
}

/* Reads one "RANK:FACTOR" at *text and moves *text to the next one or the end. */
static int slowdown_read_item(const char *all, const char **text, int size, int *rank, double *factor)
{
  double number = -1;
  bool valid = slowdown_read_number(text, &number) && number == floor(number) && *(*text)++ == ':' &&
               slowdown_read_number(text, factor);
  if (valid && **text == ',')
    valid = *++*text != '\0';
  else if (valid)
    valid = **text == '\0';
  if (!valid)
    return trm_error(TRM_USAGE, "run.slow: \"%.80s\" is not RANK:FACTOR, or several with commas (1:2 or 0:1.5,3:10), "
                     "or \"power EXPONENT\"", all);
  if (number >= size)
    return trm_error(TRM_USAGE, "run.slow: there is no rank %.0f, the job has %d rank%s", number, size,
                     size == 1 ? ": 0" : "s, from 0");
  if (*factor < 1 || *factor > MAX_SLOW)
    return trm_error(TRM_USAGE, "run.slow: rank %.0f cannot take %g times its time, only 1 to %.0f times", number,
                     *factor, MAX_SLOW);
  *rank = (int)number;
  return TRM_OK;
}

/* Reads the exponent of "power EXPONENT". */
static int slowdown_read_power(struct trm_slowdown *slowdown, const char *all, const char *text, int size)
{
  double exponent;
  text += strspn(text, " ");
  if (!slowdown_read_number(&text, &exponent) || *text != '\0')
    return trm_error(TRM_USAGE, "run.slow: \"%.80s\" is not \"power EXPONENT\", such as \"power 0.5\"", all);
  if (pow(size, exponent) > MAX_SLOW)
    return trm_error(TRM_USAGE, "run.slow: \"%.80s\": rank %d cannot take %g times its time, only 1 to %.0f times", all,
                     size - 1, pow(size, exponent), MAX_SLOW);
  slowdown->slow_factor = pow(slowdown->rank + 1, exponent);
  return TRM_OK;
}

static int slowdown_read_slow(struct trm_slowdown *slowdown, const char *all, int size)
{
  if (strncmp(all, "power ", 6) == 0)
    return slowdown_read_power(slowdown, all, all + 6, size);
  for (const char *text = all; *text;) {
    const char *const here = text;
    int rank = 0, other = 0;
    double factor = 1, ignored = 1;
    TRM_CHECK(slowdown_read_item(all, &text, size, &rank, &factor));
    for (const char *before = all; before < here;) {
      TRM_CHECK(slowdown_read_item(all, &before, size, &other, &ignored));
      if (other == rank)
        return trm_error(TRM_USAGE, "run.slow: \"%.80s\" names rank %d twice", all, rank);
    }
    if (rank == slowdown->rank)
      slowdown->slow_factor = factor;
  }
  return TRM_OK;
}

static int slowdown_unknown_jitter(const char *text, const char *word)
{
  static const char *const known[] = {"lognormal", "exponential", NULL};
  const char *nearest = trm_nearest_word(word, known);
  if (nearest)
    return trm_error(TRM_USAGE, "run.jitter: \"%.80s\": there is no \"%s\"; did you mean \"%s\"?", text, word, nearest);
  return trm_error(TRM_USAGE, "run.jitter: \"%.80s\" is neither \"lognormal SIGMA\" nor \"exponential\"", text);
}

static int slowdown_read_jitter(struct trm_slowdown *slowdown, const char *text)
{
  char word[32];
  if (*text == '\0')
    return TRM_OK;
  const int length = (int)strcspn(text, " ");
  snprintf(word, sizeof word, "%.*s", length, text);
  const char *rest = text + length + strspn(text + length, " ");
  if (strcmp(word, "exponential") == 0) {
    slowdown->jitter = TRM_JITTER_EXPONENTIAL;
    if (*rest)
      return trm_error(TRM_USAGE, "run.jitter: \"%.80s\": exponential takes no number, its mean is 1", text);
    return TRM_OK;
  }
  if (strcmp(word, "lognormal") != 0)
    return slowdown_unknown_jitter(text, word);
  slowdown->jitter = TRM_JITTER_LOGNORMAL;
  if (!slowdown_read_number(&rest, &slowdown->sigma) || *rest != '\0')
    return trm_error(TRM_USAGE, "run.jitter: \"%.80s\" is not \"lognormal SIGMA\", such as \"lognormal 0.5\"", text);
  if (slowdown->sigma > MAX_SIGMA)
    return trm_error(TRM_USAGE, "run.jitter: \"%.80s\": SIGMA is at most %g", text, MAX_SIGMA);
  return TRM_OK;
}

/* Reads one "RANK:FROM-TO" or "RANK:FROM-" at *text and moves *text to the next one or the end. */
static int slowdown_read_outage(const char *all, const char **text, double *rank, struct trm_outage *outage)
{
  *outage = (struct trm_outage){.to = INFINITY};
  *rank = -1;
  bool valid = slowdown_read_number(text, rank) && *rank == floor(*rank) && *(*text)++ == ':' &&
               slowdown_read_number(text, &outage->from) && *(*text)++ == '-';
  if (valid && !strchr(", ", **text))
    valid = slowdown_read_number(text, &outage->to);
  const bool more = valid && **text == ',';
  *text += more ? 1 + strspn(*text + 1, " ") : 0;
  if (!valid || (**text == '\0') == more)
    return trm_error(TRM_USAGE, "run.outages: \"%.80s\" is not RANK:FROM-TO or RANK:FROM-, or several with commas "
                     "(3:1.5-2.5, 5:10-)", all);
  return TRM_OK;
}

/* An outage of a rank, with those that `all` names before it, up to `end`. */
static int slowdown_check_outage(const char *all, const char *end, double rank, const struct trm_outage *outage)
{
  int count = 1;
  if (outage->from >= outage->to)
    return trm_error(TRM_USAGE, "run.outages: \"%.80s\": an outage of rank %.0f ends before it begins", all, rank);
  for (const char *text = all; text < end;) {
    double other;
    struct trm_outage before;
    TRM_CHECK(slowdown_read_outage(all, &text, &other, &before));
    if (other == rank && before.to > outage->from)
      return trm_error(TRM_USAGE, "run.outages: \"%.80s\": those of rank %.0f are not one after the other", all, rank);
    count += other == rank;
  }
  if (count > TRM_MAX_OUTAGES)
    return trm_error(TRM_USAGE, "run.outages: rank %.0f has more than %d outages", rank, TRM_MAX_OUTAGES);
  return TRM_OK;
}

static int slowdown_read_outages(struct trm_slowdown *slowdown, const char *all, int size, int servers)
{
  int failures = 0;
  for (const char *text = all; *text;) {
    const char *const here = text;
    double rank;
    struct trm_outage outage;
    TRM_CHECK(slowdown_read_outage(all, &text, &rank, &outage));
    if (rank >= size)
      return trm_error(TRM_USAGE, "run.outages: there is no rank %.0f, the job has %d rank%s", rank, size,
                       size == 1 ? ": 0" : "s, from 0");
    if (rank >= size - servers)
      return trm_error(TRM_USAGE, "run.outages: rank %.0f is a parameter server, which computes nothing", rank);
    TRM_CHECK(slowdown_check_outage(all, here, rank, &outage));
    const bool fails = outage.to == INFINITY;
    failures += fails;
    if (rank != slowdown->rank)
      continue;
    slowdown->outage[slowdown->outages++] = outage;
    slowdown->fails = fails;
  }
  if (failures > 0 && failures == size - servers)
    return trm_error(TRM_USAGE, "run.outages: \"%.80s\" leaves no worker", all);
  return TRM_OK;
}

bool trm_slowdown_has_failures(const char *outages)
{
  for (const char *text = outages; (text = strchr(text, '-'));)
    if (strchr(", ", *++text))
      return true;
  return false;
}

int trm_slowdown_create(struct trm_slowdown *slowdown, const struct trm_options *options, struct trm_comm *comm,
                        double flop_per_row)
{
  *slowdown = (struct trm_slowdown){
    .modeled = options->device.compute == TRM_COMPUTE_SLEEP || comm->ops->compute,
    .seconds_per_flop = 1 / (options->device.gflops * 1e9),
    .flop_per_row = flop_per_row,
    .slow_factor = 1,
    .seed = (uint64_t)options->run.seed,
    .rank = comm->rank,
    .comm = comm,
    .batch_rows = (size_t)options->train.batch,
  };
  TRM_CHECK(slowdown_read_slow(slowdown, options->run.slow, comm->size));
  TRM_CHECK(slowdown_read_outages(slowdown, options->run.outages, comm->size, (int)options->strategy.servers));
  return slowdown_read_jitter(slowdown, options->run.jitter);
}

/* -- the times */

double trm_slowdown_factor(const struct trm_slowdown *slowdown, uint64_t batch)
{
  uint32_t word[4];
  switch (slowdown->jitter) {
  case TRM_JITTER_LOGNORMAL:
    return exp(slowdown->sigma *
               (double)trm_random_normal(slowdown->seed, TRM_RANDOM_SLOWDOWN, (uint32_t)slowdown->rank, batch));
  case TRM_JITTER_EXPONENTIAL:
    trm_random_block(slowdown->seed, TRM_RANDOM_SLOWDOWN, (uint32_t)slowdown->rank, batch, word);
    return -log((word[0] + 1.0) * 0x1p-32); /* of (0, 1] */
  default:
    return 1;
  }
}

double trm_slowdown_modeled(struct trm_slowdown *slowdown, size_t rows)
{
  if (!slowdown->costs)
    return (double)rows * slowdown->flop_per_row * slowdown->seconds_per_flop;
  const size_t passes = slowdown->passes, pass_rows = (rows + passes - 1) / passes;
  if (pass_rows != slowdown->pass_rows) {
    slowdown->costs->gradient(slowdown->costs, slowdown->model, pass_rows, &slowdown->pass_s);
    slowdown->pass_rows = pass_rows;
  }
  return (double)passes * slowdown->pass_s;
}

double trm_slowdown_duration(struct trm_slowdown *slowdown, double modeled_s, double elapsed_s, uint64_t batch)
{
  if (!slowdown->modeled && slowdown->slow_factor == 1 && slowdown->jitter == TRM_JITTER_NONE)
    return elapsed_s;
  const double factor = slowdown->slow_factor * trm_slowdown_factor(slowdown, batch);
  const double target_s = slowdown->modeled ? modeled_s * factor : elapsed_s * fmax(1, factor);
  slowdown->batches++;
  if (slowdown->modeled && elapsed_s > target_s) {
    slowdown->overruns++;
    slowdown->overrun_s += elapsed_s - target_s;
  }
  return target_s;
}

double trm_slowdown_end(const struct trm_slowdown *slowdown, double began_s, double seconds)
{
  double end = began_s + seconds;
  for (int i = 0; i < slowdown->outages; i++) {
    const double from = slowdown->origin_s + slowdown->outage[i].from, to = slowdown->origin_s + slowdown->outage[i].to;
    if (to > began_s && from < end)
      end += to - fmax(from, began_s);
  }
  return end;
}

/* Stands still in an outage. */
static void slowdown_pause(struct trm_comm *comm, double until, bool progress)
{
  const double began = trm_trace_begin("outage");
  comm->ops->sleep_until(comm, until, progress);
  trm_trace_end("outage", TRM_TRACE_WAIT, began, TRM_TRACE_NO_IDS);
}

/* The rank has failed before the end of a computation that began at began_s, or it sleeps for the pauses. */
static void slowdown_outlast(struct trm_slowdown *slowdown, double began_s)
{
  struct trm_comm *comm = slowdown->comm;
  const double end = slowdown->outages > 0 ? trm_slowdown_end(slowdown, began_s, comm->ops->clock(comm) - began_s) : 0;
  slowdown->failed = end == INFINITY;
  if (end > 0 && !slowdown->failed)
    slowdown_pause(comm, end, false);
}

/* Waits until a time, or until the computation is abandoned: returns false then. */
static bool slowdown_wait_wanted(struct trm_slowdown *slowdown, double when)
{
  struct trm_comm *comm = slowdown->comm;
  const double limit = slowdown->abandon_at > 0 ? slowdown->abandon_at : INFINITY;
  const bool useless =
    comm->ops->wait_at_most(comm, slowdown->abandons, slowdown->abandons_context, fmin(when, limit));
  slowdown->abandoned = useless || limit < when;
  return !slowdown->abandoned;
}

/* trm_slowdown_compute of a computation that may be of no use: work runs when its time has passed. */
static int slowdown_compute_wanted(struct trm_slowdown *slowdown, double seconds, int (*work)(void *context),
                                   void *context)
{
  const double end = trm_slowdown_end(slowdown, slowdown->comm->ops->clock(slowdown->comm), seconds);
  const bool fails = end == INFINITY;
  const double failure = fails ? slowdown->origin_s + slowdown->outage[slowdown->outages - 1].from : 0;
  const bool wanted = slowdown_wait_wanted(slowdown, fails ? failure : end);
  slowdown->failed |= wanted && fails;
  return wanted && !fails && work ? work(context) : TRM_OK;
}

int trm_slowdown_compute(struct trm_slowdown *slowdown, size_t rows, uint64_t batch, int (*work)(void *context),
                         void *context)
{
  struct trm_comm *comm = slowdown->comm;
  const double began = comm->ops->clock(comm);
  const double seconds = trm_slowdown_duration(slowdown, trm_slowdown_modeled(slowdown, rows), 0, batch);
  if (slowdown->abandons)
    return slowdown_compute_wanted(slowdown, seconds, work, context);
  if (slowdown->fails && trm_slowdown_end(slowdown, began, seconds) == INFINITY) {
    comm->ops->sleep_until(comm, slowdown->origin_s + slowdown->outage[slowdown->outages - 1].from, false);
    slowdown->failed = true;
    return TRM_OK;
  }
  const int status = comm->ops->compute(comm, work, context, seconds);
  slowdown_outlast(slowdown, began);
  return status;
}

void trm_slowdown_wait(struct trm_slowdown *slowdown, double began_s, size_t rows, uint64_t batch)
{
  struct trm_comm *comm = slowdown->comm;
  if (comm->ops->compute) { /* no time has passed but that of messages */
    trm_slowdown_compute(slowdown, rows, batch, NULL, NULL);
    return;
  }
  const double elapsed_s = comm->ops->clock(comm) - began_s;
  const double target_s = trm_slowdown_duration(slowdown, trm_slowdown_modeled(slowdown, rows), elapsed_s, batch);
  if (slowdown->abandons) {
    const double end = trm_slowdown_end(slowdown, began_s, fmax(target_s, elapsed_s));
    if (!slowdown_wait_wanted(slowdown, end < INFINITY ? end : began_s + target_s))
      return;
  } else if (target_s > elapsed_s) {
    comm->ops->sleep_until(comm, began_s + target_s, false);
  }
  slowdown_outlast(slowdown, began_s);
}

/* Returns the end of the outage that the rank is in, by comm's clock; 0: it is in none. */
static double slowdown_outage_end(const struct trm_slowdown *slowdown)
{
  const double now = slowdown->comm->ops->clock(slowdown->comm);
  for (int i = 0; i < slowdown->outages; i++)
    if (now >= slowdown->origin_s + slowdown->outage[i].from && now < slowdown->origin_s + slowdown->outage[i].to)
      return slowdown->origin_s + slowdown->outage[i].to;
  return 0;
}

bool trm_slowdown_is_out(struct trm_slowdown *slowdown)
{
  const double end = slowdown_outage_end(slowdown);
  slowdown->failed |= end == INFINITY;
  return slowdown->failed || end > 0;
}

void trm_slowdown_rest(struct trm_slowdown *slowdown)
{
  struct trm_comm *comm = slowdown->comm;
  const double min_s = comm->ops->compute ? 0 : MIN_REAL_REST;
  const double batch_s = fmax(trm_slowdown_modeled(slowdown, slowdown->batch_rows), min_s);
  trm_ledger_add_progress(); /* the outage ends by itself */
  slowdown_pause(comm, fmin(slowdown_outage_end(slowdown), comm->ops->clock(comm) + batch_s), true);
}

void trm_slowdown_report(const struct trm_slowdown *slowdown, struct trm_comm *comm)
{
  double sums[] = {(double)slowdown->overruns, (double)slowdown->batches, slowdown->overrun_s};
  comm->ops->allreduce(comm, sums, sizeof sums / sizeof *sums, TRM_DOUBLE, TRM_SUM);
  if (comm->rank == 0 && sums[0] > 0)
    trm_warn("device.compute=sleep: %.0f of %.0f batches took longer to compute than modeled, %.3g s in all; choose a "
             "lower device.gflops to model slower ranks", sums[0], sums[1], sums[2]);
}
