/* Shared by the tests of methods with local steps: a setup, its strategy on real or virtual ranks, and a step whose
 * gradients follow from the setup alone. A program includes this once. */
#pragma once

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "method.h"
#include "mpi/virtual.h"

enum { TENSORS = 5, MAX_RANKS = 9 };
#define RATE 0.125
#define STATISTIC_MOMENTUM 0.25f

struct setup {
  const char *method;
  int node_size; /* ranks of a node; 0: all */
  enum trm_replica replica;
  enum trm_share share;
  int tau, fragments;
  enum trm_update_rule rule;
  double outer_rate, outer_momentum; /* -1: the method's */
  int decays_at; /* the step of the first decay of the learning rate; -1: never */
  bool exact;    /* gradients are multiples of 1/1024, whose sums are exact, and do not depend on the weights */
  size_t elements;
  enum trm_compress compress;
  double ratio; /* of compress */
};

static inline const char *text_of(const struct setup *c)
{
  static char text[256];
  snprintf(text, sizeof text, "%s, %d ranks a node, replica %d, share %d, tau %d, fragments %d, rule %d, outer %g %g, "
           "decays at %d, %s, %zu elements, compress %d %g", c->method, c->node_size, (int)c->replica, (int)c->share,
           c->tau, c->fragments, (int)c->rule, c->outer_rate, c->outer_momentum, c->decays_at, c->exact ? "exact" : "curved",
           c->elements, (int)c->compress, c->ratio);
  return text;
}

struct job {
  struct trm_options options;
  struct trm_optimizer optimizer;
  struct trm_tensor tensor[TENSORS];
  struct trm_staged_arrays arrays;
  size_t boundary[3];
  struct trm_strategy strategy;
};

static inline size_t trained_of(const struct setup *c)
{
  return c->elements / 8 * 7;
}

/* Ends of the trained tensors, some of which are in several slices. */
static inline size_t tensor_end(const struct setup *c, int t)
{
  static const int parts[TENSORS - 1] = {1, 2, 13, 16};
  return trained_of(c) * (size_t)parts[t] / 16;
}

static inline float initial(size_t i)
{
  return (float)(mix(9, 9, i) % 64) / 64 - 0.5f;
}

static inline double rate_of(const struct setup *c, uint64_t step)
{
  return c->decays_at >= 0 && step >= (uint64_t)c->decays_at ? RATE / 2 : RATE;
}

/* The replica of a rank of the job, and its ranks, as the setup says. */
static inline int ranks_per_replica(const struct setup *c, int ranks)
{
  return c->replica == TRM_REPLICA_RANK ? 1 : c->node_size ? c->node_size : ranks;
}
static inline int replica_count(const struct setup *c, int ranks)
{
  return (ranks + ranks_per_replica(c, ranks) - 1) / ranks_per_replica(c, ranks);
}
static inline int replica_size(const struct setup *c, int ranks, int replica)
{
  const int per = ranks_per_replica(c, ranks), left = ranks - replica * per;
  return left < per ? left : per;
}

/* The gradient of a shard of a batch, a mean over its rows; of a statistic, a moment. */
static inline double shard_gradient(const struct setup *c, uint64_t step, int shard, size_t i, double w)
{
  if (c->exact)
    return ((double)(mix(step, (uint64_t)shard, i) % 1024) - 512) / 1024;
  const double target = (double)(mix(step, (uint64_t)shard, i) % 64) / 64 - 0.5;
  return i < trained_of(c) ? (0.5 + (double)(i % 8) / 16) * (w - target) : target;
}

/* TRM_OK, on every rank, or the failure of slot create. */
static inline int job_open(struct job *job, const struct setup *c, struct trm_comm *comm)
{
  memset(job, 0, sizeof *job);
  struct trm_options *o = &job->options;
  o->parallel.share = c->share;
  o->parallel.bucket = 1024;
  o->strategy.tau = c->tau;
  o->strategy.fragments = c->fragments;
  o->strategy.replica = c->replica;
  o->strategy.compress = c->compress;
  o->strategy.compress_ratio = c->ratio;
  o->strategy.error_feedback = true;
  o->strategy.outer_rate = c->outer_rate;
  o->strategy.outer_momentum = c->outer_momentum;
  for (int t = 0; t < TENSORS - 1; t++)
    job->tensor[t] = (struct trm_tensor){.end = tensor_end(c, t)};
  job->tensor[TENSORS - 1] = (struct trm_tensor){.end = c->elements, .momentum = STATISTIC_MOMENTUM};
  job->optimizer = (struct trm_optimizer){
    .update = {.rule = c->rule, .momentum = 0.5f, .beta1 = 0.5f, .beta2 = 0.75f, .epsilon = 0.125f, .decay = 0.0625f},
    .states = rule_states(c->rule), .decay_all = true, .tensor = job->tensor, .tensors = TENSORS - 1, .statistics = 1};
  for (size_t i = 0; i < 3; i++)
    job->boundary[i] = c->elements / 16 * (i + 1) / 3 * 16;
  job->boundary[2] = c->elements;
  job->strategy = (struct trm_strategy){.ops = trm_strategy_find(c->method), .comm = comm, .device = &cpu,
                                        .optimizer = &job->optimizer, .elements = c->elements,
                                        .boundary = job->boundary, .boundaries = 3};
  trm_strategy_set_options(&job->strategy, o);
  return strategy_begin(&job->arrays, &job->strategy, c->node_size);
}

static inline void job_start(struct job *job, const struct setup *c, struct trm_comm *comm)
{
  CU_ASSERT_EQUAL_FATAL(job_open(job, c, comm), TRM_OK);
  strategy_restore_initial(&job->strategy, initial);
}

/* Makes a step; returns its status. sums: in, of this rank; out, as slot step says. */
static inline int job_step(struct job *job, const struct setup *c, struct trm_loss_sums *sums)
{
  struct trm_strategy *s = &job->strategy;
  const uint64_t step = s->updates;
  const int ranks = s->comm->size;
  const double rate = rate_of(c, step);
  TRM_CHECK(trm_staged_arrays_begin(&job->arrays));
  /* exact: sync adds the shards' gradients; the mean over replicas is the same if each has as many times its own */
  const double scale = c->exact ? (s->replica ? replica_count(c, ranks) : 1)
                                : 1.0 / (s->replica ? s->replica->size : ranks);
  for (size_t i = 0; i < c->elements; i++)
    s->g[i] = (float)(scale * shard_gradient(c, step, s->batch_shard, i, (double)s->w[i]));
  s->decayed = c->decays_at >= 0 && step >= (uint64_t)c->decays_at;
  for (size_t i = 0, low = 0; i < 3; low = job->boundary[i++])
    TRM_CHECK(trm_staged_arrays_ready(&job->arrays, low, job->boundary[i], sums));
  trm_strategy_begin_step(s, rate, 0, sums);
  return s->ops->step(s, rate, sums);
}

static inline void job_steps(struct job *job, const struct setup *c, int steps)
{
  for (int i = 0; i < steps; i++) {
    struct trm_loss_sums sums = {.loss = 1, .rows = 1};
    CHECK(c, job_step(job, c, &sums) == TRM_OK);
  }
}

/* The weights of evaluations, as of a quiesce point. Collective. */
static inline const float *job_weights(struct job *job)
{
  struct trm_strategy *s = &job->strategy;
  if (s->ops->quiesce)
    CU_ASSERT_EQUAL(s->ops->quiesce(s), TRM_OK);
  return s->eval_weights ? s->eval_weights : s->w;
}

/* Trains by itself; weights (elements): those of evaluations at the end. */
static inline void job_run(const struct setup *c, struct trm_comm *comm, int steps, float *weights)
{
  struct job job;
  job_start(&job, c, comm);
  job_steps(&job, c, steps);
  memcpy(weights, job_weights(&job), c->elements * sizeof *weights);
  comm->ops->barrier(comm);
  strategy_end(&job.arrays);
}

/* Runs check(setup, ranks) on the real ranks with nodes of 1 to 3, and alone on virtual ones. */
struct virtual_case {
  struct setup setup;
  void (*check)(const struct setup *c, struct trm_comm *comm);
};

static inline int virtual_main(struct trm_comm *comm, void *context)
{
  const struct virtual_case *of = context;
  trm_log_set_quiet(true);
  of->check(&of->setup, comm);
  return TRM_OK;
}

static inline void run_everywhere(struct setup c, void (*check)(const struct setup *c, struct trm_comm *comm))
{
  for (c.node_size = 0; c.node_size <= 2 && c.node_size < world->size; c.node_size++)
    check(&c, world);
  for (int ranks = 1; world->size == 1 && ranks <= MAX_RANKS; ranks++)
    for (int per_node = 1; per_node <= 3 && per_node <= ranks; per_node++) {
      struct virtual_case of = {c, check};
      of.setup.node_size = per_node;
      const struct trm_virtual_plan plan = {.ranks = ranks, .ranks_per_node = per_node, .latency = 1e-4,
                                            .bandwidth = 1e8, .service = 1e-5};
      CU_ASSERT_EQUAL(trm_virtual_run(&plan, virtual_main, &of, NULL), TRM_OK);
    }
}
