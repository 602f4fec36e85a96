/* Shared by the tests of centralized asynchronous methods: a strategy, and gradients for it. Collective over world. */
#pragma once

#include <math.h>
#include <string.h>

#include "method.h"
#include "mpi/async/worker.h"

enum layout { ONE_NODE, PAIRS, NO_SHARING, SERVER, LAYOUTS };
static const char *const layout_name[] = {"one node", "nodes of two", "no shared memory", "a rank that serves"};
enum { MAX_RANKS = 16 };

/* With more than 4 ranks one node and one other layout are tested, with fewer all layouts. */
static inline bool is_skipped(enum layout layout)
{
  return world->size > 4 && layout != ONE_NODE && (int)layout != 1 + world->size % 3;
}

struct setup {
  const char *method;
  enum trm_update_rule rule;
  double clip;
  enum layout layout;
  int splits, slack, tau;
  enum trm_stale_rate rate;
  enum trm_compensation compensation;
  double lambda;
  size_t elements;
  double l2;
  int max_delay; /* ringmaster, as the next one */
  bool stops;
  double frame; /* mindflayer, as the next one; 0: none */
  int trials;   /* 0: 1 */
  int collect;                       /* of rennala, and of methods with local steps, as the next ones; 0: their defaults */
  double alpha, outer_rate, outer_momentum, activation;
  bool dylu;
  int groups, global_every; /* halos */
  double global_rate, global_momentum;
};

static const char *text_of(const struct setup *c)
{
  static char text[256];
  snprintf(text, sizeof text, "%s, rule %d, clip %g, %s, splits %d, slack %d, tau %d, rate %s, %s lambda %g, %zu "
           "elements",
           c->method, (int)c->rule, c->clip, layout_name[c->layout], c->splits, c->slack, c->tau,
           trm_choice_text("strategy.rate", c->rate), trm_choice_text("strategy.compensation", c->compensation),
           c->lambda, c->elements);
  return text;
}

/* -- a job: the strategy and its inputs */

struct job {
  struct trm_options options;
  struct trm_optimizer optimizer;
  struct trm_tensor tensor[2]; /* trained; statistics */
  struct trm_strategy strategy;
};

static inline bool is_split_batch(const struct setup *c)
{
  return strstr(c->method, "ssp") != NULL;
}

static inline int workers_of(const struct setup *c, const struct trm_comm *comm)
{
  return comm->size - (c->layout == SERVER);
}

#define STATISTIC_MOMENTUM 0.0625f
#define MOMENTUM 0.75f /* optim.momentum */

/* The last sixteenth of the elements are statistics. */
static inline size_t trained_of(size_t elements)
{
  return elements - elements / 256 * 16;
}

/* groups: strategy.groups */
static inline void job_start_groups(struct job *job, const struct setup *c, struct trm_comm *comm, int groups)
{
  memset(job, 0, sizeof *job);
  job->options.strategy.groups = groups;
  job->options.parallel.share = c->layout == NO_SHARING ? TRM_SHARE_NONE : TRM_SHARE_NODE;
  job->options.parallel.bucket = 65536;
  job->options.strategy.data = TRM_ASSIGN_STATIC;
  job->options.strategy.batch = TRM_BATCH_WORKER;
  job->options.strategy.rate = c->rate;
  job->options.strategy.compensation = c->compensation;
  job->options.strategy.tau = c->tau ? c->tau : 1;
  job->options.strategy.servers = c->layout == SERVER;
  job->options.strategy.splits = c->splits ? c->splits : 1;
  job->options.strategy.slack = c->slack;
  job->options.strategy.lambda = c->lambda;
  job->options.strategy.memory = 0.9;
  job->options.strategy.collect = c->collect;
  job->options.strategy.max_delay = c->max_delay;
  job->options.strategy.stops = c->stops;
  job->options.strategy.frame = c->frame;
  job->options.strategy.trials = c->trials ? c->trials : 1;
  job->options.strategy.fragments = 1;
  job->options.strategy.alpha = c->alpha != 0 ? c->alpha : -1;
  job->options.strategy.outer_rate = c->outer_rate > 0 ? c->outer_rate : -1;
  job->options.strategy.outer_momentum = c->outer_momentum > 0 ? c->outer_momentum : -1;
  job->options.strategy.activation = c->activation;
  job->options.strategy.dylu = c->dylu;
  job->options.strategy.global_every = c->global_every ? c->global_every : 1;
  job->options.strategy.global_rate = c->global_rate;
  job->options.strategy.global_momentum = c->global_momentum;
  job->options.strategy.rate_exponent = 0.5;
  job->options.strategy.rate_bound = 2;
  job->options.strategy.rate_slope = 10;
  job->optimizer = (struct trm_optimizer){.update = {.rule = c->rule,
                                                     .momentum = MOMENTUM,
                                                     .l2 = (float)c->l2,
                                                     .beta1 = 0.9f,
                                                     .beta2 = 0.99f,
                                                     .epsilon = 1e-3f},
                                          .states = rule_states(c->rule),
                                          .clip = c->clip,
                                          .tensor = job->tensor,
                                          .tensors = 1,
                                          .statistics = 1};
  job->tensor[0] = (struct trm_tensor){.end = trained_of(c->elements)};
  job->tensor[1] = (struct trm_tensor){.end = c->elements, .momentum = STATISTIC_MOMENTUM};
  job->strategy = (struct trm_strategy){.ops = trm_strategy_find(c->method),
                                        .comm = comm,
                                        .device = &cpu,
                                        .optimizer = &job->optimizer,
                                        .elements = c->elements,
                                        .boundary = &job->tensor[0].end,
                                        .boundaries = 1};
  trm_strategy_set_options(&job->strategy, &job->options);
  CU_ASSERT_EQUAL_FATAL(strategy_create(&job->strategy, c->layout == PAIRS ? 2 : 0), TRM_OK);
}

static inline void job_start(struct job *job, const struct setup *c, struct trm_comm *comm)
{
  job_start_groups(job, c, comm, c->groups);
}

/* Draws multiples of 1/1024 in [-1, 1): sums of a few are exact. */
static inline float draw(uint64_t a, uint64_t b, size_t i)
{
  return (float)(mix(a, b, i) % 2048) / 1024 - 1;
}

/* Computes shard `part` of `parts` of the gradient of batch `batch` at w: per element a parabola whose minimum the
 * batch shifts by `noise` (0: all batches are equal). The moments of statistics are the same minimum. */
static inline void gradient(uint64_t batch, int part, int parts, double noise, const float *w, float *g,
                            size_t elements)
{
  const size_t trained = trained_of(elements);
  for (size_t i = 0; i < elements; i++) {
    const float minimum = draw(1, 1, i) - (float)noise * draw(batch + 2, (uint64_t)part, i);
    const float curvature = 0.5f + (float)(mix(2, 2, i) % 1024) / 2048;
    g[i] = (i < trained ? curvature * (w[i] - minimum) : minimum) / (float)parts;
  }
}

/* Computes a gradient that does not depend on the weights; sums over a few workers are exact. */
static inline void exact_gradient(uint64_t batch, int part, float *g, size_t elements)
{
  for (size_t i = 0; i < elements; i++)
    g[i] = draw(batch + 100, (uint64_t)part, i);
}

static inline float *array(size_t elements)
{
  return trm_alloc(elements * sizeof(float), "test");
}

static inline float initial(size_t i)
{
  return draw(9, 9, i);
}

static inline void job_begin(struct job *job)
{
  strategy_restore_initial(&job->strategy, initial);
}

static inline double rate_of(uint64_t batch)
{
  return 0.05 + 0.001 * (double)(batch % 8);
}

/* Makes a step with the gradient in s->g. */
static inline int step(struct trm_strategy *s, uint64_t batch, double loss)
{
  struct trm_loss_sums sums = {.loss = loss, .rows = 1};
  trm_strategy_begin_step(s, rate_of(batch), 0, &sums);
  return s->ops->step(s, rate_of(batch), &sums);
}

/* Runs all batches before `end` as the trainer does, without synchronizing workers. fail_at: the batch at which the
 * loss of worker `failing` is NaN. Returns this rank's status. */
static inline int run_worker(struct job *job, uint64_t end, double noise, uint64_t fail_at, int failing)
{
  struct trm_strategy *s = &job->strategy;
  uint64_t batch;
  int status = TRM_OK;
  while (next_batch(s, end, &batch)) {
    CU_ASSERT_EQUAL(s->ops->before_forward(s), TRM_OK);
    gradient(batch, s->batch_shard, s->batch_shards, noise, s->w, s->g, s->elements);
    const bool fails = batch == fail_at && worker_of(s)->number == failing;
    const int now = step(s, batch, fails ? (double)NAN : 1);
    status = status == TRM_OK ? now : status;
    s->halt = status != TRM_OK;
  }
  s->halt = false;
  CU_ASSERT_EQUAL(s->ops->quiesce(s), TRM_OK);
  return status;
}

/* -- serial training */

struct serial {
  size_t elements;
  float *w, *state[TRM_MAX_STATES - 1];
  uint64_t steps;
};

static inline struct serial serial_begin(const struct setup *c)
{
  struct serial r = {.elements = c->elements, .w = array(c->elements)};
  for (int i = 0; i < TRM_MAX_STATES - 1; i++)
    r.state[i] = array(c->elements);
  for (size_t i = 0; i < c->elements; i++)
    r.w[i] = initial(i);
  return r;
}

static inline void serial_end(struct serial *r)
{
  trm_free(r->w);
  for (int i = 0; i < TRM_MAX_STATES - 1; i++)
    trm_free(r->state[i]);
}

static inline void serial_step(struct serial *r, const struct trm_optimizer *optimizer, double rate, const float *g)
{
  struct trm_update update = optimizer->update;
  update.rate = (float)rate;
  update.scale = trm_clip_scale(optimizer, trm_device_norm_squared(&cpu, g, trm_optimizer_trained(optimizer)));
  update.step = ++r->steps;
  const struct trm_update_interval all = {0, r->elements, r->w, r->state, NULL};
  trm_optimizer_apply(optimizer, &cpu, &update, NULL, &all, g);
}

static inline bool same(const float *a, const float *b, size_t n)
{
  return memcmp(a, b, n * sizeof *a) == 0;
}

static inline double distance(const float *a, const float *b, size_t n)
{
  double worst = 0;
  for (size_t i = 0; i < n; i++)
    worst = fmax(worst, isfinite(a[i]) ? fabs((double)a[i] - (double)b[i]) : INFINITY);
  return worst;
}

static inline void world_barrier(void)
{
  world->ops->barrier(world);
}

/* One worker is serial training, bit for bit. */
static inline void check_alone(const struct setup *c)
{
  enum { BATCHES = 20 };
  struct job job;
  job_start(&job, c, trm_comm_self());
  job_begin(&job);
  CHECK(c, run_worker(&job, BATCHES, 0.5, BATCHES, 0) == TRM_OK);
  struct serial r = serial_begin(c);
  float *g = array(c->elements);
  for (uint64_t b = 0; b < BATCHES; b++) {
    gradient(b, 0, 1, 0.5, r.w, g, c->elements);
    serial_step(&r, &job.optimizer, rate_of(b), g);
  }
  CHECK(c, same(job.strategy.eval_weights, r.w, c->elements));
  CHECK(c, job.strategy.updates == BATCHES);
  CHECK(c, job.strategy.staleness->updates == BATCHES);
  CHECK(c, job.strategy.staleness->sum == 0 || c->slack > 0);
  trm_free(g);
  serial_end(&r);
  job.strategy.ops->destroy(&job.strategy);
}
