/* A training run: setup, the loop over epochs (epochs.c), results. Read from the bottom: trm_train. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/energy.h"
#include "core/ledger.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"
#include "core/trace.h"
#include "nn/lora.h"
#include "train/compatibility.h"
#include "train/local_state.h"
#include "train/stop.h"
#include "train/trainer.h"

double trainer_clock(const struct trainer *t)
{
  return t->comm->ops->clock(t->comm);
}

/* Real time, whatever the clock of comm. */
static double train_real_clock(void)
{
  struct trm_comm *self = trm_comm_self();
  return self->ops->clock(self);
}

double trainer_wall(const struct trainer *t)
{
  return t->wall_before + train_real_clock() - t->wall_began;
}

double trainer_train_s(const struct trainer *t)
{
  const double now = t->advances ? trainer_clock(t) - t->advance_began : 0;
  return t->train_before + t->result->train_s + now;
}

bool trainer_time_is_up(const struct trainer *t)
{
  return t->options->train.seconds > 0 && trainer_train_s(t) >= t->options->train.seconds;
}

double trainer_virtual(const struct trainer *t)
{
  return t->comm->ops->compute ? trainer_clock(t) - t->began : NAN;
}

/* Events per rank in a trace, and of all ranks of a virtual network, which are in one process; older ones are
 * dropped. */
enum { TRACE_EVENTS = 65536, MAX_TRACE_EVENTS = 1 << 21 };

/* -- setting up */

/* Returns the smallest number of parts that a batch is divided into, those of the undone parts included. */
static size_t train_min_parts(const struct trainer *t)
{
  const struct trm_checkpoint *c = &t->resume.checkpoint;
  size_t parts = (size_t)t->strategy.parts;
  for (size_t i = 0; i < c->undones; i++)
    parts = c->undone[i].parts < parts ? c->undone[i].parts : parts;
  return parts;
}

size_t trainer_max_rows(const struct trainer *t, int shard)
{
  const size_t requested = (size_t)t->options->train.batch,
               batch = requested < t->data->rows ? requested : t->data->rows;
  const size_t lanes = (size_t)t->options->run.lanes, accumulate = (size_t)t->options->train.accumulate;
  const size_t parts = train_min_parts(t), part = (batch + parts - 1) / parts;
  const size_t rows = lanes > 0 ? (part + lanes - 1) / lanes : trm_shares_max_rows(&t->shares, part, shard);
  return (rows + accumulate - 1) / accumulate;
}

/* Refuses incompatible features, as far as they are known at this point. */
static int train_check_combinations(const struct trainer *t)
{
  const struct trm_run_facts facts = {
    .options = t->options,
    .strategy = t->strategy.ops ? t->strategy.ops : t->modules->strategy,
    .device_memory = t->device_memory,
    .loss = t->model.loss,
    .stages = t->grid->size[TRM_AXIS_PIPELINE],
    .tensor_ranks = t->grid->size[TRM_AXIS_TENSOR],
    .trains_rows = t->rows.row != NULL,
    .reduces = t->mode && trainer_passes_reduce(t),
  };
  return trm_compatibility_check(&facts);
}

static int train_check_options(const struct trm_options *o, const struct trm_grid *grid)
{
  const int data = grid->size[TRM_AXIS_DATA];
  if (o->data.file[0] == '\0')
    return trm_error(TRM_USAGE, "data.file: no data set named (make one: trireme data make digits --out digits.h5)");
  if (o->model[0] == '\0')
    return trm_error(TRM_USAGE, "model: no model named (for example model: mlp 784-256-10 relu)");
  if (o->run.lanes > 0) {
    if (o->run.lanes & (o->run.lanes - 1))
      return trm_error(TRM_USAGE, "run.lanes: %lld is not a power of two", (long long)o->run.lanes);
    if (o->run.lanes % data != 0)
      return trm_error(TRM_USAGE, "run.lanes: %lld lanes cannot be divided among %d ranks", (long long)o->run.lanes,
                       data);
  }
  return TRM_OK;
}

/* Returns true if data.validation cuts rows from the training split. */
static bool train_cuts_validation(const struct trainer *t)
{
  double fraction;
  const char *file;
  return trm_validation_option(t->options, &fraction, &file) == TRM_OK && fraction > 0;
}

static int train_open_data(struct trainer *t)
{
  const struct trm_options *o = t->options;
  struct trm_splits *splits = &t->splits;
  TRM_CHECK(trm_splits_open(splits, t->modules->dataset, o, t->comm));
  t->data = splits->train;
  if (splits->validation) {
    trm_info("validation: %zu samples, %s", splits->validation->rows,
             train_cuts_validation(t) ? "cut from the training split" : splits->validation->path);
  } else {
    const bool plateau = o->optim.schedule == TRM_LR_PLATEAU;
    if (o->train.stop_patience > 0 || plateau)
      return trm_error(TRM_USAGE, "%s: needs a validation split; data.validation=0.1 cuts one from the training split",
                       plateau ? "optim.schedule=plateau" : "train.stop_patience");
    trm_info("data.validation: no validation split: no evaluation before the end, no best.h5; 0.1 would cut one");
  }
  if (!splits->test)
    trm_info("data.test: %s has no test split: no test scores", o->data.file);
  return TRM_OK;
}

static int train_count_steps(struct trainer *t)
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

/* Creates the whole model, with its adapters (model.lora). */
static int train_create_full_model(struct trainer *t, const char *loss)
{
  const struct trm_options *o = t->options;
  const struct trm_input_spec spec = t->data->spec;
  struct trm_model *full = &t->full_model;
  char *adapted;
  TRM_CHECK(trm_model_create(full, o->model, loss, &spec));
  if (o->model_lora[0] == '\0')
    return TRM_OK;
  TRM_CHECK(trm_lora_add(full, o->model_lora, (size_t)o->model_lora_rank, (float)o->model_lora_alpha, &adapted));
  trm_model_free(full);
  const int status = trm_model_create(full, adapted, loss, &spec);
  trm_free(adapted);
  return status;
}

/* Creates the whole model and this rank's part. */
static int train_create_models(struct trainer *t)
{
  const struct trm_options *o = t->options;
  const struct trm_input_spec *spec = &t->data->spec;
  const char *loss = trm_choice_text("train.loss", o->train.loss);
  TRM_CHECK(train_create_full_model(t, loss));
  TRM_CHECK(trm_model_set_values(&t->full_model, o->train.activations));
  trm_model_log(&t->full_model);
  struct trm_model_part part = {
    .tensor_rank = t->grid->coord[TRM_AXIS_TENSOR],
    .tensor_size = t->grid->size[TRM_AXIS_TENSOR],
    .sequence_parallel = o->parallel.sequence,
    .freeze = o->model_freeze,
  };
  int status = trainer_stages_partition(t, &part);
  if (status == TRM_OK)
    status = trm_model_create_part(&t->model, t->full_model.text, loss, spec, &part);
  if (status == TRM_OK)
    status = trm_model_set_values(&t->model, o->train.activations);
  if (status == TRM_OK)
    status = trm_model_set_loss_chunk(&t->model, (size_t)o->train.loss_chunk);
  TRM_CHECK(trm_agree(t->comm, status));
  if (t->model.frozen_count)
    trm_info("trained: %d of %d parameters, %zu of %zu values: gradients of %.3g MB, %.0f %% of the operations",
             trm_model_parameter_count(&t->full_model) - t->model.frozen_count,
             trm_model_parameter_count(&t->full_model), trm_model_size(&t->full_model) - t->model.frozen_size,
             trm_model_size(&t->full_model), 1e-6 * (double)(t->model.parameters * sizeof(float)),
             100 * t->model.train_flop / t->full_model.train_flop);
  if (part.tensor_size > 1) {
    t->tensor = trm_alloc(sizeof *t->tensor, "the tensor axis");
    trm_axis_open(t->tensor, t->grid->axis[TRM_AXIS_TENSOR], t->modules->device);
    if (o->parallel.share != TRM_SHARE_NONE)
      trm_axis_share_memory(t->tensor, o->parallel.share);
  }
  return TRM_OK;
}

/* With simulate.machine the strategy gets a device that takes time (train_set_costs). */
static int train_charge_arrays(struct trainer *t)
{
  if (t->options->simulate.machine[0] == '\0')
    return TRM_OK;
  if (!t->modules->costs)
    return trm_error(TRM_USAGE, "simulate.machine: only trireme train reads it");
  trm_charged_device_open(&t->charged, t->modules->device, t->comm);
  return TRM_OK;
}

static bool train_abandons(void *context)
{
  const struct trm_strategy *s = context;
  return s->abandons(s);
}

static int train_create_strategy(struct trainer *t)
{
  const bool flushes = t->grid->size[TRM_AXIS_PIPELINE] == 1 || trm_schedule_flushes(&t->stages.pipeline.schedule);
  const bool stages = t->device_memory && t->grid->size[TRM_AXIS_DATA] > 1; /* any rank; the ranks share arrays */
  TRM_CHECK(train_charge_arrays(t));
  t->strategy = (struct trm_strategy){
    .ops = t->modules->strategy,
    .comm = t->grid->axis[TRM_AXIS_DATA],
    .device = t->charged.comm ? &t->charged.device : t->modules->device,
    .costs = t->charged.comm ? &t->charged.costs : NULL,
    .optimizer = &t->optimizer,
    .slowdown = &t->slowdown,
    .elements = t->model.parameters,
    .boundary = t->model.boundary,
    .boundaries = t->model.boundaries,
    .values = flushes && !stages ? t->model.values : TRM_VALUES_F32, /* otherwise passes read copies of the weights */
    .norm_comm = t->grid->model->size > 1 ? t->grid->model : NULL,
    .ratio_comm = t->tensor ? t->grid->axis[TRM_AXIS_TENSOR] : NULL};
  trm_strategy_set_options(&t->strategy, t->options);
  t->strategy.warmup = trm_schedule_warmup(t->options, t->steps);
  if (t->splits.validation && t->strategy.ops->snapshot)
    t->strategy.snapshots = trm_strategy_snapshots(t->options, t->data->rows);
  t->strategy.ops = trm_strategy_select(&t->strategy);
  const int status = train_check_combinations(t);
  if (status != TRM_OK)
    t->strategy.ops = NULL; /* nothing to destroy */
  TRM_CHECK(status);
  t->data->independent = t->strategy.ops->next_batch != NULL;
  TRM_CHECK(trm_staged_arrays_create(&t->arrays, &t->strategy));
  t->slowdown.abandons = t->strategy.abandons ? train_abandons : NULL;
  t->slowdown.abandons_context = &t->strategy;
  TRM_CHECK(trainer_rows_setup(t));
  t->mode = trainer_choose_mode(t);
  t->computes = trainer_passes_compute(t);
  return train_check_combinations(t);
}

static void train_log_setup(const struct trainer *t)
{
  const double mb = 1.0 / (1 << 20);
  trm_info("%s", strlen(t->full_model.text) > 400 ? t->options->model : t->full_model.text); /* a preset is shorter */
  trm_info("%d rank%s x %d thread%s, batch %lld, %llu steps of %llu samples in all, %zu parameters", t->comm->size,
           t->comm->size == 1 ? "" : "s", t->modules->device->threads, t->modules->device->threads == 1 ? "" : "s",
           (long long)t->options->train.batch, (unsigned long long)t->steps, (unsigned long long)t->data->rows,
           trm_model_size(&t->full_model));
  trainer_stages_log_partition(t);
  if (!t->options->simulate.gradients)
    trm_info("simulate.gradients=no: times alone: loss and accuracy are not measured, weights not trained");
  const size_t *part = t->budget.part;
  trm_info("memory: %.1f MB a rank: weights, gradients and optimizer %.1f, activations %.1f, data %.1f, program and "
           "libraries %.1f, checkpoints %.1f", (double)trm_budget_total(&t->budget) * mb,
           (double)part[TRM_BUDGET_WEIGHTS] * mb, (double)part[TRM_BUDGET_ACTIVATIONS] * mb,
           (double)part[TRM_BUDGET_DATA] * mb, (double)part[TRM_BUDGET_PROGRAM] * mb,
           (double)part[TRM_BUDGET_CHECKPOINT] * mb);
}

/* With simulate.machine: bytes that all ranks of the process have allocated, by the first or last that looks.
 * Collective. */
static double train_allocated(struct trainer *t, enum trm_op op)
{
  double bytes = (double)trm_memory_allocated();
  if (t->modules->costs)
    t->comm->ops->allreduce(t->comm, &bytes, 1, TRM_DOUBLE, op);
  return bytes;
}

/* Takes the figures of the model, which is bound, from simulate.machine, and those of arrays as large as all that a
 * node's ranks have allocated since `before`: none stays in a cache that they do not fit into together. Collective. */
static int train_set_costs(struct trainer *t, double before)
{
  const struct trm_costs *costs = t->modules->costs;
  struct trm_slowdown *s = &t->slowdown;
  s->costs = costs;
  s->model = &t->model;
  s->passes = (size_t)(t->lanes.count > 0 ? t->lanes.count : t->options->train.accumulate);
  s->pass_rows = 1;
  if (!costs)
    return TRM_OK;
  struct trm_comm *node = t->comm->ops->split_node(t->comm, TRM_SHARE_NODE);
  const double bytes = (train_allocated(t, TRM_MAX) - before) * node->size / t->comm->size;
  node->ops->release(node);
  TRM_CHECK(costs->arrays(costs, bytes, &t->charged.costs));
  return costs->gradient(costs, s->model, s->pass_rows, &s->pass_s);
}

/* Plans what rank 0 gathers, tensors and then local states: for checkpoints, and at the end to hash the weights; and,
 * between these, the scores that the measures of the test split are made of. Collective. */
static int train_plan_gathering(struct trainer *t)
{
  size_t *bytes = &t->budget.part[TRM_BUDGET_CHECKPOINT], states = 0, scores = 0, copies;
  if (!t->options->simulate.gradients)
    return TRM_OK;
  *bytes = trm_model_gather_bytes(t->grid, &t->strategy, &t->full_model, &t->model);
  if (t->options->run.checkpoint_every >= 0)
    states = trm_local_state_gather_bytes(t->comm, t->strategy.local_state, t->strategy.local_states);
  TRM_CHECK(trainer_saves_open(t, &copies));
  if (t->splits.test)
    scores = trm_measurement_bytes(t->model.loss, &t->model.spec, t->splits.test->rows,
                                   t->grid->size[TRM_AXIS_DATA]);
  *bytes = states > *bytes ? states : *bytes;
  *bytes = (scores > *bytes ? scores : *bytes) + copies;
  return TRM_OK;
}

/* The ranks agree on what depends on their devices. Collective. */
static void train_agree_on_devices(struct trainer *t)
{
  int32_t separate = !t->modules->device->host_memory;
  t->comm->ops->allreduce(t->comm, &separate, 1, TRM_INT32, TRM_MAX);
  t->device_memory = separate;
}

/* The ranks agree on the layout of images, which parts of a model exchange. Collective. */
static void train_agree_on_layout(struct trainer *t)
{
  struct trm_device *device = t->modules->device;
  int32_t first = !device->ops->channels_last || !device->ops->channels_last(device, t->model.values);
  t->comm->ops->allreduce(t->comm, &first, 1, TRM_INT32, TRM_MAX);
  t->model.channels_first = first;
}

/* Adds to the error of a device without room for the activations what was planned of them, and what takes less. */
static int train_explain_activations(const struct trainer *t, int status)
{
  char *reason = trm_strdup(trm_error_text());
  trm_error(status, "%s; planned for passes of %zu rows: activations %.2f GiB in all (less: train.batch, more: "
            "train.accumulate; parallel.recompute; train.activations=bf16; on more ranks parallel.pipeline, "
            "parallel.tensor)", reason, t->model.max_rows, (double)t->model.arena_bytes / 1073741824.0);
  trm_free(reason);
  return status;
}

/* A job that was requeued may begin while the one before it ends: a run that goes on waits for it. Collective. */
static int train_take_run_dir(struct trainer *t)
{
  const double wait_s = strcmp(t->options->run.resume, "auto") == 0 ? 1.5 * TRM_LEASE_S : 0;
  const int status = t->comm->rank == 0 ? trm_run_dir_take(&t->run_dir, &t->options->run, wait_s) : TRM_OK;
  return trm_agree(t->comm, status);
}

static int train_set_up(struct trainer *t)
{
  struct trm_comm *process = t->comm->ops->split_node(t->comm, TRM_SHARE_PROCESS);
  const bool first = process->rank == 0;
  process->ops->release(process);
  train_agree_on_devices(t);
  TRM_CHECK(trm_agree(t->comm, trm_budget_begin(&t->budget, t->modules->device, first)));
  TRM_CHECK(train_check_options(t->options, t->grid));
  TRM_CHECK(train_check_combinations(t));
  TRM_CHECK(train_open_data(t));
  trm_budget_charge_data(&t->budget);
  TRM_CHECK(train_count_steps(t));
  const double allocated = train_allocated(t, TRM_MIN);
  TRM_CHECK(train_create_models(t));
  TRM_CHECK(trm_model_parse_recompute(t->options->parallel.recompute, &t->model.recompute));
  train_agree_on_layout(t);
  t->model.accumulates = t->options->train.accumulate > 1;
  t->model.smoothing = (float)t->options->train.smoothing;
  t->model.huber_delta = (float)t->options->train.huber_delta;
  TRM_CHECK(trm_model_set_groups(&t->model, &t->full_model, t->options->optim.groups));
  TRM_CHECK(trm_optimizer_create(&t->optimizer, t->options, &t->model));
  const double flop = trm_model_train_flop(&t->model);
  TRM_CHECK(trm_slowdown_create(&t->slowdown, t->options, t->comm, flop));
  TRM_CHECK(train_create_strategy(t));
  TRM_CHECK(trm_agree(t->comm, t->mode->create ? t->mode->create(t) : TRM_OK));
  TRM_CHECK(trainer_verify_create(t));
  trm_budget_charge(&t->budget, TRM_BUDGET_WEIGHTS);
  TRM_CHECK(train_take_run_dir(t));
  TRM_CHECK(trainer_open_checkpoint(t));
  TRM_CHECK(trainer_shares_create(t));
  const size_t max_rows = trainer_max_rows(t, t->strategy.batch_shard);
  float *w = trm_staged_arrays_load(&t->arrays, t->strategy.w);
  trm_model_share_rounded(&t->model, t->strategy.w, t->strategy.rounded);
  int status = trm_model_bind_slots(&t->model, t->modules->device, w, t->arrays.g, max_rows, true, t->slots);
  trm_budget_charge(&t->budget, TRM_BUDGET_ACTIVATIONS);
  if (status != TRM_OK && !t->modules->device->host_memory)
    train_explain_activations(t, status);
  TRM_CHECK(trm_agree(t->comm, status));
  trm_device_batch_create(&t->device_batch, t->modules->device, &t->model);
  TRM_CHECK(train_set_costs(t, allocated));
  return trainer_init_or_resume(t);
}

/* Returns true if the run has finished before: its results are in the run directory, and no step is left to make. A
 * batch system may start such a job again. Collective. */
static bool train_has_finished(const struct trainer *t)
{
  const bool resumed = t->saved_at != UINT64_MAX;
  int32_t finished = 0;
  uint64_t steps;
  bool early;
  if (t->options->run.resume[0] == '\0' || (resumed && !trainer_is_complete(t)))
    return false;
  if (t->comm->rank == 0 && trm_run_dir_is_finished(t->options->run.dir, &steps, &early))
    finished = resumed || early || steps >= t->steps; /* without a checkpoint: as the results say */
  t->comm->ops->broadcast(t->comm, &finished, 1, TRM_INT32, 0);
  return finished;
}

/* Sets nodes and leads_node. Collective on a real network. On a virtual one, where messages take time, the options have
 * the number, and one rank leads the host of all. */
static void train_count_nodes(struct trainer *t)
{
  const struct trm_simulate_options *simulate = &t->options->simulate;
  if (t->comm->ops->compute) {
    t->nodes = simulate->nodes > 0 ? (int)simulate->nodes : t->comm->size;
    t->leads_node = t->comm->rank == 0;
    return;
  }
  struct trm_comm *node = t->comm->ops->split_node(t->comm, TRM_SHARE_NODE);
  t->leads_node = node->rank == 0;
  int32_t firsts = t->leads_node;
  node->ops->release(node);
  t->comm->ops->allreduce(t->comm, &firsts, 1, TRM_INT32, TRM_SUM);
  t->nodes = firsts;
}

/* Opens the run directory and logs what will be trained. Collective. */
static int train_begin(struct trainer *t)
{
  trm_stop_listen(true);
  const int64_t resumed = t->options->run.resume[0] ? (int64_t)t->strategy.updates : -1;
  const struct trm_options options = trainer_shares_options(t);
  t->run_dir.data_digest = t->data->digest;
  train_count_nodes(t);
  t->resumed_at = t->strategy.updates;
  trainer_gather_places(t);
  int status = t->comm->rank == 0 ? trm_run_dir_open(&t->run_dir, &options, resumed) : TRM_OK;
  if (t->comm->rank == 0 && status == TRM_OK)
    status = trainer_write_record(t, &options);
  TRM_CHECK(trm_agree(t->comm, status));
  trm_budget_charge(&t->budget, TRM_BUDGET_PROGRAM);
  trm_budget_first_step(&t->budget, &t->model);
  TRM_CHECK(train_plan_gathering(t));
  train_log_setup(t);
  return TRM_OK;
}

static void train_tear_down(struct trainer *t)
{
  trainer_saves_close(t);
  if (t->comm->rank == 0)
    trm_run_dir_close(&t->run_dir);
  trm_device_batch_free(&t->device_batch);
  trainer_rows_free(t);
  trainer_stages_free(t);
  trainer_close_checkpoint(t);
  trm_checkpoint_files_free(&t->files);
  trm_measurement_free(t->measurement);
  trm_host_batch_free(&t->batch);
  trainer_verify_free(t);
  trainer_lanes_free(t);
  trainer_shares_free(t);
  trm_free(t->staleness.mean);
  trm_energy_stop(t->energy);
  trm_free(t->place);
  free(t->record);
  trm_model_free(&t->model);
  trm_model_free(&t->full_model);
  if (t->tensor)
    trm_axis_close(t->tensor);
  trm_free(t->tensor);
  trm_staged_arrays_free(&t->arrays);
  if (t->strategy.ops)
    t->strategy.ops->destroy(&t->strategy);
  trm_splits_close(&t->splits);
}

/* Writes summary.json, and of a method that has staleness staleness.json. Collective. */
static int train_write_results(struct trainer *t)
{
  int status = TRM_OK;
  if (t->comm->rank == 0 && t->strategy.staleness)
    status = trm_run_dir_staleness_begin(&t->run_dir);
  const struct trm_staleness *total = trainer_gather_staleness(t);
  if (t->comm->rank != 0)
    return TRM_OK;
  if (status == TRM_OK)
    status = trm_run_dir_staleness_end(&t->run_dir);
  TRM_CHECK(status);
  const struct trm_options options = trainer_shares_options(t);
  return trm_run_dir_write_summary(&t->run_dir, &options, t->modules, &t->full_model, t->result, total);
}

/* Sets weights_sha256 on rank 0. Collective. */
static int train_hash_weights(struct trainer *t)
{
  struct trm_model_gather gather;
  TRM_CHECK(trainer_gather_begin(t, &gather));
  int status = TRM_OK;
  if (t->comm->rank == 0)
    status = trm_model_hash_tensors(&t->full_model, trm_model_gather_tensor, &gather, t->result->weights_sha256);
  trm_model_gather_end(&gather);
  return status;
}

/* Begins to count the energy of the run; that of GPUs if a rank computes on one. */
static void train_start_energy(struct trainer *t)
{
  t->energy = t->leads_node ? trm_energy_start(TRM_ENERGY_FOLDER) : NULL;
  t->gpu_joules = !t->device_memory ? NAN : t->leads_node ? trm_energy_of_gpus() : 0;
}

/* Sets the energy of the run on all nodes, each counted once. Collective on a real network. */
static void train_end_energy(struct trainer *t)
{
  double joules[2] = {0, isnan(t->gpu_joules) ? NAN : 0}; /* NAN stays in the sum */
  if (t->leads_node) {
    joules[0] = trm_energy_stop(t->energy);
    joules[1] = isnan(t->gpu_joules) ? NAN : trm_energy_of_gpus() - t->gpu_joules;
  }
  t->energy = NULL;
  if (!t->comm->ops->compute)
    t->comm->ops->allreduce(t->comm, joules, 2, TRM_DOUBLE, TRM_SUM);
  t->result->joules = joules[0];
  t->result->gpu_joules = joules[1] > 0 ? joules[1] : NAN; /* 0: no library of the driver */
}

/* Completes *t->result and writes summary.json. Collective. */
static int train_conclude(struct trainer *t, const char *outcome)
{
  struct trm_result *result = t->result;
  trm_ledger_set_phase(TRM_LEDGER_END, t->strategy.updates);
  result->epochs = t->epoch + (trainer_epoch_done(t) ? 1 : 0);
  result->steps = t->strategy.updates;
  result->samples = t->samples;
  result->wall_s = trainer_wall(t);
  result->virtual_s = trainer_virtual(t);
  result->consensus = t->strategy.consensus;
  result->conflicts = t->strategy.conflicting / t->strategy.stored; /* 0 / 0 is NAN */
  result->samples_per_s = result->train_s > 0 ? (double)t->samples_this_run / result->train_s : 0;
  result->final_train_loss = t->epoch_rows > 0 ? t->epoch_loss / t->epoch_rows : NAN;
  result->tokens = t->model.spec.tokens;
  result->validation_token_bytes = t->splits.validation ? t->splits.validation->token_bytes : 0;
  result->test_token_bytes = t->splits.test ? t->splits.test->token_bytes : 0;
  result->status = outcome;
  train_end_energy(t);
  result->trained_parameters = trm_model_size(&t->full_model) - t->model.frozen_size;
  result->train_flop = t->model.train_flop;
  result->gradient_bytes = t->model.parameters * sizeof(float);
  result->planned_bytes = trm_budget_total(&t->budget);
  trainer_rank_times(t);
  trainer_between_nodes(t);
  trm_slowdown_report(&t->slowdown, t->comm);
  trainer_stages_bubble(t, &result->bubble, &result->bubble_theory);
  if (strcmp(outcome, "failed") != 0)
    trainer_measures_end(t);
  const int status = t->options->simulate.gradients ? train_hash_weights(t) : TRM_OK;
  result->max_resident_bytes = trm_memory_peak();
  const int written = train_write_results(t);
  return status == TRM_OK ? written : status;
}

static void train_start_trace(const struct trainer *t)
{
  const size_t each = t->comm->ops->compute ? (size_t)MAX_TRACE_EVENTS / (size_t)t->comm->size : TRACE_EVENTS;
  if (t->options->run.trace == TRM_TRACE_STEPS)
    trm_trace_start(t->comm, each < TRACE_EVENTS ? each : TRACE_EVENTS);
  if (t->options->run.trace == TRM_TRACE_REGIONS)
    trm_trace_start_regions(t->comm);
}

/* Writes trace.json if tracing is on, after all that the run measures: on a virtual network its messages take time. A
 * failure is logged and does not fail the run. Collective. */
static void train_write_trace(const struct trainer *t)
{
  if (trm_trace_on()) {
    char *path = trm_format("%s/trace.json", t->options->run.dir);
    if (trm_trace_write(path) != TRM_OK)
      trm_log_error();
    trm_free(path);
  }
  trm_trace_stop();
}

/* The start has sent names, and how long that takes depends on their lengths. On a virtual network training begins at a
 * whole second, so that differences of times have the same bits in another directory. Collective. */
static void train_align_clock(const struct trainer *t)
{
  struct trm_comm *comm = t->comm;
  double latest = trainer_clock(t);
  if (!comm->ops->compute)
    return;
  comm->ops->allreduce(comm, &latest, 1, TRM_DOUBLE, TRM_MAX);
  comm->ops->sleep_until(comm, floor(latest) + 2, false);
}

/* Trains, and writes the results. Collective. */
static int train_run(struct trainer *t)
{
  const char *outcome;
  train_align_clock(t);
  t->began = t->slowdown.origin_s = trainer_clock(t);
  t->wall_began = train_real_clock();
  train_start_trace(t);
  train_start_energy(t);
  int status = trainer_run(t, &outcome);
  trm_trace_end_recording();
  trm_progress_end();
  if (status != TRM_OK) {
    /* writes the summary of the failed run, and keeps the run's error message */
    char *reason = trm_strdup(trm_error_text());
    if (trainer_await_save(t) != TRM_OK)
      trm_log_error();
    t->result->reason = reason;
    train_conclude(t, "failed");
    t->result->reason = NULL;
    train_write_trace(t);
    trm_error(status, "%s", reason);
    trm_free(reason);
    return status;
  }
  status = trm_agree(t->comm, train_conclude(t, outcome));
  train_write_trace(t);
  if (status == TRM_OK && strcmp(outcome, "stopped") == 0)
    status = trm_error(TRM_STOPPED, "stopped by a signal at step %llu%s", (unsigned long long)t->strategy.updates,
                       t->options->simulate.gradients ? ", after a checkpoint; resume with run.resume=auto" : "");
  return status;
}

int trm_train(const struct trm_options *options, const struct trm_modules *modules, struct trm_result *result)
{
  struct trainer t = {
    .options = options,
    .modules = modules,
    .grid = modules->grid,
    .comm = modules->grid->all,
    .slots = 1,
    .result = result,
    .evaluated_at = UINT64_MAX,
    .plateau = {.factor = 1, .best = INFINITY},
  };
  *result = (struct trm_result){.validation = {NAN, NAN}, .best_validation = {NAN, NAN}, .test = {NAN, NAN}};
  trm_stop_listen(false);
  t.wall_began = train_real_clock();
  int status = train_set_up(&t);
  if (status == TRM_OK && train_has_finished(&t)) {
    result->status = "finished";
    trainer_remove_memory(&t, false);
    trm_info("%s: the run has finished: nothing is left to train, its files are unchanged", options->run.dir);
  } else if (status == TRM_OK) {
    status = train_begin(&t);
    if (status == TRM_OK)
      status = train_run(&t);
    if (status == TRM_OK || status == TRM_STOPPED) /* the newest checkpoint is a file of the run directory */
      trainer_remove_memory(&t, false);
  }
  train_tear_down(&t);
  return status;
}
