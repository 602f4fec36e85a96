/* Pipelines without flush between updates, against one rank whose passes use the same weight versions; failed updates.
 * Meant for 1 to 4 ranks. */
#include "pipeline_stage.h"

enum { BATCHES = 6, RATE_PERCENT = 5 };

struct flight {
  struct stage stage;
  struct trm_pipeline_batch batch[BATCHES];
  size_t rows[BATCHES][MICROS], low[BATCHES][MICROS];
  struct trm_loss_sums tally[BATCHES], whole[BATCHES];
  float *version[BATCHES + 1]; /* device, whole model: after that many updates */
  float *mixed;                /* device, weights for a pass of the whole model */
  int first, updates;          /* of the run */
  bool fails;                  /* the second update fails */
};

/* Updates n trained weights of w and the statistics after them. */
static void update(struct trm_device *device, float *w, const float *g, const struct trm_model *model)
{
  const struct trm_update how = {.rule = TRM_UPDATE_SGD, .rate = RATE_PERCENT / 100.0f, .scale = 1, .step = 1};
  const size_t trained = model->parameters - model->statistics;
  device->ops->update(device, &(struct trm_update_arrays){.update = how, .w = w, .g = g, .n = trained});
  if (model->statistics) {
    const float *const both[] = {w + trained, g + trained};
    device->ops->sum(device, &(struct trm_sum){.to = w + trained, .from = both, .count = 2, .n = model->statistics});
  }
}

static int flight_input(void *context, int batch, int micro, int slot, bool features, bool targets,
                        struct trm_input *input)
{
  struct flight *f = context;
  (void)slot;
  batch += f->first;
  *input = nn_case_part(&f->stage.full, f->low[batch][micro], f->low[batch][micro] + f->rows[batch][micro]);
  if (!features)
    input->dense = NULL;
  if (!targets)
    input->target_class = NULL;
  return TRM_OK;
}

static int flight_ready(void *context, int batch, size_t low, size_t high, const struct trm_loss_sums *tally)
{
  struct flight *f = context;
  struct stage *s = &f->stage;
  s->in_order = s->in_order && batch == f->updates && low == s->ready && high > low && tally == &f->tally[batch];
  s->ready = high;
  return TRM_OK;
}

static int flight_step(void *context, int batch, struct trm_loss_sums *tally)
{
  struct flight *f = context;
  struct stage *s = &f->stage;
  s->in_order = s->in_order && batch == f->updates && s->ready == s->model.parameters && tally == &f->tally[batch];
  s->ready = 0;
  f->updates++;
  if (f->fails && batch == 1)
    return trm_error(TRM_FAILED, "the second update");
  update(s->device, s->w, s->g, &s->model);
  return TRM_OK;
}

static bool flight_open(struct flight *f, const struct setup *setup)
{
  *f = (struct flight){0};
  if (!stage_open(&f->stage, setup, current_device))
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
  const size_t n = f->stage.full.model.parameters;
  f->mixed = floats_alloc(current_device, n);
  for (int v = 0; v <= BATCHES; v++)
    f->version[v] = floats_alloc(current_device, n);
  current_device->ops->copy(current_device, f->version[0], f->stage.full.w, n * sizeof(float));
  return true;
}

static void flight_close(struct flight *f)
{
  current_device->ops->release(current_device, f->mixed);
  for (int v = 0; v <= BATCHES; v++)
    current_device->ops->release(current_device, f->version[v]);
  stage_close(&f->stage);
}

static int flight_run(struct flight *f, int first, int batches)
{
  struct stage *s = &f->stage;
  const struct trm_pipeline_run run = {
    .pass = {.device = s->device, .training = true, .seed = 7}, .batch = f->batch + first, .batches = batches,
    .context = f, .input = flight_input, .grad_ready = flight_ready, .step = flight_step};
  s->in_order = true;
  s->ready = 0;
  f->updates = 0;
  f->first = first;
  return s->pipeline.ops->train(&s->pipeline, &run, f->tally);
}

/* Returns the stage of a parameter of the whole model. */
static int stage_of(const struct stage *s, const struct trm_layer_range *cut, int number)
{
  const struct trm_model *whole = &s->full.model;
  int stage = 0;
  for (int i = 0, n = 0; i < whole->layers; n += whole->layer[i++].parameters)
    if (n <= number)
      while (i >= cut[stage].last)
        stage++;
    else
      break;
  return stage;
}

/* Returns a stage's number of updates before the forward or backward pass of a micro-batch. */
static int updates_before(const struct trm_schedule *schedule, int stage, int kind, int micro)
{
  int count, back = 0;
  struct trm_action *a = trm_schedule_actions(schedule, stage, BATCHES, &count);
  for (int i = 0; (int)a[i].kind != kind || a[i].micro != micro; i++)
    back += a[i].kind == TRM_BACKWARD;
  trm_free(a);
  return back;
}

/* Sets each stage's parameters in the whole model to the version which that stage uses. */
static void use_versions(struct flight *f, int kind, int batch)
{
  struct stage *s = &f->stage;
  const struct trm_schedule *schedule = &s->pipeline.schedule;
  struct trm_layer_range cut[16];
  CU_ASSERT_FATAL(trm_balance(&s->full.model, "auto", world->size, cut) == TRM_OK);
  for (int n = 0; n < trm_model_parameter_count(&s->full.model); n++) {
    const struct trm_parameter *p = trm_model_parameter(&s->full.model, n);
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
  struct trm_model *model = &s->full.model;
  CU_ASSERT_FATAL(trm_model_bind(model, s->device, f->mixed, s->full.g, model->max_rows, true) == TRM_OK);
  for (int b = 0; b < BATCHES; b++) {
    f->whole[b] = (struct trm_loss_sums){0};
    for (int m = 0; m < f->batch[b].micros; m++) {
      const struct trm_input input = nn_case_part(&s->full, f->low[b][m], f->low[b][m] + f->rows[b][m]);
      const struct trm_pass pass = {.device = s->device, .input = &input, .training = true, .seed = 7,
                                    .first_row = f->batch[b].first_row + f->low[b][m] - f->low[b][0],
                                    .beta = m ? 1 : 0, .scale = f->batch[b].scale};
      use_versions(f, TRM_FORWARD, b);
      trm_model_forward(model, &pass);
      CU_ASSERT_FATAL(trm_model_loss(model, &pass, &f->whole[b]) == TRM_OK);
      use_versions(f, TRM_BACKWARD, b);
      CU_ASSERT_FATAL(trm_model_backward(model, &pass, NULL, NULL) == TRM_OK);
    }
    s->device->ops->copy(s->device, f->version[b + 1], f->version[b], model->parameters * sizeof(float));
    update(s->device, f->version[b + 1], s->full.g, model);
  }
}

static void compare_weights(struct flight *f, double tolerance)
{
  struct stage *s = &f->stage;
  const float *whole = read_floats(s->device, f->version[BATCHES], s->full.model.parameters);
  const float *part = read_floats(s->device, s->w, s->model.parameters);
  for (int n = 0; n < trm_model_parameter_count(&s->model); n++) {
    const struct trm_parameter *p = trm_model_parameter(&s->model, n);
    const double far = difference(part + p->offset, whole + in_full(s, p)->offset, p->count);
    if (far > tolerance)
      printf("\n    %s, rank %d: %s differs by %.3g\n", text_of(s->setup), world->rank, p->name, far);
    CU_ASSERT(far <= tolerance);
  }
}

/* One run, and two runs with a flush between them: equal with two versions, if the stashed version is restored. */
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
      s->pipeline.ops->destroy(&s->pipeline); /* as in a resumed run */
      s->pipeline.busy_s = s->pipeline.span_s = 0;
      CU_ASSERT_FATAL(s->pipeline.ops->create(&s->pipeline) == TRM_OK);
      CHECK(setup, s->pipeline.ops->restore(&s->pipeline, before) == TRM_OK);
      CHECK(setup, flight_run(&f, 2, BATCHES - 2) == TRM_OK && f.updates == BATCHES - 2);
    } else {
      CHECK(setup, flight_run(&f, 0, BATCHES) == TRM_OK && f.updates == BATCHES && s->in_order);
    }
    flight_whole(&f);
    for (int b = 0; b < BATCHES - 2; b++) {
      const struct trm_loss_sums *here = &f.tally[b], *there = &f.whole[again ? b + 2 : b];
      CHECK(setup, fabs(here->loss - there->loss) <= tolerance * there->loss && here->rows == there->rows);
    }
    compare_weights(&f, tolerance);
    flight_close(&f);
  }
}

static const char tanhs[] = "linear 8 | tanh | dropout 0.3 | linear 7 | tanh | linear 9 | tanh | linear 6 | linear 10";

static void two_versions(struct trm_device *device)
{
  current_device = device;
  for (int micros = world->size > 1 ? world->size - 1 : 1; micros <= 5; micros++) {
    const struct setup plain = {.text = tanhs, .loss = "auto", .spec = &nn_ten_classes, .schedule = TRM_2BW,
                                .micros = micros, .rows = 16};
    compare_flight(&plain, 0);
    const struct setup norms = {.text = "conv2d 3 3 bias=no | batch_norm | tanh | conv2d 3 1 | batch_norm | tanh | "
                                        "conv2d 2 1 | tanh | flatten | linear 5",
                                .loss = "auto", .spec = &nn_images, .schedule = TRM_2BW, .micros = micros, .rows = 16};
    compare_flight(&norms, 0);
    const struct setup tied = {.text = "gpt layers=2 heads=2 dim=8 context=5 dropout=0.1", .loss = "auto",
                               .spec = &nn_tokens, .schedule = TRM_2BW, .micros = micros, .rows = 16};
    compare_flight(&tied, 1e-5);
  }
}

static void test_two_versions(void)
{
  on_devices(two_versions);
}

static void pipedream(struct trm_device *device)
{
  current_device = device;
  for (size_t rows = 8; rows <= 16; rows += 8) {
    struct setup setup = {.text = tanhs, .loss = "auto", .spec = &nn_ten_classes, .schedule = TRM_PIPEDREAM,
                          .micros = 1, .rows = rows};
    compare_flight(&setup, 0);
    setup.no_stash = true;
    compare_flight(&setup, 0);
  }
}

static void test_pipedream(void)
{
  on_devices(pipedream);
}

/* A failed update is reported to all stages, and no update follows it; afterwards the pipeline is usable. */
static void failing(struct trm_device *device)
{
  current_device = device;
  struct flight f;
  const struct setup setup = {.text = tanhs, .loss = "auto", .spec = &nn_ten_classes, .schedule = TRM_2BW, .micros = 4,
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

int main(int argc, char **argv)
{
  CU_TestInfo tests[] = {{"2bw: two versions", test_two_versions},
                         {"pipedream, with and without stash", test_pipedream},
                         {"an update that fails", test_failing},
                         CU_TEST_INFO_NULL};
  return ranks_run(argc, argv, "pipelines without flush", tests);
}
