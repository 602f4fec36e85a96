/* Initial weights and resuming. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"
#include "train/local_state.h"
#include "train/memory_files.h"
#include "train/trainer.h"

void trm_checkpoint_free(struct trm_checkpoint *checkpoint)
{
  trm_free(checkpoint->model_text);
  trm_free(checkpoint->loss_name);
  trm_free(checkpoint->config);
  trm_free(checkpoint->record);
  trm_free(checkpoint->weights_sha256);
  trm_free(checkpoint->data_digest);
  trm_free(checkpoint->validation);
  trm_free(checkpoint->class_names);
  trm_free(checkpoint->undone);
  trm_encoding_free(&checkpoint->encoding);
  for (int i = 0; checkpoint->owns_states && i < checkpoint->states; i++)
    trm_free(checkpoint->state[i]);
  memset(checkpoint, 0, sizeof *checkpoint);
}

char *trainer_validation_text(const struct trainer *t)
{
  const struct trm_dataset *validation = t->splits.validation;
  double fraction;
  const char *file;
  if (!validation || trm_validation_option(t->options, &fraction, &file) != TRM_OK)
    return trm_strdup("none");
  if (fraction > 0)
    return trm_format("%g, %zu rows beside %zu", fraction, validation->rows, t->data->rows);
  return trm_strdup(validation->digest ? validation->digest : validation->path);
}

/* Sets the initial values of this rank's slice of a parameter: those that were loaded, or drawn ones. process: ranks of
 * this process that have the same slices, of which the first one draws. */
static void restart_init_parameter(const struct trainer *t, const struct trm_parameter *p,
                                   const struct trainer_initial *initial, struct trm_comm *process, float *to)
{
  if (!initial->w || !initial->loaded[p->number]) {
    if (process->rank == 0)
      trm_parameter_init(p, (uint64_t)t->options->run.seed, to);
    if (process->size > 1)
      process->ops->broadcast(process, to, p->count, TRM_FLOAT, 0);
    return;
  }
  const float *given = initial->w + trm_model_parameter(&t->full_model, p->number)->offset;
  for (size_t e = 0; e < p->count; e++)
    to[e] = given[trm_slice_full_index(&p->slice, e)];
}

static int restart_init_run(struct trainer *t)
{
  struct trainer_initial initial;
  TRM_CHECK(trainer_load_initial_weights(t, &initial));
  struct trm_model_restore restore;
  const int average = t->optimizer.ema > 0 ? t->optimizer.states : 0; /* begins as the weights */
  trm_model_restore_begin(&restore, &t->strategy, 1 + average);
  int status = TRM_OK;
  struct trm_comm *process = t->strategy.comm->ops->split_node(t->strategy.comm, TRM_SHARE_PROCESS);
  for (int n = 0; n < trm_model_parameter_count(&t->model); n++) {
    const struct trm_parameter *p = trm_model_parameter(&t->model, n);
    float *values = trm_alloc(p->count * sizeof *values, "initial weights");
    restart_init_parameter(t, p, &initial, process, values);
    if (status == TRM_OK)
      status = trm_model_restore_parameter(&restore, 0, p, values);
    if (status == TRM_OK && average)
      status = trm_model_restore_parameter(&restore, average, p, values);
    trm_free(values);
  }
  process->ops->release(process);
  trainer_free_initial_weights(&initial);
  return trm_model_restore_end(&restore, 0, trm_agree(t->comm, status));
}

/* Sets the position in the run from the checkpoint's head. TRM_USAGE: the head does not match the options. */
static int restart_read_position(struct trainer *t, const struct trm_checkpoint *c, const char *path)
{
  if (c->seed != (uint64_t)t->options->run.seed)
    return trm_error(TRM_USAGE, "run.seed: %s was made with run.seed=%llu, not %lld; the samples would differ", path,
                     (unsigned long long)c->seed, (long long)t->options->run.seed);
  if (strcmp(c->model_text, t->full_model.text) != 0)
    return trm_error(TRM_USAGE, "model: %s was made with \"%s\", not \"%s\"", path, c->model_text, t->full_model.text);
  if (c->data_digest && t->data->digest && strcmp(c->data_digest, t->data->digest) != 0)
    return trm_error(TRM_USAGE, "data.file: %s was made with another data set than %s (the digests differ)", path,
                     t->data->path);
  char *validation = trainer_validation_text(t);
  const bool same = strcmp(validation, c->validation ? c->validation : "none") == 0;
  trm_free(validation);
  if (!same)
    return trm_error(TRM_USAGE, "data.validation: %s was made with other validation rows (%s); resume with its "
                     "data.validation, data.limit, data.context and data.stride", path, c->validation);
  const bool own_batches = t->strategy.ops->next_batch && (t->strategy.ops->takes & TRM_TAKES_OWN_BATCHES);
  if (c->undones > 0 && !own_batches)
    return trm_error(TRM_USAGE, "strategy.name: %s is of an asynchronous run that was stopped when later batches were "
                     "done than others; %s computes batches in order", path, t->strategy.ops->name);
  if (c->undones > 0 && c->batch != (uint64_t)t->options->train.batch)
    return trm_error(TRM_USAGE, "train.batch: %s is of a run that was stopped when later batches were done than "
                     "others; resume with its train.batch=%llu", path, (unsigned long long)c->batch);
  if (c->position > 0 && c->position < t->data->rows && c->batch != (uint64_t)t->options->train.batch &&
      t->options->train.class_weights[0])
    return trm_error(TRM_USAGE, "train.class_weights: %s is in the middle of an epoch of batches of %llu; resume with "
                     "this train.batch", path, (unsigned long long)c->batch);
  if (c->batch != (uint64_t)t->options->train.batch)
    trm_info("train.batch: the run used batches of %llu before this checkpoint", (unsigned long long)c->batch);
  if (c->position > t->data->rows)
    return trm_error(TRM_USAGE, "%s: is %llu samples into an epoch, and %s has %zu training samples", path,
                     (unsigned long long)c->position, t->data->path, t->data->rows);
  t->epoch = c->epoch;
  t->position = c->position;
  t->samples = c->samples;
  if (trainer_epoch_done(t)) { /* a finished run, resumed for more epochs */
    t->epoch++;
    t->position = 0;
  }
  t->epoch_loss = c->epoch_loss;
  t->epoch_rows = c->epoch_rows;
  t->result->best_validation = (struct trm_score){c->best_loss, c->best_accuracy};
  t->result->best_step = c->best_updates;
  t->stale_evaluations = c->stale_evaluations;
  if (t->options->optim.schedule == TRM_LR_PLATEAU && c->plateau_factor > 0)
    t->plateau = (struct trm_plateau){c->plateau_factor, c->plateau_best, c->plateau_waited};
  t->wall_before = c->wall_s;
  t->train_before = c->train_s;
  return TRM_OK;
}

static int restart_missing_state(const struct trainer *t, const char *path, const char *state)
{
  const bool average = strcmp(state, "ema") == 0, feedback = strcmp(state, "last_step") == 0;
  return trm_error(TRM_USAGE, "%s: the checkpoint has no state \"%s\", which %s%s needs", path, state,
                   average ? "optim.ema" : feedback ? "parallel.error_feedback" : "optim.name=",
                   average || feedback ? "" : trm_choice_text("optim.name", t->options->optim.name));
}

/* Restores the strategy's arrays and local states from the checkpoint. Collective. */
static int restart_read_arrays(struct trainer *t, struct trm_checkpoint *c, const char *path)
{
  int status = TRM_OK;
  for (int i = 1; status == TRM_OK && i <= t->optimizer.states; i++)
    if (i >= c->states || strcmp(c->state_name[i], trm_optimizer_state_name(&t->optimizer, i - 1)) != 0)
      status = restart_missing_state(t, path, trm_optimizer_state_name(&t->optimizer, i - 1));
  if (c->states > 1 + t->optimizer.states)
    c->states = 1 + t->optimizer.states; /* the optimizer has no such states */
  struct trm_model_restore restore;
  trm_model_restore_begin(&restore, &t->strategy, c->states);
  if (status == TRM_OK)
    status = t->modules->checkpoint->read_model_part(path, c, &t->full_model, &t->model, trm_model_restore_parameter,
                                                     &restore);
  status = trm_agree(t->comm, status);
  if (status == TRM_OK)
    status =
      trm_local_state_restore(t->comm, t->modules->checkpoint, path, c->local_state_ranks, t->strategy.local_state,
                              t->strategy.local_states, &t->strategy.local_state_restored);
  t->strategy.undone = c->undone;
  t->strategy.undones = c->undones;
  status = trm_model_restore_end(&restore, c->updates, status);
  t->strategy.undone = NULL;
  t->strategy.undones = 0;
  return status;
}

static int restart_resume(struct trainer *t)
{
  const char *path = t->resume.path;
  struct trm_checkpoint *c = &t->resume.checkpoint;
  int status = trm_agree(t->comm, restart_read_position(t, c, path));
  if (status == TRM_OK)
    status = restart_read_arrays(t, c, path);
  if (status == TRM_OK && t->mode->resume)
    status = trm_agree(t->comm, t->mode->resume(t));
  if (status == TRM_OK) {
    t->saved_at = t->logged_step = c->updates;
    trm_info("resumed from %s: epoch %llu, step %llu", path, (unsigned long long)c->epoch + 1,
             (unsigned long long)c->updates);
  }
  return status;
}

/* Rank 0: sets *path to the checkpoint that run.resume names, NULL: none; it is verified. Caller frees. */
static int restart_choose_file(struct trainer *t, char **path)
{
  const char *named = t->options->run.resume;
  *path = NULL;
  if (strcmp(named, "auto") != 0) {
    *path = trm_strdup(named);
    return t->modules->checkpoint->verify(named);
  }
  TRM_CHECK(trm_checkpoint_files_newest(&t->files, t->modules->checkpoint, path));
  if (!*path)
    trm_info("run.resume=auto: no checkpoint in %s yet, starting from the initial weights", t->options->run.dir);
  return TRM_OK;
}

static int restart_read_head(struct trainer *t)
{
  const char *path = t->resume.path;
  TRM_CHECK(t->modules->checkpoint->read_head(path, &t->resume.checkpoint));
  if (!t->resume.checkpoint.weights_only)
    return TRM_OK;
  return trm_error(TRM_USAGE, "run.resume: %s has only the weights of an evaluation during asynchronous training; "
                   "resume from last.h5, or begin a new run with these weights by model.init", path);
}

/* Sets *text on every rank to rank 0's, which may be NULL. Owned by the caller. Collective. */
static void restart_broadcast_text(struct trainer *t, char **text)
{
  int32_t bytes = *text ? (int32_t)strlen(*text) + 1 : 0;
  t->comm->ops->broadcast(t->comm, &bytes, 1, TRM_INT32, 0);
  if (bytes > 0 && !*text)
    *text = trm_alloc((size_t)bytes, "a path");
  if (bytes > 0)
    t->comm->ops->broadcast(t->comm, *text, (size_t)bytes, TRM_BYTE, 0);
}

/* -- copies in memory */

void trainer_find_memory(struct trainer *t)
{
  const bool is_virtual = t->comm->ops->compute != NULL;
  trm_free(t->saves.memory);
  t->saves.memory = NULL;
  if (is_virtual)
    return;
  struct trm_comm *node = t->comm->ops->split_node(t->comm, TRM_SHARE_NODE);
  t->saves.node_first = t->comm->rank;
  node->ops->broadcast(node, &t->saves.node_first, sizeof t->saves.node_first, TRM_BYTE, 0);
  node->ops->release(node);
  if (t->comm->rank == 0)
    t->saves.memory = trm_memory_files_folder(TRM_MEMORY_ROOT, t->options->run.dir);
  restart_broadcast_text(t, &t->saves.memory);
}

void trainer_remove_memory(struct trainer *t, bool others)
{
  if (t->saves.memory && t->saves.node_first == t->comm->rank)
    trm_memory_files_remove(t->saves.memory, others);
}

/* Sets t->resume.path to a copy in memory that is no older than the newest checkpoint of the run directory, which is
 * then not read: where the file system is slow, or has lost a disk, this is faster. Collective. */
static int restart_find_copy(struct trainer *t)
{
  struct {
    uint64_t step;
    bool any;
  } newest = {0};
  uint64_t step;
  trainer_find_memory(t);
  if (!t->saves.memory)
    return TRM_OK;
  int status = TRM_OK;
  if (t->comm->rank == 0)
    status = trm_checkpoint_files_newest_step(&t->files, &newest.step, &newest.any);
  TRM_CHECK(trm_agree(t->comm, status));
  t->comm->ops->broadcast(t->comm, &newest, sizeof newest, TRM_BYTE, 0);
  const struct trm_checkpoint_files copies = {.run = t->saves.memory};
  if (trm_buddy_find(t->comm, t->saves.node_first, t->modules->checkpoint, copies.run, newest.step, &step)) {
    t->resume.from_memory = true;
    t->resume.path = trm_checkpoint_files_path(&copies, step);
    trm_info("run.resume=auto: the state of step %llu is in memory (run.buddy): the checkpoints in %s are not read",
             (unsigned long long)step, t->options->run.dir);
  }
  return TRM_OK;
}

int trainer_open_checkpoint(struct trainer *t)
{
  t->files.run = t->options->run.dir;
  if (t->options->run.resume[0] == '\0')
    return TRM_OK;
  if (strcmp(t->options->run.resume, "auto") == 0)
    TRM_CHECK(restart_find_copy(t));
  if (!t->resume.path) {
    TRM_CHECK(trm_agree(t->comm, t->comm->rank == 0 ? restart_choose_file(t, &t->resume.path) : TRM_OK));
    restart_broadcast_text(t, &t->resume.path); /* all ranks read the same file */
  }
  return t->resume.path ? trm_agree(t->comm, restart_read_head(t)) : TRM_OK;
}

void trainer_close_checkpoint(struct trainer *t)
{
  trm_checkpoint_free(&t->resume.checkpoint);
  trm_free(t->resume.path);
  t->resume.path = NULL;
}

int trainer_init_or_resume(struct trainer *t)
{
  t->saved_at = UINT64_MAX;
  int status = t->resume.path ? restart_resume(t) : restart_init_run(t);
  if (status == TRM_OK)
    status = trm_agree(t->comm, trm_model_load_frozen(&t->model));
  trainer_close_checkpoint(t);
  return status;
}
