#include "mpi/coll/collectives.h"

#include <string.h>

enum { MAX_CHUNKS = 64 }; /* of an array */

static bool collectives_has_rows(enum coll_kind kind)
{
  return kind == COLL_ALLGATHER || kind == COLL_REDUCE_SCATTER;
}

static size_t collectives_bytes(const struct coll *coll, enum coll_kind kind, size_t count, enum trm_type type)
{
  return count * trm_type_bytes(type) * (collectives_has_rows(kind) ? (size_t)coll->comm->size : 1);
}

static size_t collectives_chunks(size_t bytes, size_t chunk_bytes)
{
  const size_t chunks = (bytes + chunk_bytes - 1) / chunk_bytes;
  return chunks == 0 ? 1 : chunks < MAX_CHUNKS ? chunks : MAX_CHUNKS;
}

/* Adds the strand of elements [low, high) of the array, or of every row. */
static void collectives_add(struct coll_schedule *s, const struct coll_ops *ops, const struct coll_arrays *a,
                            size_t low, size_t high)
{
  const size_t offset = low * trm_type_bytes(a->type);
  coll_strand(s);
  if (!collectives_has_rows(ops->kind)) {
    if (ops->kind == COLL_BROADCAST)
      ops->broadcast(s, (char *)a->data + offset, high - low, a->root);
    else
      ops->allreduce(s, (char *)a->data + offset, high - low);
    return;
  }
  struct coll_blocks blocks = coll_blocks_columns(coll_schedule_comm(s), a->data, a->count, low, high);
  if (ops->kind == COLL_ALLGATHER)
    ops->allgather(s, &blocks);
  else
    ops->reduce_scatter(s, &blocks, (char *)a->mine + offset);
  coll_blocks_free(&blocks);
}

struct coll_schedule *coll_begin_by(struct coll *coll, const struct coll_ops *ops, const struct coll_arrays *a)
{
  struct coll_schedule *s = coll_schedule_make(coll, a->type, a->op);
  if (coll->comm->size == 1) {
    if (ops->kind == COLL_REDUCE_SCATTER && a->count > 0)
      memcpy(a->mine, a->data, a->count * trm_type_bytes(a->type));
    return s;
  }
  const size_t chunks = collectives_chunks(collectives_bytes(coll, ops->kind, a->count, a->type), ops->chunk_bytes);
  for (size_t i = 0; i < chunks; i++) {
    size_t low, high;
    trm_interval(a->count, chunks, i, &low, &high);
    collectives_add(s, ops, a, low, high);
  }
  return s;
}
