/* What goes between the nodes in a step: the sum of the losses, first, and the sums of the buckets, in their order.
 * All of it is non-blocking: begun, tested between layers, and waited for in slot step. */
#include <stdio.h>

#include "core/status.h"
#include "mpi/sync/sync_private.h"

/* -- times */

static double between_nodes_clock(const struct sync *s)
{
  return s->cross[0]->ops->clock(s->cross[0]);
}

/* Counts a sum that has been begun, or has arrived, among those on the wire. */
static void between_nodes_count(struct trm_strategy *strategy, int change)
{
  struct sync *s = strategy->impl;
  const double now = between_nodes_clock(s);
  if (!sync_has_other_nodes(s))
    return;
  if (s->on_wire == 0)
    s->on_wire_since = now;
  s->on_wire += change;
  if (s->on_wire == 0)
    strategy->wire.flight_s += now - s->on_wire_since;
}

/* The time since `before` was spent on messages between nodes. */
static void between_nodes_end_timing(struct trm_strategy *strategy, double before, const char *name,
                                     enum trm_trace_kind kind)
{
  const struct sync *s = strategy->impl;
  const double comm_s = strategy->comm_s;
  if (!sync_has_other_nodes(s))
    return;
  sync_end_timing(s->cross[0], before, &strategy->comm_s, name, kind);
  strategy->wire.exposed_s += strategy->comm_s - comm_s;
}

/* -- losses. Every communicator that this rank is in adds them, in the order of the nodes: the same bits in all. */

static void between_nodes_begin_losses(struct trm_strategy *strategy)
{
  struct sync *s = strategy->impl;
  const double before = between_nodes_clock(s);
  struct trm_loss_sums node;
  sync_node_sum_losses(s, &node);
  s->losses_begun = true;
  between_nodes_count(strategy, 1);
  for (int i = 0; i < s->crosses; i++) {
    s->losses[i].sums = node;
    if (sync_has_other_nodes(s))
      s->cross[i]->ops->allreduce_begin(s->cross[i], &s->losses[i].sums, TRM_LOSS_SUMS, TRM_DOUBLE, TRM_TREE_SUM,
                                        &s->losses[i].request);
  }
  between_nodes_end_timing(strategy, before, "sum of losses, begun", TRM_TRACE_COMMUNICATION);
}

static void between_nodes_test_losses(struct trm_strategy *strategy)
{
  struct sync *s = strategy->impl;
  for (int i = 0; i < s->crosses; i++)
    if (!s->cross[i]->ops->test(&s->losses[i].request))
      return;
  s->losses_known = true;
  between_nodes_count(strategy, -1);
}

int sync_between_nodes_losses(struct trm_strategy *strategy, struct trm_loss_sums *sums)
{
  struct sync *s = strategy->impl;
  if (!s->losses_known) {
    const double before = between_nodes_clock(s);
    for (int i = 0; i < s->crosses; i++)
      s->cross[i]->ops->wait(&s->losses[i].request);
    between_nodes_end_timing(strategy, before, "sum of losses", TRM_TRACE_WAIT);
    between_nodes_test_losses(strategy);
  }
  *sums = s->losses[0].sums;
  return sync_check_losses(strategy, sums);
}

/* -- buckets */

/* Sums this rank's slice of the next bucket, which is final on the whole node. */
static int between_nodes_sum_bucket(struct trm_strategy *strategy)
{
  struct sync *s = strategy->impl;
  const struct interval slice = s->bucket[s->summed++].slice;
  sync_node_sum_slice(strategy, slice);
  if (strategy->node_clip > 0)
    sync_clip_add(strategy, slice);
  return strategy->device->ops->sync(strategy->device);
}

/* Begins the sum over the nodes of the next bucket, which is summed. With lanes its order is fixed, too: (node 0 + node
 * 1) + (node 2 + node 3)..., which continues the tree of the node's sum. */
static void between_nodes_begin_bucket(struct trm_strategy *strategy)
{
  struct sync *s = strategy->impl;
  struct bucket *bucket = &s->bucket[s->begun++];
  bucket->began = between_nodes_clock(s);
  between_nodes_count(strategy, 1);
  sync_bucket_sum_begin(strategy, bucket);
  between_nodes_end_timing(strategy, bucket->began, "gradient sum, begun", TRM_TRACE_COMMUNICATION);
}

/* The next bucket has arrived. */
static void between_nodes_arrive(struct trm_strategy *strategy)
{
  struct sync *s = strategy->impl;
  const struct bucket *bucket = &s->bucket[s->arrived];
  char name[32];
  between_nodes_count(strategy, -1);
  snprintf(name, sizeof name, "sum of bucket %d", s->arrived++);
  if (sync_has_other_nodes(s))
    trm_trace_add(name, TRM_TRACE_FLIGHT, bucket->began, between_nodes_clock(s), TRM_TRACE_NO_IDS);
}

int sync_between_nodes_advance(struct trm_strategy *strategy)
{
  struct sync *s = strategy->impl;
  if (!s->losses_begun && sync_node_has(strategy, SYNC_FINAL, 1))
    between_nodes_begin_losses(strategy);
  /* Not before the losses, which other ranks may have published since they were looked for: all ranks begin the sums of
   * a communicator in one order. */
  while (s->losses_begun && s->summed < s->buckets &&
         sync_node_has(strategy, SYNC_FINAL, s->bucket[s->summed].full.high)) {
    TRM_CHECK(between_nodes_sum_bucket(strategy));
    if (strategy->node_clip == 0)
      between_nodes_begin_bucket(strategy);
  }
  while (s->clipped && s->begun < s->buckets)
    between_nodes_begin_bucket(strategy);
  const double before = between_nodes_clock(s);
  s->cross[0]->ops->progress(s->cross[0]);
  if (s->losses_begun && !s->losses_known)
    between_nodes_test_losses(strategy);
  while (s->arrived < s->begun && sync_bucket_sum_test(strategy, &s->bucket[s->arrived]))
    between_nodes_arrive(strategy);
  between_nodes_end_timing(strategy, before, "progress", TRM_TRACE_COMMUNICATION);
  return TRM_OK;
}

void sync_between_nodes_await_bucket(struct trm_strategy *strategy)
{
  struct sync *s = strategy->impl;
  const double before = between_nodes_clock(s);
  sync_bucket_sum_wait(strategy, &s->bucket[s->arrived]);
  between_nodes_arrive(strategy);
  between_nodes_end_timing(strategy, before, "wait for gradient sum", TRM_TRACE_WAIT);
}
