/* Hogwild!: one worker is serial SGD; with windows no worker's update is lost; with shared memory there is one array;
 * merges of copies. On one node, on several, without shared memory; with windows that act as late as MPI allows. Meant
 * for 1 to 9 ranks. */
#include <math.h>
#include <string.h>

#include "deferred_window.h"
#include "method.h"
#include "mpi/async/weight_copy.h"
#include "train/row_trainer.h"

enum layout { ONE_NODE, PAIRS, NO_SHARING, LAYOUTS };
enum { ELEMENTS = 5000, TRAINED = 4800 };
#define STATISTIC_MOMENTUM 0.25f

static int64_t tau = 1; /* strategy.tau */

struct job {
  struct trm_options options;
  struct trm_optimizer optimizer;
  struct trm_tensor tensor[2]; /* trained; statistics */
  struct trm_strategy strategy;
  size_t trained;
};

static int job_create(struct job *job, enum layout layout, enum trm_assignment assignment, float l2,
                      struct trm_comm *comm)
{
  memset(job, 0, sizeof *job);
  job->options.parallel.share = layout == NO_SHARING ? TRM_SHARE_NONE : TRM_SHARE_NODE;
  job->options.strategy.data = assignment;
  job->options.strategy.rate = TRM_STALE_RATE_CONSTANT;
  job->options.strategy.tau = tau;
  job->options.strategy.rows = 3;
  job->options.optim.name = TRM_UPDATE_SGD;
  job->trained = TRAINED;
  job->tensor[0] = (struct trm_tensor){.end = TRAINED};
  job->tensor[1] = (struct trm_tensor){.end = ELEMENTS, .momentum = STATISTIC_MOMENTUM};
  job->optimizer = (struct trm_optimizer){
    .update = {.rule = TRM_UPDATE_SGD, .l2 = l2}, .tensor = job->tensor, .tensors = 1, .statistics = 1};
  job->strategy = (struct trm_strategy){.ops = trm_strategy_find("hogwild"), .comm = comm, .device = &cpu,
                                        .optimizer = &job->optimizer, .elements = ELEMENTS, .snapshots = 1,
                                        .boundary = &job->trained, .boundaries = 1};
  trm_strategy_set_options(&job->strategy, &job->options);
  return strategy_create(&job->strategy, layout == PAIRS ? 2 : 0);
}

static float initial(size_t i)
{
  return (float)(i % 17) / 8 - 1;
}

/* Multiples of 1/16: sums are exact in any order. */
static float gradient(uint64_t batch, size_t i)
{
  return (float)((int)((batch * 7 + i * 3) % 9) - 4) / 16;
}

/* Runs the batches below `end` assigned to this rank. Returns their number. */
static uint64_t work(struct job *job, uint64_t end, double rate)
{
  struct trm_strategy *s = &job->strategy;
  uint64_t batch, mine = 0;
  for (; next_batch(s, end, &batch); mine++) {
    struct trm_loss_sums tally = {.loss = 1, .rows = 1};
    CU_ASSERT_EQUAL(s->ops->before_forward(s), TRM_OK);
    for (size_t i = 0; i < ELEMENTS; i++)
      s->g[i] = gradient(batch, i);
    CU_ASSERT_EQUAL(s->ops->step(s, rate, &tally), TRM_OK);
  }
  CU_ASSERT_EQUAL(s->ops->quiesce(s), TRM_OK);
  CU_ASSERT_EQUAL(s->updates, end);
  return mine;
}

/* Updates by a worker with this many batches between two quiesce points: the last merge may have fewer than tau. */
static uint64_t updates_of(uint64_t batches)
{
  return (batches + (uint64_t)tau - 1) / (uint64_t)tau;
}

/* One worker: serial SGD bit for bit, with and without merges. */
static void check_serial(void)
{
  const struct trm_update how = {.rule = TRM_UPDATE_SGD, .rate = 0.1f, .scale = 1, .l2 = 0.01f};
  float *w = trm_alloc(ELEMENTS * sizeof *w, "test"), *g = trm_alloc(ELEMENTS * sizeof *g, "test");
  for (enum layout layout = ONE_NODE; layout < LAYOUTS; layout++) {
    struct job job;
    CU_ASSERT_EQUAL_FATAL(job_create(&job, layout, TRM_ASSIGN_DYNAMIC, 0.01f, trm_comm_self()), TRM_OK);
    strategy_restore_initial(&job.strategy, initial);
    CU_ASSERT_EQUAL(work(&job, 30, 0.1), 30);
    for (size_t i = 0; i < ELEMENTS; i++)
      w[i] = initial(i);
    for (uint64_t batch = 0; batch < 30; batch++) {
      for (size_t i = 0; i < ELEMENTS; i++)
        g[i] = gradient(batch, i);
      trm_optimizer_apply(&job.optimizer, &cpu, &how, NULL, &(struct trm_update_interval){0, ELEMENTS, w, NULL, NULL}, g);
    }
    const float *view[TRM_MAX_STATES];
    CU_ASSERT_EQUAL(job.strategy.ops->collect(&job.strategy, view), TRM_OK);
    CU_ASSERT(memcmp(view[0], w, ELEMENTS * sizeof *w) == 0);
    CU_ASSERT_EQUAL(job.strategy.staleness->updates, updates_of(30));
    CU_ASSERT_EQUAL(job.strategy.staleness->sum, 0);
    job.strategy.ops->destroy(&job.strategy);
  }
  trm_free(w);
  trm_free(g);
}

static void test_serial(void)
{
  for (tau = 1; tau <= 7; tau += 3)
    check_serial();
  tau = 1;
}

/* With windows the weights change by the sum of all steps. With shared memory updates may be lost and merges weight the
 * copies, but all ranks have equal weights. */
static void check_several(enum layout layout, enum trm_assignment assignment)
{
  struct job job;
  const uint64_t batches = 40;
  const bool exact = world->size == 1 || layout == NO_SHARING || (layout == PAIRS && world->size > 2);
  CU_ASSERT_EQUAL_FATAL(job_create(&job, layout, assignment, 0, world), TRM_OK);
  strategy_restore_initial(&job.strategy, initial);
  const uint64_t first_part = work(&job, 15, 0.5), second_part = work(&job, batches, 0.5);
  int64_t all = (int64_t)(first_part + second_part);
  world->ops->allreduce(world, &all, 1, TRM_INT64, TRM_SUM);
  CU_ASSERT_EQUAL(all, (int64_t)batches);
  CU_ASSERT_EQUAL(job.strategy.staleness->updates, updates_of(first_part) + updates_of(second_part));
  const float *view[TRM_MAX_STATES];
  CU_ASSERT_EQUAL(job.strategy.ops->collect(&job.strategy, view), TRM_OK);
  float *first = trm_alloc(ELEMENTS * sizeof *first, "test");
  memcpy(first, view[0], ELEMENTS * sizeof *first);
  world->ops->broadcast(world, first, ELEMENTS, TRM_FLOAT, 0);
  CU_ASSERT(memcmp(first, view[0], ELEMENTS * sizeof *first) == 0);
  size_t wrong = 0;
  for (size_t i = 0; i < ELEMENTS; i++) {
    double want = initial(i);
    for (uint64_t batch = 0; batch < batches; batch++)
      want -= gradient(batch, i) * 0.5;
    wrong += exact && i < TRAINED ? (double)first[i] != want : !isfinite(first[i]);
  }
  CU_ASSERT_EQUAL(wrong, 0);
  world->ops->barrier(world); /* view[0] may point to weights that steps change */
  /* rate 0 changes statistics only */
  work(&job, batches + 5, 0);
  CU_ASSERT_EQUAL(job.strategy.ops->collect(&job.strategy, view), TRM_OK);
  CU_ASSERT(memcmp(first, view[0], TRAINED * sizeof *first) == 0);
  world->ops->barrier(world);
  /* restore of whole arrays */
  strategy_restore_initial(&job.strategy, initial);
  CU_ASSERT_EQUAL(job.strategy.ops->collect(&job.strategy, view), TRM_OK);
  wrong = 0;
  for (size_t i = 0; i < ELEMENTS; i++)
    wrong += view[0][i] != initial(i);
  CU_ASSERT_EQUAL(wrong, 0);
  world->ops->barrier(world);
  trm_free(first);
  job.strategy.ops->destroy(&job.strategy);
}

static void test_several(void)
{
  for (enum layout layout = ONE_NODE; layout < LAYOUTS; layout++) {
    check_several(layout, TRM_ASSIGN_DYNAMIC);
    check_several(layout, TRM_ASSIGN_STATIC);
  }
}

/* All ranks read the weights, then step one after the other with equal moments: every step moves the statistics from
 * the value that they have then, however old the weights are that its batch was computed at. */
static void test_statistics(void)
{
  for (enum layout layout = ONE_NODE; layout < LAYOUTS; layout++) {
    struct job job;
    CU_ASSERT_EQUAL_FATAL(job_create(&job, layout, TRM_ASSIGN_STATIC, 0, world), TRM_OK);
    strategy_restore_initial(&job.strategy, initial);
    struct trm_strategy *s = &job.strategy;
    const uint64_t end = (uint64_t)world->size;
    uint64_t batch;
    CU_ASSERT(next_batch(s, end, &batch));
    CU_ASSERT_EQUAL(s->ops->before_forward(s), TRM_OK);
    for (size_t i = 0; i < ELEMENTS; i++)
      s->g[i] = i < TRAINED ? 0 : 3;
    for (int turn = 0; turn < world->size; turn++) {
      struct trm_loss_sums tally = {.loss = 1, .rows = 1};
      world->ops->barrier(world);
      if (turn == world->rank)
        CU_ASSERT_EQUAL(s->ops->step(s, 0.5, &tally), TRM_OK);
    }
    CU_ASSERT(!next_batch(s, end, &batch));
    CU_ASSERT_EQUAL(s->ops->quiesce(s), TRM_OK);
    const float *view[TRM_MAX_STATES];
    CU_ASSERT_EQUAL(s->ops->collect(s, view), TRM_OK);
    double worst = 0;
    for (size_t i = 0; i < ELEMENTS; i++) {
      const double start = (double)initial(i), left = pow(1 - (double)STATISTIC_MOMENTUM, world->size);
      worst = fmax(worst, fabs((double)view[0][i] - (i < TRAINED ? start : 3 + left * (start - 3))));
    }
    CU_ASSERT(worst < 1e-5);
    world->ops->barrier(world);
    s->ops->destroy(s);
  }
}

static void test_copies(void)
{
  for (tau = 2; tau <= 7; tau += 5)
    test_several();
  tau = 1;
}

/* All ranks read the weights and compute a batch, then make their steps in rank order. */
static void one_batch_each(struct trm_strategy *s, uint64_t first)
{
  struct trm_loss_sums tally = {.loss = 1, .rows = 1};
  CU_ASSERT_EQUAL(s->ops->before_forward(s), TRM_OK);
  for (size_t i = 0; i < ELEMENTS; i++)
    s->g[i] = gradient(first + (uint64_t)world->rank, i);
  for (int turn = 0; turn < world->size; turn++) {
    world->ops->barrier(world);
    if (turn == world->rank)
      CU_ASSERT_EQUAL(s->ops->step(s, 0.5, &tally), TRM_OK);
  }
  world->ops->barrier(world);
}

/* Turns lose no update, and the staleness is the number of updates that others have written between a rank's reading
 * and writing. In a round each rank makes an update, of `tau` batches; copies are read when they are merged. */
static void check_order(enum layout layout)
{
  enum { ROUNDS = 4 };
  const bool window = layout == NO_SHARING || (layout == PAIRS && world->size > 2), copies = tau > 1 && !window;
  struct trm_staleness expected = {0};
  uint64_t batches = 0;
  struct job job;
  CU_ASSERT_EQUAL_FATAL(job_create(&job, layout, TRM_ASSIGN_STATIC, 0, world), TRM_OK);
  strategy_restore_initial(&job.strategy, initial);
  struct trm_strategy *s = &job.strategy;
  for (int round = 0; round < ROUNDS; round++) {
    const int writers = copies && round > 0 ? world->size - 1 : world->rank;
    for (int64_t i = 0; i < tau; i++, batches += (uint64_t)world->size)
      one_batch_each(s, batches);
    trm_staleness_add(&expected, (uint64_t)writers);
  }
  CU_ASSERT(memcmp(s->staleness, &expected, sizeof expected) == 0);
  CU_ASSERT_EQUAL(s->ops->quiesce(s), TRM_OK);
  size_t wrong = 0;
  for (size_t i = 0; i < TRAINED && !copies; i++) {
    double want = initial(i);
    for (uint64_t batch = 0; batch < batches; batch++)
      want -= gradient(batch, i) * 0.5;
    wrong += (double)s->w[i] != want;
  }
  CU_ASSERT_EQUAL(wrong, 0);
  world->ops->barrier(world);
  s->ops->destroy(s);
}

static void test_order(void)
{
  for (tau = 1; tau <= 3; tau += 2)
    for (enum layout layout = ONE_NODE; layout < LAYOUTS; layout++)
      check_order(layout);
  tau = 1;
}

/* A snapshot has the updates up to its step, while others follow. */
static void test_snapshots(void)
{
  enum { ROUNDS = 3 };
  const uint64_t at = (uint64_t)world->size + 1;
  for (enum layout layout = ONE_NODE; layout < LAYOUTS; layout++) {
    struct job job;
    CU_ASSERT_EQUAL_FATAL(job_create(&job, layout, TRM_ASSIGN_STATIC, 0, world), TRM_OK);
    strategy_restore_initial(&job.strategy, initial);
    struct trm_strategy *s = &job.strategy;
    s->ops->snapshot(s, &at, 1);
    for (uint64_t round = 0; round < ROUNDS; round++)
      one_batch_each(s, round * (uint64_t)world->size);
    CU_ASSERT_EQUAL(s->ops->quiesce(s), TRM_OK);
    CU_ASSERT_EQUAL(s->ops->snapshot_weights(s, 0), TRM_OK);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s->eval_weights);
    size_t wrong = 0;
    for (size_t i = 0; i < TRAINED; i++) {
      double want = initial(i);
      for (uint64_t batch = 0; batch < at; batch++)
        want -= gradient(batch, i) * 0.5;
      wrong += (double)s->eval_weights[i] != want;
    }
    CU_ASSERT_EQUAL(wrong, 0);
    CU_ASSERT_EQUAL(s->ops->snapshot_weights(s, -1), TRM_OK);
    world->ops->barrier(world);
    s->ops->destroy(s);
  }
}

/* Ranks merge in turn: an element changed by all ranks, one element per rank, and one that none changes. */
static void test_merging(void)
{
  enum { ROUNDS = 4 };
  struct trm_comm *node = world->ops->split_node(world, TRM_SHARE_NODE);
  struct trm_shared shared;
  struct weight_copy copies;
  const size_t size = (size_t)node->size;
  float *copy = trm_alloc(ELEMENTS * sizeof *copy, "test");
  double array[10] = {0}, own[9][10] = {{0}}, old[9][10] = {{0}}; /* by i % 10 */
  CU_ASSERT_EQUAL_FATAL(node->ops->share(node, node->rank == 0 ? ELEMENTS * sizeof(float) : 0,
                                         TRM_MEMORY_BUFFERS, &shared),
                        TRM_OK);
  CU_ASSERT_EQUAL_FATAL(weight_copy_create(&copies, node, shared.base[0], ELEMENTS), TRM_OK);
  weight_copy_pull(&copies, copy);
  for (size_t turn = 0; turn < ROUNDS * size; turn++) {
    const size_t rank = turn % size;
    for (size_t i = 0; i < 10; i++) {
      own[rank][i] += i == 0 ? 2.5 : i == 1 + rank ? 1 : 0;
      array[i] = array[i] == old[rank][i] ? own[rank][i] : array[i] + (own[rank][i] - old[rank][i]) / (double)size;
      own[rank][i] = old[rank][i] = array[i];
    }
    node->ops->barrier(node);
    if (rank == (size_t)node->rank) {
      for (size_t i = 0; i < ELEMENTS; i++)
        copy[i] += i % 10 == 0 ? 2.5f : i % 10 == 1 + rank ? 1 : 0;
      weight_copy_merge(&copies, copy);
      double worst = 0;
      for (size_t i = 0; i < ELEMENTS; i++)
        worst = fmax(worst, fabs(copy[i] - array[i % 10]));
      CU_ASSERT(worst < 1e-5);
    }
  }
  node->ops->barrier(node);
  weight_copy_pull(&copies, copy);
  for (size_t i = 0; i < 10; i++) {
    CU_ASSERT(fabs(copy[i] - array[i]) < 1e-5);
    CU_ASSERT(i == 0 || array[i] == (i <= size ? ROUNDS : 0));
  }
  node->ops->barrier(node);
  weight_copy_free(&copies);
  node->ops->unshare(node, &shared);
  node->ops->release(node);
  trm_free(copy);
}

/* Concurrent merges of disjoint elements: no update is lost. */
static void test_gates(void)
{
  enum { ROUNDS = 200 };
  struct trm_comm *node = world->ops->split_node(world, TRM_SHARE_NODE);
  struct trm_shared shared;
  struct weight_copy copies;
  float *copy = trm_alloc(ELEMENTS * sizeof *copy, "test");
  CU_ASSERT_EQUAL_FATAL(node->ops->share(node, node->rank == 0 ? ELEMENTS * sizeof(float) : 0,
                                         TRM_MEMORY_BUFFERS, &shared),
                        TRM_OK);
  CU_ASSERT_EQUAL_FATAL(weight_copy_create(&copies, node, shared.base[0], ELEMENTS), TRM_OK);
  weight_copy_pull(&copies, copy);
  for (int round = 0; round < ROUNDS; round++) {
    for (size_t i = (size_t)node->rank; i < ELEMENTS; i += (size_t)node->size)
      copy[i]++;
    weight_copy_merge(&copies, copy);
  }
  node->ops->barrier(node);
  weight_copy_pull(&copies, copy);
  size_t wrong = 0;
  for (size_t i = 0; i < ELEMENTS; i++)
    wrong += copy[i] != ROUNDS;
  CU_ASSERT_EQUAL(wrong, 0);
  node->ops->barrier(node);
  weight_copy_free(&copies);
  node->ops->unshare(node, &shared);
  node->ops->release(node);
  trm_free(copy);
}

/* Sparse rows: one worker matches the device's kernel in every sharing mode. */
static void test_rows(void)
{
  enum { ROWS = 24, FEATURES = 32 };
  const int32_t column[FEATURES] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15,
                                    16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31};
  const float value[FEATURES] = {1, 2, 1, 3, 1, 2, 1, 3, 1, 2, 1, 3, 1, 2, 1, 3, 1, 2, 1, 3, 1, 2, 1, 3, 1, 2, 1, 3};
  struct trm_sparse_row row[ROWS];
  float target[ROWS], share[FEATURES], shrink[FEATURES];
  for (int i = 0; i < ROWS; i++) {
    row[i] = (struct trm_sparse_row){column + i % 8, value, (size_t)(i % 20)};
    target[i] = i % 3 ? 1 : -1;
  }
  for (int j = 0; j < FEATURES; j++) {
    share[j] = (float)(1 + j % 4) / 8;
    shrink[j] = 0.25f / share[j];
  }
  const struct trm_linear linear = {TRM_MARGIN_LOGISTIC, FEATURES, 64, 16, share};
  for (enum layout layout = ONE_NODE; layout < LAYOUTS; layout++) {
    struct job job;
    struct trm_sparse_sums sums;
    float w[128];
    for (size_t i = 0; i < 128; i++)
      w[i] = initial(i);
    const struct trm_sparse_sgd how = {.loss = TRM_MARGIN_LOGISTIC, .rate = 0.5f, .update_rows = 3, .shrink = shrink};
    cpu.ops->sparse_sgd(&cpu, &(struct trm_sparse_sgd_rows){
      .sgd = how, .row = row, .target = target, .w = w + 64, .bias = w + 16, .sums = &sums, .rows = ROWS});
    CU_ASSERT_EQUAL_FATAL(job_create(&job, layout, TRM_ASSIGN_DYNAMIC, 0.25f, world), TRM_OK);
    CU_ASSERT_PTR_NOT_NULL_FATAL(job.strategy.row_trainer);
    job.strategy.row_trainer->begin(&job.strategy, &linear);
    CU_ASSERT_EQUAL(job.strategy.staleness == NULL,
                    world->size == 1 || layout == ONE_NODE || (layout == PAIRS && world->size == 2));
    strategy_restore_initial(&job.strategy, initial);
    uint64_t batch;
    while (next_batch(&job.strategy, 1, &batch)) {
      struct trm_loss_sums tally = {0};
      CU_ASSERT_EQUAL(job.strategy.ops->before_forward(&job.strategy), TRM_OK);
      CU_ASSERT_EQUAL(job.strategy.row_trainer->train(&job.strategy, row, target, ROWS, 0.5, &tally), TRM_OK);
      CU_ASSERT(tally.loss == sums.loss && tally.correct == sums.correct && tally.rows == ROWS);
      CU_ASSERT_EQUAL(job.strategy.ops->step(&job.strategy, 0.5, &tally), TRM_OK);
    }
    CU_ASSERT_EQUAL(job.strategy.ops->quiesce(&job.strategy), TRM_OK);
    const float *view[TRM_MAX_STATES];
    CU_ASSERT_EQUAL(job.strategy.ops->collect(&job.strategy, view), TRM_OK);
    double worst = 0;
    for (size_t i = 0; i < ELEMENTS; i++)
      worst = fmax(worst, fabs((double)view[0][i] - (i < 128 ? w[i] : initial(i))));
    CU_ASSERT(worst < 1e-6); /* windows receive the rounded difference */
    world->ops->barrier(world);
    job.strategy.ops->destroy(&job.strategy);
  }
}

/* Reads of what is not flushed, and changes of what is not yet sent. */
static void test_deferred(void)
{
  with_deferred_windows(test_several);
  with_deferred_windows(test_statistics);
  with_deferred_windows(test_order);
  with_deferred_windows(test_snapshots);
  with_deferred_windows(test_rows);
}

int main(int argc, char **argv)
{
  CU_TestInfo tests[] = {
    {"one worker is serial", test_serial},
    {"several workers", test_several},
    {"statistics of overlapping batches", test_statistics},
    {"several workers with copies", test_copies},
    {"writes in order", test_order},
    {"snapshots", test_snapshots},
    {"copies merged in turn", test_merging},
    {"concurrent merges", test_gates},
    {"sparse rows of a linear model", test_rows},
    {"windows that act at their flush", test_deferred},
    CU_TEST_INFO_NULL,
  };
  return method_run(argc, argv, "hogwild", tests);
}
