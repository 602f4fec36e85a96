/* Calls between nodes, and to dedicated servers. Each caller has DEPTH slots in the window of each home, and as many
 * for the answers in its own: while one call is worked on the next one travels.
 *
 *   caller                                home
 *     put head and payload, flush   -->     slot
 *     put the number, flush         -->     sees a new number: runs the function
 *     answer's slot                 <--     put head and payload, flush
 *     sees the number               <--     put the number, flush
 * / */
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <time.h>

#include "core/memory.h"
#include "core/status.h"
#include "mpi/async/service_private.h"

#define DEPTH 2
/* Nanoseconds between two looks of the thread: a core loses 2 % by naps of a millisecond. Who has just called will call
 * again, since a model has many pieces. */
#define NAP 1000000L
#define SHORT_NAP 10000L
#define BUSY_S 1e-3 /* how long after a call the naps are short */

/* The same for a call and its answer. */
struct head {
  _Atomic uint64_t number; /* 1, 2, ..: put last */
  int32_t object, kind, has_in, wants_out;
  uint64_t piece;
  int64_t seen, late;
  double value[SERVICE_VALUES], each;
};
#define HEAD_BYTES ((size_t)128)
_Static_assert(sizeof(struct head) <= HEAD_BYTES, "a head has its room");

/* One of the caller's slots at a home. */
struct sent {
  uint64_t number;
  bool pending;
  size_t piece;
};

struct remote {
  struct trm_window *window;
  char *own;
  size_t slot_bytes;
  struct sent *sent;             /* (homes, DEPTH) */
  uint64_t *answered;            /* (ranks, DEPTH) at a home: the number of the latest call */
  float *scratch;                /* (piece) at a home: what the function gives back */
  bool threaded;
  pthread_t thread;
  _Atomic bool stop;
};

static size_t calls_bytes(const struct service *s, int rank)
{
  const bool home = rank >= s->first_home && rank < s->first_home + s->homes;
  return home ? (size_t)s->plan.comm->size * DEPTH * s->remote->slot_bytes : 0;
}

/* Offset of a caller's slot in the window of a home, and of its answer in the caller's. */
static size_t slot_at(const struct service *s, int caller, int depth)
{
  return ((size_t)caller * DEPTH + (size_t)depth) * s->remote->slot_bytes;
}

static size_t answer_at(const struct service *s, int caller, int home, int depth)
{
  return calls_bytes(s, caller) + ((size_t)(home - s->first_home) * DEPTH + (size_t)depth) * s->remote->slot_bytes;
}

static size_t piece_elements(const struct service *s, size_t piece)
{
  const size_t left = s->plan.elements - piece * SERVICE_PIECE;
  return left < SERVICE_PIECE ? left : SERVICE_PIECE;
}

/* Puts all but the number, then the number. */
static void deliver(struct service *s, int to, size_t offset, const struct head *head, const float *payload, size_t n)
{
  struct remote *r = s->remote;
  const struct trm_comm_ops *ops = s->plan.comm->ops;
  const size_t after = sizeof head->number;
  ops->put(r->window, (const char *)head + after, sizeof *head - after, to, offset + after);
  if (payload)
    ops->put(r->window, payload, n * sizeof *payload, to, offset + HEAD_BYTES);
  ops->flush(r->window, to);
  ops->put(r->window, &head->number, after, to, offset);
  ops->flush(r->window, to);
}

/* Has the slot at this offset of the own window got this number? */
static bool has_come(const struct service *s, size_t offset, uint64_t number)
{
  const struct head *head = (const struct head *)(s->remote->own + offset);
  return atomic_load_explicit(&head->number, memory_order_acquire) == number;
}

/* -- at the home */

static void answer(struct service *s, int caller, int depth)
{
  struct remote *r = s->remote;
  const struct head *asked = (const struct head *)(r->own + slot_at(s, caller, depth));
  const size_t n = piece_elements(s, asked->piece);
  struct service_call call = {
    .kind = asked->kind,
    .from = caller,
    .each = asked->each,
    .in = asked->has_in ? (const float *)((const char *)asked + HEAD_BYTES) : NULL,
    .out = asked->wants_out ? r->scratch : NULL,
  };
  memcpy(call.value, asked->value, sizeof call.value);
  struct head back = {.number = asked->number, .piece = asked->piece};
  back.seen = service_run(s, asked->object, asked->piece, asked->seen, &call);
  back.late = call.late;
  back.each = call.each;
  deliver(s, caller, answer_at(s, caller, s->plan.comm->rank, depth), &back, call.out, n);
}

/* Answers what has come. By one thread of a home alone. */
static bool answer_all(struct service *s)
{
  struct remote *r = s->remote;
  bool any = false;
  s->plan.comm->ops->flush(r->window, s->plan.comm->rank); /* what others have put is seen */
  for (int caller = 0; caller < s->plan.comm->size; caller++)
    for (int depth = 0; depth < DEPTH; depth++) {
      uint64_t *answered = &r->answered[caller * DEPTH + depth];
      if (!has_come(s, slot_at(s, caller, depth), *answered + 1))
        continue;
      ++*answered;
      answer(s, caller, depth);
      any = true;
    }
  return any;
}

static void *look_after_callers(void *context)
{
  struct service *s = context;
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, NULL); /* signals are for the rank itself */
  double called = -BUSY_S;
  while (!atomic_load_explicit(&s->remote->stop, memory_order_relaxed)) {
    const double now = s->plan.comm->ops->clock(s->plan.comm);
    if (answer_all(s)) /* looks through MPI, and so lets it work */
      called = now;
    else
      nanosleep(&(struct timespec){.tv_nsec = now - called < BUSY_S ? SHORT_NAP : NAP}, NULL);
  }
  return NULL;
}

bool remote_work(struct service *s)
{
  return s->remote->answered && !s->remote->threaded && answer_all(s);
}

/* -- at the caller */

/* Takes the answers that have come. */
static void collect(struct service *s, const struct service_request *request, int64_t *late)
{
  struct remote *r = s->remote;
  struct trm_comm *comm = s->plan.comm;
  bool any = false;
  comm->ops->flush(r->window, comm->rank);
  for (int i = 0; i < s->homes * DEPTH; i++) {
    struct sent *sent = &r->sent[i];
    const size_t offset = answer_at(s, comm->rank, s->first_home + i / DEPTH, i % DEPTH);
    if (!sent->pending || !has_come(s, offset, sent->number))
      continue;
    const struct head *head = (const struct head *)(r->own + offset);
    if (request->out)
      memcpy(request->out + sent->piece * SERVICE_PIECE, (const char *)head + HEAD_BYTES,
             piece_elements(s, sent->piece) * sizeof(float));
    if (request->seen && request->out)
      request->seen[sent->piece] = head->seen;
    if (request->each)
      request->each[sent->piece] = head->each;
    if (head->late > *late)
      *late = head->late;
    sent->pending = false;
    any = true;
  }
  if (!any)
    comm->ops->progress(comm);
}

void remote_post(struct service *s, int home, size_t piece, const struct service_request *request, int64_t *late)
{
  struct remote *r = s->remote;
  int depth = 0;
  while (r->sent[(home - s->first_home) * DEPTH + depth].pending)
    if (++depth == DEPTH) {
      collect(s, request, late);
      depth = 0;
    }
  struct sent *sent = &r->sent[(home - s->first_home) * DEPTH + depth];
  *sent = (struct sent){.number = sent->number + 1, .pending = true, .piece = piece};
  struct head head = {
    .number = sent->number,
    .object = request->object,
    .kind = request->kind,
    .has_in = request->in != NULL,
    .wants_out = request->out != NULL,
    .piece = piece,
    .seen = request->seen ? request->seen[piece] : 0,
    .each = request->each ? request->each[piece] : 0,
  };
  memcpy(head.value, request->value, sizeof head.value);
  deliver(s, home, slot_at(s, s->plan.comm->rank, depth), &head,
          request->in ? request->in + piece * SERVICE_PIECE : NULL, piece_elements(s, piece));
}

void remote_await(struct service *s, const struct service_request *request, int64_t *late)
{
  for (int i = 0; i < s->homes * DEPTH; i++)
    while (s->remote->sent[i].pending)
      collect(s, request, late);
}

/* -- life */

int remote_create(struct service *s)
{
  struct trm_comm *comm = s->plan.comm;
  struct remote *r = trm_alloc(sizeof *r, "the parameter service");
  s->remote = r;
  const size_t piece = s->plan.elements < SERVICE_PIECE ? s->plan.elements : SERVICE_PIECE;
  r->slot_bytes = HEAD_BYTES + (piece * sizeof(float) + 63) / 64 * 64;
  const size_t calls = calls_bytes(s, comm->rank);
  const size_t bytes = calls + (size_t)s->homes * DEPTH * r->slot_bytes;
  r->sent = trm_alloc((size_t)s->homes * DEPTH * sizeof *r->sent, "the parameter service");
  void *own;
  TRM_CHECK(comm->ops->window_create(comm, bytes, TRM_BYTE, "calls of the parameter service", &r->window, &own));
  r->own = own;
  if (calls == 0)
    return TRM_OK;
  r->answered = trm_alloc((size_t)comm->size * DEPTH * sizeof *r->answered, "the parameter service");
  r->scratch = trm_alloc(piece * sizeof *r->scratch, "the parameter service");
  if (s->plan.servers == 0) {
    r->threaded = pthread_create(&r->thread, NULL, look_after_callers, s) == 0;
    if (!r->threaded)
      return trm_error(TRM_FAILED, "the parameter service: cannot begin a thread");
  }
  return TRM_OK;
}

void remote_free(struct service *s)
{
  struct remote *r = s->remote;
  s->plan.comm->ops->barrier(s->plan.comm); /* nobody calls any more */
  if (r->threaded) {
    atomic_store(&r->stop, true);
    pthread_join(r->thread, NULL);
  }
  s->plan.comm->ops->window_free(&r->window);
  trm_free(r->scratch);
  trm_free(r->answered);
  trm_free(r->sent);
  trm_free(r);
  s->remote = NULL;
}
