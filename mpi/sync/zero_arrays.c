/* How the flat arrays are cut into units and shards, and the memory for them. */
#include <string.h>

#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"
#include "mpi/sync/zero_private.h"

/* -- cutting */

static size_t up_to(size_t n, size_t multiple)
{
  return (n + multiple - 1) / multiple * multiple;
}

/* Large units go in pieces, so that no message is much larger than the others. */
static void unit_divide(struct zero *z, struct unit *unit, size_t ranks, size_t least)
{
  const size_t n = unit->high - unit->low;
  const size_t pieces = (n + 4 * least - 1) / (4 * least), each = up_to((n + pieces - 1) / pieces, ZERO_LINE * ranks);
  unit->first = z->pieces;
  for (size_t at = unit->low; at < unit->high; at += each) {
    const size_t high = unit->high - at < each ? unit->high : at + each;
    const size_t part = up_to(high - at, ZERO_LINE * ranks) / ranks;
    z->piece[z->pieces++] = (struct piece){.low = at, .high = high, .part = part, .own = z->shard};
    z->shard += part;
    unit->part += part;
  }
  unit->room = unit->part * ranks;
  unit->last = z->pieces;
  z->most_pieces = unit->last - unit->first > z->most_pieces ? unit->last - unit->first : z->most_pieces;
}

static void unit_close(struct zero *z, size_t low, size_t high, bool shared, size_t ranks, size_t least)
{
  if (low == high)
    return;
  struct unit *unit = &z->unit[z->units++];
  *unit = (struct unit){.low = low, .high = high, .shared = shared};
  unit_divide(z, unit, ranks, least);
}

/* Units of at least parallel.bucket bytes, from one end of a layer to another. A weight that is used at both ends of
 * the chain is a unit, and none reaches over the end of a chunk. */
static void make_units(struct trm_strategy *strategy, struct zero *z)
{
  const struct trm_optimizer *optimizer = strategy->optimizer;
  const size_t ranks = (size_t)z->group->size, line = ZERO_LINE * ranks;
  const size_t asked = (size_t)strategy->options->parallel.bucket / sizeof(float);
  const size_t least = up_to(asked > line ? asked : line, line);
  z->unit = trm_alloc(((size_t)strategy->boundaries + 1) * sizeof *z->unit, "units");
  z->piece = trm_alloc((z->trained / least + (size_t)strategy->boundaries + 1) * sizeof *z->piece, "units");
  size_t low = 0, layer = 0;
  int t = 0;
  for (int i = 0; i < strategy->boundaries && layer < z->trained; i++) {
    const size_t high = strategy->boundary[i];
    while (optimizer->tensor[t].end < high && t + 1 < optimizer->tensors)
      t++;
    const bool shared = optimizer->tensor[t].shared;
    if (shared) {
      unit_close(z, low, layer, false, ranks, least);
      low = layer;
    }
    layer = high < z->trained ? high : z->trained;
    if (shared || optimizer->tensor[t].last || layer - low >= least || layer == z->trained) {
      unit_close(z, low, layer, shared, ranks, least);
      low = layer;
    }
  }
}

struct interval_of zero_part(const struct piece *piece, int rank)
{
  const size_t low = piece->low + (size_t)rank * piece->part, high = low + piece->part;
  return (struct interval_of){low < piece->high ? low : piece->high, high < piece->high ? high : piece->high};
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

static int take(struct trm_strategy *strategy, size_t elements, const char *what, float **array)
{
  void *memory = NULL;
  if (elements)
    TRM_CHECK(strategy->device->ops->alloc(strategy->device, elements * sizeof(float), what, &memory));
  *array = memory;
  return TRM_OK;
}

/* Slots for turns: neighbours have different ones. */
static void assign_turns(struct zero *z)
{
  int turn = 0;
  z->turns = 2;
  for (int u = 0; u < z->units; u++)
    z->unit[u].turn = z->unit[u].shared ? z->turns++ : turn++ % 2;
}

/* Of an array that stands once each rank takes about its share, otherwise the whole for itself. */
static int take_shared(const struct zero *z, size_t elements, bool once, const char *what, struct trm_shared *shared,
                       float **array)
{
  const size_t page = 65536, pages = (elements * sizeof(float) + page - 1) / page, rank = (size_t)z->group->rank;
  size_t low = 0, high = pages;
  if (once)
    trm_interval(pages, (size_t)z->group->size, rank, &low, &high);
  TRM_CHECK(z->group->ops->share(z->group, (high - low) * page, what, shared));
  *array = once ? shared->base[0] : shared->own;
  return TRM_OK;
}

/* shared: the memory of all of them, by the group; NULL: this rank's own */
static int slots_create(struct trm_strategy *strategy, struct slots *slots, bool all, struct trm_shared *shared,
                        const char *what)
{
  const struct zero *z = strategy->own;
  const bool here = strategy->device->host_memory;
  const char *memory = all ? what : "buffers of units";
  size_t room = 0;
  slots->all = all;
  slots->count = all ? z->units : z->turns;
  slots->slot = trm_alloc((size_t)slots->count * sizeof *slots->slot, what);
  for (int u = 0; u < z->units; u++) {
    struct slot *slot = &slots->slot[all ? u : z->unit[u].turn];
    slot->room = slot->room > z->unit[u].room ? slot->room : z->unit[u].room;
  }
  for (int i = 0; i < slots->count; i++)
    room += slots->slot[i].room;
  if (shared)
    TRM_CHECK(take_shared(z, room, all, memory, shared, &slots->memory));
  else
    TRM_CHECK(take(strategy, room, memory, &slots->memory));
  float *data = slots->memory, *host = here ? NULL : trm_alloc(room * sizeof *host, what);
  for (int i = 0; i < slots->count; i++) {
    struct slot *slot = &slots->slot[i];
    slot->unit = -1;
    slot->data = data;
    slot->host = here ? data : host;
    slot->request = trm_alloc((size_t)z->most_pieces * sizeof *slot->request, what);
    data += slot->room;
    host = host ? host + slot->room : NULL;
  }
  return TRM_OK;
}

static struct trm_comm *zero_group(const struct trm_strategy *strategy)
{
  return ((const struct zero *)strategy->own)->group;
}

static void slots_free(struct trm_strategy *strategy, struct slots *slots, struct trm_shared *shared)
{
  for (int i = 0; i < slots->count; i++) {
    if (i == 0 && slots->slot[i].host != slots->slot[i].data)
      trm_free(slots->slot[i].host);
    trm_free(slots->slot[i].request);
    trm_free(slots->slot[i].sum);
  }
  if (shared->base)
    zero_group(strategy)->ops->unshare(zero_group(strategy), shared);
  else if (slots->memory)
    strategy->device->ops->release(strategy->device, slots->memory);
  trm_free(slots->slot);
}

static int state_create(struct trm_strategy *strategy, struct zero *z, int i)
{
  const char *folder = sync_offload(strategy);
  if (!folder)
    return take(strategy, z->shard, "optimizer states", &z->state[i]);
  TRM_CHECK(trm_mapped_create(trm_comm_self(), folder, z->shard * sizeof(float), "optimizer states", &z->mapped[i]));
  z->state[i] = z->mapped[i].data;
  return TRM_OK;
}

static int shards_create(struct trm_strategy *strategy, struct zero *z)
{
  if (!z->weights.all)
    TRM_CHECK(take(strategy, z->shard, "weights", &z->w));
  TRM_CHECK(take(strategy, z->shard, "gradients", &z->g));
  for (int i = 0; i < strategy->optimizer->states - (z->averages.all ? 1 : 0); i++)
    TRM_CHECK(state_create(strategy, z, i));
  size_t most = 0;
  for (int u = 0; u < z->units; u++)
    most = z->unit[u].part > most ? z->unit[u].part : most;
  return strategy->device->host_memory ? TRM_OK : take(strategy, most, "gradients", &z->came);
}

static int statistics_create(struct trm_strategy *strategy, struct zero *z)
{
  float **const array[] = {&z->w_rest, &z->g_rest, &z->sum_rest, &z->average_rest};
  for (int i = 0; i < 3 + (strategy->optimizer->ema > 0); i++)
    TRM_CHECK(take(strategy, z->statistics, "statistics", array[i]));
  if (z->statistics)
    z->host_rest = trm_alloc(z->statistics * sizeof *z->host_rest, "statistics");
  return TRM_OK;
}

static int marks_create(struct zero *z)
{
  const size_t ranks = (size_t)z->group->size, bytes = ranks * (size_t)z->turns * sizeof *z->mark;
  z->from = trm_alloc((1 + ranks) * sizeof *z->from, "gradients");
  TRM_CHECK(z->group->ops->share(z->group, z->group->rank == 0 ? bytes : 0, "gradients", &z->notes));
  z->mark = z->notes.base[0];
  return TRM_OK;
}

static int arrays_create(struct trm_strategy *strategy, struct zero *z)
{
  const bool all = z->level < 3 || z->in_place;
  TRM_CHECK(slots_create(strategy, &z->weights, all, z->in_place ? &z->w_shared : NULL, "weights"));
  TRM_CHECK(slots_create(strategy, &z->gradients, z->level < 2, z->in_place ? &z->g_shared : NULL, "gradients"));
  if (all && strategy->optimizer->ema > 0)
    TRM_CHECK(slots_create(strategy, &z->averages, z->in_place, z->in_place ? &z->average_shared : NULL,
                           "averaged weights"));
  if (z->in_place)
    TRM_CHECK(marks_create(z));
  TRM_CHECK(shards_create(strategy, z));
  return statistics_create(strategy, z);
}

/* Who divides the arrays: everybody, or each node for itself (parallel.shard). A group that shares memory uses it. */
static void make_groups(struct trm_strategy *strategy, struct zero *z)
{
  struct trm_comm *comm = strategy->comm;
  const char *share = strategy->options->parallel.share;
  const bool shares = strcmp(share, "none") != 0;
  struct trm_comm *node = comm->ops->split_node(comm, shares ? share : "node");
  int32_t most[2] = {node->size, -node->size};
  comm->ops->allreduce(comm, most, 2, TRM_INT32, TRM_MAX);
  const bool even = most[0] == -most[1];
  bool by_node = strcmp(strategy->options->parallel.shard, "node") == 0;
  if (by_node && !even)
    trm_info("the nodes have %d to %d ranks: the arrays are divided over all of them, not over those of each node",
             -most[1], most[0]);
  by_node = even && (by_node || node->size == comm->size);
  z->group = by_node ? node : comm->ops->split(comm, 0, comm->rank);
  z->cross = by_node && node->size < comm->size ? comm->ops->split(comm, node->rank, comm->rank) : NULL;
  z->in_place = by_node && shares && strategy->device->host_memory && z->level > 1 && node->size > 1;
  if (!by_node)
    node->ops->release(node);
}

int zero_create(struct trm_strategy *strategy)
{
  if (strategy->options->run.lanes > 0)
    return trm_error(TRM_USAGE,
                     "run.lanes: the lanes of a rank are added as whole gradients, and with parallel.zero no rank has "
                     "one; leave one of them out");
  if (sync_offload(strategy) && !strategy->device->host_memory)
    return trm_error(TRM_USAGE,
                     "parallel.offload: a file is mapped into the host's memory, and the states of device %s are in "
                     "its own", strategy->device->ops->name);
  const size_t tensors = (size_t)strategy->optimizer->tensors;
  struct zero *z = trm_alloc(sizeof *z, "the strategy");
  strategy->own = z;
  strategy->index = strategy->comm->rank;
  strategy->parts = strategy->comm->size;
  z->level = (int)strategy->options->parallel.zero;
  z->trained = trm_optimizer_trained(strategy->optimizer);
  z->statistics = strategy->elements - z->trained;
  make_groups(strategy, z);
  make_units(strategy, z);
  assign_turns(z);
  z->norm = trm_alloc(2 * tensors * sizeof *z->norm, "norms");
  z->ratio = trm_alloc(tensors * sizeof *z->ratio, "norms");
  const int status = trm_agree(strategy->comm, arrays_create(strategy, z));
  if (status != TRM_OK) {
    zero_destroy(strategy);
    return status;
  }
  z->holder = zero_holder(strategy);
  strategy->holder = &z->holder;
  return TRM_OK;
}

void zero_destroy(struct trm_strategy *strategy)
{
  struct zero *z = strategy->own;
  zero_weights_rest(strategy);
  slots_free(strategy, &z->weights, &z->w_shared);
  slots_free(strategy, &z->gradients, &z->g_shared);
  slots_free(strategy, &z->averages, &z->average_shared);
  if (z->notes.base)
    z->group->ops->unshare(z->group, &z->notes);
  for (int i = 0; i < TRM_MAX_STATES - 1; i++) {
    if (z->mapped[i].data)
      z->state[i] = NULL;
    trm_mapped_free(&z->mapped[i]);
  }
  float *const array[] = {z->w,    z->g,      z->state[0], z->state[1],  z->state[2],
                          z->came, z->w_rest, z->g_rest,   z->sum_rest, z->average_rest};
  for (size_t i = 0; i < sizeof array / sizeof *array; i++)
    if (array[i])
      strategy->device->ops->release(strategy->device, array[i]);
  for (int i = 0; i < TRM_MAX_STATES; i++)
    trm_free(z->view[i]);
  z->group->ops->release(z->group);
  if (z->cross)
    z->cross->ops->release(z->cross);
  trm_free(z->from);
  trm_free(z->host_rest);
  trm_free(z->norm);
  trm_free(z->ratio);
  trm_free(z->unit);
  trm_free(z->piece);
  trm_free(z);
  strategy->own = NULL;
  strategy->holder = NULL;
}
