/* Shared by the files of the parameter server: param_server_chunk.c (chunks and calls inside a node),
 * param_server_remote.c (calls between nodes), param_server.c (above both). */
#pragma once

#include <stdatomic.h>

#include "mpi/async/param_server.h"

/* State of one chunk, in the owner's memory. */
struct chunk_state {
  _Atomic int lock; /* 1: a call is running */
  int64_t clock;
  double method_state[SERVER_METHOD_STATES];
  char pad[48]; /* to whole cache lines */
};

struct remote;

struct param_server {
  struct server_plan plan;
  size_t chunks;            /* of a replica */
  int owners, first_owner;  /* ranks [first_owner, first_owner + owners) own chunks */
  int *node_rank;           /* (ranks) rank in this node, -1: in another node */
  struct trm_shared shared; /* the state of this node's owners */
  struct remote *remote;    /* NULL: all calls are direct */
};

/* -- param_server_chunk.c. owner: a rank */
bool server_is_centralized(const struct param_server *server); /* one replica, its chunks spread over the owners */
bool server_is_owner(const struct param_server *server, int rank);
int param_server_owner(const struct param_server *server, int replica, size_t chunk);
/* Returns true if this rank runs calls on the owner's chunks itself, in shared memory. */
bool param_server_is_direct(const struct param_server *server, int owner);
/* The elements [low, high) of each array that a rank owns. */
void server_owner_elements(const struct param_server *server, int owner, size_t *low, size_t *high);
size_t server_owner_bytes(const struct param_server *server, int owner); /* of all its state */
size_t server_state_bytes(const struct param_server *server, int owner); /* of its struct chunk_state array */
size_t server_stride(const struct param_server *server, int owner);      /* elements, array to array */
float *server_arrays(const struct param_server *server, int owner);      /* array 0; the owner is in this node */
/* Runs the method's function on a chunk whose owner is in this node. Sets call->staleness from `seen`, the clock that
 * the caller has last seen; returns the clock after the call. */
int64_t param_server_run(struct param_server *server, int replica, size_t chunk, int64_t seen,
                         struct server_call *call);

/* -- param_server_remote.c. create, free: collective over plan.comm */
int remote_create(struct param_server *server);
void remote_free(struct param_server *server);
/* Sends the call on one chunk; waits while all slots at its owner are taken. Raises *staleness to that of any reply. */
void remote_post(struct param_server *server, int owner, size_t chunk, const struct server_request *request,
                 int64_t *staleness);
/* Waits for the replies to all posted calls. */
void remote_await(struct param_server *server, const struct server_request *request, int64_t *staleness);
bool remote_poll(struct param_server *server); /* param_server_poll */
