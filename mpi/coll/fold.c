#include "mpi/coll/fold.h"

int coll_fold_power(int ranks)
{
  int power = 1;
  while (power <= ranks / 2)
    power *= 2;
  return power;
}

bool coll_fold(struct coll_schedule *s, void *data, size_t count)
{
  const struct trm_comm *comm = coll_schedule_comm(s);
  const int rank = comm->rank, power = coll_fold_power(comm->size);
  if (rank >= power)
    coll_send(s, data, count, rank - power);
  else if (rank + power < comm->size)
    coll_receive_reduce(s, data, data, count, rank + power);
  coll_round(s);
  return rank < power;
}

void coll_unfold(struct coll_schedule *s, void *data, size_t count)
{
  const struct trm_comm *comm = coll_schedule_comm(s);
  const int rank = comm->rank, power = coll_fold_power(comm->size);
  coll_round(s);
  if (rank >= power)
    coll_receive(s, data, count, rank - power);
  else if (rank + power < comm->size)
    coll_send(s, data, count, rank + power);
}
