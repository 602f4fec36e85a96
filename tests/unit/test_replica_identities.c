/* Identities of the methods with local steps, to the bit: which method is which other one with certain options, and
 * what a single replica, orthogonal and parallel steps give. On real and on virtual ranks. */
#include "replicas_job.h"

static struct setup setup_of(const char *method)
{
  return (struct setup){.method = method, .replica = TRM_REPLICA_NODE, .share = TRM_SHARE_NODE, .tau = 4,
                        .fragments = 1, .rule = TRM_UPDATE_MOMENTUM, .outer_rate = -1, .outer_momentum = -1,
                        .decays_at = -1, .elements = 1600};
}

/* The setup with another method. */
static struct setup with_method(const struct setup *c, const char *method)
{
  struct setup other = *c;
  other.method = method;
  other.outer_rate = other.outer_momentum = -1;
  return other;
}

static void check_equal(const struct setup *a, const struct setup *b, struct trm_comm *comm, int steps)
{
  const size_t bytes = a->elements * sizeof(float);
  float *of_a = trm_alloc(bytes, "test"), *of_b = trm_alloc(bytes, "test");
  job_run(a, comm, steps, of_a);
  job_run(b, comm, steps, of_b);
  CHECK(a, memcmp(of_a, of_b, bytes) == 0);
  trm_free(of_a);
  trm_free(of_b);
}

/* -- local SGD is sync. The mean of w - rate g_i is w - rate mean(g_i), exactly where all values are multiples of a
 * power of two of less than 24 bits. */

static void check_is_sync(const struct setup *c, struct trm_comm *comm)
{
  const struct setup sync = with_method(c, "sync");
  check_equal(c, &sync, comm, 4);
}

static void test_one_step_is_sync(void)
{
  struct setup c = setup_of("local");
  c.exact = true;
  c.tau = 1;
  c.rule = TRM_UPDATE_SGD;
  run_everywhere(c, check_is_sync);
  c.method = "postlocal"; /* before the decay */
  c.tau = 4;
  run_everywhere(c, check_is_sync);
}

static void check_alone_is_sync(const struct setup *c, struct trm_comm *comm)
{
  if (replica_count(c, comm->size) == 1)
    check_is_sync(c, comm);
}

static void test_one_replica_is_sync(void)
{
  static const char *const methods[] = {"local", "postlocal", "adasum"};
  static const enum trm_update_rule rules[] = {TRM_UPDATE_SGD, TRM_UPDATE_MOMENTUM, TRM_UPDATE_ADAMW};
  for (int i = 0; i < 3; i++) {
    struct setup c = setup_of(methods[i]);
    c.rule = rules[i];
    c.decays_at = 2;
    run_everywhere(c, check_alone_is_sync);
  }
}

/* -- slow momentum, outer optimizers */

static void check_is_local(const struct setup *c, struct trm_comm *comm)
{
  const struct setup local = with_method(c, "local");
  check_equal(c, &local, comm, 10);
}

static void test_no_momentum_is_local(void)
{
  static const char *const methods[] = {"slowmo", "bmuf", "diloco"};
  for (int i = 0; i < 3; i++) {
    struct setup c = setup_of(methods[i]);
    c.outer_rate = 1;
    c.outer_momentum = 0;
    c.decays_at = 5;
    run_everywhere(c, check_is_local);
    c.fragments = 2;
    run_everywhere(c, check_is_local);
  }
}

/* With d = -alpha gamma u, alpha and gamma powers of two. */
static void check_is_slowmo(const struct setup *c, struct trm_comm *comm)
{
  struct setup slowmo = *c;
  slowmo.method = "slowmo";
  check_equal(c, &slowmo, comm, 13);
}

static void test_bmuf_is_slowmo(void)
{
  struct setup c = setup_of("bmuf");
  c.outer_rate = 0.5;
  c.outer_momentum = 0.7;
  run_everywhere(c, check_is_slowmo);
}

static void check_post_local(const struct setup *c, struct trm_comm *comm)
{
  const struct setup local = with_method(c, "local");
  check_equal(c, &local, comm, 7);
}

static void test_post_local(void)
{
  struct setup c = setup_of("postlocal");
  c.decays_at = 0;
  run_everywhere(c, check_post_local);
  c.decays_at = -1;
  c.tau = 1;
  run_everywhere(c, check_post_local);
}

/* -- Adasum of exact vectors */

/* A step of replicas from x0 = initial: replica k moves by `moves`(k, i), multiples of 1/16. */
static void adasum_step(const struct setup *c, struct trm_comm *comm, double (*moves)(int replica, size_t i),
                        float *weights)
{
  struct job job;
  job_start(&job, c, comm);
  struct trm_strategy *s = &job.strategy;
  const int replica = s->batch_shard / ranks_per_replica(c, comm->size);
  struct trm_loss_sums sums = {.loss = 1, .rows = 1};
  CHECK(c, trm_staged_arrays_begin(&job.arrays) == TRM_OK);
  for (size_t i = 0; i < c->elements; i++) /* the ranks of a replica add theirs up */
    s->g[i] = s->batch_shard % ranks_per_replica(c, comm->size) ? 0 : (float)(moves(replica, i) / RATE);
  CHECK(c, trm_staged_arrays_ready(&job.arrays, 0, c->elements, &sums) == TRM_OK);
  trm_strategy_begin_step(s, RATE, 0, &sums);
  CHECK(c, s->ops->step(s, RATE, &sums) == TRM_OK);
  memcpy(weights, s->w, c->elements * sizeof *weights);
  comm->ops->barrier(comm);
  strategy_end(&job.arrays);
}

/* Disjoint supports: every element is moved by one replica. */
static double moves_orthogonal(int replica, size_t i)
{
  return i % MAX_RANKS == (size_t)replica ? (double)(1 + i % 7) / 16 : 0;
}

static double moves_parallel(int replica, size_t i)
{
  (void)replica;
  return (double)(1 + i % 7) / 16;
}

static void check_adasum(const struct setup *c, struct trm_comm *comm)
{
  float *w = trm_alloc(c->elements * sizeof *w, "test");
  const size_t trained = trained_of(c);
  adasum_step(c, comm, moves_orthogonal, w);
  for (size_t i = 0; i < trained; i++) {
    double sum = 0;
    for (int k = 0; k < replica_count(c, comm->size); k++)
      sum += moves_orthogonal(k, i);
    CHECK(c, (double)w[i] == (double)initial(i) - sum);
  }
  adasum_step(c, comm, moves_parallel, w);
  for (size_t i = 0; i < trained; i++)
    CHECK(c, (double)w[i] == (double)initial(i) - moves_parallel(0, i));
  trm_free(w);
}

static void test_adasum(void)
{
  struct setup c = setup_of("adasum");
  c.tau = 1;
  c.rule = TRM_UPDATE_SGD;
  run_everywhere(c, check_adasum);
}

int main(int argc, char **argv)
{
  CU_TestInfo tests[] = {
    {"one step a round is sync", test_one_step_is_sync},
    {"one replica is sync", test_one_replica_is_sync},
    {"no momentum is local SGD", test_no_momentum_is_local},
    {"bmuf is slowmo", test_bmuf_is_slowmo},
    {"post-local SGD is local SGD", test_post_local},
    {"orthogonal and parallel steps", test_adasum},
    CU_TEST_INFO_NULL,
  };
  return method_run(argc, argv, "replica identities", tests);
}
