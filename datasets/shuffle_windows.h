/* Shuffle windows: of a split larger than memory, two windows are in shared memory and are filled ahead (private to
 * shuffle_*.c).
 *
 * The windows of all epochs have sequence numbers s = 0, 1, ...; window s is in slot s mod 2. Blocks of a window are
 * assigned to the ranks of the node dynamically, so that no rank waits for a particular other one. A thread of each
 * rank reads them (data.threads = 1), or, without threads, the ranks that need the window. There is no MPI in here:
 * ranks synchronize through atomic counters in the shared memory, and wait by short sleeps.
 *
 *   ticket[slot]    upper half: s; lower half: the next block to read
 *   progress[slot]  upper half: ranks that have released s; lower half: blocks read; the rank that completes both
 *                   halves passes the slot on to s + 2
 *
 * A rank releases the windows before the one in which its next fetch begins. So all ranks of a node must fetch from the
 * same global batches, even if no rows: a rank that does not fetch keeps the slots from moving on.
 *
 * Not so if ranks fetch independently (trm_dataset.independent; shuffle_independent.c).
 *
 * A fetch that does not continue the last one (the first, a resumed run, a repeated epoch) starts a new sequence: all
 * ranks of the node wait for one another, and it begins with the earliest window that one of them requests. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "loader.h"

#define SHUFFLE_SLOTS 2

struct shuffle_control {
  _Atomic uint64_t ticket[SHUFFLE_SLOTS], progress[SHUFFLE_SLOTS];
  _Atomic uint32_t arrived, sequences;      /* ranks that wait for a new sequence; sequences begun */
  _Atomic uint64_t requested_epoch, requested_window; /* the earliest window requested; UINT64_MAX: none yet */
  _Atomic uint64_t base_epoch, base_window; /* of s = 0; change only while all ranks wait */
  _Atomic int failed;                       /* 0: no, 1: message is being written, 2: message is written */
  int rank;
  char message[1000];
  /* (ranks of the node) 2 s: the rank has released the windows before s; 2 s + 1: and copies rows of s */
  _Atomic uint64_t position[];
};

/* The window that is being read. */
struct window_plan {
  bool valid;
  uint64_t s, window;
  struct order_epoch at;
  size_t blocks;
  size_t *entry;                         /* csr: (window_blocks) first entry of each block */
};

struct shuffle_windows {
  struct shuffle_control *control;
  struct store slot[SHUFFLE_SLOTS];
  /* used by the thread, or without a thread by the caller of fetch */
  struct window_plan plan;
  uint64_t next;                         /* sequence number to read next */
  bool threaded;
  pthread_t thread;
  _Atomic bool stop, pause, paused;
  /* used by the caller of fetch */
  bool started;
  uint64_t epoch, last_low;
  /* of a straggler: one window of its own */
  struct window_plan own;
  struct store own_store;
  void *own_memory;                     /* NULL: none was needed yet */
  bool *own_read;                       /* (window_blocks) blocks in own_store */
};

/* -- of all windows */

/* All blocks of window s are read. */
bool shuffle_is_ready(const struct loader *loader, uint64_t s);
/* Plans window s. Returns true if the plan has changed. */
bool shuffle_plan_make(struct loader *loader, struct window_plan *plan, uint64_t s);
/* Reads block k of the planned window into the store. */
int shuffle_block_read(struct loader *loader, const struct window_plan *plan, struct store *store, size_t k);
/* Return the maximum number of entries of a window, over all orders of the blocks; rows of the file that a block of
 * the order can reach over. */
size_t shuffle_max_entries(const struct loader *loader);
size_t shuffle_max_block_rows(const struct loader *loader);
/* Waits for other ranks for a moment; without a thread, reads a block meanwhile. */
int shuffle_wait_step(struct loader *loader);
/* This rank's. */
_Atomic uint64_t *shuffle_position(const struct loader *loader);
/* Releases the next window of a rank, if that rank does not copy rows and the window has its slot already; a window
 * that was skipped may not have it yet. False: the position is not `seen` any more, or is kept. */
bool shuffle_release_next(struct loader *loader, _Atomic uint64_t *position, uint64_t seen);

/* -- shuffle_independent.c */

/* Fetches rows [low, high), which begin in `window`, number s of the sequence. */
int shuffle_fetch_independently(struct loader *loader, uint64_t s, uint64_t window, uint64_t low, uint64_t high,
                                struct trm_host_batch *batch);
void shuffle_own_free(struct shuffle_windows *windows);
