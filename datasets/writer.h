/* The writer of data set files, inside (private to writer*.c). */
#pragma once

#include <stdio.h>

#include "data_reader.h"

/* State of writing an array. */
struct output {
  char name[16];
  enum block_type type;
  struct trm_shape row;
  size_t row_bytes;
  size_t block_rows;
  uint64_t rows;             /* in full blocks so far, of all ranks */
  uint64_t stored_rows;      /* up to the last one stored; on rank 0 */
  unsigned char *block;      /* (block_rows, row) block being filled */
  size_t filled;             /* rows in it */
  hid_t dataset;             /* compressed; else -1. On other ranks than 0 it holds the block that is compressed */
  FILE *spool;               /* uncompressed; else NULL */
  uint64_t *checksums;       /* (checksum_count) uncompressed: one per block */
  size_t checksum_count, checksum_capacity;
  struct trm_sha256 hash;
};

/* A full block that is to be compressed, or to be sent to rank 0. */
struct full_block {
  struct output *out;
  uint64_t first;            /* its first row */
  unsigned char *data;       /* (block_rows, row) */
};

/* Blocks of one rank on their way to rank 0, in the form that the file has. */
struct delivered {
  int64_t output, first, bytes, mask; /* mask: of the filters that were left out */
};

struct delivery {
  int due, from;             /* on rank 0: turns of other ranks that have not ended, and the rank of the first one */
  bool begun;                /* head is on its way */
  int status;                /* of what has been stored, on rank 0; after an error nothing more is */
  int64_t head[3];           /* blocks; bytes; whether the rank's turn has no more */
  struct delivered *block;   /* (blocks) */
  unsigned char *data;       /* (bytes) */
  size_t block_capacity, data_capacity;
  struct trm_request *request[3];
};

/* The state of writing that the rank of the next turn needs, on its way. */
struct handover_head {
  uint64_t rows, entries, text_bytes;
  int64_t largest_column;
  struct {
    uint64_t rows;
    size_t filled;
    struct trm_sha256 hash;
  } output[DATA_ARRAYS];
};

struct handover {
  struct handover_head *head;
  unsigned char *rest;       /* the classes that are present, and the blocks begun */
  struct trm_request *request[2];
};

struct trm_data_writer {
  struct h5_output h5;       /* on rank 0 */
  hid_t file;                /* of h5; on other ranks one in memory, or -1: nothing is compressed */
  char *path;
  struct trm_data_spec spec; /* texts are copies */
  char **names;
  hid_t group;               /* of the split, -1: none is open */
  char split[16];            /* "": none */
  enum block_type x_type;
  uint64_t rows, entries, text_bytes; /* of the split */
  int64_t largest_column;    /* of all splits */
  bool *class_present;       /* (classes) of the split; NULL: rows have no class */
  struct output output[DATA_ARRAYS]; /* those that the kind of data has */
  int outputs;
  struct full_block *queue;  /* (WRITER_QUEUE); NULL: blocks are stored at once */
  size_t queued;
  struct delivery delivery;
  struct handover handover;
  struct trm_sha256 digest;
};

#define WRITER_QUEUE 64

/* Stores `rows` rows of an array, a block from row `first` on; compresses them, or spools them, which must be in order.
 * On rank 0. */
int writer_rows_store(struct trm_data_writer *writer, struct output *out, uint64_t first, size_t rows,
                      const void *data);
/* Lets an array that is compressed grow to at least `rows` rows. */
int writer_rows_reserve(struct trm_data_writer *writer, struct output *out, uint64_t rows);

/* -- writing by several ranks (writer_turns.c) */

/* Prepares a writer whose spec and path are set. On other ranks than 0 opens the file in memory. */
int writer_turns_open(struct trm_data_writer *writer);
bool writer_is_helper(const struct trm_data_writer *writer); /* a rank other than 0, which stores no blocks */
/* Adds a full block to the queue, of which it becomes a part. */
int writer_queue_add(struct trm_data_writer *writer, struct output *out, uint64_t first);
/* Ends all messages and frees their memory. */
void writer_turns_free(struct trm_data_writer *writer);
