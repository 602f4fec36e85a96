/* The HDF5 data set file, written and described (private to datasets/).
 *
 * Layout, version 1 (see datasets/README.md):
 *   /              attributes: format = "trireme-dataset", version, kind, target, classes, source, digest; for dense
 *                  and csr rows shape; for uint8 rows scale and shift (value = scale * stored + shift); for tokens
 *                  vocabulary
 *   /class_names   (classes; tokens: vocabulary) fixed-length strings, optional
 *   /merges        of tokens (encoding.h)
 *   /train, /test  one group a split, attribute rows; of tokens text_bytes, optional:
 *     dense rows   x (N, sample shape) uint8 or float32
 *     csr rows     starts (N + 1) int64, columns (entries) int32, values (entries) float32
 *     tokens       x (T) int32 or uint16
 *     y (N) int32 classes or (N, V) float32 values; none for tokens
 * Compressed sets are chunked by rows with shuffle + deflate + fletcher32; uncompressed ones are contiguous, with a
 * table of block sums beside each array. digest: SHA-256 over all arrays of all splits in a fixed order. */
#ifndef TRM_DATASETS_FORMAT_H
#define TRM_DATASETS_FORMAT_H

#include "train/dataset.h"

enum trm_data_kind { TRM_DATA_IMAGE, TRM_DATA_VECTOR, TRM_DATA_CSR, TRM_DATA_TOKENS };
enum trm_element { TRM_ELEMENT_UINT8, TRM_ELEMENT_FLOAT };

/* What a file is made for, given before its rows. */
struct trm_data_spec {
  enum trm_data_kind kind;
  enum trm_element element;  /* of dense rows */
  struct trm_shape shape;    /* of a sample; csr: (features), may grow until the writer is closed; tokens: unused */
  float scale, shift;        /* value = scale * stored + shift, for uint8 */
  enum trm_target_kind target;
  size_t classes;            /* classes (may grow), or values a row */
  const char *const *class_names; /* (classes) or NULL; copied; tokens: classes is the vocabulary too */
  size_t vocabulary;         /* tokens */
  const struct trm_encoding *encoding; /* tokens, NULL: none is known; must outlive the writer */
  const char *source;        /* one line: where the rows come from */
  const char *split;         /* how the test split was cut from one file: "random", "last"; NULL: it was not; static */
  uint64_t split_seed;       /* random */
  int compress;              /* deflate level 0..9 */
};

/* Rows appended at once. Only the arrays of the kind are set; owned by the caller. */
struct trm_data_rows {
  size_t rows;
  const uint8_t *bytes;      /* dense, uint8: (rows, shape) */
  const float *floats;       /* dense, float: (rows, shape) */
  const int64_t *starts;     /* csr: (rows + 1), starts[0] = 0 */
  const int32_t *columns;    /* csr, zero-based, ascending within a row */
  const float *values;
  const int32_t *tokens;     /* tokens: rows = number of tokens */
  uint64_t text_bytes;       /* tokens: that they stand for, 0: not known */
  const int32_t *target_class;
  const float *target_value; /* (rows, classes) */
};

const char *trm_data_kind_name(enum trm_data_kind kind); /* "image" */

struct trm_data_writer;

/* Begins PATH.new; finish flushes, renames it to PATH (so PATH is complete or absent); abandon removes it. The spec
 * may be changed for csr shape and classes through `finish`'s arguments: 0 keeps. Errors: file, disk full, classes or
 * columns out of range. After any error: abandon, except after finish, which ends the writer either way. One
 * process. */
int trm_data_writer_open(struct trm_data_writer **writer, const char *path, const struct trm_data_spec *spec);
int trm_data_writer_split(struct trm_data_writer *writer, const char *split); /* "train", then "test" */
int trm_data_writer_append(struct trm_data_writer *writer, const struct trm_data_rows *rows);
int trm_data_writer_finish(struct trm_data_writer *writer, size_t features);
void trm_data_writer_abandon(struct trm_data_writer *writer);

#endif
