/* Reading of rows from the file into stores, with checks of their values. */
#include <math.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "loader.h"

/* -- stores */

static void *load_carve(char *memory, size_t *at, size_t bytes)
{
  void *here = memory ? memory + *at : NULL;
  *at += (bytes + TRM_ALIGNMENT - 1) & ~(size_t)(TRM_ALIGNMENT - 1);
  return here;
}

uint64_t loader_file_row(const struct loader *loader, uint64_t n)
{
  return loader->subset.bits ? row_subset_at(&loader->subset, n) : n;
}

uint64_t loader_file_range(const struct loader *loader, uint64_t first, size_t rows, size_t *count)
{
  const uint64_t low = loader_file_row(loader, first);
  *count = (size_t)(loader_file_row(loader, first + rows - 1) + 1 - low);
  return low;
}

/* Tokens of `rows` rows that follow one another in a store, the last target included. */
static uint64_t load_tokens(const struct loader *loader, uint64_t rows)
{
  return rows * loader->spacing + loader->context + 1 - loader->spacing;
}

size_t loader_block_bytes(const struct loader *loader, size_t capacity)
{
  if (loader->head.kind == TRM_DATA_TOKENS)
    return (size_t)load_tokens(loader, capacity) * block_type_bytes(loader->x_type);
  return capacity * loader->row_bytes;
}

size_t store_layout(const struct loader *loader, struct store *store, void *memory, size_t blocks, size_t capacity,
                    size_t entries)
{
  size_t bytes = 0;
  *store = (struct store){.capacity = capacity, .entries_capacity = entries};
  if (loader->head.kind == TRM_DATA_CSR) {
    store->starts = load_carve(memory, &bytes, blocks * (capacity + 1) * sizeof *store->starts);
    store->columns = load_carve(memory, &bytes, entries * sizeof *store->columns);
    store->values = load_carve(memory, &bytes, entries * sizeof *store->values);
  } else {
    store->x = load_carve(memory, &bytes, blocks * loader_block_bytes(loader, capacity));
  }
  if (loader->y_bytes)
    store->y = load_carve(memory, &bytes, blocks * capacity * loader->y_bytes);
  return bytes;
}

void loader_to_float(const struct loader *loader, float *restrict to, const unsigned char *restrict from, size_t n)
{
  const float scale = loader->head.scale, shift = loader->head.shift;
  if (loader->x_type != BLOCK_UINT8)
    memcpy(to, from, n * sizeof *to);
  else
    for (size_t j = 0; j < n; j++)
      to[j] = scale * (float)from[j] + shift;
}

/* -- checks */

static int load_floats_check(const struct loader *loader, const char *array, const float *value, size_t rows,
                             size_t width, uint64_t first)
{
  for (size_t i = 0; i < rows; i++) {
    /* x - x is 0 for finite numbers, else NaN */
    float sum = 0;
    for (size_t j = 0; j < width; j++)
      sum += value[i * width + j] - value[i * width + j];
    if (sum != 0 || isnan(sum))
      return trm_error(TRM_FAILED, "%s: %s row %llu of %s has a value that is not finite", loader->path,
                       loader->files.name, (unsigned long long)(first + i), array);
  }
  return TRM_OK;
}

static int load_labels_check(const struct loader *loader, const float *value, size_t rows, uint64_t first)
{
  const size_t labels = loader->head.classes;
  for (size_t i = 0; i < rows * labels; i++)
    if (value[i] != 0 && value[i] != 1)
      return trm_error(TRM_USAGE, "%s: %s row %llu of y has the value %g; for train.loss=binary_cross_entropy they "
                       "must be 0 or 1", loader->path, loader->files.name, (unsigned long long)(first + i / labels),
                       (double)value[i]);
  return TRM_OK;
}

static int load_classes_check(const struct loader *loader, const int32_t *class, size_t rows, uint64_t first)
{
  const uint32_t classes = (uint32_t)loader->head.classes;
  for (size_t i = 0; i < rows; i++)
    if ((uint32_t)class[i] >= classes)
      return trm_error(TRM_FAILED, "%s: %s row %llu has class %d, but the classes are 0 to %u", loader->path,
                       loader->files.name, (unsigned long long)(first + i), class[i], classes - 1);
  return TRM_OK;
}

static int load_tokens_check(const struct loader *loader, const void *token, size_t count, uint64_t first)
{
  for (size_t i = 0; i < count; i++) {
    const int64_t id = loader->x_type == BLOCK_UINT16 ? ((const uint16_t *)token)[i] : ((const int32_t *)token)[i];
    if (id < 0 || id >= (int64_t)loader->head.vocabulary)
      return trm_error(TRM_FAILED, "%s: %s token %llu is %lld, outside of the vocabulary of %zu", loader->path,
                       loader->files.name, (unsigned long long)(first + i), (long long)id, loader->head.vocabulary);
  }
  return TRM_OK;
}

static int load_columns_check(const struct loader *loader, const struct store *store, const int64_t *start, size_t rows,
                              uint64_t first)
{
  const int64_t features = (int64_t)loader->head.shape.size[0];
  for (size_t i = 0; i < rows; i++) {
    int64_t before = -1;
    for (int64_t e = start[i]; e < start[i + 1]; e++) {
      if (store->columns[e] <= before || store->columns[e] >= features)
        return trm_error(TRM_FAILED, "%s: %s row %llu has column %d after %lld; columns ascend from 0 to %lld",
                         loader->path, loader->files.name, (unsigned long long)(first + i), store->columns[e],
                         (long long)before, (long long)features - 1);
      before = store->columns[e];
    }
    TRM_CHECK(
      load_floats_check(loader, "values", store->values + start[i], 1, (size_t)(start[i + 1] - start[i]), first + i));
  }
  return TRM_OK;
}

/* Checks rows in a store: classes and columns in range, numbers finite. Errors name file and row, counted from
 * `first`. */
static int load_check(const struct loader *loader, const struct store *store, size_t k, size_t row, size_t rows,
                      uint64_t first)
{
  const size_t at = k * store->capacity + row;
  if (loader->head.kind == TRM_DATA_TOKENS) {
    const unsigned char *x = store->x + k * loader_block_bytes(loader, store->capacity) + row * loader->row_bytes;
    return load_tokens_check(loader, x, (size_t)load_tokens(loader, rows), first * loader->stride);
  }
  if (loader->head.kind == TRM_DATA_CSR)
    TRM_CHECK(load_columns_check(loader, store, store->starts + k * (store->capacity + 1) + row, rows, first));
  else if (loader->x_type == BLOCK_FLOAT)
    TRM_CHECK(load_floats_check(loader, "x", (const float *)(store->x + at * loader->row_bytes), rows,
                                loader->row_bytes / sizeof(float), first));
  const unsigned char *y = store->y + at * loader->y_bytes;
  if (loader->head.target == TRM_TARGET_CLASS)
    return load_classes_check(loader, (const int32_t *)y, rows, first);
  TRM_CHECK(load_floats_check(loader, "y", (const float *)y, rows, loader->head.classes, first));
  return loader->labels ? load_labels_check(loader, (const float *)y, rows, first) : TRM_OK;
}

int loader_starts_check(const struct loader *loader, const int64_t *start, size_t rows, uint64_t first)
{
  const int64_t entries = (int64_t)loader->files.entries;
  for (size_t i = 0; i <= rows; i++)
    if (start[i] < 0 || start[i] > entries || (i && start[i] < start[i - 1]))
      return trm_error(TRM_FAILED, "%s: %s row %llu begins at entry %lld, after entry %lld, of %lld", loader->path,
                       loader->files.starts.name, (unsigned long long)(first + i), (long long)start[i],
                       (long long)(i ? start[i - 1] : 0), (long long)entries);
  return TRM_OK;
}

/* -- a range of rows */

static int load_csr_read(struct loader *loader, uint64_t first, size_t rows, struct store *store, size_t k,
                         size_t entry)
{
  struct data_split *files = &loader->files;
  int64_t *start = store->starts + k * (store->capacity + 1);
  TRM_CHECK(data_array_read(&files->starts, first, rows + 1, start));
  TRM_CHECK(loader_starts_check(loader, start, rows, first));
  const int64_t begin = start[0];
  const size_t count = (size_t)(start[rows] - begin);
  if (entry > store->entries_capacity || count > store->entries_capacity - entry)
    return trm_error(TRM_FAILED, "%s: %s has changed since it was opened", loader->path, files->starts.name);
  for (size_t i = 0; i <= rows; i++)
    start[i] += (int64_t)entry - begin;
  TRM_CHECK(data_array_read(&files->columns, (uint64_t)begin, count, store->columns + entry));
  return data_array_read(&files->values, (uint64_t)begin, count, store->values + entry);
}

int loader_read(struct loader *loader, uint64_t first, size_t rows, struct store *store, size_t k, size_t entry)
{
  struct data_split *files = &loader->files;
  unsigned char *x = store->x ? store->x + k * loader_block_bytes(loader, store->capacity) : NULL;
  if (loader->head.kind == TRM_DATA_CSR)
    TRM_CHECK(load_csr_read(loader, first, rows, store, k, entry));
  else if (loader->head.kind == TRM_DATA_TOKENS)
    TRM_CHECK(data_array_read(&files->x, first * loader->stride, (size_t)load_tokens(loader, rows), x));
  else
    TRM_CHECK(data_array_read(&files->x, first, rows, x));
  if (store->y)
    TRM_CHECK(data_array_read(&files->y, first, rows, store->y + k * store->capacity * loader->y_bytes));
  return load_check(loader, store, k, 0, rows, first);
}

/* -- the whole split */

/* Rounds `rows` up to whole blocks of an array, or to its end. */
static uint64_t load_rows_rounded(const struct data_array *array, uint64_t rows)
{
  const uint64_t blocks = (rows + array->block_rows - 1) / array->block_rows;
  return blocks * array->block_rows < array->rows ? blocks * array->block_rows : array->rows;
}

/* Reads the first rows of an array into shared memory, each rank of the node its part of the blocks. */
static int load_array_read(struct loader *loader, struct data_array *array, uint64_t rows, void *to)
{
  const uint64_t end = load_rows_rounded(array, rows), blocks = (end + array->block_rows - 1) / array->block_rows;
  size_t low, high;
  trm_interval(blocks, (size_t)loader->node->size, (size_t)loader->node->rank, &low, &high);
  const uint64_t first = (uint64_t)low * array->block_rows, last = (uint64_t)high * array->block_rows;
  if (low == high)
    return TRM_OK;
  return data_array_read(array, first, (size_t)((last < end ? last : end) - first),
                         (unsigned char *)to + first * array->row_bytes);
}

static int load_all_check(struct loader *loader)
{
  const struct store *store = &loader->store;
  size_t low, high;
  trm_interval(loader->file_rows, (size_t)loader->node->size, (size_t)loader->node->rank, &low, &high);
  if (low == high)
    return TRM_OK;
  if (store->starts)
    TRM_CHECK(loader_starts_check(loader, store->starts + low, high - low, low));
  if (store->starts && low == 0 && store->starts[0] != 0)
    return trm_error(TRM_FAILED, "%s: %s begins with %lld in place of 0", loader->path, loader->files.starts.name,
                     (long long)store->starts[0]);
  return load_check(loader, store, 0, low, high - low, low);
}

/* Rows of each array that the loader's rows need. */
static uint64_t load_rows_needed(const struct loader *loader, const struct data_array *array)
{
  const struct data_split *files = &loader->files;
  if (array == &files->columns || array == &files->values)
    return loader->entries;
  if (array == &files->starts)
    return loader->file_rows + 1;
  return loader->head.kind == TRM_DATA_TOKENS ? load_tokens(loader, loader->file_rows) : loader->file_rows;
}

/* Makes the store one block in the shared memory of the node. Collective. */
static int load_store_allocate(struct loader *loader, size_t capacity, size_t entries)
{
  struct trm_comm *node = loader->node;
  const size_t bytes = store_layout(loader, &loader->store, NULL, 1, capacity, entries);
  TRM_CHECK(trm_agree(loader->comm, node->ops->share(node, node->rank == 0 ? bytes : 0, TRM_MEMORY_DATA,
                                                     &loader->shared)));
  store_layout(loader, &loader->store, loader->shared.base[0], 1, capacity, entries);
  return TRM_OK;
}

/* Allocates the shared memory. Capacities are rounded up, so that every block is read whole and verified in place. */
static int load_all_allocate(struct loader *loader)
{
  struct data_split *files = &loader->files;
  size_t capacity = loader->file_rows, entries = 0;
  for (const struct data_array *array = files->array; array < files->array + DATA_ARRAYS; array++) {
    if (!array->name[0])
      continue;
    const uint64_t read = load_rows_rounded(array, load_rows_needed(loader, array));
    size_t *max = array == &files->columns || array == &files->values ? &entries : &capacity;
    const size_t rows = loader->head.kind == TRM_DATA_TOKENS ? (read + loader->stride - 1) / loader->stride : read;
    *max = rows > *max ? rows : *max;
  }
  return load_store_allocate(loader, capacity, entries);
}

int loader_read_all(struct loader *loader)
{
  struct data_split *files = &loader->files;
  struct store *store = &loader->store;
  TRM_CHECK(load_all_allocate(loader));
  /* reads by MPI-IO from here on, if available */
  hid_t file;
  TRM_CHECK(h5_open_parallel(loader->path, loader->comm, loader->threads, &file));
  const char *name = files->name;
  data_split_close(files);
  int status = data_split_open(files, &loader->head, file, loader->path, name);
  void *const to[DATA_ARRAYS] = {store->x, store->starts, store->columns, store->values, store->y};
  for (int i = 0; i < DATA_ARRAYS && status == TRM_OK; i++)
    if (to[i])
      status = load_array_read(loader, &files->array[i], load_rows_needed(loader, &files->array[i]), to[i]);
  status = trm_agree(loader->comm, status);
  loader->node->ops->barrier(loader->node);
  if (status == TRM_OK)
    status = trm_agree(loader->comm, load_all_check(loader));
  loader->node->ops->barrier(loader->node);
  data_split_close(files);
  h5_close(file);
  return status;
}

/* -- the rows of a subset */

/* csr: the entries of one row of the file. */
static int load_entries_count(struct loader *loader, uint64_t row, size_t *entries)
{
  int64_t start[2];
  TRM_CHECK(data_array_read(&loader->files.starts, row, 2, start));
  TRM_CHECK(loader_starts_check(loader, start, 1, row));
  *entries += (size_t)(start[1] - start[0]);
  return TRM_OK;
}

/* csr: where the entries of rows [low, high) begin among those of the subset, and how many there are in all. */
static int load_entries_place(struct loader *loader, uint64_t low, uint64_t high, size_t *first, size_t *all)
{
  struct trm_comm *node = loader->node;
  size_t entries = 0;
  int status = TRM_OK;
  for (uint64_t n = low; n < high && status == TRM_OK; n++)
    status = load_entries_count(loader, loader_file_row(loader, n), &entries);
  TRM_CHECK(trm_agree(loader->comm, status));
  size_t *of_rank = trm_alloc((size_t)node->size * sizeof *of_rank, "the data set's index");
  node->ops->allgather(node, &entries, of_rank, sizeof entries, TRM_BYTE);
  *first = *all = 0;
  for (int rank = 0; rank < node->size; rank++) {
    *first += rank < node->rank ? of_rank[rank] : 0;
    *all += of_rank[rank];
  }
  trm_free(of_rank);
  return TRM_OK;
}

/* Reads rows [low, high) of the subset into the store, csr entries from `entry` on. */
static int load_rows_gather(struct loader *loader, uint64_t low, uint64_t high, size_t entry)
{
  const struct store *store = &loader->store;
  for (uint64_t n = low; n < high; n++) {
    int64_t start[2] = {0}; /* the store's is written by one rank alone */
    struct store row = *store;
    row.x = store->x ? store->x + n * loader->row_bytes : NULL;
    row.y = store->y ? store->y + n * loader->y_bytes : NULL;
    row.starts = start;
    TRM_CHECK(loader_read(loader, loader_file_row(loader, n), 1, &row, 0, entry));
    entry = (size_t)start[1];
    if (store->starts)
      store->starts[n + 1] = start[1];
  }
  return TRM_OK;
}

int loader_gather(struct loader *loader)
{
  struct trm_comm *node = loader->node;
  size_t low, high, entry = 0, entries = 0;
  trm_interval(loader->rows, (size_t)node->size, (size_t)node->rank, &low, &high);
  if (loader->head.kind == TRM_DATA_CSR)
    TRM_CHECK(load_entries_place(loader, low, high, &entry, &entries));
  TRM_CHECK(load_store_allocate(loader, loader->rows, entries));
  if (loader->store.starts)
    loader->store.starts[0] = 0;
  const int status = trm_agree(loader->comm, load_rows_gather(loader, low, high, entry));
  row_subset_free(&loader->subset);
  node->ops->barrier(node);
  return status;
}
