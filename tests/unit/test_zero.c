/* Sharded data parallelism against one rank that has everything: models, optimizers, accumulation, averages; devices
 * with a memory of their own; losses that are not finite; checkpoints; and how much memory a rank holds. Meant for 1 to
 * 8 ranks. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "kernels/kernels.h"
#include "mpi/sync/norms.h"
#include "mpi/strategies.h"
#include "ranks.h"
#include "support/pretend_device.h"

static struct trm_device cpu, pretend;

static const struct trm_input_spec vectors = {
  .shape = {.dims = 1, .size = {20}}, .target = TRM_TARGET_CLASS, .classes = 10};
static const struct trm_input_spec images = {
  .shape = {.dims = 3, .size = {2, 6, 6}}, .target = TRM_TARGET_CLASS, .classes = 5};
static const struct trm_input_spec tokens = {
  .shape = {.dims = 1, .size = {6}}, .tokens = true, .target = TRM_TARGET_CLASS, .classes = 40};

struct setup {
  const char *text;
  const struct trm_input_spec *spec;
  const char *optim[8]; /* name, value, ..; ends with NULL */
  int zero;
  const char *share, *shard;
  int node_size; /* TRM_NODE_SIZE; 0: as it is */
  const char *bucket;
  size_t batch, accumulate;
  bool pretends;
  bool hasty; /* gradients are handed over after each micro-batch, not after the last one alone */
  int recompute; /* blocks at a time */
  bool offload;  /* states in files */
  int stages; /* copies of the model's parts, as it were: each tensor counts in one of them; 0: one */
};

static const char *text_of(const struct setup *c)
{
  static char text[512];
  snprintf(text, sizeof text, "%.60s %s %s %s, zero %d share %s/%d/%s bucket %s batch %zu accumulate %zu pretends %d", c->text,
           c->optim[1], c->optim[0] && c->optim[2] ? c->optim[2] : "", c->optim[2] ? c->optim[3] : "", c->zero,
           c->share, c->node_size, c->shard ? c->shard : "all", c->bucket, c->batch, c->accumulate, c->pretends);
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

enum { ROWS = 16, STEPS = 10 };

struct job {
  const struct setup *setup;
  struct trm_device *device;
  struct trm_comm *comm;
  struct trm_options options;
  struct trm_model model;
  struct trm_optimizer optimizer;
  struct trm_strategy strategy;
  size_t held; /* bytes that the strategy has taken */
};

/* part: chunks of the model; NULL: it is one */
static void job_prepare(struct job *job, const struct setup *c, int zero, struct trm_comm *comm,
                        const struct trm_model_part *part)
{
  memset(job, 0, sizeof *job);
  job->setup = c;
  job->comm = comm;
  job->device = c->pretends && zero ? &pretend : &cpu;
  trm_options_default(&job->options);
  for (int i = 0; c->optim[i]; i += 2)
    CU_ASSERT_EQUAL_FATAL(trm_options_set(&job->options, c->optim[i], c->optim[i + 1]), TRM_OK);
  CU_ASSERT_EQUAL_FATAL(trm_options_set(&job->options, "parallel.bucket", c->bucket), TRM_OK);
  CU_ASSERT_EQUAL_FATAL(trm_options_set(&job->options, "parallel.share", c->share), TRM_OK);
  if (c->shard)
    CU_ASSERT_EQUAL_FATAL(trm_options_set(&job->options, "parallel.shard", c->shard), TRM_OK);
  if (c->offload)
    CU_ASSERT_EQUAL_FATAL(trm_options_set(&job->options, "parallel.offload", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp"),
                          TRM_OK);
  job->options.parallel.zero = zero;
  job->options.train.accumulate = (int64_t)c->accumulate;
  CU_ASSERT_EQUAL_FATAL(trm_model_create_part(&job->model, c->text, "auto", c->spec, part), TRM_OK);
  job->model.recompute = comm == trm_comm_self() ? 0 : c->recompute;
  CU_ASSERT_EQUAL_FATAL(
    trm_optimizer_create(&job->optimizer, &job->options, job->model.tensor, job->model.tensors), TRM_OK);
  job->strategy = (struct trm_strategy){.ops = trm_strategy_find("sync"),
                                        .comm = comm,
                                        .device = job->device,
                                        .optimizer = &job->optimizer,
                                        .options = &job->options,
                                        .elements = job->model.parameters,
                                        .boundary = job->model.boundary,
                                        .boundaries = job->model.boundaries};
  if (c->node_size) {
    char text[16];
    snprintf(text, sizeof text, "%d", c->node_size);
    setenv("TRM_NODE_SIZE", text, 1);
  }
  if (c->stages && comm != trm_comm_self()) {
    job->strategy.norm_comm = world->ops->split(world, world->rank / c->stages, world->rank);
    for (int t = 0; t < job->model.tensors; t++)
      job->model.tensor[t].copy = t % c->stages != world->rank % c->stages;
  }
  const size_t held = trm_memory_held();
  CU_ASSERT_EQUAL_FATAL(job->strategy.ops->create(&job->strategy), TRM_OK);
  job->held = trm_memory_held() - held;
  unsetenv("TRM_NODE_SIZE");
  CU_ASSERT_EQUAL_FATAL(
    trm_model_bind(&job->model, job->device, job->strategy.w, job->strategy.g, ROWS, true), TRM_OK);
}

static void job_open(struct job *job, const struct setup *c, int zero, struct trm_comm *comm)
{
  job_prepare(job, c, zero, comm, NULL);
}

static void job_close(struct job *job)
{
  job->strategy.ops->destroy(&job->strategy);
  if (job->strategy.norm_comm)
    world->ops->release(job->strategy.norm_comm);
  trm_model_free(&job->model);
  trm_options_free(&job->options);
}

static void initial_weights(struct job *job)
{
  float *w = trm_alloc(job->model.parameters * sizeof *w, "test");
  trm_model_init(&job->model, 5, w);
  const float *from[TRM_MAX_STATES] = {w};
  if (job->optimizer.ema > 0)
    from[job->optimizer.states] = w;
  CHECK(job->setup, job->strategy.ops->restore(&job->strategy, from, 0) == TRM_OK);
  trm_free(w);
}

/* -- batches: each row is drawn by its number */

static uint32_t mix(uint64_t a, uint64_t b, uint64_t c)
{
  uint64_t x = a * 0x9e3779b97f4a7c15u ^ (b + 1) * 0xbf58476d1ce4e5b9u ^ (c + 7) * 0x94d049bb133111ebu;
  x ^= x >> 31;
  x *= 0xd6e8feb86659fd93u;
  return (uint32_t)(x >> 32);
}

struct batch {
  struct trm_input input;
  void *memory[2];
};

static void *on_device(struct trm_device *device, const void *host, size_t bytes)
{
  void *memory;
  CU_ASSERT_EQUAL_FATAL(device->ops->alloc(device, bytes + 64, "test", &memory), TRM_OK);
  device->ops->upload(device, memory, host, bytes);
  return memory;
}

static void batch_make(struct batch *batch, const struct job *job, size_t low, size_t high, float scale)
{
  const struct trm_input_spec *spec = job->setup->spec;
  const size_t rows = high - low, width = trm_shape_count(&spec->shape), targets = spec->tokens ? width : 1;
  float *x = trm_alloc(rows * width * sizeof *x, "test");
  int32_t *token = trm_alloc(rows * width * sizeof *token, "test");
  int32_t *target = trm_alloc(rows * targets * sizeof *target, "test");
  for (size_t i = 0; i < rows * width; i++) {
    x[i] = scale * ((float)(mix(1, low + i / width, i % width) % 2000) / 1000.0f - 1.0f);
    token[i] = (int32_t)(mix(2, low + i / width, i % width) % spec->classes);
  }
  for (size_t i = 0; i < rows * targets; i++)
    target[i] = (int32_t)(mix(3, low + i / targets, i % targets) % spec->classes);
  batch->memory[0] = on_device(job->device, spec->tokens ? (void *)token : x, rows * width * sizeof *x);
  batch->memory[1] = on_device(job->device, target, rows * targets * sizeof *target);
  batch->input = (struct trm_input){.rows = rows, .target_class = batch->memory[1]};
  if (spec->tokens)
    batch->input.tokens = batch->memory[0];
  else
    batch->input.dense = batch->memory[0];
  trm_free(x);
  trm_free(token);
  trm_free(target);
}

static void batch_free(struct batch *batch, const struct job *job)
{
  for (int i = 0; i < 2; i++)
    job->device->ops->release(job->device, batch->memory[i]);
}

/* -- steps, as a trainer makes them */

struct handover {
  struct job *job;
  const struct trm_tally *tally;
  bool last;
};

static int hand_over(void *context, size_t low, size_t high)
{
  const struct handover *to = context;
  struct trm_strategy *s = &to->job->strategy;
  return (to->last || (to->job->setup->hasty && s->holder)) && s->ops->grad_ready ? s->ops->grad_ready(s, low, high, to->tally) : TRM_OK;
}

static void reduce_sums(void *context, double *values, size_t n)
{
  struct trm_comm *comm = context;
  comm->ops->allreduce(comm, values, n, TRM_DOUBLE, TRM_SUM);
}

static int step(struct job *job, uint64_t number, float scale, struct trm_tally *tally)
{
  const struct setup *c = job->setup;
  struct trm_strategy *s = &job->strategy;
  const size_t first = (size_t)number * c->batch;
  size_t from, to;
  *tally = (struct trm_tally){0};
  trm_interval(c->batch, (size_t)s->parts, (size_t)s->index, &from, &to);
  for (size_t i = 0; i < c->accumulate; i++) {
    size_t a, b;
    trm_interval(to - from, c->accumulate, i, &a, &b);
    struct batch batch;
    batch_make(&batch, job, first + from + a, first + from + b, scale);
    const struct trm_pass pass = {.device = job->device,
                                  .input = &batch.input,
                                  .training = true,
                                  .seed = 3,
                                  .first_row = first + from + a,
                                  .beta = i ? 1 : 0,
                                  .reduce = job->comm->size > 1 ? reduce_sums : NULL,
                                  .reduce_context = job->comm,
                                  .holder = s->holder};
    struct handover over = {job, tally, i + 1 == c->accumulate};
    CHECK(c, trm_model_train(&job->model, &pass, 1.0f / (float)c->batch, tally, hand_over, &over) == TRM_OK);
    batch_free(&batch, job);
  }
  return s->ops->step(s, 0.05 - 0.001 * (double)number, tally);
}

/* Mean loss of 11 rows: ranks have different numbers of them, some have none. All make as many passes. */
static double evaluate(struct job *job)
{
  size_t from, to;
  struct trm_tally tally = {0};
  trm_interval(11, (size_t)job->comm->size, (size_t)job->comm->rank, &from, &to);
  float *w = job->strategy.evaluated ? job->strategy.evaluated : job->strategy.w;
  CHECK(job->setup, trm_model_bind(&job->model, job->device, w, job->strategy.g, ROWS, true) == TRM_OK);
  for (int i = 0; i < 3; i++) {
    struct batch batch;
    size_t a, b;
    trm_interval(to - from, 3, (size_t)i, &a, &b);
    batch_make(&batch, job, 5000 + from + a, 5000 + from + b, 1);
    const struct trm_pass pass = {.device = job->device, .input = &batch.input, .holder = job->strategy.holder};
    CHECK(job->setup, trm_model_evaluate(&job->model, &pass, &tally) == TRM_OK);
    batch_free(&batch, job);
  }
  CHECK(job->setup, trm_model_bind(&job->model, job->device, job->strategy.w, job->strategy.g, ROWS, true) ==
                      TRM_OK);
  double sums[] = {tally.loss, tally.rows};
  job->comm->ops->allreduce(job->comm, sums, 2, TRM_DOUBLE, TRM_SUM);
  return sums[0] / sums[1];
}

/* The whole arrays, on all ranks: by collect, or piece by piece where that is possible. */
static void collect_all(struct job *job, bool pieces, float *all[TRM_MAX_STATES])
{
  struct trm_strategy *s = &job->strategy;
  const size_t n = job->model.parameters;
  const float *view[TRM_MAX_STATES];
  if (!pieces || !s->ops->read)
    CHECK(job->setup, s->ops->collect(s, view) == TRM_OK);
  for (int i = 0; i <= job->optimizer.states; i++) {
    if (!pieces || !s->ops->read) {
      if (job->comm->rank == 0)
        memcpy(all[i], view[i], n * sizeof(float));
    } else {
      for (size_t low = 0, some; low < n; low += some) {
        some = n - low < 333 ? n - low : 333;
        CHECK(job->setup, s->ops->read(s, i, low, some, job->comm->rank ? NULL : all[i] + low) == TRM_OK);
      }
    }
    job->comm->ops->broadcast(job->comm, all[i], n, TRM_FLOAT, 0);
  }
}

/* What a run leaves. */
struct result {
  size_t elements;
  double loss[STEPS], evaluated[2];
  float *state[TRM_MAX_STATES];
};

static void result_free(struct result *r)
{
  for (int i = 0; i < TRM_MAX_STATES; i++)
    trm_free(r->state[i]);
}

static void run(const struct setup *c, int zero, struct trm_comm *comm, struct result *r)
{
  struct job job;
  job_open(&job, c, zero, comm);
  initial_weights(&job);
  r->elements = job.model.parameters;
  r->evaluated[0] = evaluate(&job);
  for (int i = 0; i < STEPS; i++) {
    struct trm_tally tally;
    CHECK(c, step(&job, (uint64_t)i, 1, &tally) == TRM_OK);
    r->loss[i] = tally.loss;
  }
  r->evaluated[1] = evaluate(&job);
  for (int i = 0; i < TRM_MAX_STATES; i++)
    r->state[i] = trm_alloc(r->elements * sizeof(float), "test");
  collect_all(&job, zero % 2, r->state);
  job_close(&job);
}

/* Largest difference, of the largest value. */
static double difference(const float *a, const float *b, size_t n)
{
  double most = 0, largest = 1e-30;
  for (size_t i = 0; i < n; i++) {
    most = fmax(most, fabs((double)a[i] - (double)b[i]));
    largest = fmax(largest, fabs((double)b[i]));
    if (!isfinite(a[i]))
      return INFINITY;
  }
  return most / largest;
}

static void compare(const struct setup *c, const struct result *a, const struct result *b)
{
  for (int i = 0; i < STEPS; i++)
    CHECK(c, fabs(a->loss[i] - b->loss[i]) <= 1e-6 * fabs(b->loss[i]));
  CHECK(c, b->loss[STEPS - 1] != b->loss[0]);
  for (int i = 0; i < 2; i++)
    CHECK(c, fabs(a->evaluated[i] - b->evaluated[i]) <= 1e-6 * fabs(b->evaluated[i]));
  for (int i = 0; i < TRM_MAX_STATES; i++) {
    const double d = difference(a->state[i], b->state[i], b->elements);
    if (d > 1e-6 * (i ? 10 : 1))
      printf("\n    state %d: %g\n", i, d);
    CHECK(c, d <= 1e-6 * (i ? 10 : 1));
  }
}

static void check(const struct setup *setup)
{
  struct result one, all;
  struct trm_comm *data = setup->stages ? world->ops->split(world, world->rank % setup->stages, world->rank) : world;
  run(setup, 0, trm_comm_self(), &one);
  for (int zero = 0; zero <= 3; zero++) {
    struct setup c = *setup;
    c.zero = zero;
    run(&c, zero, data, &all);
    compare(&c, &all, &one);
    result_free(&all);
  }
  result_free(&one);
  if (data != world)
    data->ops->release(data);
}

static const char *const mlp = "linear 40 | relu | linear 33 bias=no | tanh | dropout 0.1 | linear 24 | tanh | linear 10";
static const char *const conv = "conv2d 6 3 pad=1 bias=no | batch_norm | relu | conv2d 8 3 | batch_norm | relu | "
                                "flatten | linear 5";
static const char *const gpt = "gpt layers=2 heads=2 dim=12 context=6 dropout=0.1";

static void test_models(void)
{
  const struct setup base = {.text = mlp,
                             .spec = &vectors,
                             .optim = {"optim.name", "sgd"},
                             .share = "none",
                             .bucket = "1k",
                             .batch = 13,
                             .accumulate = 1};
  check(&base);
  struct setup c = base;
  c.text = conv;
  c.spec = &images;
  check(&c);
  c.batch = 3; /* ranks without rows */
  check(&c);
  c = base;
  c.text = gpt;
  c.spec = &tokens;
  check(&c);
  c.bucket = "1M"; /* one unit, and that of the embedding */
  check(&c);
}

static void test_optimizers(void)
{
  struct setup c = {.text = gpt,
                    .spec = &tokens,
                    .optim = {"optim.name", "adamw", "optim.clip", "0.5", "optim.epsilon", "1e-3"},
                    .share = "none",
                    .bucket = "2k",
                    .batch = 8,
                    .accumulate = 1};
  check(&c);
  c.optim[1] = "lamb";
  check(&c);
  c.optim[1] = "lars";
  check(&c);
  c.text = conv;
  c.spec = &images;
  c.optim[1] = "momentum";
  c.optim[4] = "optim.ema";
  c.optim[5] = "0.9";
  check(&c);
}

/* Layers that compute again in backward; states in files. */
static void test_recompute(void)
{
  struct setup c = {.text = "gpt layers=4 heads=2 dim=12 context=6 dropout=0.1",
                    .spec = &tokens,
                    .optim = {"optim.name", "adamw", "optim.epsilon", "1e-3", "optim.ema", "0.8"},
                    .share = "none",
                    .bucket = "1k",
                    .batch = 12,
                    .accumulate = 2,
                    .offload = true};
  for (c.recompute = 1; c.recompute < 4; c.recompute++) {
    check(&c);
    c.share = c.recompute == 1 ? "node" : "none";
  }
}

static void test_accumulate(void)
{
  struct setup c = {.text = gpt,
                    .spec = &tokens,
                    .optim = {"optim.name", "momentum", "optim.clip", "0.5"},
                    .share = "none",
                    .bucket = "1k",
                    .batch = 12,
                    .accumulate = 3};
  check(&c);
  c.hasty = true;
  check(&c);
  c.hasty = false;
  c.batch = 5; /* micro-batches without rows */
  check(&c);
  c.text = mlp;
  c.spec = &vectors;
  c.bucket = "3k";
  check(&c);
}

static void test_devices(void)
{
  struct setup c = {.text = gpt,
                    .spec = &tokens,
                    .optim = {"optim.name", "adamw", "optim.clip", "0.5", "optim.epsilon", "1e-3"},
                    .share = "node",
                    .bucket = "1k",
                    .batch = 12,
                    .accumulate = 2,
                    .pretends = true};
  check(&c);
  c.text = conv;
  c.spec = &images;
  c.accumulate = 1;
  c.optim[1] = "momentum";
  c.optim[4] = "optim.ema";
  c.optim[5] = "0.9";
  check(&c);
}

/* Nodes of one and two ranks, and all ranks on one: sharing memory, or as if they could not. */
static void test_nodes(void)
{
  struct setup c = {.text = gpt,
                    .spec = &tokens,
                    .optim = {"optim.name", "adamw", "optim.clip", "0.5", "optim.epsilon", "1e-3"},
                    .share = "node",
                    .shard = "node",
                    .bucket = "1k",
                    .batch = 12,
                    .accumulate = 2};
  for (c.node_size = 0; c.node_size <= 2; c.node_size++) {
    check(&c);
    c.share = "none";
    check(&c);
    c.shard = NULL;
    check(&c);
    c.share = "node";
    c.shard = "node";
  }
  c.optim[1] = "lamb";
  check(&c);
  c.node_size = 0;
  check(&c);
  c.optim[1] = "momentum";
  c.optim[4] = "optim.ema";
  c.optim[5] = "0.9";
  c.text = conv;
  c.spec = &images;
  c.accumulate = 1;
  check(&c);
  c.node_size = 2;
  check(&c);
  c.pretends = true;
  check(&c);
}

/* -- norms over several parts of a model */

static void test_norms(void)
{
  struct setup c = {.text = gpt,
                    .spec = &tokens,
                    .optim = {"optim.name", "momentum", "optim.clip", "0.1"},
                    .share = "none",
                    .bucket = "1k",
                    .batch = 12,
                    .accumulate = 1,
                    .stages = 2};
  if (world->size % 2 == 0)
    check(&c);
  c.share = "node";
  if (world->size % 2 == 0)
    check(&c);
  c.pretends = true;
  c.stages = world->size;
  check(&c);
}

/* Tensors that the ranks divide, have each for itself, and vectors. */
static void test_ratios(void)
{
  const struct trm_tensor tensor[] = {
    {.end = 64, .divided = true}, {.end = 128}, {.end = 144, .vector = true}, {.end = 208, .divided = true}};
  const struct trm_optimizer optimizer = {.tensor = tensor, .tensors = 4};
  const struct trm_update how = {.rule = TRM_UPDATE_LAMB};
  struct trm_strategy strategy = {.optimizer = &optimizer, .ratio_comm = world};
  double pieces[7 + 3][2] = {{0}}, w = 0, g = 0; /* 7 units of 32 elements; one more entry where a tensor begins */
  float ratio[4];
  for (int u = 0; u < 2; u++) {
    pieces[u][0] = 1 + world->rank;
    pieces[u][1] = u ? 3 : 1 + 2 * world->rank;
    pieces[2 + 1 + u][0] = 9 + world->rank;
    pieces[2 + 1 + u][1] = 4;
  }
  for (int rank = 0; rank < world->size; rank++) {
    w += 2 * (1 + rank);
    g += 3 + 1 + 2 * rank;
  }
  sync_ratios(&strategy, &how, 32, pieces, ratio);
  CU_ASSERT_EQUAL(ratio[0], (float)(sqrt(w) / sqrt(g)));
  CU_ASSERT_EQUAL(ratio[1], (float)(sqrt(18 + 2 * world->rank) / sqrt(8)));
  CU_ASSERT_EQUAL(ratio[2], 1);
  CU_ASSERT_EQUAL(ratio[3], 1); /* nobody has a gradient */
}

/* -- memory */

/* Bytes that a rank may hold: its shards, some for what is small, and two units' weights and gradients. */
static void test_memory(void)
{
  static const char *const deep = "linear 128 | tanh | linear 128 | tanh | linear 128 | tanh | linear 128 | tanh | "
                                  "linear 128 | tanh | linear 128 | tanh | linear 128 | tanh | linear 128 | tanh | "
                                  "linear 128 | tanh | linear 128 | tanh | linear 128 | tanh | linear 10";
  struct setup c = {.text = deep,
                    .spec = &vectors,
                    .optim = {"optim.name", "adamw"},
                    .share = "none",
                    .bucket = "48k",
                    .batch = 12,
                    .accumulate = 1};
  const double ranks = world->size;
  if (world->size == 1)
    return;
  for (c.zero = 0; c.zero <= 3; c.zero++) {
    struct job job;
    job_open(&job, &c, c.zero, world);
    initial_weights(&job);
    const double n = (double)job.model.parameters * sizeof(float), unit = (128 * 128 + 128) * sizeof(float);
    const double slack = 0.05 * 4 * n, held = (double)job.held;
    const size_t before = trm_memory_held();
    struct trm_tally tally;
    for (int i = 0; i < 2; i++)
      CHECK(&c, step(&job, (uint64_t)i, 1, &tally) == TRM_OK);
    CHECK(&c, trm_memory_held() == before);
    if (c.zero == 0)
      CHECK(&c, held >= 4 * n);
    if (c.zero == 1)
      CHECK(&c, held <= 2 * n + 3 * n / ranks + slack);
    if (c.zero == 2)
      CHECK(&c, held <= n + 3 * n / ranks + 2 * unit + slack);
    if (c.zero == 3)
      CHECK(&c, held <= 4 * n / ranks + 4 * unit + slack);
    job_close(&job);
  }
  c.share = "node"; /* what the node shares counts as a whole */
  for (c.zero = 2; c.zero <= 3; c.zero++) {
    struct job job;
    job_open(&job, &c, c.zero, world);
    const double n = (double)job.model.parameters * sizeof(float), unit = (128 * 128 + 128) * sizeof(float);
    CHECK(&c, (double)job.held <= n + 3 * n / ranks + ranks * (2 * unit + 65536) + 0.05 * 4 * n + 65536);
    job_close(&job);
  }
}

/* -- a loss that is not finite */

static void test_not_finite(void)
{
  struct setup c = {.text = mlp,
                    .spec = &vectors,
                    .optim = {"optim.name", "adamw", "optim.epsilon", "1e-3"},
                    .bucket = "1k",
                    .batch = 12,
                    .accumulate = 2};
  for (int i = 0; i < 8; i++) {
    c.zero = i % 4;
    c.share = i < 4 ? "none" : "node";
    struct job job;
    job_open(&job, &c, c.zero, world);
    initial_weights(&job);
    float *before[TRM_MAX_STATES], *after[TRM_MAX_STATES];
    for (int k = 0; k < TRM_MAX_STATES; k++) {
      before[k] = trm_alloc(job.model.parameters * sizeof(float), "test");
      after[k] = trm_alloc(job.model.parameters * sizeof(float), "test");
    }
    struct trm_tally tally;
    CHECK(&c, step(&job, 0, 1, &tally) == TRM_OK);
    collect_all(&job, true, before);
    CHECK(&c, step(&job, 1, world->rank == world->size - 1 ? NAN : 1, &tally) == TRM_FAILED);
    CHECK(&c, strstr(trm_error_text(), "nan") != NULL);
    CHECK(&c, job.strategy.updates == 1);
    collect_all(&job, true, after);
    for (int k = 0; k <= job.optimizer.states; k++)
      CHECK(&c, memcmp(before[k], after[k], job.model.parameters * sizeof(float)) == 0);
    CHECK(&c, step(&job, 1, 1, &tally) == TRM_OK); /* as if nothing had been */
    collect_all(&job, true, after);
    job_close(&job);

    struct job other;
    job_open(&other, &c, c.zero, world);
    initial_weights(&other);
    CHECK(&c, step(&other, 0, 1, &tally) == TRM_OK && step(&other, 1, 1, &tally) == TRM_OK);
    collect_all(&other, true, before);
    for (int k = 0; k <= other.optimizer.states; k++) {
      CHECK(&c, memcmp(before[k], after[k], other.model.parameters * sizeof(float)) == 0);
    }
    job_close(&other);
    for (int k = 0; k < TRM_MAX_STATES; k++) {
      trm_free(before[k]);
      trm_free(after[k]);
    }
  }
}

/* -- checkpoints */

/* By restore, or in pieces that begin and end anywhere. */
static void put_all(struct job *job, bool pieces, float *const from[TRM_MAX_STATES], uint64_t updates)
{
  struct trm_strategy *s = &job->strategy;
  const size_t n = job->model.parameters;
  const float *none[TRM_MAX_STATES] = {NULL}, *whole[TRM_MAX_STATES] = {from[0], from[1], from[2], from[3]};
  if (!pieces || !s->ops->write) {
    CHECK(job->setup, s->ops->restore(s, whole, updates) == TRM_OK);
    return;
  }
  for (int i = 0; i <= job->optimizer.states; i++)
    for (size_t low = 0, some; low < n; low += some) {
      some = n - low < 777 ? n - low : 777;
      CHECK(job->setup, s->ops->write(s, i, low, some, from[i] + low) == TRM_OK);
    }
  CHECK(job->setup, s->ops->restore(s, none, updates) == TRM_OK);
}

/* Three steps in one way, two in another: as five in the first. */
static void check_resume(const struct setup *first, const struct setup *second)
{
  float *half[TRM_MAX_STATES], *again[TRM_MAX_STATES], *straight[TRM_MAX_STATES];
  struct job job, other;
  struct trm_tally tally;
  job_open(&job, first, first->zero, world);
  const size_t n = job.model.parameters;
  for (int i = 0; i < TRM_MAX_STATES; i++) {
    half[i] = trm_alloc(n * sizeof(float), "test");
    again[i] = trm_alloc(n * sizeof(float), "test");
    straight[i] = trm_alloc(n * sizeof(float), "test");
  }
  initial_weights(&job);
  for (int i = 0; i < 3; i++)
    CHECK(first, step(&job, (uint64_t)i, 1, &tally) == TRM_OK);
  collect_all(&job, true, half);
  for (int i = 3; i < 5; i++)
    CHECK(first, step(&job, (uint64_t)i, 1, &tally) == TRM_OK);
  collect_all(&job, false, straight);
  job_close(&job);

  job_open(&other, second, second->zero, world);
  put_all(&other, second->zero % 2, half, 3);
  collect_all(&other, true, again);
  for (int i = 0; i <= other.optimizer.states; i++)
    CHECK(second, memcmp(half[i], again[i], n * sizeof(float)) == 0);
  for (int i = 3; i < 5; i++)
    CHECK(second, step(&other, (uint64_t)i, 1, &tally) == TRM_OK);
  collect_all(&other, true, again);
  for (int i = 0; i <= other.optimizer.states; i++) {
    CHECK(second, difference(again[i], straight[i], n) <= 1e-6 * (i ? 10 : 1));
    CHECK(second, difference(half[i], straight[i], n) > 1e-4);
  }
  job_close(&other);
  for (int i = 0; i < TRM_MAX_STATES; i++) {
    trm_free(half[i]);
    trm_free(again[i]);
    trm_free(straight[i]);
  }
}

static void test_resume(void)
{
  struct setup a = {.text = conv,
                    .spec = &images,
                    .optim = {"optim.name", "momentum", "optim.ema", "0.9"},
                    .share = "none",
                    .bucket = "1k",
                    .batch = 12,
                    .accumulate = 1};
  for (a.zero = 0; a.zero <= 3; a.zero++)
    for (int zero = 0; zero <= 3; zero++) {
      struct setup b = a;
      b.zero = zero;
      b.bucket = "3k";
      b.share = (a.zero + zero) % 2 ? "node" : "none";
      check_resume(&a, &b);
    }
}

/* -- chunks of the chain, several micro-batches under way */

/* One step of two micro-batches, both forward before the first goes back. */
static int step_chunks(struct job *job, struct trm_tally *tally)
{
  enum { CHUNKS = 3, SLOTS = 2 };
  struct trm_strategy *s = &job->strategy;
  struct batch batch[SLOTS];
  struct trm_pass pass[SLOTS];
  *tally = (struct trm_tally){0};
  for (int m = 0; m < SLOTS; m++) {
    const size_t at = 6 * (size_t)(s->index * SLOTS + m);
    batch_make(&batch[m], job, at, at + 6, 1);
    pass[m] = (struct trm_pass){.device = job->device,
                                .input = &batch[m].input,
                                .training = true,
                                .seed = 3,
                                .first_row = at,
                                .beta = m ? 1 : 0,
                                .scale = 1.0f / (float)(6 * SLOTS * s->parts),
                                .holder = s->holder};
    for (int c = 0; c < CHUNKS; c++) {
      const struct trm_shape *shape;
      trm_model_at(&job->model, c ? c - 1 : 0, m);
      const float *from = c ? trm_model_exit(&job->model, false, &shape) : NULL;
      trm_model_at(&job->model, c, m);
      if (from)
        job->device->ops->copy(job->device, trm_model_entry(&job->model, false, &shape), from,
                               6 * trm_shape_count(shape) * sizeof(float));
      trm_model_forward(&job->model, &pass[m]);
    }
    CHECK(job->setup, trm_model_score(&job->model, &pass[m], tally) == TRM_OK);
  }
  struct handover over = {job, tally, true};
  for (int c = CHUNKS - 1; c >= 0; c--)
    for (int m = 0; m < SLOTS; m++) {
      const struct trm_shape *shape;
      trm_model_at(&job->model, c + 1 < CHUNKS ? c + 1 : c, m);
      const float *from = c + 1 < CHUNKS ? trm_model_entry(&job->model, true, &shape) : NULL;
      trm_model_at(&job->model, c, m);
      if (from)
        job->device->ops->copy(job->device, trm_model_exit(&job->model, true, &shape), from,
                               6 * trm_shape_count(shape) * sizeof(float));
      over.last = m + 1 == SLOTS;
      CHECK(job->setup, trm_model_backward(&job->model, &pass[m], hand_over, &over) == TRM_OK);
    }
  for (int m = 0; m < SLOTS; m++)
    batch_free(&batch[m], job);
  return s->ops->step(s, 0.05, tally);
}

/* The whole chain in one, and in three chunks. Units that would reach from chunk to chunk would be complete too late. */
static void test_chunks(void)
{
  struct setup c = {.text = "linear 20 | tanh | linear 16 | tanh | linear 14 | linear 18 | tanh | linear 10",
                    .spec = &vectors,
                    .optim = {"optim.name", "momentum", "optim.clip", "1"},
                    .share = "none",
                    .bucket = "64k",
                    .accumulate = 2};
  c.batch = 12 * (size_t)world->size;
  float *want[TRM_MAX_STATES] = {NULL}, *got[TRM_MAX_STATES] = {NULL};
  const struct trm_model_part part = {.chunks = 3, .chunk = {{0, 2}, {2, 5}, {5, 8}}, .tensors = 1};
  for (int i = 0; i < 8; i++) {
    struct job job;
    struct trm_tally tally;
    c.zero = i % 4;
    c.share = i < 4 ? "none" : "node";
    job_prepare(&job, &c, c.zero, world, NULL);
    initial_weights(&job);
    for (int k = 0; k < TRM_MAX_STATES; k++) {
      want[k] = trm_alloc(job.model.parameters * sizeof(float), "test");
      got[k] = trm_alloc(job.model.parameters * sizeof(float), "test");
    }
    CHECK(&c, step(&job, 0, 1, &tally) == TRM_OK);
    collect_all(&job, true, want);
    job_close(&job);
    job_prepare(&job, &c, c.zero, world, &part);
    initial_weights(&job);
    CHECK(&c, trm_model_bind_slots(&job.model, job.device, job.strategy.w, job.strategy.g, ROWS, true, 2) == TRM_OK);
    CHECK(&c, step_chunks(&job, &tally) == TRM_OK);
    collect_all(&job, true, got);
    for (int k = 0; k <= job.optimizer.states; k++)
      CHECK(&c, difference(got[k], want[k], job.model.parameters) < 1e-6);
    job_close(&job);
    for (int k = 0; k < TRM_MAX_STATES; k++) {
      trm_free(want[k]);
      trm_free(got[k]);
    }
  }
}

static void test_refused(void)
{
  struct trm_options options;
  trm_options_default(&options);
  options.run.lanes = 8;
  options.parallel.zero = 3;
  struct trm_optimizer optimizer = {0};
  struct trm_strategy strategy = {.ops = trm_strategy_find("sync"),
                                  .comm = world,
                                  .device = &cpu,
                                  .optimizer = &optimizer,
                                  .options = &options};
  if (world->size > 1) {
    CU_ASSERT_EQUAL(strategy.ops->create(&strategy), TRM_USAGE);
    CU_ASSERT_PTR_NOT_NULL(strstr(trm_error_text(), "run.lanes"));
  }
  trm_options_free(&options);
}

int main(int argc, char **argv)
{
  if (trm_device_open(&cpu, "cpu", "auto", "f32", 0, 1) != TRM_OK || pretend_device_open(&pretend, 1) != TRM_OK) {
    trm_log_error();
    return 99;
  }
  CU_TestInfo tests[] = {
    {"models", test_models},
    {"optimizers", test_optimizers},
    {"accumulation", test_accumulate},
    {"recomputation, offload", test_recompute},
    {"nodes", test_nodes},
    {"chunks", test_chunks},
    {"norms over parts of a model", test_norms},
    {"ratios over parts of tensors", test_ratios},
    {"memory", test_memory},
    {"a loss that is not finite", test_not_finite},
    {"checkpoints between levels", test_resume},
    {"lanes are refused", test_refused},
    {"a device with its own memory", test_devices},
    CU_TEST_INFO_NULL,
  };
  const int status = ranks_run(argc, argv, "zero", tests);
  pretend_device_close(&pretend);
  trm_device_close(&cpu);
  return status;
}
