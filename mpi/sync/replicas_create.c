/* Set-up of replicas: communicators, slices, arrays, and what checkpoints keep of a rank. */
#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"
#include "mpi/sync/replicas_private.h"

static int create_check_options(const struct trm_strategy *strategy)
{
  const struct trm_strategy_options *o = strategy->options;
  if (replicas_fragments(strategy) > 1 && o->tau % o->fragments != 0)
    return trm_error(TRM_USAGE, "strategy.fragments: a round of %lld steps (strategy.tau) cannot be divided among %lld "
                     "fragments", (long long)o->tau, (long long)o->fragments);
  return TRM_OK;
}

/* Copies of the model whose ranks hold parts of it must be in one replica. Collective. */
static int create_check_parts(const struct trm_strategy *strategy)
{
  const struct replicas *r = replicas_of(strategy);
  struct trm_comm *model = strategy->norm_comm;
  int32_t number[2] = {r->number, -r->number};
  if (model)
    model->ops->allreduce(model, number, 2, TRM_INT32, TRM_MAX);
  const bool same = number[0] == -number[1];
  return trm_agree(strategy->comm, same ? TRM_OK : trm_error(TRM_USAGE, "strategy.replica=node: the ranks of a copy of "
                                                             "the model are on several nodes: rank makes a replica "
                                                             "of each copy"));
}

/* Numbers this replica in the order of their first ranks, and its shards of a batch. */
static void create_number(struct trm_strategy *strategy, struct replicas *r)
{
  struct trm_comm *all = strategy->comm;
  int32_t first = all->rank;
  r->replica->ops->broadcast(r->replica, &first, 1, TRM_INT32, 0);
  int32_t *firsts = trm_alloc((size_t)all->size * sizeof *firsts, "replicas");
  all->ops->allgather(all, &first, firsts, 1, TRM_INT32);
  for (int rank = 0; rank < all->size; rank++) {
    r->number += firsts[rank] == rank && rank < first;
    strategy->replica_shard += firsts[rank] < first;
  }
  trm_free(firsts);
}

/* The ranks of a replica that share arrays, as the inner strategy has it: those of a node or of a NUMA domain. */
static void create_domains(struct trm_strategy *strategy, struct replicas *r)
{
  struct trm_comm *all = strategy->comm;
  const struct trm_comm_ops *ops = all->ops;
  const enum trm_share share = strategy->parallel->share;
  r->domain = share == TRM_SHARE_NONE ? ops->split(r->replica, r->replica->rank, 0)
                                      : ops->split_node(r->replica, share);
  r->siblings = ops->split(r->replica, r->domain->rank, 0);
  int32_t domains = r->siblings->size, size = r->domain->size; /* each domain has a rank 0 */
  ops->allreduce(r->replica, &domains, 1, TRM_INT32, TRM_MAX);
  ops->allreduce(r->replica, &size, 1, TRM_INT32, TRM_MIN);
  r->domains = domains;
  r->domain_ranks = size;
  int32_t slices = domains * size;
  ops->allreduce(all, &slices, 1, TRM_INT32, TRM_MIN);
  r->slice_count = slices;
}

static void create_groups(struct trm_strategy *strategy, struct replicas *r)
{
  struct trm_comm *all = strategy->comm;
  const struct trm_comm_ops *ops = all->ops;
  const bool by_node = strategy->options->replica == TRM_REPLICA_NODE;
  r->replica = by_node ? ops->split_node(all, TRM_SHARE_NODE) : ops->split(all, all->rank, 0);
  strategy->replica = r->replica;
  create_number(strategy, r);
  r->inner = *strategy;
  r->inner.comm = r->replica;
  r->inner.ops = &trm_strategy_sync;
  r->inner.impl = NULL;
  create_domains(strategy, r);
  const int slice = r->domain->rank * r->domains + r->siblings->rank;
  const bool has_slice = r->domain->rank < r->domain_ranks && slice < r->slice_count;
  r->cross = ops->split(all, has_slice ? slice : -1, r->number);
  r->slices = ops->split(r->replica, has_slice ? 0 : -1, slice);
  int32_t count = r->cross ? r->cross->size : 0; /* each replica has a rank with the first slice */
  ops->allreduce(all, &count, 1, TRM_INT32, TRM_MAX);
  r->count = count;
  if (has_slice)
    r->slice = replicas_slice(strategy, slice);
}

/* -- arrays */

/* Cuts the slice into messages of at most parallel.bucket bytes, none of which lies in two fragments, or has trained
 * elements and statistics. */
static void create_messages(struct trm_strategy *strategy, struct replicas *r)
{
  const size_t n = strategy->elements, bucket = (size_t)strategy->parallel->bucket / sizeof(float);
  const size_t largest = bucket > REPLICAS_ALIGN ? bucket : REPLICAS_ALIGN;
  const size_t fragments = (size_t)replicas_fragments(strategy), trained = trm_optimizer_trained(strategy->optimizer);
  r->message = trm_alloc(((r->slice.high - r->slice.low) / largest + fragments + 2) * sizeof *r->message,
                         "messages between replicas");
  size_t fragment = 0;
  for (size_t low = r->slice.low, high; low < r->slice.high; low = high) {
    struct interval part;
    while (trm_interval(n, fragments, fragment, &part.low, &part.high), part.high <= low)
      fragment++;
    part = sync_overlap(part, low < trained ? (struct interval){0, trained} : r->slice);
    part = sync_overlap(part, sync_overlap((struct interval){low, low + largest}, r->slice));
    r->message[r->messages++] = part;
    high = part.high;
  }
  r->request = trm_alloc((size_t)r->messages * sizeof *r->request, "messages between replicas");
}

/* Makes the compressor of the messages, where the run has one and there are other replicas. Not collective. */
static int create_compressor(struct trm_strategy *strategy, struct replicas *r)
{
  if (strategy->options->compress == TRM_COMPRESS_NONE || r->messages == 0)
    return TRM_OK;
  if (r->count == 1) {
    trm_info("strategy.compress: there is one replica, which sends nothing to others: no effect");
    return TRM_OK;
  }
  struct compress_slice *slice = trm_alloc((size_t)r->messages * sizeof *slice, "messages between replicas");
  for (int i = 0; i < r->messages; i++)
    slice[i] = (struct compress_slice){r->message[i].low, r->message[i].high, r->cross};
  const int status = compressor_create(&r->compressor, strategy, slice, r->messages);
  trm_free(slice);
  return status;
}

static int create_arrays(struct trm_strategy *strategy, struct replicas *r)
{
  const size_t mine = r->slice.high - r->slice.low;
  const size_t segments = (strategy->elements * sizeof(float) + SYNC_SEGMENT_BYTES - 1) / SYNC_SEGMENT_BYTES;
  struct trm_device *device = strategy->device;
  size_t low, high; /* this rank's segments of the mean */
  create_messages(strategy, r);
  TRM_CHECK(create_compressor(strategy, r));
  for (int i = 0; i < r->method.arrays && mine > 0 && !replicas_is_sync(r); i++)
    TRM_CHECK(device->ops->alloc(device, mine * sizeof(float), TRM_MEMORY_STATES, (void **)&r->array[i]));
  if (r->count == 1)
    return TRM_OK;
  trm_interval(segments, (size_t)r->domain->size, (size_t)r->domain->rank, &low, &high);
  TRM_CHECK(r->domain->ops->share(r->domain, (high - low) * SYNC_SEGMENT_BYTES, TRM_MEMORY_WEIGHTS, &r->mean_shared));
  r->mean = r->mean_shared.base[0];
  return TRM_OK;
}

/* Finds the arrays of the inner strategy, whose views for checkpoints they are. Collective over the replica. */
static int create_find_states(struct replicas *r)
{
  const float *view[TRM_MAX_STATES];
  TRM_CHECK(r->inner.ops->collect(&r->inner, view));
  for (int i = 0; i < r->inner.optimizer->states; i++)
    r->state[i] = (float *)view[i + 1];
  return TRM_OK;
}

/* Registers this rank's slices, and the position in the round, for checkpoints. */
static int create_keep(struct trm_strategy *strategy, struct replicas *r)
{
  static const char *const state[] = {"state 1", "state 2", "state 3"};
  static const char *const array[] = {"array 1", "array 2", "array 3"};
  const size_t low = r->slice.low, bytes = (r->slice.high - low) * sizeof(float);
  if (replicas_is_sync(r))
    return TRM_OK;
  TRM_CHECK(trm_strategy_keep(strategy, "position in the round", &r->position, sizeof r->position));
  TRM_CHECK(trm_strategy_keep(strategy, "replicas are equal", &r->equal, sizeof r->equal));
  if (bytes == 0)
    return TRM_OK;
  TRM_CHECK(trm_strategy_keep(strategy, "weights", strategy->w + low, bytes));
  for (int i = 0; i < strategy->optimizer->states; i++)
    TRM_CHECK(trm_strategy_keep(strategy, state[i], r->state[i] + low, bytes));
  for (int i = 0; i < r->method.arrays - r->method.scratch; i++)
    TRM_CHECK(trm_strategy_keep(strategy, array[i], r->array[i], bytes));
  return TRM_OK;
}

/* A round of the method: one exchange of this rank's slice. */
static void create_describe(struct trm_strategy *strategy, const struct replicas *r)
{
  struct trm_exchange *exchange = &strategy->exchange;
  const size_t n = r->slice.high - r->slice.low, trained = trm_optimizer_trained(strategy->optimizer);
  const struct interval rule = sync_overlap(r->slice, (struct interval){0, trained});
  const bool combines = r->method.combine != NULL && r->count > 1;
  *exchange = (struct trm_exchange){
    .ranks = r->count, .period = strategy->options->tau, .parts = (int)replicas_fragments(strategy)};
  if (combines)
    r->method.describe(rule.high - rule.low, exchange);
  const size_t averaged = combines ? n - (rule.high - rule.low) : n;
  if (r->count > 1)
    exchange->floats += (double)averaged; /* the division */
  if (r->compressor)
    compressor_describe(r->compressor, exchange);
  else if (r->count > 1)
    exchange->bytes += (double)averaged * sizeof(float);
  if (r->method.update && !replicas_is_sync(r))
    exchange->floats += (double)(rule.high - rule.low) * (2 + 2 * r->method.arrays);
}

static void create_log(const struct trm_strategy *strategy, const struct replicas *r)
{
  const int64_t fragments = replicas_fragments(strategy);
  char turns[64] = "";
  if (fragments > 1)
    snprintf(turns, sizeof turns, ", in %lld fragments in turn", (long long)fragments);
  trm_info("replicas: %d of %s; weights are exchanged every %lld steps%s%s", r->count,
           strategy->options->replica == TRM_REPLICA_RANK ? "a rank each" : "a node each",
           (long long)strategy->options->tau, r->method.awaits_decay ? " from the first decay of the rate on" : "",
           turns);
}

int replicas_create(struct trm_strategy *strategy, const struct replicas_method *method)
{
  TRM_CHECK(create_check_options(strategy));
  struct replicas *r = trm_alloc(sizeof *r, "replicas");
  strategy->impl = r;
  r->method = *method;
  create_groups(strategy, r);
  TRM_CHECK(create_check_parts(strategy));
  if (strategy->options->compress != TRM_COMPRESS_NONE && r->count > 1 && r->method.arrays == 0)
    r->method.arrays = 1; /* the weights that all replicas had after the latest exchange */
  TRM_CHECK(trm_agree(strategy->comm, trm_strategy_create(&r->inner)));
  strategy->w = r->inner.w;
  strategy->g = r->inner.g;
  strategy->rounded = r->inner.rounded;
  strategy->part = r->inner.part;
  strategy->batch_shard = strategy->replica_shard + r->inner.batch_shard;
  strategy->batch_shards = strategy->comm->size;
  TRM_CHECK(trm_agree(strategy->comm, create_arrays(strategy, r)));
  TRM_CHECK(create_find_states(r));
  create_describe(strategy, r);
  create_log(strategy, r);
  return trm_agree(strategy->comm, create_keep(strategy, r));
}

void replicas_destroy(struct trm_strategy *strategy)
{
  struct replicas *r = replicas_of(strategy);
  struct trm_device *device = strategy->device;
  if (r->inner.impl)
    r->inner.ops->destroy(&r->inner);
  for (int i = 0; i < REPLICAS_MAX_ARRAYS; i++)
    if (r->array[i])
      device->ops->release(device, r->array[i]);
  if (r->mean_shared.base)
    r->domain->ops->unshare(r->domain, &r->mean_shared);
  compressor_free(&r->compressor);
  trm_free(r->message);
  trm_free(r->request);
  struct trm_comm *const groups[] = {r->slices, r->cross, r->siblings, r->domain, r->replica};
  for (size_t i = 0; i < sizeof groups / sizeof *groups; i++)
    if (groups[i])
      groups[i]->ops->release(groups[i]);
  trm_free(r);
  strategy->impl = NULL;
}
