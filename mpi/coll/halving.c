#include "mpi/coll/halving.h"

#include "mpi/coll/fold.h"

enum { MAX_BITS = 31 };

/* An interval of the array. */
struct interval {
  size_t low, high;
};

static void halving_exchange(struct coll_schedule *s, char *data, struct interval sent, struct interval received,
                             int rank, bool reduces)
{
  const size_t bytes = trm_type_bytes(coll_schedule_type(s)), count = received.high - received.low;
  char *to = data + received.low * bytes;
  coll_send(s, data + sent.low * bytes, sent.high - sent.low, rank);
  if (reduces)
    coll_receive_reduce(s, to, to, count, rank);
  else
    coll_receive(s, to, count, rank);
  coll_round(s);
}

/* A rank and its partner in a round had the same partners before, so they halve the same interval. */
void coll_halving_allreduce(struct coll_schedule *s, void *data, size_t count)
{
  const struct trm_comm *comm = coll_schedule_comm(s);
  const int rank = comm->rank, power = coll_fold_power(comm->size);
  struct interval kept[MAX_BITS], given[MAX_BITS], whole = {0, count};
  int rounds = 0;
  if (coll_fold(s, data, count)) {
    for (; 1 << rounds < power; rounds++) {
      const size_t middle = whole.low + (whole.high - whole.low) / 2;
      const struct interval lower = {whole.low, middle}, upper = {middle, whole.high};
      const bool takes_upper = rank >> rounds & 1;
      kept[rounds] = takes_upper ? upper : lower;
      given[rounds] = takes_upper ? lower : upper;
      halving_exchange(s, data, given[rounds], kept[rounds], rank ^ 1 << rounds, true);
      whole = kept[rounds];
    }
    while (rounds-- > 0)
      halving_exchange(s, data, kept[rounds], given[rounds], rank ^ 1 << rounds, false);
  }
  coll_unfold(s, data, count);
}
