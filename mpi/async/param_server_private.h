/* Shared by the files of the parameter server: param_server_chunk.c has the chunks and runs the calls on them,
 * param_server.c makes the calls. */
#pragma once

#include "core/counter.h"
#include "mpi/async/param_server.h"

/* State of one chunk, in the owner's memory, in whole cache lines. */
struct chunk_state {
  struct trm_lock lock; /* taken while a call runs */
  struct trm_counter clock;
  struct trm_counter changes; /* calls that have been answered */
  double method_state[];      /* (plan.method_states) */
};

/* A call on one chunk, as it travels to the owner and back. */
struct server_head {
  int32_t replica; /* -1: no call on a chunk, but the caller has finished */
  uint32_t chunk;
  int64_t clock;           /* that the caller has last seen; after the call */
  double held_since;       /* time when the answer was first held back, -1: it was not */
  double held_s;           /* seconds that it was held back; after the call */
  struct server_call call; /* in, out: in the process that runs the call */
};
_Static_assert(sizeof(struct server_head) <= TRM_CALL_HEAD_BYTES, "a head fits");

/* A rank's shard of a replica; an owner's may be empty. */
struct server_shard {
  size_t first, last; /* chunks [first, last) */
  size_t low, high;   /* elements [low, high) of each array */
  size_t stride;      /* elements, array to array */
  size_t state_bytes; /* of all its chunk states; the arrays come after these */
  /* NULL: in another node */
  void *state;               /* (last - first) server_state_at */
  int64_t *number;           /* (last - first) calls that have been answered; NULL also: not counted */
  float *arrays;             /* (arrays, stride) */
};

/* A call at another rank, in progress. */
struct remote_call {
  struct server_head head;
  struct trm_request *request;
};

struct param_server {
  struct server_plan plan;
  size_t chunks;              /* of a replica */
  int owners, first_owner;    /* ranks [first_owner, first_owner + owners) own chunks */
  int *node_rank;             /* (ranks of the node) their ranks of plan.comm, ascending */
  struct trm_shared shared;   /* the shards of this node's owners */
  struct trm_shared numbers;  /* (chunks) int64_t, of each owner: calls answered; base NULL: no plan.order */
  double held_s;              /* of the latest exchange, or call that has ended */
  struct trm_calls *calls;    /* NULL: all calls are direct */
  struct remote_call *remote; /* (remotes) those of an exchange */
  size_t remotes;
  struct remote_call *begun;  /* (slots, chunks) those of param_server_begin */
  int finished; /* at a dedicated server: callers that have finished */
};

/* -- param_server_chunk.c. owner: a rank */
bool server_is_centralized(const struct param_server *server); /* one replica, its chunks spread over the owners */
int param_server_owner(const struct param_server *server, int replica, size_t chunk);
/* The owners that have chunks of a replica: how many, and the one of this number. */
int server_active_owners(const struct param_server *server);
int server_active_owner(const struct param_server *server, int replica, int number);
/* The number of an owner, or of another rank, among the ranks of this node; -1: it is in another. */
int server_node_rank(const struct param_server *server, int rank);
struct server_shard server_shard_of(const struct param_server *server, int owner);
/* The state of a chunk of a shard of this node. */
struct chunk_state *server_state_at(const struct param_server *server, const struct server_shard *shard, size_t chunk);
/* Returns true if this rank runs calls on the owner's chunks itself, in shared memory. */
bool param_server_is_direct(const struct param_server *server, int owner);
/* Divides the replicas, and takes the memory of this node's shards. Collective over plan.comm. */
int server_shards_create(struct param_server *server);
int server_reply_arrays(const struct param_server *server);
/* The call that a request makes on one chunk. */
struct server_head server_head_of(const struct param_server *server, const struct server_request *request,
                                  size_t chunk);
/* Runs the method's function on a chunk whose owner is in this node; sets what comes after the call. Returns false to
 * hold the answer back. */
bool param_server_try(struct param_server *server, struct server_head *head);
/* The same until it is answered. */
void param_server_run(struct param_server *server, struct server_head *head);
/* Copies the results of a call, except call.out, to the request. Raises *staleness to that of the call. */
void server_call_done(const struct server_request *request, const struct server_head *head, int64_t *staleness);
