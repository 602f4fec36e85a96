/* Checkpoints in the memory of a node (run.buddy): files of a folder in /dev/shm, which outlive the processes of a run,
 * though not the node. A folder belongs to one run: its name has the SHA-256 of the run directory's path and that of
 * the first line of its audit log, so that a new run in the same directory does not take the state of the one before.
 * Called by one rank of a node; not collective. */
#pragma once

#include "train/checkpoint_files.h"

#define TRM_MEMORY_ROOT "/dev/shm"

/* Returns the folder of a run in `root`, whether it is there or not; NULL: the run directory has no audit log yet.
 * Owned by the caller. */
char *trm_memory_files_folder(const char *root, const char *run);
/* Makes the folder, mode 0700, and removes what is in it, but for the checkpoint of step `keep` (UINT64_MAX: none). */
int trm_memory_files_make(const char *folder, uint64_t keep);
/* Sets *step to the newest checkpoint in the folder that is not damaged, by verifying it. Returns false if there is
 * none of step `from` or later. Damaged ones are removed, with a warning. Of a folder that is not this user's alone
 * nothing is read. */
bool trm_memory_files_newest(const char *folder, const struct trm_checkpoint_ops *ops, uint64_t from, uint64_t *step);
/* Fails if there is no space for so many bytes, beside or in place of what is in the folder. */
int trm_memory_files_check_space(const char *folder, double bytes);
/* Removes the folders of all runs of the same run directory, but for `folder` itself if `others`. Failures are
 * warnings. */
void trm_memory_files_remove(const char *folder, bool others);
