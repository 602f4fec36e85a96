/* A checkpoint made ready to answer, and the samples that it answers. */
#include "cli/loaded.h"

#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "exchange/exchange.h"

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

/* The samples are of the checkpoint's shape and classes, tokens of its vocabulary. */
static int samples_check(const struct loaded *loaded, const char *checkpoint_path, const struct trm_dataset *dataset)
{
  const struct trm_input_spec *wanted = &loaded->checkpoint.spec, *given = &dataset->spec;
  if (wanted->tokens != given->tokens || (wanted->tokens && wanted->shape.size[0] != given->shape.size[0]))
    return trm_error(TRM_USAGE, "%s was trained on %zu %s a sample; %s has samples of %zu %s (data.context)",
                     checkpoint_path, trm_shape_count(&wanted->shape), wanted->tokens ? "tokens" : "values",
                     dataset->path, trm_shape_count(&given->shape), given->tokens ? "tokens" : "values");
  if (trm_shape_count(&wanted->shape) != trm_shape_count(&given->shape) || wanted->sparse != given->sparse)
    return trm_error(TRM_USAGE, "%s was trained on %s samples of shape %s; %s has %s samples of shape %s",
                     checkpoint_path, wanted->sparse ? "sparse" : "dense", trm_shape_text(&wanted->shape),
                     dataset->path, given->sparse ? "sparse" : "dense", trm_shape_text(&given->shape));
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

/* The data set gives its rows in their own order and as they are. */
static int rows_plain(struct job *job)
{
  TRM_CHECK(trm_options_set(&job->options, "data.shuffle", "no"));
  TRM_CHECK(trm_options_set(&job->options, "data.pad", "0"));
  return trm_options_set(&job->options, "data.flip", "no");
}

static int open_split(struct loaded *loaded, struct job *job, const char *path, const char *split)
{
  const struct trm_options *o = &job->options;
  const enum trm_split which = strcmp(split, "test") == 0 ? TRM_SPLIT_TEST : TRM_SPLIT_TRAIN;
  TRM_CHECK(rows_plain(job));
  TRM_CHECK(loaded_open(loaded, job, path, (size_t)o->train.batch));
  TRM_CHECK(job->parts.dataset->open(&loaded->dataset, o->data.file, which, o, job->parts.comm));
  return samples_check(loaded, path, loaded->dataset);
}

int loaded_open_split(struct loaded *loaded, struct job *job, const char *command, const char *path, const char *split)
{
  memset(loaded, 0, sizeof *loaded);
  if (!path)
    return trm_error(TRM_USAGE, "%s: no checkpoint named; trireme %s --help tells the usage", command, command);
  if (job->options.data.file[0] == '\0')
    return trm_error(TRM_USAGE, "%s: data.file: no data set named", command);
  if (strcmp(split, "test") != 0 && strcmp(split, "train") != 0)
    return trm_error(TRM_USAGE, "%s: --split: \"%s\" is neither \"test\" nor \"train\"", command, split);
  return open_split(loaded, job, path, split);
}

void loaded_close(struct loaded *loaded, struct job *job)
{
  if (loaded->dataset)
    loaded->dataset->ops->close(loaded->dataset);
  trm_model_free(&loaded->model);
  if (loaded->w)
    job->device.ops->release(&job->device, loaded->w);
  trm_checkpoint_free(&loaded->checkpoint);
}
