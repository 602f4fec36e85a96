#include "mpi/coll/doubling.h"

#include "mpi/coll/fold.h"

void coll_doubling_allreduce(struct coll_schedule *s, void *data, size_t count)
{
  const struct trm_comm *comm = coll_schedule_comm(s);
  if (coll_fold(s, data, count))
    for (int bit = 1; bit < coll_fold_power(comm->size); bit *= 2) {
      coll_send(s, data, count, comm->rank ^ bit);
      coll_receive_reduce(s, data, data, count, comm->rank ^ bit);
      coll_round(s);
    }
  coll_unfold(s, data, count);
}
