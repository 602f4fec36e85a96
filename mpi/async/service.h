/* The parameter service: state that belongs to nobody's model and that every worker changes, one at a time.
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
#ifndef TRM_MPI_ASYNC_SERVICE_H
#define TRM_MPI_ASYNC_SERVICE_H

#include "core/comm.h"

#define SERVICE_PIECE ((size_t)1 << 16) /* elements, the last piece of an array has fewer */
#define SERVICE_NOTES 8
#define SERVICE_VALUES 4

/* What the function sees. In the home's memory; the caller's rank may be another. */
struct service_piece {
  int object;
  size_t low, n;  /* elements [low, low + n) of the object's arrays */
  float *first;   /* array 0's */
  size_t stride;  /* from array to array */
  int64_t *clock; /* the method counts in it: updates */
  double *note;   /* (SERVICE_NOTES), the method's */
};
static inline float *service_array(const struct service_piece *piece, int array)
{
  return piece->first + (size_t)array * piece->stride; /* (n) */
}

struct service_call {
  int kind;                     /* the method's own number */
  int from;                     /* rank of the caller */
  int64_t late;                 /* by how much the clock is ahead of the one that the caller has seen */
  double value[SERVICE_VALUES]; /* the method's, in */
  double each;                  /* the method's, in and out: a number of this piece */
  const float *in;              /* (n), NULL: nothing is sent */
  float *out;                   /* (n), NULL: nothing is wanted */
};

typedef void service_function(void *context, const struct service_piece *piece, struct service_call *call);

struct service_plan {
  struct trm_comm *comm, *node; /* all ranks; those that share memory with this one. Not owned */
  size_t elements;              /* of each array */
  int objects;                  /* 1, or the ranks of comm */
  int arrays;                   /* of an object */
  int servers;                  /* the last so many ranks are the homes, and serve alone; 0: every rank is a home */
  service_function *function;   /* may run in a thread of its own; never twice at a time for one piece */
  void *context;
};

struct service;

/* Collective. All arrays, clocks and notes are 0. */
int service_create(struct service **service, const struct service_plan *plan);
void service_free(struct service *service); /* collective */

size_t service_pieces(const struct service *service); /* of an object */

/* One call for each of the pieces [first, last) of an object, in some order; returns when all are answered. */
struct service_request {
  int object, kind;
  size_t first, last;           /* last 0: all pieces */
  double value[SERVICE_VALUES];
  double *each;                 /* (pieces), NULL: 0 */
  const float *in;              /* (elements) of the whole arrays, NULL: none */
  float *out;                   /* likewise */
  int64_t *seen;                /* (pieces) clocks as last seen, brought up to date where out is given; NULL: 0 */
};
/* Returns the largest `late` of the pieces. */
int64_t service_exchange(struct service *service, const struct service_request *request);

/* What a rank that serves alone does: answers what has come. False: nothing has, or this rank is no such one. */
bool service_work(struct service *service);

/* -- while nobody calls. Collective. */
/* The whole array of an object, (elements), on every rank. */
void service_gather(struct service *service, int object, int array, float *to);
/* Sets it: every rank passes the same whole array. Clocks become `clock`. */
void service_scatter(struct service *service, int object, int array, const float *from);
void service_set_clocks(struct service *service, int64_t clock);
/* This rank's own part of the state, for checkpoints: clocks and notes; and the arrays from number `first_array` on. */
void *service_control(struct service *service, size_t *bytes);
void *service_arrays(struct service *service, int first_array, size_t *bytes);

#endif
