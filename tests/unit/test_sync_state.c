/* State of synchronous training: after a loss that is not finite, in checkpoints across layouts, in files, and when
 * shared memory is too small. Meant for 1 to 9 ranks. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "sync_job.h"
#include "train/compatibility.h"

/* -- a loss that is not finite */

static void test_not_finite(void)
{
  for (int variant = 0; variant < 8; variant++) {
    const struct setup c = {.rule = variant == 6 ? TRM_UPDATE_LAMB : TRM_UPDATE_MOMENTUM,
                            .clip = variant == 7 ? 1 : 0,
                            .share = TRM_SHARE_NODE,
                            .node_size = variant > 4 ? 3 : variant == 1 ? 1 : variant == 2 ? 2 : 0,
                            .pretends = variant == 3 || variant == 4 ? variant - 2 : 0,
                            .bucket = 20000,
                            .elements = 40000};
    struct job job;
    job_start(&job, &c, world);
    struct trm_strategy *s = &job.strategy;
    strategy_restore_initial(&job.strategy, initial);
    exact_step(&job, &c);
    const size_t bytes = c.elements * sizeof(float);
    float *before = trm_alloc(bytes, "test"), *after = trm_alloc(bytes, "test");
    s->device->ops->download(s->device, before, s->w, bytes);
    float *g = trm_alloc(bytes, "test");
    struct trm_loss_sums tally = {.loss = s->batch_shard == s->batch_shards - 1 ? (variant % 2 ? INFINITY : NAN) : 1,
                                  .rows = 1};
    s->rate = 0.1; /* so that updates could begin before the step */
    submit_gradient(&job, g, &tally);
    world->ops->barrier(world);
    for (int i = 0; i < 1000; i++) /* all ranks have published: all sums begin and arrive */
      CHECK(&c, s->ops->grad_ready(s, 0, c.elements, &tally) == TRM_OK);
    trm_strategy_begin_step(s, 0.1, 0, &tally);
    CHECK(&c, s->ops->step(s, 0.1, &tally) == TRM_FAILED);
    CHECK(&c, strstr(trm_error_text(), "step 2") && strstr(trm_error_text(), variant % 2 ? "inf" : "nan"));
    s->device->ops->download(s->device, after, s->w, bytes);
    CHECK(&c, memcmp(before, after, bytes) == 0);
    CHECK(&c, s->updates == 1);
    const float *view[TRM_MAX_STATES];
    CHECK(&c, s->ops->collect(s, view) == TRM_OK);
    strategy_end(&job.arrays);
    trm_free(before);
    trm_free(after);
    trm_free(g);
  }
}

/* -- checkpoints */

/* Broadcasts the whole arrays from rank 0. */
static void collect_all(struct job *job, const struct setup *c, float *all[TRM_MAX_STATES])
{
  const float *view[TRM_MAX_STATES];
  CHECK(c, job->strategy.ops->collect(&job->strategy, view) == TRM_OK);
  for (int i = 0; i < TRM_MAX_STATES; i++) {
    if (world->rank == 0) {
      CHECK(c, (view[i] != NULL) == (i <= job->optimizer.states));
      if (view[i])
        memcpy(all[i], view[i], c->elements * sizeof(float));
    }
    world->ops->broadcast(world, all[i], c->elements, TRM_FLOAT, 0);
  }
}

/* Three steps in one sharing mode and two in another equal five in the first. */
static void check_resume(const struct setup *first, const struct setup *second)
{
  const size_t bytes = first->elements * sizeof(float);
  float *half[TRM_MAX_STATES], *resumed[TRM_MAX_STATES], *straight[TRM_MAX_STATES];
  for (int i = 0; i < TRM_MAX_STATES; i++) {
    half[i] = trm_alloc(bytes, "test");
    resumed[i] = trm_alloc(bytes, "test");
    straight[i] = trm_alloc(bytes, "test");
  }
  struct job job, other;
  job_start(&job, first, world);
  const int states = job.optimizer.states;
  strategy_restore_initial(&job.strategy, initial);
  for (int i = 0; i < 3; i++)
    exact_step(&job, first);
  collect_all(&job, first, half);
  for (int i = 0; i < 2; i++)
    exact_step(&job, first);
  collect_all(&job, first, straight);
  strategy_end(&job.arrays);

  job_start(&other, second, world);
  const float *const from[TRM_MAX_STATES] = {half[0], half[1], half[2], half[3]};
  CHECK(second, other.strategy.ops->restore(&other.strategy, from, 3) == TRM_OK);
  for (int i = 0; i < 2; i++)
    exact_step(&other, second);
  collect_all(&other, second, resumed);
  strategy_end(&other.arrays);
  for (int i = 0; i < TRM_MAX_STATES; i++) {
    CHECK(second, i > states || memcmp(straight[i], resumed[i], bytes) == 0);
    CHECK(second, i > states || memcmp(straight[i], half[i], bytes) != 0);
    trm_free(half[i]);
    trm_free(resumed[i]);
    trm_free(straight[i]);
  }
}

static void test_resume(void)
{
  const struct setup shared = {
    .rule = TRM_UPDATE_LAMB, .ema = 0.9, .share = TRM_SHARE_NODE, .bucket = 20000, .elements = 40000};
  struct setup nodes = shared, private = shared, distant = shared;
  nodes.node_size = 2;
  private.share = TRM_SHARE_NONE;
  distant.pretends = 1;
  struct setup mixed = shared;
  mixed.pretends = 2;
  check_resume(&shared, &nodes);
  check_resume(&nodes, &private);
  check_resume(&private, &distant);
  check_resume(&distant, &mixed);
  check_resume(&mixed, &shared);
}

/* -- states in a file */

/* Makes a temporary folder, the same on all ranks. */
static void folder_make(char folder[64])
{
  if (world->rank == 0) {
    snprintf(folder, 64, "/tmp/trireme-test-XXXXXX");
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(folder));
  }
  world->ops->broadcast(world, folder, 64, TRM_BYTE, 0);
}

/* Resets the struct to its state before create. */
static void strategy_reset(struct job *job)
{
  job->strategy = (struct trm_strategy){.ops = trm_strategy_find("sync"),
                                        .comm = world,
                                        .device = &cpu,
                                        .optimizer = &job->optimizer,
                                        .elements = job->strategy.elements,
                                        .boundary = job->boundary,
                                        .boundaries = 5};
  trm_strategy_set_options(&job->strategy, &job->options);
}

static void test_offload(void)
{
  char folder[64];
  folder_make(folder);
  const struct setup memory = {
    .rule = TRM_UPDATE_LAMB, .ema = 0.9, .share = TRM_SHARE_NODE, .bucket = 20000, .elements = 40000};
  struct setup file = memory;
  file.offload = folder;
  for (int node_size = 0; node_size <= 2; node_size++) {
    file.node_size = node_size;
    file.pretends = node_size;
    check_resume(&memory, &file);
    check_resume(&file, &memory);
  }
  file.pretends = 0;
  file.share = TRM_SHARE_NONE;
  check_resume(&memory, &file);

  struct job job;
  job_start(&job, &file, world);
  world->ops->barrier(world);
  if (world->rank == 0) /* unlinked files: nothing remains, even after a crash */
    CHECK(&file, rmdir(folder) == 0);
  world->ops->barrier(world);
  strategy_restore_initial(&job.strategy, initial);
  exact_step(&job, &file);
  strategy_end(&job.arrays);
  const bool has_nodes = world->size > 1;
  for (int shared = 0; shared <= has_nodes; shared++) { /* the folder is gone */
    job.options.parallel.share = shared ? TRM_SHARE_NODE : TRM_SHARE_NONE;
    strategy_reset(&job);
    CHECK(&file, trm_strategy_create(&job.strategy) == TRM_FAILED);
    CHECK(&file, strstr(trm_error_text(), folder) && strstr(trm_error_text(), "0.2 MiB for optimizer states"));
  }
}

/* What a device with memory of its own excludes. */
static void test_device_memory(void)
{
  struct trm_options options;
  trm_options_default(&options);
  struct trm_run_facts run = {.options = &options, .strategy = trm_strategy_find("asgd"), .device_memory = true};
  CU_ASSERT_EQUAL(trm_compatibility_check(&run), TRM_OK);
  CU_ASSERT_EQUAL(trm_options_set(&options, "simulate.workers", "2"), TRM_OK);
  CU_ASSERT_EQUAL(trm_compatibility_check(&run), TRM_USAGE);
  CU_ASSERT_PTR_NOT_NULL(strstr(trm_error_text(), "a device with memory of its own"));
  run.device_memory = false;
  CU_ASSERT_EQUAL(trm_compatibility_check(&run), TRM_OK);
  trm_options_free(&options);
}

/* -- shared memory too small */

static void test_too_large(void)
{
  struct job job;
  memset(&job, 0, sizeof job);
  const struct setup c = {.share = TRM_SHARE_NODE};
  job.options.parallel.share = TRM_SHARE_NODE;
  job.strategy = (struct trm_strategy){.ops = trm_strategy_find("sync"),
                                       .comm = world,
                                       .device = &cpu,
                                       .optimizer = &job.optimizer,
                                       .elements = (size_t)1 << 44};
  trm_strategy_set_options(&job.strategy, &job.options);
  struct trm_comm *node = world->ops->split_node(world, TRM_SHARE_NODE);
  if (node->size > 1) { /* one rank allocates private memory, where failure ends the job */
    CHECK(&c, trm_strategy_create(&job.strategy) == TRM_FAILED);
    CHECK(&c, strstr(trm_error_text(), "weights") != NULL);
  } else {
    CU_ASSERT_PTR_NOT_NULL(node);
  }
  node->ops->release(node);
}

int main(int argc, char **argv)
{
  CU_TestInfo tests[] = {
    {"a loss that is not finite", test_not_finite},
    {"checkpoints between layouts", test_resume},
    {"states in a file", test_offload},
    {"a device with separate memory", test_device_memory},
    {"/dev/shm too small", test_too_large},
    CU_TEST_INFO_NULL,
  };
  return method_devices_run(argc, argv, "state of sync", tests);
}
