/* The executor of a schedule: for each action of this stage it waits for what the action needs, computes, and sends
 * what comes of it. Values and gradients go through channels (ends.h); the tally of a batch comes from the last stage,
 * which has it before any stage is done with the batch (tallies.h).
 *
 * A failure between messages is this stage's alone and the others wait for it, so it ends the job. */
#include "mpi/pipeline/pipeline.h"

#include <math.h>
#include <time.h>

#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"
#include "core/trace.h"
#include "mpi/pipeline/ending.h"
#include "mpi/pipeline/ends.h"
#include "mpi/pipeline/tallies.h"
#include "mpi/pipeline/tied.h"
#include "mpi/pipeline/versions.h"

#define NAP_S 2e-4

struct executor {
  struct trm_pipeline *pipeline;
  struct trm_comm *comm;
  struct ends ends[TRM_MAX_CHUNKS];
  struct tied tied;
  struct versions versions;
  struct tallies tallies;
  struct ending ending;
  struct trm_device *device; /* from the first run on */
  struct trm_input *input;   /* (slots): what the callback gave; one chunk of a stage at most asks for it */
  struct trm_input rows_alone; /* for all others */
  int slots;

  /* of the run */
  const struct trm_pipeline_run *run;
  size_t *rows;              /* (batches, micros) */
  uint64_t *first_row;       /* likewise */
  int micros;                /* of a batch */
  int batches;               /* that are computed */
  int failed;                /* status of the first update that failed, on all stages */
};

/* Ends the job if the others wait for this stage. */
static int fail(const struct executor *e, int status)
{
  if (status != TRM_OK && e->comm->size > 1) {
    trm_log_error();
    trm_abort(status);
  }
  return status;
}

static bool is_first(const struct executor *e, int chunk)
{
  return chunk == 0 && e->comm->rank == 0;
}

static bool is_last(const struct executor *e, int chunk)
{
  return chunk == e->pipeline->schedule.chunks - 1 && e->comm->rank == e->comm->size - 1;
}

/* -- create */

static void chunk_cost(struct trm_pipeline *pipeline, int chunk)
{
  const struct trm_model *model = pipeline->model;
  pipeline->flop[chunk] = 0;
  for (int i = model->chunk[chunk].first; i < model->chunk[chunk].last; i++)
    pipeline->flop[chunk] += model->layer[i].ops->cost(&model->layer[i]).flop;
}

static int pipeline_create(struct trm_pipeline *pipeline)
{
  const struct trm_schedule *schedule = &pipeline->schedule;
  const int stages = pipeline->comm->size;
  if (schedule->stages != stages || pipeline->model->chunks != schedule->chunks)
    return trm_error(TRM_FAILED, "a pipeline of %d stages of %d chunks over %d ranks and a model of %d chunks",
                     schedule->stages, schedule->chunks, stages, pipeline->model->chunks);
  struct executor *e = trm_alloc(sizeof *e, "the pipeline");
  pipeline->own = e;
  e->pipeline = pipeline;
  e->comm = pipeline->comm->ops->split(pipeline->comm, 0, pipeline->comm->rank); /* messages of nobody else */
  for (int c = 0; c < schedule->chunks; c++) {
    ends_create(&e->ends[c], pipeline, e->comm, c);
    chunk_cost(pipeline, c);
  }
  pipeline->slots = trm_schedule_slots(schedule, e->comm->rank);
  versions_create(&e->versions, pipeline);
  tallies_create(&e->tallies, e->comm);
  ending_create(&e->ending, e->comm);
  return tied_create(&e->tied, e->comm, pipeline->model);
}

static void pipeline_destroy(struct trm_pipeline *pipeline)
{
  struct executor *e = pipeline->own;
  if (!e)
    return;
  for (int c = 0; c < pipeline->schedule.chunks; c++)
    ends_free(&e->ends[c]);
  tied_free(&e->tied, e->device);
  versions_free(&e->versions);
  tallies_free(&e->tallies);
  ending_free(&e->ending);
  trm_free(e->input);
  trm_free(e->rows);
  trm_free(e->first_row);
  trm_free(pipeline->moment);
  e->comm->ops->release(e->comm);
  trm_free(e);
  pipeline->own = NULL;
  pipeline->moment = NULL;
}

/* -- a run */

static double now(const struct executor *e)
{
  return e->comm->ops->clock(e->comm);
}

/* Lays out the rows of all micro-batches, posts the receives. */
static int run_begin(struct executor *e, const struct trm_pipeline_run *run, bool backward)
{
  struct trm_pipeline *pipeline = e->pipeline;
  const struct trm_model *model = pipeline->model;
  e->run = run;
  e->micros = run->batch[0].micros;
  e->batches = run->batches;
  e->failed = TRM_OK;
  e->device = model->device;
  if (e->slots != model->slots) {
    trm_free(e->input);
    e->slots = model->slots;
    e->input = trm_alloc((size_t)e->slots * sizeof *e->input, "inputs of the micro-batches");
  }
  const size_t count = (size_t)run->batches * (size_t)e->micros;
  trm_free(e->rows);
  trm_free(e->first_row);
  e->rows = trm_alloc(count * sizeof *e->rows, "rows of the micro-batches");
  e->first_row = trm_alloc(count * sizeof *e->first_row, "rows of the micro-batches");
  for (size_t i = 0; i < count; i++) {
    const size_t m = i % (size_t)e->micros;
    const struct trm_pipeline_batch *batch = &run->batch[i / (size_t)e->micros];
    e->rows[i] = batch->rows[m];
    e->first_row[i] = m ? e->first_row[i - 1] + batch->rows[m - 1] : batch->first_row;
    if (batch->rows[m] > model->max_rows)
      return trm_error(TRM_FAILED, "a micro-batch of %zu rows: the model has memory for %zu", batch->rows[m],
                       model->max_rows);
  }
  for (int c = 0; c < pipeline->schedule.chunks; c++)
    ends_begin(&e->ends[c], e->rows, (int)count, backward);
  return TRM_OK;
}

/* Between layers: messages that have arrived go on to their buffers. */
static void move_on(void *context)
{
  struct trm_comm *comm = context;
  comm->ops->progress(comm);
}

/* The pass of a micro-batch over one chunk. */
static int pass_of(struct executor *e, const struct trm_action *action, struct trm_pass *pass)
{
  const struct trm_pipeline_run *run = e->run;
  const int slot = action->micro % e->slots, batch = action->micro / e->micros, micro = action->micro % e->micros;
  const bool features = is_first(e, action->chunk), targets = is_last(e, action->chunk);
  struct trm_input *input = &e->input[slot];
  if (action->kind == TRM_FORWARD && (features || targets))
    TRM_CHECK(run->input(run->context, batch, micro, slot, features, targets, input));
  *pass = run->pass;
  pass->input = input;
  if (!features && !targets) {
    e->rows_alone.rows = e->rows[action->micro];
    pass->input = &e->rows_alone;
  }
  if (pass->input->rows != e->rows[action->micro])
    return trm_error(TRM_FAILED, "micro-batch %d has %zu rows, not the %zu that the stages were told", micro,
                     pass->input->rows, e->rows[action->micro]);
  pass->between = e->comm->size > 1 ? move_on : NULL;
  pass->between_context = e->comm;
  pass->first_row = e->first_row[action->micro];
  pass->scale = run->batch[batch].scale;
  pass->beta = micro ? 1 : 0;
  return TRM_OK;
}

/* Naps until the action has taken as long as it is to take, and lets messages move meanwhile. */
static void hold(struct executor *e, const struct trm_action *action, double began)
{
  const struct trm_pipeline_run *run = e->run;
  if (!run->lasts)
    return;
  const double flop = (double)e->rows[action->micro] * e->pipeline->flop[action->chunk];
  const double lasts = run->lasts(run->context, action->micro / e->micros,
                                  action->kind == TRM_FORWARD ? flop : 2 * flop, now(e) - began);
  for (double left = began + lasts - now(e); left > 0; left = began + lasts - now(e)) {
    const struct timespec nap = {.tv_nsec = (long)(fmin(left, NAP_S) * 1e9)};
    nanosleep(&nap, NULL);
    e->comm->ops->progress(e->comm);
  }
}

/* -- actions */

static int run_forward(struct executor *e, const struct trm_action *action, struct trm_pipeline_moment *moment,
                       struct trm_tally *tally)
{
  struct trm_pipeline *pipeline = e->pipeline;
  struct trm_model *model = pipeline->model;
  struct ends *ends = &e->ends[action->chunk];
  const struct trm_shape *shape;
  struct trm_pass pass;
  trm_model_at(model, action->chunk, action->micro % e->slots);
  TRM_CHECK(channel_take(&ends->value_in, e->device, trm_model_entry(model, false, &shape), action->micro));
  TRM_CHECK(pass_of(e, action, &pass));
  moment->began = now(e);
  trm_model_forward(model, &pass);
  if (is_last(e, action->chunk))
    TRM_CHECK(trm_model_score(model, &pass, tally));
  else
    TRM_CHECK(e->device->ops->sync(e->device));
  hold(e, action, moment->began);
  moment->ended = now(e);
  channel_put(&ends->value_out, e->device, trm_model_exit(model, false, &shape), action->micro);
  return TRM_OK;
}

struct handover {
  struct executor *executor;
  int batch;
  bool first_micro;
};

/* Gradients are given away after each micro-batch. */
static bool gives_away(const struct executor *e)
{
  return e->run->pass.holder && e->run->pass.holder->anew;
}

static struct trm_tally *tally_of(const struct executor *e, int batch)
{
  return &e->tallies.tally[batch];
}

static int ready(const struct executor *e, int batch, size_t low, size_t high)
{
  const struct trm_pipeline_run *run = e->run;
  return run->ready ? run->ready(run->context, batch, low, high, tally_of(e, batch)) : TRM_OK;
}

static int hand_on(void *context, size_t low, size_t high)
{
  const struct handover *to = context;
  struct executor *e = to->executor;
  versions_done(&e->versions, low, high);
  if (gives_away(e))
    tied_collect(&e->tied, e->device, low, high, to->first_micro);
  else if (low >= e->tied.from)
    return TRM_OK; /* batch_end will */
  return ready(e, to->batch, low, high);
}

static int run_backward(struct executor *e, const struct trm_action *action, struct trm_pipeline_moment *moment)
{
  struct trm_model *model = e->pipeline->model;
  struct ends *ends = &e->ends[action->chunk];
  const struct trm_shape *shape;
  struct trm_pass pass;
  struct handover to = {e, action->micro / e->micros, action->micro % e->micros == 0};
  const bool last_micro = action->micro % e->micros == e->micros - 1;
  trm_model_at(model, action->chunk, action->micro % e->slots);
  TRM_CHECK(channel_take(&ends->gradient_in, e->device, trm_model_exit(model, true, &shape), action->micro));
  if (last_micro && action->chunk == model->chunks - 1 && !is_last(e, action->chunk))
    tallies_receive(&e->tallies, to.batch, &e->pipeline->wait_s);
  TRM_CHECK(pass_of(e, action, &pass));
  moment->began = now(e);
  TRM_CHECK(trm_model_backward(model, &pass, last_micro || gives_away(e) ? hand_on : NULL, &to));
  hold(e, action, moment->began);
  moment->ended = now(e);
  channel_put(&ends->gradient_out, e->device, trm_model_entry(model, true, &shape), action->micro);
  return TRM_OK;
}

/* The gradients of tied weights are handed on where all others are: as if of one more micro-batch that has no others.
 * Holders take their layers together in ways of their own, so all layers of a chunk pass by. */
static int tied_pass(struct executor *e, int batch, const struct trm_chunk *chunk)
{
  const struct trm_holder *holder = e->run->pass.holder;
  for (int i = chunk->last - 1; i >= chunk->first; i--) {
    struct trm_layer *layer = &e->pipeline->model->layer[i];
    float *w, *g;
    if (layer->low == layer->high)
      continue;
    holder->take(holder->context, layer->low, layer->high, TRM_HOLD_BACKWARD, &w, &g);
    e->device->ops->fill(e->device, g, 0, layer->high - layer->low);
    tied_put(&e->tied, e->device, layer->low, layer->high, g);
    for (int p = 0; p < layer->parameters; p++)
      if (!layer->parameter[p].statistic)
        layer->parameter[p].g = g + (layer->parameter[p].offset - layer->low);
    TRM_CHECK(ready(e, batch, layer->low, layer->high));
    holder->give(holder->context, layer->low, layer->high, TRM_HOLD_BACKWARD);
  }
  return e->device->ops->sync(e->device);
}

/* What waited for the gradients of other stages. */
static int tied_hand_on(struct executor *e, int batch)
{
  const struct trm_model *model = e->pipeline->model;
  for (int c = model->chunks - 1; c >= 0 && gives_away(e); c--)
    if (tied_within(&e->tied, model->layer, &model->chunk[c]))
      TRM_CHECK(tied_pass(e, batch, &model->chunk[c]));
  size_t low = 0;
  for (int b = 0; b < model->boundaries && !gives_away(e); low = model->boundary[b++])
    if (low >= e->tied.from)
      TRM_CHECK(ready(e, batch, low, model->boundary[b]));
  return TRM_OK;
}

/* The run ends early, with the same batch on all stages: the first that is nowhere under way, and no message of it
 * awaited, when a stage makes the update of this one. */
static void shorten(struct executor *e, int batch)
{
  const int ahead = e->comm->size - 1 + CHANNEL_DEPTH, batches = batch + 1 + (ahead + e->micros - 1) / e->micros;
  if (batches >= e->batches)
    return;
  e->batches = batches;
  for (int c = 0; c < e->pipeline->schedule.chunks; c++)
    ends_shorten(&e->ends[c], batches * e->micros);
}

/* All micro-batches of a batch have come back: what waited for other stages, and the update. */
static int batch_end(struct executor *e, int batch)
{
  const struct trm_pipeline_run *run = e->run;
  TRM_CHECK(tied_add(&e->tied, e->device, gives_away(e), &e->pipeline->wait_s));
  TRM_CHECK(tied_hand_on(e, batch));
  if (batch + 1 < e->batches)
    TRM_CHECK(tied_begin(&e->tied, e->device));
  if (!run->step || e->failed != TRM_OK)
    return TRM_OK;
  versions_step(&e->versions);
  e->failed = run->step(run->context, batch, tally_of(e, batch)); /* not this stage's alone */
  if (e->failed != TRM_OK || tally_of(e, batch)->stop > 0)
    shorten(e, batch);
  return TRM_OK;
}

static void moment_trace(const struct trm_pipeline_moment *moment)
{
  const struct trm_trace_place place = {.micro = moment->action.micro, .chunk = moment->action.chunk, .layer = -1};
  trm_trace_add("wait for a stage", TRM_TRACE_WAIT, moment->came, moment->began, place);
  trm_trace_add(moment->action.kind == TRM_FORWARD ? "forward" : "backward", TRM_TRACE_COMPUTE, moment->began,
                moment->ended, place);
}

static int act(struct executor *e, const struct trm_action *action, struct trm_pipeline_moment *moment)
{
  const int batch = action->micro / e->micros;
  const bool last_micro = action->micro % e->micros == e->micros - 1;
  const double asked = last_micro ? ending_asked(&e->ending) : 0;
  *moment = (struct trm_pipeline_moment){.action = *action, .came = now(e)};
  versions_use(&e->versions, action, batch);
  if (action->kind == TRM_FORWARD) {
    TRM_CHECK(run_forward(e, action, moment, tally_of(e, batch)));
    if (last_micro && is_last(e, action->chunk)) {
      tally_of(e, batch)->stop += asked;
      tallies_send(&e->tallies, batch);
    }
  } else {
    TRM_CHECK(run_backward(e, action, moment));
    if (last_micro && action->chunk == 0)
      TRM_CHECK(batch_end(e, batch));
  }
  e->pipeline->busy_s += moment->ended - moment->began;
  moment_trace(moment);
  return TRM_OK;
}

static int train_check(const struct trm_pipeline *pipeline, const struct trm_pipeline_run *run)
{
  const struct trm_model *model = pipeline->model;
  if (!model->device || !model->training || (!model->g && !run->pass.holder) || model->slots < pipeline->slots)
    return trm_error(TRM_FAILED, "a pipeline with %d micro-batches under way: the model has memory for %d",
                     pipeline->slots, model->training ? model->slots : 0);
  for (int b = 0; b < run->batches; b++)
    if (run->batch[b].micros != pipeline->schedule.micros)
      return trm_error(TRM_FAILED, "a batch of %d micro-batches in a pipeline for %d", run->batch[b].micros,
                       pipeline->schedule.micros);
  if (!trm_schedule_flushes(&pipeline->schedule) && run->pass.holder)
    return trm_error(TRM_USAGE,
                     "parallel.schedule: pipedream and 2bw have versions of whole weights, which parallel.zero "
                     "divides: they do not go together");
  if (trm_schedule_flushes(&pipeline->schedule) ? run->batches != 1 : !run->step)
    return trm_error(TRM_FAILED, "a run of %d batches: the pipeline's schedule does not update by itself",
                     run->batches);
  return TRM_OK;
}

static int train(struct executor *e, const struct trm_pipeline_run *run, struct trm_tally *tally)
{
  struct trm_pipeline *pipeline = e->pipeline;
  TRM_CHECK(train_check(pipeline, run));
  TRM_CHECK(run_begin(e, run, true));
  TRM_CHECK(versions_begin(&e->versions));
  tallies_begin(&e->tallies, tally, run->batches);
  TRM_CHECK(tied_begin(&e->tied, e->device));
  trm_free(pipeline->moment);
  int count, status = TRM_OK;
  struct trm_action *action = trm_schedule_actions(&pipeline->schedule, e->comm->rank, run->batches, &count);
  pipeline->moment = trm_alloc((size_t)count * sizeof *pipeline->moment, "times of the actions");
  pipeline->moments = 0;
  ending_begin(&e->ending, run);
  for (int i = 0; i < count && status == TRM_OK; i++)
    if (action[i].micro < e->batches * e->micros)
      status = act(e, &action[i], &pipeline->moment[pipeline->moments++]);
  trm_free(action);
  TRM_CHECK(status);
  ending_end(&e->ending);
  versions_end(&e->versions);
  pipeline->runs++;
  pipeline->batches += (uint64_t)e->batches;
  pipeline->span_s += pipeline->moment[pipeline->moments - 1].ended - pipeline->moment[0].began;
  return status;
}

static int pipeline_train(struct trm_pipeline *pipeline, const struct trm_pipeline_run *run, struct trm_tally *tally)
{
  struct executor *e = pipeline->own;
  if (run->batches == 0)
    return TRM_OK;
  TRM_CHECK(fail(e, train(e, run, tally)));
  return e->failed;
}

static int evaluate(struct executor *e, const struct trm_pipeline_run *run, struct trm_tally *tally)
{
  TRM_CHECK(run_begin(e, run, false));
  int count, status = TRM_OK;
  struct trm_action *action = trm_schedule_forward(&e->pipeline->schedule, run->batch[0].micros, &count);
  for (int i = 0; i < count && status == TRM_OK; i++) {
    struct trm_pipeline_moment moment;
    status = run_forward(e, &action[i], &moment, tally);
  }
  trm_free(action);
  return status;
}

static int pipeline_evaluate(struct trm_pipeline *pipeline, const struct trm_pipeline_run *run, struct trm_tally *tally)
{
  struct executor *e = pipeline->own;
  struct trm_tally here = {0};
  if (run->batch[0].micros > 0)
    TRM_CHECK(fail(e, evaluate(e, run, &here)));
  double sums[] = {here.loss, here.correct, here.rows};
  e->comm->ops->broadcast(e->comm, sums, 3, TRM_DOUBLE, e->comm->size - 1);
  tally->loss += sums[0];
  tally->correct += sums[1];
  tally->rows += sums[2];
  return TRM_OK;
}

static int pipeline_restore(struct trm_pipeline *pipeline, const float *before)
{
  struct executor *e = pipeline->own;
  return versions_restore(&e->versions, before);
}

/* The first stage begins first and ends last. */
static double pipeline_bubble(struct trm_pipeline *pipeline)
{
  struct trm_comm *comm = pipeline->comm;
  double busy = pipeline->busy_s, span = pipeline->span_s;
  comm->ops->allreduce(comm, &busy, 1, TRM_DOUBLE, TRM_SUM);
  comm->ops->broadcast(comm, &span, 1, TRM_DOUBLE, 0);
  return span > 0 ? 1 - busy / (comm->size * span) : 0;
}

const struct trm_pipeline_ops trm_pipeline_messages = {
  .create = pipeline_create,
  .train = pipeline_train,
  .evaluate = pipeline_evaluate,
  .restore = pipeline_restore,
  .bubble = pipeline_bubble,
  .destroy = pipeline_destroy,
};
