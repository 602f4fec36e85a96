/* The order in which an epoch visits the rows of a split (private to datasets/).
 *
 * Rows are divided into blocks of block_rows (the last one may have fewer), blocks into windows of window_blocks. An
 * epoch visits the blocks in a permuted order, window by window, and the rows of a window in an order permuted over the
 * window: only one window must be in memory. A single window is a full shuffle: its rows are permuted, its blocks are
 * not.
 *   block at place p of epoch e     trm_random_permute(seed, SHUFFLE, e, blocks, p)
 *   row at place p of window w      trm_random_permute(seed, SHUFFLE, stream(e, w), rows of the window, p)
 *   stream(e, w)                    e if there is one window, else the upper half of splitmix64's finalizer of
 *                                   e * 0x9e3779b97f4a7c15 + w + 1
 * So the order is a function of (seed, epoch, rows, block_rows, window_blocks): never of ranks or threads. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct order {
  uint64_t seed;
  bool shuffle;           /* false: the identity */
  uint64_t rows;          /* at least 1 */
  size_t block_rows;
  uint64_t blocks, window_blocks, windows;
  size_t last_block_rows;       /* rows of the last block */
};

/* State of one epoch: the place of the last block, which may be short. */
struct order_epoch {
  bool valid;
  uint64_t epoch, last_block_place; /* its place in the order of blocks */
};

/* Initializes an order. window_blocks is limited to the number of blocks. */
void order_init(struct order *order, uint64_t seed, bool shuffle, uint64_t rows, size_t block_rows,
                uint64_t window_blocks);

/* Sets *at to the state of an epoch: O(blocks), or O(1) if *at is of that epoch. */
void order_epoch_enter(const struct order *order, struct order_epoch *at, uint64_t epoch);

uint64_t order_window_start(const struct order *order, const struct order_epoch *at, uint64_t window); /* position */
uint64_t order_window_of(const struct order *order, const struct order_epoch *at, uint64_t position);
size_t order_window_blocks(const struct order *order, uint64_t window);
uint64_t order_block(const struct order *order, const struct order_epoch *at, uint64_t window, size_t place);
size_t order_block_size(const struct order *order, uint64_t block); /* rows of the block */

/* Computes index (count) of the rows from `position` on, all in `window`: index / block_rows is the place of the row's
 * block in the window, index % block_rows the row's place in the block. */
void order_row_indices(const struct order *order, const struct order_epoch *at, uint64_t window, uint64_t position,
                       size_t count, uint64_t *index);
