#include "train/staleness.h"

#include <math.h>

void trm_staleness_add(struct trm_staleness *staleness, uint64_t value)
{
  staleness->count[value < TRM_STALENESS_BINS ? value : TRM_STALENESS_BINS - 1]++;
  staleness->updates++;
  staleness->sum += value;
  if (value > staleness->max)
    staleness->max = value;
}

void trm_staleness_merge(struct trm_staleness *to, const struct trm_staleness *from)
{
  for (int i = 0; i < TRM_STALENESS_BINS; i++)
    to->count[i] += from->count[i];
  to->updates += from->updates;
  to->sum += from->sum;
  if (from->max > to->max)
    to->max = from->max;
}

double trm_staleness_mean(const struct trm_staleness *staleness)
{
  return staleness->updates > 0 ? (double)staleness->sum / (double)staleness->updates : NAN;
}

uint64_t trm_staleness_quantile(const struct trm_staleness *staleness, double fraction)
{
  uint64_t passed = 0;
  for (uint64_t value = 0; value < TRM_STALENESS_BINS - 1; value++) {
    passed += staleness->count[value];
    if ((double)passed >= fraction * (double)staleness->updates)
      return value;
  }
  return staleness->max;
}

void trm_staleness_gather(struct trm_comm *comm, const struct trm_staleness *local,
                          void (*consume)(void *context, int rank, const struct trm_staleness *staleness),
                          void *context)
{
  enum { TAG = 32004 };
  struct trm_request *request;
  if (comm->rank > 0) {
    comm->ops->send_begin(comm, local, sizeof *local, TRM_BYTE, 0, TAG, &request);
    comm->ops->wait(&request);
    return;
  }
  consume(context, 0, local);
  for (int rank = 1; rank < comm->size; rank++) {
    struct trm_staleness other;
    comm->ops->receive_begin(comm, &other, sizeof other, TRM_BYTE, rank, TAG, &request);
    comm->ops->wait(&request);
    consume(context, rank, &other);
  }
}
