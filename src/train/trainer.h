/* State of a training run (private to src/train). */
#pragma once

#include "core/axis.h"
#include "core/background.h"
#include "train/buddy.h"
#include "train/budget.h"
#include "train/checkpoint_files.h"
#include "train/device_batch.h"
#include "train/pipeline.h"
#include "train/charged_device.h"
#include "train/shares.h"
#include "train/slowdown.h"
#include "train/row_trainer.h"
#include "train/run_dir.h"
#include "train/staged_arrays.h"
#include "train/train.h"
#include "train/gather.h"
#include "train/state_copy.h"

/* Training on sparse rows with a row trainer (rows.c). All arrays: host, owned. */
struct trainer_rows {
  struct trm_linear linear;
  float *feature_frequency;   /* (features) fraction of the rows that have each feature; NULL: optim.l2 is 0 */
  struct trm_sparse_row *row; /* (train.batch) or more; NULL: the mode does not train on rows */
  float *target;              /* as row; -1 or +1 */
};

#define TRAINER_MAX_LANE_LEVELS 16

/* Lanes (run.lanes): the gradient of a batch is the sum over V fixed virtual shards, added in one fixed binary tree, so
 * that its bits do not depend on the number of ranks. A rank has 2^levels adjacent lanes, a subtree; the strategy adds
 * the ranks' subtrees in the same tree. */
struct trainer_lanes {
  int count, levels;                           /* lanes of this rank; log2(count) */
  float *subtree_sum[TRAINER_MAX_LANE_LEVELS]; /* device, (elements) each: a finished left subtree of 2^level lanes */
  /* of models with layers that sum over the batch: the passes over all lanes are made side by side; else NULL */
  struct trm_pass *pass;                 /* (count) */
  struct trm_input *input;               /* (count) */
  struct trm_device_batch *device_batch; /* (count) */
  struct trm_comm *shards;               /* the data ranks in the order of their shards, owned */
};

/* Verification of gradients (verify.c). */
struct trainer_verify {
  struct trainer_verify_rank *rank; /* (data ranks), owned; NULL: run.verify_every is 0 */
  uint64_t verified; /* the latest step whose gradient was verified; 0: none in this process */
  bool failed;       /* a fault ends the run: on every rank, whose error message says so */
};

/* The pipeline of a run (stages.c). */
struct trainer_stages {
  struct trm_pipeline pipeline;
  struct trm_host_batch *batch;          /* (slots) */
  struct trm_device_batch *device_batch; /* (slots) */
  float *previous_weights; /* 2bw, data rank 0: W(t-1) for checkpoints, host, (model.parameters); else NULL */
};

/* Measured steps with parallel.shares=measured (speeds.c). */
enum trainer_speeds_phase { SPEEDS_FIXED, SPEEDS_EQUAL, SPEEDS_PROPORTIONAL, SPEEDS_FAST, SPEEDS_WATCH };
enum { TRAINER_SPEEDS_STEPS = 5 };

struct trainer_speeds {
  enum trainer_speeds_phase phase; /* SPEEDS_FIXED: nothing is measured (any more) */
  int steps;                       /* of the phase */
  /* of this rank's steps that count, seconds */
  double step_s[TRAINER_SPEEDS_STEPS];
  double copy_s[TRAINER_SPEEDS_STEPS]; /* in passes, without waiting for other data ranks */
  double comm_s[TRAINER_SPEEDS_STEPS]; /* in communication of the data axis */
  double rest_s[TRAINER_SPEEDS_STEPS]; /* neither in passes nor in communication nor waiting */
  double began_s, copy_now_s, comm_before_s, wait_before_s, early_before_s, reduce_before_s; /* of the current step */
  double *share;                   /* (data ranks) by speed, owned */
  int32_t *shard, *node;           /* (data ranks) shard of the batch; lowest data rank of the node; owned */
  double proportional_s; /* a step with these shares, measured */
  double saved_s;        /* of its communication, if the slow ranks had left, by theory */
};

struct trainer;

/* One global batch. */
struct trainer_batch {
  uint64_t number;  /* of the run, from 0 */
  size_t low, high; /* positions [low, high) in the order of the epoch */
  double rate;      /* learning rate */
};

/* The rows of one pass over a batch: a micro-batch or a lane. */
struct trainer_pass_rows {
  size_t batch_low, batch_high; /* positions of the batch in the order of the epoch */
  int shard;                    /* the data rank's, of the batch */
  size_t pass;                  /* number in the batch */
  size_t low, high;             /* positions of these rows */
  uint64_t epoch;
};

/* The mode of a run, a row of modes.c: computes the gradients of batches and advances the run. All slots are collective
 * over all ranks of the run; train_batch of asynchronous workers is not. */
struct trainer_mode {
  bool delays_actions; /* injected slowdown is applied to each action of a pipeline, not to each batch */
  /* Called after the strategy is created, before the model is bound: allocates. NULL: nothing to do. */
  int (*create)(struct trainer *t);
  /* Forward and backward passes over this rank's shard of the batch: adds to *sums, and passes all gradients to the
   * strategy. NULL: advance does not call it. */
  int (*train_batch)(struct trainer *t, const struct trainer_batch *batch, struct trm_loss_sums *sums);
  /* Trains on the next batch (synchronous) or on all batches below `end`, which are of this epoch, and quiesces. *sums:
   * over these batches, the same on every rank. */
  int (*advance)(struct trainer *t, uint64_t end, struct trm_loss_sums *sums);
  /* Evaluates the model, as it is bound, on a whole data set. *sums: the same on all ranks of the data axis. */
  int (*evaluate)(struct trainer *t, struct trm_dataset *dataset, struct trm_loss_sums *sums);
  /* Before a checkpoint is written: updates the strategy's local_state. NULL: it is always current. */
  int (*save_local_state)(struct trainer *t);
  /* Called after a checkpoint is restored. NULL: nothing to do. */
  int (*resume)(struct trainer *t);
};

/* Staleness of all ranks, on rank 0, as of the latest call of trainer_gather_staleness. */
struct trainer_staleness {
  struct trm_staleness total; /* without updates if the method has no staleness */
  double *mean;               /* (ranks) of each rank's updates, owned */
  int ranks;                  /* 0: the method has no staleness */
};

/* Snapshots of an asynchronous run between two quiesce points (snapshots.c). */
struct trainer_snapshots {
  int count, seen;                            /* requested; passed by this rank */
  uint64_t at[TRM_MAX_SNAPSHOTS];             /* (count) steps */
  double reached_s[TRM_MAX_SNAPSHOTS];        /* (count) seconds until a worker was beyond, by trainer_clock */
  double reached_wall_s[TRM_MAX_SNAPSHOTS];   /* the same, real */
  uint64_t updates, samples;                  /* of the run at the quiesce point before */
  double train_s, wall_s, virtual_s, clock_s; /* times there */
};

struct trainer_save; /* a file to write (save.c) */

/* Checkpoints that are written while the run goes on (save.c). */
struct trainer_saves {
  bool in_background; /* the run makes such saves; this and the next two are equal on all ranks */
  bool pending;       /* trainer_await_save has not been called since the latest of them */
  uint64_t step;      /* updates of the state in the copy; UINT64_MAX: no whole state */
  int local_state_ranks;             /* of that state */
  struct trm_state_copy copy;
  struct trm_background *background; /* owned; NULL: the rank neither copies nor writes */
  struct trainer_save *first;        /* rank 0: those since the latest trainer_await_save, owned */
  /* copies in the memory of nodes, with run.buddy */
  struct trm_buddy buddy;
  struct trm_background *copying;    /* writes and sends them; owned; NULL: the rank does not, or in the foreground */
  char *memory;                      /* folder of this run's copies in the memory of each node, owned; NULL: none yet */
  int node_first;                    /* the first rank of this rank's node */
};

struct trainer {
  /* -- of the caller, not owned */
  const struct trm_options *options;
  const struct trm_modules *modules;
  const struct trm_grid *grid; /* modules->grid */
  struct trm_comm *comm;       /* grid->all */
  bool device_memory;          /* any rank's device has memory of its own */
  struct trm_result *result;   /* scores so far, seconds of this process in steps, communication and waiting for others;
                                  the rest at the end */

  /* -- data, model and method; set by setup, owned */
  struct trm_axis *tensor;     /* ranks that shard the layers; NULL: layers are whole */
  struct trm_splits splits;
  struct trm_dataset *data;    /* splits.train */
  struct trm_model full_model; /* the whole model, without arrays */
  struct trm_model model;      /* this rank's part */
  struct trm_optimizer optimizer;
  struct trm_charged_device charged; /* the strategy's, with modules->costs */
  struct trm_strategy strategy;
  struct trm_staged_arrays arrays; /* of passes */
  const struct trainer_mode *mode; /* chosen when the strategy has been created */

  /* -- batches and passes */
  struct trainer_lanes lanes;
  struct trainer_verify verify;
  struct trm_host_batch batch;
  struct trm_device_batch device_batch;
  /* read ahead, on a device with memory of its own: the rows in `batch`, and those that device_batch uploads */
  struct trainer_pass_rows fetched, uploading;
  struct trainer_rows rows;
  struct trainer_stages stages;
  int slots; /* micro-batches in flight that the model is bound for */
  struct trm_slowdown slowdown;
  struct trm_shares shares; /* of the data ranks in a batch */
  char *shares_text;        /* those to repeat the run with, owned; NULL: as the options say */
  struct trainer_speeds speeds;
  double reduce_s;          /* seconds in sums of passes over the data axis (trm_pass.reduce) */
  bool computes;  /* passes do not communicate, and run in slot compute of comm */
  bool computing; /* one does: the strategy gets its gradients after it */

  struct {
    char *path;                       /* owned; NULL: a new run, or the checkpoint has been restored */
    struct trm_checkpoint checkpoint; /* without arrays */
    bool from_memory;                 /* the file is a copy in the memory of a node (run.buddy) */
  } resume;
  struct trm_checkpoint_files files;
  struct trainer_saves saves;

  /* -- position in the run; these and the scores are equal on all ranks */
  uint64_t steps_per_epoch, steps; /* steps: of the whole run */
  uint64_t epoch, position;        /* position: samples of the epoch that are done */
  uint64_t samples;                /* since the run began */
  double peak_rate;                /* local steps: the highest learning rate of the first rates_known steps */
  uint64_t rates_known;
  double epoch_loss, epoch_rows;   /* sums over the current epoch, or the last one until the next begins */

  /* -- scores, early stopping, checkpoints */
  uint64_t stale_evaluations;        /* evaluations since the best one */
  struct trm_plateau plateau;        /* of optim.schedule=plateau; otherwise as at the beginning */
  uint64_t evaluated_at, saved_at;   /* updates at the latest evaluation, at the latest checkpoint; UINT64_MAX: none */

  struct trm_measurement *measurement; /* of the test split, owned; NULL: it is not being evaluated */

  struct trainer_snapshots snapshots;

  /* -- time and memory of this process; seconds, times by trainer_clock */
  double began;               /* time at the start */
  double wall_began, wall_before; /* the same, real; duration of earlier processes of a resumed run, real */
  double train_before;        /* result->train_s of earlier processes of a resumed run */
  double advance_began;       /* time at the latest call of trainer_advance */
  bool advances;              /* that call has not returned */
  uint64_t samples_this_run;  /* of this process */
  struct trm_budget budget;

  /* -- log */
  struct trm_run_dir run_dir;      /* rank 0 */
  char *record;                    /* rank 0: the text of record.json, owned; free() */
  int nodes;                       /* of the job */
  bool leads_node;                 /* the first rank of its node */
  double gpu_joules;               /* of its GPUs at the start, by the first rank; NAN: no rank computes on one */
  struct trm_energy *energy;       /* of the node, on the rank that leads it, owned; NULL: not known */
  struct trainer_place *place;     /* (places), owned: host and cores of each rank; of a virtual network of this one */
  int places;
  uint64_t resumed_at;             /* updates before this process; 0: a new run */
  double progress_shown_at;        /* time of the latest progress line, by trainer_wall */
  uint64_t logged_step;            /* step of the latest line of the log */
  struct trainer_staleness staleness;
};

/* Returns the seconds of training so far, those of earlier processes of a resumed run included. */
double trainer_wall(const struct trainer *t); /* real */
double trainer_virtual(const struct trainer *t); /* of this process, on a virtual network; NAN: on a real one */
double trainer_clock(const struct trainer *t); /* seconds, clock of comm */
double trainer_train_s(const struct trainer *t); /* seconds in steps so far, earlier processes included */
bool trainer_time_is_up(const struct trainer *t); /* these are train.seconds, by this rank's clock */
/* Returns the learning rate of 0-based step `step`, after the evaluations so far (step.c). */
double trainer_rate(const struct trainer *t, uint64_t step);
/* Returns true if the next batch belongs to another epoch. */
bool trainer_epoch_done(const struct trainer *t);
/* Returns true if train.stop_patience evaluations were no better than the best one. */
bool trainer_stops_early(const struct trainer *t);
/* Returns the mode of the run, by its grid, strategy, schedule and options (modes.c). */
const struct trainer_mode *trainer_choose_mode(const struct trainer *t);
/* Calls slot `advance` of the mode and measures its time (step.c). Collective. */
int trainer_advance(struct trainer *t, uint64_t end, struct trm_loss_sums *sums);
/* Slots of struct trainer_mode. train_batch: in train.accumulate micro-batches (step.c), in lanes (lanes.c), on sparse
 * rows (rows.c). advance: by one synchronous step, by the batches of asynchronous workers up to the next quiesce point,
 * by the batches of a pipeline without flush (step.c). */
int trainer_train_micro_batches(struct trainer *t, const struct trainer_batch *batch, struct trm_loss_sums *sums);
int trainer_train_lanes(struct trainer *t, const struct trainer_batch *batch, struct trm_loss_sums *sums);
int trainer_train_rows(struct trainer *t, const struct trainer_batch *batch, struct trm_loss_sums *sums);
bool trainer_passes_reduce(const struct trainer *t); /* a layer sums over a batch (step.c) */
bool trainer_passes_compute(const struct trainer *t); /* the value of trainer.computes (step.c) */
int trainer_advance_step(struct trainer *t, uint64_t end, struct trm_loss_sums *sums);
int trainer_advance_workers(struct trainer *t, uint64_t end, struct trm_loss_sums *sums);
int trainer_advance_pipeline(struct trainer *t, uint64_t end, struct trm_loss_sums *sums);
int trainer_lanes_create(struct trainer *t); /* slot create, with lanes (lanes.c) */
void trainer_lanes_free(struct trainer *t);
/* Computes the gradient of a shard of the batch, this rank's or another's, into t->arrays.g, and adds its losses to
 * *sums. final: the pass of the last lane hands its intervals to the strategy (trainer_gradient_ready); otherwise
 * nothing else changes. Not collective (lanes.c). */
int trainer_lanes_gradient(struct trainer *t, const struct trainer_batch *batch, int shard, bool final,
                           struct trm_loss_sums *sums);
/* Adds the last lane's gradients of the flat interval [low, high), which are final, to those of the other lanes.
 * Without lanes it does nothing. */
void trainer_lanes_complete(struct trainer *t, size_t low, size_t high);
/* Verification of gradients, with run.verify_every (verify.c). create, gradient: collective over the data axis. due:
 * the step of this batch is verified. gradient: trainer_lanes_gradient of this rank's shard, with the right values; or
 * t->verify.failed is set. */
int trainer_verify_create(struct trainer *t);
void trainer_verify_free(struct trainer *t);
bool trainer_verify_due(const struct trainer *t, const struct trainer_batch *batch);
int trainer_verify_gradient(struct trainer *t, const struct trainer_batch *batch, struct trm_loss_sums *sums);
/* Sets the rows of pass `pass` over a shard of a batch (step.c); of another rank's shard only with lanes. */
void trainer_pass_rows(const struct trainer *t, size_t batch_low, size_t batch_high, int shard, size_t pass,
                       struct trainer_pass_rows *rows);
/* Returns first_row of the pass over these rows: the same for any sharding of the batch (step.c). */
uint64_t trainer_first_row(const struct trainer *t, const struct trm_pass *pass, const struct trainer_pass_rows *rows);
/* Forward and backward passes over rows of a batch (step.c). pass: the caller sets beta, more_passes and reduce. final:
 * the gradients are complete after this pass. */
int trainer_forward_backward(struct trainer *t, const struct trainer_pass_rows *rows, struct trm_pass *pass,
                             bool final, struct trm_loss_sums *sums);
/* Sets the positions [*low, *high) of a batch in the order of the epoch (step.c). */
void trainer_batch_range(const struct trainer *t, uint64_t number, size_t *low, size_t *high);
/* Sets the rows [*from, *to) of so many that this rank computes: its shard (step.c). */
void trainer_shard(const struct trainer *t, size_t rows, size_t *from, size_t *to);
/* Returns the maximum number of rows of a pass on the ranks that compute a shard of each batch (setup.c). */
size_t trainer_max_rows(const struct trainer *t, int shard);
/* Returns 1 / the rows over which a gradient of a batch of so many rows is a mean: all, or with local steps those of
 * the replica; 0: there are none (step.c). */
float trainer_gradient_scale(const struct trainer *t, size_t rows);
/* Returns the fields common to all training passes of this rank (step.c). */
struct trm_pass trainer_pass(struct trainer *t);
/* Passes the complete gradients of the flat interval to the strategy, after sums over the tensor axis (step.c); while
 * a pass runs in slot compute it does nothing. */
int trainer_gradient_ready(struct trainer *t, size_t low, size_t high, const struct trm_loss_sums *sums);
/* Logs a batch on rank 0 (epochs.c), after `step` batches of the run. more: samples done that t->samples does not
 * include yet. sums: of this batch. */
int trainer_log(struct trainer *t, uint64_t step, size_t more, const struct trm_loss_sums *sums, double rate);
/* Collective (epochs.c). Sets t->staleness on rank 0, and adds to staleness.json if that is being written. Returns the
 * total on rank 0, NULL elsewhere and with a synchronous method. */
const struct trm_staleness *trainer_gather_staleness(struct trainer *t);
/* Collective (histograms.c). With log.tensorboard, adds histograms of the weights that are evaluated to the events; on
 * a virtual network, where messages take time, only if one rank has them all. Returns rank 0's failure there alone. */
int trainer_log_weights(struct trainer *t, uint64_t step);
/* Collective (epochs.c). Evaluates the strategy's weights on the validation split and records the score at this point
 * of the run, with stale_evaluations. *better: it is the best one. */
int trainer_validate(struct trainer *t, const struct trm_progress_point *at, bool *better);

/* Measures of the test split (epochs.c). measure: lets the passes of its evaluation add their scores. end: collective,
 * at the end of the run, when its times are known; sets result->measures and logs them on rank 0. */
void trainer_measure(const struct trainer *t, struct trm_pass *pass);
void trainer_measures_end(struct trainer *t);

/* Snapshots (snapshots.c). begin: collective; requests those before the quiesce point `end`, and returns the end, which
 * is earlier if they are too many. see: this rank begins a batch. end: collective, at the quiesce point: evaluates and
 * records them, and saves the best. */
uint64_t trainer_snapshots_begin(struct trainer *t, uint64_t end);
void trainer_snapshots_see(struct trainer *t, uint64_t batch);
int trainer_snapshots_end(struct trainer *t);

/* Set-up of a run (setup.c), collective. set_up: data, model, method, memory, and the weights or a checkpoint.
 * has_finished: the run has finished before: its results are in the run directory, and no step is left to make; a batch
 * system may start such a job again. begin: opens the run directory and logs what will be trained. tear_down: closes
 * what these have opened, also after a failure. */
int trainer_set_up(struct trainer *t);
bool trainer_has_finished(const struct trainer *t);
int trainer_begin(struct trainer *t);
void trainer_tear_down(struct trainer *t);

/* Returns true if no step is left to make: all are done, or the run has stopped early. */
bool trainer_is_complete(const struct trainer *t);
/* Collective (epochs.c). Trains up to the last step or an earlier stop. *outcome: "done", "stopped", "early-stop". */
int trainer_run(struct trainer *t, const char **outcome);
/* Collective (places.c). Sets t->place. */
void trainer_gather_places(struct trainer *t);
/* Adds the places to record.json, with the command line and the Slurm job. */
void trainer_add_places(struct trm_json *json, const struct trainer *t);
/* Writes record.json for the configuration that config.yaml has, and sets t->record (run_record.c). Called by rank 0;
 * not collective. */
int trainer_write_record(struct trainer *t, const struct trm_options *options);

/* Training on sparse rows (rows.c). setup: collective; begins it if model and strategy support it. */
int trainer_rows_setup(struct trainer *t);
void trainer_rows_free(struct trainer *t);

/* Shares of the data ranks (speeds.c). create: collective; sets t->shares by parallel.shares and the checkpoint.
 * options: a copy for the run's files, with the shares that are in use; nothing to release. evaluation: the passes over
 * so many rows, the same number on all ranks. begin, passed and end: around a synchronous step of `rows` rows, and when
 * its passes are done; end is collective. */
int trainer_shares_create(struct trainer *t);
void trainer_shares_free(struct trainer *t);
struct trm_options trainer_shares_options(const struct trainer *t);
size_t trainer_shares_passes(const struct trainer *t, size_t rows);
void trainer_speeds_begin(struct trainer *t);
int trainer_speeds_passed(struct trainer *t);
int trainer_speeds_end(struct trainer *t, size_t rows);

/* Collective (rank_times.c). At the end of training: replaces result->comm_s and wait_s, so far this rank's, by means
 * over the ranks, sets the times of all ranks, and logs the slowest rank, if the others waited for it. */
void trainer_rank_times(struct trainer *t);

/* Collective (rank_times.c). Sets result->between_nodes, and logs it if there were messages between nodes. */
void trainer_between_nodes(struct trainer *t);

/* -- with a pipeline (stages.c) */

/* Sets *part to this stage's chunks of t->full_model, by the options. Not collective. */
int trainer_stages_partition(struct trainer *t, struct trm_model_part *part);
/* Collective. Creates the pipeline for t->model; sets t->slots, which the model is then bound with. */
int trainer_stages_create(struct trainer *t);
/* Logs the cuts of the model (numbers of items of its text, as in parallel.cut) and each chunk's share of the work. */
void trainer_stages_log_partition(const struct trainer *t);
void trainer_stages_free(struct trainer *t); /* collective */

/* Slots of struct trainer_mode. */
int trainer_stages_train(struct trainer *t, const struct trainer_batch *global, struct trm_loss_sums *sums);
int trainer_stages_evaluate(struct trainer *t, struct trm_dataset *dataset, struct trm_loss_sums *sums);
int trainer_stages_save_local_state(struct trainer *t);
int trainer_stages_resume(struct trainer *t);
/* Collective. Schedules that do not flush: trains on all batches below `end`, with updates; ends a few batches after a
 * stop request of any rank. *total: sums over these batches. */
int trainer_stages_advance(struct trainer *t, uint64_t end, struct trm_loss_sums *total);
/* Collective. Sets the idle share of the stages' time in training, measured and by trm_schedule_bubble; NAN: no
 * pipeline, or no training. */
void trainer_stages_bubble(struct trainer *t, double *measured, double *theory);

/* Checkpoints (save.c). All are collective but for finish, await_copy and stop_requested. */
int trainer_gather_begin(struct trainer *t, struct trm_model_gather *gather); /* trm_model_gather_begin, of t */
/* Prepares saves in the background, by run.background, and in memory, by run.buddy; removes copies in memory of earlier
 * runs. *bytes: of memory that they take on this rank. */
int trainer_saves_open(struct trainer *t, size_t *bytes);
void trainer_saves_close(struct trainer *t); /* waits for a save that is under way */
/* Waits until this rank's state may change: before its first call of the strategy's grad_ready or step in a step. Not
 * collective. */
void trainer_await_copy(struct trainer *t);
/* Writes checkpoints/step-N.h5, links last.h5, removes those beyond run.keep. goes_on: the run does, and the file may
 * be written in the background; then a failure of this save is returned by the next one or by trainer_await_save. */
int trainer_save(struct trainer *t, bool goes_on);
int trainer_save_best(struct trainer *t, bool goes_on); /* writes checkpoints/best.h5 */
/* Copies the state to the memory of two nodes (buddy.h), in the background as other saves; while a file is being written
 * it does nothing. A failure to copy is a warning. */
int trainer_save_memory(struct trainer *t);
/* Writes checkpoints/best.h5 of the weights of evaluations as of an earlier step, without optimizer states: for
 * evaluation and model.init, not for resuming. */
int trainer_save_best_weights(struct trainer *t, const struct trm_progress_point *at);
/* Waits for a save that is under way. Returns its failure. */
int trainer_await_save(struct trainer *t);
int trainer_finish_save(const struct trainer *t); /* the same of this rank alone, which is about to end the job */
/* True after a signal, and after a save in the background has failed: the run ends at the next step. */
bool trainer_stop_requested(const struct trainer *t);
bool trainer_stop_asked(const struct trainer *t); /* of these, by anything but train.seconds */
/* Returns a text that identifies the validation rows: with one data set, equal texts mean equal rows. Caller frees. Not
 * collective (restart.c). */
char *trainer_validation_text(const struct trainer *t);

/* Initial weights from a file (initial.c). */
struct trainer_initial {
  float *w;     /* (full_model.parameters) host; NULL: model.init is empty */
  bool *loaded; /* by number of the parameter: w has it */
};
/* Collective. Reads model.init on rank 0, without what model.skip names, and broadcasts it. Release with free. */
int trainer_load_initial_weights(struct trainer *t, struct trainer_initial *initial);
void trainer_free_initial_weights(struct trainer_initial *initial);

/* Resuming (restart.c). All are collective. */
/* Finds run.resume's checkpoint, which rank 0 verifies, and reads all but its arrays: sets t->resume. close: not
 * collective. */
int trainer_open_checkpoint(struct trainer *t);
void trainer_close_checkpoint(struct trainer *t);
/* Sets the folder of this run's copies in memory; with a virtual network there is none. */
void trainer_find_memory(struct trainer *t);
/* Removes the folders of copies in memory that are of runs in this run directory: of this run, too, or only of
 * `others`. Not collective: the first rank of each node does it. */
void trainer_remove_memory(struct trainer *t, bool others);
/* Sets initial weights, or the state of the checkpoint, which is closed in any case. */
int trainer_init_or_resume(struct trainer *t);
