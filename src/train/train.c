/* A training run: set-up (setup.c), the loop over epochs (epochs.c), results. Read from the bottom: trm_train. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/energy.h"
#include "core/ledger.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"
#include "core/trace.h"
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
  int status = trainer_set_up(&t);
  if (status == TRM_OK && trainer_has_finished(&t)) {
    result->status = "finished";
    trainer_remove_memory(&t, false);
    trm_info("%s: the run has finished: nothing is left to train, its files are unchanged", options->run.dir);
  } else if (status == TRM_OK) {
    status = trainer_begin(&t);
    if (status == TRM_OK)
      status = train_run(&t);
    if (status == TRM_OK || status == TRM_STOPPED) /* the newest checkpoint is a file of the run directory */
      trainer_remove_memory(&t, false);
  }
  trainer_tear_down(&t);
  return status;
}
