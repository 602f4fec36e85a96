#include "train/pace.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/log.h"
#include "core/random.h"
#include "core/status.h"

/* Factors beyond these are typing errors. */
#define MOST_SLOW 1e6
#define MOST_SIGMA 4.0

/* -- the options */

/* A decimal number at *text, which moves behind it. strtod alone would take spaces, signs, "nan" and 0x2, too. */
static bool number_take(const char **text, double *value)
{
  const char *digit = **text == '.' ? *text + 1 : *text;
  char *end;
  if (*digit < '0' || *digit > '9' || digit[1] == 'x' || digit[1] == 'X')
    return false;
  *value = strtod(*text, &end);
  *text = end;
  return isfinite(*value);
}

/* One "RANK:FACTOR" at *text, which moves to the next one or the end. */
static int slow_item(const char *all, const char **text, int size, int *rank, double *factor)
{
  double number = -1;
  bool whole = number_take(text, &number) && number == floor(number) && *(*text)++ == ':' && number_take(text, factor);
  if (whole && **text == ',')
    whole = *++*text != '\0';
  else if (whole)
    whole = **text == '\0';
  if (!whole)
    return trm_error(TRM_USAGE, "run.slow: \"%.80s\" is not RANK:FACTOR, or several with commas (1:2 or 0:1.5,3:10)",
                     all);
  if (number >= size)
    return trm_error(TRM_USAGE, "run.slow: there is no rank %.0f, the job has %d rank%s", number, size,
                     size == 1 ? ": 0" : "s, from 0");
  if (*factor < 1 || *factor > MOST_SLOW)
    return trm_error(TRM_USAGE, "run.slow: rank %.0f cannot take %g times its time, only 1 to %.0f times", number,
                     *factor, MOST_SLOW);
  *rank = (int)number;
  return TRM_OK;
}

static int slow_read(struct trm_pace *pace, const char *all, int size)
{
  for (const char *text = all; *text;) {
    const char *const here = text;
    int rank = 0, other = 0;
    double factor = 1, ignored = 1;
    TRM_CHECK(slow_item(all, &text, size, &rank, &factor));
    for (const char *before = all; before < here;) {
      TRM_CHECK(slow_item(all, &before, size, &other, &ignored));
      if (other == rank)
        return trm_error(TRM_USAGE, "run.slow: \"%.80s\" names rank %d twice", all, rank);
    }
    if (rank == pace->rank)
      pace->slow = factor;
  }
  return TRM_OK;
}

static int jitter_unknown(const char *text, const char *word)
{
  static const char *const known[] = {"lognormal", "exponential", NULL};
  const char *nearest = trm_nearest(word, known);
  if (nearest)
    return trm_error(TRM_USAGE, "run.jitter: \"%.80s\": there is no \"%s\"; did you mean \"%s\"?", text, word, nearest);
  return trm_error(TRM_USAGE, "run.jitter: \"%.80s\" is neither \"lognormal SIGMA\" nor \"exponential\"", text);
}

static int jitter_read(struct trm_pace *pace, const char *text)
{
  char word[32];
  if (*text == '\0')
    return TRM_OK;
  const int length = (int)strcspn(text, " ");
  snprintf(word, sizeof word, "%.*s", length, text);
  const char *rest = text + length + strspn(text + length, " ");
  if (strcmp(word, "exponential") == 0) {
    pace->jitter = TRM_JITTER_EXPONENTIAL;
    if (*rest)
      return trm_error(TRM_USAGE, "run.jitter: \"%.80s\": exponential takes no number, its mean is 1", text);
    return TRM_OK;
  }
  if (strcmp(word, "lognormal") != 0)
    return jitter_unknown(text, word);
  pace->jitter = TRM_JITTER_LOGNORMAL;
  if (!number_take(&rest, &pace->sigma) || *rest != '\0')
    return trm_error(TRM_USAGE, "run.jitter: \"%.80s\" is not \"lognormal SIGMA\", such as \"lognormal 0.5\"", text);
  if (pace->sigma > MOST_SIGMA)
    return trm_error(TRM_USAGE, "run.jitter: \"%.80s\": SIGMA is at most %g", text, MOST_SIGMA);
  return TRM_OK;
}

int trm_pace_create(struct trm_pace *pace, const struct trm_options *options, int rank, int size, double flop_per_row)
{
  *pace = (struct trm_pace){
    .sleeps = strcmp(options->device.compute, "sleep") == 0,
    .seconds_per_flop = 1 / (options->device.gflops * 1e9),
    .flop_per_row = flop_per_row,
    .slow = 1,
    .seed = (uint64_t)options->run.seed,
    .rank = rank,
  };
  TRM_CHECK(slow_read(pace, options->run.slow, size));
  return jitter_read(pace, options->run.jitter);
}

/* -- the times */

double trm_pace_clock(void)
{
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

double trm_pace_factor(const struct trm_pace *pace, uint64_t batch)
{
  uint32_t word[4];
  switch (pace->jitter) {
  case TRM_JITTER_LOGNORMAL:
    return exp(pace->sigma * (double)trm_random_normal(pace->seed, TRM_RANDOM_PACE, (uint32_t)pace->rank, batch));
  case TRM_JITTER_EXPONENTIAL:
    trm_random_block(pace->seed, TRM_RANDOM_PACE, (uint32_t)pace->rank, batch, word);
    return -log((word[0] + 1.0) * 0x1p-32); /* of (0, 1] */
  default:
    return 1;
  }
}

/* To a time of the clock, not for a time: what a signal interrupts goes on to the same end. */
static void sleep_until(double when_s)
{
  const double whole = floor(when_s);
  const struct timespec when = {.tv_sec = (time_t)whole, .tv_nsec = (long)((when_s - whole) * 1e9)};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &when, NULL) == EINTR)
    continue;
}

double trm_pace_lasts(struct trm_pace *pace, double flop, double took, uint64_t batch)
{
  if (!pace->sleeps && pace->slow == 1 && pace->jitter == TRM_JITTER_NONE)
    return took;
  const double times = pace->slow * trm_pace_factor(pace, batch);
  const double asked = pace->sleeps ? flop * pace->seconds_per_flop * times : took * fmax(1, times);
  pace->batches++;
  if (pace->sleeps && took > asked) {
    pace->overruns++;
    pace->late_s += took - asked;
  }
  return asked;
}

void trm_pace_hold(struct trm_pace *pace, double began_s, size_t rows, uint64_t batch)
{
  const double took = trm_pace_clock() - began_s;
  const double asked = trm_pace_lasts(pace, (double)rows * pace->flop_per_row, took, batch);
  if (asked > took)
    sleep_until(began_s + asked);
}

void trm_pace_report(const struct trm_pace *pace, struct trm_comm *comm)
{
  double sums[] = {(double)pace->overruns, (double)pace->batches, pace->late_s};
  comm->ops->allreduce(comm, sums, sizeof sums / sizeof *sums, TRM_DOUBLE, TRM_SUM);
  if (comm->rank == 0 && sums[0] > 0)
    trm_warn("device.compute=sleep: %.0f of %.0f batches took longer to compute than modelled, %.3g s in all, and were "
             "not shortened; a lower device.gflops models slower ranks", sums[0], sums[1], sums[2]);
}
