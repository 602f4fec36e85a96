/* State of sharded data parallelism: memory per rank, after a loss that is not finite, in checkpoints across ZeRO
 * levels, with several micro-batches in flight; refused options. Meant for 1 to 8 ranks. */
#include <math.h>
#include <string.h>

#include "zero_job.h"

/* -- memory */

/* A rank may allocate its shards, small buffers, and weights and gradients of two units. */
static void test_memory(void)
{
  static const char *const deep = "linear 128 | tanh | linear 128 | tanh | linear 128 | tanh | linear 128 | tanh | "
                                  "linear 128 | tanh | linear 128 | tanh | linear 128 | tanh | linear 128 | tanh | "
                                  "linear 128 | tanh | linear 128 | tanh | linear 128 | tanh | linear 10";
  struct setup c = {.text = deep,
                    .spec = &vectors,
                    .optim = {"optim.name", "adamw"},
                    .share = "none",
                    .bucket = "48k",
                    .batch = 12,
                    .accumulate = 1};
  const double ranks = world->size;
  if (world->size == 1)
    return;
  for (c.zero = 0; c.zero <= 3; c.zero++) {
    struct job job;
    job_open(&job, &c, c.zero, world);
    initial_weights(&job);
    const double n = (double)job.model.parameters * sizeof(float), unit = (128 * 128 + 128) * sizeof(float);
    const double slack = 0.05 * 4 * n, held = (double)job.allocated;
    const size_t before = trm_memory_allocated();
    struct trm_loss_sums tally;
    for (int i = 0; i < 2; i++)
      CHECK(&c, step(&job, (uint64_t)i, 1, &tally) == TRM_OK);
    CHECK(&c, trm_memory_allocated() == before);
    if (c.zero == 0)
      CHECK(&c, held >= 4 * n);
    if (c.zero == 1)
      CHECK(&c, held <= 2 * n + 3 * n / ranks + slack);
    if (c.zero == 2)
      CHECK(&c, held <= n + 3 * n / ranks + 2 * unit + slack);
    if (c.zero == 3)
      CHECK(&c, held <= 4 * n / ranks + 4 * unit + slack);
    job_close(&job);
  }
  c.share = "node"; /* memory shared by a node counts once */
  for (c.zero = 2; c.zero <= 3; c.zero++) {
    struct job job;
    job_open(&job, &c, c.zero, world);
    const double n = (double)job.model.parameters * sizeof(float), unit = (128 * 128 + 128) * sizeof(float);
    CHECK(&c, (double)job.allocated <= n + 3 * n / ranks + ranks * (2 * unit + 65536) + 0.05 * 4 * n + 65536);
    job_close(&job);
  }
}

/* -- a loss that is not finite */

static void test_not_finite(void)
{
  struct setup c = {.text = mlp,
                    .spec = &vectors,
                    .optim = {"optim.name", "adamw", "optim.epsilon", "1e-3"},
                    .bucket = "1k",
                    .batch = 12,
                    .accumulate = 2};
  for (int i = 0; i < 8; i++) {
    c.zero = i % 4;
    c.share = i < 4 ? "none" : "node";
    struct job job;
    job_open(&job, &c, c.zero, world);
    initial_weights(&job);
    float *before[TRM_MAX_STATES], *after[TRM_MAX_STATES];
    for (int k = 0; k < TRM_MAX_STATES; k++) {
      before[k] = trm_alloc(job.model.parameters * sizeof(float), "test");
      after[k] = trm_alloc(job.model.parameters * sizeof(float), "test");
    }
    struct trm_loss_sums tally;
    CHECK(&c, step(&job, 0, 1, &tally) == TRM_OK);
    collect_all(&job, true, before);
    CHECK(&c, step(&job, 1, world->rank == world->size - 1 ? NAN : 1, &tally) == TRM_FAILED);
    CHECK(&c, strstr(trm_error_text(), "nan") != NULL);
    CHECK(&c, job.strategy.updates == 1);
    collect_all(&job, true, after);
    for (int k = 0; k <= job.optimizer.states; k++)
      CHECK(&c, memcmp(before[k], after[k], job.model.parameters * sizeof(float)) == 0);
    CHECK(&c, step(&job, 1, 1, &tally) == TRM_OK); /* training continues */
    collect_all(&job, true, after);
    job_close(&job);

    struct job other;
    job_open(&other, &c, c.zero, world);
    initial_weights(&other);
    CHECK(&c, step(&other, 0, 1, &tally) == TRM_OK && step(&other, 1, 1, &tally) == TRM_OK);
    collect_all(&other, true, before);
    for (int k = 0; k <= other.optimizer.states; k++) {
      CHECK(&c, memcmp(before[k], after[k], other.model.parameters * sizeof(float)) == 0);
    }
    job_close(&other);
    for (int k = 0; k < TRM_MAX_STATES; k++) {
      trm_free(before[k]);
      trm_free(after[k]);
    }
  }
}

/* -- checkpoints */

/* Restores by restore, or by write in intervals of any bounds. */
static void put_all(struct job *job, bool pieces, float *const from[TRM_MAX_STATES], uint64_t updates)
{
  struct trm_strategy *s = &job->strategy;
  const size_t n = job->model.parameters;
  const float *none[TRM_MAX_STATES] = {NULL}, *whole[TRM_MAX_STATES] = {from[0], from[1], from[2], from[3]};
  if (!pieces || !s->ops->write) {
    CHECK(job->setup, s->ops->restore(s, whole, updates) == TRM_OK);
    return;
  }
  for (int i = 0; i <= job->optimizer.states; i++)
    for (size_t low = 0, some; low < n; low += some) {
      some = n - low < 777 ? n - low : 777;
      CHECK(job->setup, s->ops->write(s, i, low, some, from[i] + low) == TRM_OK);
    }
  CHECK(job->setup, s->ops->restore(s, none, updates) == TRM_OK);
}

/* Three steps in one configuration and two in another equal five in the first. */
static void check_resume(const struct setup *first, const struct setup *second)
{
  float *half[TRM_MAX_STATES], *again[TRM_MAX_STATES], *straight[TRM_MAX_STATES];
  struct job job, other;
  struct trm_loss_sums tally;
  job_open(&job, first, first->zero, world);
  const size_t n = job.model.parameters;
  for (int i = 0; i < TRM_MAX_STATES; i++) {
    half[i] = trm_alloc(n * sizeof(float), "test");
    again[i] = trm_alloc(n * sizeof(float), "test");
    straight[i] = trm_alloc(n * sizeof(float), "test");
  }
  initial_weights(&job);
  for (int i = 0; i < 3; i++)
    CHECK(first, step(&job, (uint64_t)i, 1, &tally) == TRM_OK);
  collect_all(&job, true, half);
  for (int i = 3; i < 5; i++)
    CHECK(first, step(&job, (uint64_t)i, 1, &tally) == TRM_OK);
  collect_all(&job, false, straight);
  job_close(&job);

  job_open(&other, second, second->zero, world);
  put_all(&other, second->zero % 2, half, 3);
  collect_all(&other, true, again);
  for (int i = 0; i <= other.optimizer.states; i++)
    CHECK(second, memcmp(half[i], again[i], n * sizeof(float)) == 0);
  for (int i = 3; i < 5; i++)
    CHECK(second, step(&other, (uint64_t)i, 1, &tally) == TRM_OK);
  collect_all(&other, true, again);
  for (int i = 0; i <= other.optimizer.states; i++) {
    CHECK(second, difference(again[i], straight[i], n) <= 1e-6 * (i ? 10 : 1));
    CHECK(second, difference(half[i], straight[i], n) > 1e-4);
  }
  job_close(&other);
  for (int i = 0; i < TRM_MAX_STATES; i++) {
    trm_free(half[i]);
    trm_free(again[i]);
    trm_free(straight[i]);
  }
}

static void test_resume(void)
{
  struct setup a = {.text = conv,
                    .spec = &images,
                    .optim = {"optim.name", "momentum", "optim.ema", "0.9"},
                    .share = "none",
                    .bucket = "1k",
                    .batch = 12,
                    .accumulate = 1};
  for (a.zero = 0; a.zero <= 3; a.zero++)
    for (int zero = 0; zero <= 3; zero++) {
      struct setup b = a;
      b.zero = zero;
      b.bucket = "3k";
      b.share = (a.zero + zero) % 2 ? "node" : "none";
      check_resume(&a, &b);
    }
}

/* -- several chunks and micro-batches in flight */

/* One step of two micro-batches: forward of both, then backward. */
static int step_chunks(struct job *job, struct trm_loss_sums *tally)
{
  enum { CHUNKS = 3, SLOTS = 2 };
  struct trm_strategy *s = &job->strategy;
  struct batch batch[SLOTS];
  struct trm_pass pass[SLOTS];
  *tally = (struct trm_loss_sums){0};
  for (int m = 0; m < SLOTS; m++) {
    const size_t at = 6 * (size_t)(s->batch_shard * SLOTS + m);
    batch_make(&batch[m], job, at, at + 6, 1);
    pass[m] = (struct trm_pass){.device = job->device,
                                .input = &batch[m].input,
                                .training = true,
                                .seed = 3,
                                .first_row = at,
                                .beta = m ? 1 : 0,
                                .scale = 1.0f / (float)(6 * SLOTS * s->batch_shards),
                                .provider = job->arrays.provider};
    for (int c = 0; c < CHUNKS; c++) {
      const struct trm_shape *shape;
      trm_model_select(&job->model, c ? c - 1 : 0, m);
      const float *from = c ? trm_model_chunk_output(&job->model, false, &shape) : NULL;
      trm_model_select(&job->model, c, m);
      if (from)
        job->device->ops->copy(job->device, trm_model_chunk_input(&job->model, false, &shape), from,
                               6 * trm_shape_count(shape) * sizeof(float));
      trm_model_forward(&job->model, &pass[m]);
    }
    CHECK(job->setup, trm_model_loss(&job->model, &pass[m], tally) == TRM_OK);
  }
  struct grad_ready_context over = {job, tally, true};
  for (int c = CHUNKS - 1; c >= 0; c--)
    for (int m = 0; m < SLOTS; m++) {
      const struct trm_shape *shape;
      trm_model_select(&job->model, c + 1 < CHUNKS ? c + 1 : c, m);
      const float *from = c + 1 < CHUNKS ? trm_model_chunk_input(&job->model, true, &shape) : NULL;
      trm_model_select(&job->model, c, m);
      if (from)
        job->device->ops->copy(job->device, trm_model_chunk_output(&job->model, true, &shape), from,
                               6 * trm_shape_count(shape) * sizeof(float));
      over.last = m + 1 == SLOTS;
      CHECK(job->setup, trm_model_backward(&job->model, &pass[m], on_grad_ready, &over) == TRM_OK);
    }
  for (int m = 0; m < SLOTS; m++)
    batch_free(&batch[m], job);
  trm_strategy_begin_step(s, 0.05, 0, tally);
  return s->ops->step(s, 0.05, tally);
}

/* One chunk and three chunks. Units must not cross chunk boundaries, or they would be complete too late. */
static void test_chunks(void)
{
  struct setup c = {.text = "linear 20 | tanh | linear 16 | tanh | linear 14 | linear 18 | tanh | linear 10",
                    .spec = &vectors,
                    .optim = {"optim.name", "momentum", "optim.clip", "1"},
                    .share = "none",
                    .bucket = "64k",
                    .accumulate = 2};
  c.batch = 12 * (size_t)world->size;
  float *want[TRM_MAX_STATES] = {NULL}, *got[TRM_MAX_STATES] = {NULL};
  const struct trm_model_part part = {.chunks = 3, .chunk = {{0, 2}, {2, 5}, {5, 8}}, .tensor_size = 1};
  for (int i = 0; i < 8; i++) {
    struct job job;
    struct trm_loss_sums tally;
    c.zero = i % 4;
    c.share = i < 4 ? "none" : "node";
    job_prepare(&job, &c, c.zero, world, NULL);
    initial_weights(&job);
    for (int k = 0; k < TRM_MAX_STATES; k++) {
      want[k] = trm_alloc(job.model.parameters * sizeof(float), "test");
      got[k] = trm_alloc(job.model.parameters * sizeof(float), "test");
    }
    CHECK(&c, step(&job, 0, 1, &tally) == TRM_OK);
    collect_all(&job, true, want);
    job_close(&job);
    job_prepare(&job, &c, c.zero, world, &part);
    initial_weights(&job);
    CHECK(&c, trm_model_bind_slots(&job.model, job.device, job.strategy.w, job.strategy.g, ROWS, true, 2) == TRM_OK);
    CHECK(&c, step_chunks(&job, &tally) == TRM_OK);
    collect_all(&job, true, got);
    for (int k = 0; k <= job.optimizer.states; k++)
      CHECK(&c, difference(got[k], want[k], job.model.parameters) < 1e-6);
    job_close(&job);
    for (int k = 0; k < TRM_MAX_STATES; k++) {
      trm_free(want[k]);
      trm_free(got[k]);
    }
  }
}

int main(int argc, char **argv)
{
  CU_TestInfo tests[] = {
    {"memory", test_memory},
    {"a loss that is not finite", test_not_finite},
    {"checkpoints between levels", test_resume},
    {"chunks", test_chunks},
    CU_TEST_INFO_NULL,
  };
  return method_devices_run(argc, argv, "state of zero", tests);
}
