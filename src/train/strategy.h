/* The strategy contract: the method by which the ranks' gradients update the weights. One file per method, in mpi/sync
 * and mpi/async; each communicates through core/comm.h alone. It computes on host memory, whatever the rank's device:
 * the trainer stages weights and gradient (staged_arrays.h), unless the method says that it needs none of it.
 *
 * The strategy owns the flat arrays, in private memory, node-shared memory or a window. Slots marked collective are
 * called by every rank of the data axis in the same order.
 *
 * The batches of a run are numbered from 0. With a synchronous method (next_batch NULL) all ranks work on each batch,
 * each on its shard. With an asynchronous one each rank proceeds alone from one quiesce point to the next:
 *
 *   while next_batch returns true: before_forward, forward and backward passes of this rank's shard, step
 *   quiesce                        no update is in flight; every batch before `end` is part of the evaluated weights
 *
 * Synchronous methods with local steps (mpi/sync/replicas.h): the ranks of a replica, `replica`, are in step, and have
 * the mean gradient over their own shards of each batch. The replicas exchange weights from time to time, and are
 * otherwise independent. Losses, stop requests and failures of all replicas become known when they exchange, or at a
 * quiesce point: slot step returns the sums of all batches that it has not returned before, which are none (no rows)
 * between exchanges. The trainer quiesces after the last batch before an evaluation, a checkpoint or the end of an
 * epoch, and before it stops; quiesce sets `unreported` to the sums that are left, and eval_weights to the mean over
 * the replicas.
 *
 * strategy.batch says how many rows a gradient has: with update, the default, an update of the weights takes
 * train.batch rows, as with a synchronous method. A batch may be divided into parts, a gradient each.
 *
 * The trainer quiesces before a checkpoint and at the end of an epoch, and before an evaluation unless the method makes
 * snapshots of the weights, which are evaluated at the next quiesce point.
 */
#pragma once

#include "core/comm.h"
#include "core/device.h"
#include "core/options.h"
#include "nn/model.h"
#include "nn/optimizer.h"
#include "train/staleness.h"

TRM_BEGIN_DECLS

struct trm_strategy;
struct trm_slowdown; /* slowdown.h */

/* Local state of one rank, such as a worker's weights or its shard of the server weights. Host memory, owned by the
 * strategy. Saved in checkpoints in addition to the whole arrays, for runs with the same number of ranks. */
#define TRM_MAX_LOCAL_STATES 12
#define TRM_LOCAL_STATE_NAME 80
#define TRM_MAX_SNAPSHOTS 16
/* Ends the message of every run that fails because a loss is not finite. */
#define TRM_LOSS_NOT_FINITE "(a lower optim.lr, optim.clip or optim.warmup may help)"
struct trm_local_state {
  char name[TRM_LOCAL_STATE_NAME]; /* "METHOD: ITEM", unique in the rank; other methods do not read it */
  void *data;
  size_t bytes;
};

struct trm_row_trainer; /* row_trainer.h */
struct trm_array_costs; /* costs.h */

/* Part `part` of `parts` of a batch (trm_interval): the rows of one gradient of an asynchronous method. */
struct trm_batch_part {
  uint64_t batch; /* number of the batch */
  uint32_t part, parts;
};

/* Options that a method supports, an asynchronous one unless said otherwise. The others are refused
 * (compatibility.c). */
enum trm_strategy_takes {
  TRM_TAKES_TAU = 1,        /* strategy.tau above 1: several batches between two exchanges */
  TRM_TAKES_SERVERS = 2,    /* strategy.servers: ranks that are parameter servers alone */
  TRM_TAKES_GROUPS = 4,     /* strategy.groups: workers of several ranks, or groups of workers */
  TRM_TAKES_STALE_RATE = 8, /* strategy.rate other than constant */
  TRM_TAKES_CLIP = 16,      /* optim.clip */
  TRM_TAKES_AVERAGE = 32,   /* optim.ema */
  TRM_TAKES_STATES = 64,    /* update rules with states */
  TRM_TAKES_RULES = 128,    /* update rules other than sgd and nesterov */
  TRM_TAKES_RECOMPUTE = 256, /* parallel.recompute: the weights do not change between forward and backward pass */
  TRM_TAKES_OWN_BATCHES = 512, /* strategy.batch=worker: each gradient is of rows of its own, in any order */
  TRM_TAKES_RECORD = 1024,   /* run.record, simulate.replay: all that ranks share is on the parameter server */
  TRM_TAKES_ALL = 2047,      /* of these */
  TRM_TAKES_AGGREGATE = 2048, /* strategy.aggregate=node: a node's workers send their gradients together */
  TRM_TAKES_GRAPH = 16384,    /* strategy.graph other than complete */
  TRM_TAKES_DYLU = 32768,     /* strategy.dylu */
  TRM_TAKES_WORKER_GROUPS = 65536, /* strategy.groups are of workers; otherwise the ranks of a group are one worker */
  TRM_TAKES_STOPS = 131072,  /* strategy.stops: gradients that will be dropped are abandoned */
  TRM_TAKES_FRAME = 262144,  /* strategy.frame: gradients that take longer are abandoned */
  /* of synchronous methods with local steps */
  TRM_TAKES_FRAGMENTS = 4096, /* strategy.fragments above 1 */
  TRM_TAKES_TENSOR_AXIS = 8192 /* parallel.tensor: the rule is element by element */
};

/* Messages between nodes of a synchronous method, of this rank, so far: seconds in which at least one sum was in
 * flight, as far as the rank has seen, and seconds in which the rank itself was busy with them or stood still for them
 * (exposed; the difference was hidden behind its computations); bytes that it added to the sums of others, or, of
 * compressed sums, sent; steps. */
struct trm_wire {
  double flight_s, exposed_s;
  uint64_t bytes, steps;
};

/* An exchange between nodes or replicas, of a synchronous method that does not shard its arrays, for the planner: what
 * this rank sends in a period, which is a step or, with local steps, a round. A method whose rounds grow longer has the
 * longest. */
struct trm_exchange {
  int ranks;      /* that exchange the same elements, one of each node or replica; 1: nothing is sent */
  double bytes;   /* by which wire.bytes grows: the mean over these ranks */
  int rounds;     /* of messages to each of the others; 0: an all-reduce of `bytes` */
  double floats;  /* read and written in memory, besides those of the sums */
  int64_t period; /* steps */
  int parts;      /* that the elements are sent in, in turn */
};

/* Elements [low, high) of a flat array. */
struct trm_own_elements {
  size_t low, high;
  const float *values; /* (high - low) in the device's memory; NULL: zeros */
};

/* The slots of a training method. */
struct trm_strategy_ops {
  const char *name; /* strategy.name */
  const char *help; /* one line */
  unsigned takes;   /* asynchronous, or with local steps: the options that the method honors, of enum
                       trm_strategy_takes */
  bool sharded;     /* no rank has whole arrays: w and g are NULL, and passes use the parameter provider */
  bool on_device;   /* with one rank, its arrays may be on a device whose memory is not the host's */
  bool lockstep;    /* all ranks (of a replica) compute shards of one batch at the same time, so passes may all-reduce
                       among them */
  bool local_steps; /* synchronous: replicas make steps of their own between two exchanges; sets `replica` */
  /* Asynchronous methods: sets *part to the rows of this rank's next gradient, of a batch below `end`; false: none is
   * left for it, or the run should stop (strategy->halt). The same on all ranks of a worker. Parameter servers serve
   * requests in this call. NULL: synchronous. */
  bool (*next_batch)(struct trm_strategy *strategy, uint64_t end, struct trm_batch_part *part);

  /* Collective. Returns the row to run instead of this one, by the fields set before create. NULL: this row. */
  const struct trm_strategy_ops *(*select)(const struct trm_strategy *strategy);
  /* Collective. Allocates the arrays (strategy->elements); sets the fields under "set by create". After a failure,
   * which is that of every rank, slot destroy releases what there is, unless impl is NULL. */
  int (*create)(struct trm_strategy *strategy);
  /* Called before the forward pass of a step. NULL: nothing to do. */
  int (*before_forward)(struct trm_strategy *strategy);
  /* Called when the gradients below element `high` are final on this rank for this step, while its backward pass still
   * reads weights there: grad_ready follows. Ascending; sums: of this rank, final. Optional, at the ends of parts of
   * about strategy->part elements. NULL: strategy->part is 0. */
  void (*part_ready)(struct trm_strategy *strategy, size_t high, const struct trm_loss_sums *sums);
  /* Called when the gradients of the flat interval [low, high) are final on this rank for this step (after the last
   * micro-batch or lane), and it reads their weights no more before the step's end. Intervals come in ascending order
   * and cover the array. sums: of this rank, final. NULL: the strategy does everything in step. */
  int (*grad_ready)(struct trm_strategy *strategy, size_t low, size_t high, const struct trm_loss_sums *sums);
  /* Combines the gradients and updates the weights. sums: in, of this rank. If the loss is not finite nothing is
   * updated and TRM_FAILED is returned. Synchronous methods: collective; on return w is the next version, sums are
   * those of the global batch, and a failure is every rank's (with local steps: at exchanges, as said above). */
  int (*step)(struct trm_strategy *strategy, double rate, struct trm_loss_sums *sums);
  /* Collective. Completes all updates in flight, so that eval_weights and `updates` are those of the run, equal on all
   * ranks. With local steps nothing else changes: no round ends. NULL: they always are. */
  int (*quiesce)(struct trm_strategy *strategy);
  /* Asynchronous methods: snapshots of the weights of evaluations, without quiescing. NULL: evaluations quiesce.
   * snapshot: collective, at a quiesce point: between it and the next one copies are made of the weights when the
   * batches before at[i] (count, ascending; count at most strategy->snapshots) are part of them, or nearly so.
   * snapshot_weights: collective, at the next quiesce point: eval_weights become those of snapshot `number`, or for -1
   * again those of the run, which must come last. Of snapshots beyond `updates` nothing is defined. */
  void (*snapshot)(struct trm_strategy *strategy, const uint64_t *at, int count);
  int (*snapshot_weights)(struct trm_strategy *strategy, int number);

  /* -- state for checkpoints. Host views of the whole flat arrays: `state` 0 is the weights, 1.. optimizer states.
   * collect: collective, makes the views current; valid on rank 0 of the data axis (at least) until the next step.
   * restore: collective; every rank passes the same whole arrays (host, `elements` floats each), or NULL to keep. */
  int (*collect)(struct trm_strategy *strategy, const float *view[TRM_MAX_STATES]);
  int (*restore)(struct trm_strategy *strategy, const float *const from[TRM_MAX_STATES], uint64_t updates);
  /* -- the same by intervals, so that no rank needs whole arrays: elements [low, low + n) of a `state`. NULL: collect
   * and restore serve; otherwise these two replace collect and restore's arrays.
   * read: collective; copies the interval to host memory `to` (n) on data rank 0; `to` is unused on the other ranks.
   * write: called by every rank with the same values (n), host; each rank copies its own elements. The last write is
   * followed by restore with NULL arrays, which sets `updates`, before the next pass.
   * With a parameter provider `state` -1 is the gradient: the sum over ranks, after the last pass and before step. */
  int (*read)(struct trm_strategy *strategy, int state, size_t low, size_t n, float *to);
  int (*write)(struct trm_strategy *strategy, int state, size_t low, size_t n, const float *from);

  /* For copies of the state that every rank makes for itself, at the same time (state_copy.h): sets *next to elements
   * of a `state` from `from` on that are this rank's to copy; false: none are left. Over the data axis each element is
   * one rank's. The values stay as they are until the rank calls grad_ready or step for the first time. Not collective;
   * another thread may call it during a pass. NULL: collect or read serve. Only of lockstep methods. */
  bool (*own)(const struct trm_strategy *strategy, int state, size_t from, struct trm_own_elements *next);

  void (*destroy)(struct trm_strategy *strategy); /* collective */
};

/* A training method at work on one rank. */
struct trm_strategy {
  const struct trm_strategy_ops *ops;
  /* set by the caller before create; not owned */
  struct trm_comm *comm;       /* the data axis */
  struct trm_device *device;   /* of the arrays; its memory is the host's, unless ops->on_device */
  const struct trm_array_costs *costs; /* of modeled time (train/costs.h); NULL: arithmetic takes none */
  const struct trm_optimizer *optimizer;
  const struct trm_strategy_options *options;  /* section `strategy` */
  const struct trm_parallel_options *parallel; /* sharing, sharding, buckets, offloading */
  uint64_t seed;               /* run.seed */
  int64_t lanes;               /* run.lanes: sums over the ranks are added in one fixed tree; 0: off */
  const char *record, *replay; /* run.record, simulate.replay; NULL or "": none */
  enum trm_conflicts conflicts; /* simulate.conflicts */
  double momentum;             /* optim.momentum as set; the optimizer replaces 0 by its rule's default */
  double node_clip;            /* optim.clip where each node clips its own gradient, in place of the optimizer, which
                                  would clip their sum (strategy.compress=dgc); 0: none does */
  uint64_t warmup;             /* optim.warmup in updates */
  size_t elements;             /* of the flat arrays */
  const size_t *boundary;      /* ascending ends of the layers' intervals, (boundaries): where buckets may be cut */
  int boundaries;
  struct trm_comm *norm_comm;  /* the ranks that hold the parts of one copy of the model, over which norms are summed;
                                  NULL: this rank has the whole model */
  struct trm_comm *ratio_comm; /* those among them that shard the same tensors; NULL: tensors are whole */
  enum trm_value_type values;  /* of passes over w: bfloat16 lets create make `rounded` */
  int snapshots;               /* that are kept at a time, at most TRM_MAX_SNAPSHOTS; slot create may lower it */
  /* set by create */
  const struct trm_row_trainer *row_trainer; /* trains linear models on sparse rows; NULL: not supported */
  /* Sharded parameters (nn/layer.h): w and g are NULL, and every pass uses the provider. NULL: passes use w and g. */
  const struct trm_param_provider *provider;
  float *w, *g;                /* device: weights to read, gradients to write, (elements) */
  trm_bf16 *rounded;           /* device, (elements): the trained weights of w rounded, current between slots; NULL: w
                                  alone */
  /* Device: the step's numbers, which the caller writes by trm_strategy_begin_step before slot step, and before the
   * passes if these are to add their losses there (trm_pass.step); slot step does not read its rate and the sums of
   * losses that it is given. NULL: rates and sums are the host's. */
  struct trm_step *now;
  float *eval_weights;         /* device, (elements): weights of evaluations: an average, the server weights; NULL: w */
  size_t part;                 /* elements of the parts that slot part_ready is called for; 0: it need not be called */
  int batch_shard, batch_shards; /* the shard of each batch, or part, that this rank computes (trm_interval) */
  /* Local steps: the ranks that update one copy of the weights; NULL: all. The gradient is to be scaled by the rows of
   * their shards, replica_shard and those after it, and layers that sum over a batch sum over these ranks. */
  struct trm_comm *replica;
  int replica_shard;
  struct trm_exchange exchange; /* period 0: not described */
  struct trm_loss_sums unreported; /* local steps: set by quiesce, the sums that slot step has not returned */
  int parts;                   /* that next_batch divides a batch into */
  struct trm_local_state local_state[TRM_MAX_LOCAL_STATES]; /* saved after quiesce, filled before restore */
  int local_states;
  struct trm_staleness *staleness; /* of this rank's updates; NULL: the method has no staleness */
  uint64_t updates;            /* batches that are part of the weights, as of the latest quiesce point */
  /* (undones) After a stop of an asynchronous run: parts that are not done of batches before others that are. Set by
   * quiesce on rank 0, then owned; set by the caller before restore on every rank, not owned. `updates` counts the
   * batches that are done, rounded down. */
  struct trm_batch_part *undone;
  size_t undones;
  /* Asynchronous methods: returns true if the gradient that this rank computes is of no use: its computation ends, and
   * slot step is not called. Called between layers, and while time passes as done of comm's wait_at_most: it reads
   * memory, and tests requests, alone. NULL: all gradients are of use. */
  bool (*abandons)(const struct trm_strategy *strategy);
  double abandon_at;           /* set by before_forward: time by comm's clock when the gradient is abandoned if its
                                  computation has not ended; 0: it is not. Only with slot abandons */
  bool straggler;              /* set by quiesce: a computation of this rank was ended, or it has abandoned all: it
                                  evaluates no rows. Never on all ranks */
  double consensus;            /* peers, set by quiesce: root mean square over the workers of the distance of a worker's
                                  weights from the mean (Kong et al. 2021, eq. 3); 0: other methods */
  double stored, conflicting;  /* hogwild, rows on shared weights in virtual time; set by quiesce: weights that the
                                  updates of all ranks have stored in this process, and those of them that another
                                  update had changed since this one read them; 0: other methods */
  double wait_s, comm_s;       /* seconds waiting for other ranks, and in communication, so far */
  double early_s;              /* seconds of sums and updates made before slot step, so far */
  struct trm_wire wire;
  /* set by the caller */
  double rate; /* of the step in progress, set before its passes so that updates can begin with them; slot step has the
                  same, and clears it. 0: not known before slot step */
  bool local_state_restored;   /* set before restore: local_state has the values of the checkpoint */
  /* Asynchronous methods: outages and failure of this rank; NULL: none (a test's strategy). Not owned. */
  struct trm_slowdown *slowdown;
  bool abandoned;              /* there is no gradient of the part that next_batch returned last: the rank has failed, or
                                  abandons was true; next_batch clears it, and the part is done after the next quiesce
                                  point, unless the method drops it */
  bool decayed;                /* local steps: the rate of the step is below that of an earlier one, set before step */
  bool halt;                   /* this rank requests a stop: next_batch returns false on every rank */
  void *impl;
};

/* Collective over comm. Returns the wire times of a rank so far as means over the ranks, a step. */
struct trm_wire_means {
  double bytes, wire_s, hidden_s, exposed_s; /* wire_s: hidden and exposed; bytes 0: no messages between nodes */
};
struct trm_wire_means trm_wire_means(const struct trm_wire *wire, struct trm_comm *comm);
/* Sets the fields that come from options. Options must outlive the strategy. */
void trm_strategy_set_options(struct trm_strategy *strategy, const struct trm_options *options);
/* Returns the snapshots that evaluations of a run with so many training rows need at a time, at most
 * TRM_MAX_SNAPSHOTS. */
int trm_strategy_snapshots(const struct trm_options *options, size_t rows);
/* Collective. Returns the row that runs: that of slot select. */
const struct trm_strategy_ops *trm_strategy_select(const struct trm_strategy *strategy);
/* Collective. Selects the row that runs as strategy->ops and calls its slot create. After a failure there is nothing to
 * destroy, and ops is NULL. */
int trm_strategy_create(struct trm_strategy *strategy);
/* Writes strategy->now, unless it is NULL: for the next update, with this rate; first_row: of the batch in the run. The
 * losses of the step begin as *sums. */
void trm_strategy_begin_step(const struct trm_strategy *strategy, double rate, uint64_t first_row,
                             const struct trm_loss_sums *sums);
/* Passes the modeled time of a loop of the method's own over memory: so many floats, read and written together. The
 * device passes that of its operations. */
void trm_strategy_pass_time(const struct trm_strategy *strategy, size_t floats);
/* Adds an item to this rank's local state, as "METHOD: name". data must outlive the strategy. TRM_FAILED: there are
 * TRM_MAX_LOCAL_STATES already, or the name is too long. Not collective. */
int trm_strategy_keep(struct trm_strategy *strategy, const char *name, void *data, size_t bytes);

TRM_END_DECLS
