/* Runs of centralized methods on the virtual network whose workers differ in speed, for straight loops in double
 * precision over the same order of updates. */
#pragma once

#include "async_job.h"
#include "mpi/virtual.h"

enum { ELEMENTS = 512, BATCHES = 60, MAX_WORKERS = 6 };

/* A run, and its updates in order; the ranks run one at a time. */
struct race {
  struct setup setup;
  int ranks, groups; /* groups: of `groups`; 0: another method */
  bool one_is_slow;  /* worker 0 */
  struct {
    int worker;
    uint64_t batch;
    bool abandoned; /* there is no gradient of the batch */
  } event[BATCHES];
  int events, workers, shards;
  float w[ELEMENTS];
  struct trm_staleness staleness[MAX_WORKERS];
};

/* Seconds of a batch: no two workers end one within 0.01 s. */
static inline double seconds_of(const struct race *race, int worker)
{
  return race->one_is_slow && worker == 0 ? 7.3 : 1 + 0.03 * worker;
}

/* The same of one batch: with strategy.frame its gradient may take one of three times. */
static inline double race_seconds(const struct race *race, int worker, uint64_t batch)
{
  const double more = race->setup.frame > 0 ? 0.5 * (mix(batch, (uint64_t)worker, 3) % 3) : 0;
  return seconds_of(race, worker) + more;
}

static inline bool race_abandons(void *of)
{
  const struct trm_strategy *s = of;
  return s->abandons(s);
}

/* The time of a batch passes, or a part of it. */
static inline void race_compute(const struct race *race, struct trm_strategy *s, int worker, uint64_t batch)
{
  struct trm_comm *comm = s->comm;
  const double end = comm->ops->clock(comm) + race_seconds(race, worker, batch);
  const double limit = s->abandon_at > 0 ? s->abandon_at : INFINITY;
  if (s->abandons)
    s->abandoned = comm->ops->wait_at_most(comm, race_abandons, s, fmin(end, limit)) || limit < end;
  else
    comm->ops->sleep_until(comm, end, true);
}

static inline int race_rank(struct trm_comm *comm, void *of)
{
  struct race *race = of;
  struct job job;
  job_start_groups(&job, &race->setup, comm, race->groups);
  struct trm_strategy *s = &job.strategy;
  const int number = worker_of(s)->number;
  const bool leads = number >= 0 && worker_of(s)->group->rank == 0;
  job_begin(&job);
  uint64_t batch;
  while (next_batch(s, BATCHES, &batch)) {
    TRM_CHECK(s->ops->before_forward(s));
    gradient(batch, s->batch_shard, s->batch_shards, 0.5, s->w, s->g, ELEMENTS);
    race_compute(race, s, number, batch);
    if (leads) {
      race->event[race->events].worker = number;
      race->event[race->events].abandoned = s->abandoned;
      race->event[race->events++].batch = batch;
    }
    if (!s->abandoned)
      TRM_CHECK(step(s, batch, 1));
  }
  TRM_CHECK(s->ops->quiesce(s));
  if (leads) {
    race->workers = worker_of(s)->workers;
    race->shards = s->batch_shards;
    race->staleness[number] = *s->staleness;
  }
  if (comm->rank == 0)
    memcpy(race->w, s->eval_weights, sizeof race->w);
  s->ops->destroy(s);
  return TRM_OK;
}

static inline void race_run(struct race *race)
{
  const enum layout layout = race->setup.layout;
  const struct trm_virtual_plan plan = {.ranks = race->ranks + (layout == SERVER),
                                        .ranks_per_node = layout == PAIRS ? 2 : race->ranks + 1,
                                        .latency = 1e-5,
                                        .bandwidth = 1e9};
  race->setup.elements = ELEMENTS;
  race->events = 0;
  const int status = trm_virtual_run(&plan, race_rank, race, NULL);
  CHECK(&race->setup, status == TRM_OK);
  CHECK(&race->setup, race->events == BATCHES);
}

/* The largest staleness of the run. */
static inline uint64_t race_delay(const struct race *race)
{
  uint64_t most = 0;
  for (int k = 0; k < race->workers; k++)
    most = race->staleness[k].max > most ? race->staleness[k].max : most;
  return most;
}

/* The batch's gradient (ELEMENTS) at w, the sum of its shards, clipped, with l2. */
static inline void loop_gradient(const struct race *race, uint64_t batch, const double *w, double *g)
{
  const struct setup *c = &race->setup;
  float at[ELEMENTS], part[ELEMENTS];
  double norm = 0;
  for (int i = 0; i < ELEMENTS; i++) {
    at[i] = (float)w[i];
    g[i] = 0;
  }
  for (int k = 0; k < race->shards; k++) {
    gradient(batch, k, race->shards, 0.5, at, part, ELEMENTS);
    for (int i = 0; i < ELEMENTS; i++)
      g[i] += (double)part[i];
  }
  for (size_t i = 0; i < trained_of(ELEMENTS); i++)
    norm += g[i] * g[i];
  for (size_t i = 0; i < trained_of(ELEMENTS); i++)
    g[i] = g[i] * (c->clip > 0 && sqrt(norm) > c->clip ? c->clip / sqrt(norm) : 1) + c->l2 * w[i];
}
