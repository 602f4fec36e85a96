/* Shuffle windows (shuffle_windows.h): the sequence, reading ahead, fetching from windows that ranks keep until their
 * next fetch. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/context.h"
#include "core/memory.h"
#include "core/status.h"
#include "shuffle_windows.h"

#define WAIT_S 50e-6          /* between two looks of a rank that waits for blocks */
#define SLEEP_BUSY_NS 50000L  /* the same, of a rank and its reader for each other */
#define SLEEP_IDLE_NS 500000L /* the reader waits for a free slot */

/* A rank waits for others; on a virtual network in virtual time. */
static void shuffle_wait(const struct loader *loader)
{
  struct trm_comm *node = loader->node;
  node->ops->sleep_until(node, node->ops->clock(node) + WAIT_S, false);
}

static void shuffle_sleep(long nanoseconds)
{
  const struct timespec time = {.tv_nsec = nanoseconds};
  nanosleep(&time, NULL);
}

/* -- failure */

/* Reports an error to all ranks of the node. The first error counts. */
static int shuffle_fail(struct loader *loader, int status)
{
  struct shuffle_control *control = loader->windows->control;
  int none = 0;
  if (atomic_compare_exchange_strong(&control->failed, &none, 1)) {
    control->rank = loader->comm->rank;
    strncpy(control->message, trm_error_text(), sizeof control->message - 1);
    atomic_store(&control->failed, 2);
  }
  return status;
}

static int shuffle_failure_check(struct loader *loader)
{
  struct shuffle_control *control = loader->windows->control;
  if (atomic_load(&control->failed) == 0)
    return TRM_OK;
  while (atomic_load(&control->failed) == 1)
    shuffle_wait(loader);
  if (loader->comm->size > 1)
    return trm_error(TRM_FAILED, "rank %d could not read: %s", control->rank, control->message);
  return trm_error(TRM_FAILED, "%s", control->message);
}

/* -- the sequence */

static void shuffle_sequence_at(const struct loader *loader, uint64_t s, uint64_t *epoch, uint64_t *window)
{
  const struct shuffle_control *control = loader->windows->control;
  const uint64_t number = atomic_load(&control->base_window) + s;
  *epoch = atomic_load(&control->base_epoch) + number / loader->order.windows;
  *window = number % loader->order.windows;
}

static size_t shuffle_sequence_blocks(const struct loader *loader, uint64_t s)
{
  uint64_t epoch, window;
  shuffle_sequence_at(loader, s, &epoch, &window);
  return order_window_blocks(&loader->order, window);
}

/* Adds to the progress of s; the rank that completes it passes the slot on. */
static void shuffle_progress_add(struct loader *loader, uint64_t s, uint64_t increment)
{
  struct shuffle_control *control = loader->windows->control;
  const uint64_t complete = (uint64_t)loader->node->size << 32 | shuffle_sequence_blocks(loader, s);
  if (atomic_fetch_add(&control->progress[s % SHUFFLE_SLOTS], increment) + increment != complete)
    return;
  atomic_store(&control->progress[s % SHUFFLE_SLOTS], 0);
  atomic_store(&control->ticket[s % SHUFFLE_SLOTS], (s + SHUFFLE_SLOTS) << 32);
}

bool shuffle_is_ready(const struct loader *loader, uint64_t s)
{
  struct shuffle_control *control = loader->windows->control;
  return atomic_load(&control->ticket[s % SHUFFLE_SLOTS]) >> 32 == s &&
         (atomic_load(&control->progress[s % SHUFFLE_SLOTS]) & UINT32_MAX) == shuffle_sequence_blocks(loader, s);
}

/* -- reading */

bool shuffle_plan_make(struct loader *loader, struct window_plan *plan, uint64_t s)
{
  if (plan->valid && plan->s == s)
    return false;
  uint64_t epoch;
  shuffle_sequence_at(loader, s, &epoch, &plan->window);
  plan->valid = true;
  plan->s = s;
  plan->blocks = order_window_blocks(&loader->order, plan->window);
  order_epoch_enter(&loader->order, &plan->at, epoch);
  size_t entry = 0;
  for (size_t k = 0; k < plan->blocks && loader->block_starts; k++) {
    const uint64_t block = order_block(&loader->order, &plan->at, plan->window, k);
    plan->entry[k] = entry;
    entry += (size_t)(loader->block_starts[block + 1] - loader->block_starts[block]);
  }
  return true;
}

int shuffle_block_read(struct loader *loader, const struct window_plan *plan, struct store *store, size_t k)
{
  const uint64_t block = order_block(&loader->order, &plan->at, plan->window, k);
  size_t rows;
  const uint64_t first = loader_file_range(loader, block * loader->order.block_rows,
                                           order_block_size(&loader->order, block), &rows);
  return loader_read(loader, first, rows, store, k, loader->block_starts ? plan->entry[k] : 0);
}

/* Takes a ticket for one block and reads it. *idle: there was no block to read. */
static int shuffle_reader_step(struct loader *loader, bool *idle)
{
  struct shuffle_windows *windows = loader->windows;
  struct shuffle_control *control = windows->control;
  _Atomic uint64_t *ticket = &control->ticket[windows->next % SHUFFLE_SLOTS];
  uint64_t seen = atomic_load(ticket);
  *idle = seen >> 32 < windows->next;
  if (*idle)
    return TRM_OK;
  if (seen >> 32 > windows->next) {
    windows->next++;
    return TRM_OK;
  }
  shuffle_plan_make(loader, &windows->plan, windows->next);
  const struct window_plan *plan = &windows->plan;
  const size_t k = (size_t)(seen & UINT32_MAX);
  if (k >= plan->blocks) {
    windows->next++;
    return TRM_OK;
  }
  if (!atomic_compare_exchange_strong(ticket, &seen, seen + 1))
    return TRM_OK; /* read by another rank */
  TRM_CHECK(shuffle_block_read(loader, plan, &windows->slot[plan->s % SHUFFLE_SLOTS], k));
  shuffle_progress_add(loader, plan->s, 1);
  return TRM_OK;
}

static void *shuffle_reader_run(void *context)
{
  struct loader *loader = context;
  struct shuffle_windows *windows = loader->windows;
  while (!atomic_load(&windows->stop)) {
    if (atomic_load(&windows->pause)) {
      atomic_store(&windows->paused, true);
      shuffle_sleep(SLEEP_BUSY_NS);
      continue;
    }
    atomic_store(&windows->paused, false);
    if (atomic_load(&windows->pause)) /* requested meanwhile */
      continue;
    bool idle = true;
    if (atomic_load(&windows->control->failed) == 0) {
      const int status = shuffle_reader_step(loader, &idle);
      if (status != TRM_OK)
        shuffle_fail(loader, status);
    }
    if (idle)
      shuffle_sleep(SLEEP_IDLE_NS);
  }
  return NULL;
}

/* Pauses the thread between two blocks, or resumes it; waits until it has. */
static void shuffle_reader_pause(struct shuffle_windows *windows, bool pause)
{
  if (!windows->threaded)
    return;
  atomic_store(&windows->pause, pause);
  while (atomic_load(&windows->paused) != pause)
    shuffle_sleep(SLEEP_BUSY_NS);
}

/* -- sizes of a window */

static int shuffle_compare_sizes(const void *a, const void *b)
{
  const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return x < y ? 1 : x > y ? -1 : 0;
}

size_t shuffle_max_entries(const struct loader *loader)
{
  if (!loader->block_starts)
    return 0;
  const uint64_t blocks = loader->order.blocks;
  int64_t *size = trm_alloc(blocks * sizeof *size, "sizes of blocks");
  for (uint64_t b = 0; b < blocks; b++)
    size[b] = loader->block_starts[b + 1] - loader->block_starts[b];
  qsort(size, blocks, sizeof *size, shuffle_compare_sizes);
  size_t sum = 0;
  for (uint64_t b = 0; b < loader->order.window_blocks; b++)
    sum += (size_t)size[b];
  trm_free(size);
  return sum;
}

size_t shuffle_max_block_rows(const struct loader *loader)
{
  const struct order *order = &loader->order;
  size_t rows, max = order->block_rows;
  for (uint64_t block = 0; loader->subset.bits && block < order->blocks; block++) {
    loader_file_range(loader, block * order->block_rows, order_block_size(order, block), &rows);
    max = rows > max ? rows : max;
  }
  return max;
}

/* -- fetching */

/* Starts a new sequence. Waits for all ranks of the node. */
static int shuffle_sequence_begin(struct loader *loader, uint64_t epoch, uint64_t window)
{
  struct shuffle_windows *windows = loader->windows;
  struct shuffle_control *control = windows->control;
  const uint32_t sequences = atomic_load(&control->sequences);
  shuffle_reader_pause(windows, true);
  uint64_t requested = atomic_load(&control->requested_window), none = UINT64_MAX;
  while (window < requested && !atomic_compare_exchange_weak(&control->requested_window, &requested, window))
    ;
  int status = TRM_OK;
  if (!atomic_compare_exchange_strong(&control->requested_epoch, &none, epoch) && none != epoch)
    status = shuffle_fail(loader, trm_error(TRM_FAILED, "%s: ranks of one node fetch from epochs %llu and %llu",
                                            loader->path, (unsigned long long)epoch, (unsigned long long)none));
  if (atomic_fetch_add(&control->arrived, 1) + 1 == (uint32_t)loader->node->size) {
    /* all ranks wait, no thread reads: the last one to arrive sets the slots */
    atomic_store(&control->base_window, atomic_load(&control->requested_window));
    atomic_store(&control->base_epoch, atomic_load(&control->requested_epoch));
    atomic_store(&control->requested_window, UINT64_MAX);
    atomic_store(&control->requested_epoch, UINT64_MAX);
    for (int rank = 0; rank < loader->node->size; rank++)
      atomic_store(&control->position[rank], 0);
    for (uint64_t s = 0; s < SHUFFLE_SLOTS; s++) {
      atomic_store(&control->progress[s], 0);
      atomic_store(&control->ticket[s], s << 32);
    }
    atomic_store(&control->arrived, 0);
    atomic_store(&control->sequences, sequences + 1);
  }
  while (status == TRM_OK && atomic_load(&control->sequences) == sequences) {
    shuffle_wait(loader);
    status = shuffle_failure_check(loader);
  }
  windows->next = 0;
  windows->plan.valid = windows->own.valid = false;
  windows->started = status == TRM_OK;
  shuffle_reader_pause(windows, false);
  return status;
}

int shuffle_wait_step(struct loader *loader)
{
  bool idle = true;
  TRM_CHECK(shuffle_failure_check(loader));
  if (!loader->windows->threaded) {
    const int status = shuffle_reader_step(loader, &idle);
    if (status != TRM_OK)
      return shuffle_fail(loader, status);
  }
  if (idle)
    shuffle_wait(loader);
  return TRM_OK;
}

_Atomic uint64_t *shuffle_position(const struct loader *loader)
{
  return &loader->windows->control->position[loader->node->rank];
}

/* The windows before this one are released. */
static uint64_t shuffle_released(const struct loader *loader)
{
  return atomic_load(shuffle_position(loader)) / 2;
}

bool shuffle_release_next(struct loader *loader, _Atomic uint64_t *position, uint64_t seen)
{
  const uint64_t s = seen / 2;
  if (seen % 2 != 0 || atomic_load(&loader->windows->control->ticket[s % SHUFFLE_SLOTS]) >> 32 < s ||
      !atomic_compare_exchange_strong(position, &seen, 2 * (s + 1)))
    return false;
  shuffle_progress_add(loader, s, UINT64_C(1) << 32);
  return true;
}

/* Releases the windows before s for this rank. */
static int shuffle_release_before(struct loader *loader, uint64_t s)
{
  for (uint64_t seen; (seen = atomic_load(shuffle_position(loader))) / 2 < s;)
    if (!shuffle_release_next(loader, shuffle_position(loader), seen))
      TRM_CHECK(shuffle_wait_step(loader));
  return TRM_OK;
}

/* Finds the window in which the fetch begins; starts a new sequence if the fetch does not continue the last one, or,
 * for independent ranks, if it is of an epoch before the sequence. */
static int shuffle_sequence_find(struct loader *loader, uint64_t epoch, uint64_t low, uint64_t window, uint64_t *s)
{
  struct shuffle_windows *windows = loader->windows;
  const struct shuffle_control *control = windows->control;
  const bool independent = loader->base.independent, next = epoch == windows->epoch + 1;
  if (windows->started && (independent ? epoch >= atomic_load(&control->base_epoch)
                                       : (epoch == windows->epoch && low >= windows->last_low) || next)) {
    *s = (epoch - atomic_load(&control->base_epoch)) * loader->order.windows + window -
         atomic_load(&control->base_window);
    if (independent || *s >= shuffle_released(loader))
      return TRM_OK;
  }
  TRM_CHECK(shuffle_sequence_begin(loader, epoch, window));
  *s = window - atomic_load(&control->base_window);
  return TRM_OK;
}

static int shuffle_fetch_together(struct loader *loader, uint64_t s, uint64_t window, uint64_t low, uint64_t high,
                                  struct trm_host_batch *batch)
{
  struct shuffle_windows *windows = loader->windows;
  const struct order *order = &loader->order;
  TRM_CHECK(shuffle_release_before(loader, s));
  for (uint64_t at = low; at < high; window++, s++) {
    if (s >= shuffle_released(loader) + SHUFFLE_SLOTS) {
      if (loader->node->size > 1)
        return trm_error(TRM_USAGE, "%s: a batch reaches over more than two windows of %llu rows: data.memory is too "
                         "small for it", loader->path,
                         (unsigned long long)(order->window_blocks * order->block_rows));
      TRM_CHECK(shuffle_release_before(loader, s - 1)); /* this rank has collated its rows of the window */
    }
    while (!shuffle_is_ready(loader, s))
      TRM_CHECK(shuffle_wait_step(loader));
    const uint64_t end = order_window_start(order, &loader->order_epoch, window + 1), to = end < high ? end : high;
    loader_collate(loader, &windows->slot[s % SHUFFLE_SLOTS], &loader->order_epoch, window, at, to, batch);
    at = to;
  }
  return TRM_OK;
}

int shuffle_windows_fetch(struct loader *loader, uint64_t epoch, uint64_t low, uint64_t high,
                          struct trm_host_batch *batch)
{
  struct shuffle_windows *windows = loader->windows;
  const struct order *order = &loader->order;
  TRM_CHECK(shuffle_failure_check(loader));
  order_epoch_enter(order, &loader->order_epoch, epoch);
  uint64_t window = order_window_of(order, &loader->order_epoch, low), s;
  TRM_CHECK(shuffle_sequence_find(loader, epoch, low, window, &s));
  windows->epoch = epoch;
  windows->last_low = low;
  return loader->base.independent ? shuffle_fetch_independently(loader, s, window, low, high, batch)
                                  : shuffle_fetch_together(loader, s, window, low, high, batch);
}

/* -- opening */

static int shuffle_reader_start(struct loader *loader)
{
  struct shuffle_windows *windows = loader->windows;
  /* signals are handled by the main thread */
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const int reason = trm_context_start_thread(&windows->thread, shuffle_reader_run, loader);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  windows->threaded = reason == 0;
  return reason ? trm_error(TRM_FAILED, "no thread to read ahead: %s (data.threads=0 does without)", strerror(reason))
                : TRM_OK;
}

int shuffle_windows_open(struct loader *loader, int threads)
{
  struct trm_comm *node = loader->node;
  struct shuffle_windows *windows = loader->windows = trm_alloc(sizeof *windows, "windows of the data set");
  const size_t blocks = loader->order.window_blocks, entries = shuffle_max_entries(loader),
               rows = shuffle_max_block_rows(loader);
  const size_t control_bytes = sizeof *windows->control + (size_t)node->size * sizeof *windows->control->position;
  const size_t head = (control_bytes + TRM_ALIGNMENT - 1) & ~(size_t)(TRM_ALIGNMENT - 1);
  struct store none;
  const size_t bytes = store_layout(loader, &none, NULL, blocks, rows, entries);
  TRM_CHECK(trm_agree(loader->comm, node->ops->share(node, node->rank == 0 ? head + SHUFFLE_SLOTS * bytes : 0,
                                                     TRM_MEMORY_DATA, &loader->shared)));
  char *memory = loader->shared.base[0];
  windows->control = (struct shuffle_control *)memory;
  for (size_t i = 0; i < SHUFFLE_SLOTS; i++)
    store_layout(loader, &windows->slot[i], memory + head + i * bytes, blocks, rows, entries);
  if (loader->block_starts)
    windows->plan.entry = trm_alloc(blocks * sizeof *windows->plan.entry, "windows of the data set");
  if (node->rank == 0) {
    struct shuffle_control *control = windows->control;
    for (uint64_t s = 0; s < SHUFFLE_SLOTS; s++)
      atomic_store(&control->ticket[s], s << 32 | UINT32_MAX); /* no blocks before the first fetch */
    atomic_store(&control->requested_window, UINT64_MAX);
    atomic_store(&control->requested_epoch, UINT64_MAX);
  }
  node->ops->barrier(node);
  const bool virtual_time = node->ops->compute != NULL; /* where a thread would change what ranks see when */
  return trm_agree(loader->comm, threads > 0 && !virtual_time ? shuffle_reader_start(loader) : TRM_OK);
}

void shuffle_windows_close(struct loader *loader)
{
  struct shuffle_windows *windows = loader->windows;
  if (!windows)
    return;
  if (windows->threaded) {
    atomic_store(&windows->stop, true);
    pthread_join(windows->thread, NULL);
  }
  trm_free(windows->plan.entry);
  shuffle_own_free(windows);
  trm_free(windows);
  loader->windows = NULL;
}
