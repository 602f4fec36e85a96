/* trireme bench allreduce */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/bench/bench.h"
#include "core/memory.h"
#include "core/status.h"

static const char usage[] =
  "usage: mpiexec -n N trireme bench allreduce [--repeat=R] [--threads=T] [--json]\n"
  "\n"
  "Seconds of one sum over all ranks, 4 KiB to 64 MiB of float32. Medians of the slowest rank's time after a\n"
  "barrier:\n"
  "\n"
  "  allreduce  the communicator's all-reduce, in place\n"
  "  tree       the fixed binary tree, whose bits do not depend on the library\n"
  "  shared     arrays in memory shared by the node: barrier, each rank adds its slice, barrier\n"
  "\n"
  "  --repeat=R    rounds (default: 5 for the largest to 300 for the smallest)\n"
  "  --threads=T   threads of a rank, for shared (default: the node's cores divided by its ranks)\n"
  "  --json        a JSON object for each size\n";

#define MAX_BYTES ((size_t)64 << 20)

enum method { COMM_ALLREDUCE, TREE, SHARED, METHODS };
static const char *const names[METHODS] = {"allreduce", "tree", "shared"};

struct reduction {
  struct trm_job *job;
  struct trm_comm *comm, *node;
  float *data;                       /* (n) host */
  struct trm_shared inputs, sum;      /* of the node: an array of each rank; their sum, in rank 0's part */
  const float **from;                /* (node->size) */
  bool can_share;                       /* the job is on one node */
  int64_t repeat;                       /* --repeat; 0: by size */
  bool json;
};
#define AT(field) offsetof(struct reduction, field)
static const struct trm_option flags[] = {{"repeat", TRM_OPTION_INT, AT(repeat), NULL, RANGE(1, 100000)},
                                          {"json", TRM_OPTION_BOOL, AT(json), NULL, NO_RANGE},
                                          END_OF_FLAGS};

static void bench_allreduce_run_shared(struct reduction *r, size_t n)
{
  struct trm_device *device = &r->job->device;
  size_t low, high;
  trm_interval(n, (size_t)r->node->size, (size_t)r->node->rank, &low, &high);
  for (int i = 0; i < r->node->size; i++)
    r->from[i] = (const float *)r->inputs.base[i] + low;
  r->node->ops->barrier(r->node);
  device->ops->sum(device, &(struct trm_sum){
    .to = (float *)r->sum.base[0] + low, .from = r->from, .count = r->node->size, .n = high - low});
  device->ops->sync(device); /* only the CPU device shares memory, and its sums record no failure */
  r->node->ops->barrier(r->node);
}

static void bench_allreduce_run_once(struct reduction *r, enum method method, size_t n)
{
  if (method == COMM_ALLREDUCE)
    r->comm->ops->allreduce(r->comm, r->data, n, TRM_FLOAT, TRM_SUM);
  else if (method == TREE)
    r->comm->ops->allreduce(r->comm, r->data, n, TRM_FLOAT, TRM_TREE_SUM);
  else
    bench_allreduce_run_shared(r, n);
}

/* Fills the input of rank r with r + 1, so that the sum is known. */
static void bench_allreduce_fill_input(struct reduction *r, enum method method, size_t n)
{
  float *to = method == SHARED ? r->inputs.local : r->data;
  for (size_t i = 0; i < n; i++)
    to[i] = (float)(r->comm->rank + 1);
}

static int bench_allreduce_verify(const struct reduction *r, enum method method, size_t n)
{
  const float *sum = method == SHARED ? r->sum.base[0] : r->data;
  const float expected = (float)r->comm->size * (float)(r->comm->size + 1) / 2;
  for (size_t i = 0; i < n; i++)
    if (sum[i] != expected)
      return trm_error(TRM_FAILED, "bench allreduce: %s of %zu floats: element %zu is %g, must be %g", names[method], n,
                       i, (double)sum[i], (double)expected);
  return TRM_OK;
}

static int bench_allreduce_measure(struct reduction *r, enum method method, size_t n, size_t rounds, double *seconds,
                                   double *median)
{
  *median = NAN;
  if (method == SHARED && !r->can_share)
    return TRM_OK;
  bench_allreduce_fill_input(r, method, n);
  r->comm->ops->barrier(r->comm);
  bench_allreduce_run_once(r, method, n);
  TRM_CHECK(trm_agree(r->comm, bench_allreduce_verify(r, method, n)));
  if (method != SHARED)
    memset(r->data, 0, n * sizeof *r->data); /* repeated sums would overflow */
  for (size_t k = 0; k < rounds; k++) {
    r->comm->ops->barrier(r->comm);
    const double begin = r->comm->ops->clock(r->comm);
    bench_allreduce_run_once(r, method, n);
    seconds[k] = r->comm->ops->clock(r->comm) - begin;
  }
  bench_slowest(r->comm, seconds, rounds);
  *median = bench_median(seconds, rounds);
  return TRM_OK;
}

static void bench_allreduce_print_row(const struct reduction *r, size_t bytes, const double *median)
{
  const struct figure row[] = {
    figure_number("bytes", "%9.0f KiB", (double)bytes, 1.0 / 1024),
    figure_number("ranks", NULL, r->comm->size, 1),
    figure_number("threads", NULL, r->job->device.threads, 1),
    figure_number("allreduce_s", "  %11.4f", median[COMM_ALLREDUCE], 1e3),
    figure_number("tree_s", "  %11.4f", median[TREE], 1e3),
    figure_number("shared_s", "  %11.4f", median[SHARED], 1e3),
  };
  bench_print_row("allreduce", r->json, row, sizeof row / sizeof *row);
}

static int bench_allreduce_open(struct reduction *r)
{
  r->data = trm_alloc(MAX_BYTES, "bench: an array");
  r->node = r->comm->ops->split_node(r->comm, TRM_SHARE_NODE);
  r->can_share = r->node->size == r->comm->size && r->job->device.host_memory;
  r->from = trm_alloc((size_t)r->node->size * sizeof *r->from, "bench: addresses");
  if (!r->can_share)
    return TRM_OK;
  TRM_CHECK(r->node->ops->share(r->node, MAX_BYTES, TRM_MEMORY_BUFFERS, &r->inputs));
  return r->node->ops->share(r->node, r->node->rank == 0 ? MAX_BYTES : 0, TRM_MEMORY_BUFFERS, &r->sum);
}

static void bench_allreduce_close(struct reduction *r)
{
  if (r->sum.base)
    r->node->ops->unshare(r->node, &r->sum);
  if (r->inputs.base)
    r->node->ops->unshare(r->node, &r->inputs);
  r->node->ops->release(r->node);
  trm_free(r->from);
  trm_free(r->data);
}

static int bench_allreduce_run_sizes(struct reduction *r)
{
  const size_t repeat = (size_t)r->repeat, max_rounds = repeat > 300 ? repeat : 300;
  double *seconds = trm_alloc(max_rounds * sizeof *seconds, "bench: times");
  if (r->comm->rank == 0 && !r->json)
    printf("%d ranks, medians in ms\n%13s  %11s  %11s  %11s\n", r->comm->size, "size", names[0], names[1], names[2]);
  int status = TRM_OK;
  for (size_t bytes = 4096; bytes <= MAX_BYTES && status == TRM_OK; bytes *= 4) {
    const size_t fitting = ((size_t)1 << 27) / bytes;
    const size_t rounds = repeat ? repeat : fitting < 5 ? 5 : fitting > 300 ? 300 : fitting;
    double median[METHODS];
    for (int m = 0; m < METHODS && status == TRM_OK; m++)
      status = bench_allreduce_measure(r, (enum method)m, bytes / sizeof(float), rounds, seconds, &median[m]);
    if (status == TRM_OK && r->comm->rank == 0)
      bench_allreduce_print_row(r, bytes, median);
  }
  trm_free(seconds);
  return status;
}

static int bench_allreduce_run(const struct call *call)
{
  struct reduction *r = call->values;
  r->job = call->job;
  r->comm = call->job->modules.comm;
  int status = trm_agree(r->comm, bench_allreduce_open(r));
  if (status == TRM_OK)
    status = bench_allreduce_run_sizes(r);
  bench_allreduce_close(r);
  return status;
}

const struct command bench_allreduce = {
  .name = "bench allreduce", .help = "sums over the ranks: the MPI library's, the fixed tree, in shared memory",
  .usage = usage, .flags = flags, .bytes = sizeof(struct reduction),
  .job = JOB_OF_RANKS, .threads = true, .run = bench_allreduce_run,
};
