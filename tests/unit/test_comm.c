/* Every operation of the communication contract, over MPI and on one rank without it; the fixed-order all-reduce; the
 * check of the launch. Meant for 1 to 9 ranks. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/counter.h"
#include "core/memory.h"
#include "deferred_window.h"
#include "mpi/coll/choices.h"
#include "mpi/real.h"
#include "mpi/real_private.h"
#include "ranks.h"

/* Runs the check on the job, on its last two thirds in reversed order, on the ranks of a node, and on one rank. */
static void on_all(void (*check)(struct trm_comm *comm))
{
  check(world);
  const int third = world->size / 3;
  struct trm_comm *part = world->ops->split(world, world->rank < third ? -1 : 0, -world->rank);
  CU_ASSERT_EQUAL(part == NULL, world->rank < third);
  if (part) {
    CU_ASSERT_EQUAL(part->size, world->size - third);
    CU_ASSERT_EQUAL(part->rank, world->size - 1 - world->rank);
    check(part);
    part->ops->release(part);
  }
  struct trm_comm *node = world->ops->split_node(world, TRM_SHARE_NODE);
  check(node);
  node->ops->release(node);
  check(trm_comm_self());
}

/* Runs the check on the job as if each `size` ranks were a node: collectives go over messages. */
static void on_nodes(int size, void (*check)(struct trm_comm *comm))
{
  set_node_size(size);
  struct trm_comm *comm = world->ops->split(world, 0, world->rank);
  set_node_size(0);
  CU_ASSERT_EQUAL(real_of(comm)->over_messages, world->size > size);
  check(comm);
  comm->ops->release(comm);
}

/* Small integers: exact in every type and order of addition. */
static int value(int rank, size_t i)
{
  return (int)((i * 7 + (size_t)rank * 13) % 11) - (rank % 2);
}

static size_t sizes[] = {0, 1, 5, 1023, ((size_t)1 << 20) + 7};
enum { SIZES = sizeof sizes / sizeof sizes[0] };
static int call_rounds = 3;

/* In oversubscribed jobs: large arrays and many calls are checked in smaller jobs. */
static void fewer(void)
{
  sizes[SIZES - 1] = 70001;
  call_rounds = 1;
}

static void set(void *data, enum trm_type type, size_t i, int v)
{
  switch (type) {
  case TRM_FLOAT: ((float *)data)[i] = (float)v; break;
  case TRM_DOUBLE: ((double *)data)[i] = v; break;
  case TRM_INT32: ((int32_t *)data)[i] = v; break;
  case TRM_INT64: ((int64_t *)data)[i] = v; break;
  case TRM_BYTE: ((uint8_t *)data)[i] = (uint8_t)v; break;
  }
}

static bool is(const void *data, enum trm_type type, size_t i, int v)
{
  switch (type) {
  case TRM_FLOAT: return ((const float *)data)[i] == (float)v;
  case TRM_DOUBLE: return ((const double *)data)[i] == v;
  case TRM_INT32: return ((const int32_t *)data)[i] == v;
  case TRM_INT64: return ((const int64_t *)data)[i] == v;
  case TRM_BYTE: return ((const uint8_t *)data)[i] == (uint8_t)v;
  }
  return false;
}

/* -- collectives */

static void check_broadcast(struct trm_comm *comm)
{
  for (int root = 0; root < comm->size; root++)
    for (int s = 0; s < SIZES; s++) {
      const enum trm_type type = root % 2 ? TRM_BYTE : TRM_FLOAT;
      const size_t n = s == SIZES - 1 && root > 1 ? 77 : sizes[s]; /* the largest is slow */
      void *data = trm_alloc(n * trm_type_bytes(type), "test");
      for (size_t i = 0; i < n; i++)
        set(data, type, i, comm->rank == root ? value(root, i) : -1);
      comm->ops->broadcast(comm, data, n, type, root);
      size_t wrong = 0;
      for (size_t i = 0; i < n; i++)
        wrong += !is(data, type, i, value(root, i));
      CU_ASSERT_EQUAL(wrong, 0);
      trm_free(data);
    }
}

static int expected(const struct trm_comm *comm, enum trm_op op, size_t i)
{
  int all = value(0, i);
  for (int rank = 1; rank < comm->size; rank++) {
    const int v = value(rank, i);
    all = op == TRM_SUM ? all + v : op == TRM_MIN ? (v < all ? v : all) : (v > all ? v : all);
  }
  return all;
}

static size_t wrong_results(const struct trm_comm *comm, const void *data, enum trm_type type, enum trm_op op, size_t n)
{
  size_t wrong = 0;
  for (size_t i = 0; i < n; i++)
    wrong += !is(data, type, i, expected(comm, op, i));
  return wrong;
}

static void check_allreduce(struct trm_comm *comm)
{
  for (enum trm_type type = TRM_FLOAT; type <= TRM_INT64; type++)
    for (enum trm_op op = TRM_SUM; op <= TRM_MAX; op++)
      for (int s = 0; s < SIZES; s++) {
        const size_t n = s == SIZES - 1 && (type != TRM_FLOAT || op != TRM_SUM) ? 333 : sizes[s];
        void *data = trm_alloc(n * trm_type_bytes(type), "test");
        for (size_t i = 0; i < n; i++)
          set(data, type, i, value(comm->rank, i));
        comm->ops->allreduce(comm, data, n, type, op);
        CU_ASSERT_EQUAL(wrong_results(comm, data, type, op, n), 0);
        trm_free(data);
      }
}

static void check_allreduce_begin(struct trm_comm *comm)
{
  enum { COUNT = SIZES };
  struct trm_request *request[COUNT];
  float *data[COUNT];
  for (int s = 0; s < COUNT; s++) {
    data[s] = trm_alloc(sizes[s] * sizeof(float), "test");
    for (size_t i = 0; i < sizes[s]; i++)
      data[s][i] = (float)value(comm->rank, i);
    comm->ops->allreduce_begin(comm, data[s], sizes[s], TRM_FLOAT, TRM_SUM, &request[s]);
    comm->ops->progress(comm);
  }
  while (!comm->ops->test(&request[3]))
    comm->ops->progress(comm);
  CU_ASSERT_PTR_NULL(request[3]);
  CU_ASSERT_TRUE(comm->ops->test(&request[3]));
  for (int s = COUNT - 1; s >= 0; s--) {
    comm->ops->wait(&request[s]);
    CU_ASSERT_PTR_NULL(request[s]);
    CU_ASSERT_EQUAL(wrong_results(comm, data[s], TRM_FLOAT, TRM_SUM, sizes[s]), 0);
    trm_free(data[s]);
  }
}

static void check_allgather(struct trm_comm *comm)
{
  for (int s = 0; s < SIZES; s++) {
    const size_t n = sizes[s];
    int32_t *mine = trm_alloc(n * sizeof *mine, "test"), *all = trm_alloc((size_t)comm->size * n * sizeof *all, "test");
    for (size_t i = 0; i < n; i++)
      mine[i] = value(comm->rank, i);
    comm->ops->allgather(comm, mine, all, n, TRM_INT32);
    size_t wrong = 0;
    for (int rank = 0; rank < comm->size; rank++)
      for (size_t i = 0; i < n; i++)
        wrong += all[(size_t)rank * n + i] != value(rank, i);
    CU_ASSERT_EQUAL(wrong, 0);
    trm_free(mine);
    trm_free(all);
  }
}

static void check_reduce_scatter(struct trm_comm *comm)
{
  const size_t ranks = (size_t)comm->size;
  for (enum trm_type type = TRM_FLOAT; type <= TRM_INT64; type++)
    for (enum trm_op op = TRM_SUM; op <= TRM_MAX; op++)
      for (int s = 0; s < SIZES; s++) {
        const size_t n = s == SIZES - 1 && (type != TRM_FLOAT || op != TRM_SUM) ? 333 : sizes[s];
        void *all = trm_alloc(ranks * n * trm_type_bytes(type), "test");
        void *mine = trm_alloc(n * trm_type_bytes(type), "test");
        for (size_t i = 0; i < ranks * n; i++)
          set(all, type, i, value(comm->rank, i));
        comm->ops->reduce_scatter(comm, all, mine, n, type, op);
        size_t wrong = 0;
        for (size_t i = 0; i < n; i++)
          wrong += !is(mine, type, i, expected(comm, op, (size_t)comm->rank * n + i));
        CU_ASSERT_EQUAL(wrong, 0);
        trm_free(all);
        trm_free(mine);
      }
}

/* Several concurrent gathers, one of them in place; the longest array needs several MPI calls. */
static void check_gathers_begin(struct trm_comm *comm)
{
  const bool over_mpi = comm->ops == world->ops, by_library = over_mpi && !real_of(comm)->over_messages;
  struct coll_choice choice[] = {{COLL_ALLGATHER, false, 1, 0, NULL, 0}, {COLL_REDUCE_SCATTER, false, 1, 0, NULL, 0}};
  const struct coll_choices library = {choice, 2, 2};
  if (over_mpi)
    real_of(comm)->max_begin_bytes = (size_t)1 << 17;
  if (by_library)
    trm_comm_set_collectives(world, &library);
  enum { COUNT = SIZES };
  const size_t ranks = (size_t)comm->size, rank = (size_t)comm->rank;
  struct trm_request *gather[COUNT], *scatter[COUNT];
  float *all[COUNT], *mine[COUNT], *sum[COUNT];
  for (int s = 0; s < COUNT; s++) {
    const size_t n = sizes[s];
    all[s] = trm_alloc(ranks * n * sizeof(float), "test");
    mine[s] = s % 2 ? all[s] + rank * n : trm_alloc(n * sizeof(float), "test");
    for (size_t i = 0; i < n; i++)
      mine[s][i] = (float)value(comm->rank, i);
    comm->ops->allgather_begin(comm, mine[s], all[s], n, TRM_FLOAT, &gather[s]);
    if (by_library && comm->size > 1 && n > 0)
      CU_ASSERT_EQUAL(gather[s]->count > 1, s == COUNT - 1);
    comm->ops->progress(comm);
  }
  for (int s = COUNT - 1; s >= 0; s--) {
    const size_t n = sizes[s];
    comm->ops->wait(&gather[s]);
    CU_ASSERT_PTR_NULL(gather[s]);
    size_t wrong = 0;
    for (size_t i = 0; i < ranks * n; i++)
      wrong += !is(all[s], TRM_FLOAT, i, value((int)(i / n), i % n));
    CU_ASSERT_EQUAL(wrong, 0);
    if (s % 2 == 0)
      trm_free(mine[s]);
    for (size_t i = 0; i < ranks * n; i++)
      all[s][i] = (float)value(comm->rank, i);
    sum[s] = trm_alloc(n * sizeof(float), "test");
    comm->ops->reduce_scatter_begin(comm, all[s], sum[s], n, TRM_FLOAT, TRM_SUM, &scatter[s]);
    if (by_library && comm->size > 1 && n > 0)
      CU_ASSERT_EQUAL(scatter[s]->count > 1, s == COUNT - 1);
  }
  for (int s = 0; s < COUNT; s++) {
    while (!comm->ops->test(&scatter[s]))
      comm->ops->progress(comm);
    CU_ASSERT_PTR_NULL(scatter[s]);
    size_t wrong = 0;
    for (size_t i = 0; i < sizes[s]; i++)
      wrong += !is(sum[s], TRM_FLOAT, i, expected(comm, TRM_SUM, rank * sizes[s] + i));
    CU_ASSERT_EQUAL(wrong, 0);
    trm_free(all[s]);
    trm_free(sum[s]);
  }
  if (by_library)
    trm_comm_set_collectives(world, NULL);
  if (over_mpi)
    real_of(comm)->max_begin_bytes = REAL_MAX_BEGIN_BYTES;
}

static void test_broadcast(void)
{
  if (is_oversubscribed())
    fewer();
  on_all(check_broadcast);
}
static void test_allreduce(void) { on_all(check_allreduce); }
static void test_allreduce_begin(void) { on_all(check_allreduce_begin); }
static void test_allgather(void) { on_all(check_allgather); }
static void test_reduce_scatter(void) { on_all(check_reduce_scatter); }
static void test_gathers_begin(void) { on_all(check_gathers_begin); }

/* -- collectives between nodes */

static void check_barrier(struct trm_comm *comm)
{
  for (int i = 0; i < 3; i++)
    comm->ops->barrier(comm);
}

static void test_between_nodes(void)
{
  for (int size = 1; size <= 2; size++) {
    on_nodes(size, check_broadcast);
    on_nodes(size, check_allreduce);
    on_nodes(size, check_allgather);
    on_nodes(size, check_reduce_scatter);
    on_nodes(size, check_allreduce_begin);
    on_nodes(size, check_gathers_begin);
    on_nodes(size, check_barrier);
  }
}

/* A rank's collective `which` of the test below, on an array of n elements. */
static void begin_sum(struct trm_comm *comm, float *data, size_t n, int which, struct trm_request **request)
{
  for (size_t i = 0; i < n; i++)
    data[i] = (float)value(comm->rank, i + (size_t)which);
  comm->ops->allreduce_begin(comm, data, n, TRM_FLOAT, which % 2 ? TRM_TREE_SUM : TRM_SUM, request);
}

/* Collectives in progress on several communicators, which ranks complete in unlike orders, with blocking collectives of
 * other communicators, of messages and of the library, in between. */
static void check_in_any_order(struct trm_comm *comm)
{
  enum { COMMS = 3, EACH = 3, ALL = COMMS * EACH };
  struct trm_comm *part[COMMS], *other = world->ops->split(world, 0, world->rank);
  struct trm_request *request[ALL];
  float *data[ALL];
  size_t n[ALL], wrong = 0;
  set_node_size(1);
  for (int c = 0; c < COMMS; c++)
    part[c] = comm->ops->split(comm, 0, c == 1 ? -comm->rank : comm->rank);
  set_node_size(0);
  for (int k = 0; k < ALL; k++) {
    n[k] = (size_t)(k % 4) * 30011 + (size_t)k;
    data[k] = trm_alloc((n[k] + 1) * sizeof(float), "test");
    begin_sum(part[k % COMMS], data[k], n[k], k, &request[k]);
  }
  check_broadcast(other); /* the library's */
  for (int i = 0; i < ALL; i++) {
    const int k = (i * 2 + comm->rank) % ALL; /* each rank begins at another */
    if (i % 3 == 0)
      while (!comm->ops->test(&request[k]))
        comm->ops->progress(comm);
    comm->ops->wait(&request[k]);
    for (size_t j = 0; j < n[k]; j++)
      wrong += data[k][j] != (float)expected(comm, TRM_SUM, j + (size_t)k);
  }
  CU_ASSERT_EQUAL(wrong, 0);
  check_barrier(part[0]);
  for (int k = 0; k < ALL; k++)
    trm_free(data[k]);
  for (int c = 0; c < COMMS; c++)
    comm->ops->release(part[c]);
  other->ops->release(other);
}

/* By the thread, and by calls alone. */
static void test_in_any_order(void)
{
  on_nodes(1, check_in_any_order);
  trm_comm_set_progress(world, TRM_PROGRESS_CALLS);
  on_nodes(1, check_in_any_order);
  trm_comm_set_progress(world, TRM_PROGRESS_THREAD);
}

/* A collective completes while no rank calls anything. */
static void check_alone(struct trm_comm *comm)
{
  enum { N = 200003 };
  struct trm_request *request;
  struct real_progress *progress = &real_of(comm)->job->progress;
  float *data = trm_alloc(N * sizeof *data, "test");
  begin_sum(comm, data, N, 0, &request);
  size_t wrong = 1;
  for (int tries = 0; tries < 50 && wrong > 0; tries++) { /* under load it takes longer */
    usleep(200000);
    pthread_mutex_lock(&progress->lock);
    wrong = 0;
    for (size_t i = 0; i < N; i++)
      wrong += data[i] != (float)expected(comm, TRM_SUM, i);
    pthread_mutex_unlock(&progress->lock);
  }
  CU_ASSERT_EQUAL(wrong, 0);
  comm->ops->wait(&request);
  comm->ops->barrier(comm);
  trm_free(data);
}

static void test_alone(void) { on_nodes(1, check_alone); }

/* -- messages */

/* Around a ring: three messages whose receives are posted in a different order. */
static void check_messages(struct trm_comm *comm)
{
  const int next = (comm->rank + 1) % comm->size, last = (comm->rank + comm->size - 1) % comm->size;
  static const size_t lengths[3] = {0, 33, 300001};
  struct trm_request *send[3], *receive[3];
  double *out[3], *in[3];
  for (int m = 0; m < 3; m++) {
    out[m] = trm_alloc(lengths[m] * sizeof(double), "test");
    in[m] = trm_alloc(lengths[m] * sizeof(double), "test");
    for (size_t i = 0; i < lengths[m]; i++)
      out[m][i] = value(comm->rank, i + (size_t)m);
    comm->ops->send_begin(comm, out[m], lengths[m], TRM_DOUBLE, next, 100 + m, &send[m]);
  }
  for (int m = 2; m >= 0; m--)
    comm->ops->receive_begin(comm, in[m], lengths[m], TRM_DOUBLE, last, 100 + m, &receive[m]);
  for (int m = 0; m < 3; m++) {
    while (!comm->ops->test(&receive[m]))
      comm->ops->progress(comm);
    comm->ops->wait(&send[m]);
    size_t wrong = 0;
    for (size_t i = 0; i < lengths[m]; i++)
      wrong += in[m][i] != value(last, i + (size_t)m);
    CU_ASSERT_EQUAL(wrong, 0);
    trm_free(out[m]);
    trm_free(in[m]);
  }
}

static void test_messages(void) { on_all(check_messages); }

/* -- groups */

static void check_split(struct trm_comm *comm)
{
  struct trm_comm *part = comm->ops->split(comm, comm->rank % 3, 0);
  CU_ASSERT_EQUAL(part->rank, comm->rank / 3);
  CU_ASSERT_EQUAL(part->size, (comm->size - comm->rank % 3 + 2) / 3);
  int64_t sum = comm->rank;
  part->ops->allreduce(part, &sum, 1, TRM_INT64, TRM_SUM);
  int64_t wanted = 0;
  for (int rank = comm->rank % 3; rank < comm->size; rank += 3)
    wanted += rank;
  CU_ASSERT_EQUAL(sum, wanted);
  part->ops->release(part);
  CU_ASSERT_PTR_NULL(comm->ops->split(comm, -1, 0));
}

static void check_clock(struct trm_comm *comm)
{
  const double before = comm->ops->clock(comm);
  usleep(2000);
  const double passed = comm->ops->clock(comm) - before;
  CU_ASSERT_TRUE(passed >= 0.0019 && passed < 60);
}

static void test_split(void)
{
  on_all(check_split);
  on_all(check_clock);
  CU_ASSERT_PTR_NOT_NULL(world->ops->native(world));
  CU_ASSERT_PTR_NULL(trm_comm_self()->ops->native(trm_comm_self()));
  CU_ASSERT_TRUE(strlen(trm_comm_library()) > 3 && !strchr(trm_comm_library(), '\n'));
}

static void test_split_node(void)
{
  for (int size = 1; size <= 4; size++) {
    set_node_size(size);
    struct trm_comm *node = world->ops->split_node(world, size % 2 ? TRM_SHARE_NODE : TRM_SHARE_NUMA);
    set_node_size(0);
    const int first = world->rank / size * size;
    CU_ASSERT_EQUAL(node->rank, world->rank - first);
    CU_ASSERT_EQUAL(node->size, world->size - first < size ? world->size - first : size);
    node->ops->release(node);
  }
}

/* -- shared memory */

/* After a barrier all ranks have written this round's number, and none the next one's. */
static void rounds(struct trm_comm *comm, struct trm_shared *shared)
{
  size_t wrong = 0;
  for (int64_t round = 1; round <= 300; round++) {
    __atomic_store_n((int64_t *)shared->local, round, __ATOMIC_RELAXED);
    comm->ops->barrier(comm);
    for (int i = 0; i < comm->size; i++)
      wrong += __atomic_load_n((int64_t *)shared->base[i], __ATOMIC_RELAXED) != round;
    comm->ops->barrier(comm);
  }
  CU_ASSERT_EQUAL(wrong, 0);
}

static void check_share(struct trm_comm *comm)
{
  struct trm_shared shared;
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  const size_t bytes = 40000 + (size_t)comm->rank * 1000;
  CU_ASSERT_EQUAL_FATAL(comm->ops->share(comm, bytes, TRM_MEMORY_BUFFERS, &shared), TRM_OK);
  CU_ASSERT_EQUAL(shared.bytes, bytes);
  CU_ASSERT_PTR_EQUAL(shared.local, shared.base[comm->rank]);
  unsigned char any = 0;
  for (int i = 0; i < comm->size; i++) {
    CU_ASSERT_EQUAL((uintptr_t)shared.base[i] % page, 0);
    for (size_t b = 0; b < 40000 + (size_t)i * 1000; b++)
      any |= ((unsigned char *)shared.base[i])[b];
  }
  CU_ASSERT_EQUAL(any, 0);
  comm->ops->barrier(comm);
  rounds(comm, &shared);
  /* every rank writes a byte near the end of every rank's segment */
  for (int i = 0; i < comm->size; i++)
    ((unsigned char *)shared.base[i])[39000 + i * 1000 + comm->rank] = (unsigned char)(comm->rank + 1);
  comm->ops->barrier(comm);
  for (int i = 0; i < comm->size; i++)
    CU_ASSERT_EQUAL(((unsigned char *)shared.local)[39000 + comm->rank * 1000 + i], i + 1);
  comm->ops->unshare(comm, &shared);
  CU_ASSERT_PTR_NULL(shared.base);

  /* segments of whole 64 KiB, some empty, form one array */
  const size_t part = (size_t)(comm->rank % 3) << 16;
  CU_ASSERT_EQUAL_FATAL(comm->ops->share(comm, part, TRM_MEMORY_BUFFERS, &shared), TRM_OK);
  for (int i = 1; i < comm->size; i++)
    CU_ASSERT_EQUAL((char *)shared.base[i] - (char *)shared.base[i - 1], (ptrdiff_t)((i - 1) % 3) << 16);
  memset(shared.local, comm->rank + 1, part);
  comm->ops->barrier(comm);
  for (int i = 0; i < comm->size; i++)
    if (i % 3)
      CU_ASSERT_EQUAL(((char *)shared.base[i])[((i % 3) << 16) - 1], i + 1);
  comm->ops->unshare(comm, &shared);
}

static void test_share(void)
{
  struct trm_comm *node = world->ops->split_node(world, TRM_SHARE_NODE);
  check_share(node);
  struct trm_comm *part = node->ops->split(node, node->rank % 2, -node->rank);
  check_share(part);
  part->ops->release(part);
  node->ops->release(node);
  check_share(trm_comm_self());
}

static void test_share_too_large(void)
{
  struct trm_comm *node = world->ops->split_node(world, TRM_SHARE_NODE);
  struct trm_shared shared;
  CU_ASSERT_EQUAL(node->ops->share(node, node->rank == 0 ? (size_t)1 << 49 : 1, TRM_MEMORY_DATA, &shared), TRM_FAILED);
  CU_ASSERT_PTR_NOT_NULL(strstr(trm_error_text(), "the data set"));
  node->ops->release(node);
  if (world->size > 1) { /* ranks of different nodes: refused */
    CU_ASSERT_EQUAL(world->ops->share(world, 1, TRM_MEMORY_STATES, &shared), TRM_FAILED);
    CU_ASSERT_PTR_NOT_NULL(strstr(trm_error_text(), "optimizer states"));
  }
}

/* -- windows */

static void check_window(struct trm_comm *comm)
{
  enum { N = 100003 };
  struct trm_window *window;
  float *own, *mine = trm_alloc(N * sizeof(float), "test"), *got = trm_alloc(N * sizeof(float), "test");
  CU_ASSERT_EQUAL_FATAL(comm->ops->window_create(comm, N, TRM_FLOAT, "test", &window, (void **)&own), TRM_OK);
  size_t wrong = 0;
  for (size_t i = 0; i < N; i++)
    wrong += own[i] != 0;
  comm->ops->barrier(comm);

  /* every rank adds to every rank's window */
  for (size_t i = 0; i < N; i++)
    mine[i] = (float)value(comm->rank, i);
  for (int k = 0; k < comm->size; k++) {
    const int target = (comm->rank + k) % comm->size;
    comm->ops->accumulate(window, mine, N, target, 0);
    comm->ops->flush(window, target);
  }
  comm->ops->barrier(comm);
  for (int target = 0; target < comm->size; target++) {
    comm->ops->get(window, got, N - 3, target, 3);
    comm->ops->flush(window, target);
    for (size_t i = 0; i < N - 3; i++)
      wrong += got[i] != (float)expected(comm, TRM_SUM, i + 3);
  }
  comm->ops->barrier(comm);

  /* every rank writes its element of the next rank's window */
  const int next = (comm->rank + 1) % comm->size, last = (comm->rank + comm->size - 1) % comm->size;
  const float word[2] = {1000.0f + (float)comm->rank, 2000.0f};
  comm->ops->put(window, word, 2, next, N - 2);
  comm->ops->flush(window, next);
  comm->ops->barrier(comm);
  comm->ops->flush(window, comm->rank);
  wrong += own[N - 2] != 1000.0f + (float)last || own[N - 1] != 2000.0f;
  CU_ASSERT_EQUAL(wrong, 0);
  comm->ops->barrier(comm);
  comm->ops->window_free(&window);
  CU_ASSERT_PTR_NULL(window);
  trm_free(mine);
  trm_free(got);
}

/* Fetch-and-add: 50 tickets per rank from a counter on the last rank; other ranks' windows are empty. */
static void check_fetch_add(struct trm_comm *comm)
{
  enum { EACH = 50 };
  const int owner = comm->size - 1;
  struct trm_window *window;
  void *own;
  const size_t count = comm->rank == owner ? 3 : 0;
  CU_ASSERT_EQUAL_FATAL(comm->ops->window_create(comm, count, TRM_INT64, "test", &window, &own), TRM_OK);
  int64_t tickets[EACH], *all = trm_alloc((size_t)comm->size * sizeof tickets, "test");
  bool ascending = true;
  for (int i = 0; i < EACH; i++) {
    tickets[i] = comm->ops->fetch_add(window, 1, owner, 2);
    ascending = ascending && (i == 0 || tickets[i] > tickets[i - 1]);
  }
  CU_ASSERT_TRUE(ascending);
  comm->ops->allgather(comm, tickets, all, EACH, TRM_INT64);
  bool *seen = trm_alloc((size_t)(comm->size * EACH), "test");
  int wrong = 0;
  for (int i = 0; i < comm->size * EACH; i++)
    if (all[i] < 0 || all[i] >= comm->size * EACH || seen[all[i]])
      wrong++;
    else
      seen[all[i]] = true;
  CU_ASSERT_EQUAL(wrong, 0);
  comm->ops->barrier(comm);
  comm->ops->window_free(&window);
  trm_free(all);
  trm_free(seen);
}

static void test_window(void) { on_all(check_window); }
static void test_deferred_window(void) { with_deferred_windows(test_window); }

/* A put that is not flushed does not reach its target, and a get not its buffer. */
static void check_deferred(void)
{
  struct trm_window *window;
  float *own, got = 0;
  const float one = 1;
  CU_ASSERT_EQUAL_FATAL(world->ops->window_create(world, 2, TRM_FLOAT, "test", &window, (void **)&own), TRM_OK);
  const int next = (world->rank + 1) % world->size;
  world->ops->put(window, &one, 1, next, 0);
  world->ops->accumulate(window, &one, 1, next, 1);
  world->ops->get(window, &got, 1, next, 0);
  world->ops->barrier(world);
  if (next != world->rank)
    world->ops->flush(window, world->rank);
  CU_ASSERT(own[0] == 0 && own[1] == 0 && isnan(got));
  world->ops->barrier(world);
  world->ops->flush(window, next);
  CU_ASSERT(got == 1);
  world->ops->barrier(world);
  world->ops->flush(window, world->rank);
  CU_ASSERT(own[0] == 1 && own[1] == 1);
  world->ops->barrier(world);
  world->ops->window_free(&window);
}
static void test_deferred(void) { with_deferred_windows(check_deferred); }
static void test_fetch_add(void) { on_all(check_fetch_add); }

/* -- fixed-order all-reduce */

/* Values whose sum depends on the order. */
static double rough(int rank, size_t i)
{
  const uint32_t mixed = ((uint32_t)rank * 2654435761u) ^ ((uint32_t)i * 40503u + 17u);
  return ((double)(mixed % 20011) - 10005.0) / 7.0 * ((mixed >> 16) % 5 == 0 ? 1e5 : 1.0);
}

/* The documented order of additions, computed on every rank. */
#define TREE(type, name)                                                       \
  static type name(int size, size_t i)                                         \
  {                                                                            \
    int power = 1;                                                             \
    while (2 * power <= size)                                                  \
      power *= 2;                                                              \
    type sum[16];                                                              \
    for (int rank = 0; rank < power; rank++)                                   \
      sum[rank] = (type)rough(rank, i) + (rank + power < size ? (type)rough(rank + power, i) : 0); \
    for (; power > 1; power /= 2)                                              \
      for (int k = 0; k < power / 2; k++)                                      \
        sum[k] = sum[2 * k] + sum[2 * k + 1];                                  \
    return sum[0];                                                             \
  }
TREE(float, tree_float)
TREE(double, tree_double)

static void check_tree(struct trm_comm *comm)
{
  static const size_t lengths[] = {0, 1, 5, 65536, 65537, 200003};
  for (size_t s = 0; s < sizeof lengths / sizeof lengths[0]; s++) {
    const size_t n = lengths[s];
    float *single = trm_alloc(n * sizeof(float), "test");
    double *twice = trm_alloc(n * sizeof(double), "test");
    for (size_t i = 0; i < n; i++) {
      single[i] = (float)rough(comm->rank, i);
      twice[i] = rough(comm->rank, i);
    }
    struct trm_request *request;
    comm->ops->allreduce_begin(comm, single, n, TRM_FLOAT, TRM_TREE_SUM, &request);
    comm->ops->allreduce(comm, twice, n, TRM_DOUBLE, TRM_TREE_SUM);
    comm->ops->wait(&request);
    size_t wrong = 0;
    for (size_t i = 0; i < n; i++)
      wrong += (single[i] != tree_float(comm->size, i)) + (twice[i] != tree_double(comm->size, i));
    CU_ASSERT_EQUAL(wrong, 0);
    trm_free(single);
    trm_free(twice);
  }
}

static void test_allreduce_tree(void) { on_all(check_tree); }

/* -- the launch */

static const char *const names[] = {
  "PMI_SIZE", "PMI_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE",
  "MV2_COMM_WORLD_RANK", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_NTASKS",
};
enum { NAMES = sizeof names / sizeof names[0] };

static void test_launch(void)
{
  char *kept[NAMES];
  for (int i = 0; i < NAMES; i++) {
    kept[i] = getenv(names[i]) ? trm_strdup(getenv(names[i])) : NULL;
    unsetenv(names[i]);
  }
  CU_ASSERT_EQUAL(real_check_launch(1), TRM_OK); /* started without a launcher */
  setenv("SLURM_NTASKS", "4", 1);
  setenv("SLURM_PROCID", "0", 1);
  CU_ASSERT_EQUAL(real_check_launch(1), TRM_OK); /* in a batch script, without srun */
  setenv("SLURM_STEP_NUM_TASKS", "4", 1);
  setenv("SLURM_PROCID", "2", 1);
  CU_ASSERT_EQUAL(real_check_launch(4), TRM_OK);
  CU_ASSERT_EQUAL(real_check_launch(1), TRM_USAGE); /* srun with another protocol */
  CU_ASSERT_PTR_NOT_NULL(strstr(trm_error_text(), "rank 2 of 4"));
  setenv("PMI_SIZE", "1", 1);
  setenv("PMI_RANK", "0", 1);
  CU_ASSERT_EQUAL(real_check_launch(1), TRM_OK); /* mpiexec -n 1 started by srun */
  unsetenv("SLURM_STEP_NUM_TASKS");
  unsetenv("PMI_SIZE");
  setenv("OMPI_COMM_WORLD_SIZE", "3", 1);
  setenv("OMPI_COMM_WORLD_RANK", "1", 1);
  CU_ASSERT_EQUAL(real_check_launch(1), TRM_USAGE); /* another MPI's mpiexec */
  CU_ASSERT_PTR_NOT_NULL(strstr(trm_error_text(), "rank 1 of 3"));
  for (int i = 0; i < NAMES; i++) {
    if (kept[i])
      setenv(names[i], kept[i], 1);
    else
      unsetenv(names[i]);
    trm_free(kept[i]);
  }
}

/* -- counters, locks, waiting */

struct shared_state {
  struct trm_counter turn, sum, best;
  struct trm_lock lock;
  int64_t plain; /* changed under the lock */
};

struct turn {
  struct shared_state *state;
  int64_t number;
};

static bool turn_is(void *context)
{
  const struct turn *turn = context;
  return trm_counter_get(&turn->state->turn) == turn->number;
}

/* Changes by all ranks of a node: none is lost; each rank takes its turn and sees what the one before it wrote. */
static void test_counters(void)
{
  enum { TIMES = 200 };
  struct trm_comm *node = world->ops->split_node(world, TRM_SHARE_NODE);
  struct trm_shared shared;
  CU_ASSERT_EQUAL_FATAL(node->ops->share(node, node->rank == 0 ? sizeof(struct shared_state) : 0, TRM_MEMORY_BUFFERS,
                                         &shared), TRM_OK);
  struct shared_state *state = shared.base[0];
  bool ascends = true;
  int64_t last = -1;
  for (int i = 0; i < TIMES; i++) {
    const int64_t before = trm_counter_add(node, &state->sum, 2), mine = 1000 * (int64_t)node->rank + i;
    ascends &= before > last;
    last = before;
    int64_t best = 0;
    while (mine > best && !trm_counter_swap(node, &state->best, &best, mine))
      continue;
    trm_lock_acquire(node, &state->lock);
    state->plain++;
    trm_lock_release(node, &state->lock);
  }
  CU_ASSERT(ascends);
  node->ops->barrier(node);
  CU_ASSERT_EQUAL(trm_counter_get(&state->sum), 2 * TIMES * node->size);
  CU_ASSERT_EQUAL(trm_counter_get(&state->best), 1000 * (node->size - 1) + TIMES - 1);
  CU_ASSERT_EQUAL(state->plain, TIMES * node->size);
  node->ops->barrier(node);
  size_t wrong = 0;
  for (int i = 0; i < 20; i++) {
    struct turn turn = {state, i * node->size + node->rank};
    node->ops->wait_until(node, turn_is, &turn);
    wrong += state->plain != TIMES * node->size + turn.number;
    state->plain++;
    trm_counter_set(node, &state->turn, turn.number + 1);
  }
  CU_ASSERT_EQUAL(wrong, 0);
  node->ops->barrier(node);
  struct turn none = {state, -1}, reached = {state, trm_counter_get(&state->turn)};
  const double when = node->ops->clock(node) + 3e-3;
  CU_ASSERT(node->ops->wait_at_most(node, turn_is, &reached, 0));
  CU_ASSERT(!node->ops->wait_at_most(node, turn_is, &none, when));
  CU_ASSERT(node->ops->clock(node) >= when && node->ops->clock(node) < when + 1);
  node->ops->barrier(node);
  struct turn next = {state, reached.number + 1};
  if (node->rank == node->size - 1)
    trm_counter_set(node, &state->turn, next.number);
  CU_ASSERT(node->ops->wait_at_most(node, turn_is, &next, node->ops->clock(node) + 100));
  CU_ASSERT(node->ops->clock(node) < when + 50);
  node->ops->barrier(node);
  node->ops->unshare(node, &shared);
  node->ops->release(node);
}

/* A rank that waits in wait_until, or sleeps with progress, lets a large message to it arrive. */
static void test_sleep_until(void)
{
  enum { COUNT = 1 << 20 };
  struct trm_comm *alone = world->ops->split_node(world, TRM_SHARE_PROCESS);
  CU_ASSERT(alone->rank == 0 && alone->size == 1);
  alone->ops->release(alone);
  for (int progress = 0; progress < 2; progress++) {
    const double when = world->ops->clock(world) + 3e-3;
    world->ops->sleep_until(world, when, progress);
    const double late = world->ops->clock(world) - when;
    CU_ASSERT(late >= 0 && late < 1);
    world->ops->sleep_until(world, when, progress); /* has passed */
    CU_ASSERT(world->ops->clock(world) - when < late + 1);
  }
  struct trm_comm *node = world->ops->split_node(world, TRM_SHARE_NODE);
  struct trm_shared word;
  CU_ASSERT_EQUAL_FATAL(node->ops->share(node, sizeof(struct trm_counter), TRM_MEMORY_BUFFERS, &word), TRM_OK);
  struct trm_counter *arrived = word.base[0];
  float *data = trm_alloc(COUNT * sizeof *data, "test");
  struct trm_request *request = NULL;
  world->ops->barrier(world);
  if (world->rank == 0 && world->size > 1) {
    world->ops->receive_begin(world, data, COUNT, TRM_FLOAT, 1, 3, &request);
    for (int i = 0; i < 300 && trm_counter_get(arrived) == 0; i++)
      world->ops->sleep_until(world, world->ops->clock(world) + 0.1, true);
    CU_ASSERT_EQUAL(trm_counter_get(arrived), 1);
  }
  if (world->rank == 1) {
    world->ops->send_begin(world, data, COUNT, TRM_FLOAT, 0, 3, &request);
    world->ops->wait(&request);
    trm_counter_set(node, arrived, 1);
  }
  world->ops->wait(&request);
  node->ops->unshare(node, &word);
  node->ops->release(node);
  trm_free(data);
}

/* -- calls */

enum call_kind { ECHO, COUNT, AWAIT };
enum { MAX_CALL = 300000 };

struct call_head {
  int64_t kind, number; /* number: of the caller's calls to this owner, from 1; await: counted calls to wait for */
  uint64_t in_bytes, out_bytes;
  int64_t owner, counted; /* returned */
};

struct call_owner {
  struct trm_comm *comm;
  int64_t last[64]; /* number of each caller's latest call */
  int64_t wrong;
  struct trm_counter counted, held; /* held: answers held back at least once */
};

/* Byte i of what is sent by a caller to an owner, and of what is returned. */
static char call_byte(int from, int64_t number, size_t i)
{
  return (char)(from * 31 + (int)number * 7 + (int)(i % 113));
}

static bool call_answer(void *context, int caller, void *data, const void *in, void *out)
{
  struct call_owner *o = context;
  struct call_head *head = data;
  const char *sent = in;
  char *back = out;
  if (head->kind == AWAIT && trm_counter_get(&o->counted) < head->number) {
    if (head->counted++ == 0)
      trm_counter_add(o->comm, &o->held, 1);
    return false;
  }
  if (head->kind != AWAIT) {
    o->wrong += head->number != o->last[caller] + 1;
    o->last[caller] = head->number;
  }
  o->wrong += (in == NULL) != (head->in_bytes == 0) || (out == NULL) != (head->out_bytes == 0);
  for (size_t i = 0; i < head->in_bytes; i++)
    o->wrong += sent[i] != call_byte(caller, head->number, i);
  for (size_t i = 0; i < head->out_bytes; i++)
    back[i] = call_byte(o->comm->rank, head->number, i);
  head->owner = o->comm->rank;
  head->counted = head->kind == COUNT ? trm_counter_add(o->comm, &o->counted, 1) : -1;
  return true;
}

/* Some calls to each of the owners, all in progress at once; waited for from last to first. */
static void call_all(struct trm_comm *comm, struct trm_calls *calls, const bool *owner, int64_t *number)
{
  /* at last so many answers that one waits for others, and one that need not */
  static const size_t bytes[][2] = {{0, 0}, {MAX_CALL, 0}, {0, 1}, {5, 77}, {3001, MAX_CALL - 1}, {70001, 70003},
                                    {0, MAX_CALL}, {0, MAX_CALL}, {0, MAX_CALL}, {0, MAX_CALL}, {1, 0}};
  enum { KINDS = sizeof bytes / sizeof *bytes };
  const size_t count = KINDS * (size_t)comm->size;
  struct trm_request **request = trm_alloc(count * sizeof *request, "test");
  struct call_head *head = trm_alloc(count * sizeof *head, "test");
  char **in = trm_alloc(2 * count * sizeof *in, "test"), **out = in + count;
  for (size_t k = 0; k < count; k++) {
    const int to = (comm->rank + (int)k) % comm->size;
    const size_t *n = bytes[k / (size_t)comm->size];
    if (to == comm->rank || !owner[to])
      continue;
    head[k] = (struct call_head){.kind = ECHO, .number = ++number[to], .in_bytes = n[0], .out_bytes = n[1]};
    in[k] = n[0] ? trm_alloc(n[0], "test") : NULL;
    out[k] = n[1] ? trm_alloc(n[1], "test") : NULL;
    for (size_t i = 0; i < n[0]; i++)
      in[k][i] = call_byte(comm->rank, head[k].number, i);
    comm->ops->call_begin(calls, to, &head[k], in[k], n[0], out[k], n[1], &request[k]);
  }
  size_t wrong = 0;
  for (size_t k = count; k-- > 0;) {
    const int to = (comm->rank + (int)k) % comm->size;
    if (!request[k])
      continue;
    while (k % 2 && !comm->ops->test(&request[k]))
      comm->ops->progress(comm);
    comm->ops->wait(&request[k]);
    wrong += head[k].owner != to || head[k].counted != -1;
    for (size_t i = 0; i < head[k].out_bytes; i++)
      wrong += out[k][i] != call_byte(to, head[k].number, i);
    trm_free(in[k]);
    trm_free(out[k]);
  }
  CU_ASSERT_EQUAL(wrong, 0);
  trm_free(request);
  trm_free(head);
  trm_free(in);
}

static struct trm_calls *open_calls(struct call_owner *o, const bool *owner, bool attended, struct trm_comm *node)
{
  const struct trm_call_plan plan = {
    .head_bytes = sizeof(struct call_head), .max_bytes = MAX_CALL, .owner = owner, .node = node, .attended = attended,
    .function = call_answer, .context = o};
  struct trm_calls *calls = NULL;
  CU_ASSERT_EQUAL_FATAL(o->comm->ops->calls_create(o->comm, &plan, &calls), TRM_OK);
  return calls;
}

/* The owner's own thread makes no MPI calls until all others have made their calls, which are answered. */
static void wait_without_mpi(struct call_owner *o)
{
  for (int ms = 0; ms < 60000 && trm_counter_get(&o->counted) < o->comm->size - 1; ms++)
    usleep(1000);
  CU_ASSERT_EQUAL(trm_counter_get(&o->counted), o->comm->size - 1);
}

static void call_only_first(struct trm_comm *comm, struct trm_calls *calls, int64_t *number)
{
  struct trm_request *request;
  call_all(comm, calls, (bool[64]){true}, number);
  struct call_head head = {.kind = COUNT, .number = ++number[0]};
  comm->ops->call_begin(calls, 0, &head, NULL, 0, NULL, 0, &request);
  comm->ops->wait(&request);
}

/* Every rank is an owner and calls all others; owners need not enter MPI. Then the even ranks alone are owners; and the
 * ranks send through memory where they share it. */
static void check_calls(struct trm_comm *comm)
{
  for (int step = 1; step <= 2; step++) {
    struct call_owner o = {.comm = comm};
    bool owner[64];
    int64_t number[64] = {0};
    for (int i = 0; i < comm->size; i++)
      owner[i] = i % step == 0;
    struct trm_comm *node = step > 1 ? comm->ops->split_node(comm, TRM_SHARE_NODE) : NULL;
    struct trm_calls *calls = open_calls(&o, owner, false, node);
    for (int round = 0; round < call_rounds; round++)
      call_all(comm, calls, owner, number);
    comm->ops->barrier(comm);
    if (comm->rank == 0)
      wait_without_mpi(&o);
    else
      call_only_first(comm, calls, number);
    comm->ops->calls_free(&calls);
    CU_ASSERT_PTR_NULL(calls);
    CU_ASSERT_EQUAL(o.wrong, 0);
    if (node)
      comm->ops->release(node);
  }
}

static void test_calls(void)
{
  on_all(check_calls);
}

/* Answers of each owner are held back until all other ranks have made a counted call, which they make while they wait
 * for that answer. */
static void test_calls_held_back(void)
{
  const int others = world->size - 1;
  struct call_owner o = {.comm = world};
  bool owner[64];
  memset(owner, true, sizeof owner);
  struct trm_comm *node = world->ops->split_node(world, TRM_SHARE_NODE);
  struct trm_calls *calls = open_calls(&o, owner, false, node);
  char byte[64] = {0}, *in = trm_alloc(MAX_CALL, "test");
  int64_t number[64] = {0};
  for (int round = 1; round <= 5; round++) {
    struct trm_request *await[64] = {NULL}, *count[64] = {NULL};
    struct call_head held[64], head[64];
    for (int to = 0; to < world->size; to++)
      if (to != world->rank) {
        held[to] = (struct call_head){.kind = AWAIT, .number = (int64_t)round * others, .out_bytes = 1};
        world->ops->call_begin(calls, to, &held[to], NULL, 0, &byte[to], 1, &await[to]);
      }
    world->ops->barrier(world);
    for (int to = 0; to < world->size; to++) {
      CU_ASSERT(to == world->rank || !world->ops->test(&await[to]));
      if (to == world->rank)
        continue;
      head[to] = (struct call_head){.kind = COUNT, .number = ++number[to], .in_bytes = to % 2 ? MAX_CALL : 0};
      for (size_t i = 0; i < head[to].in_bytes; i++)
        in[i] = call_byte(world->rank, number[to], i);
      world->ops->call_begin(calls, to, &head[to], in, head[to].in_bytes, NULL, 0, &count[to]);
      world->ops->wait(&count[to]);
      CU_ASSERT(head[to].counted >= (int64_t)(round - 1) * others);
    }
    for (int to = 0; to < world->size; to++)
      world->ops->wait(&await[to]);
    world->ops->barrier(world);
    CU_ASSERT_EQUAL(trm_counter_get(&o.counted), (int64_t)round * others);
  }
  world->ops->calls_free(&calls);
  CU_ASSERT_EQUAL(o.wrong, 0);
  CU_ASSERT(world->size == 1 || trm_counter_get(&o.held) > 0);
  world->ops->release(node);
  trm_free(in);
}

struct served {
  struct call_owner *owner;
  int64_t counted;
};

static bool is_served(void *context)
{
  const struct served *served = context;
  return trm_counter_get(&served->owner->counted) == served->counted;
}

/* The last third of the ranks answers in wait_until, until each of the others has said that it has finished. */
static void test_calls_attended(void)
{
  const int workers = world->size - (world->size + 2) / 3;
  struct call_owner o = {.comm = world};
  bool owner[64] = {false};
  int64_t number[64] = {0};
  for (int i = workers; i < world->size; i++)
    owner[i] = true;
  struct trm_calls *calls = open_calls(&o, owner, world->rank >= workers, NULL);
  for (int round = 1; round <= 3; round++) {
    if (world->rank < workers) {
      call_all(world, calls, owner, number);
      for (int to = workers; to < world->size; to++) {
        struct call_head head = {.kind = COUNT, .number = ++number[to]};
        struct trm_request *request;
        world->ops->call_begin(calls, to, &head, NULL, 0, NULL, 0, &request);
        world->ops->wait(&request);
      }
    } else {
      struct served served = {&o, (int64_t)round * workers};
      world->ops->wait_until(world, is_served, &served);
    }
    world->ops->barrier(world);
  }
  world->ops->calls_free(&calls);
  CU_ASSERT_EQUAL(o.wrong, 0);
}

/* -- oversubscribed jobs */

enum { LATE_MS = 100, WAYS = 8 };

static bool counter_is_set(void *context)
{
  return trm_counter_get(context) != 0;
}

/* Waits for rank 0 in one of several ways. written: shared by the node, initially 0. */
static void wait_for_first(struct trm_comm *comm, struct trm_comm *node, struct trm_counter *written, int way)
{
  float mine[16] = {0}, all[16 * 16] = {0};
  struct trm_request *request = NULL;
  switch (way) {
  case 0: comm->ops->barrier(comm); break;
  case 1: node->ops->barrier(node); break;
  case 2: comm->ops->broadcast(comm, mine, 16, TRM_FLOAT, 0); break;
  case 3: comm->ops->allreduce(comm, mine, 16, TRM_FLOAT, TRM_SUM); break;
  case 4: comm->ops->allgather(comm, mine, all, 16, TRM_FLOAT); break;
  case 5: comm->ops->reduce_scatter(comm, all, mine, 16, TRM_FLOAT, TRM_SUM); break;
  case 6:
    for (int to = 1; comm->rank == 0 && to < comm->size; to++) {
      comm->ops->send_begin(comm, mine, 16, TRM_FLOAT, to, 0, &request);
      comm->ops->wait(&request);
    }
    if (comm->rank > 0) {
      comm->ops->receive_begin(comm, mine, 16, TRM_FLOAT, 0, 0, &request);
      comm->ops->wait(&request);
    }
    break;
  case 7:
    if (node->rank == 0)
      trm_counter_set(node, written, 1);
    node->ops->wait_until(node, counter_is_set, written);
    break;
  }
}

static double processor_s(void)
{
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* In an oversubscribed job waiting ranks yield their cores. Must be the last test, since the flag stays set. */
static void test_oversubscribed(void)
{
  struct trm_comm *node = world->ops->split_node(world, TRM_SHARE_NODE);
  struct trm_shared word;
  CU_ASSERT_EQUAL_FATAL(node->ops->share(node, sizeof(struct trm_counter), TRM_MEMORY_BUFFERS, &word), TRM_OK);
  trm_comm_set_oversubscribed();
  for (int way = 0; way < WAYS && world->size <= 16; way++) {
    world->ops->barrier(world);
    const double before = processor_s();
    if (world->rank == 0)
      nanosleep(&(struct timespec){.tv_nsec = LATE_MS * 1000000}, NULL);
    wait_for_first(world, node, word.base[0], way);
    CU_ASSERT(processor_s() - before < 0.5e-3 * LATE_MS);
  }
  node->ops->unshare(node, &word);
  node->ops->release(node);
  if (is_oversubscribed()) /* all that came before was in such a job */
    return;
  fewer();
  on_all(check_broadcast);
  on_all(check_allreduce);
  on_all(check_allgather);
  on_all(check_reduce_scatter);
  on_all(check_messages);
  on_all(check_calls);
  test_calls_held_back();
  test_calls_attended();
  test_share();
}

int main(int argc, char **argv)
{
  CU_TestInfo tests[] = {
    {"broadcast", test_broadcast},
    {"allreduce", test_allreduce},
    {"allreduce_begin, test, wait", test_allreduce_begin},
    {"allgather", test_allgather},
    {"reduce_scatter", test_reduce_scatter},
    {"allgather_begin, reduce_scatter_begin", test_gathers_begin},
    {"collectives between nodes", test_between_nodes},
    {"collectives in progress on several communicators", test_in_any_order},
    {"collectives while no rank calls", test_alone},
    {"messages", test_messages},
    {"split, clock, native", test_split},
    {"split_node", test_split_node},
    {"share, barrier", test_share},
    {"share: errors", test_share_too_large},
    {"window: accumulate, get, put", test_window},
    {"window: fetch_add", test_fetch_add},
    {"the same windows at their flush", test_deferred_window},
    {"nothing before the flush", test_deferred},
    {"allreduce of fixed order", test_allreduce_tree},
    {"broken launch", test_launch},
    {"counters, locks, wait_until", test_counters},
    {"sleep_until, a process alone", test_sleep_until},
    {"calls", test_calls},
    {"calls: answers held back", test_calls_held_back},
    {"calls: attended owners", test_calls_attended},
    {"oversubscribed job", test_oversubscribed},
    CU_TEST_INFO_NULL,
  };
  return ranks_run(argc, argv, "comm", tests);
}
