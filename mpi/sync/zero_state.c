/* Sharded arrays in checkpoints: reads and writes intervals of the whole arrays. */
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "mpi/sync/zero_private.h"

/* The address of element `low` of a state, which is in this rank's shard of the chunk. */
static float *zero_state_element(const struct zero *z, int state, const struct chunk *chunk, size_t low)
{
  float *shard = state < 0 ? z->g + chunk->shard_offset : zero_shard_data(z, state, chunk);
  return shard + (low - zero_shard_interval(chunk, z->group->rank).low);
}

/* The statistics of a state; NULL: they have none. */
static float *zero_state_statistics(const struct trm_strategy *strategy, int state)
{
  const struct zero *z = strategy->impl;
  return state == 0 ? z->w_statistics : state == strategy->optimizer->states ? z->average_statistics : NULL;
}

/* Sends the interval `range` of a chunk, part of rank `from`'s shard, to rank 0. Called by all ranks of the group. */
static void zero_state_gather_shard(struct trm_strategy *strategy, int state, const struct chunk *chunk, int from,
                                    struct interval range, float *to)
{
  const struct zero *z = strategy->impl;
  struct trm_comm *comm = z->group;
  struct trm_device *device = strategy->device;
  struct trm_request *request;
  const size_t n = range.high - range.low;
  if (from == 0 && comm->rank == 0) {
    device->ops->download(device, to, zero_state_element(z, state, chunk, range.low), n * sizeof *to);
  } else if (comm->rank == 0) {
    comm->ops->receive_begin(comm, to, n, TRM_FLOAT, from, 0, &request);
    comm->ops->wait(&request);
  } else if (comm->rank == from) {
    float *host = trm_alloc(n * sizeof *host, "a checkpoint's arrays");
    device->ops->download(device, host, zero_state_element(z, state, chunk, range.low), n * sizeof *host);
    comm->ops->send_begin(comm, host, n, TRM_FLOAT, 0, 0, &request);
    comm->ops->wait(&request);
    trm_free(host);
  }
}

/* A chunk that begins at the element or before. */
static int zero_state_first_chunk(const struct zero *z, size_t element)
{
  return z->units ? z->unit[zero_unit_at(z, element)].first_chunk : 0;
}

int zero_read(struct trm_strategy *strategy, int state, size_t low, size_t n, float *to)
{
  const struct zero *z = strategy->impl;
  const struct interval range = {low, low + n};
  if (state < 0)
    zero_gradients_finish(strategy);
  zero_weights_wait(strategy);
  const bool first = !z->cross || z->cross->rank == 0; /* the group of rank 0 */
  for (int p = zero_state_first_chunk(z, low); first && p < z->chunks && z->chunk[p].low < range.high; p++)
    for (int rank = 0; rank < z->group->size; rank++) {
      const struct interval common = sync_overlap(range, zero_shard_interval(&z->chunk[p], rank));
      if (common.low < common.high)
        zero_state_gather_shard(strategy, state, &z->chunk[p], rank, common,
                                strategy->comm->rank ? NULL : to + (common.low - low));
    }
  const struct interval statistics = sync_overlap(range, (struct interval){z->trainable, strategy->elements});
  if (strategy->comm->rank != 0 || statistics.low == statistics.high)
    return TRM_OK;
  const float *from = zero_state_statistics(strategy, state);
  const size_t bytes = (statistics.high - statistics.low) * sizeof *to;
  if (from)
    strategy->device->ops->download(strategy->device, to + (statistics.low - low),
                                    from + (statistics.low - z->trainable), bytes);
  else
    memset(to + (statistics.low - low), 0, bytes);
  return TRM_OK;
}

bool zero_own(const struct trm_strategy *strategy, int state, size_t from, struct trm_own_elements *next)
{
  const struct zero *z = strategy->impl;
  const struct interval rest = {from, strategy->elements};
  if (z->cross && z->cross->rank != 0)
    return false;
  for (int p = from < z->trainable ? zero_state_first_chunk(z, from) : z->chunks; p < z->chunks; p++) {
    const struct interval mine = sync_overlap(rest, zero_shard_interval(&z->chunk[p], z->group->rank));
    if (mine.low >= mine.high)
      continue;
    *next = (struct trm_own_elements){mine.low, mine.high, zero_state_element(z, state, &z->chunk[p], mine.low)};
    return true;
  }
  const struct interval statistics = sync_overlap(rest, (struct interval){z->trainable, strategy->elements});
  const float *values = zero_state_statistics(strategy, state);
  if (z->group->rank != 0 || statistics.low >= statistics.high)
    return false;
  *next = (struct trm_own_elements){statistics.low, statistics.high,
                                    values ? values + (statistics.low - z->trainable) : NULL};
  return true;
}

int zero_write(struct trm_strategy *strategy, int state, size_t low, size_t n, const float *from)
{
  const struct zero *z = strategy->impl;
  struct trm_device *device = strategy->device;
  const struct interval range = {low, low + n};
  if (z->node_shared)
    zero_group_barrier(strategy); /* all ranks have read them */
  zero_weights_wait(strategy);
  for (int p = zero_state_first_chunk(z, low); p < z->chunks && z->chunk[p].low < range.high; p++) {
    const struct interval common = sync_overlap(range, zero_shard_interval(&z->chunk[p], z->group->rank));
    if (common.low < common.high)
      device->ops->upload(device, zero_state_element(z, state, &z->chunk[p], common.low), from + (common.low - low),
                          (common.high - common.low) * sizeof *from);
  }
  const struct interval statistics = sync_overlap(range, (struct interval){z->trainable, strategy->elements});
  float *to = zero_state_statistics(strategy, state);
  if (to && statistics.low < statistics.high)
    device->ops->upload(device, to + (statistics.low - z->trainable), from + (statistics.low - low),
                        (statistics.high - statistics.low) * sizeof *from);
  return device->ops->sync(device);
}

int zero_collect(struct trm_strategy *strategy, const float *view[TRM_MAX_STATES])
{
  struct zero *z = strategy->impl;
  for (int i = 0; i < TRM_MAX_STATES; i++) {
    view[i] = NULL;
    if (i > strategy->optimizer->states)
      continue;
    if (strategy->comm->rank == 0 && !z->view[i])
      z->view[i] = trm_alloc(strategy->elements * sizeof(float), "a checkpoint's arrays");
    TRM_CHECK(zero_read(strategy, i, 0, strategy->elements, z->view[i]));
    view[i] = z->view[i];
  }
  return TRM_OK;
}

int zero_restore(struct trm_strategy *strategy, const float *const from[TRM_MAX_STATES], uint64_t updates)
{
  for (int i = 0; i <= strategy->optimizer->states; i++)
    if (from[i])
      TRM_CHECK(zero_write(strategy, i, 0, strategy->elements, from[i]));
  strategy->updates = updates;
  zero_weights_invalidate(strategy);
  return strategy->device->ops->sync(strategy->device);
}
