/* How text became tokens, in a file (private to datasets/): attribute `tokenizer`, and for byte pairs the array
 * /merges (merges, 2) int32. */
#ifndef TRM_DATASETS_ENCODING_H
#define TRM_DATASETS_ENCODING_H

#include "h5.h"
#include "train/dataset.h"

bool encoding_put(hid_t file, const struct trm_encoding *encoding);
/* *encoding has no name where the file says nothing. False if something is damaged. The caller frees
 * (trm_encoding_free). */
bool encoding_get(hid_t file, struct trm_encoding *encoding);

#endif
