/* Imports of text files by several ranks (private to datasets/). A file is cut into segments, by a rule of its size
 * alone; a record belongs to the segment in which it begins. The ranks take segments in turn, a round after the other,
 * and what they find is put together in the order of the segments, so that it does not depend on the number of ranks.
 * Rank 0 writes the data set. */
#pragma once

#include "core/comm.h"
#include "datasets/file_reader.h"
#include "datasets/format.h"

/* A pass over a file. */
struct import_segments {
  struct trm_comm *comm;
  struct trm_reader *file;
  bool quotes;            /* line feeds between quotes belong to a record */
  uint64_t bytes;         /* of a segment */
  uint64_t next;          /* segments of the rounds so far */
  uint64_t feeds, marks;  /* line feeds and quotes in them */
  uint64_t start;         /* of this rank's segment: its first record ... */
  size_t start_line;      /* ... and the lines before it */
};

/* Begins a pass over an open file, at its start. Several ranks need a plain regular file. Not collective. */
int import_segments_begin(struct import_segments *segments, struct trm_comm *comm, struct trm_reader *file,
                          bool quotes);
/* Steps to the next round: places the file at this rank's segment, where it ends for trm_reader_at_limit. *more: false
 * after the last round. Collective; every rank gets the same status. */
int import_segments_next(struct import_segments *segments, bool *more);
/* Returns to the start of the segment. Not collective. */
int import_segment_rewind(struct import_segments *segments);

/* Gathers the bytes of all ranks on every rank. length: (size) of each. Returns one block, of rank r from r * *stride;
 * owned by the caller (trm_free). Collective. */
char *import_gather(struct trm_comm *comm, const void *mine, size_t bytes, int64_t *length, size_t *stride);

/* Rows on their way to rank 0. */
enum { BOX_PARTS = 4 }; /* x or starts; columns; values; targets */
struct import_box {
  size_t row_bytes;       /* dense rows */
  int64_t rows;
  char *part[BOX_PARTS];
  size_t bytes[BOX_PARTS], capacity[BOX_PARTS];
};

/* Puts rows into the box, and sends it if it is full. Not on rank 0, which receives after its own rows. */
void import_box_add(struct import_box *box, struct trm_comm *comm, const struct trm_data_rows *rows, bool classes);
/* Sends the rest, the end of this rank's round. */
void import_box_end(struct import_box *box, struct trm_comm *comm);
/* On rank 0: appends the rows of all other ranks, in order of rank, to the writer. status: of rank 0; with an error the
 * rows are received and dropped. Returns the first error. */
int import_box_receive(struct import_box *box, struct trm_comm *comm, struct trm_data_writer *writer, bool classes,
                       int status);
void import_box_free(struct import_box *box);
