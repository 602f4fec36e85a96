/* Imports of text files by several ranks (private to datasets/). A file is cut into segments, by a rule of its size
 * alone; a record belongs to the segment in which it begins. The ranks take the segments in turn. What depends on all
 * text before a segment goes from the rank of one segment to that of the next (a relay), so that it does not depend on
 * the number of ranks, and no rank waits for others than the one before. Rank 0 writes the data set. */
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
  uint64_t count;         /* segments of the file; of one rank 0: it reads on */
  uint64_t mine;          /* this rank's segment */
  bool begun;             /* there has been one */
  uint64_t start;         /* its first record ... */
  size_t start_line;      /* ... and the lines before it */
  uint64_t reached;       /* the segment that this rank has reached without an error */
  bool failed;            /* on some rank: segments are not read any more, but relays go on */
  void (*idle)(void *context); /* called while this rank waits for a relay, or NULL */
  void *context;
  void *sent;             /* to the rank of the next segment */
  struct trm_request *request;
};

/* Begins a pass over an open file, at its start; `idle` may be set before. Several ranks need a plain regular file. Not
 * collective. */
int import_segments_begin(struct import_segments *segments, struct trm_comm *comm, struct trm_reader *file,
                          bool quotes);
/* Steps to this rank's next segment: places the file there, and where it ends for trm_reader_at_limit. False: there is
 * none. *status: of this rank so far; an error becomes known to the others in their next segments. All ranks call it
 * until it returns false. */
bool import_segments_next(struct import_segments *segments, int *status);
/* Ends the pass: the error of the segment that comes first in the file becomes that of all ranks. Collective. */
int import_segments_end(struct import_segments *segments, int status);
/* Returns to the start of the segment. Not collective. */
int import_segment_rewind(struct import_segments *segments);

/* Receives from the rank of the segment before what it passes on; in the first segment, and with one rank, leaves data
 * as it is. pass: passes it on to the rank of the next segment, if there is one. share: after the last segment, gives
 * all ranks what its rank has; collective. */
void import_relay_take(struct import_segments *segments, void *data, size_t bytes);
void import_relay_pass(struct import_segments *segments, const void *data, size_t bytes);
void import_relay_share(struct import_segments *segments, void *data, size_t bytes);
/* The rank of the segment before the current one, and of the next one; rank 0 where there is none. */
int import_relay_from(const struct import_segments *segments);
int import_relay_to(const struct import_segments *segments);

/* Gathers the bytes of all ranks on every rank. length: (size) of each. Returns one block, of rank r from r * *stride;
 * owned by the caller (trm_free). Collective. */
char *import_gather(struct trm_comm *comm, const void *mine, size_t bytes, int64_t *length, size_t *stride);

/* Rows that wait for this rank's turn to write. */
enum { HELD_PARTS = 4 }; /* x or starts; columns; values; targets */
struct import_held {
  struct trm_data_rows rows; /* all of them */
  char *part[HELD_PARTS];
  size_t bytes[HELD_PARTS], capacity[HELD_PARTS];
};

/* Adds rows. row_bytes: of dense rows; target_bytes: of the targets of one. Returns the bytes held. */
size_t import_held_add(struct import_held *held, const struct trm_data_rows *rows, size_t row_bytes,
                       size_t target_bytes);
void import_held_clear(struct import_held *held);
void import_held_free(struct import_held *held);
