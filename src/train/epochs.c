/* The loop over epochs: batches, evaluations, checkpoints. Read from the bottom: trainer_run. */
#include <math.h>

#include "core/ledger.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"
#include "core/trace.h"
#include "train/trainer.h"

/* -- log and scores */

static struct trm_progress_point epochs_progress_point(const struct trainer *t)
{
  return (struct trm_progress_point){
    .step = t->strategy.updates, .epoch = t->epoch + 1, .samples = t->samples, .wall_s = trainer_wall(t),
    .train_s = trainer_train_s(t), .virtual_s = trainer_virtual(t)};
}

static void epochs_show_progress(struct trainer *t, uint64_t step, size_t more, const struct trm_loss_sums *sums)
{
  t->progress_shown_at = trainer_wall(t);
  const double samples = (double)(t->samples_this_run + more),
               seconds = t->result->train_s + trainer_clock(t) - t->advance_began;
  const double speed = seconds > 0 ? samples / seconds : 0;
  const double steps_here = samples / (double)t->options->train.batch; /* steps of this process */
  const double left = steps_here > 0 ? seconds / steps_here * (double)(t->steps - step) : 0;
  const uint64_t epochs = (t->steps + t->steps_per_epoch - 1) / t->steps_per_epoch;
  char loss[32] = "";
  if (sums->rows > 0)
    snprintf(loss, sizeof loss, "loss %.4f  ", sums->loss / sums->rows);
  trm_progress("epoch %llu/%llu  step %llu/%llu  %s%.0f samples/s  %d:%02d left", (unsigned long long)t->epoch + 1,
               (unsigned long long)epochs, (unsigned long long)step, (unsigned long long)t->steps, loss, speed,
               (int)left / 60, (int)left % 60);
}

int trainer_log(struct trainer *t, uint64_t step, size_t more, const struct trm_loss_sums *sums, double rate)
{
  if (t->comm->rank != 0 || (sums->rows == 0 && t->options->simulate.gradients))
    return TRM_OK;
  const uint64_t every = (uint64_t)t->options->log.every;
  const bool due = step / every > t->logged_step / every;
  if (trm_progress_is_terminal() ? trainer_wall(t) - t->progress_shown_at > 0.1 : due)
    epochs_show_progress(t, step, more, sums);
  if (!due && step != 1 && step != t->steps)
    return TRM_OK;
  t->logged_step = step;
  struct trm_progress_point at = epochs_progress_point(t);
  at.step = step;
  at.samples += more;
  return trm_run_dir_log_train(&t->run_dir, &at, sums->loss / sums->rows,
                               t->model.loss->counts_correct ? sums->correct / sums->rows : NAN, rate);
}

/* Returns true if the validation score exceeds the best by more than train.stop_delta: in accuracy if the loss counts
 * correct rows and the data are not tokens, otherwise in loss. */
static bool epochs_is_improvement(const struct trainer *t)
{
  if (isnan(t->result->best_validation.loss))
    return t->options->simulate.gradients;
  if (t->model.loss->counts_correct && !t->model.spec.tokens)
    return t->result->validation.accuracy > t->result->best_validation.accuracy + t->options->train.stop_delta;
  return t->result->validation.loss < t->result->best_validation.loss - t->options->train.stop_delta;
}

static void epochs_add_staleness(void *context, int rank, const struct trm_staleness *one)
{
  struct trainer *t = context;
  t->staleness.mean[rank] = trm_staleness_mean(one);
  trm_staleness_merge(&t->staleness.total, one);
  trm_run_dir_staleness_add(&t->run_dir, rank, one);
}

const struct trm_staleness *trainer_gather_staleness(struct trainer *t)
{
  struct trainer_staleness *all = &t->staleness;
  if (!t->strategy.ops->next_batch)
    return NULL;
  if (t->strategy.staleness) {
    if (t->comm->rank == 0 && !all->mean) {
      all->ranks = t->comm->size;
      all->mean = trm_alloc((size_t)all->ranks * sizeof *all->mean, "staleness");
    }
    all->total = (struct trm_staleness){0};
    trm_staleness_gather(t->comm, t->strategy.staleness, epochs_add_staleness, t);
  }
  return t->comm->rank == 0 ? &all->total : NULL;
}

/* Evaluates the strategy's eval_weights, or w where these are NULL. Collective. */
static int epochs_score(struct trainer *t, struct trm_dataset *dataset, struct trm_score *score)
{
  struct trm_model *model = &t->model;
  const struct trm_strategy *s = &t->strategy;
  struct trm_loss_sums sums;
  trm_ledger_set_phase(TRM_LEDGER_EVALUATION, s->updates);
  float *w = trm_staged_arrays_load(&t->arrays, s->eval_weights ? s->eval_weights : s->w);
  TRM_CHECK(trm_model_bind_slots(model, model->device, w, t->arrays.g, model->max_rows, true, t->slots));
  const int status = t->mode->evaluate(t, dataset, &sums);
  w = trm_staged_arrays_load(&t->arrays, s->w);
  TRM_CHECK(trm_model_bind_slots(model, model->device, w, t->arrays.g, model->max_rows, true, t->slots));
  /* decisions depend on the sums, so all ranks take rank 0's bits */
  t->comm->ops->broadcast(t->comm, &sums, sizeof sums, TRM_BYTE, 0);
  *score = (struct trm_score){sums.loss / sums.rows, model->loss->counts_correct ? sums.correct / sums.rows : NAN};
  return status;
}

/* Logs a line of the score, with prefix `head`. */
static void epochs_print_score(const struct trainer *t, const char *head, enum trm_split split,
                               const struct trm_dataset *dataset, const struct trm_score *score)
{
  const char *name = trm_split_name(split);
  const double bytes = dataset->token_bytes;
  if (!t->options->simulate.gradients)
    return;
  if (t->model.spec.tokens)
    trm_info("%s%s loss %.4f, perplexity %.3f, %.4f bits a %s", head, name, score->loss, exp(score->loss),
             score->loss / log(2) / (bytes > 0 ? bytes : 1), bytes > 0 ? "byte" : "token");
  else if (t->model.loss->counts_correct)
    trm_info("%s%s loss %.4f, %s accuracy %.2f%%", head, name, score->loss, name, 100 * score->accuracy);
  else
    trm_info("%s%s loss %.4g", head, name, score->loss);
}

/* Writes the score to metrics.jsonl and to the log. Collective. */
static int epochs_record(struct trainer *t, const struct trm_progress_point *at, const char *head, enum trm_split split,
                         const struct trm_dataset *dataset, const struct trm_score *score)
{
  const struct trm_staleness *total = trainer_gather_staleness(t);
  const bool logged = split == TRM_SPLIT_TEST && t->evaluated_at == at->step; /* after the validation split */
  int status = logged ? TRM_OK : trainer_log_weights(t, at->step);
  if (t->comm->rank == 0 && status == TRM_OK) {
    status = trm_run_dir_log_evaluation(&t->run_dir, at, split, dataset, score, total, t->staleness.mean,
                                        t->staleness.ranks);
    epochs_print_score(t, head, split, dataset, score);
  }
  return trm_agree(t->comm, status);
}

int trainer_validate(struct trainer *t, const struct trm_progress_point *at, bool *better)
{
  struct trm_dataset *dataset = t->splits.validation;
  *better = false;
  TRM_CHECK(epochs_score(t, dataset, &t->result->validation));
  char head[128];
  snprintf(head, sizeof head, "epoch %llu  step %llu: train loss %.4g, ", (unsigned long long)t->epoch + 1,
           (unsigned long long)at->step, t->epoch_loss / t->epoch_rows);
  TRM_CHECK(epochs_record(t, at, head, TRM_SPLIT_VALIDATION, dataset, &t->result->validation));
  if (t->options->optim.schedule == TRM_LR_PLATEAU &&
      trm_plateau_add(&t->plateau, t->options, t->result->validation.loss))
    trm_info("optim.schedule=plateau: the learning rate is now %g of optim.lr", t->plateau.factor);
  *better = epochs_is_improvement(t);
  if (!*better) {
    t->stale_evaluations++;
    return TRM_OK;
  }
  t->result->best_validation = t->result->validation;
  t->result->best_step = at->step;
  t->stale_evaluations = 0;
  return TRM_OK;
}

/* Evaluates the current weights on the validation split; saves the best so far. goes_on: as in trainer_save.
 * Collective. */
static int epochs_validate(struct trainer *t, bool goes_on)
{
  bool better;
  if (!t->splits.validation || t->evaluated_at == t->strategy.updates)
    return TRM_OK;
  struct trm_progress_point at = epochs_progress_point(t);
  TRM_CHECK(trainer_validate(t, &at, &better));
  t->evaluated_at = t->strategy.updates;
  return !better || t->options->run.checkpoint_every < 0 ? TRM_OK : trainer_save_best(t, goes_on);
}

void trainer_measure(const struct trainer *t, struct trm_pass *pass)
{
  pass->scored = t->measurement ? trm_measurement_add_pass : NULL;
  pass->scored_context = t->measurement;
}

void trainer_measures_end(struct trainer *t)
{
  struct trm_comm *stages = t->grid->axis[TRM_AXIS_PIPELINE];
  struct trm_measures *measures = &t->result->measures;
  char text[256];
  if (!t->measurement)
    return;
  trm_measurement_end(t->measurement, t->grid->axis[TRM_AXIS_DATA], measures);
  stages->ops->broadcast(stages, measures, sizeof *measures, TRM_BYTE, stages->size - 1); /* it had the scores */
  trm_measurement_free(t->measurement);
  t->measurement = NULL;
  trm_info("test split: %s", trm_measures_text(measures, text, sizeof text));
}

/* Evaluates the final weights on the test split. Collective. */
static int epochs_test(struct trainer *t)
{
  struct trm_dataset *dataset = t->splits.test;
  if (!dataset)
    return TRM_OK;
  char head[64];
  snprintf(head, sizeof head, "weights of step %llu: ", (unsigned long long)t->strategy.updates);
  struct trm_progress_point at = epochs_progress_point(t);
  at.epoch -= t->position == 0 && t->epoch > 0; /* the epoch that has just ended */
  if (t->options->simulate.gradients)
    t->measurement = trm_measurement_create(t->model.loss, &t->model.spec, dataset->rows, false);
  TRM_CHECK(epochs_score(t, dataset, &t->result->test));
  return epochs_record(t, &at, head, TRM_SPLIT_TEST, dataset, &t->result->test);
}

/* -- the epochs */

/* Returns true if a multiple of `every` is in (before, step]. */
static bool epochs_is_due(uint64_t before, uint64_t step, int64_t every)
{
  return every > 0 && step / (uint64_t)every > before / (uint64_t)every;
}

/* Returns true if the current weights are due to be evaluated. before: step at the last quiesce point. */
static bool epochs_evaluation_is_due(const struct trainer *t, uint64_t before, bool epoch_done)
{
  const int64_t every = t->options->train.evaluate_every;
  const uint64_t step = t->strategy.updates;
  if (every == 0)
    return epoch_done;
  return t->strategy.snapshots > 0 ? step % (uint64_t)every == 0 : epochs_is_due(before, step, every);
}

bool trainer_stops_early(const struct trainer *t)
{
  const int64_t patience = t->options->train.stop_patience;
  return patience > 0 && t->stale_evaluations >= (uint64_t)patience;
}

bool trainer_epoch_done(const struct trainer *t)
{
  const size_t left = t->data->rows - t->position;
  return left == 0 || (t->options->data.drop_last && left < (size_t)t->options->train.batch);
}

/* Returns the step of the next quiesce point: the next checkpoint, end of the epoch or, unless the strategy makes
 * snapshots, evaluation. */
static uint64_t epochs_next_sync_step(const struct trainer *t)
{
  const bool stops = t->splits.validation && t->strategy.snapshots == 0;
  const int64_t every[] = {stops ? t->options->train.evaluate_every : 0, t->options->run.checkpoint_every,
                           t->options->run.buddy};
  const uint64_t now = t->strategy.updates, batch = (uint64_t)t->options->train.batch;
  const uint64_t left = t->data->rows - t->position;
  uint64_t next = now + (t->options->data.drop_last ? left / batch : (left + batch - 1) / batch);
  for (size_t i = 0; i < sizeof every / sizeof *every; i++)
    if (every[i] > 0 && (now / (uint64_t)every[i] + 1) * (uint64_t)every[i] < next)
      next = (now / (uint64_t)every[i] + 1) * (uint64_t)every[i];
  return next < t->steps ? next : t->steps;
}

bool trainer_is_complete(const struct trainer *t)
{
  return t->strategy.updates >= t->steps || trainer_stops_early(t) || trainer_time_is_up(t);
}

/* After a request to stop: true if its reason is train.seconds alone. Then every rank has the time of the rank that
 * found it, so that a checkpoint says that it is up. Collective. */
static bool epochs_time_is_up(struct trainer *t)
{
  const double mine = trainer_train_s(t);
  double latest[] = {trainer_stop_asked(t), mine};
  if (t->options->train.seconds <= 0)
    return false;
  t->comm->ops->allreduce(t->comm, latest, 2, TRM_DOUBLE, TRM_MAX);
  if (latest[0] == 0)
    t->train_before += latest[1] - mine;
  return latest[0] == 0;
}

static int epochs_run(struct trainer *t, const char **outcome)
{
  const int64_t save_every = t->options->run.checkpoint_every;
  *outcome = "done";
  if (trainer_is_complete(t)) {
    if (trainer_stops_early(t) && t->strategy.updates < t->steps)
      *outcome = "early-stop";
    else if (t->strategy.updates < t->steps)
      t->result->reason = "train.seconds";
    trm_info("training is complete after step %llu", (unsigned long long)t->strategy.updates);
    if (t->splits.validation)
      TRM_CHECK(epochs_score(t, t->splits.validation, &t->result->validation));
    return epochs_test(t);
  }
  while (t->strategy.updates < t->steps) {
    struct trm_loss_sums sums;
    const uint64_t before = t->strategy.updates;
    TRM_CHECK(trainer_advance(t, trainer_snapshots_begin(t, epochs_next_sync_step(t)), &sums));
    TRM_CHECK(trainer_snapshots_end(t));
    trm_trace_set_step(0); /* evaluations and checkpoints are of none */

    const bool epoch_done = trainer_epoch_done(t), last_step = t->strategy.updates == t->steps;
    const bool asked = sums.stop_requests > 0 && !last_step, time_is_up = asked && epochs_time_is_up(t);
    const bool end = last_step || time_is_up;
    if (end || (!trainer_stops_early(t) && epochs_evaluation_is_due(t, before, epoch_done)))
      TRM_CHECK(epochs_validate(t, !end));
    if (epoch_done && !last_step) {
      t->epoch++;
      t->position = 0;
    }
    const bool stop = asked && !end;
    const bool early = !end && trainer_stops_early(t);
    const bool due =
      end || early || epochs_is_due(before, t->strategy.updates, save_every) || (epoch_done && save_every == 0);
    if (!end && !early && !stop && epochs_is_due(before, t->strategy.updates, t->options->run.buddy))
      TRM_CHECK(trainer_save_memory(t));
    if ((stop && t->options->simulate.gradients) || (due && save_every >= 0))
      TRM_CHECK(trainer_save(t, !(end || early || stop)));
    if (stop) {
      *outcome = "stopped";
      return TRM_OK;
    }
    if (early) {
      *outcome = "early-stop";
      break;
    }
    if (time_is_up) {
      t->result->reason = "train.seconds";
      break;
    }
  }
  return epochs_test(t);
}

int trainer_run(struct trainer *t, const char **outcome)
{
  TRM_CHECK(epochs_run(t, outcome));
  return trainer_await_save(t);
}
