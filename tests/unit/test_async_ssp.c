/* Stale synchronous parallel: slack 0 equals synchronous SGD; no worker exceeds the slack; a worker fails. On one node,
 * on several, without shared memory, and with a dedicated server. Meant for 1 to 9 ranks. */
#include <time.h>

#include "async_job.h"

static const char *const methods[] = {"ssp", "essp"};
enum { METHODS = sizeof methods / sizeof *methods };

/* -- ssp(0) is synchronous SGD */

/* Returns weights and states after some batches on rank 0 of comm; the synchronous method assigns no batches. */
static void run_batches(const struct setup *c, struct trm_comm *comm, float *to[TRM_MAX_STATES])
{
  enum { BATCHES = 9 };
  struct job job;
  job_start(&job, c, comm);
  struct trm_strategy *s = &job.strategy;
  job_begin(&job);
  if (s->ops->next_batch)
    CHECK(c, run_worker(&job, BATCHES, 0.5, BATCHES, 0) == TRM_OK);
  for (uint64_t b = 0; b < BATCHES && !s->ops->next_batch; b++) {
    gradient(b, s->batch_shard, s->batch_shards, 0.5, s->w, s->g, s->elements);
    CHECK(c, step(s, b, 1) == TRM_OK);
  }
  CHECK(c, s->updates == BATCHES);
  for (int i = 0; i <= job.optimizer.states; i++)
    CHECK(c, strategy_read(s, i, to[i]) == TRM_OK);
  s->ops->destroy(s);
}

static void test_no_slack(void)
{
  float *a[TRM_MAX_STATES], *b[TRM_MAX_STATES];
  for (enum layout layout = 0; layout < LAYOUTS; layout++)
    for (enum trm_update_rule rule = TRM_UPDATE_SGD; rule <= TRM_UPDATE_ADAM; rule++) {
      if ((layout == SERVER && world->size == 1) || is_skipped(layout))
        continue;
      if (world->size > 4 && rule != TRM_UPDATE_MOMENTUM && rule != TRM_UPDATE_ADAM)
        continue;
      struct setup c = {.rule = rule, .layout = layout, .elements = SERVER_CHUNK + 4096};
      struct setup together = c;
      together.method = "sync";
      together.layout = ONE_NODE;
      for (int i = 0; i < TRM_MAX_STATES; i++) {
        a[i] = array(c.elements);
        b[i] = array(c.elements);
      }
      /* one rank per worker */
      struct trm_comm *comm = world->ops->split(world, world->rank < workers_of(&c, world) ? 0 : -1, 0);
      if (comm)
        run_batches(&together, comm, a);
      for (int m = 0; m < METHODS; m++) {
        c.method = methods[m];
        run_batches(&c, world, b);
        for (int i = 0; i < TRM_MAX_STATES && world->rank == 0; i++)
          CHECK(&c, same(a[i], b[i], c.elements));
      }
      if (comm)
        comm->ops->release(comm);
      for (int i = 0; i < TRM_MAX_STATES; i++) {
        trm_free(a[i]);
        trm_free(b[i]);
      }
    }
}

/* -- ssp in a forced order: one worker after the other runs until the slack stops it */

/* Weights after `clocks` clocks with all workers' exact gradients. */
static void everybody(const struct setup *c, struct serial *r, const struct trm_optimizer *optimizer, int clocks)
{
  const int ranks = world->size;
  float *g[MAX_RANKS];
  for (int k = 0; k < ranks; k++)
    g[k] = array(c->elements);
  for (uint64_t b = 0; b < (uint64_t)clocks; b++) {
    for (int k = 0; k < ranks; k++)
      exact_gradient(b, k, g[k], c->elements);
    cpu.ops->sum(&cpu, &(struct trm_sum){
      .to = g[0], .from = (const float *const *)g, .count = ranks, .n = c->elements});
    serial_step(r, optimizer, rate_of(b), g[0]);
  }
  for (int k = 0; k < ranks; k++)
    trm_free(g[k]);
}

static void check_ahead(const struct setup *c)
{
  struct job job;
  job_start(&job, c, world);
  struct trm_strategy *s = &job.strategy;
  job_begin(&job);
  const int rank = world->rank, last = world->size - 1, slack = c->slack;
  const uint64_t end = (uint64_t)slack + 1;
  struct serial own = serial_begin(c);
  struct trm_optimizer alone = job.optimizer;
  alone.statistics = 0;
  uint64_t batch;
  for (int turn = 0; turn <= last; turn++) {
    for (uint64_t b = 0; b < end && turn == rank; b++) {
      CHECK(c, next_batch(s, end, &batch) && batch == b);
      CHECK(c, s->ops->before_forward(s) == TRM_OK);
      if (rank < last || strcmp(c->method, "ssp") == 0) /* sees its own updates only */
        CHECK(c, same(s->w, own.w, c->elements));
      exact_gradient(b, s->batch_shard, s->g, c->elements);
      serial_step(&own, &alone, rate_of(b), s->g);
      CHECK(c, step(s, b, 1) == TRM_OK);
    }
    world_barrier();
  }
  CHECK(c, !next_batch(s, end, &batch));
  CHECK(c, s->ops->quiesce(s) == TRM_OK);
  struct serial r = serial_begin(c);
  everybody(c, &r, &job.optimizer, slack + 1);
  CHECK(c, same(s->eval_weights, r.w, c->elements));
  CHECK(c, s->updates == end);
  /* the last worker completes every clock; with essp it reads the completed weights, those of other nodes later */
  const bool sees = rank == last && strcmp(c->method, "essp") == 0;
  CHECK(c, s->staleness->updates == end && s->staleness->max <= (uint64_t)slack);
  for (int i = 0; i <= slack && !(sees && c->layout != ONE_NODE); i++)
    CHECK(c, s->staleness->count[i] == (sees ? (i == 0 ? end : 0) : 1));
  serial_end(&r);
  serial_end(&own);
  s->ops->destroy(s);
}

static void test_ahead(void)
{
  for (enum layout layout = 0; layout < SERVER; layout++)
    for (int slack = 1; slack <= 3; slack += 2)
      for (int eager = 0; eager < 2; eager++)
        if (!is_skipped(layout))
          check_ahead(&(struct setup){eager ? "essp" : "ssp", eager ? TRM_UPDATE_ADAM : TRM_UPDATE_MOMENTUM,
                                      .layout = layout, .slack = slack, .elements = SERVER_CHUNK + 256});
  /* more counters than the smallest interval has elements */
  check_ahead(&(struct setup){"ssp", .slack = 40, .elements = 32});
}

/* The last rank sends nothing until the slack stops all others; they continue only after it has sent. */
static void test_no_further(void)
{
  enum { SLACK = 2, CLOCKS = 8 };
  enum { AHEAD, BEGUN, WORDS };
  for (int i = 0; i < METHODS * (int)SERVER && world->size > 1; i++) {
    const enum layout layout = (enum layout)(i / METHODS);
    if (is_skipped(layout))
      continue;
    const struct setup c = {methods[i % METHODS], .layout = layout, .slack = SLACK, .elements = SERVER_CHUNK + 256};
    struct job job;
    job_start(&job, &c, world);
    struct trm_strategy *s = &job.strategy;
    job_begin(&job);
    struct shared_counters words;
    CU_ASSERT_FATAL(shared_counters_create(&words, world, worker_of(s)->node, 0, WORDS) == TRM_OK);
    const bool slow = world->rank == world->size - 1;
    uint64_t batch;
    while (next_batch(s, CLOCKS, &batch)) {
      CHECK(&c, s->ops->before_forward(s) == TRM_OK);
      if (slow && batch == 0)
        while (shared_counters_read(&words, AHEAD) < world->size - 1)
          world->ops->progress(world);
      if (slow && batch == 0)
        shared_counters_add(&words, BEGUN, 1);
      if (!slow && batch > SLACK)
        CHECK(&c, shared_counters_read(&words, BEGUN) == 1);
      exact_gradient(batch, s->batch_shard, s->g, c.elements);
      CHECK(&c, step(s, batch, 1) == TRM_OK);
      if (!slow && batch == SLACK)
        shared_counters_add(&words, AHEAD, 1);
    }
    CHECK(&c, s->ops->quiesce(s) == TRM_OK);
    CHECK(&c, s->staleness->max <= SLACK && (slow || s->staleness->max == SLACK));
    struct serial r = serial_begin(&c);
    everybody(&c, &r, &job.optimizer, CLOCKS);
    CHECK(&c, same(s->eval_weights, r.w, c.elements));
    serial_end(&r);
    shared_counters_free(&words);
    s->ops->destroy(s);
  }
  CU_PASS("one rank has nobody to wait for");
}

/* A worker whose loss is not finite: all workers end at the same clock, with the weights before it. */
static void test_failure(void)
{
  enum { FAILS_AT = 4 };
  for (int i = 0; i < METHODS * (int)LAYOUTS; i++)
    for (int slack = 0; slack <= 2; slack += 2) {
      const enum layout layout = (enum layout)(i / METHODS);
      const struct setup c = {methods[i % METHODS], .layout = layout, .slack = slack, .elements = SERVER_CHUNK + 256};
      if (workers_of(&c, world) < 1 || is_skipped(layout))
        continue;
      const int failing = workers_of(&c, world) - 1;
      struct job job, short_job;
      job_start(&job, &c, world);
      job_start(&short_job, &c, world);
      job_begin(&job);
      job_begin(&short_job);
      const int status = run_worker(&job, 1000, 0, FAILS_AT, failing);
      CHECK(&c, status == (world->rank == failing ? TRM_FAILED : TRM_OK));
      CHECK(&c, job.strategy.updates > FAILS_AT && job.strategy.updates <= FAILS_AT + (uint64_t)slack + 4);
      if (slack == 0) {
        CHECK(&c, run_worker(&short_job, FAILS_AT, 0, FAILS_AT, failing) == TRM_OK);
        CHECK(&c, same(job.strategy.eval_weights, short_job.strategy.eval_weights, c.elements));
      }
      for (size_t k = 0; k < c.elements; k++)
        if (!isfinite(job.strategy.eval_weights[k]))
          CU_FAIL_FATAL("a weight is not finite");
      short_job.strategy.ops->destroy(&short_job.strategy);
      job.strategy.ops->destroy(&job.strategy);
    }
}

static double processor_s(void)
{
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The last worker is late with its first gradient, counted from when the others have theirs. They may not go on without
 * it, leave their cores to others in an oversubscribed job, and count the time. Must be the last test, since the flag
 * stays set. */
static void test_waiting(void)
{
  enum { LATE_MS = 300 };
  trm_comm_set_oversubscribed();
  for (int i = 0; i < METHODS * (int)LAYOUTS && world->size > 2; i++) {
    const enum layout layout = (enum layout)(i / METHODS);
    const struct setup c = {methods[i % METHODS], .layout = layout, .elements = SERVER_CHUNK + 256};
    const int workers = workers_of(&c, world);
    if (is_skipped(layout))
      continue;
    struct job job;
    job_start(&job, &c, world);
    struct trm_strategy *s = &job.strategy;
    job_begin(&job);
    struct shared_counters ready;
    CU_ASSERT_FATAL(shared_counters_create(&ready, world, worker_of(s)->node, 0, 1) == TRM_OK);
    world_barrier();
    const bool late = world->rank == workers - 1;
    const double busy_before = processor_s(), began = world->ops->clock(world);
    uint64_t batch;
    while (next_batch(s, 2, &batch)) {
      CHECK(&c, s->ops->before_forward(s) == TRM_OK);
      exact_gradient(batch, s->batch_shard, s->g, c.elements);
      if (!late && batch == 0)
        shared_counters_add(&ready, 0, 1);
      for (; late && batch == 0 && shared_counters_read(&ready, 0) < workers - 1; usleep(1000))
        world->ops->progress(world);
      if (late && batch == 0)
        usleep(LATE_MS * 1000);
      CHECK(&c, step(s, batch, 1) == TRM_OK);
    }
    const double elapsed = world->ops->clock(world) - began;
    CHECK(&c, processor_s() - busy_before < 0.4 * elapsed); /* of the time waited */
    CHECK(&c, late || world->rank >= workers || s->wait_s > 0.7e-3 * LATE_MS);
    CHECK(&c, s->wait_s <= elapsed && s->comm_s > -1e-3);
    CHECK(&c, s->ops->quiesce(s) == TRM_OK);
    shared_counters_free(&ready);
    s->ops->destroy(s);
  }
  CU_PASS("one worker has nobody to wait for");
}

int main(int argc, char **argv)
{
  CU_TestInfo tests[] = {
    {"slack 0 equals synchronous SGD", test_no_slack},
    {"workers in turn", test_ahead},
    {"slack is not exceeded", test_no_further},
    {"a worker fails", test_failure},
    {"waiting workers leave their cores", test_waiting},
    CU_TEST_INFO_NULL,
  };
  return method_run(argc, argv, "stale synchronous parallel", tests);
}
