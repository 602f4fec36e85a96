/* Shared by the tests of sharded data parallelism: a setup, a model with its strategy, pseudo-random batches, training
 * steps, and whole arrays on all ranks. A program includes this once. */
#pragma once

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "method_devices.h"

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
  int node_size; /* TRM_NODE_SIZE; 0: unset */
  const char *bucket;
  size_t batch, accumulate;
  int pretends; /* ranks with a device that has memory of its own: 0 none, 1 all, 2 every second one */
  bool hands_over_early; /* gradients are reduced after each micro-batch, not only after the last */
  int recompute; /* blocks per segment */
  bool offload; /* optimizer states in files */
  int stages; /* simulated model parts; each tensor counts in one of them; 0: one */
};

static inline const char *text_of(const struct setup *c)
{
  static char text[512];
  snprintf(text, sizeof text, "%.60s %s %s %s, zero %d share %s/%d/%s bucket %s batch %zu accumulate %zu pretends %d",
           c->text, c->optim[1], c->optim[0] && c->optim[2] ? c->optim[2] : "", c->optim[2] ? c->optim[3] : "", c->zero,
           c->share, c->node_size, c->shard ? c->shard : "all", c->bucket, c->batch, c->accumulate, c->pretends);
  return text;
}

static const char *const mlp = "linear 40 | relu | linear 33 bias=no | tanh | dropout 0.1 | linear 24 | tanh | "
                               "linear 10";
static const char *const conv = "conv2d 6 3 pad=1 bias=no | batch_norm | relu | conv2d 8 3 | batch_norm | relu | "
                                "flatten | linear 5";
static const char *const gpt = "gpt layers=2 heads=2 dim=12 context=6 dropout=0.1";

enum { ROWS = 16 };

struct job {
  const struct setup *setup;
  struct trm_device *device;
  struct trm_comm *comm;
  struct trm_options options;
  struct trm_model model;
  struct trm_optimizer optimizer;
  struct trm_strategy strategy;
  struct trm_staged_arrays arrays;
  size_t allocated; /* bytes allocated by the strategy */
};

/* part: chunks of the model; NULL: one */
static inline void job_prepare(struct job *job, const struct setup *c, int zero, struct trm_comm *comm,
                        const struct trm_model_part *part)
{
  memset(job, 0, sizeof *job);
  job->setup = c;
  job->comm = comm;
  job->device = zero && (c->pretends == 1 || (c->pretends == 2 && world->rank % 2 == 0)) ? &pretend : &cpu;
  trm_options_default(&job->options);
  for (int i = 0; c->optim[i]; i += 2)
    CU_ASSERT_EQUAL_FATAL(trm_options_set(&job->options, c->optim[i], c->optim[i + 1]), TRM_OK);
  CU_ASSERT_EQUAL_FATAL(trm_options_set(&job->options, "parallel.bucket", c->bucket), TRM_OK);
  CU_ASSERT_EQUAL_FATAL(trm_options_set(&job->options, "parallel.share", c->share), TRM_OK);
  if (c->shard)
    CU_ASSERT_EQUAL_FATAL(trm_options_set(&job->options, "parallel.shard", c->shard), TRM_OK);
  const char *const folder = getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp";
  if (c->offload)
    CU_ASSERT_EQUAL_FATAL(trm_options_set(&job->options, "parallel.offload", folder), TRM_OK);
  job->options.parallel.zero = zero;
  job->options.train.accumulate = (int64_t)c->accumulate;
  CU_ASSERT_EQUAL_FATAL(trm_model_create_part(&job->model, c->text, "auto", c->spec, part), TRM_OK);
  job->model.recompute = comm == trm_comm_self() ? 0 : c->recompute;
  CU_ASSERT_EQUAL_FATAL(trm_optimizer_create(&job->optimizer, &job->options, &job->model), TRM_OK);
  job->strategy = (struct trm_strategy){.ops = trm_strategy_find("sync"),
                                        .comm = comm,
                                        .device = job->device,
                                        .optimizer = &job->optimizer,
                                        .elements = job->model.parameters,
                                        .boundary = job->model.boundary,
                                        .boundaries = job->model.boundaries};
  trm_strategy_set_options(&job->strategy, &job->options);
  if (c->stages && comm != trm_comm_self()) {
    job->strategy.norm_comm = world->ops->split(world, world->rank / c->stages, world->rank);
    for (int t = 0; t < job->model.tensors; t++)
      job->model.tensor[t].replica = t % c->stages != world->rank % c->stages;
  }
  const size_t before = trm_memory_allocated();
  CU_ASSERT_EQUAL_FATAL(strategy_begin(&job->arrays, &job->strategy, c->node_size), TRM_OK);
  job->allocated = trm_memory_allocated() - before;
  float *w = trm_staged_arrays_load(&job->arrays, job->strategy.w);
  CU_ASSERT_EQUAL_FATAL(trm_model_bind(&job->model, job->device, w, job->arrays.g, ROWS, true), TRM_OK);
}

static inline void job_open(struct job *job, const struct setup *c, int zero, struct trm_comm *comm)
{
  job_prepare(job, c, zero, comm, NULL);
}

static inline void job_close(struct job *job)
{
  strategy_end(&job->arrays);
  if (job->strategy.norm_comm)
    world->ops->release(job->strategy.norm_comm);
  trm_model_free(&job->model);
  trm_options_free(&job->options);
}

static inline void initial_weights(struct job *job)
{
  float *w = trm_alloc(job->model.parameters * sizeof *w, "test");
  trm_model_init(&job->model, 5, w);
  const float *from[TRM_MAX_STATES] = {w};
  if (job->optimizer.ema > 0)
    from[job->optimizer.states] = w;
  CHECK(job->setup, job->strategy.ops->restore(&job->strategy, from, 0) == TRM_OK);
  trm_free(w);
}

/* -- batches: each row is a function of its number */

struct batch {
  struct trm_input input;
  void *memory[2];
};

static inline void *on_device(struct trm_device *device, const void *host, size_t bytes)
{
  void *memory;
  CU_ASSERT_EQUAL_FATAL(device->ops->alloc(device, bytes + 64, TRM_MEMORY_BUFFERS, &memory), TRM_OK);
  device->ops->upload(device, memory, host, bytes);
  return memory;
}

static inline void batch_make(struct batch *batch, const struct job *job, size_t low, size_t high, float scale)
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

static inline void batch_free(struct batch *batch, const struct job *job)
{
  for (int i = 0; i < 2; i++)
    job->device->ops->release(job->device, batch->memory[i]);
}

/* -- steps, as in the trainer */

struct grad_ready_context {
  struct job *job;
  const struct trm_loss_sums *sums;
  bool last;
};

static inline int on_grad_ready(void *context, size_t low, size_t high)
{
  const struct grad_ready_context *to = context;
  struct trm_strategy *s = &to->job->strategy;
  if (!to->last && !(to->job->setup->hands_over_early && s->provider))
    return TRM_OK;
  return trm_staged_arrays_ready(&to->job->arrays, low, high, to->sums);
}

static inline void allreduce_doubles(void *context, double *values, size_t n)
{
  struct trm_comm *comm = context;
  comm->ops->allreduce(comm, values, n, TRM_DOUBLE, TRM_SUM);
}

static inline int step(struct job *job, uint64_t number, float scale, struct trm_loss_sums *sums)
{
  const struct setup *c = job->setup;
  struct trm_strategy *s = &job->strategy;
  const size_t first = (size_t)number * c->batch;
  size_t from, to;
  *sums = (struct trm_loss_sums){0};
  CHECK(c, trm_staged_arrays_begin(&job->arrays) == TRM_OK);
  trm_interval(c->batch, (size_t)s->batch_shards, (size_t)s->batch_shard, &from, &to);
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
                                  .reduce = job->comm->size > 1 ? allreduce_doubles : NULL,
                                  .reduce_context = job->comm,
                                  .provider = job->arrays.provider,
                                  .await_weights = job->arrays.upload ? trm_staged_arrays_await : NULL,
                                  .weights_context = &job->arrays};
    struct grad_ready_context context = {job, sums, i + 1 == c->accumulate};
    CHECK(c, trm_model_train(&job->model, &pass, 1.0f / (float)c->batch, sums, on_grad_ready, &context) == TRM_OK);
    batch_free(&batch, job);
  }
  trm_strategy_begin_step(s, 0.05 - 0.001 * (double)number, 0, sums);
  return s->ops->step(s, 0.05 - 0.001 * (double)number, sums);
}

/* Returns the mean loss of 11 rows. Ranks have different numbers of rows, some none, but make equally many passes. */
static inline double evaluate(struct job *job)
{
  size_t from, to;
  struct trm_loss_sums sums = {0};
  trm_interval(11, (size_t)job->comm->size, (size_t)job->comm->rank, &from, &to);
  struct trm_strategy *s = &job->strategy;
  float *w = trm_staged_arrays_load(&job->arrays, s->eval_weights ? s->eval_weights : s->w);
  CHECK(job->setup, trm_model_bind(&job->model, job->device, w, job->arrays.g, ROWS, true) == TRM_OK);
  for (int i = 0; i < 3; i++) {
    struct batch batch;
    size_t a, b;
    trm_interval(to - from, 3, (size_t)i, &a, &b);
    batch_make(&batch, job, 5000 + from + a, 5000 + from + b, 1);
    const struct trm_pass pass = {.device = job->device, .input = &batch.input, .provider = job->arrays.provider};
    CHECK(job->setup, trm_model_evaluate(&job->model, &pass, &sums) == TRM_OK);
    batch_free(&batch, job);
  }
  w = trm_staged_arrays_load(&job->arrays, s->w);
  CHECK(job->setup, trm_model_bind(&job->model, job->device, w, job->arrays.g, ROWS, true) == TRM_OK);
  double totals[] = {sums.loss, sums.rows};
  job->comm->ops->allreduce(job->comm, totals, 2, TRM_DOUBLE, TRM_SUM);
  return totals[0] / totals[1];
}

/* Copies the whole arrays to all ranks, with collect or by intervals. */
static inline void collect_all(struct job *job, bool by_interval, float *all[TRM_MAX_STATES])
{
  struct trm_strategy *s = &job->strategy;
  const size_t n = job->model.parameters;
  const float *view[TRM_MAX_STATES];
  if (!by_interval || !s->ops->read)
    CHECK(job->setup, s->ops->collect(s, view) == TRM_OK);
  for (int i = 0; i <= job->optimizer.states; i++) {
    if (!by_interval || !s->ops->read) {
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

/* Returns the largest difference relative to the largest value. */
static inline double difference(const float *a, const float *b, size_t n)
{
  double max = 0, largest = 1e-30;
  for (size_t i = 0; i < n; i++) {
    max = fmax(max, fabs((double)a[i] - (double)b[i]));
    largest = fmax(largest, fabs((double)b[i]));
    if (!isfinite(a[i]))
      return INFINITY;
  }
  return max / largest;
}
