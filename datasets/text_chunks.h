/* A text file in chunks that can be split into tokens independently (private to datasets/). */
#pragma once

#include "tokenizer.h"

/* Calls visit for each chunk of a file: valid UTF-8 (kind bytes: any bytes) without a byte order mark, which begins and
 * ends where `kind` allows a token to begin. A chunk ends at byte split_at, or at the next such place after it;
 * UINT64_MAX: nowhere in particular. past_split: the chunk is behind it. Errors name file and line. */
int text_chunks_visit(const char *path, enum trm_token_kind kind, uint64_t split_at,
                      int (*visit)(void *context, const char *text, size_t bytes, bool past_split), void *context);
