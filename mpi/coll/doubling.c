#include "mpi/coll/doubling.h"

void coll_doubling_allreduce(struct coll_schedule *s, void *data, size_t count)
{
  const struct trm_comm *comm = coll_schedule_comm(s);
  const int rank = comm->rank;
  int power = 1;
  while (2 * power <= comm->size)
    power *= 2;
  if (rank >= power) {
    coll_send(s, data, count, rank - power);
    coll_round(s);
    coll_receive(s, data, count, rank - power);
    return;
  }
  const bool has_extra = rank + power < comm->size;
  if (has_extra)
    coll_receive_reduce(s, data, data, count, rank + power);
  for (int bit = 1; bit < power; bit *= 2) {
    coll_round(s);
    coll_send(s, data, count, rank ^ bit);
    coll_receive_reduce(s, data, data, count, rank ^ bit);
  }
  coll_round(s);
  if (has_extra)
    coll_send(s, data, count, rank + power);
}
