/* Staleness: how many updates by others a gradient has missed between the weights it was computed at and its own
 * arrival. Every update is counted. */
#ifndef TRM_TRAIN_STALENESS_H
#define TRM_TRAIN_STALENESS_H

#include <stdint.h>

#include "core/api.h"

TRM_BEGIN_DECLS

#define TRM_STALENESS_BINS 256 /* the last one: this much and more */

struct trm_staleness {
  uint64_t count[TRM_STALENESS_BINS];
  uint64_t updates, sum, max;
};

void trm_staleness_add(struct trm_staleness *staleness, uint64_t value);
void trm_staleness_merge(struct trm_staleness *to, const struct trm_staleness *from);
double trm_staleness_mean(const struct trm_staleness *staleness); /* NAN: no updates */
/* The smallest value that at least this part of the updates do not exceed; part in (0, 1]. 0: no updates */
uint64_t trm_staleness_quantile(const struct trm_staleness *staleness, double fraction);

TRM_END_DECLS
#endif
