/* The head of a checkpoint file: everything but the arrays of weights and states, and local states. */
#pragma once

#include "h5.h"
#include "train/checkpoint.h"

/* Writes the head. weights_sha256 is set. Locks HDF5. */
int checkpoint_head_write(hid_t file, const char *path, const struct trm_checkpoint *checkpoint);
/* Reads the head into a zeroed checkpoint, which the caller frees, also after a failure. HDF5 is locked. */
int checkpoint_head_read(hid_t file, const char *path, struct trm_checkpoint *checkpoint);
