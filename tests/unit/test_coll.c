/* Collectives over messages (mpi/coll): every algorithm on 1 to 64 ranks of the virtual network with odd counts, several
 * at once, and their times and bytes by the formulas of their papers. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"
#include "mpi/coll/collectives.h"
#include "mpi/virtual.h"
#include "suite.h"

static const struct trm_virtual_plan plain = {.ranks = 1, .ranks_per_node = 1, .latency = 1e-3, .bandwidth = 1e6};

static struct trm_virtual_figures run(struct trm_virtual_plan plan, int (*main)(struct trm_comm *world, void *context),
                                      void *context)
{
  struct trm_virtual_figures figures = {0};
  const int status = trm_virtual_run(&plan, main, context, &figures);
  if (status != TRM_OK)
    printf("%d ranks, schedule %d: %s\n", plan.ranks, (int)plan.schedule, trm_error_text());
  CU_ASSERT_EQUAL(status, TRM_OK);
  return figures;
}

/* Any number of ranks; the order of messages is that of the network, or random. */
static void run_all(int (*main)(struct trm_comm *world, void *context))
{
  static const int ranks[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 32, 64};
  for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++)
    for (uint64_t schedule = 0; schedule < (ranks[i] <= 9 ? 4 : 1); schedule++) {
      struct trm_virtual_plan plan = plain;
      plan.ranks = ranks[i];
      plan.schedule = schedule;
      run(plan, main, NULL);
    }
}

/* Small integers: exact in every type and order. */
static int value(int rank, size_t i)
{
  return (int)((i * 7 + (size_t)rank * 13) % 11) - rank % 2;
}

static const size_t sizes[] = {0, 1, 5, 1023, 8191, 8193, 70001};
enum { SIZES = sizeof sizes / sizeof *sizes };

/* -- results */

/* What the reduction of element i is: it depends on i modulo 11. */
struct reduced {
  int of[11];
};

static struct reduced serial(const struct trm_comm *comm, enum trm_op op)
{
  struct reduced result;
  for (size_t i = 0; i < 11; i++) {
    result.of[i] = value(0, i);
    for (int rank = 1; rank < comm->size; rank++) {
      const int v = value(rank, i), before = result.of[i];
      result.of[i] = op == TRM_SUM ? before + v : (op == TRM_MIN) == (v < before) ? v : before;
    }
  }
  return result;
}

static int check_allreduce(struct trm_comm *comm, void *context)
{
  static const enum trm_op ops[] = {TRM_SUM, TRM_MIN, TRM_MAX, TRM_SUM};
  struct coll coll = {.comm = comm};
  size_t wrong = 0;
  (void)context;
  for (int s = 0; s < SIZES; s++) {
    const enum trm_op op = ops[s % 4];
    const size_t n = sizes[s];
    const bool integers = s % 2;
    float *x = trm_alloc(n * sizeof *x, "test");
    int32_t *k = trm_alloc(n * sizeof *k, "test");
    for (size_t i = 0; i < n; i++) {
      x[i] = (float)value(comm->rank, i);
      k[i] = value(comm->rank, i);
    }
    struct coll_schedule *schedule =
      integers ? coll_allreduce(&coll, k, n, TRM_INT32, op) : coll_allreduce(&coll, x, n, TRM_FLOAT, op);
    coll_schedule_wait(&schedule);
    const struct reduced reduced = serial(comm, op);
    for (size_t i = 0; i < n; i++)
      wrong += (integers ? (double)k[i] : (double)x[i]) != reduced.of[i % 11];
    trm_free(x);
    trm_free(k);
  }
  CU_ASSERT_EQUAL(wrong, 0);
  return TRM_OK;
}

static int check_rows(struct trm_comm *comm, void *context)
{
  struct coll coll = {.comm = comm};
  const size_t size = (size_t)comm->size, rank = (size_t)comm->rank;
  const struct reduced reduced = serial(comm, TRM_SUM);
  size_t wrong = 0;
  (void)context;
  for (int s = 0; s < SIZES; s++) {
    const size_t n = sizes[s] / size + (sizes[s] > 0);
    double *all = trm_alloc(n * size * sizeof *all, "test"), *mine = trm_alloc(n * sizeof *mine, "test");
    for (size_t i = 0; i < n * size; i++)
      all[i] = value(comm->rank, i);
    struct coll_schedule *schedule = coll_reduce_scatter(&coll, all, mine, n, TRM_DOUBLE, TRM_SUM);
    coll_schedule_wait(&schedule);
    for (size_t i = 0; i < n; i++)
      wrong += mine[i] != reduced.of[(rank * n + i) % 11];
    for (size_t i = 0; i < n * size; i++)
      all[i] = i / (n ? n : 1) == rank ? value(comm->rank, i) : NAN;
    schedule = coll_allgather(&coll, all, n, TRM_DOUBLE);
    coll_schedule_wait(&schedule);
    for (size_t i = 0; i < n * size; i++)
      wrong += all[i] != value((int)(i / n), i);
    trm_free(all);
    trm_free(mine);
  }
  CU_ASSERT_EQUAL(wrong, 0);
  return TRM_OK;
}

static int check_broadcast(struct trm_comm *comm, void *context)
{
  struct coll coll = {.comm = comm};
  size_t wrong = 0;
  (void)context;
  for (int root = 0; root < comm->size; root += comm->size > 9 ? 7 : 1) {
    const size_t n = sizes[root % SIZES];
    uint8_t *data = trm_alloc(n, "test");
    for (size_t i = 0; i < n; i++)
      data[i] = comm->rank == root ? (uint8_t)value(root, i) : 77;
    struct coll_schedule *schedule = coll_broadcast(&coll, data, n, TRM_BYTE, root);
    coll_schedule_wait(&schedule);
    for (size_t i = 0; i < n; i++)
      wrong += data[i] != (uint8_t)value(root, i);
    trm_free(data);
  }
  CU_ASSERT_EQUAL(wrong, 0);
  return TRM_OK;
}

static void test_results(void)
{
  run_all(check_allreduce);
  run_all(check_rows);
  run_all(check_broadcast);
}

/* Several in progress, completed in an order that differs from rank to rank. */
static int check_several(struct trm_comm *comm, void *context)
{
  enum { SEVERAL = 5, N = 20011 };
  struct coll coll = {.comm = comm};
  struct coll_schedule *schedule[SEVERAL];
  float *data[SEVERAL];
  const struct reduced reduced = serial(comm, TRM_SUM);
  size_t wrong = 0;
  (void)context;
  for (int k = 0; k < SEVERAL; k++) {
    data[k] = trm_alloc(N * sizeof *data[k], "test");
    for (size_t i = 0; i < N; i++)
      data[k][i] = (float)value(comm->rank, i + (size_t)k);
    schedule[k] = coll_allreduce(&coll, data[k], k % 2 ? N : 100, TRM_FLOAT, TRM_SUM);
    coll_progress(&coll);
  }
  for (int k = 0; k < SEVERAL; k++) {
    const int which = (k * 2 + comm->rank) % SEVERAL;
    while (!coll_schedule_test(&schedule[which]))
      comm->ops->sleep_until(comm, comm->ops->clock(comm) + 1e-3, true);
    for (size_t i = 0; i < (which % 2 ? N : 100); i++)
      wrong += data[which][i] != (float)reduced.of[(i + (size_t)which) % 11];
    trm_free(data[which]);
  }
  CU_ASSERT_EQUAL(wrong, 0);
  CU_ASSERT_PTR_NULL(coll.oldest);
  return TRM_OK;
}

static void test_several(void)
{
  run_all(check_several);
}

/* -- sums are added in the order that the headers give */

/* Numbers whose sum depends on the order. */
static float rough(int rank, size_t i)
{
  return 1.0f / (float)(3 + 7 * rank + (int)(i % 1000)) * (rank % 3 ? 1.0f : 1e4f);
}

static int check_order(struct trm_comm *comm, void *context)
{
  enum { RING = 16384 };
  struct coll coll = {.comm = comm};
  float *sum = trm_alloc(RING * sizeof *sum, "test");
  size_t wrong = 0;
  (void)context;
  for (size_t n = 100; n <= RING; n += RING - 100) {
    for (size_t i = 0; i < n; i++)
      sum[i] = rough(comm->rank, i);
    struct coll_schedule *schedule = coll_allreduce(&coll, sum, n, TRM_FLOAT, TRM_SUM);
    coll_schedule_wait(&schedule);
    for (size_t i = 0; i < n; i++) {
      const int b = (int)(i / (n / 4)); /* its block */
      const float r[] = {rough((b + 1) % 4, i), rough((b + 2) % 4, i), rough((b + 3) % 4, i), rough(b, i)};
      const float tree = (rough(0, i) + rough(1, i)) + (rough(2, i) + rough(3, i));
      wrong += sum[i] != (n == RING ? ((r[0] + r[1]) + r[2]) + r[3] : tree);
    }
  }
  trm_free(sum);
  CU_ASSERT_EQUAL(wrong, 0);
  return TRM_OK;
}

static void test_order(void)
{
  struct trm_virtual_plan plan = plain;
  plan.ranks = 4;
  run(plan, check_order, NULL);
}

/* -- times and bytes */

struct timing {
  int ranks;
  enum { ALLREDUCE, REDUCE_SCATTER, ALLGATHER, BROADCAST } kind;
  size_t count;               /* floats: of the array, or of a row */
  double messages, wire_bytes; /* in a row: time = messages * latency + wire_bytes / bandwidth; 0: not checked */
  double sent_bytes;          /* by all ranks together */
};

static int time_main(struct trm_comm *comm, void *context)
{
  const struct timing *t = context;
  struct coll coll = {.comm = comm};
  float *all = trm_alloc(t->count * (size_t)comm->size * sizeof *all, "test");
  float *mine = trm_alloc(t->count * sizeof *mine, "test");
  struct coll_schedule *schedule =
    t->kind == ALLREDUCE        ? coll_allreduce(&coll, all, t->count, TRM_FLOAT, TRM_SUM)
    : t->kind == REDUCE_SCATTER ? coll_reduce_scatter(&coll, all, mine, t->count, TRM_FLOAT, TRM_SUM)
    : t->kind == ALLGATHER      ? coll_allgather(&coll, all, t->count, TRM_FLOAT)
                                : coll_broadcast(&coll, all, t->count, TRM_FLOAT, 0);
  coll_schedule_wait(&schedule);
  trm_free(all);
  trm_free(mine);
  return TRM_OK;
}

static void test_times(void)
{
  static const struct timing cases[] = {
    {8, ALLREDUCE, 1000, 3, 3 * 4000, 8 * 3 * 4000},             /* doubling */
    {5, ALLREDUCE, 1000, 0, 0, (4 * 2 + 2) * 4000}, /* a rank beyond 4: two messages meet on the link of rank 0 */
    {8, ALLREDUCE, 16384, 14, 14 * 8192, 14 * 65536},            /* ring: 2 (P - 1) blocks */
    {5, ALLREDUCE, 20480, 8, 8 * 16384, 8 * 81920},
    {4, REDUCE_SCATTER, 4096, 3, 3 * 16384, 3 * 65536},
    {4, ALLGATHER, 4096, 3, 3 * 16384, 3 * 65536},
    {8, BROADCAST, 1000, 3, 3 * 4000, 7 * 4000},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct timing t = cases[i];
    struct trm_virtual_plan plan = plain;
    plan.ranks = t.ranks;
    const struct trm_virtual_figures figures = run(plan, time_main, &t);
    const double expected = t.messages * plain.latency + t.wire_bytes / plain.bandwidth;
    const bool in_time = t.messages == 0 || fabs(figures.seconds - expected) < 1e-9;
    if (!in_time || (double)figures.bytes != t.sent_bytes)
      printf("case %zu: %.9g s, not %.9g; %.0f bytes, not %.0f\n", i, figures.seconds, expected,
             (double)figures.bytes, t.sent_bytes);
    CU_ASSERT(in_time);
    CU_ASSERT((double)figures.bytes == t.sent_bytes);
  }
}

int main(void)
{
  CU_TestInfo tests[] = {
    {"results on 1 to 64 ranks", test_results},
    {"several at once", test_several},
    {"order of additions", test_order},
    {"times and bytes", test_times},
    CU_TEST_INFO_NULL,
  };
  trm_log_set_quiet(true);
  return suite_run("collectives over messages", tests);
}
