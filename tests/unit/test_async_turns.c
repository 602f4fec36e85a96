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
  for (int64_t i = 0; next_batch(s, 16, &batch); i++) {
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

/* -- more than two ranks, in turn */

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

/* The weights of all ranks in double precision, and the ranks that they were sent to. */
struct crowd {
  double *x[MAX_RANKS]; /* (elements) */
  int chosen[MAX_RANKS][MAX_RANKS];
  int from, to, compared, equal; /* the latest choice; pairs of choices in one round, and those that were equal */
};

static void crowd_begin(struct crowd *crowd, const struct setup *c)
{
  *crowd = (struct crowd){.from = MAX_RANKS};
  for (int r = 0; r < world->size; r++) {
    crowd->x[r] = trm_alloc(c->elements * sizeof *crowd->x[r], "test");
    for (size_t i = 0; i < c->elements; i++)
      crowd->x[r][i] = (double)initial(i + 77 * (size_t)r);
  }
}

static void crowd_choose(struct crowd *crowd, int from, int to)
{
  crowd->chosen[from][to]++;
  crowd->compared += from > crowd->from;
  crowd->equal += from > crowd->from && to == crowd->to;
  crowd->from = from;
  crowd->to = to;
}

/* Every rank that chooses has chosen all of its `candidates`, and not those of the rank before it. */
static void check_choices(const struct setup *c, const struct crowd *crowd, int candidates)
{
  for (int r = 0; r < world->size; r++) {
    int sum = 0, seen = 0;
    for (int to = 0; to < world->size; to++)
      sum += crowd->chosen[r][to];
    for (int to = 0; to < world->size; to++)
      seen += crowd->chosen[r][to] > 0 && crowd->chosen[r][to] >= sum / candidates / 4;
    CHECK(c, sum == 0 || (seen == candidates && crowd->chosen[r][r] == 0));
  }
  CHECK(c, candidates == 1 || crowd->equal < crowd->compared * 3 / 4);
}

static void crowd_end(struct crowd *crowd, const struct setup *c, const float *w)
{
  double worst = 0;
  for (size_t i = 0; i < c->elements; i++)
    worst = fmax(worst, fabs(crowd->x[world->rank][i] - (double)w[i]));
  CHECK(c, worst < 1e-4); /* weights below 20; y in units of 2^-20 */
  for (int r = 0; r < world->size; r++)
    trm_free(crowd->x[r]);
}

/* Enough for a rank to choose each of the others. */
static int rounds(void)
{
  return 8 * world->size;
}

/* Of the gradient: steps in both directions, which differ from rank to rank. */
static double factor_of(int round, int rank)
{
  return ((round + rank) % 3 - 1.25) * (1 + rank / 4.0);
}

/* AD-PSGD: an active rank and a passive one, which it chooses, get their mean, and the active rank makes its step from
 * there; a passive rank makes its step alone. */
static void check_pairs(const struct setup *c)
{
  struct crowd crowd;
  struct job job;
  turns_start(&job, c);
  crowd_begin(&crowd, c);
  for (int round = 0; round < rounds(); round++)
    for (int r = 0; r < world->size; r++) {
      look(&job, r);
      const double factor = factor_of(round, r);
      const int partner = changed_by_turn(&job, r, factor);
      CHECK(c, r % 2 ? partner < 0 : partner % 2 == 1);
      if (partner >= 0)
        crowd_choose(&crowd, r, partner);
      for (size_t i = 0; i < c->elements && partner >= 0; i++)
        crowd.x[r][i] = crowd.x[partner][i] = (crowd.x[r][i] + crowd.x[partner][i]) / 2;
      for (size_t i = 0; i < job.trained; i++)
        crowd.x[r][i] -= order_rate * factor * slope(i);
    }
  look(&job, world->rank);
  check_choices(c, &crowd, world->size / 2);
  crowd_end(&crowd, c, job.strategy.w);
  job_stop(&job);
}

/* SGP: after every iteration, of tau batches, a rank sends half of its x and y to the next rank at distance 1, 2, 4, ..
 * in turn, which adds them at its next iteration; it computes at x / y. */
static void check_halves(const struct setup *c)
{
  const int size = world->size, tau = c->tau ? c->tau : 1;
  double *arrived[MAX_RANKS], y[MAX_RANKS], y_arrived[MAX_RANKS] = {0};
  struct crowd crowd;
  struct job job;
  turns_start(&job, c);
  crowd_begin(&crowd, c);
  for (int r = 0; r < size; r++) {
    arrived[r] = trm_alloc(c->elements * sizeof *arrived[r], "test");
    y[r] = 1;
  }
  for (int batch = 0, distance = 1; batch < rounds(); batch++) {
    const bool begins = batch % tau == 0, ends = batch % tau == tau - 1;
    for (int r = 0; r < size; r++) {
      look(&job, r);
      const double factor = factor_of(batch, r);
      turn(&job, r, factor);
      const int to = (r + distance) % size;
      for (size_t i = 0; i < c->elements; i++) {
        double *x = &crowd.x[r][i], *in = &arrived[r][i];
        *x += begins ? *in : 0;
        *in = begins ? 0 : *in;
        *x -= i < job.trained ? order_rate * factor * slope(i) : 0;
        arrived[to][i] += ends ? *x / 2 : 0;
        *x *= ends ? 0.5 : 1;
      }
      y[r] += begins ? y_arrived[r] : 0;
      y_arrived[r] = begins ? 0 : y_arrived[r];
      y_arrived[to] += ends ? y[r] / 2 : 0;
      y[r] *= ends ? 0.5 : 1;
    }
    if (ends)
      distance = 2 * distance < size ? 2 * distance : 1;
  }
  for (int r = 0; r < size; r++) {
    for (size_t i = 0; i < c->elements; i++)
      crowd.x[r][i] /= y[r];
    trm_free(arrived[r]);
  }
  crowd_end(&crowd, c, job.strategy.w);
  job_stop(&job);
}

/* Keuper: a rank reads its slot. If the step leads towards the weights there, they are mixed with the rank's. Then its
 * weights go to a slot of another rank, which it chooses. */
static void check_slots(const struct setup *c)
{
  double *slot[MAX_RANKS];
  bool filled[MAX_RANKS] = {false};
  int accepted = 0, refused = 0;
  struct crowd crowd;
  struct job job;
  turns_start(&job, c);
  crowd_begin(&crowd, c);
  for (int r = 0; r < world->size; r++)
    slot[r] = trm_alloc(c->elements * sizeof *slot[r], "test");
  for (int round = 0; round < rounds(); round++)
    for (int r = 0; r < world->size; r++) {
      const double factor = factor_of(round, r);
      const int to = changed_by_turn(&job, r, factor);
      double nearer = 0;
      for (size_t i = 0; i < job.trained && filled[r]; i++) {
        const double apart = crowd.x[r][i] - slot[r][i], moved = apart - order_rate * factor * slope(i);
        nearer += apart * apart - moved * moved;
      }
      accepted += nearer > 0;
      refused += filled[r] && nearer <= 0;
      for (size_t i = 0; i < c->elements; i++) {
        const double pull = nearer > 0 ? order_rate / 2 * (crowd.x[r][i] - slot[r][i]) : 0;
        crowd.x[r][i] -= pull + (i < job.trained ? order_rate * factor * slope(i) : 0);
      }
      filled[r] = false;
      CU_ASSERT_FATAL(to >= 0);
      crowd_choose(&crowd, r, to);
      memcpy(slot[to], crowd.x[r], c->elements * sizeof *slot[to]);
      filled[to] = true;
    }
  CHECK(c, accepted > rounds() / 4 && refused > rounds() / 4);
  check_choices(c, &crowd, world->size - 1);
  crowd_end(&crowd, c, job.strategy.w);
  for (int r = 0; r < world->size; r++)
    trm_free(slot[r]);
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

static void test_crowd(void)
{
  for (int shares = 0; shares < 2 && world->size > 2; shares++) {
    const struct setup pairs = setup_of("adpsgd", shares), slots = setup_of("keuper", shares);
    check_pairs(&pairs);
    check_slots(&slots);
    struct setup halves = setup_of("sgp", shares);
    for (halves.tau = 1; halves.tau <= 3; halves.tau += 2) {
      halves.overlap = 1;
      check_halves(&halves);
    }
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
    {"adpsgd, keuper, sgp: many ranks", test_crowd},
    CU_TEST_INFO_NULL,
  };
  return method_run(argc, argv, "workers one after the other", tests);
}
