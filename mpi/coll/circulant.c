#include "mpi/coll/circulant.h"

#include "mpi/coll/fold.h"

typedef void circulant_step(struct coll_schedule *s, void *data, void *to, size_t count, int rank);

/* Adds one step for each run of adjacent blocks among `blocks` ones from `first`, modulo P. Both sides of a message
 * find the same runs. mine: where block `rank` is reduced to, at the end. */
static void circulant_add(struct coll_schedule *s, const struct coll_blocks *b, int first, int blocks, int rank,
                          circulant_step *add, void *mine)
{
  const int size = coll_schedule_comm(s)->size;
  for (int i = 0; i < blocks;) {
    const int begin = (first + i++) % size;
    size_t count = b->count[begin];
    for (int next = begin + 1; i < blocks && next < size && b->at[next] == b->at[begin] + count; i++)
      count += b->count[next++];
    void *data = coll_block(s, b, begin);
    add(s, data, mine ? mine : data, count, rank);
  }
}

static void circulant_send(struct coll_schedule *s, void *data, void *to, size_t count, int rank)
{
  (void)to;
  coll_send(s, data, count, rank);
}

static void circulant_receive(struct coll_schedule *s, void *data, void *to, size_t count, int rank)
{
  (void)to;
  coll_receive(s, data, count, rank);
}

static void circulant_reduce(struct coll_schedule *s, void *data, void *to, size_t count, int rank)
{
  coll_receive_reduce(s, to, data, count, rank);
}

/* Blocks that a rank has beyond the first `distance` after the round of that distance. */
static int circulant_more(int size, int distance)
{
  return distance < size - distance ? distance : size - distance;
}

void coll_circulant_allgather(struct coll_schedule *s, const struct coll_blocks *b)
{
  const struct trm_comm *comm = coll_schedule_comm(s);
  const int size = comm->size, rank = comm->rank;
  for (int distance = 1; distance < size; distance *= 2) {
    const int more = circulant_more(size, distance), from = (rank + distance) % size;
    circulant_add(s, b, rank, more, (rank + size - distance) % size, circulant_send, NULL);
    circulant_add(s, b, from, more, from, circulant_receive, NULL);
    coll_round(s);
  }
}

/* In the last round a rank sends block rank + 1 and receives the last part of its own. */
void coll_circulant_reduce_scatter(struct coll_schedule *s, const struct coll_blocks *b, void *mine)
{
  const struct trm_comm *comm = coll_schedule_comm(s);
  const int size = comm->size, rank = comm->rank;
  for (int distance = coll_fold_power(size > 1 ? size - 1 : 1); distance > 0 && size > 1; distance /= 2) {
    const int more = circulant_more(size, distance), to = (rank + distance) % size;
    circulant_add(s, b, to, more, to, circulant_send, NULL);
    circulant_add(s, b, rank, more, (rank + size - distance) % size, circulant_reduce, distance == 1 ? mine : NULL);
    coll_round(s);
  }
}

void coll_circulant_allreduce(struct coll_schedule *s, void *data, size_t count)
{
  const struct trm_comm *comm = coll_schedule_comm(s);
  struct coll_blocks blocks = coll_blocks_divide(comm, data, count);
  coll_circulant_reduce_scatter(s, &blocks, coll_block(s, &blocks, comm->rank));
  coll_circulant_allgather(s, &blocks);
  coll_blocks_free(&blocks);
}
