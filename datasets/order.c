/* The order in which an epoch visits the rows of a split. */
#include "order.h"

#include "blocks.h"
#include "core/random.h"

void order_init(struct order *order, uint64_t seed, bool shuffle, uint64_t rows, size_t block_rows,
                uint64_t window_blocks)
{
  const uint64_t blocks = (rows + block_rows - 1) / block_rows;
  window_blocks = window_blocks == 0 ? 1 : window_blocks < blocks ? window_blocks : blocks;
  *order = (struct order){
    .seed = seed, .shuffle = shuffle, .rows = rows, .block_rows = block_rows, .blocks = blocks,
    .window_blocks = window_blocks, .windows = (blocks + window_blocks - 1) / window_blocks,
    .last_block_rows = (size_t)(rows - (blocks - 1) * block_rows),
  };
}

static bool order_blocks_permuted(const struct order *order)
{
  return order->shuffle && order->windows > 1;
}

static uint64_t order_block_at(const struct order *order, uint64_t epoch, uint64_t place)
{
  return trm_random_permute(order->seed, TRM_RANDOM_SHUFFLE, (uint32_t)epoch, order->blocks, place);
}

void order_epoch_enter(const struct order *order, struct order_epoch *at, uint64_t epoch)
{
  if (at->valid && at->epoch == epoch)
    return;
  *at = (struct order_epoch){.valid = true, .epoch = epoch, .last_block_place = order->blocks - 1};
  if (!order_blocks_permuted(order) || order->last_block_rows == order->block_rows)
    return; /* not permuted, or the short block is last */
  at->last_block_place = 0;
  while (order_block_at(order, epoch, at->last_block_place) != order->blocks - 1)
    at->last_block_place++;
}

/* Returns the number of rows that the last block has less than the others. */
static size_t order_missing_rows(const struct order *order)
{
  return order->block_rows - order->last_block_rows;
}

uint64_t order_window_start(const struct order *order, const struct order_epoch *at, uint64_t window)
{
  if (window >= order->windows)
    return order->rows;
  const uint64_t start = window * order->window_blocks * order->block_rows;
  return at->last_block_place < window * order->window_blocks ? start - order_missing_rows(order) : start;
}

uint64_t order_window_of(const struct order *order, const struct order_epoch *at, uint64_t position)
{
  uint64_t window = position / (order->window_blocks * order->block_rows);
  if (window >= order->windows)
    return order->windows - 1;
  /* beyond the short block the windows begin earlier, but by less than a block */
  if (window + 1 < order->windows && position >= order_window_start(order, at, window + 1))
    window++;
  return window;
}

size_t order_window_blocks(const struct order *order, uint64_t window)
{
  const uint64_t left = order->blocks - window * order->window_blocks;
  return (size_t)(left < order->window_blocks ? left : order->window_blocks);
}

uint64_t order_block(const struct order *order, const struct order_epoch *at, uint64_t window, size_t place)
{
  const uint64_t place_in_epoch = window * order->window_blocks + place;
  return order_blocks_permuted(order) ? order_block_at(order, at->epoch, place_in_epoch) : place_in_epoch;
}

size_t order_block_size(const struct order *order, uint64_t block)
{
  return block + 1 == order->blocks ? order->last_block_rows : order->block_rows;
}

static uint32_t order_window_stream(const struct order *order, uint64_t epoch, uint64_t window)
{
  return (uint32_t)(order->windows == 1 ? epoch : block_mix(epoch * UINT64_C(0x9e3779b97f4a7c15) + window + 1) >> 32);
}

void order_row_indices(const struct order *order, const struct order_epoch *at, uint64_t window, uint64_t position,
                       size_t count, uint64_t *index)
{
  const uint64_t start = order_window_start(order, at, window), end = order_window_start(order, at, window + 1);
  if (order->shuffle)
    trm_random_permute_many(order->seed, TRM_RANDOM_SHUFFLE, order_window_stream(order, at->epoch, window), end - start,
                            position - start, count, index);
  else
    for (size_t i = 0; i < count; i++)
      index[i] = position - start + i;
  /* numbers count rows; the short block's place is followed by a gap */
  const uint64_t first = window * order->window_blocks;
  if (at->last_block_place < first)
    return;
  const uint64_t gap = (at->last_block_place - first) * order->block_rows + order->last_block_rows;
  for (size_t i = 0; i < count; i++)
    if (index[i] >= gap)
      index[i] += order_missing_rows(order);
}
