/* The trainer's use of a pipeline: partitions the model, loads the rows of micro-batches, passes gradients to the
 * strategy. */
#include <math.h>
#include <stdio.h>

#include "core/ledger.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"
#include "nn/balance.h"
#include "train/trainer.h"

static int stages_of(const struct trainer *t)
{
  return t->grid->size[TRM_AXIS_PIPELINE];
}

int trainer_stages_partition(struct trainer *t, struct trm_model_part *part)
{
  const struct trm_options *o = t->options;
  struct trm_pipeline *p = &t->stages.pipeline;
  if (stages_of(t) == 1)
    return TRM_OK;
  TRM_CHECK(trm_schedule_create(&p->schedule, o->parallel.schedule, stages_of(t), (int)o->parallel.chunks,
                                (int)o->train.accumulate));
  return trm_balance_stage(&t->full_model, o->parallel.cut, stages_of(t), p->schedule.chunks,
                           t->grid->coord[TRM_AXIS_PIPELINE], part);
}

void trainer_stages_log_partition(const struct trainer *t)
{
  const int chunk_count = stages_of(t) * t->stages.pipeline.schedule.chunks;
  if (stages_of(t) == 1)
    return;
  struct trm_layer_range *chunks = trm_alloc((size_t)chunk_count * sizeof *chunks, "cuts");
  char *text = NULL;
  if (trm_balance(&t->full_model, t->options->parallel.cut, chunk_count, chunks) == TRM_OK) {
    for (int p = 1; p < chunk_count; p++)
      trm_append(&text, "%s%d", p == 1 ? "" : ",", t->full_model.layer[chunks[p].first].number);
    const double all = trm_balance_seconds(&t->full_model, 0, t->full_model.layers);
    for (int p = 0; p < chunk_count; p++)
      trm_append(&text, "%s%.0f%%", p == 0 ? ": " : ", ",
                 100 * trm_balance_seconds(&t->full_model, chunks[p].first, chunks[p].last) / all);
    trm_info("pipeline: cut before item%s %s of the modeled work", chunk_count > 2 ? "s" : "", text);
  }
  if (!t->modules->device->host_memory)
    trm_info("pipeline: messages: %s", trm_comm_takes_memory(t->comm, t->modules->device->ops->name) ?
             "device memory" : "staged through host memory");
  trm_free(text);
  trm_free(chunks);
}

/* -- the previous weights of 2bw, in checkpoints */

static bool stages_has_previous_weights(const struct trainer *t)
{
  return t->stages.pipeline.schedule.name == TRM_2BW;
}

/* Registers the previous weights as local state of data rank 0; the name identifies the parameters and the slice. */
static int stages_create_previous_weights(struct trainer *t)
{
  struct trainer_stages *s = &t->stages;
  const int parameters = trm_model_parameter_count(&t->model);
  char name[56];
  if (!stages_has_previous_weights(t) || t->grid->coord[TRM_AXIS_DATA] > 0)
    return TRM_OK;
  s->previous_weights = trm_alloc(t->model.parameters * sizeof *s->previous_weights, "previous weights");
  snprintf(name, sizeof name, "weights before, parameters %d-%d slice %d of %d",
           parameters ? trm_model_parameter(&t->model, 0)->number : 0,
           parameters ? trm_model_parameter(&t->model, parameters - 1)->number : 0, t->grid->coord[TRM_AXIS_TENSOR],
           t->grid->size[TRM_AXIS_TENSOR]);
  return trm_strategy_keep(&t->strategy, name, s->previous_weights,
                           t->model.parameters * sizeof *s->previous_weights);
}

int trainer_stages_save_local_state(struct trainer *t)
{
  const struct trainer_stages *s = &t->stages;
  const struct trm_device *device = t->modules->device;
  if (!s->previous_weights)
    return TRM_OK;
  const float *from = s->pipeline.stashed ? s->pipeline.stashed : trm_staged_arrays_load(&t->arrays, t->strategy.w);
  device->ops->download(t->modules->device, s->previous_weights, from,
                        t->model.parameters * sizeof *s->previous_weights);
  return device->ops->sync(t->modules->device);
}

int trainer_stages_resume(struct trainer *t)
{
  struct trainer_stages *s = &t->stages;
  struct trm_comm *data = t->grid->axis[TRM_AXIS_DATA];
  if (!stages_has_previous_weights(t))
    return TRM_OK;
  if (!t->strategy.local_state_restored) {
    trm_info("parallel.schedule=2bw: no previous weights were restored: the next batch uses the current weights");
    return TRM_OK;
  }
  float *previous_weights = s->previous_weights;
  if (!previous_weights)
    previous_weights = trm_alloc(t->model.parameters * sizeof *previous_weights, "previous weights");
  data->ops->broadcast(data, previous_weights, t->model.parameters, TRM_FLOAT, 0);
  const int status = s->pipeline.ops->restore(&s->pipeline, previous_weights);
  if (!s->previous_weights)
    trm_free(previous_weights);
  return status;
}

int trainer_stages_create(struct trainer *t)
{
  struct trainer_stages *s = &t->stages;
  s->pipeline.ops = t->modules->pipeline;
  s->pipeline.comm = t->grid->axis[TRM_AXIS_PIPELINE];
  s->pipeline.model = &t->model;
  s->pipeline.stash = t->options->parallel.stash;
  TRM_CHECK(s->pipeline.ops->create(&s->pipeline));
  t->slots = s->pipeline.slots;
  s->batch = trm_alloc((size_t)t->slots * sizeof *s->batch, "batches");
  s->device_batch = trm_alloc((size_t)t->slots * sizeof *s->device_batch, "batches");
  for (int slot = 0; slot < t->slots; slot++)
    trm_device_batch_create(&s->device_batch[slot], t->modules->device, &t->model);
  return stages_create_previous_weights(t);
}

void trainer_stages_free(struct trainer *t)
{
  struct trainer_stages *s = &t->stages;
  for (int slot = 0; slot < t->slots && s->device_batch; slot++) {
    trm_device_batch_free(&s->device_batch[slot]);
    trm_host_batch_free(&s->batch[slot]);
  }
  if (s->batch)
    s->pipeline.ops->destroy(&s->pipeline);
  trm_free(s->device_batch);
  trm_free(s->batch);
  trm_free(s->previous_weights);
}

/* -- training */

/* One batch in flight: positions in the order of the epoch. */
struct inflight_batch {
  size_t high;                /* the end of the global batch */
  size_t part_low, part_high; /* of this rank's shard */
};

/* A run of batches through the pipeline. */
struct stages_run {
  struct trainer *t;
  uint64_t first;                  /* number of batch 0 */
  struct inflight_batch *inflight; /* (batches) */
  struct trm_loss_sums *total;     /* without flush: over the batches with an update; else NULL */
};

static int stages_train_input(void *context, int batch, int micro, int slot, bool features, bool targets,
                              struct trm_input *input)
{
  (void)features, (void)targets; /* rows are read with their targets */
  const struct stages_run *run = context;
  struct trainer *t = run->t;
  struct trainer_stages *s = &t->stages;
  const struct inflight_batch *f = &run->inflight[batch];
  const size_t micros = (size_t)s->pipeline.schedule.micros;
  size_t low, high;
  trm_interval(f->part_high - f->part_low, micros, (size_t)micro % micros, &low, &high);
  trm_ledger_set_phase(TRM_LEDGER_STEP, run->first + (uint64_t)batch + 1);
  TRM_CHECK(t->data->ops->fetch(t->data, t->epoch, f->part_low + low, f->part_low + high, &s->batch[slot]));
  return trm_device_batch_upload(&s->device_batch[slot], &s->batch[slot], input);
}

/* Returns the seconds that the action should take: injected slowdown. */
static double stages_action_duration(void *context, int batch, double flop, double elapsed_s)
{
  const struct stages_run *run = context;
  struct trm_slowdown *slowdown = &run->t->slowdown;
  const double seconds = trm_slowdown_duration(slowdown, flop * slowdown->seconds_per_flop, elapsed_s,
                                               run->first + (uint64_t)batch);
  const double began = trainer_clock(run->t) - elapsed_s;
  return slowdown->outages > 0 ? trm_slowdown_end(slowdown, began, seconds) - began : seconds;
}

static int stages_gradient_ready(void *context, int batch, size_t low, size_t high, const struct trm_loss_sums *sums)
{
  (void)batch;
  const struct stages_run *run = context;
  return trainer_gradient_ready(run->t, low, high, sums);
}

static bool stages_stop_requested(void *context)
{
  const struct stages_run *run = context;
  return trainer_stop_requested(run->t);
}

static int stages_step(void *context, int batch, struct trm_loss_sums *sums)
{
  const struct stages_run *run = context;
  struct trainer *t = run->t;
  const uint64_t number = run->first + (uint64_t)batch;
  const double rate = trainer_rate(t, number);
  trm_strategy_begin_step(&t->strategy, rate, 0, sums);
  trainer_await_copy(t);
  TRM_CHECK(t->strategy.ops->step(&t->strategy, rate, sums));
  trm_staged_arrays_load(&t->arrays, t->strategy.w);
  run->total->loss += sums->loss;
  run->total->correct += sums->correct;
  run->total->rows += sums->rows;
  return trainer_log(t, number + 1, run->inflight[batch].high - t->position, sums, rate);
}

/* True if passes or their input wait for ranks of other axes. */
static bool stages_wait_for_others(const struct trainer *t, const struct trm_dataset *dataset)
{
  return dataset->streamed || t->tensor || t->arrays.provider || trainer_passes_reduce(t);
}

/* Sets inflight[b] and rows (micros): this rank's shard of batch b, split into micro-batches. */
static struct trm_pipeline_batch stages_batch(const struct stages_run *run, size_t b, size_t *rows)
{
  const struct trainer *t = run->t;
  struct inflight_batch *f = &run->inflight[b];
  const int micros = t->stages.pipeline.schedule.micros;
  size_t low, from, to;
  trainer_batch_range(t, run->first + b, &low, &f->high);
  trainer_shard(t, f->high - low, &from, &to);
  f->part_low = low + from;
  f->part_high = low + to;
  for (int m = 0; m < micros; m++) {
    trm_interval(f->part_high - f->part_low, (size_t)micros, (size_t)m, &from, &to);
    rows[m] = to - from;
  }
  return (struct trm_pipeline_batch){.first_row = t->samples - t->position + f->part_low,
                                     .scale = trainer_gradient_scale(t, f->high - low),
                                     .micros = micros,
                                     .rows = rows};
}

/* Trains on the batches from number `first` on. sums (batches). total: as in stages_run. */
static int stages_train(struct trainer *t, uint64_t first, size_t batches, struct trm_loss_sums *sums,
                        struct trm_loss_sums *total)
{
  struct trm_pipeline *p = &t->stages.pipeline;
  struct stages_run run = {t, first, trm_alloc(batches * sizeof *run.inflight, "batches in flight"), total};
  struct trm_pipeline_batch *batch = trm_alloc(batches * sizeof *batch, "batches in flight");
  size_t *rows = trm_alloc(batches * (size_t)p->schedule.micros * sizeof *rows, "rows of micro-batches");
  for (size_t b = 0; b < batches; b++)
    batch[b] = stages_batch(&run, b, rows + b * (size_t)p->schedule.micros);
  const struct trm_pipeline_run passes = {.pass = trainer_pass(t),
                                          .batch = batch,
                                          .batches = (int)batches,
                                          .collective = stages_wait_for_others(t, t->data),
                                          .context = &run,
                                          .input = stages_train_input,
                                          .grad_ready = stages_gradient_ready,
                                          .step = total ? stages_step : NULL,
                                          .stop_requested = total ? stages_stop_requested : NULL,
                                          .action_duration = stages_action_duration};
  const int status = p->ops->train(p, &passes, sums);
  trm_free(run.inflight);
  trm_free(batch);
  trm_free(rows);
  return status;
}

int trainer_stages_train(struct trainer *t, const struct trainer_batch *global, struct trm_loss_sums *sums)
{
  return stages_train(t, global->number, 1, sums, NULL);
}

int trainer_stages_advance(struct trainer *t, uint64_t end, struct trm_loss_sums *total)
{
  const uint64_t first = t->strategy.updates;
  struct trm_loss_sums *sums = trm_alloc((size_t)(end - first) * sizeof *sums, "batches in flight");
  *total = (struct trm_loss_sums){0};
  trm_staged_arrays_load(&t->arrays, t->strategy.w);
  const int status = stages_train(t, first, (size_t)(end - first), sums, total);
  trm_free(sums);
  return status;
}

void trainer_stages_bubble(struct trainer *t, double *measured, double *theory)
{
  struct trm_pipeline *p = &t->stages.pipeline;
  *measured = *theory = NAN;
  if (p->runs == 0)
    return;
  *measured = p->ops->bubble(p);
  *theory = trm_schedule_bubble(&p->schedule, (double)p->batches / (double)p->runs);
  trm_info("pipeline: idle %.1f%% of the time of %d stages, %.1f%% in theory", 100 * *measured, p->schedule.stages,
           100 * *theory);
}

/* -- evaluation */

struct evaluation {
  struct trainer *t;
  struct trm_dataset *dataset;
  size_t low, high, batch; /* this rank's rows of the data set; rows of a micro-batch */
};

static void stages_evaluation_rows(const struct evaluation *e, int micro, size_t *low, size_t *high)
{
  *low = e->low + (size_t)micro * e->batch;
  *low = *low < e->high ? *low : e->high;
  *high = *low + e->batch < e->high ? *low + e->batch : e->high;
}

static int stages_test_input(void *context, int batch, int micro, int slot, bool features, bool targets,
                             struct trm_input *input)
{
  (void)batch, (void)features, (void)targets;
  struct evaluation *e = context;
  struct trainer_stages *s = &e->t->stages;
  size_t low, high;
  stages_evaluation_rows(e, micro, &low, &high);
  TRM_CHECK(e->dataset->ops->fetch(e->dataset, 0, low, high, &s->batch[slot]));
  return trm_device_batch_upload(&s->device_batch[slot], &s->batch[slot], input);
}

int trainer_stages_evaluate(struct trainer *t, struct trm_dataset *dataset, struct trm_loss_sums *sums)
{
  struct trainer_stages *s = &t->stages;
  struct trm_comm *data = t->grid->axis[TRM_AXIS_DATA];
  struct evaluation e = {.t = t, .dataset = dataset, .batch = t->model.max_rows};
  trainer_shard(t, dataset->rows, &e.low, &e.high);
  struct trm_pipeline_batch batch = {.micros = (int)trainer_shares_passes(t, dataset->rows)};
  size_t *rows = trm_alloc((size_t)batch.micros * sizeof *rows, "rows of micro-batches");
  for (int m = 0; m < batch.micros; m++) {
    size_t low, high;
    stages_evaluation_rows(&e, m, &low, &high);
    rows[m] = high - low;
  }
  batch.rows = rows;
  struct trm_pipeline_run run = {
    .pass = trainer_pass(t), .batch = &batch, .batches = 1, .collective = stages_wait_for_others(t, dataset),
    .context = &e, .input = stages_test_input};
  run.pass.training = false;
  trainer_measure(t, &run.pass);
  *sums = (struct trm_loss_sums){0};
  const int status = s->pipeline.ops->evaluate(&s->pipeline, &run, sums);
  trm_free(rows);
  TRM_CHECK(trm_agree(t->comm, status));
  trm_loss_sums_allreduce(sums, data);
  return TRM_OK;
}
