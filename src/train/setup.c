/* What a training run needs before its first step: data, model, method, memory, run directory. Read from the bottom. */
#include <stdlib.h>
#include <string.h>

#include "core/energy.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"
#include "nn/lora.h"
#include "train/compatibility.h"
#include "train/local_state.h"
#include "train/stop.h"
#include "train/trainer.h"

/* Returns the smallest number of parts that a batch is divided into, those of the undone parts included. */
static size_t setup_min_parts(const struct trainer *t)
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
  const size_t parts = setup_min_parts(t), part = (batch + parts - 1) / parts;
  const size_t rows = lanes > 0 ? (part + lanes - 1) / lanes : trm_shares_max_rows(&t->shares, part, shard);
  return (rows + accumulate - 1) / accumulate;
}

/* Refuses incompatible features, as far as they are known at this point. */
static int setup_check_combinations(const struct trainer *t)
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

static int setup_check_options(const struct trm_options *o, const struct trm_grid *grid)
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
static bool setup_cuts_validation(const struct trainer *t)
{
  double fraction;
  const char *file;
  return trm_validation_option(t->options, &fraction, &file) == TRM_OK && fraction > 0;
}

static int setup_open_data(struct trainer *t)
{
  const struct trm_options *o = t->options;
  struct trm_splits *splits = &t->splits;
  TRM_CHECK(trm_splits_open(splits, t->modules->dataset, o, t->comm));
  t->data = splits->train;
  if (splits->validation) {
    trm_info("validation: %zu samples, %s", splits->validation->rows,
             setup_cuts_validation(t) ? "cut from the training split" : splits->validation->path);
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

static int setup_count_steps(struct trainer *t)
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
static int setup_create_full_model(struct trainer *t, const char *loss)
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
static int setup_create_models(struct trainer *t)
{
  const struct trm_options *o = t->options;
  const struct trm_input_spec *spec = &t->data->spec;
  const char *loss = trm_choice_text("train.loss", o->train.loss);
  TRM_CHECK(setup_create_full_model(t, loss));
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

/* With simulate.machine the strategy gets a device that takes time (setup_set_costs). */
static int setup_charge_arrays(struct trainer *t)
{
  if (t->options->simulate.machine[0] == '\0')
    return TRM_OK;
  if (!t->modules->costs)
    return trm_error(TRM_USAGE, "simulate.machine: only trireme train reads it");
  trm_charged_device_open(&t->charged, t->modules->device, t->comm);
  return TRM_OK;
}

static bool setup_abandons(void *context)
{
  const struct trm_strategy *s = context;
  return s->abandons(s);
}

static int setup_create_strategy(struct trainer *t)
{
  const bool flushes = t->grid->size[TRM_AXIS_PIPELINE] == 1 || trm_schedule_flushes(&t->stages.pipeline.schedule);
  const bool stages = t->device_memory && t->grid->size[TRM_AXIS_DATA] > 1; /* any rank; the ranks share arrays */
  TRM_CHECK(setup_charge_arrays(t));
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
  const int status = setup_check_combinations(t);
  if (status != TRM_OK)
    t->strategy.ops = NULL; /* nothing to destroy */
  TRM_CHECK(status);
  t->data->independent = t->strategy.ops->next_batch != NULL;
  TRM_CHECK(trm_staged_arrays_create(&t->arrays, &t->strategy));
  t->slowdown.abandons = t->strategy.abandons ? setup_abandons : NULL;
  t->slowdown.abandons_context = &t->strategy;
  TRM_CHECK(trainer_rows_setup(t));
  t->mode = trainer_choose_mode(t);
  t->computes = trainer_passes_compute(t);
  return setup_check_combinations(t);
}

static void setup_log(const struct trainer *t)
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
static double setup_allocated(struct trainer *t, enum trm_op op)
{
  double bytes = (double)trm_memory_allocated();
  if (t->modules->costs)
    t->comm->ops->allreduce(t->comm, &bytes, 1, TRM_DOUBLE, op);
  return bytes;
}

/* Takes the figures of the model, which is bound, from simulate.machine, and those of arrays as large as all that a
 * node's ranks have allocated since `before`: none stays in a cache that they do not fit into together. Collective. */
static int setup_set_costs(struct trainer *t, double before)
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
  const double bytes = (setup_allocated(t, TRM_MAX) - before) * node->size / t->comm->size;
  node->ops->release(node);
  TRM_CHECK(costs->arrays(costs, bytes, &t->charged.costs));
  return costs->gradient(costs, s->model, s->pass_rows, &s->pass_s);
}

/* Plans what rank 0 gathers, tensors and then local states: for checkpoints, and at the end to hash the weights; and,
 * between these, the scores that the measures of the test split are made of. Collective. */
static int setup_plan_gathering(struct trainer *t)
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
static void setup_agree_on_devices(struct trainer *t)
{
  int32_t separate = !t->modules->device->host_memory;
  t->comm->ops->allreduce(t->comm, &separate, 1, TRM_INT32, TRM_MAX);
  t->device_memory = separate;
}

/* The ranks agree on the layout of images, which parts of a model exchange. A device is asked only if there are such
 * images: it may have to open a library. Collective. */
static void setup_agree_on_layout(struct trainer *t)
{
  struct trm_device *device = t->modules->device;
  bool allowed = false;
  for (int i = 0; i < t->full_model.layers; i++)
    allowed = allowed || t->full_model.layer[i].out_last_allowed;
  int32_t first = !allowed || !device->ops->channels_last || !device->ops->channels_last(device, t->model.values);
  t->comm->ops->allreduce(t->comm, &first, 1, TRM_INT32, TRM_MAX);
  t->model.channels_first = first;
}

/* Adds to the error of a device without room for the activations what was planned of them, and what takes less. */
static int setup_explain_activations(const struct trainer *t, int status)
{
  char *reason = trm_strdup(trm_error_text());
  trm_error(status, "%s; planned for passes of %zu rows: activations %.2f GiB in all (less: train.batch, more: "
            "train.accumulate; parallel.recompute; train.activations=bf16; on more ranks parallel.pipeline, "
            "parallel.tensor)", reason, t->model.max_rows, (double)t->model.arena_bytes / 1073741824.0);
  trm_free(reason);
  return status;
}

/* A job that was requeued may begin while the one before it ends: a run that goes on waits for it. Collective. */
static int setup_take_run_dir(struct trainer *t)
{
  const double wait_s = strcmp(t->options->run.resume, "auto") == 0 ? 1.5 * TRM_LEASE_S : 0;
  const int status = t->comm->rank == 0 ? trm_run_dir_take(&t->run_dir, &t->options->run, wait_s) : TRM_OK;
  return trm_agree(t->comm, status);
}

int trainer_set_up(struct trainer *t)
{
  struct trm_comm *process = t->comm->ops->split_node(t->comm, TRM_SHARE_PROCESS);
  const bool first = process->rank == 0;
  process->ops->release(process);
  setup_agree_on_devices(t);
  TRM_CHECK(trm_agree(t->comm, trm_budget_begin(&t->budget, t->modules->device, first)));
  TRM_CHECK(setup_check_options(t->options, t->grid));
  TRM_CHECK(setup_check_combinations(t));
  TRM_CHECK(setup_open_data(t));
  trm_budget_charge_data(&t->budget);
  TRM_CHECK(setup_count_steps(t));
  const double allocated = setup_allocated(t, TRM_MIN);
  TRM_CHECK(setup_create_models(t));
  TRM_CHECK(trm_model_parse_recompute(t->options->parallel.recompute, &t->model.recompute));
  setup_agree_on_layout(t);
  t->model.accumulates = t->options->train.accumulate > 1;
  t->model.smoothing = (float)t->options->train.smoothing;
  t->model.huber_delta = (float)t->options->train.huber_delta;
  TRM_CHECK(trm_model_set_groups(&t->model, &t->full_model, t->options->optim.groups));
  TRM_CHECK(trm_optimizer_create(&t->optimizer, t->options, &t->model));
  const double flop = trm_model_train_flop(&t->model);
  TRM_CHECK(trm_slowdown_create(&t->slowdown, t->options, t->comm, flop));
  TRM_CHECK(setup_create_strategy(t));
  TRM_CHECK(trm_agree(t->comm, t->mode->create ? t->mode->create(t) : TRM_OK));
  TRM_CHECK(trainer_verify_create(t));
  trm_budget_charge(&t->budget, TRM_BUDGET_WEIGHTS);
  TRM_CHECK(setup_take_run_dir(t));
  TRM_CHECK(trainer_open_checkpoint(t));
  TRM_CHECK(trainer_shares_create(t));
  const size_t max_rows = trainer_max_rows(t, t->strategy.batch_shard);
  float *w = trm_staged_arrays_load(&t->arrays, t->strategy.w);
  trm_model_share_rounded(&t->model, t->strategy.w, t->strategy.rounded);
  int status = trm_model_bind_slots(&t->model, t->modules->device, w, t->arrays.g, max_rows, true, t->slots);
  trm_budget_charge(&t->budget, TRM_BUDGET_ACTIVATIONS);
  if (status != TRM_OK && !t->modules->device->host_memory)
    setup_explain_activations(t, status);
  TRM_CHECK(trm_agree(t->comm, status));
  trm_device_batch_create(&t->device_batch, t->modules->device, &t->model);
  TRM_CHECK(setup_set_costs(t, allocated));
  return trainer_init_or_resume(t);
}

bool trainer_has_finished(const struct trainer *t)
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
static void setup_count_nodes(struct trainer *t)
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

int trainer_begin(struct trainer *t)
{
  trm_stop_listen(true);
  const int64_t resumed = t->options->run.resume[0] ? (int64_t)t->strategy.updates : -1;
  const struct trm_options options = trainer_shares_options(t);
  t->run_dir.data_digest = t->data->digest;
  setup_count_nodes(t);
  t->resumed_at = t->strategy.updates;
  trainer_gather_places(t);
  int status = t->comm->rank == 0 ? trm_run_dir_open(&t->run_dir, &options, resumed) : TRM_OK;
  if (t->comm->rank == 0 && status == TRM_OK)
    status = trainer_write_record(t, &options);
  TRM_CHECK(trm_agree(t->comm, status));
  trm_budget_charge(&t->budget, TRM_BUDGET_PROGRAM);
  trm_budget_first_step(&t->budget, &t->model);
  TRM_CHECK(setup_plan_gathering(t));
  setup_log(t);
  return TRM_OK;
}

void trainer_tear_down(struct trainer *t)
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
