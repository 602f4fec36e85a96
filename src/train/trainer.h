/* State of a training run (private to src/train). */
#ifndef TRM_TRAIN_TRAINER_H
#define TRM_TRAIN_TRAINER_H

#include "core/axis.h"
#include "train/budget.h"
#include "train/device_batch.h"
#include "train/lanes.h"
#include "train/slowdown.h"
#include "train/row_trainer.h"
#include "train/run_dir.h"
#include "train/stages.h"
#include "train/train.h"
#include "train/gather.h"

/* For strategies that take sparse rows themselves (rows.c). */
struct trainer_rows {
  struct trm_linear linear;
  float *feature_frequency;               /* (features) or NULL */
  struct trm_sparse_row *row; /* (train.batch) with target */
  float *target;
};

struct trainer;

/* A global batch that is being trained on. */
struct trainer_batch {
  uint64_t number;  /* of the run, from 0 */
  size_t low, high; /* its positions in the order of the epoch */
  double rate;      /* learning rate */
};

/* The mode of a run, a row of modes.c: how the gradient of a batch is computed, and how the run goes from one batch to
 * the next. All functions are collective over the run. */
struct trainer_mode {
  const char *name;
  bool delays_actions; /* injected slowdown is applied to each action of a pipeline, not to each batch */
  /* After the strategy, before the model is bound: takes what the mode needs. NULL: nothing. */
  int (*create)(struct trainer *t);
  /* Forward and backward over this rank's part of the batch: adds to *sums, and hands all gradients to the strategy.
   * NULL: advance does without. */
  int (*train_batch)(struct trainer *t, const struct trainer_batch *batch, struct trm_loss_sums *sums);
  /* The next synchronous step; or all batches numbered below `end`, which belong to this epoch, up to a state that is
   * that of the run as a whole. *sums: over these batches, on every rank. */
  int (*advance)(struct trainer *t, uint64_t end, struct trm_loss_sums *sums);
  /* The sums of the model, as it is bound, over a whole data set, the same on all ranks of the data axis. */
  int (*evaluate)(struct trainer *t, struct trm_dataset *dataset, struct trm_loss_sums *sums);
  /* Before a checkpoint is written: brings the ranks' own state up to date. NULL: it always is. */
  int (*save_local_state)(struct trainer *t);
  /* After the weights of a checkpoint have been restored. NULL: nothing is to be done. */
  int (*resume)(struct trainer *t);
};

struct trainer {
  const struct trm_options *options;
  const struct trm_modules *modules;
  const struct trm_grid *grid; /* parts->grid */
  struct trm_comm *comm;       /* grid->all */
  struct trm_axis *tensor;     /* the ranks that divide the layers; NULL: layers are whole */

  struct trm_splits splits;
  struct trm_dataset *data; /* splits.train */
  struct trm_model full_model; /* takes no memory: what all ranks have in common */
  struct trm_model model; /* the part that this rank has */
  struct trm_optimizer optimizer;
  struct trm_strategy strategy;
  const struct trainer_mode *mode; /* from the strategy's creation on */
  struct trm_lanes lanes;
  struct trm_host_batch batch;
  struct trm_device_batch device_batch;
  struct trainer_rows rows;
  struct trainer_stages stages;
  int slots; /* micro-batches that the model is bound for */
  struct trm_slowdown slowdown;
  struct trm_run_dir run_dir; /* rank 0 */
  struct trm_budget budget;
  size_t max_resident_bytes; /* bytes: this rank's most so far, looked up after a step */

  uint64_t steps_per_epoch, steps; /* of the whole run */
  uint64_t epoch, position;        /* samples of the epoch that are done */
  uint64_t samples;                /* since the run began */

  double began, wall_before;   /* clock at the start; seconds of earlier parts of the run */
  double train_s;              /* seconds in steps, of this part */
  double comm_s, wait_s;       /* of them: this rank in communication, and waiting for others */
  uint64_t samples_this_run;       /* samples of this part */
  double epoch_loss, epoch_rows; /* sums over the epoch that runs, or over the last one until the next begins */
  struct trm_score validation, best; /* on the validation split: the latest, the best so far */
  uint64_t best_updates, stale_evaluations;
  uint64_t evaluated_at;           /* updates at the latest evaluation */
  struct trm_score test;           /* of the final weights */
  uint64_t saved_at;               /* updates at the latest checkpoint */
  double progress_shown_at;                   /* clock at the latest progress line */
  double advance_began;                /* clock when trainer_advance began */
  uint64_t logged_step;                 /* step of the latest line of the log */
  struct trm_staleness *staleness; /* (ranks) as of the latest evaluation; NULL: the method has none */
};

/* Seconds of training so far, earlier parts of a resumed run included. */
double trainer_wall(const struct trainer *t);

double trainer_clock(const struct trainer *t);

/* True if the next batch belongs to another epoch. */
bool trainer_epoch_done(const struct trainer *t);

/* The mode of the run, by its grid, strategy, schedule and options (modes.c). */
const struct trainer_mode *trainer_choose_mode(const struct trainer *t);

/* Slot `advance` of the mode, timed (step.c). */
int trainer_advance(struct trainer *t, uint64_t end, struct trm_loss_sums *sums);
/* Slots of struct trainer_mode. step.c: train_batch in train.accumulate micro-batches; in lanes, which are added in a
 * fixed tree; advance by one synchronous step, by what the asynchronous workers do up to the next quiesce point, by
 * several batches of a pipeline without flush. rows.c: train_batch on sparse rows. */
int trainer_train_micro_batches(struct trainer *t, const struct trainer_batch *batch, struct trm_loss_sums *sums);
int trainer_train_lanes(struct trainer *t, const struct trainer_batch *batch, struct trm_loss_sums *sums);
int trainer_train_rows(struct trainer *t, const struct trainer_batch *batch, struct trm_loss_sums *sums);
int trainer_advance_step(struct trainer *t, uint64_t end, struct trm_loss_sums *sums);
int trainer_advance_workers(struct trainer *t, uint64_t end, struct trm_loss_sums *sums);
int trainer_advance_pipeline(struct trainer *t, uint64_t end, struct trm_loss_sums *sums);
/* Positions [*low, *high) of a batch in the order of the epoch (step.c). */
void trainer_batch_range(const struct trainer *t, uint64_t number, size_t *low, size_t *high);
/* The fields common to all training passes of this rank (step.c). */
struct trm_pass trainer_pass(const struct trainer *t);
/* The gradients of the flat interval are complete on this rank; the strategy gets them (step.c). */
int trainer_gradient_ready(struct trainer *t, size_t low, size_t high, const struct trm_loss_sums *sums);
/* Logs and records a batch on rank 0 (epochs.c), after `step` batches of the run. more: samples done that t->samples
 * does not include yet. sums: of this batch. */
int trainer_log(struct trainer *t, uint64_t step, size_t more, const struct trm_loss_sums *sums, double rate);
/* Collective (epochs.c). Brings every rank's staleness to all; returns how many there are: 0 or the ranks. */
int trainer_gather_staleness(struct trainer *t);
/* Collective (epochs.c). To the end, a stop, or early stopping; *how says which: "done", "stopped", "early-stop". */
int trainer_run(struct trainer *t, const char **outcome);

/* Sparse rows of a linear model (rows.c). setup: collective; tells the strategy if the model is one. */
int trainer_rows_setup(struct trainer *t);
void trainer_rows_free(struct trainer *t);

/* checkpoints (restart.c). All are collective. */
int trainer_gather_begin(struct trainer *t, struct trm_model_gather *gather); /* begins to bring tensors to rank 0 */
int trainer_save(struct trainer *t);      /* checkpoints/step-N.h5 and last.h5; removes the oldest beyond run.keep */
int trainer_save_best(struct trainer *t); /* checkpoints/best.h5 */
int trainer_init_or_resume(struct trainer *t);     /* initial weights, or those of run.resume */

#endif
