/* The virtual network: the communication contract on many ranks of one process, virtual time, the order of events,
 * deadlocks, and random schedules. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "core/counter.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/random.h"
#include "core/status.h"
#include "mpi/virtual.h"
#include "suite.h"

static const struct trm_virtual_plan plain = {.ranks = 1, .ranks_per_node = 1, .latency = 1e-3, .bandwidth = 1e6};

/* Runs a job that must succeed. */
static struct trm_virtual_figures run(struct trm_virtual_plan plan, int (*main)(struct trm_comm *world, void *context),
                                      void *context)
{
  struct trm_virtual_figures figures = {0};
  const int status = trm_virtual_run(&plan, main, context, &figures);
  if (status != TRM_OK)
    printf("%d ranks, %d per node, schedule %d: %s\n", plan.ranks, plan.ranks_per_node, (int)plan.schedule,
           trm_error_text());
  CU_ASSERT_EQUAL(status, TRM_OK);
  return figures;
}

/* The same with 1 to 64 ranks, 1 to 4 a node, in the plain and in random schedules. */
static void run_all(int (*main)(struct trm_comm *world, void *context))
{
  static const int ranks[] = {1, 2, 3, 5, 8, 64};
  for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++)
    for (int per_node = 1; per_node <= 4; per_node += 3)
      for (uint64_t schedule = 0; schedule < 6; schedule++) {
        struct trm_virtual_plan plan = plain;
        plan.ranks = ranks[i];
        plan.ranks_per_node = per_node;
        plan.schedule = schedule;
        run(plan, main, NULL);
      }
}

/* Small integers: exact in every type. */
static int value(int rank, size_t i)
{
  return (int)((i * 7 + (size_t)rank * 13) % 11) - (rank % 2);
}

/* Numbers whose sum depends on the order. */
static float rough(int rank, size_t i)
{
  return trm_random_uniform(5, TRM_RANDOM_BENCH, (uint32_t)rank, i) * (rank % 3 ? 1.0f : 1e4f) - 0.3f;
}

/* -- collectives */

enum { N = 5003 };

static int check_collectives(struct trm_comm *comm, void *context)
{
  const struct trm_comm_ops *ops = comm->ops;
  (void)context;
  int32_t *data = trm_alloc(N * sizeof *data, "test"), *all = trm_alloc((size_t)comm->size * N * sizeof *all, "test");
  size_t wrong = 0;
  for (int root = 0; root < comm->size && root < 3; root++) {
    for (size_t i = 0; i < N; i++)
      data[i] = comm->rank == root ? value(root, i) : -1;
    ops->broadcast(comm, data, N, TRM_INT32, root);
    for (size_t i = 0; i < N; i++)
      wrong += data[i] != value(root, i);
  }
  for (enum trm_op op = TRM_SUM; op <= TRM_MAX; op++) {
    for (size_t i = 0; i < N; i++)
      data[i] = value(comm->rank, i);
    ops->allreduce(comm, data, N, TRM_INT32, op);
    for (size_t i = 0; i < N; i++) {
      int expected = value(0, i);
      for (int rank = 1; rank < comm->size; rank++) {
        const int v = value(rank, i);
        expected = op == TRM_SUM ? expected + v : (op == TRM_MIN) == (v < expected) ? v : expected;
      }
      wrong += data[i] != expected;
    }
  }
  for (size_t i = 0; i < N; i++)
    data[i] = value(comm->rank, i);
  ops->allgather(comm, data, all, N, TRM_INT32);
  for (int rank = 0; rank < comm->size; rank++)
    for (size_t i = 0; i < N; i++)
      wrong += all[(size_t)rank * N + i] != value(rank, i);
  ops->reduce_scatter(comm, all, data, N, TRM_INT32, TRM_SUM); /* all ranks' arrays are equal */
  for (size_t i = 0; i < N; i++)
    wrong += data[i] != comm->size * value(comm->rank, i);
  ops->barrier(comm);
  trm_free(data);
  trm_free(all);
  CU_ASSERT_EQUAL(wrong, 0);
  return TRM_OK;
}

static float tree_sum(int first, int ranks, size_t i)
{
  int half = 1;
  while (half < ranks - half)
    half *= 2;
  return ranks == 1 ? rough(first, i) : tree_sum(first, half, i) + tree_sum(first + half, ranks - half, i);
}

/* That of TRM_TREE_SUM. */
static float power_tree_sum(int size, size_t i)
{
  float sum[64];
  int power = 1;
  while (2 * power <= size)
    power *= 2;
  for (int rank = 0; rank < power; rank++)
    sum[rank] = rough(rank, i) + (rank + power < size ? rough(rank + power, i) : 0);
  for (; power > 1; power /= 2)
    for (int k = 0; k < power / 2; k++)
      sum[k] = sum[2 * k] + sum[2 * k + 1];
  return sum[0];
}

/* Sums of floats: in a fixed tree; in that of TRM_TREE_SUM. */
static int check_order_of_sums(struct trm_comm *comm, void *context)
{
  float *sum = trm_alloc(N * sizeof *sum, "test");
  size_t wrong = 0;
  (void)context;
  for (size_t i = 0; i < N; i++)
    sum[i] = rough(comm->rank, i);
  comm->ops->allreduce(comm, sum, N, TRM_FLOAT, TRM_SUM);
  for (size_t i = 0; i < N; i += 50)
    wrong += sum[i] != tree_sum(0, comm->size, i);
  for (size_t i = 0; i < N; i++)
    sum[i] = rough(comm->rank, i);
  comm->ops->allreduce(comm, sum, N, TRM_FLOAT, TRM_TREE_SUM);
  for (size_t i = 0; i < N; i++)
    wrong += sum[i] != power_tree_sum(comm->size, i);
  trm_free(sum);
  CU_ASSERT_EQUAL(wrong, 0);
  return TRM_OK;
}

/* Several at once, completed in another order; ranks begin them at different times. */
static int check_nonblocking(struct trm_comm *comm, void *context)
{
  enum { COUNT = 5 };
  const struct trm_comm_ops *ops = comm->ops;
  struct trm_request *request[COUNT];
  double *data[COUNT];
  size_t wrong = 0;
  (void)context;
  for (int k = 0; k < COUNT; k++) {
    const size_t n = (size_t)(k * k * 100);
    data[k] = trm_alloc((n + 1) * sizeof(double), "test");
    for (size_t i = 0; i < n; i++)
      data[k][i] = value(comm->rank, i + (size_t)k);
    ops->sleep_until(comm, ops->clock(comm) + 1e-3 * ((comm->rank + k) % 3), false);
    ops->allreduce_begin(comm, data[k], n, TRM_DOUBLE, TRM_MAX, &request[k]);
    ops->progress(comm);
  }
  for (int k = COUNT - 1; k >= 0; k--) {
    if (!ops->test(&request[k]))
      ops->wait(&request[k]);
    CU_ASSERT_PTR_NULL(request[k]);
    CU_ASSERT_TRUE(ops->test(&request[k]));
    for (size_t i = 0; i < (size_t)(k * k * 100); i++) {
      int expected = value(0, i + (size_t)k);
      for (int rank = 1; rank < comm->size; rank++)
        expected = value(rank, i + (size_t)k) > expected ? value(rank, i + (size_t)k) : expected;
      wrong += data[k][i] != expected;
    }
    trm_free(data[k]);
  }
  CU_ASSERT_EQUAL(wrong, 0);
  return TRM_OK;
}

static void test_collectives(void)
{
  run_all(check_collectives);
  run_all(check_order_of_sums);
  run_all(check_nonblocking);
}

/* -- groups */

static int check_groups(struct trm_comm *comm, void *context)
{
  const struct trm_comm_ops *ops = comm->ops;
  (void)context;
  struct trm_comm *part = ops->split(comm, comm->rank % 3, -comm->rank);
  const int size = (comm->size - comm->rank % 3 + 2) / 3;
  CU_ASSERT_EQUAL(part->size, size);
  CU_ASSERT_EQUAL(part->rank, size - 1 - comm->rank / 3);
  check_collectives(part, NULL);
  ops->release(part);
  CU_ASSERT_PTR_NULL(ops->split(comm, -1, 0));
  struct trm_comm *process = ops->split_node(comm, TRM_SHARE_PROCESS);
  CU_ASSERT_EQUAL(process->size, comm->size);
  ops->release(process);
  CU_ASSERT_EQUAL(trm_log_rank(), comm->rank); /* the state of each rank is its own */
  return trm_agree(comm, TRM_OK);
}

static void test_groups(void)
{
  run_all(check_groups);
}

static int fail_one(struct trm_comm *comm, void *context)
{
  (void)context;
  return trm_agree(comm, comm->rank == 2 ? trm_error(TRM_USAGE, "rank %d fails", comm->rank) : TRM_OK);
}

static void test_status(void)
{
  struct trm_virtual_plan plan = plain;
  plan.ranks = 4;
  CU_ASSERT_EQUAL(trm_virtual_run(&plan, fail_one, NULL, NULL), TRM_USAGE);
  CU_ASSERT_STRING_EQUAL(trm_error_text(), "rank 2 fails");
}

/* -- messages */

/* Around a ring: messages of equal tags keep their order; receives are posted in another order than tags were sent. */
static int check_messages(struct trm_comm *comm, void *context)
{
  enum { MESSAGES = 6 };
  static const size_t lengths[MESSAGES] = {0, 33, 30001, 1, 9, 2000};
  const struct trm_comm_ops *ops = comm->ops;
  const int next = (comm->rank + 1) % comm->size, last = (comm->rank + comm->size - 1) % comm->size;
  struct trm_request *send[MESSAGES], *receive[MESSAGES];
  int32_t *out[MESSAGES], *in[MESSAGES];
  size_t wrong = 0;
  (void)context;
  for (int m = 0; m < MESSAGES; m++) {
    out[m] = trm_alloc((lengths[m] + 1) * sizeof(int32_t), "test");
    in[m] = trm_alloc((lengths[m] + 1) * sizeof(int32_t), "test");
    for (size_t i = 0; i < lengths[m]; i++)
      out[m][i] = value(comm->rank, i + (size_t)m);
    ops->send_begin(comm, out[m], lengths[m], TRM_INT32, next, 100 + m / 2, &send[m]);
  }
  for (int pair = MESSAGES / 2 - 1; pair >= 0; pair--)
    for (int m = 2 * pair; m < 2 * pair + 2; m++)
      ops->receive_begin(comm, in[m], lengths[m], TRM_INT32, last, 100 + pair, &receive[m]);
  for (int m = 0; m < MESSAGES; m++) {
    ops->wait(&receive[m]);
    for (size_t i = 0; i < lengths[m]; i++)
      wrong += in[m][i] != value(last, i + (size_t)m);
  }
  for (int m = 0; m < MESSAGES; m++) {
    ops->wait(&send[m]);
    trm_free(out[m]);
    trm_free(in[m]);
  }
  CU_ASSERT_EQUAL(wrong, 0);
  return TRM_OK;
}

static void test_messages(void)
{
  run_all(check_messages);
}

/* -- shared memory, counters and locks */

struct tally {
  struct trm_counter arrived, turn;
  struct trm_lock lock;
  int64_t plain; /* guarded by lock */
};

struct reached {
  const struct trm_counter *counter;
  int64_t value;
};

static bool has_reached(void *context)
{
  const struct reached *r = context;
  return trm_counter_get(r->counter) >= r->value;
}

static int check_share(struct trm_comm *comm, void *context)
{
  enum { ROUNDS = 5 };
  const struct trm_comm_ops *ops = comm->ops;
  struct trm_comm *node = ops->split_node(comm, TRM_SHARE_NODE);
  struct trm_shared shared;
  (void)context;
  CU_ASSERT_EQUAL_FATAL(node->ops->share(node, (size_t)node->rank << 16, TRM_MEMORY_BUFFERS, &shared), TRM_OK);
  for (int i = 1; i < node->size; i++) /* whole 64 KiB: one array */
    CU_ASSERT_PTR_EQUAL(shared.base[i], (char *)shared.base[i - 1] + ((size_t)(i - 1) << 16));
  node->ops->unshare(node, &shared);
  CU_ASSERT_EQUAL_FATAL(
    node->ops->share(node, node->rank == 0 ? sizeof(struct tally) : 0, TRM_MEMORY_BUFFERS, &shared), TRM_OK);
  struct tally *tally = shared.base[0];
  for (int round = 1; round <= ROUNDS; round++) {
    trm_lock_acquire(node, &tally->lock);
    const int64_t before = tally->plain;
    node->ops->sleep_until(node, node->ops->clock(node) + 1e-4, false); /* others try to acquire it */
    tally->plain = before + 1;
    trm_lock_release(node, &tally->lock);
    trm_counter_add(node, &tally->arrived, 1);
    struct reached all = {&tally->arrived, (int64_t)round * node->size};
    node->ops->wait_until(node, has_reached, &all);
    CU_ASSERT(tally->plain >= (int64_t)round * node->size);
  }
  struct reached mine = {&tally->turn, node->rank}; /* in order of rank */
  node->ops->wait_until(node, has_reached, &mine);
  CU_ASSERT_EQUAL(trm_counter_get(&tally->turn), node->rank);
  trm_counter_set(node, &tally->turn, node->rank + 1);
  node->ops->unshare(node, &shared);
  node->ops->release(node);
  return TRM_OK;
}

static void test_share(void)
{
  run_all(check_share);
}

/* Rank 0 announces at 2 ms what rank 1 waits for until 3 ms, and rank 2 until 1 ms; rank 3 for what has come, and
 * rank 4 until the very time. Waits that have ended leave nothing behind: rank 1 sleeps on. */
static int check_wait_at_most(struct trm_comm *comm, void *context)
{
  static const double until[] = {0, 3e-3, 1e-3, 9e-3, 2e-3};
  struct trm_comm *node = comm->ops->split_node(comm, TRM_SHARE_NODE);
  struct trm_shared shared;
  CU_ASSERT_EQUAL_FATAL(
    node->ops->share(node, node->rank == 0 ? sizeof(struct tally) : 0, TRM_MEMORY_BUFFERS, &shared), TRM_OK);
  struct tally *tally = shared.base[0];
  struct reached told = {&tally->arrived, 1};
  const double began = comm->ops->clock(comm);
  if (comm->rank == 0) {
    comm->ops->sleep_until(comm, began + 2e-3, false);
    trm_counter_add(node, &tally->arrived, 1);
  } else if (comm->rank == 3) {
    comm->ops->sleep_until(comm, began + 5e-3, false);
    CU_ASSERT(node->ops->wait_at_most(node, has_reached, &told, began + until[3]));
    CU_ASSERT(node->ops->wait_at_most(node, has_reached, &told, 0));
    CU_ASSERT_DOUBLE_EQUAL(comm->ops->clock(comm), began + 5e-3, 1e-9);
  } else if (comm->rank < 5) {
    const bool met = node->ops->wait_at_most(node, has_reached, &told, began + until[comm->rank]);
    CU_ASSERT(comm->rank == 4 || met == (comm->rank == 1));
    CU_ASSERT_DOUBLE_EQUAL(comm->ops->clock(comm), began + (comm->rank == 2 ? 1e-3 : 2e-3), 1e-9);
  }
  if (comm->rank == 1) {
    comm->ops->sleep_until(comm, began + 8e-3, false);
    CU_ASSERT_DOUBLE_EQUAL(comm->ops->clock(comm), began + 8e-3, 1e-9);
  }
  node->ops->barrier(node);
  node->ops->unshare(node, &shared);
  node->ops->release(node);
  (void)context;
  return TRM_OK;
}

static void test_wait_at_most(void)
{
  struct trm_virtual_plan plan = plain;
  plan.ranks = plan.ranks_per_node = 5;
  run(plan, check_wait_at_most, NULL);
}

/* -- windows */

static int check_windows(struct trm_comm *comm, void *context)
{
  const struct trm_comm_ops *ops = comm->ops;
  const int next = (comm->rank + 1) % comm->size, last = (comm->rank + comm->size - 1) % comm->size;
  struct trm_window *window, *tickets;
  float *local, mine[100], got[100];
  void *unused;
  size_t wrong = 0;
  (void)context;
  ops->window_create(comm, 100, TRM_FLOAT, "test", &window, (void **)&local);
  ops->window_create(comm, comm->rank == 0 ? 2 : 0, TRM_INT64, "test", &tickets, &unused);
  for (size_t i = 0; i < 100; i++)
    mine[i] = (float)value(comm->rank, i);
  for (int target = 0; target < comm->size; target++) {
    ops->accumulate(window, mine, 100, target, 0);
    ops->flush(window, target);
  }
  ops->barrier(comm);
  ops->get(window, got, 97, last, 3);
  ops->flush(window, last);
  for (size_t i = 0; i < 97; i++) {
    float expected = 0;
    for (int rank = 0; rank < comm->size; rank++)
      expected += (float)value(rank, i + 3);
    wrong += got[i] != expected;
  }
  ops->barrier(comm);
  const float word = 1000.0f + (float)comm->rank;
  ops->put(window, &word, 1, next, 99);
  ops->flush(window, next);
  ops->barrier(comm);
  wrong += local[99] != 1000.0f + (float)last;
  int64_t before = -1;
  for (int i = 0; i < 10; i++) {
    const int64_t ticket = ops->fetch_add(tickets, 1, 0, 1);
    wrong += ticket <= before;
    before = ticket;
  }
  ops->barrier(comm);
  wrong += ops->fetch_add(tickets, 0, 0, 1) != 10 * comm->size;
  ops->window_free(&window);
  ops->window_free(&tickets);
  CU_ASSERT_EQUAL(wrong, 0);
  CU_ASSERT_PTR_NULL(window);
  return TRM_OK;
}

static void test_windows(void)
{
  run_all(check_windows);
}

/* -- calls */

/* An owner's sum of all it was sent; a call for a sum that is not reached yet is held back. */
struct account {
  double sum;
  int calls;        /* answered */
  int64_t last[64]; /* (callers) number of the latest call: they begin in order */
  bool in_order;
};

struct call_head {
  int64_t number;
  double wanted; /* the answer waits until the sum is as large */
};

static bool answer_sum(void *context, int caller, void *head, const void *in, void *out)
{
  struct account *account = context;
  const struct call_head *call = head;
  if (in) {
    account->in_order &= call->number == account->last[caller] + 1;
    account->last[caller] = call->number;
    for (int i = 0; i < 10; i++)
      account->sum += ((const double *)in)[i];
  }
  if (account->sum < call->wanted)
    return false;
  account->calls++;
  if (out)
    *(double *)out = account->sum;
  return true;
}

struct answered {
  const struct account *account;
  int calls;
};

static bool has_answered(void *context)
{
  const struct answered *a = context;
  return a->account->calls >= a->calls;
}

struct outgoing {
  struct call_head head;
  double in[10], out;
  struct trm_request *request;
};

enum { EACH = 5 };

/* Begins EACH calls that send, and one for the sum of all that all ranks send, to every owner. */
static void begin_calls(struct trm_comm *comm, struct trm_calls *calls, const bool *owner, struct outgoing *call)
{
  double total = 0;
  for (int k = 0; k < EACH; k++)
    total += (45 + 10 * k) * (comm->size - 1);
  for (int to = 0; to < comm->size; to++)
    for (int k = 0; owner[to] && to != comm->rank && k <= EACH; k++) {
      struct outgoing *it = &call[to * (EACH + 1) + k];
      it->head = (struct call_head){k + 1, k < EACH ? 0 : total};
      for (int i = 0; i < 10; i++)
        it->in[i] = i + k;
      comm->ops->call_begin(calls, to, &it->head, k < EACH ? it->in : NULL, k < EACH ? sizeof it->in : 0, &it->out,
                            sizeof it->out, &it->request);
    }
}

/* Every other rank is an owner, which answers at any time or (rank 2, 6, ..) inside wait_until alone. */
static int check_calls(struct trm_comm *comm, void *context)
{
  const struct trm_comm_ops *ops = comm->ops;
  bool owner[64];
  for (int i = 0; i < comm->size; i++)
    owner[i] = i % 2 == 0;
  struct account account = {.in_order = true};
  const struct trm_call_plan plan = {.head_bytes = sizeof(struct call_head), .max_bytes = 80, .owner = owner,
                                     .attended = comm->rank % 4 == 2, .function = answer_sum, .context = &account};
  struct trm_calls *calls;
  struct outgoing *call = trm_alloc((size_t)comm->size * (EACH + 1) * sizeof *call, "test");
  struct answered all = {&account, (EACH + 1) * (comm->size - 1)};
  (void)context;
  CU_ASSERT_EQUAL_FATAL(ops->calls_create(comm, &plan, &calls), TRM_OK);
  begin_calls(comm, calls, owner, call);
  if (plan.attended) {
    ops->sleep_until(comm, ops->clock(comm) + 1, true);
    CU_ASSERT_EQUAL(account.calls, 0);
  }
  if (owner[comm->rank])
    ops->wait_until(comm, has_answered, &all);
  for (int i = 0; i < comm->size * (EACH + 1); i++) {
    ops->wait(&call[i].request);
    if (i % (EACH + 1) == EACH && call[i].head.number)
      CU_ASSERT_EQUAL(call[i].out, call[i].head.wanted);
  }
  CU_ASSERT_TRUE(!owner[comm->rank] || account.calls == all.calls);
  CU_ASSERT_TRUE(account.in_order);
  ops->calls_free(&calls);
  CU_ASSERT_PTR_NULL(calls);
  trm_free(call);
  return TRM_OK;
}

static void test_calls(void)
{
  run_all(check_calls);
}

/* -- virtual time */

static void expect_time(struct trm_comm *comm, double expected)
{
  const double now = comm->ops->clock(comm);
  CU_ASSERT_DOUBLE_EQUAL(now, expected, 1e-9);
  if (fabs(now - expected) > 1e-9)
    printf("rank %d: %.9f s, not %.9f\n", comm->rank, now, expected);
}

static int nothing(void *context)
{
  *(int *)context += 1;
  return TRM_STOPPED;
}

static bool count_call(void *context, int caller, void *head, const void *in, void *out)
{
  (void)caller, (void)head, (void)in, (void)out;
  ++*(int *)context;
  return true;
}

/* 3 ranks on 3 nodes, latency 1 ms, 1 byte a microsecond. */
static int check_time(struct trm_comm *comm, void *context)
{
  const struct trm_comm_ops *ops = comm->ops;
  char *data = trm_alloc(200000, "test");
  struct trm_request *request[2] = {NULL, NULL};
  int calls_here = 0;
  (void)context;
  ops->barrier(comm); /* two steps of a tree */
  expect_time(comm, 2e-3);
  ops->allreduce(comm, data, 9000, TRM_BYTE, TRM_MAX); /* 2 x 9 ms, or 4/3 x 9 ms and two latencies more */
  expect_time(comm, 2e-3 + 4e-3 + 12e-3);
  CU_ASSERT_EQUAL(ops->compute(comm, nothing, &calls_here, 2e-3), TRM_STOPPED);
  expect_time(comm, 20e-3);
  CU_ASSERT_EQUAL(calls_here, 1);

  /* ranks 1 and 2 send 100 ms each to rank 0, whose link takes one after the other */
  if (comm->rank > 0)
    ops->send_begin(comm, data, 100000, TRM_BYTE, 0, 1, &request[0]);
  for (int from = 1; comm->rank == 0 && from < 3; from++)
    ops->receive_begin(comm, data, 100000, TRM_BYTE, from, 1, &request[from - 1]);
  ops->wait(&request[0]);
  if (comm->rank == 0)
    expect_time(comm, 121e-3);
  ops->wait(&request[1]);
  if (comm->rank != 1)
    expect_time(comm, 221e-3);
  ops->sleep_until(comm, 300e-3, false);

  /* calls of ranks 1 and 2, 8 bytes of head, answered one after the other in 5 ms each */
  const bool owner[3] = {true, false, false};
  struct trm_calls *calls;
  const struct trm_call_plan plan = {8, 0, owner, NULL, false, count_call, &calls_here};
  ops->calls_create(comm, &plan, &calls);
  int64_t head = 0;
  ops->sleep_until(comm, 400e-3, false);
  if (comm->rank > 0) {
    ops->call_begin(calls, 0, &head, NULL, 0, NULL, 0, &request[0]);
    ops->wait(&request[0]);
    expect_time(comm, 400e-3 + 1e-3 + 8e-6 + 5e-3 * comm->rank + 1e-3 + 8e-6);
  }
  ops->calls_free(&calls);
  CU_ASSERT_EQUAL(calls_here, comm->rank == 0 ? 3 : 1);
  trm_free(data);
  return TRM_OK;
}

static void test_time(void)
{
  struct trm_virtual_plan plan = plain;
  plan.ranks = 3;
  plan.service = 5e-3;
  run(plan, check_time, NULL);
  plan.threads = 2;
  run(plan, check_time, NULL);
}

/* Computations on a node of two cores, in slices of 4 ms. By hand: rank 2 waits from 2 ms on, gets the core of rank 0
 * at 4 ms, rank 0 that of rank 1 at 5, rank 1 that of rank 2 at 8, rank 2 that of rank 0 at 9, rank 0 that of rank 1 at
 * 12, rank 1 that of rank 2 at 13, for its last ms, rank 2 at 14, for its last one; rank 0, alone from then on, has 22 ms
 * left at 12 ms. Rank 3 is on another node. */
static int check_cores(struct trm_comm *comm, void *context)
{
  static const double begin[] = {0, 1e-3, 2e-3, 0}, seconds[] = {30e-3, 9e-3, 9e-3, 50e-3},
                      end[] = {34e-3, 14e-3, 15e-3, 50e-3};
  int ran = 0;
  comm->ops->sleep_until(comm, begin[comm->rank], false);
  comm->ops->compute(comm, comm->rank == 1 ? NULL : nothing, &ran, seconds[comm->rank]);
  expect_time(comm, end[comm->rank]);
  (void)context;
  return TRM_OK;
}

/* A rank goes on with its next computation on the same core, but not beyond its slice. */
static int check_next_computation(struct trm_comm *comm, void *context)
{
  (void)context;
  comm->ops->compute(comm, NULL, NULL, 1e-3);
  comm->ops->compute(comm, NULL, NULL, 1.5e-3); /* rank 1 waits until the slice of rank 0 ends */
  expect_time(comm, comm->rank == 0 ? 2.5e-3 : 6.5e-3);
  comm->ops->compute(comm, NULL, NULL, 3e-3); /* of rank 0 from 2.5 to 4 ms, and after the slice of rank 1 */
  expect_time(comm, comm->rank == 0 ? 9.5e-3 : 11e-3);
  return TRM_OK;
}

/* Equal computations in many slices take as much longer as there are ranks for a core. */
static int check_equal_share(struct trm_comm *comm, void *context)
{
  const int cores = *(const int *)context;
  const double all = 64e-3 / (cores ? cores : 64);
  comm->ops->compute(comm, NULL, NULL, 1e-3);
  const double now = comm->ops->clock(comm);
  CU_ASSERT(now > all * 0.98 - 1e-9 && now < all + 1e-9);
  return TRM_OK;
}

static void test_cores(void)
{
  struct trm_virtual_plan plan = {
    .ranks = 4, .ranks_per_node = 3, .cores = 2, .slice = 4e-3, .latency = 1e-3, .bandwidth = 1e6};
  for (plan.threads = 0; plan.threads < 3; plan.threads++)
    run(plan, check_cores, NULL);
  plan.ranks = plan.ranks_per_node = 2;
  plan.cores = 1;
  run(plan, check_next_computation, NULL);
  plan.ranks = plan.ranks_per_node = 64;
  plan.slice = 0x1p-6 * 1e-3;
  for (plan.cores = 0; plan.cores <= 64; plan.cores += 16)
    if (plan.cores != 48)
      run(plan, check_equal_share, &plan.cores);
}

/* Two ranks of a node, latency 1 ms, 1 byte a microsecond; and an owner whose function computes for 3 ms. */
static bool compute_call(void *context, int caller, void *head, const void *in, void *out)
{
  struct trm_comm *comm = context;
  (void)caller, (void)head, (void)in, (void)out;
  comm->ops->compute(comm, NULL, NULL, 3e-3);
  return true;
}

static int check_node(struct trm_comm *comm, void *context)
{
  const struct trm_comm_ops *ops = comm->ops;
  char data[1000] = "";
  struct trm_request *request;
  (void)context;
  ops->barrier(comm); /* two steps of a tree */
  expect_time(comm, 2e-3);
  ops->allreduce(comm, data, 900, TRM_BYTE, TRM_MAX); /* 2 x 1.9 ms; scattered, 4 + 4/3 x .9 */
  expect_time(comm, 5.8e-3);
  if (comm->rank == 0)
    ops->send_begin(comm, data, 1000, TRM_BYTE, 1, 1, &request);
  else if (comm->rank == 1)
    ops->receive_begin(comm, data, 1000, TRM_BYTE, 0, 1, &request);
  if (comm->rank < 2)
    ops->wait(&request);
  if (comm->rank == 1)
    expect_time(comm, 7.8e-3);
  const bool owner[3] = {true, false, false};
  struct trm_calls *calls;
  const struct trm_call_plan plan = {8, 0, owner, NULL, false, compute_call, comm};
  int64_t head = 0;
  ops->calls_create(comm, &plan, &calls);
  ops->sleep_until(comm, 100e-3 + 1e-4 * comm->rank, false);
  if (comm->rank > 0) { /* one after the other */
    ops->call_begin(calls, 0, &head, NULL, 0, NULL, 0, &request);
    ops->wait(&request);
    expect_time(comm, 100.1e-3 + 1e-3 + 8e-6 + 3e-3 * comm->rank + 1e-3 + 8e-6);
  }
  ops->calls_free(&calls);
  return TRM_OK;
}

static void test_node(void)
{
  const struct trm_virtual_plan plan = {.ranks = 3, .ranks_per_node = 3, .latency = 1, .bandwidth = 1,
                                        .node_latency = 1e-3, .node_s_per_byte = 1e-6};
  run(plan, check_node, NULL);
}

/* -- determinism */

struct record {
  int rank[4096];
  int count;
};

/* A race for a ticket between computations of different lengths; the order of arrival is recorded. */
static int race(struct trm_comm *comm, void *context)
{
  struct record *record = context;
  struct trm_window *window;
  void *local;
  int ignored = 0;
  comm->ops->window_create(comm, 1, TRM_INT64, "test", &window, &local);
  for (uint64_t i = 0; i < 16; i++) {
    comm->ops->compute(comm, nothing, &ignored,
                       1e-2 * trm_random_uniform(1, TRM_RANDOM_BENCH, (uint32_t)comm->rank, i));
    const int64_t ticket = comm->ops->fetch_add(window, 1, 0, 0);
    record->rank[ticket] = comm->rank;
    record->count++;
  }
  comm->ops->window_free(&window);
  return TRM_OK;
}

static void test_determinism(void)
{
  static struct record first, other;
  struct trm_virtual_plan plan = plain;
  plan.ranks = 200;
  const struct trm_virtual_figures figures = run(plan, race, memset(&first, 0, sizeof first));
  CU_ASSERT_EQUAL(first.count, 3200);
  for (int threads = 0; threads < 4; threads++) {
    plan.threads = threads;
    const struct trm_virtual_figures again = run(plan, race, memset(&other, 0, sizeof other));
    CU_ASSERT_EQUAL(memcmp(&first, &other, sizeof first), 0);
    CU_ASSERT_EQUAL(memcmp(&figures, &again, sizeof figures), 0);
  }
  plan.ranks_per_node = 8;
  plan.cores = 3;
  plan.slice = 2e-3;
  run(plan, race, memset(&first, 0, sizeof first));
  run(plan, race, memset(&other, 0, sizeof other));
  CU_ASSERT_EQUAL(memcmp(&first, &other, sizeof first), 0);
  for (plan.schedule = 1; plan.schedule < 4; plan.schedule++) {
    run(plan, race, memset(&other, 0, sizeof other));
    CU_ASSERT_NOT_EQUAL(memcmp(&first, &other, sizeof first), 0);
    static struct record same;
    run(plan, race, memset(&same, 0, sizeof same));
    CU_ASSERT_EQUAL(memcmp(&same, &other, sizeof same), 0);
  }
}

/* -- deadlocks */

static bool never(void *context)
{
  (void)context;
  return false;
}

static int deadlock_main(struct trm_comm *comm, void *context)
{
  const int way = *(const int *)context;
  struct trm_request *request = NULL;
  static char large[100000];
  if (comm->rank == 2)
    return TRM_OK;
  switch (way) {
  case 0:
    comm->ops->barrier(comm);
    break;
  case 1:
    comm->ops->receive_begin(comm, large, 1, TRM_BYTE, 2, 7, &request);
    comm->ops->wait(&request);
    break;
  case 2:
    comm->ops->send_begin(comm, large, sizeof large, TRM_BYTE, 2, 9, &request);
    comm->ops->wait(&request);
    break;
  case 3:
    comm->ops->wait_until(comm, never, NULL);
    break;
  }
  return TRM_OK;
}

static void test_deadlock(void)
{
  static const char *const expected[] = {
    "3 ranks, the first is 0, wait for barrier on 4 ranks, of which 3 have begun it; rank 2 of the job has not",
    "the first is 0, wait for a message from rank 2 with tag 7",
    "the first is 0, wait for its message of 100000 bytes with tag 9 to be received by rank 2",
    "3 ranks, the first is 0, wait for a condition in wait_until",
  };
  struct trm_virtual_plan plan = plain;
  plan.ranks = 4;
  for (int way = 0; way < 4; way++) {
    CU_ASSERT_EQUAL(trm_virtual_run(&plan, deadlock_main, &way, NULL), TRM_FAILED);
    CU_ASSERT_PTR_NOT_NULL(strstr(trm_error_text(), expected[way]));
    CU_ASSERT_PTR_NULL(strstr(trm_error_text(), "; rank 2 waits"));
  }
}

int main(void)
{
  CU_TestInfo tests[] = {
    {"collectives", test_collectives},
    {"groups", test_groups},
    {"status", test_status},
    {"messages", test_messages},
    {"share, counters, locks", test_share},
    {"wait_at_most", test_wait_at_most},
    {"windows", test_windows},
    {"calls", test_calls},
    {"virtual time", test_time},
    {"shared cores", test_cores},
    {"time inside a node", test_node},
    {"determinism", test_determinism},
    {"deadlock", test_deadlock},
    CU_TEST_INFO_NULL,
  };
  trm_log_set_quiet(true);
  return suite_run("virtual", tests);
}
