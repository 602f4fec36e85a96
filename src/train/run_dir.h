/* The run directory: config.yaml, metrics.jsonl, summary.json, checkpoints/. Called by rank 0 alone; not collective. */
#pragma once

#include <stdio.h>

#include "train/train.h"

struct trm_run_dir {
  char *path;    /* owned */
  FILE *metrics; /* opened for appending, flushed after each line */
};

/* Makes the directory and its files. resume_step >= 0: resumes the run in the directory and drops its metrics after
 * that step. resume_step < 0: a new run; a directory that holds a run is TRM_USAGE, or with run.overwrite the run's
 * files are removed. */
int trm_run_dir_open(struct trm_run_dir *dir, const struct trm_options *options, int64_t resume_step);

struct trm_progress_point {
  uint64_t step, epoch, samples;
  double wall_s, virtual_s; /* virtual_s: NAN on a real network: not written */
};
int trm_run_dir_log_train(struct trm_run_dir *dir, const struct trm_progress_point *at, double loss, double accuracy,
                          double rate);
/* Writes SPLIT_loss and SPLIT_accuracy; with tokens also SPLIT_perplexity, SPLIT_bits (per token) and, if token_bytes
 * is known, SPLIT_bits_per_byte. of_rank (ranks): the staleness of each rank's updates so far; the line has its mean,
 * 99th percentile and maximum over all ranks, and the mean of each rank, null without updates. With ranks = 0 or no
 * updates at all the line has no staleness. */
int trm_run_dir_log_evaluation(struct trm_run_dir *dir, const struct trm_progress_point *at, enum trm_split split,
                               const struct trm_dataset *dataset, const struct trm_score *score,
                               const struct trm_staleness *of_rank, int ranks);

/* Writes summary.json. of_rank, ranks: as above; the summary has the histogram of each rank with updates: the number of
 * updates of staleness 0, 1, ... up to its maximum; the last of TRM_STALENESS_BINS includes all above it. */
int trm_run_dir_write_summary(const struct trm_run_dir *dir, const struct trm_options *options,
                              const struct trm_modules *modules, const struct trm_model *model,
                              const struct trm_result *result, const struct trm_staleness *of_rank, int ranks);
void trm_run_dir_close(struct trm_run_dir *dir);

/* Returns the number of checkpoints step-N.h5 in a run directory.
 * Sets the oldest and the newest, NULL: none. Caller frees. */
int trm_run_dir_find_checkpoints(const char *path, char **oldest, char **newest);
