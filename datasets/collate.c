/* Collation of batches: copies rows of a store to a batch, as floats. */
#include <string.h>

#include "core/memory.h"
#include "core/parallel.h"
#include "loader.h"

/* Rows, and bytes per row, that are prefetched: shuffled rows are far apart, so hardware does not prefetch them. */
#define PREFETCH_ROWS 16
#define PREFETCH_BYTES ((size_t)1024)

static void collate_prefetch(const unsigned char *from, size_t bytes)
{
  for (size_t at = 0; at < bytes && at < PREFETCH_BYTES; at += 64)
    __builtin_prefetch(from + at);
}

/* Maximum number of rows that are looked up together. */
#define LOOKUP_ROWS 64

/* Minimum bytes per thread: starting and joining a thread costs some microseconds. */
#define MIN_THREAD_BYTES ((size_t)1 << 20)

static int collate_threads(const struct loader *loader, size_t bytes)
{
  const size_t useful = bytes / MIN_THREAD_BYTES;
  return useful < 1 ? 1 : useful < (size_t)loader->threads ? (int)useful : loader->threads;
}

/* Grows an array of a batch to n elements; keeps the first `used`. */
#define GROW(batch, array, capacity, used, n) \
  (batch)->array = trm_grow((batch)->array, &(batch)->capacity, used, n, sizeof *(batch)->array, "a batch: " #array)

/* Location of rows in a store. */
struct source {
  const struct loader *loader;
  const struct store *store;
  const struct order_epoch *at; /* NULL: the store's block 0 holds the rows of the file from `base` on, in order */
  uint64_t window, base;
};

void loader_rows_at(const struct loader *loader, const struct order_epoch *at, uint64_t position, size_t count,
                    uint64_t *row)
{
  if (!loader->balance.row) {
    order_row_indices(&loader->order, at, 0, position, count, row);
    return;
  }
  for (size_t i = 0; i < count; i++)
    row[i] = class_balance_row(loader, at->epoch, position + i);
}

/* Of `count` <= LOOKUP_ROWS rows from `position` on: block and place in it. */
static void collate_rows_find(const struct source *from, uint64_t position, size_t count, size_t *k, size_t *row)
{
  const struct loader *loader = from->loader;
  uint64_t index[LOOKUP_ROWS];
  if (from->at && loader->mode == LOADER_IN_MEMORY)
    loader_rows_at(loader, from->at, position, count, index);
  else if (from->at)
    order_row_indices(&loader->order, from->at, from->window, position, count, index);
  for (size_t i = 0; i < count; i++) {
    if (!from->at) {
      k[i] = 0;
      row[i] = (size_t)(loader_file_row(loader, position + i) - from->base);
    } else if (loader->mode == LOADER_IN_MEMORY) { /* one block in memory */
      k[i] = 0;
      row[i] = (size_t)loader_file_row(loader, index[i]);
    } else {
      k[i] = (size_t)(index[i] / loader->order.block_rows);
      row[i] = (size_t)(index[i] % loader->order.block_rows);
      if (loader->subset.bits) { /* the block in memory contains the excluded rows, too */
        const uint64_t first = order_block(&loader->order, from->at, from->window, k[i]) * loader->order.block_rows;
        row[i] = (size_t)(loader_file_row(loader, first + row[i]) - loader_file_row(loader, first));
      }
    }
  }
}

/* Grows the targets of a batch to `rows` rows. */
static void collate_targets_grow(const struct loader *loader, struct trm_host_batch *batch, size_t rows)
{
  if (loader->head.target == TRM_TARGET_CLASS)
    GROW(batch, target_class, class_capacity, batch->rows, rows);
  else
    GROW(batch, target_value, value_capacity, batch->rows * loader->head.classes, rows * loader->head.classes);
}

static void collate_target(const struct loader *loader, const struct store *store, size_t at, size_t row,
                           struct trm_host_batch *batch)
{
  const unsigned char *y = store->y + at * loader->y_bytes;
  if (loader->head.target == TRM_TARGET_CLASS)
    memcpy(batch->target_class + row, y, sizeof(int32_t));
  else
    memcpy(batch->target_value + row * loader->head.classes, y, loader->y_bytes);
}

static const unsigned char *collate_row_x(const struct loader *loader, const struct store *store, size_t k, size_t row)
{
  return store->x + k * loader_block_bytes(loader, store->capacity) + row * loader->row_bytes;
}

static void collate_dense(const struct loader *loader, const struct store *store, uint64_t position, size_t k,
                          size_t row, size_t to, struct trm_host_batch *batch)
{
  const unsigned char *x = collate_row_x(loader, store, k, row);
  const size_t width = loader->row_bytes / block_type_bytes(loader->x_type);
  if (loader->augment.enabled)
    augment_row(loader, position, x, batch->dense + to * width);
  else
    loader_to_float(loader, batch->dense + to * width, x, width);
  collate_target(loader, store, k * store->capacity + row, to, batch);
}

/* Copies a row of x (context + 1) tokens; the last one is only a target. */
static void collate_tokens(const struct loader *loader, const unsigned char *x, size_t to, struct trm_host_batch *batch)
{
  const size_t context = loader->context;
  int32_t *token = batch->tokens + to * context, *next = batch->target_class + to * context;
  for (size_t t = 0; t < context; t++) {
    token[t] = loader->x_type == BLOCK_UINT16 ? ((const uint16_t *)x)[t] : ((const int32_t *)x)[t];
    next[t] = loader->x_type == BLOCK_UINT16 ? ((const uint16_t *)x)[t + 1] : ((const int32_t *)x)[t + 1];
  }
}

/* Finds the place of each row in the starts of the store, and copies the targets to the batch. */
static void collate_csr_find(const struct source *from, uint64_t low, size_t rows, size_t *place,
                             struct trm_host_batch *batch)
{
  const struct store *store = from->store;
  for (size_t i = 0, step; i < rows; i += step) {
    size_t k[LOOKUP_ROWS], row[LOOKUP_ROWS];
    step = rows - i < LOOKUP_ROWS ? rows - i : LOOKUP_ROWS;
    collate_rows_find(from, low + i, step, k, row);
    for (size_t n = 0; n < step; n++) {
      place[i + n] = k[n] * (store->capacity + 1) + row[n];
      __builtin_prefetch(store->starts + place[i + n]);
      __builtin_prefetch(store->y + (k[n] * store->capacity + row[n]) * from->loader->y_bytes);
    }
    for (size_t n = 0; n < step; n++)
      collate_target(from->loader, store, k[n] * store->capacity + row[n], batch->rows + i + n, batch);
  }
}

/* Rows that are copied. */
struct csr_copies {
  const struct store *store;
  struct trm_host_batch *batch;
  const size_t *row; /* in the store */
  size_t before;     /* rows of the batch */
};

static void collate_csr_body(const void *context, size_t low, size_t high)
{
  const struct csr_copies *it = context;
  const struct trm_host_batch *batch = it->batch;
  for (size_t i = low; i < high; i++) {
    const size_t n = it->before + i, to = (size_t)batch->starts[n], count = (size_t)batch->starts[n + 1] - to;
    const int64_t start = it->store->starts[it->row[i]];
    memcpy(batch->columns + to, it->store->columns + start, count * sizeof *batch->columns);
    memcpy(batch->values + to, it->store->values + start, count * sizeof *batch->values);
  }
}

static void collate_csr(const struct source *from, uint64_t low, size_t rows, struct trm_host_batch *batch)
{
  const struct store *store = from->store;
  const size_t before = batch->rows;
  GROW(batch, starts, starts_capacity, before ? before + 1 : 0, before + rows + 1);
  if (before == 0)
    batch->starts[0] = 0;
  size_t *source = trm_alloc((rows + 1) * sizeof *source, "a batch: its rows");
  collate_csr_find(from, low, rows, source, batch);
  for (size_t i = 0; i < rows; i++)
    batch->starts[before + i + 1] = batch->starts[before + i] + store->starts[source[i] + 1] - store->starts[source[i]];
  const size_t old = (size_t)batch->starts[before], entries = (size_t)batch->starts[before + rows];
  size_t values_capacity = batch->entries_capacity; /* columns and values grow together */
  GROW(batch, columns, entries_capacity, old, entries + 1); /* not NULL, even if rows have no entries */
  batch->values = trm_grow(batch->values, &values_capacity, old, entries + 1, sizeof *batch->values, "a batch: values");
  trm_parallel_for(collate_threads(from->loader, (entries - old) * (sizeof(int32_t) + sizeof(float))), rows,
                   collate_csr_body, &(struct csr_copies){store, batch, source, before});
  trm_free(source);
}

/* Rows low to low + rows of an epoch's order, `before` rows of the batch before them. */
struct row_copies {
  const struct source *from;
  uint64_t low;
  size_t rows, before;
  struct trm_host_batch *batch;
};

/* Intervals are of groups of PREFETCH_ROWS rows. */
static void collate_rows_body(const void *context, size_t first, size_t last)
{
  const struct row_copies *it = context;
  const struct loader *loader = it->from->loader;
  const struct store *store = it->from->store;
  for (size_t i = first * PREFETCH_ROWS; i < it->rows && i < last * PREFETCH_ROWS; i += PREFETCH_ROWS) {
    size_t k[PREFETCH_ROWS], row[PREFETCH_ROWS];
    const size_t some = it->rows - i < PREFETCH_ROWS ? it->rows - i : PREFETCH_ROWS;
    collate_rows_find(it->from, it->low + i, some, k, row);
    for (size_t n = 0; n < some; n++)
      collate_prefetch(collate_row_x(loader, store, k[n], row[n]), loader->row_bytes);
    for (size_t n = 0; n < some; n++)
      if (loader->head.kind == TRM_DATA_TOKENS)
        collate_tokens(loader, collate_row_x(loader, store, k[n], row[n]), it->before + i + n, it->batch);
      else
        collate_dense(loader, store, it->low + i + n, k[n], row[n], it->before + i + n, it->batch);
  }
}

static void collate_rows(const struct source *from, uint64_t low, uint64_t high, struct trm_host_batch *batch)
{
  const struct loader *loader = from->loader;
  const size_t rows = (size_t)(high - low), before = batch->rows, all = before + rows;
  const bool tokens = loader->head.kind == TRM_DATA_TOKENS;
  const size_t width = loader->row_bytes / block_type_bytes(loader->x_type);
  if (tokens) {
    GROW(batch, tokens, tokens_capacity, before * loader->context, all * loader->context);
    GROW(batch, target_class, class_capacity, before * loader->context, all * loader->context);
  } else {
    collate_targets_grow(loader, batch, all);
  }
  if (loader->head.kind == TRM_DATA_CSR) {
    collate_csr(from, low, rows, batch);
    batch->rows = all;
    return;
  }
  if (!tokens)
    GROW(batch, dense, dense_capacity, before * width, all * width);
  trm_parallel_for(collate_threads(loader, rows * width * sizeof(float)), (rows + PREFETCH_ROWS - 1) / PREFETCH_ROWS,
                   collate_rows_body, &(struct row_copies){from, low, rows, before, batch});
  batch->rows = all;
}

void loader_collate(const struct loader *loader, const struct store *store, const struct order_epoch *at,
                    uint64_t window, uint64_t low, uint64_t high, struct trm_host_batch *batch)
{
  const struct source from = {.loader = loader, .store = store, .at = at, .window = window,
                              .base = at ? 0 : loader_file_row(loader, loader->direct_first)};
  collate_rows(&from, low, high, batch);
}

void loader_sparse_rows(const struct loader *loader, uint64_t low, uint64_t high, struct trm_host_batch *batch,
                        struct trm_sparse_row *row)
{
  const struct store *store = &loader->store;
  const struct source from = {.loader = loader, .store = store, .at = &loader->order_epoch};
  const size_t rows = (size_t)(high - low);
  collate_targets_grow(loader, batch, rows);
  for (size_t i = 0, step; i < rows; i += step) {
    size_t place[LOOKUP_ROWS];
    step = rows - i < LOOKUP_ROWS ? rows - i : LOOKUP_ROWS;
    collate_csr_find(&from, low + i, step, place, batch);
    for (size_t n = 0; n < step; n++) {
      const int64_t start = store->starts[place[n]], end = store->starts[place[n] + 1];
      row[i + n] = (struct trm_sparse_row){store->columns + start, store->values + start, (size_t)(end - start)};
    }
    batch->rows += step;
  }
}
