/* What the asynchronous methods have in common: workers, their claims, and a parameter server.
 *
 * A worker is a rank that computes, or a group of ranks that work on a batch together. A method is a file that says
 * what its service holds and does (struct worker_plan), and what a worker does after a batch (the strategy's step). */
#ifndef TRM_MPI_ASYNC_WORKER_H
#define TRM_MPI_ASYNC_WORKER_H

#include "mpi/async/batch_assignment.h"
#include "mpi/async/param_server.h"
#include "train/strategy.h"

struct worker_plan {
  bool centralized;                /* the service holds one object; otherwise one for each rank */
  int arrays;                 /* of an object. A centre: 0 the weights, then the optimizer's states, then others */
  int transient;                /* of these, the last so many are empty at a quiesce point: no checkpoint keeps them */
  server_handler *handler; /* its context is the strategy */
  bool splits_batch;                  /* every worker has its part of every batch (batch_assignment.h), slack of strategy.slack */
  bool groups;                /* strategy.groups workers of several ranks, otherwise every rank is one */
  bool local;                 /* the optimizer's states are the worker's own */
  void (*drain)(struct trm_strategy *strategy); /* the worker has had its last batch before a quiesce point; or NULL */
};

struct worker {
  struct worker_plan plan;
  struct trm_comm *all, *node, *group; /* all: not owned; node: shares memory; group: works on one batch */
  int number, workers;                 /* of this worker, -1: the rank serves alone */
  struct batch_assignment assignment;
  struct param_server *server;
  int64_t *seen;                       /* (pieces) clocks of the centre when it was last read */
  bool fresh;                          /* w is not from before the latest quiesce point */
  bool halted;
  struct trm_staleness staleness;
  float *state[TRM_MAX_STATES - 1];    /* local: (elements) each */
  float *view[TRM_MAX_STATES];         /* for checkpoints, (elements) each, NULL before the first */
  void *method;                           /* the method's, freed with trm_free */
};

static inline struct worker *worker_of(const struct trm_strategy *strategy)
{
  return strategy->impl;
}

/* Collective. Checks that the run is one for such methods, takes everything; sets w, g, evaluated, index, parts,
 * staleness and kept. own_bytes: of worker->own, zeroed. */
int worker_create(struct trm_strategy *strategy, const struct worker_plan *plan, size_t method_bytes);
/* Memory of (elements) floats that lives as long as the strategy; kept: a checkpoint keeps it under this name. */
int worker_array(struct trm_strategy *strategy, const char *name, bool in_checkpoint, float **array);

/* -- slots of the contract */
bool worker_next_batch(struct trm_strategy *strategy, uint64_t end, uint64_t *batch);
void worker_destroy(struct trm_strategy *strategy);

/* -- within a step */
/* An error if the loss of the worker's batch is not finite; the same on all its ranks. */
int worker_check(struct trm_strategy *strategy, const struct trm_loss_sums *sums);
/* The update of this worker's gradient: rate, and the scale that clipping asks for. step: 1-based. */
struct trm_update worker_update(struct trm_strategy *strategy, double rate, uint64_t step);
/* Applies it to this worker's own weights and states (plan.local). */
void worker_apply(struct trm_strategy *strategy, const struct trm_update *update);
/* Exchanges with the centre: in (elements) or NULL; the answer comes into w where `out`. The ranks of a group share the
 * pieces, and all get the whole answer. Counts the staleness where `counts`. */
void worker_exchange(struct trm_strategy *strategy, int kind, const double value[SERVER_VALUES], const float *in,
                     float *out, bool counts);

#endif
