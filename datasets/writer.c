/* Writing of data set files. Rows are appended in order, arrays are written in blocks.
 *
 * Compressed arrays grow chunk by chunk in the file. Uncompressed arrays are contiguous, and HDF5 must know their size
 * when it creates them: they are spooled to unlinked files in the same folder and copied when the split is complete. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/log.h"
#include "core/memory.h"
#include "core/sha256.h"
#include "core/status.h"
#include "data_reader.h"

#define MAX_ARRAYS 4 /* of one split */

/* An array that is being written. */
struct output {
  char name[16];
  enum block_type type;
  int dims;                  /* of a row; 0: the array is one-dimensional */
  size_t size[TRM_MAX_DIMS];
  size_t row_bytes;
  size_t block_rows;
  uint64_t rows;
  unsigned char *block;      /* (block_rows, row) being filled */
  size_t filled;             /* rows in it */
  hid_t dataset;             /* compressed; else -1 */
  int spool;                 /* descriptor, uncompressed; else -1 */
  uint64_t *checksums;       /* (checksum_count) uncompressed: one a block */
  size_t checksum_count, checksum_capacity;
  struct trm_sha256 hash;
};

struct trm_data_writer {
  struct h5_output h5;
  const char *path;           /* of h5 */
  struct trm_data_spec spec; /* texts are copies */
  char **names;
  hid_t group;                /* of the split, -1: none is open */
  char split[16];
  uint64_t rows, entries, text_bytes; /* of the split */
  int64_t largest_class, largest_column; /* of all splits */
  bool *class_present; /* (classes) of the split; NULL: rows have no class */
  struct output output[MAX_ARRAYS];
  int outputs;
  struct trm_sha256 digest;
};

/* -- one array */

static int writer_output_begin(struct trm_data_writer *writer, const char *name, enum block_type type,
                               const struct trm_shape *row)
{
  struct output *out = &writer->output[writer->outputs++];
  memset(out, 0, sizeof *out);
  snprintf(out->name, sizeof out->name, "%s", name);
  out->type = type;
  out->row_bytes = block_type_bytes(type);
  if (row) {
    out->dims = row->dims;
    for (int d = 0; d < row->dims; d++) {
      out->size[d] = row->size[d];
      out->row_bytes *= row->size[d];
    }
  }
  out->block_rows = block_rows(out->row_bytes);
  out->dataset = out->spool = -1;
  out->block = trm_alloc(out->block_rows * out->row_bytes, "a block of rows to write");
  trm_sha256_begin(&out->hash);
  if (writer->spec.compress) {
    hsize_t size[TRM_MAX_DIMS + 1] = {0}, max_size[TRM_MAX_DIMS + 1] = {H5S_UNLIMITED}, chunk[TRM_MAX_DIMS + 1];
    chunk[0] = out->block_rows;
    for (int d = 0; d < out->dims; d++)
      size[d + 1] = max_size[d + 1] = chunk[d + 1] = out->size[d];
    h5_enter();
    const hid_t space = H5Screate_simple(out->dims + 1, size, max_size);
    const hid_t plist = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_chunk(plist, out->dims + 1, chunk);
    if (block_type_bytes(type) > 1)
      H5Pset_shuffle(plist);
    H5Pset_deflate(plist, (unsigned)writer->spec.compress);
    H5Pset_fletcher32(plist);
    H5Pset_fill_time(plist, H5D_FILL_TIME_NEVER);
    out->dataset = H5Dcreate2(writer->group, name, block_type_file(type), space, H5P_DEFAULT, plist, H5P_DEFAULT);
    const int status = out->dataset < 0 ? h5_error(writer->path, "%s/%s cannot be made", writer->split, name) : TRM_OK;
    H5Pclose(plist);
    H5Sclose(space);
    h5_leave();
    return status;
  }
  char *spool_path = trm_format("%s.%s", writer->h5.temporary, name);
  out->spool = open(spool_path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  const int reason = errno;
  if (out->spool >= 0)
    unlink(spool_path);
  const int status = out->spool >= 0 ? TRM_OK
                                     : trm_error(TRM_FAILED, "%s: cannot be created: %s", spool_path, strerror(reason));
  trm_free(spool_path);
  return status;
}

/* Writes `rows` rows of an array from row `first` on. */
static int writer_output_write(struct trm_data_writer *writer, struct output *out, uint64_t first, size_t rows,
                               const void *data)
{
  hsize_t start[TRM_MAX_DIMS + 1] = {first}, count[TRM_MAX_DIMS + 1] = {rows};
  for (int d = 0; d < out->dims; d++)
    count[d + 1] = out->size[d];
  h5_enter();
  const hid_t space = H5Dget_space(out->dataset), memory = H5Screate_simple(out->dims + 1, count, NULL);
  int status = TRM_OK;
  if (space < 0 || H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL) < 0 ||
      H5Dwrite(out->dataset, block_type_memory(out->type), memory, space, H5P_DEFAULT, data) < 0)
    status = h5_error(writer->path, "%s/%s cannot be written", writer->split, out->name);
  H5Sclose(memory);
  if (space >= 0)
    H5Sclose(space);
  h5_leave();
  return status;
}

static int writer_spool_write(struct trm_data_writer *writer, int fd, const unsigned char *data, size_t bytes)
{
  while (bytes) {
    const ssize_t done = write(fd, data, bytes);
    if (done < 0 && errno == EINTR)
      continue;
    if (done <= 0)
      return trm_error(TRM_FAILED, "%s: cannot be written: %s", writer->path, strerror(done ? errno : ENOSPC));
    data += done;
    bytes -= (size_t)done;
  }
  return TRM_OK;
}

/* Writes the block that is being filled. */
static int writer_output_flush(struct trm_data_writer *writer, struct output *out)
{
  if (!out->filled)
    return TRM_OK;
  const size_t bytes = out->filled * out->row_bytes;
  trm_sha256_add(&out->hash, out->block, bytes);
  if (out->spool >= 0) {
    out->checksums = trm_grow(out->checksums, &out->checksum_capacity, out->checksum_count, out->checksum_count + 1,
                              sizeof *out->checksums, "block sums");
    out->checksums[out->checksum_count++] = block_checksum(out->block, bytes);
    TRM_CHECK(writer_spool_write(writer, out->spool, out->block, bytes));
  } else {
    hsize_t size[TRM_MAX_DIMS + 1] = {out->rows + out->filled};
    for (int d = 0; d < out->dims; d++)
      size[d + 1] = out->size[d];
    h5_enter();
    const int status = H5Dset_extent(out->dataset, size) < 0
                         ? h5_error(writer->path, "%s/%s cannot grow", writer->split, out->name) : TRM_OK;
    h5_leave();
    TRM_CHECK(status);
    TRM_CHECK(writer_output_write(writer, out, out->rows, out->filled, out->block));
  }
  out->rows += out->filled;
  out->filled = 0;
  return TRM_OK;
}

static int writer_output_add(struct trm_data_writer *writer, struct output *out, const void *data, size_t rows)
{
  const unsigned char *from = data;
  while (rows) {
    size_t count = out->block_rows - out->filled;
    count = count < rows ? count : rows;
    memcpy(out->block + out->filled * out->row_bytes, from, count * out->row_bytes);
    out->filled += count;
    from += count * out->row_bytes;
    rows -= count;
    if (out->filled == out->block_rows)
      TRM_CHECK(writer_output_flush(writer, out));
  }
  return TRM_OK;
}

/* Copies a spooled array into a contiguous one, and writes its table of sums. */
static int writer_spool_copy(struct trm_data_writer *writer, struct output *out)
{
  hsize_t size[TRM_MAX_DIMS + 1] = {out->rows}, checksums = out->checksum_count;
  for (int d = 0; d < out->dims; d++)
    size[d + 1] = out->size[d];
  const struct h5_array table = {
    .dims = 1, .size = &checksums, .file_type = H5T_STD_U64LE, .memory_type = H5T_NATIVE_UINT64};
  char name[sizeof out->name + 5];
  snprintf(name, sizeof name, "%s_sums", out->name);
  if (!h5_array_write(writer->group, name, &table, out->checksums))
    return h5_error(writer->path, "%s/%s cannot be written", writer->split, name);
  h5_enter();
  const hid_t plist = H5Pcreate(H5P_DATASET_CREATE), space = H5Screate_simple(out->dims + 1, size, NULL);
  H5Pset_fill_time(plist, H5D_FILL_TIME_NEVER);
  out->dataset = H5Dcreate2(writer->group, out->name, block_type_file(out->type), space, H5P_DEFAULT, plist,
                            H5P_DEFAULT);
  int status = out->dataset < 0 ? h5_error(writer->path, "%s/%s cannot be made", writer->split, out->name) : TRM_OK;
  H5Sclose(space);
  H5Pclose(plist);
  h5_leave();
  off_t from = 0;
  for (uint64_t first = 0; status == TRM_OK && first < out->rows; first += out->block_rows) {
    const uint64_t left = out->rows - first;
    const size_t rows = left < out->block_rows ? (size_t)left : out->block_rows;
    for (size_t done = 0; done < rows * out->row_bytes && status == TRM_OK;) {
      const ssize_t got = pread(out->spool, out->block + done, rows * out->row_bytes - done, from);
      if (got < 0 && errno == EINTR)
        continue;
      if (got <= 0)
        status = trm_error(TRM_FAILED, "%s: cannot be written: its temporary file cannot be read: %s", writer->path,
                           got ? strerror(errno) : "it was cut short");
      else
        done += (size_t)got, from += got;
    }
    if (status == TRM_OK)
      status = writer_output_write(writer, out, first, rows, out->block);
  }
  return status;
}

/* Completes an array in the file, with its attributes and hash. */
static int writer_output_end(struct trm_data_writer *writer, struct output *out)
{
  TRM_CHECK(writer_output_flush(writer, out));
  if (out->spool >= 0)
    TRM_CHECK(writer_spool_copy(writer, out));
  char hex[65];
  trm_sha256_end(&out->hash, hex);
  h5_enter();
  int status = !h5_put_integer(out->dataset, "block_rows", out->block_rows) ||
                   !h5_put_text(out->dataset, "sha256", hex)
                 ? h5_error(writer->path, "%s/%s cannot be described", writer->split, out->name) : TRM_OK;
  if (status == TRM_OK && H5Dclose(out->dataset) < 0)
    status = h5_error(writer->path, "%s/%s cannot be written", writer->split, out->name);
  h5_leave();
  char *name = trm_format("%s/%s", writer->split, out->name);
  data_digest_add(&writer->digest, name, out->type, out->rows, hex);
  trm_free(name);
  return status;
}

static void writer_output_free(struct output *out)
{
  if (out->spool >= 0)
    close(out->spool);
  trm_free(out->block);
  trm_free(out->checksums);
}

/* -- splits */

/* Frees the memory of a split. Its data sets and group are closed, or left to h5_output_discard. */
static void writer_split_free(struct trm_data_writer *writer)
{
  for (int i = 0; i < writer->outputs; i++)
    writer_output_free(&writer->output[i]);
  writer->outputs = 0;
  writer->group = -1;
}

/* Warns of classes without a row in the split, and forgets which have one. */
static void writer_classes_check(struct trm_data_writer *writer)
{
  size_t missing = 0, first = 0;
  for (size_t i = writer->spec.classes; writer->class_present && i-- > 0; writer->class_present[i] = false)
    if (!writer->class_present[i]) {
      missing++;
      first = i;
    }
  if (missing)
    trm_warn("%s: the %s split has no row of class %zu%s%s%s (%zu of %zu classes have none)", writer->path,
             writer->split, first, writer->names ? " (" : "", writer->names ? writer->names[first] : "",
             writer->names ? ")" : "", missing, writer->spec.classes);
}

static int writer_split_end(struct trm_data_writer *writer)
{
  if (writer->group < 0)
    return TRM_OK;
  writer_classes_check(writer);
  int status = TRM_OK;
  if (writer->spec.kind == TRM_DATA_CSR) { /* starts ends with the end of the last row */
    const int64_t end = (int64_t)writer->entries;
    status = writer_output_add(writer, &writer->output[0], &end, 1);
  }
  for (int i = 0; i < writer->outputs && status == TRM_OK; i++)
    status = writer_output_end(writer, &writer->output[i]);
  h5_enter();
  if (status == TRM_OK && writer->text_bytes && !h5_put_integer(writer->group, "text_bytes", writer->text_bytes))
    status = h5_error(writer->path, "%s cannot be described", writer->split);
  if (status == TRM_OK && (!h5_put_integer(writer->group, "rows", writer->rows) || H5Gclose(writer->group) < 0))
    status = h5_error(writer->path, "%s cannot be described", writer->split);
  h5_leave();
  writer_split_free(writer);
  return status;
}

int trm_data_writer_split(struct trm_data_writer *writer, const char *split)
{
  TRM_CHECK(writer_split_end(writer));
  snprintf(writer->split, sizeof writer->split, "%s", split);
  writer->rows = writer->entries = writer->text_bytes = 0;
  h5_enter();
  writer->group = H5Gcreate2(writer->h5.file, split, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  int status = writer->group < 0 ? h5_error(writer->path, "%s cannot be made", split) : TRM_OK;
  h5_leave();
  const struct trm_data_spec *spec = &writer->spec;
  if (status != TRM_OK)
    return status;
  switch (spec->kind) {
  case TRM_DATA_IMAGE:
  case TRM_DATA_VECTOR:
    TRM_CHECK(
      writer_output_begin(writer, "x", spec->element == TRM_ELEMENT_UINT8 ? BLOCK_UINT8 : BLOCK_FLOAT, &spec->shape));
    break;
  case TRM_DATA_CSR:
    TRM_CHECK(writer_output_begin(writer, "starts", BLOCK_INT64, NULL));
    TRM_CHECK(writer_output_begin(writer, "columns", BLOCK_INT32, NULL));
    TRM_CHECK(writer_output_begin(writer, "values", BLOCK_FLOAT, NULL));
    break;
  case TRM_DATA_TOKENS:
    return writer_output_begin(writer, "x", spec->vocabulary <= 1 << 16 ? BLOCK_UINT16 : BLOCK_INT32, NULL);
  }
  if (spec->target == TRM_TARGET_CLASS)
    return writer_output_begin(writer, "y", BLOCK_INT32, NULL);
  const struct trm_shape values = {.dims = 1, .size = {spec->classes}};
  return writer_output_begin(writer, "y", BLOCK_FLOAT, &values);
}

/* -- rows */

static int writer_csr_append(struct trm_data_writer *writer, const struct trm_data_rows *rows)
{
  const int64_t entries = rows->starts[rows->rows];
  if (rows->starts[0] != 0)
    return trm_error(TRM_FAILED, "%s: rows to append begin at entry %lld in place of 0", writer->path,
                     (long long)rows->starts[0]);
  for (size_t i = 0; i < rows->rows; i++) {
    if (rows->starts[i + 1] < rows->starts[i])
      return trm_error(TRM_FAILED, "%s: %s row %llu ends before it begins", writer->path, writer->split,
                       (unsigned long long)(writer->rows + i));
    for (int64_t e = rows->starts[i]; e < rows->starts[i + 1]; e++) {
      if (rows->columns[e] < 0 || (e > rows->starts[i] && rows->columns[e] <= rows->columns[e - 1]))
        return trm_error(TRM_FAILED, "%s: columns of %s row %llu are not ascending from 0", writer->path,
                         writer->split, (unsigned long long)(writer->rows + i));
      if (rows->columns[e] > writer->largest_column)
        writer->largest_column = rows->columns[e];
    }
    const int64_t start = (int64_t)writer->entries + rows->starts[i];
    TRM_CHECK(writer_output_add(writer, &writer->output[0], &start, 1));
  }
  TRM_CHECK(writer_output_add(writer, &writer->output[1], rows->columns, (size_t)entries));
  TRM_CHECK(writer_output_add(writer, &writer->output[2], rows->values, (size_t)entries));
  writer->entries += (uint64_t)entries;
  return TRM_OK;
}

static int writer_tokens_append(struct trm_data_writer *writer, const struct trm_data_rows *rows)
{
  struct output *out = &writer->output[0];
  for (size_t i = 0; i < rows->rows; i++) {
    if (rows->tokens[i] < 0 || (size_t)rows->tokens[i] >= writer->spec.vocabulary)
      return trm_error(TRM_FAILED, "%s: %s token %llu is %d, outside of the vocabulary of %zu", writer->path,
                       writer->split, (unsigned long long)(writer->rows + i), rows->tokens[i],
                       writer->spec.vocabulary);
    const uint16_t narrow = (uint16_t)rows->tokens[i];
    TRM_CHECK(writer_output_add(writer, out, out->type == BLOCK_UINT16 ? (const void *)&narrow : &rows->tokens[i], 1));
  }
  return TRM_OK;
}

int trm_data_writer_append(struct trm_data_writer *writer, const struct trm_data_rows *rows)
{
  if (writer->group < 0)
    return trm_error(TRM_FAILED, "%s: rows before the first split", writer->path);
  if (rows->rows == 0)
    return TRM_OK;
  const struct trm_data_spec *spec = &writer->spec;
  if (spec->kind == TRM_DATA_TOKENS)
    TRM_CHECK(writer_tokens_append(writer, rows));
  else if (spec->kind == TRM_DATA_CSR)
    TRM_CHECK(writer_csr_append(writer, rows));
  else
    TRM_CHECK(writer_output_add(writer, &writer->output[0],
                                spec->element == TRM_ELEMENT_UINT8 ? (const void *)rows->bytes : rows->floats,
                                rows->rows));
  if (spec->kind != TRM_DATA_TOKENS) {
    struct output *y = &writer->output[writer->outputs - 1];
    if (spec->target == TRM_TARGET_CLASS) {
      for (size_t i = 0; i < rows->rows; i++) {
        if (rows->target_class[i] < 0)
          return trm_error(TRM_FAILED, "%s: the class of %s row %llu is %d", writer->path, writer->split,
                           (unsigned long long)(writer->rows + i), rows->target_class[i]);
        if (rows->target_class[i] > writer->largest_class)
          writer->largest_class = rows->target_class[i];
        if ((size_t)rows->target_class[i] < spec->classes)
          writer->class_present[rows->target_class[i]] = true;
      }
      TRM_CHECK(writer_output_add(writer, y, rows->target_class, rows->rows));
    } else {
      TRM_CHECK(writer_output_add(writer, y, rows->target_value, rows->rows));
    }
  }
  writer->rows += rows->rows;
  writer->text_bytes += rows->text_bytes;
  return TRM_OK;
}

/* -- the file */

static void writer_free(struct trm_data_writer *writer)
{
  writer_split_free(writer);
  trm_free((char *)writer->spec.source);
  trm_free(writer->names);
  trm_free(writer->class_present);
  trm_free(writer);
}

int trm_data_writer_open(struct trm_data_writer **handle, const char *path, const struct trm_data_spec *spec)
{
  *handle = NULL;
  if ((spec->kind == TRM_DATA_IMAGE || spec->kind == TRM_DATA_VECTOR) && trm_shape_count(&spec->shape) == 0)
    return trm_error(TRM_FAILED, "%s: samples of shape %s have no elements", path, trm_shape_text(&spec->shape));
  if (spec->kind != TRM_DATA_TOKENS && spec->target == TRM_TARGET_VALUE && spec->classes == 0)
    return trm_error(TRM_FAILED, "%s: samples have no target values", path);
  struct trm_data_writer *writer = trm_alloc(sizeof *writer, "the data set writer");
  writer->group = -1;
  writer->largest_class = writer->largest_column = -1;
  writer->spec = *spec;
  writer->spec.source = trm_strdup(spec->source ? spec->source : "");
  if (spec->class_names) {
    size_t bytes = spec->classes * sizeof(char *);
    for (size_t i = 0; i < spec->classes; i++)
      bytes += strlen(spec->class_names[i]) + 1;
    writer->names = trm_alloc(bytes, "class names");
    char *to = (char *)(writer->names + spec->classes);
    for (size_t i = 0; i < spec->classes; i++) {
      writer->names[i] = strcpy(to, spec->class_names[i]);
      to += strlen(to) + 1;
    }
  }
  writer->spec.class_names = (const char *const *)writer->names;
  if (spec->kind != TRM_DATA_TOKENS && spec->target == TRM_TARGET_CLASS)
    writer->class_present = trm_alloc(spec->classes, "classes of a split");
  trm_sha256_begin(&writer->digest);
  const int status = h5_output_open(&writer->h5, path, H5_DATASET, true);
  if (status != TRM_OK) {
    writer_free(writer);
    return status;
  }
  writer->path = writer->h5.path;
  *handle = writer;
  return TRM_OK;
}

/* Writes the attributes of the file, and the digest over them and all arrays. */
static int writer_describe(struct trm_data_writer *writer)
{
  const struct trm_data_spec *spec = &writer->spec;
  const bool tokens = spec->kind == TRM_DATA_TOKENS, bytes = !tokens && spec->kind != TRM_DATA_CSR &&
                                                             spec->element == TRM_ELEMENT_UINT8;
  const char *target = tokens ? "next" : spec->target == TRM_TARGET_CLASS ? "class" : "value";
  const struct data_head head = {
    .kind = spec->kind, .target = spec->target, .classes = spec->classes, .vocabulary = spec->vocabulary,
    .shape = spec->shape, .scale = bytes ? spec->scale : 1, .shift = bytes ? spec->shift : 0,
  };
  char hex[65];
  data_digest_end(&writer->digest, &head, hex);
  uint64_t size[TRM_MAX_DIMS];
  for (int d = 0; d < spec->shape.dims; d++)
    size[d] = spec->shape.size[d];
  h5_enter();
  bool done = h5_put_text(writer->h5.file, "kind", trm_data_kind_name(spec->kind)) &&
              h5_put_text(writer->h5.file, "target", target) && h5_put_text(writer->h5.file, "source", spec->source) &&
              h5_put_text(writer->h5.file, "digest", hex);
  if (tokens)
    done = done && h5_put_integer(writer->h5.file, "vocabulary", spec->vocabulary);
  else
    done = done && h5_put_integer(writer->h5.file, "classes", spec->classes) &&
           h5_put_integers(writer->h5.file, "shape", size, spec->shape.dims);
  if (bytes)
    done = done && h5_put_real(writer->h5.file, "scale", spec->scale) &&
           h5_put_real(writer->h5.file, "shift", spec->shift);
  if (spec->split)
    done = done && h5_put_text(writer->h5.file, "split", spec->split);
  if (spec->split && !strcmp(spec->split, "random"))
    done = done && h5_put_integer(writer->h5.file, "split_seed", spec->split_seed);
  if (spec->encoding)
    done = done && encoding_put(writer->h5.file, spec->encoding);
  if (spec->class_names)
    done = done && h5_put_texts(writer->h5.file, "class_names", spec->class_names, spec->classes);
  const int status = done ? TRM_OK : h5_error(writer->path, "cannot be described");
  h5_leave();
  return status;
}

int trm_data_writer_finish(struct trm_data_writer *writer, size_t features)
{
  struct trm_data_spec *spec = &writer->spec;
  int status = writer_split_end(writer);
  if (spec->kind == TRM_DATA_CSR && features)
    spec->shape = (struct trm_shape){.dims = 1, .size = {features}};
  if (status == TRM_OK && spec->kind == TRM_DATA_CSR &&
      writer->largest_column >= (int64_t)trm_shape_count(&spec->shape))
    status = trm_error(TRM_FAILED, "%s: has column %lld, but %zu features", writer->path,
                       (long long)writer->largest_column, trm_shape_count(&spec->shape));
  if (status == TRM_OK && spec->kind != TRM_DATA_TOKENS && spec->target == TRM_TARGET_CLASS &&
      writer->largest_class >= (int64_t)spec->classes)
    status = trm_error(TRM_FAILED, "%s: has class %lld, but %zu classes", writer->path,
                       (long long)writer->largest_class, spec->classes);
  if (status == TRM_OK)
    status = writer_describe(writer);
  if (status == TRM_OK)
    status = h5_output_commit(&writer->h5);
  else
    h5_output_discard(&writer->h5);
  writer_free(writer);
  return status;
}

void trm_data_writer_abandon(struct trm_data_writer *writer)
{
  if (!writer)
    return;
  h5_output_discard(&writer->h5);
  writer_free(writer);
}
