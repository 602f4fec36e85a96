/* A batch, its gradient, the strategy. Read it from the bottom: trainer_advance makes one synchronous step, or all that
 * the asynchronous workers do between two settlings. */
#include "core/log.h"
#include "core/status.h"
#include "core/trace.h"
#include "train/stop.h"
#include "train/trainer.h"

/* A failure that only this rank has seen, between collective calls: the others wait for us, so the job must end. */
static void must(const struct trainer *t, int status)
{
  if (status == TRM_OK)
    return;
  trm_log_error();
  if (t->comm->size > 1)
    trm_abort(status);
}

/* Gradients that are summands: the ranks of the tensor axis have the others. */
static void sum_partial(struct trainer *t, size_t low, size_t high)
{
  for (int n = 0; t->tensor && n < trm_model_parameter_count(&t->model); n++) {
    const struct trm_parameter *p = trm_model_parameter(&t->model, n);
    if (p->partial && p->offset >= low && p->offset < high)
      trm_axis_sum(t->tensor, p->g, p->count);
  }
}

int trainer_hand_over(struct trainer *t, size_t low, size_t high, const struct trm_tally *tally)
{
  const struct trm_strategy_ops *ops = t->strategy.ops;
  sum_partial(t, low, high);
  return ops->grad_ready ? ops->grad_ready(&t->strategy, low, high, tally) : TRM_OK;
}

/* What hand_to_strategy needs. */
struct handover {
  struct trainer *t;
  const struct trm_tally *tally;
};

static int hand_to_strategy(void *context, size_t low, size_t high)
{
  const struct handover *to = context;
  return trainer_hand_over(to->t, low, high, to->tally);
}

/* For passes that all ranks make together. */
static void reduce_sums(void *context, double *values, size_t n)
{
  struct trm_comm *comm = context;
  comm->ops->allreduce(comm, values, n, TRM_DOUBLE, TRM_SUM);
}

struct trm_pass trainer_pass(const struct trainer *t)
{
  struct trm_comm *data = t->grid->axis[TRM_AXIS_DATA];
  return (struct trm_pass){
    .device = t->parts->device,
    .training = true,
    .seed = (uint64_t)t->options->run.seed,
    .reduce = t->strategy.ops->lockstep && data->size > 1 && !t->lane_count ? reduce_sums : NULL,
    .reduce_context = data,
    .tensor = t->tensor,
    .holder = t->strategy.holder,
  };
}

/* Forward and backward over positions [low, high) of the epoch's order, weighted as part of a batch of `batch` rows. */
static int compute(struct trainer *t, size_t low, size_t high, size_t batch, float beta, bool last,
                   struct trm_tally *tally)
{
  struct trm_input input;
  TRM_CHECK(t->data->ops->fetch(t->data, t->epoch, low, high, &t->batch));
  TRM_CHECK(trm_feed_batch(&t->feed, &t->batch, &input));
  struct trm_pass pass = trainer_pass(t);
  pass.input = &input;
  pass.first_row = t->samples - t->position + low; /* the same for any division of the batch */
  pass.beta = beta;
  pass.more = !last && !t->lane_count;
  struct handover to = {t, tally};
  const bool hand = last || (pass.holder && pass.holder->anew); /* such a holder adds up by itself */
  return trm_model_train(&t->model, &pass, 1.0f / (float)batch, tally, hand ? hand_to_strategy : NULL, &to);
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
  return trainer_hand_over(t, 0, t->model.parameters, tally);
}

void trainer_batch(const struct trainer *t, uint64_t number, size_t *low, size_t *high)
{
  const int64_t batch = t->options->train.batch, since = (int64_t)number - (int64_t)t->strategy.updates;
  *low = (size_t)((int64_t)t->position + since * batch);
  *high = t->data->rows - *low < (size_t)batch ? t->data->rows : *low + (size_t)batch;
}

/* Asked to stop: by a signal that any rank of this copy of the model has seen. */
static double stop_asked(const struct trainer *t)
{
  double asked = trm_stop_asked();
  if (t->grid->model->size > 1)
    t->grid->model->ops->allreduce(t->grid->model, &asked, 1, TRM_DOUBLE, TRM_SUM);
  return asked;
}

/* The gradient of this rank's part of a batch, and what the strategy makes of it. */
static int train_batch(struct trainer *t, uint64_t number, struct trm_tally *tally, double *rate, size_t *high)
{
  size_t low;
  trainer_batch(t, number, &low, high);
  *rate = trm_schedule_rate(t->options, number, t->steps, t->steps_per_epoch);
  trm_trace_step((int64_t)number + 1);
  *tally = (struct trm_tally){.stop = stop_asked(t)};
  int status = t->strategy.ops->before_forward ? t->strategy.ops->before_forward(&t->strategy) : TRM_OK;
  const double began = trm_pace_clock();
  if (status == TRM_OK)
    status = t->strategy.takes_rows ? trainer_rows_learn(t, low, *high, *rate, tally)
             : t->stages.used       ? trainer_stages_train(t, low, *high, tally)
             : t->lane_count        ? compute_lanes(t, low, *high, tally)
                                    : compute_part(t, low, *high, tally);
  must(t, status);
  if (!t->stages.used) /* stages hold each action */
    trm_pace_hold(&t->pace, began, (*high - low) / (size_t)t->strategy.parts, number);
  TRM_CHECK(status);
  return t->strategy.ops->step(&t->strategy, *rate, tally);
}

/* The batches up to `updates` are done: tally has their sums. */
static void account(struct trainer *t, size_t position, const struct trm_tally *tally)
{
  t->samples += position - t->position;
  t->samples_here += position - t->position;
  t->position = position;
  t->epoch_loss += tally->loss;
  t->epoch_rows += tally->rows;
}

/* The same, of several: from the update `before` on. */
static void account_updates(struct trainer *t, uint64_t before, const struct trm_tally *tally)
{
  const uint64_t done = (t->strategy.updates - before) * (uint64_t)t->options->train.batch;
  const size_t left = t->data->rows - t->position;
  account(t, t->position + (done < left ? (size_t)done : left), tally);
}

/* This rank's batches before `end`. *sum: over them. The failure of one worker stops all, in order. */
static int work(struct trainer *t, uint64_t end, struct trm_tally *sum)
{
  struct trm_strategy *s = &t->strategy;
  int status = TRM_OK;
  uint64_t number;
  *sum = (struct trm_tally){0};
  s->halt = trm_stop_asked();
  while (s->ops->claim(s, end, &number)) {
    struct trm_tally tally;
    double rate;
    size_t high;
    const int now = train_batch(t, number, &tally, &rate, &high);
    status = status == TRM_OK ? now : status;
    s->halt = status != TRM_OK || trm_stop_asked();
    if (now != TRM_OK)
      continue;
    sum->loss += tally.loss;
    sum->correct += tally.correct;
    sum->rows += tally.rows;
    must(t, trainer_log(t, number + 1, high - t->position, &tally, rate));
  }
  s->halt = false;
  if (t->data->together) { /* this rank is done with what the others still read */
    size_t low, high;
    trainer_batch(t, end - 1, &low, &high);
    must(t, t->data->ops->fetch(t->data, t->epoch, low, low, &t->batch));
  }
  return status;
}

static int advance_workers(struct trainer *t, uint64_t end, struct trm_tally *tally)
{
  const uint64_t before = t->strategy.updates;
  int status = work(t, end, tally);
  must(t, t->strategy.ops->settle(&t->strategy));
  double sums[] = {tally->loss, tally->correct, tally->rows, trm_stop_asked()};
  t->comm->ops->allreduce(t->comm, sums, sizeof sums / sizeof *sums, TRM_DOUBLE, TRM_SUM);
  *tally = (struct trm_tally){.loss = sums[0], .correct = sums[1], .rows = sums[2], .stop = sums[3]};
  account_updates(t, before, tally);
  return trm_agree(t->comm, status);
}

static int advance_together(struct trainer *t, struct trm_tally *tally)
{
  double rate;
  size_t high;
  TRM_CHECK(train_batch(t, t->strategy.updates, tally, &rate, &high)); /* tally: now over the global batch */
  account(t, high, tally);
  const int status = trainer_log(t, t->strategy.updates, 0, tally, rate);
  must(t, status);
  return status;
}

/* Several batches in a pipeline that does not flush. */
static int advance_stages(struct trainer *t, uint64_t end, struct trm_tally *tally)
{
  const uint64_t before = t->strategy.updates;
  const int status = trainer_stages_advance(t, end, tally);
  tally->stop = stop_asked(t);
  t->comm->ops->allreduce(t->comm, &tally->stop, 1, TRM_DOUBLE, TRM_SUM);
  account_updates(t, before, tally);
  return status;
}

/* This rank's seconds in communication and waiting so far: of the data, tensor and pipeline axes. */
static void seconds_between_ranks(const struct trainer *t, double *comm_s, double *wait_s)
{
  const struct trm_pipeline *p = &t->stages.pipeline;
  *comm_s = t->strategy.comm_s + (t->tensor ? t->tensor->comm_s : 0) + p->comm_s;
  *wait_s = t->strategy.wait_s + p->wait_s;
}

int trainer_advance(struct trainer *t, uint64_t end, struct trm_tally *tally)
{
  double comm_s, wait_s, comm_after_s, wait_after_s;
  seconds_between_ranks(t, &comm_s, &wait_s);
  t->advancing = trainer_clock(t);
  const bool flushes = !t->stages.used || trm_schedule_flushes(&t->stages.pipeline.schedule);
  const int status = t->strategy.ops->claim ? advance_workers(t, end, tally)
                     : flushes              ? advance_together(t, tally)
                                            : advance_stages(t, end, tally);
  t->train_s += trainer_clock(t) - t->advancing;
  seconds_between_ranks(t, &comm_after_s, &wait_after_s);
  t->comm_s += comm_after_s - comm_s;
  t->wait_s += wait_after_s - wait_s;
  return status;
}
