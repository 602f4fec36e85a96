/* Pipelines against one rank that computes the same micro-batches: gradients and tallies bit for bit, of every layer and
 * many ways of branching, for schedules, numbers of micro-batches, rows that do not divide, micro-batches without rows, a
 * device with its own memory; a weight that two stages hold; evaluation; where the chain is cut. Meant for 1 to 4 ranks. */
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
                                      .schedule = schedule, .stash = true};
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
                         {"the best cut", test_balance},
                         {"cut as told", test_cut_as_told},
                         {"cuts that are refused", test_cut_refused},
                         CU_TEST_INFO_NULL};
  return ranks_run(argc, argv, "pipeline", tests);
}
