/* The strategy contract: how the ranks' gradients become updates of the weights. One file a method, in mpi/sync and
 * mpi/async; each reaches other ranks through core/comm.h alone.
 *
 * The strategy owns the flat arrays, so that they can live where it needs them: private, shared by a node, in a window.
 * All slots marked collective are called by every rank of the data axis in the same order.
 *
 * The batches of a run are numbered from 0. A synchronous method (claim NULL) walks through them in step: all ranks
 * work on each batch, each on its part. With an asynchronous one every rank goes its own way from one quiesce point to the
 * next:
 *
 *   while claim gives a batch: before_forward, the gradient of this rank's part of it, step
 *   settle                     all ranks meet; every batch before `end` is part of the weights that are evaluated
 *
 * The trainer settles where something is to be seen of the run as a whole: before an evaluation or a checkpoint, and at
 * the end of an epoch.
 */
#ifndef TRM_TRAIN_STRATEGY_H
#define TRM_TRAIN_STRATEGY_H

#include "core/comm.h"
#include "core/device.h"
#include "core/options.h"
#include "nn/model.h"
#include "nn/optimizer.h"
#include "train/staleness.h"

TRM_BEGIN_DECLS

struct trm_strategy;

/* State of a method that is one rank's own: a worker's weights, its part of a centre. Host memory of the strategy's. A
 * checkpoint keeps it beside the whole arrays, for a run that goes on with as many ranks. */
#define TRM_MAX_LOCAL_STATES 12
struct trm_local_state {
  const char *name; /* unique in the rank */
  void *data;
  size_t bytes;
};

/* A model that is one layer with one score over sparse rows, under a loss of margins: methods may compute it
 * themselves. */
struct trm_linear {
  enum trm_margin loss;
  size_t features, weights, bias; /* the parameters begin there in the flat arrays; bias SIZE_MAX: none */
  const float *feature_frequency;             /* (features) part of the rows that have each feature; NULL: optim.l2 is 0 */
};

struct trm_strategy_ops {
  const char *name; /* strategy.name */
  const char *help; /* one line */
  bool lockstep;    /* all ranks compute the parts of one batch at the same time, so passes may reduce among them */
  /* Asynchronous methods: the next batch, among those numbered below `end`, that this rank works on; false: none is
   * left for it, or the run is to stop (strategy->halt). Ranks that serve others do so in here. NULL: synchronous. */
  bool (*next_batch)(struct trm_strategy *strategy, uint64_t end, uint64_t *batch);

  /* Collective. Takes the arrays (elements = strategy->elements), sets w and g, index and parts. */
  int (*create)(struct trm_strategy *strategy);
  /* Before the forward pass of a step; NULL: nothing to do. */
  int (*before_forward)(struct trm_strategy *strategy);
  /* The gradients of the flat interval [low, high) are final on this rank for this step (after the last micro-batch or
   * lane). Intervals come in ascending order and cover the array. tally: this rank's sums, final, too. NULL: the
   * strategy waits for step. */
  int (*grad_ready)(struct trm_strategy *strategy, size_t low, size_t high, const struct trm_loss_sums *sums);
  /* In place of forward, gradient and grad_ready where takes_rows: changes w by this rank's part of the batch as it
   * goes. target (rows) -1, +1. tally: the sums over the rows. */
  int (*train_rows)(struct trm_strategy *strategy, const struct trm_sparse_row *row, const float *target, size_t rows,
                    double rate, struct trm_loss_sums *sums);
  /* Combines, updates. tally: in, this rank's sums. If the loss is not finite nothing is updated and TRM_FAILED is
   * returned. Synchronous methods: collective; on return w is the next version, tally has the sums over the global
   * batch, and a failure is every rank's. */
  int (*step)(struct trm_strategy *strategy, double rate, struct trm_loss_sums *sums);
  /* Collective: everything under way is done; `evaluated` and `updates` are those of the run as a whole, equal on all
   * ranks. NULL: they always are. */
  int (*quiesce)(struct trm_strategy *strategy);

  /* -- state for checkpoints. Host views of the whole flat arrays: `state` 0 is the weights, 1.. the optimizer's.
   * collect: collective, makes the views current; valid on rank 0 of the data axis (at least) until the next step.
   * restore: collective; every rank passes the same whole arrays (host, `elements` floats each), or NULL to keep. */
  int (*collect)(struct trm_strategy *strategy, const float *view[TRM_MAX_STATES]);
  int (*restore)(struct trm_strategy *strategy, const float *const from[TRM_MAX_STATES], uint64_t updates);
  /* The same piece by piece, where no rank may need whole arrays: of a `state` elements [low, low + n), any interval.
   * NULL: collect and restore are the only way; otherwise these two are, and of restore only the call without arrays.
   * read: collective; brings them to host memory on data rank 0. `to` (n) is not looked at on the other ranks.
   * write: called by every rank, with the same values (n), host; each keeps what is its own. After the last one comes
   * restore, with nothing but NULL, which sets `updates`; only then are there passes again.
   * With a parameter provider `state` -1 is the gradient: the sum over the ranks, after the last pass and before step. */
  int (*read)(struct trm_strategy *strategy, int state, size_t low, size_t n, float *to);
  int (*write)(struct trm_strategy *strategy, int state, size_t low, size_t n, const float *from);

  void (*destroy)(struct trm_strategy *strategy); /* collective */
};

struct trm_strategy {
  const struct trm_strategy_ops *ops;
  /* set by the caller before create; not owned */
  struct trm_comm *comm;       /* the data axis */
  struct trm_device *device;
  const struct trm_optimizer *optimizer;
  const struct trm_options *options;
  size_t elements;             /* of the flat arrays */
  const size_t *boundary;      /* ascending ends of the layers' intervals, (boundaries): where buckets may be cut */
  int boundaries;
  const struct trm_linear *linear; /* the model is such a one; NULL: it is not */
  struct trm_comm *norm_comm;  /* the ranks that together hold one copy of the model, this one's part included: norms
                                  are of the whole. NULL: this rank's arrays are the model */
  struct trm_comm *ratio_comm; /* those among them that divide the same tensors. NULL: nobody does */
  /* set by create */
  bool trains_rows;             /* batches go to learn */
  const struct trm_param_provider
    *provider; /* no rank has w and g whole, both are NULL: the model is bound without them, and the
                                  holder goes into every pass, of training and of evaluation (nn/layer.h). NULL: w, g */
  float *w, *g;                /* device: weights to read, gradients to write, (elements) */
  float *eval_weights;            /* device, (elements): what evaluations read: an average, a centre; NULL: w */
  int batch_shard, batch_shards;            /* which part of each batch this rank computes (trm_interval) */
  struct trm_local_state local_state[TRM_MAX_LOCAL_STATES]; /* what only this rank has: saved after settle, given back before restore */
  int local_states;
  struct trm_staleness *staleness; /* of this rank's updates; NULL: none has any */
  uint64_t updates;            /* batches that are part of the weights, as of the latest quiesce point */
  double wait_s, comm_s;       /* seconds spent waiting for others, and in communication, so far */
  /* set by the caller */
  bool local_state_restored;             /* before restore: kept holds what a checkpoint had */
  bool halt;                   /* this rank wants the run to stop: no rank gets another batch */
  void *impl;
};

TRM_END_DECLS
#endif
