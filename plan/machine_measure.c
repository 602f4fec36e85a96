/* Measures layers, losses and array operations. As many threads work at once as ranks will compute on a node, because
 * they share its memory and caches. Where a rank has one thread, its processor time is measured, which other processes
 * do not add to.
 *
 * In a step other ranks have written most of the weights and read the gradients, which are therefore in the caches of
 * other cores. So the threads pass the parameters of a layer on, from each repetition to the next. */
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "core/memory.h"
#include "core/status.h"
#include "nn/loss.h"
#include "plan/machine.h"

enum { MIN_REPEATS = 3, MAX_REPEATS = 25, ARRAYS = TRM_MAX_PARAMETERS + 6 };
#define TARGET_S 0.02    /* seconds per kind of work */
#define FILL_VALUE 0x1.467846p-7f /* of arrays: of floats, or 0x1.46p-7 of bfloat16; zero pages may not be in memory */

static double measure_clock(const struct trm_device *device)
{
  struct timespec t;
  clock_gettime(device->host_memory && device->threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* -- repeated work on several threads */

/* Of the threads that measure together. */
struct trial_group {
  struct trial *trial;  /* (threads) */
  _Atomic int threads;  /* 0: not yet known */
  _Atomic int arrivals; /* of all threads at all barriers */
  _Atomic bool failed;  /* setup, in some thread */
  int repeats;          /* by the first thread */
};

/* The work of one thread, and its arrays. */
struct trial {
  struct trial_group *group;
  int number, barriers, passes; /* of this thread; its barriers; repetitions with passed parameters */
  struct trm_device *device;
  void *array[ARRAYS];
  int arrays;
  const void *subject;
  int (*setup)(struct trial *trial);
  void (*run)(struct trial *trial, bool backward);
  /* layers */
  struct trm_layer layer, tied;
  float *own[TRM_MAX_PARAMETERS + 1]; /* weight and gradient of each parameter, then of the tied one: this thread's */
  struct trm_pass pass;
  struct trm_input input;
  float *x, *y, *dy, *dx, *workspace;
  size_t n;

  bool has_backward;
  int status;
  double seconds[2];
};

static int measure_alloc_array(struct trial *trial, size_t elements, float **array)
{
  struct trm_device *device = trial->device;
  void *memory;
  TRM_CHECK(device->ops->alloc(device, (elements ? elements : 1) * sizeof(float), TRM_MEMORY_BUFFERS, &memory));
  trial->array[trial->arrays++] = memory;
  *array = memory;
  device->ops->fill(device, *array, FILL_VALUE, elements);
  return TRM_OK;
}

/* Returns when all threads have called it as often. */
static void measure_barrier(struct trial *trial)
{
  struct trial_group *group = trial->group;
  trial->barriers++;
  atomic_fetch_add(&group->arrivals, 1);
  while (atomic_load(&group->threads) == 0 || atomic_load(&group->arrivals) < trial->barriers * group->threads)
    sched_yield();
}

/* Offset of the gradient in an array of parameters. */
static size_t measure_gradient_at(const struct trm_parameter *parameter)
{
  return parameter->count + 16;
}

/* Writes the weights, as an update does, and takes the next thread's parameters. */
static void measure_pass_parameters(struct trial *trial)
{
  struct trm_layer *layer = &trial->layer;
  const struct trial_group *group = trial->group;
  struct trm_device *device = trial->device;
  const int parameters = layer->parameters + (layer->tied ? 1 : 0);
  if (parameters == 0 || group->threads == 1 || !device->host_memory)
    return;
  trial->passes++;
  const struct trial *next = &group->trial[(trial->number + trial->passes) % group->threads];
  for (int p = 0; p < layer->parameters; p++)
    device->ops->fill(device, layer->parameter[p].w, FILL_VALUE, layer->parameter[p].count);
  measure_barrier(trial);
  for (int p = 0; p < parameters; p++) {
    struct trm_parameter *parameter = p < layer->parameters ? &layer->parameter[p] : &trial->tied.parameter[0];
    parameter->w = next->own[p];
    parameter->values = next->own[p];
    parameter->g = next->own[p] + measure_gradient_at(parameter);
  }
}

static double measure_once(struct trial *trial, bool backward)
{
  const double begin = measure_clock(trial->device);
  trial->run(trial, backward);
  trial->device->ops->sync(trial->device); /* failures are reported again by the next sync */
  return measure_clock(trial->device) - begin;
}

/* The median of the repetitions; two first ones are not counted. */
static double measure_median(struct trial *trial, bool backward)
{
  double seconds[MAX_REPEATS];
  measure_once(trial, backward);
  const double once = measure_once(trial, backward);
  if (trial->number == 0)
    trial->group->repeats = (int)fmin(fmax(TARGET_S / fmax(once, 1e-9), MIN_REPEATS), MAX_REPEATS);
  measure_barrier(trial);
  const int repeats = trial->group->repeats;
  for (int i = 0; i < repeats; i++) {
    measure_pass_parameters(trial);
    seconds[i] = measure_once(trial, backward);
  }
  measure_barrier(trial);
  return trm_quantile(seconds, (size_t)repeats, 0.5);
}

static void *measure_run_trial(void *context)
{
  struct trial *trial = context;
  trial->status = trial->setup(trial);
  if (trial->status != TRM_OK)
    atomic_store(&trial->group->failed, true);
  measure_barrier(trial);
  for (int k = 0; k < 1 + trial->has_backward && !trial->group->failed; k++)
    trial->seconds[k] = measure_median(trial, k);
  if (trial->status == TRM_OK)
    trial->status = trial->device->ops->sync(trial->device);
  for (int i = 0; i < trial->arrays; i++)
    trial->device->ops->release(trial->device, trial->array[i]);
  return NULL;
}

/* Runs copies of the trial on all devices at once, or on as many as threads can be started. Adds the work with the
 * means of their seconds. */
static int measure_work(struct trm_machine *machine, struct trm_machine_bench *bench, struct trm_machine_work work,
                        const struct trial *prototype)
{
  const int n = bench->devices;
  struct trial *trial = trm_alloc((size_t)n * sizeof *trial, "measurements");
  pthread_t *thread = trm_alloc((size_t)n * sizeof *thread, "measurements");
  struct trial_group group = {.trial = trial};
  const double begin = measure_clock(bench->device);
  for (int i = 0; i < n; i++) {
    trial[i] = *prototype;
    trial[i].device = &bench->device[i];
    trial[i].group = &group;
    trial[i].number = i;
  }
  int threads = 1;
  while (threads < n && pthread_create(&thread[threads], NULL, measure_run_trial, &trial[threads]) == 0)
    threads++;
  atomic_store(&group.threads, threads);
  measure_run_trial(&trial[0]);
  int status = TRM_OK;
  for (int i = 0; i < threads; i++) {
    if (i > 0)
      pthread_join(thread[i], NULL);
    status = status == TRM_OK ? trial[i].status : status;
    work.forward_s += trial[i].seconds[0] / threads;
    work.backward_s += trial[i].seconds[1] / threads;
  }
  trm_free(trial);
  trm_free(thread);
  bench->spent += measure_clock(bench->device) - begin;
  TRM_CHECK(status);
  trm_machine_add(machine, &work);
  return TRM_OK;
}

/* The same, unless the work is known already or the time is over. */
static int measure_unknown_work(struct trm_machine *machine, struct trm_machine_bench *bench,
                                const struct trm_machine_work *work, const struct trial *prototype)
{
  if (trm_machine_has(machine, work->name, work->flop, work->bytes) || bench->spent > bench->seconds)
    return TRM_OK;
  return measure_work(machine, bench, *work, prototype);
}

/* -- layers */

bool trm_machine_is_layer_work(const struct trm_layer *layer)
{
  const bool reshards = layer->ops->reshard[0] != TRM_RESHARD_NONE || layer->ops->reshard[1] != TRM_RESHARD_NONE;
  return layer->addend == TRM_FROM_NONE && layer->from != TRM_FROM_NONE && !reshards;
}

/* Of names of work on values. */
static const char *measure_suffix(enum trm_value_type values)
{
  return values == TRM_VALUES_F32 ? "" : " bf16";
}

void trm_machine_loss_name(const struct trm_model *model, char name[48])
{
  snprintf(name, 48, "loss %.32s%s", model->loss->name, measure_suffix(model->values));
}

struct trm_machine_work trm_machine_layer_work(const struct trm_layer *layer, size_t rows)
{
  const struct trm_cost cost = trm_layer_cost(layer);
  struct trm_machine_work work = {.flop = cost.flop * (double)rows, .bytes = cost.bytes * (double)rows};
  if (work.flop <= 0 && work.bytes <= 0)
    work.bytes = (double)trm_value_bytes(layer->values) *
                 (double)(rows * (trm_shape_count(&layer->in) + trm_shape_count(&layer->out)));
  snprintf(work.name, sizeof work.name, "%s%s%s", layer->ops->name,
           layer->needs_dx || layer->addend >= 0 ? "" : " first", measure_suffix(layer->values));
  return work;
}

/* own: trial->own from the layer's first parameter on. */
static int measure_alloc_parameters(struct trial *trial, struct trm_layer *layer, float **own)
{
  for (int p = 0; p < layer->parameters; p++) {
    struct trm_parameter *parameter = &layer->parameter[p];
    TRM_CHECK(measure_alloc_array(trial, 2 * measure_gradient_at(parameter), &own[p]));
    parameter->w = own[p];
    parameter->values = own[p];
    parameter->g = own[p] + measure_gradient_at(parameter);
  }
  return TRM_OK;
}

static int measure_layer_open(struct trial *trial)
{
  struct trm_layer *layer = &trial->layer;
  const struct trm_layer *source = trial->subject;
  const size_t rows = trial->input.rows, in = rows * trm_shape_count(&source->in),
               out = rows * trm_layer_output_elements(source);
  *layer = *source; /* with the same settings, which are only read */
  layer->rows = layer->output_rows = rows;
  trial->pass.device = trial->device;
  trial->pass.input = &trial->input;
  TRM_CHECK(measure_alloc_parameters(trial, layer, trial->own));
  if (layer->tied) {
    trial->tied = *layer->tied;
    layer->tied = &trial->tied;
    trial->tied.parameters = 1;
    TRM_CHECK(measure_alloc_parameters(trial, &trial->tied, trial->own + layer->parameters));
  }
  float *values; /* x, y and dy; dx overwrites x */
  const bool in_place = layer->ops->in_place;
  TRM_CHECK(measure_alloc_array(trial, in + 2 * out + (in_place ? 0 : in), &values));
  trial->x = layer->from < 0 && layer->from != TRM_FROM_NONE ? (float *)trial->input.dense : values;
  trial->y = in_place && trial->x == values ? values : values + in;
  trial->dy = values + in + out;
  trial->dx = !layer->needs_dx ? NULL : in_place ? trial->dy : trial->dy + out;
  TRM_CHECK(measure_alloc_array(trial, layer->workspace_fixed + rows * layer->workspace, &trial->workspace));
  return measure_alloc_array(trial, layer->scratch, &layer->scratch_at);
}

static void measure_layer_run(struct trial *trial, bool backward)
{
  struct trm_layer *layer = &trial->layer;
  if (backward)
    layer->ops->backward(layer, &trial->pass, trial->x, trial->y, trial->dy, trial->dx, trial->workspace);
  else
    layer->ops->forward(layer, &trial->pass, trial->x, trial->y, trial->workspace);
}

static int measure_layer(struct trm_machine *machine, struct trm_machine_bench *bench, const struct trm_layer *layer,
                         const struct trm_input *input, size_t rows)
{
  const struct trm_machine_work work = trm_machine_layer_work(layer, rows);
  struct trial trial = {.subject = layer,
                        .setup = measure_layer_open,
                        .run = measure_layer_run,
                        .has_backward = layer->needs_dy,
                        .input = *input,
                        .pass = {.training = true, .seed = 1, .scale = 1}};
  trial.input.rows = trial.input.csr.rows = rows;
  return measure_unknown_work(machine, bench, &work, &trial);
}

/* -- the loss */

static int measure_loss_open(struct trial *trial)
{
  const struct trm_model *model = trial->subject;
  const size_t rows = trial->input.rows, scores = rows * trm_layer_output_elements(&model->layer[model->layers - 1]);
  TRM_CHECK(measure_alloc_array(trial, scores, &trial->y));
  TRM_CHECK(measure_alloc_array(trial, scores, &trial->dy));
  return measure_alloc_array(trial, 2 * rows * model->targets, &trial->x);
}

static void measure_loss_run(struct trial *trial, bool backward)
{
  (void)backward;
  const struct trm_model *model = trial->subject;
  struct trm_loss_call call = {.device = trial->device,
                               .input = &trial->input,
                               .type = model->values,
                               .scores = trial->y,
                               .scale = 1,
                               .smoothing = model->smoothing,
                               .delta = model->huber_delta,
                               .row_loss = trial->x,
                               .row_correct = trial->x + trial->input.rows * model->targets,
                               .gradient = trial->dy};
  trm_loss_call_shape(&call, &model->layer[model->layers - 1]);
  model->loss->run(&call);
}

static int measure_loss(struct trm_machine *machine, struct trm_machine_bench *bench, const struct trm_model *model,
                        const struct trm_input *input, size_t rows)
{
  struct trm_machine_work work = {
    .bytes = 2.0 * (double)trm_value_bytes(model->values) *
             (double)(rows * trm_shape_count(&model->layer[model->layers - 1].out))};
  trm_machine_loss_name(model, work.name);
  if (model->layer[model->layers - 1].output_sharded)
    return TRM_OK;
  struct trial trial = {.subject = model, .setup = measure_loss_open, .run = measure_loss_run, .input = *input};
  trial.input.rows = trial.input.csr.rows = rows;
  return measure_unknown_work(machine, bench, &work, &trial);
}

int trm_machine_measure_model(struct trm_machine *machine, struct trm_machine_bench *bench,
                              const struct trm_model *model, const struct trm_input *input, size_t rows)
{
  for (int i = 0; i < model->layers; i++) {
    if (trm_machine_is_layer_work(&model->layer[i]))
      TRM_CHECK(measure_layer(machine, bench, &model->layer[i], input, rows));
  }
  return model->layer[model->layers - 1].is_output ? measure_loss(machine, bench, model, input, rows) : TRM_OK;
}

/* -- batches */

/* A data set, read from its begin on, again and again. */
struct measured_batches {
  struct trm_dataset *dataset;
  struct trm_host_batch batch;
  struct trm_device_batch device_batch;
  size_t rows, next;
  int status;
};
enum { BATCHES = 64 }; /* that are read: more than the caches near a core hold, and few enough to be in memory */

static void measure_batches_run(struct trial *trial, bool backward)
{
  struct measured_batches *m = (void *)(uintptr_t)trial->subject;
  struct trm_input input;
  (void)backward;
  if (m->next + m->rows > m->dataset->rows || m->next >= BATCHES * m->rows)
    m->next = 0;
  int status = m->dataset->ops->fetch(m->dataset, 0, m->next, m->next + m->rows, &m->batch);
  if (status == TRM_OK)
    status = trm_device_batch_upload(&m->device_batch, &m->batch, &input);
  m->status = m->status == TRM_OK ? status : m->status;
  m->next += m->rows;
}

/* Reads the batches once, so that they are in memory. */
static int measure_batches_open(struct trial *trial)
{
  for (int i = 0; i < BATCHES; i++)
    measure_batches_run(trial, false);
  return TRM_OK;
}

double trm_machine_batch_bytes(const struct trm_model *model, size_t rows)
{
  return (double)(rows * trm_shape_count(&model->spec.shape) * sizeof(float));
}

int trm_machine_measure_batches(struct trm_machine *machine, struct trm_machine_bench *bench,
                                struct trm_dataset *dataset, const struct trm_model *model, size_t rows)
{
  struct trm_machine_bench one = *bench;
  const struct trm_machine_work work = {.name = "batch", .bytes = trm_machine_batch_bytes(model, rows)};
  struct measured_batches m = {.dataset = dataset, .rows = rows};
  const struct trial trial = {.subject = &m, .setup = measure_batches_open, .run = measure_batches_run};
  one.devices = 1;
  trm_device_batch_create(&m.device_batch, bench->device, model);
  const int status = measure_unknown_work(machine, &one, &work, &trial);
  bench->spent = one.spent;
  trm_device_batch_free(&m.device_batch);
  trm_host_batch_free(&m.batch);
  return status == TRM_OK ? m.status : status;
}

/* -- arrays */

/* Elements of arrays within and beyond the caches. After the passes, no part of the flat arrays is in them. */
static const size_t array_sizes[] = {(size_t)1 << 14, (size_t)1 << 18, (size_t)1 << 20, (size_t)1 << 22};

static int measure_arrays_open(struct trial *trial)
{
  const struct trm_optimizer *optimizer = trial->subject;
  TRM_CHECK(measure_alloc_array(trial, trial->n, &trial->x));
  TRM_CHECK(measure_alloc_array(trial, trial->n, &trial->y));
  return measure_alloc_array(trial, (size_t)(optimizer->states + 1) * trial->n, &trial->workspace);
}

static void measure_sum_run(struct trial *trial, bool backward)
{
  (void)backward;
  const float *const from[] = {trial->x, trial->workspace};
  trial->device->ops->sum(trial->device, &(struct trm_sum){.to = trial->y, .from = from, .count = 2, .n = trial->n});
}

static void measure_copy_run(struct trial *trial, bool backward)
{
  (void)backward;
  trial->device->ops->copy(trial->device, trial->y, trial->x, trial->n * sizeof(float));
}

static void measure_update_run(struct trial *trial, bool backward)
{
  (void)backward;
  const struct trm_tensor tensor = {.end = trial->n};
  struct trm_optimizer optimizer = *(const struct trm_optimizer *)trial->subject;
  optimizer.tensor = &tensor;
  optimizer.tensors = 1;
  optimizer.statistics = 0;
  struct trm_update update = optimizer.update;
  update.rate = 1e-6f;
  update.scale = 1;
  update.step = 1;
  const float ratio = 1;
  float *state[TRM_MAX_STATES - 1] = {NULL};
  for (int i = 0; i < optimizer.states; i++)
    state[i] = trial->workspace + (size_t)i * trial->n;
  const struct trm_update_interval to = {0, trial->n, trial->x, state, NULL};
  trm_optimizer_apply(&optimizer, trial->device, &update, &ratio, &to, trial->y);
}

/* subject: host memory for all threads, (devices, n). */
static float *measure_host_array(const struct trial *trial)
{
  return (float *)(uintptr_t)trial->subject + (size_t)trial->number * trial->n;
}

static int measure_transfer_open(struct trial *trial)
{
  return measure_alloc_array(trial, trial->n, &trial->x);
}

static void measure_upload_run(struct trial *trial, bool backward)
{
  (void)backward;
  trial->device->ops->upload(trial->device, trial->x, measure_host_array(trial), trial->n * sizeof(float));
}

static void measure_download_run(struct trial *trial, bool backward)
{
  (void)backward;
  trial->device->ops->download(trial->device, measure_host_array(trial), trial->x, trial->n * sizeof(float));
}

/* Copies between the host and a device with memory of its own. */
static int measure_transfers(struct trm_machine *machine, struct trm_machine_bench *bench)
{
  for (size_t i = 0; i < sizeof array_sizes / sizeof *array_sizes; i++) {
    const size_t n = array_sizes[i];
    float *host = trm_alloc((size_t)bench->devices * n * sizeof *host, "measurements");
    struct trial trial = {.subject = host, .setup = measure_transfer_open, .run = measure_upload_run, .n = n};
    struct trm_machine_work work = {.name = "upload", .bytes = sizeof(float) * (double)n};
    int status = measure_work(machine, bench, work, &trial);
    trial.run = measure_download_run;
    snprintf(work.name, sizeof work.name, "download");
    if (status == TRM_OK)
      status = measure_work(machine, bench, work, &trial);
    trm_free(host);
    TRM_CHECK(status);
  }
  return TRM_OK;
}

static int measure_array(struct trm_machine *machine, struct trm_machine_bench *bench, const char *name, double floats,
                         void (*run)(struct trial *trial, bool backward), const struct trm_optimizer *optimizer)
{
  for (size_t i = 0; i < sizeof array_sizes / sizeof *array_sizes; i++) {
    const struct trial trial = {.subject = optimizer, .setup = measure_arrays_open, .run = run, .n = array_sizes[i]};
    struct trm_machine_work work = {.bytes = floats * sizeof(float) * (double)array_sizes[i]};
    snprintf(work.name, sizeof work.name, "%s", name);
    TRM_CHECK(measure_work(machine, bench, work, &trial));
  }
  return TRM_OK;
}

/* The operations on arrays of the bench's devices, under these names. */
static int measure_arrays_of(struct trm_machine *machine, struct trm_machine_bench *bench, const char *const name[3],
                             const struct trm_optimizer *optimizer)
{
  TRM_CHECK(measure_array(machine, bench, name[0], 3, measure_sum_run, optimizer));
  TRM_CHECK(measure_array(machine, bench, name[1], 2, measure_copy_run, optimizer));
  return measure_array(machine, bench, name[2], 3 + 2.0 * optimizer->states, measure_update_run, optimizer);
}

/* The same on the hosts' devices. */
static int measure_host_arrays(struct trm_machine *machine, struct trm_machine_bench *bench,
                               const struct trm_optimizer *optimizer)
{
  static const char *const name[] = {"sum", "copy", "update"};
  struct trm_machine_bench host = *bench;
  host.device = trm_alloc((size_t)bench->devices * sizeof *host.device, "devices");
  for (int i = 0; i < bench->devices; i++)
    host.device[i] = *trm_device_host(&bench->device[i]);
  const int status = measure_arrays_of(machine, &host, name, optimizer);
  bench->spent = host.spent;
  trm_free(host.device);
  return status;
}

int trm_machine_measure_arrays(struct trm_machine *machine, struct trm_machine_bench *bench,
                               const struct trm_optimizer *optimizer)
{
  static const char *const name[] = {"device sum", "device copy", "device update"};
  if (machine->device_bytes > 0) {
    TRM_CHECK(measure_arrays_of(machine, bench, name, optimizer));
    TRM_CHECK(measure_transfers(machine, bench));
  }
  TRM_CHECK(measure_host_arrays(machine, bench, optimizer));
  if (!machine->messages_measured) { /* estimate: a copy into shared memory and one out of it */
    const double bytes = 1 << 20;
    machine->message_bytes_per_s = bytes / (3 * trm_machine_seconds(machine, "copy", 0, bytes, NULL));
  }
  return TRM_OK;
}
