/* Calls between nodes, and to dedicated servers. Each caller has DEPTH slots in the window of each owner, and as many
 * for the replies in its own window: while one call is served the next one travels.
 *
 *   caller                                owner
 *     put head and payload, flush   -->     slot
 *     put the number, flush         -->     sees a new number: runs the handler
 *     slot of the reply             <--     put head and payload, flush
 *     sees the number               <--     put the number, flush
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <time.h>

#include "core/context.h"
#include "core/memory.h"
#include "core/status.h"
#include "mpi/async/param_server_private.h"

#define DEPTH 2
/* The server thread sleeps between polls: at 1 ms it takes 2 % of a core. After a call it polls often for BUSY_S, since
 * a model has many chunks. */
#define SLEEP_NS 1000000L
#define SHORT_SLEEP_NS 10000L
#define BUSY_S 1e-3

/* Head of a call and of its reply. */
struct message_head {
  _Atomic uint64_t number; /* 1, 2, .. in each slot: put last */
  int64_t replica;
  uint64_t chunk;
  int64_t clock;           /* that the caller has last seen; after the call */
  struct server_call call; /* in, out: not NULL if a payload comes, is to be returned */
};
#define HEAD_BYTES ((size_t)128)
_Static_assert(sizeof(struct message_head) <= HEAD_BYTES, "a head fits");

/* One of the caller's slots at an owner. */
struct remote_call {
  uint64_t number;
  bool pending;
  size_t chunk;
};

struct remote {
  struct trm_window *window;
  char *local;
  size_t slot_bytes;
  struct remote_call *calls; /* (owners, DEPTH) */
  uint64_t *answered;        /* (ranks, DEPTH) at an owner: the number of the latest call */
  float *scratch;            /* (chunk) at an owner: the values to return */
  bool threaded;
  pthread_t thread;
  _Atomic bool stop;
};

static size_t remote_inbox(const struct param_server *s, int rank)
{
  return server_is_owner(s, rank) ? (size_t)s->plan.comm->size * DEPTH * s->remote->slot_bytes : 0;
}

/* Byte offset, in the caller's window, of the reply to its call number i: the one that has place i in remote.calls. */
static size_t remote_reply_at(const struct param_server *s, int caller, int i)
{
  return remote_inbox(s, caller) + (size_t)i * s->remote->slot_bytes;
}

/* Puts the message, then its number. payload: the values of the chunk, or NULL. */
static void remote_deliver(struct param_server *s, int to, size_t offset, const struct message_head *head,
                           const float *payload)
{
  struct remote *r = s->remote;
  const struct trm_comm_ops *ops = s->plan.comm->ops;
  const size_t after = sizeof head->number;
  ops->put(r->window, (const char *)head + after, sizeof *head - after, to, offset + after);
  if (payload)
    ops->put(r->window, payload, server_chunk_size(s->plan.elements, head->chunk) * sizeof *payload, to,
             offset + HEAD_BYTES);
  ops->flush(r->window, to);
  ops->put(r->window, &head->number, after, to, offset);
  ops->flush(r->window, to);
}

/* True if the slot at this offset of this rank's window holds the message with this number. */
static bool remote_has_arrived(const struct param_server *s, size_t offset, uint64_t number)
{
  const struct message_head *head = (const struct message_head *)(s->remote->local + offset);
  return atomic_load_explicit(&head->number, memory_order_acquire) == number;
}

/* -- at the owner */

/* slot: of this rank's inbox, where each caller has DEPTH. */
static void remote_reply(struct param_server *s, int slot)
{
  struct remote *r = s->remote;
  const struct message_head *request = (const struct message_head *)(r->local + (size_t)slot * r->slot_bytes);
  const int caller = slot / DEPTH, mine = (s->plan.comm->rank - s->first_owner) * DEPTH;
  struct message_head reply = {.number = request->number, .chunk = request->chunk, .call = request->call};
  reply.call.in = request->call.in ? (const float *)((const char *)request + HEAD_BYTES) : NULL;
  reply.call.out = request->call.out ? r->scratch : NULL;
  reply.clock = param_server_run(s, (int)request->replica, request->chunk, request->clock, &reply.call);
  remote_deliver(s, caller, remote_reply_at(s, caller, mine + slot % DEPTH), &reply, reply.call.out);
}

/* Answers the calls that have arrived. Called by one thread of an owner only. */
static bool remote_reply_all(struct param_server *s)
{
  struct remote *r = s->remote;
  struct trm_comm *comm = s->plan.comm;
  bool any = false;
  comm->ops->flush(r->window, comm->rank); /* makes others' puts visible */
  for (int slot = 0; slot < comm->size * DEPTH; slot++) {
    if (!remote_has_arrived(s, (size_t)slot * r->slot_bytes, r->answered[slot] + 1))
      continue;
    r->answered[slot]++;
    remote_reply(s, slot);
    any = true;
  }
  return any;
}

static void *remote_thread(void *context)
{
  struct param_server *s = context;
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, NULL); /* signals go to the main thread */
  double last_call = -BUSY_S;
  while (!atomic_load_explicit(&s->remote->stop, memory_order_relaxed)) {
    const double now = s->plan.comm->ops->clock(s->plan.comm);
    if (remote_reply_all(s)) /* its flush also makes MPI progress */
      last_call = now;
    else
      nanosleep(&(struct timespec){.tv_nsec = now - last_call < BUSY_S ? SHORT_SLEEP_NS : SLEEP_NS}, NULL);
  }
  return NULL;
}

bool param_server_poll(struct param_server *s)
{
  return s->remote && s->remote->answered && !s->remote->threaded && remote_reply_all(s);
}

/* -- at the caller */

/* Receives the replies that have arrived. */
static void remote_collect_replies(struct param_server *s, const struct server_request *request, int64_t *staleness)
{
  struct remote *r = s->remote;
  struct trm_comm *comm = s->plan.comm;
  bool any = false;
  comm->ops->flush(r->window, comm->rank);
  for (int i = 0; i < s->owners * DEPTH; i++) {
    struct remote_call *call = &r->calls[i];
    const size_t offset = remote_reply_at(s, comm->rank, i);
    if (!call->pending || !remote_has_arrived(s, offset, call->number))
      continue;
    const struct message_head *head = (const struct message_head *)(r->local + offset);
    if (request->out)
      memcpy(request->out + call->chunk * SERVER_CHUNK, (const char *)head + HEAD_BYTES,
             server_chunk_size(s->plan.elements, call->chunk) * sizeof(float));
    server_call_done(request, call->chunk, head->clock, &head->call, staleness);
    call->pending = false;
    any = true;
  }
  if (!any)
    comm->ops->progress(comm);
}

void remote_post(struct param_server *s, int owner, size_t chunk, const struct server_request *request,
                 int64_t *staleness)
{
  struct remote *r = s->remote;
  struct remote_call *calls = &r->calls[(owner - s->first_owner) * DEPTH];
  int depth = 0;
  while (calls[depth].pending)
    if (++depth == DEPTH) {
      remote_collect_replies(s, request, staleness);
      depth = 0;
    }
  struct remote_call *call = &calls[depth];
  *call = (struct remote_call){.number = call->number + 1, .pending = true, .chunk = chunk};
  const struct message_head head = {
    .number = call->number,
    .replica = request->replica,
    .chunk = chunk,
    .clock = request->seen ? request->seen[chunk] : 0,
    .call = server_call_of(s, request, chunk),
  };
  remote_deliver(s, owner, (size_t)(s->plan.comm->rank * DEPTH + depth) * r->slot_bytes, &head, head.call.in);
}

void remote_await(struct param_server *s, const struct server_request *request, int64_t *staleness)
{
  for (int i = 0; i < s->owners * DEPTH; i++)
    while (s->remote->calls[i].pending)
      remote_collect_replies(s, request, staleness);
}

/* -- creation */

int remote_create(struct param_server *s)
{
  struct trm_comm *comm = s->plan.comm;
  struct remote *r = trm_alloc(sizeof *r, "the parameter server");
  s->remote = r;
  const size_t chunk = s->plan.elements < SERVER_CHUNK ? s->plan.elements : SERVER_CHUNK;
  r->slot_bytes = HEAD_BYTES + (chunk * sizeof(float) + 63) / 64 * 64;
  const size_t calls = remote_inbox(s, comm->rank);
  const size_t bytes = calls + (size_t)s->owners * DEPTH * r->slot_bytes;
  r->calls = trm_alloc((size_t)s->owners * DEPTH * sizeof *r->calls, "the parameter server");
  void *memory;
  TRM_CHECK(comm->ops->window_create(comm, bytes, TRM_BYTE, "calls of the parameter server", &r->window, &memory));
  r->local = memory;
  if (calls == 0)
    return TRM_OK;
  r->answered = trm_alloc((size_t)comm->size * DEPTH * sizeof *r->answered, "the parameter server");
  r->scratch = trm_alloc(chunk * sizeof *r->scratch, "the parameter server");
  if (s->plan.servers == 0) {
    r->threaded = trm_context_start_thread(&r->thread, remote_thread, s) == 0;
    if (!r->threaded)
      return trm_error(TRM_FAILED, "the parameter server: cannot begin a thread");
  }
  return TRM_OK;
}

void remote_free(struct param_server *s)
{
  struct remote *r = s->remote;
  s->plan.comm->ops->barrier(s->plan.comm); /* no further calls */
  if (r->threaded) {
    atomic_store(&r->stop, true);
    pthread_join(r->thread, NULL);
  }
  s->plan.comm->ops->window_free(&r->window);
  trm_free(r->scratch);
  trm_free(r->answered);
  trm_free(r->calls);
  trm_free(r);
  s->remote = NULL;
}
