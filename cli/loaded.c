#include "cli/loaded.h"

#include <string.h>
#include <unistd.h>

#include "core/document.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/signature.h"
#include "core/status.h"
#include "exchange/exchange.h"
#include "train/checkpoint_files.h"

enum { MAX_TOKENS = 8192 };

/* -- the file */

/* Sets options (a list that ends with NULL) as a run's configuration has them. */
static int loaded_adopt(struct trm_job *job, const struct trm_node *config, const char *const *names)
{
  for (; *names; names++) {
    const struct trm_node *node = trm_node_get(config, *names);
    if (node && node->text)
      TRM_CHECK(trm_options_set(&job->options, *names, node->text));
  }
  return TRM_OK;
}

/* Sets data.file from the configuration of a run, unless it was given. */
static int loaded_set_data_file(struct trm_job *job, const char *run)
{
  char *path = trm_format("%s/config.yaml", run);
  struct trm_node *config = NULL;
  int status = TRM_OK;
  if (job->options.data.file[0] == '\0' && access(path, R_OK) == 0)
    status = trm_document_read(path, &config);
  if (status == TRM_OK)
    status = loaded_adopt(job, config, (const char *const[]){"data.file", NULL});
  trm_node_free(config);
  trm_free(path);
  return status;
}

/* Finds the checkpoint of a run directory; any other path is a checkpoint. */
static int loaded_find_file(struct loaded *loaded, struct trm_job *job, const char *path)
{
  TRM_CHECK(trm_weights_check_format(path));
  TRM_CHECK(trm_checkpoint_find(path, &loaded->path));
  if (strcmp(loaded->path, path) == 0)
    return TRM_OK;
  trm_info("%s: the checkpoint is %s", path, loaded->path + strlen(path) + 1);
  return loaded_set_data_file(job, path);
}

/* Finds the file; one rank verifies its signature. Collective. */
static int loaded_find_verified(struct loaded *loaded, struct trm_job *job, const char *path)
{
  struct trm_comm *comm = job->modules.comm;
  TRM_CHECK(trm_agree(comm, loaded_find_file(loaded, job, path)));
  return trm_agree(comm, comm->rank == 0 ? signature_verify(loaded->path) : TRM_OK);
}

/* -- the model */

/* Reads a file of weights without a model: --model names it, the first row of data.file gives its shapes. */
static int loaded_read_weights(struct loaded *loaded, struct trm_job *job, const char *path)
{
  struct trm_checkpoint *c = &loaded->checkpoint;
  const struct trm_options *o = &job->options;
  if (o->model[0] == '\0')
    return trm_error(TRM_USAGE, "%s holds weights alone: --model=... must name their model", path);
  if (o->data.file[0] == '\0')
    return trm_error(TRM_USAGE, "%s holds weights alone: --data.file=... must name a data set with its samples' shape",
                     path);
  struct trm_options one_row = *o;
  one_row.data.limit = 1;
  struct trm_dataset *dataset;
  TRM_CHECK(job->modules.dataset->open(&dataset, o->data.file, TRM_SPLIT_TRAIN, &one_row, trm_comm_self()));
  c->spec = dataset->spec;
  dataset->ops->close(dataset);
  c->model_text = trm_strdup(o->model);
  c->loss_name = trm_strdup(trm_choice_text("train.loss", o->train.loss));
  TRM_CHECK(trm_model_create(&loaded->model, c->model_text, c->loss_name, &c->spec));
  c->states = 1;
  c->owns_states = true;
  c->state_name[0] = "weights";
  c->state[0] = trm_alloc(loaded->model.parameters * sizeof(float), "weights");
  return trm_safetensors_read(path, &loaded->model, c->state[0]);
}

/* Sets the options that determine the loss, beside its name, to the run's. */
static int loaded_adopt_loss(const struct loaded *loaded, struct trm_job *job)
{
  const char *config = loaded->checkpoint.config;
  struct trm_node *root;
  if (!config || config[0] == '\0')
    return TRM_OK;
  TRM_CHECK(trm_document_parse(config, strlen(config), loaded->path, &root));
  const int status = loaded_adopt(job, root, (const char *const[]){"train.huber_delta", NULL});
  trm_node_free(root);
  return status;
}

static int loaded_read_checkpoint(struct loaded *loaded, struct trm_job *job, const char *path)
{
  struct trm_checkpoint *c = &loaded->checkpoint;
  TRM_CHECK(job->modules.checkpoint->read_head(path, c));
  TRM_CHECK(loaded_adopt_loss(loaded, job));
  TRM_CHECK(trm_model_create(&loaded->model, c->model_text, c->loss_name, &c->spec));
  return job->modules.checkpoint->read_arrays(path, c, &loaded->model, false);
}

static bool loaded_is_safetensors(const char *path)
{
  static const char end[] = ".safetensors";
  const size_t length = strlen(path), tail = sizeof end - 1;
  return length > tail && strcmp(path + length - tail, end) == 0;
}

static int loaded_read(struct loaded *loaded, struct trm_job *job, size_t max_rows)
{
  const char *path = loaded->path;
  struct trm_checkpoint *c = &loaded->checkpoint;
  struct trm_device *device = loaded->device = &job->device;
  TRM_CHECK(loaded_is_safetensors(path) ? loaded_read_weights(loaded, job, path)
                                        : loaded_read_checkpoint(loaded, job, path));
  const size_t bytes = loaded->model.parameters * sizeof(float);
  TRM_CHECK(device->ops->alloc(device, bytes, TRM_MEMORY_WEIGHTS, (void **)&loaded->w));
  device->ops->upload(device, loaded->w, c->state[0], bytes);
  if (c->spec.tokens) {
    const size_t context = c->spec.shape.size[0], limit = MAX_TOKENS / context;
    if (max_rows > limit)
      max_rows = limit ? limit : 1;
    if (job->options.data.context == 0)
      job->options.data.context = (int64_t)context;
  }
  loaded->model.huber_delta = (float)job->options.train.huber_delta;
  TRM_CHECK(trm_model_set_values(&loaded->model, job->options.train.activations));
  return trm_model_bind(&loaded->model, device, loaded->w, NULL, max_rows, false);
}

int loaded_open(struct loaded *loaded, struct trm_job *job, const char *path, size_t max_rows)
{
  memset(loaded, 0, sizeof *loaded);
  TRM_CHECK(loaded_find_verified(loaded, job, path));
  return trm_agree(job->modules.comm, loaded_read(loaded, job, max_rows));
}

/* Refuses samples of another shape, other classes or another vocabulary than the checkpoint's. */
static int loaded_check_samples(const struct loaded *loaded, const char *path, const struct trm_dataset *dataset)
{
  const struct trm_input_spec *trained = &loaded->checkpoint.spec, *given = &dataset->spec;
  if (trained->tokens != given->tokens || (trained->tokens && trained->shape.size[0] != given->shape.size[0]))
    return trm_error(TRM_USAGE, "%s was trained on %zu %s a sample; %s has samples of %zu %s (data.context)", path,
                     trm_shape_count(&trained->shape), trained->tokens ? "tokens" : "values", dataset->path,
                     trm_shape_count(&given->shape), given->tokens ? "tokens" : "values");
  if (trm_shape_count(&trained->shape) != trm_shape_count(&given->shape) || trained->sparse != given->sparse)
    return trm_error(TRM_USAGE, "%s was trained on %s samples of shape %s; %s has %s samples of shape %s", path,
                     trained->sparse ? "sparse" : "dense", trm_shape_text(&trained->shape), dataset->path,
                     given->sparse ? "sparse" : "dense", trm_shape_text(&given->shape));
  if (trained->target != given->target || trained->classes != given->classes)
    return trm_error(TRM_USAGE, "%s was trained for %zu %s; %s has %zu %s", path, trained->classes,
                     trained->target == TRM_TARGET_CLASS ? "classes" : "values a sample", dataset->path, given->classes,
                     given->target == TRM_TARGET_CLASS ? "classes" : "values a sample");
  char **const trained_names = loaded->checkpoint.class_names, **const data_names = dataset->class_names;
  for (size_t i = 0; trained->tokens && trained_names && data_names && i < trained->classes; i++)
    if (strcmp(trained_names[i], data_names[i]) != 0)
      return trm_error(TRM_USAGE,
                       "%s was trained with another vocabulary than that of %s: token %zu is \"%s\" there, "
                       "\"%s\" here",
                       path, dataset->path, i, trained_names[i], data_names[i]);
  return TRM_OK;
}

/* Sets data.validation, unless given, and the options that determine its rows, to the run's. */
static int loaded_adopt_validation(const struct loaded *loaded, struct trm_job *job)
{
  static const char *const names[] = {"data.validation", "data.limit", "data.context", "data.stride", "run.seed", NULL};
  const char *config = loaded->checkpoint.config;
  struct trm_node *root;
  if (!config || config[0] == '\0' || strcmp(job->options.data.validation, "0") != 0)
    return TRM_OK;
  TRM_CHECK(trm_document_parse(config, strlen(config), loaded->path, &root));
  const int status = loaded_adopt(job, root, names);
  trm_node_free(root);
  return status;
}

/* *file: the file that the validation rows are in. */
static int loaded_find_validation(const struct loaded *loaded, struct trm_job *job, const char **file)
{
  TRM_CHECK(loaded_adopt_validation(loaded, job));
  TRM_CHECK(trm_agree(job->modules.comm, trm_validation_find(job->modules.dataset, &job->options, file)));
  if (*file)
    return TRM_OK;
  return trm_error(TRM_USAGE, "--split=validation: %s has no validation split, and the run of %s had none; set "
                   "data.validation", job->options.data.file, loaded->path);
}

int loaded_open_split(struct loaded *loaded, const struct call *call, enum trm_split split)
{
  struct trm_job *job = call->job;
  const struct trm_options *o = &job->options;
  memset(loaded, 0, sizeof *loaded);
  TRM_CHECK(loaded_find_verified(loaded, job, call->args[0]));
  if (o->data.file[0] == '\0')
    return trm_error(TRM_USAGE, "%s: data.file: no data set named", call->command->name);
  job->options.data.shuffle = job->options.data.flip = job->options.data.balance = false;
  job->options.data.pad = 0;
  job->options.data.crop = job->options.data.jitter = 0;
  TRM_CHECK(trm_agree(job->modules.comm, loaded_read(loaded, job, (size_t)o->train.batch)));
  const char *file = o->data.file;
  if (split == TRM_SPLIT_VALIDATION)
    TRM_CHECK(loaded_find_validation(loaded, job, &file));
  TRM_CHECK(job->modules.dataset->open(&loaded->dataset, file, split, o, job->modules.comm));
  return loaded_check_samples(loaded, loaded->path, loaded->dataset);
}

void loaded_close(struct loaded *loaded)
{
  if (loaded->dataset)
    loaded->dataset->ops->close(loaded->dataset);
  trm_model_free(&loaded->model);
  if (loaded->w)
    loaded->device->ops->release(loaded->device, loaded->w);
  trm_checkpoint_free(&loaded->checkpoint);
  trm_free(loaded->path);
}
