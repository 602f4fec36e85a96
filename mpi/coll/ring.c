#include "mpi/coll/ring.h"

void coll_ring_reduce_scatter(struct coll_schedule *s, const struct coll_blocks *b, void *mine)
{
  const struct trm_comm *comm = coll_schedule_comm(s);
  const int size = comm->size, next = (comm->rank + 1) % size, before = (comm->rank + size - 1) % size;
  for (int round = 1; round < size; round++) {
    const int sent = (comm->rank + size - round) % size, received = (sent + size - 1) % size;
    void *block = coll_block(s, b, received);
    coll_send(s, coll_block(s, b, sent), b->count[sent], next);
    coll_receive_reduce(s, round == size - 1 ? mine : block, block, b->count[received], before);
    coll_round(s);
  }
}

void coll_ring_allgather(struct coll_schedule *s, const struct coll_blocks *b)
{
  const struct trm_comm *comm = coll_schedule_comm(s);
  const int size = comm->size, next = (comm->rank + 1) % size, before = (comm->rank + size - 1) % size;
  for (int round = 0; round < size - 1; round++) {
    const int sent = (comm->rank + size - round) % size, received = (sent + size - 1) % size;
    coll_send(s, coll_block(s, b, sent), b->count[sent], next);
    coll_receive(s, coll_block(s, b, received), b->count[received], before);
    coll_round(s);
  }
}

void coll_ring_allreduce(struct coll_schedule *s, void *data, size_t count)
{
  const struct trm_comm *comm = coll_schedule_comm(s);
  struct coll_blocks blocks = coll_blocks_divide(comm, data, count);
  coll_ring_reduce_scatter(s, &blocks, coll_block(s, &blocks, comm->rank));
  coll_ring_allgather(s, &blocks);
  coll_blocks_free(&blocks);
}
