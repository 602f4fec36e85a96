/* Local state of each rank in a checkpoint (private to datasets/; layout: checkpoint.c). Not collective. Functions that
 * get an open file are called where HDF5 is locked, except for local_state_write. Errors name the file and the item. */
#pragma once

#include "h5.h"
#include "train/checkpoint.h"

/* Writes the attribute `ranks` (number of ranks with local state) and the group of each rank. Locks HDF5 for a chunk at
 * a time. */
int local_state_write(hid_t file, const char *path, const struct trm_checkpoint *c);

/* Reads the attribute `ranks`; 0 if it is absent. */
int local_state_ranks_read(hid_t file, const char *path, int *ranks);

/* Slots local_states_match and local_states_read of the checkpoint contract. */
int local_state_fits(const char *path, int rank, const struct trm_local_state *item, int count, bool *fits);
int local_state_read(const char *path, int rank, const struct trm_local_state *item, int count);

/* Reads all local state of `ranks` ranks, so that damage is found. */
int local_state_verify(hid_t file, const char *path, int ranks);
