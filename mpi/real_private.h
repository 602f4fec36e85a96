/* What the files of the real network share. The only place of the comm contract that sees mpi.h. */
#ifndef TRM_MPI_REAL_PRIVATE_H
#define TRM_MPI_REAL_PRIVATE_H

#include <mpi.h>
#include <stdatomic.h>

#include "core/comm.h"

/* One call of MPI moves at most this much. MPI counts are int; and large allreduces run best in pieces: at 64 MB most
 * of the time goes into page faults of the library's temporary buffers. */
#define REAL_CHUNK_BYTES ((size_t)1 << 22)
/* Point-to-point messages stay whole as long as an int can count them. */
#define REAL_MESSAGE_BYTES ((size_t)1 << 30)

/* The barrier of ranks that share memory: everybody adds one, and leaves when all have. It counts on for ever, so there
 * is nothing to reset. */
struct real_node_barrier {
  _Atomic uint64_t arrived;
};

struct real_comm {
  struct trm_comm base;
  MPI_Comm mpi;
  bool shares_memory; /* made by split_node, or a split of such a one */
  /* where shares_memory and size > 1: */
  MPI_Win barrier_window;
  struct real_node_barrier *barrier; /* in shared memory */
  uint64_t barriers_entered;            /* barriers that this rank has entered */
};

static inline struct real_comm *real_of(struct trm_comm *comm)
{
  return comm->impl;
}

extern const struct trm_comm_ops real_ops;

/* For who polls for something since then (MPI_Wtime): offers its core to others. */
void real_pause(double since);

MPI_Datatype real_type(enum trm_type type);

/* Wraps an MPI communicator, which it takes over. Collective. NULL for MPI_COMM_NULL. */
struct trm_comm *real_wrap(MPI_Comm mpi, bool shares_memory);

/* -- real_launch.c: refuses N jobs of one rank in place of one job of N. size: MPI's own. */
int real_check_launch(int size);

/* -- real_node.c: ranks that share memory */
struct trm_comm *real_split_node(struct trm_comm *comm, enum trm_share domain);
void real_node_barrier_create(struct real_comm *real); /* collective */
void real_node_barrier_free(struct real_comm *real);   /* collective */
void real_node_barrier_wait(struct real_comm *real);
int real_share(struct trm_comm *comm, size_t bytes, enum trm_memory_use use, struct trm_shared *shared);
void real_unshare(struct trm_comm *comm, struct trm_shared *shared);
size_t real_round_to_pages(size_t bytes); /* rounded up */
/* Is there room for this rank's `bytes` of shared memory, together with those of its node? The same answer on all ranks
 * of comm. Collective. */
int real_check_shm_capacity(MPI_Comm mpi, size_t bytes, const char *what);

/* -- real_window.c: one-sided access */
int real_window_create(struct trm_comm *comm, size_t count, enum trm_type type, const char *what,
                       struct trm_window **window, void **base);
void real_window_free(struct trm_window **window);
void real_get(struct trm_window *window, void *to, size_t count, int target, size_t offset);
void real_put(struct trm_window *window, const void *from, size_t count, int target, size_t offset);
void real_accumulate(struct trm_window *window, const void *from, size_t count, int target, size_t offset);
int64_t real_fetch_add(struct trm_window *window, int64_t value, int target, size_t offset);
void real_flush(struct trm_window *window, int target);

/* Errors of this window end the job with a message, as those of communicators do. */
void real_window_set_errhandler(MPI_Win window);

#endif
