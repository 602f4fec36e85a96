/* trireme bench step: whole training steps, beside the time that products and optimizer must take.
 *
 * The step is the real one: model, device and strategy as in training, on batches that lie ready. The bound is measured
 * in the same process, in turns with the steps, so that what disturbs the machine disturbs both. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bench.h"
#include "core/memory.h"
#include "core/random.h"
#include "core/status.h"
#include "nn/model.h"
#include "nn/optimizer.h"

static const char usage[] =
  "usage: [mpiexec -n N] trireme bench step [--model=TEXT] [--batch=B] [--steps=S] [FLAG...] [--SECTION.KEY=VALUE...]\n"
  "\n"
  "Seconds of a whole training step (forward, loss, backward, strategy, update) on made-up samples that lie ready\n"
  "in memory, and the bound: what the step's matrix products take by themselves, plus the bytes that the optimizer\n"
  "moves, at the rate of memory. Steps and bound are measured in turns; medians. Several ranks: B samples *each*.\n"
  "\n"
  "  --model=TEXT   the model (default \"mlp 784-2048-2048-10 relu\")\n"
  "  --input=SHAPE  of a sample: F values, or CxHxW (default: what the model named is made for, else 784)\n"
  "  --classes=C    classes (default: the last size of an mlp, 1000 for resnet18 and vgg11, else 10)\n"
  "  --batch=B      samples a rank (default 256)\n"
  "  --steps=S      measured steps (default 30)\n"
  "  --warmup=W     steps before these (default 5)\n"
  "  --threads=T    threads a rank (default: the node's cores divided by its ranks)\n"
  "  --bound=no     only the steps\n"
  "  --json         one JSON object\n"
  "\n"
  "The options of a run are taken, too (trireme options); optim.lr is 0.01 and optim.momentum 0.9 if not given.\n";

enum { BATCHES = 4, MOST = 96 };

struct request {
  const char *model, *input;
  int64_t classes, batch, steps, warmup;
  bool bound, json;
};

struct bench {
  struct job *job;
  struct request request;
  struct trm_shape shape; /* of a sample */
  struct trm_comm *comm;
  struct trm_device *device;
  struct trm_model model;
  struct trm_optimizer optimizer;
  struct trm_strategy strategy;
  float *x[BATCHES];         /* device, (B, F) */
  int32_t *target[BATCHES];  /* device, (B) */
  size_t taken;              /* steps done */

  struct bench_product product[MOST];
  int products;
  float *w, *v, *g;          /* host, (slice): the arrays of the memory measure */
  size_t slice;              /* elements that this rank updates */
  double *step, *compute, *update, *memory; /* (steps) seconds; memory: of one pass over w, v and g */
  double wait_s, comm_s;     /* in all steps: waiting for others, communication */
};

static double now(const struct bench *b)
{
  return b->comm->ops->clock(b->comm);
}

/* -- the step */

static bool begins(const char *text, const char *with)
{
  return strncmp(text, with, strlen(with)) == 0;
}

/* Samples and classes that suit the model: of "mlp 784-2048-10 relu" its first and last size. */
static void sizes_guess(struct request *request, struct trm_shape *shape)
{
  const char *model = request->model + strspn(request->model, " ");
  size_t first = 784, last = 10;
  *shape = (struct trm_shape){.dims = 1};
  if (begins(model, "mlp ")) {
    const char *sizes = model + 4 + strspn(model + 4, " ");
    const size_t length = strcspn(sizes, " ");
    first = strtoull(sizes, NULL, 10);
    for (size_t i = 0; i < length; i++)
      if (sizes[i] == '-')
        last = strtoull(sizes + i + 1, NULL, 10);
  } else if (begins(model, "lenet5")) {
    *shape = (struct trm_shape){.dims = 3, .size = {1, 28, 28}};
  } else if (begins(model, "resnet18") || begins(model, "vgg11")) {
    *shape = (struct trm_shape){.dims = 3, .size = {3, 224, 224}};
    last = 1000;
  } else if (begins(model, "resnet")) {
    *shape = (struct trm_shape){.dims = 3, .size = {3, 32, 32}};
  }
  if (shape->dims == 1)
    shape->size[0] = first;
  if (!request->classes)
    request->classes = (int64_t)last;
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

static int batches_make(struct bench *b)
{
  const size_t rows = (size_t)b->request.batch, features = trm_shape_count(&b->shape);
  int32_t *class = trm_alloc(rows * sizeof *class, "bench: targets");
  int status = TRM_OK;
  for (uint32_t k = 0; k < BATCHES && status == TRM_OK; k++) {
    status = b->device->ops->alloc(b->device, rows * features * sizeof(float), "bench: samples", (void **)&b->x[k]);
    if (status == TRM_OK)
      status = b->device->ops->alloc(b->device, rows * sizeof(int32_t), "bench: targets", (void **)&b->target[k]);
    if (status != TRM_OK)
      break;
    const uint32_t stream = (uint32_t)b->comm->rank * BATCHES + k;
    bench_fill(b->device, b->x[k], rows * features, stream);
    for (size_t i = 0; i < rows; i++)
      class[i] = (int32_t)(trm_random_uniform(2, TRM_RANDOM_BENCH, stream, i) * (float)b->request.classes);
    b->device->ops->upload(b->device, b->target[k], class, rows * sizeof *class);
    status = b->device->ops->sync(b->device);
  }
  trm_free(class);
  return status;
}

static int training_open(struct bench *b)
{
  const struct trm_options *options = &b->job->options;
  const struct trm_input_spec spec = {.shape = b->shape,
                                      .target = TRM_TARGET_CLASS,
                                      .classes = (size_t)b->request.classes};
  TRM_CHECK(trm_model_create(&b->model, b->request.model, options->train.loss, &spec));
  TRM_CHECK(trm_optimizer_create(&b->optimizer, options, b->model.tensor, b->model.tensors));
  b->strategy = (struct trm_strategy){.ops = b->job->parts.strategy,
                                      .comm = b->comm,
                                      .device = b->device,
                                      .optimizer = &b->optimizer,
                                      .options = options,
                                      .elements = b->model.parameters,
                                      .boundary = b->model.boundary,
                                      .boundaries = b->model.boundaries};
  const int created = b->strategy.ops->create(&b->strategy);
  if (created != TRM_OK)
    b->strategy.ops = NULL; /* nothing to destroy */
  TRM_CHECK(created);
  int status = trm_model_bind(&b->model, b->device, b->strategy.w, b->strategy.g, (size_t)b->request.batch, true);
  if (status == TRM_OK)
    status = batches_make(b);
  TRM_CHECK(trm_agree(b->comm, status));
  float *w = trm_alloc(b->model.parameters * sizeof *w, "bench: initial weights");
  trm_model_init(&b->model, 1, w);
  const float *const from[TRM_MAX_STATES] = {w};
  status = b->strategy.ops->restore(&b->strategy, from, 0);
  trm_free(w);
  return trm_agree(b->comm, status);
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

/* One step, as train/train.c does it. *computed: the clock between the model's work and the strategy's. */
static int step_run(struct bench *b, double *computed)
{
  struct trm_strategy *strategy = &b->strategy;
  const size_t rows = (size_t)b->request.batch, turn = b->taken++ % BATCHES;
  const struct trm_input input = {.rows = rows, .dense = b->x[turn], .target_class = b->target[turn]};
  const uint64_t global = (uint64_t)rows * (uint64_t)b->comm->size;
  const struct trm_pass pass = {.device = b->device,
                                .input = &input,
                                .training = true,
                                .seed = 1,
                                .first_row = b->taken * global + rows * (uint64_t)strategy->index};
  struct trm_tally tally = {0};
  if (strategy->ops->before_forward)
    TRM_CHECK(strategy->ops->before_forward(strategy));
  struct handover to = {strategy, &tally};
  TRM_CHECK(trm_model_train(&b->model, &pass, 1 / (float)global, &tally, hand_to_strategy, &to));
  *computed = now(b);
  TRM_CHECK(strategy->ops->step(strategy, b->job->options.optim.rate, &tally));
  return b->device->ops->sync(b->device);
}

static int step_time(struct bench *b, size_t k, bool counts)
{
  double computed = 0;
  const double waited = b->strategy.wait_s, sent = b->strategy.comm_s;
  b->comm->ops->barrier(b->comm);
  const double begin = now(b);
  TRM_CHECK(step_run(b, &computed));
  const double end = now(b);
  if (counts) {
    b->wait_s += b->strategy.wait_s - waited;
    b->comm_s += b->strategy.comm_s - sent;
    b->step[k] = end - begin;
    b->compute[k] = computed - begin;
    b->update[k] = end - computed;
  }
  return TRM_OK;
}

/* -- the bound */

static int bound_open(struct bench *b)
{
  bool first = true;
  for (int i = 0; i < b->model.layers; i++) {
    const struct trm_layer *layer = &b->model.layer[i];
    if (strcmp(layer->ops->name, "linear"))
      continue;
    if (b->products + 3 > MOST)
      return trm_error(TRM_USAGE, "bench step: a bound over more than %d products: use --bound=no", MOST);
    b->products += bench_layer_products(&b->product[b->products], i, (size_t)b->request.batch,
                                        trm_shape_count(&layer->in), trm_shape_count(&layer->out), !first);
    first = false;
  }
  for (int i = 0; i < b->products; i++)
    TRM_CHECK(bench_product_open(&b->product[i], b->device, (size_t)b->request.steps));
  size_t low, high;
  trm_interval(b->model.parameters, (size_t)b->comm->size, (size_t)b->comm->rank, &low, &high);
  b->slice = high - low;
  b->w = trm_alloc(b->slice * sizeof *b->w, "bench: memory measure");
  b->v = trm_alloc(b->slice * sizeof *b->v, "bench: memory measure");
  b->g = trm_alloc(b->slice * sizeof *b->g, "bench: memory measure");
  for (size_t i = 0; i < b->slice; i++)
    b->g[i] = 1e-3f;
  return TRM_OK;
}

/* Reads three arrays and writes two of them, as momentum does: 5 floats an element over memory. */
static double memory_time(struct bench *b)
{
  float *restrict w = b->w, *restrict v = b->v;
  const float *restrict g = b->g;
  const size_t n = b->slice;
  b->comm->ops->barrier(b->comm);
  const double begin = now(b);
#pragma omp parallel for simd schedule(static) num_threads(b->device->threads)
  for (size_t i = 0; i < n; i++) {
    v[i] = 0.5f * v[i] + g[i];
    w[i] -= 0.5f * v[i];
  }
  return now(b) - begin;
}

static void bound_time(struct bench *b, size_t k)
{
  b->comm->ops->barrier(b->comm);
  for (int i = 0; i < b->products; i++) {
    bench_product_time(&b->product[i], b->job); /* brings its factors into the caches, as bench gemm does */
    b->product[i].took[k] = bench_product_time(&b->product[i], b->job);
  }
  b->memory[k] = memory_time(b);
}

/* Bytes that the update of one element moves: weights and states in and out, and a gradient of each rank in. */
static double element_bytes(const struct bench *b)
{
  return sizeof(float) * (2.0 + 2.0 * b->optimizer.states + b->comm->size);
}

/* -- the figures */

struct figures {
  double step_s, compute_s, update_s, items_per_s;
  double wait_s, comm_s; /* of update_s; means of the slowest rank's */
  double products_s, flop, memory_bytes_per_s, optimizer_s, bound_s; /* NAN without a bound */
};

/* Collective. */
static struct figures figures_make(struct bench *b)
{
  const size_t n = (size_t)b->request.steps;
  struct figures f = {.products_s = NAN, .memory_bytes_per_s = NAN, .optimizer_s = NAN, .bound_s = NAN};
  bench_slowest(b->comm, b->step, n);
  bench_slowest(b->comm, b->compute, n);
  bench_slowest(b->comm, b->update, n);
  double means[] = {b->wait_s / (double)n, b->comm_s / (double)n};
  bench_slowest(b->comm, means, 2);
  f.wait_s = means[0];
  f.comm_s = means[1];
  f.step_s = bench_median(b->step, n);
  f.compute_s = bench_median(b->compute, n);
  f.update_s = bench_median(b->update, n);
  f.items_per_s = (double)b->request.batch * b->comm->size / f.step_s;
  if (!b->request.bound)
    return f;
  f.products_s = 0;
  for (int i = 0; i < b->products; i++) {
    bench_slowest(b->comm, b->product[i].took, n);
    f.products_s += bench_median(b->product[i].took, n);
    f.flop += bench_product_flop(&b->product[i]);
  }
  bench_slowest(b->comm, b->memory, n);
  f.memory_bytes_per_s = 5 * sizeof(float) * (double)b->slice / bench_median(b->memory, n);
  f.optimizer_s = element_bytes(b) * (double)b->slice / f.memory_bytes_per_s;
  f.bound_s = f.products_s + f.optimizer_s;
  return f;
}

static void table_print(struct bench *b, const struct figures *f)
{
  printf("%s, %zu parameters\n%d rank%s x %d thread%s, %lld samples a rank, strategy %s, %s\n", b->model.text,
         trm_model_size(&b->model), b->comm->size, b->comm->size == 1 ? "" : "s", b->device->threads,
         b->device->threads == 1 ? "" : "s", (long long)b->request.batch, b->strategy.ops->name,
         b->device->blas->detail());
  printf("  step        %10.3f ms   %.0f samples/s over all ranks\n", 1e3 * f->step_s, f->items_per_s);
  printf("    model     %10.3f ms   forward, loss, backward\n", 1e3 * f->compute_s);
  printf("    strategy  %10.3f ms   sum over the ranks, update; means: %.3f ms waiting, %.3f ms in messages\n",
         1e3 * f->update_s, 1e3 * f->wait_s, 1e3 * f->comm_s);
  if (!b->request.bound)
    return;
  printf("  bound       %10.3f ms   %.1f %% of the step\n", 1e3 * f->bound_s, 100 * f->bound_s / f->step_s);
  printf("    products  %10.3f ms   %.1f GFLOP/s a rank\n", 1e3 * f->products_s, 1e-9 * f->flop / f->products_s);
  printf("    optimizer %10.3f ms   %.0f bytes an element at %.1f GB/s a rank\n", 1e3 * f->optimizer_s,
         element_bytes(b), 1e-9 * f->memory_bytes_per_s);
  for (int i = 0; i < b->products; i++) {
    const struct bench_product *p = &b->product[i];
    const double s = bench_median(p->took, (size_t)b->request.steps);
    printf("      %-16s %5zu x %5zu x %5zu %10.3f ms  %8.1f GFLOP/s\n", p->label, p->m, p->n, p->k, 1e3 * s,
           1e-9 * bench_product_flop(p) / s);
  }
}

static void json_print(struct bench *b, const struct figures *f)
{
  struct trm_json line;
  bench_line_open(&line, "step");
  trm_json_text(&line, "model", b->request.model);
  trm_json_text(&line, "strategy", b->strategy.ops->name);
  trm_json_integer(&line, "ranks", b->comm->size);
  trm_json_integer(&line, "threads", b->device->threads);
  trm_json_integer(&line, "batch", b->request.batch);
  trm_json_integer(&line, "params", (int64_t)trm_model_size(&b->model));
  trm_json_text(&line, "blas", b->device->blas->detail());
  trm_json_number(&line, "step_s", f->step_s);
  trm_json_number(&line, "items_per_s", f->items_per_s);
  trm_json_number(&line, "model_s", f->compute_s);
  trm_json_number(&line, "strategy_s", f->update_s);
  trm_json_number(&line, "wait_s", f->wait_s);
  trm_json_number(&line, "comm_s", f->comm_s);
  if (b->request.bound) {
    trm_json_number(&line, "bound_s", f->bound_s);
    trm_json_number(&line, "products_s", f->products_s);
    trm_json_number(&line, "optimizer_s", f->optimizer_s);
    trm_json_number(&line, "memory_gb_per_s", 1e-9 * f->memory_bytes_per_s);
    trm_json_number(&line, "share_of_bound", f->bound_s / f->step_s);
  }
  bench_line_close(&line);
}

static int measure(struct bench *b)
{
  const size_t steps = (size_t)b->request.steps, warmup = (size_t)b->request.warmup;
  TRM_CHECK(training_open(b));
  TRM_CHECK(trm_agree(b->comm, b->request.bound ? bound_open(b) : TRM_OK));
  b->step = trm_alloc(4 * steps * sizeof *b->step, "bench: times");
  b->compute = b->step + steps;
  b->update = b->compute + steps;
  b->memory = b->update + steps;
  for (size_t k = 0; k < warmup; k++)
    TRM_CHECK(step_time(b, 0, false));
  if (b->request.bound)
    bound_time(b, 0);
  for (size_t k = 0; k < steps; k++) {
    TRM_CHECK(step_time(b, k, true));
    if (b->request.bound)
      bound_time(b, k);
  }
  TRM_CHECK(b->strategy.ops->finish(&b->strategy));
  const struct figures f = figures_make(b);
  if (b->comm->rank == 0) {
    if (b->request.json)
      json_print(b, &f);
    else
      table_print(b, &f);
  }
  return TRM_OK;
}

static void bench_close(struct bench *b)
{
  for (int i = 0; i < b->products; i++)
    bench_product_close(&b->product[i], b->device);
  for (int k = 0; k < BATCHES; k++) {
    if (b->x[k])
      b->device->ops->release(b->device, b->x[k]);
    if (b->target[k])
      b->device->ops->release(b->device, b->target[k]);
  }
  trm_free(b->w);
  trm_free(b->v);
  trm_free(b->g);
  trm_free(b->step);
  trm_model_free(&b->model);
  if (b->strategy.ops)
    b->strategy.ops->destroy(&b->strategy);
}

/* The peers' optimizer, unless the user asks for another: flags come later and win. */
static char **with_defaults(int argc, char **argv, int *count)
{
  static char rate[] = "--optim.lr=0.01", momentum[] = "--optim.momentum=0.9";
  char **all = trm_alloc(((size_t)argc + 3) * sizeof *all, "bench: arguments");
  all[0] = argv[0];
  all[1] = rate;
  all[2] = momentum;
  for (int i = 1; i < argc; i++)
    all[i + 2] = argv[i];
  *count = argc + 2;
  return all;
}

int bench_step(int argc, char **argv)
{
  struct job job;
  struct bench b = {.job = &job};
  b.request = (struct request){
    .model = "mlp 784-2048-2048-10 relu", .batch = 256, .steps = 30, .warmup = 5, .bound = true};
  bool helped;
  const struct flag table[] = {{"model", FLAG_TEXT, &b.request.model, 0, 0},
                               {"input", FLAG_TEXT, &b.request.input, 0, 0},
                               {"classes", FLAG_INTEGER, &b.request.classes, 1, 1 << 24},
                               {"batch", FLAG_INTEGER, &b.request.batch, 1, 1 << 24},
                               {"steps", FLAG_INTEGER, &b.request.steps, 1, 1 << 20},
                               {"warmup", FLAG_INTEGER, &b.request.warmup, 1, 1 << 20},
                               {"threads", FLAG_INTEGER, &job.options.parallel.threads, 1, 65536},
                               {"bound", FLAG_BOOL, &b.request.bound, 0, 0},
                               {"json", FLAG_BOOL, &b.request.json, 0, 0},
                               {NULL, FLAG_BOOL, NULL, 0, 0}};
  const struct job_request request = {.command = "bench step", .usage = usage, .flags = table};
  int words, count;
  char **all = with_defaults(argc, argv, &count);
  int status = job_open(&job, &request, count, all, &words, &helped);
  if (status == TRM_OK && !helped) {
    b.comm = job.parts.comm;
    b.device = &job.device;
    sizes_guess(&b.request, &b.shape);
    status = b.request.input ? shape_read(b.request.input, &b.shape) : TRM_OK;
    if (status == TRM_OK)
      status = measure(&b);
    bench_close(&b);
  }
  job_close(&job);
  trm_free(all);
  return status;
}
