/* Synchronous data parallelism: every update is made of the gradients of all ranks, and all ranks see the same weights.
 *
 * The ranks of a node share memory. One array of weights and one of each optimizer state stand there, and a gradient
 * array for each rank:
 *
 *                    slice 0     slice 1     slice 2
 *     gradient of 0  ..........  ..........  ..........
 *     gradient of 1  ..........  ..........  ..........
 *     gradient of 2  ..........  ..........  ..........
 *                    a rank adds a rank adds a rank adds   a column, and runs the optimizer on that slice of
 *     weights        ----------  ----------  ----------    the weights and
 *     states         ----------  ----------  ----------    of the states.
 *
 * Nothing is copied or sent, and weights and states take memory once a node. On one node the slices are small blocks,
 * and whoever has time takes the next: a rank that is early updates the upper layers while others still compute the
 * lower ones, instead of waiting for them (update_together).
 *
 * Between nodes each rank carries slices of its own: it adds its column in place, then allreduces it with the ranks of the
 * other nodes that have the same place. The flat array is cut into buckets, at the ends of layers: a bucket travels
 * while the layers below still compute. Each bucket is cut into slices for itself, so that all ranks always carry.
 *
 * Ranks that do not share memory (parallel.share=none, or another number of ranks on some node) are nodes of one rank.
 */
#include "mpi/sync/sync.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"
#include "mpi/coll/allreduce_tree.h"

/* Elements. Buckets and slices begin at multiples of UNIT, and the norm for clipping is added unit by unit: so that its
 * bits do not depend on who owns what. BLOCK is what is added and updated while it is in the cache. */
#define UNIT ((size_t)4096)
#define BLOCK (32 * UNIT)
/* Parts of shared arrays: whole pages, whatever their size (4 to 64 KiB). */
#define PART_BYTES ((size_t)65536)

struct interval {
  size_t low, high; /* elements of the flat arrays */
};

struct bucket {
  struct interval whole, mine;
  struct trm_request *request; /* its way between the nodes */
};

/* How far a rank is, for the other ranks of its node. A cache line. */
struct mark {
  _Alignas(64) _Atomic uint64_t complete; /* elements of gradients, since create: a step has `elements` of them */
  double loss;                            /* this rank's part of it in this step, set before the first of them */
};

/* What the ranks of a node tell one another. */
struct board {
  _Alignas(64) _Atomic uint64_t taken; /* blocks, since create, that have been taken to be updated */
  struct mark rank[];                  /* (node->size) */
};

/* An array (elements) on the device: of this rank alone where the node is one rank, else shared by the node. */
struct array {
  float *data;
  struct trm_shared shared;
};

struct sync {
  struct trm_comm *node;  /* the ranks that share the arrays */
  struct trm_comm *cross; /* one rank a node: those with this rank's place in it */
  struct trm_comm *all;   /* everybody, in order of strategy->index */
  struct array w, state[TRM_MAX_STATES - 1];
  struct trm_shared gradients; /* one whole array a rank */
  const float **g, **from;     /* (node->size) the gradients of the node's ranks; those places in them that are added */
  float *work;                 /* device, (BLOCK) */

  struct bucket *bucket; /* (buckets) ascending */
  int buckets;
  uint64_t steps; /* since create */
  int begun;      /* buckets, in this step: added up and sent on their way */

  /* shared by the node */
  struct trm_shared notes;
  struct board *board;
  double *norm;       /* (units) sums of squares, where gradients are clipped */
  double (*norms)[2]; /* (pieces of nn/optimizer.h) where the rule has ratios */

  float *ratio; /* (tensors) of each its ratio, in this rank's own memory */
};

/* -- small words */

static size_t units_of(size_t elements)
{
  return (elements + UNIT - 1) / UNIT;
}

/* Part `index` of `parts` of [low, high), in whole units; low is a multiple of UNIT. */
static struct interval cut(struct interval all, int parts, int index)
{
  size_t first, last;
  trm_interval(units_of(all.high - all.low), (size_t)parts, (size_t)index, &first, &last);
  const struct interval part = {all.low + first * UNIT, all.low + last * UNIT};
  return (struct interval){part.low < all.high ? part.low : all.high, part.high < all.high ? part.high : all.high};
}

static bool has_lanes(const struct trm_strategy *strategy)
{
  return strategy->options->run.lanes > 0;
}

static bool has_peers(const struct sync *s)
{
  return s->cross->size > 1;
}

/* Barrier of the node, after what this rank has given its device to do. */
static int meet(struct trm_strategy *strategy)
{
  struct trm_comm *node = ((struct sync *)strategy->own)->node;
  TRM_CHECK(strategy->device->ops->sync(strategy->device));
  const double before = node->ops->clock(node);
  node->ops->barrier(node);
  strategy->wait_s += node->ops->clock(node) - before;
  return TRM_OK;
}

/* -- create */

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

static void array_free(struct trm_strategy *strategy, struct sync *s, struct array *array)
{
  if (array->shared.base)
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
    TRM_CHECK(array_create(strategy, s, "optimizer states", &s->state[i]));
  TRM_CHECK(gradients_create(strategy, s));
  TRM_CHECK(board_create(strategy, s));
  s->ratio = trm_alloc((size_t)strategy->optimizer->tensors * sizeof *s->ratio, "ratios");
  return strategy->device->ops->alloc(strategy->device, BLOCK * sizeof(float), "gradient sums", (void **)&s->work);
}

static void sync_destroy(struct trm_strategy *strategy);

static int sync_create(struct trm_strategy *strategy)
{
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
  strategy->average = strategy->optimizer->ema > 0 ? s->state[strategy->optimizer->states - 1].data : NULL;
  return TRM_OK;
}

static void sync_destroy(struct trm_strategy *strategy)
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

/* -- adding up */

/* One block, at most, of the sum over the node's gradients. Elements [at, at + n). */
static void sum_block(struct trm_strategy *strategy, float *to, size_t at, size_t n)
{
  struct sync *s = strategy->own;
  for (int i = 0; i < s->node->size; i++)
    s->from[i] = s->g[i] + at;
  strategy->device->ops->sum(strategy->device, to, s->from, s->node->size, n);
}

static size_t block_at(size_t at, size_t high)
{
  return high - at < BLOCK ? high - at : BLOCK;
}

/* Brings the sum over the node into this rank's own gradient array. Nobody else reads that slice of that array. */
static void sum_in_place(struct trm_strategy *strategy, struct interval slice)
{
  struct sync *s = strategy->own;
  if (s->node->size == 1)
    return;
  for (size_t at = slice.low; at < slice.high; at += BLOCK) {
    const size_t n = block_at(at, slice.high);
    sum_block(strategy, s->work, at, n);
    strategy->device->ops->copy(strategy->device, strategy->g + at, s->work, n * sizeof(float));
  }
}

/* A bucket that is complete on the whole node: adds my slice, and begins its way between the nodes. With lanes the
 * order of that sum is fixed, too: (node 0 + node 1) + (node 2 + node 3)... goes on where the order of the node's sum
 * ends. */
static int bucket_begin(struct trm_strategy *strategy, struct bucket *bucket)
{
  struct sync *s = strategy->own;
  const struct interval mine = bucket->mine;
  sum_in_place(strategy, mine);
  if (!has_peers(s))
    return TRM_OK;
  TRM_CHECK(strategy->device->ops->sync(strategy->device));
  const double before = s->cross->ops->clock(s->cross);
  if (has_lanes(strategy))
    trm_allreduce_tree(s->cross, strategy->g + mine.low, mine.high - mine.low, TRM_FLOAT);
  else
    s->cross->ops->allreduce_begin(s->cross, strategy->g + mine.low, mine.high - mine.low, TRM_FLOAT, TRM_SUM,
                                   &bucket->request);
  strategy->comm_s += s->cross->ops->clock(s->cross) - before;
  return TRM_OK;
}

/* Tells the node that this rank's gradients are complete up to `high`. */
static int mark_complete(struct trm_strategy *strategy, size_t high, const struct trm_tally *tally)
{
  struct sync *s = strategy->own;
  struct mark *mine = &s->board->rank[s->node->rank];
  TRM_CHECK(strategy->device->ops->sync(strategy->device));
  const uint64_t before = s->steps * strategy->elements;
  if (atomic_load_explicit(&mine->complete, memory_order_relaxed) <= before)
    mine->loss = tally->loss; /* once a step: the others may read it from the first mark on */
  atomic_store_explicit(&mine->complete, before + high, memory_order_release);
  return TRM_OK;
}

/* Are the gradients complete up to `high` on all ranks of the node? */
static bool node_complete(const struct trm_strategy *strategy, size_t high)
{
  const struct sync *s = strategy->own;
  const uint64_t wanted = s->steps * strategy->elements + high;
  for (int i = 0; i < s->node->size; i++)
    if (atomic_load_explicit(&s->board->rank[i].complete, memory_order_acquire) < wanted)
      return false;
  return true;
}

/* The lower layers still compute: begin what is complete on the node, in order. */
static int sync_grad_ready(struct trm_strategy *strategy, size_t low, size_t high, const struct trm_tally *tally)
{
  (void)low;
  struct sync *s = strategy->own;
  TRM_CHECK(mark_complete(strategy, high, tally));
  if (!has_peers(s) || has_lanes(strategy))
    return TRM_OK;
  while (s->begun < s->buckets && node_complete(strategy, s->bucket[s->begun].whole.high))
    TRM_CHECK(bucket_begin(strategy, &s->bucket[s->begun++]));
  s->cross->ops->progress(s->cross);
  return TRM_OK;
}

/* -- step */

int sync_tally(struct trm_strategy *strategy, struct trm_comm *all, struct trm_tally *tally)
{
  double sums[] = {tally->loss, tally->correct, tally->rows, tally->stop};
  const size_t count = sizeof sums / sizeof sums[0];
  const double before = all->ops->clock(all);
  if (has_lanes(strategy))
    trm_allreduce_tree(all, sums, count, TRM_DOUBLE);
  else
    all->ops->allreduce(all, sums, count, TRM_DOUBLE, TRM_SUM);
  strategy->comm_s += all->ops->clock(all) - before;
  *tally = (struct trm_tally){.loss = sums[0], .correct = sums[1], .rows = sums[2], .stop = sums[3]};
  if (!isfinite(tally->loss))
    return trm_error(TRM_FAILED,
                     "step %llu: the loss is %s; the weights are those of the step before (a lower optim.lr, "
                     "optim.clip or optim.warmup may help)",
                     (unsigned long long)strategy->updates + 1, isnan(tally->loss) ? "nan" : "inf");
  return TRM_OK;
}

struct trm_update sync_update(const struct trm_strategy *strategy, double rate, double norm_squared)
{
  struct trm_update update = strategy->optimizer->update;
  update.rate = (float)rate;
  update.scale = strategy->optimizer->clip > 0 ? trm_clip_scale(strategy->optimizer, norm_squared) : 1;
  update.step = strategy->updates + 1;
  return update;
}

/* Squared norm of the whole summed gradient, added unit by unit: the same bits on every rank of any layout. */
static int whole_norm(struct trm_strategy *strategy, double *norm_squared)
{
  struct sync *s = strategy->own;
  const size_t trained = trm_optimizer_trained(strategy->optimizer);
  for (int b = 0; b < s->buckets; b++) {
    const struct interval mine = s->bucket[b].mine;
    for (size_t at = mine.low; at < mine.high; at += UNIT) {
      const size_t high = mine.high < trained ? mine.high : trained, left = at < high ? high - at : 0;
      const size_t n = left < UNIT ? left : UNIT;
      s->norm[at / UNIT] = strategy->device->ops->norm_squared(strategy->device, strategy->g + at, n);
    }
  }
  TRM_CHECK(meet(strategy));
  *norm_squared = 0;
  for (size_t i = 0; i < units_of(strategy->elements); i++)
    *norm_squared += s->norm[i];
  return TRM_OK;
}

/* The places of element `at` in the states. */
static void states_at(const struct sync *s, size_t at, float *state[TRM_MAX_STATES - 1])
{
  for (int i = 0; i < TRM_MAX_STATES - 1; i++)
    state[i] = s->state[i].data ? s->state[i].data + at : NULL;
}

static void update(struct trm_strategy *strategy, const struct trm_update *how, const float *g, size_t at, size_t n)
{
  struct sync *s = strategy->own;
  float *state[TRM_MAX_STATES - 1];
  states_at(s, at, state);
  trm_optimizer_apply(strategy->optimizer, strategy->device, how, s->ratio, at, n, strategy->w + at, g, state);
}

/* The ratios of all tensors, from norms that are added unit by unit, too. */
static int whole_ratios(struct trm_strategy *strategy, const struct trm_update *how)
{
  struct sync *s = strategy->own;
  const struct trm_optimizer *optimizer = strategy->optimizer;
  for (int b = 0; b < s->buckets; b++) {
    const size_t at = s->bucket[b].mine.low, n = s->bucket[b].mine.high - at;
    float *w = strategy->w + at, *g = strategy->g + at, *state[TRM_MAX_STATES - 1];
    states_at(s, at, state);
    trm_optimizer_prepare(optimizer, strategy->device, how, at, n, w, g, state);
    trm_optimizer_norms(optimizer, strategy->device, UNIT, at, n, w, g, s->norms);
  }
  TRM_CHECK(meet(strategy));
  trm_optimizer_ratios(optimizer, how, UNIT, s->norms, s->ratio);
  return TRM_OK;
}

/* The losses of the node, when gradients of this step are complete on all its ranks. */
static bool losses_finite(const struct sync *s)
{
  for (int i = 0; i < s->node->size; i++)
    if (!isfinite(s->board->rank[i].loss))
      return false;
  return true;
}

static void await_node(struct trm_strategy *strategy, size_t high)
{
  struct trm_comm *node = ((struct sync *)strategy->own)->node;
  const double before = node->ops->clock(node);
  while (!node_complete(strategy, high))
    node->ops->progress(node);
  strategy->wait_s += node->ops->clock(node) - before;
}

/* One node: adds up and updates block after block, while the sum is in the cache, together with the other ranks.
 * Each block is taken by one rank, as soon as all gradients of it are complete; nobody reads its weights any more in this
 * step. Which rank makes no difference to the bits. Ends when all blocks are taken, or when the loss is not finite. */
static void update_together(struct trm_strategy *strategy, const struct trm_update *how)
{
  struct sync *s = strategy->own;
  const uint64_t blocks = (strategy->elements + BLOCK - 1) / BLOCK, first = s->steps * blocks;
  for (;;) {
    uint64_t taken = atomic_load_explicit(&s->board->taken, memory_order_relaxed);
    const uint64_t next = taken > first ? taken : first; /* a step that failed has left blocks */
    if (next == first + blocks)
      return;
    const size_t at = (size_t)(next - first) * BLOCK, n = block_at(at, strategy->elements);
    if (!node_complete(strategy, at + n))
      await_node(strategy, at + n);
    if (!losses_finite(s))
      return;
    if (!atomic_compare_exchange_strong_explicit(&s->board->taken, &taken, next + 1, memory_order_relaxed,
                                                 memory_order_relaxed))
      continue; /* another rank was quicker */
    sum_block(strategy, s->work, at, n);
    update(strategy, how, s->work, at, n);
  }
}

static int sync_step(struct trm_strategy *strategy, double rate, struct trm_tally *tally)
{
  struct sync *s = strategy->own;
  const bool clips = strategy->optimizer->clip > 0;
  /* does anything need the summed gradient before the update? */
  const bool ratios = trm_optimizer_has_ratios(strategy->optimizer);
  const bool sums_first = clips || ratios || has_peers(s) || s->node->size == 1;

  TRM_CHECK(mark_complete(strategy, strategy->elements, tally));
  if (sums_first) {
    TRM_CHECK(meet(strategy)); /* all gradients of the node are complete */
    for (; s->begun < s->buckets; s->begun++)
      TRM_CHECK(bucket_begin(strategy, &s->bucket[s->begun]));
  } else {
    const struct trm_update how = sync_update(strategy, rate, 0);
    update_together(strategy, &how);
  }
  const int status = sync_tally(strategy, s->all, tally);
  const double before = s->cross->ops->clock(s->cross);
  for (int b = 0; b < s->buckets; b++)
    s->cross->ops->wait(&s->bucket[b].request);
  strategy->comm_s += s->cross->ops->clock(s->cross) - before;
  s->begun = 0;
  s->steps++;
  TRM_CHECK(status); /* on every rank */

  if (sums_first) {
    double norm_squared = 0;
    if (clips)
      TRM_CHECK(whole_norm(strategy, &norm_squared));
    const struct trm_update how = sync_update(strategy, rate, norm_squared);
    if (ratios)
      TRM_CHECK(whole_ratios(strategy, &how));
    for (int b = 0; b < s->buckets; b++) {
      const struct interval mine = s->bucket[b].mine;
      update(strategy, &how, strategy->g + mine.low, mine.low, mine.high - mine.low);
    }
  }
  strategy->updates++;
  return meet(strategy); /* all slices of the weights are new */
}

static int sync_finish(struct trm_strategy *strategy)
{
  (void)strategy; /* nothing is left under way between steps */
  return TRM_OK;
}

/* -- checkpoints: the shared arrays are the views */

static int sync_collect(struct trm_strategy *strategy, const float *view[TRM_MAX_STATES])
{
  const struct sync *s = strategy->own;
  TRM_CHECK(meet(strategy));
  view[0] = s->w.data;
  for (int i = 1; i < TRM_MAX_STATES; i++)
    view[i] = s->state[i - 1].data;
  return TRM_OK;
}

static int sync_restore(struct trm_strategy *strategy, const float *const from[TRM_MAX_STATES], uint64_t updates)
{
  struct sync *s = strategy->own;
  float *to[TRM_MAX_STATES];
  states_at(s, 0, to + 1);
  to[0] = s->w.data;
  TRM_CHECK(meet(strategy)); /* nobody reads them any more */
  for (int i = 0; i < TRM_MAX_STATES; i++)
    if (s->node->rank == 0 && from[i] && to[i])
      strategy->device->ops->upload(strategy->device, to[i], from[i], strategy->elements * sizeof(float));
  strategy->updates = updates;
  return meet(strategy);
}

const struct trm_strategy_ops trm_strategy_sync = {
  .name = "sync",
  .help = "every update is made of the gradients of all ranks",
  .lockstep = true,
  .create = sync_create,
  .grad_ready = sync_grad_ready,
  .step = sync_step,
  .finish = sync_finish,
  .collect = sync_collect,
  .restore = sync_restore,
  .destroy = sync_destroy,
};
