/* Stragglers at quiesce points (strategy.stragglers=drop): a worker that has waited there for twice the mean time of
 * its own gradients ends the computations that still go on. Their parts are not done, and other workers do them: those
 * whose computations were ended compute nothing more of the batches before this quiesce point, unless all others fail.
 * So there is one worker at least that is waited for.
 *
 * Without it one worker that is slow beyond measure, or never ends, delays every end of an epoch. */
#pragma once

#include "mpi/async/shared_counters.h"

struct stragglers {
  struct trm_comm *comm;    /* not owned */
  struct shared_counters counters;
  struct trm_window *window; /* a message to each rank, of which it reads its own; NULL: all read one of the counters */
  struct trm_counter *message;
  int workers;
  double began_s;     /* of the gradient in progress; less than 0: none */
  double gradients_s; /* that this worker's gradients took, a sum */
  uint64_t gradients;
  uint64_t whole, abandoned; /* of them, since the last quiesce point; those that it abandoned before they ended */
  uint64_t left_out; /* batches below are not this worker's: it has been late at them */
};

/* Collective over comm; rank `owner` holds the counters. node: the ranks of comm that share memory with this one. */
int stragglers_create(struct stragglers *stragglers, struct trm_comm *comm, struct trm_comm *node, int owner,
                      int workers);
void stragglers_free(struct stragglers *stragglers); /* collective */

/* Returns true if the computations that go on are to end. Reads memory alone. */
bool stragglers_end(const struct stragglers *stragglers);
/* The worker begins a gradient. done: it has computed it; or, not whole, abandoned it, which does not count in the mean
 * time. dropped: its computation, of a batch below end, was ended. */
void stragglers_begin(struct stragglers *stragglers);
void stragglers_done(struct stragglers *stragglers, bool whole);
void stragglers_dropped(struct stragglers *stragglers, uint64_t end);
/* Returns true if the worker was late at a batch below end: its computation was ended, or it has abandoned all its
 * gradients between two quiesce points. */
bool stragglers_leave_out(const struct stragglers *stragglers, uint64_t end);
/* The worker has no more batches before a quiesce point. decides: no part is left, so it may end the computations of
 * others; then it waits for these. */
void stragglers_wait(struct stragglers *stragglers, bool decides);
/* Collective, at a quiesce point, before a barrier. able: this rank can compute gradients. If only workers that were
 * late at batches below end can, these do them after all. */
void stragglers_quiesce(struct stragglers *stragglers, uint64_t end, bool able);
