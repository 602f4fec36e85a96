/* The executor of a schedule: for each action of this stage it waits for what the action needs, computes, and sends
 * what comes of it. Values and gradients go through channels (chunk_channels.h); the loss sums of a batch comes from the last stage,
 * which has it before any stage is done with the batch (batch_losses.h).
 *
 * A failure between messages is this stage's alone and the others wait for it, so it ends the job. */
#include "mpi/pipeline/pipeline.h"

#include <math.h>
#include <time.h>

#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"
#include "core/trace.h"
#include "mpi/pipeline/stop_request.h"
#include "mpi/pipeline/chunk_channels.h"
#include "mpi/pipeline/batch_losses.h"
#include "mpi/pipeline/tied.h"
#include "mpi/pipeline/versions.h"

#define MAX_SLEEP_S 2e-4

struct executor {
  struct trm_pipeline *pipeline;
  struct trm_comm *comm;
  struct chunk_channels channels[TRM_MAX_CHUNKS];
  struct tied tied;
  struct versions versions;
  struct batch_losses losses;
  struct stop_request stop;
  struct trm_device *device; /* from the first run on */
  struct trm_input *input;   /* (slots): what the callback gave; one chunk of a stage at most asks for it */
  struct trm_input rows_only; /* for all others */
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
static int pipeline_abort_on_failure(const struct executor *e, int status)
{
  if (status != TRM_OK && e->comm->size > 1) {
    trm_log_error();
    trm_abort(status);
  }
  return status;
}

static bool pipeline_is_first(const struct executor *e, int chunk)
{
  return chunk == 0 && e->comm->rank == 0;
}

static bool pipeline_is_last(const struct executor *e, int chunk)
{
  return chunk == e->pipeline->schedule.chunks - 1 && e->comm->rank == e->comm->size - 1;
}

/* -- create */

static void pipeline_chunk_cost(struct trm_pipeline *pipeline, int chunk)
{
  const struct trm_model *model = pipeline->model;
  pipeline->flop[chunk] = 0;
  for (int i = model->chunk[chunk].first; i < model->chunk[chunk].last; i++)
    pipeline->flop[chunk] += trm_layer_cost(&model->layer[i]).flop;
}

static int pipeline_create(struct trm_pipeline *pipeline)
{
  const struct trm_schedule *schedule = &pipeline->schedule;
  const int stages = pipeline->comm->size;
  if (schedule->stages != stages || pipeline->model->chunks != schedule->chunks)
    return trm_error(TRM_FAILED, "a pipeline of %d stages of %d chunks over %d ranks and a model of %d chunks",
                     schedule->stages, schedule->chunks, stages, pipeline->model->chunks);
  struct executor *e = trm_alloc(sizeof *e, "the pipeline");
  pipeline->impl = e;
  e->pipeline = pipeline;
  e->comm = pipeline->comm->ops->split(pipeline->comm, 0, pipeline->comm->rank); /* messages of nobody else */
  for (int c = 0; c < schedule->chunks; c++) {
    chunk_channels_create(&e->channels[c], pipeline, e->comm, c);
    pipeline_chunk_cost(pipeline, c);
  }
  pipeline->slots = trm_schedule_slots(schedule, e->comm->rank);
  versions_create(&e->versions, pipeline);
  batch_losses_create(&e->losses, e->comm);
  stop_request_create(&e->stop, e->comm);
  return tied_create(&e->tied, e->comm, pipeline->model);
}

static void pipeline_destroy(struct trm_pipeline *pipeline)
{
  struct executor *e = pipeline->impl;
  if (!e)
    return;
  for (int c = 0; c < pipeline->schedule.chunks; c++)
    chunk_channels_free(&e->channels[c]);
  tied_free(&e->tied, e->device);
  versions_free(&e->versions);
  batch_losses_free(&e->losses);
  stop_request_free(&e->stop);
  trm_free(e->input);
  trm_free(e->rows);
  trm_free(e->first_row);
  trm_free(pipeline->event);
  e->comm->ops->release(e->comm);
  trm_free(e);
  pipeline->impl = NULL;
  pipeline->event = NULL;
}

/* -- a run */

static double pipeline_now(const struct executor *e)
{
  return e->comm->ops->clock(e->comm);
}

/* Lays out the rows of all micro-batches, posts the receives. */
static int pipeline_run_begin(struct executor *e, const struct trm_pipeline_run *run, bool backward)
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
    chunk_channels_begin(&e->channels[c], e->rows, (int)count, backward);
  return TRM_OK;
}

/* Between layers: messages that have arrived go on to their buffers. */
static void pipeline_progress(void *context)
{
  struct trm_comm *comm = context;
  comm->ops->progress(comm);
}

/* The pass of a micro-batch over one chunk. */
static int pipeline_make_pass(struct executor *e, const struct trm_action *action, struct trm_pass *pass)
{
  const struct trm_pipeline_run *run = e->run;
  const int slot = action->micro % e->slots, batch = action->micro / e->micros, micro = action->micro % e->micros;
  const bool features = pipeline_is_first(e, action->chunk), targets = pipeline_is_last(e, action->chunk);
  struct trm_input *input = &e->input[slot];
  if (action->kind == TRM_FORWARD && (features || targets))
    TRM_CHECK(run->input(run->context, batch, micro, slot, features, targets, input));
  *pass = run->pass;
  pass->input = input;
  if (!features && !targets) {
    e->rows_only.rows = e->rows[action->micro];
    pass->input = &e->rows_only;
  }
  if (pass->input->rows != e->rows[action->micro])
    return trm_error(TRM_FAILED, "micro-batch %d has %zu rows, not the %zu that the stages were told", micro,
                     pass->input->rows, e->rows[action->micro]);
  pass->progress = e->comm->size > 1 ? pipeline_progress : NULL;
  pass->progress_context = e->comm;
  pass->first_row = e->first_row[action->micro];
  pass->scale = run->batch[batch].scale;
  pass->beta = micro ? 1 : 0;
  return TRM_OK;
}

/* Naps until the action has taken as long as it is to take, and lets messages move meanwhile. */
static void pipeline_slow_down(struct executor *e, const struct trm_action *action, double began)
{
  const struct trm_pipeline_run *run = e->run;
  if (!run->action_duration)
    return;
  const double flop = (double)e->rows[action->micro] * e->pipeline->flop[action->chunk];
  const double duration = run->action_duration(run->context, action->micro / e->micros,
                                               action->kind == TRM_FORWARD ? flop : 2 * flop, pipeline_now(e) - began);
  for (double left = began + duration - pipeline_now(e); left > 0; left = began + duration - pipeline_now(e)) {
    const struct timespec interval = {.tv_nsec = (long)(fmin(left, MAX_SLEEP_S) * 1e9)};
    nanosleep(&interval, NULL);
    e->comm->ops->progress(e->comm);
  }
}

/* -- actions */

static int pipeline_forward(struct executor *e, const struct trm_action *action, struct trm_pipeline_event *timing,
                            struct trm_loss_sums *sums)
{
  struct trm_pipeline *pipeline = e->pipeline;
  struct trm_model *model = pipeline->model;
  struct chunk_channels *channels = &e->channels[action->chunk];
  const struct trm_shape *shape;
  struct trm_pass pass;
  trm_model_select(model, action->chunk, action->micro % e->slots);
  TRM_CHECK(
    channel_receive(&channels->activation_in, e->device, trm_model_chunk_input(model, false, &shape), action->micro));
  TRM_CHECK(pipeline_make_pass(e, action, &pass));
  timing->began = pipeline_now(e);
  trm_model_forward(model, &pass);
  if (pipeline_is_last(e, action->chunk))
    TRM_CHECK(trm_model_loss(model, &pass, sums));
  else
    TRM_CHECK(e->device->ops->sync(e->device));
  pipeline_slow_down(e, action, timing->began);
  timing->ended = pipeline_now(e);
  channel_send(&channels->activation_out, e->device, trm_model_chunk_output(model, false, &shape), action->micro);
  return TRM_OK;
}

struct ready_context {
  struct executor *executor;
  int batch;
  bool first_micro;
};

/* Gradients are given away after each micro-batch. */
static bool pipeline_overwrites_gradient(const struct executor *e)
{
  return e->run->pass.provider && e->run->pass.provider->overwrites_gradient;
}

static struct trm_loss_sums *pipeline_batch_sums(const struct executor *e, int batch)
{
  return &e->losses.sums[batch];
}

static int pipeline_notify_ready(const struct executor *e, int batch, size_t low, size_t high)
{
  const struct trm_pipeline_run *run = e->run;
  return run->grad_ready ? run->grad_ready(run->context, batch, low, high, pipeline_batch_sums(e, batch)) : TRM_OK;
}

static int pipeline_on_grad_ready(void *context, size_t low, size_t high)
{
  const struct ready_context *to = context;
  struct executor *e = to->executor;
  versions_backward_done(&e->versions, low, high);
  if (pipeline_overwrites_gradient(e))
    tied_accumulate(&e->tied, e->device, low, high, to->first_micro);
  else if (low >= e->tied.deferred_from)
    return TRM_OK; /* pipeline_batch_end will */
  return pipeline_notify_ready(e, to->batch, low, high);
}

static int pipeline_backward(struct executor *e, const struct trm_action *action, struct trm_pipeline_event *timing)
{
  struct trm_model *model = e->pipeline->model;
  struct chunk_channels *channels = &e->channels[action->chunk];
  const struct trm_shape *shape;
  struct trm_pass pass;
  struct ready_context to = {e, action->micro / e->micros, action->micro % e->micros == 0};
  const bool last_micro = action->micro % e->micros == e->micros - 1;
  trm_model_select(model, action->chunk, action->micro % e->slots);
  TRM_CHECK(
    channel_receive(&channels->gradient_in, e->device, trm_model_chunk_output(model, true, &shape), action->micro));
  if (last_micro && action->chunk == model->chunks - 1 && !pipeline_is_last(e, action->chunk))
    batch_losses_receive(&e->losses, to.batch, &e->pipeline->wait_s);
  TRM_CHECK(pipeline_make_pass(e, action, &pass));
  timing->began = pipeline_now(e);
  TRM_CHECK(trm_model_backward(model, &pass,
                               last_micro || pipeline_overwrites_gradient(e) ? pipeline_on_grad_ready : NULL, &to));
  pipeline_slow_down(e, action, timing->began);
  timing->ended = pipeline_now(e);
  channel_send(&channels->gradient_out, e->device, trm_model_chunk_input(model, true, &shape), action->micro);
  return TRM_OK;
}

/* The gradients of tied weights are handed on where all others are: as if of one more micro-batch that has no others.
 * Holders take their layers together in ways of their own, so all layers of a chunk pass by. */
static int pipeline_tied_pass(struct executor *e, int batch, const struct trm_chunk *chunk)
{
  const struct trm_param_provider *provider = e->run->pass.provider;
  for (int i = chunk->last - 1; i >= chunk->first; i--) {
    struct trm_layer *layer = &e->pipeline->model->layer[i];
    float *w, *g;
    if (layer->low == layer->high)
      continue;
    provider->acquire(provider->context, layer->low, layer->high, TRM_ACQUIRE_BACKWARD, &w, &g);
    e->device->ops->fill(e->device, g, 0, layer->high - layer->low);
    tied_write(&e->tied, e->device, layer->low, layer->high, g);
    for (int p = 0; p < layer->parameters; p++)
      if (!layer->parameter[p].statistic)
        layer->parameter[p].g = g + (layer->parameter[p].offset - layer->low);
    TRM_CHECK(pipeline_notify_ready(e, batch, layer->low, layer->high));
    provider->release(provider->context, layer->low, layer->high, TRM_ACQUIRE_BACKWARD);
  }
  return e->device->ops->sync(e->device);
}

/* What waited for the gradients of other stages. */
static int pipeline_tied_ready(struct executor *e, int batch)
{
  const struct trm_model *model = e->pipeline->model;
  for (int c = model->chunks - 1; c >= 0 && pipeline_overwrites_gradient(e); c--)
    if (tied_in_chunk(&e->tied, model->layer, &model->chunk[c]))
      TRM_CHECK(pipeline_tied_pass(e, batch, &model->chunk[c]));
  size_t low = 0;
  for (int b = 0; b < model->boundaries && !pipeline_overwrites_gradient(e); low = model->boundary[b++])
    if (low >= e->tied.deferred_from)
      TRM_CHECK(pipeline_notify_ready(e, batch, low, model->boundary[b]));
  return TRM_OK;
}

/* The run ends early, with the same batch on all stages: the first that is nowhere under way, and no message of it
 * awaited, when a stage makes the update of this one. */
static void pipeline_truncate_run(struct executor *e, int batch)
{
  const int ahead = e->comm->size - 1 + CHANNEL_DEPTH, batches = batch + 1 + (ahead + e->micros - 1) / e->micros;
  if (batches >= e->batches)
    return;
  e->batches = batches;
  for (int c = 0; c < e->pipeline->schedule.chunks; c++)
    chunk_channels_truncate(&e->channels[c], batches * e->micros);
}

/* All micro-batches of a batch have come back: what waited for other stages, and the update. */
static int pipeline_batch_end(struct executor *e, int batch)
{
  const struct trm_pipeline_run *run = e->run;
  TRM_CHECK(tied_allreduce(&e->tied, e->device, pipeline_overwrites_gradient(e), &e->pipeline->wait_s));
  TRM_CHECK(pipeline_tied_ready(e, batch));
  if (batch + 1 < e->batches)
    TRM_CHECK(tied_begin(&e->tied, e->device));
  if (!run->step || e->failed != TRM_OK)
    return TRM_OK;
  versions_step(&e->versions);
  e->failed = run->step(run->context, batch, pipeline_batch_sums(e, batch)); /* not this stage's alone */
  if (e->failed != TRM_OK || pipeline_batch_sums(e, batch)->stop_requests > 0)
    pipeline_truncate_run(e, batch);
  return TRM_OK;
}

static void pipeline_trace_action(const struct trm_pipeline_event *timing)
{
  const struct trm_trace_ids place = {.micro = timing->action.micro, .chunk = timing->action.chunk, .layer = -1};
  trm_trace_add("wait for a stage", TRM_TRACE_WAIT, timing->wait_began, timing->began, place);
  trm_trace_add(timing->action.kind == TRM_FORWARD ? "forward" : "backward", TRM_TRACE_COMPUTE, timing->began,
                timing->ended, place);
}

static int pipeline_run_action(struct executor *e, const struct trm_action *action, struct trm_pipeline_event *timing)
{
  const int batch = action->micro / e->micros;
  const bool last_micro = action->micro % e->micros == e->micros - 1;
  const double stops = last_micro ? stop_request_poll(&e->stop) : 0;
  *timing = (struct trm_pipeline_event){.action = *action, .wait_began = pipeline_now(e)};
  versions_use(&e->versions, action, batch);
  if (action->kind == TRM_FORWARD) {
    TRM_CHECK(pipeline_forward(e, action, timing, pipeline_batch_sums(e, batch)));
    if (last_micro && pipeline_is_last(e, action->chunk)) {
      pipeline_batch_sums(e, batch)->stop_requests += stops;
      batch_losses_send(&e->losses, batch);
    }
  } else {
    TRM_CHECK(pipeline_backward(e, action, timing));
    if (last_micro && action->chunk == 0)
      TRM_CHECK(pipeline_batch_end(e, batch));
  }
  e->pipeline->busy_s += timing->ended - timing->began;
  pipeline_trace_action(timing);
  return TRM_OK;
}

static int pipeline_train_check(const struct trm_pipeline *pipeline, const struct trm_pipeline_run *run)
{
  const struct trm_model *model = pipeline->model;
  if (!model->device || !model->training || (!model->g && !run->pass.provider) || model->slots < pipeline->slots)
    return trm_error(TRM_FAILED, "a pipeline with %d micro-batches under way: the model has memory for %d",
                     pipeline->slots, model->training ? model->slots : 0);
  for (int b = 0; b < run->batches; b++)
    if (run->batch[b].micros != pipeline->schedule.micros)
      return trm_error(TRM_FAILED, "a batch of %d micro-batches in a pipeline for %d", run->batch[b].micros,
                       pipeline->schedule.micros);
  if (!trm_schedule_flushes(&pipeline->schedule) && run->pass.provider)
    return trm_error(TRM_USAGE,
                     "parallel.schedule: pipedream and 2bw have versions of whole weights, which parallel.zero "
                     "divides: they do not go together");
  if (trm_schedule_flushes(&pipeline->schedule) ? run->batches != 1 : !run->step)
    return trm_error(TRM_FAILED, "a run of %d batches: the pipeline's schedule does not update by itself",
                     run->batches);
  return TRM_OK;
}

static int pipeline_train_run(struct executor *e, const struct trm_pipeline_run *run, struct trm_loss_sums *sums)
{
  struct trm_pipeline *pipeline = e->pipeline;
  TRM_CHECK(pipeline_train_check(pipeline, run));
  TRM_CHECK(pipeline_run_begin(e, run, true));
  TRM_CHECK(versions_begin(&e->versions));
  batch_losses_begin(&e->losses, sums, run->batches);
  TRM_CHECK(tied_begin(&e->tied, e->device));
  trm_free(pipeline->event);
  int count, status = TRM_OK;
  struct trm_action *action = trm_schedule_actions(&pipeline->schedule, e->comm->rank, run->batches, &count);
  pipeline->event = trm_alloc((size_t)count * sizeof *pipeline->event, "times of the actions");
  pipeline->events = 0;
  stop_request_begin(&e->stop, run);
  for (int i = 0; i < count && status == TRM_OK; i++)
    if (action[i].micro < e->batches * e->micros)
      status = pipeline_run_action(e, &action[i], &pipeline->event[pipeline->events++]);
  trm_free(action);
  TRM_CHECK(status);
  stop_request_end(&e->stop);
  versions_end(&e->versions);
  pipeline->runs++;
  pipeline->batches += (uint64_t)e->batches;
  pipeline->span_s += pipeline->event[pipeline->events - 1].ended - pipeline->event[0].began;
  return status;
}

static int pipeline_train(struct trm_pipeline *pipeline, const struct trm_pipeline_run *run, struct trm_loss_sums *sums)
{
  struct executor *e = pipeline->impl;
  if (run->batches == 0)
    return TRM_OK;
  TRM_CHECK(pipeline_abort_on_failure(e, pipeline_train_run(e, run, sums)));
  return e->failed;
}

static int pipeline_evaluate_run(struct executor *e, const struct trm_pipeline_run *run, struct trm_loss_sums *sums)
{
  TRM_CHECK(pipeline_run_begin(e, run, false));
  int count, status = TRM_OK;
  struct trm_action *action = trm_schedule_forward(&e->pipeline->schedule, run->batch[0].micros, &count);
  for (int i = 0; i < count && status == TRM_OK; i++) {
    struct trm_pipeline_event timing;
    status = pipeline_forward(e, &action[i], &timing, sums);
  }
  trm_free(action);
  return status;
}

static int pipeline_evaluate(struct trm_pipeline *pipeline, const struct trm_pipeline_run *run,
                             struct trm_loss_sums *sums)
{
  struct executor *e = pipeline->impl;
  struct trm_loss_sums local = {0};
  if (run->batch[0].micros > 0)
    TRM_CHECK(pipeline_abort_on_failure(e, pipeline_evaluate_run(e, run, &local)));
  double values[] = {local.loss, local.correct, local.rows};
  e->comm->ops->broadcast(e->comm, values, 3, TRM_DOUBLE, e->comm->size - 1);
  sums->loss += values[0];
  sums->correct += values[1];
  sums->rows += values[2];
  return TRM_OK;
}

static int pipeline_restore(struct trm_pipeline *pipeline, const float *before)
{
  struct executor *e = pipeline->impl;
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
