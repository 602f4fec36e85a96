/* Initial weights from a file (model.init): of another program, or a checkpoint. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/memory.h"
#include "core/signature.h"
#include "core/status.h"
#include "nn/param_load.h"
#include "train/checkpoint_files.h"
#include "train/trainer.h"

int trm_checkpoint_find(const char *path, char **file)
{
  static const char *const name[] = {"checkpoints/best.h5", "checkpoints/last.h5"};
  struct stat is;
  *file = NULL;
  if (stat(path, &is) != 0)
    return trm_error(TRM_FAILED, "%s: %s", path, strerror(errno));
  if (!S_ISDIR(is.st_mode)) {
    *file = trm_strdup(path);
    return TRM_OK;
  }
  for (int i = 0; i < 2; i++) {
    *file = trm_format("%s/%s", path, name[i]);
    if (access(*file, R_OK) == 0)
      return TRM_OK;
    trm_free(*file);
    *file = NULL;
  }
  const struct trm_checkpoint_files files = {.run = path};
  uint64_t step;
  bool any;
  TRM_CHECK(trm_checkpoint_files_newest_step(&files, &step, &any));
  if (any) {
    *file = trm_checkpoint_files_path(&files, step);
    return TRM_OK;
  }
  return trm_error(TRM_USAGE, "%s: a directory without %s or %s: name a run directory or a checkpoint file", path,
                   name[0], name[1]);
}

/* Returns true if the path is a directory or ends in .h5. */
static bool initial_is_checkpoint(const char *path)
{
  const size_t length = strlen(path);
  struct stat is;
  return (length > 3 && strcmp(path + length - 3, ".h5") == 0) || (stat(path, &is) == 0 && S_ISDIR(is.st_mode));
}

/* Copies parameter `number` of the model `from` to its place in the other model. */
static int initial_copy_parameter(struct trm_param_load *load, const struct trm_model *from, const char *name,
                                  int number, const float *values, float *w)
{
  const struct trm_parameter *stored = trm_model_parameter(from, number), *here;
  int place;
  bool reads;
  TRM_CHECK(trm_param_load_find(load, name, &place));
  if (place < 0)
    return TRM_OK;
  here = trm_model_parameter(load->model, place);
  bool same = stored->shape.dims == here->shape.dims;
  for (int d = 0; same && d < here->shape.dims; d++)
    same = stored->shape.size[d] == here->shape.size[d];
  TRM_CHECK(trm_param_load_take(load, place, name, same, trm_shape_text(&stored->shape), trm_shape_text(&here->shape),
                                &reads));
  if (reads)
    memcpy(w + here->offset, values + stored->offset, here->count * sizeof *w);
  return TRM_OK;
}

/* Loads from a checkpoint, whose model may be another one, by the names of the parameters. */
static int initial_load_checkpoint(const struct trm_checkpoint_ops *ops, struct trm_param_load *load, float *w)
{
  struct trm_checkpoint checkpoint = {0};
  struct trm_model from;
  struct trm_param_names names;
  TRM_CHECK(signature_verify(load->path));
  int status = ops->read_head(load->path, &checkpoint);
  if (status == TRM_OK)
    status = trm_model_create(&from, checkpoint.model_text, checkpoint.loss_name, &checkpoint.spec);
  if (status == TRM_OK) {
    status = ops->read_arrays(load->path, &checkpoint, &from, false);
    trm_param_names_create(&names, &from);
    for (int n = 0; n < trm_model_parameter_count(&from) && status == TRM_OK; n++)
      status = initial_copy_parameter(load, &from, names.name[n].text, n, checkpoint.state[0], w);
    trm_param_names_free(&names);
    trm_model_free(&from);
  }
  trm_checkpoint_free(&checkpoint);
  return status == TRM_OK ? trm_param_load_end(load) : status;
}

/* Rank 0: loads, and logs what. */
static int initial_load(const struct trainer *t, const struct trm_pattern *skip, float *w, bool *loaded)
{
  const struct trm_modules *modules = t->modules;
  const bool is_checkpoint = initial_is_checkpoint(t->options->model_init);
  struct trm_param_load load;
  char *path = NULL;
  if (is_checkpoint)
    TRM_CHECK(trm_checkpoint_find(t->options->model_init, &path));
  trm_param_load_create(&load, path ? path : t->options->model_init, &t->full_model, skip);
  const int status =
    is_checkpoint ? initial_load_checkpoint(modules->checkpoint, &load, w) : modules->weights_load(&load, w);
  if (status == TRM_OK) {
    trm_param_load_log(&load);
    memcpy(loaded, load.loaded, (size_t)trm_model_parameter_count(&t->full_model) * sizeof *loaded);
  }
  trm_param_load_free(&load);
  trm_free(path);
  return status;
}

int trainer_load_initial_weights(struct trainer *t, struct trainer_initial *initial)
{
  const size_t count = (size_t)trm_model_parameter_count(&t->full_model);
  struct trm_pattern *skip = NULL;
  *initial = (struct trainer_initial){0};
  if (t->options->model_init[0] == '\0' && t->options->model_skip[0] != '\0')
    return trm_error(TRM_USAGE, "model.skip: names parameters that model.init does not load, and there is none");
  if (t->options->model_init[0] == '\0')
    return TRM_OK;
  TRM_CHECK(trm_pattern_create(&skip, "model.skip", t->options->model_skip));
  initial->w = trm_alloc(t->full_model.parameters * sizeof *initial->w, "initial weights");
  initial->loaded = trm_alloc(count * sizeof *initial->loaded, "names");
  const int status =
    trm_agree(t->comm, t->comm->rank == 0 ? initial_load(t, skip, initial->w, initial->loaded) : TRM_OK);
  trm_pattern_free(skip);
  if (status != TRM_OK) {
    trainer_free_initial_weights(initial);
    return status;
  }
  t->comm->ops->broadcast(t->comm, initial->w, t->full_model.parameters, TRM_FLOAT, 0);
  t->comm->ops->broadcast(t->comm, initial->loaded, count * sizeof *initial->loaded, TRM_BYTE, 0);
  return TRM_OK;
}

void trainer_free_initial_weights(struct trainer_initial *initial)
{
  trm_free(initial->w);
  trm_free(initial->loaded);
  *initial = (struct trainer_initial){0};
}
