/* The data set contract over HDF5: opening, storing and fetching a split. */
#include <stdio.h>
#include <string.h>

#include "core/context.h"
#include "core/ledger.h"
#include "core/memory.h"
#include "core/signature.h"
#include "core/status.h"
#include "datasets.h"
#include "loader.h"
#include "nn/model.h"

/* -- opening */

/* In evaluations rows do not overlap: each token is predicted once. */
static void loader_context_choose(struct loader *loader, bool trains, const struct trm_options *options)
{
  loader->context = (size_t)options->data.context;
  if (loader->context == 0)
    loader->context = trm_model_context(options->model);
  if (loader->context == 0)
    loader->context = 128;
  const bool overlaps = trains && options->data.stride > 0;
  loader->stride = overlaps ? (size_t)options->data.stride : loader->context;
  if (loader->stride > loader->context)
    loader->stride = loader->context;
}

/* Selects the validation rows of data.validation, or the remaining training rows. */
static int loader_subset_choose(struct loader *loader, bool validation, double fraction, uint64_t seed)
{
  const struct validation_cut cut = {.seed = seed, .rows = loader->file_rows, .fraction = fraction,
                                     .context = loader->context, .stride = loader->stride};
  const uint64_t windows = validation_windows(&cut);
  if (windows > 1)
    validation_subset(&cut, validation, &loader->subset);
  if (windows < 2 || loader->subset.count == 0)
    return trm_error(TRM_USAGE, "data.validation: the train split of %s is too small to be cut", loader->path);
  loader->rows = loader->subset.count;
  if (validation) {
    loader->file_rows = windows;
    loader->stride = loader->context;
  }
  return TRM_OK;
}

/* fraction: of the training split, which data.validation cuts. */
static int loader_sizes_compute(struct loader *loader, enum trm_split split, const struct trm_options *options,
                                double fraction)
{
  const struct data_head *head = &loader->head;
  const struct data_split *files = &loader->files;
  const bool trains = split == TRM_SPLIT_TRAIN || fraction > 0;
  const int64_t limit = trains ? options->data.limit : split == TRM_SPLIT_TEST ? options->data.limit_test : 0;
  loader->context = loader->stride = 1;
  loader->file_rows = files->rows;
  if (head->kind == TRM_DATA_TOKENS) {
    loader_context_choose(loader, trains, options);
    loader->token_bytes = (double)files->text_bytes / (double)(files->rows ? files->rows : 1);
    if (files->rows < loader->context + 1)
      return trm_error(TRM_USAGE, "%s: the %s split has %llu tokens, but a row of data.context=%zu and its targets "
                       "need %zu", loader->path, files->name, (unsigned long long)files->rows, loader->context,
                       loader->context + 1);
    loader->file_rows = (files->rows - loader->context - 1) / loader->stride + 1;
  }
  if (loader->file_rows == 0)
    return trm_error(TRM_FAILED, "%s: the %s split has no rows", loader->path, files->name);
  if (limit && (uint64_t)limit < loader->file_rows)
    loader->file_rows = (uint64_t)limit;
  if (head->kind == TRM_DATA_CSR) {
    int64_t end;
    TRM_CHECK(data_array_read(&loader->files.starts, loader->file_rows, 1, &end));
    TRM_CHECK(loader_starts_check(loader, &end, 0, loader->file_rows));
    loader->entries = (uint64_t)end;
  }
  loader->rows = loader->file_rows;
  if (fraction > 0)
    TRM_CHECK(loader_subset_choose(loader, split == TRM_SPLIT_VALIDATION, fraction, (uint64_t)options->run.seed));
  loader->spacing = loader->stride;
  loader->x_type = head->kind == TRM_DATA_CSR ? BLOCK_FLOAT : files->x.type;
  loader->row_bytes = head->kind == TRM_DATA_CSR ? 0 : files->x.row_bytes * loader->spacing;
  loader->y_bytes = head->kind == TRM_DATA_TOKENS ? 0 : files->y.row_bytes;
  return TRM_OK;
}

/* For stores of rows that are not consecutive in the file: each row of tokens has its own last target. */
static void loader_gather_prepare(struct loader *loader)
{
  loader->gathered = true;
  if (loader->head.kind != TRM_DATA_TOKENS)
    return;
  loader->spacing = loader->context + 1;
  loader->row_bytes = loader->spacing * block_type_bytes(loader->x_type);
}

/* Chooses where the split is stored, and with it the order, by the rows, their size, the memory and the batch only. */
static void loader_mode_choose(struct loader *loader, enum trm_split split, const struct trm_options *options)
{
  const bool csr = loader->head.kind == TRM_DATA_CSR;
  const uint64_t entry_bytes = sizeof(int32_t) + sizeof(float);
  const uint64_t csr_bytes = csr ? loader->entries * entry_bytes + loader->file_rows * sizeof(int64_t) : 0;
  const uint64_t row_bytes = csr ? (csr_bytes + loader->file_rows - 1) / loader->file_rows : loader->row_bytes;
  const uint64_t all_bytes = (csr ? csr_bytes : loader->file_rows * row_bytes) + loader->file_rows * loader->y_bytes;
  const uint64_t memory = (uint64_t)options->data.memory, batch = (uint64_t)options->train.batch;
  const bool trains = split == TRM_SPLIT_TRAIN, cut = loader->subset.bits;
  const uint64_t bytes = cut && !trains ? loader->rows * (row_bytes + loader->y_bytes) : all_bytes;
  const bool shuffle = trains && options->data.shuffle; /* evaluations use file order */
  /* blocks of the rows that remain do not begin where the file's blocks do: larger ones cost fewer reads twice */
  const size_t rows_per_block = block_rows(row_bytes) * (cut && memory >= 64 * BLOCK_BYTES ? 4 : 1);
  const uint64_t block_bytes = rows_per_block * (row_bytes + loader->y_bytes);
  uint64_t window = memory / 2 / (cut ? block_bytes * loader->file_rows / loader->rows + 1 : block_bytes);
  /* a batch must not span more than two windows, even if one of them has the short block */
  const uint64_t min_window = (batch + rows_per_block - 1) / rows_per_block + 1;
  window = window > min_window ? window : min_window;
  const uint64_t blocks = (loader->rows + rows_per_block - 1) / rows_per_block;
  loader->mode = bytes <= memory || (shuffle && window >= blocks) ? LOADER_IN_MEMORY
                 : shuffle                                        ? LOADER_SHUFFLE_WINDOWS
                                                                  : LOADER_DIRECT;
  if (cut && !trains && loader->mode == LOADER_IN_MEMORY)
    loader_gather_prepare(loader);
  order_init(&loader->order, (uint64_t)options->run.seed, shuffle, loader->rows, rows_per_block,
             loader->mode == LOADER_SHUFFLE_WINDOWS ? window : blocks);
}

/* The first entry of each block, csr: each rank of the node reads a part of the starts. Collective. */
static int loader_block_starts_read(struct loader *loader)
{
  struct trm_comm *node = loader->node;
  const struct order *order = &loader->order;
  const size_t bytes = (order->blocks + 1) * sizeof(int64_t);
  TRM_CHECK(trm_agree(loader->comm, node->ops->share(node, node->rank == 0 ? bytes : 0, TRM_MEMORY_DATA,
                                                     &loader->shared_starts)));
  loader->block_starts = loader->shared_starts.base[0];
  size_t low, high;
  trm_interval(order->blocks, (size_t)node->size, (size_t)node->rank, &low, &high);
  int status = TRM_OK;
  for (uint64_t block = low; block < high && status == TRM_OK; block++) {
    size_t rows;
    const uint64_t first = loader_file_range(loader, block * order->block_rows, order_block_size(order, block), &rows);
    int64_t *start = trm_alloc((rows + 1) * sizeof *start, "the data set's index");
    status = data_array_read(&loader->files.starts, first, rows + 1, start);
    if (status == TRM_OK)
      status = loader_starts_check(loader, start, rows, first);
    loader->block_starts[block] = start[0];
    if (block + 1 == order->blocks)
      loader->block_starts[order->blocks] = start[rows];
    trm_free(start);
  }
  status = trm_agree(loader->comm, status);
  node->ops->barrier(node);
  return status;
}

static void loader_base_fill(struct loader *loader)
{
  struct trm_dataset *base = &loader->base;
  const struct data_head *head = &loader->head;
  base->rows = loader->rows;
  base->streamed = loader->mode == LOADER_SHUFFLE_WINDOWS;
  base->path = loader->path;
  base->digest = head->digest;
  base->class_names = head->class_names;
  base->encoding = head->encoding;
  base->token_bytes = loader->token_bytes;
  base->spec = (struct trm_input_spec){
    .shape = head->shape, .sparse = head->kind == TRM_DATA_CSR, .tokens = head->kind == TRM_DATA_TOKENS,
    .target = head->target, .classes = head->classes,
  };
  if (base->spec.tokens) {
    base->spec.shape = (struct trm_shape){.dims = 1, .size = {loader->context}};
    base->spec.classes = head->vocabulary;
  }
}

static void loader_files_close(struct loader *loader)
{
  data_split_close(&loader->files);
  h5_close(loader->file);
  loader->file = -1;
}

static int loader_file_open(struct loader *loader, enum trm_split split, const struct trm_options *options)
{
  double fraction;
  const char *file;
  TRM_CHECK(trm_validation_option(options, &fraction, &file));
  TRM_CHECK(h5_open(loader->path, H5_DATASET, NULL, &loader->file));
  TRM_CHECK(data_head_read(&loader->head, loader->file, loader->path));
  fraction = split == TRM_SPLIT_TEST ? 0 : fraction;
  enum trm_split from = split == TRM_SPLIT_VALIDATION && fraction > 0 ? TRM_SPLIT_TRAIN : split;
  if (from == TRM_SPLIT_VALIDATION && !h5_exists(loader->file, trm_split_name(from)))
    from = h5_exists(loader->file, trm_split_name(TRM_SPLIT_TEST)) ? TRM_SPLIT_TEST : TRM_SPLIT_TRAIN;
  TRM_CHECK(data_split_open(&loader->files, &loader->head, loader->file, loader->path, trm_split_name(from)));
  TRM_CHECK(loader_sizes_compute(loader, split, options, fraction));
  return augment_configure(loader, split, options);
}

static void loader_close(struct trm_dataset *dataset);

/* The first rank frees what all have read. */
static void loader_close_copy(struct loader *loader)
{
  struct trm_comm *process = loader->node;
  struct loader *original = process->rank == 0 ? loader->original : NULL;
  process->ops->barrier(process);
  process->ops->release(process);
  trm_free(loader);
  if (original)
    loader_close(&original->base);
}

static void loader_close(struct trm_dataset *dataset)
{
  struct loader *loader = dataset->impl;
  if (loader->original) {
    loader_close_copy(loader);
    return;
  }
  struct trm_comm *node = loader->node;
  shuffle_windows_close(loader);
  loader_files_close(loader);
  if (node) {
    node->ops->barrier(node);
    if (loader->shared.base)
      node->ops->unshare(node, &loader->shared);
    if (loader->shared_starts.base)
      node->ops->unshare(node, &loader->shared_starts);
    node->ops->release(node);
  }
  trm_free(loader->direct_memory);
  row_subset_free(&loader->subset);
  class_balance_free(&loader->balance);
  data_head_free(&loader->head);
  trm_free(loader->path);
  trm_free(loader);
}

/* The ranks that share the data set's memory: those of this process if there are several, else those of the domain. */
static struct trm_comm *loader_sharing(struct trm_comm *comm, enum trm_share domain)
{
  struct trm_comm *process = comm->ops->split_node(comm, TRM_SHARE_PROCESS);
  if (process->size > 1 || domain == TRM_SHARE_NONE)
    return process;
  process->ops->release(process);
  return comm->ops->split_node(comm, domain);
}

static int loader_open_own(struct trm_dataset **dataset, const char *path, enum trm_split split,
                           const struct trm_options *options, struct trm_comm *comm)
{
  struct loader *loader = trm_alloc(sizeof *loader, "the data set");
  *dataset = NULL;
  loader->base.ops = &trm_dataset_hdf5;
  loader->base.impl = loader;
  loader->path = trm_strdup(path);
  loader->comm = comm;
  loader->file = -1;
  loader->labels = options->train.loss == TRM_LOSS_BINARY_CROSS_ENTROPY;
  int status = trm_agree(comm, comm->rank == 0 ? signature_verify(path) : TRM_OK);
  if (status == TRM_OK)
    status = trm_agree(comm, loader_file_open(loader, split, options));
  if (status == TRM_OK) {
    loader_mode_choose(loader, split, options);
    loader->node = loader_sharing(comm, options->parallel.share);
    loader->threads = trm_rank_current()->threads;
    if (loader->head.kind == TRM_DATA_CSR && loader->mode != LOADER_IN_MEMORY)
      status = loader_block_starts_read(loader);
  }
  if (status == TRM_OK && loader->mode == LOADER_IN_MEMORY)
    status = loader->gathered ? loader_gather(loader) : loader_read_all(loader);
  else if (status == TRM_OK && loader->mode == LOADER_SHUFFLE_WINDOWS)
    status = shuffle_windows_open(loader, (int)options->data.threads);
  if (status == TRM_OK)
    status = trm_agree(comm, class_balance_open(loader, split, options));
  if (status == TRM_OK && loader->mode == LOADER_IN_MEMORY)
    loader_files_close(loader);
  loader_base_fill(loader);
  if (status == TRM_OK)
    *dataset = &loader->base;
  else
    loader_close(&loader->base);
  return status;
}

/* Many ranks in one process: the first one opens a data set that fits in memory, and the others read its memory. */
static int loader_open(struct trm_dataset **dataset, const char *path, enum trm_split split,
                       const struct trm_options *options, struct trm_comm *comm)
{
  struct trm_comm *process = comm->ops->split_node(comm, TRM_SHARE_PROCESS);
  struct trm_dataset *first = NULL;
  int status = TRM_OK;
  *dataset = NULL;
  if (process->size > 1 && process->rank == 0)
    status = loader_open_own(&first, path, split, options, trm_comm_self());
  status = trm_agree(comm, status);
  struct loader *original = first ? first->impl : NULL;
  process->ops->broadcast(process, &original, sizeof original, TRM_BYTE, 0);
  const bool copies = status == TRM_OK && original && original->mode == LOADER_IN_MEMORY;
  process->ops->barrier(process);
  if (!copies) {
    if (first)
      loader_close(first);
    process->ops->release(process);
    return status == TRM_OK ? loader_open_own(dataset, path, split, options, comm) : status;
  }
  struct loader *loader = trm_alloc(sizeof *loader, "the data set");
  *loader = *original;
  loader->base.impl = loader;
  loader->original = original;
  loader->order_epoch = (struct order_epoch){0};
  loader->comm = comm;
  loader->node = process;
  loader->threads = 1;
  *dataset = &loader->base;
  return TRM_OK;
}

/* -- fetching */

/* Reads rows [low, high) into the direct store, as whole blocks. */
static int loader_direct_read(struct loader *loader, uint64_t low, uint64_t high)
{
  const struct order *order = &loader->order;
  if (low >= loader->direct_first && high <= loader->direct_first + loader->direct_rows)
    return TRM_OK;
  const uint64_t from = low / order->block_rows, to = (high + order->block_rows - 1) / order->block_rows;
  const uint64_t first = from * order->block_rows, end = to * order->block_rows;
  const size_t direct_rows = (size_t)((end < loader->rows ? end : loader->rows) - first);
  size_t rows;
  const uint64_t file_first = loader_file_range(loader, first, direct_rows, &rows);
  const size_t entries = loader->block_starts ? (size_t)(loader->block_starts[to] - loader->block_starts[from]) : 0;
  loader->direct_rows = 0;
  const size_t bytes = store_layout(loader, &loader->store, NULL, 1, rows, entries);
  if (bytes > loader->direct_capacity) {
    trm_free(loader->direct_memory);
    loader->direct_capacity = bytes + bytes / 4;
    loader->direct_memory = trm_alloc(loader->direct_capacity, "rows of the data set");
  }
  store_layout(loader, &loader->store, loader->direct_memory, 1, rows, entries);
  const enum trm_ledger_operation before = trm_ledger_enter(&(struct trm_ledger_call){.operation = TRM_LEDGER_READ});
  const int status = loader_read(loader, file_first, rows, &loader->store, 0, 0);
  trm_ledger_leave(before);
  TRM_CHECK(status);
  loader->direct_first = first;
  loader->direct_rows = direct_rows;
  return TRM_OK;
}

static int loader_fetch(struct trm_dataset *dataset, uint64_t epoch, size_t low, size_t high,
                        struct trm_host_batch *batch)
{
  struct loader *loader = dataset->impl;
  if (low > high || high > loader->rows)
    return trm_error(TRM_FAILED, "%s: rows %zu to %zu of %llu were asked for", loader->path, low, high,
                     (unsigned long long)loader->rows);
  batch->rows = 0;
  batch->weighted = false;
  loader->epoch = epoch;
  if (loader->mode == LOADER_SHUFFLE_WINDOWS) {
    const enum trm_ledger_operation before =
      trm_ledger_enter(&(struct trm_ledger_call){.operation = TRM_LEDGER_READ});
    const int status = shuffle_windows_fetch(loader, epoch, low, high, batch);
    trm_ledger_leave(before);
    return status;
  }
  order_epoch_enter(&loader->order, &loader->order_epoch, epoch);
  if (low == high)
    return TRM_OK;
  const bool direct = loader->mode == LOADER_DIRECT;
  if (direct)
    TRM_CHECK(loader_direct_read(loader, low, high));
  loader_collate(loader, &loader->store, direct ? NULL : &loader->order_epoch, 0, low, high, batch);
  if (loader->balance.weight)
    class_balance_weigh(loader, epoch, low, high, batch);
  return TRM_OK;
}

static int loader_fetch_rows(struct trm_dataset *dataset, uint64_t epoch, size_t low, size_t high,
                             struct trm_host_batch *batch, struct trm_sparse_row *row)
{
  struct loader *loader = dataset->impl;
  if (loader->head.kind != TRM_DATA_CSR)
    return trm_error(TRM_USAGE, "%s: its rows are not sparse", loader->path);
  if (loader->mode == LOADER_IN_MEMORY && low < high && high <= loader->rows) {
    batch->rows = 0;
    loader->epoch = epoch;
    order_epoch_enter(&loader->order, &loader->order_epoch, epoch);
    loader_sparse_rows(loader, low, high, batch, row);
    return TRM_OK;
  }
  TRM_CHECK(loader_fetch(dataset, epoch, low, high, batch));
  for (size_t i = 0; i < batch->rows; i++) {
    const int64_t start = batch->starts[i], end = batch->starts[i + 1];
    row[i] = (struct trm_sparse_row){batch->columns + start, batch->values + start, (size_t)(end - start)};
  }
  return TRM_OK;
}

static int loader_has_split(const char *path, enum trm_split split, bool *has)
{
  hid_t file;
  TRM_CHECK(h5_open(path, H5_DATASET, NULL, &file));
  *has = h5_exists(file, trm_split_name(split));
  h5_close(file);
  return TRM_OK;
}

int trm_data_digest(const char *path, char digest[65])
{
  struct data_head head;
  hid_t file;
  TRM_CHECK(h5_open(path, H5_DATASET, NULL, &file));
  const int status = data_head_read(&head, file, path);
  h5_close(file);
  TRM_CHECK(status);
  snprintf(digest, 65, "%s", head.digest ? head.digest : "");
  data_head_free(&head);
  return TRM_OK;
}

const struct trm_dataset_ops trm_dataset_hdf5 = {
  .name = "hdf5",
  .open = loader_open,
  .fetch = loader_fetch,
  .fetch_rows = loader_fetch_rows,
  .close = loader_close,
  .has_split = loader_has_split,
};
