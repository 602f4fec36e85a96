/* Shared counters: 64-bit integers that all ranks of a communicator read and add to at any time.
 *
 * Where all ranks share memory they are in it. Otherwise they are in a window of one rank, the owner, and each
 * call is a round trip to it: that rank must keep MPI progressing (param_server.h). */
#pragma once

#include "core/counter.h"

struct shared_counters {
  struct trm_comm *node;       /* not owned */
  int owner;
  struct trm_shared shared;    /* if all ranks share memory */
  struct trm_counter *counter;
  struct trm_window *window; /* otherwise */
};

/* Collective over comm. `count` counters, all 0. node: the ranks of comm that share memory with this one. */
int shared_counters_create(struct shared_counters *counters, struct trm_comm *comm, struct trm_comm *node, int owner,
                           size_t count);
void shared_counters_free(struct shared_counters *counters); /* collective */

/* Atomic; returns the value before. */
int64_t shared_counters_add(struct shared_counters *counters, size_t index, int64_t value);
int64_t shared_counters_read(struct shared_counters *counters, size_t index);
