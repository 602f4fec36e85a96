/* Compressed sums over nodes (mpi/compress): every compressor on 2 to 5 ranks of the virtual network, several slices
 * at a time, against loops in double precision written from the papers; error feedback's identities; bytes. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/float16.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/random.h"
#include "core/status.h"
#include "kernels/kernels.h"
#include "mpi/compress/compressor_private.h"
#include "mpi/compress/sparse.h"
#include "mpi/strategies.h"
#include "mpi/virtual.h"
#include "suite.h"

static struct trm_device cpu;

/* -- a node */

enum { PADDING = 10, MATRIX = 60 * 50, VECTOR = 136, WIDE = 17 * 120, TRAINED = MATRIX + VECTOR + WIDE };
enum { STATISTICS = 48, N = TRAINED + STATISTICS, SLICES = 4, MAX_NODES = 5 };
static const struct trm_tensor tensors[] = {
  {.end = MATRIX, .columns = 50, .padding = PADDING},
  {.end = MATRIX + VECTOR, .columns = 1, .vector = true},
  {.end = TRAINED, .columns = 120},
  {.end = N, .columns = 1, .vector = true, .momentum = 0.1f},
};
/* Slices that cut rows of both matrices; statistics are in the last one. */
static const size_t ends[SLICES] = {1024, 2816, 4096, N};

struct setup {
  enum trm_compress compress;
  double ratio, momentum;
  int rank;
  enum trm_compress_bits bits;
  uint64_t warmup;
  int steps;
  bool no_feedback;
};

struct node {
  struct trm_options options;
  struct trm_optimizer optimizer;
  struct trm_strategy strategy;
  struct compressor *compressor;
  float data[N];
};

static struct node *node_make(struct trm_comm *comm, const struct setup *c)
{
  struct node *node = trm_alloc(sizeof *node, "test");
  struct trm_strategy_options *o = &node->options.strategy;
  o->compress = c->compress;
  o->compress_ratio = c->ratio;
  o->compress_rank = c->rank;
  o->compress_bits = c->bits;
  o->error_feedback = !c->no_feedback;
  node->optimizer = (struct trm_optimizer){.tensor = tensors, .tensors = 3, .statistics = 1};
  node->strategy = (struct trm_strategy){.ops = trm_strategy_find("sync"), .comm = comm, .device = &cpu,
                                         .optimizer = &node->optimizer, .options = o, .seed = 7,
                                         .momentum = c->momentum, .warmup = c->warmup, .elements = N};
  struct compress_slice slice[SLICES];
  for (int i = 0; i < SLICES; i++)
    slice[i] = (struct compress_slice){i ? ends[i - 1] : 0, ends[i], comm};
  CU_ASSERT_EQUAL(compressor_create(&node->compressor, &node->strategy, slice, SLICES), TRM_OK);
  return node;
}

static void node_free(struct node *node)
{
  compressor_free(&node->compressor);
  CU_ASSERT_PTR_NULL(node->compressor);
  trm_free(node);
}

/* Multiples of 2^-13 up to 1, of very different sizes; sums of some are exact. */
static float gradient(uint64_t step, int node, size_t i)
{
  uint32_t word[4];
  if (i >= MATRIX - PADDING && i < MATRIX)
    return 0;
  trm_random_block(3, TRM_RANDOM_BENCH, (uint32_t)step * 16 + (uint32_t)node, i, word);
  return ldexpf((float)(word[0] % 2047) - 1023, -10 - (int)(word[1] % 4));
}

/* Makes a sum of all slices, with the gradients in data; some ranks poll. */
static void node_sum(struct node *node)
{
  struct trm_comm *comm = node->strategy.comm;
  for (int i = 0; i < SLICES; i++) {
    compressor_begin(node->compressor, i, node->data + (i ? ends[i - 1] : 0));
    if (comm->rank % 2)
      compressor_test(node->compressor, i / 2);
  }
  for (int i = 0; i < SLICES; i++) {
    while (comm->rank == 1 && !compressor_test(node->compressor, i))
      comm->ops->sleep_until(comm, comm->ops->clock(comm) + 1e-3, true);
    compressor_wait(node->compressor, i);
    CU_ASSERT_TRUE(compressor_test(node->compressor, i));
  }
  node->strategy.updates++;
}

/* schedule: 0: the network's order of messages; otherwise a random one. */
static void run(int ranks, uint64_t schedule, int (*main)(struct trm_comm *world, void *context), const void *context)
{
  const struct trm_virtual_plan plan = {
    .ranks = ranks, .ranks_per_node = 1, .latency = 1e-3, .bandwidth = 1e6, .schedule = schedule};
  const int status = trm_virtual_run(&plan, main, (void *)context, NULL);
  if (status != TRM_OK)
    printf("%d ranks, schedule %d: %s\n", ranks, (int)schedule, trm_error_text());
  CU_ASSERT_EQUAL(status, TRM_OK);
}

/* -- references: what the papers' rules make of one slice, in double precision, for all nodes at once */

struct reference {
  int nodes;
  double error[MAX_NODES][N], other[MAX_NODES][N]; /* e, or dgc's u and v */
  double q[2][4 * 120][8];                         /* powersgd: of the pieces of matrices, by slice and tensor */
  double sum[N];
};

struct ranked {
  double size;
  size_t index;
};

/* The largest first; of equal ones the first. */
static int compare_ranked(const void *a, const void *b)
{
  const struct ranked *x = a, *y = b;
  return x->size != y->size ? (x->size < y->size) - (x->size > y->size) : (x->index > y->index) - (x->index < y->index);
}

static void reference_select(const double *x, size_t n, size_t k, bool *sent)
{
  struct ranked ranked[N];
  for (size_t i = 0; i < n; i++)
    ranked[i] = (struct ranked){fabs(x[i]), i};
  qsort(ranked, n, sizeof *ranked, compare_ranked);
  memset(sent, 0, n * sizeof *sent);
  for (size_t i = 0; i < k; i++)
    sent[ranked[i].index] = true;
}

static size_t reference_count(double ratio, size_t n)
{
  return (size_t)ceil(ratio * (double)n);
}

/* p = g + e; the k largest are sent, the others kept */
static void reference_topk(struct reference *r, const struct setup *c, uint64_t step, size_t low, size_t n)
{
  bool sent[N];
  for (int node = 0; node < r->nodes; node++) {
    double *const p = r->error[node] + low;
    for (size_t i = 0; i < n; i++)
      p[i] += (double)gradient(step, node, low + i);
    reference_select(p, n, reference_count(c->ratio, n), sent);
    for (size_t i = 0; i < n; i++)
      if (sent[i]) {
        r->sum[low + i] += p[i];
        p[i] = 0;
      }
  }
}

/* u = m u + g; v += u; both cleared where sent */
static void reference_dgc(struct reference *r, const struct setup *c, uint64_t step, size_t low, size_t n)
{
  static const double warm[] = {0.25, 0.0625, 0.015625, 0.00390625};
  const double ratio = step < c->warmup ? fmax(c->ratio, warm[step * 4 / c->warmup]) : c->ratio;
  bool sent[N];
  for (int node = 0; node < r->nodes; node++) {
    double *const u = r->error[node] + low, *const v = r->other[node] + low;
    for (size_t i = 0; i < n; i++) {
      u[i] = c->momentum * u[i] + (double)gradient(step, node, low + i);
      v[i] += u[i];
    }
    reference_select(v, n, reference_count(ratio, n), sent);
    for (size_t i = 0; i < n; i++)
      if (sent[i]) {
        r->sum[low + i] += v[i];
        u[i] = v[i] = 0;
      }
  }
}

/* blocks of 512: |p|_1 / d sign p */
static void reference_sign(struct reference *r, const struct setup *c, uint64_t step, size_t low, size_t n)
{
  (void)c;
  for (int node = 0; node < r->nodes; node++)
    for (size_t block = 0; block < n; block += 512) {
      double *const p = r->error[node] + low + block, scale = 0;
      const size_t d = n - block < 512 ? n - block : 512;
      for (size_t i = 0; i < d; i++) {
        p[i] += (double)gradient(step, node, low + block + i);
        scale += fabs(p[i]) / (double)d;
      }
      for (size_t i = 0; i < d; i++) {
        const double sent = p[i] < 0 ? -scale : scale;
        r->sum[low + block + i] += low + block + i >= MATRIX - PADDING && low + block + i < MATRIX ? 0 : sent;
        p[i] -= sent;
      }
    }
}

static void reference_qsgd(struct reference *r, const struct setup *c, uint64_t step, size_t low, size_t n)
{
  const double s = c->bits == TRM_COMPRESS_2_BITS ? 1 : c->bits == TRM_COMPRESS_4_BITS ? 7 : 127;
  for (int node = 0; node < r->nodes; node++)
    for (size_t i = 0; i < n; i++) {
      const size_t block = i / 512 * 512, end = block + 512 < n ? block + 512 : n;
      double norm = 0;
      for (size_t j = block; j < end; j++)
        norm += (double)gradient(step, node, low + j) * (double)gradient(step, node, low + j);
      norm = sqrt(norm);
      const double g = (double)gradient(step, node, low + i);
      const double u = (double)trm_random_uniform(7, TRM_RANDOM_COMPRESS, (uint32_t)step,
                                                  ((uint64_t)node << 40) + low + i);
      const double level = floor(s * fabs(g) / norm + u);
      r->sum[low + i] += norm * (g < 0 ? -level : level) / s;
    }
}

/* Gram-Schmidt. */
static void reference_orthogonalize(double (*p)[8], size_t rows, size_t rank)
{
  for (size_t k = 0; k < rank; k++) {
    double norm = 0;
    for (size_t b = 0; b < k; b++) {
      double dot = 0;
      for (size_t i = 0; i < rows; i++)
        dot += p[i][b] * p[i][k];
      for (size_t i = 0; i < rows; i++)
        p[i][k] -= dot * p[i][b];
    }
    for (size_t i = 0; i < rows; i++)
      norm += p[i][k] * p[i][k];
    for (size_t i = 0; i < rows; i++)
      p[i][k] /= sqrt(norm);
  }
}

/* One matrix: elements [from, to) of the flat arrays, whole rows of a tensor that begins at `begin`. */
static void reference_matrix(struct reference *r, const struct setup *c, uint64_t step, size_t begin, size_t columns,
                             size_t from, size_t to, double (*q)[8])
{
  const size_t first = (from - begin) / columns, rows = (to - from) / columns;
  const size_t rank = (size_t)c->rank;
  double p[64][8] = {0}, next[120][8] = {0}, own[MAX_NODES][120][8] = {0};
  for (size_t j = 0; j < columns && step == 0; j++)
    for (size_t k = 0; k < rank; k++)
      q[j][k] = (double)trm_random_normal(7, TRM_RANDOM_COMPRESS, (uint32_t)k, from + j);
#define EACH_ELEMENT                             \
  for (size_t at = from; at < to; at++)          \
    for (size_t k = 0, i = (at - begin) / columns - first, j = (at - begin) % columns; k < rank; k++)
  for (int node = 0; node < r->nodes; node++) {
    for (size_t at = from; at < to; at++)
      r->error[node][at] += (double)gradient(step, node, at);
    EACH_ELEMENT p[i][k] += r->error[node][at] * q[j][k];
  }
  reference_orthogonalize(p, rows, rank);
  for (int node = 0; node < r->nodes; node++)
    EACH_ELEMENT {
      own[node][j][k] += r->error[node][at] * p[i][k];
      next[j][k] += r->error[node][at] * p[i][k];
    }
  for (int node = 0; node < r->nodes; node++)
    EACH_ELEMENT r->error[node][at] -= p[i][k] * own[node][j][k];
  EACH_ELEMENT r->sum[at] += p[i][k] * next[j][k];
#undef EACH_ELEMENT
  memcpy(q, next, columns * sizeof *q);
}

struct piece {
  size_t low, high;
};

/* The whole rows of a tensor among elements [from, to). */
static struct piece whole_rows(size_t tensor, size_t begin, size_t from, size_t to)
{
  const size_t columns = tensors[tensor].columns;
  struct piece rows = {to, to};
  for (size_t row = begin; row < to && !tensors[tensor].vector; row += columns)
    if (row >= from && row + columns <= to)
      rows = (struct piece){row < rows.low ? row : rows.low, row + columns};
  return rows;
}

static void reference_powersgd(struct reference *r, const struct setup *c, uint64_t step, size_t low, size_t n)
{
  const int slice = low == 0 ? 0 : low == ends[0] ? 1 : low == ends[1] ? 2 : 3;
  for (size_t t = 0, begin = 0; t < 3; begin = tensors[t++].end) {
    const size_t from = begin > low ? begin : low, to = tensors[t].end < low + n ? tensors[t].end : low + n;
    const struct piece rows = whole_rows(t, begin, from, to);
    if (rows.low < rows.high)
      reference_matrix(r, c, step, begin, tensors[t].columns, rows.low, rows.high, r->q[t / 2] + slice * 120);
    for (size_t i = from; i < to; i++)
      for (int node = 0; node < r->nodes && !(i >= rows.low && i < rows.high); node++)
        r->sum[i] += (double)gradient(step, node, i);
  }
}

/* Rounds to so many bits of significand. */
static float rounded(float x, int bits)
{
  int exponent;
  const double part = frexp((double)x, &exponent);
  return (float)ldexp(rint(ldexp(part, bits)), exponent - bits);
}

/* Each node's value is rounded, the sum in float32, in the order of the nodes, too. */
static void reference_cast(struct reference *r, const struct setup *c, uint64_t step, size_t low, size_t n)
{
  const int bits = c->compress == TRM_COMPRESS_BF16 ? 8 : 11;
  for (size_t i = low; i < low + n; i++) {
    float sum = rounded(gradient(step, 0, i), bits);
    for (int node = 1; node < r->nodes; node++)
      sum += rounded(gradient(step, node, i), bits);
    r->sum[i] = (double)rounded(sum, bits);
  }
}

typedef void reference_function(struct reference *r, const struct setup *c, uint64_t step, size_t low, size_t n);
static reference_function *const references[] = {
  [TRM_COMPRESS_BF16] = reference_cast, [TRM_COMPRESS_FP16] = reference_cast, [TRM_COMPRESS_TOPK] = reference_topk,
  [TRM_COMPRESS_DGC] = reference_dgc,   [TRM_COMPRESS_SIGN] = reference_sign, [TRM_COMPRESS_QSGD] = reference_qsgd,
  [TRM_COMPRESS_POWERSGD] = reference_powersgd,
};

static void reference_step(struct reference *r, const struct setup *c, uint64_t step)
{
  memset(r->sum, 0, sizeof r->sum);
  if (c->no_feedback)
    memset(r->error, 0, sizeof r->error);
  for (int i = 0; i < SLICES; i++) {
    const size_t low = i ? ends[i - 1] : 0, end = ends[i] < TRAINED ? ends[i] : TRAINED;
    references[c->compress](r, c, step, low, end - low);
  }
  for (size_t i = TRAINED; i < N; i++) {
    float sum = gradient(step, 0, i);
    for (int node = 1; node < r->nodes; node++)
      sum += gradient(step, node, i);
    r->sum[i] = (double)sum;
  }
}

/* True if data has the same bits on all ranks. */
static bool same_everywhere(struct trm_comm *comm, const float *data)
{
  int64_t hash = 0;
  for (size_t i = 0; i < N; i++) {
    uint32_t bits;
    memcpy(&bits, &data[i], sizeof bits);
    hash = (hash * 31 + bits) % 1000000007;
  }
  int64_t both[2] = {hash, -hash};
  comm->ops->allreduce(comm, both, 2, TRM_INT64, TRM_MAX);
  return both[0] == -both[1];
}

/* Returns the largest difference from the reference. */
static double distance(const struct node *node, const struct reference *r)
{
  double worst = 0;
  for (size_t i = 0; i < N; i++) {
    const double d = fabs((double)node->data[i] - r->sum[i]);
    worst = d > worst || isnan(d) ? d : worst;
  }
  return worst;
}

/* The job of one setup: rank 0 computes the reference for all ranks of the process. */
struct rule_job {
  const struct setup *setup;
  struct reference reference;
};

static int check_rule(struct trm_comm *comm, void *context)
{
  struct rule_job *job = context;
  const struct setup *c = job->setup;
  struct node *node = node_make(comm, c);
  double worst = 0;
  for (uint64_t step = 0; step < (uint64_t)c->steps; step++) {
    for (size_t i = 0; i < N; i++)
      node->data[i] = gradient(step, comm->rank, i);
    node_sum(node);
    comm->ops->barrier(comm);
    if (comm->rank == 0)
      reference_step(&job->reference, c, step);
    comm->ops->barrier(comm);
    const double d = distance(node, &job->reference);
    worst = d > worst || isnan(d) ? d : worst;
    CU_ASSERT_TRUE(same_everywhere(comm, node->data));
  }
  /* casts, and sums of the largest elements, are exact; dgc's momentum is rounded; the others add hundreds of floats */
  const double bound = c->compress < TRM_COMPRESS_DGC ? 0 : c->compress == TRM_COMPRESS_DGC ? 1e-6 : 2e-5;
  if (!(worst <= bound))
    printf("\n    compressor %d, %d nodes: largest difference %g\n", (int)c->compress, comm->size, worst);
  CU_ASSERT_TRUE(worst <= bound);
  node_free(node);
  return TRM_OK;
}

static void test_rules(void)
{
  static const struct setup setups[] = {
    {.compress = TRM_COMPRESS_BF16, .steps = 2},
    {.compress = TRM_COMPRESS_FP16, .steps = 2},
    {.compress = TRM_COMPRESS_TOPK, .ratio = 0.01, .steps = 5},
    {.compress = TRM_COMPRESS_TOPK, .ratio = 0.3, .steps = 3},
    {.compress = TRM_COMPRESS_DGC, .ratio = 0.001, .momentum = 0.5, .warmup = 8, .steps = 10},
    {.compress = TRM_COMPRESS_SIGN, .steps = 5},
    {.compress = TRM_COMPRESS_QSGD, .bits = TRM_COMPRESS_2_BITS, .steps = 2},
    {.compress = TRM_COMPRESS_QSGD, .bits = TRM_COMPRESS_4_BITS, .steps = 2},
    {.compress = TRM_COMPRESS_QSGD, .bits = TRM_COMPRESS_8_BITS, .steps = 2},
    {.compress = TRM_COMPRESS_POWERSGD, .rank = 1, .steps = 4},
    {.compress = TRM_COMPRESS_POWERSGD, .rank = 3, .steps = 4},
    {.compress = TRM_COMPRESS_TOPK, .ratio = 0.01, .steps = 3, .no_feedback = true},
    {.compress = TRM_COMPRESS_SIGN, .steps = 3, .no_feedback = true},
    {.compress = TRM_COMPRESS_POWERSGD, .rank = 2, .steps = 3, .no_feedback = true},
  };
  for (size_t i = 0; i < sizeof setups / sizeof *setups; i++)
    for (int ranks = 2; ranks <= MAX_NODES; ranks++) {
      struct rule_job *job = trm_alloc(sizeof *job, "test");
      job->setup = &setups[i];
      job->reference.nodes = ranks;
      run(ranks, i % 3, check_rule, job);
      trm_free(job);
    }
}

/* -- identities */

/* Sends nothing but gives the errors up: what was sent, and the errors, are the sum of the gradients. */
static int check_feedback(struct trm_comm *comm, void *context)
{
  const struct setup *c = context;
  struct node *node = node_make(comm, c);
  double *balance = trm_alloc(TRAINED * sizeof *balance, "test"), worst = 0;
  for (uint64_t step = 0; step < (uint64_t)c->steps; step++) {
    for (size_t i = 0; i < N; i++)
      node->data[i] = gradient(step, comm->rank, i);
    for (size_t i = 0; i < TRAINED; i++)
      balance[i] += (double)gradient(step, comm->rank, i);
    node_sum(node);
    for (size_t i = 0; i < TRAINED && comm->rank == 0; i++)
      balance[i] -= (double)node->data[i];
  }
  /* the errors of all slices are one array */
  const float *error = node->compressor->state[c->compress == TRM_COMPRESS_DGC];
  size_t kept = 0;
  for (size_t i = 0; i < TRAINED; i++) {
    balance[i] -= i >= MATRIX - PADDING && i < MATRIX ? balance[i] : (double)error[i];
    kept += error[i] != 0;
  }
  comm->ops->allreduce(comm, balance, TRAINED, TRM_DOUBLE, TRM_SUM);
  for (size_t i = 0; i < TRAINED; i++)
    worst = fabs(balance[i]) > worst || isnan(balance[i]) ? fabs(balance[i]) : worst;
  CU_ASSERT_TRUE(worst <= (c->compress == TRM_COMPRESS_TOPK ? 0 : 1e-4));
  CU_ASSERT_TRUE(kept > TRAINED / 2);
  trm_free(balance);
  node_free(node);
  return TRM_OK;
}

static void test_feedback(void)
{
  static const struct setup setups[] = {
    {.compress = TRM_COMPRESS_TOPK, .ratio = 0.01, .steps = 30},
    {.compress = TRM_COMPRESS_DGC, .ratio = 0.01, .steps = 30}, /* without momentum it is top-k */
    {.compress = TRM_COMPRESS_SIGN, .steps = 30},
    {.compress = TRM_COMPRESS_POWERSGD, .rank = 2, .steps = 30},
  };
  for (size_t i = 0; i < sizeof setups / sizeof *setups; i++)
    run(3, 0, check_feedback, &setups[i]);
}

/* Of what a compressor represents exactly, the sum is exact. */
static int check_exact(struct trm_comm *comm, void *context)
{
  const struct setup *c = context;
  struct node *node = node_make(comm, c);
  size_t wrong = 0;
  for (uint64_t step = 0; step < 3; step++) {
    for (size_t i = 0; i < N; i++)
      node->data[i] = (float)((int)(i * 7 + step + (size_t)comm->rank) % 17 - 8) / 64;
    node_sum(node);
    for (size_t i = 0; i < N; i++) {
      float sum = 0;
      for (int rank = 0; rank < comm->size; rank++)
        sum += (float)((int)(i * 7 + step + (size_t)rank) % 17 - 8) / 64;
      wrong += node->data[i] != sum;
    }
  }
  CU_ASSERT_EQUAL(wrong, 0);
  node_free(node);
  return TRM_OK;
}

static void test_exact(void)
{
  static const struct setup setups[] = {
    {.compress = TRM_COMPRESS_BF16},
    {.compress = TRM_COMPRESS_FP16},
    {.compress = TRM_COMPRESS_TOPK, .ratio = 1},
    {.compress = TRM_COMPRESS_DGC, .ratio = 1, .momentum = 0.9}, /* all is sent: nothing is left for the momentum */
    {.compress = TRM_COMPRESS_DGC, .ratio = 1, .momentum = 0.9, .warmup = 2},
  };
  for (size_t i = 0; i < sizeof setups / sizeof *setups; i++)
    run(4, i, check_exact, &setups[i]);
}

/* A sum of matrices of rank 2, with factors that differ from node to node and step to step: rank 2 has all of it if the
 * nodes' columns are the same two. Rank 3 has it, too: the column too many depends on the others. */
static int check_low_rank(struct trm_comm *comm, void *context)
{
  const struct setup *c = context;
  struct node *node = node_make(comm, c);
  double worst = 0;
  node_sum(node); /* of zeros: Q vanishes, and is drawn anew */
  for (int step = 0; step < 3; step++) {
    for (int pass = 0; pass < 2; pass++) {
      double sum[N] = {0};
      for (size_t t = 0, begin = 0; t < 3; begin = tensors[t++].end)
        for (size_t at = begin; at < tensors[t].end; at++)
          for (int rank = 0; rank < comm->size; rank++) {
            const double i = (double)((at - begin) / tensors[t].columns);
            const double j = (double)((at - begin) % tensors[t].columns);
            const double value =
              tensors[t].vector ? sin((double)at) : sin(i) * cos(j + rank + step) + cos(2 * i) * j / 64;
            sum[at] += value;
            if (rank == comm->rank && pass == 0)
              node->data[at] = (float)value;
          }
      for (size_t i = 0; i < TRAINED && pass == 1; i++)
        worst = fmax(worst, fabs((double)node->data[i] - sum[i]));
      if (pass == 0)
        node_sum(node);
    }
    for (size_t i = 0; i < TRAINED; i++)
      worst = fmax(worst, fabs((double)node->compressor->state[0][i]));
  }
  if (!(worst <= 2e-5))
    printf("\n    rank %d: %g\n", c->rank, worst);
  CU_ASSERT_TRUE(worst <= 2e-5);
  node_free(node);
  return TRM_OK;
}

static void test_low_rank(void)
{
  static const struct setup two = {.compress = TRM_COMPRESS_POWERSGD, .rank = 2}, three = {
    .compress = TRM_COMPRESS_POWERSGD, .rank = 3};
  run(3, 0, check_low_rank, &two);
  run(2, 0, check_low_rank, &three);
}

/* The mean of many sums of the same gradients. Each element's variance is at most |g|^2/s^2/4 a node, so the mean of D
 * sums of two nodes has a standard deviation of at most |g| / (s sqrt(2 D)); six of them. */
static int check_unbiased(struct trm_comm *comm, void *context)
{
  const struct setup *c = context;
  enum { DRAWS = 1000 };
  struct node *node = node_make(comm, c);
  double *mean = trm_alloc(N * sizeof *mean, "test");
  const double levels = c->bits == TRM_COMPRESS_2_BITS ? 1 : 7;
  size_t wrong = 0, zero = 0;
  for (int draw = 0; draw < DRAWS; draw++) {
    for (size_t i = 0; i < N; i++)
      node->data[i] = gradient(0, comm->rank, i);
    node_sum(node);
    for (size_t i = 0; i < N; i++) {
      mean[i] += (double)node->data[i] / DRAWS;
      zero += node->data[i] == 0;
    }
  }
  for (size_t i = 0; i < 512; i++) {
    double norm = 0;
    for (int rank = 0; rank < 2; rank++) {
      double square = 0;
      for (size_t j = 0; j < 512; j++)
        square += (double)gradient(0, rank, j) * (double)gradient(0, rank, j);
      norm = fmax(norm, sqrt(square));
    }
    const double sum = (double)gradient(0, 0, i) + (double)gradient(0, 1, i);
    wrong += fabs(mean[i] - sum) > 6 * norm / levels / sqrt(2 * DRAWS);
  }
  CU_ASSERT_EQUAL(wrong, 0);
  CU_ASSERT_TRUE(zero > 0);
  trm_free(mean);
  node_free(node);
  return TRM_OK;
}

static void test_unbiased(void)
{
  static const struct setup two = {.compress = TRM_COMPRESS_QSGD, .bits = TRM_COMPRESS_2_BITS}, four = {
    .compress = TRM_COMPRESS_QSGD, .bits = TRM_COMPRESS_4_BITS};
  run(2, 0, check_unbiased, &two);
  run(2, 0, check_unbiased, &four);
}

/* -- bytes */

/* What this rank sends in a sum of one slice of n trained elements, by the guide's table. */
static uint64_t bytes_of(const struct setup *c, const struct trm_comm *comm, uint64_t step, size_t low, size_t n)
{
  const uint64_t others = (uint64_t)comm->size - 1, rank = (uint64_t)comm->rank, size = others + 1;
  const uint64_t blocks = (n + 511) / 512;
  /* a reduce-scatter and an all-gather of so many elements */
#define BOTH(count) ((count) - PIECE(count) + others * PIECE(count))
#define PIECE(count) ((count) * (rank + 1) / size - (count) * rank / size)
  uint64_t p = 0, q = 0;
  switch (c->compress) {
  case TRM_COMPRESS_BF16:
  case TRM_COMPRESS_FP16:
    return 2 * BOTH(n);
  case TRM_COMPRESS_DGC:
    return others * 8 * reference_count(step < c->warmup ? pow(0.25, (double)(step * 4 / c->warmup) + 1) : c->ratio, n);
  case TRM_COMPRESS_TOPK:
    return others * 8 * reference_count(c->ratio, n);
  case TRM_COMPRESS_SIGN:
    return others * blocks * (4 + 64);
  case TRM_COMPRESS_QSGD:
    return others * blocks * (4 + 64 * (uint64_t)(2 << (int)c->bits));
  default:
    for (size_t t = 0, begin = 0; t < 3; begin = tensors[t++].end) {
      const size_t from = begin > low ? begin : low, to = tensors[t].end < low + n ? tensors[t].end : low + n;
      const struct piece whole = whole_rows(t, begin, from, to);
      const size_t columns = tensors[t].columns, rows = (whole.high - whole.low) / columns;
      p += (from < to ? to - from - rows * columns : 0) + rows * (uint64_t)c->rank;
      q += rows ? columns * (uint64_t)c->rank : 0;
    }
    return 4 * (BOTH(p) + BOTH(q));
  }
}

static int check_bytes(struct trm_comm *comm, void *context)
{
  const struct setup *c = context;
  struct node *node = node_make(comm, c);
  uint64_t bytes = 0;
  for (uint64_t step = 0; step < 3; step++) {
    node_sum(node);
    for (int i = 0; i < SLICES; i++) {
      const size_t low = i ? ends[i - 1] : 0, end = ends[i] < TRAINED ? ends[i] : TRAINED;
      bytes += bytes_of(c, comm, step, low, end - low);
    }
    bytes += (uint64_t)(comm->size - 1) * STATISTICS * 4;
  }
  CU_ASSERT_EQUAL(node->strategy.wire.bytes, bytes);
  node_free(node);
  return TRM_OK;
}

static void test_bytes(void)
{
  static const struct setup setups[] = {
    {.compress = TRM_COMPRESS_BF16},
    {.compress = TRM_COMPRESS_FP16},
    {.compress = TRM_COMPRESS_TOPK, .ratio = 0.01},
    {.compress = TRM_COMPRESS_DGC, .ratio = 0.001, .warmup = 8},
    {.compress = TRM_COMPRESS_SIGN},
    {.compress = TRM_COMPRESS_QSGD, .bits = TRM_COMPRESS_2_BITS},
    {.compress = TRM_COMPRESS_QSGD, .bits = TRM_COMPRESS_8_BITS},
    {.compress = TRM_COMPRESS_POWERSGD, .rank = 2},
  };
  for (size_t i = 0; i < sizeof setups / sizeof *setups; i++)
    for (int ranks = 1; ranks <= 5; ranks += 2)
      run(ranks, 0, check_bytes, &setups[i]);
}

/* -- selection and conversions */

static void test_select(void)
{
  enum { LARGE = 100000 };
  float *x = trm_alloc(LARGE * sizeof *x, "test");
  uint32_t *scratch = trm_alloc(LARGE * sizeof *scratch, "test");
  struct sparse_element *found = trm_alloc(LARGE * sizeof *found, "test");
  static const size_t counts[] = {0, 1, 2, 100, 1000, 33333, LARGE};
  for (int kind = 0; kind < 4; kind++) {
    for (size_t i = 0; i < LARGE; i++) {
      const float normal = trm_random_normal(5, TRM_RANDOM_BENCH, 0, i);
      x[i] = kind == 0 ? normal : kind == 1 ? (float)(i % 3) - 1 : kind == 2 ? 0 : i % 16 ? 1e-20f * normal : normal;
    }
    for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
      sparse_select(x, LARGE, counts[k], scratch, found);
      float smallest = INFINITY;
      size_t wrong = 0, above = 0, equal = 0, equal_found = 0;
      for (size_t i = 0; i < counts[k]; i++) {
        wrong += (i && found[i].index <= found[i - 1].index) || found[i].value != x[found[i].index];
        smallest = fminf(smallest, fabsf(found[i].value));
      }
      /* all that are larger are among them, and of those that are equal the first */
      for (size_t i = 0; i < counts[k]; i++)
        equal_found += fabsf(found[i].value) == smallest;
      for (size_t i = 0, at = 0; i < LARGE; i++) {
        const bool is_found = at < counts[k] && found[at].index == i;
        above += fabsf(x[i]) > smallest;
        if (fabsf(x[i]) == smallest)
          wrong += is_found != (equal++ < equal_found);
        at += is_found;
      }
      CU_ASSERT_EQUAL(wrong, 0);
      CU_ASSERT_TRUE(counts[k] == 0 || above + equal_found == counts[k]);
    }
  }
  trm_free(x);
  trm_free(scratch);
  trm_free(found);
  CU_ASSERT_EQUAL(sparse_count(0.01, 1000), 10);
  CU_ASSERT_EQUAL(sparse_count(0.01, 1001), 11);
  CU_ASSERT_EQUAL(sparse_count(0.01, 0), 0);
  CU_ASSERT_EQUAL(sparse_count(1, 7), 7);
}

static void test_float16(void)
{
  size_t wrong = 0;
  for (uint32_t h = 0; h < 65536; h++) { /* every value, and the ties between it and the next one */
    const float value = trm_f16_value((trm_f16)h), next = trm_f16_value((trm_f16)(h + 1));
    const uint32_t exponent = h >> 10 & 31;
    if (exponent == 31) {
      wrong += (h & 1023) ? !isnan(value) || !isnan(trm_f16_value(trm_f16_round(value))) : trm_f16_round(value) != h;
      continue;
    }
    const double size = exponent ? ldexp(1024 + (h & 1023), (int)exponent - 25) : ldexp(h & 1023, -24);
    wrong += (double)value != (h >> 15 ? -size : size) || trm_f16_round(value) != h;
    if ((h & 0x7fff) == 0x7bff)
      continue;
    const float middle = (value + next) / 2, below = nextafterf(middle, value), above = nextafterf(middle, next);
    wrong += trm_f16_round(middle) != (h & 1 ? h + 1 : h) || trm_f16_round(below) != h || trm_f16_round(above) != h + 1;
  }
  CU_ASSERT_EQUAL(wrong, 0);
  CU_ASSERT_EQUAL(trm_f16_round(65519.99f), 0x7bff);
  CU_ASSERT_EQUAL(trm_f16_round(65520), 0x7c00);
  CU_ASSERT_EQUAL(trm_f16_round(-1e30f), 0xfc00);
}

/* -- without error feedback */

/* Gradient descent on sum over nodes of |w - target of the node|^2 / 2: returns the distance from the mean target. */
struct descent {
  struct setup setup;
  double distance;
};

static int check_descent(struct trm_comm *comm, void *context)
{
  struct descent *d = context;
  struct node *node = node_make(comm, &d->setup);
  double *w = trm_alloc(TRAINED * sizeof *w, "test");
  for (int step = 0; step < 300; step++) {
    for (size_t i = 0; i < TRAINED; i++)
      node->data[i] = (float)(w[i] - (double)gradient(0, comm->rank, i)) / (float)comm->size;
    node_sum(node);
    for (size_t i = 0; i < TRAINED; i++)
      w[i] -= 0.05 * (double)node->data[i];
  }
  double square = 0;
  for (size_t i = 0; i < TRAINED; i++) {
    double mean = 0;
    for (int rank = 0; rank < comm->size; rank++)
      mean += (double)gradient(0, rank, i) / comm->size;
    square += (w[i] - mean) * (w[i] - mean);
  }
  if (comm->rank == 0)
    d->distance = sqrt(square / TRAINED);
  trm_free(w);
  node_free(node);
  return TRM_OK;
}

/* Nodes whose targets differ: where the sum of the gradients is 0, theirs are not, and what sign and top-k leave of
 * them is a bias, which error feedback takes away. Elements of the mean target are 0.2 in the root of their mean
 * square. */
static void test_descent(void)
{
  static const struct setup setups[] = {{.compress = TRM_COMPRESS_SIGN}, {.compress = TRM_COMPRESS_TOPK, .ratio = 0.1}};
  for (size_t i = 0; i < sizeof setups / sizeof *setups; i++) {
    struct descent with = {setups[i], 0}, without = {setups[i], 0};
    without.setup.no_feedback = true;
    run(4, 0, check_descent, &with);
    run(4, 0, check_descent, &without);
    printf("\n    compressor %d: %.4f, without error feedback %.4f\n", (int)setups[i].compress, with.distance,
           without.distance);
    CU_ASSERT_TRUE(with.distance < 0.02);
    CU_ASSERT_TRUE(without.distance > 3 * with.distance);
  }
}

int main(void)
{
  CU_TestInfo tests[] = {
    {"rules", test_rules},
    {"error feedback: what is not sent is kept", test_feedback},
    {"values that a compressor represents", test_exact},
    {"matrices of low rank", test_low_rank},
    {"qsgd is unbiased", test_unbiased},
    {"bytes", test_bytes},
    {"the largest elements", test_select},
    {"float16", test_float16},
    {"descent without error feedback", test_descent},
    CU_TEST_INFO_NULL,
  };
  trm_log_set_quiet(true);
  if (trm_device_open(&cpu, "cpu", "auto", TRM_MATMUL_F32, 0, 1) != TRM_OK) {
    trm_log_error();
    return 99;
  }
  const int failed = suite_run("compress", tests);
  trm_device_close(&cpu);
  return failed;
}
