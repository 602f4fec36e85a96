/* Collectives on sharded arrays, among the ranks of one axis of the process grid.
 *
 * An array (outer, n, inner) is sharded in its middle dimension: each rank has its interval of n (trm_interval), so
 * shards may be uneven. All arrays are device memory; what is not the host's goes through host buffers. All calls but
 * trm_axis_open and trm_axis_slice are collective over the axis and complete on return. Arrays of one call may not
 * overlap. Arrays of values have a type; sums are added in float32 and rounded once. */
#pragma once

#include "core/comm.h"
#include "core/device.h"

TRM_BEGIN_DECLS

/* An axis, as one of its ranks has it. */
struct trm_axis {
  struct trm_comm *comm;     /* not owned */
  struct trm_device *device; /* not owned */
  double comm_s;             /* seconds spent in these calls */
  struct trm_comm *node;     /* the same ranks with shared memory; NULL: they send messages */
  struct trm_shared shared;  /* one slot for each rank, which it writes and others read */
  int half;                  /* half of the slots that is used next: 0 or 1 */
  void *buffer[5];           /* (capacity) host; grow */
  size_t capacity[5];        /* bytes */
};

void trm_axis_open(struct trm_axis *axis, struct trm_comm *comm, struct trm_device *device);
/* Lets values go through shared memory, if all ranks of the axis share the domain. */
void trm_axis_share_memory(struct trm_axis *axis, enum trm_share domain);
void trm_axis_close(struct trm_axis *axis);

/* Sets x (n) to the sum over the ranks, with the same bits on all of them. */
void trm_axis_allreduce(struct trm_axis *axis, void *x, size_t n, enum trm_value_type type);
/* Gathers the full array (outer, n, inner) from the shards (outer, interval, inner). */
void trm_axis_allgather(struct trm_axis *axis, const void *shard, void *full, size_t outer, size_t n, size_t inner,
                        enum trm_value_type type);
/* Copies this rank's shard (outer, interval, inner) out of the full array (outer, n, inner). Not collective. */
void trm_axis_slice(struct trm_axis *axis, const void *full, void *shard, size_t outer, size_t n, size_t inner,
                    enum trm_value_type type);
/* Writes this rank's shard of the sum of all ranks' full arrays. */
void trm_axis_reduce_scatter(struct trm_axis *axis, const void *full, void *shard, size_t outer, size_t n, size_t inner,
                             enum trm_value_type type);
/* Returns x (n) of all ranks: host memory (ranks, n), valid until the next call with this axis. */
const float *trm_axis_allgather_host(struct trm_axis *axis, const float *x, size_t n);

TRM_END_DECLS
