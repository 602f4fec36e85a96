/* Synchronous training against a serial reference: every optimizer rule, with and without clipping, one and several
 * nodes (TRM_NODE_SIZE), shared and private memory, devices with memory of their own on all ranks or on some. Meant for
 * 1 to 9 ranks. */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "mpi/sync/sync_private.h"
#include "sync_job.h"

/* -- the reference: one rank, double precision, formulas of nn/optimizer.h */

struct reference {
  double *w, *first, *second, *average, *last_step;
};

static double norm_of(const double *x, size_t low, size_t high)
{
  double sum = 0;
  for (size_t i = low; i < high; i++)
    sum += x[i] * x[i];
  return sqrt(sum);
}

/* nadamw's combination of moment m and gradient x in update t */
static double nadam_step(double beta1, uint64_t t, double m, double x)
{
  double mu = 0, before = 1, product = 1;
  for (uint64_t i = 1; i <= t + 1; i++) {
    before = product;
    const double next = beta1 * (1 - 0.5 * pow(0.96, 0.004 * (double)i));
    product *= next;
    if (i == t)
      mu = next;
    else if (i > t)
      m *= next;
  }
  return m / (1 - product) + (1 - mu) * x / (1 - before);
}

/* Applies the rule to elements [low, high) of one tensor. x: clipped gradients. */
static void reference_update(struct reference *r, const struct trm_update *u, const struct trm_optimizer *optimizer,
                             bool vector, uint64_t step, double *x, size_t low, size_t high)
{
  const double rate = rate_of(step), decay = vector ? 0 : (double)u->decay, momentum = (double)u->momentum;
  const double l2 = vector && u->rule == TRM_UPDATE_LARS ? 0 : (double)u->l2;
  const double w_norm = norm_of(r->w, low, high), g_norm = norm_of(x, low, high);
  const double trust = vector ? 1 : optimizer->trust * w_norm / (g_norm + l2 * w_norm);
  for (size_t i = low; i < high; i++) {
    double *w = &r->w[i], *m = &r->first[i], *v = &r->second[i];
    x[i] += l2 * *w;
    switch (u->rule) {
    case TRM_UPDATE_SGD:
      *w -= rate * x[i];
      break;
    case TRM_UPDATE_MOMENTUM:
      *m = momentum * *m + x[i];
      *w -= rate * *m;
      break;
    case TRM_UPDATE_NESTEROV:
      *m = momentum * *m + x[i];
      *w -= rate * (x[i] + momentum * *m);
      break;
    case TRM_UPDATE_LARS:
      *m = momentum * *m + rate * trust * x[i];
      *w -= *m;
      break;
    case TRM_UPDATE_ADAGRAD:
      *m += x[i] * x[i];
      *w -= rate * x[i] / (sqrt(*m) + (double)u->epsilon);
      break;
    case TRM_UPDATE_MUON:
    case TRM_UPDATE_RULES:
      break;
    case TRM_UPDATE_NADAMW:
      *m = (double)u->beta1 * *m + (1 - (double)u->beta1) * x[i];
      *v = (double)u->beta2 * *v + (1 - (double)u->beta2) * x[i] * x[i];
      *w -= rate * (nadam_step((double)u->beta1, step + 1, *m, x[i]) /
                      (sqrt(*v / (1 - pow((double)u->beta2, (double)step + 1))) + (double)u->epsilon) +
                    decay * *w);
      break;
    case TRM_UPDATE_ADAM:
    case TRM_UPDATE_ADAMW:
    case TRM_UPDATE_LAMB:
      *m = (double)u->beta1 * *m + (1 - (double)u->beta1) * x[i];
      *v = (double)u->beta2 * *v + (1 - (double)u->beta2) * x[i] * x[i];
      x[i] = (*m / (1 - pow((double)u->beta1, (double)step + 1))) /
             (sqrt(*v / (1 - pow((double)u->beta2, (double)step + 1))) + (double)u->epsilon);
      if (u->rule != TRM_UPDATE_ADAM)
        x[i] += decay * *w;
      if (u->rule != TRM_UPDATE_LAMB)
        *w -= rate * x[i];
      break;
    }
  }
  if (u->rule == TRM_UPDATE_LAMB) {
    const double ratio = vector ? 1 : w_norm / norm_of(x, low, high);
    for (size_t i = low; i < high; i++)
      r->w[i] -= rate * ratio * x[i];
  }
}

/* part: the batch shard of this rank, whose gradient is added to the others': an exact sum */
static void reference_step(struct reference *r, const struct setup *c, const struct trm_optimizer *optimizer,
                           uint64_t step, int part)
{
  const size_t n = trained_of(c);
  double *g = trm_alloc(c->elements * sizeof *g, "test");
  for (size_t i = 0; i < c->elements; i++)
    g[i] = exact_gradient(step, part, i);
  world->ops->allreduce(world, g, c->elements, TRM_DOUBLE, TRM_SUM);
  for (size_t i = n; i < c->elements; i++)
    r->w[i] += (double)STATISTIC_MOMENTUM * (g[i] - r->w[i]); /* a statistic: not clipped, no rule */
  const double norm = norm_of(g, 0, n);
  for (size_t i = 0; i < n && c->clip > 0 && norm > c->clip; i++)
    g[i] *= c->clip / norm;
  double *before = trm_alloc(n * sizeof *before, "test");
  memcpy(before, r->w, n * sizeof *before);
  size_t low = 0;
  for (int t = 0; t < optimizer->tensors; low = optimizer->tensor[t++].end)
    reference_update(r, &optimizer->update, optimizer, optimizer->tensor[t].vector, step, g, low,
                     optimizer->tensor[t].end);
  for (size_t i = 0; i < n && c->error_feedback; i++) {
    const double u = before[i] - r->w[i];
    r->w[i] -= step == 0 ? 0 : u - r->last_step[i];
    r->last_step[i] = u;
  }
  trm_free(before);
  const double keep = fmin(c->ema, (2 + (double)step) / (11 + (double)step));
  for (size_t i = 0; i < c->elements; i++)
    r->average[i] = keep * r->average[i] + (1 - keep) * r->w[i];
  trm_free(g);
}

/* Returns the largest difference between an array of this rank and the reference's. */
static double distance(const struct job *job, const float *array, const double *wanted)
{
  const struct trm_strategy *s = &job->strategy;
  float *w = trm_alloc(s->elements * sizeof *w, "test");
  s->device->ops->download(s->device, w, array, s->elements * sizeof *w);
  double worst = 0;
  for (size_t i = 0; i < s->elements; i++) {
    const double d = fabs((double)w[i] - wanted[i]);
    worst = d > worst || isnan(d) ? d : worst;
  }
  trm_free(w);
  return worst;
}

/* Returns true if all ranks have the same bits. */
static bool same_everywhere(const struct job *job)
{
  const struct trm_strategy *s = &job->strategy;
  uint32_t *w = trm_alloc(s->elements * sizeof *w, "test");
  s->device->ops->download(s->device, w, s->w, s->elements * sizeof *w);
  int64_t sum = 0;
  for (size_t i = 0; i < s->elements; i++)
    sum = sum * 31 % 1000000007 + w[i];
  int64_t both[2] = {sum, -sum};
  s->comm->ops->allreduce(s->comm, both, 2, TRM_INT64, TRM_MAX);
  trm_free(w);
  return both[0] == -both[1];
}

static void check_against_reference(const struct setup *c)
{
  struct job job;
  job_start(&job, c, world);
  strategy_restore_initial(&job.strategy, initial);
  CHECK(c, job.strategy.batch_shards == world->size);
  int64_t indices = (int64_t)1 << job.strategy.batch_shard; /* every shard of the batch once */
  world->ops->allreduce(world, &indices, 1, TRM_INT64, TRM_SUM);
  CHECK(c, indices == ((int64_t)1 << world->size) - 1);

  const size_t bytes = c->elements * sizeof(double);
  struct reference r = {trm_alloc(bytes, "test"), trm_alloc(bytes, "test"), trm_alloc(bytes, "test"),
                        trm_alloc(bytes, "test"), trm_alloc(bytes, "test")};
  for (size_t i = 0; i < c->elements; i++)
    r.w[i] = r.average[i] = initial(i);
  for (uint64_t step = 0; step < 4; step++) {
    exact_step(&job, c);
    reference_step(&r, c, &job.optimizer, step, job.strategy.batch_shard);
  }
  /* weights are below 8; each step makes a few rounding errors of at most half an ulp (2^-23 relative) */
  const double d = distance(&job, job.strategy.w, r.w);
  if (!(d <= 8e-6))
    printf("\n    largest difference %g\n", d);
  CHECK(c, d <= 8e-6);
  CHECK(c, (job.strategy.eval_weights != NULL) == (c->ema > 0));
  if (job.strategy.eval_weights)
    CHECK(c, distance(&job, job.strategy.eval_weights, r.average) <= 8e-6);
  CHECK(c, same_everywhere(&job));
  strategy_end(&job.arrays);
  trm_free(r.w);
  trm_free(r.first);
  trm_free(r.second);
  trm_free(r.average);
  trm_free(r.last_step);
}

/* With more ranks than cores, every other case is skipped to save time. */
static bool is_thinned(int number)
{
  return world->size > 3 && (number + world->size) % 2;
}

static void test_rules(void)
{
  for (enum trm_update_rule rule = TRM_UPDATE_SGD; rule <= TRM_UPDATE_LAMB; rule++)
    for (int clips = 0; clips < 2; clips++)
      for (int node_size = 0; node_size <= 3; node_size++) {
        if (is_thinned((int)rule + clips + node_size))
          continue;
        const struct setup c = {.rule = rule,
                                .clip = clips ? 20 : 0,
                                .ema = (clips + node_size) % 2 ? 0.9 : 0,
                                .share = TRM_SHARE_NODE,
                                .node_size = node_size,
                                .bucket = 65536,
                                .elements = 70000 / 16 * 16};
        check_against_reference(&c);
        struct setup feedback = c;
        feedback.error_feedback = true;
        if (node_size < 2)
          check_against_reference(&feedback);
      }
}

static void test_shapes(void)
{
  static const size_t sizes[] = {16, 4096, 4112, 131072 * 3 + 32};
  static const int64_t buckets[] = {1, 4096, 100000, 1 << 30};
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
    for (size_t b = 0; b < sizeof buckets / sizeof buckets[0]; b++)
      for (int node_size = 0; node_size <= 2; node_size++) {
        if (is_thinned((int)(i + b) + node_size))
          continue;
        const struct setup c = {.rule = TRM_UPDATE_MOMENTUM,
                                .clip = b == 1 ? 5 : 0,
                                .share = node_size == 2 ? TRM_SHARE_NUMA : TRM_SHARE_NODE,
                                .node_size = node_size,
                                .bucket = buckets[b],
                                .elements = sizes[i]};
        check_against_reference(&c);
      }
}

/* Between nodes the all-reduce of a bucket begins before the step: when the gradients of its node are complete, at the
 * latest in the next grad_ready. */
static void test_overlap(void)
{
  for (int node_size = 1; node_size <= 2; node_size++) {
    const struct setup c = {.rule = TRM_UPDATE_SGD, .share = TRM_SHARE_NODE, .node_size = node_size, .bucket = 4096,
                            .elements = 131072};
    struct job job;
    job_start(&job, &c, world);
    strategy_restore_initial(&job.strategy, initial);
    const struct sync *s = job.strategy.impl;
    struct trm_loss_sums sums = {.loss = 1, .rows = 1};
    for (int i = 0, before = 0; i < 5; i++) {
      const size_t low = i ? job.boundary[i - 1] : 0;
      int complete = 0; /* buckets */
      while (complete < s->buckets && s->bucket[complete].full.high <= job.boundary[i])
        complete++;
      CHECK(&c, job.strategy.ops->grad_ready(&job.strategy, low, job.boundary[i], &sums) == TRM_OK);
      if (sync_has_other_nodes(s))
        CHECK(&c, s->begun >= (s->node->size == 1 ? complete : before) && s->begun <= complete);
      world->ops->barrier(world);
      before = complete;
    }
    trm_strategy_begin_step(&job.strategy, 0.1, 0, &sums);
    CHECK(&c, job.strategy.ops->step(&job.strategy, 0.1, &sums) == TRM_OK);
    strategy_end(&job.arrays);
  }
}

/* Makes one step by hand: parts [low, high) in order, each first reported as final, then as released. Between nodes a
 * bucket begins when it is final on the node, is updated no earlier than it is released, and with a known rate before
 * the step. */
static void early_step(struct job *job, const struct setup *c, bool known)
{
  struct trm_strategy *s = &job->strategy;
  const struct sync *sync = s->impl;
  struct trm_loss_sums sums = {.loss = 1, .rows = 1};
  float *before = trm_alloc(c->elements * sizeof *before, "test");
  memcpy(before, s->w, c->elements * sizeof *before);
  for (size_t i = 0; i < c->elements; i++)
    s->g[i] = 0.5f;
  world->ops->barrier(world);
  s->rate = known ? 0.1 : 0;
  s->ops->part_ready(s, c->elements / 2, &sums);
  world->ops->barrier(world);
  s->ops->part_ready(s, c->elements, &sums); /* all others have published half of it */
  world->ops->barrier(world);
  CHECK(c, !sync_has_other_nodes(sync) || sync->begun > 0);
  for (int i = 0; i < 1000; i++) /* all sums begin and arrive; nothing is released */
    s->ops->part_ready(s, c->elements, &sums);
  CHECK(c, sync->updated == 0 && memcmp(before, s->w, c->elements * sizeof *before) == 0);
  world->ops->barrier(world);
  const int halves = sync->begun; /* of the buckets */
  CHECK(c, s->ops->grad_ready(s, 0, c->elements, &sums) == TRM_OK);
  for (int i = 0; i < 1000; i++)
    s->ops->part_ready(s, c->elements, &sums);
  CHECK(c, known || sync->updated == 0);
  CHECK(c, halves == sync->buckets || !sync_has_other_nodes(sync));
  world->ops->barrier(world);
  while (known && sync_has_other_nodes(sync) && sync->updated < sync->buckets)
    s->ops->part_ready(s, c->elements, &sums);
  CHECK(c, s->ops->step(s, 0.1, &sums) == TRM_OK && sums.loss == world->size);
  CHECK(c, sync->updated == 0 && s->rate == 0);
  for (size_t i = 0; i < trained_of(c); i++)
    if (fabsf(s->w[i] - (before[i] - 0.1f * (0.5f * (float)world->size + 0.01f * before[i]))) > 1e-6f) {
      CHECK(c, !"the update of an element");
      break;
    }
  trm_free(before);
}

static void test_early(void)
{
  for (int node_size = 1; node_size <= 3; node_size++) {
    const struct setup c = {.rule = TRM_UPDATE_SGD, .share = TRM_SHARE_NODE, .node_size = node_size, .bucket = 4096,
                            .elements = 131072};
    struct job job;
    if (world->size == 1)
      break; /* one rank alone reports nothing */
    job_start(&job, &c, world);
    strategy_restore_initial(&job.strategy, initial);
    for (int known = 0; known < 2; known++)
      early_step(&job, &c, known);
    strategy_end(&job.arrays);
  }
  CU_ASSERT_TRUE(world->size >= 1);
}

/* The sum of the losses is late, those of the buckets are not: nothing is updated before it is known. */
static struct trm_request **late;
static const struct trm_comm_ops *of_late;

static bool test_others(struct trm_request **request)
{
  return request != late && of_late->test(request);
}

static void test_late_losses(void)
{
  const struct setup c = {.rule = TRM_UPDATE_SGD, .share = TRM_SHARE_NODE, .node_size = 1, .bucket = 4096,
                          .elements = 65536};
  struct job job;
  if (world->size == 1)
    return;
  job_start(&job, &c, world);
  strategy_restore_initial(&job.strategy, initial);
  struct trm_strategy *s = &job.strategy;
  struct sync *sync = s->impl;
  struct trm_loss_sums sums = {.loss = 1, .rows = 1};
  of_late = sync->cross[0]->ops;
  struct trm_comm_ops ops = *of_late;
  ops.test = test_others;
  late = &sync->losses[0].request;
  sync->cross[0]->ops = &ops;
  s->rate = 0.1;
  CHECK(&c, s->ops->grad_ready(s, 0, c.elements, &sums) == TRM_OK);
  while (sync->arrived < sync->buckets)
    s->ops->part_ready(s, c.elements, &sums);
  CHECK(&c, sync->buckets > 1 && sync->updated == 0);
  sync->cross[0]->ops = of_late;
  s->ops->part_ready(s, c.elements, &sums);
  CHECK(&c, s->ops->step(s, 0.1, &sums) == TRM_OK && sums.loss == world->size);
  strategy_end(&job.arrays);
}

/* Nodes of unequal numbers of ranks share weights, too: in each node every element has one owner, all ranks but those
 * of the largest node have more than one, and a rank sends to one rank of each other node at a time. */
static void test_uneven(void)
{
  for (int node_size = 2; node_size <= 3; node_size++) {
    const struct setup c = {.rule = TRM_UPDATE_SGD, .share = TRM_SHARE_NODE, .node_size = node_size, .bucket = 4096,
                            .elements = 131072};
    struct job job;
    job_start(&job, &c, world);
    const struct sync *s = job.strategy.impl;
    const int nodes = (world->size + node_size - 1) / node_size, last = world->size - (nodes - 1) * node_size;
    const bool is_last = world->rank >= (nodes - 1) * node_size;
    CHECK(&c, s->node->size == (is_last ? last : node_size));
    CHECK(&c, s->cross[0]->size == nodes && s->slices == (nodes > 1 ? node_size : last));
    CHECK(&c, s->crosses >= (s->slices > s->node->size ? 1 : 0) && s->crosses <= s->slices);
    double owned = 0;
    for (int b = 0; b < s->buckets; b++) {
      owned += (double)(s->bucket[b].slice.high - s->bucket[b].slice.low);
      CHECK(&c, s->bucket[b].cross->size == nodes);
      CHECK(&c, s->bucket[b].full.high - s->bucket[b].full.low <= (size_t)s->slices * SYNC_UNIT + SYNC_UNIT ||
                  nodes == 1);
    }
    s->node->ops->allreduce(s->node, &owned, 1, TRM_DOUBLE, TRM_SUM);
    CHECK(&c, owned == (double)c.elements);
    strategy_end(&job.arrays);
  }
}

static void test_private(void)
{
  for (int clips = 0; clips < 2; clips++) {
    static const enum trm_update_rule rules[] = {TRM_UPDATE_ADAM, TRM_UPDATE_LARS, TRM_UPDATE_LAMB};
    for (int i = 0; i < 3; i++) {
      struct setup c = {.rule = rules[i], .clip = clips * 20, .ema = clips ? 0 : 0.2, .share = TRM_SHARE_NONE,
                        .bucket = 65536, .elements = 50000};
      check_against_reference(&c);
      c.share = TRM_SHARE_NODE;
      for (c.pretends = 1; c.pretends <= 2; c.pretends++)
        check_against_reference(&c);
    }
  }
}

static void test_table(void)
{
  CU_ASSERT_PTR_EQUAL(trm_strategy_find("sync"), trm_strategy_table[0]);
  CU_ASSERT_PTR_NULL(trm_strategy_find("snyc"));
  CU_ASSERT_PTR_NOT_NULL(strstr(trm_error_text(), "\"sync\""));
}

int main(int argc, char **argv)
{
  CU_TestInfo tests[] = {
    {"the table", test_table},
    {"rules, clipping, nodes", test_rules},
    {"sizes and buckets", test_shapes},
    {"all-reduce during the backward pass", test_overlap},
    {"updates during the backward pass", test_early},
    {"losses that are late", test_late_losses},
    {"nodes of unequal numbers of ranks", test_uneven},
    {"private memory, devices", test_private},
    CU_TEST_INFO_NULL,
  };
  return method_devices_run(argc, argv, "sync", tests);
}
