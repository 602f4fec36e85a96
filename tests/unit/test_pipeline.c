/* Pipelines against one rank that computes the same micro-batches: gradients and tallies bit for bit, of every layer and
 * many ways of branching, for schedules, numbers of micro-batches, rows that do not divide, micro-batches without rows, a
 * device with its own memory; a weight that two stages hold; evaluation; versions of the weights where there is no flush;
 * where the chain is cut. Meant for 1 to 4 ranks. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/memory.h"
#include "kernels/kernels.h"
#include "mpi/pipeline/pipeline.h"
#include "nn/balance.h"
#include "ranks.h"
#include "support/nn_case.h"

enum { MICROS = 8 };

/* What is computed: the same on all ranks. */
struct setup {
  const char *text, *loss, *schedule;
  const struct trm_input_spec *spec;
  int micros, chunks;
  size_t rows;
  bool no_stash;
};

static const char *text_of(const struct setup *s)
{
  static char text[512];
  snprintf(text, sizeof text, "%s, %s, %d micro-batches of %zu rows, %d stages", s->text, s->schedule, s->micros, s->rows,
           world->size);
  return text;
}

#define CHECK(setup, condition)                                                                \
  do {                                                                                         \
    const bool holds = (condition);                                                            \
    if (!holds)                                                                                \
      printf("\n    %s, rank %d: %s (%s)\n", text_of(setup), world->rank, #condition, trm_error_text()); \
    CU_ASSERT(holds);                                                                          \
  } while (0)

/* One stage, beside the whole model. */
struct stage {
  const struct setup *setup;
  struct trm_device *device;
  struct nn_case whole;
  struct trm_model model;
  float *w, *g;
  struct trm_pipeline pipeline;
  size_t rows[MICROS], low[MICROS];
  struct trm_pipeline_batch batch;
  struct trm_tally tally;
  size_t handed;          /* up to here */
  bool in_order;
  void *kept;
};

static float *floats_take(struct trm_device *device, size_t n)
{
  void *memory;
  CU_ASSERT_FATAL(device->ops->alloc(device, n * sizeof(float), "test", &memory) == TRM_OK);
  return memory;
}

/* The place of one of the part's parameters in the whole. */
static const struct trm_parameter *in_whole(const struct stage *s, const struct trm_parameter *parameter)
{
  const struct trm_parameter *there = trm_model_parameter(&s->whole.model, parameter->number);
  CU_ASSERT_FATAL(there->count == parameter->count && strcmp(there->name, parameter->name) == 0);
  return there;
}

static void weights_set(struct stage *s)
{
  for (int n = 0; n < trm_model_parameter_count(&s->model); n++) {
    const struct trm_parameter *p = trm_model_parameter(&s->model, n);
    s->device->ops->copy(s->device, s->w + p->offset, s->whole.w + in_whole(s, p)->offset, p->count * sizeof(float));
  }
}

/* false: the model cannot be cut so often. */
static bool stage_open(struct stage *s, const struct setup *setup, struct trm_device *device)
{
  *s = (struct stage){.setup = setup, .device = device};
  struct trm_schedule schedule;
  struct trm_model_part part = {.tensors = 1};
  CHECK(setup, trm_schedule_create(&schedule, setup->schedule, world->size, setup->chunks, setup->micros) == TRM_OK);
  const size_t most = (setup->rows + (size_t)setup->micros - 1) / (size_t)setup->micros;
  CU_ASSERT_FATAL(nn_case_open(&s->whole, device, setup->text, setup->loss, setup->spec, most ? most : 1, 3) == TRM_OK);
  if (trm_balance_part(&s->whole.model, "auto", schedule.stages, schedule.chunks, world->rank, &part) != TRM_OK) {
    nn_case_close(&s->whole);
    return false;
  }
  CU_ASSERT_FATAL(trm_model_create_part(&s->model, setup->text, setup->loss, setup->spec, &part) == TRM_OK);
  s->w = floats_take(device, s->model.parameters);
  s->g = floats_take(device, s->model.parameters);
  weights_set(s);
  s->pipeline = (struct trm_pipeline){.ops = &trm_pipeline_messages, .comm = world, .model = &s->model,
                                      .schedule = schedule, .stash = !setup->no_stash};
  CU_ASSERT_FATAL(s->pipeline.ops->create(&s->pipeline) == TRM_OK);
  CU_ASSERT_FATAL(trm_model_bind_slots(&s->model, device, s->w, s->g, most, true, s->pipeline.slots) == TRM_OK);
  nn_case_draw(&s->whole, setup->rows, 11);
  for (int m = 0; m < setup->micros; m++) {
    size_t high;
    trm_interval(setup->rows, (size_t)setup->micros, (size_t)m, &s->low[m], &high);
    s->rows[m] = high - s->low[m];
  }
  s->batch = (struct trm_pipeline_batch){.first_row = 100, .scale = 1.0f / (float)setup->rows, .micros = setup->micros,
                                         .rows = s->rows};
  return true;
}

static void stage_close(struct stage *s)
{
  s->pipeline.ops->destroy(&s->pipeline);
  trm_model_free(&s->model);
  s->device->ops->release(s->device, s->w);
  s->device->ops->release(s->device, s->g);
  nn_case_close(&s->whole);
}

/* A stage gets nothing but what it asked for. */
static int give_input(void *context, int batch, int micro, int slot, bool features, bool targets, struct trm_input *input)
{
  struct stage *s = context;
  CHECK(s->setup, batch == 0 && slot < s->model.slots && (features || targets));
  CHECK(s->setup, features == (world->rank == 0 && s->model.chunk_now == 0));
  *input = nn_case_part(&s->whole, s->low[micro], s->low[micro] + s->rows[micro]);
  if (!features) {
    input->dense = NULL;
    input->tokens = NULL;
    input->csr = (struct trm_csr){0};
  }
  if (!targets) {
    input->target_class = NULL;
    input->target_value = NULL;
  }
  return TRM_OK;
}

static int take_ready(void *context, int batch, size_t low, size_t high, const struct trm_tally *tally)
{
  struct stage *s = context;
  s->in_order = s->in_order && batch == 0 && low == s->handed && high > low && tally->stop == world->size &&
                tally->rows == (double)(s->setup->rows * s->model.targets);
  s->handed = high;
  return TRM_OK;
}

static struct trm_pipeline_run run_of(struct stage *s)
{
  return (struct trm_pipeline_run){.pass = {.device = s->device, .training = true, .seed = 7}, .batch = &s->batch,
                                   .batches = 1, .context = s, .input = give_input, .ready = take_ready};
}

/* The same micro-batches by the whole model. */
static struct trm_tally train_whole(struct stage *s)
{
  struct trm_tally tally = {0};
  for (int m = 0; m < s->setup->micros; m++) {
    const struct trm_input input = nn_case_part(&s->whole, s->low[m], s->low[m] + s->rows[m]);
    struct trm_pass pass = {.device = s->device, .input = &input, .training = true, .seed = 7,
                            .first_row = 100 + s->low[m], .beta = m ? 1 : 0};
    CU_ASSERT_FATAL(trm_model_train(&s->whole.model, &pass, s->batch.scale, &tally, NULL, NULL) == TRM_OK);
  }
  return tally;
}

static struct trm_tally evaluate_whole(struct stage *s)
{
  struct trm_tally tally = {0};
  for (int m = 0; m < s->setup->micros; m++) {
    const struct trm_input input = nn_case_part(&s->whole, s->low[m], s->low[m] + s->rows[m]);
    const struct trm_pass pass = {.device = s->device, .input = &input};
    CU_ASSERT_FATAL(trm_model_evaluate(&s->whole.model, &pass, &tally) == TRM_OK);
  }
  return tally;
}

static bool same_tally(const struct trm_tally *a, const struct trm_tally *b)
{
  return a->loss == b->loss && a->correct == b->correct && a->rows == b->rows;
}

/* Largest difference over the largest value; 0: equal bits. */
static double difference(const float *a, const float *b, size_t n)
{
  double most = 0, largest = 0;
  if (memcmp(a, b, n * sizeof *a) == 0)
    return 0;
  for (size_t i = 0; i < n; i++) {
    most = fmax(most, fabs((double)a[i] - (double)b[i]));
    largest = fmax(largest, fabs((double)b[i]));
  }
  return most > 0 ? most / largest : 1e-30; /* zeros of two signs are not equal bits */
}

/* Is the parameter one of the weights of tied layers? */
static bool is_tied(const struct stage *s, const struct trm_parameter *parameter)
{
  const struct trm_layer *last = &s->whole.model.layer[s->whole.model.layers - 1];
  return last->tied && last->tied->parameter[0].number == parameter->number;
}

static void compare_gradients(struct stage *s)
{
  const float *whole = nn_case_gradient(&s->whole), *part = read_floats(s->device, s->g, s->model.parameters);
  for (int n = 0; n < trm_model_parameter_count(&s->model); n++) {
    const struct trm_parameter *p = trm_model_parameter(&s->model, n);
    const double far = difference(part + p->offset, whole + in_whole(s, p)->offset, p->count);
    if (far > (is_tied(s, p) ? 1e-6 : 0))
      printf("\n    %s, rank %d: the gradient of %s differs by %.3g\n", text_of(s->setup), world->rank, p->name, far);
    CU_ASSERT(far <= (is_tied(s, p) ? 1e-6 : 0));
  }
}

/* Both copies of a weight that two stages hold have equal bits. */
static void compare_copies(struct stage *s)
{
  const struct trm_layer *last = &s->whole.model.layer[s->whole.model.layers - 1];
  if (!last->tied || world->size == 1)
    return;
  const size_t n = last->tied->parameter[0].count;
  float *both = host_floats(2 * n), *mine = host_floats(n);
  for (int i = 0; i < trm_model_parameter_count(&s->model); i++) {
    const struct trm_parameter *p = trm_model_parameter(&s->model, i);
    if (is_tied(s, p))
      memcpy(mine, read_floats(s->device, p->g, n), n * sizeof *mine);
  }
  memcpy(both, mine, n * sizeof *mine);
  world->ops->broadcast(world, both, n, TRM_FLOAT, 0);
  memcpy(both + n, mine, n * sizeof *mine);
  world->ops->broadcast(world, both + n, n, TRM_FLOAT, world->size - 1);
  CHECK(s->setup, memcmp(both, both + n, n * sizeof *both) == 0);
}

static void check_moments(struct stage *s)
{
  const struct trm_pipeline *p = &s->pipeline;
  CHECK(s->setup, p->moments == 2 * s->model.chunks * s->setup->micros);
  for (int i = 0; i < p->moments; i++) {
    const struct trm_pipeline_moment *m = &p->moment[i];
    CHECK(s->setup, m->came <= m->began && m->began <= m->ended && (i == 0 || m[-1].ended <= m->came));
  }
}

static struct trm_device *device_now;

/* Returns whether there was something to compare. */
static bool compare(const struct setup *setup)
{
  struct stage s;
  if (!stage_open(&s, setup, device_now))
    return false;
  struct trm_pipeline_run run = run_of(&s);
  for (int again = 0; again < 2; again++) { /* what the first batch leaves does not reach the second */
    s.handed = 0;
    s.in_order = true;
    s.tally = (struct trm_tally){.stop = 1};
    CHECK(setup, s.pipeline.ops->train(&s.pipeline, &run, &s.tally) == TRM_OK);
    CHECK(setup, s.in_order && s.handed == s.model.parameters);
  }
  const struct trm_tally tally = train_whole(&s);
  CHECK(setup, same_tally(&s.tally, &tally) && s.tally.stop == world->size);
  compare_gradients(&s);
  compare_copies(&s);
  check_moments(&s);
  run.pass.training = false;
  s.tally = (struct trm_tally){0};
  CHECK(setup, s.pipeline.ops->evaluate(&s.pipeline, &run, &s.tally) == TRM_OK);
  const struct trm_tally evaluated = evaluate_whole(&s);
  CHECK(setup, same_tally(&s.tally, &evaluated));
  stage_close(&s);
  return true;
}

/* -- models that other tests have: all layers, all losses, all ways to branch */

static const char *const schedules[] = {"gpipe", "1f1b", "interleaved"};

static void examples(struct trm_device *device)
{
  device_now = device;
  int compared = 0;
  for (int i = 0; nn_examples[i].text; i++) {
    const struct nn_example *e = &nn_examples[i];
    for (int k = 0; k < 3; k++) {
      const struct setup setup = {.text = e->text, .loss = e->loss, .spec = e->spec, .schedule = schedules[k],
                                  .chunks = 2, .micros = 1 + (i + 2 * k) % 5, .rows = (i + k) % 3 ? 11 : 3};
      compared += compare(&setup);
    }
  }
  CU_ASSERT(compared * world->size >= 30);
}

static void test_examples(void)
{
  on_devices(examples);
}

/* -- every combination, of three models */

static const struct trm_input_spec image_spec = {
  .shape = {.dims = 3, .size = {2, 4, 4}}, .target = TRM_TARGET_CLASS, .classes = 5};

static void all_combinations(const char *text, const struct trm_input_spec *spec)
{
  for (int k = 0; k < 3; k++)
    for (int micros = 1; micros <= 5; micros++)
      for (size_t rows = 3; rows <= 13; rows += 5) { /* fewer than micro-batches; none divides evenly by all */
        const struct setup setup = {.text = text, .loss = "auto", .spec = spec, .schedule = schedules[k], .chunks = 2,
                                    .micros = micros, .rows = rows};
        CHECK(&setup, compare(&setup));
      }
}

static void mlp(struct trm_device *device)
{
  device_now = device;
  all_combinations("linear 8 | relu | dropout 0.3 | linear 7 | tanh | linear 9 | gelu | linear 6 | dropout 0.2 | linear 5 | "
                   "relu | linear 8 | linear 7 | tanh | linear 10", &nn_ten_classes);
}

static void convolutions(struct trm_device *device)
{
  device_now = device;
  all_combinations("conv2d 3 3 pad=1 bias=no | batch_norm | relu | mark a | conv2d 3 3 pad=1 bias=no | batch_norm | tanh | "
                   "add a | conv2d 4 3 pad=1 bias=no | batch_norm | relu | conv2d 4 1 | batch_norm | tanh | conv2d 5 1 | "
                   "global_avg_pool | linear 6 | relu | linear 5", &image_spec);
}

static void gpt(struct trm_device *device)
{
  device_now = device;
  all_combinations("gpt layers=4 heads=2 dim=8 context=5 dropout=0.1", &nn_tokens);
}

static void test_mlp(void)
{
  on_devices(mlp);
}

static void test_convolutions(void)
{
  on_devices(convolutions);
}

static void test_gpt(void)
{
  on_devices(gpt);
}

/* -- messages that are larger than what MPI sends at once, and many of them */

static void large(struct trm_device *device)
{
  static const struct trm_input_spec spec = {
    .shape = {.dims = 1, .size = {3}}, .target = TRM_TARGET_CLASS, .classes = 4};
  device_now = device;
  for (int k = 0; k < 3; k++) {
    const struct setup setup = {.text = "linear 20000 | relu | linear 4 | linear 20000 | tanh | linear 3 | linear 30000 | "
                                        "tanh | linear 4 | linear 20000 | tanh | linear 4 | linear 4 | linear 4",
                                .loss = "auto", .spec = &spec, .schedule = schedules[k], .chunks = 2, .micros = MICROS,
                                .rows = 16};
    CHECK(&setup, compare(&setup));
  }
}

static void test_large(void)
{
  static struct trm_device cpu;
  CU_ASSERT_FATAL(trm_device_open(&cpu, "cpu", "auto", "f32", 0, 1) == TRM_OK);
  large(&cpu);
  trm_device_close(&cpu);
}

/* -- gradients that are given away after each micro-batch */

struct keeper {
  struct stage *stage;
  float *sum;   /* device, (parameters) what was given */
  size_t low;   /* of the statistics */
  int handed;   /* intervals */
};

static void keeper_take(void *context, size_t low, size_t high, enum trm_hold how, float **w, float **g)
{
  const struct keeper *k = context;
  (void)high;
  *w = k->stage->w + low;
  *g = how == TRM_HOLD_BACKWARD || how == TRM_HOLD_TIED ? k->stage->g + low : NULL;
}

/* What is left there is of no use to anybody. */
static void keeper_give(void *context, size_t low, size_t high, enum trm_hold how)
{
  const struct keeper *k = context;
  struct trm_device *device = k->stage->device;
  const float *const both[] = {k->sum + low, k->stage->g + low};
  if (how != TRM_HOLD_BACKWARD)
    return;
  device->ops->sum(device, k->sum + low, both, 2, high - low);
  device->ops->fill(device, k->stage->g + low, low < k->low ? NAN : 0, high - low);
}

static int keeper_ready(void *context, int batch, size_t low, size_t high, const struct trm_tally *tally)
{
  (void)batch, (void)low, (void)high, (void)tally;
  ((struct keeper *)((struct stage *)context)->kept)->handed++;
  return TRM_OK;
}

static void compare_given(const struct setup *setup)
{
  struct stage s;
  if (!stage_open(&s, setup, device_now))
    return;
  struct keeper k = {.stage = &s, .sum = floats_take(device_now, s.model.parameters),
                     .low = s.model.parameters - s.model.statistics};
  const struct trm_holder holder = {.anew = true, .take = keeper_take, .give = keeper_give, .context = &k};
  struct trm_pipeline_run run = run_of(&s);
  s.kept = &k;
  run.pass.holder = &holder;
  run.ready = keeper_ready;
  CHECK(setup, s.pipeline.ops->train(&s.pipeline, &run, &s.tally) == TRM_OK);
  const struct trm_tally tally = train_whole(&s);
  CHECK(setup, same_tally(&s.tally, &tally) && k.handed >= setup->micros * s.model.boundaries);
  const float *whole = nn_case_gradient(&s.whole), *part = read_floats(s.device, k.sum, s.model.parameters);
  for (int n = 0; n < trm_model_parameter_count(&s.model); n++) {
    const struct trm_parameter *p = trm_model_parameter(&s.model, n);
    CHECK(setup, difference(part + p->offset, whole + in_whole(&s, p)->offset, p->count) <= 1e-6);
  }
  device_now->ops->release(device_now, k.sum);
  stage_close(&s);
}

static void given(struct trm_device *device)
{
  device_now = device;
  for (int k = 0; k < 3; k++)
    for (int micros = 1; micros <= 5; micros += 2) {
      struct setup setup = {.text = "gpt layers=4 heads=2 dim=8 context=5 dropout=0.1", .loss = "auto",
                            .spec = &nn_tokens, .schedule = schedules[k], .chunks = 2, .micros = micros, .rows = 13};
      compare_given(&setup);
      setup.text = "conv2d 3 3 pad=1 bias=no | batch_norm | tanh | conv2d 4 1 | batch_norm | tanh | conv2d 3 1 | tanh | "
                   "flatten | linear 4 | linear 5";
      setup.spec = &image_spec;
      compare_given(&setup);
    }
}

static void test_given(void)
{
  on_devices(given);
}

/* -- without flush: updates on the way, against one rank that uses the same versions */

enum { BATCHES = 6, RATE_PERCENT = 5 };

struct flight {
  struct stage stage;
  struct trm_pipeline_batch batch[BATCHES];
  size_t rows[BATCHES][MICROS], low[BATCHES][MICROS];
  struct trm_tally tally[BATCHES], whole[BATCHES];
  float *version[BATCHES + 1]; /* device, of the whole model: after so many updates */
  float *mixed;                /* device, what a pass of the whole model uses */
  int first, updates;          /* of the run */
  bool fails;                  /* the second update does */
};

/* w of n trained values and some statistics behind them */
static void update(struct trm_device *device, float *w, const float *g, const struct trm_model *model)
{
  const struct trm_update how = {.rule = TRM_UPDATE_SGD, .rate = RATE_PERCENT / 100.0f, .scale = 1, .step = 1};
  const size_t trained = model->parameters - model->statistics;
  device->ops->update(device, &how, w, g, NULL, NULL, trained);
  if (model->statistics) {
    const float *const both[] = {w + trained, g + trained};
    device->ops->sum(device, w + trained, both, 2, model->statistics);
  }
}

static int flight_input(void *context, int batch, int micro, int slot, bool features, bool targets,
                        struct trm_input *input)
{
  struct flight *f = context;
  (void)slot;
  batch += f->first;
  *input = nn_case_part(&f->stage.whole, f->low[batch][micro], f->low[batch][micro] + f->rows[batch][micro]);
  if (!features)
    input->dense = NULL;
  if (!targets)
    input->target_class = NULL;
  return TRM_OK;
}

static int flight_ready(void *context, int batch, size_t low, size_t high, const struct trm_tally *tally)
{
  struct flight *f = context;
  struct stage *s = &f->stage;
  s->in_order = s->in_order && batch == f->updates && low == s->handed && high > low && tally == &f->tally[batch];
  s->handed = high;
  return TRM_OK;
}

static int flight_step(void *context, int batch, struct trm_tally *tally)
{
  struct flight *f = context;
  struct stage *s = &f->stage;
  s->in_order = s->in_order && batch == f->updates && s->handed == s->model.parameters && tally == &f->tally[batch];
  s->handed = 0;
  f->updates++;
  if (f->fails && batch == 1)
    return trm_error(TRM_FAILED, "the second update");
  update(s->device, s->w, s->g, &s->model);
  return TRM_OK;
}

static bool flight_open(struct flight *f, const struct setup *setup)
{
  *f = (struct flight){0};
  if (!stage_open(&f->stage, setup, device_now))
    return false;
  for (int b = 0; b < BATCHES; b++) {
    const size_t from = (size_t)b, to = b == BATCHES - 1 ? from + 3 : setup->rows; /* the last one is smaller */
    for (int m = 0; m < setup->micros; m++) {
      size_t high;
      trm_interval(to - from, (size_t)setup->micros, (size_t)m, &f->low[b][m], &high);
      f->rows[b][m] = high - f->low[b][m];
      f->low[b][m] += from;
    }
    f->batch[b] = (struct trm_pipeline_batch){.first_row = 100 * (uint64_t)b, .scale = 1.0f / (float)(to - from),
                                              .micros = setup->micros, .rows = f->rows[b]};
  }
  const size_t n = f->stage.whole.model.parameters;
  f->mixed = floats_take(device_now, n);
  for (int v = 0; v <= BATCHES; v++)
    f->version[v] = floats_take(device_now, n);
  device_now->ops->copy(device_now, f->version[0], f->stage.whole.w, n * sizeof(float));
  return true;
}

static void flight_close(struct flight *f)
{
  device_now->ops->release(device_now, f->mixed);
  for (int v = 0; v <= BATCHES; v++)
    device_now->ops->release(device_now, f->version[v]);
  stage_close(&f->stage);
}

static int flight_run(struct flight *f, int first, int batches)
{
  struct stage *s = &f->stage;
  const struct trm_pipeline_run run = {
    .pass = {.device = s->device, .training = true, .seed = 7}, .batch = f->batch + first, .batches = batches,
    .context = f, .input = flight_input, .ready = flight_ready, .step = flight_step};
  s->in_order = true;
  s->handed = 0;
  f->updates = 0;
  f->first = first;
  return s->pipeline.ops->train(&s->pipeline, &run, f->tally);
}

/* The stage that a parameter of the whole model is on. */
static int stage_of(const struct stage *s, const struct trm_chunk_cut *cut, int number)
{
  const struct trm_model *whole = &s->whole.model;
  int stage = 0;
  for (int i = 0, n = 0; i < whole->layers; n += whole->layer[i++].parameters)
    if (n <= number)
      while (i >= cut[stage].last)
        stage++;
    else
      break;
  return stage;
}

/* Updates that a stage has made before it takes a micro-batch forward, or backward. */
static int updates_before(const struct trm_schedule *schedule, int stage, int kind, int micro)
{
  int count, back = 0;
  struct trm_action *a = trm_schedule_actions(schedule, stage, BATCHES, &count);
  for (int i = 0; (int)a[i].kind != kind || a[i].micro != micro; i++)
    back += a[i].kind == TRM_BACKWARD;
  trm_free(a);
  return back;
}

/* The whole model's passes use, of each stage's parameters, the version that stage uses. */
static void use_versions(struct flight *f, int kind, int batch)
{
  struct stage *s = &f->stage;
  const struct trm_schedule *schedule = &s->pipeline.schedule;
  struct trm_chunk_cut cut[16];
  CU_ASSERT_FATAL(trm_balance(&s->whole.model, "auto", world->size, cut) == TRM_OK);
  for (int n = 0; n < trm_model_parameter_count(&s->whole.model); n++) {
    const struct trm_parameter *p = trm_model_parameter(&s->whole.model, n);
    const int stage = stage_of(s, cut, n);
    int version = batch ? batch - 1 : 0;
    if (schedule->name == TRM_PIPEDREAM)
      version = updates_before(schedule, stage, s->pipeline.stash ? TRM_FORWARD : kind, batch);
    s->device->ops->copy(s->device, f->mixed + p->offset, f->version[version] + p->offset, p->count * sizeof(float));
  }
}

static void flight_whole(struct flight *f)
{
  struct stage *s = &f->stage;
  struct trm_model *model = &s->whole.model;
  CU_ASSERT_FATAL(trm_model_bind(model, s->device, f->mixed, s->whole.g, model->max_rows, true) == TRM_OK);
  for (int b = 0; b < BATCHES; b++) {
    f->whole[b] = (struct trm_tally){0};
    for (int m = 0; m < f->batch[b].micros; m++) {
      const struct trm_input input = nn_case_part(&s->whole, f->low[b][m], f->low[b][m] + f->rows[b][m]);
      const struct trm_pass pass = {.device = s->device, .input = &input, .training = true, .seed = 7,
                                    .first_row = f->batch[b].first_row + f->low[b][m] - f->low[b][0],
                                    .beta = m ? 1 : 0, .scale = f->batch[b].scale};
      use_versions(f, TRM_FORWARD, b);
      trm_model_forward(model, &pass);
      CU_ASSERT_FATAL(trm_model_score(model, &pass, &f->whole[b]) == TRM_OK);
      use_versions(f, TRM_BACKWARD, b);
      CU_ASSERT_FATAL(trm_model_backward(model, &pass, NULL, NULL) == TRM_OK);
    }
    s->device->ops->copy(s->device, f->version[b + 1], f->version[b], model->parameters * sizeof(float));
    update(s->device, f->version[b + 1], s->whole.g, model);
  }
}

static void compare_weights(struct flight *f, double tolerance)
{
  struct stage *s = &f->stage;
  const float *whole = read_floats(s->device, f->version[BATCHES], s->whole.model.parameters);
  const float *part = read_floats(s->device, s->w, s->model.parameters);
  for (int n = 0; n < trm_model_parameter_count(&s->model); n++) {
    const struct trm_parameter *p = trm_model_parameter(&s->model, n);
    const double far = difference(part + p->offset, whole + in_whole(s, p)->offset, p->count);
    if (far > tolerance)
      printf("\n    %s, rank %d: %s differs by %.3g\n", text_of(s->setup), world->rank, p->name, far);
    CU_ASSERT(far <= tolerance);
  }
}

/* In one run, and in two between which everything is drained: with two versions the same, if the one before is kept. */
static void compare_flight(const struct setup *setup, double tolerance)
{
  struct flight f;
  for (int again = 0; again < 2; again++) {
    if (!flight_open(&f, setup))
      return;
    struct stage *s = &f.stage;
    if (again && s->pipeline.schedule.name != TRM_2BW) {
      flight_close(&f);
      return;
    }
    if (again) {
      CHECK(setup, flight_run(&f, 0, 2) == TRM_OK && f.updates == 2);
      float *before = read_floats(s->device, s->pipeline.stashed, s->model.parameters);
      s->pipeline.ops->destroy(&s->pipeline); /* as a run that is resumed: what it knows comes from outside */
      s->pipeline.busy_s = s->pipeline.span_s = 0;
      CU_ASSERT_FATAL(s->pipeline.ops->create(&s->pipeline) == TRM_OK);
      CHECK(setup, s->pipeline.ops->restore(&s->pipeline, before) == TRM_OK);
      CHECK(setup, flight_run(&f, 2, BATCHES - 2) == TRM_OK && f.updates == BATCHES - 2);
    } else {
      CHECK(setup, flight_run(&f, 0, BATCHES) == TRM_OK && f.updates == BATCHES && s->in_order);
    }
    flight_whole(&f);
    for (int b = 0; b < BATCHES - 2; b++) {
      const struct trm_tally *here = &f.tally[b], *there = &f.whole[again ? b + 2 : b];
      CHECK(setup, fabs(here->loss - there->loss) <= tolerance * there->loss && here->rows == there->rows);
    }
    compare_weights(&f, tolerance);
    flight_close(&f);
  }
}

static const char tanhs[] = "linear 8 | tanh | dropout 0.3 | linear 7 | tanh | linear 9 | tanh | linear 6 | linear 10";

static void two_versions(struct trm_device *device)
{
  device_now = device;
  for (int micros = world->size > 1 ? world->size - 1 : 1; micros <= 5; micros++) {
    const struct setup plain = {.text = tanhs, .loss = "auto", .spec = &nn_ten_classes, .schedule = "2bw",
                                .micros = micros, .rows = 16};
    compare_flight(&plain, 0);
    const struct setup norms = {.text = "conv2d 3 3 bias=no | batch_norm | tanh | conv2d 3 1 | batch_norm | tanh | "
                                        "conv2d 2 1 | tanh | flatten | linear 5",
                                .loss = "auto", .spec = &nn_images, .schedule = "2bw", .micros = micros, .rows = 16};
    compare_flight(&norms, 0);
    const struct setup tied = {.text = "gpt layers=2 heads=2 dim=8 context=5 dropout=0.1", .loss = "auto",
                               .spec = &nn_tokens, .schedule = "2bw", .micros = micros, .rows = 16};
    compare_flight(&tied, 1e-5);
  }
}

static void test_two_versions(void)
{
  on_devices(two_versions);
}

static void pipedream(struct trm_device *device)
{
  device_now = device;
  for (size_t rows = 8; rows <= 16; rows += 8) {
    struct setup setup = {.text = tanhs, .loss = "auto", .spec = &nn_ten_classes, .schedule = "pipedream", .micros = 1,
                          .rows = rows};
    compare_flight(&setup, 0);
    setup.no_stash = true;
    compare_flight(&setup, 0);
  }
}

static void test_pipedream(void)
{
  on_devices(pipedream);
}

/* Every stage is told of an update that failed, after which there are no others; then all goes on. */
static void failing(struct trm_device *device)
{
  device_now = device;
  struct flight f;
  const struct setup setup = {.text = tanhs, .loss = "auto", .spec = &nn_ten_classes, .schedule = "2bw", .micros = 4,
                              .rows = 16};
  CU_ASSERT_FATAL(flight_open(&f, &setup));
  f.fails = true;
  CHECK(&setup, flight_run(&f, 0, BATCHES) == TRM_FAILED && f.updates == 2);
  f.fails = false;
  CHECK(&setup, flight_run(&f, 0, BATCHES) == TRM_OK && f.updates == BATCHES);
  flight_close(&f);
}

static void test_failing(void)
{
  on_devices(failing);
}

/* -- times */

static double forward_lasts(void *context, int batch, double flop, double took)
{
  const struct stage *s = context;
  const double whole = trm_model_cost(&s->whole.model).flop * (double)s->setup->rows;
  CHECK(s->setup, batch == 0 && flop > 0 && flop < 2.01 * whole && took >= 0);
  return 0.2 * flop / whole; /* 0.6 s for all of it */
}

/* Actions that last as long as they are told to: the idle share is theory's, or more on a machine that is busy. */
static void test_bubble(void)
{
  static struct trm_device cpu;
  CU_ASSERT_FATAL(trm_device_open(&cpu, "cpu", "auto", "f32", 0, 1) == TRM_OK);
  const struct setup setup = {.text = "linear 50 | linear 50 | linear 50 | linear 50 | linear 50 | linear 50 | linear 50 | "
                                      "linear 50 | linear 50 | linear 50 | linear 50 | linear 10",
                              .loss = "auto", .spec = &nn_ten_classes, .schedule = "1f1b", .micros = 4, .rows = 16};
  struct stage s;
  CU_ASSERT_FATAL(stage_open(&s, &setup, &cpu));
  struct trm_pipeline_run run = run_of(&s);
  run.lasts = forward_lasts;
  s.in_order = true;
  CHECK(&setup, s.pipeline.ops->train(&s.pipeline, &run, &s.tally) == TRM_OK);
  double share = 0, busy = 0;
  for (int c = 0; c < s.model.chunks; c++)
    share += 3 * s.pipeline.flop[c] / trm_model_cost(&s.whole.model).flop;
  for (int i = 0; i < s.pipeline.moments; i++)
    busy += s.pipeline.moment[i].ended - s.pipeline.moment[i].began;
  CHECK(&setup, s.pipeline.busy_s >= 0.2 * share && fabs(busy - s.pipeline.busy_s) < 1e-9);
  const double bubble = s.pipeline.ops->bubble(&s.pipeline), theory = trm_schedule_bubble(&s.pipeline.schedule);
  CHECK(&setup, bubble > theory - 0.02 && bubble < 1);
  if (world->rank == 0)
    printf("(idle %.3f, theory %.3f) ", bubble, theory);
  stage_close(&s);
  trm_device_close(&cpu);
}

/* -- where the chain is cut */

static struct trm_model gpt_model(void)
{
  struct trm_model model;
  CU_ASSERT_FATAL(trm_model_create(&model, "gpt layers=4 heads=2 dim=8 context=5", "auto", &nn_tokens) == TRM_OK);
  return model;
}

static double longest(const struct trm_model *model, const struct trm_chunk_cut *cut, int pieces)
{
  double most = 0;
  for (int p = 0; p < pieces; p++)
    most = fmax(most, trm_balance_seconds(model, cut[p].first, cut[p].last));
  return most;
}

/* No way to cut in two or three is better. */
static void test_balance(void)
{
  struct trm_model model = gpt_model();
  struct trm_chunk_cut cut[3];
  CU_ASSERT_FATAL(trm_balance(&model, "auto", 2, cut) == TRM_OK);
  const double two = longest(&model, cut, 2);
  CU_ASSERT(cut[0].first == 0 && cut[0].last == cut[1].first && cut[1].last == model.layers);
  CU_ASSERT_FATAL(trm_balance(&model, "auto", 3, cut) == TRM_OK);
  const double three = longest(&model, cut, 3);
  double best_two = INFINITY, best_three = INFINITY;
  for (int a = 1; a < model.layers; a++) {
    if (!trm_cut_allowed(model.layer, model.layers, a))
      continue;
    best_two = fmin(best_two, fmax(trm_balance_seconds(&model, 0, a), trm_balance_seconds(&model, a, model.layers)));
    for (int b = a + 1; b < model.layers; b++)
      if (trm_cut_allowed(model.layer, model.layers, b)) {
        const struct trm_chunk_cut way[3] = {{0, a}, {a, b}, {b, model.layers}};
        best_three = fmin(best_three, longest(&model, way, 3));
      }
  }
  CU_ASSERT_DOUBLE_EQUAL(two, best_two, 1e-6 * two);
  CU_ASSERT_DOUBLE_EQUAL(three, best_three, 1e-6 * three);
  trm_model_free(&model);
}

static void test_cut_as_told(void)
{
  struct trm_model model = gpt_model();
  struct trm_chunk_cut cut[3];
  struct trm_model_part part = {.tensors = 1};
  CU_ASSERT_FATAL(trm_balance(&model, "2,14", 3, cut) == TRM_OK);
  CU_ASSERT(cut[0].first == 0 && cut[2].last == model.layers);
  for (int p = 1; p < 3; p++) {
    CU_ASSERT(cut[p].first == cut[p - 1].last);
    CU_ASSERT(model.layer[cut[p].first].number >= (p == 1 ? 2 : 14) &&
              model.layer[cut[p].first - 1].number < (p == 1 ? 2 : 14));
  }
  CU_ASSERT_EQUAL(trm_balance_part(&model, "auto", 2, 2, 1, &part), TRM_OK);
  CU_ASSERT(part.chunks == 2 && part.chunk[0].first > 0 && part.chunk[1].last == model.layers &&
            part.chunk[0].last < part.chunk[1].first);
  CU_ASSERT_EQUAL(trm_balance_part(&model, "auto", 1, 1, 0, &part), TRM_OK);
  CU_ASSERT_EQUAL(part.chunks, 0);
  trm_model_free(&model);
}

static void test_cut_refused(void)
{
  static const struct {
    const char *how;
    int pieces;
    const char *word;
  } wrong[] = {{"auto", 1000, "1000 pieces"}, {"5", 2, "more than one value"}, {"2,14", 2, "3 pieces, but 2"},
               {"2", 3, "2 pieces, but 3"},   {"0", 2, "items 1 to"},          {"999", 2, "items 1 to"},
               {"2,2", 3, "must grow"},       {"14,2", 3, "must grow"},        {"two", 2, "neither auto nor"},
               {"2,", 3, "neither auto nor"}, {"2;14", 3, "neither auto nor"}, {"-2", 2, "neither auto nor"}};
  struct trm_model model = gpt_model();
  struct trm_chunk_cut cut[1000];
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    const int status = trm_balance(&model, wrong[i].how, wrong[i].pieces, cut);
    const bool right = status == TRM_USAGE && strstr(trm_error_text(), wrong[i].word);
    if (!right)
      printf("\n    %s: %s\n", wrong[i].how, status ? trm_error_text() : "no error");
    CU_ASSERT(right);
  }
  trm_model_free(&model);
  CU_ASSERT_FATAL(trm_model_create(&model, "linear 4 | relu | tanh | linear 10", "auto", &nn_ten_classes) == TRM_OK);
  CU_ASSERT(trm_balance(&model, "auto", 3, cut) == TRM_USAGE && strstr(trm_error_text(), "2 at most"));
  CU_ASSERT(trm_balance(&model, "1,2", 3, cut) == TRM_USAGE && strstr(trm_error_text(), "nothing to train"));
  CU_ASSERT_EQUAL(trm_balance(&model, "auto", 2, cut), TRM_OK);
  trm_model_free(&model);
}

int main(int argc, char **argv)
{
  CU_TestInfo tests[] = {{"every layer", test_examples},
                         {"perceptron", test_mlp},
                         {"convolutions", test_convolutions},
                         {"gpt, tied", test_gpt},
                         {"large messages", test_large},
                         {"gradients given away", test_given},
                         {"2bw: two versions", test_two_versions},
                         {"pipedream, with and without stash", test_pipedream},
                         {"an update that fails", test_failing},
                         {"idle times", test_bubble},
                         {"the best cut", test_balance},
                         {"cut as told", test_cut_as_told},
                         {"cuts that are refused", test_cut_refused},
                         CU_TEST_INFO_NULL};
  return ranks_run(argc, argv, "pipeline", tests);
}
