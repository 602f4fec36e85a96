/* Waiting in the virtual network: for requests, for conditions, for a time. */
#include <stdio.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "mpi/virtual_private.h"

/* -- small objects */

struct wait_block {
  struct wait_block *next;
};

void *virtual_block_take(struct virtual_net *net)
{
  struct wait_block *block = net->spare;
  if (!block)
    return trm_alloc(VIRTUAL_BLOCK, "requests");
  net->spare = block->next;
  return memset(block, 0, VIRTUAL_BLOCK);
}

void virtual_block_return(struct virtual_net *net, void *returned)
{
  struct wait_block *block = returned;
  block->next = net->spare;
  net->spare = block;
}

void virtual_blocks_free(struct virtual_net *net)
{
  for (struct wait_block *block = net->spare, *next; block; block = next) {
    next = block->next;
    trm_free(block);
  }
}

/* -- requests */

/* Incomplete requests that may be found while nothing else happens: no virtual time passes in a loop that polls. */
enum { MAX_POLLS = 1000000 };

_Static_assert(sizeof(struct trm_request) <= VIRTUAL_BLOCK, "a request is small");

struct trm_request *virtual_request_create(struct virtual_net *net, virtual_describe *describe)
{
  struct trm_request *request = virtual_block_take(net);
  request->net = net;
  request->when = INFINITY;
  request->describe = describe;
  return request;
}

void virtual_request_complete(struct trm_request *request, double when)
{
  request->when = when;
  request->flows = request->net->now;
  if (request->waiter)
    virtual_resume_at(request->net, when, request->waiter);
  request->waiter = NULL;
}

void virtual_trace(struct virtual_net *net, const char *name, enum trm_trace_kind kind, double began)
{
  if (!*virtual_fiber_notes(net->current))
    trm_trace_add(name, kind, began, net->now, TRM_TRACE_NO_IDS);
}

void virtual_trace_request(const struct trm_request *request, double began)
{
  struct virtual_net *net = request->net;
  if (*virtual_fiber_notes(net->current) || !trm_trace_on())
    return;
  const double ended = net->now, arrives = fmin(fmax(request->arrives, began), ended),
               flows = fmin(fmax(request->flows, arrives), ended);
  trm_trace_add("transfer", TRM_TRACE_COMMUNICATION, began, arrives, TRM_TRACE_NO_IDS);
  trm_trace_add("wait for ranks", TRM_TRACE_WAIT, arrives, flows, TRM_TRACE_NO_IDS);
  trm_trace_add("transfer", TRM_TRACE_COMMUNICATION, flows, ended, TRM_TRACE_NO_IDS);
}

void virtual_request_wait(struct trm_request *request)
{
  struct virtual_net *net = request->net;
  const double began = net->now;
  if (request->when < INFINITY) {
    virtual_sleep_until(net, request->when);
  } else {
    request->waiter = net->current;
    virtual_park(net, request->describe, request);
  }
  virtual_trace_request(request, began);
}

static void wait_free_request(struct trm_request **request)
{
  if (!(*request)->placed)
    virtual_block_return((*request)->net, *request);
  *request = NULL;
}

bool virtual_test(struct trm_request **request)
{
  if (!*request)
    return true;
  struct virtual_net *net = (*request)->net;
  if ((*request)->when > net->now) {
    if (++net->polls > MAX_POLLS) {
      char what[256];
      (*request)->describe(*request, what, sizeof what);
      virtual_fail(net, "a rank polls for %s, which takes no virtual time: use wait", what);
    }
    return false;
  }
  wait_free_request(request);
  return true;
}

void virtual_wait(struct trm_request **request)
{
  if (!*request)
    return;
  virtual_request_wait(*request);
  wait_free_request(request);
}

/* -- conditions */

static void wait_describe_condition(const void *of, char *text, size_t bytes)
{
  const struct virtual_waiter *waiter = of;
  snprintf(text, bytes, "a condition in wait_until%s",
           waiter->until(waiter->context) ? ", which has come true without notify" : "");
}

/* Resumes the waiters of the node, or of one of its ranks, whose conditions are true. */
static void wait_check(struct virtual_net *net, struct virtual_node *node, const struct virtual_rank *rank)
{
  for (struct virtual_waiter **link = &node->waiting, *waiter; (waiter = *link);)
    if ((!rank || rank == waiter->rank) && waiter->until(waiter->context)) {
      *link = waiter->next;
      waiter->met = true;
      if (waiter->timed)
        virtual_resume_cancel(net, waiter->fiber);
      virtual_resume_at(net, net->now + virtual_random_delay(net), waiter->fiber);
    } else {
      link = &waiter->next;
    }
}

void virtual_check_rank(struct virtual_rank *rank)
{
  wait_check(rank->net, &rank->net->node[rank->node], rank);
}

void virtual_check_node(struct virtual_net *net, int node)
{
  wait_check(net, &net->node[node], NULL);
}

static void wait_append(struct virtual_waiter *waiter)
{
  struct virtual_waiter **end = &waiter->rank->net->node[waiter->rank->node].waiting;
  while (*end)
    end = &(*end)->next;
  *end = waiter;
}

void virtual_wait_until(struct trm_comm *comm, bool (*done)(void *context), void *context)
{
  struct virtual_rank *rank = virtual_rank_of(comm);
  struct virtual_net *net = rank->net;
  struct virtual_waiter waiter = {.rank = rank, .fiber = net->current, .until = done, .context = context};
  const double began = net->now;
  if (net->plan.schedule) /* the rank may be stopped before it acquires a lock, and after */
    virtual_sleep_until(net, net->now + virtual_random_delay(net));
  if (done(context)) {
    if (net->plan.schedule)
      virtual_sleep_until(net, net->now + virtual_random_delay(net));
    return;
  }
  wait_append(&waiter);
  rank->attends = true;
  virtual_calls_check(rank);
  virtual_park(net, wait_describe_condition, &waiter);
  rank->attends = false;
  virtual_trace(net, "wait", TRM_TRACE_WAIT, began);
}

bool virtual_wait_at_most(struct trm_comm *comm, bool (*done)(void *context), void *context, double when)
{
  struct virtual_rank *rank = virtual_rank_of(comm);
  struct virtual_net *net = rank->net;
  struct virtual_waiter waiter = {
    .rank = rank, .fiber = net->current, .until = done, .context = context, .timed = true};
  when += virtual_random_delay(net);
  if (done(context))
    return true;
  if (when <= net->now || net->events == 0 || net->event[0].time > when) { /* nothing happens before */
    virtual_sleep_until(net, when);
    return false;
  }
  wait_append(&waiter);
  virtual_resume_at(net, when, waiter.fiber);
  virtual_park(net, wait_describe_condition, &waiter);
  struct virtual_waiter **link = &net->node[rank->node].waiting;
  while (!waiter.met && *link != &waiter)
    link = &(*link)->next;
  if (!waiter.met)
    *link = waiter.next;
  return waiter.met;
}

static void wait_check_node(struct virtual_net *net, void *of)
{
  struct virtual_node *node = of;
  const int first = (int)(node - net->node) * net->plan.ranks_per_node, end = first + net->plan.ranks_per_node;
  node->check_due = false;
  wait_check(net, node, NULL);
  for (int i = first; node->held > 0 && i < end && i < net->plan.ranks; i++)
    virtual_calls_check(&net->rank[i]);
}

void virtual_notify_node(struct virtual_net *net, int number)
{
  struct virtual_node *node = &net->node[number];
  if (node->check_due || (!node->waiting && node->held == 0))
    return;
  node->check_due = true;
  virtual_act_at(net, net->now, wait_check_node, node);
}

void virtual_notify(struct trm_comm *comm)
{
  const struct virtual_group *group = virtual_of(comm)->group;
  struct virtual_notes *notes = *virtual_fiber_notes(group->net->current);
  if (notes)
    notes->notified = true;
  else if (group->nodes == 1)
    virtual_notify_node(group->net, virtual_rank_of(comm)->node);
  else
    for (int i = 0; i < group->net->nodes; i++)
      virtual_notify_node(group->net, i);
}

void virtual_sleep_until_slot(struct trm_comm *comm, double when, bool progress)
{
  struct virtual_net *net = virtual_net_of(comm);
  (void)progress;
  virtual_sleep_until(net, when + virtual_random_delay(net));
}
