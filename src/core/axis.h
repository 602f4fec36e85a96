/* Collectives over the ranks that divide arrays among themselves: all-reduce, all-gather, reduce-scatter.
 *
 * An array (outer, n, inner) is divided in its middle dimension: each rank has the interval of n that trm_interval
 * gives its place, so parts may be uneven. All arrays are a device's; memory that is not the host's goes through
 * buffers of the host. All calls but open and trm_axis_slice are collective among the ranks of the axis, and are done on
 * return.
 */
#ifndef TRM_CORE_AXIS_H
#define TRM_CORE_AXIS_H

#include "core/comm.h"
#include "core/device.h"

TRM_BEGIN_DECLS

struct trm_axis {
  struct trm_comm *comm;     /* not owned */
  struct trm_device *device; /* not owned */
  double comm_s;             /* seconds spent here so far */
  struct trm_comm *node;     /* the same ranks, with memory that they share; NULL: they send messages */
  struct trm_shared shared;  /* a place of each rank for what it has for others */
  int half;                  /* which half of the places is next */
  float *buffer[3];          /* host; they grow */
  size_t capacity[3];
};

void trm_axis_open(struct trm_axis *axis, struct trm_comm *comm, struct trm_device *device);
/* Values go through memory from here on, where all ranks share some (domain: node or NUMA domain). */
void trm_axis_share_memory(struct trm_axis *axis, enum trm_share domain);
void trm_axis_close(struct trm_axis *axis);

/* x (n) = the sum of all ranks' x, the same bits on all */
void trm_axis_allreduce(struct trm_axis *axis, float *x, size_t n);
/* whole (outer, n, inner) from everybody's part (outer, own interval, inner); may not overlap */
void trm_axis_allgather(struct trm_axis *axis, const float *shard, float *full, size_t outer, size_t n, size_t inner);
/* part (outer, own interval, inner) of whole (outer, n, inner); may not overlap. Concerns this rank alone. */
void trm_axis_slice(struct trm_axis *axis, const float *full, float *shard, size_t outer, size_t n, size_t inner);
/* part (outer, own interval, inner) of the sum of all ranks' whole (outer, n, inner); may not overlap */
void trm_axis_reduce_scatter(struct trm_axis *axis, const float *full, float *shard, size_t outer, size_t n,
                             size_t inner);
/* Everybody's x (n): host memory (ranks, n), valid until the next call with this axis. */
const float *trm_axis_allgather_host(struct trm_axis *axis, const float *x, size_t n);

TRM_END_DECLS
#endif
