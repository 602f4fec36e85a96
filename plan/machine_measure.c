/* Work of all kinds, done and timed: by as many threads at once as ranks will compute on a node, for they share its
 * memory and its caches. Where a rank has one thread its processor time counts: whoever else works on this machine at
 * the moment takes none of it. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/memory.h"
#include "core/status.h"
#include "nn/loss.h"
#include "plan/machine.h"

enum { LEAST = 3, MOST = 25, ARRAYS = TRM_MAX_PARAMETERS + 6 };
#define ENOUGH_S 0.02 /* for one kind of work */
#define SMALL 0.01f   /* what arrays are filled with: an array of zeros may be no memory at all */

static double now(const struct trm_device *device)
{
  struct timespec t;
  clock_gettime(device->host_memory && device->threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* -- doing something several times, on several threads */

/* One thread's arrays for a piece of work, and the work. */
struct trial {
  struct trm_device *device;
  void *array[ARRAYS];
  int arrays;
  const void *what;
  int (*open)(struct trial *trial);
  void (*run)(struct trial *trial, bool backward);
  /* layers */
  struct trm_layer layer, tied;
  struct trm_pass pass;
  struct trm_input input;
  float *x, *y, *dy, *dx, *work;
  size_t n;

  bool both; /* there is a backward */
  int status;
  double took[2];
};

static int array_take(struct trial *trial, size_t elements, float **array)
{
  struct trm_device *device = trial->device;
  void *memory;
  TRM_CHECK(device->ops->alloc(device, (elements ? elements : 1) * sizeof(float), "a measurement", &memory));
  trial->array[trial->arrays++] = memory;
  *array = memory;
  device->ops->fill(device, *array, SMALL, elements);
  return TRM_OK;
}

static int by_value(const void *a, const void *b)
{
  const double one = *(const double *)a, two = *(const double *)b;
  return (one > two) - (one < two);
}

/* The median. The first time is not counted. */
static double time_of(struct trial *trial, bool backward)
{
  double took[MOST];
  int count = 0;
  trial->run(trial, backward);
  trial->device->ops->sync(trial->device); /* a failure comes again */
  const double begin = now(trial->device);
  while (count < LEAST || (count < MOST && now(trial->device) - begin < ENOUGH_S)) {
    const double before = now(trial->device);
    trial->run(trial, backward);
    trial->device->ops->sync(trial->device);
    took[count++] = now(trial->device) - before;
  }
  qsort(took, (size_t)count, sizeof *took, by_value);
  return took[count / 2];
}

static void *trial_run(void *context)
{
  struct trial *trial = context;
  trial->status = trial->open(trial);
  for (int k = 0; k < 1 + trial->both && trial->status == TRM_OK; k++)
    trial->took[k] = time_of(trial, k);
  if (trial->status == TRM_OK)
    trial->status = trial->device->ops->sync(trial->device);
  for (int i = 0; i < trial->arrays; i++)
    trial->device->ops->release(trial->device, trial->array[i]);
  return NULL;
}

/* Runs copies of the trial, one a device; took: means over them. */
static int trials_run(struct trm_machine_bench *bench, const struct trial *model, double took[2])
{
  const size_t n = (size_t)bench->devices;
  struct trial *trial = trm_alloc(n * sizeof *trial, "measurements");
  pthread_t *thread = trm_alloc(n * sizeof *thread, "measurements");
  const double begin = now(bench->device);
  bool *started = trm_alloc(n * sizeof *started, "measurements");
  for (size_t i = 0; i < n; i++) {
    trial[i] = *model;
    trial[i].device = &bench->device[i];
    started[i] = i > 0 && pthread_create(&thread[i], NULL, trial_run, &trial[i]) == 0;
  }
  trial_run(&trial[0]);
  int status = TRM_OK, count = 0;
  took[0] = took[1] = 0;
  for (size_t i = 0; i < n; i++) {
    if (started[i])
      pthread_join(thread[i], NULL);
    if (i > 0 && !started[i])
      continue;
    status = status == TRM_OK ? trial[i].status : status;
    took[0] += trial[i].took[0];
    took[1] += trial[i].took[1];
    count++;
  }
  took[0] /= count;
  took[1] /= count;
  trm_free(trial);
  trm_free(thread);
  trm_free(started);
  bench->spent += now(bench->device) - begin;
  return status;
}

/* -- layers */

void trm_machine_layer_name(const struct trm_layer *layer, char name[48])
{
  snprintf(name, 48, "%s%s", layer->ops->name, layer->needs_dx || layer->with >= 0 ? "" : " first");
}

struct trm_machine_work trm_machine_layer_work(const struct trm_layer *layer, size_t rows)
{
  const struct trm_cost cost = layer->ops->cost(layer);
  struct trm_machine_work work = {.flop = cost.flop * (double)rows, .bytes = cost.bytes * (double)rows};
  if (work.flop <= 0 && work.bytes <= 0)
    work.bytes = sizeof(float) * (double)(rows * (trm_shape_count(&layer->in) + trm_shape_count(&layer->out)));
  trm_machine_layer_name(layer, work.name);
  return work;
}

static int parameters_take(struct trial *trial, struct trm_layer *layer)
{
  for (int p = 0; p < layer->parameters; p++) {
    struct trm_parameter *parameter = &layer->parameter[p];
    float *both;
    TRM_CHECK(array_take(trial, 2 * (parameter->count + 16), &both));
    parameter->w = both;
    parameter->g = both + parameter->count + 16;
  }
  return TRM_OK;
}

static int layer_open(struct trial *trial)
{
  struct trm_layer *layer = &trial->layer;
  const struct trm_layer *whole = trial->what;
  const size_t rows = trial->input.rows, in = rows * trm_shape_count(&whole->in),
               out = rows * trm_shape_count(&whole->out);
  *layer = *whole;
  trial->pass.device = trial->device;
  trial->pass.input = &trial->input;
  TRM_CHECK(parameters_take(trial, layer));
  if (layer->tied) {
    trial->tied = *layer->tied;
    layer->tied = &trial->tied;
    trial->tied.parameters = 1;
    TRM_CHECK(parameters_take(trial, &trial->tied));
  }
  float *values; /* input, output and the gradient of it; that of the input is in the place of the input */
  const bool in_place = layer->ops->in_place;
  TRM_CHECK(array_take(trial, in + 2 * out + (in_place ? 0 : in), &values));
  trial->x = layer->from < 0 && layer->from != TRM_FROM_NONE ? (float *)trial->input.dense : values;
  trial->y = in_place && trial->x == values ? values : values + in;
  trial->dy = values + in + out;
  trial->dx = !layer->needs_dx ? NULL : in_place ? trial->dy : trial->dy + out;
  TRM_CHECK(array_take(trial, layer->workspace_fixed + rows * layer->workspace, &trial->work));
  return array_take(trial, layer->scratch, &layer->scratch_at);
}

static void layer_run(struct trial *trial, bool backward)
{
  struct trm_layer *layer = &trial->layer;
  if (backward)
    layer->ops->backward(layer, &trial->pass, trial->x, trial->y, trial->dy, trial->dx, trial->work);
  else
    layer->ops->forward(layer, &trial->pass, trial->x, trial->y, trial->work);
}

static int layer_measure(struct trm_machine *machine, struct trm_machine_bench *bench, const struct trm_layer *layer,
                         const struct trm_input *input, size_t rows)
{
  struct trm_machine_work work = trm_machine_layer_work(layer, rows);
  if (trm_machine_knows(machine, work.name, work.flop, work.bytes) || bench->spent > bench->seconds)
    return TRM_OK;
  struct trial trial = {.what = layer, .open = layer_open, .run = layer_run, .both = layer->needs_dy, .input = *input,
                        .pass = {.training = true, .seed = 1, .scale = 1}};
  trial.input.rows = trial.input.csr.rows = rows;
  double took[2];
  TRM_CHECK(trials_run(bench, &trial, took));
  work.forward_s = took[0];
  work.backward_s = took[1];
  trm_machine_add(machine, &work);
  return TRM_OK;
}

/* -- the loss */

static int loss_open(struct trial *trial)
{
  const struct trm_model *model = trial->what;
  const size_t rows = trial->input.rows, scores = rows * trm_shape_count(&model->layer[model->layers - 1].out);
  TRM_CHECK(array_take(trial, scores, &trial->y));
  TRM_CHECK(array_take(trial, scores, &trial->dy));
  return array_take(trial, 2 * rows * model->targets, &trial->x);
}

static void loss_run(struct trial *trial, bool backward)
{
  (void)backward;
  const struct trm_model *model = trial->what;
  model->loss->run(trial->device, &trial->input, &model->layer[model->layers - 1].out, trial->y, 1, model->smoothing,
                   trial->x, trial->x + trial->input.rows * model->targets, trial->dy);
}

static int loss_measure(struct trm_machine *machine, struct trm_machine_bench *bench, const struct trm_model *model,
                        const struct trm_input *input, size_t rows)
{
  struct trm_machine_work work = {
    .bytes = 2 * sizeof(float) * (double)(rows * trm_shape_count(&model->layer[model->layers - 1].out))};
  snprintf(work.name, sizeof work.name, "loss %.32s", model->loss->name);
  if (model->layer[model->layers - 1].divided || trm_machine_knows(machine, work.name, 0, work.bytes) ||
      bench->spent > bench->seconds)
    return TRM_OK;
  struct trial trial = {.what = model, .open = loss_open, .run = loss_run, .input = *input};
  trial.input.rows = trial.input.csr.rows = rows;
  double took[2];
  TRM_CHECK(trials_run(bench, &trial, took));
  work.forward_s = took[0];
  trm_machine_add(machine, &work);
  return TRM_OK;
}

int trm_machine_measure_model(struct trm_machine *machine, struct trm_machine_bench *bench,
                              const struct trm_model *model, const struct trm_input *input, size_t rows)
{
  for (int i = 0; i < model->layers; i++) {
    const struct trm_layer *layer = &model->layer[i];
    const bool moves = layer->move[0] != TRM_MOVE_NONE || layer->move[1] != TRM_MOVE_NONE;
    if (layer->with == TRM_FROM_NONE && layer->from != TRM_FROM_NONE && !moves)
      TRM_CHECK(layer_measure(machine, bench, layer, input, rows));
  }
  return model->layer[model->layers - 1].scores ? loss_measure(machine, bench, model, input, rows) : TRM_OK;
}

/* -- arrays */

/* Elements of arrays that caches hold, and of such as none does: what a step does with whole arrays finds nothing of
 * them in a cache, after the passes. */
static const size_t elements[] = {(size_t)1 << 14, (size_t)1 << 18, (size_t)1 << 22};

static int arrays_open(struct trial *trial)
{
  const struct trm_optimizer *optimizer = trial->what;
  TRM_CHECK(array_take(trial, trial->n, &trial->x));
  TRM_CHECK(array_take(trial, trial->n, &trial->y));
  return array_take(trial, (size_t)(optimizer->states + 1) * trial->n, &trial->work);
}

static void sum_run(struct trial *trial, bool backward)
{
  (void)backward;
  const float *const from[] = {trial->x, trial->work};
  trial->device->ops->sum(trial->device, trial->y, from, 2, trial->n);
}

static void copy_run(struct trial *trial, bool backward)
{
  (void)backward;
  trial->device->ops->copy(trial->device, trial->y, trial->x, trial->n * sizeof(float));
}

static void update_run(struct trial *trial, bool backward)
{
  (void)backward;
  const struct trm_tensor tensor = {.end = trial->n};
  struct trm_optimizer optimizer = *(const struct trm_optimizer *)trial->what;
  optimizer.tensor = &tensor;
  optimizer.tensors = 1;
  struct trm_update how = optimizer.update;
  how.rate = 1e-6f;
  how.scale = 1;
  how.step = 1;
  const float ratio = 1;
  float *state[TRM_MAX_STATES - 1] = {NULL};
  for (int i = 0; i < optimizer.states; i++)
    state[i] = trial->work + (size_t)i * trial->n;
  trm_optimizer_apply(&optimizer, trial->device, &how, &ratio, 0, trial->n, trial->x, trial->y, state);
}

static int array_measure(struct trm_machine *machine, struct trm_machine_bench *bench, const char *name, double floats,
                         void (*run)(struct trial *trial, bool backward), const struct trm_optimizer *optimizer)
{
  for (size_t i = 0; i < sizeof elements / sizeof *elements; i++) {
    const struct trial trial = {.what = optimizer, .open = arrays_open, .run = run, .n = elements[i]};
    struct trm_machine_work work = {.bytes = floats * sizeof(float) * (double)elements[i]};
    double took[2];
    snprintf(work.name, sizeof work.name, "%s", name);
    TRM_CHECK(trials_run(bench, &trial, took));
    work.forward_s = took[0];
    trm_machine_add(machine, &work);
  }
  return TRM_OK;
}

int trm_machine_measure_arrays(struct trm_machine *machine, struct trm_machine_bench *bench,
                               const struct trm_optimizer *optimizer)
{
  TRM_CHECK(array_measure(machine, bench, "sum", 3, sum_run, optimizer));
  TRM_CHECK(array_measure(machine, bench, "copy", 2, copy_run, optimizer));
  TRM_CHECK(array_measure(machine, bench, "update", 3 + 2.0 * optimizer->states, update_run, optimizer));
  if (!machine->messages_measured) { /* into shared memory, out of it, and what is done with it */
    const double bytes = 1 << 20;
    machine->message_bytes_per_s = bytes / (3 * trm_machine_seconds(machine, "copy", 0, bytes, NULL));
  }
  return TRM_OK;
}
