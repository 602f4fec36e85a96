/* 64-bit words that all ranks of a communicator read and add to at any time: counters, clocks, flags.
 *
 * Where all ranks share memory they are atomic words in it. Otherwise they stand in a window of one rank, `home`, and
 * each call is a round trip to it: that rank must keep MPI going (service.h). */
#ifndef TRM_MPI_ASYNC_WORDS_H
#define TRM_MPI_ASYNC_WORDS_H

#include "core/comm.h"

struct words {
  struct trm_comm *node;    /* not owned */
  int home;
  struct trm_shared shared; /* where all ranks share memory */
  _Atomic int64_t *word;
  struct trm_window *window; /* otherwise */
};

/* Collective. `count` words, all 0. node: the ranks of comm that share memory with this one. */
int words_create(struct words *words, struct trm_comm *comm, struct trm_comm *node, int home, size_t count);
void words_free(struct words *words); /* collective */

int64_t words_add(struct words *words, size_t index, int64_t value); /* returns what was there before */
int64_t words_read(struct words *words, size_t index);

#endif
