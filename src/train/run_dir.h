/* The run directory: config.yaml, metrics.jsonl, summary.json, staleness.json, checkpoints/; record.json is written by
 * run_record.c. Called by rank 0 alone;
 * not collective. */
#pragma once

#include <stdio.h>

#include "core/atomic_file.h"
#include "core/document.h"
#include "core/lease.h"
#include "core/event_file.h"
#include "train/train.h"

struct trm_run_dir {
  char *path;    /* owned */
  const char *group;       /* run.group, not owned */
  const char *data_digest; /* of the data set, for the audit log, not owned; NULL: unknown; set by the caller */
  bool made;     /* the directory is new: without files it is removed again */
  struct trm_lease *lease; /* owned */
  FILE *metrics; /* opened for appending, flushed after each line */
  struct trm_event_file events; /* closed: log.tensorboard=no */
  FILE *line;                   /* of metrics.jsonl, until it is complete: stream of its text, of a run with events */
  char *text;
  size_t bytes;
  /* staleness.json while it is written */
  char *staleness_path; /* owned; NULL: it is not */
  struct atomic_file staleness_file;
  struct trm_json staleness;
};

/* Makes the directory run.dir if there is none, of run.group, takes its lease, for which it waits wait_s seconds at most
 * (core/lease.h), and removes the incomplete files that a killed process has left. What writes there fails from when
 * another process has it. */
int trm_run_dir_take(struct trm_run_dir *dir, const struct trm_run_options *options, double wait_s);
/* Makes the files of the directory, which was taken. resume_step >= 0: resumes the run in the directory and drops its
 * metrics after that step, and summary.json. resume_step < 0: a new run; a directory that holds a run is TRM_USAGE, or
 * with run.overwrite the run's files are removed. */
int trm_run_dir_open(struct trm_run_dir *dir, const struct trm_options *options, int64_t resume_step);
/* Returns true if the run writes TensorBoard's event files (log.tensorboard). */
bool trm_run_dir_has_events(const struct trm_options *options);
/* Returns true if summary.json says that the run in a directory has finished: *steps that it made, *early: it stopped
 * early, or at the end of train.seconds. */
bool trm_run_dir_is_finished(const char *path, uint64_t *steps, bool *early);
/* Replaces config.yaml. */
int trm_run_dir_write_config(const struct trm_run_dir *dir, const struct trm_options *options);
/* The SHA-256 of config.yaml with these options. */
int trm_run_dir_hash_config(const struct trm_run_dir *dir, const struct trm_options *options, char hex[65]);

struct trm_progress_point {
  uint64_t step, epoch, samples;
  double wall_s, train_s; /* since the run began; in steps, without evaluations */
  double virtual_s;       /* NAN on a real network: not written */
};
int trm_run_dir_log_train(struct trm_run_dir *dir, const struct trm_progress_point *at, double loss, double accuracy,
                          double rate);
/* Writes SPLIT_loss and SPLIT_accuracy; with tokens also SPLIT_perplexity, SPLIT_bits (per token) and, if token_bytes
 * is known, SPLIT_bits_per_byte. total: the staleness of all ranks so far, of which the line has mean, median, 95th
 * percentile and maximum, null without updates; NULL: of a synchronous method, the line has no staleness. mean_of_rank
 * (ranks): the mean of each rank, NAN without updates; written up to the last rank with updates, if there is one. */
int trm_run_dir_log_evaluation(struct trm_run_dir *dir, const struct trm_progress_point *at, enum trm_split split,
                               const struct trm_dataset *dataset, const struct trm_score *score,
                               const struct trm_staleness *total, const double *mean_of_rank, int ranks);

/* Write staleness.json: of each rank with updates the figures as above and the histogram: the number of updates of
 * staleness 0, 1, ... up to its maximum; the last of TRM_STALENESS_BINS includes all above it. If begin fails, add and
 * end have no effect. */
int trm_run_dir_staleness_begin(struct trm_run_dir *dir);
void trm_run_dir_staleness_add(struct trm_run_dir *dir, int rank, const struct trm_staleness *staleness);
int trm_run_dir_staleness_end(struct trm_run_dir *dir);

/* Writes summary.json. total: as above. */
int trm_run_dir_write_summary(const struct trm_run_dir *dir, const struct trm_options *options,
                              const struct trm_modules *modules, const struct trm_model *model,
                              const struct trm_result *result, const struct trm_staleness *total);
/* Writes a summary.json of a run that is ended because it stalled: reason, ranks, the step, "status": "stalled". */
int trm_run_dir_write_stalled(const char *path, const char *reason, int ranks, uint64_t step);
/* Adds a checkpoint to the audit log. */
int trm_run_dir_audit_checkpoint(const struct trm_run_dir *dir, const char *file, uint64_t step);
void trm_run_dir_close(struct trm_run_dir *dir);
