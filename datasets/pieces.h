/* A text file in pieces that can be cut into words one by one (private to datasets/). */
#ifndef TRM_DATASETS_PIECES_H
#define TRM_DATASETS_PIECES_H

#include "input.h"
#include "utf8.h"

struct pieces {
  struct trm_reader *reader;
  bool bytes;        /* any bytes, cut anywhere; else UTF-8, cut where a word begins whatever is around it */
  char *buffer;
  size_t filled, room, given; /* bytes of it */
  bool ended;
  struct utf8 state;
  size_t line;
  uint64_t at;       /* bytes in front of the buffer */
  uint64_t cut;      /* a piece ends here, or at the next place after it */
};

/* A byte order mark in front of UTF-8 is no part of the text. cut: UINT64_MAX where none is wanted. Close in any
 * case. */
int pieces_open(struct pieces *pieces, const char *path, bool bytes, uint64_t cut);
/* The next piece, valid until the next call; *bytes is 0 at the end. *beyond: it lies behind the cut. Errors name file
 * and line. */
int pieces_next(struct pieces *pieces, const char **text, size_t *bytes, bool *beyond);
void pieces_close(struct pieces *pieces);

#endif
