/* The order in which an epoch visits the rows of a split (private to datasets/).
 *
 * Rows are cut into blocks of block_rows (the last one may have fewer), blocks into windows of window_blocks. An epoch
 * visits the blocks in a permuted order, window by window, and the rows of a window in an order permuted over the whole
 * window: what a window holds is all that must be in memory. One window for all is a full shuffle: its blocks are not
 * permuted, its rows are.
 *   block at place p of epoch e     trm_random_permute(seed, SHUFFLE, e, blocks, p)
 *   row at place p of window w      trm_random_permute(seed, SHUFFLE, stream(e, w), rows of the window, p)
 *   stream(e, w)                    e if there is one window, else the upper half of splitmix64's finalizer of
 *                                   e * 0x9e3779b97f4a7c15 + w + 1
 * So the order is a function of (seed, epoch, rows, block_rows, window_blocks): never of ranks or threads. */
#ifndef TRM_DATASETS_ORDER_H
#define TRM_DATASETS_ORDER_H

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

/* One epoch: where the last block, perhaps a short one, has come to stand. */
struct order_epoch {
  bool valid;
  uint64_t epoch, last_block_place; /* its place in the order of blocks */
};

/* window_blocks is cut to the number of blocks. */
void order_init(struct order *order, uint64_t seed, bool shuffle, uint64_t rows, size_t block_rows,
                uint64_t window_blocks);

/* Makes *at the state of this epoch; O(blocks) when the epoch is another one, else O(1). */
void order_epoch_enter(const struct order *order, struct order_epoch *at, uint64_t epoch);

uint64_t order_window_start(const struct order *order, const struct order_epoch *at, uint64_t window); /* position */
uint64_t order_window_of(const struct order *order, const struct order_epoch *at, uint64_t position);
size_t order_window_blocks(const struct order *order, uint64_t window);
uint64_t order_block(const struct order *order, const struct order_epoch *at, uint64_t window, size_t place);
size_t order_block_size(const struct order *order, uint64_t block); /* rows of the block */

/* Of `count` rows from `position` on, all in `window`: the places in the window, number / block_rows the place of the
 * row's block and number % block_rows its place in that. */
void order_row_indices(const struct order *order, const struct order_epoch *at, uint64_t window, uint64_t position,
                       size_t count, uint64_t *index);

#endif
