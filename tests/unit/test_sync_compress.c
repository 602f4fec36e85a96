/* Synchronous training with compressed gradients between nodes (TRM_NODE_SIZE): all that is sent equals no compression;
 * equal weights on all ranks; a resumed run is the undisturbed one, bit for bit. Meant for 1 to 9 ranks. */
#include <stdint.h>
#include <string.h>

#include "mpi/sync/sync_private.h"
#include "sync_job.h"

static const struct setup plain = {
  .rule = TRM_UPDATE_MOMENTUM, .share = TRM_SHARE_NODE, .bucket = 65536, .elements = 70000 / 16 * 16};

/* Copies a state, 0: the weights, to `to` on all ranks. */
static void read_all(struct job *job, int state, float *to)
{
  CU_ASSERT_EQUAL(strategy_read(&job->strategy, state, to), TRM_OK);
  world->ops->broadcast(world, to, job->strategy.elements, TRM_FLOAT, 0);
}

/* Returns true if all ranks have the same weights, bit for bit. */
static bool same_everywhere(const struct job *job)
{
  const uint32_t *w = (const uint32_t *)job->strategy.w;
  int64_t sum = 0;
  for (size_t i = 0; i < job->strategy.elements; i++)
    sum = (sum * 31 + w[i]) % 1000000007;
  int64_t both[2] = {sum, -sum};
  world->ops->allreduce(world, both, 2, TRM_INT64, TRM_MAX);
  return both[0] == -both[1];
}

static void steps_make(struct job *job, const struct setup *c, int steps)
{
  for (int i = 0; i < steps; i++)
    exact_step(job, c);
}

/* Ranks of a node send nothing to one another. */
static bool has_other_nodes(const struct setup *c)
{
  return world->size > 1 && c->node_size > 0 && c->node_size < world->size;
}

static void test_all_sent(void)
{
  const size_t bytes = plain.elements * sizeof(float);
  float *whole = trm_alloc(bytes, "test"), *compressed = trm_alloc(bytes, "test");
  for (int node_size = 0; node_size <= 2; node_size++) {
    struct setup c = plain;
    struct job job;
    c.node_size = node_size;
    c.clip = node_size == 2 ? 20 : 0;
    job_start(&job, &c, world);
    strategy_restore_initial(&job.strategy, initial);
    steps_make(&job, &c, 3);
    read_all(&job, 0, whole);
    strategy_end(&job.arrays);
    c.compress = TRM_COMPRESS_TOPK;
    c.ratio = 1;
    job_start(&job, &c, world);
    strategy_restore_initial(&job.strategy, initial);
    steps_make(&job, &c, 3);
    read_all(&job, 0, compressed);
    CHECK(&c, has_other_nodes(&c) == (((struct sync *)job.strategy.impl)->compressor != NULL));
    strategy_end(&job.arrays);
    CHECK(&c, memcmp(whole, compressed, bytes) == 0);
  }
  trm_free(whole);
  trm_free(compressed);
}

/* -- resuming. What a checkpoint has: weights, states, local states. */
struct saved {
  float *array[TRM_MAX_STATES];
  void *local[TRM_MAX_LOCAL_STATES];
  int locals;
};

static void save(struct saved *saved, struct job *job)
{
  struct trm_strategy *s = &job->strategy;
  for (int i = 0; i <= job->optimizer.states; i++) {
    saved->array[i] = trm_alloc(s->elements * sizeof(float), "test");
    read_all(job, i, saved->array[i]);
  }
  saved->locals = s->local_states;
  for (int i = 0; i < s->local_states; i++) {
    saved->local[i] = trm_alloc(s->local_state[i].bytes, "test");
    memcpy(saved->local[i], s->local_state[i].data, s->local_state[i].bytes);
  }
}

static void saved_free(struct saved *saved)
{
  for (int i = 0; i < TRM_MAX_STATES; i++)
    trm_free(saved->array[i]);
  for (int i = 0; i < saved->locals; i++)
    trm_free(saved->local[i]);
}

static void restore(const struct saved *saved, struct job *job, const struct setup *c)
{
  struct trm_strategy *s = &job->strategy;
  const float *const from[TRM_MAX_STATES] = {saved->array[0], saved->array[1], saved->array[2], saved->array[3]};
  CHECK(c, s->local_states == saved->locals);
  for (int i = 0; i < saved->locals; i++)
    memcpy(s->local_state[i].data, saved->local[i], s->local_state[i].bytes);
  s->local_state_restored = true;
  CHECK(c, s->ops->restore(s, from, 3) == TRM_OK);
}

static void check_resume(const struct setup *c)
{
  const size_t bytes = c->elements * sizeof(float);
  float *straight = trm_alloc(bytes, "test"), *resumed = trm_alloc(bytes, "test");
  struct saved half = {0};
  struct job job;
  job_start(&job, c, world);
  strategy_restore_initial(&job.strategy, initial);
  steps_make(&job, c, 3);
  save(&half, &job);
  steps_make(&job, c, 2);
  read_all(&job, 0, straight);
  CHECK(c, same_everywhere(&job));
  CHECK(c, (job.strategy.wire.bytes > 0) == has_other_nodes(c));
  strategy_end(&job.arrays);
  job_start(&job, c, world);
  restore(&half, &job, c);
  steps_make(&job, c, 2);
  read_all(&job, 0, resumed);
  strategy_end(&job.arrays);
  CHECK(c, memcmp(straight, resumed, bytes) == 0);
  CHECK(c, memcmp(straight, half.array[0], bytes) != 0);
  saved_free(&half);
  trm_free(straight);
  trm_free(resumed);
}

static void test_resume(void)
{
  for (enum trm_compress compress = TRM_COMPRESS_BF16; compress <= TRM_COMPRESS_POWERSGD; compress++)
    for (int node_size = 1; node_size <= 2; node_size++) {
      struct setup c = plain;
      c.compress = compress;
      c.ratio = 0.01;
      c.node_size = node_size;
      c.rule = compress == TRM_COMPRESS_DGC ? TRM_UPDATE_SGD : TRM_UPDATE_MOMENTUM;
      if (world->size > 4 && (int)compress % 2 == node_size - 1)
        continue;
      if (compress != TRM_COMPRESS_DGC || has_other_nodes(&c))
        check_resume(&c);
    }
}

static void test_one_node(void)
{
  struct setup c = plain;
  struct job job;
  c.compress = TRM_COMPRESS_SIGN;
  job_start(&job, &c, world); /* no effect */
  strategy_restore_initial(&job.strategy, initial);
  exact_step(&job, &c);
  CHECK(&c, job.strategy.wire.bytes == 0 && job.strategy.local_states == 0);
  job.options.strategy.compress = TRM_COMPRESS_DGC;
  struct trm_strategy other = {.ops = trm_strategy_find("sync"), .comm = world, .device = &cpu,
                               .optimizer = &job.optimizer, .elements = c.elements, .boundary = job.boundary,
                               .boundaries = 5};
  trm_strategy_set_options(&other, &job.options);
  CHECK(&c, strategy_create(&other, 0) == TRM_USAGE);
  CHECK(&c, strstr(trm_error_text(), "strategy.compress=dgc") && strstr(trm_error_text(), "one node"));
  strategy_end(&job.arrays);
}

int main(int argc, char **argv)
{
  CU_TestInfo tests[] = {
    {"all of it sent", test_all_sent},
    {"a resumed run", test_resume},
    {"one node", test_one_node},
    CU_TEST_INFO_NULL,
  };
  return method_devices_run(argc, argv, "sync_compress", tests);
}
