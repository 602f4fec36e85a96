/* The step is the real one: model, device and strategy as in training, on batches that lie ready. */
#include "cli/bench/bench_work.h"

#include <stdlib.h>
#include <string.h>

#include "cli/bench/bench.h"
#include "core/memory.h"
#include "core/random.h"
#include "core/status.h"

static bool begins(const char *text, const char *with)
{
  return strncmp(text, with, strlen(with)) == 0;
}

/* What the model named is made for: of "mlp 784-2048-10 relu" its first and last size. */
static void sizes_guess(const char *model, struct trm_input_spec *spec)
{
  static const struct {
    const char *name;
    struct trm_shape shape;
    size_t classes;
  } known[] = {
    {"lenet5", {.dims = 3, .size = {1, 28, 28}}, 10},     {"resnet18", {.dims = 3, .size = {3, 224, 224}}, 1000},
    {"vgg11", {.dims = 3, .size = {3, 224, 224}}, 1000},  {"resnet", {.dims = 3, .size = {3, 32, 32}}, 10},
    {"gpt2", {.dims = 1, .size = {1024}}, 50257},         {"gpt", {.dims = 1, .size = {128}}, 65},
    {"embedding", {.dims = 1, .size = {128}}, 65},        {"", {.dims = 1, .size = {784}}, 10}};
  size_t i = 0;
  model += strspn(model, " ");
  while (!begins(model, known[i].name))
    i++;
  *spec = (struct trm_input_spec){
    .shape = known[i].shape,
    .tokens = begins(model, "gpt") || begins(model, "embedding"),
    .target = TRM_TARGET_CLASS,
    .classes = known[i].classes,
  };
  if (spec->tokens && trm_model_context(model))
    spec->shape.size[0] = trm_model_context(model);
  if (!begins(model, "mlp "))
    return;
  const char *sizes = model + 4 + strspn(model + 4, " ");
  const size_t length = strcspn(sizes, " ");
  spec->shape.size[0] = strtoull(sizes, NULL, 10);
  for (size_t k = 0; k < length; k++)
    if (sizes[k] == '-')
      spec->classes = strtoull(sizes + k + 1, NULL, 10);
}

/* "784" or "3x32x32" */
static int shape_read(const char *text, struct trm_shape *shape)
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

/* n random classes onto the device. */
static int classes_make(struct work *work, int32_t **to, size_t n, uint32_t stream)
{
  struct trm_device *device = &work->device;
  TRM_CHECK(device->ops->alloc(device, n * sizeof **to, "bench: classes or tokens", (void **)to));
  int32_t *host = trm_alloc(n * sizeof *host, "bench: classes or tokens");
  for (size_t i = 0; i < n; i++)
    host[i] = (int32_t)(trm_random_uniform(2, TRM_RANDOM_BENCH, stream, i) * (float)work->spec.classes);
  device->ops->upload(device, *to, host, n * sizeof *host);
  trm_free(host);
  return device->ops->sync(device);
}

static int batches_make(struct work *work)
{
  struct trm_device *device = &work->device;
  const size_t rows = (size_t)work->batch, values = rows * trm_shape_count(&work->spec.shape);
  for (uint32_t k = 0; k < WORK_BATCHES; k++) {
    const uint32_t stream = (uint32_t)work->comm->rank * WORK_BATCHES + k;
    if (work->spec.tokens) {
      TRM_CHECK(classes_make(work, (int32_t **)&work->x[k], values, ~stream));
    } else {
      TRM_CHECK(device->ops->alloc(device, values * sizeof(float), "bench: samples", &work->x[k]));
      bench_fill(device, work->x[k], values, stream);
    }
    TRM_CHECK(classes_make(work, &work->target[k], work->spec.tokens ? values : rows, stream));
  }
  return TRM_OK;
}

static int strategy_open(struct work *work)
{
  work->strategy = (struct trm_strategy){.ops = work->job->parts.strategy,
                                         .comm = work->comm,
                                         .device = &work->device,
                                         .optimizer = &work->optimizer,
                                         .options = &work->job->options,
                                         .elements = work->model.parameters,
                                         .boundary = work->model.boundary,
                                         .boundaries = work->model.boundaries};
  const int created = work->strategy.ops->create(&work->strategy);
  if (created != TRM_OK)
    work->strategy.ops = NULL; /* nothing to destroy */
  return created;
}

int work_open(struct work *work)
{
  const struct trm_options *options = &work->job->options;
  work->comm = work->job->parts.comm;
  timed_device_open(&work->device, &work->timed, &work->job->device);
  sizes_guess(work->text, &work->spec);
  if (work->classes)
    work->spec.classes = (size_t)work->classes;
  if (work->input)
    TRM_CHECK(shape_read(work->input, &work->spec.shape));
  TRM_CHECK(trm_model_create(&work->model, work->text, options->train.loss, &work->spec));
  TRM_CHECK(trm_optimizer_create(&work->optimizer, options, work->model.tensor, work->model.tensors));
  TRM_CHECK(strategy_open(work));
  int status = trm_model_bind(&work->model, &work->device, work->strategy.w, work->strategy.g, (size_t)work->batch,
                              true);
  if (status == TRM_OK)
    status = batches_make(work);
  TRM_CHECK(trm_agree(work->comm, status));
  float *w = trm_alloc(work->model.parameters * sizeof *w, "bench: initial weights");
  trm_model_init(&work->model, 1, w);
  const float *const from[TRM_MAX_STATES] = {w};
  status = work->strategy.ops->restore(&work->strategy, from, 0);
  trm_free(w);
  return trm_agree(work->comm, status);
}

void work_close(struct work *work)
{
  for (int k = 0; k < WORK_BATCHES; k++) {
    if (work->x[k])
      work->device.ops->release(&work->device, work->x[k]);
    if (work->target[k])
      work->device.ops->release(&work->device, work->target[k]);
  }
  trm_model_free(&work->model);
  if (work->strategy.ops)
    work->strategy.ops->destroy(&work->strategy);
}

/* For passes that all ranks make together, as in training. */
static void reduce_sums(void *context, double *values, size_t n)
{
  struct trm_comm *comm = context;
  comm->ops->allreduce(comm, values, n, TRM_DOUBLE, TRM_SUM);
}

/* What hand_to_strategy needs. */
struct handover {
  struct trm_strategy *strategy;
  const struct trm_tally *tally;
};

static int hand_to_strategy(void *context, size_t low, size_t high)
{
  const struct handover *to = context;
  const struct trm_strategy_ops *ops = to->strategy->ops;
  return ops->grad_ready ? ops->grad_ready(to->strategy, low, high, to->tally) : TRM_OK;
}

int work_step(struct work *work, double *computed)
{
  struct trm_strategy *strategy = &work->strategy;
  const size_t rows = (size_t)work->batch, turn = work->taken++ % WORK_BATCHES;
  const bool tokens = work->spec.tokens;
  const struct trm_input input = {.rows = rows,
                                  .dense = tokens ? NULL : work->x[turn],
                                  .tokens = tokens ? work->x[turn] : NULL,
                                  .target_class = work->target[turn]};
  const uint64_t global = (uint64_t)rows * (uint64_t)work->comm->size;
  const struct trm_pass pass = {.device = &work->device,
                                .holder = work->strategy.holder,
                                .input = &input,
                                .training = true,
                                .seed = 1,
                                .first_row = work->taken * global + rows * (uint64_t)strategy->index,
                                .reduce = strategy->ops->lockstep && work->comm->size > 1 ? reduce_sums : NULL,
                                .reduce_context = work->comm};
  struct trm_tally tally = {0};
  if (strategy->ops->before_forward)
    TRM_CHECK(strategy->ops->before_forward(strategy));
  struct handover to = {strategy, &tally};
  TRM_CHECK(trm_model_train(&work->model, &pass, 1 / (float)global, &tally, hand_to_strategy, &to));
  *computed = work->comm->ops->clock(work->comm);
  TRM_CHECK(strategy->ops->step(strategy, work->job->options.optim.rate, &tally));
  return work->device.ops->sync(&work->device);
}

size_t work_items(const struct work *work)
{
  return work->spec.tokens ? trm_shape_count(&work->spec.shape) : 1;
}
