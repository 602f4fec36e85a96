/* Methods whose workers have their own weights: identities, bit for bit; invariants of exchanges; elastic averaging
 * against its formulas; a convex problem; checkpoints. On one node, on several, without shared memory, and with a
 * dedicated server. Meant for 1 to 9 ranks. */
#include "peers.h"

/* -- a problem */

/* In [-1, 1). */
static double noise(uint64_t batch, size_t i)
{
  uint32_t x = (uint32_t)(batch * 7919 + i * 104729 + 1) * 2654435761u;
  x ^= x >> 15;
  x *= 0x2c1b3c6du;
  x ^= x >> 12;
  return (double)x / 0x1p31 - 1;
}

static double target(size_t i)
{
  return sin((double)i);
}

/* Gradient of a batch of a convex problem: curvature (w - target + noise). The moments of statistics are the target. */
static void gradient(const struct job *job, uint64_t batch, const float *w, float *g)
{
  for (size_t i = 0; i < job->strategy.elements; i++) {
    const double minimum = target(i) - 0.1 * noise(batch, i);
    g[i] = (float)(i < job->trained ? (0.5 + (double)(i % 8) / 16) * ((double)w[i] - minimum) : minimum);
  }
}

static int one_step(struct job *job, uint64_t batch, double rate)
{
  struct trm_strategy *s = &job->strategy;
  struct trm_loss_sums tally = {.loss = 1, .rows = 1};
  if (s->ops->before_forward)
    CU_ASSERT_EQUAL(s->ops->before_forward(s), TRM_OK);
  gradient(job, batch, s->w, s->g);
  return s->ops->step(s, rate, &tally);
}

/* Runs all batches before `end`, as the trainer does. With dynamic assignment batches take time, so that no worker gets
 * all of them. */
static void run_to(struct job *job, uint64_t end, double rate)
{
  struct trm_strategy *s = &job->strategy;
  const bool dynamic = s->options->data == TRM_ASSIGN_DYNAMIC;
  uint64_t batch;
  while (next_batch(s, end, &batch)) {
    CU_ASSERT_EQUAL(one_step(job, batch, rate), TRM_OK);
    if (dynamic)
      usleep(500);
  }
  CU_ASSERT_EQUAL(s->ops->quiesce(s), TRM_OK);
  CU_ASSERT_EQUAL(s->updates, end);
}

/* Batches first, first + stride, .. below end, with the optimizer alone. w (elements): in and out. */
static void serial(const struct job *job, uint64_t first, uint64_t stride, uint64_t end, double rate, float *w)
{
  const size_t n = job->strategy.elements;
  float *g = trm_alloc(n * sizeof *g, "test"), *state[2];
  for (int i = 0; i < 2; i++)
    state[i] = trm_alloc(n * sizeof *g, "test");
  struct trm_update how = job->optimizer.update;
  for (uint64_t batch = first; batch < end; batch += stride) {
    gradient(job, batch, w, g);
    how.rate = (float)rate;
    how.step++;
    how.scale = job->optimizer.clip > 0
                  ? trm_clip_scale(&job->optimizer, trm_device_norm_squared(&cpu, g, job->trained)) : 1;
    trm_optimizer_apply(&job->optimizer, &cpu, &how, NULL, &(struct trm_update_interval){0, n, w, state, NULL}, g);
  }
  for (int i = 0; i < 2; i++)
    trm_free(state[i]);
  trm_free(g);
}

static float *initial_weights(const struct setup *c)
{
  float *w = trm_alloc(c->elements * sizeof *w, "test");
  for (size_t i = 0; i < c->elements; i++)
    w[i] = initial(i);
  return w;
}

/* With more ranks than cores, every other case is skipped to save time. */
static bool is_thinned(int number)
{
  return world->size > 3 && (number + world->size) % 2;
}

/* -- identities */

static const enum trm_update_rule rules[] = {TRM_UPDATE_SGD, TRM_UPDATE_NESTEROV, TRM_UPDATE_ADAM};

/* One worker is serial training; in elastic averaging, its own weights with alpha 0. */
static void test_one_worker(void)
{
  static const char *const methods[] = {"adpsgd", "sgp", "keuper", "easgd", "a2cid2"};
  for (int m = 0; m < 5; m++)
    for (int r = 0; r < 3; r++) {
      const struct setup c = {
        .method = methods[m], .rule = rules[r], .clip = r ? 30 : 0, .tau = 1 + r, .elements = 70000 / 16 * 16};
      struct job job;
      job_start(&job, &c, trm_comm_self());
      run_to(&job, 3, 0.1);
      run_to(&job, 8, 0.1);
      float *w = initial_weights(&c);
      serial(&job, 0, 1, 8, 0.1, w);
      CHECK(&c, memcmp(w, job.strategy.w, c.elements * sizeof *w) == 0);
      CHECK(&c, (memcmp(w, job.strategy.eval_weights, c.elements * sizeof *w) == 0) == !is_method(&c, "easgd"));
      CHECK(&c, (job.strategy.staleness != NULL) == is_method(&c, "easgd"));
      CHECK(&c, !job.strategy.staleness || job.strategy.staleness->sum == 0);
      trm_free(w);
      job_stop(&job);
    }
}

/* With alpha 0 every worker trains independently, and the center does not move. */
static void test_independent(void)
{
  for (enum layout layout = 0; layout < LAYOUTS; layout++)
    for (int r = 0; r < 3; r++) {
      if (is_thinned((int)layout + r))
        continue;
      const struct setup c = {.method = "easgd", .rule = rules[r], .clip = r ? 30 : 0, .layout = layout, .tau = 1 + r,
                              .elements = 70000 / 16 * 16};
      struct job job;
      job_start(&job, &c, world);
      const uint64_t ranks = (uint64_t)world->size, end = 3 * ranks + ranks / 2;
      run_to(&job, ranks + 1, 0.1);
      run_to(&job, end, 0.1);
      float *w = initial_weights(&c);
      CHECK(&c, memcmp(w, job.strategy.eval_weights, c.elements * sizeof *w) == 0);
      serial(&job, (uint64_t)world->rank, ranks, end, 0.1, w);
      CHECK(&c, memcmp(w, job.strategy.w, c.elements * sizeof *w) == 0);
      trm_free(w);
      job_stop(&job);
    }
}

/* -- elastic averaging against its formulas, in double precision */

static void check_elastic(const struct setup *c, double alpha, double momentum)
{
  struct job job;
  job_start(&job, c, trm_comm_self());
  double worst = 0;
  run_to(&job, 9, 0.05);
  float *g = trm_alloc(c->elements * sizeof *g, "test"), *w = initial_weights(c);
  double *x = trm_alloc(c->elements * sizeof *x, "test"), *center = trm_alloc(c->elements * sizeof *x, "test");
  double *m = trm_alloc(c->elements * sizeof *x, "test");
  for (size_t i = 0; i < c->elements; i++)
    x[i] = center[i] = (double)w[i];
  for (uint64_t batch = 0; batch < 9; batch++) {
    for (size_t i = 0; i < c->elements; i++)
      w[i] = (float)x[i];
    gradient(&job, batch, w, g);
    for (size_t i = 0; i < c->elements; i++) {
      const double d = (batch + 1) % (uint64_t)c->tau ? 0 : alpha * (x[i] - center[i]);
      const double slope = (double)g[i] + 0.01 * x[i];
      m[i] = momentum * m[i] + slope;
      x[i] -= (i < job.trained ? 0.05 * (slope + momentum * m[i]) : 0.125 * (x[i] - (double)g[i])) + d;
      center[i] += d;
    }
  }
  for (size_t i = 0; i < c->elements; i++) {
    worst = fmax(worst, fabs(x[i] - (double)job.strategy.w[i]));
    worst = fmax(worst, fabs(center[i] - (double)job.strategy.eval_weights[i]));
  }
  CHECK(c, worst < 2e-6);
  trm_free(g);
  trm_free(w);
  trm_free(x);
  trm_free(center);
  trm_free(m);
  job_stop(&job);
}

static void test_elastic(void)
{
  struct setup c = {.method = "easgd", .rule = TRM_UPDATE_SGD, .alpha = 0.25, .tau = 2, .elements = 4096};
  check_elastic(&c, 0.25, 0);
  c.alpha = -1;
  check_elastic(&c, 0.9, 0);
  c.method = "eamsgd";
  check_elastic(&c, 0.9, 0.99);
  c.momentum = 0.5;
  c.alpha = 1;
  check_elastic(&c, 1, 0.5);
}

/* -- invariants of exchanges */

/* Gives every worker different weights. */
static void scatter_workers(struct job *job, const struct setup *c)
{
  struct trm_strategy *s = &job->strategy;
  for (size_t i = 0; i < c->elements; i++)
    s->w[i] = initial(i + 1000 * (size_t)world->rank);
  for (int i = 0; i < (is_method(c, "a2cid2") ? 2 : is_method(c, "adpsgd")); i++)
    memcpy(peers_local_array(s, i), s->w, c->elements * sizeof *s->w);
  world->ops->barrier(world);
}

/* Sums the weights of all workers and the center into sum (elements); returns their largest difference. a2cid2: sums
 * the means of a worker's weights and its other vector. */
static double sum_workers(struct job *job, const struct setup *c, double *sum)
{
  struct trm_strategy *s = &job->strategy;
  double *square = trm_alloc(c->elements * sizeof *square, "test"), apart = 0;
  for (size_t i = 0; i < c->elements; i++) {
    sum[i] = (double)s->w[i];
    square[i] = sum[i] * sum[i];
  }
  world->ops->allreduce(world, sum, c->elements, TRM_DOUBLE, TRM_SUM);
  world->ops->allreduce(world, square, c->elements, TRM_DOUBLE, TRM_SUM);
  for (size_t i = 0; i < c->elements; i++) {
    apart += square[i] - sum[i] * sum[i] / world->size;
    sum[i] += is_method(c, "easgd") ? (double)s->eval_weights[i] : 0;
  }
  if (is_method(c, "a2cid2")) {
    for (size_t i = 0; i < c->elements; i++)
      sum[i] = 0.5 * ((double)peers_local_array(s, 1)[i] + (double)s->w[i]);
    world->ops->allreduce(world, sum, c->elements, TRM_DOUBLE, TRM_SUM);
  }
  trm_free(square);
  return apart;
}

/* P times the mean, which push-sum preserves even if the workers' weights differ. */
static void sum_mean(const struct job *job, const struct setup *c, double *sum)
{
  for (size_t i = 0; i < c->elements; i++)
    sum[i] = (double)job->strategy.eval_weights[i] * world->size;
}

/* Sums the push-sum weights of an interval over all ranks. */
static double sum_of_weights(const struct job *job, size_t piece)
{
  double sum = 0;
  for (int i = 0; i < job->strategy.local_states; i++)
    if (strcmp(job->strategy.local_state[i].name, "sgp: push-sum weights") == 0)
      sum = ((const double *)job->strategy.local_state[i].data)[piece];
  world->ops->allreduce(world, &sum, 1, TRM_DOUBLE, TRM_SUM);
  return sum;
}

static void test_conserved(void)
{
  static const char *const methods[] = {"easgd", "adpsgd", "sgp", "a2cid2"};
  for (enum layout layout = 0; layout < LAYOUTS; layout++)
    for (int m = 0; m < 4; m++) {
      if (is_thinned((int)layout + m))
        continue;
      const struct setup c = {
        .method = methods[m], .layout = layout, .alpha = -1, .tau = 1 + (int)layout % 2, .overlap = (int)layout,
        .elements = 70000 / 16 * 16};
      struct job job;
      job_start(&job, &c, world);
      job.optimizer.update.l2 = 0;
      job.tensor[2].momentum = 0;
      scatter_workers(&job, &c);
      double *before = trm_alloc(c.elements * sizeof *before, "test");
      double *after = trm_alloc(c.elements * sizeof *after, "test");
      const double apart_before = sum_workers(&job, &c, before);
      struct trm_strategy *s = &job.strategy;
      for (uint64_t end = 0, batch; end < 12 * (uint64_t)world->size; s->ops->quiesce(s)) {
        end += 6 * (uint64_t)world->size - end % 2;
        while (next_batch(s, end, &batch)) {
          struct trm_loss_sums tally = {.loss = 1, .rows = 1};
          if (s->ops->before_forward)
            s->ops->before_forward(s);
          memset(s->g, 0, c.elements * sizeof *s->g);
          CHECK(&c, s->ops->step(s, 0, &tally) == TRM_OK);
        }
      }
      const double apart = sum_workers(&job, &c, after);
      if (is_method(&c, "sgp"))
        sum_mean(&job, &c, after);
      double worst = 0;
      for (size_t i = 0; i < c.elements; i++)
        worst = fmax(worst, fabs(after[i] - before[i]) / world->size);
      CHECK(&c, worst < 1e-6);
      CHECK(&c, world->size == 1 || apart < 0.9 * apart_before);
      const double square = s->consensus * s->consensus * world->size;
      CHECK(&c, is_method(&c, "easgd") || is_method(&c, "sgp") || fabs(square - apart) <= 1e-4 * apart_before + 1e-6);
      for (size_t piece = 0; piece < 2 && is_method(&c, "sgp"); piece++)
        CHECK(&c, sum_of_weights(&job, piece) == world->size);
      trm_free(before);
      trm_free(after);
      job_stop(&job);
    }
}

/* -- push-sum without overlap: the published algorithm, for all workers in one process */

/* One iteration: tau batches of each worker, and then the halves from distance `distance`. w (ranks, elements) */
static void play_iteration(const struct job *job, int64_t iteration, double rate, int distance, float *w)
{
  const size_t n = job->strategy.elements, ranks = (size_t)world->size;
  const uint64_t tau = (uint64_t)job->strategy.options->tau;
  float *g = trm_alloc(n * sizeof *g, "test"), *before = trm_alloc(ranks * n * sizeof *before, "test");
  for (size_t k = 0; k < ranks; k++)
    for (uint64_t b = 0; b < tau; b++) {
      struct trm_update how = job->optimizer.update;
      how.rate = (float)rate;
      how.scale = 1;
      gradient(job, ((uint64_t)iteration * tau + b) * ranks + k, w + k * n, g);
      trm_optimizer_apply(&job->optimizer, &cpu, &how, NULL, &(struct trm_update_interval){0, n, w + k * n, NULL, NULL}, g);
    }
  memcpy(before, w, ranks * n * sizeof *w);
  for (size_t k = 0; k < ranks; k++)
    for (size_t i = 0; i < n; i++)
      w[k * n + i] = 0.5f * (before[k * n + i] + before[(k + ranks - (size_t)distance) % ranks * n + i]);
  trm_free(g);
  trm_free(before);
}

static void test_push_sum(void)
{
  enum { ITERATIONS = 12 };
  for (enum layout layout = 0; layout < LAYOUTS && world->size > 1; layout++) {
    const struct setup c = {.method = "sgp", .layout = layout, .tau = 1 + (int)layout % 2,
                            .elements = layout == ONE_NODE ? 70000 / 16 * 16 : 512};
    if (is_thinned((int)layout))
      continue;
    struct job job;
    job_start(&job, &c, world);
    const uint64_t batches = (uint64_t)(c.tau * world->size);
    run_to(&job, batches * ITERATIONS / 3, 0.1); /* goes on with the next distance */
    run_to(&job, batches * ITERATIONS, 0.1);
    const size_t n = c.elements, ranks = (size_t)world->size;
    float *w = trm_alloc(ranks * n * sizeof *w, "test");
    for (size_t i = 0; i < ranks * n; i++)
      w[i] = initial(i % n);
    for (int64_t i = 0, distance = 1; i < ITERATIONS; i++, distance = 2 * distance < world->size ? 2 * distance : 1)
      play_iteration(&job, i, 0.1, (int)distance, w);
    double worst = 0;
    for (size_t i = 0; i < n; i++)
      worst = fmax(worst, fabs((double)job.strategy.w[i] - (double)w[(size_t)world->rank * n + i]));
    if (!(worst < 1e-6))
      printf("\n    %g from the reference\n", worst);
    CHECK(&c, worst < 1e-6);
    trm_free(w);
    job_stop(&job);
  }
  CU_PASS("one rank sends nothing");
}

/* -- whole runs */

static double distance(const struct job *job)
{
  double sum = 0;
  for (size_t i = 0; i < job->strategy.elements; i++)
    sum += pow((double)job->strategy.eval_weights[i] - target(i), 2);
  return sqrt(sum);
}

/* There are fewer batches before the first quiesce point than workers. */
static void test_convex(void)
{
  static const char *const methods[] = {"easgd", "eamsgd", "adpsgd", "sgp", "keuper", "a2cid2"};
  for (enum layout layout = 0; layout <= LAYOUTS; layout++)
    for (int m = 0; m < 6; m++) {
      struct setup c = {.method = methods[m], .layout = layout, .alpha = -1, .momentum = m == 1 ? 0.5 : 0,
                        .tau = 1 + (int)layout % 2, .overlap = 1, .elements = 512};
      if (is_thinned((int)layout + m) || (layout == SERVER && (m > 1 || world->size < 2)))
        continue;
      struct job job;
      job_prepare(&job, &c, world);
      job.options.strategy.data = layout == ONE_NODE ? TRM_ASSIGN_DYNAMIC : TRM_ASSIGN_STATIC;
      job.optimizer.update.l2 = 0;
      job_create(&job, &c);
      float *w = initial_weights(&c);
      const float *from[TRM_MAX_STATES] = {w};
      CHECK(&c, job.strategy.ops->restore(&job.strategy, from, 0) == TRM_OK);
      const double before = distance(&job), rate = m == 1 ? 0.1 : 0.4;
      run_to(&job, 1, rate);
      /* few batches each, which bounds the staleness of a descheduled rank */
      for (uint64_t round = 1; round <= 8; round++)
        run_to(&job, (uint64_t)world->size * 10 * round, rate);
      if (!(distance(&job) < 0.1 * before))
        printf("\n    distance %g, was %g\n", distance(&job), before);
      CHECK(&c, distance(&job) < 0.1 * before);
      int64_t same[2] = {0, 0};
      for (size_t i = 0; i < c.elements; i++) {
        uint32_t bits;
        memcpy(&bits, &job.strategy.eval_weights[i], sizeof bits);
        same[0] = (same[0] * 31 + bits) % 1000000007;
      }
      same[1] = -same[0];
      world->ops->allreduce(world, same, 2, TRM_INT64, TRM_MAX);
      CHECK(&c, same[0] == -same[1]);
      trm_free(w);
      job_stop(&job);
    }
}

/* A run resumed from a checkpoint equals an uninterrupted one; with one worker bit for bit. */
static void test_goes_on(void)
{
  static const char *const methods[] = {"easgd", "eamsgd", "adpsgd", "sgp", "keuper", "a2cid2"};
  for (int m = 0; m < 6; m++) {
    const struct setup c = {.method = methods[m], .rule = m == 1 ? TRM_UPDATE_SGD : TRM_UPDATE_ADAM, .alpha = -1,
                            .tau = 3, .elements = 70000 / 16 * 16};
    struct job whole, first, second;
    job_start(&whole, &c, trm_comm_self());
    run_to(&whole, 10, 0.1);
    job_start(&first, &c, trm_comm_self());
    run_to(&first, 5, 0.1);
    float *center = trm_alloc(c.elements * sizeof *center, "test"); /* all else is local state */
    const float *const from[TRM_MAX_STATES] = {center};
    CHECK(&c, strategy_read(&first.strategy, 0, center) == TRM_OK);
    job_prepare(&second, &c, trm_comm_self());
    job_create(&second, &c);
    CHECK(&c, second.strategy.local_states == first.strategy.local_states &&
                first.strategy.local_states <= TRM_MAX_LOCAL_STATES);
    for (int i = 0; i < first.strategy.local_states; i++)
      memcpy(second.strategy.local_state[i].data, first.strategy.local_state[i].data,
             first.strategy.local_state[i].bytes);
    second.strategy.local_state_restored = true;
    CHECK(&c, second.strategy.ops->restore(&second.strategy, from, 5) == TRM_OK);
    CHECK(&c, memcmp(first.strategy.eval_weights, second.strategy.eval_weights, c.elements * sizeof(float)) == 0);
    run_to(&second, 10, 0.1);
    CHECK(&c, memcmp(whole.strategy.eval_weights, second.strategy.eval_weights, c.elements * sizeof(float)) == 0);
    CHECK(&c, memcmp(whole.strategy.w, second.strategy.w, c.elements * sizeof(float)) == 0);
    const struct trm_staleness *counted = second.strategy.staleness;
    CHECK(&c, !counted || (counted->updates == 10 / 3 && counted->sum == 0)); /* those before the checkpoint, too */
    job_stop(&whole);
    job_stop(&first);
    job_stop(&second);
    trm_free(center);
  }
}

/* A loss that is not finite changes no weights and stops no other worker. */
static void test_not_finite(void)
{
  static const char *const methods[] = {"easgd", "adpsgd", "sgp", "keuper", "a2cid2"};
  for (int m = 0; m < 5; m++) {
    const struct setup c = {.method = methods[m], .alpha = -1, .elements = 160};
    struct job job;
    job_start(&job, &c, world);
    struct trm_loss_sums tally = {.loss = NAN, .rows = 1};
    CHECK(&c, job.strategy.ops->step(&job.strategy, 0.1, &tally) == TRM_FAILED);
    world->ops->barrier(world);
    if (job.strategy.ops->before_forward)
      job.strategy.ops->before_forward(&job.strategy);
    float *w = initial_weights(&c);
    CHECK(&c, memcmp(w, job.strategy.w, c.elements * sizeof *w) == 0);
    world->ops->barrier(world);
    run_to(&job, (uint64_t)world->size, 0.1);
    trm_free(w);
    job_stop(&job);
  }
}

static void test_refused(void)
{
  const struct setup apart = {.method = "easgd", .alpha = -0.5, .elements = 160};
  struct job job;
  job_prepare(&job, &apart, world);
  CHECK(&apart, trm_strategy_create(&job.strategy) == TRM_USAGE);
  CHECK(&apart, strstr(trm_error_text(), "strategy.alpha") != NULL);
}

int main(int argc, char **argv)
{
  CU_TestInfo tests[] = {
    {"one worker is serial training", test_one_worker},
    {"alpha 0: independent workers", test_independent},
    {"elastic averaging against its formulas", test_elastic},
    {"exchanges conserve sums", test_conserved},
    {"push-sum without overlap", test_push_sum},
    {"a convex problem", test_convex},
    {"resume from a checkpoint", test_goes_on},
    {"a loss that is not finite", test_not_finite},
    {"refused options", test_refused},
    CU_TEST_INFO_NULL,
  };
  return method_run(argc, argv, "workers with weights of their own", tests);
}
