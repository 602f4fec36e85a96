/* Set-up of the synchronous method: communicators, buckets, and the arrays in shared memory. */
#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"
#include "mpi/sync/sync_private.h"
#include "train/buckets.h"

/* Part `index` of `parts` of an interval, in whole units; full.low is a multiple of SYNC_UNIT. */
static struct interval sync_arrays_slice(struct interval full, int parts, int index)
{
  size_t first, last;
  trm_interval(sync_units(full.high - full.low), (size_t)parts, (size_t)index, &first, &last);
  return sync_overlap((struct interval){full.low + first * SYNC_UNIT, full.low + last * SYNC_UNIT}, full);
}

struct trm_comm *sync_equal_node(const struct trm_strategy *strategy, enum trm_share share, const char *consequence)
{
  struct trm_comm *comm = strategy->comm, *node = comm->ops->split_node(comm, share);
  int32_t bounds[2] = {node->size, -node->size};
  comm->ops->allreduce(comm, bounds, 2, TRM_INT32, TRM_MAX);
  if (bounds[0] == -bounds[1])
    return node;
  if (consequence)
    trm_info("the nodes have %d to %d ranks: %s", -bounds[1], bounds[0], consequence);
  node->ops->release(node);
  return NULL;
}

/* Returns the largest number of ranks of a node, and sets *equal if all nodes have as many. Collective. */
static int sync_arrays_largest_node(const struct trm_strategy *strategy, const struct trm_comm *node, bool *equal)
{
  int32_t bounds[2] = {node->size, -node->size};
  strategy->comm->ops->allreduce(strategy->comm, bounds, 2, TRM_INT32, TRM_MAX);
  *equal = bounds[0] == -bounds[1];
  return bounds[0];
}

/* Nodes of unequal numbers of ranks: for each slice of a bucket the communicator of its owners, which has one rank of
 * each node. first: this node's first rank. */
static void sync_arrays_make_uneven_groups(struct trm_strategy *strategy, struct sync *s, int32_t first)
{
  struct trm_comm *comm = strategy->comm;
  for (int slice = 0; slice < s->slices; slice++) {
    const bool owned = slice >= s->first_slice && slice < s->first_slice + s->crosses;
    struct trm_comm *cross = comm->ops->split(comm, owned ? 0 : -1, first);
    if (owned)
      s->cross[slice - s->first_slice] = cross;
  }
  int32_t *firsts = trm_alloc((size_t)comm->size * sizeof *firsts, "nodes");
  comm->ops->allgather(comm, &first, firsts, 1, TRM_INT32);
  for (int rank = 0; rank < comm->size; rank++)
    strategy->batch_shard += firsts[rank] < first || (firsts[rank] == first && rank < comm->rank);
  trm_free(firsts);
}

/* Makes the node, and the communicators between the nodes, which are in the order of their first ranks. */
static void sync_arrays_make_groups(struct trm_strategy *strategy, struct sync *s)
{
  struct trm_comm *comm = strategy->comm;
  const enum trm_share share = strategy->parallel->share;
  bool equal = true;
  size_t low, high;
  s->slices = 1;
  if (share != TRM_SHARE_NONE) {
    s->node = comm->ops->split_node(comm, share);
    s->slices = sync_arrays_largest_node(strategy, s->node, &equal);
  }
  if (!equal && strategy->lanes > 0) {
    trm_info("the nodes have unequal numbers of ranks: with run.lanes each rank keeps weights and states of its own "
             "(to share them, give every node as many ranks)");
    s->node->ops->release(s->node);
    s->node = NULL;
    s->slices = 1;
    equal = true;
  }
  if (!s->node)
    s->node = trm_comm_group(comm, TRM_GROUP_SELF, NULL, 0);
  int32_t first = comm->rank;
  s->node->ops->broadcast(s->node, &first, 1, TRM_INT32, 0);
  trm_interval((size_t)s->slices, (size_t)s->node->size, (size_t)s->node->rank, &low, &high);
  s->first_slice = (int)low;
  s->crosses = (int)(high - low);
  s->cross = trm_alloc((size_t)s->crosses * sizeof *s->cross, "communicators");
  s->losses = trm_alloc((size_t)s->crosses * sizeof *s->losses, "communicators");
  if (equal) {
    s->cross[0] = trm_comm_group(comm, TRM_GROUP_ACROSS_NODES, s->node, first);
    strategy->batch_shard = s->cross[0]->rank * s->node->size + s->node->rank;
  } else {
    sync_arrays_make_uneven_groups(strategy, s, first);
  }
  strategy->batch_shards = comm->size;
}

/* Adds this rank's slices of an interval of the flat array that is sent at once. */
static void sync_arrays_add_bucket(struct sync *s, struct interval full)
{
  for (int i = 0; i < s->crosses && full.low < full.high; i++)
    s->bucket[s->buckets++] = (struct bucket){
      .full = full, .slice = sync_arrays_slice(full, s->slices, s->first_slice + i), .cross = s->cross[i]};
}

/* Buckets begin at multiples of SYNC_UNIT. The first one is small, so that the wire is soon busy. A rank's message has
 * at most parallel.bucket bytes. On one node nothing is sent: one bucket. */
static void sync_arrays_make_buckets(struct trm_strategy *strategy, struct sync *s)
{
  const size_t slices = (size_t)s->slices, unit = SYNC_UNIT * slices;
  const size_t requested = (size_t)strategy->parallel->bucket / sizeof(float) * slices;
  const bool sends = sync_has_other_nodes(s);
  const struct trm_bucket_rule rule = {
    .elements = strategy->elements,
    .boundary = strategy->boundary,
    .boundaries = strategy->boundaries,
    .first = sends ? unit : strategy->elements,
    .min = !sends ? strategy->elements : requested / 4 > unit ? requested / 4 : unit,
    .max = !sends ? strategy->elements : requested > unit ? requested : unit,
    .align = SYNC_UNIT,
  };
  int count;
  size_t parts = 0;
  struct trm_bucket *cut = trm_buckets_cut(&rule, &count);
  for (int i = 0; i < count; i++)
    parts += cut[i].parts;
  s->bucket = trm_alloc(parts * (size_t)s->crosses * sizeof *s->bucket, "buckets");
  for (int i = 0; i < count; i++)
    for (size_t p = 0; p < cut[i].parts; p++) {
      const struct interval whole = {cut[i].low, cut[i].high};
      sync_arrays_add_bucket(s, sync_arrays_slice(whole, (int)cut[i].parts, (int)p));
    }
  trm_free(cut);
  strategy->part = sends ? rule.max / 2 : 0;
}

/* The end, in bytes, of the first `parts` ranks' segments of a shared array. A segment is about the slice that the rank
 * will update, so that it is placed on its NUMA node. */
static size_t sync_arrays_segment_end(const struct sync *s, size_t elements, int parts)
{
  const size_t bytes = (elements * sizeof(float) + SYNC_SEGMENT_BYTES - 1) / SYNC_SEGMENT_BYTES * SYNC_SEGMENT_BYTES;
  if (parts == s->node->size)
    return bytes;
  const struct interval upto = sync_arrays_slice((struct interval){0, elements}, s->node->size, parts);
  return upto.low * sizeof(float) / SYNC_SEGMENT_BYTES * SYNC_SEGMENT_BYTES;
}

/* single_copy: one for the node; otherwise one for each rank */
static int sync_arrays_alloc(struct trm_strategy *strategy, size_t elements, enum trm_memory_use use, bool single_copy,
                             struct array *array)
{
  const struct sync *s = strategy->impl;
  const size_t rank = (size_t)s->node->rank;
  size_t bytes = elements * sizeof(float);
  if (s->node->size == 1)
    return strategy->device->ops->alloc(strategy->device, bytes, use, (void **)&array->data);
  if (single_copy)
    bytes = sync_arrays_segment_end(s, elements, (int)rank + 1) - sync_arrays_segment_end(s, elements, (int)rank);
  TRM_CHECK(s->node->ops->share(s->node, bytes, use, &array->shared));
  array->data = array->shared.base[single_copy ? 0 : rank];
  return TRM_OK;
}

static int sync_arrays_alloc_state(struct trm_strategy *strategy, struct array *array)
{
  const struct sync *s = strategy->impl;
  if (!sync_offload_dir(strategy))
    return sync_arrays_alloc(strategy, strategy->elements, TRM_MEMORY_STATES, true, array);
  TRM_CHECK(trm_mapped_create(s->node, sync_offload_dir(strategy), strategy->elements * sizeof(float),
                              "optimizer states", &array->mapped));
  array->data = array->mapped.data;
  return TRM_OK;
}

static void sync_arrays_free(struct trm_strategy *strategy, struct array *array)
{
  const struct sync *s = strategy->impl;
  if (array->mapped.data)
    trm_mapped_free(&array->mapped);
  else if (array->shared.base)
    s->node->ops->unshare(s->node, &array->shared);
  else if (array->data)
    strategy->device->ops->release(strategy->device, array->data);
}

static int sync_arrays_alloc_node_shared(struct trm_strategy *strategy, struct sync *s)
{
  const struct trm_optimizer *optimizer = strategy->optimizer;
  const size_t norms = optimizer->clip > 0 || strategy->node_clip > 0 ? sync_units(strategy->elements) : 0;
  const size_t tensor_norms =
    trm_optimizer_has_trust_ratios(optimizer) ? trm_optimizer_norm_count(optimizer, SYNC_UNIT) : 0;
  const size_t bytes = sizeof *s->node_shared + (size_t)s->node->size * sizeof *s->node_shared->progress +
                       norms * sizeof *s->unit_norms + tensor_norms * sizeof *s->tensor_norms;
  TRM_CHECK(s->node->ops->share(s->node, s->node->rank == 0 ? bytes : 0, TRM_MEMORY_BUFFERS, &s->scratch));
  s->node_shared = s->scratch.base[0];
  s->unit_norms = (double *)&s->node_shared->progress[s->node->size];
  s->tensor_norms = (double (*)[2])(s->unit_norms + norms);
  return TRM_OK;
}

/* What one rank alone needs, and what the rules of any do. */
static int sync_arrays_alloc_alone(struct trm_strategy *strategy, struct sync *s)
{
  struct trm_device *device = strategy->device;
  const size_t tensors =
    trm_optimizer_has_trust_ratios(strategy->optimizer) ? (size_t)strategy->optimizer->tensors : 0;
  if (tensors)
    TRM_CHECK(device->ops->alloc(device, tensors * sizeof *s->ratios, TRM_MEMORY_BUFFERS, (void **)&s->ratios));
  if (tensors && !device->host_memory)
    TRM_CHECK(device->ops->alloc(device, tensors * sizeof *s->device_norms, TRM_MEMORY_BUFFERS,
                                 (void **)&s->device_norms));
  const size_t matrices = trm_muon_scratch(strategy->optimizer);
  if (matrices)
    TRM_CHECK(device->ops->alloc(device, matrices * sizeof *s->matrices, TRM_MEMORY_BUFFERS, (void **)&s->matrices));
  if (strategy->comm->size > 1)
    return TRM_OK;
  return device->ops->alloc(device, sizeof *strategy->now, TRM_MEMORY_BUFFERS, (void **)&strategy->now);
}

static int sync_arrays_alloc_all(struct trm_strategy *strategy, struct sync *s)
{
  TRM_CHECK(sync_arrays_alloc(strategy, strategy->elements, TRM_MEMORY_WEIGHTS, true, &s->w));
  if (strategy->values == TRM_VALUES_BF16) /* half as many floats, rounded up */
    TRM_CHECK(sync_arrays_alloc(strategy, (strategy->elements + 1) / 2, TRM_MEMORY_WEIGHTS, true, &s->rounded));
  for (int i = 0; i < strategy->optimizer->states; i++)
    TRM_CHECK(sync_arrays_alloc_state(strategy, &s->state[i]));
  TRM_CHECK(sync_arrays_alloc(strategy, strategy->elements, TRM_MEMORY_GRADIENTS, false, &s->gradients));
  TRM_CHECK(sync_arrays_alloc_node_shared(strategy, s));
  TRM_CHECK(sync_arrays_alloc_alone(strategy, s));
  s->addends = trm_alloc((size_t)s->node->size * sizeof *s->addends, "gradients");
  TRM_CHECK(sync_bucket_sums_create(strategy));
  const size_t share = strategy->elements / (size_t)s->node->size;
  s->block = share < SYNC_BLOCK ? sync_units(share + 1) * SYNC_UNIT : SYNC_BLOCK;
  return strategy->device->ops->alloc(strategy->device, s->block * sizeof(float), TRM_MEMORY_BUFFERS,
                                      (void **)&s->block_sum);
}

/* Returns true if there is one copy of the states anyway, in the job or, with parallel.shard=node, in each node: then
 * parallel.zero=1 has no effect. */
static bool sync_arrays_single_copy(const struct trm_strategy *strategy)
{
  const struct trm_parallel_options *o = strategy->parallel;
  if (o->share == TRM_SHARE_NONE)
    return false;
  struct trm_comm *node = sync_equal_node(strategy, o->share, NULL);
  const bool once =
    node && (node->size == strategy->comm->size || (o->shard == TRM_SHARD_NODE && node->size > 1));
  if (node)
    node->ops->release(node);
  return once;
}

const char *sync_offload_dir(const struct trm_strategy *strategy)
{
  const char *dir = strategy->parallel->offload;
  return dir && dir[0] ? dir : NULL;
}

const struct trm_strategy_ops *sync_select(const struct trm_strategy *strategy)
{
  const int64_t zero = strategy->parallel->zero;
  const bool shards = strategy->comm->size > 1 && (zero > 1 || (zero == 1 && !sync_arrays_single_copy(strategy)));
  return shards ? &sync_zero : &trm_strategy_sync;
}

int sync_create(struct trm_strategy *strategy)
{
  struct sync *s = trm_alloc(sizeof *s, "the strategy");
  strategy->impl = s;
  sync_arrays_make_groups(strategy, s);
  sync_arrays_make_buckets(strategy, s);
  TRM_CHECK(trm_agree(strategy->comm, sync_clip_check(strategy)));
  TRM_CHECK(trm_agree(strategy->comm, sync_arrays_alloc_all(strategy, s)));
  sync_bucket_sums_describe(strategy);
  strategy->w = s->w.data;
  strategy->rounded = (trm_bf16 *)s->rounded.data;
  strategy->g = s->gradients.data;
  strategy->eval_weights = strategy->optimizer->ema > 0 ? s->state[strategy->optimizer->states - 1].data : NULL;
  return TRM_OK;
}

void sync_destroy(struct trm_strategy *strategy)
{
  struct sync *s = strategy->impl;
  trm_recordings_free(&s->updates);
  sync_arrays_free(strategy, &s->w);
  sync_arrays_free(strategy, &s->rounded);
  sync_arrays_free(strategy, &s->gradients);
  for (int i = 0; i < TRM_MAX_STATES - 1; i++)
    sync_arrays_free(strategy, &s->state[i]);
  if (s->scratch.base)
    s->node->ops->unshare(s->node, &s->scratch);
  for (int i = 0; i < TRM_MAX_STATES; i++)
    trm_free(s->view[i]);
  void *const own[] = {s->block_sum, s->ratios, s->matrices, s->device_norms, strategy->now};
  for (size_t i = 0; i < sizeof own / sizeof *own; i++)
    if (own[i])
      strategy->device->ops->release(strategy->device, own[i]);
  strategy->now = NULL;
  compressor_free(&s->compressor);
  trm_free(s->addends);
  trm_free(s->bucket);
  for (int i = 0; i < s->crosses; i++)
    s->cross[i]->ops->release(s->cross[i]);
  trm_free(s->cross);
  trm_free(s->losses);
  s->node->ops->release(s->node);
  trm_free(s);
  strategy->impl = NULL;
}
