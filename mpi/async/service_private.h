/* What the two files of the parameter service have in common: service.c has the state and the calls inside of a node,
 * service_remote.c those between nodes. */
#ifndef TRM_MPI_ASYNC_SERVICE_PRIVATE_H
#define TRM_MPI_ASYNC_SERVICE_PRIVATE_H

#include <stdatomic.h>

#include "mpi/async/service.h"

/* Of one piece, in the home's memory. */
struct control {
  _Atomic int lock; /* 1: somebody is at it */
  int64_t clock;
  double note[SERVICE_NOTES];
  char pad[48]; /* to whole cache lines */
};

struct remote;

struct service {
  struct service_plan plan;
  size_t pieces;             /* of an object */
  int homes, first_home;     /* ranks [first_home, first_home + homes) are homes */
  int *node_rank;            /* (ranks) of each rank in this rank's node, -1: in another one */
  struct trm_shared shared;  /* the state of the homes of this node */
  struct remote *remote;     /* NULL: all calls are direct */
};

int service_home(const struct service *service, int object, size_t piece); /* its rank */
bool service_is_direct(const struct service *service, int home);
/* Runs the function on a piece whose home is in this node. call->late is set here, from the clock that the caller has
 * seen; returns the clock after it. */
int64_t service_run(struct service *service, int object, size_t piece, int64_t seen, struct service_call *call);

/* -- service_remote.c. create, free: collective */
int remote_create(struct service *service);
void remote_free(struct service *service);
/* Sends the call for one piece; waits while all slots to its home are taken. */
void remote_post(struct service *service, int home, size_t piece, const struct service_request *request, int64_t *late);
/* Until everything posted is answered. */
void remote_await(struct service *service, const struct service_request *request, int64_t *late);
bool remote_work(struct service *service);

#endif
