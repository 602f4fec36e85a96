#include "mpi/coll/collectives.h"

#include <string.h>

#include "core/memory.h"
#include "mpi/coll/doubling.h"
#include "mpi/coll/ring.h"
#include "mpi/coll/tree.h"

/* Up to here the number of messages counts, beyond it their bytes. */
#define SMALL_BYTES ((size_t)32 << 10)
/* A chunk of a large array, all ranks' blocks together; and chunks at most. */
#define CHUNK_BYTES ((size_t)1 << 20)
enum { MAX_CHUNKS = 64 };

/* Cuts an array of `bytes` bytes in chunks. */
static size_t collectives_chunks(size_t bytes)
{
  const size_t chunks = (bytes + CHUNK_BYTES - 1) / CHUNK_BYTES;
  return chunks == 0 ? 1 : chunks < MAX_CHUNKS ? chunks : MAX_CHUNKS;
}

struct coll_schedule *coll_broadcast(struct coll *coll, void *data, size_t count, enum trm_type type, int root)
{
  struct coll_schedule *s = coll_schedule_make(coll, type, TRM_SUM);
  const size_t bytes = trm_type_bytes(type), chunks = collectives_chunks(count * bytes);
  for (size_t i = 0; i < chunks; i++) {
    size_t low, high;
    trm_interval(count, chunks, i, &low, &high);
    coll_strand(s);
    coll_tree_broadcast(s, (char *)data + low * bytes, high - low, root);
  }
  return s;
}

/* The blocks of a chunk: at, count (size) are the caller's arrays. */
struct block_arrays {
  size_t *at, *count;
};

static struct block_arrays collectives_make_blocks(const struct coll *coll)
{
  size_t *both = trm_alloc(2 * (size_t)coll->comm->size * sizeof *both, "blocks of a collective");
  return (struct block_arrays){both, both + coll->comm->size};
}

struct coll_schedule *coll_allreduce(struct coll *coll, void *data, size_t count, enum trm_type type, enum trm_op op)
{
  struct coll_schedule *s = coll_schedule_make(coll, type, op);
  const size_t bytes = trm_type_bytes(type), size = (size_t)coll->comm->size;
  const size_t chunks = collectives_chunks(count * bytes);
  if (op == TRM_TREE_SUM || count * bytes <= SMALL_BYTES) {
    for (size_t i = 0; i < chunks; i++) {
      size_t low, high;
      trm_interval(count, chunks, i, &low, &high);
      coll_strand(s);
      coll_doubling_allreduce(s, (char *)data + low * bytes, high - low);
    }
    return s;
  }
  const struct block_arrays block = collectives_make_blocks(coll);
  const struct coll_blocks blocks = {data, block.at, block.count};
  for (size_t i = 0; i < chunks; i++) {
    size_t low, high;
    trm_interval(count, chunks, i, &low, &high);
    for (size_t b = 0; b < size; b++) {
      size_t end;
      trm_interval(high - low, size, b, &block.at[b], &end);
      block.count[b] = end - block.at[b];
      block.at[b] += low;
    }
    coll_strand(s);
    coll_ring_reduce_scatter(s, &blocks, (char *)data + block.at[coll->comm->rank] * bytes);
    coll_ring_allgather(s, &blocks);
  }
  trm_free(block.at);
  return s;
}

/* Sets block to the columns [low, high) of each row of an array (size, count). */
static void collectives_set_columns(const struct coll *coll, struct block_arrays block, size_t count, size_t low,
                                    size_t high)
{
  for (size_t b = 0; b < (size_t)coll->comm->size; b++) {
    block.at[b] = b * count + low;
    block.count[b] = high - low;
  }
}

struct coll_schedule *coll_allgather(struct coll *coll, void *all, size_t count, enum trm_type type)
{
  struct coll_schedule *s = coll_schedule_make(coll, type, TRM_SUM);
  const struct block_arrays block = collectives_make_blocks(coll);
  const struct coll_blocks blocks = {all, block.at, block.count};
  const size_t chunks = collectives_chunks(count * trm_type_bytes(type) * (size_t)coll->comm->size);
  for (size_t i = 0; i < chunks; i++) {
    size_t low, high;
    trm_interval(count, chunks, i, &low, &high);
    collectives_set_columns(coll, block, count, low, high);
    coll_strand(s);
    coll_ring_allgather(s, &blocks);
  }
  trm_free(block.at);
  return s;
}

struct coll_schedule *coll_reduce_scatter(struct coll *coll, void *all, void *mine, size_t count, enum trm_type type,
                                          enum trm_op op)
{
  struct coll_schedule *s = coll_schedule_make(coll, type, op);
  const size_t bytes = trm_type_bytes(type);
  if (coll->comm->size == 1 && count > 0)
    memcpy(mine, all, count * bytes);
  const struct block_arrays block = collectives_make_blocks(coll);
  const struct coll_blocks blocks = {all, block.at, block.count};
  const size_t chunks = collectives_chunks(count * bytes * (size_t)coll->comm->size);
  for (size_t i = 0; i < chunks; i++) {
    size_t low, high;
    trm_interval(count, chunks, i, &low, &high);
    collectives_set_columns(coll, block, count, low, high);
    coll_strand(s);
    coll_ring_reduce_scatter(s, &blocks, (char *)mine + low * bytes);
  }
  trm_free(block.at);
  return s;
}
