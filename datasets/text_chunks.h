/* A text file in chunks that can be split into words independently (private to datasets/). */
#pragma once

#include "file_reader.h"
#include "utf8.h"

struct text_chunks {
  struct trm_reader *reader;
  bool bytes;        /* arbitrary bytes, split anywhere; else UTF-8, split where pretokenizer_is_boundary */
  char *buffer;
  size_t filled, capacity, returned; /* bytes of the buffer */
  bool ended;
  struct utf8 state;
  size_t line;
  uint64_t offset;   /* of the buffer in the text, bytes */
  uint64_t split_at; /* a chunk ends at this byte, or at the next boundary after it */
};

/* Opens a file. A byte order mark in front of UTF-8 is skipped. split_at: byte where the test part begins, UINT64_MAX:
 * none. The caller closes it, even after an error. */
int text_chunks_open(struct text_chunks *chunks, const char *path, bool bytes, uint64_t split_at);
/* Returns the next chunk, valid until the next call; *bytes is 0 at the end. *past_split: the chunk is behind split_at.
 * Errors name file and line. */
int text_chunks_next(struct text_chunks *chunks, const char **text, size_t *bytes, bool *past_split);
void text_chunks_close(struct text_chunks *chunks);
