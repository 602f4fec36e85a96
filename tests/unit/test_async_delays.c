/* Centralized methods where workers differ in speed, on the virtual network: weights and stalenesses are those of a
 * straight loop in double precision, written from the papers, over the same order of updates; on one node, on several,
 * without shared memory, and with a dedicated server. strategy.rate=delay is a constant rate, bit for bit, as long as
 * no gradient has missed more updates than there are workers. */
#include "async_race.h"

/* -- the straight loop */

/* The rate of a gradient of this delay, by n workers: Zhang et al. 2016, section 3.2; Mishchenko et al. 2022 and
 * Koloskova et al. 2022, eta n / max(n, delay); Xie et al. 2019, section 5.2. */
static double loop_rate(const struct setup *c, double rate, double delay, double n)
{
  if (c->rate == TRM_STALE_RATE_DIVIDED)
    return rate / (delay < 1 ? 1 : delay);
  if (c->rate == TRM_STALE_RATE_DELAY)
    return rate * n / (delay < n ? n : delay);
  if (c->rate == TRM_STALE_RATE_POLYNOMIAL)
    return rate / sqrt(1 + delay);
  if (c->rate == TRM_STALE_RATE_HINGE)
    return delay <= 2 ? rate : rate / (10 * (delay - 2) + 1);
  return rate;
}

/* DANA-Slim, algorithm of the worker: v = momentum v + g; g (ELEMENTS) becomes what it sends, g + momentum v. */
static void loop_look_ahead(double *v, double *g)
{
  for (size_t i = 0; i < trained_of(ELEMENTS); i++) {
    v[i] = (double)MOMENTUM * v[i] + g[i];
    g[i] += (double)MOMENTUM * v[i];
  }
}

/* c->splits: of softsync, whose updates take the mean of `count` gradients. */
static void check_loop(const struct race *race)
{
  const struct setup *c = &race->setup;
  const int count = c->splits ? race->workers / c->splits : 1;
  static double w[ELEMENTS], sum[ELEMENTS], g[ELEMENTS], view[MAX_WORKERS][ELEMENTS], v[MAX_WORKERS][ELEMENTS];
  struct trm_staleness staleness[MAX_WORKERS] = {0};
  uint64_t clock = 0, seen[MAX_WORKERS] = {0};
  int waiting = 0;
  for (int i = 0; i < ELEMENTS; i++) {
    w[i] = (double)initial((size_t)i);
    sum[i] = 0;
    for (int k = 0; k < MAX_WORKERS; k++)
      view[k][i] = w[i], v[k][i] = 0;
  }
  for (int e = 0; e < race->events; e++) {
    const int k = race->event[e].worker;
    const uint64_t delay = clock - seen[k];
    const double rate = rate_of(race->event[e].batch);
    trm_staleness_add(&staleness[k], delay);
    loop_gradient(race, race->event[e].batch, view[k], g);
    if (strcmp(c->method, "dana") == 0)
      loop_look_ahead(v[k], g);
    const bool updates = ++waiting == count;
    for (size_t i = 0; i < ELEMENTS; i++) {
      const bool trained = i < trained_of(ELEMENTS);
      sum[i] += trained ? loop_rate(c, 1, (double)delay, race->workers) * g[i] : g[i];
      if (updates) {
        w[i] += trained ? -rate * sum[i] / count : (double)STATISTIC_MOMENTUM * (sum[i] / count - w[i]);
        sum[i] = 0;
      }
      view[k][i] = w[i];
    }
    clock += updates;
    waiting = updates ? 0 : waiting;
    seen[k] = clock;
  }
  double away = 0;
  for (int i = 0; i < ELEMENTS; i++)
    away = fmax(away, isfinite(race->w[i]) ? fabs((double)race->w[i] - w[i]) : INFINITY);
  CHECK(c, away < 2e-6);
  for (int k = 0; k < race->workers; k++)
    CHECK(c, memcmp(&staleness[k], &race->staleness[k], sizeof *staleness) == 0);
}

static const enum trm_stale_rate rates[] = {TRM_STALE_RATE_CONSTANT, TRM_STALE_RATE_DIVIDED, TRM_STALE_RATE_DELAY,
                                            TRM_STALE_RATE_POLYNOMIAL, TRM_STALE_RATE_HINGE};
enum { RATES = sizeof rates / sizeof *rates };

static const struct race races[] = {
  {.setup = {.method = "asgd"}, .ranks = 4},
  {.setup = {.method = "asgd", .clip = 8}, .ranks = 5},
  {.setup = {.method = "groups"}, .ranks = 6, .groups = 3},
  {.setup = {.method = "softsync", .splits = 2}, .ranks = 4},
  {.setup = {.method = "softsync", .splits = 5}, .ranks = 5},
  {.setup = {.method = "dana", .rule = TRM_UPDATE_NESTEROV}, .ranks = 4},
  {.setup = {.method = "dana", .rule = TRM_UPDATE_MOMENTUM, .clip = 8, .l2 = 0.125}, .ranks = 5},
};
enum { RACES = sizeof races / sizeof *races };

static void test_rules(void)
{
  for (int r = 0; r < RACES; r++)
    for (int i = 0; i < RATES; i++)
      for (enum layout layout = 0; layout < LAYOUTS; layout++) {
        struct race race = races[r];
        if (layout == SERVER && race.groups > 0)
          continue;
        race.one_is_slow = true;
        race.setup.rate = rates[i];
        race.setup.layout = layout;
        race_run(&race);
        CHECK(&race.setup, race_delay(&race) > 2 * (uint64_t)race.workers);
        check_loop(&race);
      }
}

/* Equal speeds: every delay is at most the number of workers. One slow worker: some are above. */
static void test_constant(void)
{
  for (int r = 0; r < RACES; r++)
    for (int slow = 0; slow < 2; slow++) {
      struct race by[RATES];
      for (int i = 0; i < 3; i++) {
        by[i] = races[r];
        by[i].one_is_slow = slow;
        by[i].setup.rate = rates[i];
        race_run(&by[i]);
      }
      const struct setup *c = &by[2].setup;
      CHECK(c, (race_delay(&by[2]) > (uint64_t)by[2].workers) == slow);
      CHECK(c, slow || race_delay(&by[2]) > 1 || c->splits == 2);
      CHECK(c, same(by[2].w, by[0].w, ELEMENTS) == !slow);
      CHECK(c, !same(by[2].w, by[1].w, ELEMENTS) || c->splits == 2);
    }
}

int main(void)
{
  CU_TestInfo tests[] = {
    {"rules, one worker is slow", test_rules},
    {"rate=delay: constant up to n", test_constant},
    CU_TEST_INFO_NULL,
  };
  return method_run_virtual("delays", tests);
}
