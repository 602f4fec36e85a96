/* Collectives over messages (mpi/coll): every algorithm on 1 to 64 ranks of the virtual network with odd counts,
 * several at once, and their times and bytes by the formulas of their papers. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"
#include "mpi/coll/choices.h"
#include "mpi/coll/collectives.h"
#include "mpi/coll/fold.h"
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
    for (uint64_t schedule = 0; schedule < (ranks[i] <= 4 ? 4 : 1); schedule++) {
      struct trm_virtual_plan plan = plain;
      plan.ranks = ranks[i];
      plan.schedule = schedule;
      run(plan, main, NULL);
    }
}

/* Small integers: exact in every type and order. */
static int value(int rank, size_t i)
{
  return (int)((i * 7 + (size_t)rank * 13) % 11);
}

static void put(void *data, enum trm_type type, size_t i, double x)
{
  switch (type) {
  case TRM_FLOAT:
    ((float *)data)[i] = (float)x;
    break;
  case TRM_DOUBLE:
    ((double *)data)[i] = x;
    break;
  case TRM_INT32:
    ((int32_t *)data)[i] = (int32_t)x;
    break;
  case TRM_INT64:
    ((int64_t *)data)[i] = (int64_t)x;
    break;
  case TRM_BYTE:
    ((uint8_t *)data)[i] = (uint8_t)(int)x;
  }
}

static double get(const void *data, enum trm_type type, size_t i)
{
  return type == TRM_FLOAT    ? (double)((const float *)data)[i]
         : type == TRM_DOUBLE ? ((const double *)data)[i]
         : type == TRM_INT32  ? ((const int32_t *)data)[i]
         : type == TRM_INT64  ? (double)((const int64_t *)data)[i]
                              : ((const uint8_t *)data)[i];
}

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
      result.of[i] = op == TRM_SUM || op == TRM_TREE_SUM ? before + v : (op == TRM_MIN) == (v < before) ? v : before;
    }
  }
  return result;
}

/* One collective: of a row of the table. */
struct trial {
  const struct coll_ops *ops;
  size_t n; /* of the array, or of a row of it */
  enum trm_type type;
  enum trm_op op;
  int root;
};

static size_t rows_of(const struct trm_comm *comm, const struct coll_ops *ops)
{
  return ops->kind == COLL_ALLGATHER || ops->kind == COLL_REDUCE_SCATTER ? (size_t)comm->size : 1;
}

static void *fill(const struct trm_comm *comm, const struct trial *t)
{
  const size_t n = t->n * rows_of(comm, t->ops);
  void *data = trm_alloc(n * trm_type_bytes(t->type), "test");
  for (size_t i = 0; i < n; i++) {
    const bool given = t->ops->kind == COLL_ALLGATHER   ? i / t->n == (size_t)comm->rank
                       : t->ops->kind == COLL_BROADCAST ? comm->rank == t->root
                                                        : true;
    put(data, t->type, i, given ? value(comm->rank, i) : 77);
  }
  return data;
}

/* Elements that are not those of a serial reduction or copy. */
static size_t run_trial(struct coll *coll, const struct trial *t)
{
  const struct trm_comm *comm = coll->comm;
  const enum coll_kind kind = t->ops->kind;
  void *data = fill(comm, t), *mine = trm_alloc(t->n * trm_type_bytes(t->type), "test");
  struct coll_schedule *schedule = coll_begin_by(
    coll, t->ops, &(struct coll_arrays){data, mine, t->n, t->type, t->op, t->root});
  coll_schedule_wait(&schedule);
  const struct reduced reduced = serial(comm, t->op);
  size_t wrong = 0;
  for (size_t i = 0; i < t->n * (kind == COLL_ALLGATHER ? (size_t)comm->size : 1); i++) {
    const int expected = kind == COLL_ALLGATHER        ? value((int)(i / t->n), i)
                         : kind == COLL_BROADCAST      ? value(t->root, i)
                         : kind == COLL_REDUCE_SCATTER ? reduced.of[((size_t)comm->rank * t->n + i) % 11]
                                                       : reduced.of[i % 11];
    const double got = get(kind == COLL_REDUCE_SCATTER ? mine : data, t->type, i);
    wrong += got != (t->type == TRM_BYTE ? (uint8_t)expected : expected);
  }
  trm_free(mine);
  trm_free(data);
  if (wrong > 0)
    printf("rank %d of %d: %s by %s, %zu elements of type %d, op %d: %zu wrong\n", comm->rank, comm->size,
           coll_kind_names[kind], t->ops->name, t->n, t->type, t->op, wrong);
  return wrong;
}

/* All types and ops at small sizes, one of each at large ones. */
static int check_results(struct trm_comm *comm, void *context)
{
  static const enum trm_op op[] = {TRM_SUM, TRM_MIN, TRM_MAX};
  const size_t size = (size_t)comm->size;
  const size_t n[] = {0, 1, 2, 3, 7, size - 1, size + 1, 1000, 4097, size == 3 || size == 5 ? 300007 : 9001};
  struct coll coll = {.comm = comm};
  size_t wrong = 0, trials = 0;
  (void)context;
  for (const struct coll_ops *ops = coll_table; ops->name; ops++)
    for (size_t s = 0; s < sizeof n / sizeof *n; s++)
      for (size_t k = 0; k < 15; k++) {
        struct trial t = {ops, n[s] / rows_of(comm, ops), (enum trm_type)(k % 5), op[k / 5], (int)(k % size)};
        if (ops->kind == COLL_TREE_SUM)
          t.op = TRM_TREE_SUM;
        if (n[s] > 100000)
          t.type = TRM_DOUBLE; /* several chunks */
        if (n[s] > 7 ? k != trials++ % 15 : k >= 5 && (ops->kind == COLL_ALLGATHER || ops->kind == COLL_BROADCAST))
          continue;
        wrong += run_trial(&coll, &t);
      }
  CU_ASSERT_EQUAL(wrong, 0);
  return TRM_OK;
}

static void test_results(void)
{
  run_all(check_results);
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
    const struct coll_ops *ops = coll_find(COLL_ALLREDUCE, k % 2 ? "ring" : k ? "circulant" : "halving");
    schedule[k] = coll_begin_by(&coll, ops, &(struct coll_arrays){.data = data[k], .count = k % 2 ? N : 100});
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

/* -- two-level algorithms: results, and the bytes between nodes */

/* What ranks send between nodes, by the lowest rank of a node. */
static const int *map;
static size_t bytes_from[16], bytes_to[16];
static const struct trm_comm_ops *counted_ops;

static void counted_send(struct trm_comm *comm, const void *data, size_t count, enum trm_type type, int to, int tag,
                         struct trm_request **request)
{
  if (map[comm->rank] != map[to]) {
    bytes_from[map[comm->rank]] += count * trm_type_bytes(type);
    bytes_to[map[to]] += count * trm_type_bytes(type);
  }
  counted_ops->send_begin(comm, data, count, type, to, tag, request);
}

struct crossing {
  const char *name;
  enum coll_kind kind;
  size_t n; /* of a row */
};

static int crossing_main(struct trm_comm *comm, void *context)
{
  const struct crossing *c = context;
  counted_ops = comm->ops;
  struct trm_comm_ops ops = *comm->ops;
  struct trm_comm counted = *comm;
  ops.send_begin = counted_send;
  counted.ops = &ops;
  struct coll coll = {.comm = &counted, .nodes = map};
  const struct trial t = {coll_find(c->kind, c->name), c->n, TRM_FLOAT, TRM_SUM, 0};
  CU_ASSERT_EQUAL(run_trial(&coll, &t), 0);
  return TRM_OK;
}

static void test_two_level(void)
{
  static const struct {
    int ranks, node[12];
  } cases[] = {{4, {0, 0, 0, 3}}, {4, {0, 1, 1, 1}}, {7, {0, 0, 0, 0, 4, 4, 6}}, {4, {0, 0, 2, 2}}, {2, {0, 1}},
               {3, {0, 0, 0}}, {6, {0, 1, 0, 3, 1, 0}}, {12, {0, 0, 0, 0, 0, 5, 5, 5, 5, 9, 9, 9}}};
  static const size_t n[] = {1, 5, 100000};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    for (size_t k = 0; k < 3; k++)
      for (int reduces = 0; reduces < 2; reduces++) {
        const int ranks = cases[i].ranks;
        struct crossing c = {COLL_TWO_LEVEL, reduces ? COLL_REDUCE_SCATTER : COLL_ALLGATHER, n[k]};
        struct trm_virtual_plan plan = plain;
        plan.ranks = ranks;
        map = cases[i].node;
        memset(bytes_from, 0, sizeof bytes_from);
        memset(bytes_to, 0, sizeof bytes_to);
        run(plan, crossing_main, &c);
        for (int node = 0; node < ranks; node++) { /* once for each other node, and no more */
          int members = 0, nodes = 0;
          for (int rank = 0; rank < ranks; rank++) {
            members += map[rank] == node;
            nodes += map[rank] == rank;
          }
          const size_t block = n[k] * sizeof(float), others = members ? (size_t)(ranks - members) * block : 0;
          const size_t own = members ? (size_t)members * (size_t)(nodes - 1) * block : 0;
          CU_ASSERT_EQUAL(reduces ? bytes_from[node] : bytes_to[node], others);
          CU_ASSERT_EQUAL(reduces ? bytes_to[node] : bytes_from[node], own);
        }
      }
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

/* ((0+1)+(2+3))+... over ranks [low, high), of which those from `power` on are added to the first ones before. */
static float tree(int low, int high, int power, int size, size_t i)
{
  if (high - low == 1)
    return low + power < size ? rough(low, i) + rough(low + power, i) : rough(low, i);
  const int middle = (low + high) / 2;
  return tree(low, middle, power, size, i) + tree(middle, high, power, size, i);
}

/* Block b of a ring: b + 1, b + 2, ..., b. */
static float ring(int size, size_t n, size_t i)
{
  int b = 0;
  for (size_t low, high = 0; high <= i; b++)
    trm_interval(n, (size_t)size, (size_t)b, &low, &high);
  float sum = rough(b % size, i);
  for (int k = 1; k < size; k++)
    sum += rough((b + k) % size, i);
  return sum;
}

/* Sums of the rows that have been run on so many ranks: the same for every order of messages. */
struct recorded {
  float sum[16][1000];
  bool known[16];
};

static int check_order(struct trm_comm *comm, void *context)
{
  enum { N = 1000 };
  struct recorded *recorded = context;
  struct coll coll = {.comm = comm};
  float *sum = trm_alloc(N * sizeof *sum, "test");
  const int power = coll_fold_power(comm->size);
  size_t wrong = 0;
  for (const struct coll_ops *ops = coll_table; ops->name; ops++) {
    if (ops->kind != COLL_ALLREDUCE && ops->kind != COLL_TREE_SUM)
      continue;
    float *before = recorded->sum[ops - coll_table];
    for (size_t i = 0; i < N; i++)
      sum[i] = rough(comm->rank, i);
    struct coll_schedule *schedule = coll_begin_by(
      &coll, ops, &(struct coll_arrays){.data = sum, .count = N,
                                        .op = ops->kind == COLL_TREE_SUM ? TRM_TREE_SUM : TRM_SUM});
    coll_schedule_wait(&schedule);
    for (size_t i = 0; i < N; i++) {
      const bool is_tree = ops->kind == COLL_TREE_SUM, is_ring = strcmp(ops->name, "ring") == 0;
      wrong += is_tree && sum[i] != tree(0, power, power, comm->size, i);
      wrong += is_ring && sum[i] != ring(comm->size, N, i);
      wrong += recorded->known[ops - coll_table] && sum[i] != before[i];
    }
    memcpy(before, sum, N * sizeof *sum); /* all ranks have the same bits */
    recorded->known[ops - coll_table] = true;
  }
  trm_free(sum);
  CU_ASSERT_EQUAL(wrong, 0);
  return TRM_OK;
}

static void test_order(void)
{
  static const int ranks[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 32, 64};
  for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++) {
    struct recorded *recorded = trm_alloc(sizeof *recorded, "test");
    for (uint64_t schedule = 0; schedule < (ranks[i] <= 9 ? 4 : 2); schedule++) {
      struct trm_virtual_plan plan = plain;
      plan.ranks = ranks[i];
      plan.schedule = schedule;
      run(plan, check_order, recorded);
    }
    trm_free(recorded);
  }
}

/* -- times and bytes, by the rows' formulas */

struct timing {
  enum coll_kind kind;
  const char *name;
  int ranks;
  size_t count; /* floats of the array, of all ranks together */
  double bytes; /* sent by all ranks together */
};

static int time_main(struct trm_comm *comm, void *context)
{
  const struct timing *t = context;
  struct coll coll = {.comm = comm};
  const struct coll_ops *ops = coll_find(t->kind, t->name);
  const struct trial trial = {ops, t->count / rows_of(comm, ops), TRM_FLOAT, TRM_SUM, 0};
  CU_ASSERT_EQUAL(run_trial(&coll, &trial), 0);
  return TRM_OK;
}

static void test_times(void)
{
  static const struct timing cases[] = {
    {COLL_ALLREDUCE, "doubling", 8, 1000, 8 * 3 * 4000},
    {COLL_ALLREDUCE, "halving", 8, 16384, 14 * 65536},
    {COLL_ALLREDUCE, "ring", 8, 16384, 14 * 65536},
    {COLL_ALLREDUCE, "ring", 5, 20480, 8 * 81920},
    {COLL_ALLREDUCE, "circulant", 8, 16384, 14 * 65536},
    {COLL_ALLREDUCE, "circulant", 5, 20480, 8 * 81920},
    {COLL_REDUCE_SCATTER, "ring", 4, 16384, 3 * 65536},
    {COLL_REDUCE_SCATTER, "circulant", 7, 7 * 1024, 6 * 28672},
    {COLL_ALLGATHER, "ring", 4, 16384, 3 * 65536},
    {COLL_ALLGATHER, "circulant", 7, 7 * 1024, 6 * 28672},
    {COLL_BROADCAST, "tree", 8, 1000, 7 * 4000},
  };
  const struct coll_costs costs = {plain.latency, 1 / plain.bandwidth, 0};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct timing t = cases[i];
    struct trm_virtual_plan plan = plain;
    plan.ranks = t.ranks;
    const struct trm_virtual_figures figures = run(plan, time_main, &t);
    const double expected = coll_find(t.kind, t.name)->seconds(&costs, t.ranks, (double)t.count * sizeof(float));
    const bool right = fabs(figures.seconds - expected) < 1e-9 && (double)figures.bytes == t.bytes;
    if (!right)
      printf("%s by %s, %d ranks: %.9g s, not %.9g; %.0f bytes, not %.0f\n", coll_kind_names[t.kind], t.name, t.ranks,
             figures.seconds, expected, (double)figures.bytes, t.bytes);
    CU_ASSERT(right);
  }
}

/* Of 5 ranks one is beyond the power of two. */
static void test_costs(void)
{
  static const struct {
    const char *name;
    double seconds[3]; /* of messages, bytes sent, bytes reduced alone; 20 bytes */
  } cases[] = {{"doubling", {4, 80, 60}}, {"halving", {6, 70, 35}}, {"circulant", {6, 32, 16}}, {"ring", {8, 32, 16}}};
  static const struct coll_costs costs[] = {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    for (int k = 0; k < 3; k++)
      CU_ASSERT_EQUAL(coll_find(COLL_ALLREDUCE, cases[i].name)->seconds(&costs[k], 5, 20), cases[i].seconds[k]);
}

/* -- choices */

static void test_choices(void)
{
  const struct coll_ops *ring = coll_find(COLL_ALLREDUCE, "ring"), *doubling = coll_find(COLL_ALLREDUCE, "doubling");
  struct coll_choices choices = {0};
  const struct coll_choice rows[] = {
    {COLL_ALLREDUCE, false, 2, 4096, NULL, 0},   {COLL_ALLREDUCE, false, 2, 65536, ring, 0},
    {COLL_ALLREDUCE, false, 8, 1, doubling, 0},  {COLL_ALLREDUCE, true, 2, 1, doubling, 0},
    {COLL_ALLREDUCE, false, 2, 1 << 20, doubling, 0},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    coll_choices_add(&choices, &rows[i]);
  CU_ASSERT_PTR_NULL(coll_choose(&choices, COLL_ALLREDUCE, 2, COLL_NODE, 4096));
  CU_ASSERT_PTR_NULL(coll_choose(&choices, COLL_ALLREDUCE, 2, COLL_NODE, 65535));
  CU_ASSERT_PTR_NULL(coll_choose(&choices, COLL_ALLREDUCE, 2, COLL_NODE, 0)); /* the fewest bytes */
  CU_ASSERT_PTR_EQUAL(coll_choose(&choices, COLL_ALLREDUCE, 2, COLL_NODE, 65536), ring);
  CU_ASSERT_PTR_EQUAL(coll_choose(&choices, COLL_ALLREDUCE, 3, COLL_NODE, 65536), ring);
  CU_ASSERT_PTR_EQUAL(coll_choose(&choices, COLL_ALLREDUCE, 4, COLL_NODE, 65536), ring); /* as near as 8 */
  CU_ASSERT_PTR_EQUAL(coll_choose(&choices, COLL_ALLREDUCE, 5, COLL_NODE, 65536), doubling);
  CU_ASSERT_PTR_EQUAL(coll_choose(&choices, COLL_ALLREDUCE, 2, COLL_NODE, (size_t)1 << 30), doubling);
  CU_ASSERT_PTR_EQUAL(coll_choose(&choices, COLL_ALLREDUCE, 2, COLL_NODES, 65536), doubling);
  CU_ASSERT_PTR_EQUAL(coll_choose(&choices, COLL_BROADCAST, 2, COLL_NODES, 5), coll_find(COLL_BROADCAST, "tree"));
  coll_choices_free(&choices);
  for (int kind = 0; kind < COLL_KINDS; kind++) /* by costs: a row, or in a node the library */
    for (int ranks = 1; ranks <= 64; ranks++)
      for (size_t bytes = 0; bytes < (size_t)1 << 32; bytes = 4 * bytes + 1) {
        const enum coll_domain domain = ranks % 2 ? COLL_NODES : COLL_NODE;
        const struct coll_ops *ops = coll_choose(NULL, (enum coll_kind)kind, ranks, domain, bytes);
        CU_ASSERT(ops ? ops->kind == (enum coll_kind)kind : ranks % 2 == 0 && kind != COLL_TREE_SUM);
      }
  CU_ASSERT_PTR_EQUAL(coll_choose(NULL, COLL_ALLREDUCE, 8, COLL_NODES, 64), doubling);
  CU_ASSERT_PTR_EQUAL(coll_choose(NULL, COLL_TREE_SUM, 8, COLL_NODE, 64), coll_find(COLL_TREE_SUM, "doubling"));
  CU_ASSERT_PTR_EQUAL(coll_choose(NULL, COLL_TREE_SUM, 8, COLL_NODE, 1 << 24), coll_find(COLL_TREE_SUM, "halving"));
  CU_ASSERT_PTR_NULL(coll_choose(NULL, COLL_ALLREDUCE, 8, COLL_NODE, 64));
  CU_ASSERT_PTR_NULL(coll_choose(NULL, COLL_ALLREDUCE, 8, COLL_NODE, (1 << 24) - 1));
  CU_ASSERT_PTR_NOT_NULL(coll_choose(NULL, COLL_ALLREDUCE, 8, COLL_NODE, 1 << 24));
  CU_ASSERT_PTR_NULL(coll_choose(NULL, COLL_ALLGATHER, 8, COLL_NODE, 1 << 24));
  for (size_t bytes = 1; bytes < (size_t)1 << 32; bytes *= 4) {
    for (int kind = COLL_ALLGATHER; kind <= COLL_REDUCE_SCATTER; kind++)
      CU_ASSERT_STRING_EQUAL(coll_choose(NULL, (enum coll_kind)kind, 8, COLL_NODES_OF_SEVERAL, bytes)->name,
                             COLL_TWO_LEVEL);
    CU_ASSERT_STRING_NOT_EQUAL(coll_choose(NULL, COLL_ALLGATHER, 8, COLL_NODES, bytes)->name, COLL_TWO_LEVEL);
    CU_ASSERT_PTR_EQUAL(coll_choose(NULL, COLL_ALLREDUCE, 8, COLL_NODES_OF_SEVERAL, bytes),
                        coll_choose(NULL, COLL_ALLREDUCE, 8, COLL_NODES, bytes));
  }
}

/* -- files of choices */

static void write_text(const char *path, const char *text)
{
  FILE *stream = fopen(path, "w");
  CU_ASSERT_FATAL(stream != NULL);
  fputs(text, stream);
  CU_ASSERT_EQUAL(fclose(stream), 0);
}

#define ROW "{\"collective\": \"allreduce\", \"domain\": \"node\", \"ranks\": 2, \"bytes\": 4096, "

static void test_damaged_files(void)
{
  static const struct {
    const char *text, *error;
  } damaged[] = {
    {"", "no list \"collectives\""},
    {"{\"collectives\": []}", "no list"},
    {"{\"collectives\": [3]}", "1: a choice must be an object"},
    {"{\"collectives\": [\n" ROW "\"algorithm\": \"rign\"}]}",
     "2: algorithm: no \"rign\"; there are: library, doubling, halving, circulant, ring"},
    {"{\"collectives\": [\n" ROW "\"algorithm\": \"tree\"}]}", "2: algorithm: no \"tree\""},
    {"{\"collectives\": [\n\n" ROW "\"speed\": 3}]}", "3: unknown entry \"speed\""},
    {"{\"collectives\": [" ROW "\"seconds\": 3}]}", "1: no \"algorithm\""},
    {"{\"collectives\": [{\"collective\": \"gossip\"}]}", "there are: allreduce, tree sum, allgather"},
    {"{\"collectives\": [{\"collective\": \"broadcast\", \"domain\": \"world\"}]}", "there are: node, nodes"},
    {"{\"collectives\": [{\"collective\": \"broadcast\", \"domain\": \"nodes\", \"ranks\": 0}]}", "ranks must be"},
    {"{\"collectives\": [{\"collective\": \"broadcast\", \"domain\": \"nodes\", \"ranks\": 2.5}]}", "ranks must be"},
    {"{\"collectives\": [{\"collective\": \"broadcast\", \"domain\": \"nodes\", \"ranks\": 2, \"bytes\": -1}]}",
     "bytes must be"},
    {"{\"collectives\": [{\"collective\": \"tree sum\", \"domain\": \"node\", \"ranks\": 2, \"bytes\": 0, "
     "\"algorithm\": \"library\"}]}", "the library has no tree sum"},
    {"{\"collectives\": [", "coll.json"},
  };
  struct coll_choices choices;
  for (size_t i = 0; i < sizeof damaged / sizeof *damaged; i++) {
    write_text("coll.json", damaged[i].text);
    CU_ASSERT_EQUAL(coll_choices_read(&choices, "coll.json"), TRM_USAGE);
    if (!strstr(trm_error_text(), damaged[i].error) || strncmp(trm_error_text(), "coll.json", 9) != 0)
      printf("case %zu: %s\n", i, trm_error_text());
    CU_ASSERT_PTR_NOT_NULL(strstr(trm_error_text(), damaged[i].error));
    CU_ASSERT_EQUAL(strncmp(trm_error_text(), "coll.json", 9), 0);
    CU_ASSERT_EQUAL(choices.count, 0);
  }
  remove("coll.json");
  CU_ASSERT_NOT_EQUAL(coll_choices_read(&choices, "coll.json"), TRM_OK);
}

static int check_file(struct trm_comm *comm, void *context)
{
  const struct coll_choices *written = context;
  struct coll_choices choices;
  CU_ASSERT_EQUAL_FATAL(coll_choices_read_together(&choices, "coll.json", comm), TRM_OK);
  CU_ASSERT_EQUAL_FATAL(choices.count, written->count);
  for (size_t i = 0; i < choices.count; i++) {
    const struct coll_choice *a = &choices.choice[i], *b = &written->choice[i];
    CU_ASSERT(a->kind == b->kind && a->across_nodes == b->across_nodes && a->ranks == b->ranks &&
              a->bytes == b->bytes && a->ops == b->ops);
  }
  coll_choices_free(&choices);
  CU_ASSERT_NOT_EQUAL(coll_choices_read_together(&choices, "missing.json", comm), TRM_OK);
  return TRM_OK;
}

/* Every row of the table, and the library, as written; read by three ranks. */
static void test_files(void)
{
  struct coll_choices choices = {0};
  struct trm_virtual_plan plan = plain;
  for (const struct coll_ops *ops = coll_table; ops->name; ops++)
    coll_choices_add(&choices, &(struct coll_choice){ops->kind, ops - coll_table > 3, 2 + (int)(ops - coll_table),
                                                     (size_t)1 << (3 * (ops - coll_table)), ops, 1e-6});
  coll_choices_add(&choices, &(struct coll_choice){COLL_BROADCAST, true, 2, 0, NULL, NAN});
  CU_ASSERT_EQUAL(coll_choices_write(&choices, "coll.json"), TRM_OK);
  plan.ranks = 3;
  run(plan, check_file, &choices);
  remove("coll.json");
  coll_choices_free(&choices);
  CU_ASSERT_NOT_EQUAL(coll_choices_write(&choices, "no/such/folder.json"), TRM_OK);
}

int main(void)
{
  CU_TestInfo tests[] = {
    {"results on 1 to 64 ranks", test_results},
    {"several at once", test_several},
    {"two levels", test_two_level},
    {"order of additions", test_order},
    {"times and bytes", test_times},
    {"costs", test_costs},
    {"choices", test_choices},
    {"damaged files of choices", test_damaged_files},
    {"files of choices", test_files},
    CU_TEST_INFO_NULL,
  };
  trm_log_set_quiet(true);
  return suite_run("collectives over messages", tests);
}
