/* Checkpoints of a run. Rank 0 writes them: while training waits, or in the background from a copy of the state
 * (state_copy.h). At most one copy is being written; the next save waits for it. A
 * failure in the background counts as a request to stop (trainer_stop_requested), and is returned on all ranks by the
 * next save or the end of the run. Those in the memory of nodes (buddy.h) are written by a thread of their own, and
 * their failures are warnings. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/ledger.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"
#include "core/trace.h"
#include "train/stop.h"
#include "train/trainer.h"

/* step-N.h5, best.h5, or a copy in memory. */
enum save_kind { SAVE_STEP, SAVE_BEST, SAVE_MEMORY };

/* A file to write. The checkpoint has its position in the run and its arrays. */
struct trainer_save {
  struct trainer *t;
  char *path;                        /* owned */
  struct trm_checkpoint checkpoint;  /* owns config, record, validation and undone; its other texts are the trainer's */
  enum save_kind kind;
  struct trainer_save *next;
};

/* Returns the resolved options as YAML text. Caller frees with free(). */
static char *save_config_text(const struct trainer *t)
{
  const struct trm_options options = trainer_shares_options(t);
  char *text = NULL;
  size_t bytes = 0;
  FILE *stream = open_memstream(&text, &bytes);
  if (stream) {
    trm_options_write(&options, stream, NULL);
    fclose(stream);
  }
  return text;
}

/* Returns a file to write, with all that is known of the run beside its position and arrays. */
static struct trainer_save *save_create(struct trainer *t, enum save_kind kind)
{
  struct trainer_save *save = trm_alloc(sizeof *save, "a checkpoint");
  const struct trm_checkpoint_files *files = kind == SAVE_MEMORY ? &t->saves.buddy.files : &t->files;
  *save = (struct trainer_save){
    .t = t,
    .kind = kind,
    .path = kind == SAVE_BEST ? trm_format("%s/checkpoints/best.h5", t->options->run.dir)
                              : trm_checkpoint_files_path(files, t->strategy.updates),
    .checkpoint = {
      .seed = (uint64_t)t->options->run.seed,
      .batch = (uint64_t)t->options->train.batch,
      .epoch_loss = t->epoch_loss,
      .epoch_rows = t->epoch_rows,
      .best_loss = t->result->best_validation.loss,
      .best_accuracy = t->result->best_validation.accuracy,
      .best_updates = t->result->best_step,
      .stale_evaluations = t->stale_evaluations,
      .plateau_factor = t->plateau.factor,
      .plateau_best = t->plateau.best,
      .plateau_waited = t->plateau.waited,
      .model_text = t->full_model.text,
      .loss_name = (char *)t->full_model.loss->name,
      .config = save_config_text(t),
      .record = t->record ? trm_strdup(t->record) : NULL, /* t's may change while a thread writes */
      .data_digest = (char *)t->data->digest, /* read only, as all texts here */
      .validation = trainer_validation_text(t),
      .spec = t->full_model.spec,
      .class_names = t->data->class_names,
      .encoding = t->data->encoding,
      .frozen = t->model.frozen_number,
    }};
  return save;
}

static void save_free(struct trainer_save *save)
{
  free(save->checkpoint.config);
  trm_free(save->checkpoint.record);
  trm_free(save->checkpoint.validation);
  trm_free(save->checkpoint.undone);
  trm_free(save->path);
  trm_free(save);
}

/* Sets the position in the run, and the number of the arrays. */
static void save_set_position(struct trainer_save *save)
{
  const struct trainer *t = save->t;
  struct trm_checkpoint *c = &save->checkpoint;
  c->epoch = t->epoch;
  c->position = t->position;
  c->updates = t->strategy.updates;
  c->samples = t->samples;
  c->wall_s = trainer_wall(t);
  c->train_s = trainer_train_s(t);
  c->states = 1 + t->optimizer.states;
  c->undones = t->strategy.undones;
  if (c->undones > 0)
    c->undone = memcpy(trm_alloc(c->undones * sizeof *c->undone, "parts of batches"), t->strategy.undone,
                       c->undones * sizeof *c->undone);
}

static int save_write_file(struct trainer_save *save)
{
  struct trainer *t = save->t;
  struct trm_checkpoint *c = &save->checkpoint;
  trm_state_copy_await_all(&t->saves.copy);
  TRM_CHECK(trm_lease_check(t->run_dir.lease));
  for (int i = 0; i < c->states; i++)
    c->state_name[i] = i == 0 ? "weights" : trm_optimizer_state_name(&t->optimizer, i - 1);
  TRM_CHECK(t->modules->checkpoint->write(save->path, c, &t->full_model));
  if (save->kind != SAVE_STEP)
    return TRM_OK;
  trm_checkpoint_files_saved(&t->files, c->updates, (size_t)t->options->run.keep);
  return trm_run_dir_audit_checkpoint(&t->run_dir, strrchr(save->path, '/') + 1, c->updates);
}

/* Writes the file. context: struct trainer_save. */
static int save_write(void *context)
{
  struct trainer_save *save = context;
  const int status = save_write_file(save);
  if (save->kind != SAVE_MEMORY)
    return status;
  save->t->saves.buddy.written = status == TRM_OK;
  if (status != TRM_OK)
    trm_warn("run.buddy: no copy of the state of step %llu in memory: %s",
             (unsigned long long)save->checkpoint.updates, trm_error_text());
  return TRM_OK;
}

/* -- in the foreground */

static int save_write_now(struct trainer_save *save)
{
  const enum trm_ledger_operation before = trm_ledger_enter(&(struct trm_ledger_call){.operation = TRM_LEDGER_WRITE});
  const int status = save_write(save);
  trm_ledger_leave(before);
  save_free(save);
  return status;
}

/* State that rank 0 gathers: first tensors, then local states. */
struct save_sources {
  struct trm_model_gather tensors;
  struct trm_local_state_gather local_states;
};

static int save_next_local_states(void *context, int rank, const struct trm_local_state **states, int *count)
{
  struct save_sources *sources = context;
  trm_model_gather_end(&sources->tensors); /* all tensors are written */
  return trm_local_state_gather_next(&sources->local_states, rank, states, count);
}

/* Rank 0. */
static int save_gathered(struct trainer *t, enum save_kind kind, struct save_sources *sources)
{
  struct trainer_save *save = save_create(t, kind);
  save_set_position(save);
  save->checkpoint.read_tensor = trm_model_gather_tensor;
  save->checkpoint.read_tensor_context = &sources->tensors;
  save->checkpoint.local_state_ranks = sources->local_states.ranks;
  save->checkpoint.read_local_states = save_next_local_states;
  save->checkpoint.read_local_states_context = sources;
  return save_write_now(save);
}

/* -- in the background */

/* Returns true if rank 0 has the memory for a copy at hand: it takes no more than the node's ranks have themselves.
 * Collective. */
static bool save_copy_is_local(const struct trainer *t)
{
  struct trm_comm *node = t->comm->ops->split_node(t->comm, TRM_SHARE_NODE);
  int32_t local = node->size == t->comm->size ||
                  (t->grid->model->size == 1 && !t->strategy.ops->read && t->strategy.local_states == 0);
  node->ops->release(node);
  t->comm->ops->allreduce(t->comm, &local, 1, TRM_INT32, TRM_MIN);
  return local;
}

/* Prepares copies in memory. Returns the bytes that they take on this rank. Collective. */
static int save_open_buddy(struct trainer *t, size_t *bytes)
{
  struct trainer_saves *saves = &t->saves;
  const bool resumed = t->saved_at != UINT64_MAX && t->resume.from_memory;
  const size_t state = trm_state_copy_bytes(t->comm, &t->full_model, &t->model, &t->strategy);
  const int status = trm_buddy_open(&saves->buddy, t->comm, saves->node_first, saves->memory,
                                    resumed ? t->strategy.updates : UINT64_MAX, state);
  if (saves->buddy.chunk && saves->in_background)
    saves->copying = trm_background_open();
  *bytes += saves->buddy.writes ? 2 * state : 0;
  if (status != TRM_OK && !resumed)
    trainer_remove_memory(t, false);
  return status;
}

/* Prepares the copy for saves in the background. Returns its bytes on this rank. Collective. */
static size_t save_open_background(struct trainer *t)
{
  struct trainer_saves *saves = &t->saves;
  const enum trm_background_saves choice = t->options->run.background;
  const bool is_virtual = t->comm->ops->compute != NULL; /* its runs are the same every time */
  saves->step = UINT64_MAX;
  if (choice == TRM_BACKGROUND_NO || is_virtual || !trm_state_copy_is_used(t->options, t->data->rows) ||
      (choice == TRM_BACKGROUND_AUTO && !save_copy_is_local(t)))
    return 0;
  saves->in_background = saves->pending = true;
  trm_state_copy_open(&saves->copy, t->comm, &t->full_model, &t->model, &t->strategy, !t->device_memory);
  if (t->comm->rank == 0 || saves->copy.node) {
    saves->background = trm_background_open();
    trm_background_begin(saves->background, trm_state_copy_touch, &saves->copy);
  }
  return trm_state_copy_bytes(t->comm, &t->full_model, &t->model, &t->strategy);
}

int trainer_saves_open(struct trainer *t, size_t *bytes)
{
  *bytes = save_open_background(t);
  trainer_find_memory(t);
  if (t->options->run.buddy > 0)
    TRM_CHECK(save_open_buddy(t, bytes));
  trainer_remove_memory(t, t->options->run.buddy > 0);
  return TRM_OK;
}

static void save_free_written(struct trainer_saves *saves)
{
  while (saves->first) {
    struct trainer_save *save = saves->first;
    saves->first = save->next;
    save_free(save);
  }
}

void trainer_saves_close(struct trainer *t)
{
  trm_background_close(t->saves.background);
  trm_background_close(t->saves.copying);
  save_free_written(&t->saves);
  trm_state_copy_free(&t->saves.copy);
  trm_buddy_close(&t->saves.buddy);
  trm_free(t->saves.memory);
}

int trainer_finish_save(const struct trainer *t)
{
  const struct trainer_saves *saves = &t->saves;
  if (!saves->background && !saves->copying)
    return TRM_OK;
  const enum trm_ledger_operation before = trm_ledger_enter(&(struct trm_ledger_call){.operation = TRM_LEDGER_WRITE});
  if (saves->copying)
    trm_background_wait(saves->copying); /* its failures are warnings */
  const int status = saves->background ? trm_background_wait(saves->background) : TRM_OK;
  trm_ledger_leave(before);
  return status;
}

int trainer_await_save(struct trainer *t)
{
  struct trainer_saves *saves = &t->saves;
  if (!saves->pending)
    return TRM_OK;
  trm_ledger_set_phase(TRM_LEDGER_CHECKPOINT, t->strategy.updates);
  const int status = trainer_finish_save(t);
  saves->pending = false;
  saves->step = UINT64_MAX;
  save_free_written(saves);
  return trm_agree(t->comm, status);
}

void trainer_await_copy(struct trainer *t)
{
  if (t->saves.pending)
    trm_state_copy_await_own(&t->saves.copy);
}

bool trainer_stop_requested(const struct trainer *t)
{
  return trainer_stop_asked(t) || trainer_time_is_up(t);
}

bool trainer_stop_asked(const struct trainer *t)
{
  return trm_stop_requested() || (t->saves.background && trm_background_failed(t->saves.background));
}

/* Begins to write a file whose position is set, from the copy. */
static void save_begin(struct trainer_save *save)
{
  struct trainer_saves *saves = &save->t->saves;
  for (int i = 0; i < save->checkpoint.states; i++)
    save->checkpoint.state[i] = saves->copy.state[i];
  save->next = saves->first;
  saves->first = save;
  trm_background_begin(save->kind == SAVE_MEMORY ? saves->copying : saves->background, save_write, save);
}

/* Rank 0: begins to write a file of the state that the copy has. */
static void save_begin_copied(struct trainer *t, enum save_kind kind, int local_state_ranks)
{
  struct trainer_save *save = save_create(t, kind);
  save_set_position(save);
  save->checkpoint.local_state_ranks = local_state_ranks;
  save->checkpoint.read_local_states = trm_state_copy_local_states;
  save->checkpoint.read_local_states_context = &t->saves.copy;
  save_begin(save);
}

/* -- both */

/* Rank 0 writes the file, or begins to. Collective. */
static int save_state(struct trainer *t, enum save_kind kind, bool goes_on)
{
  struct save_sources sources;
  struct trainer_saves *saves = &t->saves;
  const bool background = goes_on && saves->in_background;
  if (background && saves->step == t->strategy.updates) { /* best.h5 and step-N.h5 have the same arrays */
    if (t->comm->rank == 0)
      save_begin_copied(t, kind, saves->local_state_ranks);
    return TRM_OK;
  }
  TRM_CHECK(trainer_await_save(t));
  trm_ledger_set_phase(TRM_LEDGER_CHECKPOINT, t->strategy.updates);
  TRM_CHECK(trm_agree(t->comm, t->mode->save_local_state ? t->mode->save_local_state(t) : TRM_OK));
  trm_local_state_gather_begin(&sources.local_states, t->comm, t->strategy.local_state, t->strategy.local_states);
  sources.tensors = (struct trm_model_gather){.grid = t->grid};
  if (!background || !saves->copy.own)
    TRM_CHECK(trainer_gather_begin(t, &sources.tensors));
  else if (saves->copy.node)
    trm_state_copy_begin_own(&saves->copy, saves->background);
  int status = TRM_OK;
  if (t->comm->rank == 0)
    status = background ? trm_state_copy_take(&saves->copy, &sources.tensors, &sources.local_states)
                        : save_gathered(t, kind, &sources);
  trm_model_gather_end(&sources.tensors);
  trm_local_state_gather_end(&sources.local_states);
  saves->local_state_ranks = sources.local_states.ranks;
  if (background && status == TRM_OK && t->comm->rank == 0)
    save_begin_copied(t, kind, saves->local_state_ranks);
  saves->pending = background;
  saves->step = background ? t->strategy.updates : UINT64_MAX;
  return trm_agree(t->comm, status); /* until then no rank changes what rank 0 gathers */
}

int trainer_save(struct trainer *t, bool goes_on)
{
  if (t->saved_at == t->strategy.updates)
    return TRM_OK;
  const double began = trm_trace_begin("checkpoint");
  TRM_CHECK(save_state(t, SAVE_STEP, goes_on));
  trm_trace_end("checkpoint", TRM_TRACE_WAIT, began, TRM_TRACE_NO_IDS);
  t->saved_at = t->strategy.updates;
  return TRM_OK;
}

int trainer_save_best(struct trainer *t, bool goes_on)
{
  const double began = trm_trace_begin("best checkpoint");
  const int status = save_state(t, SAVE_BEST, goes_on);
  trm_trace_end("best checkpoint", TRM_TRACE_WAIT, began, TRM_TRACE_NO_IDS);
  return status;
}

/* True while rank 0 writes a file of an earlier state: a copy in memory would have to wait for it. Collective. */
static bool save_is_under_way(const struct trainer *t)
{
  const struct trainer_saves *saves = &t->saves;
  int32_t busy = saves->pending && saves->step != t->strategy.updates && saves->background &&
                 !trm_background_is_idle(saves->background);
  t->comm->ops->broadcast(t->comm, &busy, 1, TRM_INT32, 0);
  return busy;
}

int trainer_save_memory(struct trainer *t)
{
  struct trm_buddy *buddy = &t->saves.buddy;
  if (save_is_under_way(t))
    return TRM_OK;
  const double began = trm_trace_begin("copy in memory");
  TRM_CHECK(save_state(t, SAVE_MEMORY, true));
  buddy->step = t->strategy.updates;
  if (t->saves.copying)
    trm_background_begin(t->saves.copying, trm_buddy_exchange, buddy);
  else if (buddy->writes || buddy->receives)
    trm_buddy_exchange(buddy);
  trm_trace_end("copy in memory", TRM_TRACE_WAIT, began, TRM_TRACE_NO_IDS);
  return TRM_OK;
}

/* Copies the trained weights of a flat array, and the frozen ones, to those of the whole model. */
static void save_copy_weights(const struct trainer *t, const float *weights, float *to)
{
  for (int n = 0; n < trm_model_parameter_count(&t->model); n++) {
    const struct trm_parameter *p = trm_model_parameter(&t->model, n);
    memcpy(to + trm_model_parameter(&t->full_model, n)->offset, p->frozen ? p->frozen_w : weights + p->offset,
           p->count * sizeof *to);
  }
}

int trainer_save_best_weights(struct trainer *t, const struct trm_progress_point *at)
{
  const struct trm_strategy *s = &t->strategy;
  const bool background = t->saves.in_background;
  float *weights = s->eval_weights ? s->eval_weights : s->w;
  int status = TRM_OK;
  TRM_CHECK(trainer_await_save(t));
  trm_ledger_set_phase(TRM_LEDGER_CHECKPOINT, at->step);
  if (t->comm->rank == 0) {
    struct trainer_save *save = save_create(t, SAVE_BEST);
    struct trm_checkpoint *c = &save->checkpoint;
    c->epoch = at->epoch - 1;
    c->position = t->position - (t->samples - at->samples);
    c->updates = at->step;
    c->samples = at->samples;
    c->wall_s = at->wall_s;
    c->train_s = at->train_s;
    c->weights_only = 1;
    c->states = 1;
    if (background) {
      save_copy_weights(t, weights, t->saves.copy.state[0]);
      save_begin(save);
    } else {
      float *whole = t->model.frozen ? trm_alloc(t->full_model.parameters * sizeof *whole, "weights") : NULL;
      if (whole)
        save_copy_weights(t, weights, whole);
      c->state[0] = whole ? whole : weights;
      status = save_write_now(save);
      trm_free(whole);
    }
  }
  t->saves.pending = background;
  return trm_agree(t->comm, status);
}

int trainer_gather_begin(struct trainer *t, struct trm_model_gather *gather)
{
  return trm_model_gather_begin(gather, t->grid, &t->strategy, &t->full_model, &t->model);
}
