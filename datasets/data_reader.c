/* Reading of data set files. Every block is verified when it is read. */
#include "data_reader.h"

#include <string.h>

#include "core/memory.h"
#include "core/signature.h"
#include "core/status.h"
#include "tokenizer.h"

/* -- the header */

static const char *const kinds[] = {"image", "vector", "csr", "tokens", NULL};
static const char *const targets[] = {"class", "value", "next", NULL};
#define TARGET_NEXT 2 /* of tokens */

const char *trm_data_kind_name(enum trm_data_kind kind)
{
  return kinds[kind];
}

const char *data_target_name(const struct data_head *head)
{
  return targets[head->kind == TRM_DATA_TOKENS ? TARGET_NEXT : (int)head->target];
}

/* Reads an attribute that is one of the known texts. */
static int data_choice_read(hid_t file, const char *path, const char *name, const char *const *known, int *choice)
{
  char *text = h5_get_text(file, name);
  for (*choice = 0; known[*choice] && (!text || strcmp(known[*choice], text)); ++*choice)
    ;
  const int status = known[*choice] ? TRM_OK
                                    : trm_error(TRM_FAILED, "%s: attribute %s is %s, which is none that is known", path,
                                                name, text ? text : "missing");
  trm_free(text);
  return status;
}

static int data_count_read(hid_t file, const char *path, const char *name, size_t *count)
{
  uint64_t value = 0;
  if (!h5_get_integer(file, name, &value) || value == 0 || value > INT32_MAX)
    return trm_error(TRM_FAILED, "%s: attribute %s is missing or out of range", path, name);
  *count = value;
  return TRM_OK;
}

static int data_shape_read(struct data_head *head, hid_t file, const char *path)
{
  const struct trm_shape *shape = &head->shape;
  bool fits = h5_get_shape(file, "shape", &head->shape) && (head->kind != TRM_DATA_CSR || shape->dims == 1);
  uint64_t product = 1;
  for (int d = 0; fits && d < shape->dims; d++) {
    fits = shape->size[d] > 0 && shape->size[d] <= INT32_MAX && product <= (UINT64_C(1) << 40) / shape->size[d];
    product *= shape->size[d];
  }
  return fits ? TRM_OK
              : trm_error(TRM_FAILED, "%s: attribute shape is missing or not a shape of at most %d dimensions", path,
                          TRM_MAX_DIMS);
}

/* An attribute that is not there leaves *value as it is. */
static int data_real_read(hid_t file, const char *path, const char *name, double *value)
{
  if (H5Aexists(file, name) == 0 || h5_get_real(file, name, value))
    return TRM_OK;
  return h5_error(path, "attribute %s is damaged or not a float", name);
}

static int data_attributes_read(struct data_head *head, hid_t file, const char *path)
{
  int kind, target;
  double scale = 1, shift = 0;
  TRM_CHECK(data_choice_read(file, path, "kind", kinds, &kind));
  TRM_CHECK(data_choice_read(file, path, "target", targets, &target));
  const bool tokens = kind == TRM_DATA_TOKENS;
  if (tokens != (target == TARGET_NEXT))
    return trm_error(TRM_FAILED, "%s: attribute target is %s, which %s data cannot have", path, targets[target],
                     kinds[kind]);
  head->kind = (enum trm_data_kind)kind;
  head->target = target == TRM_TARGET_VALUE ? TRM_TARGET_VALUE : TRM_TARGET_CLASS;
  if (tokens)
    TRM_CHECK(data_count_read(file, path, "vocabulary", &head->vocabulary));
  else
    TRM_CHECK(data_count_read(file, path, "classes", &head->classes));
  if (!tokens)
    TRM_CHECK(data_shape_read(head, file, path));
  TRM_CHECK(data_real_read(file, path, "scale", &scale));
  TRM_CHECK(data_real_read(file, path, "shift", &shift));
  head->scale = (float)scale;
  head->shift = (float)shift;
  head->source = h5_get_text(file, "source");
  head->digest = h5_get_text(file, "digest");
  const size_t names = tokens ? head->vocabulary : head->classes;
  if (!h5_get_texts(file, "class_names", names, &head->class_names))
    return h5_error(path, "class_names is damaged or not a list of %zu texts", names);
  return tokens ? encoding_get(file, path, head->class_names, &head->encoding) : TRM_OK;
}

int data_head_read(struct data_head *head, hid_t file, const char *path)
{
  memset(head, 0, sizeof *head);
  H5_LOCKED;
  const int status = data_attributes_read(head, file, path);
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
  TRM_CHECK(signature_verify(path));
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
  h5_close(file);
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
  char *line = trm_format("%s %s %zu %s %.9g %.9g\n", kinds[head->kind], data_target_name(head),
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
  h5_close(array->dataset);
  trm_free(array->checksums);
  trm_free(array->block_buffer);
  memset(array, 0, sizeof *array);
}

/* Reads the checksums of an uncompressed array. */
static int data_checksums_read(struct data_array *array, hid_t group, const char *name)
{
  char table[sizeof array->name + 5];
  const uint64_t blocks = (array->rows + array->block_rows - 1) / array->block_rows;
  snprintf(table, sizeof table, "%s_sums", name);
  if (!h5_exists(group, table))
    return TRM_OK;
  hsize_t size[H5S_MAX_RANK];
  int dims;
  H5_CLOSED const hid_t dataset = h5_array_open(group, table, &dims, size);
  if (dims != 1)
    return h5_error(array->path, "%s_sums cannot be read", array->name);
  if (size[0] != blocks)
    return trm_error(TRM_FAILED, "%s: %s_sums has %llu checksums for %llu blocks", array->path, array->name,
                     (unsigned long long)size[0], (unsigned long long)blocks);
  array->checksums = trm_alloc(blocks * sizeof *array->checksums, "block sums");
  if (blocks && H5Dread(dataset, H5T_NATIVE_UINT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, array->checksums) < 0)
    return h5_error(array->path, "%s_sums cannot be read", array->name);
  return TRM_OK;
}

/* Chooses the element type in memory for the type in the file; false: the file type is not supported. */
static bool data_type_read(hid_t dataset, enum block_type expected, bool allow_narrow, enum block_type *type,
                           bool *converted)
{
  H5_CLOSED const hid_t file_type = H5Dget_type(dataset);
  if (file_type < 0)
    return false;
  const H5T_class_t class = H5Tget_class(file_type);
  const enum block_type narrow = expected == BLOCK_FLOAT ? BLOCK_UINT8 : BLOCK_UINT16;
  const bool is_narrow = allow_narrow && class == H5T_INTEGER && H5Tget_sign(file_type) == H5T_SGN_NONE &&
                         H5Tget_size(file_type) == block_type_bytes(narrow);
  *type = is_narrow ? narrow : expected;
  *converted = H5Tequal(file_type, block_type_file(*type)) <= 0;
  return is_narrow || class == (expected == BLOCK_FLOAT ? H5T_FLOAT : H5T_INTEGER);
}

static void data_layout_read(struct data_array *array)
{
  H5_CLOSED const hid_t plist = H5Dget_create_plist(array->dataset);
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
  array->stored_bytes = H5Dget_storage_size(array->dataset);
}

static int data_array_open(struct data_array *array, hid_t group, const char *path, const char *split,
                           const struct data_array_plan *plan)
{
  memset(array, 0, sizeof *array);
  array->path = path;
  snprintf(array->name, sizeof array->name, "%s/%s", split, plan->name);
  array->dataset = -1;
  if (!h5_exists(group, plan->name))
    return trm_error(TRM_FAILED, "%s: has no %s", path, array->name);
  /* chunks are read whole and in order of the rows or once: a cache of a few of them is enough */
  H5_CLOSED const hid_t access = H5Pcreate(H5P_DATASET_ACCESS);
  H5Pset_chunk_cache(access, 521, 4 * BLOCK_BYTES, 1.0);
  array->dataset = H5Dopen2(group, plan->name, access);
  if (array->dataset < 0)
    return h5_error(path, "%s cannot be opened", array->name);
  if (!data_type_read(array->dataset, plan->type, plan->allow_narrow, &array->type, &array->converted))
    return trm_error(TRM_FAILED, "%s: %s does not hold %s", path, array->name,
                     plan->type != BLOCK_FLOAT ? "integers" : plan->allow_narrow ? "floats or bytes" : "floats");
  hsize_t size[H5S_MAX_RANK];
  H5_CLOSED const hid_t space = H5Dget_space(array->dataset);
  const int dims = space < 0 ? -1 : H5Sget_simple_extent_dims(space, size, NULL);
  if (dims < 1 || dims > TRM_MAX_DIMS + 1)
    return trm_error(TRM_FAILED, "%s: %s has %d dimensions", path, array->name, dims);
  array->rows = size[0];
  array->row.dims = dims - 1;
  for (int d = 0; d < dims - 1; d++)
    array->row.size[d] = size[d + 1];
  if (array->row.dims != plan->row.dims || memcmp(array->row.size, plan->row.size, sizeof array->row.size) != 0)
    return trm_error(TRM_FAILED, "%s: rows of %s have shape %s, but the file says %s", array->path, array->name,
                     trm_shape_text(&array->row), trm_shape_text(&plan->row));
  array->row_bytes = block_type_bytes(array->type) * trm_shape_count(&array->row);
  data_layout_read(array);
  char *hex = h5_get_text(array->dataset, "sha256");
  if (hex && strlen(hex) == 64)
    memcpy(array->sha256, hex, sizeof array->sha256);
  trm_free(hex);
  return array->chunked || array->converted ? TRM_OK : data_checksums_read(array, group, plan->name);
}

/* -- a split */

void data_arrays_plan(const struct data_head *head, struct data_array_plan plan[DATA_ARRAYS])
{
  const bool tokens = head->kind == TRM_DATA_TOKENS, csr = head->kind == TRM_DATA_CSR;
  const bool classes = head->target == TRM_TARGET_CLASS;
  const struct trm_shape scalar = {0}, values = {.dims = 1, .size = {head->classes}};
  const struct data_array_plan all[DATA_ARRAYS] = {
    {"x", !csr, true, tokens ? BLOCK_INT32 : BLOCK_FLOAT, tokens ? scalar : head->shape},
    {"starts", csr, false, BLOCK_INT64, scalar},
    {"columns", csr, false, BLOCK_INT32, scalar},
    {"values", csr, false, BLOCK_FLOAT, scalar},
    {"y", !tokens, false, classes ? BLOCK_INT32 : BLOCK_FLOAT, classes ? scalar : values},
  };
  memcpy(plan, all, sizeof all);
}

static int data_arrays_open(struct data_split *split, const struct data_head *head, hid_t group, const char *path)
{
  struct data_array_plan plan[DATA_ARRAYS];
  data_arrays_plan(head, plan);
  for (int i = 0; i < DATA_ARRAYS; i++)
    if (plan[i].present)
      TRM_CHECK(data_array_open(&split->array[i], group, path, split->name, &plan[i]));
  const struct data_array *rows = head->kind == TRM_DATA_CSR ? &split->starts : &split->x, *y = &split->y;
  if (rows->rows == 0 && head->kind == TRM_DATA_CSR)
    return trm_error(TRM_FAILED, "%s: %s is empty", path, rows->name);
  split->rows = head->kind == TRM_DATA_CSR ? rows->rows - 1 : rows->rows;
  split->entries = split->columns.rows;
  h5_get_integer(group, "text_bytes", &split->text_bytes);
  if (split->columns.rows != split->values.rows)
    return trm_error(TRM_FAILED, "%s: %s has %llu entries, but %s has %llu", path, split->columns.name,
                     (unsigned long long)split->columns.rows, split->values.name,
                     (unsigned long long)split->values.rows);
  if (head->kind != TRM_DATA_TOKENS && y->rows != split->rows)
    return trm_error(TRM_FAILED, "%s: %s has %llu rows, but %s has %llu", path, rows->name,
                     (unsigned long long)split->rows, y->name, (unsigned long long)y->rows);
  return TRM_OK;
}

int data_split_open(struct data_split *split, const struct data_head *head, hid_t file, const char *path,
                    const char *name)
{
  memset(split, 0, sizeof *split);
  split->name = name;
  H5_LOCKED;
  if (!h5_exists(file, name))
    return trm_error(TRM_FAILED, "%s: has no %s split", path, name);
  H5_CLOSED const hid_t group = H5Gopen2(file, name, H5P_DEFAULT);
  const int status = group < 0 ? h5_error(path, "%s cannot be opened", name)
                               : data_arrays_open(split, head, group, path);
  if (status != TRM_OK)
    data_split_close(split);
  return status;
}

void data_split_close(struct data_split *split)
{
  for (int i = 0; i < DATA_ARRAYS; i++)
    data_array_close(&split->array[i]);
}

/* -- one array: reading */

/* Bytes per H5Dread: large enough that the call is cheap, small enough to stay in cache until verified. */
#define READ_BYTES ((size_t)1 << 20)

size_t data_array_rows_per_read(const struct data_array *array)
{
  const size_t block = array->block_rows * array->row_bytes;
  return array->block_rows * (block >= READ_BYTES ? 1 : READ_BYTES / block);
}

/* Reads rows [first, first + rows) without verification. */
static int data_rows_read(const struct data_array *array, uint64_t first, size_t rows, void *to)
{
  H5_LOCKED;
  if (h5_rows_read(array->dataset, block_type_memory(array->type), &array->row, first, rows, to))
    return TRM_OK;
  return h5_error(array->path, "rows %llu to %llu of %s are damaged or cannot be read", (unsigned long long)first,
                  (unsigned long long)(first + rows - 1), array->name);
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
