/* Shared by the asynchronous methods: workers, their batch assignment, and a parameter server.
 *
 * A worker is a rank that computes, or a group of ranks that share a batch. A method is a file with a handler that its
 * parameter server runs (struct worker_plan), and the strategy's step, which a worker runs after a batch. */
#pragma once

#include "mpi/async/batch_assignment.h"
#include "mpi/async/param_server.h"
#include "mpi/async/snapshot.h"
#include "mpi/async/stragglers.h"
#include "train/strategy.h"

struct worker_plan {
  bool centralized;  /* the parameter server holds one replica, the server weights; otherwise one for each rank */
  int arrays;        /* of a replica. Centralized: 0 the weights, then the optimizer's states, then the method's */
  int transient;     /* the last `transient` of these are empty at a quiesce point: not in checkpoints */
  int reply_arrays, slots, method_states; /* of struct server_plan */
  server_handler *handler; /* its context is the strategy */
  int update_gradients; /* gradients that an update of the weights takes together; 0: 1 */
  bool splits_batch; /* every worker computes its shard of every batch (batch_assignment.h), with strategy.slack */
  bool groups_of_workers; /* strategy.groups are groups of workers; otherwise each is a worker of several ranks */
  bool local;        /* each worker has its own optimizer states */
  bool timed;        /* struct server_plan.timed */
  bool no_staleness; /* the method has no staleness: strategy->staleness is NULL */
  bool shared_weights; /* the method sets s->w, which is also evaluated: no eval_weights */
  /* abandons: returns true if the gradient in progress is of no use to the method; as the strategy's field. NULL: never.
   * restart: it has been abandoned, or its time was up (abandon_at); its rows are not trained, and the worker is about
   * to be assigned others. */
  bool (*abandons)(const struct trm_strategy *strategy);
  void (*restart)(struct trm_strategy *strategy);
  void (*drain)(struct trm_strategy *strategy); /* after a worker's last batch before a quiesce point; NULL: nothing */
  void (*snapshot)(struct trm_strategy *strategy); /* peers: copies the worker's weights to snapshot number `taken` */
};

enum { WORKER_MAX_ARRAYS = 16, WORKER_MAX_BLOCKS = 16 };

struct worker {
  struct worker_plan plan;
  struct trm_comm *node, *group;       /* ranks that share memory; those of this worker */
  int number, workers;                 /* number of this worker; -1: the rank is a dedicated server */
  struct batch_assignment assignment;
  struct param_server *server;
  struct stragglers *stragglers;       /* owned; NULL: they are waited for */
  struct snapshots snapshots;
  struct call_order *order;            /* NULL: neither recorded nor followed */
  double *per_chunk;                   /* (chunks) of the calls of worker_exchange; NULL: 0 */
  int64_t *seen;                       /* (chunks) clocks of the server weights when they were last read */
  bool fresh;                          /* w has been read since the last quiesce point */
  bool halted;                         /* this rank's stop request has been announced */
  struct trm_staleness staleness;
  float *state[TRM_MAX_STATES - 1];    /* local: (elements) each */
  void *array[WORKER_MAX_ARRAYS];      /* (arrays) device, owned: all that worker_array has made */
  void *block[WORKER_MAX_BLOCKS];      /* (blocks) owned: all that worker_alloc has made */
  int arrays, blocks;
  void *method;                        /* the method's struct */
};

static inline struct worker *worker_of(const struct trm_strategy *strategy)
{
  return strategy->impl;
}

/* The ranks that compute: all but dedicated servers. */
static inline int worker_count(const struct trm_strategy *strategy)
{
  return strategy->comm->size - (int)strategy->options->servers;
}

/* Collective over strategy->comm. Checks the options, allocates all memory; sets w, g, eval_weights, batch_shard,
 * batch_shards, staleness and local_state. method_bytes: size of worker->method, which is zeroed. strategy.groups
 * workers of several ranks each if the method takes that option; otherwise every rank is a worker. */
int worker_create(struct trm_strategy *strategy, const struct worker_plan *plan, size_t method_bytes);
/* Allocates *array (elements) on the device, until worker_destroy. name: checkpoints keep it as local state; NULL: they
 * do not. */
int worker_array(struct trm_strategy *strategy, size_t elements, const char *name, float **array);
/* Host memory, zeroed, until worker_destroy. */
void *worker_alloc(struct trm_strategy *strategy, size_t bytes);

/* -- slots of the contract, or their first part. quiesce: all batches are done; the time until the last worker comes
 * counts as waiting. restore: sets `updates`. */
bool worker_next_batch(struct trm_strategy *strategy, uint64_t end, struct trm_batch_part *part);
void worker_quiesce(struct trm_strategy *strategy);
void worker_restore(struct trm_strategy *strategy, uint64_t updates);
void worker_destroy(struct trm_strategy *strategy);
int64_t worker_gradients(const struct trm_strategy *strategy, uint64_t updates); /* that these batches are */

/* -- within a step */
/* Collective over the group. TRM_FAILED on all its ranks if the loss of the worker's batch is not finite. */
int worker_check(struct trm_strategy *strategy, const struct trm_loss_sums *sums);
/* Returns the update for this worker's gradient, with the scale of clipping. step: 1-based. */
struct trm_update worker_update(struct trm_strategy *strategy, double rate, uint64_t step);
/* Applies the update to [low, low + n) of w, with the worker's own states (plan.local). w, g (n) */
void worker_apply(struct trm_strategy *strategy, const struct trm_update *update, size_t low, size_t n, float *w,
                  const float *g);
void worker_apply_all(struct trm_strategy *strategy, const struct trm_update *update); /* to the worker's weights */
/* Collective over the group. Calls the server weights with in (elements) or NULL; the reply goes to out (elements) or
 * NULL. The ranks of a group divide the chunks among them, and all get the whole reply. counts: the staleness is
 * logged. */
void worker_exchange(struct trm_strategy *strategy, int kind, const double value[SERVER_VALUES], const float *in,
                     float *out, bool counts);
