/* Hogwild! (Niu, Recht, Re, Wright 2011): all workers change one array of weights at any time, without locks.
 *
 * Where all ranks share memory, the model computes on the shared weights themselves while others write to them, and the
 * step of SGD is added where they lie, value by value with a load and a store: what another rank stored in between is
 * lost, which is rare and is what the method accepts.
 *
 * Otherwise each rank keeps a part of the weights in a window. A worker gets all parts before a batch and accumulates
 * its step on them after it: values are added one by one and none is lost, but a worker may see one half of another's
 * step. The thread of the service (service.h), which holds nothing here, keeps MPI going at ranks that compute.
 *
 * With strategy.tau above 1 a worker changes a copy, in shared memory too, and merges it with the shared weights every
 * tau batches (copies.h).
 *
 * Of a linear model with one score on sparse rows (train/rows.c) the batch is not one update, but each strategy.rows of
 * its rows are: made by the device's sparse_sgd on the shared weights, or on those that were got. Then optim.l2 shrinks
 * the weights that a row has, each the more the fewer rows have its feature: in an epoch as much as it would shrink all
 * of them row by row. It is the regularizer of the authors' support vector machine, mu = optim.l2 * rows.
 *
 * Rules with states are refused: these would have to be shared as well, and to be correct together with the weights.
 *
 * Staleness: the updates that others began between the reading of the weights and the writing. */
#include <stdint.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "mpi/async/async.h"
#include "mpi/async/copies.h"
#include "mpi/async/worker.h"

enum { BEGUN, COUNTERS }; /* words: updates that have begun to write, of all workers */

struct hogwild {
  struct words words;
  int64_t seen;              /* BEGUN when the weights were last read */
  struct trm_shared shared;  /* one array, where all ranks share memory */
  struct copies copies;      /* of it; without a base: s->w is the shared array itself */
  struct trm_window *window; /* otherwise: this rank's part of the weights */
  float *read;               /* (elements) with a window: the weights as they were read */
  int64_t batches;           /* since then */
  float *shrink;             /* (features) of sparse rows, NULL: none */
};

static struct hogwild *own_of(const struct trm_strategy *s)
{
  return worker_of(s)->own;
}

static void hand_on(struct trm_strategy *s);

static void serve(void *context, const struct service_piece *piece, struct service_call *call)
{
  (void)context, (void)piece, (void)call;
}

static bool takes_rows(const struct trm_strategy *s)
{
  return s->linear && s->device->ops->sparse_sgd;
}

/* -- life */

static int check_request(const struct trm_strategy *s)
{
  if (s->optimizer->update.rule != TRM_UPDATE_SGD || s->optimizer->states > 0)
    return trm_error(TRM_USAGE, "optim.name: hogwild is for sgd without optim.momentum and optim.ema; a state beside "
                     "the weights would not stay true to them");
  if (takes_rows(s) && s->optimizer->clip > 0)
    return trm_error(TRM_USAGE, "optim.clip: hogwild on sparse rows makes its updates row by row and clips none");
  if (takes_rows(s) && s->options->train.accumulate > 1)
    return trm_error(TRM_USAGE, "train.accumulate: hogwild on sparse rows has no gradients to accumulate");
  return TRM_OK;
}

static void make_shrink(struct trm_strategy *s)
{
  const struct trm_linear *linear = s->linear;
  float *shrink = trm_alloc(linear->features * sizeof *shrink, "shrinking of weights");
  for (size_t j = 0; j < linear->features; j++)
    shrink[j] = linear->share[j] > 0 ? s->optimizer->update.l2 / linear->share[j] : 0;
  own_of(s)->shrink = shrink;
}

/* Without copies the private weights that a worker begins with make room for the shared ones. */
static int share_weights(struct trm_strategy *s)
{
  struct worker *w = worker_of(s);
  struct hogwild *own = w->own;
  const size_t bytes = w->node->rank == 0 ? s->elements * sizeof(float) : 0;
  TRM_CHECK(trm_agree(s->comm, w->node->ops->share(w->node, bytes, "shared weights", &own->shared)));
  if (s->options->strategy.tau > 1)
    return trm_agree(s->comm, copies_create(&own->copies, w->node, own->shared.base[0], s->elements));
  s->device->ops->release(s->device, s->w);
  s->w = own->shared.base[0];
  return TRM_OK;
}

static void part_of(const struct trm_strategy *s, int rank, size_t *low, size_t *high)
{
  trm_interval(s->elements, (size_t)s->comm->size, (size_t)rank, low, high);
}

static int open_window(struct trm_strategy *s)
{
  struct hogwild *own = own_of(s);
  size_t low, high;
  void *part;
  part_of(s, s->comm->rank, &low, &high);
  TRM_CHECK(trm_agree(s->comm, s->comm->ops->window_create(s->comm, high - low, TRM_FLOAT, "a part of the weights",
                                                           &own->window, &part)));
  return trm_agree(s->comm, worker_array(s, "the weights as read", false, &own->read));
}

static void destroy(struct trm_strategy *s)
{
  struct worker *w = worker_of(s);
  struct hogwild *own = w->own;
  words_free(&own->words);
  trm_free(own->shrink);
  if (own->shared.base) {
    s->w = own->copies.base ? s->w : NULL;
    copies_free(&own->copies);
    w->node->ops->unshare(w->node, &own->shared);
  }
  if (own->window)
    s->comm->ops->window_free(&own->window);
  if (own->read)
    s->device->ops->release(s->device, own->read);
  worker_destroy(s);
}

static int create(struct trm_strategy *s)
{
  const struct worker_plan plan = {.function = serve, .drain = hand_on};
  TRM_CHECK(check_request(s));
  TRM_CHECK(worker_create(s, &plan, sizeof(struct hogwild)));
  struct worker *w = worker_of(s);
  s->device->ops->release(s->device, s->evaluated);
  s->evaluated = NULL; /* at a settling the weights are those of the run */
  s->takes_rows = takes_rows(s);
  if (s->takes_rows && s->linear->share)
    make_shrink(s);
  int status = words_create(&own_of(s)->words, s->comm, w->node, 0, COUNTERS);
  if (status == TRM_OK)
    status = w->node->size == s->comm->size ? share_weights(s) : open_window(s);
  if (status != TRM_OK)
    destroy(s);
  return status;
}

/* -- a step */

/* All parts of the window, as they are. */
static void get_parts(struct trm_strategy *s)
{
  struct hogwild *own = own_of(s);
  struct trm_comm *comm = s->comm;
  for (int i = 0; i < comm->size; i++) {
    const int rank = (comm->rank + i) % comm->size; /* not all at the same one */
    size_t low, high;
    part_of(s, rank, &low, &high);
    if (low < high)
      comm->ops->get(own->window, s->w + low, high - low, rank, 0);
  }
  for (int rank = 0; rank < comm->size; rank++)
    comm->ops->flush(own->window, rank);
  memcpy(own->read, s->w, s->elements * sizeof *own->read);
}

/* Adds to them what this worker has made of the weights that were read. */
static void add_parts(struct trm_strategy *s)
{
  struct hogwild *own = own_of(s);
  struct trm_comm *comm = s->comm;
  for (size_t i = 0; i < s->elements; i++)
    own->read[i] = s->w[i] - own->read[i];
  for (int i = 0; i < comm->size; i++) {
    const int rank = (comm->rank + i) % comm->size;
    size_t low, high;
    part_of(s, rank, &low, &high);
    if (low < high)
      comm->ops->accumulate(own->window, own->read + low, high - low, rank, 0);
  }
  for (int rank = 0; rank < comm->size; rank++)
    comm->ops->flush(own->window, rank);
}

/* s->w: the weights as they are now. */
static void pull(struct trm_strategy *s)
{
  struct hogwild *own = own_of(s);
  const double before = s->comm->ops->clock(s->comm);
  own->seen = words_read(&own->words, BEGUN);
  if (own->copies.base)
    copies_take(&own->copies, s->w);
  if (own->window)
    get_parts(s);
  s->comm_s += s->comm->ops->clock(s->comm) - before;
}

/* The weights of all get what this worker has changed; a copy is then what they are. */
static void push(struct trm_strategy *s)
{
  struct hogwild *own = own_of(s);
  const double before = s->comm->ops->clock(s->comm);
  if (own->copies.base)
    copies_merge(&own->copies, s->w);
  if (own->window)
    add_parts(s);
  s->comm_s += s->comm->ops->clock(s->comm) - before;
}

/* The batches since the weights were read become part of those of all. */
static void hand_on(struct trm_strategy *s)
{
  struct hogwild *own = own_of(s);
  if (own->batches == 0)
    return;
  const int64_t begun = words_add(&own->words, BEGUN, own->batches), late = begun - own->seen;
  own->seen = begun + own->batches;
  push(s);
  for (; own->batches > 0; own->batches--)
    trm_staleness_add(&worker_of(s)->staleness, (uint64_t)late);
}

static int before_forward(struct trm_strategy *s)
{
  struct hogwild *own = own_of(s);
  if (own->batches == 0 && !own->copies.base) /* a copy is what its merge has left */
    pull(s);
  return TRM_OK;
}

static int learn(struct trm_strategy *s, const struct trm_sparse_row *row, const float *target, size_t rows,
                 double rate, struct trm_tally *tally)
{
  const struct trm_linear *linear = s->linear;
  const struct trm_sparse_sgd how = {
    .loss = linear->loss,
    .rate = (float)rate,
    .together = (size_t)s->options->strategy.rows,
    .shrink = own_of(s)->shrink,
  };
  float *bias = linear->bias == SIZE_MAX ? NULL : s->w + linear->bias;
  struct trm_sparse_sums sums;
  s->device->ops->sparse_sgd(s->device, &how, row, target, s->w + linear->weights, bias, &sums, rows);
  tally->loss += sums.loss;
  tally->correct += sums.correct;
  tally->rows += (double)rows;
  return TRM_OK;
}

static int step(struct trm_strategy *s, double rate, struct trm_tally *tally)
{
  struct hogwild *own = own_of(s);
  TRM_CHECK(worker_check(s, tally));
  if (!s->takes_rows) { /* otherwise the updates are made */
    const struct trm_update how = worker_update(s, rate, 0);
    worker_apply(s, &how);
  }
  TRM_CHECK(s->device->ops->sync(s->device));
  if (++own->batches == s->options->strategy.tau)
    hand_on(s);
  return TRM_OK;
}

/* -- between them */

static int settle(struct trm_strategy *s)
{
  struct worker *w = worker_of(s);
  claims_settle(&w->claims, w->all, true, &s->updates);
  w->halted = false;
  pull(s);
  w->all->ops->barrier(w->all);
  return TRM_OK;
}

static int collect(struct trm_strategy *s, const float *view[TRM_MAX_STATES])
{
  view[0] = s->w;
  return TRM_OK;
}

/* Each rank writes its own part. */
static int restore(struct trm_strategy *s, const float *const from[TRM_MAX_STATES], uint64_t updates)
{
  struct worker *w = worker_of(s);
  struct hogwild *own = w->own;
  size_t low, high;
  part_of(s, s->comm->rank, &low, &high);
  w->all->ops->barrier(w->all);
  if (from[0] && low < high) {
    if (own->shared.base)
      memcpy((float *)own->shared.base[0] + low, from[0] + low, (high - low) * sizeof(float));
    else {
      s->comm->ops->put(own->window, from[0] + low, high - low, s->comm->rank, 0);
      s->comm->ops->flush(own->window, s->comm->rank);
    }
  }
  w->all->ops->barrier(w->all);
  pull(s);
  s->updates = updates;
  claims_restart(&w->claims, w->all, updates, s->kept_given);
  return TRM_OK;
}

const struct trm_strategy_ops trm_strategy_hogwild = {
  .name = "hogwild",
  .help = "all ranks change one array of weights at any time, without locks (Hogwild!)",
  .create = create,
  .claim = worker_claim,
  .before_forward = before_forward,
  .learn = learn,
  .step = step,
  .settle = settle,
  .collect = collect,
  .restore = restore,
  .destroy = destroy,
};
