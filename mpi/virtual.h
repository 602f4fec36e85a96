/* The virtual network: all ranks of a job in one process, in virtual time. An implementation of the communication
 * contract (core/comm.h) for any number of ranks: the same program gives the same bits every time.
 *
 * Each rank is a fiber. One runs at a time, in the thread that calls trm_virtual_run; the others wait for an event: a
 * message that arrives, the last rank of a collective, the end of a computation. Events happen in the order of their
 * virtual time, simultaneous ones in the order in which they were caused. Running takes no virtual time: only what is
 * modeled does, messages by the plan's network, computation by the seconds on a core of its own that the caller of slot
 * compute gives, and sleep_until. Where no event is left and some rank is not done, the program has a deadlock, and
 * the run fails with a text that says which rank waits for what. */
#pragma once

#include <stdint.h>

#include "core/comm.h"

TRM_BEGIN_DECLS

struct trm_virtual_plan {
  int ranks, ranks_per_node; /* node k has ranks [k ranks_per_node, (k + 1) ranks_per_node) */
  double latency;            /* seconds from the first byte's leaving a node to its arrival at another */
  double bandwidth;          /* bytes per second of a node's link, in each direction */
  double node_latency, node_s_per_byte; /* seconds of a message between two ranks of a node, and of each of its bytes */
  double service, service_per_byte; /* seconds that an owner takes for a call and for each byte of it; one at a time */
  int cores; /* of a node, for which its computations queue; 0: as many as ranks */
  double slice; /* seconds that a rank computes on a core before it goes to the end of the queue; 0: no limit */
  int threads;               /* that compute, the ranks' own among them; 0: it computes at once what is begun */
  /* Not 0: a random schedule. Every message, call and computation takes a random time more, simultaneous events come in
   * random order, and a rank may stop before and after it acquires a lock: any order that the contract allows can
   * occur. Equal seeds give equal schedules. */
  uint64_t schedule;
};

/* Counted over a run. */
struct trm_virtual_figures {
  double seconds;                /* virtual time at the end */
  uint64_t events, switches;     /* of fibers */
  uint64_t messages, bytes;      /* between nodes: of point-to-point messages, one-sided operations and calls */
};

/* Runs main(world, context) as each rank of a job and returns when all have returned: TRM_OK, or the status of the
 * lowest rank that failed, with its message. A deadlock ends in TRM_FAILED. figures: NULL: not needed. */
int trm_virtual_run(const struct trm_virtual_plan *plan, int (*main)(struct trm_comm *world, void *context),
                    void *context, struct trm_virtual_figures *figures);

TRM_END_DECLS
