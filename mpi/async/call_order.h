/* The order of events of an asynchronous run: recorded (run.record), or followed (simulate.replay).
 *
 * What a run computes depends on its options, and on what differs from run to run: in which order the calls on each
 * chunk of the parameter server are answered, which parts of batches a worker is assigned dynamically, and (essp)
 * whether weights have arrived when it begins a batch. A recorded run writes these; a run that follows the
 * record answers a call only when its turn has come, and so ends with the same bits, on a network that behaves in
 * another way.
 *
 * The record is a folder with a file of text for each rank: a line that says of which run it is, then a line an event,
 *
 *   c REPLICA CHUNK NUMBER CALLER KIND   this rank has run a call on the chunk, the chunk's NUMBER-th (from 0)
 *   c REPLICA CHUNK NUMBER CALLER KIND TIME   the same, of methods that use the times of calls, in s (hexadecimal)
 *   p NUMBER   this rank has asked for a part of a batch, and was given this one
 *   a 0 or 1   this rank has looked for the answer to a call: 1: it had arrived
 *   q CALLS    a quiesce point; CALLS: on all chunks that this rank owns, so far
 *   halt       the run is being stopped: it cannot be followed
 *
 * and "end". */
#pragma once

#include "core/comm.h"

struct call_order;

struct call_order_plan {
  struct trm_comm *comm; /* not owned */
  const char *record, *replay; /* folders; NULL or "": none */
  const char *run;       /* one line: what the recorded run and the one that follows it must have in common */
  bool timed;            /* the times of calls are part of the record */
  int replicas;          /* of the parameter server */
  size_t chunks;         /* of a replica */
};

/* Collective over comm. Sets *order to NULL if there is neither record nor replay. Fails if a file cannot be written,
 * is missing or damaged, or is of another run. */
int call_order_create(struct call_order **order, const struct call_order_plan *plan);
void call_order_free(struct call_order *order); /* collective; NULL is allowed */

/* The functions below end the job where the run departs from the record, or a file cannot be written. */

bool call_order_is_followed(const struct call_order *order); /* false also for NULL */
/* A call on a chunk, the number-th that is answered there. A caller's calls in progress there differ in their kinds. */
struct call_order_call {
  int replica;
  size_t chunk;
  int64_t number;
  int caller, kind;
  double time; /* plan.timed: s */
};
/* Returns false if it is not this call's turn. */
bool call_order_may_answer(const struct call_order *order, const struct call_order_call *call);
/* Returns the time of a call that may be answered: the recorded one, if a record is followed, or `now`. order: may be
 * NULL. */
double call_order_time(const struct call_order *order, const struct call_order_call *call, double now);
/* This call has been answered. With the chunk locked, like may_answer. */
void call_order_answered(struct call_order *order, const struct call_order_call *call);
/* A part was assigned to this rank; returns the one that the record says, if one is followed. order: may be NULL. */
int64_t call_order_part(struct call_order *order, int64_t part);
/* The same for the answer to a call of this rank: whether it had arrived. If it is to have, the rank waits for it. */
bool call_order_arrived(struct call_order *order, bool arrived);
/* This rank is at a quiesce point, with so many calls answered on its chunks. */
void call_order_quiesce(struct call_order *order, int64_t calls);
/* The run is being stopped. order: may be NULL. */
void call_order_halt(struct call_order *order);
