/* Whole training steps of one rank on a device with memory of its own: the host waits once in a step, every second step
 * makes the same calls with the same arguments, which are recorded and replayed where the device has graphs, and the
 * numbers are those of a host device. */
#include <CUnit/CUnit.h>
#include <math.h>
#include <string.h>

#include "blas/blas.h"
#include "core/comm.h"
#include "core/memory.h"
#include "core/random.h"
#include "core/status.h"
#include "kernels/kernels.h"
#include "mpi/strategies.h"
#include "suite.h"
#include "support/pretend_device.h"
#include "train/device_batch.h"
#include "train/staged_arrays.h"

enum { ROWS = 6, STEPS = 6, STEADY = 3, F = 64, CLASSES = 5, T = 8 };

struct recipe {
  const char *model;
  bool tokens;
  struct trm_optim_options optim;
};

static const struct recipe recipes[] = {
  {"mlp 64-20-5 relu", false, {.name = TRM_UPDATE_SGD, .rate = 0.1}},
  {"linear 20 | relu | dropout 0.3 | linear 5", false,
   {.name = TRM_UPDATE_ADAM, .rate = 0.01, .beta1 = 0.9, .beta2 = 0.99, .epsilon = 1e-8, .clip = 0.1, .ema = 0.9}},
  {"conv2d 4 3 pad=1 | batch_norm | relu | global_avg_pool | linear 5", false,
   {.name = TRM_UPDATE_MOMENTUM, .rate = 0.05, .momentum = 0.9, .l2 = 0.01, .clip = 0.5}},
  {"linear 20 | tanh | linear 5", false,
   {.name = TRM_UPDATE_LAMB, .rate = 0.01, .beta1 = 0.9, .beta2 = 0.99, .epsilon = 1e-6, .decay = 0.1}},
  {"linear 20 | tanh | linear 5", false, {.name = TRM_UPDATE_LARS, .rate = 0.1, .trust = 0.01, .l2 = 0.01, .clip = 1}},
  {"linear 20 | tanh | linear 7 | tanh | linear 5", false,
   {.name = TRM_UPDATE_MUON, .rate = 0.02, .adamw_rate = 0.01, .beta1 = 0.9, .beta2 = 0.99, .epsilon = 1e-8, .clip = 1}},
  {"gpt layers=1 heads=2 dim=8 context=8 dropout=0.2", true,
   {.name = TRM_UPDATE_ADAMW, .rate = 0.01, .beta1 = 0.9, .beta2 = 0.99, .epsilon = 1e-8, .decay = 0.1, .clip = 1}},
};

struct run {
  struct trm_device *device;
  struct trm_options options;
  struct trm_model model;
  struct trm_optimizer optimizer;
  struct trm_strategy strategy;
  struct trm_staged_arrays arrays;
  struct trm_device_batch batch;
  size_t boundary;
};

static float draw(uint64_t step, uint64_t i)
{
  return 2 * trm_random_uniform(5, TRM_RANDOM_BENCH, (uint32_t)step, i) - 1;
}

/* One batch, which lasts until the next call. */
static struct trm_host_batch *make_batch(const struct recipe *r, uint64_t step, bool broken)
{
  static float dense[ROWS * F];
  static int32_t tokens[ROWS * T], target[ROWS * T];
  static struct trm_host_batch batch;

  for (uint64_t i = 0; i < ROWS * F; i++)
    dense[i] = broken ? NAN : draw(step, i);
  for (uint64_t i = 0; i < ROWS * T; i++) {
    tokens[i] = (int32_t)(i * 7 + step) % CLASSES;
    target[i] = (int32_t)(i * 3 + step) % CLASSES;
  }
  batch = (struct trm_host_batch){
    .rows = ROWS, .dense = r->tokens ? NULL : dense, .tokens = r->tokens ? tokens : NULL, .target_class = target};
  return &batch;
}

static void run_open(struct run *run, const struct recipe *r, struct trm_device *device)
{
  const struct trm_input_spec spec = {
    .shape = r->tokens ? (struct trm_shape){.dims = 1, .size = {T}} : (struct trm_shape){.dims = 3, .size = {1, 8, 8}},
    .tokens = r->tokens, .target = TRM_TARGET_CLASS, .classes = CLASSES};
  struct trm_strategy *s = &run->strategy;

  memset(run, 0, sizeof *run);
  run->device = device;
  run->options.optim = r->optim;
  CU_ASSERT_EQUAL_FATAL(trm_model_create(&run->model, r->model, "auto", &spec), TRM_OK);
  CU_ASSERT_EQUAL_FATAL(trm_optimizer_create(&run->optimizer, &run->options, &run->model), TRM_OK);
  run->model.accumulates = true;
  run->boundary = run->model.parameters;
  *s = (struct trm_strategy){.ops = trm_strategy_find("sync"), .comm = trm_comm_self(), .device = device,
                             .optimizer = &run->optimizer, .elements = run->model.parameters,
                             .boundary = &run->boundary, .boundaries = 1};
  trm_strategy_set_options(s, &run->options);
  CU_ASSERT_EQUAL_FATAL(trm_staged_arrays_create(&run->arrays, s), TRM_OK);
  CU_ASSERT_PTR_NOT_NULL_FATAL(trm_staged_arrays_step(&run->arrays));
  CU_ASSERT_EQUAL_FATAL(trm_model_bind(&run->model, device, s->w, s->g, ROWS, true), TRM_OK);
  float *start = trm_alloc(s->elements * sizeof *start, "test");
  trm_model_init(&run->model, 1, start);
  const float *from[TRM_MAX_STATES] = {start};
  if (run->optimizer.ema > 0)
    from[run->optimizer.states] = start;
  CU_ASSERT_EQUAL_FATAL(s->ops->restore(s, from, 0), TRM_OK);
  trm_free(start);
  trm_device_batch_create(&run->batch, device, &run->model);
}

static int run_step(struct run *run, const struct recipe *r, bool broken, struct trm_loss_sums *sums)
{
  struct trm_strategy *s = &run->strategy;
  struct trm_input input;
  const struct trm_pass pass = {.device = run->device, .input = &input, .training = true, .seed = 3,
                                .step = trm_staged_arrays_step(&run->arrays)};

  *sums = (struct trm_loss_sums){.stop_requests = 1};
  trm_strategy_begin_step(s, 0.1 / (double)(s->updates + 1), s->updates * ROWS, sums);
  TRM_CHECK(trm_device_batch_upload(&run->batch, make_batch(r, s->updates, broken), &input));
  TRM_CHECK(trm_model_train(&run->model, &pass, 1.0f / ROWS, sums, NULL, NULL));
  return s->ops->step(s, 0, sums);
}

/* Weights and states of the run, (arrays, elements); trm_free. */
static float *run_state(struct run *run)
{
  const size_t n = run->strategy.elements;
  const float *view[TRM_MAX_STATES];
  float *all = trm_alloc(TRM_MAX_STATES * n * sizeof *all, "test");

  CU_ASSERT_EQUAL_FATAL(run->strategy.ops->collect(&run->strategy, view), TRM_OK);
  for (int i = 0; i < TRM_MAX_STATES; i++)
    if (view[i])
      memcpy(all + (size_t)i * n, view[i], n * sizeof *all);
  return all;
}

static void run_close(struct run *run)
{
  trm_device_batch_free(&run->batch);
  trm_model_free(&run->model);
  trm_staged_arrays_free(&run->arrays);
  run->strategy.ops->destroy(&run->strategy);
}

static bool close_to(const float *a, const float *b, size_t n)
{
  for (size_t i = 0; i < n; i++)
    if (!(fabsf(a[i] - b[i]) <= 1e-5f + 1e-4f * fabsf(b[i])))
      return false;
  return true;
}

static void test_steps(void)
{
  for (size_t k = 0; k < sizeof recipes / sizeof *recipes; k++) {
    const struct recipe *r = &recipes[k];
    struct trm_device pretend, cpu;
    struct run far, near;
    struct pretend_device_record record[STEPS];

    CU_ASSERT_EQUAL_FATAL(pretend_device_open(&pretend, 1), TRM_OK);
    CU_ASSERT_EQUAL_FATAL(trm_device_open(&cpu, "cpu", "auto", TRM_MATMUL_F32, 0, 1), TRM_OK);
    run_open(&far, r, &pretend);
    run_open(&near, r, &cpu);
    pretend_device_record(&pretend);
    for (int i = 0; i < STEPS; i++) {
      struct trm_loss_sums sums, want;

      CU_ASSERT_EQUAL_FATAL(run_step(&far, r, false, &sums), TRM_OK);
      record[i] = pretend_device_record(&pretend);
      CU_ASSERT_EQUAL_FATAL(run_step(&near, r, false, &want), TRM_OK);
      CU_ASSERT_DOUBLE_EQUAL(sums.loss, want.loss, 1e-5 * want.loss);
      CU_ASSERT(sums.correct == want.correct && sums.rows == want.rows && sums.stop_requests == 1);
      CU_ASSERT_EQUAL(far.strategy.updates, (uint64_t)i + 1);
    }
    for (int i = STEADY; i < STEPS; i++) { /* buffers have their size */
      CU_ASSERT_EQUAL(record[i].waits, 1);
      CU_ASSERT_EQUAL(record[i].calls, record[STEADY].calls);
      if (i + 2 < STEPS) /* the batch's buffers alternate */
        CU_ASSERT_EQUAL(record[i].digest, record[i + 2].digest);
    }
    float *a = run_state(&far), *b = run_state(&near);
    CU_ASSERT(close_to(a, b, TRM_MAX_STATES * far.strategy.elements));
    trm_free(b);
    run_close(&far);
    run_close(&near);
    trm_free(a);
    trm_device_close(&cpu);
    pretend_device_close(&pretend);
  }
}

/* A loss that is not finite changes nothing but fails. */
static void test_not_finite(void)
{
  for (size_t k = 0; k < sizeof recipes / sizeof *recipes; k++) {
    struct trm_device pretend;
    struct run run;
    struct trm_loss_sums sums;

    if (recipes[k].tokens)
      continue;
    CU_ASSERT_EQUAL_FATAL(pretend_device_open(&pretend, 1), TRM_OK);
    run_open(&run, &recipes[k], &pretend);
    CU_ASSERT_EQUAL(run_step(&run, &recipes[k], false, &sums), TRM_OK);
    float *before = run_state(&run);
    CU_ASSERT_EQUAL(run_step(&run, &recipes[k], true, &sums), TRM_FAILED);
    CU_ASSERT_PTR_NOT_NULL(strstr(trm_error_text(), "the loss is nan"));
    float *after = run_state(&run);
    CU_ASSERT_EQUAL(memcmp(before, after, TRM_MAX_STATES * run.strategy.elements * sizeof *after), 0);
    CU_ASSERT_EQUAL(run.strategy.updates, 1);
    trm_free(before);
    trm_free(after);
    run_close(&run);
    pretend_device_close(&pretend);
  }
}

/* One step in passes over `micro` rows of the batch each; gradients are sums. */
static int run_micro_batches(struct run *run, const struct recipe *r, size_t rows, size_t micro,
                             struct trm_loss_sums *sums)
{
  struct trm_strategy *s = &run->strategy;
  struct trm_input input;
  struct trm_pass pass = {.device = run->device, .input = &input, .training = true, .seed = 3,
                          .step = trm_staged_arrays_step(&run->arrays)};

  *sums = (struct trm_loss_sums){.stop_requests = 1};
  trm_strategy_begin_step(s, 0.1 / (double)(s->updates + 1), s->updates * ROWS, sums);
  for (size_t low = 0; low < rows; low += micro) {
    struct trm_host_batch batch = *make_batch(r, s->updates, false);

    batch.rows = micro;
    batch.dense += batch.dense ? low * F : 0;
    batch.tokens += batch.tokens ? low * T : 0;
    batch.target_class += r->tokens ? low * T : low;
    TRM_CHECK(trm_device_batch_upload(&run->batch, &batch, &input));
    pass.beta = low > 0;
    pass.more_passes = low + micro < rows;
    pass.weights_kept = low > 0;
    pass.first_row = low;
    TRM_CHECK(trm_model_train(&run->model, &pass, 1.0f / (float)rows, sums, NULL, NULL));
  }
  return s->ops->step(s, 0, sums);
}

/* Steps of recorded calls have the bits of others: with whole batches, micro-batches of a row and a smaller last batch;
 * after the first ones a step is a replay for each pass and one for the update. */
static void test_recorded(void)
{
  enum { ALL = 24, EPOCH = 4 };

  for (size_t k = 0; k < sizeof recipes / sizeof *recipes; k++)
    for (int whole = 0; whole < 2; whole++) {
      struct trm_device pretend[2];
      struct run run[2];
      struct pretend_device_record record;

      for (int graphs = 0; graphs < 2; graphs++) {
        CU_ASSERT_EQUAL_FATAL(pretend_device_open(&pretend[graphs], 1), TRM_OK);
        pretend[graphs].graphs = graphs;
        run_open(&run[graphs], &recipes[k], &pretend[graphs]);
      }
      for (int i = 0; i < ALL; i++) {
        const size_t rows = i % EPOCH == EPOCH - 1 ? 2 : ROWS, micro = whole ? rows : 1;
        struct trm_loss_sums sums[2];

        for (int graphs = 0; graphs < 2; graphs++) {
          pretend_device_record(&pretend[graphs]);
          CU_ASSERT_EQUAL_FATAL(run_micro_batches(&run[graphs], &recipes[k], rows, micro, &sums[graphs]), TRM_OK);
          record = pretend_device_record(&pretend[graphs]);
          CU_ASSERT(record.waits == 1 || i < STEADY || !whole); /* for a buffer, with many passes */
        }
        CU_ASSERT_EQUAL(memcmp(&sums[0], &sums[1], sizeof *sums), 0);
        if (i >= ALL / 2)
          CU_ASSERT_EQUAL(record.replays, rows / micro + 1);
      }
      float *a = run_state(&run[0]), *b = run_state(&run[1]);
      CU_ASSERT_EQUAL(memcmp(a, b, TRM_MAX_STATES * run[0].strategy.elements * sizeof *a), 0);
      trm_free(a);
      trm_free(b);
      for (int graphs = 0; graphs < 2; graphs++) {
        run_close(&run[graphs]);
        pretend_device_close(&pretend[graphs]);
      }
    }
}

int main(void)
{
  CU_TestInfo tests[] = {
    {"one wait a step, equal calls every second step", test_steps},
    {"a loss that is not finite changes nothing", test_not_finite},
    {"recorded calls", test_recorded},
    CU_TEST_INFO_NULL,
  };

  return suite_run("step", tests);
}
