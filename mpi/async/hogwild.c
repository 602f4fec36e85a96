/* Hogwild! (Niu, Recht, Re, Wright 2011): all workers update one array of weights concurrently, without locks.
 *
 * If all ranks share memory, the model computes on the shared weights while others write to them. A step of SGD adds to
 * each weight in place with a load and a store; a store of another rank in between is lost, which is rare and accepted
 * by the method.
 *
 * Otherwise each rank has a slice of the weights in a window. A worker gets all slices before a batch and accumulates
 * its step on them after it: no addition is lost, but a worker may read a partial step of another. The thread of the
 * parameter server (param_server.h), which has no state here, makes MPI progress on computing ranks.
 *
 * With strategy.tau > 1 a worker updates a private copy, and merges it with the shared weights every tau batches
 * (weight_copy.h).
 *
 * A linear model with one score on sparse rows (train/rows.c) is updated every strategy.rows rows instead of every
 * batch: by the device's sparse_sgd on the shared weights, or on the copy. There optim.l2 shrinks only the weights of a
 * row's features, by optim.l2 over the feature's frequency: over an epoch as much as if every row shrank all weights.
 * This is the regularizer of the authors' support vector machine, mu = optim.l2 * rows.
 *
 * Update rules with states are refused: the states would have to be shared and kept consistent with the weights.
 *
 * Staleness: the updates that others started between this worker's reading and writing of the weights; an update is a
 * step, or with strategy.tau > 1 a merge. It is not defined for rows on the shared weights themselves, which are read
 * and written weight by weight. */
#include <stdint.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "mpi/async/pending_update.h"
#include "mpi/async/weight_copy.h"
#include "mpi/async/worker.h"
#include "mpi/strategies.h"
#include "train/row_trainer.h"

enum { UPDATES_BEGUN, COUNTERS }; /* shared counters: updates of all workers that have begun to write */

struct hogwild {
  struct shared_counters counters;
  int64_t seen;              /* UPDATES_BEGUN when the weights were last read */
  struct trm_shared shared;  /* the weights, where all ranks share memory */
  struct weight_copy copy;   /* copy of the weights; base NULL: s->w is the shared array */
  struct trm_window *window; /* if not shared: this rank's slice of the weights */
  float *pulled;             /* (elements) with a window: the weights as they were read */
  int64_t quiesced;          /* UPDATES_BEGUN at the quiesce point before the snapshots */
  int64_t batches;           /* since the weights were last read */
  const struct trm_linear *linear; /* the model, trained row by row; NULL: passes give gradients */
  float *shrink;             /* (features) of sparse rows, NULL: none */
  struct pending_update pending; /* of rows on the shared weights, where time is virtual; copy NULL: none */
};

static struct hogwild *hogwild_of(const struct trm_strategy *s)
{
  return worker_of(s)->method;
}

static void hogwild_flush(struct trm_strategy *s);

/* -- sparse rows */

static void hogwild_begin_rows(struct trm_strategy *s, const struct trm_linear *linear)
{
  struct hogwild *h = hogwild_of(s);
  h->linear = linear;
  if (!h->copy.base && !h->window) {
    s->staleness = NULL;
    if (s->comm->ops->compute)
      pending_update_create(&h->pending, s->elements);
  }
  if (!linear->feature_frequency)
    return;
  h->shrink = trm_alloc(linear->features * sizeof *h->shrink, "shrinking of weights");
  for (size_t j = 0; j < linear->features; j++)
    h->shrink[j] = linear->feature_frequency[j] > 0 ? s->optimizer->update.l2 / linear->feature_frequency[j] : 0;
}

/* Returns where the rows' updates are made: the weights, or a copy that is stored when their time has passed. */
static float *hogwild_row_weights(struct trm_strategy *s, const struct trm_sparse_row *row, size_t rows)
{
  struct hogwild *h = hogwild_of(s);
  if (!h->pending.copy)
    return s->w;
  for (size_t i = 0; i < rows; i++)
    for (size_t e = 0; e < row[i].entries; e++)
      pending_update_touch(&h->pending, s->w, h->linear->weights + (size_t)row[i].columns[e]);
  if (h->linear->bias != SIZE_MAX)
    pending_update_touch(&h->pending, s->w, h->linear->bias);
  return h->pending.copy;
}

static int hogwild_train_rows(struct trm_strategy *s, const struct trm_sparse_row *row, const float *target,
                              size_t rows, double rate, struct trm_loss_sums *sums)
{
  const struct trm_linear *linear = hogwild_of(s)->linear;
  float *w = hogwild_row_weights(s, row, rows), *bias = linear->bias == SIZE_MAX ? NULL : w + linear->bias;
  struct trm_sparse_sums row_sums;
  s->device->ops->sparse_sgd(s->device, &(struct trm_sparse_sgd_rows){
    .sgd = {.loss = linear->loss, .rate = (float)rate, .update_rows = (size_t)s->options->rows,
            .shrink = hogwild_of(s)->shrink},
    .row = row, .target = target, .w = w + linear->weights, .bias = bias, .sums = &row_sums, .rows = rows});
  sums->loss += row_sums.loss;
  sums->correct += row_sums.correct;
  sums->rows += (double)rows;
  return TRM_OK;
}

static const struct trm_row_trainer hogwild_row_trainer = {.begin = hogwild_begin_rows, .train = hogwild_train_rows};

/* -- creation */

/* Elements from the shared weights to the first snapshot, and from one to the next. */
static size_t hogwild_stride(const struct trm_strategy *s)
{
  return (s->elements + 15) / 16 * 16;
}

/* Shares one array of weights in the node, with the snapshots after it; with copies every worker has an array of its
 * own, too. */
static int hogwild_share_weights(struct trm_strategy *s)
{
  struct worker *w = worker_of(s);
  struct hogwild *h = w->method;
  const size_t arrays = 1 + (size_t)w->snapshots.max;
  const size_t bytes = w->node->rank == 0 ? arrays * hogwild_stride(s) * sizeof(float) : 0;
  TRM_CHECK(w->node->ops->share(w->node, bytes, TRM_MEMORY_BUFFERS, &h->shared));
  s->w = h->shared.base[0];
  if (s->options->tau == 1)
    return TRM_OK;
  TRM_CHECK(weight_copy_create(&h->copy, w->node, s->w, s->elements));
  return worker_array(s, s->elements, NULL, &s->w);
}

static void hogwild_slice(const struct trm_strategy *s, int rank, size_t *low, size_t *high)
{
  trm_interval(s->elements, (size_t)s->comm->size, (size_t)rank, low, high);
}

static int hogwild_open_window(struct trm_strategy *s)
{
  struct hogwild *h = hogwild_of(s);
  size_t low, high;
  void *slice;
  hogwild_slice(s, s->comm->rank, &low, &high);
  const size_t count = (1 + (size_t)worker_of(s)->snapshots.max) * (high - low); /* the weights, then the snapshots */
  TRM_CHECK(s->comm->ops->window_create(s->comm, count, TRM_FLOAT, "a part of the weights", &h->window, &slice));
  TRM_CHECK(worker_array(s, s->elements, NULL, &s->w));
  return worker_array(s, s->elements, NULL, &h->pulled);
}

static void hogwild_destroy(struct trm_strategy *s)
{
  struct worker *w = worker_of(s);
  struct hogwild *h = w->method;
  shared_counters_free(&h->counters);
  trm_free(h->shrink);
  pending_update_free(&h->pending);
  weight_copy_free(&h->copy);
  if (h->shared.base)
    w->node->ops->unshare(w->node, &h->shared);
  s->comm->ops->window_free(&h->window);
  worker_destroy(s);
}

static int hogwild_create(struct trm_strategy *s)
{
  const struct worker_plan plan = {.drain = hogwild_flush, .shared_weights = true};
  TRM_CHECK(worker_create(s, &plan, sizeof(struct hogwild)));
  struct worker *w = worker_of(s);
  s->row_trainer = &hogwild_row_trainer;
  TRM_CHECK(shared_counters_create(&hogwild_of(s)->counters, s->comm, w->node, 0, COUNTERS));
  return trm_agree(s->comm, w->node->size == s->comm->size ? hogwild_share_weights(s) : hogwild_open_window(s));
}

/* -- a step */

enum access { READ, ADD, WRITE };

/* Reads, adds to or writes elements [from, to) of an array in the window: 0 the weights, 1 + i snapshot i. values
 * (elements). */
static void hogwild_access_slices(struct trm_strategy *s, enum access access, int array, size_t from, size_t to,
                                  float *values)
{
  struct trm_window *window = hogwild_of(s)->window;
  struct trm_comm *comm = s->comm;
  for (int i = 0; i < comm->size; i++) {
    const int rank = (comm->rank + i) % comm->size; /* ranks start with different targets */
    size_t first, end;
    hogwild_slice(s, rank, &first, &end);
    const size_t low = first > from ? first : from, high = end < to ? end : to;
    if (low >= high)
      continue;
    const size_t at = (size_t)array * (end - first) + low - first;
    if (access == READ)
      comm->ops->get(window, values + low, high - low, rank, at);
    else if (access == ADD)
      comm->ops->accumulate(window, values + low, high - low, rank, at);
    else
      comm->ops->put(window, values + low, high - low, rank, at);
  }
  for (int rank = 0; rank < comm->size; rank++)
    comm->ops->flush(window, rank);
}

/* Reads elements [from, to) of the window. */
static void hogwild_read(struct trm_strategy *s, size_t from, size_t to)
{
  hogwild_access_slices(s, READ, 0, from, to, s->w);
  memcpy(hogwild_of(s)->pulled + from, s->w + from, (to - from) * sizeof *s->w);
}

/* Adds the changes of elements [from, to) since they were read to the window. */
static void hogwild_add_changes(struct trm_strategy *s, size_t from, size_t to)
{
  float *pulled = hogwild_of(s)->pulled;
  for (size_t i = from; i < to; i++)
    pulled[i] = s->w[i] - pulled[i];
  hogwild_access_slices(s, ADD, 0, from, to, pulled);
}

/* Updates s->w from the shared weights. */
static void hogwild_pull(struct trm_strategy *s)
{
  struct hogwild *h = hogwild_of(s);
  const double before = s->comm->ops->clock(s->comm);
  h->seen = shared_counters_read(&h->counters, UPDATES_BEGUN);
  if (h->copy.base)
    weight_copy_pull(&h->copy, s->w);
  if (h->window)
    hogwild_read(s, 0, s->elements);
  s->comm_s += s->comm->ops->clock(s->comm) - before;
}

/* Adds this worker's changes to the shared weights; also updates a copy. */
static void hogwild_push(struct trm_strategy *s)
{
  struct hogwild *h = hogwild_of(s);
  const double before = s->comm->ops->clock(s->comm);
  if (h->copy.base)
    weight_copy_merge(&h->copy, s->w);
  if (h->window)
    hogwild_add_changes(s, 0, trm_optimizer_trained(s->optimizer));
  s->comm_s += s->comm->ops->clock(s->comm) - before;
}

static float *hogwild_shared_snapshot(const struct trm_strategy *s, int number)
{
  return (float *)hogwild_of(s)->shared.base[0] + (size_t)(1 + number) * hogwild_stride(s);
}

/* Copies the shared weights. With a window s->w is read again before the next batch. */
static void hogwild_copy_snapshot(struct trm_strategy *s, int number)
{
  struct hogwild *h = hogwild_of(s);
  if (h->shared.base) {
    memcpy(hogwild_shared_snapshot(s, number), h->shared.base[0], s->elements * sizeof(float));
    return;
  }
  hogwild_access_slices(s, READ, 0, 0, s->elements, s->w);
  hogwild_access_slices(s, WRITE, 1 + number, 0, s->elements, s->w);
}

/* Gradients since the quiesce point before, by the updates that have begun. */
static int64_t hogwild_gradients(const struct trm_strategy *s, int64_t begun)
{
  return (begun - hogwild_of(s)->quiesced) * s->options->tau;
}

/* After the update of this number by this worker: makes the snapshots that it completes. */
static void hogwild_take_snapshots(struct trm_strategy *s, int64_t number)
{
  const struct snapshots *snapshots = &worker_of(s)->snapshots;
  for (int i = 0; i < snapshots->count; i++)
    if (snapshots->target[i] > hogwild_gradients(s, number) && snapshots->target[i] <= hogwild_gradients(s, number + 1))
      hogwild_copy_snapshot(s, i);
}

/* Pushes the batches since the weights were last read, as one update, and counts its staleness. */
static void hogwild_flush(struct trm_strategy *s)
{
  struct hogwild *h = hogwild_of(s);
  if (h->batches == 0)
    return;
  const int64_t begun = shared_counters_add(&h->counters, UPDATES_BEGUN, 1), staleness = begun - h->seen;
  h->seen = begun + 1;
  h->batches = 0;
  hogwild_push(s);
  hogwild_take_snapshots(s, begun);
  if (s->staleness)
    trm_staleness_add(s->staleness, (uint64_t)staleness);
}

static int hogwild_before_forward(struct trm_strategy *s)
{
  struct hogwild *h = hogwild_of(s);
  if (h->batches == 0 && !h->copy.base) /* a copy is current after its merge */
    hogwild_pull(s);
  return TRM_OK;
}

/* Makes the update. In a window statistics are read, changed and written at once: several increments relative to the
 * same old value would add up to too large a change. */
static void hogwild_apply(struct trm_strategy *s, double rate)
{
  const struct trm_update update = worker_update(s, rate, 0);
  const size_t trained = trm_optimizer_trained(s->optimizer), all = s->elements;
  const bool moves_statistics = hogwild_of(s)->window && trained < all;
  if (moves_statistics)
    hogwild_read(s, trained, all);
  worker_apply_all(s, &update);
  if (moves_statistics)
    hogwild_add_changes(s, trained, all);
}

static int hogwild_step(struct trm_strategy *s, double rate, struct trm_loss_sums *sums)
{
  struct hogwild *h = hogwild_of(s);
  TRM_CHECK(worker_check(s, sums));
  if (!h->linear) /* otherwise hogwild_train_rows has made the updates */
    hogwild_apply(s, rate);
  else if (h->pending.copy)
    pending_update_store(&h->pending, s->w, s->conflicts);
  TRM_CHECK(s->device->ops->sync(s->device));
  if (++h->batches == s->options->tau)
    hogwild_flush(s);
  return TRM_OK;
}

/* -- quiesce points */

/* Collective. Sums the workers' counts of weights that were stored, and of conflicts. */
static void hogwild_count_conflicts(struct trm_strategy *s)
{
  const struct pending_update *pending = &hogwild_of(s)->pending;
  if (!pending->copy)
    return;
  double count[] = {(double)pending->stored, (double)pending->conflicts};
  s->comm->ops->allreduce(s->comm, count, 2, TRM_DOUBLE, TRM_SUM);
  s->stored = count[0];
  s->conflicting = count[1];
}

static int hogwild_quiesce(struct trm_strategy *s)
{
  worker_quiesce(s);
  hogwild_count_conflicts(s);
  hogwild_pull(s);
  s->comm->ops->barrier(s->comm);
  return TRM_OK;
}

static void hogwild_snapshot(struct trm_strategy *s, const uint64_t *at, int count)
{
  struct hogwild *h = hogwild_of(s);
  h->quiesced = h->seen;
  snapshots_request(s, at, count);
}

/* A snapshot that is not complete is of the current weights. */
static int hogwild_snapshot_weights(struct trm_strategy *s, int number)
{
  struct hogwild *h = hogwild_of(s);
  const bool current = number < 0 || worker_of(s)->snapshots.target[number] > hogwild_gradients(s, h->seen);
  s->eval_weights = NULL;
  if (!current && h->shared.base) {
    s->eval_weights = hogwild_shared_snapshot(s, number);
  } else if (!current) {
    hogwild_access_slices(s, READ, 1 + number, 0, s->elements, h->pulled);
    s->eval_weights = h->pulled;
  }
  if (number < 0)
    hogwild_pull(s);
  s->comm->ops->barrier(s->comm);
  return TRM_OK;
}

static int hogwild_collect(struct trm_strategy *s, const float *view[TRM_MAX_STATES])
{
  view[0] = s->w;
  return TRM_OK;
}

/* Each rank writes its own slice. */
static int hogwild_restore(struct trm_strategy *s, const float *const from[TRM_MAX_STATES], uint64_t updates)
{
  struct hogwild *h = hogwild_of(s);
  struct trm_comm *comm = s->comm;
  size_t low, high;
  hogwild_slice(s, comm->rank, &low, &high);
  comm->ops->barrier(comm);
  if (from[0] && h->shared.base) {
    memcpy((float *)h->shared.base[0] + low, from[0] + low, (high - low) * sizeof(float));
  } else if (from[0]) {
    comm->ops->put(h->window, from[0] + low, high - low, comm->rank, 0);
    comm->ops->flush(h->window, comm->rank);
  }
  comm->ops->barrier(comm);
  hogwild_pull(s);
  worker_restore(s, updates);
  return TRM_OK;
}

const struct trm_strategy_ops trm_strategy_hogwild = {
  .name = "hogwild",
  .help = "all ranks change one array of weights at any time, without locks (Hogwild!)",
  .takes = TRM_TAKES_TAU | TRM_TAKES_CLIP | TRM_TAKES_RULES | TRM_TAKES_OWN_BATCHES,
  .create = hogwild_create,
  .next_batch = worker_next_batch,
  .before_forward = hogwild_before_forward,
  .step = hogwild_step,
  .quiesce = hogwild_quiesce,
  .snapshot = hogwild_snapshot,
  .snapshot_weights = hogwild_snapshot_weights,
  .collect = hogwild_collect,
  .restore = hogwild_restore,
  .destroy = hogwild_destroy,
};
