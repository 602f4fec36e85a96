/* A collective in progress at one rank: a list of what it sends, receives and reduces, which any communicator's
 * messages carry out while the rank does other work (Hoefler, Lumsdaine, Rehm: Implementation and performance analysis
 * of non-blocking collective operations for MPI, SC 2007).
 *
 * The list has rounds: a round begins when the one before is complete. Strands, of several rounds each, are
 * independent of one another: a large array is cut into chunks, a strand each, so that one is reduced while another is
 * on its way. An algorithm (ring.h, doubling.h, tree.h) adds the rounds of one strand; collectives.h makes whole
 * collectives of them.
 *
 * All ranks of the communicator make the same schedules in the same order, each with the same number of strands. */
#pragma once

#include "core/comm.h"

/* Tags of the messages of schedules; no others may have them. */
enum { COLL_TAG_LOW = 20000, COLL_TAGS = 8192 };

/* A communicator with its schedules: one for each communicator, zeroed but for comm and nodes. One thread at a time
 * makes and runs them. The oldest in progress is at most COLL_TAGS strands behind the newest. */
struct coll {
  struct trm_comm *comm;        /* not owned */
  const int *nodes;             /* (size) of each rank: the lowest rank of its node; NULL: the rank. Not owned */
  uint64_t strands;             /* so far; their numbers give the tags */
  struct coll_schedule *oldest; /* in progress */
};

struct coll_schedule;

/* -- making it. Arrays belong to the caller and stay until the schedule is complete. Counts are elements, 0 allowed. */
struct coll_schedule *coll_schedule_make(struct coll *coll, enum trm_type type, enum trm_op op);
struct trm_comm *coll_schedule_comm(const struct coll_schedule *schedule);
const int *coll_schedule_nodes(const struct coll_schedule *schedule); /* coll->nodes */
enum trm_type coll_schedule_type(const struct coll_schedule *schedule);
void coll_strand(struct coll_schedule *schedule); /* what is added next belongs to a new strand; call it first */
void coll_round(struct coll_schedule *schedule);  /* what is added next begins after all that the strand has */
void coll_send(struct coll_schedule *schedule, const void *from, size_t count, int rank);
void coll_receive(struct coll_schedule *schedule, void *to, size_t count, int rank);
/* to = with op what is received, at the end of the round; to may be with, and may be sent in the same round */
void coll_receive_reduce(struct coll_schedule *schedule, void *to, const void *with, size_t count, int rank);

/* -- running it. All take the schedules of the communicator further, the oldest first, since ranks may wait for them in
 * any order. */
/* Returns true if it is complete, and then frees it and sets *schedule to NULL, which is complete, too. Never
 * blocks. */
bool coll_schedule_test(struct coll_schedule **schedule);
/* Schedules of other communicators stand still meanwhile: a rank that has some tests all in turn instead. */
void coll_schedule_wait(struct coll_schedule **schedule);
bool coll_progress(struct coll *coll); /* true if all schedules are complete */
