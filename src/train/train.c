/* The training loop. Read it from the bottom: trm_train sets everything up, run_epochs walks the data, train_step is one
 * step of the method. */
#include <math.h>
#include <string.h>


#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"
#include "train/stop.h"
#include "train/trainer.h"

static double clock_now(const struct trainer *t)
{
  return t->comm->ops->clock(t->comm);
}

double trainer_wall(const struct trainer *t)
{
  return t->wall_before + clock_now(t) - t->began;
}

/* -- one step */

/* A failure that only this rank has seen, between collective calls: the others wait for us, so the job must end. */
static void must(const struct trainer *t, int status)
{
  if (status == TRM_OK)
    return;
  trm_log_error();
  if (t->comm->size > 1)
    trm_abort(status);
}

/* What hand_to_strategy needs. */
struct handover {
  struct trm_strategy *strategy;
  const struct trm_tally *tally;
};

static int hand_to_strategy(void *context, size_t low, size_t high)
{
  const struct handover *to = context;
  const struct trm_strategy_ops *ops = to->strategy->ops;
  return ops->grad_ready ? ops->grad_ready(to->strategy, low, high, to->tally) : TRM_OK;
}

/* For passes that all ranks make together. */
static void reduce_sums(void *context, double *values, size_t n)
{
  struct trm_comm *comm = context;
  comm->ops->allreduce(comm, values, n, TRM_DOUBLE, TRM_SUM);
}

/* Forward and backward over positions [low, high) of the epoch's order, weighted as part of a batch of `batch` rows. */
static int compute(struct trainer *t, size_t low, size_t high, size_t batch, float beta, bool last,
                   struct trm_tally *tally)
{
  struct trm_input input;
  TRM_CHECK(t->data->ops->fetch(t->data, t->epoch, low, high, &t->batch));
  TRM_CHECK(trm_feed_batch(&t->feed, &t->batch, &input));
  const struct trm_pass pass = {
    .device = t->parts->device,
    .input = &input,
    .training = true,
    .seed = (uint64_t)t->options->run.seed,
    .first_row = t->samples + (low - t->position), /* the same for any division of the batch */
    .beta = beta,
    .reduce = t->strategy.ops->lockstep && t->comm->size > 1 && !t->lane_count ? reduce_sums : NULL,
    .reduce_context = t->comm,
  };
  struct handover to = {&t->strategy, tally};
  return trm_model_train(&t->model, &pass, 1.0f / (float)batch, tally, last ? hand_to_strategy : NULL, &to);
}

/* This rank's part of the batch [low, high), in `accumulate` micro-batches. */
static int compute_part(struct trainer *t, size_t low, size_t high, struct trm_tally *tally)
{
  size_t from, to;
  trm_interval(high - low, (size_t)t->strategy.parts, (size_t)t->strategy.index, &from, &to);
  const size_t pieces = (size_t)t->options->train.accumulate;
  for (size_t i = 0; i < pieces; i++) {
    size_t a, b;
    trm_interval(to - from, pieces, i, &a, &b);
    TRM_CHECK(compute(t, low + from + a, low + from + b, high - low, i ? 1 : 0, i + 1 == pieces, tally));
  }
  return TRM_OK;
}

/* This rank's lanes of the batch, added in the fixed tree. */
static int compute_lanes(struct trainer *t, size_t low, size_t high, struct trm_tally *tally)
{
  for (int lane = 0; lane < t->lane_count; lane++) {
    size_t from, to;
    const size_t number = (size_t)(t->strategy.index * t->lane_count + lane);
    trm_interval(high - low, (size_t)t->options->run.lanes, number, &from, &to);
    TRM_CHECK(compute(t, low + from, low + to, high - low, 0, false, tally));
    trm_lanes_add(&t->lanes, lane, t->strategy.g);
  }
  struct handover to = {&t->strategy, tally};
  return hand_to_strategy(&to, 0, t->model.parameters);
}

/* One step: the next global batch, its gradient, the update. *tally: sums over the global batch. */
static int train_step(struct trainer *t, struct trm_tally *tally, double *rate)
{
  const size_t low = t->position;
  const size_t left = t->data->rows - low;
  const size_t high = low + (left < (size_t)t->options->train.batch ? left : (size_t)t->options->train.batch);
  *rate = trm_schedule_rate(t->options, t->strategy.updates, t->steps, t->steps_per_epoch);
  *tally = (struct trm_tally){.stop = trm_stop_asked()};

  int status = t->strategy.ops->before_forward ? t->strategy.ops->before_forward(&t->strategy) : TRM_OK;
  if (status == TRM_OK)
    status = t->lane_count ? compute_lanes(t, low, high, tally) : compute_part(t, low, high, tally);
  must(t, status);
  TRM_CHECK(status);
  TRM_CHECK(t->strategy.ops->step(&t->strategy, *rate, tally)); /* tally: now over the global batch */

  t->position = high;
  t->samples += high - low;
  t->samples_here += high - low;
  t->epoch_loss += tally->loss;
  t->epoch_rows += tally->rows;
  return TRM_OK;
}

/* -- what is said and written along the way */

static struct trm_progress_point point(const struct trainer *t)
{
  return (struct trm_progress_point){
    .step = t->strategy.updates, .epoch = t->epoch + 1, .samples = t->samples, .wall_s = trainer_wall(t)};
}

static void show_progress(struct trainer *t, const struct trm_tally *tally)
{
  const bool due = trm_progress_is_terminal() ? clock_now(t) - t->spoken > 0.1
                                              : t->strategy.updates % (uint64_t)t->options->log.every == 0;
  if (!due)
    return;
  t->spoken = clock_now(t);
  const double speed = t->train_s > 0 ? (double)t->samples_here / t->train_s : 0;
  const double here = (double)(t->samples_here) / (double)t->options->train.batch; /* steps of this part */
  const double left = here > 0 ? t->train_s / here * (double)(t->steps - t->strategy.updates) : 0;
  trm_progress("epoch %llu/%llu  step %llu/%llu  loss %.4f  %.0f samples/s  %d:%02d left",
               (unsigned long long)t->epoch + 1, (unsigned long long)((t->steps + t->steps_per_epoch - 1) / t->steps_per_epoch),
               (unsigned long long)t->strategy.updates, (unsigned long long)t->steps, tally->loss / tally->rows, speed,
               (int)left / 60, (int)left % 60);
}

static int log_step(struct trainer *t, const struct trm_tally *tally, double rate)
{
  if (t->comm->rank != 0)
    return TRM_OK;
  show_progress(t, tally);
  const uint64_t step = t->strategy.updates;
  if (step % (uint64_t)t->options->log.every != 0 && step != 1 && step != t->steps)
    return TRM_OK;
  const struct trm_progress_point at = point(t);
  return trm_rundir_train_line(&t->dir, &at, tally->loss / tally->rows,
                               t->model.loss->counts_correct ? tally->correct / tally->rows : NAN, rate);
}

/* Better by more than stop_delta: in accuracy where the loss counts answers, else, and for tokens, in loss. */
static bool is_better(const struct trainer *t)
{
  if (isnan(t->best_loss))
    return true;
  if (t->model.loss->counts_correct && !t->model.spec.tokens)
    return t->test_accuracy > t->best_accuracy + t->options->train.stop_delta;
  return t->test_loss < t->best_loss - t->options->train.stop_delta;
}

/* With what the strategy has for it, where that is not the weights. */
static int evaluate_test(struct trainer *t, struct trm_tally *tally)
{
  struct trm_model *model = &t->model;
  const struct trm_strategy *s = &t->strategy;
  if (s->evaluated)
    TRM_CHECK(trm_model_bind(model, model->device, s->evaluated, s->g, model->max_rows, true));
  const int status = trm_evaluate(model, t->test, t->comm, model->max_rows, tally);
  TRM_CHECK(trm_model_bind(model, model->device, s->w, s->g, model->max_rows, true));
  return status;
}

static int evaluate_now(struct trainer *t)
{
  if (!t->test || t->evaluated_at == t->strategy.updates)
    return TRM_OK;
  struct trm_tally tally;
  TRM_CHECK(evaluate_test(t, &tally));
  t->evaluated_at = t->strategy.updates;
  t->test_loss = tally.loss / tally.rows;
  t->test_accuracy = t->model.loss->counts_correct ? tally.correct / tally.rows : NAN;

  int status = TRM_OK;
  if (t->comm->rank == 0) {
    const struct trm_progress_point at = point(t);
    const bool tokens = t->model.spec.tokens;
    status = trm_rundir_test_line(&t->dir, &at, t->test_loss, t->test_accuracy, t->test, NULL, 0);
    const double bytes = t->test->token_bytes;
    if (tokens)
      trm_info("epoch %llu  step %llu: train loss %.4f, test loss %.4f, perplexity %.3f, %.4f bits a %s",
               (unsigned long long)at.epoch, (unsigned long long)at.step, t->epoch_loss / t->epoch_rows, t->test_loss,
               exp(t->test_loss), t->test_loss / log(2) / (bytes > 0 ? bytes : 1), bytes > 0 ? "byte" : "token");
    else if (t->model.loss->counts_correct)
      trm_info("epoch %llu  step %llu: train loss %.4f, test loss %.4f, test accuracy %.2f%%", (unsigned long long)at.epoch,
               (unsigned long long)at.step, t->epoch_loss / t->epoch_rows, t->test_loss, 100 * t->test_accuracy);
    else
      trm_info("epoch %llu  step %llu: train loss %.4g, test loss %.4g", (unsigned long long)at.epoch,
               (unsigned long long)at.step, t->epoch_loss / t->epoch_rows, t->test_loss);
  }
  TRM_CHECK(trm_agree(t->comm, status));

  if (!is_better(t)) {
    t->stale_evaluations++;
    return TRM_OK;
  }
  t->best_loss = t->test_loss;
  t->best_accuracy = t->test_accuracy;
  t->best_updates = t->strategy.updates;
  t->stale_evaluations = 0;
  return t->options->run.checkpoint_every < 0 ? TRM_OK : trainer_save_best(t);
}

/* -- the epochs */

static bool at_multiple(uint64_t step, int64_t every)
{
  return every > 0 && step % (uint64_t)every == 0;
}

bool trainer_epoch_done(const struct trainer *t)
{
  const size_t left = t->data->rows - t->position;
  return left == 0 || (t->options->data.drop_last && left < (size_t)t->options->train.batch);
}

/* Runs to the end, a stop, or early stopping; *how says which. */
static int run_epochs(struct trainer *t, const char **how)
{
  const int64_t evaluate_every = t->options->train.evaluate_every, save_every = t->options->run.checkpoint_every;
  *how = "done";
  if (t->strategy.updates >= t->steps) {
    trm_info("the run is complete: %llu of %llu steps are done", (unsigned long long)t->strategy.updates,
             (unsigned long long)t->steps);
    return evaluate_now(t);
  }
  while (t->strategy.updates < t->steps) {
    struct trm_tally tally;
    double rate;
    const double before = clock_now(t);
    TRM_CHECK(train_step(t, &tally, &rate));
    t->train_s += clock_now(t) - before;
    const int status = log_step(t, &tally, rate);
    must(t, status);
    TRM_CHECK(status);

    const bool epoch_done = trainer_epoch_done(t), end = t->strategy.updates == t->steps;
    if (end || at_multiple(t->strategy.updates, evaluate_every) || (epoch_done && evaluate_every == 0))
      TRM_CHECK(evaluate_now(t));
    if (epoch_done && !end) {
      t->epoch++;
      t->position = 0;
      t->epoch_loss = t->epoch_rows = 0;
    }
    const bool stop = tally.stop > 0 && !end;
    const bool early = !end && t->options->train.stop_patience > 0 &&
                       t->stale_evaluations >= (uint64_t)t->options->train.stop_patience;
    const bool due = end || early || at_multiple(t->strategy.updates, save_every) || (epoch_done && save_every == 0);
    if (stop || (due && save_every >= 0))
      TRM_CHECK(trainer_save(t));
    if (early || stop) {
      *how = stop ? "stopped" : "early-stop";
      return TRM_OK;
    }
  }
  return TRM_OK;
}

/* -- setting up */

/* Largest number of rows one forward pass of this rank can meet. */
static size_t largest_part(const struct trainer *t)
{
  const size_t batch = (size_t)t->options->train.batch < t->data->rows ? (size_t)t->options->train.batch : t->data->rows;
  if (t->options->run.lanes > 0)
    return (batch + (size_t)t->options->run.lanes - 1) / (size_t)t->options->run.lanes;
  const size_t part = (batch + (size_t)t->comm->size - 1) / (size_t)t->comm->size;
  return (part + (size_t)t->options->train.accumulate - 1) / (size_t)t->options->train.accumulate;
}

static int check_request(const struct trm_options *o, const struct trm_comm *comm)
{
  if (o->data.file[0] == '\0')
    return trm_error(TRM_USAGE, "data.file: no data set named (make one: trireme data make digits --out digits.h5)");
  if (o->model[0] == '\0')
    return trm_error(TRM_USAGE, "model: no model named (for example model: mlp 784-256-10 relu)");
  if (o->parallel.data > 0 && o->parallel.data != comm->size)
    return trm_error(TRM_USAGE, "parallel.data: %lld asked for, but the job has %d ranks", (long long)o->parallel.data,
                     comm->size);
  if (o->run.lanes > 0) {
    if (o->run.lanes & (o->run.lanes - 1))
      return trm_error(TRM_USAGE, "run.lanes: %lld is not a power of two", (long long)o->run.lanes);
    if (o->run.lanes % comm->size != 0)
      return trm_error(TRM_USAGE, "run.lanes: %lld lanes cannot be divided among %d ranks", (long long)o->run.lanes,
                       comm->size);
    if (o->train.accumulate > 1)
      return trm_error(TRM_USAGE, "run.lanes and train.accumulate exclude each other: lanes divide the batch already");
  }
  return TRM_OK;
}

static int open_data(struct trainer *t)
{
  const struct trm_options *o = t->options;
  const struct trm_dataset_ops *ops = t->parts->dataset;
  TRM_CHECK(ops->open(&t->data, o->data.file, TRM_SPLIT_TRAIN, o, t->comm));
  const char *test = o->data.test[0] ? o->data.test : o->data.file;
  bool has_test = false;
  TRM_CHECK(trm_agree(t->comm, ops->has_split(test, TRM_SPLIT_TEST, &has_test)));
  if (!has_test && o->data.test[0])
    return trm_error(TRM_USAGE, "data.test: %s has no test split", test);
  if (!has_test) {
    if (o->train.stop_patience > 0)
      return trm_error(TRM_USAGE, "train.stop_patience: %s has no test split to judge by", test);
    trm_info("%s has no test split: no evaluation", test);
    return TRM_OK;
  }
  TRM_CHECK(ops->open(&t->test, test, TRM_SPLIT_TEST, o, t->comm));
  if (trm_shape_count(&t->test->spec.shape) != trm_shape_count(&t->data->spec.shape))
    return trm_error(TRM_USAGE, "data.test: samples of %s have shape %s, those of %s %s", test,
                     trm_shape_text(&t->test->spec.shape), o->data.file, trm_shape_text(&t->data->spec.shape));
  return TRM_OK;
}

static int plan_steps(struct trainer *t)
{
  const uint64_t rows = t->data->rows, batch = (uint64_t)t->options->train.batch;
  t->steps_per_epoch = t->options->data.drop_last ? rows / batch : (rows + batch - 1) / batch;
  if (t->steps_per_epoch == 0)
    return trm_error(TRM_USAGE, "train.batch: %llu is more than the %llu samples, and data.drop_last leaves no batch",
                     (unsigned long long)batch, (unsigned long long)rows);
  t->steps = t->options->train.steps > 0 ? (uint64_t)t->options->train.steps
                                         : (uint64_t)t->options->train.epochs * t->steps_per_epoch;
  return TRM_OK;
}

static int create_strategy(struct trainer *t)
{
  t->strategy = (struct trm_strategy){
    .ops = t->parts->strategy,
    .comm = t->comm,
    .device = t->parts->device,
    .optimizer = &t->optimizer,
    .options = t->options,
    .elements = t->model.parameters,
    .boundary = t->model.boundary,
    .boundaries = t->model.boundaries,
  };
  const int status = t->strategy.ops->create(&t->strategy);
  if (status != TRM_OK)
    t->strategy.ops = NULL; /* nothing to destroy */
  return status;
}

static void announce(const struct trainer *t)
{
  const double mb = 1.0 / (1 << 20);
  const double flat = (double)t->model.parameters * sizeof(float) * mb;
  trm_info("%s", strlen(t->model.text) > 400 ? t->options->model : t->model.text); /* a preset says it shorter */
  trm_info("%d rank%s x %d thread%s, batch %lld, %llu steps of %llu samples in all, %zu parameters", t->comm->size,
           t->comm->size == 1 ? "" : "s", t->parts->device->threads, t->parts->device->threads == 1 ? "" : "s",
           (long long)t->options->train.batch, (unsigned long long)t->steps, (unsigned long long)t->data->rows,
           trm_model_size(&t->model));
  const size_t *part = t->budget.part;
  trm_info("memory: %.1f MB a rank: weights %.1f, gradients %.1f, optimizer %.1f, activations %.1f, data %.1f, program "
           "and libraries %.1f", (double)trm_budget_total(&t->budget) * mb, flat,
           (double)part[TRM_BUDGET_WEIGHTS] * mb - flat * (1 + t->optimizer.states), flat * t->optimizer.states,
           (double)part[TRM_BUDGET_ACTIVATIONS] * mb, (double)part[TRM_BUDGET_DATA] * mb,
           (double)part[TRM_BUDGET_PROGRAM] * mb);
}

static int set_up(struct trainer *t)
{
  TRM_CHECK(trm_agree(t->comm, trm_budget_begin(&t->budget, t->parts->device)));
  TRM_CHECK(check_request(t->options, t->comm));
  TRM_CHECK(open_data(t));
  trm_budget_opened(&t->budget);
  TRM_CHECK(plan_steps(t));
  TRM_CHECK(trm_model_create(&t->model, t->options->model, t->options->train.loss, &t->data->spec));
  if (t->options->train.smoothing > 0 && strcmp(t->model.loss->name, "softmax_cross_entropy") != 0)
    return trm_error(TRM_USAGE, "train.label_smoothing is for softmax_cross_entropy, the loss is %s", t->model.loss->name);
  t->model.smoothing = (float)t->options->train.smoothing;
  TRM_CHECK(trm_optimizer_create(&t->optimizer, t->options, t->model.tensor, t->model.tensors));
  TRM_CHECK(create_strategy(t));
  trm_budget_charge(&t->budget, TRM_BUDGET_WEIGHTS);
  int status = trm_model_bind(&t->model, t->parts->device, t->strategy.w, t->strategy.g, largest_part(t), true);
  trm_budget_charge(&t->budget, TRM_BUDGET_ACTIVATIONS);
  if (status == TRM_OK && t->options->run.lanes > 0) {
    t->lane_count = (int)t->options->run.lanes / t->strategy.parts;
    status = trm_lanes_create(&t->lanes, t->parts->device, t->model.parameters, t->lane_count);
    trm_budget_charge(&t->budget, TRM_BUDGET_WEIGHTS);
  }
  TRM_CHECK(trm_agree(t->comm, status));
  trm_feed_create(&t->feed, t->parts->device, &t->model);
  TRM_CHECK(trainer_start(t));
  const int64_t resumed = t->options->run.resume[0] ? (int64_t)t->strategy.updates : -1;
  status = t->comm->rank == 0 ? trm_rundir_open(&t->dir, t->options, resumed) : TRM_OK;
  TRM_CHECK(trm_agree(t->comm, status));
  trm_budget_charge(&t->budget, TRM_BUDGET_PROGRAM);
  trm_budget_first_step(&t->budget, &t->model);
  announce(t);
  return TRM_OK;
}

static void tear_down(struct trainer *t)
{
  if (t->comm->rank == 0)
    trm_rundir_close(&t->dir);
  trm_feed_free(&t->feed);
  trm_host_batch_free(&t->batch);
  trm_lanes_free(&t->lanes);
  trm_model_free(&t->model);
  if (t->strategy.ops)
    t->strategy.ops->destroy(&t->strategy);
  if (t->test)
    t->test->ops->close(t->test);
  if (t->data)
    t->data->ops->close(t->data);
}

/* The figures of the run, and summary.json. Collective. */
static int conclude(struct trainer *t, const char *how, struct trm_result *result)
{
  *result = (struct trm_result){
    .epochs = t->epoch + (trainer_epoch_done(t) ? 1 : 0),
    .steps = t->strategy.updates,
    .samples = t->samples,
    .wall_s = trainer_wall(t),
    .samples_per_s = t->train_s > 0 ? (double)t->samples_here / t->train_s : 0,
    .final_train_loss = t->epoch_rows > 0 ? t->epoch_loss / t->epoch_rows : NAN,
    .test_loss = t->test_loss,
    .test_accuracy = t->test_accuracy,
    .best_test_accuracy = t->best_accuracy,
    .tokens = t->model.spec.tokens,
    .token_bytes = t->test ? t->test->token_bytes : 0,
    .status = how,
    .planned_bytes = trm_budget_total(&t->budget),
    .max_resident_bytes = trm_memory_most(),
  };
  const float *view[TRM_MAX_STATES] = {NULL};
  TRM_CHECK(t->strategy.ops->collect(&t->strategy, view));
  if (t->comm->rank != 0)
    return TRM_OK;
  trm_model_hash(&t->model, view[0], result->weights_sha256);
  return trm_rundir_summary(&t->dir, t->options, t->parts, &t->model, result, NULL, 0);
}

int trm_train(const struct trm_options *options, const struct trm_parts *parts, struct trm_result *result)
{
  struct trainer t = {
    .options = options,
    .parts = parts,
    .comm = parts->comm,
    .best_loss = NAN,
    .best_accuracy = NAN,
    .test_loss = NAN,
    .test_accuracy = NAN,
    .evaluated_at = UINT64_MAX,
  };
  trm_stop_listen();
  t.began = clock_now(&t);
  int status = set_up(&t);
  if (status == TRM_OK) {
    t.began = clock_now(&t);
    const char *how;
    status = run_epochs(&t, &how);
    trm_progress_end();
    if (status != TRM_OK) {
      /* the run is on record all the same; its own failure is the message that counts */
      char *reason = trm_strdup(trm_error_text());
      conclude(&t, "failed", result);
      trm_error(status, "%s", reason);
      trm_free(reason);
    } else {
      status = trm_agree(t.comm, conclude(&t, how, result));
      if (status == TRM_OK && strcmp(how, "stopped") == 0)
        status = trm_error(TRM_STOPPED, "stopped by a signal at step %llu, after a checkpoint; go on with run.resume=auto",
                           (unsigned long long)t.strategy.updates);
    }
  }
  tear_down(&t);
  return status;
}
