/* Shared by the tests of peer methods: a strategy with its options, optimizer and initial weights. */
#pragma once

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "method.h"
#include "mpi/async/peers.h"

enum layout { ONE_NODE, PAIRS, NO_SHARING, LAYOUTS, SERVER = LAYOUTS };
static const char *const layout_name[] = {"one node", "nodes of two", "no shared memory", "a rank that serves"};

struct setup {
  const char *method;
  enum trm_update_rule rule;
  double clip, alpha, momentum;
  enum layout layout;
  int tau, overlap;
  size_t elements;
};

static inline const char *text_of(const struct setup *c)
{
  static char text[256];
  snprintf(text, sizeof text, "%s, rule %d, clip %g, alpha %g, %s, tau %d, %zu elements", c->method, (int)c->rule,
           c->clip, c->alpha, layout_name[c->layout], c->tau, c->elements);
  return text;
}

/* -- a job: the strategy and its inputs */

struct job {
  struct trm_options options;
  struct trm_optimizer optimizer;
  struct trm_tensor tensor[3]; /* the last: statistics */
  struct trm_strategy strategy;
  size_t trained; /* elements that are trained; the rest are statistics */
};

static inline bool is_method(const struct setup *c, const char *method)
{
  return strcmp(c->method, method) == 0;
}

static inline void job_prepare(struct job *job, const struct setup *c, struct trm_comm *comm)
{
  memset(job, 0, sizeof *job);
  job->options.parallel.share = c->layout == NO_SHARING ? TRM_SHARE_NONE : TRM_SHARE_NODE;
  job->options.run.seed = 5;
  job->options.strategy.data = TRM_ASSIGN_STATIC;
  job->options.strategy.rate = TRM_STALE_RATE_CONSTANT;
  job->options.strategy.tau = c->tau ? c->tau : 1;
  job->options.strategy.alpha = c->alpha;
  job->options.strategy.overlap = c->overlap;
  job->options.strategy.servers = c->layout == SERVER;
  job->options.optim.name = TRM_UPDATE_SGD;
  job->options.optim.momentum = c->momentum;
  job->trained = c->elements / 16 * 15 / 16 * 16;
  job->tensor[0] = (struct trm_tensor){.end = job->trained / 3 / 16 * 16};
  job->tensor[1] = (struct trm_tensor){.end = job->trained, .vector = true};
  job->tensor[2] = (struct trm_tensor){.end = c->elements, .momentum = 0.125f};
  job->optimizer = (struct trm_optimizer){
    .update = {.rule = c->rule, .l2 = 0.01f, .momentum = 0.9f, .beta1 = 0.9f, .beta2 = 0.99f, .epsilon = 1e-3f},
    .states = rule_states(c->rule),
    .clip = c->clip,
    .tensor = job->tensor,
    .tensors = 2,
    .statistics = 1};
  job->strategy = (struct trm_strategy){.ops = trm_strategy_find(c->method),
                                        .comm = comm,
                                        .device = &cpu,
                                        .optimizer = &job->optimizer,
                                        .elements = c->elements,
                                        .boundary = &job->trained,
                                        .boundaries = 1};
  trm_strategy_set_options(&job->strategy, &job->options);
}

static inline void job_create(struct job *job, const struct setup *c)
{
  const int status = strategy_create(&job->strategy, c->layout == PAIRS ? 2 : 0);
  if (status != TRM_OK)
    printf("\n    %s: %s\n", text_of(c), trm_error_text());
  CU_ASSERT_EQUAL_FATAL(status, TRM_OK);
}

static inline float initial(size_t i)
{
  return (float)(i * 2654435761u % 2003) / 1000 - 1;
}

static inline void job_start(struct job *job, const struct setup *c, struct trm_comm *comm)
{
  job_prepare(job, c, comm);
  job_create(job, c);
  strategy_restore_initial(&job->strategy, initial);
}

static inline void job_stop(struct job *job)
{
  job->strategy.ops->destroy(&job->strategy);
}
