/* The communication contract: point-to-point messages, collectives, shared memory and one-sided access of a group.
 *
 * Implemented by mpi/real.c over MPI, by mpi/virtual.c for many ranks in one process and virtual time, and by
 * comm_self.c for one rank without MPI. A communicator is a handle; copies of the handle are the same communicator.
 * All buffers are host memory, counts are elements. Messages of point-to-point calls may lie in a device's memory where
 * device_memory says so, each side by itself: calls of the device that write what is sent, or access what a message is
 * received into, must be done before.
 * Errors inside a collective cannot be returned by one rank alone: an implementation that fails says so and aborts the
 * job; so the slots below that return void either succeed or do not return.
 * Threads: the thread that a rank began with calls the collective slots, create and free. Point-to-point, requests,
 * one-sided access, call_begin, wait_until, wait_at_most, progress, notify, sleep_until and clock may be called by any
 * thread of the rank, each request by one thread at a time.
 * Progress: every slot that blocks, test and progress take all of the rank's operations further, on all its
 * communicators; so a rank may wait for any of them first. While a rank computes, non-blocking collectives may go on
 * (mpi/real_progress.c: in a thread that reads and writes their data) or stand still. While one is in progress, no
 * communicator, shared memory, window or calls are created or freed.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "core/api.h"
#include "core/choices.h"
#include "core/memory.h"

TRM_BEGIN_DECLS

enum trm_type { TRM_FLOAT, TRM_DOUBLE, TRM_INT32, TRM_INT64, TRM_BYTE };
enum trm_op {
  TRM_SUM,
  TRM_MIN,
  TRM_MAX,
  /* Of allreduce alone: a sum in one order of addition, so that its bits do not depend on network or layout. Over 2^k
   * ranks it is the binary tree ((0+1)+(2+3))+..., as in device->sum. Over p + r ranks, p the largest power of two: rank
   * p + i is first added to rank i, for i < r, then the tree of the first p. */
  TRM_TREE_SUM
};

/* Groups of a communicator whose nodes have equal numbers of ranks: this rank alone; all ranks; one rank of each node,
 * those of equal rank on their nodes. */
enum trm_group { TRM_GROUP_SELF, TRM_GROUP_ALL, TRM_GROUP_ACROSS_NODES };

/* The ranks of a communicator. */
enum trm_comm_role {
  TRM_COMM_GROUP, /* none of the following */
  TRM_COMM_JOB,
  TRM_COMM_NODE,
  TRM_COMM_MODEL,
  TRM_COMM_DATA,
  TRM_COMM_PIPELINE,
  TRM_COMM_TENSOR,
  TRM_COMM_ACROSS_NODES, /* TRM_GROUP_ACROSS_NODES */
  TRM_COMM_ROLES
};

size_t trm_type_bytes(enum trm_type type);

struct trm_comm;
struct trm_request; /* an operation in progress */
struct trm_window;  /* memory that other ranks access one-sidedly */
struct trm_calls;   /* a function that other ranks can call */

/* Memory that all ranks of a communicator can load and store directly. */
struct trm_shared {
  void **base;  /* (size) address of each rank's part in this process */
  void *local;    /* base[rank] */
  size_t bytes; /* of this rank's part */
  void *handle; /* of the implementation */
};

/* A function that answers a call at its owner. caller: its rank. head (plan.head_bytes): in and out. in: what the call
 * sends, or NULL; out: what it returns, or NULL. Returns false to hold the answer back: it is then called again, with
 * in and the head that it has left, after other calls and from time to time. Runs in a thread of the owner or, on a
 * rank with attended calls, inside wait_until; one at a time in each owner. It may use locks, counters and the clock,
 * but must not communicate. */
typedef bool trm_call_function(void *context, int caller, void *head, const void *in, void *out);

/* The calls of a communicator, and this rank's part in answering them. */
struct trm_call_plan {
  size_t head_bytes;           /* at most TRM_CALL_HEAD_BYTES; equal on all ranks */
  size_t max_bytes;            /* that one call sends, or returns, besides the head: at most 2^30; equal on all ranks */
  const bool *owner;           /* (size) ranks that answer calls; equal on all ranks */
  struct trm_comm *node;       /* made by split_node: its ranks may send through memory; NULL: none. Not owned */
  bool attended;               /* this owner answers inside wait_until of comm alone, otherwise at any time */
  trm_call_function *function; /* of an owner */
  void *context;
};
#define TRM_CALL_HEAD_BYTES 128

/* Costs of modeling a network and its ranks in this process, so far. */
struct trm_comm_costs {
  uint64_t events, switches; /* of the ranks */
  uint64_t messages, bytes;  /* between nodes */
  /* processor seconds: of the process since the network began; of slot compute in threads of its own; of functions of
   * calls, by one call in some */
  double cpu_s, compute_s, calls_s;
};

/* The slots of a communicator. */
struct trm_comm_ops {
  const char *name;

  /* -- collectives: every rank of the communicator calls, in the same order */
  void (*barrier)(struct trm_comm *comm);
  void (*broadcast)(struct trm_comm *comm, void *data, size_t count, enum trm_type type, int root);
  void (*allreduce)(struct trm_comm *comm, void *data, size_t count, enum trm_type type, enum trm_op op); /* in place */
  void (*allgather)(struct trm_comm *comm, const void *mine, void *all, size_t count, enum trm_type type);
  /* Sets mine (count) to row comm->rank of the reduction of all (size, count). mine lies outside of all, which may be
   * overwritten. */
  void (*reduce_scatter)(struct trm_comm *comm, void *all, void *mine, size_t count, enum trm_type type,
                         enum trm_op op);

  /* -- non-blocking collectives: the data must stay untouched until the request is complete */
  void (*allreduce_begin)(struct trm_comm *comm, void *data, size_t count, enum trm_type type, enum trm_op op,
                          struct trm_request **request);
  /* mine may be this rank's row of all */
  void (*allgather_begin)(struct trm_comm *comm, const void *mine, void *all, size_t count, enum trm_type type,
                          struct trm_request **request);
  void (*reduce_scatter_begin)(struct trm_comm *comm, void *all, void *mine, size_t count, enum trm_type type,
                               enum trm_op op, struct trm_request **request);

  /* -- point to point; tags 0..32766, without 20000..28191, which are those of mpi/coll/ */
  void (*send_begin)(struct trm_comm *comm, const void *data, size_t count, enum trm_type type, int to, int tag,
                     struct trm_request **request);
  void (*receive_begin)(struct trm_comm *comm, void *data, size_t count, enum trm_type type, int from, int tag,
                        struct trm_request **request);

  /* -- requests. test: true when complete; then, as after wait, *request is NULL. A NULL request is complete. */
  bool (*test)(struct trm_request **request);
  void (*wait)(struct trm_request **request);
  /* Lets the implementation advance operations in progress, and yields the core. Never blocks. For calls between
   * layers. */
  void (*progress)(struct trm_comm *comm);

  /* -- waiting, and time. Only these, wait, and the collectives block.
   * wait_until: returns when done(context) is true. done reads memory that other ranks change: counters and locks
   * (core/counter.h) in arrays shared with them, this rank's part of a window, what this rank's calls have changed. It
   * neither communicates nor changes anything but *context. Advances operations in progress, and on a rank with
   * attended calls answers them. */
  void (*wait_until)(struct trm_comm *comm, bool (*done)(void *context), void *context);
  /* The same, at most until time `when` by clock: returns false if done(context) has not become true before. Answers no
   * attended calls. */
  bool (*wait_at_most)(struct trm_comm *comm, bool (*done)(void *context), void *context, double when);
  /* Called after a change of memory shared by the ranks of comm, for those that wait (trm_counter_set and the others
   * do). NULL: waiting ranks poll. */
  void (*notify)(struct trm_comm *comm);
  /* Returns at time `when` by clock. Like a rank that computes, it advances nothing, or (progress) what calls of
   * progress between layers would. */
  void (*sleep_until)(struct trm_comm *comm, double when, bool progress);
  /* Runs work(context), the computation of a pass, which takes `seconds` of a core by a model of the time; returns its
   * status. It may run in another thread, while other ranks of the process go on: it must not communicate, and
   * everything that it uses is this rank's alone or constant. work NULL: the time passes alone. The slot is NULL: the
   * caller runs it, and time is real. */
  int (*compute)(struct trm_comm *comm, int (*work)(void *context), void *context, double seconds);
  /* Tells a profiler of the MPI library that a region of the program begins or ends; regions are nested. NULL: there is
   * no such library. */
  void (*region)(struct trm_comm *comm, const char *name, bool begins);

  /* -- groups (collective). split: ranks of equal color, ordered by key; color < 0 gives NULL.
   * split_node: the ranks that can share memory with this one, in a node, a NUMA domain, or this process. */
  struct trm_comm *(*split)(struct trm_comm *comm, int color, int key);
  struct trm_comm *(*split_node)(struct trm_comm *comm, enum trm_share domain);
  /* The same group as trm_comm_group's, for a communicator whose other ranks do not exist; NULL: found by split. */
  struct trm_comm *(*group)(struct trm_comm *comm, enum trm_group group, const struct trm_comm *node);
  void (*release)(struct trm_comm *comm);

  /* -- shared memory (collective; only for communicators made by split_node, their splits, and those of one rank).
   * Zeroed, page-aligned. Parts are adjacent in order of rank, each padded to whole pages: parts of a multiple of
   * 64 KiB make one array. */
  int (*share)(struct trm_comm *comm, size_t bytes, enum trm_memory_use use, struct trm_shared *shared);
  void (*unshare)(struct trm_comm *comm, struct trm_shared *shared);

  /* -- one-sided access (create and free are collective; the others concern origin and target alone).
   * Offsets and counts in elements of the window's type. accumulate adds; accumulate and get are atomic per element,
   * also with one another, but not with put. get and accumulate are complete at the origin (and accumulate at the
   * target) after flush. fetch_add: type TRM_INT64 windows, atomic.
   * A target that computes may make no progress (mpi/README.md). */
  int (*window_create)(struct trm_comm *comm, size_t count, enum trm_type type, const char *what,
                       struct trm_window **window, void **local);
  void (*window_free)(struct trm_window **window);
  void (*get)(struct trm_window *window, void *to, size_t count, int target, size_t offset);
  void (*put)(struct trm_window *window, const void *from, size_t count, int target, size_t offset);
  void (*accumulate)(struct trm_window *window, const void *from, size_t count, int target, size_t offset);
  int64_t (*fetch_add)(struct trm_window *window, int64_t value, int target, size_t offset);
  void (*flush)(struct trm_window *window, int target);

  /* -- calls: a rank has a function run at another rank, the owner of what the function changes.
   * create, free: collective; no call may be in progress. call_begin: returns at once; the request completes when the
   * answer has arrived, and until then *head (plan.head_bytes), in and out must stay. Calls of one rank to one owner
   * begin in order. in, out: NULL: nothing is sent, or returned. An owner may not call itself. */
  int (*calls_create)(struct trm_comm *comm, const struct trm_call_plan *plan, struct trm_calls **calls);
  void (*calls_free)(struct trm_calls **calls);
  void (*call_begin)(struct trm_calls *calls, int owner, void *head, const void *in, size_t in_bytes, void *out,
                     size_t out_bytes, struct trm_request **request);

  double (*clock)(struct trm_comm *comm);                 /* seconds, monotonic, the same on all ranks of a node */
  /* NULL: the network is not modeled. */
  void (*costs)(struct trm_comm *comm, struct trm_comm_costs *costs);
  void (*abort)(struct trm_comm *comm, int status) __attribute__((noreturn)); /* ends all ranks of the job */

  void *(*native)(struct trm_comm *comm); /* MPI_Comm * for parallel HDF5, or NULL where there is no MPI */
};

/* A communicator, as one of its ranks has it. */
struct trm_comm {
  const struct trm_comm_ops *ops;
  int rank, size;
  enum trm_comm_role role; /* its ranks, for messages */
  void *impl; /* of the implementation */
  /* trm_device_ops.name of the device whose memory send_begin and receive_begin take, too, as found at run time. NULL:
   * none. */
  const char *device_memory;
};

/* Returns true if messages may lie in the memory of devices of this name. */
static inline bool trm_comm_takes_memory(const struct trm_comm *comm, const char *device)
{
  return comm->device_memory && strcmp(comm->device_memory, device) == 0;
}

/* The communicator of one rank, without MPI. Nothing to release. */
extern const struct trm_comm_ops trm_comm_self_ops;
struct trm_comm *trm_comm_self(void);

/* Collective: a group of comm that strategies form around nodes (of what split_node gave; used for ACROSS_NODES alone),
 * its ranks ordered by key. */
struct trm_comm *trm_comm_group(struct trm_comm *comm, enum trm_group group, const struct trm_comm *node, int key);

/* Sets [*low, *high) to interval `index` of [0, n) divided into `parts`: the one rule that divides batches, shards and
 * rows. Intervals differ by at most one element, and a division into 2k refines that into k. */
void trm_interval(size_t n, size_t parts, size_t index, size_t *low, size_t *high);

/* Returns TRM_OK if every rank passed TRM_OK; otherwise every rank gets the status and the message of the lowest rank
 * that failed, so that all return and rank 0 can print it. Collective. */
int trm_agree(struct trm_comm *comm, int status);

TRM_END_DECLS
