/* Encoding of texts as attributes of a file (private to datasets/): `tokenizer`, and for byte pairs the array /merges
 * (merges, 2) int32. */
#pragma once

#include "h5.h"
#include "train/dataset.h"

bool encoding_put(hid_t file, const struct trm_encoding *encoding);
/* Reads the encoding; encoding->name is NULL if the file has none. class_names NULL: tokens have no names. Errors name
 * the file. The caller frees it (trm_encoding_free). */
int encoding_get(hid_t file, const char *path, char *const *class_names, struct trm_encoding *encoding);
