/* The parameter server: state that all workers change, one at a time.
 *
 * It holds replicas, each of some flat arrays: one replica, the server weights of a centralized method, its chunks
 * spread over the ranks; or one replica per rank, owned by that rank. A replica is cut into chunks. A worker reaches a
 * chunk by a call: the method's handler runs with exclusive access to the chunk, reads what the caller sent, changes
 * the chunk, and may return values. So a gradient becomes an update and the new weights return:
 *
 *      worker                        chunk at its owner
 *      in   (n)  gradient    ---->   weights, states of the optimizer, clock
 *      out  (n)  weights     <----
 *
 * A caller that shares memory with the chunk's owner runs the handler itself, under the chunk's lock, so it never waits
 * for a rank that computes. Otherwise it is a call of the communicator (slot call_begin of core/comm.h), which the
 * owner answers at any time; dedicated servers (strategy.servers) do nothing else.
 *
 * The state is in host memory, and so are the arrays of the callers. */
#pragma once

#include "mpi/async/call_order.h"

#define SERVER_CHUNK ((size_t)1 << 16) /* elements; the last chunk of an array has fewer */
#define SERVER_VALUES 4

/* Elements of one chunk of an array. */
static inline size_t server_chunk_size(size_t elements, size_t chunk)
{
  const size_t left = elements - chunk * SERVER_CHUNK;
  return left < SERVER_CHUNK ? left : SERVER_CHUNK;
}

/* Chunks of a replica. */
static inline size_t server_chunks(size_t elements)
{
  return (elements + SERVER_CHUNK - 1) / SERVER_CHUNK;
}

/* A chunk in the owner's memory, for the handler. */
struct server_chunk {
  int replica;
  size_t low, n;        /* elements [low, low + n) of the replica's arrays */
  float *base;          /* array 0, (n) */
  size_t stride;        /* elements from one array to the next */
  int64_t *clock;       /* updates so far; counted by the method */
  double *method_state; /* (method_states), the method's */
};
static inline float *server_array(const struct server_chunk *chunk, int array)
{
  return chunk->base + (size_t)array * chunk->stride; /* (n) */
}

struct server_call {
  int kind;                    /* the method's own number */
  int caller;                  /* rank of the caller */
  int64_t staleness;           /* the chunk's clock minus the last clock that the caller has seen */
  double value[SERVER_VALUES]; /* in: the method's */
  double time;                 /* plan.timed: when the handler runs, by the clock of its node, in s */
  double per_chunk;            /* in and out: the method's, for this chunk */
  const float *in;             /* (n), NULL: nothing is sent */
  float *out;                  /* (n), NULL: nothing is returned */
};

/* Returns false to hold the reply back, having changed nothing: it is then called again after the chunk has changed. */
typedef bool server_handler(void *context, const struct server_chunk *chunk, struct server_call *call);

struct server_plan {
  struct trm_comm *comm, *node; /* all ranks; those that share memory with this one. Not owned */
  size_t elements;              /* of each array */
  int replicas;                 /* 1, or the ranks of comm */
  int arrays;                   /* of a replica */
  int method_states;            /* of a chunk */
  int reply_arrays;             /* that a call returns, one after the other; 0: 1 */
  int slots;                    /* of param_server_begin */
  int servers;                  /* the last `servers` ranks are the owners, and only serve; 0: every rank is an owner */
  bool timed;                   /* handlers use call.time */
  server_handler *handler;      /* may run in a thread of the server; one call at a time per chunk. NULL: no calls */
  void *context;
  struct call_order *order;     /* of the calls; not owned. NULL: neither recorded nor followed */
};

struct param_server;

/* Collective over comm. All arrays, clocks and method states are 0. */
int param_server_create(struct param_server **server, const struct server_plan *plan);
void param_server_free(struct param_server *server); /* collective */

size_t param_server_chunks(const struct param_server *server); /* of a replica */
/* Returns true if this rank runs calls on the chunk itself, in shared memory. */
bool param_server_runs_calls(const struct param_server *server, int replica, size_t chunk);
/* Returns the clock of such a chunk, while other ranks may change it; those that wait are notified. */
int64_t param_server_clock(const struct param_server *server, int replica, size_t chunk);

/* One call on each of the chunks [first, last) of a replica. */
struct server_request {
  int replica, kind;
  size_t first, last;          /* last 0: all chunks */
  bool direct;                 /* of these, only chunks on which this rank runs calls itself */
  double value[SERVER_VALUES];
  double *per_chunk;           /* (chunks), NULL: 0 */
  const float *in;             /* (elements) whole array, NULL: none */
  float *out;                  /* (elements) whole array, NULL: none; several reply_arrays: (chunks; reply_arrays, n) */
  int64_t *seen;               /* (chunks) clocks last seen, updated where out is given; NULL: 0 */
};
/* Makes the calls, in any order, and waits for all replies. Returns the maximum staleness of the chunks. */
int64_t param_server_exchange(struct param_server *server, const struct server_request *request);

/* Seconds that replies of the latest exchange, or of the latest call ended by param_server_end, were held back. */
double param_server_held_s(const struct param_server *server);

/* -- calls that go on while their caller does: at most `slots` on each chunk
 * begin: makes the calls on chunks of other nodes' ranks. request->in and out stay until they have ended, as must those
 * before in the slot. Calls in progress together on a chunk must differ in kind, to be told apart in a record.
 * end: returns false if the slot's call on the chunk is in progress, unless it is to wait for it. *clock: of the chunk
 * when it was answered. Those of other chunks, and those never begun, have ended. */
void param_server_begin(struct param_server *server, const struct server_request *request, size_t slot);
bool param_server_end(struct param_server *server, size_t slot, size_t chunk, bool waits, int64_t *clock);

/* On a dedicated server: answers calls until param_server_finish has been called `callers` times since the last time
 * that this was so, and returns true; or until interrupted(context) (NULL: never), and returns false. */
bool param_server_serve(struct param_server *server, int callers, bool (*interrupted)(void *context), void *context);
/* At a caller: tells the dedicated servers, if there are any, that it makes no calls before the next quiesce point. */
void param_server_finish(struct param_server *server);

/* Calls on the chunks of this rank that have been answered, where their order is recorded or followed. At a quiesce
 * point. */
int64_t param_server_calls(const struct param_server *server);

/* -- between quiesce and the next call. Collective over comm, except where they say that they are not. */
/* Gathers a whole array of a replica into to (elements) on every rank. */
void param_server_gather(struct param_server *server, int replica, int array, float *to);
/* Copies elements [low, low + n) of an array of a replica into to (n) on rank 0; `to` is unused on the others. */
void param_server_read(struct param_server *server, int replica, int array, size_t low, size_t n, float *to);
/* Sets those of elements [low, low + n) that this rank owns, from values (n). Not collective. */
void param_server_write(struct param_server *server, int array, size_t low, size_t n, const float *from);
void param_server_set_clocks(struct param_server *server, int64_t clock);
/* Calls visit for each chunk that this rank owns. Not collective. */
void param_server_visit(struct param_server *server, void (*visit)(void *context, const struct server_chunk *chunk),
                        void *context);
/* This rank's shard of the state, for checkpoints (not collective): clocks and method states; and the arrays from
 * `first_array` on. */
void *param_server_local_states(struct param_server *server, size_t *bytes);
void *param_server_local_arrays(struct param_server *server, int first_array, size_t *bytes);
