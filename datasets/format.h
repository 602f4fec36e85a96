/* Writing of HDF5 data set files (private to datasets/).
 *
 * Layout, version 1 (see datasets/README.md):
 *   /              attributes: format = "trireme-dataset", version, kind, target, classes, source, digest; for dense
 *                  and csr rows shape; for uint8 rows scale and shift (value = scale * stored + shift); for tokens
 *                  vocabulary
 *   /class_names   (classes; tokens: vocabulary) fixed-length strings, optional
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
  const char *const *class_names; /* (classes) or NULL; copied; tokens: classes is the vocabulary too */
  size_t vocabulary;         /* tokens */
  const struct trm_encoding *encoding; /* tokens; NULL: unknown; must outlive the writer */
  const struct data_table *table;      /* columns of a text table, or NULL (table.h); must outlive the writer */
  const char *source;        /* one line: origin of the rows */
  const char *split;         /* rule of the test split of a single file: "random", "last"; NULL: none; static */
  uint64_t split_seed;       /* random */
  int compress;              /* deflate level 0..9 */
  int ranks;                 /* that will call trm_data_writer_pack; 0 or 1: it is not called */
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
/* Compresses and writes full blocks that wait, if they are many, or all of them: the ranks divide the work. To be
 * called after appends, and with `all` before the next split, finish. writer: NULL on other ranks than 0. Collective;
 * every rank gets the same status. */
int trm_data_writer_pack(struct trm_data_writer *writer, struct trm_comm *comm, bool all);
int trm_data_writer_finish(struct trm_data_writer *writer, size_t features);
void trm_data_writer_abandon(struct trm_data_writer *writer);
