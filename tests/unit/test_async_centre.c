/* Methods with a centre: identities, bit for bit; clocks, staleness and weights in forced orders; a convex problem; what
 * happens when a worker fails; checkpoints. On one node, on several, without shared memory, and with a rank that serves
 * alone. Meant for 1 to 9 ranks. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "kernels/kernels.h"
#include "mpi/async/worker.h"
#include "mpi/strategies.h"
#include "ranks.h"

static struct trm_device cpu;

enum layout { ONE_NODE, PAIRS, NO_SHARING, SERVER, LAYOUTS };
static const char *const layout_name[] = {"one node", "nodes of two", "no shared memory", "a rank that serves"};
enum { MOST_RANKS = 16 };

/* Many ranks try one node and one other layout; fewer ranks try them all. */
static bool is_left_out(enum layout layout)
{
  return world->size > 4 && layout != ONE_NODE && (int)layout != 1 + world->size % 3;
}

struct setup {
  const char *method;
  enum trm_update_rule rule;
  double clip;
  enum layout layout;
  int splits, slack;
  const char *rate, *compensation;
  double lambda;
  size_t elements;
};

static const char *text_of(const struct setup *c)
{
  static char text[256];
  snprintf(text, sizeof text, "%s, rule %d, clip %g, %s, splits %d, slack %d, rate %s, %s lambda %g, %zu elements",
           c->method, (int)c->rule, c->clip, layout_name[c->layout], c->splits, c->slack, c->rate ? c->rate : "-",
           c->compensation ? c->compensation : "-", c->lambda, c->elements);
  return text;
}

/* A check that says which setup failed. */
#define CHECK(setup, condition)                                                   \
  do {                                                                            \
    const bool holds = (condition);                                               \
    if (!holds)                                                                   \
      printf("\n    %s, rank %d: %s\n", text_of(setup), world->rank, #condition); \
    CU_ASSERT_TRUE(holds);                                                        \
  } while (0)

/* -- a job: the strategy and what it is given */

struct job {
  struct trm_options options;
  struct trm_optimizer optimizer;
  struct trm_tensor tensor;
  struct trm_strategy strategy;
};

static bool is_each(const struct setup *c)
{
  return strstr(c->method, "ssp") != NULL;
}

static int workers_of(const struct setup *c, const struct trm_comm *comm)
{
  return comm->size - (c->layout == SERVER);
}

/* The last sixteenth is statistics. */
static size_t trained_of(size_t elements)
{
  return elements - elements / 256 * 16;
}

static void job_start(struct job *job, const struct setup *c, struct trm_comm *comm)
{
  static const int states[] = {
    [TRM_UPDATE_SGD] = 0, [TRM_UPDATE_MOMENTUM] = 1, [TRM_UPDATE_NESTEROV] = 1, [TRM_UPDATE_ADAM] = 2};
  memset(job, 0, sizeof *job);
  job->options.parallel.share = c->layout == NO_SHARING ? "none" : "node";
  job->options.parallel.bucket = 65536;
  job->options.strategy.data = "static";
  job->options.strategy.rate = (char *)(c->rate ? c->rate : "constant");
  job->options.strategy.compensation = (char *)(c->compensation ? c->compensation : "adaptive");
  job->options.strategy.tau = 1;
  job->options.strategy.servers = c->layout == SERVER;
  job->options.strategy.splits = c->splits ? c->splits : 1;
  job->options.strategy.slack = c->slack;
  job->options.strategy.lambda = c->lambda;
  job->options.strategy.memory = 0.5;
  job->optimizer = (struct trm_optimizer){.update = {.rule = c->rule,
                                                     .momentum = 0.75f,
                                                     .beta1 = 0.9f,
                                                     .beta2 = 0.99f,
                                                     .epsilon = 1e-3f},
                                          .states = states[c->rule],
                                          .clip = c->clip,
                                          .tensor = &job->tensor,
                                          .tensors = 1};
  job->tensor = (struct trm_tensor){.end = trained_of(c->elements)};
  job->strategy = (struct trm_strategy){.ops = trm_strategy_find(c->method),
                                        .comm = comm,
                                        .device = &cpu,
                                        .optimizer = &job->optimizer,
                                        .options = &job->options,
                                        .elements = c->elements,
                                        .boundary = &job->tensor.end,
                                        .boundaries = 1};
  if (c->layout == PAIRS)
    setenv("TRM_NODE_SIZE", "2", 1);
  CU_ASSERT_EQUAL_FATAL(job->strategy.ops->create(&job->strategy), TRM_OK);
  unsetenv("TRM_NODE_SIZE");
}

static uint32_t mix(uint64_t a, uint64_t b, uint64_t c)
{
  uint64_t x = a * 0x9e3779b97f4a7c15u ^ (b + 1) * 0xbf58476d1ce4e5b9u ^ (c + 7) * 0x94d049bb133111ebu;
  x ^= x >> 31;
  x *= 0xd6e8feb86659fd93u;
  return (uint32_t)(x >> 32);
}

/* In [-1, 1), multiples of 1/1024: sums of a few are exact. */
static float draw(uint64_t a, uint64_t b, size_t i)
{
  return (float)(mix(a, b, i) % 2048) / 1024 - 1;
}

/* Part `part` of `parts` of the gradient of batch `batch` at w: a parabola in each element, moved by the noise of the
 * batch; statistics move towards the same place. noise 0: all batches are equal. */
static void gradient(uint64_t batch, int part, int parts, double noise, const float *w, float *g, size_t elements)
{
  const size_t trained = trained_of(elements);
  for (size_t i = 0; i < elements; i++) {
    const float away = w[i] - draw(1, 1, i) + (float)noise * draw(batch + 2, (uint64_t)part, i);
    const float curvature = 0.5f + (float)(mix(2, 2, i) % 1024) / 2048;
    g[i] = (i < trained ? curvature : -0.0625f) * away / (float)parts;
  }
}

/* One that does not depend on the weights; added up over a few workers it is exact. */
static void exact_gradient(uint64_t batch, int part, float *g, size_t elements)
{
  for (size_t i = 0; i < elements; i++)
    g[i] = draw(batch + 100, (uint64_t)part, i);
}

static float *array(size_t elements)
{
  return trm_alloc(elements * sizeof(float), "test");
}

static void initial(float *w, size_t elements)
{
  for (size_t i = 0; i < elements; i++)
    w[i] = draw(9, 9, i);
}

static void job_begin(struct job *job)
{
  float *w = array(job->strategy.elements);
  initial(w, job->strategy.elements);
  const float *const from[TRM_MAX_STATES] = {w};
  CU_ASSERT_EQUAL(job->strategy.ops->restore(&job->strategy, from, 0), TRM_OK);
  trm_free(w);
}

static double rate_of(uint64_t batch)
{
  return 0.05 + 0.001 * (double)(batch % 8);
}

/* A step of the batch at hand; s->g is set. */
static int step(struct trm_strategy *s, uint64_t batch, double loss)
{
  struct trm_tally tally = {.loss = loss, .rows = 1};
  return s->ops->step(s, rate_of(batch), &tally);
}

/* All batches before `end`, as the trainer has it: every worker goes its own way. fail_at: the batch at which worker
 * `failing` has no finite loss. Returns this rank's status. */
static int drive(struct job *job, uint64_t end, double noise, uint64_t fail_at, int failing)
{
  struct trm_strategy *s = &job->strategy;
  uint64_t batch;
  int status = TRM_OK;
  while (s->ops->claim(s, end, &batch)) {
    CU_ASSERT_EQUAL(s->ops->before_forward(s), TRM_OK);
    gradient(batch, s->index, s->parts, noise, s->w, s->g, s->elements);
    const bool fails = batch == fail_at && worker_of(s)->number == failing;
    const int now = step(s, batch, fails ? (double)NAN : 1);
    status = status == TRM_OK ? now : status;
    s->halt = status != TRM_OK;
  }
  s->halt = false;
  CU_ASSERT_EQUAL(s->ops->settle(s), TRM_OK);
  return status;
}

/* -- what one rank would do alone */

struct serial {
  size_t elements;
  float *w, *state[TRM_MAX_STATES - 1];
  uint64_t steps;
};

static struct serial serial_begin(const struct setup *c)
{
  struct serial r = {.elements = c->elements, .w = array(c->elements)};
  for (int i = 0; i < TRM_MAX_STATES - 1; i++)
    r.state[i] = array(c->elements);
  initial(r.w, c->elements);
  return r;
}

static void serial_end(struct serial *r)
{
  trm_free(r->w);
  for (int i = 0; i < TRM_MAX_STATES - 1; i++)
    trm_free(r->state[i]);
}

static void serial_step(struct serial *r, const struct trm_optimizer *optimizer, double rate, const float *g)
{
  struct trm_update how = optimizer->update;
  how.rate = (float)rate;
  how.scale = trm_clip_scale(optimizer, cpu.ops->norm_squared(&cpu, g, trm_optimizer_trained(optimizer)));
  how.step = ++r->steps;
  trm_optimizer_apply(optimizer, &cpu, &how, NULL, 0, r->elements, r->w, g, r->state);
}

static bool same(const float *a, const float *b, size_t n)
{
  return memcmp(a, b, n * sizeof *a) == 0;
}

static double distance(const float *a, const float *b, size_t n)
{
  double worst = 0;
  for (size_t i = 0; i < n; i++)
    worst = fmax(worst, isfinite(a[i]) ? fabs((double)a[i] - (double)b[i]) : INFINITY);
  return worst;
}

/* -- one worker is serial training */

static void check_alone(const struct setup *c)
{
  enum { BATCHES = 20 };
  struct job job;
  job_start(&job, c, trm_comm_self());
  job_begin(&job);
  CHECK(c, drive(&job, BATCHES, 0.5, BATCHES, 0) == TRM_OK);
  struct serial r = serial_begin(c);
  float *g = array(c->elements);
  for (uint64_t b = 0; b < BATCHES; b++) {
    gradient(b, 0, 1, 0.5, r.w, g, c->elements);
    serial_step(&r, &job.optimizer, rate_of(b), g);
  }
  CHECK(c, same(job.strategy.evaluated, r.w, c->elements));
  CHECK(c, job.strategy.updates == BATCHES);
  CHECK(c, job.strategy.staleness->updates == BATCHES);
  CHECK(c, job.strategy.staleness->sum == 0 || c->slack > 0);
  trm_free(g);
  serial_end(&r);
  job.strategy.ops->destroy(&job.strategy);
}

static void test_alone(void)
{
  CU_PASS("with more than two ranks there is nothing new in it");
  for (enum trm_update_rule rule = TRM_UPDATE_SGD; rule <= TRM_UPDATE_ADAM && world->size <= 2; rule++)
    for (int clips = 0; clips < 2; clips++) {
      const double clip = clips ? 30 : 0;
      const size_t n = SERVICE_PIECE + 4096;
      check_alone(&(struct setup){"asgd", rule, clip, .elements = n});
      check_alone(&(struct setup){"softsync", rule, clip, .elements = n});
      check_alone(&(struct setup){"dcasgd", rule, clip, .compensation = "constant", .elements = n});
      check_alone(&(struct setup){"dcasgd", rule, clip, .compensation = "constant", .lambda = 3, .elements = n});
      check_alone(&(struct setup){"dcasgd", rule, clip, .compensation = "adaptive", .lambda = 2, .elements = n});
      check_alone(&(struct setup){"ssp", rule, .elements = n});
      check_alone(&(struct setup){"essp", rule, .elements = n});
    }
  /* it reads its own writes: with plain SGD that is all there is to read */
  check_alone(&(struct setup){"ssp", TRM_UPDATE_SGD, .slack = 3, .elements = SERVICE_PIECE + 4096});
  check_alone(&(struct setup){"essp", TRM_UPDATE_SGD, .slack = 3, .elements = SERVICE_PIECE + 4096});
  /* more counters than the smallest piece has elements */
  check_alone(&(struct setup){"ssp", TRM_UPDATE_SGD, .slack = 40, .elements = 32});
}

/* -- ssp(0) is synchronous SGD */

/* Weights and states after some batches, on rank 0 of comm; the synchronous method knows no claims. */
static void run_batches(const struct setup *c, struct trm_comm *comm, float *to[TRM_MAX_STATES])
{
  enum { BATCHES = 9 };
  struct job job;
  job_start(&job, c, comm);
  struct trm_strategy *s = &job.strategy;
  job_begin(&job);
  if (s->ops->claim)
    CHECK(c, drive(&job, BATCHES, 0.5, BATCHES, 0) == TRM_OK);
  for (uint64_t b = 0; b < BATCHES && !s->ops->claim; b++) {
    gradient(b, s->index, s->parts, 0.5, s->w, s->g, s->elements);
    CHECK(c, step(s, b, 1) == TRM_OK);
  }
  const float *view[TRM_MAX_STATES];
  CHECK(c, s->ops->collect(s, view) == TRM_OK);
  CHECK(c, s->updates == BATCHES);
  for (int i = 0; i <= job.optimizer.states && comm->rank == 0; i++)
    memcpy(to[i], view[i], c->elements * sizeof **to);
  s->ops->destroy(s);
}

static void test_no_slack(void)
{
  float *a[TRM_MAX_STATES], *b[TRM_MAX_STATES];
  for (enum layout layout = 0; layout < LAYOUTS; layout++)
    for (enum trm_update_rule rule = TRM_UPDATE_SGD; rule <= TRM_UPDATE_ADAM; rule++) {
      if ((layout == SERVER && world->size == 1) || is_left_out(layout))
        continue;
      if (world->size > 4 && rule != TRM_UPDATE_MOMENTUM && rule != TRM_UPDATE_ADAM)
        continue;
      struct setup c = {.rule = rule, .layout = layout, .elements = SERVICE_PIECE + 4096};
      struct setup together = c;
      together.method = "sync";
      together.layout = ONE_NODE;
      for (int i = 0; i < TRM_MAX_STATES; i++) {
        a[i] = array(c.elements);
        b[i] = array(c.elements);
      }
      /* as many ranks as there are workers */
      struct trm_comm *comm = world->ops->split(world, world->rank < workers_of(&c, world) ? 0 : -1, 0);
      if (comm)
        run_batches(&together, comm, a);
      for (int eager = 0; eager < 2; eager++) {
        c.method = eager ? "essp" : "ssp";
        run_batches(&c, world, b);
        for (int i = 0; i < TRM_MAX_STATES && world->rank == 0; i++)
          CHECK(&c, same(a[i], b[i], c.elements));
      }
      if (comm)
        comm->ops->release(comm);
      for (int i = 0; i < TRM_MAX_STATES; i++) {
        trm_free(a[i]);
        trm_free(b[i]);
      }
    }
}

/* -- forced orders. In a round all workers compute, and then send in order of rank. */

static void meet(void)
{
  world->ops->barrier(world);
}

/* Rounds up to `to`; exact: gradients that know no weights. */
static void take_turns(struct job *job, uint64_t to, bool exact, bool settles)
{
  struct trm_strategy *s = &job->strategy;
  const uint64_t ranks = (uint64_t)world->size;
  uint64_t batch;
  for (uint64_t round = s->updates / ranks; round < to; round++) {
    CU_ASSERT(s->ops->claim(s, to * ranks, &batch));
    CU_ASSERT_EQUAL(batch, round * ranks + (uint64_t)world->rank);
    CU_ASSERT_EQUAL(s->ops->before_forward(s), TRM_OK);
    if (exact)
      exact_gradient(batch, 0, s->g, s->elements);
    else
      gradient(batch, 0, 1, 0.5, s->w, s->g, s->elements);
    meet();
    for (int turn = 0; turn < world->size; turn++) {
      if (turn == world->rank)
        CU_ASSERT_EQUAL(step(s, batch, 1), TRM_OK);
      meet();
    }
    if (settles && round + 1 < to) {
      CU_ASSERT(!s->ops->claim(s, (round + 1) * ranks, &batch));
      CU_ASSERT_EQUAL(s->ops->settle(s), TRM_OK);
    }
  }
  CU_ASSERT(!s->ops->claim(s, to * ranks, &batch));
  CU_ASSERT_EQUAL(s->ops->settle(s), TRM_OK);
}

/* 1-softsync, all workers with the same weights: a step of synchronous SGD on the mean of their gradients. */
static void test_softsync_mean(void)
{
  enum { ROUNDS = 3 };
  const int ranks = world->size;
  for (enum layout layout = 0; layout < SERVER; layout++) {
    if (is_left_out(layout))
      continue;
    const struct setup c = {"softsync", TRM_UPDATE_MOMENTUM, .layout = layout, .elements = SERVICE_PIECE + 4096};
    struct job job;
    job_start(&job, &c, world);
    job_begin(&job);
    take_turns(&job, ROUNDS, true, true);
    struct serial r = serial_begin(&c);
    float *mean = array(c.elements), *g = array(c.elements);
    for (uint64_t round = 0; round < ROUNDS; round++) {
      memset(mean, 0, c.elements * sizeof *mean);
      for (int i = 0; i < ranks; i++) {
        exact_gradient(round * (uint64_t)ranks + (uint64_t)i, 0, g, c.elements);
        for (size_t k = 0; k < c.elements; k++)
          mean[k] += g[k] / (float)ranks;
      }
      serial_step(&r, &job.optimizer, rate_of(round * (uint64_t)ranks + (uint64_t)ranks - 1), mean);
    }
    const bool exact = (ranks & (ranks - 1)) == 0; /* so are the divisions */
    CHECK(&c, exact ? same(job.strategy.evaluated, r.w, c.elements)
                    : distance(job.strategy.evaluated, r.w, c.elements) < 1e-6);
    CHECK(&c, job.strategy.staleness->updates == ROUNDS && job.strategy.staleness->sum == 0);
    CHECK(&c, job.strategy.updates == (uint64_t)(ROUNDS * ranks));
    trm_free(mean);
    trm_free(g);
    serial_end(&r);
    job.strategy.ops->destroy(&job.strategy);
  }
}

/* As many splits as workers: asgd. So is dcasgd that corrects by nothing. */
static void test_same_as_asgd(void)
{
  const size_t n = SERVICE_PIECE + 4096;
  const struct setup all[] = {
    {"asgd", TRM_UPDATE_NESTEROV, .clip = 30, .elements = n},
    {"softsync", TRM_UPDATE_NESTEROV, .clip = 30, .splits = world->size, .elements = n},
    {"dcasgd", TRM_UPDATE_NESTEROV, .clip = 30, .compensation = "constant", .elements = n},
    {"dcasgd", TRM_UPDATE_NESTEROV, .clip = 30, .compensation = "adaptive", .elements = n},
  };
  float *first = array(n);
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    struct job job;
    job_start(&job, &all[i], world);
    job_begin(&job);
    take_turns(&job, 4, false, false);
    if (i == 0)
      memcpy(first, job.strategy.evaluated, n * sizeof *first);
    CHECK(&all[i], same(first, job.strategy.evaluated, n));
    job.strategy.ops->destroy(&job.strategy);
  }
  trm_free(first);
}

/* The same orders, acted out in double by one rank for all workers. */
struct play {
  int ranks, count; /* gradients of an update */
  int64_t clock, seen[MOST_RANKS];
  int waiting;
  struct trm_staleness staleness[MOST_RANKS];
  double *w, *mean, *view[MOST_RANKS], *square[MOST_RANKS]; /* (elements) */
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
    p->square[k] = trm_alloc(elements * sizeof *p->w, "test");
    memcpy(p->view[k], p->w, elements * sizeof *p->w);
  }
}

static void play_end(struct play *p)
{
  trm_free(p->w);
  trm_free(p->mean);
  for (int k = 0; k < p->ranks; k++) {
    trm_free(p->view[k]);
    trm_free(p->square[k]);
  }
}

/* Worker k's gradient, at view[k] where it is not exact, arrives. */
static void play_turn(struct play *p, const struct setup *c, int k, uint64_t batch, bool exact)
{
  const size_t n = c->elements, trained = trained_of(n);
  float *at = array(n), *g = array(n);
  const int64_t late = p->clock - p->seen[k];
  trm_staleness_add(&p->staleness[k], (uint64_t)late);
  for (size_t i = 0; i < n; i++)
    at[i] = (float)p->view[k][i];
  if (exact)
    exact_gradient(batch, 0, g, n);
  else
    gradient(batch, 0, 1, 0.5, at, g, n);
  const double divisor = c->rate && late > 1 ? (double)late : 1;
  const bool complete = ++p->waiting == p->count;
  for (size_t i = 0; i < n; i++) {
    double x = (double)g[i], *square = &p->square[k][i];
    if (i < trained && c->compensation) {
      *square = 0.5 * *square + 0.5 * x * x;
      const double lambda = strcmp(c->compensation, "adaptive") == 0 ? c->lambda / sqrt(*square + 1e-7) : c->lambda;
      x += lambda * x * x * (p->w[i] - p->view[k][i]);
    }
    p->mean[i] += x / p->count / (i < trained ? divisor : 1);
    if (complete) {
      p->w[i] += i < trained ? -rate_of(batch) * p->mean[i] : p->mean[i];
      p->mean[i] = 0;
    }
    p->view[k][i] = p->w[i];
  }
  p->clock += complete;
  p->waiting = complete ? 0 : p->waiting;
  p->seen[k] = p->clock;
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
  CHECK(c, distance(s->evaluated, w, c->elements) < 1e-5);
  trm_free(w);
  play_end(&p);
  s->ops->destroy(s);
}

static void test_softsync_order(void)
{
  for (int splits = 1; splits <= world->size; splits++)
    for (int divides = 0; divides < 2; divides++) {
      if (world->size > 4 && splits > 2 && splits < world->size)
        continue;
      const enum layout other = (enum layout)((splits + divides) % SERVER);
      const enum layout layout = is_left_out(other) ? ONE_NODE : other;
      check_play(&(struct setup){"softsync", .layout = layout, .splits = splits, .rate = divides ? "staleness" : NULL,
                                 .elements = 512},
                 true);
    }
}

static void test_dcasgd_order(void)
{
  for (enum layout layout = 0; layout < SERVER; layout++) {
    if (is_left_out(layout))
      continue;
    check_play(&(struct setup){"dcasgd", .layout = layout, .compensation = "constant", .lambda = 3, .elements = 512},
               false);
    check_play(&(struct setup){"dcasgd", .layout = layout, .compensation = "adaptive", .lambda = 2, .elements = 512},
               false);
  }
}

/* -- ssp in a forced order: one worker after the other goes as far as it may */

/* Weights after `clocks` of everybody's exact gradients. */
static void everybody(const struct setup *c, struct serial *r, const struct trm_optimizer *optimizer, int clocks)
{
  const int ranks = world->size;
  float *g[MOST_RANKS];
  for (int k = 0; k < ranks; k++)
    g[k] = array(c->elements);
  for (uint64_t b = 0; b < (uint64_t)clocks; b++) {
    for (int k = 0; k < ranks; k++)
      exact_gradient(b, k, g[k], c->elements);
    cpu.ops->sum(&cpu, g[0], (const float *const *)g, ranks, c->elements);
    serial_step(r, optimizer, rate_of(b), g[0]);
  }
  for (int k = 0; k < ranks; k++)
    trm_free(g[k]);
}

static void check_ahead(const struct setup *c)
{
  struct job job;
  job_start(&job, c, world);
  struct trm_strategy *s = &job.strategy;
  job_begin(&job);
  const int rank = world->rank, last = world->size - 1, slack = c->slack;
  const uint64_t end = (uint64_t)slack + 1;
  struct serial own = serial_begin(c);
  const struct trm_optimizer plain = {.tensor = &job.tensor, .tensors = 1};
  uint64_t batch;
  for (int turn = 0; turn <= last; turn++) {
    for (uint64_t b = 0; b < end && turn == rank; b++) {
      CHECK(c, s->ops->claim(s, end, &batch) && batch == b);
      CHECK(c, s->ops->before_forward(s) == TRM_OK);
      if (rank < last || strcmp(c->method, "ssp") == 0) /* nobody's updates but its own */
        CHECK(c, same(s->w, own.w, c->elements));
      exact_gradient(b, s->index, s->g, c->elements);
      serial_step(&own, &plain, rate_of(b), s->g);
      CHECK(c, step(s, b, 1) == TRM_OK);
    }
    meet();
  }
  CHECK(c, !s->ops->claim(s, end, &batch));
  CHECK(c, s->ops->settle(s) == TRM_OK);
  struct serial r = serial_begin(c);
  everybody(c, &r, &job.optimizer, slack + 1);
  CHECK(c, same(s->evaluated, r.w, c->elements));
  CHECK(c, s->updates == end);
  /* who comes last completes every clock, and sees it where it looks */
  const bool sees = rank == last && strcmp(c->method, "essp") == 0;
  for (int i = 0; i <= slack; i++)
    CHECK(c, s->staleness->count[i] == (sees ? (i == 0 ? end : 0) : 1));
  serial_end(&r);
  serial_end(&own);
  s->ops->destroy(s);
}

static void test_ahead(void)
{
  for (enum layout layout = 0; layout < SERVER; layout++)
    for (int slack = 1; slack <= 3; slack += 2)
      for (int eager = 0; eager < 2; eager++)
        if (!is_left_out(layout))
          check_ahead(&(struct setup){eager ? "essp" : "ssp", eager ? TRM_UPDATE_ADAM : TRM_UPDATE_MOMENTUM,
                                      .layout = layout, .slack = slack, .elements = SERVICE_PIECE + 256});
}

/* The last rank sends nothing before all others have gone as far as they may; they go on only when it has. */
static void test_no_further(void)
{
  enum { SLACK = 2, CLOCKS = 8 };
  enum { AHEAD, BEGUN, WORDS };
  for (enum layout layout = 0; layout < SERVER && world->size > 1; layout++) {
    if (is_left_out(layout))
      continue;
    const struct setup c = {"ssp", .layout = layout, .slack = SLACK, .elements = SERVICE_PIECE + 256};
    struct job job;
    job_start(&job, &c, world);
    struct trm_strategy *s = &job.strategy;
    job_begin(&job);
    struct words words;
    CU_ASSERT_FATAL(words_create(&words, world, worker_of(s)->node, 0, WORDS) == TRM_OK);
    const bool slow = world->rank == world->size - 1;
    uint64_t batch;
    while (s->ops->claim(s, CLOCKS, &batch)) {
      CHECK(&c, s->ops->before_forward(s) == TRM_OK);
      if (slow && batch == 0)
        while (words_read(&words, AHEAD) < world->size - 1)
          world->ops->progress(world);
      if (slow && batch == 0)
        words_add(&words, BEGUN, 1);
      if (!slow && batch > SLACK)
        CHECK(&c, words_read(&words, BEGUN) == 1);
      exact_gradient(batch, s->index, s->g, c.elements);
      CHECK(&c, step(s, batch, 1) == TRM_OK);
      if (!slow && batch == SLACK)
        words_add(&words, AHEAD, 1);
    }
    CHECK(&c, s->ops->settle(s) == TRM_OK);
    CHECK(&c, s->staleness->most <= SLACK && (slow || s->staleness->most == SLACK));
    struct serial r = serial_begin(&c);
    everybody(&c, &r, &job.optimizer, CLOCKS);
    CHECK(&c, same(s->evaluated, r.w, c.elements));
    serial_end(&r);
    words_free(&words);
    s->ops->destroy(s);
  }
  CU_PASS("one rank has nobody to wait for");
}

/* A worker whose loss is not finite: all come to the same end, and the weights are those before that clock. */
static void test_failure(void)
{
  enum { FAILS_AT = 4 };
  for (enum layout layout = 0; layout < LAYOUTS; layout++)
    for (int slack = 0; slack <= 2; slack += 2) {
      const struct setup c = {"ssp", .layout = layout, .slack = slack, .elements = SERVICE_PIECE + 256};
      if (workers_of(&c, world) < 1 || is_left_out(layout))
        continue;
      const int failing = workers_of(&c, world) - 1;
      struct job job, short_job;
      job_start(&job, &c, world);
      job_start(&short_job, &c, world);
      job_begin(&job);
      job_begin(&short_job);
      const int status = drive(&job, 1000, 0, FAILS_AT, failing);
      CHECK(&c, status == (world->rank == failing ? TRM_FAILED : TRM_OK));
      CHECK(&c, job.strategy.updates > FAILS_AT && job.strategy.updates <= FAILS_AT + (uint64_t)slack + 4);
      if (slack == 0) {
        CHECK(&c, drive(&short_job, FAILS_AT, 0, FAILS_AT, failing) == TRM_OK);
        CHECK(&c, same(job.strategy.evaluated, short_job.strategy.evaluated, c.elements));
      }
      for (size_t i = 0; i < c.elements; i++)
        if (!isfinite(job.strategy.evaluated[i]))
          CU_FAIL_FATAL("a weight is not finite");
      short_job.strategy.ops->destroy(&short_job.strategy);
      job.strategy.ops->destroy(&job.strategy);
    }
}

/* -- every worker on its own way: all methods come to the minimum. Settling now and then bounds what a rank that was
 * asleep meanwhile can spoil, and with a fixed share everybody ends with gradients that are not old. */
static void test_convex(void)
{
  enum { ROUNDS = 6 };
  static const struct setup methods[] = {
    {.method = "softsync"},
    {.method = "softsync", .splits = 2, .rate = "staleness"},
    {.method = "dcasgd", .compensation = "constant", .lambda = 1},
    {.method = "dcasgd", .compensation = "adaptive", .lambda = 1},
    {.method = "ssp", .slack = 3},
    {.method = "essp", .slack = 3},
  };
  for (enum layout layout = 0; layout < LAYOUTS; layout++)
    for (size_t m = 0; m < sizeof methods / sizeof *methods; m++) {
      struct setup c = methods[m];
      c.layout = layout;
      c.elements = 1024;
      if (workers_of(&c, world) < 1 || is_left_out(layout) || (world->size > 4 && layout == ONE_NODE))
        continue;
      struct job job;
      job_start(&job, &c, world);
      struct trm_strategy *s = &job.strategy;
      job_begin(&job);
      const uint64_t round = is_each(&c) ? 40 : 40 * (uint64_t)workers_of(&c, world);
      for (uint64_t i = 1; i <= ROUNDS; i++)
        CHECK(&c, drive(&job, i * round, 0, UINT64_MAX, 0) == TRM_OK);
      CHECK(&c, s->updates == ROUNDS * round);
      double worst = 0;
      for (size_t i = 0; i < c.elements; i++)
        worst = fmax(worst, fabs((double)s->evaluated[i] - (double)draw(1, 1, i)));
      CHECK(&c, worst < 0.01);
      s->ops->destroy(s);
    }
}

/* -- a run that pauses */

/* A checkpoint in memory. */
struct pause {
  float *view[TRM_MAX_STATES];
  void *kept[TRM_MAX_KEPT];
};

static void pause_take(const struct setup *c, struct trm_strategy *s, struct pause *at)
{
  const float *view[TRM_MAX_STATES] = {NULL};
  *at = (struct pause){0};
  CHECK(c, s->ops->collect(s, view) == TRM_OK);
  for (int i = 0; i <= s->optimizer->states; i++) {
    at->view[i] = array(c->elements);
    memcpy(at->view[i], view[i], c->elements * sizeof(float));
  }
  for (int i = 0; i < s->kepts; i++) {
    at->kept[i] = trm_alloc(s->kept[i].bytes, "test");
    memcpy(at->kept[i], s->kept[i].data, s->kept[i].bytes);
  }
}

static void pause_give(const struct setup *c, struct trm_strategy *s, struct pause *at, uint64_t updates)
{
  const float *from[TRM_MAX_STATES] = {NULL};
  for (int i = 0; i < s->kepts; i++)
    memcpy(s->kept[i].data, at->kept[i], s->kept[i].bytes);
  for (int i = 0; i <= s->optimizer->states; i++)
    from[i] = at->view[i];
  s->kept_given = true;
  meet();
  CHECK(c, s->ops->restore(s, from, updates) == TRM_OK);
  for (int i = 0; i < TRM_MAX_STATES; i++)
    trm_free(at->view[i]);
  for (int i = 0; i < TRM_MAX_KEPT; i++)
    trm_free(at->kept[i]);
}

/* One round and two more; in between another job takes over. */
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
      memcpy(straight, s->evaluated, c->elements * sizeof *straight);
    CHECK(c, same(s->evaluated, straight, c->elements));
    s->ops->destroy(s);
  }
  trm_free(straight);
}

static void test_pause(void)
{
  for (enum layout layout = 0; layout < SERVER; layout++) {
    if (is_left_out(layout))
      continue;
    const size_t n = SERVICE_PIECE + 256;
    /* an odd number of ranks leaves a gradient that waits */
    check_pause(&(struct setup){"softsync", TRM_UPDATE_ADAM, .layout = layout, .splits = 2, .elements = n});
    check_pause(&(struct setup){"dcasgd", TRM_UPDATE_MOMENTUM, .layout = layout, .lambda = 2, .elements = n});
  }
}

int main(int argc, char **argv)
{
  if (trm_device_open(&cpu, "cpu", "auto", "f32", 0, 1) != TRM_OK) {
    trm_log_error();
    return 99;
  }
  CU_TestInfo tests[] = {
    {"one worker is serial", test_alone},
    {"no slack is synchronous", test_no_slack},
    {"1-softsync takes the mean", test_softsync_mean},
    {"n-softsync is asgd", test_same_as_asgd},
    {"softsync in order", test_softsync_order},
    {"dcasgd in order", test_dcasgd_order},
    {"ssp: one after the other", test_ahead},
    {"ssp: no further than it may", test_no_further},
    {"ssp: a worker fails", test_failure},
    {"a convex problem", test_convex},
    {"a pause", test_pause},
    CU_TEST_INFO_NULL,
  };
  const int status = ranks_run(argc, argv, "methods with a centre", tests);
  trm_device_close(&cpu);
  return status;
}
