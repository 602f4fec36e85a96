/* Calls in the virtual network. A call is an event: when it has arrived, and the owner has answered those before it,
 * the owner's function runs on the caller's own memory, and the request is complete when the answer has travelled back.
 * A call that is held back is tried again after each call that was not, and after a change of the owner's node. */
#include <stdio.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "mpi/virtual_private.h"

enum { CALLS_A_TIMED_ONE = 13 }; /* reading the processor's time takes almost a microsecond */

struct calls_call {
  struct calls_call *next;
  struct virtual_owner *owner;
  struct virtual_rank *caller;
  int caller_rank; /* of the communicator */
  void *head, *out;
  const void *in;
  size_t out_bytes;
  double seconds;  /* that answering it takes */
  struct trm_request *request;
};
_Static_assert(sizeof(struct calls_call) <= VIRTUAL_BLOCK, "a call is small");

/* The calls that a rank answers. */
struct virtual_owner {
  struct virtual_owner *next; /* of the same rank */
  struct virtual_rank *rank;
  struct trm_call_plan plan;
  struct calls_call *arrived, *held; /* oldest first; the first of `arrived` is being answered if busy */
  bool busy, ends;
  double free_at; /* it has computed what the latest call asked for */
  double began;   /* the answer under way */
  bool retry; /* the node has changed while held ones were tried, which takes time in a random schedule */
  struct virtual_fiber *fiber; /* random schedule: that runs the function; else NULL */
};

/* Of all ranks. */
struct calls_owners {
  int references;
  struct virtual_owner *of[]; /* (size) NULL: the rank answers no calls */
};

struct trm_calls {
  struct trm_comm *comm;
  struct trm_call_plan plan;
  struct calls_owners *owners;
  double *last_arrival; /* (size) random schedule: of the calls to each owner, which begin in order; else NULL */
};

/* -- answering */

static void calls_append(struct calls_call **list, struct calls_call *call)
{
  while (*list)
    list = &(*list)->next;
  *list = call;
  call->next = NULL;
}

static void calls_notify_caller(struct virtual_net *net, void *of)
{
  (void)net;
  virtual_check_rank(of);
}

/* The answer travels back. Its caller may wait for a condition that tests the request. */
static void calls_complete(const struct calls_call *call)
{
  const struct virtual_owner *owner = call->owner;
  struct virtual_net *net = owner->rank->net;
  const bool awaited = call->request->waiter;
  const double when = owner->free_at - net->now + virtual_transfer(owner->rank, call->caller,
                                                                   owner->plan.head_bytes + call->out_bytes);
  virtual_request_complete(call->request, when);
  if (!awaited)
    virtual_act_at(net, when, calls_notify_caller, call->caller);
}

/* Runs the function as the owner's rank. Returns false if it holds the answer back: it has then changed nothing, though
 * it may have released a lock. */
static bool calls_run(const struct calls_call *call)
{
  struct virtual_owner *owner = call->owner;
  struct virtual_net *net = owner->rank->net;
  struct trm_context *before = trm_context_current();
  struct virtual_notes mine = {false, 0}, **notes = virtual_fiber_notes(net->current), *const notes_before = *notes;
  net->event_context.rank = &owner->rank->state;
  trm_context_set(&net->event_context);
  if (owner->plan.attended) /* inside wait_until: other owners do this beside what is in their trace */
    trm_trace_add("answer", TRM_TRACE_COMPUTE, owner->began, net->now, TRM_TRACE_NO_IDS);
  owner->began = net->now;
  *notes = &mine;
  const bool timed = net->calls++ % CALLS_A_TIMED_ONE == 0;
  const double began = timed ? virtual_processor_seconds(CLOCK_THREAD_CPUTIME_ID) : 0;
  const bool answered = owner->plan.function(owner->plan.context, call->caller_rank, call->head, call->in, call->out);
  if (timed) {
    net->timed_calls++;
    net->timed_s += virtual_processor_seconds(CLOCK_THREAD_CPUTIME_ID) - began;
  }
  *notes = notes_before;
  trm_context_set(before);
  owner->free_at = fmax(owner->free_at, net->now) + mine.seconds;
  if (answered && mine.notified)
    virtual_notify_node(net, owner->rank->node);
  else if (mine.notified) /* who waits for the lock goes on; calls that are held back have nothing new */
    virtual_check_node(net, owner->rank->node);
  if (answered)
    calls_complete(call);
  return answered;
}

/* Tries the calls that were held back, from the first, until none is answered. */
static void calls_retry(struct virtual_owner *owner)
{
  int *held = &owner->rank->net->node[owner->rank->node].held;
  for (struct calls_call **link = &owner->held, *call; (call = *link);) {
    if (!calls_run(call)) {
      link = &call->next;
      continue;
    }
    *link = call->next;
    --*held;
    virtual_block_return(owner->rank->net, call);
    link = &owner->held;
  }
}

/* Answers the first call that has arrived, and what has been held back. */
static void calls_serve(struct virtual_owner *owner)
{
  struct calls_call *call = owner->arrived;
  if (call) {
    owner->arrived = call->next;
    if (calls_run(call)) {
      virtual_block_return(owner->rank->net, call);
    } else {
      calls_append(&owner->held, call);
      owner->rank->net->node[owner->rank->node].held++;
    }
  }
  do {
    owner->retry = false;
    calls_retry(owner);
  } while (owner->retry);
  owner->busy = false;
  virtual_check_rank(owner->rank);
}

static bool calls_can_answer(const struct virtual_owner *owner)
{
  return !owner->busy && (!owner->plan.attended || owner->rank->attends);
}

static void calls_answer(struct virtual_net *net, void *of);

/* Begins to answer the next call, or to try again those that were held back. */
static void calls_begin(struct virtual_owner *owner)
{
  struct virtual_net *net = owner->rank->net;
  const double seconds = fmax(owner->free_at - net->now, 0) + (owner->arrived ? owner->arrived->seconds : 0);
  owner->busy = true;
  owner->began = net->now;
  if (owner->fiber)
    virtual_resume_at(net, net->now + seconds, owner->fiber);
  else if (seconds > 0)
    virtual_act_at(net, net->now + seconds, calls_answer, owner);
  else
    calls_serve(owner);
}

static void calls_begin_arrived(struct virtual_owner *owner)
{
  while (owner->arrived && calls_can_answer(owner))
    calls_begin(owner);
}

static void calls_answer(struct virtual_net *net, void *of)
{
  (void)net;
  calls_serve(of);
  calls_begin_arrived(of);
}

/* In a random schedule functions may have to wait for a lock: a fiber of the owner's runs them. */
static void calls_attend(void *of)
{
  struct virtual_owner *owner = of;
  struct virtual_net *net = owner->rank->net;
  while (!owner->ends) {
    virtual_park(net, NULL, NULL);
    if (!owner->busy)
      continue;
    calls_serve(owner);
    calls_begin_arrived(owner);
  }
}

void virtual_calls_check(struct virtual_rank *rank)
{
  for (struct virtual_owner *owner = rank->owners; owner; owner = owner->next) {
    owner->retry = owner->busy;
    if (owner->held && calls_can_answer(owner))
      calls_begin(owner);
    calls_begin_arrived(owner);
  }
}

static void calls_arrive(struct virtual_net *net, void *of)
{
  struct calls_call *call = of;
  (void)net;
  calls_append(&call->owner->arrived, call);
  calls_begin_arrived(call->owner);
}

/* -- calling */

static void calls_describe(const void *of, char *text, size_t bytes)
{
  const struct trm_request *request = of;
  snprintf(text, bytes, "the answer of rank %d to a call", request->group->member[request->to]);
}

void virtual_call_begin(struct trm_calls *calls, int owner, void *head, const void *in, size_t in_bytes, void *out,
                        size_t out_bytes, struct trm_request **request)
{
  struct trm_comm *comm = calls->comm;
  const struct virtual_group *group = virtual_of(comm)->group;
  struct virtual_net *net = group->net;
  in_bytes = in ? in_bytes : 0;
  out_bytes = out ? out_bytes : 0;
  if (owner < 0 || owner >= comm->size || owner == comm->rank || !calls->owners->of[owner])
    virtual_fail(net, "call of rank %d by rank %d of %d: it answers no calls, or is the caller", owner, comm->rank,
                 comm->size);
  if (in_bytes > calls->plan.max_bytes || out_bytes > calls->plan.max_bytes)
    virtual_fail(net, "call with %zu bytes to send and %zu to return, of at most %zu", in_bytes, out_bytes,
                 calls->plan.max_bytes);
  struct virtual_rank *caller = virtual_rank_of(comm), *at = virtual_rank_at(group, owner);
  *request = virtual_request_create(net, calls_describe);
  (*request)->group = virtual_of(comm)->group;
  (*request)->to = owner;
  struct calls_call *call = virtual_block_take(net);
  *call = (struct calls_call){
    .owner = calls->owners->of[owner], .caller = caller, .caller_rank = comm->rank, .head = head, .out = out, .in = in,
    .out_bytes = out_bytes, .request = *request,
    .seconds = net->plan.service + (double)(in_bytes + out_bytes) * net->plan.service_per_byte};
  double arrives = (*request)->arrives = virtual_transfer(caller, at, calls->plan.head_bytes + in_bytes);
  if (calls->last_arrival)
    calls->last_arrival[owner] = arrives = fmax(arrives, nextafter(calls->last_arrival[owner], INFINITY));
  virtual_act_at(net, arrives, calls_arrive, call);
}

/* -- creation */

struct calls_part {
  struct virtual_owner *owner;
  struct calls_owners *owners;
};

static void calls_create_all(struct virtual_collective *collective)
{
  const int size = collective->group->size;
  struct calls_owners *owners = trm_alloc(sizeof *owners + (size_t)size * sizeof *owners->of, "calls");
  owners->references = size;
  for (int i = 0; i < size; i++) {
    struct calls_part *part = collective->part[i].data;
    owners->of[i] = part->owner;
    part->owners = owners;
  }
}

int virtual_calls_create(struct trm_comm *comm, const struct trm_call_plan *plan, struct trm_calls **calls)
{
  struct virtual_rank *rank = virtual_rank_of(comm);
  const struct virtual_shape shape = {.kind = VIRTUAL_INTERNAL, .work = calls_create_all, .count = plan->max_bytes,
                                      .root = (int)plan->head_bytes, .name = "calls_create"};
  struct calls_part part = {NULL, NULL};
  if (plan->owner[comm->rank]) {
    part.owner = trm_alloc(sizeof *part.owner, "calls");
    *part.owner = (struct virtual_owner){.next = rank->owners, .rank = rank, .plan = *plan};
    rank->owners = part.owner;
    if (rank->net->plan.schedule)
      part.owner->fiber = virtual_fiber_create(rank->net, rank, calls_attend, part.owner);
  }
  virtual_collective_run(comm, &shape, (struct virtual_part){.data = &part});
  struct trm_calls *created = trm_alloc(sizeof *created, "calls");
  *created = (struct trm_calls){.comm = comm, .plan = *plan, .owners = part.owners};
  if (rank->net->plan.schedule)
    created->last_arrival = trm_alloc((size_t)comm->size * sizeof(double), "calls");
  *calls = created;
  return TRM_OK;
}

void virtual_calls_free(struct trm_calls **calls)
{
  struct trm_calls *it = *calls;
  if (!it)
    return;
  virtual_barrier(it->comm);
  struct virtual_rank *rank = virtual_rank_of(it->comm);
  struct virtual_owner *owner = it->owners->of[it->comm->rank];
  if (owner) {
    if (owner->arrived || owner->held)
      virtual_fail(rank->net, "calls_free: rank %d has calls that are not answered", it->comm->rank);
    struct virtual_owner **link = &rank->owners;
    while (*link != owner)
      link = &(*link)->next;
    *link = owner->next;
    if (owner->fiber) {
      owner->ends = true;
      virtual_resume_at(rank->net, rank->net->now, owner->fiber);
      virtual_fiber_join(owner->fiber);
    }
    trm_free(owner);
  }
  if (--it->owners->references == 0)
    trm_free(it->owners);
  trm_free(it->last_arrival);
  trm_free(it);
  *calls = NULL;
}
