/* Writing of HDF5 data set files (private to datasets/).
 *
 * Layout, version 1 (see datasets/README.md):
 *   /              attributes: format = "trireme-dataset", version, kind, target, classes, source, digest; for dense
 *                  and csr rows shape; for uint8 rows scale and shift (value = scale * stored + shift); for tokens
 *                  vocabulary
 *   /class_names   (classes; tokens: vocabulary) fixed-length strings: of classes, or values, optional
 *   /merges        of tokens (encoding.h)
 *   /columns       of a text table (table.h), optional
 *   /train, /validation, /test   one group per split, attribute rows; of tokens text_bytes, optional:
 *     dense rows   x (N, sample shape) uint8 or float32
 *     csr rows     starts (N + 1) int64, columns (entries) int32, values (entries) float32
 *     tokens       x (T) int32 or uint16
 *     y (N) int32 classes or (N, V) float32 values; none for tokens
 * Compressed sets are chunked by rows with shuffle + deflate + fletcher32; uncompressed ones are contiguous, with a
 * table of block sums beside each array. digest: SHA-256 over all arrays of all splits in a fixed order. */
#pragma once

#include "core/comm.h"
#include "train/dataset.h"

enum trm_data_kind { TRM_DATA_IMAGE, TRM_DATA_VECTOR, TRM_DATA_CSR, TRM_DATA_TOKENS };
enum trm_element { TRM_ELEMENT_UINT8, TRM_ELEMENT_FLOAT };

/* Description of a data set, given before its rows. */
struct trm_data_spec {
  enum trm_data_kind kind;
  enum trm_element element;  /* of dense rows */
  struct trm_shape shape;    /* of a sample; csr: (features), see trm_data_writer_finish; tokens: unused */
  float scale, shift;        /* value = scale * stored + shift, for uint8 */
  enum trm_target_kind target;
  size_t classes;            /* classes, or values per row */
  const char *const *class_names; /* (classes) or NULL; copied; tokens: classes is the vocabulary too. Also of values */
  size_t vocabulary;         /* tokens */
  const struct trm_encoding *encoding; /* tokens; NULL: unknown; must outlive the writer */
  const struct data_table *table;      /* columns of a text table, or NULL (table.h); must outlive the writer */
  const char *source;        /* one line: origin of the rows */
  const char *split;         /* rule of the test split of a single file: "random", "last"; NULL: none; static */
  uint64_t split_seed;       /* random */
  int compress;              /* deflate level 0..9 */
  struct trm_comm *comm;     /* ranks that write in turns, each with a writer; NULL: this one alone */
};

/* Rows to append. Only the arrays of the kind are set; all are owned by the caller. */
struct trm_data_rows {
  size_t rows;
  const uint8_t *bytes;      /* dense, uint8: (rows, shape) */
  const float *floats;       /* dense, float: (rows, shape) */
  const int64_t *starts;     /* csr: (rows + 1), starts[0] = 0 */
  const int32_t *columns;    /* csr, zero-based, ascending within a row */
  const float *values;
  const int32_t *tokens;     /* tokens: rows = number of tokens */
  uint64_t text_bytes;       /* tokens: bytes of the text before tokenization; 0: unknown */
  const int32_t *target_class;
  const float *target_value; /* (rows, classes) */
};

const char *trm_data_kind_name(enum trm_data_kind kind); /* "image" */

struct trm_data_writer;

/* Writes a data set file: open, then for each split (train; validation, test, both optional: in this order)
 * trm_data_writer_split and its rows, then finish or abandon. The file takes its name in finish, so it is complete or
 * absent. features: number of columns of csr rows; 0 keeps that of the spec. Errors: file, disk full, classes or
 * columns out of range. After an error call abandon; finish ends the writer in any case. Warns of classes without a row
 * in a split. Not collective. */
int trm_data_writer_open(struct trm_data_writer **writer, const char *path, const struct trm_data_spec *spec);
int trm_data_writer_split(struct trm_data_writer *writer, const char *split);
int trm_data_writer_append(struct trm_data_writer *writer, const struct trm_data_rows *rows);
/* Several ranks (spec.comm) append the rows of a data set in turns. A split begins on every rank with
 * trm_data_writer_split, its turns with one of rank 0, and they go round in order of rank.
 * turn: begins each turn but the first one, after that of rank `from`; to be called as late as possible.
 * turn_end: `to` is the rank of the next turn, rank 0 after the last one; `others` counts the turns until rank 0's next
 * one, or the end. This rank then compresses the blocks that its rows have filled, while the next one appends.
 * turns_end: on every rank after all turns, the last one of rank `last`.
 * collect: on rank 0, stores what the others have sent; to be called from time to time while it waits for other ranks
 * between turns, since they may wait for that.
 * After an error the ranks still go through all turns. Then rank 0 may finish, and the others abandon. Point to
 * point. */
void trm_data_writer_turn(struct trm_data_writer *writer, int from);
int trm_data_writer_turn_end(struct trm_data_writer *writer, int to, int others);
int trm_data_writer_turns_end(struct trm_data_writer *writer, int last);
void trm_data_writer_collect(struct trm_data_writer *writer);
int trm_data_writer_finish(struct trm_data_writer *writer, size_t features);
void trm_data_writer_abandon(struct trm_data_writer *writer);
