#ifdef HAVE_CONFIG_H
#include <config.h>
#endif
#define _GNU_SOURCE
#include "cli/job.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"
#include "datasets/datasets.h"
#include "exchange/exchange.h"
#include "kernels/kernels.h"
#include "mpi/real.h"
#include "mpi/strategies.h"

/* -- the command line */

static const struct flag no_flags[] = {{.name = NULL}};

/* The first word that is no flag: where a command takes a configuration file, that is it. */
static const char *job_first_arg(int argc, char **argv)
{
  for (int i = 1; i < argc; i++)
    if (argv[i][0] != '-')
      return argv[i];
  return NULL;
}

static int job_read_arguments(struct job *job, const struct job_request *request, int argc, char **argv, int *nargs,
                              bool *help_shown)
{
  const struct flags flags = {
    .command = request->command,
    .usage = request->usage,
    .table = request->flags ? request->flags : no_flags,
    .options = &job->options,
  };
  const char *config = request->config ? job_first_arg(argc, argv) : NULL;
  for (int i = 1; i < argc && config; i++) /* help comes before any file is missed */
    if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
      config = NULL;
  if (config)
    TRM_CHECK(trm_options_read(&job->options, config));
  TRM_CHECK(flags_read(&flags, argc, argv, nargs, help_shown));
  if (*nargs > request->nargs)
    return trm_error(TRM_USAGE, "%s: one argument too many: \"%s\" (options are written --section.key=value)",
                     request->command, argv[request->nargs]);
  return TRM_OK;
}

/* -- threads */

/* Processors this rank may use, shared evenly with the ranks of its node that may use the same ones. *crowded: the node
 * has fewer than threads. */
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
    trm_warn("%d ranks with %lld threads in all share %d cores of this node: expect them to wait for one another "
             "(parallel.threads, fewer ranks, or another binding)",
             node->size, (long long)busy, CPU_COUNT(&any));
  return threads;
}

/* -- the job */

static int job_open_device(struct job *job)
{
  struct trm_comm *comm = job->modules.comm;
  struct trm_comm *node = comm->ops->split_node(comm, "node");
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

int job_open(struct job *job, const struct job_request *request, int argc, char **argv, int *nargs, bool *help_shown)
{
  memset(job, 0, sizeof *job);
  *nargs = 0;
  *help_shown = false;
  trm_options_default(&job->options);
  int status = job_read_arguments(job, request, argc, argv, nargs, help_shown);
  if (status == TRM_OK && *help_shown)
    return TRM_OK;
  job->serial = request->serial;
  job->modules.comm = trm_comm_self();
  if (!request->serial) {
    struct trm_comm *world;
    trm_hdf5_init();
    TRM_CHECK(trm_comm_start(&argc, &argv, job->options.run.singletons, &world));
    job->modules.comm = world;
    trm_log_set_rank(world->rank, world->size);
  }
  /* the same words were read everywhere, but a file may be missing on one node */
  TRM_CHECK(trm_agree(job->modules.comm, status));
  trm_log_set_quiet(job->options.log.quiet);
  status = TRM_OK;
  job->modules.strategy = trm_strategy_find(job->options.strategy.name);
  if (!job->modules.strategy)
    status = TRM_USAGE;
  job->modules.dataset = &trm_dataset_hdf5;
  job->modules.checkpoint = &trm_checkpoint_hdf5;
  job->modules.weights_read = trm_safetensors_read;
  if (status == TRM_OK)
    status = job_open_device(job);
  return trm_agree(job->modules.comm, status);
}

void job_close(struct job *job)
{
  if (job->modules.device)
    trm_device_close(&job->device);
  if (!job->serial && job->modules.comm && job->modules.comm != trm_comm_self())
    trm_comm_stop(job->modules.comm);
  trm_options_free(&job->options);
  memset(job, 0, sizeof *job);
}
