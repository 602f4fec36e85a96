/* A text file in pieces that can be cut into words one by one (private to datasets/). */
#ifndef TRM_DATASETS_PIECES_H
#define TRM_DATASETS_PIECES_H

#include "file_reader.h"
#include "utf8.h"

struct text_chunks {
  struct trm_reader *reader;
  bool bytes;        /* any bytes, cut anywhere; else UTF-8, cut where a word begins whatever is around it */
  char *buffer;
  size_t filled, capacity, returned; /* bytes of it */
  bool ended;
  struct utf8 state;
  size_t line;
  uint64_t offset;       /* bytes in front of the buffer */
  uint64_t split_at;      /* a piece ends here, or at the next place after it */
};

/* A byte order mark in front of UTF-8 is no part of the text. cut: UINT64_MAX where none is wanted. Close in any
 * case. */
int text_chunks_open(struct text_chunks *chunks, const char *path, bool bytes, uint64_t split_at);
/* The next piece, valid until the next call; *bytes is 0 at the end. *beyond: it lies behind the cut. Errors name file
 * and line. */
int text_chunks_next(struct text_chunks *chunks, const char **text, size_t *bytes, bool *past_split);
void text_chunks_close(struct text_chunks *chunks);

#endif
