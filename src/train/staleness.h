/* Staleness of an update: the number of updates of the shared weights by other ranks between the reading of the weights
 * that its gradient was computed with and the update itself. The histogram counts every update. Each method says what
 * an update is, or has no staleness. */
#pragma once

#include <stdint.h>

#include "core/comm.h"

TRM_BEGIN_DECLS

#define TRM_STALENESS_BINS 256

/* A histogram of one rank's updates by staleness. */
struct trm_staleness {
  uint64_t count[TRM_STALENESS_BINS]; /* updates by staleness; the last bin: TRM_STALENESS_BINS - 1 or more */
  uint64_t updates, sum, max;         /* number of updates; sum and maximum of their staleness */
};

void trm_staleness_add(struct trm_staleness *staleness, uint64_t value);
void trm_staleness_merge(struct trm_staleness *to, const struct trm_staleness *from);
double trm_staleness_mean(const struct trm_staleness *staleness); /* NAN: no updates */
/* Returns the smallest staleness that a fraction, in (0, 1], of the updates do not exceed; 0: no updates. */
uint64_t trm_staleness_quantile(const struct trm_staleness *staleness, double fraction);

/* Collective over comm. Rank 0 calls consume with the staleness of each rank, in order of rank; it holds one at a time.
 * consume: not used on other ranks. */
void trm_staleness_gather(struct trm_comm *comm, const struct trm_staleness *local,
                          void (*consume)(void *context, int rank, const struct trm_staleness *staleness),
                          void *context);

TRM_END_DECLS
