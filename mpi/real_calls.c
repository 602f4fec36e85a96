/* Calls: a rank has a function run at another rank, the owner. Two-sided messages on a communicator of their own:
 *
 *   caller                                          owner
 *     head, then what is sent (tag of the slot) -->   takes the head of any caller, receives the rest, runs the
 *                                                     function: now or, where the answer is held back, later
 *     head and what is returned (tag of slot)   <--   answers
 *
 * Between ranks that share memory what is sent and returned goes through stages of the caller (real_stage.c), and the
 * messages have heads alone.
 *
 * An owner answers in a thread that sleeps between polls, since MPI makes no progress at a rank that computes, or
 * (attended) in wait_until. It has buffers for the calls that it is receiving, a limited number, for what came with
 * those that are held back, and for answers under way, a limited number to each caller. Whatever else is sent stays
 * with the caller, apart from messages that MPI sends at once because they are small. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <time.h>

#include "core/context.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"
#include "mpi/real_private.h"

/* The thread sleeps between polls: at 1 ms it takes 2 % of a core. After a call it polls often for BUSY_S, since calls
 * come in groups. */
#define SLEEP_NS 1000000L
#define SHORT_SLEEP_NS 10000L
#define BUSY_S 1e-3
#define RETRY_S 100e-6 /* calls held back are tried again this often */

/* Calls received at a time; answers under way to one caller, in buffers; buffers kept. */
enum { MAX_RECEIVING = 8, MAX_ANSWERING = 4, MAX_SPARE = 16 };

/* Each call of a rank in progress has a slot, which gives the tags of its messages. */
enum { SLOTS = 16382, TAG_HEAD = 0 };
static int calls_tag_in(int slot)
{
  return 1 + 2 * slot;
}

static int calls_tag_answer(int slot)
{
  return 2 + 2 * slot;
}

/* The first message of a call. */
struct call_message {
  int32_t slot;
  int32_t stage;               /* of the caller, which has what is sent and returned; -1: messages have it */
  uint64_t in_bytes, out_bytes; /* 0: NULL */
  _Alignas(16) char head[TRM_CALL_HEAD_BYTES];
};

/* At the caller. */
struct real_call {
  struct trm_calls *calls;
  struct call_message message;
  void *out; /* the caller's */
};

/* POSTPONED: not tried yet, until fewer answers are under way; HELD_BACK: by the function. */
enum call_state { RECEIVING, POSTPONED, HELD_BACK, ANSWERING };

/* At the owner. */
struct call {
  struct call *next;
  enum call_state state;
  int caller;
  struct call_message message;
  void *in, *out;         /* buffers or those of a stage, NULL: none; out: while it is filled and sent */
  struct trm_request *request; /* receiving: of in; answering: of head and out; NULL: complete */
};

struct trm_calls {
  struct trm_comm *comm, *parent; /* comm: a duplicate of the parent, for these messages alone; owned */
  struct trm_call_plan plan;      /* owner: a copy, owned */
  struct real_stages *stages;
  /* at a caller */
  atomic_bool used[SLOTS];
  atomic_uint next_slot;
  /* at an owner */
  struct call *first; /* in order of arrival */
  int receiving, *answering; /* calls received; (size) answers to each caller under way, in buffers */
  double retried;     /* time when calls held back were tried */
  bool changed;       /* since then one has been answered, or one may be that had to wait for others */
  void *spare[MAX_SPARE]; /* (spares) buffers of max_bytes */
  int spares;
  struct trm_calls *next_attended;
  bool threaded;
  pthread_t thread;
  atomic_bool stop;
};

/* Bytes of a first message. */
static size_t calls_head_bytes(const struct trm_calls *calls)
{
  return offsetof(struct call_message, head) + calls->plan.head_bytes;
}

/* -- at the caller */

static int calls_take_slot(struct trm_calls *calls)
{
  for (int tries = 0; tries < SLOTS; tries++) {
    const unsigned slot = atomic_fetch_add_explicit(&calls->next_slot, 1, memory_order_relaxed) % SLOTS;
    if (!atomic_exchange_explicit(&calls->used[slot], true, memory_order_acquire))
      return (int)slot;
  }
  trm_abort_on_error(trm_error(TRM_FAILED, "call: %d calls of this rank are in progress, the most that can be", SLOTS));
  return -1;
}

/* At the caller: copies what its call sends to a stage, if there is one. */
static int calls_fill_stage(struct trm_calls *calls, int owner, const void *in, size_t in_bytes, size_t out_bytes)
{
  const int stage = in_bytes + out_bytes > 0 ? real_stage_acquire(calls->stages, owner) : -1;
  if (stage >= 0 && in)
    memcpy(real_stage_buffer(calls->stages, calls->comm->rank, stage, REAL_STAGE_IN), in, in_bytes);
  atomic_thread_fence(memory_order_release);
  return stage;
}

void real_call_end(struct real_call *call)
{
  struct trm_calls *calls = call->calls;
  const struct call_message *message = &call->message;
  if (message->stage >= 0) {
    atomic_thread_fence(memory_order_acquire);
    if (call->out)
      memcpy(call->out, real_stage_buffer(calls->stages, calls->comm->rank, message->stage, REAL_STAGE_OUT),
             message->out_bytes);
    real_stage_release(calls->stages, message->stage);
  }
  atomic_store_explicit(&calls->used[message->slot], false, memory_order_release);
  trm_free(call);
}

static void calls_check(const struct trm_calls *calls, int owner, size_t in_bytes, size_t out_bytes)
{
  const struct trm_comm *comm = calls->comm;
  const size_t max = calls->plan.max_bytes;
  if (owner == comm->rank)
    trm_abort_on_error(trm_error(TRM_FAILED, "call: an owner may not call itself"));
  if (owner < 0 || owner >= comm->size || !calls->plan.owner[owner])
    trm_abort_on_error(trm_error(TRM_FAILED, "call: rank %d of %d is no owner", owner, comm->size));
  if (in_bytes > max || out_bytes > max)
    trm_abort_on_error(trm_error(TRM_FAILED, "call: %zu bytes to send and %zu to return, at most %zu were announced",
                                 in_bytes, out_bytes, max));
}

/* One request for all messages. */
void real_call_begin(struct trm_calls *calls, int owner, void *head, const void *in, size_t in_bytes, void *out,
                     size_t out_bytes, struct trm_request **request)
{
  in_bytes = in ? in_bytes : 0;
  out_bytes = out ? out_bytes : 0;
  calls_check(calls, owner, in_bytes, out_bytes);
  struct real_call *call = trm_alloc(sizeof *call, "a call");
  const int slot = calls_take_slot(calls);
  const int stage = calls_fill_stage(calls, owner, in, in_bytes, out_bytes);
  const bool sends = in_bytes > 0 && stage < 0, receives = out_bytes > 0 && stage < 0;
  call->calls = calls;
  call->out = out;
  call->message = (struct call_message){.slot = slot, .stage = stage, .in_bytes = in_bytes, .out_bytes = out_bytes};
  memcpy(call->message.head, head, calls->plan.head_bytes);
  *request = real_request_create(calls->comm, 2 + (size_t)sends + (size_t)receives, false);
  (*request)->call = call;
  int next = 0;
  real_message_send(*request, next++, &call->message, (int)calls_head_bytes(calls), MPI_BYTE, owner, TAG_HEAD);
  if (sends)
    real_message_send(*request, next++, in, (int)in_bytes, MPI_BYTE, owner, calls_tag_in(slot));
  real_message_receive(*request, next++, head, (int)calls->plan.head_bytes, MPI_BYTE, owner, calls_tag_answer(slot));
  if (receives)
    real_message_receive(*request, next++, out, (int)out_bytes, MPI_BYTE, owner, calls_tag_answer(slot));
}

/* -- at the owner */

/* For what a call sends or returns. */
static void *calls_acquire_buffer(struct trm_calls *calls, const struct call *call, enum real_stage_use use)
{
  if (call->message.stage >= 0)
    return real_stage_buffer(calls->stages, call->caller, call->message.stage, use);
  return calls->spares > 0 ? calls->spare[--calls->spares] : trm_alloc(calls->plan.max_bytes, "buffers of calls");
}

static void calls_release_buffer(struct trm_calls *calls, const struct call *call, void *buffer)
{
  if (!buffer || call->message.stage >= 0)
    return;
  if (calls->spares < MAX_SPARE)
    calls->spare[calls->spares++] = buffer;
  else
    trm_free(buffer);
}

/* Takes the heads that have arrived, and begins to receive what else belongs to them. */
static bool calls_take(struct trm_calls *calls)
{
  const MPI_Comm mpi = real_of(calls->comm)->mpi;
  struct real_secure *secure = real_of(calls->comm)->secure;
  bool any = false;
  struct call **end = &calls->first;
  while (*end)
    end = &(*end)->next;
  while (calls->receiving < MAX_RECEIVING) {
    int found;
    MPI_Message arrived;
    MPI_Status status;
    MPI_Improbe(MPI_ANY_SOURCE, TAG_HEAD, mpi, &found, &arrived, &status);
    if (!found)
      break;
    struct call *call = trm_alloc(sizeof *call, "a call");
    call->caller = status.MPI_SOURCE;
    if (real_secure_is_remote(secure, call->caller))
      real_secure_take(secure, &arrived, &status, &call->message, calls_head_bytes(calls));
    else
      MPI_Mrecv(&call->message, (int)calls_head_bytes(calls), MPI_BYTE, &arrived, MPI_STATUS_IGNORE);
    atomic_thread_fence(memory_order_acquire);
    if (call->message.in_bytes > 0)
      call->in = calls_acquire_buffer(calls, call, REAL_STAGE_IN);
    if (call->in && call->message.stage < 0) {
      call->request = real_request_create(calls->comm, 1, false);
      real_message_receive(call->request, 0, call->in, (int)call->message.in_bytes, MPI_BYTE, call->caller,
                           calls_tag_in(call->message.slot));
    }
    calls->receiving++;
    *end = call;
    end = &call->next;
    any = true;
  }
  return any;
}

/* True if an earlier call of the same caller has not been tried: calls of a caller begin in order. */
static bool calls_is_preceded(const struct trm_calls *calls, const struct call *call)
{
  for (const struct call *earlier = calls->first; earlier != call; earlier = earlier->next)
    if (earlier->caller == call->caller && earlier->state <= POSTPONED)
      return true;
  return false;
}

/* Runs the function, and begins to send the answer unless it is held back. Returns true if it was not. */
static bool calls_try(struct trm_calls *calls, struct call *call)
{
  const struct trm_call_plan *plan = &calls->plan;
  struct call_message *message = &call->message;
  const bool is_buffered = message->out_bytes > 0 && message->stage < 0;
  if (is_buffered && calls->answering[call->caller] == MAX_ANSWERING) {
    call->state = call->state == HELD_BACK ? HELD_BACK : POSTPONED;
    return false;
  }
  call->out = message->out_bytes > 0 ? calls_acquire_buffer(calls, call, REAL_STAGE_OUT) : NULL;
  if (!plan->function(plan->context, call->caller, message->head, call->in, call->out)) {
    calls_release_buffer(calls, call, call->out);
    call->out = NULL;
    call->state = HELD_BACK;
    return false;
  }
  call->state = ANSWERING;
  calls->changed = true;
  atomic_thread_fence(memory_order_release);
  call->request = real_request_create(calls->comm, 1 + (size_t)is_buffered, false);
  real_message_send(call->request, 0, message->head, (int)plan->head_bytes, MPI_BYTE, call->caller,
                    calls_tag_answer(message->slot));
  calls->answering[call->caller] += is_buffered;
  if (is_buffered)
    real_message_send(call->request, 1, call->out, (int)message->out_bytes, MPI_BYTE, call->caller,
                      calls_tag_answer(message->slot));
  return true;
}

/* Takes one call further. Returns true if something has happened. */
static bool calls_advance(struct trm_calls *calls, struct call *call, bool retry)
{
  if (call->state == HELD_BACK || call->state == POSTPONED)
    return retry && (call->state == HELD_BACK || !calls_is_preceded(calls, call)) && calls_try(calls, call);
  if (!real_message_test(&call->request) || (call->state == RECEIVING && calls_is_preceded(calls, call)))
    return false;
  if (call->state == RECEIVING) {
    calls->receiving--;
    calls_try(calls, call);
  }
  return true;
}

bool real_calls_answer(struct trm_calls *calls)
{
  bool any = calls_take(calls);
  const bool retry = calls->changed || MPI_Wtime() - calls->retried > RETRY_S;
  if (retry)
    calls->retried = MPI_Wtime();
  calls->changed = false;
  for (struct call **link = &calls->first; *link;) {
    struct call *call = *link;
    const bool was_answering = call->state == ANSWERING, advanced = calls_advance(calls, call, retry);
    any |= advanced;
    if (!was_answering || !advanced) {
      link = &call->next;
      continue;
    }
    *link = call->next;
    if (call->out && call->message.stage < 0)
      calls->changed |= calls->answering[call->caller]-- == MAX_ANSWERING;
    calls_release_buffer(calls, call, call->in);
    calls_release_buffer(calls, call, call->out);
    trm_free(call);
  }
  return any;
}

bool real_calls_attend(struct real_comm *real)
{
  bool any = false;
  for (struct trm_calls *calls = real->attended; calls; calls = calls->next_attended)
    any |= real_calls_answer(calls);
  return any;
}

static void *calls_thread(void *context)
{
  struct trm_calls *calls = context;
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, NULL); /* signals go to the main thread */
  double last_call = -BUSY_S;
  while (!atomic_load_explicit(&calls->stop, memory_order_relaxed)) {
    const double now = MPI_Wtime();
    if (real_calls_answer(calls)) { /* also makes MPI progress */
      last_call = now;
      trm_ledger_add_answer();
    } else {
      nanosleep(&(struct timespec){.tv_nsec = now - last_call < BUSY_S ? SHORT_SLEEP_NS : SLEEP_NS}, NULL);
    }
  }
  return NULL;
}

/* -- creation */

static int calls_open_owner(struct trm_calls *calls)
{
  struct real_comm *parent = real_of(calls->parent);
  calls->answering = trm_alloc((size_t)calls->comm->size * sizeof *calls->answering, "calls");
  for (int i = 0; i < 2 && calls->plan.max_bytes > 0; i++)
    calls->spare[calls->spares++] = trm_alloc(calls->plan.max_bytes, "buffers of calls");
  if (calls->plan.attended) {
    calls->next_attended = parent->attended;
    parent->attended = calls;
    return TRM_OK;
  }
  calls->threaded = trm_context_start_thread(&calls->thread, calls_thread, calls) == 0;
  return calls->threaded ? TRM_OK : trm_error(TRM_FAILED, "calls: cannot begin a thread");
}

int real_calls_create(struct trm_comm *comm, const struct trm_call_plan *plan, struct trm_calls **created)
{
  struct trm_calls *calls = *created = trm_alloc(sizeof *calls, "calls");
  MPI_Comm mpi;
  MPI_Comm_dup(real_of(comm)->mpi, &mpi);
  calls->comm = real_wrap(mpi, real_of(comm), false);
  calls->parent = comm;
  calls->plan = *plan;
  bool *owner = trm_alloc((size_t)comm->size * sizeof *owner, "calls");
  memcpy(owner, plan->owner, (size_t)comm->size * sizeof *owner);
  calls->plan.owner = owner;
  int status = TRM_OK;
  if (plan->head_bytes > TRM_CALL_HEAD_BYTES || plan->max_bytes > REAL_MESSAGE_BYTES)
    status = trm_error(TRM_FAILED, "calls: %zu bytes of head and %zu besides are more than %d and %zu",
                       plan->head_bytes, plan->max_bytes, TRM_CALL_HEAD_BYTES, REAL_MESSAGE_BYTES);
  if (status == TRM_OK && owner[comm->rank])
    status = calls_open_owner(calls);
  status = trm_agree(comm, status);
  if (status == TRM_OK)
    status = trm_agree(comm, real_stages_create(&calls->plan, comm->rank, &calls->stages));
  if (status != TRM_OK)
    real_calls_free(created);
  return status;
}

/* After the barrier nobody calls; the last answers may be under way. */
void real_calls_free(struct trm_calls **freed)
{
  struct trm_calls *calls = *freed;
  if (!calls)
    return;
  calls->parent->ops->barrier(calls->parent);
  if (calls->threaded) {
    atomic_store(&calls->stop, true);
    pthread_join(calls->thread, NULL);
  }
  while (calls->first)
    real_calls_answer(calls);
  for (struct trm_calls **link = &real_of(calls->parent)->attended; *link; link = &(*link)->next_attended)
    if (*link == calls) {
      *link = calls->next_attended;
      break;
    }
  for (int i = 0; i < calls->spares; i++)
    trm_free(calls->spare[i]);
  trm_free(calls->answering);
  real_stages_free(&calls->stages);
  real_release(calls->comm);
  trm_free((void *)calls->plan.owner);
  trm_free(calls);
  *freed = NULL;
}
