/* Reading of data set files. Every block is verified when it is read. */
#include "data_reader.h"

#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "tokenizer.h"

/* -- the head */

static const char *const kinds[] = {"image", "vector", "csr", "tokens"};

const char *trm_data_kind_name(enum trm_data_kind kind)
{
  return kinds[kind];
}

static int data_text_index(const char *text, const char *const *known, int count)
{
  for (int i = 0; text && i < count; i++)
    if (!strcmp(text, known[i]))
      return i;
  return -1;
}

int data_head_read(struct data_head *head, hid_t file, const char *path)
{
  memset(head, 0, sizeof *head);
  head->scale = 1;
  h5_enter();
  char *kind = h5_get_text(file, "kind"), *target = h5_get_text(file, "target");
  head->source = h5_get_text(file, "source");
  head->digest = h5_get_text(file, "digest");
  const char *const targets[] = {"class", "value", "next"};
  const int kind_id = data_text_index(kind, kinds, 4), target_id = data_text_index(target, targets, 3);
  uint64_t classes = 0, vocabulary = 0, size[TRM_MAX_DIMS] = {0};
  double scale = 1, shift = 0;
  int status = TRM_OK;
  if (kind_id < 0)
    status = trm_error(TRM_FAILED, "%s: attribute kind is %s, none of image, vector, csr, tokens", path,
                       kind ? kind : "missing");
  else if (target_id < 0 || (target_id == 2) != (kind_id == TRM_DATA_TOKENS))
    status = trm_error(TRM_FAILED, "%s: attribute target is %s, which %s data cannot have", path,
                       target ? target : "missing", kind);
  else if (kind_id == TRM_DATA_TOKENS &&
           (!h5_get_integer(file, "vocabulary", &vocabulary) || vocabulary == 0 || vocabulary > INT32_MAX))
    status = trm_error(TRM_FAILED, "%s: attribute vocabulary is missing or out of range", path);
  else if (kind_id != TRM_DATA_TOKENS &&
           (!h5_get_integer(file, "classes", &classes) || classes == 0 || classes > INT32_MAX))
    status = trm_error(TRM_FAILED, "%s: attribute classes is missing or out of range", path);
  if (status == TRM_OK && kind_id != TRM_DATA_TOKENS) {
    head->shape.dims = h5_get_integers(file, "shape", size, TRM_MAX_DIMS);
    bool fits = head->shape.dims >= 0 && (kind_id != TRM_DATA_CSR || head->shape.dims == 1);
    uint64_t product = 1;
    for (int d = 0; fits && d < head->shape.dims; d++) {
      head->shape.size[d] = size[d];
      fits = size[d] > 0 && size[d] <= INT32_MAX && product <= (UINT64_C(1) << 40) / size[d];
      product *= size[d];
    }
    if (!fits)
      status = trm_error(TRM_FAILED, "%s: attribute shape is missing or not a shape of at most %d dimensions", path,
                         TRM_MAX_DIMS);
  }
  if (status == TRM_OK) {
    head->kind = (enum trm_data_kind)kind_id;
    head->target = target_id == 1 ? TRM_TARGET_VALUE : TRM_TARGET_CLASS;
    head->classes = classes;
    head->vocabulary = vocabulary;
    h5_get_real(file, "scale", &scale); /* defaults: 1, 0 */
    h5_get_real(file, "shift", &shift);
    head->scale = (float)scale;
    head->shift = (float)shift;
    const uint64_t names = kind_id == TRM_DATA_TOKENS ? vocabulary : classes; /* the vocabulary of tokens */
    if (head->target == TRM_TARGET_CLASS && !h5_get_texts(file, "class_names", names, &head->class_names))
      status = h5_error(path, "class_names is damaged or not a list of %llu texts", (unsigned long long)names);
    else if (kind_id == TRM_DATA_TOKENS && !encoding_get(file, &head->encoding))
      status = h5_error(path, "merges is damaged");
    if (head->class_names && kind_id == TRM_DATA_TOKENS &&
        !head->encoding.name) /* as it was before there were others */
      head->encoding.name = trm_strdup("characters");
  }
  h5_leave();
  trm_free(kind);
  trm_free(target);
  if (status != TRM_OK)
    data_head_free(head);
  return status;
}

void data_head_free(struct data_head *head)
{
  trm_free(head->source);
  trm_free(head->digest);
  trm_free(head->class_names);
  trm_encoding_free(&head->encoding);
  memset(head, 0, sizeof *head);
}

int trm_tokenizer_of_data(struct trm_tokenizer **tokenizer, const char *path, size_t size)
{
  hid_t file;
  struct data_head head;
  *tokenizer = NULL;
  TRM_CHECK(h5_open(path, H5_DATASET, NULL, &file));
  int status = data_head_read(&head, file, path);
  if (status == TRM_OK) {
    if (head.vocabulary == size)
      status = trm_tokenizer_open(tokenizer, path, &head.encoding, head.class_names, size);
    else
      status = trm_error(TRM_USAGE, "%s: has a vocabulary of %zu tokens, the model one of %zu", path, head.vocabulary,
                         size);
    data_head_free(&head);
  }
  h5_enter();
  H5Fclose(file);
  h5_leave();
  return status;
}

/* -- the digest */

void data_digest_add(struct trm_sha256 *digest, const char *name, enum block_type type, uint64_t rows, const char *hex)
{
  char *line = trm_format("%s %s %llu %s\n", name, block_type_name(type), (unsigned long long)rows, hex);
  trm_sha256_add(digest, line, strlen(line));
  trm_free(line);
}

void data_digest_end(struct trm_sha256 *digest, const struct data_head *head, char hex[65])
{
  const bool tokens = head->kind == TRM_DATA_TOKENS;
  char *line = trm_format("%s %s %zu %s %.9g %.9g\n", trm_data_kind_name(head->kind),
                          tokens ? "next" : head->target == TRM_TARGET_CLASS ? "class" : "value",
                          tokens ? head->vocabulary : head->classes, tokens ? "-" : trm_shape_text(&head->shape),
                          (double)head->scale, (double)head->shift);
  trm_sha256_add(digest, line, strlen(line));
  trm_sha256_end(digest, hex);
  trm_free(line);
}

/* -- one array: opening */

static void data_array_close(struct data_array *array)
{
  if (!array->name[0])
    return;
  h5_enter();
  if (array->dataset >= 0)
    H5Dclose(array->dataset);
  h5_leave();
  trm_free(array->checksums);
  trm_free(array->block_buffer);
  memset(array, 0, sizeof *array);
}

/* Reads the table of checksums beside an uncompressed array. */
static int data_checksums_read(struct data_array *array, hid_t group, const char *name)
{
  char *table = trm_format("%s_sums", name);
  const uint64_t blocks = (array->rows + array->block_rows - 1) / array->block_rows;
  int status = TRM_OK;
  if (h5_exists(group, table)) {
    hsize_t size[H5S_MAX_RANK];
    int dims;
    const hid_t dataset = h5_array_open(group, table, &dims, size);
    if (dims != 1)
      status = h5_error(array->path, "%s_sums cannot be read", array->name);
    else if (size[0] != blocks)
      status = trm_error(TRM_FAILED, "%s: %s_sums has %llu checksums for %llu blocks", array->path, array->name,
                         (unsigned long long)size[0], (unsigned long long)blocks);
    else {
      array->checksums = trm_alloc(blocks * sizeof *array->checksums, "block sums");
      if (blocks && H5Dread(dataset, H5T_NATIVE_UINT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, array->checksums) < 0)
        status = h5_error(array->path, "%s_sums cannot be read", array->name);
    }
    if (dataset >= 0)
      H5Dclose(dataset);
  }
  trm_free(table);
  return status;
}

/* Chooses the element type in memory for the type in the file; false: the file type is not supported. */
static bool data_type_read(hid_t dataset, enum block_type expected, bool allow_narrow, enum block_type *type,
                           bool *converted)
{
  const hid_t file_type = H5Dget_type(dataset);
  if (file_type < 0)
    return false;
  const H5T_class_t class = H5Tget_class(file_type);
  bool fits = true;
  *type = expected;
  if (expected == BLOCK_FLOAT && allow_narrow && class == H5T_INTEGER && H5Tget_size(file_type) == 1 &&
      H5Tget_sign(file_type) == H5T_SGN_NONE)
    *type = BLOCK_UINT8;
  else if (expected == BLOCK_FLOAT)
    fits = class == H5T_FLOAT;
  else if (expected == BLOCK_INT32 && allow_narrow && class == H5T_INTEGER && H5Tget_size(file_type) == 2 &&
           H5Tget_sign(file_type) == H5T_SGN_NONE)
    *type = BLOCK_UINT16;
  else
    fits = class == H5T_INTEGER;
  *converted = fits && H5Tequal(file_type, block_type_file(*type)) <= 0;
  H5Tclose(file_type);
  return fits;
}

static void data_layout_read(struct data_array *array)
{
  const hid_t plist = H5Dget_create_plist(array->dataset);
  array->chunked = plist >= 0 && H5Pget_layout(plist) == H5D_CHUNKED;
  hsize_t chunk[TRM_MAX_DIMS + 1];
  uint64_t rows = 0;
  if (array->chunked && H5Pget_chunk(plist, TRM_MAX_DIMS + 1, chunk) > 0)
    rows = chunk[0];
  else if (!h5_get_integer(array->dataset, "block_rows", &rows))
    rows = block_rows(array->row_bytes);
  const uint64_t max_rows = array->rows ? array->rows : 1;
  array->block_rows = rows == 0 ? 1 : rows < max_rows ? rows : max_rows;
  const int filters = plist < 0 ? 0 : H5Pget_nfilters(plist);
  for (int i = 0; i < filters; i++) {
    unsigned flags, value[4] = {0}, config;
    size_t values = 4;
    const H5Z_filter_t filter = H5Pget_filter2(plist, (unsigned)i, &flags, &values, value, 0, NULL, &config);
    if (filter == H5Z_FILTER_DEFLATE)
      array->deflate = values ? (int)value[0] : 1;
    array->fletcher32 |= filter == H5Z_FILTER_FLETCHER32;
  }
  if (plist >= 0)
    H5Pclose(plist);
  array->stored_bytes = H5Dget_storage_size(array->dataset);
}

static int data_array_open(struct data_array *array, hid_t group, const char *path, const char *split, const char *name,
                           enum block_type expected, bool allow_narrow)
{
  memset(array, 0, sizeof *array);
  array->path = path;
  snprintf(array->name, sizeof array->name, "%s/%s", split, name);
  array->dataset = -1;
  if (!h5_exists(group, name))
    return trm_error(TRM_FAILED, "%s: has no %s", path, array->name);
  /* chunks are read whole and in order of the rows or once: a cache of a few of them is enough */
  const hid_t access = H5Pcreate(H5P_DATASET_ACCESS);
  H5Pset_chunk_cache(access, 521, 4 * BLOCK_BYTES, 1.0);
  array->dataset = H5Dopen2(group, name, access);
  H5Pclose(access);
  if (array->dataset < 0)
    return h5_error(path, "%s cannot be opened", array->name);
  if (!data_type_read(array->dataset, expected, allow_narrow, &array->type, &array->converted))
    return trm_error(TRM_FAILED, "%s: %s does not hold %s", path, array->name,
                     expected == BLOCK_FLOAT ? allow_narrow ? "floats or bytes" : "floats" : "integers");
  hsize_t size[TRM_MAX_DIMS + 2];
  const hid_t space = H5Dget_space(array->dataset);
  const int dims = space < 0 ? -1 : H5Sget_simple_extent_ndims(space);
  const bool fits = dims >= 1 && dims <= TRM_MAX_DIMS + 1 && H5Sget_simple_extent_dims(space, size, NULL) == dims;
  if (space >= 0)
    H5Sclose(space);
  if (!fits)
    return trm_error(TRM_FAILED, "%s: %s has %d dimensions", path, array->name, dims);
  array->rows = size[0];
  array->dims = dims - 1;
  array->row_bytes = block_type_bytes(array->type);
  for (int d = 0; d < array->dims; d++) {
    array->size[d] = size[d + 1];
    if (size[d + 1] == 0 || array->row_bytes > (SIZE_MAX >> 16) / size[d + 1])
      return trm_error(TRM_FAILED, "%s: the shape of %s is out of range", path, array->name);
    array->row_bytes *= size[d + 1];
  }
  data_layout_read(array);
  char *hex = h5_get_text(array->dataset, "sha256");
  if (hex && strlen(hex) == 64)
    memcpy(array->sha256, hex, sizeof array->sha256);
  trm_free(hex);
  return array->chunked || array->converted ? TRM_OK : data_checksums_read(array, group, name);
}

/* -- a split */

static int data_shape_check(const struct data_array *array, const struct trm_shape *shape)
{
  const struct trm_shape found = {.dims = array->dims,
                                  .size = {array->size[0], array->size[1], array->size[2], array->size[3]}};
  bool same = found.dims == shape->dims;
  for (int d = 0; same && d < shape->dims; d++)
    same = found.size[d] == shape->size[d];
  return same ? TRM_OK
              : trm_error(TRM_FAILED, "%s: rows of %s have shape %s, but the file says %s", array->path, array->name,
                          trm_shape_text(&found), trm_shape_text(shape));
}

static int data_arrays_open(struct data_split *split, const struct data_head *head, hid_t group, const char *path)
{
  const char *name = split->name;
  const struct trm_shape scalar = {0}, values = {.dims = 1, .size = {head->classes}};
  if (head->kind == TRM_DATA_TOKENS) {
    TRM_CHECK(data_array_open(&split->x, group, path, name, "x", BLOCK_INT32, true));
    TRM_CHECK(data_shape_check(&split->x, &scalar));
    split->rows = split->x.rows;
    h5_get_integer(group, "text_bytes", &split->text_bytes);
    return TRM_OK;
  }
  if (head->kind == TRM_DATA_CSR) {
    TRM_CHECK(data_array_open(&split->starts, group, path, name, "starts", BLOCK_INT64, false));
    TRM_CHECK(data_array_open(&split->columns, group, path, name, "columns", BLOCK_INT32, false));
    TRM_CHECK(data_array_open(&split->values, group, path, name, "values", BLOCK_FLOAT, false));
    TRM_CHECK(data_shape_check(&split->starts, &scalar));
    TRM_CHECK(data_shape_check(&split->columns, &scalar));
    TRM_CHECK(data_shape_check(&split->values, &scalar));
    if (split->starts.rows == 0)
      return trm_error(TRM_FAILED, "%s: %s is empty", path, split->starts.name);
    if (split->columns.rows != split->values.rows)
      return trm_error(TRM_FAILED, "%s: %s has %llu entries, but %s has %llu", path, split->columns.name,
                       (unsigned long long)split->columns.rows, split->values.name,
                       (unsigned long long)split->values.rows);
    split->rows = split->starts.rows - 1;
    split->entries = split->columns.rows;
  } else {
    TRM_CHECK(data_array_open(&split->x, group, path, name, "x", BLOCK_FLOAT, true));
    TRM_CHECK(data_shape_check(&split->x, &head->shape));
    split->rows = split->x.rows;
  }
  TRM_CHECK(data_array_open(&split->y, group, path, name, "y",
                            head->target == TRM_TARGET_CLASS ? BLOCK_INT32 : BLOCK_FLOAT, false));
  TRM_CHECK(data_shape_check(&split->y, head->target == TRM_TARGET_CLASS ? &scalar : &values));
  if (split->y.rows != split->rows)
    return trm_error(TRM_FAILED, "%s: %s has %llu rows, but %s has %llu", path,
                     head->kind == TRM_DATA_CSR ? split->starts.name : split->x.name, (unsigned long long)split->rows,
                     split->y.name, (unsigned long long)split->y.rows);
  return TRM_OK;
}

int data_split_open(struct data_split *split, const struct data_head *head, hid_t file, const char *path,
                    const char *name)
{
  memset(split, 0, sizeof *split);
  split->name = name;
  h5_enter();
  int status = TRM_OK;
  if (!h5_exists(file, name))
    status = trm_error(TRM_FAILED, "%s: has no %s split", path, name);
  const hid_t group = status != TRM_OK ? -1 : H5Gopen2(file, name, H5P_DEFAULT);
  if (status == TRM_OK && group < 0)
    status = h5_error(path, "%s cannot be opened", name);
  if (status == TRM_OK)
    status = data_arrays_open(split, head, group, path);
  if (group >= 0)
    H5Gclose(group);
  if (status != TRM_OK)
    data_split_close(split);
  h5_leave();
  return status;
}

void data_split_close(struct data_split *split)
{
  struct data_array *const all[] = {&split->x, &split->starts, &split->columns, &split->values, &split->y};
  for (int i = 0; i < 5; i++)
    data_array_close(all[i]);
}

int data_split_arrays(struct data_split *split, struct data_array *array[4])
{
  struct data_array *const all[] = {&split->x, &split->starts, &split->columns, &split->values, &split->y};
  int count = 0;
  for (int i = 0; i < 5; i++)
    if (all[i]->name[0])
      array[count++] = all[i];
  return count;
}

/* -- one array: reading */

/* Bytes of one H5Dread: large enough that the call is cheap, small enough to stay in a cache until verified. */
#define READ_BYTES ((size_t)1 << 20)

size_t data_array_rows_per_read(const struct data_array *array)
{
  const size_t block = array->block_rows * array->row_bytes;
  return array->block_rows * (block >= READ_BYTES ? 1 : READ_BYTES / block);
}

/* Reads rows [first, first + rows) without verification. */
static int data_rows_read(const struct data_array *array, uint64_t first, size_t rows, void *to)
{
  hsize_t start[TRM_MAX_DIMS + 1] = {first}, count[TRM_MAX_DIMS + 1] = {rows};
  for (int d = 0; d < array->dims; d++)
    count[d + 1] = array->size[d];
  h5_enter();
  const hid_t space = H5Dget_space(array->dataset), memory = H5Screate_simple(array->dims + 1, count, NULL);
  int status = TRM_OK;
  if (H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL) < 0 ||
      H5Dread(array->dataset, block_type_memory(array->type), memory, space, H5P_DEFAULT, to) < 0)
    status = h5_error(array->path, "rows %llu to %llu of %s are damaged or cannot be read", (unsigned long long)first,
                      (unsigned long long)(first + rows - 1), array->name);
  if (memory >= 0)
    H5Sclose(memory);
  if (space >= 0)
    H5Sclose(space);
  h5_leave();
  return status;
}

/* Compares the checksums of rows [first, first + rows), which are whole blocks. */
static int data_rows_verify(const struct data_array *array, uint64_t first, size_t rows, const unsigned char *data)
{
  if (!array->checksums)
    return TRM_OK;
  for (size_t done = 0; done < rows; done += array->block_rows) {
    const size_t count = rows - done < array->block_rows ? rows - done : array->block_rows;
    if (block_checksum(data + done * array->row_bytes, count * array->row_bytes) !=
        array->checksums[(first + done) / array->block_rows])
      return trm_error(TRM_FAILED, "%s: rows %llu to %llu of %s are damaged (their checksum differs)", array->path,
                       (unsigned long long)(first + done), (unsigned long long)(first + done + count - 1), array->name);
  }
  return TRM_OK;
}

/* Reads a part of one block. The whole block is read and verified, and kept for further parts of it. */
static int data_block_part_read(struct data_array *array, uint64_t first, size_t rows, void *to)
{
  const uint64_t begin = first - first % array->block_rows, left = array->rows - begin;
  const size_t count = left < array->block_rows ? (size_t)left : array->block_rows;
  if (!array->block_buffer)
    array->block_buffer = trm_alloc(array->block_rows * array->row_bytes, "a block of rows");
  if (array->buffered_rows == 0 || array->buffered_first != begin) {
    array->buffered_rows = 0;
    TRM_CHECK(data_rows_read(array, begin, count, array->block_buffer));
    TRM_CHECK(data_rows_verify(array, begin, count, array->block_buffer));
    array->buffered_first = begin;
    array->buffered_rows = count;
  }
  memcpy(to, array->block_buffer + (first - begin) * array->row_bytes, rows * array->row_bytes);
  return TRM_OK;
}

int data_array_read(struct data_array *array, uint64_t first, size_t rows, void *to)
{
  unsigned char *at = to;
  const size_t block = array->block_rows, max_rows = data_array_rows_per_read(array);
  if (first > array->rows || rows > array->rows - first)
    return trm_error(TRM_FAILED, "%s: %s has %llu rows; rows up to %llu were asked for", array->path, array->name,
                     (unsigned long long)array->rows, (unsigned long long)(first + rows));
  while (rows) {
    const size_t offset = (size_t)(first % block);
    size_t count;
    if (offset || (rows < block && first + rows < array->rows)) {
      count = block - offset < rows ? block - offset : rows;
      TRM_CHECK(data_block_part_read(array, first, count, at));
    } else {
      count = rows < max_rows ? rows : max_rows;
      if (first + count < array->rows)
        count -= count % block;
      int status = data_rows_read(array, first, count, at);
      for (size_t done = 0; status != TRM_OK && done < count; done += block) { /* finds the damaged block */
        const size_t one = count - done < block ? count - done : block;
        TRM_CHECK(data_rows_read(array, first + done, one, at + done * array->row_bytes));
      }
      TRM_CHECK(status);
      TRM_CHECK(data_rows_verify(array, first, count, at));
    }
    first += count;
    rows -= count;
    at += count * array->row_bytes;
  }
  return TRM_OK;
}
