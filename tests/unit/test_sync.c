/* Synchronous training against one rank that does it all: every rule of the optimizer, with and without clipping, one
 * and several nodes (TRM_NODE_SIZE), shared and private memory, a device with its own memory; lanes bit for bit; a loss
 * that is not finite; checkpoints. Meant for 1 to 9 ranks. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "kernels/kernels.h"
#include "mpi/strategies.h"
#include "ranks.h"

/* -- a device with memory of its own: its pointers are no addresses, only its functions make them such */

static struct trm_device cpu;
#define AWAY ((uintptr_t)1 << 62)

static void *away(const void *memory)
{
  return memory ? (void *)((uintptr_t)memory + AWAY) : NULL;
}

static void *here(const void *memory)
{
  return memory ? (void *)((uintptr_t)memory - AWAY) : NULL;
}

static int far_alloc(struct trm_device *device, size_t bytes, const char *what, void **memory)
{
  void *real;
  (void)device;
  TRM_CHECK(cpu.ops->alloc(&cpu, bytes, what, &real));
  *memory = away(real);
  return TRM_OK;
}

static void far_release(struct trm_device *device, void *memory)
{
  (void)device;
  cpu.ops->release(&cpu, here(memory));
}

static void far_upload(struct trm_device *device, void *to, const void *host, size_t bytes)
{
  (void)device;
  memcpy(here(to), host, bytes);
}

static void far_download(struct trm_device *device, void *host, const void *from, size_t bytes)
{
  (void)device;
  memcpy(host, here(from), bytes);
}

static int far_sync(struct trm_device *device)
{
  (void)device;
  return TRM_OK;
}

static double far_norm_squared(struct trm_device *device, const float *x, size_t n)
{
  (void)device;
  return cpu.ops->norm_squared(&cpu, here(x), n);
}

static void far_update(struct trm_device *device, const struct trm_update *how, float *w, const float *g, float *first,
                       float *second, size_t n)
{
  (void)device;
  cpu.ops->update(&cpu, how, here(w), here(g), here(first), here(second), n);
}

static void far_direction(struct trm_device *device, const struct trm_update *how, const float *w, float *g,
                          float *first, float *second, size_t n)
{
  (void)device;
  cpu.ops->direction(&cpu, how, here(w), here(g), here(first), here(second), n);
}

static const struct trm_device_ops far_ops = {
  .name = "far",
  .alloc = far_alloc,
  .release = far_release,
  .upload = far_upload,
  .download = far_download,
  .sync = far_sync,
  .norm_squared = far_norm_squared,
  .update = far_update,
  .direction = far_direction,
};
static struct trm_device far_device = {.ops = &far_ops, .host_memory = false};

/* -- the case at hand */

struct setup {
  enum trm_update_rule rule;
  double clip, ema;
  const char *share, *offload;
  int node_size; /* TRM_NODE_SIZE; 0: as it is */
  int64_t bucket, lanes;
  bool far;
  size_t elements;
};

static const char *text_of(const struct setup *c)
{
  static char text[256];
  snprintf(text, sizeof text, "rule %d clip %g ema %g share %s node size %d bucket %d lanes %d far %d elements %zu",
           (int)c->rule, c->clip, c->ema, c->share, c->node_size, (int)c->bucket, (int)c->lanes, c->far, c->elements);
  return text;
}

/* A check that says which setup failed. */
#define CHECK(setup, condition)                                            \
  do {                                                                     \
    const bool holds = (condition);                                        \
    if (!holds)                                                            \
      printf("\n    %s, rank %d: %s\n", text_of(setup), world->rank, #condition); \
    CU_ASSERT_TRUE(holds);                                                 \
  } while (0)

/* Where the statistics begin: the last interval. */
static size_t trained_of(const struct setup *c)
{
  return c->elements / 16 * 11 / 16 * 16;
}

enum { TENSORS = 100 };

struct job {
  struct trm_options options;
  struct trm_optimizer optimizer;
  struct trm_strategy strategy;
  size_t boundary[5];
  struct trm_tensor tensor[TENSORS];
};

/* Tensors of very different sizes, the larger ones of more than one dimension. */
static void tensors_make(struct job *job, const struct setup *c)
{
  static const size_t sizes[] = {16, 4112, 32, 30000 / 16 * 16, 16, 16, 20000, 160, 1600};
  const size_t trained = trained_of(c);
  int t = 0;
  for (size_t end = 0; end < trained; t++) {
    const size_t size = sizes[(size_t)t % (sizeof sizes / sizeof *sizes)] << t / 20;
    end = end + size < trained ? end + size : trained;
    job->tensor[t] = (struct trm_tensor){.end = end, .vector = size < 1000};
  }
  job->optimizer.tensor = job->tensor;
  job->optimizer.tensors = t;
}

static void job_start(struct job *job, const struct setup *c, struct trm_comm *comm)
{
  memset(job, 0, sizeof *job);
  job->options.parallel.share = (char *)c->share;
  job->options.parallel.offload = (char *)c->offload;
  job->options.parallel.bucket = c->bucket;
  job->options.run.lanes = c->lanes;
  job->optimizer.update = (struct trm_update){.rule = c->rule,
                                              .l2 = c->rule == TRM_UPDATE_ADAMW ? 0 : 0.01f,
                                              .decay = 0.02f,
                                              .momentum = 0.9f,
                                              .beta1 = 0.9f,
                                              .beta2 = 0.99f,
                                              .epsilon = 1e-3f};
  static const int states[] = {[TRM_UPDATE_SGD] = 0,  [TRM_UPDATE_MOMENTUM] = 1, [TRM_UPDATE_NESTEROV] = 1,
                               [TRM_UPDATE_ADAM] = 2, [TRM_UPDATE_ADAMW] = 2,    [TRM_UPDATE_LARS] = 1,
                               [TRM_UPDATE_LAMB] = 2, [TRM_UPDATE_ADAGRAD] = 1};
  job->optimizer.states = states[c->rule] + (c->ema > 0);
  job->optimizer.clip = c->clip;
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
                                        .device = c->far ? &far_device : &cpu,
                                        .optimizer = &job->optimizer,
                                        .options = &job->options,
                                        .elements = c->elements,
                                        .boundary = job->boundary,
                                        .boundaries = 5};
  if (c->node_size) {
    char text[16];
    snprintf(text, sizeof text, "%d", c->node_size);
    setenv("TRM_NODE_SIZE", text, 1);
  }
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

/* Multiples of 1/1024 below 1/2: their sums are exact in any order, so what differs is a defect. */
static float exact_gradient(uint64_t step, int part, size_t i)
{
  return ((float)(mix(step, (uint64_t)part, i) % 1024) - 512.0f) / 1024.0f;
}

/* Any floats, of very different sizes. */
static float rough_gradient(uint64_t step, int lane, size_t i)
{
  const uint32_t r = mix(step + 100, (uint64_t)lane, i);
  return ((float)(r % 65536) - 32768.0f) / 3.0f * ((r >> 16) % 7 == 0 ? 1.0f : 1e-3f);
}

static float initial(size_t i)
{
  return (float)(mix(9, 9, i) % 2000) / 1000.0f - 1.0f;
}

static void restore_initial(struct job *job)
{
  const size_t n = job->strategy.elements;
  float *w = trm_alloc(n * sizeof *w, "test");
  for (size_t i = 0; i < n; i++)
    w[i] = initial(i);
  const float *from[TRM_MAX_STATES] = {w};
  if (job->optimizer.ema > 0)
    from[job->optimizer.states] = w;
  CU_ASSERT_EQUAL(job->strategy.ops->restore(&job->strategy, from, 0), TRM_OK);
  trm_free(w);
}

static void give_gradient(struct job *job, const float *g, const struct trm_tally *tally)
{
  struct trm_strategy *s = &job->strategy;
  s->device->ops->upload(s->device, s->g, g, s->elements * sizeof *g);
  if (!s->ops->grad_ready)
    return;
  for (size_t i = 0, low = 0; i < 5; low = job->boundary[i++])
    if (low < job->boundary[i])
      CU_ASSERT_EQUAL(s->ops->grad_ready(s, low, job->boundary[i], tally), TRM_OK);
}

static double rate_of(uint64_t step)
{
  return 0.05 + 0.01 * (double)step;
}

/* One step with the exact gradients; the tally is checked. */
static void exact_step(struct job *job, const struct setup *c)
{
  struct trm_strategy *s = &job->strategy;
  const uint64_t step = s->updates;
  float *g = trm_alloc(c->elements * sizeof *g, "test");
  for (size_t i = 0; i < c->elements; i++)
    g[i] = exact_gradient(step, s->index, i);
  struct trm_tally tally = {.loss = 1.5, .correct = s->index, .rows = 3, .stop = s->index == 0};
  give_gradient(job, g, &tally);
  CHECK(c, s->ops->step(s, rate_of(step), &tally) == TRM_OK);
  CHECK(c, tally.loss == 1.5 * s->parts && tally.rows == 3 * s->parts && tally.stop == 1);
  CHECK(c, tally.correct == s->parts * (s->parts - 1) / 2);
  CHECK(c, s->updates == step + 1);
  trm_free(g);
}

/* -- the reference: one rank, double precision, from the formulas of nn/optimizer.h */

struct reference {
  double *w, *first, *second, *average;
};

static double norm_of(const double *x, size_t low, size_t high)
{
  double sum = 0;
  for (size_t i = low; i < high; i++)
    sum += x[i] * x[i];
  return sqrt(sum);
}

/* The rule for elements [low, high), one tensor. x: gradients, clipped. */
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
    case TRM_UPDATE_RULES:
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

static void reference_step(struct reference *r, const struct setup *c, const struct trm_optimizer *optimizer,
                           uint64_t step, int parts)
{
  const size_t n = trained_of(c);
  double *g = trm_alloc(c->elements * sizeof *g, "test");
  for (size_t i = 0; i < c->elements; i++) {
    for (int part = 0; part < parts; part++)
      g[i] += exact_gradient(step, part, i);
    if (i >= n)
      r->w[i] += g[i]; /* a statistic: neither clipped nor given to the rule */
  }
  const double norm = norm_of(g, 0, n);
  for (size_t i = 0; i < n && c->clip > 0 && norm > c->clip; i++)
    g[i] *= c->clip / norm;
  size_t low = 0;
  for (int t = 0; t < optimizer->tensors; low = optimizer->tensor[t++].end)
    reference_update(r, &optimizer->update, optimizer, optimizer->tensor[t].vector, step, g, low,
                     optimizer->tensor[t].end);
  const double keep = fmin(c->ema, (2 + (double)step) / (11 + (double)step));
  for (size_t i = 0; i < c->elements; i++)
    r->average[i] = keep * r->average[i] + (1 - keep) * r->w[i];
  trm_free(g);
}

/* Largest difference between an array of this rank and the reference's. */
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

/* Do all ranks have the same bits? */
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
  restore_initial(&job);
  CHECK(c, job.strategy.parts == world->size);
  int64_t indices = (int64_t)1 << job.strategy.index; /* every part of the batch once */
  world->ops->allreduce(world, &indices, 1, TRM_INT64, TRM_SUM);
  CHECK(c, indices == ((int64_t)1 << world->size) - 1);

  const size_t bytes = c->elements * sizeof(double);
  struct reference r = {trm_alloc(bytes, "test"), trm_alloc(bytes, "test"), trm_alloc(bytes, "test"),
                        trm_alloc(bytes, "test")};
  for (size_t i = 0; i < c->elements; i++)
    r.w[i] = r.average[i] = initial(i);
  for (uint64_t step = 0; step < 4; step++) {
    exact_step(&job, c);
    reference_step(&r, c, &job.optimizer, step, world->size);
  }
  /* the weights are below 8; each step rounds a few times by half of 2^-23 of that at most */
  const double d = distance(&job, job.strategy.w, r.w);
  if (!(d <= 8e-6))
    printf("\n    largest difference %g\n", d);
  CHECK(c, d <= 8e-6);
  CHECK(c, (job.strategy.evaluated != NULL) == (c->ema > 0));
  if (job.strategy.evaluated)
    CHECK(c, distance(&job, job.strategy.evaluated, r.average) <= 8e-6);
  CHECK(c, same_everywhere(&job));
  job.strategy.ops->destroy(&job.strategy);
  trm_free(r.w);
  trm_free(r.first);
  trm_free(r.second);
  trm_free(r.average);
}

/* With more ranks than a small machine has cores a case takes long: every other one then, others for odd and even. */
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
                                .share = "node",
                                .node_size = node_size,
                                .bucket = 65536,
                                .elements = 70000 / 16 * 16};
        check_against_reference(&c);
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
                                .share = node_size == 2 ? "numa" : "node",
                                .node_size = node_size,
                                .bucket = buckets[b],
                                .elements = sizes[i]};
        check_against_reference(&c);
      }
}

static void test_private(void)
{
  for (int clips = 0; clips < 2; clips++) {
    static const enum trm_update_rule rules[] = {TRM_UPDATE_ADAM, TRM_UPDATE_LARS, TRM_UPDATE_LAMB};
    for (int i = 0; i < 3; i++) {
      struct setup c = {.rule = rules[i], .clip = clips * 20, .ema = clips ? 0 : 0.2, .share = "none", .bucket = 65536,
                        .elements = 50000};
      check_against_reference(&c);
      c.far = true;
      c.share = "node";
      check_against_reference(&c);
    }
  }
}

/* -- lanes */

/* A network that adds in an order of its own, as it may: from the last rank down. Lanes must not depend on it. (MPI's
 * own order often is that of the tree, so that it would show nothing.) */
static struct trm_comm_ops contrary;

static struct trm_comm *contrary_split(struct trm_comm *comm, int colour, int key)
{
  struct trm_comm *part = world->ops->split(comm, colour, key);
  if (part)
    part->ops = &contrary;
  return part;
}

static struct trm_comm *contrary_split_node(struct trm_comm *comm, const char *domain)
{
  struct trm_comm *part = world->ops->split_node(comm, domain);
  part->ops = &contrary;
  return part;
}

static void contrary_allreduce(struct trm_comm *comm, void *data, size_t count, enum trm_type type, enum trm_op op)
{
  if (op != TRM_SUM || (type != TRM_FLOAT && type != TRM_DOUBLE)) {
    world->ops->allreduce(comm, data, count, type, op);
    return;
  }
  char *all = trm_alloc((size_t)comm->size * count * trm_type_bytes(type), "test");
  world->ops->allgather(comm, data, all, count, type);
  for (size_t i = 0; i < count; i++) {
    float f = 0;
    double d = 0;
    for (int rank = comm->size - 1; rank >= 0; rank--) {
      const size_t at = (size_t)rank * count + i;
      f += type == TRM_FLOAT ? ((float *)all)[at] : 0;
      d += type == TRM_DOUBLE ? ((double *)all)[at] : 0;
    }
    if (type == TRM_FLOAT)
      ((float *)data)[i] = f;
    else
      ((double *)data)[i] = d;
  }
  trm_free(all);
}

static void contrary_allreduce_begin(struct trm_comm *comm, void *data, size_t count, enum trm_type type,
                                     enum trm_op op, struct trm_request **request)
{
  contrary_allreduce(comm, data, count, type, op);
  *request = NULL;
}

/* V lanes, of which this rank has its share, added in the tree. */
static void lanes_gradient(const struct job *job, const struct setup *c, uint64_t step, float *g)
{
  const int count = (int)c->lanes / job->strategy.parts, first = job->strategy.index * count;
  float *lane[16];
  for (int l = 0; l < count; l++) {
    lane[l] = trm_alloc(c->elements * sizeof(float), "test");
    for (size_t i = 0; i < c->elements; i++)
      lane[l][i] = rough_gradient(step, first + l, i);
  }
  cpu.ops->sum(&cpu, g, (const float *const *)lane, count, c->elements);
  for (int l = 0; l < count; l++)
    trm_free(lane[l]);
}

/* The losses of 8 lanes, added in the tree: 1 0 1 0 1 0 2^53 0. From the right the ones would be lost one by one. */
static double lanes_loss(int first, int count)
{
  if (count == 1)
    return first == 6 ? 0x1p53 : first % 2 ? 0 : 1;
  return lanes_loss(first, count / 2) + lanes_loss(first + count / 2, count / 2);
}

/* Weights and their average after 3 steps, w (2, elements), and the last sum of losses. */
static double run_lanes(const struct setup *c, struct trm_comm *comm, float *w)
{
  struct job job;
  job_start(&job, c, comm);
  struct trm_strategy *s = &job.strategy;
  restore_initial(&job);
  float *g = trm_alloc(c->elements * sizeof *g, "test");
  struct trm_tally tally = {0};
  for (uint64_t step = 0; step < 3; step++) {
    lanes_gradient(&job, c, step, g);
    const int count = (int)c->lanes / s->parts;
    tally = (struct trm_tally){.loss = lanes_loss(s->index * count, count), .rows = 1};
    give_gradient(&job, g, &tally);
    CHECK(c, s->ops->step(s, rate_of(step), &tally) == TRM_OK);
  }
  s->device->ops->download(s->device, w, s->w, c->elements * sizeof *w);
  s->device->ops->download(s->device, w + c->elements, s->evaluated, c->elements * sizeof *w);
  s->ops->destroy(s);
  trm_free(g);
  return tally.loss;
}

static void test_lanes(void)
{
  static const enum trm_update_rule rules[] = {TRM_UPDATE_MOMENTUM, TRM_UPDATE_ADAM, TRM_UPDATE_LARS, TRM_UPDATE_LAMB};
  for (int variant = 0; variant < 12; variant++) {
    const struct setup alone = {.rule = rules[variant % 4],
                                .clip = variant >= 4 ? 1 : 0,
                                .ema = 0.9,
                                .share = "none",
                                .lanes = 8,
                                .far = variant >= 8,
                                .bucket = 30000,
                                .elements = 60000};
    const size_t bytes = 2 * alone.elements * sizeof(float);
    float *one = trm_alloc(bytes, "test"), *many = trm_alloc(bytes, "test");
    const double loss = run_lanes(&alone, trm_comm_self(), one);
    int ranks = 1; /* the largest power of two; the smaller ones come with fewer ranks */
    while (2 * ranks <= world->size && ranks < 8)
      ranks *= 2;
    contrary = *world->ops;
    contrary.split = contrary_split;
    contrary.split_node = contrary_split_node;
    contrary.allreduce = contrary_allreduce;
    contrary.allreduce_begin = contrary_allreduce_begin;
    struct trm_comm *comm = contrary_split(world, world->rank < ranks ? 0 : -1, 0);
    for (int node_size = 0; comm && node_size <= 4; node_size++) { /* 3: uneven, so each rank on its own */
      struct setup shared = alone;
      shared.share = "node";
      shared.node_size = node_size;
      memset(many, 0, bytes);
      CHECK(&shared, run_lanes(&shared, comm, many) == loss);
      CHECK(&shared, memcmp(one, many, bytes) == 0);
    }
    if (comm)
      comm->ops->release(comm);
    trm_free(one);
    trm_free(many);
  }
}

/* -- a loss that is not finite */

static void test_not_finite(void)
{
  for (int variant = 0; variant < 4; variant++) {
    const struct setup c = {.rule = TRM_UPDATE_MOMENTUM,
                            .share = "node",
                            .node_size = variant == 1 ? 1 : variant == 2 ? 2 : 0,
                            .far = variant == 3,
                            .bucket = 20000,
                            .elements = 40000};
    struct job job;
    job_start(&job, &c, world);
    struct trm_strategy *s = &job.strategy;
    restore_initial(&job);
    exact_step(&job, &c);
    const size_t bytes = c.elements * sizeof(float);
    float *before = trm_alloc(bytes, "test"), *after = trm_alloc(bytes, "test");
    s->device->ops->download(s->device, before, s->w, bytes);
    float *g = trm_alloc(bytes, "test");
    struct trm_tally tally = {.loss = s->index == s->parts - 1 ? (variant % 2 ? INFINITY : NAN) : 1, .rows = 1};
    give_gradient(&job, g, &tally);
    CHECK(&c, s->ops->step(s, 0.1, &tally) == TRM_FAILED);
    CHECK(&c, strstr(trm_error_text(), "step 2") && strstr(trm_error_text(), variant % 2 ? "inf" : "nan"));
    s->device->ops->download(s->device, after, s->w, bytes);
    CHECK(&c, memcmp(before, after, bytes) == 0);
    CHECK(&c, s->updates == 1);
    const float *view[TRM_MAX_STATES];
    CHECK(&c, s->ops->collect(s, view) == TRM_OK);
    s->ops->destroy(s);
    trm_free(before);
    trm_free(after);
    trm_free(g);
  }
}

/* -- checkpoints */

/* The whole arrays, from rank 0 to all. */
static void collect_all(struct job *job, const struct setup *c, float *all[TRM_MAX_STATES])
{
  const float *view[TRM_MAX_STATES];
  CHECK(c, job->strategy.ops->collect(&job->strategy, view) == TRM_OK);
  for (int i = 0; i < TRM_MAX_STATES; i++) {
    if (world->rank == 0) {
      CHECK(c, (view[i] != NULL) == (i <= job->optimizer.states));
      if (view[i])
        memcpy(all[i], view[i], c->elements * sizeof(float));
    }
    world->ops->broadcast(world, all[i], c->elements, TRM_FLOAT, 0);
  }
}

/* Three steps in one way of sharing, two in another; and five in the first. */
static void check_resume(const struct setup *first, const struct setup *second)
{
  const size_t bytes = first->elements * sizeof(float);
  float *half[TRM_MAX_STATES], *resumed[TRM_MAX_STATES], *straight[TRM_MAX_STATES];
  for (int i = 0; i < TRM_MAX_STATES; i++) {
    half[i] = trm_alloc(bytes, "test");
    resumed[i] = trm_alloc(bytes, "test");
    straight[i] = trm_alloc(bytes, "test");
  }
  struct job job, other;
  job_start(&job, first, world);
  restore_initial(&job);
  for (int i = 0; i < 3; i++)
    exact_step(&job, first);
  collect_all(&job, first, half);
  for (int i = 0; i < 2; i++)
    exact_step(&job, first);
  collect_all(&job, first, straight);
  job.strategy.ops->destroy(&job.strategy);

  job_start(&other, second, world);
  const float *const from[TRM_MAX_STATES] = {half[0], half[1], half[2], half[3]};
  CHECK(second, other.strategy.ops->restore(&other.strategy, from, 3) == TRM_OK);
  for (int i = 0; i < 2; i++)
    exact_step(&other, second);
  collect_all(&other, second, resumed);
  other.strategy.ops->destroy(&other.strategy);
  for (int i = 0; i < TRM_MAX_STATES; i++) {
    CHECK(second, memcmp(straight[i], resumed[i], bytes) == 0);
    CHECK(second, memcmp(straight[i], half[i], bytes) != 0);
    trm_free(half[i]);
    trm_free(resumed[i]);
    trm_free(straight[i]);
  }
}

static void test_resume(void)
{
  const struct setup shared = {
    .rule = TRM_UPDATE_LAMB, .ema = 0.9, .share = "node", .bucket = 20000, .elements = 40000};
  struct setup nodes = shared, private = shared, distant = shared;
  nodes.node_size = 2;
  private.share = "none";
  distant.far = true;
  check_resume(&shared, &nodes);
  check_resume(&nodes, &private);
  check_resume(&private, &distant);
  check_resume(&distant, &shared);
}

/* -- states in a file */

/* A new folder, the same for all ranks. */
static void folder_make(char folder[64])
{
  if (world->rank == 0) {
    snprintf(folder, 64, "/tmp/trireme-test-XXXXXX");
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(folder));
  }
  world->ops->broadcast(world, folder, 64, TRM_BYTE, 0);
}

/* As before create. */
static void strategy_reset(struct job *job)
{
  job->strategy = (struct trm_strategy){.ops = trm_strategy_find("sync"),
                                        .comm = world,
                                        .device = &cpu,
                                        .optimizer = &job->optimizer,
                                        .options = &job->options,
                                        .elements = job->strategy.elements,
                                        .boundary = job->boundary,
                                        .boundaries = 5};
}

static void test_offload(void)
{
  char folder[64];
  folder_make(folder);
  const struct setup memory = {
    .rule = TRM_UPDATE_LAMB, .ema = 0.9, .share = "node", .bucket = 20000, .elements = 40000};
  struct setup file = memory;
  file.offload = folder;
  for (int node_size = 0; node_size <= 2; node_size++) {
    file.node_size = node_size;
    check_resume(&memory, &file);
    check_resume(&file, &memory);
  }
  file.share = "none";
  check_resume(&memory, &file);

  struct job job;
  job_start(&job, &file, world);
  world->ops->barrier(world);
  if (world->rank == 0) /* nothing is left behind, whatever may happen */
    CHECK(&file, rmdir(folder) == 0);
  world->ops->barrier(world);
  restore_initial(&job);
  exact_step(&job, &file);
  job.strategy.ops->destroy(&job.strategy);
  const bool has_nodes = world->size > 1;
  for (int shared = 0; shared <= has_nodes; shared++) { /* there is no such folder any more */
    job.options.parallel.share = shared ? "node" : "none";
    strategy_reset(&job);
    CHECK(&file, job.strategy.ops->create(&job.strategy) == TRM_FAILED);
    CHECK(&file, strstr(trm_error_text(), folder) && strstr(trm_error_text(), "0.2 MiB for optimizer states"));
  }
  strategy_reset(&job);
  job.strategy.device = &far_device;
  CHECK(&file, job.strategy.ops->create(&job.strategy) == TRM_USAGE);
  CHECK(&file, strstr(trm_error_text(), "parallel.offload") && strstr(trm_error_text(), "far"));
}

/* -- shared memory that does not fit */

static void test_too_large(void)
{
  struct job job;
  memset(&job, 0, sizeof job);
  const struct setup c = {.share = "node"};
  job.options.parallel.share = "node";
  job.strategy = (struct trm_strategy){.ops = trm_strategy_find("sync"),
                                       .comm = world,
                                       .device = &cpu,
                                       .optimizer = &job.optimizer,
                                       .options = &job.options,
                                       .elements = (size_t)1 << 44};
  struct trm_comm *node = world->ops->split_node(world, "node");
  if (node->size > 1) { /* a rank by itself asks the device, which ends the job */
    CHECK(&c, job.strategy.ops->create(&job.strategy) == TRM_FAILED);
    CHECK(&c, strstr(trm_error_text(), "weights") != NULL);
  } else {
    CU_ASSERT_PTR_NOT_NULL(node);
  }
  node->ops->release(node);
}

static void test_table(void)
{
  CU_ASSERT_PTR_EQUAL(trm_strategy_find("sync"), trm_strategy_table[0]);
  CU_ASSERT_PTR_NULL(trm_strategy_find("snyc"));
  CU_ASSERT_PTR_NOT_NULL(strstr(trm_error_text(), "\"sync\""));
}

int main(int argc, char **argv)
{
  if (trm_device_open(&cpu, "cpu", "auto", "f32", 0, 1) != TRM_OK) {
    trm_log_error();
    return 99;
  }
  CU_TestInfo tests[] = {
    {"the table", test_table},
    {"rules, clipping, nodes", test_rules},
    {"sizes and buckets", test_shapes},
    {"private memory", test_private},
    {"lanes, bit for bit", test_lanes},
    {"a loss that is not finite", test_not_finite},
    {"checkpoints between layouts", test_resume},
    {"states in a file", test_offload},
    {"more than /dev/shm holds", test_too_large},
    CU_TEST_INFO_NULL,
  };
  const int status = ranks_run(argc, argv, "sync", tests);
  trm_device_close(&cpu);
  return status;
}
