/* The run directory: config.yaml, metrics.jsonl, summary.json, checkpoints/. Rank 0 alone calls these; no function is
 * collective. */
#ifndef TRM_TRAIN_RUN_DIR_H
#define TRM_TRAIN_RUN_DIR_H

#include <stdio.h>

#include "train/train.h"

struct trm_run_dir {
  char *path;
  FILE *metrics; /* appended, one line flushed at a time */
};

/* Makes the directory and its files. A directory that holds a run is refused unless resumed (metrics after
 * `resume_step` are dropped: they are about to be computed again) or overwritten (the old run's files are removed).
 * resume_step < 0: a new run. */
int trm_run_dir_open(struct trm_run_dir *dir, const struct trm_options *options, int64_t resume_step);

struct trm_progress_point {
  uint64_t step, epoch, samples;
  double wall_s;
};
int trm_run_dir_log_train(struct trm_run_dir *dir, const struct trm_progress_point *at, double loss, double accuracy,
                          double rate);
/* Writes SPLIT_loss and SPLIT_accuracy, of tokens also SPLIT_perplexity, SPLIT_bits (a token) and, where the data set
 * knows its text, SPLIT_bits_per_byte. of_rank: (ranks) the staleness of each rank's updates so far; NULL, 0, or no
 * updates: the method has none, and nothing is written of it. Otherwise the line has its mean, 99th percentile and
 * maximum over all ranks, and the mean of each rank, null where it has no updates. */
int trm_run_dir_log_evaluation(struct trm_run_dir *dir, const struct trm_progress_point *at, enum trm_split split,
                               const struct trm_dataset *dataset, const struct trm_score *score,
                               const struct trm_staleness *of_rank, int ranks);

/* of_rank, ranks: as above. The summary has the histogram of each rank with updates: how many were 0, 1, ... updates
 * stale, up to its own maximum; the last of TRM_STALENESS_BINS counts those that were more, too. */
int trm_run_dir_write_summary(const struct trm_run_dir *dir, const struct trm_options *options,
                              const struct trm_modules *modules, const struct trm_model *model,
                              const struct trm_result *result, const struct trm_staleness *of_rank, int ranks);
void trm_run_dir_close(struct trm_run_dir *dir);

/* The newest complete checkpoint of a run directory, NULL if there is none. Caller frees. */
char *trm_run_dir_newest_checkpoint(const char *path);

/* The number of step checkpoints of a run directory; *oldest (if not NULL): the oldest, caller frees, NULL if none. */
int trm_run_dir_count_checkpoints(const char *path, char **oldest);

#endif
