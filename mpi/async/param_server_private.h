/* Shared by the files of the parameter server: param_server_chunk.c (chunks and calls inside a node),
 * param_server_remote.c (calls between nodes), param_server.c (above both). */
#pragma once

#include "core/counter.h"
#include "mpi/async/param_server.h"

/* State of one chunk, in the owner's memory. */
struct chunk_state {
  struct trm_lock lock; /* taken while a call runs */
  int64_t clock;
  double method_state[SERVER_METHOD_STATES];
  char pad[48]; /* to whole cache lines */
};

/* A rank's shard of a replica; an owner's may be empty. */
struct server_shard {
  size_t first, last; /* chunks [first, last) */
  size_t low, high;   /* elements [low, high) of each array */
  size_t stride;      /* elements, array to array */
  size_t state_bytes; /* of all its struct chunk_state; the arrays come after these */
  /* NULL: in another node */
  struct chunk_state *state; /* (last - first) */
  float *arrays;             /* (arrays, stride) */
};

struct remote;

struct param_server {
  struct server_plan plan;
  size_t chunks;            /* of a replica */
  int owners, first_owner;  /* ranks [first_owner, first_owner + owners) own chunks */
  struct server_shard *shard;  /* (ranks) */
  struct trm_shared shared; /* the shards of this node's owners */
  struct remote *remote;    /* NULL: all calls are direct */
};

/* -- param_server_chunk.c. owner: a rank */
bool server_is_centralized(const struct param_server *server); /* one replica, its chunks spread over the owners */
bool server_is_owner(const struct param_server *server, int rank);
int param_server_owner(const struct param_server *server, int replica, size_t chunk);
/* Returns true if this rank runs calls on the owner's chunks itself, in shared memory. */
bool param_server_is_direct(const struct param_server *server, int owner);
/* Divides the replicas, and takes the memory of this node's shards. Collective over plan.comm. */
int server_shards_create(struct param_server *server);
/* The call that a request makes on one chunk. */
struct server_call server_call_of(const struct param_server *server, const struct server_request *request,
                                  size_t chunk);
/* Runs the method's function on a chunk whose owner is in this node. Sets call->staleness from `seen`, the clock that
 * the caller has last seen; returns the clock after the call. */
int64_t param_server_run(struct param_server *server, int replica, size_t chunk, int64_t seen,
                         struct server_call *call);
/* Copies the results of a call, except call->out, to the request. Raises *staleness to that of the call. */
void server_call_done(const struct server_request *request, size_t chunk, int64_t clock, const struct server_call *call,
                      int64_t *staleness);

/* -- param_server_remote.c. create, free: collective over plan.comm */
int remote_create(struct param_server *server);
void remote_free(struct param_server *server);
/* Sends the call on one chunk; waits while all slots at its owner are taken. Raises *staleness to that of any reply. */
void remote_post(struct param_server *server, int owner, size_t chunk, const struct server_request *request,
                 int64_t *staleness);
/* Waits for the replies to all posted calls. */
void remote_await(struct param_server *server, const struct server_request *request, int64_t *staleness);
