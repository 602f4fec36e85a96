/* Verification of a checkpoint. */
#pragma once

#include "h5.h"
#include "train/checkpoint.h"

/* Reads all arrays and local states of the file, whose head is given, one at a time: their checksums and the SHA-256 of
 * the weights must be those that were written. Errors name the file. */
int checkpoint_verify(hid_t file, const char *path, const struct trm_checkpoint *head);
