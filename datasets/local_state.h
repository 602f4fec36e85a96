/* What each rank keeps for itself, in a checkpoint (private to datasets/; layout: checkpoint.c). All use HDF5: between
 * h5_enter and h5_leave. Errors name the file and the item. */
#ifndef TRM_DATASETS_KEPT_H
#define TRM_DATASETS_KEPT_H

#include "h5.h"
#include "train/checkpoint.h"

/* Writes the attribute `ranks` and the group of each rank. */
int local_state_write(hid_t file, const char *path, const struct trm_checkpoint *c);

/* The attribute; 0 where there is none. */
int local_state_ranks_read(hid_t file, const char *path, int *ranks);

/* The slots of the contract. */
int local_state_fits(const char *path, int rank, const struct trm_local_state *item, int count, bool *fits);
int local_state_read(const char *path, int rank, const struct trm_local_state *item, int count);

/* Reads everything that is there for `ranks` ranks, and forgets it. */
int local_state_verify(hid_t file, const char *path, int ranks);

#endif
