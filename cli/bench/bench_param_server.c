/* trireme bench service: a worker's waiting time for the parameter server, compared alternately with one-sided
 * operations on as many bytes. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bench/bench.h"
#include "core/memory.h"
#include "core/status.h"
#include "mpi/async/param_server.h"

static const char usage[] =
  "usage: mpiexec -n 2 trireme bench service [--bytes=4194304] [--rounds=R] [--json]\n"
  "\n"
  "Rank 0 sends a gradient of N bytes to the parameter server, which applies plain SGD, and gets the new\n"
  "weights back; rank 1 owns them. In turns with that, as many bytes are put twice (a get is atomic, and slower).\n"
  "Medians.\n"
  "\n"
  "  shared  the ranks share memory: the worker makes the update itself; beside copies to and from shared memory\n"
  "  server  rank 1 does nothing but serve; beside puts into a window whose owner waits\n"
  "  thread  rank 1 computes, and a thread of it serves; beside the same puts\n"
  "\n"
  "  --bytes=N   size of the model\n"
  "  --rounds=R  rounds (default 21)\n"
  "  --json      a JSON object for each mode\n";

enum server_mode { SHARED, SERVER, THREAD, MODES };
static const char *const mode_name[MODES] = {"shared", "server", "thread"};

struct bench {
  struct trm_comm *comm, *node; /* node: ranks that share memory */
  struct trm_device *device;
  int64_t bytes, rounds; /* --bytes, --rounds */
  bool json;
  size_t elements;
  struct param_server *server;
  struct trm_window *window; /* for plain operations of modes server and thread */
  struct trm_shared shared;  /* for those of mode shared */
  float *g, *w;              /* (elements) of the worker */
  double *exchange_s, *plain_s; /* (rounds) */
};
#define AT(field) offsetof(struct bench, field)
static const struct trm_option flags[] = {{"bytes", TRM_OPTION_INT, AT(bytes), "4194304", RANGE(4, 1e10)},
                                          {"rounds", TRM_OPTION_INT, AT(rounds), "21", RANGE(1, 100000)},
                                          {"json", TRM_OPTION_BOOL, AT(json), NULL, NO_RANGE},
                                          END_OF_FLAGS};

static bool bench_ps_apply_sgd(void *context, const struct server_chunk *chunk, struct server_call *call)
{
  struct bench *b = context;
  const struct trm_update sgd = {.rule = TRM_UPDATE_SGD, .rate = 0.1f, .scale = 1};
  b->device->ops->update(b->device, &(struct trm_update_arrays){
    .update = sgd, .w = server_array(chunk, 0), .g = call->in, .n = chunk->n});
  memcpy(call->out, server_array(chunk, 0), chunk->n * sizeof(float));
  return true;
}

/* Runs the rounds of rank 0, the worker. The first one is not counted. */
static void bench_ps_call_and_copy(struct bench *b, enum server_mode mode)
{
  const struct server_request push = {.replica = mode == THREAD ? 1 : 0, .in = b->g, .out = b->w};
  const size_t bytes = b->elements * sizeof(float);
  for (int64_t i = 0; i <= b->rounds; i++) {
    const double begin = b->comm->ops->clock(b->comm);
    param_server_exchange(b->server, &push);
    const double middle = b->comm->ops->clock(b->comm);
    if (mode == SHARED) {
      memcpy(b->shared.base[1], b->g, bytes);
      memcpy(b->w, b->shared.base[1], bytes);
    } else {
      for (int put = 0; put < 2; put++) {
        b->comm->ops->put(b->window, b->g, bytes, 1, 0);
        b->comm->ops->flush(b->window, 1);
      }
    }
    const double end = b->comm->ops->clock(b->comm);
    if (i > 0) {
      b->exchange_s[i - 1] = middle - begin;
      b->plain_s[i - 1] = end - middle;
    }
  }
}

/* Serves as rank 1 until rank 0 has finished. */
static void bench_ps_serve(struct bench *b, enum server_mode mode, struct trm_request **done)
{
  volatile float x = 1;
  if (mode == SERVER)
    param_server_serve(b->server, 1, NULL, NULL);
  while (!b->comm->ops->test(done)) {
    for (int i = 0; mode == THREAD && i < 1000000; i++)
      x = x * 0.999f + 0.5f;
    if (mode != THREAD)
      b->comm->ops->progress(b->comm);
  }
}

static int bench_ps_open(struct bench *b, enum server_mode mode)
{
  const size_t bytes = b->elements * sizeof(float);
  b->node = mode == THREAD ? b->comm->ops->split(b->comm, b->comm->rank, 0)
                           : b->comm->ops->split_node(b->comm, TRM_SHARE_NODE);
  if (mode == SHARED && b->node->size < b->comm->size)
    return TRM_STOPPED; /* the ranks share no memory: skipped */
  const struct server_plan plan = {
    .comm = b->comm, .node = b->node, .elements = b->elements, .replicas = mode == THREAD ? 2 : 1, .arrays = 1,
    .servers = mode == SERVER ? 1 : 0, .handler = bench_ps_apply_sgd, .context = b,
  };
  TRM_CHECK(param_server_create(&b->server, &plan));
  void *base;
  if (mode == SHARED)
    return trm_agree(b->comm, b->node->ops->share(b->node, bytes, TRM_MEMORY_BUFFERS, &b->shared));
  return b->comm->ops->window_create(b->comm, bytes, TRM_BYTE, "bench: plain operations", &b->window, &base);
}

static void bench_ps_close(struct bench *b)
{
  param_server_free(b->server);
  b->server = NULL;
  if (b->shared.base)
    b->node->ops->unshare(b->node, &b->shared);
  if (b->window)
    b->comm->ops->window_free(&b->window);
  b->comm->ops->release(b->node);
}

static void bench_ps_print(const struct bench *b, enum server_mode mode, double took, double plain)
{
  const double bytes = (double)b->elements * sizeof(float), gb = 2e-9 * bytes;
  const struct figure row[] = {
    figure_text("way", "%-8s", mode_name[mode]),
    figure_number("bytes", NULL, bytes, 1),
    figure_number("rounds", NULL, (double)b->rounds, 1),
    figure_number("exchange_s", " %12.0f", took, 1e6),
    figure_number("plain_s", " %12.0f", plain, 1e6),
    figure_number(NULL, " %10.2f", gb / took, 1),
    figure_number(NULL, " %10.2f", gb / plain, 1),
    figure_number("part_of_plain", " %8.2f", plain / took, 1),
  };
  bench_print_row("service", b->json, row, sizeof row / sizeof *row);
}

static int bench_ps_measure_mode(struct bench *b, enum server_mode mode)
{
  int status = bench_ps_open(b, mode);
  if (status == TRM_OK) {
    int32_t one = 1;
    struct trm_request *done;
    b->comm->ops->barrier(b->comm);
    if (b->comm->rank == 0) {
      bench_ps_call_and_copy(b, mode);
      param_server_finish(b->server);
    }
    b->comm->ops->allreduce_begin(b->comm, &one, 1, TRM_INT32, TRM_SUM, &done);
    bench_ps_serve(b, b->comm->rank == 1 ? mode : SHARED, &done);
    if (b->comm->rank == 0)
      bench_ps_print(b, mode, bench_median(b->exchange_s, (size_t)b->rounds),
                     bench_median(b->plain_s, (size_t)b->rounds));
  }
  bench_ps_close(b);
  return status == TRM_STOPPED ? TRM_OK : status;
}

static int bench_ps_run(const struct call *call)
{
  struct bench *b = call->values;
  b->comm = call->job->modules.comm;
  b->device = call->job->modules.device;
  b->elements = (size_t)b->bytes / sizeof(float);
  if (b->comm->size != 2)
    return trm_error(TRM_USAGE, "bench service: wants two ranks, one to call and one to keep: mpiexec -n 2 trireme "
                     "bench service");
  b->g = trm_alloc(2 * b->elements * sizeof *b->g, "bench: a gradient and weights");
  b->w = b->g + b->elements;
  b->exchange_s = trm_alloc(2 * (size_t)b->rounds * sizeof *b->exchange_s, "bench: times");
  b->plain_s = b->exchange_s + b->rounds;
  if (b->comm->rank == 0 && !b->json)
    printf("%zu bytes sent and %zu got, medians of %lld\n%-8s %12s %12s %10s %10s %8s\n", b->elements * sizeof(float),
           b->elements * sizeof(float), (long long)b->rounds, "way", "service us", "plain us", "GB/s", "plain", "part");
  int status = TRM_OK;
  for (int mode = 0; mode < MODES && status == TRM_OK; mode++)
    status = bench_ps_measure_mode(b, (enum server_mode)mode);
  trm_free(b->g);
  trm_free(b->exchange_s);
  return status;
}

const struct command bench_param_server = {
  .name = "bench service", .help = "the parameter server of asynchronous training, beside plain one-sided operations",
  .usage = usage, .flags = flags, .bytes = sizeof(struct bench),
  .job = JOB_OF_RANKS, .run = bench_ps_run,
};
