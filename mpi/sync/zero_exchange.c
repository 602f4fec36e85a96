/* Collectives of sharded data parallelism: units are gathered from the ranks' shards into slots, and gradients reduced
 * from slots into the shards. */
#include <string.h>

#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"
#include "mpi/sync/zero_private.h"

static struct slot *zero_exchange_slot(const struct zero *z, const struct slots *slots, int u)
{
  return &slots->slot[slots->per_unit ? u : z->unit[u].rotating_slot];
}

/* Returns the slots of the weights, or of the state that is read instead. */
static const struct slots *zero_exchange_weight_slots(const struct zero *z, int array)
{
  return array && z->weights.per_unit ? &z->averages : &z->weights;
}

float *zero_shard_data(const struct zero *z, int array, const struct chunk *chunk)
{
  float *shards = array ? z->state[array - 1] : z->w;
  if (shards)
    return shards + chunk->shard_offset;
  const struct slots *slots = array ? &z->averages : &z->weights;
  return slots->slot[chunk->unit].data + (chunk->low - z->unit[chunk->unit].low) +
         (size_t)z->group->rank * chunk->shard_size;
}

/* Waits for the device. Ends the job if it failed, since others wait for this rank. */
static void zero_exchange_device_wait(struct trm_strategy *strategy)
{
  trm_abort_on_error(strategy->device->ops->sync(strategy->device));
}

static void zero_exchange_wait(struct trm_strategy *strategy, struct slot *slot, int count)
{
  struct trm_comm *comm = ((struct zero *)strategy->impl)->group;
  const double before = comm->ops->clock(comm);
  for (int i = 0; i < count; i++)
    comm->ops->wait(&slot->request[i]);
  sync_end_timing(comm, before, &strategy->comm_s, "wait for shards", TRM_TRACE_WAIT);
}

void zero_group_barrier(struct trm_strategy *strategy)
{
  struct trm_comm *group = ((struct zero *)strategy->impl)->group;
  zero_exchange_device_wait(strategy);
  const double before = group->ops->clock(group);
  group->ops->barrier(group);
  sync_end_timing(group, before, &strategy->wait_s, "group barrier", TRM_TRACE_WAIT);
}

/* -- weights */

static void zero_exchange_gather_finish(struct trm_strategy *strategy, struct slot *slot)
{
  const struct zero *z = strategy->impl;
  if (!slot->in_flight)
    return;
  const struct unit *unit = &z->unit[slot->unit];
  zero_exchange_wait(strategy, slot, unit->last_chunk - unit->first_chunk);
  slot->in_flight = false;
}

static void zero_exchange_gather_begin(struct trm_strategy *strategy, struct slot *slot, int u, int array)
{
  struct zero *z = strategy->impl;
  struct trm_comm *comm = z->group;
  const struct unit *unit = &z->unit[u];
  zero_exchange_gather_finish(strategy, slot);
  zero_exchange_device_wait(strategy);
  slot->unit = u;
  slot->array = array;
  slot->in_flight = true;
  const double before = comm->ops->clock(comm);
  for (int p = unit->first_chunk; p < unit->last_chunk; p++) {
    const struct chunk *chunk = &z->chunk[p];
    comm->ops->allgather_begin(comm, zero_shard_data(z, array, chunk), slot->data + (chunk->low - unit->low),
                               chunk->shard_size, TRM_FLOAT, &slot->request[p - unit->first_chunk]);
  }
  sync_end_timing(comm, before, &strategy->comm_s, "all-gather, begun", TRM_TRACE_COMMUNICATION);
}

static bool zero_exchange_slot_has(const struct slot *slot, int u, int array)
{
  return slot->unit == u && slot->array == array;
}

float *zero_weights_acquire(struct trm_strategy *strategy, int u, int array)
{
  const struct zero *z = strategy->impl;
  struct slot *slot = zero_exchange_slot(z, zero_exchange_weight_slots(z, array), u);
  if (z->node_shared)
    return slot->data;
  if (!zero_exchange_slot_has(slot, u, array))
    zero_exchange_gather_begin(strategy, slot, u, array);
  zero_exchange_gather_finish(strategy, slot);
  slot->users++;
  return slot->data;
}

void zero_weights_release(struct trm_strategy *strategy, int u, int array)
{
  const struct zero *z = strategy->impl;
  if (!z->node_shared)
    zero_exchange_slot(z, zero_exchange_weight_slots(z, array), u)->users--;
}

void zero_weights_prefetch(struct trm_strategy *strategy, int u, int array)
{
  const struct zero *z = strategy->impl;
  if (z->node_shared || u < 0 || u >= z->units)
    return;
  struct slot *slot = zero_exchange_slot(z, zero_exchange_weight_slots(z, array), u);
  if (!zero_exchange_slot_has(slot, u, array) && !slot->users)
    zero_exchange_gather_begin(strategy, slot, u, array);
}

void zero_weights_wait(struct trm_strategy *strategy)
{
  const struct zero *z = strategy->impl;
  for (int i = 0; i < z->weights.count; i++)
    zero_exchange_gather_finish(strategy, &z->weights.slot[i]);
  for (int i = 0; i < z->averages.count; i++)
    zero_exchange_gather_finish(strategy, &z->averages.slot[i]);
}

void zero_weights_invalidate(struct trm_strategy *strategy)
{
  struct zero *z = strategy->impl;
  if (z->node_shared) {
    zero_group_barrier(strategy);
    return;
  }
  zero_weights_wait(strategy);
  for (int i = 0; i < z->averages.count; i++)
    z->averages.slot[i].unit = -1;
  for (int i = 0; i < z->weights.count; i++)
    z->weights.slot[i].unit = -1;
  /* in the order of the forward pass: all units, or as many as have slots */
  const int last = z->units - 1, first = z->weights.per_unit ? 0 : z->units - (z->unit[last].tied ? 2 : 1);
  for (int u = last; u >= first; u--)
    zero_weights_prefetch(strategy, u, 0);
}

/* -- gradients */

/* The progress of a rank of the node with a slot. */
static struct zero_progress_flag *zero_exchange_progress(const struct zero *z, int rank, const struct slot *slot)
{
  return &z->progress[rank * z->rotating_slots + (int)(slot - z->gradients.slot)];
}

/* True if all ranks of the node have completed the gradients in the slot, or (summed) summed their shards of them. */
static bool zero_exchange_node_has(const struct zero *z, const struct slot *slot, bool summed)
{
  for (int rank = 0; rank < z->group->size; rank++) {
    struct zero_progress_flag *flag = zero_exchange_progress(z, rank, slot);
    if (trm_counter_get(summed ? &flag->summed : &flag->completed) < slot->completed)
      return false;
  }
  return true;
}

/* Arguments of zero_exchange_node_has, for wait_until. */
struct zero_condition {
  const struct zero *z;
  const struct slot *slot;
  bool summed;
};

static bool zero_exchange_is_met(void *context)
{
  const struct zero_condition *condition = context;
  return zero_exchange_node_has(condition->z, condition->slot, condition->summed);
}

static void zero_exchange_await_node(struct trm_strategy *strategy, const struct slot *slot, bool summed)
{
  const struct zero *z = strategy->impl;
  struct trm_comm *group = z->group;
  struct zero_condition condition = {z, slot, summed};
  const double before = group->ops->clock(group);
  group->ops->wait_until(group, zero_exchange_is_met, &condition);
  sync_end_timing(group, before, &strategy->wait_s, "wait for the group", TRM_TRACE_WAIT);
}

/* Sums this rank's shard of a unit over the slots of all ranks of the node. */
static void zero_exchange_node_sum(struct trm_strategy *strategy, struct slot *slot)
{
  struct zero *z = strategy->impl;
  struct unit *unit = &z->unit[slot->unit];
  const size_t begin = (size_t)(slot->data - z->gradients.memory);
  zero_exchange_await_node(strategy, slot, false);
  for (int p = unit->first_chunk; p < unit->last_chunk; p++) {
    const struct chunk *chunk = &z->chunk[p];
    const size_t at = begin + (chunk->low - unit->low) + (size_t)z->group->rank * chunk->shard_size;
    int count = 0;
    if (unit->accumulated)
      z->addends[count++] = z->g + chunk->shard_offset;
    for (int rank = 0; rank < z->group->size; rank++)
      z->addends[count++] = (const float *)z->gradients.shared.base[rank] + at;
    strategy->device->ops->sum(strategy->device, &(struct trm_sum){
      .to = z->g + chunk->shard_offset, .from = z->addends, .count = count, .n = chunk->shard_size});
  }
  zero_exchange_device_wait(strategy);
  trm_counter_set(z->group, &zero_exchange_progress(z, z->group->rank, slot)->summed, slot->completed);
  slot->in_flight = false;
  unit->accumulated = true;
}

static void zero_exchange_scatter_finish(struct trm_strategy *strategy, struct slot *slot)
{
  struct zero *z = strategy->impl;
  if (!slot->in_flight)
    return;
  if (z->node_shared) {
    zero_exchange_node_sum(strategy, slot);
    return;
  }
  struct unit *unit = &z->unit[slot->unit];
  const size_t n = unit->shard_size;
  float *shard = z->g + z->chunk[unit->first_chunk].shard_offset;
  const float *const both[] = {shard, slot->received};
  zero_exchange_wait(strategy, slot, unit->last_chunk - unit->first_chunk);
  slot->in_flight = false;
  if (unit->accumulated)
    strategy->device->ops->sum(strategy->device, &(struct trm_sum){.to = shard, .from = both, .count = 2, .n = n});
  unit->accumulated = z->provider.overwrites_gradient; /* otherwise the next gradient includes this one */
}

float *zero_gradient_acquire(struct trm_strategy *strategy, int u)
{
  const struct zero *z = strategy->impl;
  struct slot *slot = zero_exchange_slot(z, &z->gradients, u);
  zero_exchange_scatter_finish(strategy, slot);
  if (z->node_shared)
    zero_exchange_await_node(strategy, slot, true);
  slot->unit = u;
  return slot->data;
}

/* Publishes a complete slot. Sums all slots that are complete on the node: the other ranks need this rank's sum before
 * they can reuse a slot. */
static void zero_exchange_node_release(struct trm_strategy *strategy, struct slot *slot)
{
  struct zero *z = strategy->impl;
  slot->in_flight = true;
  trm_counter_set(z->group, &zero_exchange_progress(z, z->group->rank, slot)->completed, ++slot->completed);
  for (int i = 0; i < z->gradients.count; i++)
    if (z->gradients.slot[i].in_flight && zero_exchange_node_has(z, &z->gradients.slot[i], false))
      zero_exchange_node_sum(strategy, &z->gradients.slot[i]);
}

void zero_gradient_release(struct trm_strategy *strategy, int u)
{
  struct zero *z = strategy->impl;
  struct trm_comm *comm = z->group;
  const struct unit *unit = &z->unit[u];
  struct slot *slot = zero_exchange_slot(z, &z->gradients, u);
  zero_exchange_device_wait(strategy);
  if (z->node_shared) {
    zero_exchange_node_release(strategy, slot);
    return;
  }
  if (unit->accumulated && !slot->received)
    slot->received = trm_alloc(slot->capacity / (size_t)comm->size * sizeof *slot->received, "gradients");
  const double before = comm->ops->clock(comm);
  for (int p = unit->first_chunk; p < unit->last_chunk; p++) {
    const struct chunk *chunk = &z->chunk[p];
    float *to = unit->accumulated ? slot->received + (chunk->shard_offset - z->chunk[unit->first_chunk].shard_offset)
                                  : z->g + chunk->shard_offset;
    comm->ops->reduce_scatter_begin(comm, slot->data + (chunk->low - unit->low), to, chunk->shard_size, TRM_FLOAT,
                                    TRM_SUM, &slot->request[p - unit->first_chunk]);
  }
  sync_end_timing(comm, before, &strategy->comm_s, "reduce-scatter, begun", TRM_TRACE_COMMUNICATION);
  slot->in_flight = true;
}

void zero_gradients_finish(struct trm_strategy *strategy)
{
  struct zero *z = strategy->impl;
  for (int i = 0; i < z->gradients.count; i++)
    zero_exchange_scatter_finish(strategy, &z->gradients.slot[i]);
  if (z->cross && !z->cross_reduced) /* the shards are sums over a group */
    sync_allreduce(strategy, z->cross, z->g, z->shard_size, TRM_FLOAT, "sum over groups");
  z->cross_reduced = true;
}
