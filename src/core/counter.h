/* Counters and locks in memory that ranks share (slot share of core/comm.h), zeroed by it. `comm`: the communicator of
 * the ranks that share the memory.
 *
 * What a rank wrote before a change of a counter is visible to a rank that has read the changed value. A rank waits for
 * a change in comm's wait_until. */
#pragma once

#include "core/comm.h"

TRM_BEGIN_DECLS

/* A number in memory that ranks share. */
struct trm_counter {
  int64_t value;
};

static inline int64_t trm_counter_get(const struct trm_counter *counter)
{
  return __atomic_load_n(&counter->value, __ATOMIC_ACQUIRE);
}

static inline void trm_counter_set(struct trm_comm *comm, struct trm_counter *counter, int64_t value)
{
  __atomic_store_n(&counter->value, value, __ATOMIC_RELEASE);
  if (comm->ops->notify)
    comm->ops->notify(comm);
}

/* Returns the value before. */
static inline int64_t trm_counter_add(struct trm_comm *comm, struct trm_counter *counter, int64_t value)
{
  const int64_t before = __atomic_fetch_add(&counter->value, value, __ATOMIC_ACQ_REL);
  if (comm->ops->notify)
    comm->ops->notify(comm);
  return before;
}

/* Sets the counter to `value` if it is *expected, otherwise *expected to the counter. Returns true if it was set. */
static inline bool trm_counter_swap(struct trm_comm *comm, struct trm_counter *counter, int64_t *expected,
                                    int64_t value)
{
  const bool set = __atomic_compare_exchange_n(&counter->value, expected, value, false, __ATOMIC_ACQ_REL,
                                               __ATOMIC_ACQUIRE);
  if (set && comm->ops->notify)
    comm->ops->notify(comm);
  return set;
}

/* Of one rank at a time. Not fair, and not for a rank that has it already. */
struct trm_lock {
  struct trm_counter taken; /* 1: a rank has the lock */
};
void trm_lock_acquire(struct trm_comm *comm, struct trm_lock *lock);
void trm_lock_release(struct trm_comm *comm, struct trm_lock *lock);

TRM_END_DECLS
