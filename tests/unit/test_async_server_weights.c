/* Centralized methods: identities, bit for bit; clocks, staleness and weights in forced orders; a convex problem;
 * checkpoints. On one node, on several, without shared memory, and with a dedicated server. Meant for 1 to 9 ranks. */
#include "async_job.h"

/* -- one worker is serial training */

static void test_alone(void)
{
  CU_PASS("with more than two ranks there is nothing new in it");
  for (enum trm_update_rule rule = TRM_UPDATE_SGD; rule <= TRM_UPDATE_ADAM && world->size <= 2; rule++)
    for (int clips = 0; clips < 2; clips++) {
      const double clip = clips ? 30 : 0;
      const size_t n = SERVER_CHUNK + 4096;
      check_alone(&(struct setup){"asgd", rule, clip, .elements = n});
      check_alone(&(struct setup){"softsync", rule, clip, .elements = n});
      check_alone(&(struct setup){"dcasgd", rule, clip, .elements = n});
      check_alone(&(struct setup){"dcasgd", rule, clip, .lambda = 3, .elements = n});
      check_alone(&(struct setup){"dcasgd", rule, clip, .compensation = TRM_COMPENSATION_ADAPTIVE, .lambda = 2,
                                  .elements = n});
      check_alone(&(struct setup){"ssp", rule, .elements = n});
      check_alone(&(struct setup){"essp", rule, .elements = n});
    }
  for (int clips = 0; clips < 2 && world->size <= 2; clips++)
    check_alone(&(struct setup){"dana", TRM_UPDATE_NESTEROV, clips ? 30 : 0, .elements = SERVER_CHUNK + 4096,
                                .l2 = clips ? 0.125 : 0});
  /* a worker reads its own writes, made by the optimizer's rule */
  for (enum trm_update_rule rule = TRM_UPDATE_SGD; rule <= TRM_UPDATE_ADAM && world->size <= 2; rule++) {
    check_alone(&(struct setup){"ssp", rule, .slack = 3, .elements = SERVER_CHUNK + 4096});
    check_alone(&(struct setup){"essp", rule, .slack = 3, .elements = SERVER_CHUNK + 4096});
  }
}

/* -- strategy.tau: local steps between exchanges */

/* A period of local steps from the server weights of r: returns the gradient that the server gets in g, and the mean of
 * the rates. */
static double play_period(struct serial *r, const struct trm_optimizer *optimizer, uint64_t first, int batches,
                          float *g)
{
  const size_t n = r->elements, trained = trm_optimizer_trained(optimizer);
  const struct trm_update *u = &optimizer->update;
  float *w = array(n), *one = array(n);
  double *sum = trm_alloc(n * sizeof *sum, "test"), rates = 0;
  memcpy(w, r->w, n * sizeof *w);
  for (int b = 0; b < batches; b++) {
    const double rate = rate_of(first + (uint64_t)b);
    gradient(first + (uint64_t)b, 0, 1, 0.5, w, one, n);
    const double scale = (double)trm_clip_scale(optimizer, trm_device_norm_squared(&cpu, one, trained));
    rates += rate;
    for (size_t i = 0; i < trained; i++) {
      const double slope = scale * (double)one[i] + (double)u->l2 * (double)w[i];
      sum[i] += rate * slope;
      w[i] -= (float)(rate * (slope + (double)u->decay * (double)w[i]));
    }
  }
  for (size_t i = 0; i < trained; i++)
    g[i] = (float)(sum[i] * batches / rates);
  trm_free(w);
  trm_free(one);
  trm_free(sum);
  return rates / batches;
}

/* One worker. sgd: the server weights are those of serial training, statistics included. Other rules get the sum of a
 * period as one gradient. The last period is short. */
static void check_period(const struct setup *c, double l2, double decay)
{
  enum { BATCHES = 18 };
  struct job job;
  job_start(&job, c, trm_comm_self());
  job.optimizer.update.l2 = (float)l2;
  job.optimizer.update.decay = (float)decay;
  job_begin(&job);
  CHECK(c, run_worker(&job, BATCHES, 0.5, BATCHES, 0) == TRM_OK);
  struct serial r = serial_begin(c);
  float *g = array(c->elements);
  const size_t compared = c->rule == TRM_UPDATE_SGD ? c->elements : trained_of(c->elements);
  for (int b = 0; b < BATCHES && c->rule == TRM_UPDATE_SGD; b++) {
    gradient((uint64_t)b, 0, 1, 0.5, r.w, g, c->elements);
    serial_step(&r, &job.optimizer, rate_of((uint64_t)b), g);
  }
  for (int b = 0; b < BATCHES && c->rule != TRM_UPDATE_SGD; b += c->tau) {
    const int batches = BATCHES - b < c->tau ? BATCHES - b : c->tau;
    const double rate = play_period(&r, &job.optimizer, (uint64_t)b, batches, g);
    struct trm_optimizer server = job.optimizer;
    server.clip = server.update.l2 = 0;
    server.update.decay *= (float)batches;
    serial_step(&r, &server, rate, g);
  }
  const double away = distance(job.strategy.eval_weights, r.w, compared);
  if (!(away < 1e-5))
    printf("\n    %g from the reference\n", away);
  CHECK(c, away < 1e-5);
  trm_free(g);
  serial_end(&r);
  job.strategy.ops->destroy(&job.strategy);
}

static void test_period(void)
{
  const size_t n = SERVER_CHUNK + 4096;
  CU_PASS("with more than one rank there is nothing new in it");
  for (int clips = 0; clips < 2 && world->size == 1; clips++) {
    const double clip = clips ? 60 : 0;
    check_period(&(struct setup){"asgd", TRM_UPDATE_SGD, clip, .tau = 4, .elements = n}, 0.125, 0);
    check_period(&(struct setup){"groups", TRM_UPDATE_SGD, clip, .tau = 3, .elements = n}, 0.125, 0);
    check_period(&(struct setup){"asgd", TRM_UPDATE_MOMENTUM, clip, .tau = 4, .elements = n}, 0.125, 0);
    check_period(&(struct setup){"asgd", TRM_UPDATE_ADAMW, clip, .tau = 4, .elements = n}, 0.125, 0.25);
  }
}

/* The sum of a period is dropped when weights are restored, and when a loss is not finite. */
static void test_period_dropped(void)
{
  const struct setup c = {"asgd", TRM_UPDATE_SGD, .tau = 4, .elements = 512};
  for (int fails = 0; fails < 2 && world->size == 1; fails++) {
    struct job job, other;
    job_start(&job, &c, trm_comm_self());
    job_start(&other, &c, trm_comm_self());
    job_begin(&job);
    job_begin(&other);
    struct trm_strategy *s = &job.strategy;
    uint64_t batch;
    for (int b = 0; b < 2; b++) {
      CHECK(&c, next_batch(s, 8, &batch) && s->ops->before_forward(s) == TRM_OK);
      gradient(batch, 0, 1, 0.5, s->w, s->g, s->elements);
      CHECK(&c, step(s, batch, fails && b == 1 ? (double)NAN : 1) == (fails && b == 1 ? TRM_FAILED : TRM_OK));
    }
    if (fails) {
      s->halt = true;
      CHECK(&c, !next_batch(s, 8, &batch));
      s->halt = false;
      CHECK(&c, s->ops->quiesce(s) == TRM_OK);
      CHECK(&c, same(s->eval_weights, other.strategy.eval_weights, c.elements));
    } else {
      job_begin(&job);
      CHECK(&c, run_worker(&job, 8, 0.5, 8, 0) == TRM_OK);
      CHECK(&c, run_worker(&other, 8, 0.5, 8, 0) == TRM_OK);
      CHECK(&c, same(s->eval_weights, other.strategy.eval_weights, c.elements));
    }
    s->ops->destroy(s);
    other.strategy.ops->destroy(&other.strategy);
  }
  CU_PASS("one rank is enough");
}

/* -- forced orders: in a round all workers compute, then send in rank order */

/* Runs rounds until `to`; exact: gradients do not depend on the weights. */
static void take_turns(struct job *job, uint64_t to, bool exact, bool settles)
{
  struct trm_strategy *s = &job->strategy;
  const uint64_t ranks = (uint64_t)world->size;
  uint64_t batch;
  for (uint64_t round = s->updates / ranks; round < to; round++) {
    CU_ASSERT(next_batch(s, to * ranks, &batch));
    CU_ASSERT_EQUAL(batch, round * ranks + (uint64_t)world->rank);
    CU_ASSERT_EQUAL(s->ops->before_forward(s), TRM_OK);
    if (exact)
      exact_gradient(batch, 0, s->g, s->elements);
    else
      gradient(batch, 0, 1, 0.5, s->w, s->g, s->elements);
    world_barrier();
    for (int turn = 0; turn < world->size; turn++) {
      if (turn == world->rank)
        CU_ASSERT_EQUAL(step(s, batch, 1), TRM_OK);
      world_barrier();
    }
    if (settles && round + 1 < to) {
      CU_ASSERT(!next_batch(s, (round + 1) * ranks, &batch));
      CU_ASSERT_EQUAL(s->ops->quiesce(s), TRM_OK);
    }
  }
  CU_ASSERT(!next_batch(s, to * ranks, &batch));
  CU_ASSERT_EQUAL(s->ops->quiesce(s), TRM_OK);
}

/* 1-softsync with equal weights on all workers: a step of synchronous SGD on the mean of their gradients. begin: rounds
 * before a checkpoint without local state, which count as updates of the optimizer. */
static void check_softsync_mean(const struct setup *c, uint64_t begin)
{
  enum { ROUNDS = 3 };
  const int ranks = world->size;
  const uint64_t end = begin + ROUNDS;
  const float *unchanged[TRM_MAX_STATES] = {NULL};
  struct job job;
  job_start(&job, c, world);
  job_begin(&job);
  CHECK(c, job.strategy.ops->restore(&job.strategy, unchanged, begin * (uint64_t)ranks) == TRM_OK);
  take_turns(&job, end, true, true);
  struct serial r = serial_begin(c);
  r.steps = begin;
  float *mean = array(c->elements), *g = array(c->elements);
  for (uint64_t round = begin; round < end; round++) {
    memset(mean, 0, c->elements * sizeof *mean);
    for (int i = 0; i < ranks; i++) {
      exact_gradient(round * (uint64_t)ranks + (uint64_t)i, 0, g, c->elements);
      for (size_t k = 0; k < c->elements; k++)
        mean[k] += g[k] / (float)ranks;
    }
    serial_step(&r, &job.optimizer, rate_of(round * (uint64_t)ranks + (uint64_t)ranks - 1), mean);
  }
  const bool exact = (ranks & (ranks - 1)) == 0; /* division by a power of two is exact */
  CHECK(c, exact ? same(job.strategy.eval_weights, r.w, c->elements)
                 : distance(job.strategy.eval_weights, r.w, c->elements) < 1e-5);
  CHECK(c, job.strategy.staleness->updates == ROUNDS && job.strategy.staleness->sum == 0);
  CHECK(c, job.strategy.updates == end * (uint64_t)ranks);
  trm_free(mean);
  trm_free(g);
  serial_end(&r);
  job.strategy.ops->destroy(&job.strategy);
}

static void test_softsync_mean(void)
{
  for (enum layout layout = 0; layout < SERVER; layout++) {
    if (is_skipped(layout))
      continue;
    const size_t n = SERVER_CHUNK + 4096;
    check_softsync_mean(&(struct setup){"softsync", TRM_UPDATE_MOMENTUM, .layout = layout, .elements = n}, 0);
    check_softsync_mean(&(struct setup){"softsync", TRM_UPDATE_ADAM, .layout = layout, .elements = n}, 5);
  }
}

/* As many splits as workers: equals asgd. dcasgd with lambda 0 does, too. */
static void test_same_as_asgd(void)
{
  const size_t n = SERVER_CHUNK + 4096;
  const struct setup all[] = {
    {"asgd", TRM_UPDATE_NESTEROV, .clip = 30, .elements = n},
    {"softsync", TRM_UPDATE_NESTEROV, .clip = 30, .splits = world->size, .elements = n},
    {"dcasgd", TRM_UPDATE_NESTEROV, .clip = 30, .compensation = TRM_COMPENSATION_CONSTANT, .elements = n},
    {"dcasgd", TRM_UPDATE_NESTEROV, .clip = 30, .compensation = TRM_COMPENSATION_ADAPTIVE, .elements = n},
  };
  float *first = array(n);
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    struct job job;
    job_start(&job, &all[i], world);
    job_begin(&job);
    take_turns(&job, 4, false, false);
    if (i == 0)
      memcpy(first, job.strategy.eval_weights, n * sizeof *first);
    CHECK(&all[i], same(first, job.strategy.eval_weights, n));
    job.strategy.ops->destroy(&job.strategy);
  }
  trm_free(first);
}

/* The same orders, simulated by one rank in double precision for all workers. */
struct play {
  int ranks, count; /* gradients per update */
  int64_t clock, seen[MAX_RANKS];
  int waiting;
  struct trm_staleness staleness[MAX_RANKS];
  double *w, *mean, *view[MAX_RANKS], *own[MAX_RANKS]; /* (elements); own: dcasgd's squares, or local steps not sent */
};

static void play_begin(struct play *p, size_t elements, int count)
{
  *p = (struct play){.ranks = world->size, .count = count};
  p->w = trm_alloc(elements * sizeof *p->w, "test");
  p->mean = trm_alloc(elements * sizeof *p->w, "test");
  for (size_t i = 0; i < elements; i++)
    p->w[i] = (double)draw(9, 9, i);
  for (int k = 0; k < p->ranks; k++) {
    p->view[k] = trm_alloc(elements * sizeof *p->w, "test");
    p->own[k] = trm_alloc(elements * sizeof *p->w, "test");
    memcpy(p->view[k], p->w, elements * sizeof *p->w);
  }
}

static void play_end(struct play *p)
{
  trm_free(p->w);
  trm_free(p->mean);
  for (int k = 0; k < p->ranks; k++) {
    trm_free(p->view[k]);
    trm_free(p->own[k]);
  }
}

/* Counts the staleness of worker k's update; returns what strategy.rate divides its rate by. */
static double play_divisor(struct play *p, const struct setup *c, int k)
{
  const int64_t late = p->clock - p->seen[k];
  trm_staleness_add(&p->staleness[k], (uint64_t)late);
  return c->rate && late > 1 ? (double)late : 1;
}

/* Worker k's gradient of one of tau batches: it moves the worker's weights, at the end of the period those of the
 * server by the sum of the moves. Statistics change on the server alone, as by tau updates in succession. */
static void play_local(struct play *p, const struct setup *c, int k, uint64_t batch, const float *g, double clip)
{
  const double momentum = (double)STATISTIC_MOMENTUM, keeps = pow(1 - momentum, c->tau);
  const bool sends = (batch / (uint64_t)p->ranks + 1) % (uint64_t)c->tau == 0;
  const double divisor = sends ? play_divisor(p, c, k) : 0;
  for (size_t i = 0; i < c->elements; i++) {
    const bool trained = i < trained_of(c->elements);
    const double move = rate_of(batch) * clip * (double)g[i];
    double *sum = &p->own[k][i];
    *sum = trained ? *sum + move : (1 - momentum) * *sum + momentum * (double)g[i];
    p->view[k][i] -= trained ? move : 0;
    if (sends) {
      p->view[k][i] = p->w[i] = trained ? p->w[i] - *sum / divisor : keeps * p->w[i] + *sum;
      *sum = 0;
    }
  }
  if (sends)
    p->seen[k] = ++p->clock;
}

/* Worker k's gradient, which the server gets at once. */
static void play_push(struct play *p, const struct setup *c, int k, uint64_t batch, const float *g, double clip)
{
  const size_t n = c->elements, trained = trained_of(n);
  const double divisor = play_divisor(p, c, k);
  const bool complete = ++p->waiting == p->count;
  for (size_t i = 0; i < n; i++) {
    double x = (i < trained ? clip : 1) * (double)g[i], *square = &p->own[k][i];
    if (i < trained && c->lambda > 0) {
      *square = 0.9 * *square + 0.1 * x * x;
      const bool adapts = c->compensation == TRM_COMPENSATION_ADAPTIVE;
      const double lambda = adapts ? c->lambda / sqrt(*square + 1e-7) : c->lambda;
      x += lambda * x * x * (p->w[i] - p->view[k][i]);
    }
    p->mean[i] += i < trained ? x / p->count / divisor : x / p->count;
    if (complete) {
      p->w[i] += i < trained ? -rate_of(batch) * p->mean[i] : (double)STATISTIC_MOMENTUM * (p->mean[i] - p->w[i]);
      p->mean[i] = 0;
    }
    p->view[k][i] = p->w[i];
  }
  p->clock += complete;
  p->waiting = complete ? 0 : p->waiting;
  p->seen[k] = p->clock;
}

/* Worker k computes a gradient, at view[k] unless it is exact, and makes its step. */
static void play_turn(struct play *p, const struct setup *c, int k, uint64_t batch, bool exact)
{
  const size_t n = c->elements;
  float *at = array(n), *g = array(n);
  for (size_t i = 0; i < n; i++)
    at[i] = (float)p->view[k][i];
  if (exact)
    exact_gradient(batch, 0, g, n);
  else
    gradient(batch, 0, 1, 0.5, at, g, n);
  double norm = 0;
  for (size_t i = 0; i < trained_of(n); i++)
    norm += (double)g[i] * (double)g[i];
  const double clip = c->clip > 0 ? fmin(1, c->clip / sqrt(norm)) : 1;
  (c->tau > 1 ? play_local : play_push)(p, c, k, batch, g, clip);
  trm_free(at);
  trm_free(g);
}

static void check_play(const struct setup *c, bool exact)
{
  enum { ROUNDS = 4 };
  struct job job;
  job_start(&job, c, world);
  struct trm_strategy *s = &job.strategy;
  job_begin(&job);
  take_turns(&job, ROUNDS, exact, false);
  struct play p;
  play_begin(&p, c->elements, c->splits > 0 && c->splits < world->size ? world->size / c->splits : 1);
  for (uint64_t batch = 0; batch < (uint64_t)(ROUNDS * p.ranks); batch++)
    play_turn(&p, c, (int)(batch % (uint64_t)p.ranks), batch, exact);
  CHECK(c, memcmp(s->staleness, &p.staleness[world->rank], sizeof *s->staleness) == 0);
  float *w = array(c->elements);
  for (size_t i = 0; i < c->elements; i++)
    w[i] = (float)p.w[i];
  CHECK(c, distance(s->eval_weights, w, c->elements) < 1e-5);
  trm_free(w);
  play_end(&p);
  s->ops->destroy(s);
}

static void test_asgd_order(void)
{
  for (int clips = 0; clips < 2; clips++)
    for (enum layout layout = 0; layout < SERVER; layout++) {
      if (is_skipped(layout))
        continue;
      for (int tau = 1; tau <= 2; tau++) {
        const bool divides = clips || layout == ONE_NODE;
        check_play(&(struct setup){"asgd", .clip = clips ? 8 : 0, .layout = layout, .tau = tau,
                                   .rate = divides ? TRM_STALE_RATE_DIVIDED : TRM_STALE_RATE_CONSTANT,
                                   .elements = 512}, false);
      }
    }
}

static void test_softsync_order(void)
{
  for (int splits = 1; splits <= world->size; splits++)
    for (int divides = 0; divides < 2; divides++) {
      if (world->size > 4 && splits > 2 && splits < world->size)
        continue;
      const enum layout other = (enum layout)((splits + divides) % SERVER);
      const enum layout layout = is_skipped(other) ? ONE_NODE : other;
      check_play(&(struct setup){"softsync", .clip = divides ? 8 : 0, .layout = layout, .splits = splits,
                                 .rate = divides ? TRM_STALE_RATE_DIVIDED : TRM_STALE_RATE_CONSTANT, .elements = 512},
                 true);
    }
}

static void test_dcasgd_order(void)
{
  for (enum layout layout = 0; layout < SERVER; layout++) {
    if (is_skipped(layout))
      continue;
    for (enum trm_compensation kind = TRM_COMPENSATION_CONSTANT; kind <= TRM_COMPENSATION_ADAPTIVE; kind++)
      for (int clips = 0; clips < 2; clips++)
        check_play(&(struct setup){"dcasgd", .clip = clips ? 8 : 0, .layout = layout, .compensation = kind,
                                   .lambda = 3 - (int)kind, .elements = 512}, false);
  }
}

/* -- free-running workers: all methods reach the minimum. Quiesce points bound the staleness of a descheduled rank, and
 * with static assignment the last gradients of all workers are fresh. */
static void test_convex(void)
{
  enum { ROUNDS = 6 };
  static const struct setup methods[] = {
    {.method = "softsync"},
    {.method = "softsync", .splits = 2, .rate = TRM_STALE_RATE_DIVIDED},
    {.method = "dcasgd", .compensation = TRM_COMPENSATION_CONSTANT, .lambda = 1},
    {.method = "dcasgd", .compensation = TRM_COMPENSATION_ADAPTIVE, .lambda = 1},
    {.method = "dana", .rule = TRM_UPDATE_NESTEROV},
    {.method = "ssp", .slack = 3},
    {.method = "essp", .slack = 3},
  };
  for (enum layout layout = 0; layout < LAYOUTS; layout++)
    for (size_t m = 0; m < sizeof methods / sizeof *methods; m++) {
      struct setup c = methods[m];
      c.layout = layout;
      c.elements = 1024;
      if (workers_of(&c, world) < 1 || is_skipped(layout) || (world->size > 4 && layout == ONE_NODE))
        continue;
      struct job job;
      job_start(&job, &c, world);
      struct trm_strategy *s = &job.strategy;
      job_begin(&job);
      const uint64_t round = is_split_batch(&c) ? 40 : 40 * (uint64_t)workers_of(&c, world);
      for (uint64_t i = 1; i <= ROUNDS; i++)
        CHECK(&c, run_worker(&job, i * round, 0, UINT64_MAX, 0) == TRM_OK);
      CHECK(&c, s->updates == ROUNDS * round);
      double worst = 0;
      for (size_t i = 0; i < c.elements; i++)
        worst = fmax(worst, fabs((double)s->eval_weights[i] - (double)draw(1, 1, i)));
      CHECK(&c, worst < 0.01);
      s->ops->destroy(s);
    }
}

/* -- checkpoints */

/* A checkpoint in memory. */
struct pause {
  float *view[TRM_MAX_STATES];
  void *kept[TRM_MAX_LOCAL_STATES];
};

static void pause_take(const struct setup *c, struct trm_strategy *s, struct pause *at)
{
  *at = (struct pause){0};
  for (int i = 0; i <= s->optimizer->states; i++) {
    at->view[i] = array(c->elements);
    CHECK(c, strategy_read(s, i, at->view[i]) == TRM_OK);
    s->comm->ops->broadcast(s->comm, at->view[i], c->elements, TRM_FLOAT, 0);
  }
  for (int i = 0; i < s->local_states; i++) {
    at->kept[i] = trm_alloc(s->local_state[i].bytes, "test");
    memcpy(at->kept[i], s->local_state[i].data, s->local_state[i].bytes);
  }
}

static void pause_give(const struct setup *c, struct trm_strategy *s, struct pause *at, uint64_t updates)
{
  const float *from[TRM_MAX_STATES] = {NULL};
  for (int i = 0; i < s->local_states; i++)
    memcpy(s->local_state[i].data, at->kept[i], s->local_state[i].bytes);
  for (int i = 0; i <= s->optimizer->states; i++)
    from[i] = at->view[i];
  s->local_state_restored = true;
  world_barrier();
  CHECK(c, s->ops->restore(s, from, updates) == TRM_OK);
  for (int i = 0; i < TRM_MAX_STATES; i++)
    trm_free(at->view[i]);
  for (int i = 0; i < TRM_MAX_LOCAL_STATES; i++)
    trm_free(at->kept[i]);
}

/* One round, a checkpoint, and two more rounds by a new job. */
static void check_pause(const struct setup *c)
{
  float *straight = array(c->elements);
  struct pause at;
  for (int pauses = 0; pauses < 2; pauses++) {
    struct job job;
    job_start(&job, c, world);
    struct trm_strategy *s = &job.strategy;
    job_begin(&job);
    take_turns(&job, 1, false, false);
    if (pauses) {
      pause_take(c, s, &at);
      s->ops->destroy(s);
      job_start(&job, c, world);
      pause_give(c, s, &at, (uint64_t)world->size);
    }
    take_turns(&job, 3, false, false);
    if (!pauses)
      memcpy(straight, s->eval_weights, c->elements * sizeof *straight);
    CHECK(c, same(s->eval_weights, straight, c->elements));
    s->ops->destroy(s);
  }
  trm_free(straight);
}

static void test_pause(void)
{
  for (enum layout layout = 0; layout < SERVER; layout++) {
    if (is_skipped(layout))
      continue;
    const size_t n = SERVER_CHUNK + 256;
    /* an odd number of ranks leaves a gradient that is not yet applied */
    check_pause(&(struct setup){"softsync", TRM_UPDATE_ADAM, .layout = layout, .splits = 2, .elements = n});
    check_pause(&(struct setup){"dcasgd", TRM_UPDATE_MOMENTUM, .layout = layout, .lambda = 2, .elements = n});
    check_pause(&(struct setup){"dana", TRM_UPDATE_NESTEROV, .layout = layout, .elements = n});
    check_pause(&(struct setup){"dana", TRM_UPDATE_SGD, .layout = layout, .elements = n});
  }
}

/* dana, one worker: its momentum is that of serial training, and a run that begins with weights and momentum from
 * elsewhere goes on with them. */
static void test_dana_momentum(void)
{
  enum { HALF = 10 };
  const struct setup c = {"dana", TRM_UPDATE_NESTEROV, .elements = 512, .l2 = 0.125};
  if (world->size > 1) {
    CU_PASS("with more than one rank there is nothing new in it");
    return;
  }
  struct job job;
  struct serial r = serial_begin(&c);
  float *g = array(c.elements), *v = array(c.elements);
  for (uint64_t first = 0; first <= HALF; first += HALF) {
    const float *from[TRM_MAX_STATES] = {r.w, r.state[0]};
    job_start(&job, &c, world);
    CHECK(&c, job.strategy.ops->restore(&job.strategy, from, first) == TRM_OK);
    CHECK(&c, run_worker(&job, first + HALF, 0.5, UINT64_MAX, 0) == TRM_OK);
    for (uint64_t b = first; b < first + HALF; b++) {
      gradient(b, 0, 1, 0.5, r.w, g, c.elements);
      serial_step(&r, &job.optimizer, rate_of(b), g);
    }
    CHECK(&c, same(job.strategy.eval_weights, r.w, c.elements));
    CHECK(&c, strategy_read(&job.strategy, 1, v) == TRM_OK && same(v, r.state[0], trained_of(c.elements)));
    job.strategy.ops->destroy(&job.strategy);
  }
  trm_free(g);
  trm_free(v);
  serial_end(&r);
}

int main(int argc, char **argv)
{
  CU_TestInfo tests[] = {
    {"one worker is serial", test_alone},
    {"local steps", test_period},
    {"local steps that are dropped", test_period_dropped},
    {"1-softsync: mean of the gradients", test_softsync_mean},
    {"n-softsync equals asgd", test_same_as_asgd},
    {"asgd in order", test_asgd_order},
    {"softsync in order", test_softsync_order},
    {"dcasgd in order", test_dcasgd_order},
    {"momentum of dana", test_dana_momentum},
    {"a convex problem", test_convex},
    {"checkpoint between rounds", test_pause},
    CU_TEST_INFO_NULL,
  };
  return method_run(argc, argv, "centralized methods", tests);
}
