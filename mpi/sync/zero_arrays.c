/* Set-up of sharded data parallelism: groups, units and shards, and their memory. */
#include "core/memory.h"
#include "core/status.h"
#include "mpi/sync/zero_private.h"
#include "train/buckets.h"

/* -- cutting */

static size_t zero_arrays_round_up(size_t n, size_t multiple)
{
  return (n + multiple - 1) / multiple * multiple;
}

/* Cuts a unit into at most `parts` chunks, so that no collective is much larger than the others. */
static void zero_arrays_shard_unit(struct zero *z, struct unit *unit, size_t parts)
{
  const size_t n = unit->high - unit->low, ranks = (size_t)z->group->size;
  const size_t chunk_size = zero_arrays_round_up((n + parts - 1) / parts, ZERO_ALIGN * ranks);
  unit->first_chunk = z->chunks;
  for (size_t at = unit->low; at < unit->high; at += chunk_size) {
    const size_t high = unit->high - at < chunk_size ? unit->high : at + chunk_size;
    const size_t shard_size = zero_arrays_round_up(high - at, ZERO_ALIGN * ranks) / ranks;
    z->chunk[z->chunks++] = (struct chunk){
      .low = at, .high = high, .shard_size = shard_size, .shard_offset = z->shard_size, .unit = (int)(unit - z->unit)};
    z->shard_size += shard_size;
    unit->shard_size += shard_size;
  }
  unit->capacity = unit->shard_size * ranks;
  unit->last_chunk = z->chunks;
  z->max_chunks =
    unit->last_chunk - unit->first_chunk > z->max_chunks ? unit->last_chunk - unit->first_chunk : z->max_chunks;
}

/* The tensor that has the element before `end`. */
static const struct trm_tensor *zero_arrays_tensor_at(const struct trm_optimizer *optimizer, size_t end)
{
  int t = 0;
  while (optimizer->tensor[t].end < end && t + 1 < optimizer->tensors)
    t++;
  return &optimizer->tensor[t];
}

/* Units begin at the ends of layers. A weight that is used at both ends of the chain is a unit of its own, and no unit
 * crosses the end of a pipeline chunk. */
static void zero_arrays_make_units(struct trm_strategy *strategy, struct zero *z)
{
  const size_t align = ZERO_ALIGN * (size_t)z->group->size;
  const size_t requested = (size_t)strategy->parallel->bucket / sizeof(float);
  bool *ends = trm_alloc((size_t)strategy->boundaries * sizeof *ends, "units");
  for (int i = 0; i < strategy->boundaries && z->trainable; i++) {
    const struct trm_tensor *tensor = zero_arrays_tensor_at(strategy->optimizer, strategy->boundary[i]);
    ends[i] = tensor->shared || tensor->last_of_chunk;
    if (tensor->shared && i > 0)
      ends[i - 1] = true;
  }
  const size_t min = zero_arrays_round_up(requested > align ? requested : align, align);
  const struct trm_bucket_rule rule = {
    .elements = z->trainable,
    .boundary = strategy->boundary,
    .boundaries = strategy->boundaries,
    .min = min,
    .max = 4 * min,
    .align = 1,
    .ends = ends,
  };
  struct trm_bucket *cut = trm_buckets_cut(&rule, &z->units);
  size_t parts = 0;
  for (int u = 0; u < z->units; u++)
    parts += cut[u].parts;
  z->unit = trm_alloc((size_t)z->units * sizeof *z->unit, "units");
  z->chunk = trm_alloc(parts * sizeof *z->chunk, "units");
  for (int u = 0; u < z->units; u++) {
    const bool tied = zero_arrays_tensor_at(strategy->optimizer, cut[u].high)->shared;
    z->unit[u] = (struct unit){.low = cut[u].low, .high = cut[u].high, .tied = tied};
    zero_arrays_shard_unit(z, &z->unit[u], cut[u].parts);
  }
  trm_free(cut);
  trm_free(ends);
}

struct interval zero_shard_interval(const struct chunk *chunk, int rank)
{
  const size_t low = chunk->low + (size_t)rank * chunk->shard_size;
  return sync_overlap((struct interval){low, low + chunk->shard_size}, (struct interval){chunk->low, chunk->high});
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

/* A private array on the device; without elements it is NULL. */
static int zero_arrays_alloc(struct trm_strategy *strategy, size_t elements, enum trm_memory_use use, float **array)
{
  struct zero *z = strategy->impl;
  void *memory = NULL;
  if (elements)
    TRM_CHECK(strategy->device->ops->alloc(strategy->device, elements * sizeof(float), use, &memory));
  if (memory)
    z->array[z->arrays++] = memory;
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

/* Allocates the slots' memory: private, or shared by the group. Then slots per unit have one copy for all, in which a
 * rank's segment is about its shard; others one copy per rank. */
static int zero_arrays_slots_alloc(struct trm_strategy *strategy, struct slots *slots, size_t elements,
                                   enum trm_memory_use use)
{
  const struct zero *z = strategy->impl;
  if (!z->node_shared)
    return zero_arrays_alloc(strategy, elements, use, &slots->memory);
  const size_t rank = (size_t)z->group->rank;
  size_t low = 0, high = (elements * sizeof(float) + SYNC_SEGMENT_BYTES - 1) / SYNC_SEGMENT_BYTES;
  if (slots->per_unit)
    trm_interval(high, (size_t)z->group->size, rank, &low, &high);
  TRM_CHECK(z->group->ops->share(z->group, (high - low) * SYNC_SEGMENT_BYTES, use, &slots->shared));
  slots->memory = slots->shared.base[slots->per_unit ? 0 : rank];
  return TRM_OK;
}

static int zero_arrays_slots_create(struct trm_strategy *strategy, struct slots *slots, bool per_unit,
                                    enum trm_memory_use use)
{
  const struct zero *z = strategy->impl;
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
  TRM_CHECK(zero_arrays_slots_alloc(strategy, slots, capacity, use));
  float *data = slots->memory;
  for (int i = 0; i < slots->count; i++) {
    struct slot *slot = &slots->slot[i];
    slot->unit = -1;
    slot->data = data;
    slot->request = trm_alloc((size_t)z->max_chunks * sizeof *slot->request, what);
    data += slot->capacity;
  }
  return TRM_OK;
}

static void zero_arrays_slots_free(const struct zero *z, struct slots *slots)
{
  for (int i = 0; i < slots->count; i++) {
    trm_free(slots->slot[i].request);
    trm_free(slots->slot[i].received);
  }
  if (slots->shared.base)
    z->group->ops->unshare(z->group, &slots->shared);
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
  return TRM_OK;
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
  TRM_CHECK(zero_arrays_slots_create(strategy, &z->weights, per_unit, TRM_MEMORY_WEIGHTS));
  TRM_CHECK(zero_arrays_slots_create(strategy, &z->gradients, z->level < 2, TRM_MEMORY_GRADIENTS));
  if (per_unit && strategy->optimizer->ema > 0)
    TRM_CHECK(zero_arrays_slots_create(strategy, &z->averages, z->node_shared, TRM_MEMORY_STATES));
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
  const bool shares = share != TRM_SHARE_NONE, wanted = strategy->parallel->shard == TRM_SHARD_NODE;
  struct trm_comm *node = sync_equal_node(
    strategy, shares ? share : TRM_SHARE_NODE,
    wanted ? "the arrays are divided over all of them, not over those of each node" : NULL);
  if (node && !wanted && node->size < comm->size) {
    node->ops->release(node);
    node = NULL;
  }
  z->group = node ? node : trm_comm_group(comm, TRM_GROUP_ALL, NULL, comm->rank);
  z->cross = node && node->size < comm->size ? trm_comm_group(comm, TRM_GROUP_ACROSS_NODES, node, comm->rank) : NULL;
  z->node_shared = node && shares && z->level > 1 && node->size > 1;
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
  struct slots *const slots[] = {&z->weights, &z->gradients, &z->averages};
  for (int i = 0; i < 3; i++)
    zero_arrays_slots_free(z, slots[i]);
  if (z->scratch.base)
    z->group->ops->unshare(z->group, &z->scratch);
  for (int i = 0; i < TRM_MAX_STATES - 1; i++)
    trm_mapped_free(&z->mapped[i]);
  for (int i = 0; i < z->arrays; i++)
    strategy->device->ops->release(strategy->device, z->array[i]);
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
