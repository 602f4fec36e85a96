/* Before the first step of the synchronous method: which ranks share memory, how the flat array is cut, where it all
 * lies. */
#include <string.h>

#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"
#include "mpi/sync/sync_private.h"

/* Parts of shared arrays: whole pages, whatever their size (4 to 64 KiB). */
#define PART_BYTES ((size_t)65536)

/* Part `index` of `parts` of [low, high), in whole units; low is a multiple of UNIT. */
static struct interval cut(struct interval all, int parts, int index)
{
  size_t first, last;
  trm_interval(units_of(all.high - all.low), (size_t)parts, (size_t)index, &first, &last);
  const struct interval part = {all.low + first * UNIT, all.low + last * UNIT};
  return (struct interval){part.low < all.high ? part.low : all.high, part.high < all.high ? part.high : all.high};
}

static void make_groups(struct trm_strategy *strategy, struct sync *s)
{
  struct trm_comm *comm = strategy->comm;
  const char *share = strategy->options->parallel.share;
  s->node = strcmp(share, "none") == 0 ? comm->ops->split(comm, comm->rank, 0) : comm->ops->split_node(comm, share);
  int32_t most[2] = {s->node->size, -s->node->size};
  comm->ops->allreduce(comm, most, 2, TRM_INT32, TRM_MAX);
  if (most[0] != -most[1]) {
    trm_info("the nodes have %d to %d ranks: each rank keeps weights and states of its own (to share them, give every "
             "node as many ranks)",
             -most[1], most[0]);
    s->node->ops->release(s->node);
    s->node = comm->ops->split(comm, comm->rank, 0);
  }
  /* nodes in order of their first ranks */
  int32_t first = comm->rank;
  s->node->ops->broadcast(s->node, &first, 1, TRM_INT32, 0);
  s->cross = comm->ops->split(comm, s->node->rank, first);
  strategy->index = s->cross->rank * s->node->size + s->node->rank;
  strategy->parts = comm->size;
  s->all = comm->ops->split(comm, 0, strategy->index);
}

/* Buckets of at least parallel.bucket bytes, from one end of a layer to another; what is more than four times as large
 * (one large layer) is cut. On one node nothing travels: one bucket. */
static void make_buckets(struct trm_strategy *strategy, struct sync *s)
{
  const size_t elements = strategy->elements;
  const size_t asked = (size_t)strategy->options->parallel.bucket / sizeof(float);
  const size_t least = has_peers(s) ? (asked > UNIT ? asked : UNIT) : elements;
  s->bucket = trm_alloc((elements / least + (size_t)strategy->boundaries + 2) * sizeof *s->bucket, "buckets");
  struct interval run = {0, 0};
  for (int i = 0; i <= strategy->boundaries && run.low < elements; i++) {
    const bool last = i == strategy->boundaries;
    run.high = last ? elements : strategy->boundary[i] / UNIT * UNIT;
    if (run.high <= run.low || (!last && run.high - run.low < least))
      continue;
    const size_t pieces = (run.high - run.low + 4 * least - 1) / (4 * least);
    for (size_t p = 0; p < pieces; p++) {
      const struct interval whole = cut(run, (int)pieces, (int)p);
      if (whole.low < whole.high)
        s->bucket[s->buckets++] = (struct bucket){whole, cut(whole, s->node->size, s->node->rank), NULL};
    }
    run.low = run.high;
  }
}

/* A rank's part of a shared array is about the slice that it will update, so that it lies near. */
static size_t part_end(const struct sync *s, size_t elements, int parts)
{
  const size_t bytes = (elements * sizeof(float) + PART_BYTES - 1) / PART_BYTES * PART_BYTES;
  if (parts == s->node->size)
    return bytes;
  const struct interval upto = cut((struct interval){0, elements}, s->node->size, parts);
  return upto.low * sizeof(float) / PART_BYTES * PART_BYTES;
}

static int array_create(struct trm_strategy *strategy, struct sync *s, const char *what, struct array *array)
{
  const size_t elements = strategy->elements;
  if (s->node->size == 1)
    return strategy->device->ops->alloc(strategy->device, elements * sizeof(float), what, (void **)&array->data);
  const size_t bytes = part_end(s, elements, s->node->rank + 1) - part_end(s, elements, s->node->rank);
  TRM_CHECK(s->node->ops->share(s->node, bytes, what, &array->shared));
  array->data = array->shared.base[0];
  return TRM_OK;
}

static int state_create(struct trm_strategy *strategy, struct sync *s, struct array *array)
{
  if (!sync_offload(strategy))
    return array_create(strategy, s, "optimizer states", array);
  TRM_CHECK(trm_mapped_create(s->node, sync_offload(strategy), strategy->elements * sizeof(float), "optimizer states",
                              &array->mapped));
  array->data = array->mapped.data;
  return TRM_OK;
}

static void array_free(struct trm_strategy *strategy, struct sync *s, struct array *array)
{
  if (array->mapped.data)
    trm_mapped_free(&array->mapped);
  else if (array->shared.base)
    s->node->ops->unshare(s->node, &array->shared);
  else if (array->data)
    strategy->device->ops->release(strategy->device, array->data);
}

static int gradients_create(struct trm_strategy *strategy, struct sync *s)
{
  const size_t bytes = strategy->elements * sizeof(float);
  s->g = trm_alloc((size_t)s->node->size * sizeof *s->g, "gradients");
  s->from = trm_alloc((size_t)s->node->size * sizeof *s->from, "gradients");
  if (s->node->size == 1) {
    TRM_CHECK(strategy->device->ops->alloc(strategy->device, bytes, "gradients", (void **)&strategy->g));
    s->g[0] = strategy->g;
    return TRM_OK;
  }
  TRM_CHECK(s->node->ops->share(s->node, bytes, "gradients", &s->gradients));
  strategy->g = s->gradients.own;
  for (int i = 0; i < s->node->size; i++)
    s->g[i] = s->gradients.base[i];
  return TRM_OK;
}

static int board_create(struct trm_strategy *strategy, struct sync *s)
{
  const struct trm_optimizer *optimizer = strategy->optimizer;
  const size_t norms = optimizer->clip > 0 ? units_of(strategy->elements) : 0;
  const size_t pieces = trm_optimizer_has_ratios(optimizer) ? trm_optimizer_pieces(optimizer, UNIT) : 0;
  const size_t bytes = sizeof *s->board + (size_t)s->node->size * sizeof *s->board->rank + norms * sizeof *s->norm +
                       pieces * sizeof *s->norms;
  if (s->node->size == 1) {
    s->board = trm_alloc(bytes, "norms");
  } else {
    TRM_CHECK(s->node->ops->share(s->node, s->node->rank == 0 ? bytes : 0, "norms", &s->notes));
    s->board = s->notes.base[0];
  }
  s->norm = (double *)&s->board->rank[s->node->size];
  s->norms = (double (*)[2])(s->norm + norms);
  return TRM_OK;
}

static int arrays_create(struct trm_strategy *strategy, struct sync *s)
{
  TRM_CHECK(array_create(strategy, s, "weights", &s->w));
  for (int i = 0; i < strategy->optimizer->states; i++)
    TRM_CHECK(state_create(strategy, s, &s->state[i]));
  TRM_CHECK(gradients_create(strategy, s));
  TRM_CHECK(board_create(strategy, s));
  s->ratio = trm_alloc((size_t)strategy->optimizer->tensors * sizeof *s->ratio, "ratios");
  return strategy->device->ops->alloc(strategy->device, BLOCK * sizeof(float), "gradient sums", (void **)&s->work);
}

/* Do the states stand once, in all or in each node if that is what is asked for, as it is? Then parallel.zero=1 has
 * nothing to divide. */
static bool stands_once(const struct trm_strategy *strategy)
{
  struct trm_comm *comm = strategy->comm;
  const char *share = strategy->options->parallel.share;
  if (strcmp(share, "none") == 0 || !strategy->device->host_memory)
    return false;
  struct trm_comm *node = comm->ops->split_node(comm, share);
  int32_t most[2] = {node->size, -node->size};
  comm->ops->allreduce(comm, most, 2, TRM_INT32, TRM_MAX);
  const bool by_node = strcmp(strategy->options->parallel.shard, "node") == 0 && node->size > 1;
  const bool once = most[0] == -most[1] && (by_node || node->size == comm->size);
  node->ops->release(node);
  return once;
}

const char *sync_offload(const struct trm_strategy *strategy)
{
  const char *folder = strategy->options->parallel.offload;
  return folder && folder[0] ? folder : NULL;
}

int sync_create(struct trm_strategy *strategy)
{
  const int64_t zero = strategy->options->parallel.zero;
  if (strategy->comm->size > 1 && (zero > 1 || (zero == 1 && !stands_once(strategy)))) {
    strategy->ops = &sync_zero;
    return strategy->ops->create(strategy);
  }
  if (!strategy->device->host_memory) { /* from here on the other one is the strategy */
    strategy->ops = &sync_staged;
    return strategy->ops->create(strategy);
  }
  struct sync *s = trm_alloc(sizeof *s, "the strategy");
  strategy->own = s;
  make_groups(strategy, s);
  make_buckets(strategy, s);
  const int status = trm_agree(strategy->comm, arrays_create(strategy, s));
  if (status != TRM_OK) {
    sync_destroy(strategy);
    return status;
  }
  strategy->w = s->w.data;
  strategy->evaluated = strategy->optimizer->ema > 0 ? s->state[strategy->optimizer->states - 1].data : NULL;
  return TRM_OK;
}

void sync_destroy(struct trm_strategy *strategy)
{
  struct sync *s = strategy->own;
  array_free(strategy, s, &s->w);
  for (int i = 0; i < TRM_MAX_STATES - 1; i++)
    array_free(strategy, s, &s->state[i]);
  if (s->gradients.base)
    s->node->ops->unshare(s->node, &s->gradients);
  else if (strategy->g)
    strategy->device->ops->release(strategy->device, strategy->g);
  if (s->notes.base)
    s->node->ops->unshare(s->node, &s->notes);
  else
    trm_free(s->board);
  if (s->work)
    strategy->device->ops->release(strategy->device, s->work);
  trm_free(s->ratio);
  trm_free(s->g);
  trm_free(s->from);
  trm_free(s->bucket);
  s->all->ops->release(s->all);
  s->cross->ops->release(s->cross);
  s->node->ops->release(s->node);
  trm_free(s);
  strategy->own = NULL;
}
