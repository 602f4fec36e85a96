/* Shared by the tests of synchronous training: a setup, its strategy, gradients with exact sums, and a step. A program
 * includes this once. */
#pragma once

#include <stdlib.h>
#include <string.h>

#include "method_devices.h"

struct setup {
  enum trm_update_rule rule;
  double clip, ema;
  bool error_feedback; /* of updates */
  enum trm_share share;
  const char *offload;
  int node_size; /* TRM_NODE_SIZE; 0: unset */
  int64_t bucket, lanes;
  enum trm_compress compress;
  double ratio; /* strategy.compress_ratio */
  double momentum; /* optim.momentum, of dgc */
  struct trm_comm *model; /* strategy.norm_comm */
  int pretends; /* ranks with a device that has memory of its own: 0 none, 1 all, 2 every second one */
  size_t elements;
};

static inline const char *text_of(const struct setup *c)
{
  static char text[256];
  snprintf(text, sizeof text, "rule %d clip %g ema %g feedback %d share %s node size %d bucket %d lanes %d pretends %d, compress %d, "
           "%zu elements", (int)c->rule, c->clip, c->ema, c->error_feedback,
           trm_choice_text("parallel.share", c->share), c->node_size, (int)c->bucket, (int)c->lanes,
           c->pretends, (int)c->compress, c->elements);
  return text;
}

/* Returns the offset of the statistics, which are the last interval. */
static inline size_t trained_of(const struct setup *c)
{
  return c->elements / 16 * 11 / 16 * 16;
}

enum { TENSORS = 100 };
#define STATISTIC_MOMENTUM 0.0625f

struct job {
  struct trm_options options;
  struct trm_optimizer optimizer;
  struct trm_strategy strategy;
  struct trm_staged_arrays arrays;
  size_t boundary[5];
  struct trm_tensor tensor[TENSORS];
};

/* Defines tensors of very different sizes; the larger ones have more than one dimension. */
static inline void tensors_make(struct job *job, const struct setup *c)
{
  static const size_t sizes[] = {16, 4112, 32, 30000 / 16 * 16, 16, 16, 20000, 160, 1600};
  const size_t trained = trained_of(c);
  int t = 0;
  for (size_t end = 0; end < trained; t++) {
    const size_t size = sizes[(size_t)t % (sizeof sizes / sizeof *sizes)] << t / 20;
    end = end + size < trained ? end + size : trained;
    job->tensor[t] = (struct trm_tensor){.end = end, .columns = 80, .vector = size < 1000};
  }
  job->optimizer.tensor = job->tensor;
  job->optimizer.tensors = t;
  job->tensor[t] = (struct trm_tensor){.end = c->elements, .momentum = STATISTIC_MOMENTUM};
  job->optimizer.statistics = 1;
}

/* True if this rank's device has memory of its own. */
static inline bool has_pretend(const struct setup *c)
{
  return c->pretends == 1 || (c->pretends == 2 && world->rank % 2 == 0);
}

static inline void job_start(struct job *job, const struct setup *c, struct trm_comm *comm)
{
  memset(job, 0, sizeof *job);
  job->options.parallel.share = c->share;
  job->options.parallel.offload = (char *)c->offload;
  job->options.parallel.bucket = c->bucket;
  job->options.run.lanes = c->lanes;
  job->options.strategy.compress = c->compress;
  job->options.strategy.compress_ratio = c->ratio;
  job->options.strategy.error_feedback = true;
  job->options.strategy.compress_rank = 2;
  job->options.strategy.compress_bits = TRM_COMPRESS_4_BITS;
  job->options.optim.clip = c->clip;
  job->options.optim.momentum = c->momentum;
  job->optimizer.update = (struct trm_update){.rule = c->rule,
                                              .l2 = c->rule == TRM_UPDATE_ADAMW || c->rule == TRM_UPDATE_NADAMW ? 0 : 0.01f,
                                              .decay = 0.02f,
                                              .momentum = 0.9f,
                                              .beta1 = 0.9f,
                                              .beta2 = 0.99f,
                                              .epsilon = 1e-3f};
  job->optimizer.states = rule_states(c->rule) + c->error_feedback + (c->ema > 0);
  job->optimizer.error_feedback = c->error_feedback;
  job->optimizer.clip = c->compress == TRM_COMPRESS_DGC ? 0 : c->clip;
  job->optimizer.ema = c->ema;
  job->optimizer.trust = 0.2;
  tensors_make(job, c);
  /* layers of very different sizes */
  static const int sixteenths[5] = {1, 2, 10, 11, 16};
  for (int i = 0; i < 5; i++)
    job->boundary[i] = c->elements / 16 * (size_t)sixteenths[i] / 16 * 16;
  job->boundary[4] = c->elements;
  job->strategy = (struct trm_strategy){.ops = trm_strategy_find("sync"),
                                        .comm = comm,
                                        .device = has_pretend(c) ? &pretend : &cpu,
                                        .optimizer = &job->optimizer,
                                        .norm_comm = c->model,
                                        .elements = c->elements,
                                        .boundary = job->boundary,
                                        .boundaries = 5};
  trm_strategy_set_options(&job->strategy, &job->options);
  CU_ASSERT_EQUAL_FATAL(strategy_begin(&job->arrays, &job->strategy, c->node_size), TRM_OK);
}

/* Draws multiples of 1/1024 below 1/2: their sums are exact in any order. */
static inline float exact_gradient(uint64_t step, int part, size_t i)
{
  return ((float)(mix(step, (uint64_t)part, i) % 1024) - 512.0f) / 1024.0f;
}

static inline float initial(size_t i)
{
  return (float)(mix(9, 9, i) % 2000) / 1000.0f - 1.0f;
}

static inline void submit_gradient(struct job *job, const float *g, const struct trm_loss_sums *sums)
{
  struct trm_staged_arrays *a = &job->arrays;
  CU_ASSERT_EQUAL(trm_staged_arrays_begin(a), TRM_OK);
  a->device->ops->upload(a->device, a->g, g, job->strategy.elements * sizeof *g);
  for (size_t i = 0, low = 0; i < 5; low = job->boundary[i++])
    if (low < job->boundary[i])
      CU_ASSERT_EQUAL(trm_staged_arrays_ready(a, low, job->boundary[i], sums), TRM_OK);
}

static inline double rate_of(uint64_t step)
{
  return 0.05 + 0.01 * (double)step;
}

/* Makes one step with the exact gradients and checks the loss sums. */
static inline void exact_step(struct job *job, const struct setup *c)
{
  struct trm_strategy *s = &job->strategy;
  const uint64_t step = s->updates;
  float *g = trm_alloc(c->elements * sizeof *g, "test");
  for (size_t i = 0; i < c->elements; i++)
    g[i] = exact_gradient(step, s->batch_shard, i);
  struct trm_loss_sums sums = {.loss = 1.5, .correct = s->batch_shard, .rows = 3, .stop_requests = s->batch_shard == 0};
  s->rate = step % 2 ? rate_of(step) : 0; /* known before the passes, or not */
  submit_gradient(job, g, &sums);
  trm_strategy_begin_step(s, rate_of(step), 0, &sums);
  CHECK(c, s->ops->step(s, rate_of(step), &sums) == TRM_OK);
  CHECK(c, sums.loss == 1.5 * s->batch_shards && sums.rows == 3 * s->batch_shards && sums.stop_requests == 1);
  CHECK(c, sums.correct == s->batch_shards * (s->batch_shards - 1) / 2);
  CHECK(c, s->updates == step + 1);
  trm_free(g);
}
