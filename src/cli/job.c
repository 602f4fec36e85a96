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
static const char *first_word(int argc, char **argv)
{
  for (int i = 1; i < argc; i++)
    if (argv[i][0] != '-')
      return argv[i];
  return NULL;
}

static int read_arguments(struct job *job, const struct job_request *request, int argc, char **argv, int *words,
                          bool *helped)
{
  const struct flags flags = {
    .command = request->command,
    .usage = request->usage,
    .table = request->flags ? request->flags : no_flags,
    .options = &job->options,
  };
  const char *config = request->config ? first_word(argc, argv) : NULL;
  for (int i = 1; i < argc && config; i++) /* help comes before any file is missed */
    if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
      config = NULL;
  if (config)
    TRM_CHECK(trm_options_read(&job->options, config));
  TRM_CHECK(flags_read(&flags, argc, argv, words, helped));
  if (*words > request->places)
    return trm_error(TRM_USAGE, "%s: one argument too many: \"%s\" (options are written --section.key=value)",
                     request->command, argv[request->places]);
  return TRM_OK;
}

/* -- threads */

/* Processors this rank may use, shared evenly with the ranks of its node that may use the same ones. */
static int plan_threads(struct trm_comm *node, int asked)
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
  int threads = asked;
  if (threads == 0 && openmp)
    threads = atoi(openmp);
  if (threads <= 0)
    threads = CPU_COUNT(&mine) / sharing;
  if (threads < 1)
    threads = 1;

  int64_t busy = threads;
  node->ops->allreduce(node, &busy, 1, TRM_INT64, TRM_SUM);
  if (busy > CPU_COUNT(&any) && node->rank == 0)
    trm_warn("%d ranks with %lld threads in all share %d cores of this node: expect them to wait for one another "
             "(parallel.threads, fewer ranks, or another binding)",
             node->size, (long long)busy, CPU_COUNT(&any));
  return threads;
}

/* -- the job */

static int open_device(struct job *job)
{
  struct trm_comm *comm = job->parts.comm;
  struct trm_comm *node = comm->ops->split_node(comm, "node");
  const int threads = plan_threads(node, (int)job->options.parallel.threads);
  const int index = node->rank;
  node->ops->release(node);
  TRM_CHECK(trm_device_open(&job->device, job->options.device.name, job->options.device.blas,
                            job->options.device.matmul, index, threads));
  job->parts.device = &job->device;
  return TRM_OK;
}

int job_open(struct job *job, const struct job_request *request, int argc, char **argv, int *words, bool *helped)
{
  memset(job, 0, sizeof *job);
  *words = 0;
  *helped = false;
  trm_options_default(&job->options);
  int status = read_arguments(job, request, argc, argv, words, helped);
  if (status == TRM_OK && *helped)
    return TRM_OK;
  job->alone = request->alone;
  job->parts.comm = trm_comm_self();
  if (!request->alone) {
    struct trm_comm *world;
    trm_hdf5_begin();
    TRM_CHECK(trm_comm_start(&argc, &argv, job->options.run.singletons, &world));
    job->parts.comm = world;
    trm_log_identity(world->rank, world->size);
  }
  /* the same words were read everywhere, but a file may be missing on one node */
  TRM_CHECK(trm_agree(job->parts.comm, status));
  trm_log_quiet(job->options.log.quiet);
  status = TRM_OK;
  job->parts.strategy = trm_strategy_find(job->options.strategy.name);
  if (!job->parts.strategy)
    status = TRM_USAGE;
  job->parts.dataset = &trm_dataset_hdf5;
  job->parts.checkpoint = &trm_checkpoint_hdf5;
  job->parts.weights_read = trm_safetensors_read;
  if (status == TRM_OK)
    status = open_device(job);
  return trm_agree(job->parts.comm, status);
}

void job_close(struct job *job)
{
  if (job->parts.device)
    trm_device_close(&job->device);
  if (!job->alone && job->parts.comm && job->parts.comm != trm_comm_self())
    trm_comm_stop(job->parts.comm);
  trm_options_free(&job->options);
  memset(job, 0, sizeof *job);
}

int job_rows_plain(struct job *job)
{
  TRM_CHECK(trm_options_set(&job->options, "data.shuffle", "no"));
  TRM_CHECK(trm_options_set(&job->options, "data.pad", "0"));
  return trm_options_set(&job->options, "data.flip", "no");
}

/* -- a checkpoint that answers */

enum { TOKENS_AT_ONCE = 8192 };

/* Weights alone: --model tells what they are of, the data set what for. One row of it is enough to ask. */
static int weights_load(struct loaded *loaded, struct job *job, const char *path)
{
  struct trm_checkpoint *c = &loaded->checkpoint;
  const struct trm_options *o = &job->options;
  if (o->model[0] == '\0')
    return trm_error(TRM_USAGE, "%s holds weights alone: --model=... must say what they are of", path);
  if (o->data.file[0] == '\0')
    return trm_error(TRM_USAGE, "%s holds weights alone: --data.file=... must say what the samples are", path);
  struct trm_options one_row = *o;
  one_row.data.limit = 1;
  struct trm_dataset *dataset;
  TRM_CHECK(job->parts.dataset->open(&dataset, o->data.file, TRM_SPLIT_TRAIN, &one_row, trm_comm_self()));
  c->spec = dataset->spec;
  dataset->ops->close(dataset);
  c->model_text = trm_strdup(o->model);
  c->loss_name = trm_strdup(o->train.loss);
  TRM_CHECK(trm_model_create(&loaded->model, c->model_text, c->loss_name, &c->spec));
  c->states = 1;
  c->owns_states = true;
  c->state_name[0] = "weights";
  c->state[0] = trm_alloc(loaded->model.parameters * sizeof(float), "weights");
  return trm_safetensors_read(path, &loaded->model, c->state[0]);
}

static int checkpoint_load(struct loaded *loaded, struct job *job, const char *path)
{
  struct trm_checkpoint *c = &loaded->checkpoint;
  TRM_CHECK(job->parts.checkpoint->read_head(path, c));
  TRM_CHECK(trm_model_create(&loaded->model, c->model_text, c->loss_name, &c->spec));
  return job->parts.checkpoint->read_arrays(path, c, &loaded->model, false);
}

static bool is_safetensors(const char *path)
{
  static const char end[] = ".safetensors";
  const size_t length = strlen(path), tail = sizeof end - 1;
  return length > tail && strcmp(path + length - tail, end) == 0;
}

static int load(struct loaded *loaded, struct job *job, const char *path, size_t max_rows)
{
  struct trm_checkpoint *c = &loaded->checkpoint;
  struct trm_device *device = &job->device;
  TRM_CHECK(is_safetensors(path) ? weights_load(loaded, job, path) : checkpoint_load(loaded, job, path));
  const size_t bytes = loaded->model.parameters * sizeof(float);
  TRM_CHECK(device->ops->alloc(device, bytes, "weights", (void **)&loaded->w));
  device->ops->upload(device, loaded->w, c->state[0], bytes);
  if (c->spec.tokens) {
    const size_t context = c->spec.shape.size[0], most = TOKENS_AT_ONCE / context;
    if (max_rows > most)
      max_rows = most ? most : 1;
    if (job->options.data.context == 0)
      job->options.data.context = (int64_t)context;
  }
  return trm_model_bind(&loaded->model, device, loaded->w, NULL, max_rows, false);
}

int loaded_open(struct loaded *loaded, struct job *job, const char *path, size_t max_rows)
{
  memset(loaded, 0, sizeof *loaded);
  return trm_agree(job->parts.comm, load(loaded, job, path, max_rows));
}

void loaded_close(struct loaded *loaded, struct job *job)
{
  trm_model_free(&loaded->model);
  if (loaded->w)
    job->device.ops->release(&job->device, loaded->w);
  trm_checkpoint_free(&loaded->checkpoint);
}

int loaded_check(const struct loaded *loaded, const char *checkpoint_path, const struct trm_dataset *dataset)
{
  const struct trm_input_spec *wanted = &loaded->checkpoint.spec, *given = &dataset->spec;
  if (wanted->tokens != given->tokens || (wanted->tokens && wanted->shape.size[0] != given->shape.size[0]))
    return trm_error(TRM_USAGE, "%s was trained on %zu %s a sample; %s has samples of %zu %s (data.context)",
                     checkpoint_path, trm_shape_count(&wanted->shape), wanted->tokens ? "tokens" : "values",
                     dataset->path, trm_shape_count(&given->shape), given->tokens ? "tokens" : "values");
  if (trm_shape_count(&wanted->shape) != trm_shape_count(&given->shape) || wanted->sparse != given->sparse)
    return trm_error(TRM_USAGE, "%s was trained on %s samples of shape %s; %s has %s samples of shape %s", checkpoint_path,
                     wanted->sparse ? "sparse" : "dense", trm_shape_text(&wanted->shape), dataset->path,
                     given->sparse ? "sparse" : "dense", trm_shape_text(&given->shape));
  if (wanted->target != given->target || wanted->classes != given->classes)
    return trm_error(TRM_USAGE, "%s was trained for %zu %s; %s has %zu %s", checkpoint_path, wanted->classes,
                     wanted->target == TRM_TARGET_CLASS ? "classes" : "values a sample", dataset->path, given->classes,
                     given->target == TRM_TARGET_CLASS ? "classes" : "values a sample");
  char **const ours = loaded->checkpoint.class_names, **const theirs = dataset->class_names;
  for (size_t i = 0; wanted->tokens && ours && theirs && i < wanted->classes; i++)
    if (strcmp(ours[i], theirs[i]) != 0)
      return trm_error(TRM_USAGE, "%s was trained with another vocabulary than that of %s: token %zu is \"%s\" there, "
                       "\"%s\" here", checkpoint_path, dataset->path, i, ours[i], theirs[i]);
  return TRM_OK;
}
