/* Collectives of an axis through memory that its ranks share. Host arrays; sums are of floats. */
#pragma once

#include "core/axis.h"
#include "core/axis_sharding.h"

void axis_shared_allreduce(struct trm_axis *axis, float *x, size_t n);
void axis_shared_allgather(struct trm_axis *axis, const struct axis_sharding *s, const void *shard, void *full);
void axis_shared_reduce_scatter(struct trm_axis *axis, const struct axis_sharding *s, const float *full, float *shard);
