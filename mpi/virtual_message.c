/* The modeled network, and messages between two ranks. Nodes have a link each, which one message at a time uses in each
 * direction; messages inside a node do not wait for one another. */
#include <stdio.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "mpi/virtual_private.h"

/* A message of at most so many bytes is copied when it is sent, so that its sender need not wait for the receiver. */
#define EAGER_BYTES ((size_t)64 << 10)

/* -- links */

double virtual_transfer(const struct virtual_rank *from, const struct virtual_rank *to, size_t bytes)
{
  struct virtual_net *net = from->net;
  const double delay = virtual_random_delay(net);
  if (from->node == to->node)
    return net->now + net->plan.node_latency + (double)bytes * net->plan.node_s_per_byte + delay;
  const double seconds = (double)bytes / net->plan.bandwidth;
  struct virtual_node *sender = &net->node[from->node], *receiver = &net->node[to->node];
  const double leaves = fmax(net->now, sender->send_free);
  const double begins = fmax(leaves + net->plan.latency, receiver->receive_free);
  sender->send_free = leaves + seconds;
  receiver->receive_free = begins + seconds;
  net->figures.messages++;
  net->figures.bytes += bytes;
  return begins + seconds + delay;
}

/* Latencies and bytes through a link, of the usual algorithms for K nodes, or K ranks of one node: a tree; recursive
 * doubling or, with twice the messages, a reduce-scatter and an allgather (Thakur, Rabenseifner and Gropp 2005). */
static double message_collective_seconds(const struct virtual_collective *collective, double *link_s)
{
  const struct trm_virtual_plan *plan = &collective->group->net->plan;
  const struct virtual_shape *shape = &collective->shape;
  const int ranks = collective->group->size;
  const bool on_node = collective->group->nodes == 1;
  const double k = on_node ? ranks : collective->group->nodes, steps = ceil(log2(k)), share = (k - 1) / k;
  const double latency = on_node ? plan->node_latency : plan->latency;
  const double bytes = (double)(shape->count * trm_type_bytes(shape->type));
  const double s = on_node ? bytes * plan->node_s_per_byte : bytes / plan->bandwidth;
  double latencies = steps;
  *link_s = 0;
  switch (shape->kind) {
  case VIRTUAL_BROADCAST:
    *link_s = s;
    break;
  case VIRTUAL_ALLREDUCE:
    *link_s = steps * s;
    if (2 * steps * latency + 2 * share * s < steps * (latency + s)) {
      latencies = 2 * steps;
      *link_s = 2 * share * s;
    }
    break;
  case VIRTUAL_ALLGATHER:
  case VIRTUAL_REDUCE_SCATTER:
    *link_s = share * s * ranks;
    break;
  default:
    break;
  }
  return latencies * latency;
}

double virtual_collective_end(const struct virtual_collective *collective)
{
  const struct virtual_group *group = collective->group;
  struct virtual_net *net = group->net;
  if (group->process)
    return net->now;
  double begins = net->now, link_s;
  const double latency_s = message_collective_seconds(collective, &link_s);
  const bool uses_links = group->nodes > 1 && link_s > 0;
  for (int i = 0; uses_links && i < group->size; i++) {
    const struct virtual_node *node = &net->node[virtual_rank_at(group, i)->node];
    begins = fmax(begins, fmax(node->send_free, node->receive_free));
  }
  for (int i = 0; uses_links && i < group->size; i++) {
    struct virtual_node *node = &net->node[virtual_rank_at(group, i)->node];
    node->send_free = node->receive_free = begins + link_s;
  }
  return begins + latency_s + link_s;
}

/* -- messages. A message is matched with a receive in the order in which messages were sent. */

static void message_describe(const void *of, char *text, size_t bytes)
{
  const struct trm_request *request = of;
  const int *member = request->group->member;
  if (request->receives)
    snprintf(text, bytes, "a message from rank %d with tag %d", member[request->from], request->tag);
  else
    snprintf(text, bytes, "its message of %zu bytes with tag %d to be received by rank %d", request->bytes,
             request->tag, member[request->to]);
}

/* Moves the data of a message to its receive, and completes both. */
static void message_deliver(struct trm_request *message, struct trm_request *receive)
{
  struct virtual_net *net = message->net;
  if (message->bytes > receive->bytes)
    virtual_fail(net, "message from rank %d to rank %d with tag %d: %zu bytes sent, room for %zu", message->from,
                 message->to, message->tag, message->bytes, receive->bytes);
  if (message->bytes > 0)
    memcpy(receive->data, message->data, message->bytes);
  virtual_request_complete(receive, fmax(net->now, message->arrives));
  if (message->copied)
    virtual_block_return(net, message); /* its sender has no request for it */
  else
    virtual_request_complete(message, fmax(net->now, message->arrives));
}

/* Removes the first request of the list that matches; NULL: there is none. */
static struct trm_request *message_take(struct virtual_list *list, const struct trm_request *other)
{
  struct trm_request *before = NULL;
  for (struct trm_request *it = list->first; it; before = it, it = it->next)
    if (it->group == other->group && it->from == other->from && it->tag == other->tag && it->to == other->to) {
      *(before ? &before->next : &list->first) = it->next;
      list->last = it->next ? list->last : before;
      return it;
    }
  return NULL;
}

static void message_append(struct virtual_list *list, struct trm_request *request)
{
  *(list->first ? &list->last->next : &list->first) = request;
  list->last = request;
  request->next = NULL;
}

static struct trm_request *message_create(struct trm_comm *comm, int from, int to, int tag, size_t bytes)
{
  struct trm_request *request = virtual_request_create(virtual_net_of(comm), message_describe);
  request->group = virtual_of(comm)->group;
  request->from = from;
  request->to = to;
  request->tag = tag;
  request->bytes = bytes;
  if (from < 0 || to < 0 || from >= comm->size || to >= comm->size)
    virtual_fail(request->net, "message from rank %d to rank %d of a communicator of %d", from, to, comm->size);
  return request;
}

/* A small message is copied and its sender goes on, in a random schedule not always. */
void virtual_send_begin(struct trm_comm *comm, const void *data, size_t count, enum trm_type type, int to, int tag,
                        struct trm_request **request)
{
  const size_t bytes = count * trm_type_bytes(type);
  struct trm_request *message = message_create(comm, comm->rank, to, tag, bytes);
  struct virtual_net *net = message->net;
  struct virtual_rank *receiver = virtual_rank_at(message->group, to);
  message->data = (void *)(uintptr_t)data;
  message->arrives = virtual_transfer(virtual_rank_of(comm), receiver, bytes);
  struct trm_request *receive = message_take(&receiver->receives, message);
  message->copied = bytes <= EAGER_BYTES && !(net->plan.schedule && virtual_random_word(net) % 2);
  *request = message->copied ? NULL : message;
  if (receive) {
    message_deliver(message, receive);
    return;
  }
  if (message->copied) {
    message->data = trm_alloc(bytes, "a message");
    memcpy(message->data, data, bytes);
  }
  message_append(&receiver->messages, message);
}

void virtual_receive_begin(struct trm_comm *comm, void *data, size_t count, enum trm_type type, int from, int tag,
                           struct trm_request **request)
{
  struct trm_request *receive = message_create(comm, from, comm->rank, tag, count * trm_type_bytes(type));
  struct virtual_rank *rank = virtual_rank_of(comm);
  receive->receives = true;
  receive->data = data;
  *request = receive;
  struct trm_request *message = message_take(&rank->messages, receive);
  if (!message) {
    message_append(&rank->receives, receive);
    return;
  }
  void *copy = message->copied ? message->data : NULL;
  message_deliver(message, receive);
  trm_free(copy);
}
