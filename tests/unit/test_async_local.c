/* Methods whose workers make several steps of their own between two exchanges (mpi/async/local_work.h), on the virtual
 * network, where workers differ in speed: weights and stalenesses are those of a straight loop in double precision,
 * written from the papers, over the same order of steps; identities, bit for bit; checkpoints between exchanges. */
#include "async_job.h"
#include "mpi/async/local_work.h"
#include "mpi/virtual.h"

enum { MAX_ELEMENTS = SERVER_CHUNK + 512, MAX_BATCHES = 96, MAX_WORKERS = 5 };

/* WEIGHTS_FAR: gradients do not depend on the weights, which are in [4, 5), so that differences of weights are exact.
 * ON_GRID: all values are exact in binary. */
enum gradients { PARABOLA, WEIGHTS_FAR, ON_GRID };

/* A run, and its steps in order; the ranks run one at a time. */
struct race {
  struct setup setup;
  int ranks;
  enum gradients gradients;
  bool one_is_slow, equal;  /* worker 0; the workers are equally fast */
  int batches, middle;      /* middle: a quiesce point */
  bool pauses;              /* there, a checkpoint, and a new job */
  struct {
    int worker;
    uint64_t batch;
  } event[MAX_BATCHES];
  int events, workers;
  float w[MAX_ELEMENTS];
  struct trm_staleness staleness[MAX_WORKERS];
  int64_t length[MAX_WORKERS]; /* of the latest period */
};

static double seconds_of(const struct race *race, int worker)
{
  return race->one_is_slow && worker == 0 ? 4.3 : race->equal ? 1 : 1 + 0.03 * worker;
}

static double race_rate(const struct race *race, uint64_t batch)
{
  return race->gradients == PARABOLA ? rate_of(batch) : 0.125;
}

static float race_initial(size_t i)
{
  return 4.5f + initial(i) / 2;
}

/* Runs this rank's batches before `end`. */
static int race_batches(struct race *race, struct job *job, uint64_t end)
{
  struct trm_strategy *s = &job->strategy;
  struct trm_comm *comm = s->comm;
  const int number = worker_of(s)->number;
  uint64_t batch;
  while (next_batch(s, end, &batch)) {
    TRM_CHECK(s->ops->before_forward(s));
    if (race->gradients == PARABOLA)
      gradient(batch, 0, 1, 0.5, s->w, s->g, s->elements);
    else
      exact_gradient(batch, 0, s->g, s->elements);
    comm->ops->sleep_until(comm, comm->ops->clock(comm) + seconds_of(race, number), true);
    race->event[race->events].worker = number;
    race->event[race->events++].batch = batch;
    struct trm_loss_sums sums = {.loss = 1, .rows = 1};
    TRM_CHECK(s->ops->step(s, race_rate(race, batch), &sums));
  }
  return s->ops->quiesce(s);
}

/* A checkpoint, as another job gets it. */
static int race_pause(struct race *race, struct job *job, struct trm_comm *comm, uint64_t updates)
{
  struct trm_strategy *s = &job->strategy;
  float *view[TRM_MAX_STATES] = {NULL};
  void *kept[TRM_MAX_LOCAL_STATES] = {NULL};
  for (int i = 0; i <= s->optimizer->states; i++) {
    view[i] = array(s->elements);
    TRM_CHECK(strategy_read(s, i, view[i]));
    comm->ops->broadcast(comm, view[i], s->elements, TRM_FLOAT, 0);
  }
  for (int i = 0; i < s->local_states; i++) {
    kept[i] = trm_alloc(s->local_state[i].bytes, "test");
    memcpy(kept[i], s->local_state[i].data, s->local_state[i].bytes);
  }
  comm->ops->barrier(comm);
  s->ops->destroy(s);
  job_start(job, &race->setup, comm);
  for (int i = 0; i < s->local_states; i++)
    memcpy(s->local_state[i].data, kept[i], s->local_state[i].bytes);
  s->local_state_restored = true;
  comm->ops->barrier(comm);
  TRM_CHECK(s->ops->restore(s, (const float *const *)view, updates));
  for (int i = 0; i < TRM_MAX_STATES; i++)
    trm_free(view[i]);
  for (int i = 0; i < TRM_MAX_LOCAL_STATES; i++)
    trm_free(kept[i]);
  return TRM_OK;
}

static int race_rank(struct trm_comm *comm, void *of)
{
  struct race *race = of;
  struct job job;
  job_start(&job, &race->setup, comm);
  struct trm_strategy *s = &job.strategy;
  const int number = worker_of(s)->number;
  strategy_restore_initial(s, race->gradients == WEIGHTS_FAR ? race_initial : initial);
  if (race->middle)
    TRM_CHECK(race_batches(race, &job, (uint64_t)race->middle));
  if (race->pauses)
    TRM_CHECK(race_pause(race, &job, comm, (uint64_t)race->middle));
  TRM_CHECK(race_batches(race, &job, (uint64_t)race->batches));
  if (number >= 0) {
    race->workers = worker_of(s)->workers;
    race->staleness[number] = *s->staleness;
    if (strcmp(race->setup.method, "asyncdiloco") == 0)
      race->length[number] = ((const struct local_work *)worker_of(s)->method)->period.length;
  }
  if (comm->rank == 0)
    memcpy(race->w, s->eval_weights, s->elements * sizeof *race->w);
  s->ops->destroy(s);
  return TRM_OK;
}

static void race_run(struct race *race)
{
  const enum layout layout = race->setup.layout;
  const struct trm_virtual_plan plan = {.ranks = race->ranks + (layout == SERVER),
                                        .ranks_per_node = layout == PAIRS ? 2 : race->ranks + 1,
                                        .latency = 1e-5,
                                        .bandwidth = 1e9};
  race->setup.elements = race->setup.elements ? race->setup.elements : 512;
  race->batches = race->batches ? race->batches : 60;
  race->events = 0;
  const int status = trm_virtual_run(&plan, race_rank, race, NULL);
  CHECK(&race->setup, status == TRM_OK);
  CHECK(&race->setup, race->events == race->batches);
}

/* -- the straight loop */

/* Xie et al. 2019, section 5.2 (hinge: a = 10, b as in async_job.h); Zhang et al. 2016; Koloskova et al. 2022. */
static double loop_weight(const struct setup *c, double staleness, double workers)
{
  switch (c->rate) {
  case TRM_STALE_RATE_DIVIDED: return staleness > 1 ? 1 / staleness : 1;
  case TRM_STALE_RATE_DELAY: return staleness > workers ? workers / staleness : 1;
  case TRM_STALE_RATE_POLYNOMIAL: return 1 / sqrt(staleness + 1);
  case TRM_STALE_RATE_HINGE: return staleness <= 2 ? 1 : 1 / (10 * (staleness - 2) + 1);
  default: return 1;
  }
}

/* The server: weights, momentum, sum of differences. */
struct loop {
  double w[512], m[512], sum[512];
  int pushes;
};

static void loop_fedasync(const struct setup *c, struct loop *r, const double *from, double s)
{
  const double a = (c->alpha > 0 ? c->alpha : 0.6) * s;
  for (size_t i = 0; i < c->elements; i++)
    r->w[i] = (1 - a) * r->w[i] + a * from[i];
}

/* Nguyen et al. 2022, algorithm 1, with the momentum of the server's optimizer; returns whether it updates. */
static bool loop_fedbuff(const struct setup *c, struct loop *r, const double *delta, double s, double count)
{
  for (size_t i = 0; i < c->elements; i++)
    r->sum[i] += i < trained_of(c->elements) ? s * delta[i] : delta[i];
  if (++r->pushes % (int)count != 0)
    return false;
  for (size_t i = 0; i < c->elements; i++) {
    const bool trained = i < trained_of(c->elements);
    r->m[i] = (trained ? c->outer_momentum * r->m[i] : 0) + r->sum[i] / count;
    r->w[i] += (trained && c->outer_rate > 0 ? c->outer_rate : 1) * r->m[i];
    r->sum[i] = 0;
  }
  return true;
}

/* Liu et al. 2024, algorithm 3. */
static void loop_delayed_nesterov(const struct setup *c, struct loop *r, const double *delta, double n, double epsilon,
                                  double beta, double activation)
{
  const bool is_last = (r->pushes + 1) % (int)n == 0;
  for (size_t i = 0; i < trained_of(c->elements); i++) {
    const double g = -delta[i];
    r->sum[i] += g;
    if (is_last) {
      r->m[i] = beta * r->m[i] + r->sum[i] / n;
      r->w[i] -= epsilon * ((1 - activation * n + activation) * beta * r->m[i] + g / n);
      r->sum[i] = 0;
    } else {
      r->w[i] -= epsilon * (activation * beta * r->m[i] + g / n);
    }
  }
  for (size_t i = trained_of(c->elements); i < c->elements; i++)
    r->w[i] += delta[i] / n;
  r->pushes++;
}

/* Kim et al. 2025, and the authors' code: the group's server, then every K pushes the global one. */
static void loop_halos(const struct setup *c, struct loop *r, struct loop *group, double *met, const double *delta,
                       double n)
{
  loop_delayed_nesterov(c, group, delta, n, c->outer_rate > 0 ? c->outer_rate : 0.2 * n,
                        c->outer_momentum > 0 ? c->outer_momentum : 0.9, c->activation);
  if (group->pushes % c->global_every != 0)
    return;
  double moved[512];
  for (size_t i = 0; i < c->elements; i++)
    moved[i] = group->w[i] - met[i];
  loop_delayed_nesterov(c, r, moved, 2, c->global_rate, c->global_momentum, 0);
  for (size_t i = 0; i < c->elements; i++) {
    const double alpha = c->alpha > 0 ? c->alpha : 0.25;
    met[i] = group->w[i] = (1 - alpha) * group->w[i] + alpha * r->w[i];
  }
}

/* The group of a worker: equal ones, or nodes. */
static int group_of(const struct race *race, int worker)
{
  const struct setup *c = &race->setup;
  if (c->groups > 0)
    return ((worker + 1) * c->groups - 1) / race->workers;
  return c->layout == PAIRS ? worker / 2 : c->layout == NO_SHARING ? worker : 0;
}

static void check_loop(const struct race *race)
{
  const struct setup *c = &race->setup;
  const bool is_halos = strcmp(c->method, "halos") == 0;
  static double w[MAX_WORKERS][512], start[MAX_WORKERS][512], v[MAX_WORKERS][512];
  static struct loop r, group[MAX_WORKERS];
  static double met[MAX_WORKERS][512];
  float at[512], g[512];
  double delta[512];
  struct trm_staleness staleness[MAX_WORKERS] = {0};
  uint64_t clock = 0, seen[MAX_WORKERS] = {0};
  int steps[MAX_WORKERS] = {0};
  memset(&r, 0, sizeof r);
  memset(group, 0, sizeof group);
  for (size_t i = 0; i < c->elements; i++) {
    r.w[i] = (double)initial(i);
    for (int k = 0; k < MAX_WORKERS; k++)
      w[k][i] = start[k][i] = group[k].w[i] = met[k][i] = r.w[i], v[k][i] = 0;
  }
  for (int e = 0; e < race->events; e++) {
    const int k = race->event[e].worker, of = group_of(race, k);
    const double rate = rate_of(race->event[e].batch);
    for (size_t i = 0; i < c->elements; i++)
      at[i] = (float)w[k][i];
    gradient(race->event[e].batch, 0, 1, 0.5, at, g, c->elements);
    for (size_t i = 0; i < c->elements; i++) {
      const double momentum = c->rule == TRM_UPDATE_MOMENTUM ? (double)MOMENTUM : 0;
      v[k][i] = momentum * v[k][i] + (double)g[i];
      w[k][i] -= i < trained_of(c->elements) ? rate * v[k][i] : (double)STATISTIC_MOMENTUM * (w[k][i] - (double)g[i]);
    }
    if (++steps[k] < c->tau)
      continue;
    const uint64_t delay = clock - seen[k];
    const double s = loop_weight(c, (double)delay, race->workers), count = c->collect ? c->collect : race->workers;
    trm_staleness_add(&staleness[k], delay);
    for (size_t i = 0; i < c->elements; i++)
      delta[i] = w[k][i] - start[k][i];
    bool updates = true;
    if (strcmp(c->method, "fedasync") == 0)
      loop_fedasync(c, &r, w[k], s);
    else if (strcmp(c->method, "fedbuff") == 0)
      updates = loop_fedbuff(c, &r, delta, s, count);
    else if (strcmp(c->method, "asyncdiloco") == 0)
      loop_delayed_nesterov(c, &r, delta, count, c->outer_rate > 0 ? c->outer_rate : 0.7,
                            c->outer_momentum > 0 ? c->outer_momentum : 0.9, c->activation);
    else
      loop_halos(c, &r, &group[of], met[of], delta, count);
    clock += updates;
    seen[k] = clock;
    steps[k] = 0;
    memcpy(w[k], is_halos ? group[of].w : r.w, sizeof r.w);
    memcpy(start[k], w[k], sizeof r.w);
  }
  double away = 0;
  for (size_t i = 0; i < c->elements; i++)
    away = fmax(away, isfinite(race->w[i]) ? fabs((double)race->w[i] - r.w[i]) : INFINITY);
  if (!(away < 1e-5))
    printf("\n    %g from the loop\n", away);
  CHECK(c, away < 1e-5);
  for (int k = 0; k < race->workers; k++)
    CHECK(c, memcmp(&staleness[k], &race->staleness[k], sizeof *staleness) == 0);
}

static const struct setup setups[] = {
  {"fedasync", .tau = 1},
  {"fedasync", TRM_UPDATE_MOMENTUM, .tau = 3, .alpha = 0.5, .rate = TRM_STALE_RATE_POLYNOMIAL},
  {"fedasync", .tau = 2, .rate = TRM_STALE_RATE_HINGE},
  {"fedbuff", .tau = 2},
  {"fedbuff", TRM_UPDATE_MOMENTUM, .tau = 1, .collect = 3, .outer_rate = 0.5, .outer_momentum = 0.5,
   .rate = TRM_STALE_RATE_POLYNOMIAL},
  {"fedbuff", .tau = 3, .collect = 2, .rate = TRM_STALE_RATE_HINGE},
  {"asyncdiloco", .tau = 2},
  {"asyncdiloco", TRM_UPDATE_MOMENTUM, .tau = 3, .collect = 3, .outer_rate = 0.5, .outer_momentum = 0.75},
  {"asyncdiloco", .tau = 1, .collect = 5, .activation = 0.125},
  {"halos", .tau = 1, .groups = 2, .collect = 2, .global_every = 3, .global_rate = 0.3, .global_momentum = 0.5},
  {"halos", TRM_UPDATE_MOMENTUM, .tau = 2, .collect = 3, .outer_rate = 0.5, .outer_momentum = 0.75, .activation = 0.25,
   .global_every = 2, .global_rate = 1.5, .global_momentum = 0.25, .alpha = 0.5},
};
enum { SETUPS = sizeof setups / sizeof *setups };

static void test_rules(void)
{
  for (int i = 0; i < SETUPS; i++)
    for (enum layout layout = 0; layout < LAYOUTS; layout++) {
      struct race race = {.setup = setups[i], .ranks = 4, .one_is_slow = true, .middle = 31};
      race.setup.layout = layout;
      race_run(&race);
      check_loop(&race);
    }
}

/* -- identities */

/* Two runs with the same weights. */
static void check_same(struct race *a, struct race *b)
{
  race_run(a);
  race_run(b);
  CHECK(&a->setup, same(a->w, b->w, a->setup.elements));
}

/* fedasync: one worker whose weights replace the server's (alpha 1) is serial training. */
static void test_serial(void)
{
  for (enum trm_update_rule rule = TRM_UPDATE_SGD; rule <= TRM_UPDATE_ADAM; rule++)
    for (int tau = 1; tau <= 3; tau += 2) {
      const struct setup c = {"fedasync", rule, .clip = 60, .tau = tau, .alpha = 1, .elements = SERVER_CHUNK + 512};
      struct job job;
      job_start(&job, &c, world);
      job_begin(&job);
      CHECK(&c, run_worker(&job, 18, 0.5, 18, 0) == TRM_OK);
      struct serial r = serial_begin(&c);
      float *g = array(c.elements);
      for (uint64_t b = 0; b < 18; b++) {
        gradient(b, 0, 1, 0.5, r.w, g, c.elements);
        serial_step(&r, &job.optimizer, rate_of(b), g);
      }
      CHECK(&c, same(job.strategy.eval_weights, r.w, c.elements));
      trm_free(g);
      serial_end(&r);
      job.strategy.ops->destroy(&job.strategy);
    }
}

/* fedbuff with K = 1 and periods of one step is asgd, and so is asyncdiloco with N = 1 and neither rate nor momentum:
 * gradients, rates and weights are exact in binary. Statistics move towards where they were at the period's begin. */
static void test_asgd(void)
{
  for (enum layout layout = 0; layout < LAYOUTS; layout++)
    for (int i = 0; i < 2; i++) {
      struct race local = {.setup = {i ? "asyncdiloco" : "fedbuff", .tau = 1, .collect = 1, .outer_rate = 1,
                                     .outer_momentum = i ? 1e-30 : 0, .layout = layout},
                           .ranks = 4, .gradients = ON_GRID, .one_is_slow = true};
      struct race asgd = local;
      asgd.setup.method = "asgd";
      race_run(&local);
      race_run(&asgd);
      CHECK(&local.setup, same(local.w, asgd.w, trained_of(local.setup.elements)));
      CHECK(&local.setup, memcmp(local.staleness, asgd.staleness, sizeof asgd.staleness) == 0);
    }
}

/* asyncdiloco with N = 1 and one worker is diloco of one replica, whose weights here have exact differences. */
static void test_diloco(void)
{
  for (enum trm_update_rule rule = TRM_UPDATE_SGD; rule <= TRM_UPDATE_ADAM; rule += TRM_UPDATE_ADAM - TRM_UPDATE_SGD) {
    struct race race = {.setup = {"asyncdiloco", rule, .tau = 3}, .ranks = 1, .gradients = WEIGHTS_FAR, .batches = 12};
    race_run(&race);
    struct setup c = race.setup;
    c.method = "diloco";
    struct job job;
    job_start(&job, &c, world);
    struct trm_strategy *s = &job.strategy;
    strategy_restore_initial(s, race_initial);
    float *w = array(c.elements);
    for (uint64_t b = 0; b < 12; b++) {
      struct trm_loss_sums sums = {.loss = 1, .rows = 1};
      CHECK(&c, !s->ops->before_forward || s->ops->before_forward(s) == TRM_OK);
      exact_gradient(b, 0, s->g, c.elements);
      trm_strategy_begin_step(s, race_rate(&race, b), 0, &sums);
      if (s->ops->grad_ready)
        CHECK(&c, s->ops->grad_ready(s, 0, c.elements, &sums) == TRM_OK);
      CHECK(&c, s->ops->step(s, race_rate(&race, b), &sums) == TRM_OK);
    }
    CHECK(&c, s->ops->quiesce(s) == TRM_OK && strategy_read(s, 0, w) == TRM_OK);
    CHECK(&c, same(race.w, w, trained_of(c.elements)));
    trm_free(w);
    s->ops->destroy(s);
  }
}

/* halos with one group that meets the global weights, which only follow it, after every push is asyncdiloco. */
static void test_one_group(void)
{
  for (enum layout layout = 0; layout < LAYOUTS; layout++) {
    struct race halos = {.setup = {"halos", .tau = 2, .collect = 3, .outer_rate = 0.5, .outer_momentum = 0.75,
                                   .alpha = 1, .groups = 1, .global_every = 1, .global_rate = 2, .layout = layout},
                         .ranks = 4, .gradients = WEIGHTS_FAR, .one_is_slow = true};
    struct race other = halos;
    other.setup.method = "asyncdiloco";
    other.setup.groups = 0;
    race_run(&halos);
    race_run(&other);
    CHECK(&halos.setup, same(halos.w, other.w, trained_of(halos.setup.elements)));
    CHECK(&halos.setup, memcmp(halos.staleness, other.staleness, sizeof other.staleness) == 0);
  }
}

/* With N = 1 c has no part in the rule; c above 1 / N is refused. */
static void test_activation(void)
{
  struct race none = {.setup = {"asyncdiloco", .tau = 2, .collect = 1}, .ranks = 3};
  struct race all = none;
  all.setup.activation = 1;
  check_same(&none, &all);
  struct race other = {.setup = {"asyncdiloco", .tau = 2, .collect = 2}, .ranks = 3};
  race_run(&other);
  CHECK(&other.setup, !same(other.w, none.w, other.setup.elements));
  struct job job;
  const struct setup wrong = {"asyncdiloco", .collect = 4, .activation = 0.26, .elements = 512};
  memset(&job, 0, sizeof job);
  job_start(&job, &(struct setup){"asyncdiloco", .elements = 512}, world);
  struct trm_strategy again = {.ops = job.strategy.ops, .comm = world, .device = &cpu, .optimizer = &job.optimizer,
                               .elements = 512, .boundary = &job.tensor[0].end, .boundaries = 1};
  job.strategy.ops->destroy(&job.strategy);
  job.options.strategy.collect = wrong.collect;
  job.options.strategy.activation = wrong.activation;
  trm_strategy_set_options(&again, &job.options);
  CHECK(&wrong, strategy_create(&again, 0) == TRM_USAGE);
}

/* -- dynamic local updates: workers of equal speed make tau steps, one that takes 4.3 times as long floor(8 / 4.3) */
static void test_dylu(void)
{
  struct race on = {.setup = {"asyncdiloco", .tau = 8, .dylu = true}, .ranks = 3, .equal = true, .batches = 96,
                    .middle = 40};
  struct race off = on, slow = on;
  off.setup.dylu = false;
  check_same(&on, &off);
  for (int k = 0; k < on.workers; k++)
    CHECK(&on.setup, on.length[k] == 8);
  slow.one_is_slow = true;
  race_run(&slow);
  CHECK(&slow.setup, slow.length[0] == 1 && slow.length[1] == 8 && slow.length[2] == 8);
  CHECK(&slow.setup, !same(slow.w, on.w, on.setup.elements));
}

/* -- a checkpoint between two exchanges: the bits of the run that goes on */
static void test_pause(void)
{
  for (int i = 0; i < SETUPS; i++)
    for (enum layout layout = 0; layout < LAYOUTS; layout++) {
      struct race straight = {.setup = setups[i], .ranks = 3, .middle = 31};
      straight.setup.layout = layout;
      straight.setup.elements = MAX_ELEMENTS;
      straight.setup.rule = i % 3 == 0 ? TRM_UPDATE_ADAM : setups[i].rule;
      straight.batches = 45;
      struct race pauses = straight;
      pauses.pauses = true;
      check_same(&straight, &pauses);
      CHECK(&pauses.setup, memcmp(straight.staleness, pauses.staleness, sizeof pauses.staleness) == 0);
    }
}

int main(void)
{
  CU_TestInfo tests[] = {
    {"rules, one worker is slow", test_rules},
    {"fedasync: serial training", test_serial},
    {"asgd", test_asgd},
    {"asyncdiloco: diloco", test_diloco},
    {"halos: asyncdiloco", test_one_group},
    {"asyncdiloco: activation of the momentum", test_activation},
    {"dynamic local updates", test_dylu},
    {"checkpoint between exchanges", test_pause},
    CU_TEST_INFO_NULL,
  };
  return method_run_virtual("local steps", tests);
}
