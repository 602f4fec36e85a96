/* What the two files of the parameter server have in common: param_server.c has the state and the calls inside of a node,
 * param_server_remote.c those between nodes. */
#ifndef TRM_MPI_ASYNC_PARAM_SERVER_PRIVATE_H
#define TRM_MPI_ASYNC_PARAM_SERVER_PRIVATE_H

#include <stdatomic.h>

#include "mpi/async/param_server.h"

/* Of one piece, in the home's memory. */
struct chunk_state {
  _Atomic int lock; /* 1: somebody is at it */
  int64_t clock;
  double method_state[SERVER_METHOD_STATES];
  char pad[48]; /* to whole cache lines */
};

struct remote;

struct param_server {
  struct server_plan plan;
  size_t chunks;             /* of an object */
  int owners, first_owner;     /* ranks [first_home, first_home + homes) are homes */
  int *node_rank;            /* (ranks) of each rank in this rank's node, -1: in another one */
  struct trm_shared shared;  /* the state of the homes of this node */
  struct remote *remote;     /* NULL: all calls are direct */
};

/* -- param_server_chunk.c. owner: a rank */
bool server_is_centralized(const struct param_server *server); /* one replica, its chunks spread over the owners */
bool server_is_owner(const struct param_server *server, int rank);
int param_server_owner(const struct param_server *server, int replica, size_t chunk);
/* True if this rank runs calls on the owner's chunks itself, in shared memory. */
bool param_server_is_direct(const struct param_server *server, int owner);
/* The elements [low, high) of each array that a rank owns. */
void server_owner_elements(const struct param_server *server, int owner, size_t *low, size_t *high);
size_t server_owner_bytes(const struct param_server *server, int owner); /* of all its state */
size_t server_state_bytes(const struct param_server *server, int owner); /* of its struct chunk_state array */
size_t server_stride(const struct param_server *server, int owner);      /* elements from one of its arrays to the next */
float *server_arrays(const struct param_server *server, int owner);      /* array 0; the owner is in this node */
/* Runs the method's function on a chunk whose owner is in this node. Sets call->staleness from `seen`, the clock that
 * the caller has last seen; returns the clock after the call. */
int64_t param_server_run(struct param_server *server, int replica, size_t chunk, int64_t seen,
                         struct server_call *call);

/* -- param_server_remote.c. create, free: collective */
int remote_create(struct param_server *server);
void remote_free(struct param_server *server);
/* Sends the call for one piece; waits while all slots to its home are taken. */
void remote_post(struct param_server *server, int owner, size_t chunk, const struct server_request *request,
                 int64_t *staleness);
/* Until everything posted is answered. */
void remote_await(struct param_server *server, const struct server_request *request, int64_t *staleness);
bool remote_poll(struct param_server *server);

#endif
