#include "job/job.h"

#include <stdlib.h>
#include <string.h>

#include "core/context.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/private_files.h"
#include "core/security.h"
#include "core/signature.h"
#include "core/status.h"
#include "datasets/datasets.h"
#include "exchange/exchange.h"
#include "job/watchdog.h"
#include "kernels/kernels.h"
#include "mpi/coll/choices.h"
#include "mpi/grid.h"
#include "mpi/network.h"
#include "mpi/pipeline/pipeline.h"
#include "mpi/real.h"
#include "mpi/strategies.h"

static int job_open_device(struct trm_job *job)
{
  struct trm_comm *comm = job->modules.comm;
  struct trm_comm *node = comm->ops->split_node(comm, TRM_SHARE_NODE);
  trm_cores_choose(&job->cores, node, (int)job->options.parallel.threads);
  trm_rank_current()->threads = job->cores.threads;
  const int index = node->rank;
  node->ops->release(node);
  int32_t any_oversubscribed = job->cores.oversubscribed;
  comm->ops->allreduce(comm, &any_oversubscribed, 1, TRM_INT32, TRM_MAX);
  if (any_oversubscribed)
    trm_comm_set_oversubscribed();
  TRM_CHECK(trm_device_open(&job->device, job->options.device.name, job->options.device.blas,
                            job->options.device.matmul, index, job->cores.threads));
  job->device.graphs = job->options.device.graphs;
  job->modules.device = &job->device;
  if (!job->device.host_memory)
    trm_info("device: %s", job->device.ops->name);
  return TRM_OK;
}

void trm_job_init(struct trm_job *job)
{
  memset(job, 0, sizeof *job);
  trm_options_default(&job->options);
}

/* True for options of a rank: a job of unlike ranks has several commands. */
static bool job_may_differ(const struct trm_option *row)
{
  return strncmp(row->name, "device.", 7) == 0 || strcmp(row->name, "parallel.threads") == 0;
}

/* Appends "NAME: VALUE\n". */
static void job_append_option(char **text, const struct trm_options *options, const struct trm_option *row)
{
  char *value = trm_options_value_text(options, row);
  trm_append(text, "%s: %s\n", row->name, value);
  free(value);
}

/* Compares the options of this rank with rank 0's text of them. */
static int job_compare_options(const struct trm_options *options, const char *text)
{
  for (const struct trm_option *row = trm_option_table; row->name; row++) {
    char *mine = NULL;
    if (job_may_differ(row))
      continue;
    job_append_option(&mine, options, row);
    const size_t length = strlen(mine);
    const bool same = strncmp(mine, text, length) == 0;
    if (!same)
      trm_error(TRM_USAGE, "%.*s on rank %d, and rank 0 has %.*s: only device.* and parallel.threads may differ "
                "between the ranks of a job", (int)length - 1, mine, trm_log_rank(), (int)strcspn(text, "\n"), text);
    trm_free(mine);
    if (!same)
      return TRM_USAGE;
    text += length;
  }
  return TRM_OK;
}

/* Several commands may start the ranks of a job (mpiexec A : B); their options must be one run's. Collective. */
static int job_check_options(const struct trm_options *options, struct trm_comm *comm)
{
  char *text = NULL;
  int64_t bytes;
  if (comm->size == 1)
    return TRM_OK;
  for (const struct trm_option *row = trm_option_table; row->name && comm->rank == 0; row++)
    if (!job_may_differ(row))
      job_append_option(&text, options, row);
  bytes = text ? (int64_t)strlen(text) + 1 : 0;
  comm->ops->broadcast(comm, &bytes, 1, TRM_INT64, 0);
  if (comm->rank > 0)
    text = trm_alloc((size_t)bytes, "options of rank 0");
  comm->ops->broadcast(comm, text, (size_t)bytes, TRM_BYTE, 0);
  const int status = job_compare_options(options, text);
  trm_free(text);
  return trm_agree(comm, status);
}

/* Reads the algorithms of collectives. Collective. */
static int job_set_collectives(struct trm_job *job)
{
  const char *path = job->options.parallel.collectives;
  if (path[0] == '\0')
    return TRM_OK;
  job->collectives = trm_alloc(sizeof *job->collectives, "choices of collectives");
  TRM_CHECK(coll_choices_read_together(job->collectives, path, job->modules.comm));
  trm_comm_set_collectives(job->modules.comm, job->collectives);
  return TRM_OK;
}

static void job_free_collectives(struct trm_job *job)
{
  if (job->collectives)
    coll_choices_free(job->collectives);
  trm_free(job->collectives);
}

static int job_set_keys(const struct trm_options *options)
{
  TRM_CHECK(security_set_key(options->security.key));
  TRM_CHECK(signature_set_signing_key(options->run.sign));
  return signature_set_verification_key(options->run.verify_with);
}

static void job_list_libraries(struct trm_job *job)
{
  trm_hdf5_version(job->hdf5_version);
  job->libraries[0] = (struct trm_library){"mpi", trm_comm_library()};
  job->libraries[1] = (struct trm_library){"hdf5", job->hdf5_version};
  if (trm_convolution_library())
    job->libraries[2] = (struct trm_library){"convolution", trm_convolution_library()};
  job->modules.libraries = job->libraries;
}

int trm_job_open(struct trm_job *job, int status)
{
  struct trm_modules *modules = &job->modules;
  const bool is_virtual = job->options.simulate.workers > 0;
  const struct trm_network *network = trm_network_find(job->serial ? "self" : is_virtual ? "virtual" : "mpi");
  if (!job->serial)
    trm_hdf5_init();
  TRM_CHECK(network->start(&job->options, &modules->comm));
  job->network = network;
  TRM_CHECK(trm_agree(modules->comm, status));
  TRM_CHECK(trm_agree(modules->comm, job_set_keys(&job->options)));
  if (!network->in_one_process)
    TRM_CHECK(job_check_options(&job->options, modules->comm));
  if (job->options.run.encrypt && network->encrypt)
    TRM_CHECK(network->encrypt(modules->comm));
  if (!job->serial && !is_virtual)
    TRM_CHECK(job_set_collectives(job));
  trm_log_set_quiet(job->options.log.quiet);
  modules->strategy = trm_strategy_find(job->options.strategy.name);
  modules->dataset = &trm_dataset_hdf5;
  modules->checkpoint = &trm_checkpoint_hdf5;
  modules->weights_load = trm_safetensors_load;
  job_list_libraries(job);
  status = !modules->strategy ? TRM_USAGE : network->in_one_process ? TRM_OK : job_open_device(job);
  return trm_agree(modules->comm, status);
}

struct job_training {
  const struct trm_job *job;
  struct trm_result *result; /* of the first rank of this process */
};

static int job_train_on_grid(const struct trm_options *options, struct trm_modules modules, struct trm_result *result)
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

static int job_train_rank(struct trm_comm *comm, void *context)
{
  const struct job_training *training = context;
  const struct trm_options *options = &training->job->options;
  struct trm_modules modules = training->job->modules;
  struct trm_watchdog *watchdog;
  modules.comm = comm;
  trm_watchdog_start(&watchdog, options, comm);
  const int status = job_train_on_grid(options, modules, training->result);
  trm_watchdog_stop(&watchdog);
  return status;
}

/* One rank of several in this process, with a device of its own: it computes in one thread at a time. */
static int job_train_virtual_rank(struct trm_comm *comm, void *context)
{
  const struct job_training *training = context;
  const struct trm_options *options = &training->job->options;
  struct trm_modules modules = training->job->modules;
  struct trm_device device;
  struct trm_result result = *training->result;
  trm_log_set_quiet(options->log.quiet);
  const struct trm_device_options *o = &options->device;
  int status = trm_agree(comm, trm_device_open(&device, o->name, o->blas, o->matmul, 0, 1));
  modules.comm = comm;
  modules.device = &device;
  if (status == TRM_OK)
    status = job_train_on_grid(options, modules, &result);
  if (comm->rank == 0)
    *training->result = result;
  trm_device_close(&device);
  return status;
}

int trm_job_train(struct trm_job *job, struct trm_result *result)
{
  const struct trm_network *network = job->network;
  struct job_training training = {job, result};
  *result = (struct trm_result){.status = "failed"};
  if (job->options.strategy.servers == 0) /* all ranks do the same */
    trm_cores_bind(&job->cores);
  const unsigned mask = trm_private_files_begin(job->options.run.group[0] != '\0');
  const int status = network->run(&job->options, job->modules.comm,
                                  network->in_one_process ? job_train_virtual_rank : job_train_rank, &training);
  trm_private_files_end(mask);
  return status;
}

void trm_job_close(struct trm_job *job)
{
  if (job->modules.device)
    trm_device_close(&job->device);
  security_clear();
  signature_clear();
  if (job->network)
    job->network->stop(job->modules.comm);
  job_free_collectives(job);
  trm_options_free(&job->options);
  memset(job, 0, sizeof *job);
}
