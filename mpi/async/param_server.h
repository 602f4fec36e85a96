/* The parameter server: state that belongs to nobody's model and that every worker changes, one at a time.
 *
 * It holds objects, each of some flat arrays: one object, the centre of a method that has one, its parts spread over
 * the ranks; or an object for each rank, at home there. They are cut into pieces. To reach a piece a worker sends it a
 * call: the method's function runs with the piece to itself, reads what the caller sent, changes the piece, and may
 * give something back. So a gradient becomes an update and the new weights return:
 *
 *      worker                        piece at its home
 *      in   (n)  gradient    ---->   weights, states of the optimizer, clock
 *      out  (n)  weights     <----
 *
 * Where the caller shares memory with the piece's home, it runs the function itself, under the piece's lock: nobody is
 * asked, and no rank waits for another one that computes. Otherwise the call goes into a slot in the home's window and
 * the answer into one in the caller's: two put each way, since what MPI puts has no order but that of a flush. MPI
 * moves nothing at a rank that computes, so a home that has callers in other nodes has a thread that looks after them;
 * dedicated servers (strategy.servers) do nothing else.
 *
 * The state is in host memory, and so are the arrays of the callers. */
#ifndef TRM_MPI_ASYNC_PARAM_SERVER_H
#define TRM_MPI_ASYNC_PARAM_SERVER_H

#include "core/comm.h"

#define SERVER_CHUNK ((size_t)1 << 16) /* elements, the last piece of an array has fewer */
#define SERVER_METHOD_STATES 8
#define SERVER_VALUES 4

/* What the function sees. In the home's memory; the caller's rank may be another. */
struct server_chunk {
  int replica;
  size_t low, n;  /* elements [low, low + n) of the object's arrays */
  float *base;   /* array 0's */
  size_t stride;  /* from array to array */
  int64_t *clock; /* the method counts in it: updates */
  double *method_state;   /* (SERVER_METHOD_STATES), the method's */
};
static inline float *server_array(const struct server_chunk *chunk, int array)
{
  return chunk->base + (size_t)array * chunk->stride; /* (n) */
}

struct server_call {
  int kind;                     /* the method's own number */
  int caller;                     /* rank of the caller */
  int64_t staleness;                 /* by how much the clock is ahead of the one that the caller has seen */
  double value[SERVER_VALUES]; /* the method's, in */
  double per_chunk;                  /* the method's, in and out: a number of this piece */
  const float *in;              /* (n), NULL: nothing is sent */
  float *out;                   /* (n), NULL: nothing is wanted */
};

typedef void server_handler(void *context, const struct server_chunk *chunk, struct server_call *call);

struct server_plan {
  struct trm_comm *comm, *node; /* all ranks; those that share memory with this one. Not owned */
  size_t elements;              /* of each array */
  int replicas;                  /* 1, or the ranks of comm */
  int arrays;                   /* of an object */
  int servers;                  /* the last so many ranks are the homes, and serve alone; 0: every rank is a home */
  server_handler *handler;   /* may run in a thread of its own; never twice at a time for one piece */
  void *context;
};

struct param_server;

/* Collective. All arrays, clocks and notes are 0. */
int param_server_create(struct param_server **server, const struct server_plan *plan);
void param_server_free(struct param_server *server); /* collective */

size_t param_server_chunks(const struct param_server *server); /* of an object */

/* One call for each of the pieces [first, last) of an object, in some order; returns when all are answered. */
struct server_request {
  int replica, kind;
  size_t first, last;           /* last 0: all pieces */
  double value[SERVER_VALUES];
  double *per_chunk;                 /* (pieces), NULL: 0 */
  const float *in;              /* (elements) of the whole arrays, NULL: none */
  float *out;                   /* likewise */
  int64_t *seen;                /* (pieces) clocks as last seen, brought up to date where out is given; NULL: 0 */
};
/* Returns the largest `late` of the pieces. */
int64_t param_server_exchange(struct param_server *server, const struct server_request *request);

/* What a rank that serves alone does: answers what has come. False: nothing has, or this rank is no such one. */
bool param_server_poll(struct param_server *server);

/* -- while nobody calls. Collective. */
/* The whole array of an object, (elements), on every rank. */
void param_server_gather(struct param_server *server, int replica, int array, float *to);
/* Sets it: every rank passes the same whole array. Clocks become `clock`. */
void param_server_scatter(struct param_server *server, int replica, int array, const float *from);
void param_server_set_clocks(struct param_server *server, int64_t clock);
/* This rank's own part of the state, for checkpoints: clocks and notes; and the arrays from number `first_array` on. */
void *param_server_local_states(struct param_server *server, size_t *bytes);
void *param_server_local_arrays(struct param_server *server, int first_array, size_t *bytes);

#endif
