/* Peer methods in forced orders, one rank after the other: weights and staleness after each turn follow the formulas,
 * and so do the ranks that weights go to. With and without shared memory. For 2 ranks and more. */
#include "peers.h"

static const double order_rate = 0.5;

static double slope(size_t i)
{
  return cos((double)i);
}

/* One rank computes a batch whose gradient is `factor` times slope; the other rank waits. */
static void turn(struct job *job, int rank, double factor)
{
  struct trm_strategy *s = &job->strategy;
  struct trm_loss_sums tally = {.loss = 1, .rows = 1};
  if (world->rank == rank) {
    for (size_t i = 0; i < s->elements; i++)
      s->g[i] = (float)(i < job->trained ? factor * slope(i) : 0);
    CU_ASSERT_EQUAL(s->ops->step(s, order_rate, &tally), TRM_OK);
  }
  world->ops->barrier(world);
}

static void look(struct job *job, int rank)
{
  struct trm_strategy *s = &job->strategy;
  if (world->rank == rank && s->ops->before_forward)
    CU_ASSERT_EQUAL(s->ops->before_forward(s), TRM_OK);
  world->ops->barrier(world);
}

/* Initial weights of rank 0 or 1. */
static double begin_of(int rank, size_t i)
{
  return (double)initial(i + 77 * (size_t)rank);
}

/* Starts with different weights on each rank. */
static void turns_start(struct job *job, const struct setup *c)
{
  job_start(job, c, world);
  job->optimizer.update.l2 = 0;
  job->tensor[2].momentum = 0;
  for (size_t i = 0; i < c->elements; i++)
    job->strategy.w[i] = (float)begin_of(world->rank, i);
  if (is_method(c, "adpsgd"))
    memcpy(peers_local_array(&job->strategy, 0), job->strategy.w, c->elements * sizeof(float));
  world->ops->barrier(world);
}

/* Largest deviation of the rank's weights (or eval weights) from own * w_own + other * w_other + step * slope. */
static double away(const struct job *job, const float *w, double own, double other, double step)
{
  const int rank = world->rank;
  double worst = 0;
  for (size_t i = 0; i < job->strategy.elements; i++) {
    const double moved = i < job->trained ? step * slope(i) : 0;
    worst = fmax(worst, fabs(own * begin_of(rank, i) + other * begin_of(1 - rank, i) + moved - (double)w[i]));
  }
  return worst;
}

/* The passive rank reads, the active rank averages, and the passive rank's step applies to the average. */
static void check_average(const struct setup *c)
{
  struct job job;
  turns_start(&job, c);
  struct trm_strategy *s = &job.strategy;
  look(&job, 1);
  turn(&job, 0, 0);
  CHECK(c, away(&job, s->w, world->rank ? 1 : 0.5, world->rank ? 0 : 0.5, 0) < 1e-6);
  turn(&job, 1, 1);
  look(&job, 1);
  CHECK(c, away(&job, s->w, 0.5, 0.5, world->rank ? -order_rate : 0) < 1e-6);
  job_stop(&job);
}

/* Rank 0 sends weight 1/2 to rank 1, which then has 3/2 and sends 3/4 back. Rank 0 sends in its second iteration,
 * too, though it has received nothing. The sum changes by the gradient only. */
static void check_push(const struct setup *c)
{
  struct job job;
  turns_start(&job, c);
  struct trm_strategy *s = &job.strategy;
  turn(&job, 0, 0);
  look(&job, 1);
  turn(&job, 1, 1);
  CHECK(c, away(&job, s->w, world->rank ? 2.0 / 3 : 1, world->rank ? 1.0 / 3 : 0,
                world->rank ? -order_rate * 2 / 3 : 0) < 1e-6);
  turn(&job, 0, 0);
  look(&job, 1);
  look(&job, 0); /* weights 1 and 1 */
  CHECK(c, away(&job, s->w, 0.5, 0.5, -order_rate / 2) < 1e-6);
  CHECK(c, s->ops->quiesce(s) == TRM_OK);
  CHECK(c, away(&job, s->eval_weights, 0.5, 0.5, -order_rate / 2) < 1e-6);
  job_stop(&job);
}

/* Rank 1 sends nothing until rank 0 has begun iteration `overlap`, the last one without its first message. */
static void check_overlap(const struct setup *c)
{
  enum { WAITS, SENDS, WORDS };
  struct job job;
  turns_start(&job, c);
  struct trm_strategy *s = &job.strategy;
  struct trm_loss_sums tally = {.loss = 1, .rows = 1};
  struct shared_counters words;
  CU_ASSERT_FATAL(shared_counters_create(&words, world, worker_of(s)->node, 0, WORDS) == TRM_OK);
  uint64_t batch;
  for (int64_t i = 0; s->ops->next_batch(s, 16, &batch); i++) {
    CHECK(c, s->ops->before_forward(s) == TRM_OK);
    CHECK(c, world->rank || i <= c->overlap || shared_counters_read(&words, SENDS) == 1);
    if (world->rank == 0 && i == c->overlap)
      shared_counters_add(&words, WAITS, 1);
    while (world->rank && i == 0 && shared_counters_read(&words, WAITS) == 0)
      world->ops->progress(world);
    if (world->rank && i == 0)
      shared_counters_add(&words, SENDS, 1);
    memset(s->g, 0, c->elements * sizeof *s->g);
    CHECK(c, s->ops->step(s, order_rate, &tally) == TRM_OK);
  }
  CHECK(c, s->ops->quiesce(s) == TRM_OK);
  CHECK(c, away(&job, s->eval_weights, 0.5, 0.5, 0) < 1e-6);
  shared_counters_free(&words);
  job_stop(&job);
}

/* Turns: rank 1, rank 0 twice, rank 1, whose second step then has staleness 2. */
static void check_missed(const struct setup *c)
{
  struct job job;
  turns_start(&job, c);
  struct trm_strategy *s = &job.strategy;
  turn(&job, 1, 0);
  turn(&job, 0, 0);
  turn(&job, 0, 0);
  turn(&job, 1, 0);
  CHECK(c, s->staleness->updates == 2 && s->staleness->sum == (world->rank ? 2 : 0));
  job_stop(&job);
}

/* Rank 1 makes a step with a gradient of `factor` times its distance from rank 0's initial weights. Statistics have
 * none. filled: its slot has these weights; it mixes if its step leads towards them. m (elements): the momentum. */
static void step_towards(struct job *job, const struct setup *c, double factor, bool filled, double *m)
{
  struct trm_strategy *s = &job->strategy;
  struct trm_loss_sums tally = {.loss = 1, .rows = 1};
  if (world->rank == 1) {
    float *before = trm_alloc(c->elements * sizeof *before, "test");
    double *after = trm_alloc(c->elements * sizeof *after, "test"), was = 0, is = 0;
    const double momentum = c->rule == TRM_UPDATE_NESTEROV ? (double)job->optimizer.update.momentum : 0;
    memcpy(before, s->w, c->elements * sizeof *before);
    for (size_t i = 0; i < c->elements; i++) {
      const double away = (double)before[i] - begin_of(0, i);
      s->g[i] = (float)(i < job->trained ? factor * away : 0);
      m[i] = momentum * m[i] + (double)s->g[i];
      after[i] = (double)before[i] - order_rate * ((double)s->g[i] + momentum * m[i]);
      was += i < job->trained ? away * away : 0;
      is += i < job->trained ? pow(after[i] - begin_of(0, i), 2) : 0;
    }
    CHECK(c, s->ops->step(s, order_rate, &tally) == TRM_OK);
    double worst = 0;
    for (size_t i = 0; i < c->elements; i++) {
      const double pull = filled && is < was ? order_rate / 2 * ((double)before[i] - begin_of(0, i)) : 0;
      worst = fmax(worst, fabs(after[i] - pull - (double)s->w[i]));
    }
    CHECK(c, worst < 2e-6);
    trm_free(before);
    trm_free(after);
  }
  world->ops->barrier(world);
}

static void check_gate(const struct setup *c, double factor)
{
  struct job job;
  double *m = trm_alloc(c->elements * sizeof *m, "test");
  turns_start(&job, c);
  step_towards(&job, c, 0.5, false, m);
  turn(&job, 0, 0); /* sends its initial weights */
  step_towards(&job, c, factor, true, m);
  step_towards(&job, c, 1, false, m);
  trm_free(m);
  job_stop(&job);
}

/* -- more than two ranks */

enum { MAX_RANKS = 16 };

/* One rank's turn. Returns the rank whose replica has changed, other than the one whose turn it is; -1: none. */
static int changed_by_turn(struct job *job, int rank, double factor)
{
  const size_t bytes = job->strategy.elements * sizeof(float);
  const float *replica = peers_local_array(&job->strategy, 0);
  float *before = trm_alloc(bytes, "test");
  memcpy(before, replica, bytes);
  world->ops->barrier(world);
  turn(job, rank, factor);
  int32_t changed[MAX_RANKS] = {0}, found = -1, ranks = 0;
  changed[world->rank] = world->rank != rank && memcmp(before, replica, bytes) != 0;
  world->ops->allreduce(world, changed, world->size, TRM_INT32, TRM_SUM);
  for (int i = 0; i < world->size; i++)
    if (changed[i]) {
      found = i;
      ranks++;
    }
  CU_ASSERT(ranks <= 1);
  trm_free(before);
  return found;
}

/* AD-PSGD by all ranks in turn, in double precision: an active rank and a passive one, which it chooses, get their
 * mean, and the active rank makes its step from there; a passive rank makes its step alone. Every passive rank is
 * chosen by every active one, and active ranks choose differently. */
static void check_partners(const struct setup *c)
{
  enum { ROUNDS = 24 };
  const int size = world->size, passive = size / 2;
  int chosen[MAX_RANKS][MAX_RANKS] = {{0}}, equal = 0;
  double *x[MAX_RANKS], worst = 0;
  struct job job;
  turns_start(&job, c);
  for (int r = 0; r < size; r++) {
    x[r] = trm_alloc(c->elements * sizeof *x[r], "test");
    for (size_t i = 0; i < c->elements; i++)
      x[r][i] = (double)initial(i + 77 * (size_t)r);
  }
  for (int round = 0, last = -1; round < ROUNDS; round++)
    for (int r = 0; r < size; r++) {
      look(&job, r);
      const int partner = changed_by_turn(&job, r, r + 1);
      CHECK(c, r % 2 ? partner < 0 : partner % 2 == 1);
      for (size_t i = 0; i < c->elements && partner >= 0; i++)
        x[r][i] = x[partner][i] = (x[r][i] + x[partner][i]) / 2;
      for (size_t i = 0; i < job.trained; i++)
        x[r][i] -= order_rate * (r + 1) * slope(i);
      if (partner >= 0) {
        chosen[r][partner]++;
        equal += partner == last;
        last = partner;
      }
    }
  look(&job, world->rank);
  for (size_t i = 0; i < c->elements; i++)
    worst = fmax(worst, fabs(x[world->rank][i] - (double)job.strategy.w[i]));
  CHECK(c, worst < 1e-4); /* weights below 100 */
  for (int r = 0; r < size; r += 2)
    for (int partner = 1; partner < size; partner += 2)
      CHECK(c, chosen[r][partner] > ROUNDS / passive / 4);
  CHECK(c, passive == 1 || equal < ROUNDS * (size - passive) * 3 / 4);
  for (int r = 0; r < size; r++)
    trm_free(x[r]);
  job_stop(&job);
}

/* -- the tests */

static struct setup setup_of(const char *method, bool shares)
{
  return (struct setup){.method = method, .layout = shares ? ONE_NODE : NO_SHARING, .alpha = -1,
                        .elements = shares ? 160 : 70000 / 16 * 16};
}

static void test_missed(void)
{
  for (int shares = 0; shares < 2 && world->size == 2; shares++) {
    const struct setup c = setup_of("easgd", shares);
    check_missed(&c);
  }
}

static void test_average(void)
{
  for (int shares = 0; shares < 2 && world->size == 2; shares++) {
    const struct setup c = setup_of("adpsgd", shares);
    check_average(&c);
  }
}

static void test_push(void)
{
  for (int shares = 0; shares < 2 && world->size == 2; shares++) {
    struct setup c = setup_of("sgp", shares);
    c.overlap = 1;
    check_push(&c);
  }
}

static void test_overlap(void)
{
  for (int shares = 0; shares < 2 && world->size == 2; shares++)
    for (int overlap = 0; overlap < 4; overlap++) {
      struct setup c = setup_of("sgp", shares);
      c.overlap = overlap;
      check_overlap(&c);
    }
}

static void test_gate(void)
{
  for (int shares = 0; shares < 2 && world->size == 2; shares++) {
    const struct setup c = setup_of("keuper", shares);
    check_gate(&c, 1);
    check_gate(&c, -0.25);
    check_gate(&c, 4.25); /* beyond the other's weights, and farther away than before */
    struct setup nesterov = c;
    nesterov.rule = TRM_UPDATE_NESTEROV;
    check_gate(&nesterov, 0.5);
    check_gate(&nesterov, 3); /* the gradient leads towards the other's weights, the step leads beyond */
  }
}

static void test_partners(void)
{
  for (int shares = 0; shares < 2 && world->size > 2; shares++) {
    const struct setup c = setup_of("adpsgd", shares);
    check_partners(&c);
  }
}

int main(int argc, char **argv)
{
  CU_TestInfo tests[] = {
    {"easgd: staleness", test_missed},
    {"adpsgd: a step on the average", test_average},
    {"sgp: weights", test_push},
    {"sgp: overlap", test_overlap},
    {"keuper: the gate", test_gate},
    {"adpsgd: partners", test_partners},
    CU_TEST_INFO_NULL,
  };
  return method_run(argc, argv, "workers one after the other", tests);
}
