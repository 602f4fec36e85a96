/* Collectives of an axis through memory that its ranks share. Host arrays. */
#ifndef TRM_CORE_AXIS_SHARED_H
#define TRM_CORE_AXIS_SHARED_H

#include "core/axis.h"
#include "core/axis_sharding.h"

void axis_shared_allreduce(struct trm_axis *axis, float *x, size_t n);
void axis_shared_allgather(struct trm_axis *axis, const struct axis_sharding *s, const float *shard, float *full);
void axis_shared_reduce_scatter(struct trm_axis *axis, const struct axis_sharding *s, const float *full, float *shard);

#endif
