/* Methods with local steps against straight loops in double precision, written from the papers; losses, failures and
 * stop requests; resuming in the middle of a round. On real ranks, and on virtual ones when there is one. */
#include "mpi/compress/compressor_private.h"
#include "mpi/sync/replicas_private.h"
#include "replicas_job.h"

/* -- the reference: all replicas in one place */

struct reference {
  double *w[MAX_RANKS], *first[MAX_RANKS], *second[MAX_RANKS]; /* of each replica */
  double *x0, *u; /* the method's */
  int position, replicas, ranks;
};

static void reference_open(struct reference *r, const struct setup *c, int ranks)
{
  const size_t bytes = c->elements * sizeof(double);
  *r = (struct reference){.x0 = trm_alloc(bytes, "test"), .u = trm_alloc(bytes, "test"), .ranks = ranks,
                          .replicas = replica_count(c, ranks)};
  for (int k = 0; k < r->replicas; k++) {
    r->w[k] = trm_alloc(bytes, "test");
    r->first[k] = trm_alloc(bytes, "test");
    r->second[k] = trm_alloc(bytes, "test");
    for (size_t i = 0; i < c->elements; i++)
      r->w[k][i] = r->x0[i] = (double)initial(i);
  }
}

static void reference_close(struct reference *r)
{
  for (int k = 0; k < r->replicas; k++) {
    trm_free(r->w[k]);
    trm_free(r->first[k]);
    trm_free(r->second[k]);
  }
  trm_free(r->x0);
  trm_free(r->u);
}

/* The optimizer's step of one replica: formulas of nn/optimizer.h. */
static void reference_inner(struct reference *r, const struct setup *c, int replica, uint64_t step, double rate)
{
  const int size = replica_size(c, r->ranks, replica), shard = replica * ranks_per_replica(c, r->ranks);
  for (size_t i = 0; i < c->elements; i++) {
    double *w = &r->w[replica][i], *m = &r->first[replica][i], *v = &r->second[replica][i], g = 0;
    for (int k = 0; k < size; k++)
      g += shard_gradient(c, step, shard + k, i, *w) / size;
    if (i >= trained_of(c)) {
      *w += (double)STATISTIC_MOMENTUM * (g - *w);
    } else if (c->rule == TRM_UPDATE_SGD) {
      *w -= rate * g;
    } else if (c->rule == TRM_UPDATE_MOMENTUM) {
      *m = 0.5 * *m + g;
      *w -= rate * *m;
    } else { /* adamw */
      *m = 0.5 * *m + 0.5 * g;
      *v = 0.75 * *v + 0.25 * g * g;
      *w -= rate * (*m / (1 - pow(0.5, (double)step + 1)) /
                      (sqrt(*v / (1 - pow(0.75, (double)step + 1))) + 0.125) + 0.0625 * *w);
    }
  }
}

static double reference_mean(const struct reference *r, size_t i)
{
  double sum = 0;
  for (int k = 0; k < r->replicas; k++)
    sum += r->w[k][i];
  return sum / r->replicas;
}

/* Adasum of two vectors (n), into a. */
static void reference_adasum_pair(double *a, const double *b, size_t n)
{
  double ab = 0, aa = 0, bb = 0;
  for (size_t i = 0; i < n; i++) {
    ab += a[i] * b[i];
    aa += a[i] * a[i];
    bb += b[i] * b[i];
  }
  for (size_t i = 0; i < n; i++)
    a[i] = (1 - ab / (2 * aa)) * a[i] + (1 - ab / (2 * bb)) * b[i];
}

static void reference_adasum(struct reference *r, const struct setup *c)
{
  int power = 1;
  while (2 * power <= r->replicas)
    power *= 2;
  for (int t = 0; t < TENSORS - 1; t++) {
    const size_t low = t ? tensor_end(c, t - 1) : 0, n = tensor_end(c, t) - low;
    for (int k = 0; k < r->replicas; k++)
      for (size_t i = low; i < low + n; i++)
        r->w[k][i] = r->x0[i] - r->w[k][i]; /* d */
    for (int k = 0; k + power < r->replicas; k++)
      reference_adasum_pair(r->w[k] + low, r->w[k + power] + low, n);
    for (int distance = 1; distance < power; distance *= 2)
      for (int k = 0; k < power; k += 2 * distance)
        reference_adasum_pair(r->w[k] + low, r->w[k + distance] + low, n);
    for (size_t i = low; i < low + n; i++)
      r->x0[i] -= r->w[0][i];
    for (int k = 0; k < r->replicas; k++)
      memcpy(r->w[k] + low, r->x0 + low, n * sizeof(double));
  }
}

/* The next weights of element i, by the papers' equations. */
static double reference_rule(struct reference *r, const struct setup *c, size_t i, double rate)
{
  const double mean = reference_mean(r, i);
  double *x0 = &r->x0[i], *u = &r->u[i];
  if (i >= trained_of(c) || strcmp(c->method, "local") == 0 || strcmp(c->method, "postlocal") == 0)
    return mean;
  if (strcmp(c->method, "slowmo") == 0) {
    const double alpha = c->outer_rate < 0 ? 1 : c->outer_rate, beta = c->outer_momentum < 0 ? 0.5 : c->outer_momentum;
    *u = beta * *u + (*x0 - mean) / rate;
    *x0 -= alpha * rate * *u;
  } else if (strcmp(c->method, "bmuf") == 0) {
    const double zeta = c->outer_rate < 0 ? 1 : c->outer_rate;
    const double eta = c->outer_momentum < 0 ? 1 - 1.0 / r->replicas : c->outer_momentum;
    *u = eta * *u + zeta * (mean - *x0);
    *x0 += *u;
  } else { /* diloco */
    const double lr = c->outer_rate < 0 ? 0.7 : c->outer_rate, mu = c->outer_momentum < 0 ? 0.9 : c->outer_momentum;
    *u = mu * *u + (*x0 - mean);
    *x0 -= lr * (*x0 - mean + mu * *u);
  }
  return *x0;
}

static void reference_exchange(struct reference *r, const struct setup *c, double rate, size_t low, size_t high)
{
  const bool adasum = strcmp(c->method, "adasum") == 0;
  if (r->replicas == 1 && (adasum || strstr(c->method, "local")))
    return;
  if (adasum)
    reference_adasum(r, c);
  for (size_t i = low; i < high; i++) {
    const double x = adasum && i < trained_of(c) ? r->x0[i] : reference_rule(r, c, i, rate);
    for (int k = 0; k < r->replicas; k++)
      r->w[k][i] = x;
  }
}

static void reference_step(struct reference *r, const struct setup *c, uint64_t step)
{
  const double rate = rate_of(c, step);
  const bool every_step = strcmp(c->method, "postlocal") == 0 && (c->decays_at < 0 || step < (uint64_t)c->decays_at);
  const int period = every_step ? 1 : c->tau, steps = period / c->fragments;
  for (int k = 0; k < r->replicas; k++)
    reference_inner(r, c, k, step, rate);
  if (++r->position % steps == 0) {
    size_t low, high;
    trm_interval(c->elements, (size_t)c->fragments, (size_t)(r->position / steps - 1), &low, &high);
    reference_exchange(r, c, rate, low, high);
  }
  r->position %= period;
}

/* -- checks */

static double worst_distance(const float *w, const double *wanted, size_t n)
{
  double worst = 0;
  for (size_t i = 0; i < n; i++) {
    const double d = fabs((double)w[i] - wanted[i]);
    worst = d > worst || isnan(d) ? d : worst;
  }
  return worst;
}

static double worst_difference(const float *a, const float *b, size_t n)
{
  double worst = 0;
  for (size_t i = 0; i < n; i++) {
    const double d = fabs((double)a[i] - (double)b[i]);
    worst = d > worst || isnan(d) ? d : worst;
  }
  return worst;
}

static bool same_everywhere(struct trm_comm *comm, const float *w, size_t n)
{
  int64_t sum = 0;
  for (size_t i = 0; i < n; i++) {
    uint32_t bits;
    memcpy(&bits, &w[i], sizeof bits);
    sum = sum * 31 % 1000000007 + bits;
  }
  int64_t both[2] = {sum, -sum};
  comm->ops->allreduce(comm, both, 2, TRM_INT64, TRM_MAX);
  return both[0] == -both[1];
}

static void check_against_reference(const struct setup *c, struct trm_comm *comm)
{
  enum { STEPS = 11 };
  struct job job;
  struct reference r;
  job_start(&job, c, comm);
  reference_open(&r, c, comm->size);
  const struct trm_strategy *s = &job.strategy;
  const int mine = s->batch_shard / ranks_per_replica(c, comm->size);
  int64_t shards = (int64_t)1 << s->batch_shard; /* every shard once */
  comm->ops->allreduce(comm, &shards, 1, TRM_INT64, TRM_SUM);
  CHECK(c, shards == ((int64_t)1 << comm->size) - 1 && s->batch_shards == comm->size);
  CHECK(c, s->replica->size == replica_size(c, comm->size, mine));
  double *mean = trm_alloc(c->elements * sizeof *mean, "test");
  for (uint64_t step = 0; step < STEPS; step++) {
    job_steps(&job, c, 1);
    reference_step(&r, c, step);
    comm->ops->barrier(comm);
    CHECK(c, worst_distance(s->w, r.w[mine], c->elements) < 2e-6);
    if (step % 3 == 1 || step + 1 == STEPS) {
      const float *w = job_weights(&job);
      for (size_t i = 0; i < c->elements; i++)
        mean[i] = reference_mean(&r, i);
      CHECK(c, worst_distance(w, mean, c->elements) < 2e-6);
      CHECK(c, same_everywhere(comm, w, c->elements));
    }
    comm->ops->barrier(comm);
  }
  trm_free(mean);
  reference_close(&r);
  strategy_end(&job.arrays);
}

static struct setup setup_of(const char *method)
{
  return (struct setup){.method = method, .replica = TRM_REPLICA_NODE, .share = TRM_SHARE_NODE, .tau = 4,
                        .fragments = 1, .rule = TRM_UPDATE_SGD, .outer_rate = -1, .outer_momentum = -1,
                        .decays_at = -1, .elements = 1600};
}

static const char *const methods[] = {"local", "postlocal", "slowmo", "bmuf", "diloco", "adasum"};
enum { METHODS = sizeof methods / sizeof *methods };

static void test_rules(void)
{
  static const enum trm_update_rule rules[] = {TRM_UPDATE_SGD, TRM_UPDATE_MOMENTUM, TRM_UPDATE_ADAMW};
  for (int m = 0; m < METHODS; m++)
    for (int i = 0; i < 3; i++) {
      struct setup c = setup_of(methods[m]);
      c.rule = rules[i];
      c.decays_at = i == 1 ? -1 : 5;
      c.tau = i == 2 ? 3 : 4;
      run_everywhere(c, check_against_reference);
    }
}

static void test_options(void)
{
  static const char *const outer[] = {"slowmo", "bmuf", "diloco"};
  for (int m = 0; m < 3; m++) {
    struct setup c = setup_of(outer[m]);
    c.outer_rate = 0.8;
    c.outer_momentum = 0.3;
    c.rule = TRM_UPDATE_MOMENTUM;
    run_everywhere(c, check_against_reference);
  }
  for (int m = 0; m < METHODS; m++) {
    struct setup c = setup_of(methods[m]);
    c.replica = TRM_REPLICA_RANK;
    run_everywhere(c, check_against_reference);
    c.replica = TRM_REPLICA_NODE;
    c.share = TRM_SHARE_NONE;
    run_everywhere(c, check_against_reference);
  }
}

static void test_fragments(void)
{
  static const char *const with[] = {"local", "slowmo", "bmuf", "diloco"};
  for (int m = 0; m < 4; m++) {
    struct setup c = setup_of(with[m]);
    c.tau = 6;
    for (c.fragments = 2; c.fragments <= 6; c.fragments++)
      if (c.tau % c.fragments == 0)
        run_everywhere(c, check_against_reference);
  }
  struct setup c = setup_of("local");
  c.fragments = 3;
  struct job job;
  CU_ASSERT_EQUAL(job_open(&job, &c, world), TRM_USAGE);
  CU_ASSERT_PTR_NOT_NULL(strstr(trm_error_text(), "strategy.fragments"));
}

/* -- compressed exchanges */

/* All elements are sent: the rules are those of the reference, whose weights are those of all replicas between rounds
 * only if what each has moved is counted from the right weights. */
static void test_whole_compression(void)
{
  for (int m = 0; m < METHODS; m++) {
    struct setup c = setup_of(methods[m]);
    if (strcmp(c.method, "adasum") == 0)
      continue;
    c.compress = TRM_COMPRESS_TOPK;
    c.ratio = 1;
    c.tau = 6;
    c.decays_at = m == 1 ? 5 : -1;
    for (c.fragments = 1; c.fragments <= 2; c.fragments++)
      if (m != 1 || c.fragments == 1)
        run_everywhere(c, check_against_reference);
  }
}

/* Error feedback: with steps that do not depend on the weights, what the mean of the weights lacks is the mean of the
 * errors that replicas keep, w(compressed) + 1/R sum over replicas of e = w(all sent). Statistics lack nothing. */
static void check_error_feedback(const struct setup *c, struct trm_comm *comm)
{
  struct setup all = *c;
  struct job job;
  const size_t bytes = c->elements * sizeof(float);
  float *whole = trm_alloc(bytes, "test"), *error = trm_alloc(bytes, "test");
  all.compress = TRM_COMPRESS_NONE;
  job_run(&all, comm, 2 * c->tau, whole);
  job_start(&job, c, comm);
  job_steps(&job, c, 2 * c->tau);
  const struct replicas *r = replicas_of(&job.strategy);
  const size_t low = r->slice.low, high = r->slice.high < trained_of(c) ? r->slice.high : trained_of(c);
  double worst = 0, largest = 0;
  if (r->compressor && low < high) {
    memcpy(error, r->compressor->state[0], (high - low) * sizeof *error);
    r->cross->ops->allreduce(r->cross, error, high - low, TRM_FLOAT, TRM_SUM);
    for (size_t i = low; i < high; i++) {
      const double e = (double)error[i - low] / r->count, d = (double)job.strategy.w[i] + e - (double)whole[i];
      worst = fabs(d) > worst || isnan(d) ? fabs(d) : worst;
      largest = fabs(e) > largest ? fabs(e) : largest;
    }
    CHECK(c, worst < 2e-6 && largest > 1e-3);
  }
  CHECK(c, worst_difference(job.strategy.w + trained_of(c), whole + trained_of(c), c->elements - trained_of(c)) < 2e-6);
  comm->ops->barrier(comm);
  strategy_end(&job.arrays);
  trm_free(whole);
  trm_free(error);
}

static void test_error_feedback(void)
{
  static const enum trm_compress compress[] = {TRM_COMPRESS_TOPK, TRM_COMPRESS_SIGN};
  for (int i = 0; i < 2; i++) {
    struct setup c = setup_of("local");
    c.exact = true;
    c.compress = compress[i];
    c.ratio = 0.1;
    run_everywhere(c, check_error_feedback);
    c.share = TRM_SHARE_NONE; /* what the ranks of a replica sum is not compressed */
    run_everywhere(c, check_error_feedback);
  }
}

/* -- losses */

/* Every row is counted once, at exchanges and at the quiesce point; requests to stop arrive there. */
static void check_losses(const struct setup *c, struct trm_comm *comm)
{
  struct job job;
  job_start(&job, c, comm);
  struct trm_strategy *s = &job.strategy;
  const bool alone = replica_count(c, comm->size) == 1;
  double rows = 0;
  for (int step = 0; step < 10; step++) {
    struct trm_loss_sums sums = {.loss = 2, .correct = 1, .rows = 3, .stop_requests = step == 1 && comm->rank == 0};
    CHECK(c, job_step(&job, c, &sums) == TRM_OK);
    rows += sums.rows;
    CHECK(c, sums.stop_requests == (alone ? step == 1 : step == c->tau - 1));
    CHECK(c, sums.rows == 3.0 * comm->size * (alone ? 1 : step % c->tau == c->tau - 1 ? c->tau : 0));
  }
  CHECK(c, s->ops->quiesce(s) == TRM_OK);
  CHECK(c, rows + s->unreported.rows == 30.0 * comm->size && s->unreported.loss == s->unreported.rows / 3 * 2);
  CHECK(c, s->ops->quiesce(s) == TRM_OK && s->unreported.rows == 0);
  comm->ops->barrier(comm);
  strategy_end(&job.arrays);
}

/* A loss that is not finite ends the run on every rank with one message, at the exchange. */
static void check_failure(const struct setup *c, struct trm_comm *comm)
{
  struct job job;
  job_start(&job, c, comm);
  const bool alone = replica_count(c, comm->size) == 1;
  for (int step = 0, status = TRM_OK; step < c->tau && status == TRM_OK; step++) {
    struct trm_loss_sums sums = {.loss = step == 1 && comm->rank == comm->size - 1 ? NAN : 1, .rows = 1};
    status = job_step(&job, c, &sums);
    const bool fails = step == (alone ? 1 : c->tau - 1);
    CHECK(c, status == (fails ? TRM_FAILED : TRM_OK));
    CHECK(c, !fails || strstr(trm_error_text(), "is nan"));
  }
  comm->ops->barrier(comm);
  strategy_end(&job.arrays);
}

static void test_losses(void)
{
  run_everywhere(setup_of("local"), check_losses);
  run_everywhere(setup_of("adasum"), check_losses);
  run_everywhere(setup_of("slowmo"), check_failure);
}

/* -- checkpoints */

struct saved {
  struct trm_local_state local[TRM_MAX_LOCAL_STATES];
  int count;
  float *whole[TRM_MAX_STATES]; /* on every rank */
  uint64_t updates;
};

/* What a checkpoint keeps. Collective. */
static void save(struct job *job, struct saved *to)
{
  struct trm_strategy *s = &job->strategy;
  const size_t bytes = s->elements * sizeof(float);
  job_weights(job);
  *to = (struct saved){.count = s->local_states, .updates = s->updates};
  for (int i = 0; i < to->count; i++) {
    to->local[i] = s->local_state[i];
    to->local[i].data = memcpy(trm_alloc(s->local_state[i].bytes, "test"), s->local_state[i].data,
                               s->local_state[i].bytes);
  }
  for (int i = 0; i <= s->optimizer->states; i++) {
    to->whole[i] = trm_alloc(bytes, "test");
    CU_ASSERT_EQUAL(strategy_read(s, i, to->whole[i]), TRM_OK);
    s->comm->ops->broadcast(s->comm, to->whole[i], s->elements, TRM_FLOAT, 0);
  }
}

static void saved_free(struct saved *saved)
{
  for (int i = 0; i < saved->count; i++)
    trm_free(saved->local[i].data);
  for (int i = 0; i < TRM_MAX_STATES; i++)
    trm_free(saved->whole[i]);
}

/* Collective. */
static void resume(struct job *job, const struct setup *c, struct trm_comm *comm, const struct saved *from, bool local)
{
  CU_ASSERT_EQUAL_FATAL(job_open(job, c, comm), TRM_OK);
  struct trm_strategy *s = &job->strategy;
  CHECK(c, s->local_states == from->count);
  for (int i = 0; i < s->local_states && local; i++) {
    CHECK(c, strcmp(s->local_state[i].name, from->local[i].name) == 0 &&
               s->local_state[i].bytes == from->local[i].bytes);
    memcpy(s->local_state[i].data, from->local[i].data, from->local[i].bytes);
  }
  s->local_state_restored = local;
  comm->ops->barrier(comm);
  const float *whole[TRM_MAX_STATES] = {from->whole[0], from->whole[1], from->whole[2], from->whole[3]};
  CU_ASSERT_EQUAL(s->ops->restore(s, whole, from->updates), TRM_OK);
}

/* Evaluations and checkpoints at each step change nothing; a job that resumes from any of them ends with the same
 * bits; without the ranks' own state it begins a round from the mean. */
static void check_resume(const struct setup *c, struct trm_comm *comm)
{
  enum { STEPS = 9 };
  const size_t bytes = c->elements * sizeof(float);
  float *undisturbed = trm_alloc(bytes, "test");
  struct job job, other;
  struct saved saved;
  job_run(c, comm, STEPS, undisturbed);
  job_start(&job, c, comm);
  for (int step = 1; step < STEPS; step++) {
    job_steps(&job, c, 1);
    save(&job, &saved);
    resume(&other, c, comm, &saved, true);
    CHECK(c, memcmp(job_weights(&other), saved.whole[0], bytes) == 0);
    comm->ops->barrier(comm);
    job_steps(&other, c, STEPS - step);
    CHECK(c, memcmp(job_weights(&other), undisturbed, bytes) == 0);
    comm->ops->barrier(comm);
    strategy_end(&other.arrays);
    resume(&other, c, comm, &saved, false);
    CHECK(c, memcmp(other.strategy.w, saved.whole[0], bytes) == 0 && other.strategy.updates == (uint64_t)step);
    comm->ops->barrier(comm);
    strategy_end(&other.arrays);
    saved_free(&saved);
  }
  job_steps(&job, c, 1);
  CHECK(c, memcmp(job_weights(&job), undisturbed, bytes) == 0);
  comm->ops->barrier(comm);
  strategy_end(&job.arrays);
  trm_free(undisturbed);
}

static void test_resume(void)
{
  for (int m = 0; m < METHODS; m++) {
    struct setup c = setup_of(methods[m]);
    c.rule = m % 2 ? TRM_UPDATE_ADAMW : TRM_UPDATE_MOMENTUM;
    c.decays_at = 3;
    c.elements = 320;
    run_everywhere(c, check_resume);
    c.share = TRM_SHARE_NONE;
    run_everywhere(c, check_resume);
  }
  struct setup c = setup_of("diloco");
  c.fragments = 2;
  c.elements = 320;
  run_everywhere(c, check_resume);
  c.compress = TRM_COMPRESS_TOPK;
  c.ratio = 0.1;
  run_everywhere(c, check_resume);
  c.method = "local";
  run_everywhere(c, check_resume);
}

int main(int argc, char **argv)
{
  CU_TestInfo tests[] = {
    {"rules", test_rules},
    {"options", test_options},
    {"fragments", test_fragments},
    {"compressed, all elements", test_whole_compression},
    {"error feedback", test_error_feedback},
    {"losses", test_losses},
    {"resuming", test_resume},
    CU_TEST_INFO_NULL,
  };
  return method_run(argc, argv, "replicas", tests);
}
