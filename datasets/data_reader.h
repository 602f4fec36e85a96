/* The data set file, read: the head, a split, and its arrays (private to datasets/). */
#ifndef TRM_DATASETS_READER_H
#define TRM_DATASETS_READER_H

#include "blocks.h"
#include "core/sha256.h"
#include "encoding.h"
#include "format.h"

/* What the file says of itself. */
struct data_head {
  enum trm_data_kind kind;
  enum trm_target_kind target;
  size_t classes;               /* classes, or values a row; 0 for tokens */
  size_t vocabulary;            /* tokens */
  struct trm_shape shape;       /* of a sample; csr: (features) */
  float scale, shift;
  char *source, *digest;        /* may be NULL */
  char **class_names;           /* (classes; tokens: vocabulary) or NULL */
  struct trm_encoding encoding; /* tokens */
};

/* Reads the attributes of an open data set. Errors name what is missing or out of range. */
int data_head_read(struct data_head *head, hid_t file, const char *path);
void data_head_free(struct data_head *head);

/* The digest of a data set: SHA-256 over one line an array, in the order train, test, and in a split x, starts,
 * columns, values, y: "SPLIT/ARRAY TYPE ROWS SHA256\n", then one line "KIND TARGET CLASSES SHAPE SCALE SHIFT\n",
 * where CLASSES is the vocabulary of tokens. So it is the same for a compressed and an uncompressed file. */
void data_digest_add(struct trm_sha256 *digest, const char *name, enum block_type type, uint64_t rows, const char *hex);
void data_digest_end(struct trm_sha256 *digest, const struct data_head *head, char hex[65]);

/* One array of a split. */
struct data_array {
  const char *path;             /* of the file, not owned */
  char name[32];                /* "train/x"; "" if the kind has no such array */
  hid_t dataset;
  enum block_type type;         /* in memory; in the file too unless it was made elsewhere */
  bool converted;
  int dims;                     /* of a row */
  size_t size[TRM_MAX_DIMS];
  size_t row_bytes;             /* in memory */
  uint64_t rows;
  size_t block_rows;            /* rows under one sum, or of one chunk */
  bool chunked;
  int deflate;                  /* level, 0: not compressed */
  bool fletcher32;
  uint64_t *checksums;               /* one a block, or NULL */
  uint64_t stored_bytes;        /* in the file */
  char sha256[65];              /* "" if the file has none */
  unsigned char *block_buffer;          /* one block, for reads that begin or end within one */
  uint64_t buffered_first;      /* the row that it begins with */
  size_t buffered_rows;         /* 0: it holds no block */
};

/* The arrays of one split: those of the kind are open. */
struct data_split {
  const char *name;             /* "train" */
  uint64_t rows;                /* samples; tokens: tokens */
  uint64_t entries;             /* csr */
  uint64_t text_bytes;          /* tokens: of the text that they stand for, 0: not known */
  struct data_array x, starts, columns, values, y;
};

/* Opens a split and checks that its arrays agree with the head and with one another. `path` and `name` must outlive
 * it. */
int data_split_open(struct data_split *split, const struct data_head *head, hid_t file, const char *path,
                    const char *name);
void data_split_close(struct data_split *split);

/* The split's arrays in the order of the digest; returns their number (at most 4). */
int data_split_arrays(struct data_split *split, struct data_array *array[4]);

/* Reads rows [first, first + rows) and verifies every block they touch. Not collective, also where the file was
 * opened through MPI-IO: collective transfers of contiguous rows gain nothing, and each would wait for the slowest
 * rank. Errors name the file, the array and the first damaged rows. */
int data_array_read(struct data_array *array, uint64_t first, size_t rows, void *to);

/* Rows that are read in one go: what a caller with a buffer of its own should ask for. */
size_t data_array_rows_per_read(const struct data_array *array);

#endif
