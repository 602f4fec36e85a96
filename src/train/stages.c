#include "train/stages.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"
#include "nn/balance.h"
#include "train/stop.h"
#include "train/trainer.h"

static int stages_of(const struct trainer *t)
{
  return t->grid->size[TRM_AXIS_PIPELINE];
}

int trainer_stages_cut(struct trainer *t, struct trm_model_part *part)
{
  const struct trm_options *o = t->options;
  struct trm_pipeline *p = &t->stages.pipeline;
  if (stages_of(t) == 1)
    return TRM_OK;
  TRM_CHECK(trm_schedule_create(&p->schedule, o->parallel.schedule, stages_of(t), (int)o->parallel.chunks,
                                (int)o->train.accumulate));
  return trm_balance_part(&t->whole, o->parallel.cut, stages_of(t), p->schedule.chunks,
                          t->grid->place[TRM_AXIS_PIPELINE], part);
}

void trainer_stages_announce(const struct trainer *t)
{
  const int pieces = stages_of(t) * t->stages.pipeline.schedule.chunks;
  if (!t->stages.used)
    return;
  struct trm_chunk_cut *cut = trm_alloc((size_t)pieces * sizeof *cut, "cuts");
  char *text = NULL;
  size_t bytes = 0;
  FILE *to = open_memstream(&text, &bytes);
  if (to && trm_balance(&t->whole, t->options->parallel.cut, pieces, cut) == TRM_OK) {
    for (int p = 1; p < pieces; p++)
      fprintf(to, "%s%d", p == 1 ? "" : ",", t->whole.layer[cut[p].first].number);
    const double all = trm_balance_seconds(&t->whole, 0, t->whole.layers);
    for (int p = 0; p < pieces; p++)
      fprintf(to, "%s%.0f%%", p == 0 ? ": " : ", ", 100 * trm_balance_seconds(&t->whole, cut[p].first,
                                                                              cut[p].last) / all);
    fflush(to);
    trm_info("cut before item%s %s of the work, as modelled", pieces > 2 ? "s" : "", text);
  }
  if (to)
    fclose(to);
  free(text);
  trm_free(cut);
}

/* -- the version before, in checkpoints */

static bool has_before(const struct trainer *t)
{
  return t->stages.used && t->stages.pipeline.schedule.name == TRM_2BW;
}

/* One of the ranks that have the same part keeps its version before: whose it is, and of which parameters, is its
 * name. */
static void before_create(struct trainer *t)
{
  struct trainer_stages *s = &t->stages;
  const int parameters = trm_model_parameter_count(&t->model);
  if (!has_before(t) || t->grid->place[TRM_AXIS_DATA] > 0)
    return;
  s->before = trm_alloc(t->model.parameters * sizeof *s->before, "the version of the weights before");
  snprintf(s->before_name, sizeof s->before_name, "before: parameters %d-%d slice %d of %d",
           parameters ? trm_model_parameter(&t->model, 0)->number : 0,
           parameters ? trm_model_parameter(&t->model, parameters - 1)->number : 0, t->grid->place[TRM_AXIS_TENSOR],
           t->grid->size[TRM_AXIS_TENSOR]);
  t->strategy.kept[t->strategy.kepts++] = (struct trm_kept){
    .name = s->before_name, .data = s->before, .bytes = t->model.parameters * sizeof *s->before};
}

int trainer_stages_keep(struct trainer *t)
{
  const struct trainer_stages *s = &t->stages;
  const struct trm_device *device = t->parts->device;
  if (!s->before)
    return TRM_OK;
  const float *from = s->pipeline.stashed ? s->pipeline.stashed : t->strategy.w;
  device->ops->download(t->parts->device, s->before, from, t->model.parameters * sizeof *s->before);
  return device->ops->sync(t->parts->device);
}

int trainer_stages_resume(struct trainer *t)
{
  struct trainer_stages *s = &t->stages;
  struct trm_comm *data = t->grid->axis[TRM_AXIS_DATA];
  if (!has_before(t))
    return TRM_OK;
  if (!t->strategy.kept_given) {
    trm_info("parallel.schedule=2bw: the version before the weights is taken to be the weights: the next batch has no "
             "delay");
    return TRM_OK;
  }
  float *before = s->before;
  if (!before)
    before = trm_alloc(t->model.parameters * sizeof *before, "the version of the weights before");
  data->ops->broadcast(data, before, t->model.parameters, TRM_FLOAT, 0);
  const int status = s->pipeline.ops->restore(&s->pipeline, before);
  if (!s->before)
    trm_free(before);
  return status;
}

int trainer_stages_create(struct trainer *t)
{
  struct trainer_stages *s = &t->stages;
  t->slots = 1;
  if (stages_of(t) == 1)
    return TRM_OK;
  if (!trm_schedule_flushes(&s->pipeline.schedule) && t->strategy.holder)
    return trm_error(TRM_USAGE, "parallel.schedule: pipedream and 2bw have versions of whole weights, which "
                     "parallel.zero divides: they do not go together");
  s->pipeline.ops = t->parts->pipeline;
  s->pipeline.comm = t->grid->axis[TRM_AXIS_PIPELINE];
  s->pipeline.model = &t->model;
  s->pipeline.stash = t->options->parallel.stash;
  TRM_CHECK(s->pipeline.ops->create(&s->pipeline));
  s->used = true;
  t->slots = s->pipeline.slots;
  before_create(t);
  return TRM_OK;
}

void trainer_stages_feed(struct trainer *t)
{
  struct trainer_stages *s = &t->stages;
  if (!s->used)
    return;
  s->batch = trm_alloc((size_t)t->slots * sizeof *s->batch, "batches");
  s->feed = trm_alloc((size_t)t->slots * sizeof *s->feed, "batches");
  for (int slot = 0; slot < t->slots; slot++)
    trm_feed_create(&s->feed[slot], t->parts->device, &t->model);
}

void trainer_stages_free(struct trainer *t)
{
  struct trainer_stages *s = &t->stages;
  for (int slot = 0; slot < t->slots && s->feed; slot++) {
    trm_feed_free(&s->feed[slot]);
    trm_host_batch_free(&s->batch[slot]);
  }
  trm_free(s->feed);
  trm_free(s->batch);
  trm_free(s->flight);
  trm_free(s->before);
  if (s->used)
    s->pipeline.ops->destroy(&s->pipeline);
}

/* What the passes of a run have in common. */
static struct trm_pass pass_of(const struct trainer *t, bool training)
{
  struct trm_pass pass = trainer_pass(t);
  pass.training = training;
  return pass;
}

/* -- training */

static int rows_input(void *context, int batch, int micro, int slot, bool features, bool targets,
                      struct trm_input *input)
{
  (void)features, (void)targets; /* rows are read with their targets */
  struct trainer *t = context;
  struct trainer_stages *s = &t->stages;
  const struct trainer_flight *f = &s->flight[batch];
  const int micros = s->pipeline.schedule.micros;
  size_t low, high;
  trm_interval(f->to - f->from, (size_t)micros, (size_t)micro % (size_t)micros, &low, &high);
  TRM_CHECK(t->data->ops->fetch(t->data, t->epoch, f->from + low, f->from + high, &s->batch[slot]));
  return trm_feed_batch(&s->feed[slot], &s->batch[slot], input);
}

/* Computing times on purpose. */
static double lasts(void *context, int batch, double flop, double took)
{
  struct trainer *t = context;
  return trm_pace_lasts(&t->pace, flop, took, t->strategy.updates + (uint64_t)batch);
}

static int hand_over(void *context, int batch, size_t low, size_t high, const struct trm_tally *tally)
{
  (void)batch;
  return trainer_hand_over(context, low, high, tally);
}

/* The batch, cut; rows (micros). */
static struct trm_pipeline_batch batch_of(struct trainer *t, int number, size_t low, size_t high, size_t *rows)
{
  struct trainer_flight *f = &t->stages.flight[number];
  const int micros = t->stages.pipeline.schedule.micros;
  f->low = low;
  f->high = high;
  trm_interval(high - low, (size_t)t->strategy.parts, (size_t)t->strategy.index, &f->from, &f->to);
  f->from += low;
  f->to += low;
  for (int m = 0; m < micros; m++) {
    size_t a, b;
    trm_interval(f->to - f->from, (size_t)micros, (size_t)m, &a, &b);
    rows[m] = b - a;
  }
  return (struct trm_pipeline_batch){.first_row = t->samples - t->position + f->from,
                                     .scale = 1.0f / (float)(high - low), .micros = micros, .rows = rows};
}

int trainer_stages_train(struct trainer *t, size_t low, size_t high, struct trm_tally *tally)
{
  struct trainer_stages *s = &t->stages;
  if (!s->flight)
    s->flight = trm_alloc(sizeof *s->flight, "batches on their way");
  size_t *rows = trm_alloc((size_t)s->pipeline.schedule.micros * sizeof *rows, "rows of micro-batches");
  const struct trm_pipeline_batch batch = batch_of(t, 0, low, high, rows);
  const struct trm_pipeline_run run = {
    .pass = pass_of(t, true), .batch = &batch, .batches = 1, .context = t, .input = rows_input, .ready = hand_over,
    .lasts = lasts};
  const int status = s->pipeline.ops->train(&s->pipeline, &run, tally);
  trm_free(rows);
  return status;
}

void trainer_stages_bubble(struct trainer *t, double *measured, double *theory)
{
  struct trm_pipeline *p = &t->stages.pipeline;
  *measured = *theory = NAN;
  if (!t->stages.used || p->runs == 0)
    return;
  *measured = p->ops->bubble(p);
  *theory = trm_schedule_bubble(&p->schedule, (double)p->batches / (double)p->runs);
  trm_info("pipeline: idle %.1f%% of the time of %d stages, %.1f%% in theory", 100 * *measured, p->schedule.stages,
           100 * *theory);
}

/* -- evaluation */

struct evaluation {
  struct trainer *t;
  size_t low, high, batch; /* this rank's rows of the test split, so many at a time */
};

static void evaluation_rows(const struct evaluation *e, int micro, size_t *low, size_t *high)
{
  *low = e->low + (size_t)micro * e->batch;
  *low = *low < e->high ? *low : e->high;
  *high = *low + e->batch < e->high ? *low + e->batch : e->high;
}

static int test_input(void *context, int batch, int micro, int slot, bool features, bool targets,
                      struct trm_input *input)
{
  (void)batch, (void)features, (void)targets;
  struct evaluation *e = context;
  struct trainer_stages *s = &e->t->stages;
  size_t low, high;
  evaluation_rows(e, micro, &low, &high);
  TRM_CHECK(e->t->test->ops->fetch(e->t->test, 0, low, high, &s->batch[slot]));
  return trm_feed_batch(&s->feed[slot], &s->batch[slot], input);
}

int trainer_stages_evaluate(struct trainer *t, struct trm_tally *tally)
{
  struct trainer_stages *s = &t->stages;
  struct trm_comm *data = t->grid->axis[TRM_AXIS_DATA];
  const size_t most = (t->test->rows + (size_t)data->size - 1) / (size_t)data->size, at_once = t->model.max_rows;
  struct evaluation e = {.t = t, .batch = at_once};
  trm_interval(t->test->rows, (size_t)data->size, (size_t)data->rank, &e.low, &e.high);
  struct trm_pipeline_batch batch = {.micros = (int)((most + at_once - 1) / at_once)};
  size_t *rows = trm_alloc((size_t)batch.micros * sizeof *rows, "rows of micro-batches");
  for (int m = 0; m < batch.micros; m++) {
    size_t low, high;
    evaluation_rows(&e, m, &low, &high);
    rows[m] = high - low;
  }
  batch.rows = rows;
  const struct trm_pipeline_run run = {
    .pass = pass_of(t, false), .batch = &batch, .batches = 1, .context = &e, .input = test_input};
  memset(tally, 0, sizeof *tally);
  const int status = s->pipeline.ops->evaluate(&s->pipeline, &run, tally);
  trm_free(rows);
  TRM_CHECK(trm_agree(t->comm, status));
  trm_tally_sum(tally, data);
  return TRM_OK;
}

/* -- schedules that do not flush */

/* A run of several batches, and what becomes of them. */
struct advance {
  struct trainer *t;
  uint64_t first;        /* number of batch 0 */
  struct trm_tally *sum;
};

static int advance_input(void *context, int batch, int micro, int slot, bool features, bool targets,
                         struct trm_input *input)
{
  const struct advance *a = context;
  return rows_input(a->t, batch, micro, slot, features, targets, input);
}

static double advance_lasts(void *context, int batch, double flop, double took)
{
  const struct advance *a = context;
  return trm_pace_lasts(&a->t->pace, flop, took, a->first + (uint64_t)batch);
}

static int advance_ready(void *context, int batch, size_t low, size_t high, const struct trm_tally *tally)
{
  (void)batch;
  const struct advance *a = context;
  return trainer_hand_over(a->t, low, high, tally);
}

static bool advance_asked(void *context)
{
  (void)context;
  return trm_stop_asked();
}

static int advance_step(void *context, int batch, struct trm_tally *tally)
{
  const struct advance *a = context;
  struct trainer *t = a->t;
  const uint64_t number = a->first + (uint64_t)batch;
  const double rate = trm_schedule_rate(t->options, number, t->steps, t->steps_per_epoch);
  TRM_CHECK(t->strategy.ops->step(&t->strategy, rate, tally));
  a->sum->loss += tally->loss;
  a->sum->correct += tally->correct;
  a->sum->rows += tally->rows;
  return trainer_log(t, number + 1, t->stages.flight[batch].high - t->position, tally, rate);
}

int trainer_stages_advance(struct trainer *t, uint64_t end, struct trm_tally *sum)
{
  struct trainer_stages *s = &t->stages;
  const uint64_t first = t->strategy.updates;
  const size_t batches = (size_t)(end - first), micros = (size_t)s->pipeline.schedule.micros;
  trm_free(s->flight);
  s->flight = trm_alloc(batches * sizeof *s->flight, "batches on their way");
  struct trm_pipeline_batch *batch = trm_alloc(batches * sizeof *batch, "batches on their way");
  struct trm_tally *tally = trm_alloc(batches * sizeof *tally, "batches on their way");
  size_t *rows = trm_alloc(batches * micros * sizeof *rows, "rows of micro-batches");
  for (size_t b = 0; b < batches; b++) {
    size_t low, high;
    trainer_batch(t, first + b, &low, &high);
    batch[b] = batch_of(t, (int)b, low, high, rows + b * micros);
    tally[b] = (struct trm_tally){0};
  }
  *sum = (struct trm_tally){0};
  struct advance a = {t, first, sum};
  const struct trm_pipeline_run run = {
    .pass = pass_of(t, true), .batch = batch, .batches = (int)batches, .context = &a, .input = advance_input,
    .ready = advance_ready, .step = advance_step, .asked = advance_asked,
    .lasts = advance_lasts};
  const int status = s->pipeline.ops->train(&s->pipeline, &run, tally);
  trm_free(batch);
  trm_free(tally);
  trm_free(rows);
  return status;
}
