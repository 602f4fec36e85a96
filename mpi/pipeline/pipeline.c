/* A pipeline whose stages exchange messages: creation, and runs over batches (executor.c runs the actions). A failure
 * of one stage between messages ends the job, since the others wait for that stage. */
#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"
#include "mpi/pipeline/executor.h"

/* Ends the job on a failure, if there are other stages. */
static int pipeline_abort_on_failure(const struct executor *e, int status)
{
  if (e->comm->size > 1)
    trm_abort_on_error(status);
  return status;
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
  e->comm = pipeline->comm->ops->split(pipeline->comm, 0, pipeline->comm->rank); /* of this pipeline only */
  for (int c = 0; c < schedule->chunks; c++) {
    channels_create(e->channel[c], pipeline, e->comm, c);
    pipeline_chunk_cost(pipeline, c);
  }
  pipeline->slots = trm_schedule_slots(schedule, e->comm->rank);
  versions_create(&e->versions, pipeline);
  batch_losses_create(&e->losses, e->comm);
  return tied_create(&e->tied, e->comm, pipeline->model);
}

static void pipeline_destroy(struct trm_pipeline *pipeline)
{
  struct executor *e = pipeline->impl;
  if (!e)
    return;
  for (int c = 0; c < pipeline->schedule.chunks; c++)
    for (int kind = 0; kind < CHANNELS; kind++)
      channel_free(&e->channel[c][kind]);
  executor_free_mark(e);
  tied_free(&e->tied, e->device);
  versions_free(&e->versions);
  batch_losses_free(&e->losses);
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

/* Computes the rows of all micro-batches, and posts the first receives. */
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
    for (int kind = 0; kind < (backward ? CHANNELS : GRADIENT_IN); kind++)
      TRM_CHECK(channel_begin(&e->channel[c][kind], e->device, e->rows, (int)count));
  return TRM_OK;
}

/* Sends the last messages; no array of the model is in a copy any more. */
static void pipeline_run_end(struct executor *e, bool backward)
{
  for (int c = 0; c < e->pipeline->schedule.chunks; c++)
    for (int kind = 0; kind < (backward ? CHANNELS : GRADIENT_IN); kind++)
      channel_end(&e->channel[c][kind]);
}

static int pipeline_train_check(const struct trm_pipeline *pipeline, const struct trm_pipeline_run *run)
{
  const struct trm_model *model = pipeline->model;
  if (!model->device || !model->training || (!model->g && !run->pass.provider) || model->slots < pipeline->slots)
    return trm_error(TRM_FAILED, "a pipeline with %d micro-batches in flight: the model has memory for %d",
                     pipeline->slots, model->training ? model->slots : 0);
  for (int b = 0; b < run->batches; b++)
    if (run->batch[b].micros != pipeline->schedule.micros)
      return trm_error(TRM_FAILED, "a batch of %d micro-batches in a pipeline for %d", run->batch[b].micros,
                       pipeline->schedule.micros);
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
  batch_losses_begin(&e->losses, run, sums);
  TRM_CHECK(tied_begin(&e->tied, e->device));
  trm_free(pipeline->event);
  int count, status = TRM_OK;
  struct trm_action *action = trm_schedule_actions(&pipeline->schedule, e->comm->rank, run->batches, &count);
  pipeline->event = trm_alloc((size_t)count * sizeof *pipeline->event, "times of the actions");
  pipeline->events = 0;
  for (int i = 0; i < count && status == TRM_OK; i++)
    if (action[i].micro < e->batches * e->micros)
      status = executor_run(e, &action[i], &pipeline->event[pipeline->events++]);
  trm_free(action);
  TRM_CHECK(status);
  pipeline_run_end(e, true);
  batch_losses_end(&e->losses);
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
    status = executor_forward(e, &action[i], &timing, sums);
  }
  trm_free(action);
  pipeline_run_end(e, false);
  return status;
}

static int pipeline_evaluate(struct trm_pipeline *pipeline, const struct trm_pipeline_run *run,
                             struct trm_loss_sums *sums)
{
  struct executor *e = pipeline->impl;
  struct trm_loss_sums local = {0};
  if (run->batch[0].micros > 0)
    TRM_CHECK(pipeline_abort_on_failure(e, pipeline_evaluate_run(e, run, &local)));
  e->comm->ops->broadcast(e->comm, &local, TRM_LOSS_SUMS, TRM_DOUBLE, e->comm->size - 1);
  sums->loss += local.loss;
  sums->correct += local.correct;
  sums->rows += local.rows;
  return TRM_OK;
}

static int pipeline_restore(struct trm_pipeline *pipeline, const float *before)
{
  struct executor *e = pipeline->impl;
  return versions_restore(&e->versions, before);
}

/* The span is that of the first stage, which starts first and ends last. */
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
