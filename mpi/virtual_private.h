/* Shared by mpi/virtual*.c. The ranks of a run, their events and messages belong to a struct virtual_net; its fields
 * are those of one thread, except for computations (virtual_compute.c). */
#pragma once

#include <math.h>
#include <time.h>

#include "core/context.h"
#include "core/trace.h"
#include "mpi/virtual.h"

struct virtual_net;
struct virtual_fiber;
extern const struct trm_comm_ops virtual_ops;

/* Something that happens at a virtual time: the fiber runs on, or (NULL) act(of) is called by the fiber that has waited
 * last. act must not wait. */
struct virtual_event {
  double time;
  uint64_t order; /* among events of equal time */
  struct virtual_fiber *fiber;
  void (*act)(struct virtual_net *net, void *of);
  void *of;
};

struct virtual_node {
  const int *counted; /* virtual_group_count_nodes: members of the group for which it has been counted */
  double send_free, receive_free; /* when its link is free, in each direction */
  bool check_due;                 /* an event will check its waiting ranks */
  int held;                       /* calls that its owners hold back */
  struct virtual_waiter *waiting; /* first to last */
  struct virtual_computation *computing; /* that wait for a core, in order */
  int running;                           /* computations that have one */
};

/* A computation on shared cores, in the stack of its fiber. */
struct virtual_computation {
  struct virtual_computation *next;
  struct virtual_rank *rank;
  struct virtual_fiber *fiber;
  double left, granted; /* seconds of a core: until it ends; that it has got one for */
};

/* A fiber in wait_until or wait_at_most. */
struct virtual_waiter {
  struct virtual_rank *rank;
  struct virtual_fiber *fiber;
  bool (*until)(void *context);
  void *context;
  bool timed; /* wait_at_most: the fiber resumes by itself at a time, unless the condition comes true before */
  bool met;   /* it has come true */
  struct virtual_waiter *next;
};

/* Requests, oldest first. */
struct virtual_list {
  struct trm_request *first, *last;
};

/* A rank. */
struct virtual_rank {
  struct virtual_net *net;
  int rank, node; /* of the job */
  int status;     /* that its main returned */
  bool done;
  struct trm_comm *world;
  struct trm_rank_state state;
  struct virtual_fiber *fiber;
  bool attends;   /* it is in wait_until */
  double slice_used, computed_until; /* shared cores: seconds of its slice, the end of its latest computation */
  struct virtual_list messages, receives; /* messages to this rank: sent and not received, receives without a message */
  struct virtual_owner *owners; /* of the calls that it answers: list */
};

struct virtual_net {
  struct trm_virtual_plan plan;
  int (*main)(struct trm_comm *world, void *context);
  void *main_context;
  double now;
  struct virtual_event *event; /* (events) heap, earliest first */
  size_t events, event_capacity;
  uint64_t order, random;      /* numbers of events so far; state of the random schedule */
  bool acting;                 /* an event's act runs */
  uint64_t at_once;            /* events since time last went on */
  uint64_t polls;              /* requests found incomplete since the last event */
  struct virtual_rank *rank;   /* (plan.ranks) */
  struct virtual_node *node;   /* (nodes) */
  int nodes, running;          /* ranks whose main has not returned */
  struct virtual_fiber *current, *root;
  struct trm_context event_context; /* for functions of ranks that an event calls */
  struct virtual_pool *pool;
  struct trm_virtual_figures figures;
  double cpu_began;            /* processor seconds of the process when the network began */
  char *stacks;                /* of all ranks; NULL: each fiber has its own */
  void *spare;                 /* blocks that are not in use: list */
  uint64_t calls, timed_calls; /* functions of calls run; those of them whose time was measured */
  double timed_s;              /* processor seconds */
};

/* -- virtual.c: of clock CLOCK_PROCESS_CPUTIME_ID, or of a thread's */
double virtual_processor_seconds(clockid_t clock);

/* -- virtual_fiber.c: fibers and events */

/* The stacks of many ranks: before the first fiber is made, and after the last one is freed. */
void virtual_stacks_create(struct virtual_net *net);
void virtual_stacks_free(struct virtual_net *net);

/* Describes what a fiber waits for. */
typedef void virtual_describe(const void *of, char *text, size_t bytes);

/* Makes a fiber that will call run(of) as this rank. */
struct virtual_fiber *virtual_fiber_create(struct virtual_net *net, struct virtual_rank *rank, void (*run)(void *of),
                                           void *of);
void virtual_fiber_free(struct virtual_fiber *fiber);
void virtual_fiber_join(struct virtual_fiber *fiber); /* waits until run has returned; frees the fiber */
/* The thread's own flow of control, from which trm_virtual_run is called. */
struct virtual_fiber *virtual_fiber_root(struct virtual_net *net);
const struct trm_context *virtual_fiber_context(const struct virtual_fiber *fiber);
/* Notes of a function that answers a call: its notify and compute do nothing else. */
struct virtual_notes {
  bool notified;
  double seconds; /* of computation */
};
struct virtual_notes **virtual_fiber_notes(struct virtual_fiber *fiber); /* *it is NULL: it answers no call */

void virtual_act_at(struct virtual_net *net, double time, void (*act)(struct virtual_net *net, void *of), void *of);
void virtual_resume_at(struct virtual_net *net, double time, struct virtual_fiber *fiber);
/* Removes the event that would resume the fiber, which has one. */
void virtual_resume_cancel(struct virtual_net *net, const struct virtual_fiber *fiber);
/* Runs events until one resumes the current fiber. describe(of): for reports of a deadlock. */
void virtual_park(struct virtual_net *net, virtual_describe *describe, const void *of);
void virtual_sleep_until(struct virtual_net *net, double time);
/* Reports the error and ends the process. */
void virtual_fail(struct virtual_net *net, const char *format, ...)
  __attribute__((noreturn, format(printf, 2, 3)));
/* Of the random schedule: seconds to add to a duration, 0 without one; a word. */
double virtual_random_delay(struct virtual_net *net);
uint64_t virtual_random_word(struct virtual_net *net);

/* -- virtual_wait.c: requests and waiting */

/* Zeroed memory for one of the many small objects of a step: at most VIRTUAL_BLOCK bytes. */
enum { VIRTUAL_BLOCK = 192 };
void *virtual_block_take(struct virtual_net *net);
void virtual_block_return(struct virtual_net *net, void *block);
void virtual_blocks_free(struct virtual_net *net); /* those that are not in use */

/* An operation that has begun. */
struct trm_request {
  struct virtual_net *net;
  double when; /* it is complete; INFINITY: not known yet */
  double flows; /* the last transfer before that began: others had come */
  struct virtual_fiber *waiter;
  bool placed; /* not in memory of its own: test and wait do not free it */
  virtual_describe *describe;
  /* of collectives */
  struct virtual_collective *collective;
  /* of messages */
  struct virtual_group *group;
  int from, to, tag; /* ranks of the group */
  void *data;        /* to receive into; to send, the rank's own or a copy (owned) */
  size_t bytes;
  bool receives, copied;
  double arrives; /* of messages and calls; else 0 */
  struct trm_request *next;
};
struct trm_request *virtual_request_create(struct virtual_net *net, virtual_describe *describe);
/* The request is complete at this time. */
void virtual_request_complete(struct trm_request *request, double when);
void virtual_request_wait(struct trm_request *request);
/* Trace what the current rank has done since `began`, unless it answers a call. Of a wait for a request: its own
 * transfer to the other rank, the wait for others, the transfer that they began. */
void virtual_trace(struct virtual_net *net, const char *name, enum trm_trace_kind kind, double began);
void virtual_trace_request(const struct trm_request *request, double began);
bool virtual_test(struct trm_request **request);
void virtual_wait(struct trm_request **request);
void virtual_wait_until(struct trm_comm *comm, bool (*done)(void *context), void *context);
bool virtual_wait_at_most(struct trm_comm *comm, bool (*done)(void *context), void *context, double when);
void virtual_notify(struct trm_comm *comm);
void virtual_notify_node(struct virtual_net *net, int node);
void virtual_sleep_until_slot(struct trm_comm *comm, double when, bool progress);
/* Something has changed at this rank: it may have waited for it. */
void virtual_check_rank(struct virtual_rank *rank);
/* The same for all ranks of a node, without the calls that it holds back. */
void virtual_check_node(struct virtual_net *net, int node);

/* -- virtual_group.c: communicators */

/* Ranks that communicate. */
struct virtual_group {
  struct virtual_net *net;
  int size, references;
  int nodes;          /* that its ranks are on */
  bool shares_memory;
  bool process;       /* made by split_node for TRM_SHARE_PROCESS: its collectives take no time */
  int *member;        /* (size) ranks of the job */
  struct virtual_collective *first, *last, *unused; /* collectives begun by some rank and not by all, oldest first */
};

struct virtual_comm {
  struct trm_comm base;
  struct virtual_group *group;
  uint64_t collectives; /* that this rank has begun */
};

static inline struct virtual_comm *virtual_of(struct trm_comm *comm)
{
  return comm->impl;
}
static inline struct virtual_net *virtual_net_of(struct trm_comm *comm)
{
  return virtual_of(comm)->group->net;
}
/* This rank, or that of rank `rank` of comm. */
static inline struct virtual_rank *virtual_rank_at(const struct virtual_group *group, int rank)
{
  return &group->net->rank[group->member[rank]];
}
static inline struct virtual_rank *virtual_rank_of(struct trm_comm *comm)
{
  return virtual_rank_at(virtual_of(comm)->group, comm->rank);
}

struct virtual_group *virtual_group_create(struct virtual_net *net, int size);
/* Counts the nodes of the members, which are set. */
void virtual_group_count_nodes(struct virtual_group *group);
struct trm_comm *virtual_comm_create(struct virtual_group *group, int rank);
struct trm_comm *virtual_split(struct trm_comm *comm, int color, int key);
struct trm_comm *virtual_split_node(struct trm_comm *comm, enum trm_share domain);
void virtual_release(struct trm_comm *comm);
int virtual_share(struct trm_comm *comm, size_t bytes, enum trm_memory_use use, struct trm_shared *shared);
void virtual_unshare(struct trm_comm *comm, struct trm_shared *shared);

/* -- virtual_collective.c */

/* One rank's arguments of a collective. */
struct virtual_part {
  void *data;
  const void *mine;
  struct trm_request *request; /* NULL: it has not begun the collective */
};

enum virtual_kind {
  VIRTUAL_BARRIER,
  VIRTUAL_BROADCAST,
  VIRTUAL_ALLREDUCE,
  VIRTUAL_ALLGATHER,
  VIRTUAL_REDUCE_SCATTER,
  VIRTUAL_INTERNAL /* what the implementation itself does together: work(collective) */
};

/* The arguments of a collective that are equal on all ranks. */
struct virtual_shape {
  enum virtual_kind kind;
  size_t count;
  enum trm_type type;
  enum trm_op op;
  int root;
  void (*work)(struct virtual_collective *collective);
  const char *name; /* of VIRTUAL_INTERNAL */
};

/* A collective in progress. */
struct virtual_collective {
  struct virtual_group *group;
  uint64_t number; /* of the group's */
  struct virtual_shape shape;
  int arrived;
  struct virtual_collective *next;
  struct virtual_part part[]; /* (size) */
};

/* Begins the collective as one rank of comm; the last rank's call does the work. */
void virtual_collective_begin(struct trm_comm *comm, const struct virtual_shape *shape, struct virtual_part part,
                              struct trm_request *request);
/* The same, and waits. */
void virtual_collective_run(struct trm_comm *comm, const struct virtual_shape *shape, struct virtual_part part);
void virtual_barrier(struct trm_comm *comm);
void virtual_broadcast(struct trm_comm *comm, void *data, size_t count, enum trm_type type, int root);
void virtual_allreduce(struct trm_comm *comm, void *data, size_t count, enum trm_type type, enum trm_op op);
void virtual_allgather(struct trm_comm *comm, const void *mine, void *all, size_t count, enum trm_type type);
void virtual_reduce_scatter(struct trm_comm *comm, void *all, void *mine, size_t count, enum trm_type type,
                            enum trm_op op);
void virtual_allreduce_begin(struct trm_comm *comm, void *data, size_t count, enum trm_type type, enum trm_op op,
                             struct trm_request **request);
void virtual_allgather_begin(struct trm_comm *comm, const void *mine, void *all, size_t count, enum trm_type type,
                             struct trm_request **request);
void virtual_reduce_scatter_begin(struct trm_comm *comm, void *all, void *mine, size_t count, enum trm_type type,
                                  enum trm_op op, struct trm_request **request);
/* to[i] op= from[i] */

/* -- virtual_message.c: the links, and messages */

/* Returns when so many bytes that leave a rank now, or when its link is free, are at the other; occupies both links. */
double virtual_transfer(const struct virtual_rank *from, const struct virtual_rank *to, size_t bytes);
/* Returns when a collective that begins now is complete; occupies the links of its nodes. */
double virtual_collective_end(const struct virtual_collective *collective);
void virtual_send_begin(struct trm_comm *comm, const void *data, size_t count, enum trm_type type, int to, int tag,
                        struct trm_request **request);
void virtual_receive_begin(struct trm_comm *comm, void *data, size_t count, enum trm_type type, int from, int tag,
                           struct trm_request **request);

/* -- virtual_window.c */
int virtual_window_create(struct trm_comm *comm, size_t count, enum trm_type type, const char *what,
                          struct trm_window **window, void **local);
void virtual_window_free(struct trm_window **window);
void virtual_get(struct trm_window *window, void *to, size_t count, int target, size_t offset);
void virtual_put(struct trm_window *window, const void *from, size_t count, int target, size_t offset);
void virtual_accumulate(struct trm_window *window, const void *from, size_t count, int target, size_t offset);
int64_t virtual_fetch_add(struct trm_window *window, int64_t value, int target, size_t offset);
void virtual_flush(struct trm_window *window, int target);

/* -- virtual_calls.c */
int virtual_calls_create(struct trm_comm *comm, const struct trm_call_plan *plan, struct trm_calls **calls);
void virtual_calls_free(struct trm_calls **calls);
void virtual_call_begin(struct trm_calls *calls, int owner, void *head, const void *in, size_t in_bytes, void *out,
                        size_t out_bytes, struct trm_request **request);
/* Answers calls that were held back, and those that wait for an owner who attends. */
void virtual_calls_check(struct virtual_rank *rank);

/* -- virtual_compute.c */
struct virtual_pool *virtual_pool_create(int threads); /* besides the ranks' thread, which computes while it waits */
void virtual_pool_free(struct virtual_pool *pool);
double virtual_pool_seconds(const struct virtual_pool *pool); /* processor seconds of computations */
int virtual_compute(struct trm_comm *comm, int (*work)(void *context), void *context, double seconds);
