/* trireme bench allreduce */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/bench/bench_collective.h"
#include "cli/bench/bench_shared.h"
#include "core/memory.h"
#include "core/parallel.h"
#include "core/status.h"

static const char usage[] =
  "usage: mpiexec -n N trireme bench allreduce [--min=BYTES] [--max=BYTES] [--repeat=R] [--json]\n"
  "       mpiexec -n N trireme bench allreduce --tune [--out=FILE] [--max=BYTES] [--repeat=R]\n"
  "\n"
  "Seconds of one sum over all ranks, 4 KiB to 256 MiB of float32, in arrays that are in no cache and change every\n"
  "round. Medians and quartiles of the slowest rank's time after a barrier:\n"
  "\n"
  "  library  the MPI library's all-reduce\n"
  "  ring, .. the algorithms of Trireme over messages (mpi/README.md)\n"
  "  shared   arrays in memory shared by the node: barrier, each rank adds its slice and sums it over the nodes,\n"
  "           barrier; on one node beside the time that memory takes for its bytes: of N ranks N + 2 floats an\n"
  "           element (N are read, the sum is written, and read before that into a cache), at the rate of all ranks\n"
  "           together in v += g / 2\n"
  "\n"
  "--tune measures all collectives, over all ranks, over those of a node and over one rank of each node, and writes\n"
  "which algorithm is the fastest to a file for parallel.collectives.\n"
  "\n"
  "  --min=BYTES   smallest array (default 4K); the next one is four times as large\n"
  "  --max=BYTES   largest array (default 256M)\n"
  "  --pool=BYTES  arrays of a rank together (default: larger than the last-level cache)\n"
  "  --repeat=R    rounds (default: by time)\n"
  "  --threads=T   threads of a rank, for shared (default: the node's cores divided by its ranks)\n"
  "  --out=FILE    of --tune (default collectives.json)\n"
  "  --json        a JSON object for each size and row\n";

#define MAX_TUNED_BYTES ((size_t)64 << 20)
enum { MAX_ROUNDS = 300 };

struct reduction {
  int64_t repeat, min_bytes, max_bytes, pool_bytes; /* the flags */
  bool json, tune;
  const char *out;
  struct trm_job *job;
  struct trm_comm *comm;
  struct bench_pool pool;
  struct bench_shared shared;
  bool can_share, on_one_node; /* the ranks of a node; all ranks */
  double memory_bytes_per_s;   /* of all ranks together */
  double seconds[MAX_ROUNDS];
};
#define AT(field) offsetof(struct reduction, field)
static const struct trm_option flags[] = {{"repeat", TRM_OPTION_INT, AT(repeat), NULL, RANGE(1, MAX_ROUNDS)},
                                          {"min", TRM_OPTION_BYTES, AT(min_bytes), "4K", RANGE(4096, 0x1p36)},
                                          {"max", TRM_OPTION_BYTES, AT(max_bytes), "256M", RANGE(4096, 0x1p36)},
                                          {"pool", TRM_OPTION_BYTES, AT(pool_bytes), NULL, RANGE(8192, 0x1p40)},
                                          {"tune", TRM_OPTION_BOOL, AT(tune), NULL, NO_RANGE},
                                          {"out", TRM_OPTION_TEXT, AT(out), "collectives.json", NO_RANGE},
                                          {"json", TRM_OPTION_BOOL, AT(json), NULL, NO_RANGE},
                                          END_OF_FLAGS};

static void bench_allreduce_memory_body(const void *context, size_t low, size_t high)
{
  const struct reduction *r = context;
  float *restrict v = (float *)r->pool.data;
  const float *restrict g = v + r->pool.bytes / 2 / sizeof(float);
#pragma omp simd
  for (size_t i = low; i < high; i++)
    v[i] += 0.5f * g[i];
}

/* Reads two arrays and writes one of them, 3 floats an element, on all ranks at a time. */
static double bench_allreduce_memory_rate(struct reduction *r)
{
  enum { ROUNDS = 5 };
  const size_t n = r->pool.bytes / 2 / sizeof(float);
  double seconds[ROUNDS], floats = 3.0 * (double)n;
  bench_pool_fill(&r->pool, 0);
  for (int k = 0; k < ROUNDS; k++) {
    r->comm->ops->barrier(r->comm);
    const double begin = r->comm->ops->clock(r->comm);
    trm_parallel_for(r->job->device.threads, n, bench_allreduce_memory_body, r);
    seconds[k] = r->comm->ops->clock(r->comm) - begin;
  }
  bench_slowest(r->comm, seconds, ROUNDS);
  return floats * sizeof(float) * r->comm->size / bench_median(seconds, ROUNDS);
}

/* -- the rows */

static void bench_allreduce_print_row(struct reduction *r, const char *name, size_t bytes, size_t rounds)
{
  const bool is_bounded = strcmp(name, "shared") == 0 && r->on_one_node;
  const struct bench_spread s = bench_spread(r->seconds, rounds);
  const double bound = is_bounded ? (r->comm->size + 2) * (double)bytes / r->memory_bytes_per_s : NAN;
  const struct figure row[] = {
    figure_number("bytes", "%9.0f KiB", (double)bytes, 1.0 / 1024),
    figure_text("method", "  %-10s", name),
    figure_number("ranks", NULL, r->comm->size, 1),
    figure_number("threads", NULL, r->job->device.threads, 1),
    figure_number("rounds", NULL, (double)rounds, 1),
    figure_number("median_s", "  %10.4f", s.median, 1e3),
    figure_number("low_s", "  %10.4f", s.low, 1e3),
    figure_number("high_s", "  %10.4f", s.high, 1e3),
    figure_number(is_bounded ? "bound_s" : NULL, NULL, bound, 1),
    figure_number(is_bounded ? "memory_gb_per_s" : NULL, NULL, 1e-9 * r->memory_bytes_per_s, 1),
    figure_number(NULL, is_bounded ? "  %8.0f %%" : NULL, bound / s.median, 100),
  };
  bench_print_row("allreduce", r->json, row, sizeof row / sizeof *row);
}

static int bench_allreduce_run_size(struct reduction *r, size_t bytes)
{
  for (int row = -1; row < 0 || coll_table[row].name; row++) {
    const struct coll_ops *ops = row < 0 ? NULL : &coll_table[row];
    struct bench_collective c = {.world = r->comm, .comm = r->comm, .pool = &r->pool, .kind = COLL_ALLREDUCE,
                                 .ops = ops, .bytes = bytes, .rounds = (size_t)r->repeat, .max_rounds = MAX_ROUNDS,
                                 .seconds = r->seconds};
    if (ops && ops->kind != COLL_ALLREDUCE)
      continue;
    TRM_CHECK(bench_collective_run(&c));
    if (r->comm->rank == 0)
      bench_allreduce_print_row(r, coll_name(ops), bytes, c.measured);
  }
  size_t rounds;
  if (!r->can_share)
    return TRM_OK;
  TRM_CHECK(bench_shared_run(&r->shared, bytes, (size_t)r->repeat, MAX_ROUNDS, r->seconds, &rounds));
  if (r->comm->rank == 0)
    bench_allreduce_print_row(r, "shared", bytes, rounds);
  return TRM_OK;
}

static int bench_allreduce_run_sizes(struct reduction *r)
{
  r->memory_bytes_per_s = bench_allreduce_memory_rate(r);
  if (r->comm->rank == 0 && !r->json)
    printf("%d ranks, %.1f GB/s of memory, all together; ms, and the bound of memory in percent of them\n"
           "%13s  %-10s  %10s  %10s  %10s\n", r->comm->size, 1e-9 * r->memory_bytes_per_s, "size", "", "median",
           "25 %", "75 %");
  for (size_t bytes = (size_t)r->min_bytes; bytes <= (size_t)r->max_bytes; bytes *= 4)
    TRM_CHECK(bench_allreduce_run_size(r, bytes));
  return TRM_OK;
}

/* -- opening and closing */

static int bench_allreduce_open(struct reduction *r)
{
  struct trm_comm *node = r->comm->ops->split_node(r->comm, TRM_SHARE_NODE);
  const size_t max_bytes = (size_t)r->max_bytes;
  int32_t ranks = node->size; /* of the largest node: pools are equal on all ranks */
  r->on_one_node = node->size == r->comm->size;
  node->ops->release(node);
  r->comm->ops->allreduce(r->comm, &ranks, 1, TRM_INT32, TRM_MAX);
  r->pool.bytes = r->pool_bytes ? (size_t)r->pool_bytes : bench_pool_bytes(ranks, max_bytes);
  if (r->pool.bytes < 2 * max_bytes)
    r->pool.bytes = 2 * max_bytes;
  r->pool.data = trm_alloc(r->pool.bytes, "bench: arrays");
  int32_t host_memory = r->job->device.host_memory;
  r->comm->ops->allreduce(r->comm, &host_memory, 1, TRM_INT32, TRM_MIN);
  r->can_share = host_memory && !r->tune;
  return r->can_share ? bench_shared_open(&r->shared, &r->job->device, r->comm, r->pool.bytes, max_bytes) : TRM_OK;
}

static void bench_allreduce_close(struct reduction *r)
{
  bench_shared_close(&r->shared);
  trm_free(r->pool.data);
}

static int bench_allreduce_run(const struct call *call)
{
  struct reduction *r = call->values;
  r->job = call->job;
  r->comm = call->job->modules.comm;
  if (r->tune && r->comm->size < 2)
    return trm_error(TRM_USAGE, "bench allreduce: --tune needs two ranks or more (mpiexec -n 2 trireme ...)");
  if (r->tune && (size_t)r->max_bytes > MAX_TUNED_BYTES)
    r->max_bytes = MAX_TUNED_BYTES; /* the choice for larger arrays is the same */
  int status = trm_agree(r->comm, bench_allreduce_open(r));
  if (status == TRM_OK)
    status = r->tune ? bench_allreduce_tune(r->job, &r->pool, (size_t)r->max_bytes, (size_t)r->repeat, r->out)
                     : bench_allreduce_run_sizes(r);
  bench_allreduce_close(r);
  return status;
}

const struct command bench_allreduce = {
  .name = "bench allreduce", .help = "sums over the ranks: the MPI library's, those over messages, in shared memory",
  .usage = usage, .flags = flags, .bytes = sizeof(struct reduction),
  .job = JOB_OF_RANKS, .threads = true, .run = bench_allreduce_run,
};
