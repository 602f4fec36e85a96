#ifdef HAVE_CONFIG_H
#include <config.h>
#endif
#define _GNU_SOURCE
#include "job/job.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"
#include "datasets/datasets.h"
#include "exchange/exchange.h"
#include "kernels/kernels.h"
#include "mpi/grid.h"
#include "mpi/pipeline/pipeline.h"
#include "mpi/real.h"
#include "mpi/strategies.h"
#include "mpi/virtual.h"

/* Threads of this rank: as requested, else OMP_NUM_THREADS, else the cores that it may use, divided among the ranks of
 * its node that may use the same ones. *oversubscribed: the node has fewer cores than threads. Collective over node. */
static int job_choose_threads(struct trm_comm *node, int requested, bool *oversubscribed)
{
  cpu_set_t mine;
  CPU_ZERO(&mine);
  if (sched_getaffinity(0, sizeof mine, &mine) != 0)
    CPU_SET(0, &mine);
  cpu_set_t *all = trm_alloc((size_t)node->size * sizeof *all, "processor sets");
  node->ops->allgather(node, &mine, all, sizeof mine, TRM_BYTE);
  cpu_set_t any = mine;
  int sharing = 0;
  for (int i = 0; i < node->size; i++) {
    sharing += CPU_EQUAL(&all[i], &mine);
    CPU_OR(&any, &any, &all[i]);
  }
  trm_free(all);

  const char *openmp = getenv("OMP_NUM_THREADS");
  int threads = requested;
  if (threads == 0 && openmp)
    threads = atoi(openmp);
  if (threads <= 0)
    threads = CPU_COUNT(&mine) / sharing;
  if (threads < 1)
    threads = 1;

  int64_t busy = threads;
  node->ops->allreduce(node, &busy, 1, TRM_INT64, TRM_SUM);
  *oversubscribed = busy > CPU_COUNT(&any);
  if (*oversubscribed && node->rank == 0)
    trm_warn("parallel.threads: %d ranks of this node have %lld threads in all for %d cores, so that they slow one "
             "another down: use fewer threads or ranks, or another binding",
             node->size, (long long)busy, CPU_COUNT(&any));
  return threads;
}

static int job_open_device(struct trm_job *job)
{
  struct trm_comm *comm = job->modules.comm;
  struct trm_comm *node = comm->ops->split_node(comm, TRM_SHARE_NODE);
  bool oversubscribed;
  const int threads = job_choose_threads(node, (int)job->options.parallel.threads, &oversubscribed);
  const int index = node->rank;
  node->ops->release(node);
  int32_t any_oversubscribed = oversubscribed;
  comm->ops->allreduce(comm, &any_oversubscribed, 1, TRM_INT32, TRM_MAX);
  if (any_oversubscribed)
    trm_comm_set_oversubscribed();
  TRM_CHECK(trm_device_open(&job->device, job->options.device.name, job->options.device.blas,
                            job->options.device.matmul, index, threads));
  job->modules.device = &job->device;
  return TRM_OK;
}

void trm_job_init(struct trm_job *job)
{
  memset(job, 0, sizeof *job);
  trm_options_default(&job->options);
}

static bool job_is_virtual(const struct trm_job *job)
{
  return !job->serial && job->options.simulate.workers > 0;
}

int trm_job_open(struct trm_job *job, int status)
{
  struct trm_modules *modules = &job->modules;
  modules->comm = trm_comm_self();
  if (job_is_virtual(job)) {
    trm_hdf5_init();
    TRM_CHECK(status);
    TRM_CHECK(trm_launch_require_single("a run with simulate.workers"));
  } else if (!job->serial) {
    trm_hdf5_init();
    TRM_CHECK(trm_comm_start(NULL, NULL, job->options.run.singletons, &modules->comm));
    trm_log_set_rank(modules->comm->rank, modules->comm->size);
  }
  TRM_CHECK(trm_agree(modules->comm, status));
  trm_log_set_quiet(job->options.log.quiet);
  modules->strategy = trm_strategy_find(job->options.strategy.name);
  modules->dataset = &trm_dataset_hdf5;
  modules->checkpoint = &trm_checkpoint_hdf5;
  modules->weights_read = trm_safetensors_read;
  status = !modules->strategy ? TRM_USAGE : job_is_virtual(job) ? TRM_OK : job_open_device(job);
  return trm_agree(modules->comm, status);
}

static int job_train_rank(const struct trm_options *options, struct trm_modules modules, struct trm_result *result)
{
  struct trm_grid grid;
  TRM_CHECK(trm_grid_create(&grid, options, modules.comm));
  trm_grid_announce(&grid);
  modules.grid = &grid;
  modules.pipeline = &trm_pipeline_messages;
  const int status = trm_train(options, &modules, result);
  trm_grid_free(&grid);
  return status;
}

/* -- on the virtual network */

struct job_run {
  const struct trm_job *job;
  struct trm_result *result; /* of rank 0 */
};

/* One rank, with a device of its own: it computes in one thread at a time. */
static int job_train_virtual_rank(struct trm_comm *world, void *context)
{
  const struct job_run *run = context;
  const struct trm_options *options = &run->job->options;
  struct trm_modules modules = run->job->modules;
  struct trm_device device;
  struct trm_result result = *run->result;
  trm_log_set_quiet(options->log.quiet);
  const struct trm_device_options *o = &options->device;
  int status = trm_agree(world, trm_device_open(&device, o->name, o->blas, o->matmul, 0, 1));
  modules.comm = world;
  modules.device = &device;
  if (status == TRM_OK)
    status = job_train_rank(options, modules, &result);
  if (world->rank == 0)
    *run->result = result;
  trm_device_close(&device);
  return status;
}

static int job_train_virtual(struct trm_job *job, struct trm_result *result)
{
  const struct trm_simulate_options *o = &job->options.simulate;
  const int64_t nodes = o->nodes > 0 ? o->nodes : o->workers;
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (sched_getaffinity(0, sizeof cores, &cores) != 0)
    CPU_SET(0, &cores);
  if (o->workers % nodes != 0)
    return trm_error(TRM_USAGE, "simulate.nodes: %lld workers cannot be divided among %lld nodes",
                     (long long)o->workers, (long long)nodes);
  const struct trm_virtual_plan plan = {
    .ranks = (int)o->workers,
    .ranks_per_node = (int)(o->workers / nodes),
    .latency = o->latency,
    .bandwidth = o->bandwidth,
    .service = o->service,
    .service_per_byte = o->service_bandwidth > 0 ? 1 / o->service_bandwidth : 0,
    .threads = o->threads > 0 ? (int)o->threads : CPU_COUNT(&cores),
    .schedule = (uint64_t)o->schedule,
  };
  struct job_run run = {job, result};
  *result = (struct trm_result){.status = "failed"};
  return trm_virtual_run(&plan, job_train_virtual_rank, &run, NULL);
}

int trm_job_train(struct trm_job *job, struct trm_result *result)
{
  return job_is_virtual(job) ? job_train_virtual(job, result) : job_train_rank(&job->options, job->modules, result);
}

void trm_job_close(struct trm_job *job)
{
  if (job->modules.device)
    trm_device_close(&job->device);
  if (!job->serial && job->modules.comm && job->modules.comm != trm_comm_self())
    trm_comm_stop(job->modules.comm);
  trm_options_free(&job->options);
  memset(job, 0, sizeof *job);
}
