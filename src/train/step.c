/* Training steps: the gradient of a batch and the strategy's update. Read from the bottom: trainer_advance. */
#include <math.h>

#include "core/ledger.h"
#include "core/log.h"
#include "core/status.h"
#include "core/trace.h"
#include "train/trainer.h"

/* Ends the job after a failure of this rank alone, because the other ranks wait in collective calls. */
static void step_abort_on_failure(const struct trainer *t, int status)
{
  if (status == TRM_OK)
    return;
  trm_log_error();
  if (t->comm->size > 1) {
    trainer_finish_save(t);
    trm_abort(status);
  }
}

/* Sums the partial gradients in the flat interval [low, high) over the tensor axis. */
static void step_reduce_partial_gradients(struct trainer *t, size_t low, size_t high)
{
  for (int n = 0; t->tensor && n < trm_model_parameter_count(&t->model); n++) {
    const struct trm_parameter *p = trm_model_parameter(&t->model, n);
    if (p->gradient_partial && !p->frozen && p->offset >= low && p->offset < high)
      trm_axis_allreduce(t->tensor, p->g, p->count, TRM_VALUES_F32);
  }
}

int trainer_gradient_ready(struct trainer *t, size_t low, size_t high, const struct trm_loss_sums *sums)
{
  if (t->computing)
    return TRM_OK;
  step_reduce_partial_gradients(t, low, high);
  trainer_await_copy(t);
  return trm_staged_arrays_ready(&t->arrays, low, high, sums);
}

/* Arguments of step_gradient_ready. */
struct gradient_context {
  struct trainer *t;
  const struct trm_loss_sums *sums;
};

static int step_gradient_ready(void *context, size_t low, size_t high)
{
  const struct gradient_context *to = context;
  trainer_lanes_complete(to->t, low, high);
  return trainer_gradient_ready(to->t, low, high, to->sums);
}

static void step_part_ready(void *context, size_t high)
{
  const struct gradient_context *to = context;
  struct trm_strategy *strategy = &to->t->strategy;
  strategy->ops->part_ready(strategy, high, to->sums);
}

/* True if a layer's gradient is passed on in parts: not where it is summed over lanes or tensor ranks first. */
static bool step_takes_parts(const struct trainer *t)
{
  return trm_staged_arrays_part(&t->arrays) > 0 && !t->computing && !t->tensor && !t->lanes.count;
}

/* The ranks that update one copy of the weights together. */
static struct trm_comm *step_replica(const struct trainer *t)
{
  return t->strategy.replica ? t->strategy.replica : t->grid->axis[TRM_AXIS_DATA];
}

float trainer_gradient_scale(const struct trainer *t, size_t rows)
{
  const struct trm_strategy *s = &t->strategy;
  size_t low = 0, high = rows, unused;
  if (s->replica) {
    trm_shares_interval(&t->shares, rows, s->replica_shard, &low, &unused);
    trm_shares_interval(&t->shares, rows, s->replica_shard + s->replica->size - 1, &unused, &high);
  }
  return high > low ? 1.0f / (float)(high - low) : 0;
}

/* The pass's reduce: sums over the data axis, or the replica. */
static void step_allreduce(void *context, double *values, size_t n)
{
  struct trainer *t = context;
  struct trm_comm *replica = step_replica(t);
  const double began = trainer_clock(t);
  replica->ops->allreduce(replica, values, n, TRM_DOUBLE, TRM_SUM);
  t->reduce_s += trainer_clock(t) - began;
}

void trainer_shard(const struct trainer *t, size_t rows, size_t *from, size_t *to)
{
  trm_shares_interval(&t->shares, rows, t->strategy.batch_shard, from, to);
}

/* Real ranks: between layers, what other ranks have to say arrives, and may end the computation. */
static bool step_pass_abandons(void *context)
{
  struct trainer *t = context;
  t->comm->ops->progress(t->comm);
  t->slowdown.abandoned = t->strategy.abandons(&t->strategy);
  return t->slowdown.abandoned;
}

struct trm_pass trainer_pass(struct trainer *t)
{
  return (struct trm_pass){
    .device = t->modules->device,
    .training = true,
    .seed = (uint64_t)t->options->run.seed,
    .reduce = t->strategy.ops->lockstep && step_replica(t)->size > 1 ? step_allreduce : NULL,
    .reduce_context = t,
    .tensor_axis = t->tensor,
    .provider = t->arrays.provider,
    .await_weights = t->arrays.upload ? trm_staged_arrays_await : NULL,
    .weights_context = &t->arrays,
    .abandons = t->strategy.abandons && !t->computing ? step_pass_abandons : NULL,
    .abandons_context = t,
  };
}

/* -- the rows of passes. A device with memory of its own is fed ahead: while it computes a pass, the batch after it is
 * on its way there, and the host fetches the next but one. */

static size_t step_passes(const struct trainer *t)
{
  return t->lanes.count ? (size_t)t->lanes.count : (size_t)t->options->train.accumulate;
}

void trainer_pass_rows(const struct trainer *t, size_t batch_low, size_t batch_high, int shard, size_t pass,
                       struct trainer_pass_rows *rows)
{
  const size_t lanes = (size_t)t->options->run.lanes;
  size_t from = 0, to = batch_high - batch_low, low, high;
  if (t->lanes.count) {
    trm_interval(to, lanes, (size_t)(shard * t->lanes.count) + pass, &low, &high);
  } else {
    trainer_shard(t, to, &from, &to);
    trm_interval(to - from, step_passes(t), pass, &low, &high);
  }
  *rows = (struct trainer_pass_rows){.batch_low = batch_low, .batch_high = batch_high, .shard = shard, .pass = pass,
                                     .low = batch_low + from + low, .high = batch_low + from + high,
                                     .epoch = t->epoch};
}

/* Sets *rows to those of the pass after it; false: there is none in this epoch, or it is not known yet. */
static bool step_next_rows(const struct trainer *t, struct trainer_pass_rows *rows)
{
  const size_t batch = (size_t)t->options->train.batch, left = t->data->rows - rows->batch_high;
  if (rows->pass + 1 < step_passes(t))
    trainer_pass_rows(t, rows->batch_low, rows->batch_high, rows->shard, rows->pass + 1, rows);
  else if (t->strategy.ops->next_batch || rows->shard != t->strategy.batch_shard || left == 0 ||
           (left < batch && t->options->data.drop_last))
    return false;
  else
    trainer_pass_rows(t, rows->batch_high, rows->batch_high + (left < batch ? left : batch), rows->shard, 0, rows);
  return true;
}

static bool step_same_rows(const struct trainer_pass_rows *a, const struct trainer_pass_rows *b)
{
  return a->batch_high == b->batch_high && a->pass == b->pass && a->low == b->low && a->high == b->high &&
         a->epoch == b->epoch;
}

static int step_fetch(struct trainer *t, const struct trainer_pass_rows *rows)
{
  t->fetched = (struct trainer_pass_rows){0};
  TRM_CHECK(t->data->ops->fetch(t->data, rows->epoch, rows->low, rows->high, &t->batch));
  t->fetched = *rows;
  return TRM_OK;
}

/* Begins to upload the rows that are fetched. */
static int step_upload_begin(struct trainer *t)
{
  t->uploading = t->fetched;
  t->fetched = (struct trainer_pass_rows){0};
  return trm_device_batch_begin(&t->device_batch, &t->batch);
}

/* Gets the rows of a pass, and begins to upload those of the next one if they are fetched. */
static int step_input(struct trainer *t, const struct trainer_pass_rows *rows, struct trm_input *input)
{
  if (!step_same_rows(&t->uploading, rows)) {
    if (!step_same_rows(&t->fetched, rows))
      TRM_CHECK(step_fetch(t, rows));
    TRM_CHECK(step_upload_begin(t));
  }
  trm_device_batch_await(&t->device_batch, input);
  t->uploading = (struct trainer_pass_rows){0};
  return t->fetched.batch_high ? step_upload_begin(t) : TRM_OK;
}

/* While the device computes the pass over `now`: fetches rows ahead. Of data that ranks read together each rank fetches
 * only what it computes: the others may wait for it. */
static int step_read_ahead(struct trainer *t, const struct trainer_pass_rows *now)
{
  struct trainer_pass_rows next = *now;
  if (t->modules->device->host_memory || (t->data->streamed && t->comm->size > 1) || !step_next_rows(t, &next))
    return TRM_OK;
  if (!t->uploading.batch_high) { /* the first pass */
    TRM_CHECK(step_fetch(t, &next));
    TRM_CHECK(step_upload_begin(t));
  }
  return step_next_rows(t, &next) ? step_fetch(t, &next) : TRM_OK;
}

uint64_t trainer_first_row(const struct trainer *t, const struct trm_pass *pass, const struct trainer_pass_rows *rows)
{
  return pass->step ? rows->low - rows->batch_low : t->samples - t->position + rows->low;
}

int trainer_forward_backward(struct trainer *t, const struct trainer_pass_rows *rows, struct trm_pass *pass,
                             bool final, struct trm_loss_sums *sums)
{
  struct trm_input input;
  TRM_CHECK(step_input(t, rows, &input));
  pass->input = &input;
  pass->first_row = trainer_first_row(t, pass, rows);
  struct gradient_context to = {t, sums};
  if (final && step_takes_parts(t)) {
    pass->part = trm_staged_arrays_part(&t->arrays);
    pass->part_ready = step_part_ready;
    pass->part_context = &to;
  }
  TRM_CHECK(trm_model_train(&t->model, pass, trainer_gradient_scale(t, rows->batch_high - rows->batch_low), sums,
                            final ? step_gradient_ready : NULL, &to));
  return step_read_ahead(t, rows);
}

int trainer_train_micro_batches(struct trainer *t, const struct trainer_batch *batch, struct trm_loss_sums *sums)
{
  const size_t micro_batches = step_passes(t);
  struct trm_pass pass = trainer_pass(t);
  pass.step = trm_staged_arrays_step(&t->arrays);
  for (size_t i = 0; i < micro_batches; i++) {
    const bool last = i + 1 == micro_batches;
    struct trainer_pass_rows rows;
    trainer_pass_rows(t, batch->low, batch->high, t->strategy.batch_shard, i, &rows);
    pass.beta = i ? 1 : 0;
    pass.more_passes = !last;
    pass.weights_kept = i > 0;
    const bool final = last || (pass.provider && pass.provider->overwrites_gradient); /* the provider adds them up */
    TRM_CHECK(trainer_forward_backward(t, &rows, &pass, final, sums));
    if (t->slowdown.abandoned)
      break;
  }
  return TRM_OK;
}

void trainer_batch_range(const struct trainer *t, uint64_t number, size_t *low, size_t *high)
{
  const int64_t batch = t->options->train.batch, since = (int64_t)number - (int64_t)t->strategy.updates;
  *low = (size_t)((int64_t)t->position + since * batch);
  *high = t->data->rows - *low < (size_t)batch ? t->data->rows : *low + (size_t)batch;
}

/* Returns more than 0 if a signal to stop has arrived on any rank of this copy of the model. Collective over these. */
static double step_stop_requested(const struct trainer *t)
{
  double requested = trainer_stop_requested(t);
  if (t->grid->model->size > 1)
    t->grid->model->ops->allreduce(t->grid->model, &requested, 1, TRM_DOUBLE, TRM_SUM);
  return requested;
}

bool trainer_passes_reduce(const struct trainer *t)
{
  bool reduces = false;
  for (int i = 0; i < t->model.layers && t->strategy.ops->lockstep; i++)
    reduces |= t->model.layer[i].batch_sums > 0;
  return reduces;
}

bool trainer_passes_compute(const struct trainer *t)
{
  const struct trm_strategy_ops *ops = t->strategy.ops;
  const bool weights_move = ops->next_batch && !(ops->takes & TRM_TAKES_RECOMPUTE);
  const bool collective = t->tensor || t->strategy.provider || t->data->streamed || t->mode->delays_actions ||
                          trainer_passes_reduce(t);
  return t->comm->ops->compute && (!t->options->simulate.gradients || (!collective && !weights_move));
}

/* Arguments of step_compute. */
struct step_pass {
  struct trainer *t;
  const struct trainer_batch *batch;
  struct trm_loss_sums *sums;
};

static int step_compute(void *context)
{
  const struct step_pass *pass = context;
  return pass->t->mode->train_batch(pass->t, pass->batch, pass->sums);
}

/* Computes the gradient of this rank's shard of the batch, in the time that it should take. Without simulate.gradients
 * time passes alone: the sums have no rows, and means over them are not a number. */
static int step_gradient(struct trainer *t, const struct trainer_batch *batch, struct trm_loss_sums *sums)
{
  size_t from, to;
  trainer_shard(t, batch->high - batch->low, &from, &to);
  const size_t rows = to - from;
  const double began = trainer_clock(t);
  t->slowdown.abandoned = false;
  t->slowdown.abandon_at = t->strategy.abandon_at;
  if (!t->computes) {
    TRM_CHECK(t->mode->train_batch(t, batch, sums));
    if (!t->mode->delays_actions && !t->slowdown.abandoned)
      trm_slowdown_wait(&t->slowdown, began, rows, batch->number);
    if (!t->mode->delays_actions) /* a pipeline traces its actions */
      trm_trace_add("gradient", TRM_TRACE_COMPUTE, began, trainer_clock(t), TRM_TRACE_NO_IDS);
    return trainer_speeds_passed(t);
  }
  struct step_pass pass = {t, batch, sums};
  t->computing = true;
  const int status = trm_slowdown_compute(&t->slowdown, rows, batch->number,
                                          t->options->simulate.gradients ? step_compute : NULL, &pass);
  t->computing = false;
  trm_trace_add("gradient", TRM_TRACE_COMPUTE, began, trainer_clock(t), TRM_TRACE_NO_IDS);
  TRM_CHECK(status);
  TRM_CHECK(trainer_speeds_passed(t));
  return trainer_gradient_ready(t, 0, t->model.parameters, sums);
}

double trainer_rate(const struct trainer *t, uint64_t step)
{
  return trm_schedule_rate(t->options, step, t->steps, t->steps_per_epoch) * t->plateau.factor;
}

/* Sets *batch to a part of a batch of the run. */
static void step_begin_batch(const struct trainer *t, const struct trm_batch_part *part, struct trainer_batch *batch)
{
  *batch = (struct trainer_batch){.number = part->batch, .rate = trainer_rate(t, part->batch)};
  size_t from, to;
  trainer_batch_range(t, part->batch, &batch->low, &batch->high);
  trm_interval(batch->high - batch->low, part->parts, part->part, &from, &to);
  batch->high = batch->low + to;
  batch->low += from;
}

/* True if the passes add their losses to the step in device memory; those of a pipeline return them. */
static bool step_passes_add_losses(const struct trainer *t)
{
  return t->grid->size[TRM_AXIS_PIPELINE] == 1 && trm_staged_arrays_step(&t->arrays);
}

/* Computes the gradient of this rank's shard of the batch and makes the strategy's step, unless the rank fails, or the
 * gradient is of no use. */
static int step_train_batch(struct trainer *t, const struct trainer_batch *batch, struct trm_loss_sums *sums)
{
  trm_trace_set_step((int64_t)batch->number + 1);
  trm_ledger_set_phase(TRM_LEDGER_STEP, batch->number + 1);
  *sums = (struct trm_loss_sums){.stop_requests = step_stop_requested(t)};
  if (step_passes_add_losses(t))
    trm_strategy_begin_step(&t->strategy, batch->rate, t->samples - t->position + batch->low, sums);
  int status = trm_staged_arrays_begin(&t->arrays);
  t->strategy.rate = batch->rate;
  if (status == TRM_OK)
    status = step_gradient(t, batch, sums);
  step_abort_on_failure(t, status);
  TRM_CHECK(status);
  if (t->verify.failed) /* on every rank, with its message */
    return TRM_FAILED;
  t->strategy.abandoned = (t->slowdown.failed && !t->rows.row) /* a row trainer has made the updates */
                          || t->slowdown.abandoned;
  if (t->strategy.abandoned)
    return TRM_OK;
  if (!step_passes_add_losses(t))
    trm_strategy_begin_step(&t->strategy, batch->rate, 0, sums);
  trainer_await_copy(t);
  return t->strategy.ops->step(&t->strategy, batch->rate, sums);
}

/* Advances the position in the epoch and adds the sums of the batches between. */
static void step_count_batch(struct trainer *t, size_t position, const struct trm_loss_sums *sums)
{
  if (t->position == 0)
    t->epoch_loss = t->epoch_rows = 0;
  t->samples += position - t->position;
  t->samples_this_run += position - t->position;
  t->position = position;
  t->epoch_loss += sums->loss;
  t->epoch_rows += sums->rows;
}

/* Advances the position by the updates since `before`. */
static void step_count_updates(struct trainer *t, uint64_t before, const struct trm_loss_sums *sums)
{
  const uint64_t done = (t->strategy.updates - before) * (uint64_t)t->options->train.batch;
  const size_t left = t->data->rows - t->position;
  step_count_batch(t, t->position + (done < left ? (size_t)done : left), sums);
}

/* Trains on this rank's batches before `end`. *total: sums over them. A failure of one worker stops all by `halt`. */
static int step_run_worker(struct trainer *t, uint64_t end, struct trm_loss_sums *total)
{
  struct trm_strategy *s = &t->strategy;
  int status = TRM_OK;
  struct trm_batch_part part;
  *total = (struct trm_loss_sums){0};
  s->halt = trainer_stop_requested(t);
  if (t->data->streamed && t->options->simulate.gradients) /* no rows: all ranks of a node begin together */
    step_abort_on_failure(t, t->data->ops->fetch(t->data, t->epoch, t->position, t->position, &t->batch));
  while (s->ops->next_batch(s, end, &part)) {
    struct trm_loss_sums sums;
    struct trainer_batch batch;
    trainer_snapshots_see(t, part.batch);
    step_begin_batch(t, &part, &batch);
    if (batch.low == batch.high) /* the last batch of an epoch may have fewer rows than parts */
      continue;
    const int batch_status = step_train_batch(t, &batch, &sums);
    status = status == TRM_OK ? batch_status : status;
    s->halt = status != TRM_OK || trainer_stop_requested(t);
    if (batch_status != TRM_OK || s->abandoned)
      continue;
    total->loss += sums.loss;
    total->correct += sums.correct;
    total->rows += sums.rows;
    step_abort_on_failure(t, trainer_log(t, batch.number + 1, batch.high - t->position, &sums, batch.rate));
  }
  s->halt = false;
  return status;
}

int trainer_advance_workers(struct trainer *t, uint64_t end, struct trm_loss_sums *sums)
{
  const uint64_t before = t->strategy.updates;
  int status = step_run_worker(t, end, sums);
  step_abort_on_failure(t, t->strategy.ops->quiesce(&t->strategy));
  sums->stop_requests = trainer_stop_requested(t);
  trm_loss_sums_allreduce(sums, t->comm);
  step_count_updates(t, before, sums);
  return trm_agree(t->comm, status);
}

/* Local steps: finds out if the rate has decayed. */
static void step_compare_rates(struct trainer *t, const struct trainer_batch *batch)
{
  if (!t->strategy.ops->local_steps)
    return;
  for (; t->rates_known < batch->number; t->rates_known++)
    t->peak_rate =
      fmax(t->peak_rate, trm_schedule_rate(t->options, t->rates_known, t->steps, t->steps_per_epoch));
  t->strategy.decayed = batch->rate < t->peak_rate;
}

/* Local steps: quiesces after the last step before `end`, and before a stop. Adds the sums that were left.
 * Collective. */
static int step_quiesce(struct trainer *t, uint64_t end, struct trm_loss_sums *sums)
{
  struct trm_strategy *s = &t->strategy;
  if (!s->ops->local_steps || (s->updates < end && sums->stop_requests == 0))
    return TRM_OK;
  TRM_CHECK(s->ops->quiesce(s));
  sums->loss += s->unreported.loss;
  sums->correct += s->unreported.correct;
  sums->rows += s->unreported.rows;
  sums->stop_requests += s->unreported.stop_requests;
  return TRM_OK;
}

int trainer_advance_step(struct trainer *t, uint64_t end, struct trm_loss_sums *sums)
{
  const struct trm_batch_part whole = {.batch = t->strategy.updates, .part = 0, .parts = 1};
  struct trainer_batch batch;
  step_begin_batch(t, &whole, &batch);
  step_compare_rates(t, &batch);
  trainer_speeds_begin(t);
  TRM_CHECK(step_train_batch(t, &batch, sums)); /* sums: now over the global batch */
  TRM_CHECK(step_quiesce(t, end, sums));
  TRM_CHECK(trainer_speeds_end(t, batch.high - batch.low));
  step_count_batch(t, batch.high, sums);
  const int status = trainer_log(t, t->strategy.updates, 0, sums, batch.rate);
  step_abort_on_failure(t, status);
  return status;
}

int trainer_advance_pipeline(struct trainer *t, uint64_t end, struct trm_loss_sums *sums)
{
  const uint64_t before = t->strategy.updates;
  const int status = trainer_stages_advance(t, end, sums);
  sums->stop_requests = step_stop_requested(t);
  t->comm->ops->allreduce(t->comm, &sums->stop_requests, 1, TRM_DOUBLE, TRM_SUM);
  step_count_updates(t, before, sums);
  return status;
}

/* Sets this rank's seconds in communication and waiting so far, of all axes. */
static void step_comm_seconds(const struct trainer *t, double *comm_s, double *wait_s)
{
  const struct trm_pipeline *p = &t->stages.pipeline;
  *comm_s = t->strategy.comm_s + t->reduce_s + (t->tensor ? t->tensor->comm_s : 0) + p->comm_s;
  *wait_s = t->strategy.wait_s + p->wait_s;
}

int trainer_advance(struct trainer *t, uint64_t end, struct trm_loss_sums *sums)
{
  double comm_s, wait_s, comm_after_s, wait_after_s;
  step_comm_seconds(t, &comm_s, &wait_s);
  t->advance_began = trainer_clock(t);
  t->advances = true;
  trm_ledger_set_phase(TRM_LEDGER_STEP, t->strategy.updates); /* of a parameter server too, which has no batches */
  const int status = t->mode->advance(t, end, sums);
  t->advances = false;
  t->result->train_s += trainer_clock(t) - t->advance_began;
  step_comm_seconds(t, &comm_after_s, &wait_after_s);
  t->result->comm_s += comm_after_s - comm_s;
  t->result->wait_s += wait_after_s - wait_s;
  return status;
}
