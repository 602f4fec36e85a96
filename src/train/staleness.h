/* Staleness of a gradient: the number of updates by other ranks between the version of the weights that it was computed
 * with and its own update. The histogram counts every update. */
#pragma once

#include <stdint.h>

#include "core/api.h"

TRM_BEGIN_DECLS

#define TRM_STALENESS_BINS 256

struct trm_staleness {
  uint64_t count[TRM_STALENESS_BINS]; /* updates by staleness; the last bin: TRM_STALENESS_BINS - 1 or more */
  uint64_t updates, sum, max;         /* number of updates; sum and maximum of their staleness */
};

void trm_staleness_add(struct trm_staleness *staleness, uint64_t value);
void trm_staleness_merge(struct trm_staleness *to, const struct trm_staleness *from);
double trm_staleness_mean(const struct trm_staleness *staleness); /* NAN: no updates */
/* Returns the smallest staleness that a fraction, in (0, 1], of the updates do not exceed; 0: no updates. */
uint64_t trm_staleness_quantile(const struct trm_staleness *staleness, double fraction);

TRM_END_DECLS
