/* Pipelines against one rank that computes the same micro-batches: gradients and loss sums bit for bit, for all layers,
 * branches, schedules, numbers of micro-batches, uneven and empty micro-batches, a device with separate memory; tied
 * weights; evaluation; idle times; the split of layers into stages. Meant for 1 to 4 ranks. */
#include "pipeline_stage.h"
#include "support/pretend_device.h"

/* Gives a stage the features or targets that it requests. */
static int give_input(void *context, int batch, int micro, int slot, bool features, bool targets,
                      struct trm_input *input)
{
  struct stage *s = context;
  CHECK(s->setup, batch == 0 && slot < s->model.slots && (features || targets));
  CHECK(s->setup, features == (world->rank == 0 && s->model.current_chunk == 0));
  *input = nn_case_part(&s->full, s->low[micro], s->low[micro] + s->rows[micro]);
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

static int take_ready(void *context, int batch, size_t low, size_t high, const struct trm_loss_sums *tally)
{
  struct stage *s = context;
  s->in_order = s->in_order && batch == 0 && low == s->ready && high > low && tally->stop_requests == world->size &&
                tally->rows == (double)(s->setup->rows * s->model.targets);
  s->ready = high;
  return TRM_OK;
}

static struct trm_pipeline_run run_of(struct stage *s)
{
  return (struct trm_pipeline_run){.pass = {.device = s->device, .training = true, .seed = 7}, .batch = &s->batch,
                                   .batches = 1, .context = s, .input = give_input, .grad_ready = take_ready};
}

/* Runs the same micro-batches through the whole model. */
static struct trm_loss_sums train_whole(struct stage *s)
{
  struct trm_loss_sums tally = {0};
  for (int m = 0; m < s->setup->micros; m++) {
    const struct trm_input input = nn_case_part(&s->full, s->low[m], s->low[m] + s->rows[m]);
    struct trm_pass pass = {.device = s->device, .input = &input, .training = true, .seed = 7,
                            .first_row = 100 + s->low[m], .beta = m ? 1 : 0};
    CU_ASSERT_FATAL(trm_model_train(&s->full.model, &pass, s->batch.scale, &tally, NULL, NULL) == TRM_OK);
  }
  return tally;
}

static struct trm_loss_sums evaluate_whole(struct stage *s)
{
  struct trm_loss_sums tally = {0};
  for (int m = 0; m < s->setup->micros; m++) {
    const struct trm_input input = nn_case_part(&s->full, s->low[m], s->low[m] + s->rows[m]);
    const struct trm_pass pass = {.device = s->device, .input = &input};
    CU_ASSERT_FATAL(trm_model_evaluate(&s->full.model, &pass, &tally) == TRM_OK);
  }
  return tally;
}

static bool same_tally(const struct trm_loss_sums *a, const struct trm_loss_sums *b)
{
  return a->loss == b->loss && a->correct == b->correct && a->rows == b->rows;
}

/* Returns true if the parameter is a tied weight. */
static bool is_tied(const struct stage *s, const struct trm_parameter *parameter)
{
  const struct trm_layer *last = &s->full.model.layer[s->full.model.layers - 1];
  return last->tied && last->tied->parameter[0].number == parameter->number;
}

static void compare_gradients(struct stage *s)
{
  const float *whole = nn_case_gradient(&s->full), *part = read_floats(s->device, s->g, s->model.parameters);
  for (int n = 0; n < trm_model_parameter_count(&s->model); n++) {
    const struct trm_parameter *p = trm_model_parameter(&s->model, n);
    const double far = difference(part + p->offset, whole + in_full(s, p)->offset, p->count);
    if (far > (is_tied(s, p) ? 1e-6 : 0))
      printf("\n    %s, rank %d: the gradient of %s differs by %.3g\n", text_of(s->setup), world->rank, p->name, far);
    CU_ASSERT(far <= (is_tied(s, p) ? 1e-6 : 0));
  }
}

/* Both copies of a weight tied across stages are bit-identical. */
static void compare_copies(struct stage *s)
{
  const struct trm_layer *last = &s->full.model.layer[s->full.model.layers - 1];
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
  CHECK(s->setup, p->events == 2 * s->model.chunks * s->setup->micros);
  for (int i = 0; i < p->events; i++) {
    const struct trm_pipeline_event *m = &p->event[i];
    CHECK(s->setup, m->wait_began <= m->began && m->began <= m->ended && (i == 0 || m[-1].ended <= m->wait_began));
  }
}

/* Returns false if the model cannot be split like this. */
static bool compare(const struct setup *setup)
{
  struct stage s;
  if (!stage_open(&s, setup, current_device))
    return false;
  struct trm_pipeline_run run = run_of(&s);
  for (int again = 0; again < 2; again++) { /* the first batch leaves no state behind */
    s.ready = 0;
    s.in_order = true;
    s.sums = (struct trm_loss_sums){.stop_requests = 1};
    CHECK(setup, s.pipeline.ops->train(&s.pipeline, &run, &s.sums) == TRM_OK);
    CHECK(setup, s.in_order && s.ready == s.model.parameters);
  }
  const struct trm_loss_sums tally = train_whole(&s);
  CHECK(setup, same_tally(&s.sums, &tally) && s.sums.stop_requests == world->size);
  compare_gradients(&s);
  compare_copies(&s);
  check_moments(&s);
  run.pass.training = false;
  s.sums = (struct trm_loss_sums){0};
  CHECK(setup, s.pipeline.ops->evaluate(&s.pipeline, &run, &s.sums) == TRM_OK);
  const struct trm_loss_sums evaluated = evaluate_whole(&s);
  CHECK(setup, same_tally(&s.sums, &evaluated));
  stage_close(&s);
  return true;
}

/* -- models of other tests: all layers, losses and branches */

static const enum trm_schedule_name schedules[] = {TRM_GPIPE, TRM_1F1B, TRM_INTERLEAVED};

static void examples(struct trm_device *device)
{
  current_device = device;
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

/* -- all combinations, for three models */

static const struct trm_input_spec image_spec = {
  .shape = {.dims = 3, .size = {2, 4, 4}}, .target = TRM_TARGET_CLASS, .classes = 5};

static void all_combinations(const char *text, const struct trm_input_spec *spec)
{
  for (int k = 0; k < 3; k++)
    for (int micros = 1; micros <= 5; micros++)
      for (size_t rows = 3; rows <= 13; rows += 5) { /* fewer rows than micro-batches; uneven */
        const struct setup setup = {.text = text, .loss = "auto", .spec = spec, .schedule = schedules[k], .chunks = 2,
                                    .micros = micros, .rows = rows};
        CHECK(&setup, compare(&setup));
      }
}

static void mlp(struct trm_device *device)
{
  current_device = device;
  all_combinations(
    "linear 8 | relu | dropout 0.3 | linear 7 | tanh | linear 9 | gelu | linear 6 | dropout 0.2 | linear 5 | "
    "relu | linear 8 | linear 7 | tanh | linear 10",
    &nn_ten_classes);
}

static void convolutions(struct trm_device *device)
{
  current_device = device;
  all_combinations(
    "conv2d 3 3 pad=1 bias=no | batch_norm | relu | mark a | conv2d 3 3 pad=1 bias=no | batch_norm | tanh | "
    "add a | conv2d 4 3 pad=1 bias=no | batch_norm | relu | conv2d 4 1 | batch_norm | tanh | conv2d 5 1 | "
    "global_avg_pool | linear 6 | relu | linear 5",
    &image_spec);
}

static void gpt(struct trm_device *device)
{
  current_device = device;
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

/* -- many messages, larger than MPI's eager limit */

static void large(struct trm_device *device)
{
  static const struct trm_input_spec spec = {
    .shape = {.dims = 1, .size = {3}}, .target = TRM_TARGET_CLASS, .classes = 4};
  current_device = device;
  for (int k = 0; k < 3; k++) {
    const struct setup setup = {.text =
                                  "linear 20000 | relu | linear 4 | linear 20000 | tanh | linear 3 | linear 30000 | "
                                  "tanh | linear 4 | linear 20000 | tanh | linear 4 | linear 4 | linear 4",
                                .loss = "auto",
                                .spec = &spec,
                                .schedule = schedules[k],
                                .chunks = 2,
                                .micros = MICROS,
                                .rows = 16};
    CHECK(&setup, compare(&setup));
  }
}

static void test_large(void)
{
  static struct trm_device cpu;
  CU_ASSERT_FATAL(trm_device_open(&cpu, "cpu", "auto", TRM_MATMUL_F32, 0, 1) == TRM_OK);
  large(&cpu);
  trm_device_close(&cpu);
}

/* A stage's device computes while its messages are on their way to the host. */
static void test_copies(void)
{
  static struct trm_device pretend;
  CU_ASSERT_FATAL(pretend_device_open(&pretend, 1) == TRM_OK);
  large(&pretend);
  const struct pretend_device_record record = pretend_device_record(&pretend);
  CU_ASSERT(world->size == 1 || record.beside_downloads > 0);
  pretend_device_close(&pretend);
}

/* -- a communicator that takes the pretend device's memory: at once, as a library does that reads it by itself */

static struct trm_device reader;
static struct trm_comm_ops reading_ops;
static const struct trm_comm_ops *host_ops;

static void read_and_send(struct trm_comm *comm, const void *data, size_t count, enum trm_type type, int to, int tag,
                          struct trm_request **request)
{
  host_ops->send_begin(comm, pretend_device_memory(&reader, data, count * trm_type_bytes(type)), count, type, to, tag,
                       request);
}

static void receive_and_write(struct trm_comm *comm, void *data, size_t count, enum trm_type type, int from, int tag,
                              struct trm_request **request)
{
  host_ops->receive_begin(comm, pretend_device_memory(&reader, data, count * trm_type_bytes(type)), count, type, from,
                          tag, request);
}

/* Messages between device memory have the bits of staged ones, and none is copied by way of the host. */
static void test_device_memory(void)
{
  CU_ASSERT_PTR_NULL(world->device_memory); /* the tests' library was built without */
  host_ops = world->ops;
  reading_ops = *host_ops;
  reading_ops.send_begin = read_and_send;
  reading_ops.receive_begin = receive_and_write;
  for (int direct = 0; direct < 2; direct++) {
    CU_ASSERT_FATAL(pretend_device_open(&reader, 1) == TRM_OK);
    world->ops = direct ? &reading_ops : host_ops;
    world->device_memory = direct ? "pretend" : NULL;
    large(&reader);
    const struct pretend_device_record record = pretend_device_record(&reader);
    if (direct)
      CU_ASSERT(record.uploads == 0 && record.downloads == 0)
    else
      CU_ASSERT(world->size == 1 || (record.uploads > 0 && record.downloads > 0));
    world->ops = host_ops;
    world->device_memory = NULL;
    pretend_device_close(&reader);
  }
}

/* -- gradients released after each micro-batch (parameter providers) */

struct keeper {
  struct stage *stage;
  float *sum;   /* device, (parameters) sum of released gradients */
  size_t low;   /* of the statistics */
  int handed;   /* intervals */
};

static void keeper_take(void *context, size_t low, size_t high, enum trm_acquire_mode how, float **w, float **g)
{
  const struct keeper *k = context;
  (void)high;
  *w = k->stage->w + low;
  *g = how == TRM_ACQUIRE_BACKWARD || how == TRM_ACQUIRE_TIED ? k->stage->g + low : NULL;
}

/* Overwrites the gradient buffer, since no layer may rely on its contents after release. */
static void keeper_give(void *context, size_t low, size_t high, enum trm_acquire_mode how)
{
  const struct keeper *k = context;
  struct trm_device *device = k->stage->device;
  const float *const both[] = {k->sum + low, k->stage->g + low};
  if (how != TRM_ACQUIRE_BACKWARD)
    return;
  device->ops->sum(device, &(struct trm_sum){.to = k->sum + low, .from = both, .count = 2, .n = high - low});
  device->ops->fill(device, k->stage->g + low, low < k->low ? NAN : 0, high - low);
}

static int keeper_ready(void *context, int batch, size_t low, size_t high, const struct trm_loss_sums *tally)
{
  (void)batch, (void)low, (void)high, (void)tally;
  ((struct keeper *)((struct stage *)context)->context)->handed++;
  return TRM_OK;
}

static void compare_given(const struct setup *setup)
{
  struct stage s;
  if (!stage_open(&s, setup, current_device))
    return;
  struct keeper k = {.stage = &s,
                     .sum = floats_alloc(current_device, s.model.parameters),
                     .low = s.model.parameters - s.model.statistics};
  const struct trm_param_provider holder = {
    .overwrites_gradient = true, .acquire = keeper_take, .release = keeper_give, .context = &k};
  struct trm_pipeline_run run = run_of(&s);
  s.context = &k;
  run.pass.provider = &holder;
  run.grad_ready = keeper_ready;
  CHECK(setup, s.pipeline.ops->train(&s.pipeline, &run, &s.sums) == TRM_OK);
  const struct trm_loss_sums tally = train_whole(&s);
  CHECK(setup, same_tally(&s.sums, &tally) && k.handed >= setup->micros * s.model.boundaries);
  const float *whole = nn_case_gradient(&s.full), *part = read_floats(s.device, k.sum, s.model.parameters);
  for (int n = 0; n < trm_model_parameter_count(&s.model); n++) {
    const struct trm_parameter *p = trm_model_parameter(&s.model, n);
    CHECK(setup, difference(part + p->offset, whole + in_full(&s, p)->offset, p->count) <= 1e-6);
  }
  current_device->ops->release(current_device, k.sum);
  stage_close(&s);
}

static void given(struct trm_device *device)
{
  current_device = device;
  for (int k = 0; k < 3; k++)
    for (int micros = 1; micros <= 5; micros += 2) {
      struct setup setup = {.text = "gpt layers=4 heads=2 dim=8 context=5 dropout=0.1", .loss = "auto",
                            .spec = &nn_tokens, .schedule = schedules[k], .chunks = 2, .micros = micros, .rows = 13};
      compare_given(&setup);
      setup.text =
        "conv2d 3 3 pad=1 bias=no | batch_norm | tanh | conv2d 4 1 | batch_norm | tanh | conv2d 3 1 | tanh | "
        "flatten | linear 4 | linear 5";
      setup.spec = &image_spec;
      compare_given(&setup);
    }
}

static void test_given(void)
{
  on_devices(given);
}

/* -- times */

static double forward_lasts(void *context, int batch, double flop, double took)
{
  const struct stage *s = context;
  const double whole = trm_model_cost(&s->full.model).flop * (double)s->setup->rows;
  CHECK(s->setup, batch == 0 && flop > 0 && flop < 2.01 * whole && took >= 0);
  return 0.2 * flop / whole; /* 0.6 s in total */
}

/* Actions of given durations: the idle share is at least the theoretical one, less what actions took longer. */
static void test_bubble(void)
{
  static struct trm_device cpu;
  CU_ASSERT_FATAL(trm_device_open(&cpu, "cpu", "auto", TRM_MATMUL_F32, 0, 1) == TRM_OK);
  const struct setup setup = {.text =
                                "linear 50 | linear 50 | linear 50 | linear 50 | linear 50 | linear 50 | linear 50 | "
                                "linear 50 | linear 50 | linear 50 | linear 50 | linear 10",
                              .loss = "auto",
                              .spec = &nn_ten_classes,
                              .schedule = TRM_1F1B,
                              .micros = 4,
                              .rows = 16};
  struct stage s;
  CU_ASSERT_FATAL(stage_open(&s, &setup, &cpu));
  struct trm_pipeline_run run = run_of(&s);
  run.action_duration = forward_lasts;
  s.in_order = true;
  CHECK(&setup, s.pipeline.ops->train(&s.pipeline, &run, &s.sums) == TRM_OK);
  double share = 0, busy = 0;
  for (int c = 0; c < s.model.chunks; c++)
    share += 3 * s.pipeline.flop[c] / trm_model_cost(&s.full.model).flop;
  for (int i = 0; i < s.pipeline.events; i++)
    busy += s.pipeline.event[i].ended - s.pipeline.event[i].began;
  CHECK(&setup, s.pipeline.busy_s >= 0.2 * share && fabs(busy - s.pipeline.busy_s) < 1e-9);
  const double bubble = s.pipeline.ops->bubble(&s.pipeline), theory = trm_schedule_bubble(&s.pipeline.schedule, 1);
  double longer = s.pipeline.busy_s - 0.2 * share; /* this processor may have had other work, too */
  world->ops->allreduce(world, &longer, 1, TRM_DOUBLE, TRM_SUM);
  CHECK(&setup, bubble > theory - (1 - theory) * longer / 0.6 - 0.002 && bubble < 1);
  if (world->rank == 0)
    printf("(idle %.3f, theory %.3f) ", bubble, theory);
  stage_close(&s);
  trm_device_close(&cpu);
}

/* -- split of layers into stages */

static struct trm_model gpt_model(void)
{
  struct trm_model model;
  CU_ASSERT_FATAL(trm_model_create(&model, "gpt layers=4 heads=2 dim=8 context=5", "auto", &nn_tokens) == TRM_OK);
  return model;
}

static double longest(const struct trm_model *model, const struct trm_layer_range *cut, int pieces)
{
  double most = 0;
  for (int p = 0; p < pieces; p++)
    most = fmax(most, trm_balance_seconds(model, cut[p].first, cut[p].last));
  return most;
}

/* No other split into two or three stages is better balanced. */
static void test_balance(void)
{
  struct trm_model model = gpt_model();
  struct trm_layer_range cut[3];
  CU_ASSERT_FATAL(trm_balance(&model, "auto", 2, cut) == TRM_OK);
  const double two = longest(&model, cut, 2);
  CU_ASSERT(cut[0].first == 0 && cut[0].last == cut[1].first && cut[1].last == model.layers);
  CU_ASSERT_FATAL(trm_balance(&model, "auto", 3, cut) == TRM_OK);
  const double three = longest(&model, cut, 3);
  double best_two = INFINITY, best_three = INFINITY;
  for (int a = 1; a < model.layers; a++) {
    if (!trm_partition_allowed(model.layer, model.layers, a))
      continue;
    best_two = fmin(best_two, fmax(trm_balance_seconds(&model, 0, a), trm_balance_seconds(&model, a, model.layers)));
    for (int b = a + 1; b < model.layers; b++)
      if (trm_partition_allowed(model.layer, model.layers, b)) {
        const struct trm_layer_range way[3] = {{0, a}, {a, b}, {b, model.layers}};
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
  struct trm_layer_range cut[3];
  struct trm_model_part part = {.tensor_size = 1};
  CU_ASSERT_FATAL(trm_balance(&model, "2,14", 3, cut) == TRM_OK);
  CU_ASSERT(cut[0].first == 0 && cut[2].last == model.layers);
  for (int p = 1; p < 3; p++) {
    CU_ASSERT(cut[p].first == cut[p - 1].last);
    CU_ASSERT(model.layer[cut[p].first].number >= (p == 1 ? 2 : 14) &&
              model.layer[cut[p].first - 1].number < (p == 1 ? 2 : 14));
  }
  CU_ASSERT_EQUAL(trm_balance_stage(&model, "auto", 2, 2, 1, &part), TRM_OK);
  CU_ASSERT(part.chunks == 2 && part.chunk[0].first > 0 && part.chunk[1].last == model.layers &&
            part.chunk[0].last < part.chunk[1].first);
  CU_ASSERT_EQUAL(trm_balance_stage(&model, "auto", 1, 1, 0, &part), TRM_OK);
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
  struct trm_layer_range cut[1000];
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
                         {"copies beside passes", test_copies},
                         {"messages in device memory", test_device_memory},
                         {"gradients with a parameter provider", test_given},
                         {"idle times", test_bubble},
                         {"balanced cut", test_balance},
                         {"cut given by the user", test_cut_as_told},
                         {"refused cuts", test_cut_refused},
                         CU_TEST_INFO_NULL};
  return ranks_run(argc, argv, "pipeline", tests);
}
