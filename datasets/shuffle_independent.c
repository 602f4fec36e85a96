/* Shuffle windows (shuffle_windows.h) of ranks that fetch independently: a rank keeps a window only while it copies
 * rows from it, and a rank that waits for a later window releases the earlier ones for all others. A straggler whose
 * window is gone reads the window's blocks, as it needs them, into memory of its own. */
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "shuffle_windows.h"

/* Releases the windows before s for all ranks of the node that do not copy rows. */
static void shuffle_release_for_all(struct loader *loader, uint64_t s)
{
  for (int rank = 0; rank < loader->node->size; rank++) {
    _Atomic uint64_t *position = &loader->windows->control->position[rank];
    for (uint64_t seen; (seen = atomic_load(position)) / 2 < s;)
      if (!shuffle_release_next(loader, position, seen))
        break;
  }
}

/* Keeps window s until shuffle_let_go, unless its slot still has an earlier window. Returns false if s is gone. */
static bool shuffle_keep(struct loader *loader, uint64_t s)
{
  _Atomic uint64_t *position = shuffle_position(loader);
  for (uint64_t seen = atomic_load(position); (int64_t)(s - seen / 2) >= 0; seen = atomic_load(position)) {
    if (seen / 2 < s && !shuffle_release_next(loader, position, seen))
      return true;
    if (seen / 2 == s && atomic_compare_exchange_strong(position, &seen, 2 * s + 1))
      return true;
  }
  return false;
}

static void shuffle_let_go(struct loader *loader)
{
  atomic_fetch_and(shuffle_position(loader), ~UINT64_C(1));
}

static void shuffle_own_allocate(struct loader *loader)
{
  struct shuffle_windows *windows = loader->windows;
  if (windows->own_memory)
    return;
  const size_t blocks = loader->order.window_blocks, rows = shuffle_max_block_rows(loader),
               entries = shuffle_max_entries(loader);
  const size_t bytes = store_layout(loader, &windows->own_store, NULL, blocks, rows, entries);
  windows->own_memory = trm_alloc(bytes, "a straggler's window of the data set");
  store_layout(loader, &windows->own_store, windows->own_memory, blocks, rows, entries);
  windows->own_read = trm_alloc(blocks * sizeof *windows->own_read, "a straggler's window of the data set");
  windows->own.entry = trm_alloc(blocks * sizeof *windows->own.entry, "a straggler's window of the data set");
}

/* Reads the blocks of window s that have rows at positions [low, high) into this rank's own store. */
static int shuffle_own_read(struct loader *loader, uint64_t s, uint64_t low, uint64_t high)
{
  struct shuffle_windows *windows = loader->windows;
  enum { AT_ONCE = 64 };
  uint64_t index[AT_ONCE];
  shuffle_own_allocate(loader);
  if (shuffle_plan_make(loader, &windows->own, s))
    memset(windows->own_read, 0, loader->order.window_blocks * sizeof *windows->own_read);
  for (uint64_t at = low; at < high; at += AT_ONCE) {
    const size_t count = high - at < AT_ONCE ? (size_t)(high - at) : AT_ONCE;
    order_row_indices(&loader->order, &windows->own.at, windows->own.window, at, count, index);
    for (size_t i = 0; i < count; i++) {
      const size_t k = (size_t)(index[i] / loader->order.block_rows);
      if (!windows->own_read[k])
        TRM_CHECK(shuffle_block_read(loader, &windows->own, &windows->own_store, k));
      windows->own_read[k] = true;
    }
  }
  return TRM_OK;
}

/* Waits until window s is ready, or gone. *gone: so it is; otherwise this rank keeps it. */
static int shuffle_await_or_miss(struct loader *loader, uint64_t s, bool *gone)
{
  for (;;) {
    *gone = !shuffle_keep(loader, s);
    if (*gone || (atomic_load(shuffle_position(loader)) == 2 * s + 1 && shuffle_is_ready(loader, s)))
      return TRM_OK;
    shuffle_let_go(loader);
    if (s >= SHUFFLE_SLOTS - 1)
      shuffle_release_for_all(loader, s - (SHUFFLE_SLOTS - 1));
    TRM_CHECK(shuffle_wait_step(loader));
  }
}

int shuffle_fetch_independently(struct loader *loader, uint64_t s, uint64_t window, uint64_t low, uint64_t high,
                                struct trm_host_batch *batch)
{
  struct shuffle_windows *windows = loader->windows;
  for (uint64_t at = low; at < high; window++, s++) {
    const uint64_t end = order_window_start(&loader->order, &loader->order_epoch, window + 1);
    const uint64_t to = end < high ? end : high;
    bool gone;
    TRM_CHECK(shuffle_await_or_miss(loader, s, &gone));
    if (gone)
      TRM_CHECK(shuffle_own_read(loader, s, at, to));
    loader_collate(loader, gone ? &windows->own_store : &windows->slot[s % SHUFFLE_SLOTS], &loader->order_epoch, window,
                   at, to, batch);
    if (!gone)
      shuffle_let_go(loader);
    at = to;
  }
  return TRM_OK;
}

void shuffle_own_free(struct shuffle_windows *windows)
{
  trm_free(windows->own.entry);
  trm_free(windows->own_read);
  trm_free(windows->own_memory);
}
