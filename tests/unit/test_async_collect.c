/* Methods whose parameter server collects gradients of several workers: one worker is serial training, bit for bit; on
 * the virtual network, where workers differ in speed, weights and stalenesses are those of a straight loop in double
 * precision, written from the papers, over the same order of arrivals; on one node, on several, without shared memory,
 * and with a dedicated server. */
#include "async_race.h"

/* -- one worker */

static void test_alone(void)
{
  static const char *const methods[] = {"ringmaster", "rennala", "backup", "malenia", "ringleader", "iaasgd",
                                        "mindflayer"};
  for (enum trm_update_rule rule = TRM_UPDATE_SGD; rule <= TRM_UPDATE_ADAM; rule++)
    for (int clips = 0; clips < 2; clips++) {
      const double clip = clips ? 30 : 0;
      const size_t n = SERVER_CHUNK + 4096;
      check_alone(&(struct setup){"ringmaster", rule, clip, .elements = n, .max_delay = 1, .stops = true});
      for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        check_alone(&(struct setup){methods[i], rule, clip, .elements = n});
      if (rule <= TRM_UPDATE_MOMENTUM)
        check_alone(&(struct setup){"ormo", rule, clip, .elements = n, .l2 = clips ? 0.125 : 0});
    }
}

/* -- straight loops: arrivals change w, and tell whether the worker gets it */

/* A worker's gradients in a table, and the number of updates of the weights they are of. */
struct row {
  double sum[ELEMENTS];
  int count;
  uint64_t version;
};

struct loop {
  const struct race *race;
  double w[ELEMENTS], v[ELEMENTS];
  uint64_t clock;
  struct row table[2][MAX_WORKERS]; /* that of the round; of the next */
  bool updated[MAX_WORKERS];
  int updates; /* left in the round */
  double mean[ELEMENTS], rate;
  int collected; /* in the mean, a sum */
  bool waits[MAX_WORKERS]; /* backup: for the next update */
  struct trials {
    int left; /* of the run */
    double made, all, arrived; /* made: in the round */
  } trials[MAX_WORKERS];
};

/* Statistics move towards g; trained elements by -rate * g. */
static void loop_move(struct loop *l, double rate, const double *g)
{
  for (size_t i = 0; i < ELEMENTS; i++)
    l->w[i] += i < trained_of(ELEMENTS) ? -rate * g[i] : (double)STATISTIC_MOMENTUM * (g[i] - l->w[i]);
}

/* OrMo: of what a gradient adds to v and takes from w in all steps of the rows of buckets. */
static bool loop_ormo(struct loop *l, uint64_t seen, double rate, const double *g)
{
  const struct setup *c = &l->race->setup;
  const uint64_t n = (uint64_t)l->race->workers, bucket = (l->clock + n - 1) / n, of = (seen + n - 1) / n;
  const double beta = c->rule == TRM_UPDATE_MOMENTUM ? (double)MOMENTUM : 0, delay = (double)(l->clock - seen);
  double share = 1, power = 1, sum = 1, moved[ELEMENTS];
  if (c->rate == TRM_STALE_RATE_DIVIDED)
    share = 1 / fmax(1, delay);
  if (c->rate == TRM_STALE_RATE_DELAY)
    share = (double)n / fmax((double)n, delay);
  for (uint64_t b = of; b < bucket; b++)
    sum += power *= beta;
  for (size_t i = 0; i < trained_of(ELEMENTS) && l->clock > 0 && bucket > (l->clock - 1 + n - 1) / n; i++) {
    l->w[i] -= rate * beta * l->v[i];
    l->v[i] *= beta;
  }
  for (size_t i = 0; i < ELEMENTS; i++) {
    const double trained = i < trained_of(ELEMENTS) ? share : 1;
    l->v[i] += trained * power * g[i];
    moved[i] = trained < 1 || i < trained_of(ELEMENTS) ? trained * sum * g[i] : g[i];
  }
  loop_move(l, rate, moved);
  l->clock++;
  return true;
}

static uint64_t limit_of(const struct race *race)
{
  return race->setup.max_delay > 0 ? (uint64_t)race->setup.max_delay : (uint64_t)race->workers;
}

/* Ringmaster ASGD, algorithm 1. */
static bool loop_ringmaster(struct loop *l, uint64_t seen, double rate, const double *g)
{
  if (l->clock - seen < limit_of(l->race)) {
    loop_move(l, rate, g);
    l->clock++;
  }
  return true;
}

/* Rennala SGD, method 2: of the gradients of the current weights. */
static bool loop_rennala(struct loop *l, uint64_t seen, double rate, const double *g)
{
  const int count = l->race->setup.collect > 0 ? l->race->setup.collect : l->race->workers;
  if (seen < l->clock)
    return true;
  for (size_t i = 0; i < ELEMENTS; i++)
    l->mean[i] += g[i] / count;
  if (++l->collected < count)
    return true;
  loop_move(l, rate, l->mean);
  memset(l->mean, 0, sizeof l->mean);
  l->collected = 0;
  l->clock++;
  return true;
}

/* Workers without a batch at an event. */
static int loop_idlers(const struct race *race, int event)
{
  bool computes[MAX_WORKERS] = {false};
  int idlers = race->workers;
  for (int e = event; e < race->events; e++) {
    idlers -= !computes[race->event[e].worker];
    computes[race->event[e].worker] = true;
  }
  return idlers;
}

/* Backup workers: the first gradients of the current weights, one of each worker while enough have batches. */
static bool loop_backup(struct loop *l, int worker, uint64_t seen, double rate, const double *g, int idlers)
{
  const int n = l->race->workers, count = l->race->setup.collect > 0 ? l->race->setup.collect : n;
  CHECK(&l->race->setup, !l->waits[worker] || idlers > n - count);
  l->waits[worker] = seen == l->clock;
  loop_rennala(l, seen, rate, g);
  return l->clock > seen;
}

/* w moves by the mean of the rows' means; none has missed more than `most` updates. */
static void loop_aggregate(struct loop *l, double rate, uint64_t most)
{
  const int n = l->race->workers;
  double mean[ELEMENTS] = {0};
  for (int k = 0; k < n; k++) {
    const struct row *row = &l->table[0][k];
    CHECK(&l->race->setup, row->count > 0 && l->clock - row->version <= most);
    for (size_t i = 0; i < ELEMENTS; i++)
      mean[i] += row->sum[i] / row->count / n;
  }
  loop_move(l, rate, mean);
  l->clock++;
}

static void loop_collect(struct loop *l, struct row *row, uint64_t version, const double *g)
{
  CHECK(&l->race->setup, row->count == 0 || row->version == version); /* a row is of one version of the weights */
  row->version = version;
  row->count++;
  for (size_t i = 0; i < ELEMENTS; i++)
    row->sum[i] += g[i];
}

/* Ringleader ASGD, algorithm 1. */
static bool loop_ringleader(struct loop *l, int worker, uint64_t seen, double rate, const double *g)
{
  const int n = l->race->workers;
  int given = 0;
  if (l->updates > 0 && l->updated[worker]) {
    loop_collect(l, &l->table[1][worker], seen, g);
    return false;
  }
  loop_collect(l, &l->table[0][worker], seen, g);
  for (int k = 0; k < n; k++)
    given += l->table[0][k].count > 0;
  if (given < n)
    return false;
  if (l->updates == 0)
    l->updates = n;
  loop_aggregate(l, rate, 2 * (uint64_t)n - 2);
  l->updated[worker] = true;
  if (--l->updates == 0) {
    memcpy(l->table[0], l->table[1], sizeof l->table[0]);
    memset(l->table[1], 0, sizeof l->table[1]);
    memset(l->updated, 0, sizeof l->updated);
  }
  return true;
}

/* Malenia SGD, until every worker has given one. */
static bool loop_malenia(struct loop *l, int worker, uint64_t seen, double rate, const double *g)
{
  int given = 0;
  if (seen < l->clock)
    return true;
  loop_collect(l, &l->table[0][worker], seen, g);
  for (int k = 0; k < l->race->workers; k++)
    given += l->table[0][k].count > 0;
  if (given == l->race->workers) {
    loop_aggregate(l, rate, 0);
    memset(l->table[0], 0, sizeof l->table[0]);
  }
  return true;
}

static bool loop_iaasgd(struct loop *l, int worker, uint64_t seen, double rate, const double *g)
{
  struct row *row = &l->table[0][worker];
  int given = 0;
  memset(row, 0, sizeof *row);
  loop_collect(l, row, seen, g);
  for (int k = 0; k < l->race->workers; k++)
    given += l->table[0][k].count > 0;
  if (given == l->race->workers)
    loop_aggregate(l, rate, UINT64_MAX);
  return true;
}

static bool loop_round_has_ended(const struct loop *l)
{
  const int trials = l->race->setup.trials > 0 ? l->race->setup.trials : 1;
  for (int k = 0; k < l->race->workers; k++)
    if (l->trials[k].left > 0 && l->trials[k].made < trials)
      return false;
  return true;
}

/* MindFlayer SGD: the sum of the gradients of the round over the number to be expected, by the shares that arrived. g
 * NULL: the trial was abandoned. Returns true at the end of the round: all workers get w. */
static bool loop_mindflayer(struct loop *l, int worker, double rate, const double *g)
{
  double expected = 0, moved[ELEMENTS];
  l->trials[worker].left--;
  l->trials[worker].made++;
  l->trials[worker].all++;
  l->trials[worker].arrived += g != NULL;
  l->collected += g != NULL;
  l->rate = g ? rate : l->rate;
  for (size_t i = 0; g && i < ELEMENTS; i++)
    l->mean[i] += g[i];
  if (!loop_round_has_ended(l))
    return false;
  for (int k = 0; k < l->race->workers; k++) {
    expected += l->trials[k].made > 0 ? l->trials[k].made * l->trials[k].arrived / l->trials[k].all : 0;
    l->trials[k].made = 0;
  }
  for (size_t i = 0; i < ELEMENTS; i++)
    moved[i] = l->mean[i] / (i < trained_of(ELEMENTS) ? expected : l->collected);
  if (l->collected > 0) {
    loop_move(l, l->rate, moved);
    l->clock++;
  }
  memset(l->mean, 0, sizeof l->mean);
  l->collected = 0;
  return true;
}

static void check_loop(const struct race *race)
{
  const struct setup *c = &race->setup;
  static struct loop l;
  static double g[ELEMENTS], view[MAX_WORKERS][ELEMENTS];
  struct trm_staleness staleness[MAX_WORKERS] = {0};
  uint64_t seen[MAX_WORKERS] = {0};
  memset(&l, 0, sizeof l);
  l.race = race;
  for (int i = 0; i < ELEMENTS; i++) {
    l.w[i] = (double)initial((size_t)i);
    for (int k = 0; k < MAX_WORKERS; k++)
      view[k][i] = l.w[i];
  }
  for (int k = 0; k < race->workers; k++)
    l.trials[k].left = (BATCHES - k + race->workers - 1) / race->workers;
  for (int e = 0; e < race->events; e++) {
    const int k = race->event[e].worker;
    const double rate = rate_of(race->event[e].batch);
    bool replies;
    if (strcmp(c->method, "mindflayer") == 0) {
      const bool whole = c->frame == 0 || race_seconds(race, k, race->event[e].batch) <= c->frame;
      CHECK(c, race->event[e].abandoned == !whole);
      trm_staleness_add(&staleness[k], 0);
      loop_gradient(race, race->event[e].batch, view[k], g);
      if (loop_mindflayer(&l, k, rate, whole ? g : NULL))
        for (int i = 0; i < race->workers; i++)
          memcpy(view[i], l.w, sizeof view[i]);
      continue;
    }
    trm_staleness_add(&staleness[k], l.clock - seen[k]);
    if (race->event[e].abandoned) { /* as soon as its delay is R */
      CHECK(c, l.clock - seen[k] == limit_of(race));
      memcpy(view[k], l.w, sizeof view[k]);
      seen[k] = l.clock;
      continue;
    }
    CHECK(c, !c->stops || l.clock - seen[k] < limit_of(race));
    loop_gradient(race, race->event[e].batch, view[k], g);
    if (strcmp(c->method, "ringmaster") == 0)
      replies = loop_ringmaster(&l, seen[k], rate, g);
    else if (strcmp(c->method, "rennala") == 0)
      replies = loop_rennala(&l, seen[k], rate, g);
    else if (strcmp(c->method, "backup") == 0)
      replies = loop_backup(&l, k, seen[k], rate, g, loop_idlers(race, e));
    else if (strcmp(c->method, "malenia") == 0)
      replies = loop_malenia(&l, k, seen[k], rate, g);
    else if (strcmp(c->method, "ormo") == 0)
      replies = loop_ormo(&l, seen[k], rate, g);
    else if (strcmp(c->method, "ringleader") == 0)
      replies = loop_ringleader(&l, k, seen[k], rate, g);
    else
      replies = loop_iaasgd(&l, k, seen[k], rate, g);
    for (int i = 0; i < MAX_WORKERS; i++)
      if ((i == k && replies) || (l.waits[i] && l.clock > seen[i])) {
        memcpy(view[i], l.w, sizeof view[i]);
        seen[i] = l.clock;
        l.waits[i] = false;
      }
  }
  double away = 0;
  for (int i = 0; i < ELEMENTS; i++)
    away = fmax(away, isfinite(race->w[i]) ? fabs((double)race->w[i] - l.w[i]) : INFINITY);
  CHECK(c, away < 2e-6);
  for (int k = 0; k < race->workers; k++)
    CHECK(c, memcmp(&staleness[k], &race->staleness[k], sizeof *staleness) == 0);
}

/* Ringmaster ASGD with stops, in time: a worker begins at 0, when its gradient has ended, and when its delay has reached
 * R. Its batches are every n-th. */
static void check_times(const struct race *race)
{
  const int n = race->workers;
  double ends[MAX_WORKERS];
  uint64_t seen[MAX_WORKERS] = {0}, clock = 0;
  int left[MAX_WORKERS], e = 0, stops = 0;
  for (int k = 0; k < n; k++) {
    ends[k] = seconds_of(race, k);
    left[k] = (BATCHES - k + n - 1) / n;
  }
  while (e < BATCHES) {
    int first = 0, late = 0;
    for (int k = 1; k < n; k++)
      first = ends[k] < ends[first] ? k : first;
    const double now = ends[first];
    CHECK(&race->setup, race->event[e].worker == first && !race->event[e].abandoned);
    e++;
    seen[first] = ++clock;
    ends[first] = --left[first] > 0 ? now + seconds_of(race, first) : INFINITY;
    for (int k = 0; k < n; k++)
      if (ends[k] < INFINITY && clock - seen[k] >= limit_of(race)) {
        seen[k] = clock;
        ends[k] = --left[k] > 0 ? now + seconds_of(race, k) : INFINITY;
        late++;
      }
    for (stops += late; late > 0; late--, e++)
      CHECK(&race->setup, e < BATCHES && race->event[e].abandoned && seen[race->event[e].worker] == clock);
  }
  CHECK(&race->setup, stops > 0 || !race->one_is_slow);
}

static const struct race races[] = {
  {.setup = {.method = "ringmaster", .max_delay = 2}, .ranks = 4},
  {.setup = {.method = "ringmaster", .clip = 8}, .ranks = 6},
  {.setup = {.method = "ringmaster", .max_delay = 3, .stops = true}, .ranks = 5},
  {.setup = {.method = "ringmaster", .max_delay = 6, .clip = 8, .stops = true}, .ranks = 4},
  {.setup = {.method = "mindflayer", .clip = 8}, .ranks = 5},
  {.setup = {.method = "mindflayer", .frame = 1.55}, .ranks = 4},
  {.setup = {.method = "mindflayer", .frame = 1.05, .trials = 3, .clip = 8}, .ranks = 4},
  {.setup = {.method = "mindflayer", .frame = 0.5}, .ranks = 3},
  {.setup = {.method = "rennala", .collect = 3, .clip = 8}, .ranks = 5},
  {.setup = {.method = "rennala"}, .ranks = 3},
  {.setup = {.method = "backup", .collect = 3, .clip = 8}, .ranks = 5},
  {.setup = {.method = "backup"}, .ranks = 3},
  {.setup = {.method = "malenia", .clip = 8}, .ranks = 4},
  {.setup = {.method = "ormo", .rule = TRM_UPDATE_MOMENTUM}, .ranks = 4},
  {.setup = {.method = "ormo", .rule = TRM_UPDATE_MOMENTUM, .rate = TRM_STALE_RATE_DELAY}, .ranks = 5},
  {.setup = {.method = "ormo", .rule = TRM_UPDATE_MOMENTUM, .rate = TRM_STALE_RATE_DIVIDED, .clip = 8, .l2 = 0.125},
   .ranks = 3},
  {.setup = {.method = "ormo", .clip = 8}, .ranks = 4},
  {.setup = {.method = "ringleader"}, .ranks = 4},
  {.setup = {.method = "ringleader", .clip = 8}, .ranks = 6},
  {.setup = {.method = "iaasgd"}, .ranks = 3},
  {.setup = {.method = "iaasgd", .clip = 8}, .ranks = 5},
};
enum { RACES = sizeof races / sizeof *races };

static void test_rules(void)
{
  for (int r = 0; r < RACES; r++)
    for (enum layout layout = 0; layout < LAYOUTS; layout++)
      for (int slow = 0; slow < 2; slow++) {
        struct race race = races[r];
        race.one_is_slow = slow;
        race.setup.layout = layout;
        race_run(&race);
        check_loop(&race);
        if (race.setup.stops)
          check_times(&race);
        const uint64_t n = (uint64_t)race.workers;
        if (strcmp(race.setup.method, "ringleader") == 0)
          CHECK(&race.setup, race_delay(&race) <= 2 * n - 2 && race_delay(&race) >= n - 1);
      }
}

/* What two settings make of the same race: equal bits. */
static void check_equal(struct race one, struct race other)
{
  race_run(&one);
  race_run(&other);
  CHECK(&one.setup, memcmp(one.w, other.w, sizeof one.w) == 0);
}

/* With R = 1 all updates are of the current weights: serial training on their batches, bit for bit. */
static void check_fresh(const struct race *race)
{
  const struct setup *c = &race->setup;
  struct job job;
  struct setup alone = *c;
  alone.layout = ONE_NODE;
  job_start(&job, &alone, trm_comm_self());
  struct serial r = serial_begin(c);
  float g[ELEMENTS];
  for (int e = 0; e < race->events; e++)
    if (!race->event[e].abandoned) {
      gradient(race->event[e].batch, 0, 1, 0.5, r.w, g, ELEMENTS);
      serial_step(&r, &job.optimizer, rate_of(race->event[e].batch), g);
    }
  CHECK(c, same(r.w, race->w, ELEMENTS) && r.steps < BATCHES);
  serial_end(&r);
  job.strategy.ops->destroy(&job.strategy);
}

static void test_identities(void)
{
  for (enum layout layout = 0; layout < LAYOUTS; layout++)
    for (int slow = 0; slow < 2; slow++)
      for (enum trm_update_rule rule = TRM_UPDATE_SGD; rule <= TRM_UPDATE_ADAM; rule++) {
        const struct race of = {.setup = {.rule = rule, .layout = layout, .clip = 8}, .ranks = 4, .one_is_slow = slow};
        struct race asgd = of, none = of, fresh = of, one = of;
        asgd.setup.method = "asgd";
        none.setup.method = fresh.setup.method = "ringmaster";
        none.setup.max_delay = BATCHES; /* drops nothing */
        check_equal(asgd, none);
        none.setup.stops = true;
        check_equal(asgd, none);
        fresh.setup.max_delay = 1;
        one.setup.method = "rennala";
        one.setup.collect = 1;
        check_equal(fresh, one);
        fresh.setup.stops = true;
        race_run(&fresh);
        check_fresh(&fresh);
      }
}

static void test_refusals(void)
{
  const struct setup c = {.method = "ormo", .rule = TRM_UPDATE_NESTEROV, .elements = ELEMENTS};
  struct job job = {.optimizer = {.update = {.rule = c.rule}, .states = 1}};
  job.strategy = (struct trm_strategy){.ops = trm_strategy_find(c.method), .comm = world, .optimizer = &job.optimizer};
  CHECK(&c, job.strategy.ops->create(&job.strategy) == TRM_USAGE);
}

int main(void)
{
  CU_TestInfo tests[] = {
    {"one worker", test_alone},
    {"rules", test_rules},
    {"identities", test_identities},
    {"refusals", test_refusals},
    CU_TEST_INFO_NULL,
  };
  return method_run_virtual("collect", tests);
}
