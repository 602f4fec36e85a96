/* A training step: model, device and strategy as in training, on batches in memory. */
#include "cli/bench/bench_run.h"

#include <stdlib.h>
#include <string.h>

#include "cli/bench/bench.h"
#include "core/memory.h"
#include "core/random.h"
#include "core/status.h"

/* Guesses the input shape and classes of a model: for "mlp 784-2048-10 relu" its first and last size. */
static void bench_run_guess_sizes(const char *model, struct trm_input_spec *spec)
{
  static const struct {
    const char *name;
    struct trm_input_spec spec;
  } known[] = {
    {"lenet5", {.shape = {.dims = 3, .size = {1, 28, 28}}, .classes = 10}},
    {"resnet18", {.shape = {.dims = 3, .size = {3, 224, 224}}, .classes = 1000}},
    {"vgg11", {.shape = {.dims = 3, .size = {3, 224, 224}}, .classes = 1000}},
    {"resnet", {.shape = {.dims = 3, .size = {3, 32, 32}}, .classes = 10}},
    {"gpt2", {.shape = {.dims = 1, .size = {1024}}, .classes = 50257, .tokens = true}},
    {"gpt", {.shape = {.dims = 1, .size = {128}}, .classes = 65, .tokens = true}},
    {"embedding", {.shape = {.dims = 1, .size = {128}}, .classes = 65, .tokens = true}},
    {"", {.shape = {.dims = 1, .size = {784}}, .classes = 10}}};
  size_t i = 0;
  model += strspn(model, " ");
  while (strncmp(model, known[i].name, strlen(known[i].name)) != 0)
    i++;
  *spec = known[i].spec;
  spec->target = TRM_TARGET_CLASS;
  if (spec->tokens && trm_model_context(model))
    spec->shape.size[0] = trm_model_context(model);
  if (strncmp(model, "mlp ", 4) != 0)
    return;
  const char *sizes = model + 4 + strspn(model + 4, " ");
  const size_t length = strcspn(sizes, " ");
  spec->shape.size[0] = strtoull(sizes, NULL, 10);
  for (size_t k = 0; k < length; k++)
    if (sizes[k] == '-')
      spec->classes = strtoull(sizes + k + 1, NULL, 10);
}

/* Reads a shape: "784" or "3x32x32". */
static int bench_run_parse_shape(const char *text, struct trm_shape *shape)
{
  const char *at = text;
  bool good = true;
  for (shape->dims = 0; good && at; shape->dims++) {
    char *end;
    const unsigned long long size = strtoull(at, &end, 10);
    good = shape->dims < TRM_MAX_DIMS && *at >= '1' && *at <= '9' && size <= 1 << 24 && (!*end || *end == 'x');
    if (good)
      shape->size[shape->dims] = (size_t)size;
    at = good && *end ? end + 1 : NULL;
  }
  if (!good)
    return trm_error(TRM_USAGE, "--input is '%s', must be a number of values or a shape such as 3x32x32", text);
  return TRM_OK;
}

/* Fills a device array with n random classes. */
static int bench_run_make_classes(struct bench_run *run, int32_t **to, size_t n, uint32_t stream)
{
  struct trm_device *device = &run->device;
  TRM_CHECK(device->ops->alloc(device, n * sizeof **to, TRM_MEMORY_BUFFERS, (void **)to));
  int32_t *host = trm_alloc(n * sizeof *host, "bench: classes or tokens");
  for (size_t i = 0; i < n; i++)
    host[i] = (int32_t)(trm_random_uniform(2, TRM_RANDOM_BENCH, stream, i) * (float)run->spec.classes);
  device->ops->upload(device, *to, host, n * sizeof *host);
  trm_free(host);
  return device->ops->sync(device);
}

static int bench_run_make_batches(struct bench_run *run)
{
  struct trm_device *device = &run->device;
  const size_t rows = (size_t)run->batch, values = rows * trm_shape_count(&run->spec.shape);
  for (uint32_t k = 0; k < RUN_BATCHES; k++) {
    const uint32_t stream = (uint32_t)run->comm->rank * RUN_BATCHES + k;
    if (run->spec.tokens) {
      TRM_CHECK(bench_run_make_classes(run, (int32_t **)&run->x[k], values, ~stream));
    } else {
      TRM_CHECK(device->ops->alloc(device, values * sizeof(float), TRM_MEMORY_BUFFERS, &run->x[k]));
      bench_fill(device, run->x[k], TRM_VALUES_F32, values, stream);
    }
    TRM_CHECK(bench_run_make_classes(run, &run->target[k], run->spec.tokens ? values : rows, stream));
  }
  return TRM_OK;
}

static int bench_run_open_strategy(struct bench_run *run)
{
  run->strategy = (struct trm_strategy){.ops = run->job->modules.strategy,
                                        .comm = run->comm,
                                        .device = &run->device,
                                        .optimizer = &run->optimizer,
                                        .elements = run->model.parameters,
                                        .boundary = run->model.boundary,
                                        .boundaries = run->model.boundaries,
                                        .values = run->model.values};
  trm_strategy_set_options(&run->strategy, &run->job->options);
  return trm_staged_arrays_create(&run->arrays, &run->strategy);
}

int bench_run_open(struct bench_run *run)
{
  const struct trm_options *options = &run->job->options;
  run->comm = run->job->modules.comm;
  timed_device_open(&run->device, &run->timed, &run->job->device);
  bench_run_guess_sizes(run->text, &run->spec);
  if (run->classes)
    run->spec.classes = (size_t)run->classes;
  if (run->input)
    TRM_CHECK(bench_run_parse_shape(run->input, &run->spec.shape));
  TRM_CHECK(trm_model_create(&run->model, run->text, trm_choice_text("train.loss", options->train.loss), &run->spec));
  TRM_CHECK(trm_model_set_values(&run->model, options->train.activations));
  TRM_CHECK(trm_model_set_loss_chunk(&run->model, (size_t)options->train.loss_chunk));
  TRM_CHECK(trm_optimizer_create(&run->optimizer, options, &run->model));
  TRM_CHECK(bench_run_open_strategy(run));
  trm_model_share_rounded(&run->model, run->strategy.w, run->strategy.rounded);
  float *passes_w = trm_staged_arrays_load(&run->arrays, run->strategy.w);
  int status = trm_model_bind(&run->model, &run->device, passes_w, run->arrays.g, (size_t)run->batch, true);
  if (status == TRM_OK)
    status = bench_run_make_batches(run);
  TRM_CHECK(trm_agree(run->comm, status));
  float *w = trm_alloc(run->model.parameters * sizeof *w, "bench: initial weights");
  trm_model_init(&run->model, 1, w);
  const float *const from[TRM_MAX_STATES] = {w};
  status = run->strategy.ops->restore(&run->strategy, from, 0);
  trm_free(w);
  return trm_agree(run->comm, status);
}

void bench_run_close(struct bench_run *run)
{
  for (int k = 0; k < RUN_BATCHES; k++) {
    if (run->x[k])
      run->device.ops->release(&run->device, run->x[k]);
    if (run->target[k])
      run->device.ops->release(&run->device, run->target[k]);
  }
  trm_model_free(&run->model);
  trm_staged_arrays_free(&run->arrays);
  if (run->strategy.ops)
    run->strategy.ops->destroy(&run->strategy);
}

/* Adds statistics over the ranks, as in training. */
static void bench_run_reduce_sums(void *context, double *values, size_t n)
{
  struct trm_comm *comm = context;
  comm->ops->allreduce(comm, values, n, TRM_DOUBLE, TRM_SUM);
}

/* Context of bench_run_grad_ready. */
struct grad_ready_context {
  struct trm_staged_arrays *arrays;
  const struct trm_loss_sums *sums;
};

static int bench_run_grad_ready(void *context, size_t low, size_t high)
{
  const struct grad_ready_context *to = context;
  return trm_staged_arrays_ready(to->arrays, low, high, to->sums);
}

static void bench_run_part_ready(void *context, size_t high)
{
  const struct grad_ready_context *to = context;
  struct trm_strategy *strategy = to->arrays->strategy;
  strategy->ops->part_ready(strategy, high, to->sums);
}

int bench_run_step(struct bench_run *run, double *computed)
{
  struct trm_strategy *strategy = &run->strategy;
  const size_t rows = (size_t)run->batch, turn = run->steps++ % RUN_BATCHES;
  const bool tokens = run->spec.tokens;
  const struct trm_input input = {.rows = rows,
                                  .dense = tokens ? NULL : run->x[turn],
                                  .tokens = tokens ? run->x[turn] : NULL,
                                  .target_class = run->target[turn]};
  const uint64_t global = (uint64_t)rows * (uint64_t)run->comm->size;
  const double rate = run->job->options.optim.rate;
  struct trm_step *now = trm_staged_arrays_step(&run->arrays);
  const uint64_t first_row = run->steps * global + rows * (uint64_t)strategy->batch_shard;
  struct trm_loss_sums sums = {0};
  struct grad_ready_context to = {&run->arrays, &sums};
  const size_t part = trm_staged_arrays_part(&run->arrays);
  const struct trm_pass pass = {.device = &run->device,
                                .provider = run->arrays.provider,
                                .await_weights = run->arrays.upload ? trm_staged_arrays_await : NULL,
                                .weights_context = &run->arrays,
                                .input = &input,
                                .training = true,
                                .seed = 1,
                                .first_row = now ? 0 : first_row,
                                .step = now,
                                .reduce = strategy->ops->lockstep && run->comm->size > 1 ? bench_run_reduce_sums : NULL,
                                .reduce_context = run->comm,
                                .part = part,
                                .part_ready = part ? bench_run_part_ready : NULL,
                                .part_context = &to};
  strategy->rate = rate;
  if (now)
    trm_strategy_begin_step(strategy, rate, first_row, &sums);
  TRM_CHECK(trm_staged_arrays_begin(&run->arrays));
  TRM_CHECK(trm_model_train(&run->model, &pass, 1 / (float)global, &sums, bench_run_grad_ready, &to));
  *computed = run->comm->ops->clock(run->comm);
  if (!now)
    trm_strategy_begin_step(strategy, rate, first_row, &sums);
  TRM_CHECK(strategy->ops->step(strategy, rate, &sums));
  return run->device.ops->sync(&run->device);
}
