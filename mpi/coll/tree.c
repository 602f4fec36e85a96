#include "mpi/coll/tree.h"

/* Ranks are counted from the root. One receives from the rank without its lowest set bit, and sends to those that have
 * one of the bits below it, too. */
void coll_tree_broadcast(struct coll_schedule *s, void *data, size_t count, int root)
{
  const struct trm_comm *comm = coll_schedule_comm(s);
  const int size = comm->size, mine = (comm->rank + size - root) % size;
  int bit = 1;
  while (bit < size && !(mine & bit))
    bit *= 2;
  if (mine != 0)
    coll_receive(s, data, count, (mine - bit + root) % size);
  coll_round(s);
  for (bit /= 2; bit > 0; bit /= 2)
    if (mine + bit < size)
      coll_send(s, data, count, (mine + bit + root) % size);
}
