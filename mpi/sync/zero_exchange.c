/* Where weights and gradients travel: whole units between the ranks' shards and the buffers that layers work with. */
#include <string.h>

#include "core/log.h"
#include "core/memory.h"
#include "core/trace.h"
#include "core/status.h"
#include "mpi/sync/zero_private.h"

static struct slot *slot_of(const struct zero *z, const struct slots *slots, int u)
{
  return &slots->slot[slots->all ? u : z->unit[u].turn];
}

/* Where weights, or the state that is used in their place, are to be had. */
static const struct slots *weights_of(const struct zero *z, int array)
{
  return array && z->weights.all ? &z->averages : &z->weights;
}

float *zero_own(const struct zero *z, int array, int u, const struct piece *piece)
{
  float *shards = array ? z->state[array - 1] : z->w;
  if (shards)
    return shards + piece->own;
  const struct slots *slots = array ? &z->averages : &z->weights;
  return slots->slot[u].data + (piece->low - z->unit[u].low) + (size_t)z->group->rank * piece->part;
}

/* Copies to and from what the network sees, where the device's memory is another one. */
static void bring_out(struct trm_strategy *strategy, float *host, const float *data, size_t n)
{
  if (host != data && !strategy->device->host_memory)
    strategy->device->ops->download(strategy->device, host, data, n * sizeof *host);
}

static void bring_in(struct trm_strategy *strategy, float *data, const float *host, size_t n)
{
  if (host != data && !strategy->device->host_memory)
    strategy->device->ops->upload(strategy->device, data, host, n * sizeof *host);
}

/* What the device has been given to do is done. A device that failed has no way back: others wait for this rank. */
static void device_wait(struct trm_strategy *strategy)
{
  const int status = strategy->device->ops->sync(strategy->device);
  if (status == TRM_OK)
    return;
  trm_log_error();
  trm_abort(status);
}

static void requests_wait(struct trm_strategy *strategy, struct slot *slot, int count)
{
  struct trm_comm *comm = ((struct zero *)strategy->own)->group;
  const double before = comm->ops->clock(comm);
  for (int i = 0; i < count; i++)
    comm->ops->wait(&slot->request[i]);
  strategy->comm_s += comm->ops->clock(comm) - before;
  trm_trace_end("wait for parts", TRM_TRACE_WAIT, before, TRM_TRACE_NOWHERE);
}

void zero_meet(struct trm_strategy *strategy)
{
  struct trm_comm *group = ((struct zero *)strategy->own)->group;
  device_wait(strategy);
  const double before = group->ops->clock(group);
  group->ops->barrier(group);
  strategy->wait_s += group->ops->clock(group) - before;
  trm_trace_end("meet the group", TRM_TRACE_WAIT, before, TRM_TRACE_NOWHERE);
}

/* -- weights */

static void gather_finish(struct trm_strategy *strategy, struct slot *slot)
{
  const struct zero *z = strategy->own;
  if (!slot->under_way)
    return;
  const struct unit *unit = &z->unit[slot->unit];
  requests_wait(strategy, slot, unit->last - unit->first);
  bring_in(strategy, slot->data, slot->host, unit->room);
  slot->under_way = false;
}

static void gather_begin(struct trm_strategy *strategy, struct slot *slot, int u, int array)
{
  struct zero *z = strategy->own;
  struct trm_comm *comm = z->group;
  const struct unit *unit = &z->unit[u];
  gather_finish(strategy, slot);
  device_wait(strategy);
  slot->unit = u;
  slot->array = array;
  slot->under_way = true;
  const double before = comm->ops->clock(comm);
  for (int p = unit->first; p < unit->last; p++) {
    const struct piece *piece = &z->piece[p];
    float *all = slot->host + (piece->low - unit->low), *own = all + (size_t)comm->rank * piece->part;
    const float *mine = zero_own(z, array, u, piece);
    if (strategy->device->host_memory) {
      comm->ops->allgather_begin(comm, mine, all, piece->part, TRM_FLOAT, &slot->request[p - unit->first]);
    } else {
      bring_out(strategy, own, mine, piece->part);
      comm->ops->allgather_begin(comm, own, all, piece->part, TRM_FLOAT, &slot->request[p - unit->first]);
    }
  }
  strategy->comm_s += comm->ops->clock(comm) - before;
  trm_trace_end("gather, begun", TRM_TRACE_COMMUNICATION, before, TRM_TRACE_NOWHERE);
}

static bool slot_has(const struct slot *slot, int u, int array)
{
  return slot->unit == u && slot->array == array;
}

float *zero_weights_take(struct trm_strategy *strategy, int u, int array)
{
  const struct zero *z = strategy->own;
  struct slot *slot = slot_of(z, weights_of(z, array), u);
  if (z->in_place)
    return slot->data;
  if (!slot_has(slot, u, array))
    gather_begin(strategy, slot, u, array);
  gather_finish(strategy, slot);
  slot->held++;
  return slot->data;
}

void zero_weights_give(struct trm_strategy *strategy, int u, int array)
{
  const struct zero *z = strategy->own;
  if (!z->in_place)
    slot_of(z, weights_of(z, array), u)->held--;
}

void zero_weights_ahead(struct trm_strategy *strategy, int u, int array)
{
  const struct zero *z = strategy->own;
  if (z->in_place || u < 0 || u >= z->units)
    return;
  struct slot *slot = slot_of(z, weights_of(z, array), u);
  if (!slot_has(slot, u, array) && !slot->held)
    gather_begin(strategy, slot, u, array);
}

void zero_weights_rest(struct trm_strategy *strategy)
{
  struct zero *z = strategy->own;
  for (int i = 0; i < z->weights.count; i++)
    gather_finish(strategy, &z->weights.slot[i]);
  for (int i = 0; i < z->averages.count; i++)
    gather_finish(strategy, &z->averages.slot[i]);
}

void zero_weights_changed(struct trm_strategy *strategy)
{
  struct zero *z = strategy->own;
  if (z->in_place) {
    zero_meet(strategy);
    return;
  }
  zero_weights_rest(strategy);
  for (int i = 0; i < z->averages.count; i++)
    z->averages.slot[i].unit = -1;
  for (int i = 0; i < z->weights.count; i++)
    z->weights.slot[i].unit = -1;
  /* in the order of the forward pass: all of them, or the first two */
  const int last = z->units - 1, first = z->weights.all ? 0 : z->units - (z->unit[last].shared ? 2 : 1);
  for (int u = last; u >= first; u--)
    zero_weights_ahead(strategy, u, 0);
}

/* -- gradients */

/* to (n), this rank's shard, gets what came: another sum, or the first one of this step. */
static void shard_add(struct trm_strategy *strategy, float *to, const float *came, size_t n, bool filled)
{
  const float *const both[] = {to, came};
  if (filled)
    strategy->device->ops->sum(strategy->device, to, both, 2, n);
  else if (to != came)
    strategy->device->ops->copy(strategy->device, to, came, n * sizeof *to);
}

/* Where the ranks of the node are with a slot. */
static struct zero_mark *mark_of(const struct zero *z, int rank, const struct slot *slot)
{
  return &z->mark[rank * z->turns + (int)(slot - z->gradients.slot)];
}

/* Have all ranks of the node given what is in the slot; or added their parts of it? */
static bool node_has(const struct zero *z, const struct slot *slot, bool summed)
{
  for (int rank = 0; rank < z->group->size; rank++) {
    struct zero_mark *mark = mark_of(z, rank, slot);
    if (atomic_load_explicit(summed ? &mark->summed : &mark->given, memory_order_acquire) < slot->given)
      return false;
  }
  return true;
}

static void await_node(struct trm_strategy *strategy, const struct slot *slot, bool summed)
{
  const struct zero *z = strategy->own;
  struct trm_comm *group = z->group;
  const double before = group->ops->clock(group);
  while (!node_has(z, slot, summed))
    group->ops->idle(group, before);
  strategy->wait_s += group->ops->clock(group) - before;
  trm_trace_end("wait for the group", TRM_TRACE_WAIT, before, TRM_TRACE_NOWHERE);
}

/* Adds this rank's part of what the ranks of the node have in their slots. */
static void node_sum(struct trm_strategy *strategy, struct slot *slot)
{
  struct zero *z = strategy->own;
  struct unit *unit = &z->unit[slot->unit];
  const size_t begin = (size_t)(slot->data - z->gradients.memory);
  await_node(strategy, slot, false);
  for (int p = unit->first; p < unit->last; p++) {
    const struct piece *piece = &z->piece[p];
    const size_t at = begin + (piece->low - unit->low) + (size_t)z->group->rank * piece->part;
    int count = 0;
    if (unit->filled)
      z->from[count++] = z->g + piece->own;
    for (int rank = 0; rank < z->group->size; rank++)
      z->from[count++] = (const float *)z->g_shared.base[rank] + at;
    strategy->device->ops->sum(strategy->device, z->g + piece->own, z->from, count, piece->part);
  }
  device_wait(strategy);
  atomic_store_explicit(&mark_of(z, z->group->rank, slot)->summed, slot->given, memory_order_release);
  slot->under_way = false;
  unit->filled = true;
}

static void scatter_finish(struct trm_strategy *strategy, struct slot *slot)
{
  struct zero *z = strategy->own;
  if (!slot->under_way)
    return;
  if (z->in_place) {
    node_sum(strategy, slot);
    return;
  }
  struct unit *unit = &z->unit[slot->unit];
  float *own = z->g + z->piece[unit->first].own;
  requests_wait(strategy, slot, unit->last - unit->first);
  slot->under_way = false;
  if (!strategy->device->host_memory) {
    bring_in(strategy, z->came, slot->sum, unit->part);
    shard_add(strategy, own, z->came, unit->part, unit->filled);
  } else if (unit->filled) {
    shard_add(strategy, own, slot->sum, unit->part, true);
  }
  unit->filled = z->holder.anew; /* otherwise the next one has this one in it */
}

float *zero_gradient_take(struct trm_strategy *strategy, int u)
{
  const struct zero *z = strategy->own;
  struct slot *slot = slot_of(z, &z->gradients, u);
  scatter_finish(strategy, slot);
  if (z->in_place)
    await_node(strategy, slot, true);
  slot->unit = u;
  return slot->data;
}

/* The others need this rank's part of a sum before they can use a slot again: it adds what is complete as early as it
 * can. */
static void node_give(struct trm_strategy *strategy, struct slot *slot)
{
  struct zero *z = strategy->own;
  slot->under_way = true;
  atomic_store_explicit(&mark_of(z, z->group->rank, slot)->given, ++slot->given, memory_order_release);
  for (int i = 0; i < z->gradients.count; i++)
    if (z->gradients.slot[i].under_way && node_has(z, &z->gradients.slot[i], false))
      node_sum(strategy, &z->gradients.slot[i]);
}

void zero_gradient_give(struct trm_strategy *strategy, int u)
{
  struct zero *z = strategy->own;
  struct trm_comm *comm = z->group;
  const struct unit *unit = &z->unit[u];
  struct slot *slot = slot_of(z, &z->gradients, u);
  const bool here = strategy->device->host_memory, aside = unit->filled || !here;
  device_wait(strategy);
  if (z->in_place) {
    node_give(strategy, slot);
    return;
  }
  bring_out(strategy, slot->host, slot->data, unit->room);
  if (aside && !slot->sum)
    slot->sum = trm_alloc(slot->room / (size_t)comm->size * sizeof *slot->sum, "gradients");
  const double before = comm->ops->clock(comm);
  for (int p = unit->first; p < unit->last; p++) {
    const struct piece *piece = &z->piece[p];
    float *to = aside ? slot->sum + (piece->own - z->piece[unit->first].own) : z->g + piece->own;
    comm->ops->reduce_scatter_begin(comm, slot->host + (piece->low - unit->low), to, piece->part, TRM_FLOAT, TRM_SUM,
                                    &slot->request[p - unit->first]);
  }
  strategy->comm_s += comm->ops->clock(comm) - before;
  trm_trace_end("scatter sum, begun", TRM_TRACE_COMMUNICATION, before, TRM_TRACE_NOWHERE);
  slot->under_way = true;
}

/* The shards, from sums over a group to sums over all groups. */
static void groups_add(struct trm_strategy *strategy)
{
  struct zero *z = strategy->own;
  struct trm_device *device = strategy->device;
  const size_t bytes = z->shard * sizeof(float);
  float *host = device->host_memory ? z->g : trm_alloc(bytes, "gradients");
  if (host != z->g)
    device->ops->download(device, host, z->g, bytes);
  const double before = z->cross->ops->clock(z->cross);
  z->cross->ops->allreduce(z->cross, host, z->shard, TRM_FLOAT, TRM_SUM);
  strategy->comm_s += z->cross->ops->clock(z->cross) - before;
  trm_trace_end("sum over groups", TRM_TRACE_COMMUNICATION, before, TRM_TRACE_NOWHERE);
  z->crossed = true;
  if (host == z->g)
    return;
  device->ops->upload(device, z->g, host, bytes);
  trm_free(host);
}

void zero_gradients_finish(struct trm_strategy *strategy)
{
  struct zero *z = strategy->own;
  for (int i = 0; i < z->gradients.count; i++)
    scatter_finish(strategy, &z->gradients.slot[i]);
  if (z->cross && !z->crossed)
    groups_add(strategy);
}
