/* Sharded data parallelism against one rank: models, optimizers, accumulation, averages, nodes, devices with separate
 * memory, norms over stages of a model. Meant for 1 to 8 ranks. */
#include <math.h>
#include <string.h>

#include "mpi/real.h"
#include "mpi/sync/sync.h"
#include "mpi/sync/zero_private.h"
#include "zero_job.h"

enum { STEPS = 10 };

/* Results of a run. */
struct result {
  size_t elements;
  double loss[STEPS], evaluated[2];
  float *state[TRM_MAX_STATES];
};

static void result_free(struct result *r)
{
  for (int i = 0; i < TRM_MAX_STATES; i++)
    trm_free(r->state[i]);
}

static void run(const struct setup *c, int zero, struct trm_comm *comm, struct result *r)
{
  struct job job;
  job_open(&job, c, zero, comm);
  initial_weights(&job);
  r->elements = job.model.parameters;
  r->evaluated[0] = evaluate(&job);
  for (int i = 0; i < STEPS; i++) {
    struct trm_loss_sums tally;
    CHECK(c, step(&job, (uint64_t)i, 1, &tally) == TRM_OK);
    r->loss[i] = tally.loss;
  }
  r->evaluated[1] = evaluate(&job);
  for (int i = 0; i < TRM_MAX_STATES; i++)
    r->state[i] = trm_alloc(r->elements * sizeof(float), "test");
  collect_all(&job, zero % 2, r->state);
  job_close(&job);
}

static void compare(const struct setup *c, const struct result *a, const struct result *b)
{
  for (int i = 0; i < STEPS; i++)
    CHECK(c, fabs(a->loss[i] - b->loss[i]) <= 1e-6 * fabs(b->loss[i]));
  CHECK(c, b->loss[STEPS - 1] != b->loss[0]);
  for (int i = 0; i < 2; i++)
    CHECK(c, fabs(a->evaluated[i] - b->evaluated[i]) <= 1e-6 * fabs(b->evaluated[i]));
  for (int i = 0; i < TRM_MAX_STATES; i++) {
    const double d = difference(a->state[i], b->state[i], b->elements);
    if (d > 1e-6 * (i ? 10 : 1))
      printf("\n    state %d: %g\n", i, d);
    CHECK(c, d <= 1e-6 * (i ? 10 : 1));
  }
}

static void check(const struct setup *setup)
{
  struct result one, all;
  struct trm_comm *data = setup->stages ? world->ops->split(world, world->rank % setup->stages, world->rank) : world;
  run(setup, 0, trm_comm_self(), &one);
  for (int zero = 0; zero <= 3; zero++) {
    struct setup c = *setup;
    c.zero = zero;
    run(&c, zero, data, &all);
    compare(&c, &all, &one);
    result_free(&all);
  }
  result_free(&one);
  if (data != world)
    data->ops->release(data);
}

static void test_models(void)
{
  const struct setup base = {.text = mlp,
                             .spec = &vectors,
                             .optim = {"optim.name", "sgd"},
                             .share = "none",
                             .bucket = "1k",
                             .batch = 13,
                             .accumulate = 1};
  check(&base);
  struct setup c = base;
  c.text = conv;
  c.spec = &images;
  check(&c);
  c.batch = 3; /* some ranks have no rows */
  check(&c);
  c = base;
  c.text = gpt;
  c.spec = &tokens;
  check(&c);
  c.bucket = "1M"; /* one unit besides the embedding's */
  check(&c);
}

static void test_optimizers(void)
{
  struct setup c = {.text = gpt,
                    .spec = &tokens,
                    .optim = {"optim.name", "adamw", "optim.clip", "0.5", "optim.epsilon", "1e-3"},
                    .share = "none",
                    .bucket = "2k",
                    .batch = 8,
                    .accumulate = 1};
  check(&c);
  c.optim[1] = "lamb";
  check(&c);
  c.optim[1] = "lars";
  check(&c);
  c.text = conv;
  c.spec = &images;
  c.optim[1] = "momentum";
  c.optim[4] = "optim.ema";
  c.optim[5] = "0.9";
  check(&c);
}

/* Recomputation; optimizer states in files. */
static void test_recompute(void)
{
  struct setup c = {.text = "gpt layers=4 heads=2 dim=12 context=6 dropout=0.1",
                    .spec = &tokens,
                    .optim = {"optim.name", "adamw", "optim.epsilon", "1e-3", "optim.ema", "0.8"},
                    .share = "none",
                    .bucket = "1k",
                    .batch = 12,
                    .accumulate = 2,
                    .offload = true};
  for (c.recompute = 1; c.recompute < 4; c.recompute++) {
    check(&c);
    c.share = c.recompute == 1 ? "node" : "none";
  }
}

static void test_accumulate(void)
{
  struct setup c = {.text = gpt,
                    .spec = &tokens,
                    .optim = {"optim.name", "momentum", "optim.clip", "0.5"},
                    .share = "none",
                    .bucket = "1k",
                    .batch = 12,
                    .accumulate = 3};
  check(&c);
  c.hands_over_early = true;
  check(&c);
  c.hands_over_early = false;
  c.batch = 5; /* empty micro-batches */
  check(&c);
  c.text = mlp;
  c.spec = &vectors;
  c.bucket = "3k";
  check(&c);
}

static void test_devices(void)
{
  struct setup c = {.text = gpt,
                    .spec = &tokens,
                    .optim = {"optim.name", "adamw", "optim.clip", "0.5", "optim.epsilon", "1e-3"},
                    .share = "node",
                    .bucket = "1k",
                    .batch = 12,
                    .accumulate = 2,
                    .pretends = 1};
  check(&c);
  c.share = "none";
  c.pretends = 2;
  check(&c);
  c.text = conv;
  c.spec = &images;
  c.accumulate = 1;
  c.optim[1] = "momentum";
  c.optim[4] = "optim.ema";
  c.optim[5] = "0.9";
  c.offload = true;
  check(&c);
  c.share = "node";
  check(&c);
}

/* On the device are the weights and gradients of a layer at a time, not of the model. */
static void test_device_bytes(void)
{
  const struct setup c = {.text = mlp,
                          .spec = &vectors,
                          .optim = {"optim.name", "sgd"},
                          .share = "none",
                          .bucket = "1k",
                          .batch = 12,
                          .accumulate = 2,
                          .pretends = 1};
  if (world->size == 1)
    return;
  struct job job;
  struct trm_loss_sums sums;
  job_open(&job, &c, 3, world);
  initial_weights(&job);
  const size_t before = pretend_device_bytes(&pretend);
  CHECK(&c, step(&job, 0, 1, &sums) == TRM_OK);
  const size_t used = pretend_device_bytes(&pretend) - before, largest = 40 * 33 * sizeof(float);
  CHECK(&c, used >= 2 * largest && used <= 2 * largest + 2 * 64);
  job_close(&job);
}

/* Nodes of one, two and three ranks, uneven where these do not divide the ranks, and all ranks on one node: with and
 * without shared memory. */
static void test_nodes(void)
{
  struct setup c = {.text = gpt,
                    .spec = &tokens,
                    .optim = {"optim.name", "adamw", "optim.clip", "0.5", "optim.epsilon", "1e-3"},
                    .share = "node",
                    .shard = "node",
                    .bucket = "1k",
                    .batch = 12,
                    .accumulate = 2};
  for (c.node_size = 0; c.node_size <= 3; c.node_size++) {
    check(&c);
    c.share = "none";
    check(&c);
    c.shard = NULL;
    check(&c);
    c.share = "node";
    c.shard = "node";
  }
  c.optim[1] = "lamb";
  check(&c);
  c.node_size = 0;
  check(&c);
  c.optim[1] = "momentum";
  c.optim[4] = "optim.ema";
  c.optim[5] = "0.9";
  c.text = conv;
  c.spec = &images;
  c.accumulate = 1;
  check(&c);
  c.node_size = 2;
  check(&c);
  c.pretends = 1;
  check(&c);
}

/* Sharded over all ranks, each number of the weights and of the gradients crosses the network once for each other node,
 * whatever numbers of ranks the nodes have. */
static void test_bytes_between_nodes(void)
{
  struct setup c = {.text = mlp,
                    .spec = &vectors,
                    .optim = {"optim.name", "sgd"},
                    .share = "node",
                    .bucket = "1k",
                    .batch = 12,
                    .accumulate = 3};
  for (c.node_size = 1; c.node_size <= 4 && c.node_size < world->size; c.node_size++)
    for (c.zero = 1; c.zero <= 3; c.zero++) {
      struct job job;
      struct trm_loss_sums sums;
      int64_t sent[2];
      job_open(&job, &c, c.zero, world);
      initial_weights(&job);
      const struct zero *z = job.strategy.impl;
      for (int i = 0; i < 2; i++) {
        CHECK(&c, step(&job, (uint64_t)i, 1, &sums) == TRM_OK);
        zero_weights_wait(&job.strategy);
        sent[i] = (int64_t)trm_comm_sent_between_nodes(world);
      }
      sent[0] = sent[1] - sent[0];
      world->ops->allreduce(world, sent, 1, TRM_INT64, TRM_SUM);
      const int64_t nodes = (world->size + c.node_size - 1) / c.node_size;
      const int64_t array = (nodes - 1) * world->size * (int64_t)(z->shard_size * sizeof(float)); /* with padding */
      const int64_t scatters = c.zero == 1 ? 1 : 3;
      if (c.zero < 3)
        CHECK(&c, sent[0] == (1 + scatters) * array);
      else /* each pass gathers what is not in a buffer yet */
        CHECK(&c, sent[0] >= (1 + scatters) * array && sent[0] <= (6 + scatters) * array);
      job_close(&job);
    }
}

/* -- norms across several stages of a model */

static void test_norms(void)
{
  struct setup c = {.text = gpt,
                    .spec = &tokens,
                    .optim = {"optim.name", "momentum", "optim.clip", "0.1"},
                    .share = "none",
                    .bucket = "1k",
                    .batch = 12,
                    .accumulate = 1,
                    .stages = 2};
  if (world->size % 2 == 0)
    check(&c);
  c.share = "node";
  if (world->size % 2 == 0)
    check(&c);
  c.pretends = 1;
  c.stages = world->size;
  check(&c);
}

/* Sharded tensors, replicated tensors, and vectors. */
static void test_ratios(void)
{
  const struct trm_tensor tensor[] = {
    {.end = 64, .sharded = true}, {.end = 128}, {.end = 144, .vector = true}, {.end = 208, .sharded = true}};
  const struct trm_optimizer optimizer = {.tensor = tensor, .tensors = 4};
  const struct trm_update how = {.rule = TRM_UPDATE_LAMB};
  struct trm_strategy strategy = {.optimizer = &optimizer, .ratio_comm = world};
  double pieces[7 + 3][2] = {{0}}, w = 0, g = 0; /* 7 units of 32 elements, and an entry per tensor start */
  float ratio[4];
  for (int u = 0; u < 2; u++) {
    pieces[u][0] = 1 + world->rank;
    pieces[u][1] = u ? 3 : 1 + 2 * world->rank;
    pieces[2 + 1 + u][0] = 9 + world->rank;
    pieces[2 + 1 + u][1] = 4;
  }
  for (int rank = 0; rank < world->size; rank++) {
    w += 2 * (1 + rank);
    g += 3 + 1 + 2 * rank;
  }
  sync_ratios(&strategy, &how, 32, pieces, ratio);
  CU_ASSERT_EQUAL(ratio[0], (float)(sqrt(w) / sqrt(g)));
  CU_ASSERT_EQUAL(ratio[1], (float)(sqrt(18 + 2 * world->rank) / sqrt(8)));
  CU_ASSERT_EQUAL(ratio[2], 1);
  CU_ASSERT_EQUAL(ratio[3], 1); /* no rank has a gradient */
}

int main(int argc, char **argv)
{
  CU_TestInfo tests[] = {
    {"models", test_models},
    {"optimizers", test_optimizers},
    {"accumulation", test_accumulate},
    {"recomputation, offload", test_recompute},
    {"nodes", test_nodes},
    {"bytes between nodes", test_bytes_between_nodes},
    {"norms across stages", test_norms},
    {"trust ratios of sharded tensors", test_ratios},
    {"a device with separate memory", test_devices},
    {"memory of the device", test_device_bytes},
    CU_TEST_INFO_NULL,
  };
  return method_devices_run(argc, argv, "zero", tests);
}
