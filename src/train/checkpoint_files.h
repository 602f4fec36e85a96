/* The files of a run's checkpoints: checkpoints/step-N.h5 in the run directory, and last.h5, a link to the newest.
 * Called by rank 0 alone; not collective. */
#pragma once

#include "train/checkpoint.h"

struct trm_checkpoint_files {
  const char *run;   /* the run directory, not owned */
  /* Steps of the files that are damaged: found when the run was resumed, and not written again since. They are not
   * removed, and do not count among those that are kept. Owned. */
  uint64_t *damaged; /* (damaged_count) */
  size_t damaged_count, damaged_capacity;
};

/* Sets *path to the newest checkpoint that is not damaged, by verifying it; NULL: there is no checkpoint yet. Warns of
 * each damaged one that is newer. Fails if all are damaged or the directory cannot be listed. Caller frees. */
int trm_checkpoint_files_newest(struct trm_checkpoint_files *files, const struct trm_checkpoint_ops *ops, char **path);

/* Sets *step to that of the newest checkpoint, *any to false if there is none. Fails if the directory cannot be listed.
 * */
int trm_checkpoint_files_newest_step(const struct trm_checkpoint_files *files, uint64_t *step, bool *any);

/* Returns the path of the checkpoint of a step, owned by the caller. */
char *trm_checkpoint_files_path(const struct trm_checkpoint_files *files, uint64_t step);

/* After the checkpoint of a step was written: links last.h5 to it, and removes the oldest ones, so that `keep` remain.
 * Failures are warnings that name the file. */
void trm_checkpoint_files_saved(struct trm_checkpoint_files *files, uint64_t step, size_t keep);

void trm_checkpoint_files_free(struct trm_checkpoint_files *files);

/* Sets *file to the checkpoint of a run directory: best.h5, or else last.h5, or else, as in runs of the first version,
 * which had no such link, the newest step-N.h5. Any other path is that of a checkpoint. Caller frees (initial.c). */
int trm_checkpoint_find(const char *path, char **file);
