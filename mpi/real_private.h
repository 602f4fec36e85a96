/* Shared by mpi/real*.c, the communication contract over MPI. Only these files, and parallel HDF5's, include mpi.h. */
#pragma once

#include <limits.h>
#include <mpi.h>
#include <pthread.h>
#include <stdatomic.h>

#include "core/comm.h"
#include "core/ledger.h"
#include "mpi/coll/schedule.h"
#include "mpi/real_secure.h"

/* One call of a blocking collective moves at most this much: large allreduces run best in chunks, since at 64 MB most
 * of the time goes into page faults of the library's temporary buffers. */
#define REAL_CHUNK_BYTES ((size_t)1 << 22)
/* Point-to-point messages and one-sided transfers stay whole up to this size: MPI counts are int. */
#define REAL_MESSAGE_BYTES ((size_t)1 << 30)
/* A non-blocking gather or reduce-scatter is one call as long as the arrays of all ranks together are at most this
 * large: libraries count their bytes in int. */
#define REAL_MAX_BEGIN_BYTES ((size_t)INT_MAX)

/* Barrier of ranks that share memory: every rank adds one, and leaves when all have. The counter is never reset. */
struct real_node_barrier {
  _Atomic uint64_t arrived;
};

/* real_progress.c */
struct real_progress {
  enum trm_progress by;       /* parallel.progress */
  pthread_mutex_t lock;       /* of what follows but `threaded`, and of the communicators' coll */
  pthread_cond_t begun;       /* a collective has */
  struct real_comm *first;    /* list of communicators with collectives */
  atomic_int schedules;       /* all that are not complete, or not yet known to be, on all communicators */
  bool stop;                  /* the thread */
  bool threaded;              /* of the main thread */
  pthread_t thread;
};

/* Of the job, at this rank: shared by its communicators. */
struct real_job {
  MPI_Errhandler window_errhandler;
  int rank, host; /* rank: in the job; host: lowest rank of the job on the same host */
  const struct coll_choices *choices; /* trm_comm_set_collectives */
  _Atomic uint64_t sent_between_nodes; /* bytes: trm_comm_sent_between_nodes */
  struct real_progress progress;
};

struct real_comm {
  struct trm_comm base;
  MPI_Comm mpi;
  struct real_job *job;             /* not owned */
  size_t max_begin_bytes;           /* REAL_MAX_BEGIN_BYTES; smaller in tests */
  bool shares_memory;               /* made by split_node, or split from such a communicator */
  /* where shares_memory and size > 1: */
  MPI_Win barrier_window;
  struct real_node_barrier *barrier; /* in shared memory */
  uint64_t barriers_entered;         /* barriers that this rank has entered */
  struct trm_calls *attended;        /* list of those that this rank answers in wait_until */
  bool over_messages;                /* its collectives: its ranks are on several nodes. Tests set it on all ranks */
  int *nodes;                        /* (size) of each rank: the lowest rank of its node; NULL: one node */
  bool nodes_of_several;             /* some node has several of the ranks */
  struct trm_comm messages;          /* base with real_message_ops alone */
  struct coll coll;                  /* its collectives over messages; under the lock of job->progress */
  bool in_progress;                  /* in the list of job->progress */
  struct real_comm *next_in_progress;
  struct real_secure *secure;        /* of messages between nodes; NULL: they are sent as they are */
  uint64_t children;                 /* communicators made of it so far, for `secure` */
  uint64_t group, collectives;       /* for the ledger: equal on its ranks; collectives that this rank has begun */
};

static inline struct real_comm *real_of(struct trm_comm *comm)
{
  return comm->impl;
}

/* Elements of the chunk that starts at `from` of `count`. */
static inline int real_chunk_size(size_t from, size_t count, size_t chunk)
{
  return (int)(count - from < chunk ? count - from : chunk);
}

/* Parts of at most `chunk` elements, at least one. */
static inline size_t real_chunk_count(size_t count, size_t chunk)
{
  return count > chunk ? (count + chunk - 1) / chunk : 1;
}

/* -- real.c */
extern const struct trm_comm_ops real_ops; /* without the ledger */
/* In an oversubscribed job: a barrier that sleeps, so that early ranks do not poll inside MPI. */
void real_barrier_before_collective(struct trm_comm *comm);
double real_clock(struct trm_comm *comm);
void *real_native(struct trm_comm *comm);
void real_region(struct trm_comm *comm, const char *name, bool begins);

/* -- real_ledger.c */
extern const struct trm_comm_ops real_ledger_ops;
/* Of a communicator made of `parent`: equal on its ranks, and unlike that of others. Not collective. */
uint64_t real_ledger_group(MPI_Comm mpi, const struct real_comm *parent);

/* -- real_launch.c */
/* TRM_USAGE for N jobs of one rank in place of one job of N. job_size: of MPI_COMM_WORLD */
int real_check_launch(int job_size);
void real_abort(struct trm_comm *comm, int status) __attribute__((noreturn));

/* -- real_message.c: messages and requests. One request of the contract is one or several of MPI's, because large
 * arrays are cut into chunks. */
struct trm_request {
  struct real_comm *comm;
  int count, completed;   /* the first `completed` are complete */
  struct real_call *call; /* real_calls.c; NULL: no call */
  struct coll_schedule *schedule; /* a collective over messages, count is 0; NULL: none */
  struct real_sealed **sealed; /* (count) of encrypted messages; NULL: none */
  bool collective;        /* other ranks depend on this one's progress: sleeps are short */
  struct trm_ledger_call ledger;
  MPI_Request mpi[];
};
MPI_Datatype real_type(enum trm_type type);
/* The caller sets mpi (count). */
struct trm_request *real_request_create(struct trm_comm *comm, size_t count, bool collective);
void real_send_begin(struct trm_comm *comm, const void *data, size_t count, enum trm_type type, int to, int tag,
                     struct trm_request **request);
void real_receive_begin(struct trm_comm *comm, void *data, size_t count, enum trm_type type, int from, int tag,
                        struct trm_request **request);
/* One message of a request, begun by MPI_Isend and MPI_Irecv or encrypted. */
void real_message_send(struct trm_request *request, int number, const void *data, int count, MPI_Datatype type, int to,
                       int tag);
void real_message_receive(struct trm_request *request, int number, void *data, int count, MPI_Datatype type, int from,
                          int tag);
/* As slot `test`, of a request without a schedule; takes no collective further. */
bool real_message_test(struct trm_request **request);
extern const struct trm_comm_ops real_message_ops; /* these alone */

/* -- real_library.c */
void real_library_broadcast(struct trm_comm *comm, void *data, size_t count, enum trm_type type, int root);
void real_library_allreduce(struct trm_comm *comm, void *data, size_t count, enum trm_type type, enum trm_op op);
void real_library_allgather(struct trm_comm *comm, const void *mine, void *all, size_t count, enum trm_type type);
void real_library_reduce_scatter(struct trm_comm *comm, void *all, void *mine, size_t count, enum trm_type type,
                                 enum trm_op op);
void real_library_broadcast_begin(struct trm_comm *comm, void *data, size_t count, enum trm_type type, int root,
                                  struct trm_request **request);
void real_library_allreduce_begin(struct trm_comm *comm, void *data, size_t count, enum trm_type type, enum trm_op op,
                                  struct trm_request **request);
void real_library_allgather_begin(struct trm_comm *comm, const void *mine, void *all, size_t count, enum trm_type type,
                                  struct trm_request **request);
void real_library_reduce_scatter_begin(struct trm_comm *comm, void *all, void *mine, size_t count, enum trm_type type,
                                       enum trm_op op, struct trm_request **request);

/* -- real_coll.c: false: the library's own collective is to be used; equal on all ranks */
bool real_coll_broadcast(struct trm_comm *comm, void *data, size_t count, enum trm_type type, int root,
                         struct trm_request **request);
bool real_coll_allreduce(struct trm_comm *comm, void *data, size_t count, enum trm_type type, enum trm_op op,
                         struct trm_request **request);
bool real_coll_allgather(struct trm_comm *comm, const void *mine, void *all, size_t count, enum trm_type type,
                         struct trm_request **request);
bool real_coll_reduce_scatter(struct trm_comm *comm, void *all, void *mine, size_t count, enum trm_type type,
                              enum trm_op op, struct trm_request **request);

/* -- real_progress.c */
void real_progress_init(struct real_progress *progress);
void real_progress_end(struct real_progress *progress); /* no collective is in progress */
/* From now on a thread makes progress, if the options do not say otherwise. */
void real_progress_in_background(struct trm_comm *comm);
/* True if a collective of the library may block, since the thread makes progress meanwhile: another rank may need this
 * one's part in a collective over messages to come to the library's. Equal on all ranks. */
bool real_may_block(struct trm_comm *comm);
void real_schedule_lock(struct real_comm *real);  /* before a schedule of real->coll is made */
void real_schedule_begin(struct real_comm *real); /* after that; gives the lock back */
bool real_schedule_test(struct real_comm *real, struct coll_schedule **schedule); /* as slot `test` */
bool real_schedules_exist(struct real_job *job);
void real_schedules_advance(struct real_job *job); /* all of the rank; never blocks */

/* -- real_polling.c: waiting */
bool real_test(struct trm_request **request);
void real_wait(struct trm_request **request);
void real_probe(MPI_Comm mpi); /* makes MPI progress */
void real_progress(struct trm_comm *comm);
void real_wait_until(struct trm_comm *comm, bool (*done)(void *context), void *context);
bool real_wait_at_most(struct trm_comm *comm, bool (*done)(void *context), void *context, double when);
void real_sleep_until(struct trm_comm *comm, double when, bool progress);
void real_pause(double since); /* yields the core in a loop that has polled since then (MPI_Wtime) */
bool real_is_oversubscribed(void);

/* -- real_group.c. All collective over the communicator that they are given. */
/* Wraps an MPI communicator, which it then owns; operations and settings are the parent's. NULL for MPI_COMM_NULL. */
struct trm_comm *real_wrap(MPI_Comm mpi, struct real_comm *parent, bool shares_memory);
struct trm_comm *real_split(struct trm_comm *comm, int color, int key);
struct trm_comm *real_split_node(struct trm_comm *comm, enum trm_share domain);
void real_release(struct trm_comm *comm);

/* -- real_node.c: the memory of ranks that share it */
void real_node_barrier_create(struct real_comm *real); /* collective */
void real_node_barrier_free(struct real_comm *real);   /* collective */
void real_node_barrier_wait(struct real_comm *real);   /* collective */
int real_share(struct trm_comm *comm, size_t bytes, enum trm_memory_use use, struct trm_shared *shared);
void real_unshare(struct trm_comm *comm, struct trm_shared *shared);
size_t real_round_to_pages(size_t bytes); /* rounded up */
/* Checks that this rank's `bytes` of shared memory, together with those of its node, fit. Collective over mpi; all its
 * ranks get the same status. */
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

/* -- real_stage.c: calls between ranks that share memory. NULL: no rank of this node may be called. */
struct real_stages;
enum real_stage_use { REAL_STAGE_IN, REAL_STAGE_OUT }; /* what the call sends, what it returns: plan.max_bytes each */
int real_stages_create(const struct trm_call_plan *plan, int rank, struct real_stages **stages); /* collective */
void real_stages_free(struct real_stages **stages);                                              /* collective */
int real_stage_acquire(struct real_stages *stages, int owner); /* -1: in another node, or none is free */
void real_stage_release(struct real_stages *stages, int stage);
void *real_stage_buffer(const struct real_stages *stages, int caller, int stage, enum real_stage_use use);

/* -- real_calls.c */
int real_calls_create(struct trm_comm *comm, const struct trm_call_plan *plan, struct trm_calls **calls);
void real_calls_free(struct trm_calls **calls);
void real_call_begin(struct trm_calls *calls, int owner, void *head, const void *in, size_t in_bytes, void *out,
                     size_t out_bytes, struct trm_request **request);
/* At an owner, in one thread: answers what has arrived, and makes MPI progress. Returns false if there was nothing. */
bool real_calls_answer(struct trm_calls *calls);
bool real_calls_attend(struct real_comm *real); /* the same for all attended calls of a communicator */
void real_call_end(struct real_call *call); /* its request is complete */
