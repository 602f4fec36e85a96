#include "mpi/coll/blocks.h"

#include "core/memory.h"

static struct coll_blocks blocks_make(const struct trm_comm *comm, void *data)
{
  size_t *both = trm_alloc(2 * (size_t)comm->size * sizeof *both, "blocks of a collective");
  return (struct coll_blocks){data, both, both + comm->size};
}

struct coll_blocks coll_blocks_divide(const struct trm_comm *comm, void *data, size_t count)
{
  const struct coll_blocks blocks = blocks_make(comm, data);
  for (size_t b = 0; b < (size_t)comm->size; b++) {
    size_t end;
    trm_interval(count, (size_t)comm->size, b, &blocks.at[b], &end);
    blocks.count[b] = end - blocks.at[b];
  }
  return blocks;
}

struct coll_blocks coll_blocks_columns(const struct trm_comm *comm, void *data, size_t count, size_t low, size_t high)
{
  const struct coll_blocks blocks = blocks_make(comm, data);
  for (size_t b = 0; b < (size_t)comm->size; b++) {
    blocks.at[b] = b * count + low;
    blocks.count[b] = high - low;
  }
  return blocks;
}

void coll_blocks_free(struct coll_blocks *blocks)
{
  trm_free(blocks->at);
  *blocks = (struct coll_blocks){0};
}

void *coll_block(const struct coll_schedule *s, const struct coll_blocks *blocks, int block)
{
  return blocks->data + blocks->at[block] * trm_type_bytes(coll_schedule_type(s));
}
