/* Reading of a data set file: description, splits, and their arrays (private to datasets/). */
#pragma once

#include "blocks.h"
#include "core/sha256.h"
#include "encoding.h"
#include "format.h"

/* Description of a data set: its attributes and lists of names. */
struct data_head {
  enum trm_data_kind kind;
  enum trm_target_kind target;
  size_t classes;               /* classes, or values per row; 0 for tokens */
  size_t vocabulary;            /* tokens */
  struct trm_shape shape;       /* of a sample; csr: (features) */
  float scale, shift;
  char *source, *digest;        /* NULL if absent */
  char **class_names;           /* (classes; tokens: vocabulary) or NULL */
  struct trm_encoding encoding; /* tokens */
};

/* Reads the description of an open data set. The caller frees it. Errors name the attribute that is missing or out of
 * range. */
int data_head_read(struct data_head *head, hid_t file, const char *path);
void data_head_free(struct data_head *head);
const char *data_target_name(const struct data_head *head); /* "class", "value", of tokens "next" */

/* Computes the digest of a data set: SHA-256 over one line per array, in the order train, validation, test, and in a
 * split x, starts, columns, values, y: "SPLIT/ARRAY TYPE ROWS SHA256\n", then "KIND TARGET CLASSES SHAPE SCALE
 * SHIFT\n", where CLASSES is the vocabulary of tokens. It does not depend on compression. */
void data_digest_add(struct trm_sha256 *digest, const char *name, enum block_type type, uint64_t rows, const char *hex);
void data_digest_end(struct trm_sha256 *digest, const struct data_head *head, char hex[65]);

/* The arrays of a split, in the order of the digest. */
enum { DATA_ARRAYS = 5 };
struct data_array_plan {
  const char *name;             /* "x" */
  bool present;                 /* this kind of data has it */
  bool allow_narrow;            /* uint8 instead of floats, uint16 instead of int32 */
  enum block_type type;
  struct trm_shape row;
};
void data_arrays_plan(const struct data_head *head, struct data_array_plan plan[DATA_ARRAYS]);

/* One array of a split, open for reading. */
struct data_array {
  const char *path;             /* of the file, not owned */
  char name[32];                /* "train/x"; "": the kind of data has no such array */
  hid_t dataset;
  enum block_type type;         /* in memory */
  bool converted;               /* the type in the file is another */
  struct trm_shape row;
  size_t row_bytes;             /* in memory */
  uint64_t rows;
  size_t block_rows;            /* rows of one checksum, or of one chunk */
  bool chunked;
  int deflate;                  /* level, 0: not compressed */
  bool fletcher32;
  uint64_t *checksums;          /* (blocks) or NULL */
  uint64_t stored_bytes;        /* in the file */
  char sha256[65];              /* "" if the file has none */
  unsigned char *block_buffer;  /* (block_rows, row) for reads that begin or end within a block; NULL until then */
  uint64_t buffered_first;      /* the first row in block_buffer */
  size_t buffered_rows;         /* 0: it holds no block */
};

/* One split. The arrays that its kind of data has are open. */
struct data_split {
  const char *name;             /* "train" */
  uint64_t rows;                /* samples; tokens: tokens */
  uint64_t entries;             /* csr */
  uint64_t text_bytes;          /* tokens: bytes of the text before tokenization; 0: unknown */
  union {
    struct data_array array[DATA_ARRAYS];
    struct {
      struct data_array x, starts, columns, values, y;
    };
  };
};

/* Opens a split and checks that its arrays agree with the head and with one another. `path` and `name` are not copied
 * and must outlive the split. */
int data_split_open(struct data_split *split, const struct data_head *head, hid_t file, const char *path,
                    const char *name);
void data_split_close(struct data_split *split);

/* Reads rows [first, first + rows) and verifies every block that they touch. Not collective, even if the file was
 * opened through MPI-IO: collective transfers of contiguous rows gain nothing, and each waits for the slowest rank.
 * Errors name the file, the array and the first damaged rows. */
int data_array_read(struct data_array *array, uint64_t first, size_t rows, void *to);

/* Returns the number of rows that one HDF5 read takes: the best size for a buffer of the caller. */
size_t data_array_rows_per_read(const struct data_array *array);
