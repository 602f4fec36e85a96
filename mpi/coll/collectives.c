#include "mpi/coll/collectives.h"

#include <string.h>

#include "mpi/coll/choices.h"

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

/* -- without measurements */

static struct coll_schedule *collectives_begin_default(struct coll *coll, enum coll_kind kind,
                                                       const struct coll_arrays *a)
{
  const size_t bytes = collectives_bytes(coll, kind, a->count, a->type);
  return coll_begin_by(coll, coll_choose(NULL, kind, coll->comm->size, true, bytes), a);
}

struct coll_schedule *coll_broadcast(struct coll *coll, void *data, size_t count, enum trm_type type, int root)
{
  return collectives_begin_default(coll, COLL_BROADCAST,
                                   &(struct coll_arrays){.data = data, .count = count, .type = type, .root = root});
}

struct coll_schedule *coll_allreduce(struct coll *coll, void *data, size_t count, enum trm_type type, enum trm_op op)
{
  return collectives_begin_default(coll, op == TRM_TREE_SUM ? COLL_TREE_SUM : COLL_ALLREDUCE,
                                   &(struct coll_arrays){.data = data, .count = count, .type = type, .op = op});
}

struct coll_schedule *coll_allgather(struct coll *coll, void *all, size_t count, enum trm_type type)
{
  return collectives_begin_default(coll, COLL_ALLGATHER,
                                   &(struct coll_arrays){.data = all, .count = count, .type = type});
}

struct coll_schedule *coll_reduce_scatter(struct coll *coll, void *all, void *mine, size_t count, enum trm_type type,
                                          enum trm_op op)
{
  return collectives_begin_default(
    coll, COLL_REDUCE_SCATTER,
    &(struct coll_arrays){.data = all, .mine = mine, .count = count, .type = type, .op = op});
}
