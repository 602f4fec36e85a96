/* Set-up of sharded data parallelism: groups, units and shards, and their memory. */
#include <string.h>

#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"
#include "mpi/sync/zero_private.h"

/* -- cutting */

static size_t zero_arrays_round_up(size_t n, size_t multiple)
{
  return (n + multiple - 1) / multiple * multiple;
}

/* Cuts a unit into chunks, so that no collective is much larger than the others. */
static void zero_arrays_unit_shard(struct zero *z, struct unit *unit, size_t ranks, size_t min)
{
  const size_t n = unit->high - unit->low;
  const size_t chunks = (n + 4 * min - 1) / (4 * min),
               chunk_size = zero_arrays_round_up((n + chunks - 1) / chunks, ZERO_ALIGN * ranks);
  unit->first_chunk = z->chunks;
  for (size_t at = unit->low; at < unit->high; at += chunk_size) {
    const size_t high = unit->high - at < chunk_size ? unit->high : at + chunk_size;
    const size_t shard_size = zero_arrays_round_up(high - at, ZERO_ALIGN * ranks) / ranks;
    z->chunk[z->chunks++] =
      (struct chunk){.low = at, .high = high, .shard_size = shard_size, .shard_offset = z->shard_size};
    z->shard_size += shard_size;
    unit->shard_size += shard_size;
  }
  unit->capacity = unit->shard_size * ranks;
  unit->last_chunk = z->chunks;
  z->max_chunks =
    unit->last_chunk - unit->first_chunk > z->max_chunks ? unit->last_chunk - unit->first_chunk : z->max_chunks;
}

static void zero_arrays_unit_add(struct zero *z, size_t low, size_t high, bool tied, size_t ranks, size_t min)
{
  if (low == high)
    return;
  struct unit *unit = &z->unit[z->units++];
  *unit = (struct unit){.low = low, .high = high, .tied = tied};
  zero_arrays_unit_shard(z, unit, ranks, min);
}

/* Cuts units of at least parallel.bucket bytes, from the end of a layer to that of another. A weight that is used at
 * both ends of the chain is a unit of its own, and no unit crosses the end of a pipeline chunk. */
static void zero_arrays_make_units(struct trm_strategy *strategy, struct zero *z)
{
  const struct trm_optimizer *optimizer = strategy->optimizer;
  const size_t ranks = (size_t)z->group->size, align = ZERO_ALIGN * ranks;
  const size_t requested = (size_t)strategy->parallel->bucket / sizeof(float);
  const size_t min = zero_arrays_round_up(requested > align ? requested : align, align);
  z->unit = trm_alloc(((size_t)strategy->boundaries + 1) * sizeof *z->unit, "units");
  z->chunk = trm_alloc((z->trainable / min + (size_t)strategy->boundaries + 1) * sizeof *z->chunk, "units");
  size_t low = 0, layer = 0;
  int t = 0;
  for (int i = 0; i < strategy->boundaries && layer < z->trainable; i++) {
    const size_t high = strategy->boundary[i];
    while (optimizer->tensor[t].end < high && t + 1 < optimizer->tensors)
      t++;
    const bool tied = optimizer->tensor[t].shared;
    if (tied) {
      zero_arrays_unit_add(z, low, layer, false, ranks, min);
      low = layer;
    }
    layer = high < z->trainable ? high : z->trainable;
    if (tied || optimizer->tensor[t].last_of_chunk || layer - low >= min || layer == z->trainable) {
      zero_arrays_unit_add(z, low, layer, tied, ranks, min);
      low = layer;
    }
  }
}

struct zero_interval zero_shard_interval(const struct chunk *chunk, int rank)
{
  const size_t low = chunk->low + (size_t)rank * chunk->shard_size, high = low + chunk->shard_size;
  return (struct zero_interval){low < chunk->high ? low : chunk->high, high < chunk->high ? high : chunk->high};
}

int zero_unit_at(const struct zero *z, size_t element)
{
  int low = 0, high = z->units - 1;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (element < z->unit[middle].high)
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

/* -- memory */

static int zero_arrays_alloc(struct trm_strategy *strategy, size_t elements, enum trm_memory_use use, float **array)
{
  void *memory = NULL;
  if (elements)
    TRM_CHECK(strategy->device->ops->alloc(strategy->device, elements * sizeof(float), use, &memory));
  *array = memory;
  return TRM_OK;
}

/* Assigns rotating slots: neighbors have different ones, tied units one of their own. */
static void zero_arrays_assign_slots(struct zero *z)
{
  int next = 0;
  z->rotating_slots = 2;
  for (int u = 0; u < z->units; u++)
    z->unit[u].rotating_slot = z->unit[u].tied ? z->rotating_slots++ : next++ % 2;
}

/* Allocates an array in the group's shared memory: one for all (single_copy, each rank's segment about its shard), or
 * one per rank. */
static int zero_arrays_alloc_shared(const struct zero *z, size_t elements, bool single_copy, enum trm_memory_use use,
                                    struct trm_shared *shared, float **array)
{
  const size_t page = 65536, pages = (elements * sizeof(float) + page - 1) / page, rank = (size_t)z->group->rank;
  size_t low = 0, high = pages;
  if (single_copy)
    trm_interval(pages, (size_t)z->group->size, rank, &low, &high);
  TRM_CHECK(z->group->ops->share(z->group, (high - low) * page, use, shared));
  *array = single_copy ? shared->base[0] : shared->local;
  return TRM_OK;
}

/* shared: their memory, shared by the group; NULL: they are private */
static int zero_arrays_slots_create(struct trm_strategy *strategy, struct slots *slots, bool per_unit,
                                    struct trm_shared *shared, enum trm_memory_use use)
{
  const struct zero *z = strategy->impl;
  const bool on_host = strategy->device->host_memory;
  const char *what = trm_memory_name(use);
  size_t capacity = 0;
  use = per_unit ? use : TRM_MEMORY_UNITS;
  slots->per_unit = per_unit;
  slots->count = per_unit ? z->units : z->rotating_slots;
  slots->slot = trm_alloc((size_t)slots->count * sizeof *slots->slot, what);
  for (int u = 0; u < z->units; u++) {
    struct slot *slot = &slots->slot[per_unit ? u : z->unit[u].rotating_slot];
    slot->capacity = slot->capacity > z->unit[u].capacity ? slot->capacity : z->unit[u].capacity;
  }
  for (int i = 0; i < slots->count; i++)
    capacity += slots->slot[i].capacity;
  if (shared)
    TRM_CHECK(zero_arrays_alloc_shared(z, capacity, per_unit, use, shared, &slots->memory));
  else
    TRM_CHECK(zero_arrays_alloc(strategy, capacity, use, &slots->memory));
  float *data = slots->memory, *host = on_host ? NULL : trm_alloc(capacity * sizeof *host, what);
  for (int i = 0; i < slots->count; i++) {
    struct slot *slot = &slots->slot[i];
    slot->unit = -1;
    slot->data = data;
    slot->host = on_host ? data : host;
    slot->request = trm_alloc((size_t)z->max_chunks * sizeof *slot->request, what);
    data += slot->capacity;
    host = host ? host + slot->capacity : NULL;
  }
  return TRM_OK;
}

static struct trm_comm *zero_arrays_group(const struct trm_strategy *strategy)
{
  return ((const struct zero *)strategy->impl)->group;
}

static void zero_arrays_slots_free(struct trm_strategy *strategy, struct slots *slots, struct trm_shared *shared)
{
  for (int i = 0; i < slots->count; i++) {
    if (i == 0 && slots->slot[i].host != slots->slot[i].data)
      trm_free(slots->slot[i].host);
    trm_free(slots->slot[i].request);
    trm_free(slots->slot[i].received);
  }
  if (shared->base)
    zero_arrays_group(strategy)->ops->unshare(zero_arrays_group(strategy), shared);
  else if (slots->memory)
    strategy->device->ops->release(strategy->device, slots->memory);
  trm_free(slots->slot);
}

static int zero_arrays_state_create(struct trm_strategy *strategy, struct zero *z, int i)
{
  const char *dir = sync_offload_dir(strategy);
  if (!dir)
    return zero_arrays_alloc(strategy, z->shard_size, TRM_MEMORY_STATES, &z->state[i]);
  TRM_CHECK(trm_mapped_create(trm_comm_self(), dir, z->shard_size * sizeof(float), "optimizer states", &z->mapped[i]));
  z->state[i] = z->mapped[i].data;
  return TRM_OK;
}

static int zero_arrays_shards_create(struct trm_strategy *strategy, struct zero *z)
{
  if (!z->weights.per_unit)
    TRM_CHECK(zero_arrays_alloc(strategy, z->shard_size, TRM_MEMORY_WEIGHTS, &z->w));
  TRM_CHECK(zero_arrays_alloc(strategy, z->shard_size, TRM_MEMORY_GRADIENTS, &z->g));
  for (int i = 0; i < strategy->optimizer->states - (z->averages.per_unit ? 1 : 0); i++)
    TRM_CHECK(zero_arrays_state_create(strategy, z, i));
  size_t max = 0;
  for (int u = 0; u < z->units; u++)
    max = z->unit[u].shard_size > max ? z->unit[u].shard_size : max;
  return strategy->device->host_memory ? TRM_OK : zero_arrays_alloc(strategy, max, TRM_MEMORY_GRADIENTS, &z->received);
}

static int zero_arrays_statistics_create(struct trm_strategy *strategy, struct zero *z)
{
  float **const array[] = {&z->w_statistics, &z->g_statistics, &z->statistics_sum, &z->average_statistics};
  for (int i = 0; i < 3 + (strategy->optimizer->ema > 0); i++)
    TRM_CHECK(zero_arrays_alloc(strategy, z->statistics, TRM_MEMORY_BUFFERS, array[i]));
  if (z->statistics)
    z->host_statistics = trm_alloc(z->statistics * sizeof *z->host_statistics, "statistics");
  return TRM_OK;
}

static int zero_arrays_progress_create(struct zero *z)
{
  const size_t ranks = (size_t)z->group->size, bytes = ranks * (size_t)z->rotating_slots * sizeof *z->progress;
  z->addends = trm_alloc((1 + ranks) * sizeof *z->addends, "gradients");
  TRM_CHECK(z->group->ops->share(z->group, z->group->rank == 0 ? bytes : 0, TRM_MEMORY_GRADIENTS, &z->scratch));
  z->progress = z->scratch.base[0];
  return TRM_OK;
}

static int zero_arrays_create_all(struct trm_strategy *strategy, struct zero *z)
{
  const bool per_unit = z->level < 3 || z->node_shared;
  TRM_CHECK(zero_arrays_slots_create(strategy, &z->weights, per_unit, z->node_shared ? &z->w_shared : NULL,
                                     TRM_MEMORY_WEIGHTS));
  TRM_CHECK(zero_arrays_slots_create(strategy, &z->gradients, z->level < 2, z->node_shared ? &z->g_shared : NULL,
                                     TRM_MEMORY_GRADIENTS));
  if (per_unit && strategy->optimizer->ema > 0)
    TRM_CHECK(zero_arrays_slots_create(strategy, &z->averages, z->node_shared,
                                       z->node_shared ? &z->average_shared : NULL, TRM_MEMORY_STATES));
  if (z->node_shared)
    TRM_CHECK(zero_arrays_progress_create(z));
  TRM_CHECK(zero_arrays_shards_create(strategy, z));
  return zero_arrays_statistics_create(strategy, z);
}

/* Makes the group that shards the arrays: all ranks, or those of each node (parallel.shard). */
static void zero_arrays_make_groups(struct trm_strategy *strategy, struct zero *z)
{
  struct trm_comm *comm = strategy->comm;
  const enum trm_share share = strategy->parallel->share;
  const bool shares = share != TRM_SHARE_NONE;
  struct trm_comm *node = comm->ops->split_node(comm, shares ? share : TRM_SHARE_NODE);
  int32_t bounds[2] = {node->size, -node->size};
  comm->ops->allreduce(comm, bounds, 2, TRM_INT32, TRM_MAX);
  const bool even = bounds[0] == -bounds[1];
  bool by_node = strategy->parallel->shard == TRM_SHARD_NODE;
  if (by_node && !even)
    trm_info("the nodes have %d to %d ranks: the arrays are divided over all of them, not over those of each node",
             -bounds[1], bounds[0]);
  by_node = even && (by_node || node->size == comm->size);
  z->group = by_node ? node : trm_comm_group(comm, TRM_GROUP_ALL, NULL, comm->rank);
  z->cross = by_node && node->size < comm->size ? trm_comm_group(comm, TRM_GROUP_ACROSS_NODES, node, comm->rank)
                                              : NULL;
  z->node_shared = by_node && shares && strategy->device->host_memory && z->level > 1 && node->size > 1;
  if (!by_node)
    node->ops->release(node);
}

int zero_arrays_create(struct trm_strategy *strategy)
{
  struct zero *z = strategy->impl;
  const size_t tensors = (size_t)strategy->optimizer->tensors;
  z->level = (int)strategy->parallel->zero;
  z->trainable = trm_optimizer_trained(strategy->optimizer);
  z->statistics = strategy->elements - z->trainable;
  zero_arrays_make_groups(strategy, z);
  zero_arrays_make_units(strategy, z);
  zero_arrays_assign_slots(z);
  z->norms = trm_alloc(2 * tensors * sizeof *z->norms, "norms");
  z->ratios = trm_alloc(tensors * sizeof *z->ratios, "norms");
  return trm_agree(strategy->comm, zero_arrays_create_all(strategy, z));
}

void zero_arrays_destroy(struct trm_strategy *strategy)
{
  struct zero *z = strategy->impl;
  zero_arrays_slots_free(strategy, &z->weights, &z->w_shared);
  zero_arrays_slots_free(strategy, &z->gradients, &z->g_shared);
  zero_arrays_slots_free(strategy, &z->averages, &z->average_shared);
  if (z->scratch.base)
    z->group->ops->unshare(z->group, &z->scratch);
  for (int i = 0; i < TRM_MAX_STATES - 1; i++) {
    if (z->mapped[i].data)
      z->state[i] = NULL;
    trm_mapped_free(&z->mapped[i]);
  }
  float *const array[] = {z->w,    z->g,      z->state[0], z->state[1],  z->state[2],
                          z->received, z->w_statistics, z->g_statistics,   z->statistics_sum, z->average_statistics};
  for (size_t i = 0; i < sizeof array / sizeof *array; i++)
    if (array[i])
      strategy->device->ops->release(strategy->device, array[i]);
  for (int i = 0; i < TRM_MAX_STATES; i++)
    trm_free(z->view[i]);
  z->group->ops->release(z->group);
  if (z->cross)
    z->cross->ops->release(z->cross);
  trm_free(z->addends);
  trm_free(z->host_statistics);
  trm_free(z->norms);
  trm_free(z->ratios);
  trm_free(z->unit);
  trm_free(z->chunk);
}
