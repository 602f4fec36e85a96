/* The communication contract for one rank without MPI: messages to itself. */
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "core/comm.h"
#include "core/context.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"

#define SELF_MAX_WAIT_S 2

/* A message sent and not yet received, or a receive whose message has not been sent. All other operations complete
 * immediately. */
struct trm_request {
  struct trm_request *next;
  struct trm_mailbox *mailbox;
  void *data; /* of a receive */
  size_t bytes;
  int tag;
  bool done;
  _Alignas(max_align_t) char copy[]; /* of a message's data */
};

struct trm_window {
  pthread_mutex_t lock;
  char *data;
  size_t count;
  enum trm_type type;
};

struct trm_comm *trm_comm_self(void)
{
  return &trm_rank_current()->self;
}

static void self_check_rank(const char *call, int rank)
{
  if (rank != 0)
    trm_abort_on_error(trm_error(TRM_FAILED, "%s: rank %d of a communicator of 1", call, rank));
}

static void self_barrier(struct trm_comm *comm)
{
  (void)comm;
}

static void self_broadcast(struct trm_comm *comm, void *data, size_t count, enum trm_type type, int root)
{
  (void)comm, (void)data, (void)count, (void)type;
  self_check_rank("broadcast", root);
}

static void self_allreduce(struct trm_comm *comm, void *data, size_t count, enum trm_type type, enum trm_op op)
{
  (void)comm, (void)data, (void)count, (void)type, (void)op;
}

static void self_allgather(struct trm_comm *comm, const void *mine, void *all, size_t count, enum trm_type type)
{
  (void)comm;
  if (mine != all && count > 0)
    memmove(all, mine, count * trm_type_bytes(type));
}

static void self_reduce_scatter(struct trm_comm *comm, void *all, void *mine, size_t count, enum trm_type type,
                                enum trm_op op)
{
  (void)op;
  self_allgather(comm, all, mine, count, type);
}

static void self_allreduce_begin(struct trm_comm *comm, void *data, size_t count, enum trm_type type, enum trm_op op,
                                 struct trm_request **request)
{
  self_allreduce(comm, data, count, type, op);
  *request = NULL;
}

static void self_allgather_begin(struct trm_comm *comm, const void *mine, void *all, size_t count, enum trm_type type,
                                 struct trm_request **request)
{
  self_allgather(comm, mine, all, count, type);
  *request = NULL;
}

static void self_reduce_scatter_begin(struct trm_comm *comm, void *all, void *mine, size_t count, enum trm_type type,
                                      enum trm_op op, struct trm_request **request)
{
  self_reduce_scatter(comm, all, mine, count, type, op);
  *request = NULL;
}

static void self_deliver(void *to, size_t capacity, const void *from, size_t bytes, int tag)
{
  if (bytes > capacity)
    trm_abort_on_error(
      trm_error(TRM_FAILED, "message with tag %d: %zu bytes sent, room for %zu", tag, bytes, capacity));
  if (bytes > 0)
    memcpy(to, from, bytes);
}

/* Removes the first entry of this tag from the list; NULL: there is none. */
static struct trm_request *self_take(struct trm_request **list, int tag)
{
  while (*list && (*list)->tag != tag)
    list = &(*list)->next;
  struct trm_request *found = *list;
  if (found)
    *list = found->next;
  return found;
}

/* Adds an entry with a copy of `copied` bytes to the end of the list. */
static struct trm_request *self_append(struct trm_request **list, int tag, size_t bytes, size_t copied)
{
  while (*list)
    list = &(*list)->next;
  *list = trm_alloc(sizeof **list + copied, "a message to this rank itself");
  (*list)->tag = tag;
  (*list)->bytes = bytes;
  return *list;
}

static void self_send_begin(struct trm_comm *comm, const void *data, size_t count, enum trm_type type, int to, int tag,
                            struct trm_request **request)
{
  struct trm_mailbox *mailbox = comm->impl;
  const size_t bytes = count * trm_type_bytes(type);
  self_check_rank("send", to);
  *request = NULL;
  pthread_mutex_lock(&mailbox->lock);
  struct trm_request *receive = self_take(&mailbox->receives, tag);
  if (receive) {
    self_deliver(receive->data, receive->bytes, data, bytes, tag);
    receive->done = true;
  } else {
    self_deliver(self_append(&mailbox->messages, tag, bytes, bytes)->copy, bytes, data, bytes, tag);
  }
  pthread_mutex_unlock(&mailbox->lock);
}

static void self_receive_begin(struct trm_comm *comm, void *data, size_t count, enum trm_type type, int from, int tag,
                               struct trm_request **request)
{
  struct trm_mailbox *mailbox = comm->impl;
  const size_t bytes = count * trm_type_bytes(type);
  self_check_rank("receive", from);
  *request = NULL;
  pthread_mutex_lock(&mailbox->lock);
  struct trm_request *message = self_take(&mailbox->messages, tag);
  if (message) {
    self_deliver(data, bytes, message->copy, message->bytes, tag);
    trm_free(message);
  } else {
    *request = self_append(&mailbox->receives, tag, bytes, 0);
    (*request)->mailbox = mailbox;
    (*request)->data = data;
  }
  pthread_mutex_unlock(&mailbox->lock);
}

static bool self_test(struct trm_request **request)
{
  if (!*request)
    return true;
  struct trm_mailbox *mailbox = (*request)->mailbox;
  pthread_mutex_lock(&mailbox->lock);
  const bool done = (*request)->done;
  pthread_mutex_unlock(&mailbox->lock);
  if (done) {
    trm_free(*request);
    *request = NULL;
  }
  return done;
}

/* Fails if the message has not been sent: no other rank could send it. */
static void self_wait(struct trm_request **request)
{
  if (!self_test(request))
    trm_abort_on_error(trm_error(
      TRM_FAILED, "waiting for a message with tag %d that this rank has not sent to itself", (*request)->tag));
}

static void self_progress(struct trm_comm *comm)
{
  (void)comm;
}

static double self_clock(struct trm_comm *comm)
{
  (void)comm;
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Only another thread of this rank can change what done reads. Fails when none has for long. */
static void self_wait_until(struct trm_comm *comm, bool (*done)(void *context), void *context)
{
  for (const double since = self_clock(comm); !done(context); sched_yield())
    if (self_clock(comm) - since > SELF_MAX_WAIT_S)
      trm_abort_on_error(trm_error(TRM_FAILED, "waiting for a change of memory that no other rank can make"));
}

static void self_sleep_until(struct trm_comm *comm, double when, bool progress);

/* Only another thread of the rank changes what done reads. */
static bool self_wait_at_most(struct trm_comm *comm, bool (*done)(void *context), void *context, double when)
{
  double now;
  while (!done(context)) {
    if ((now = comm->ops->clock(comm)) >= when)
      return false;
    self_sleep_until(comm, fmin(when, now + 200e-6), false);
  }
  return true;
}

/* Signals do not shorten the sleep. */
static void self_sleep_until(struct trm_comm *comm, double when, bool progress)
{
  (void)comm, (void)progress;
  const double seconds = floor(when);
  const struct timespec time = {.tv_sec = (time_t)seconds, .tv_nsec = (long)((when - seconds) * 1e9)};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL) == EINTR)
    continue;
}

static struct trm_comm *self_split(struct trm_comm *comm, int color, int key)
{
  (void)key;
  if (color < 0)
    return NULL;
  struct trm_mailbox *mailbox = trm_alloc(sizeof *mailbox, "a communicator");
  pthread_mutex_init(&mailbox->lock, NULL);
  struct trm_comm *child = trm_alloc(sizeof *child, "a communicator");
  *child = (struct trm_comm){.ops = comm->ops, .rank = 0, .size = 1, .impl = mailbox};
  return child;
}

static struct trm_comm *self_split_node(struct trm_comm *comm, enum trm_share domain)
{
  (void)domain;
  return self_split(comm, 0, 0);
}

static void self_release(struct trm_comm *comm)
{
  if (!comm || comm == trm_comm_self())
    return;
  struct trm_mailbox *mailbox = comm->impl;
  for (struct trm_request *message = mailbox->messages, *next; message; message = next) {
    next = message->next;
    trm_free(message);
  }
  pthread_mutex_destroy(&mailbox->lock);
  trm_free(mailbox);
  trm_free(comm);
}

static int self_share(struct trm_comm *comm, size_t bytes, enum trm_memory_use use, struct trm_shared *shared)
{
  const char *what = trm_memory_name(use);
  (void)comm;
  void *memory = mmap(NULL, bytes > 0 ? bytes : 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    return trm_error(TRM_FAILED, "out of memory: %.1f MiB for %s", (double)bytes / 1048576.0, what);
  trm_advise_huge(memory, bytes);
  trm_memory_account(bytes, 0);
  *shared = (struct trm_shared){.base = trm_alloc(sizeof(void *), what), .local = memory, .bytes = bytes};
  shared->base[0] = memory;
  return TRM_OK;
}

static void self_unshare(struct trm_comm *comm, struct trm_shared *shared)
{
  (void)comm;
  if (shared->local) {
    munmap(shared->local, shared->bytes > 0 ? shared->bytes : 1);
    trm_memory_account(0, shared->bytes);
  }
  trm_free(shared->base);
  *shared = (struct trm_shared){0};
}

static int self_window_create(struct trm_comm *comm, size_t count, enum trm_type type, const char *what,
                              struct trm_window **window, void **local)
{
  (void)comm;
  struct trm_window *made = trm_alloc(sizeof *made, what);
  pthread_mutex_init(&made->lock, NULL);
  made->data = trm_alloc(count * trm_type_bytes(type), what);
  made->count = count;
  made->type = type;
  *window = made;
  *local = made->data;
  return TRM_OK;
}

static void self_window_free(struct trm_window **window)
{
  if (!*window)
    return;
  pthread_mutex_destroy(&(*window)->lock);
  trm_free((*window)->data);
  trm_free(*window);
  *window = NULL;
}

/* The address of `count` elements at offset. */
static void *self_window_address(struct trm_window *window, const char *call, size_t count, int target, size_t offset)
{
  self_check_rank(call, target);
  if (offset > window->count || count > window->count - offset)
    trm_abort_on_error(trm_error(TRM_FAILED, "%s: elements %zu to %zu of a window of %zu", call, offset,
                                 offset + count, window->count));
  return window->data + offset * trm_type_bytes(window->type);
}

static void self_copy_locked(struct trm_window *window, void *to, const void *from, size_t count)
{
  pthread_mutex_lock(&window->lock);
  if (count > 0)
    memmove(to, from, count * trm_type_bytes(window->type));
  pthread_mutex_unlock(&window->lock);
}

static void self_get(struct trm_window *window, void *to, size_t count, int target, size_t offset)
{
  self_copy_locked(window, to, self_window_address(window, "get", count, target, offset), count);
}

static void self_put(struct trm_window *window, const void *from, size_t count, int target, size_t offset)
{
  self_copy_locked(window, self_window_address(window, "put", count, target, offset), from, count);
}

#define SELF_ADD(type)             \
  for (size_t i = 0; i < count; i++) \
  ((type *)to)[i] = (type)(((type *)to)[i] + ((const type *)from)[i])

static void self_add_elements(enum trm_type type, void *to, const void *from, size_t count)
{
  switch (type) { /* integers unsigned: sums wrap around as they do in MPI */
  case TRM_FLOAT:
    SELF_ADD(float);
    break;
  case TRM_DOUBLE:
    SELF_ADD(double);
    break;
  case TRM_INT32:
    SELF_ADD(uint32_t);
    break;
  case TRM_INT64:
    SELF_ADD(uint64_t);
    break;
  case TRM_BYTE:
    SELF_ADD(uint8_t);
    break;
  }
}

static void self_accumulate(struct trm_window *window, const void *from, size_t count, int target, size_t offset)
{
  void *to = self_window_address(window, "accumulate", count, target, offset);
  pthread_mutex_lock(&window->lock);
  self_add_elements(window->type, to, from, count);
  pthread_mutex_unlock(&window->lock);
}

static int64_t self_fetch_add(struct trm_window *window, int64_t value, int target, size_t offset)
{
  if (window->type != TRM_INT64)
    trm_abort_on_error(trm_error(TRM_FAILED, "fetch_add: the window does not hold 64-bit integers"));
  int64_t *element = self_window_address(window, "fetch_add", 1, target, offset);
  pthread_mutex_lock(&window->lock);
  const int64_t before = *element;
  self_add_elements(TRM_INT64, element, &value, 1);
  pthread_mutex_unlock(&window->lock);
  return before;
}

static void self_flush(struct trm_window *window, int target)
{
  (void)window;
  self_check_rank("flush", target);
}

/* One rank has nobody to call. */
static int self_calls_create(struct trm_comm *comm, const struct trm_call_plan *plan, struct trm_calls **calls)
{
  (void)comm, (void)plan;
  *calls = NULL;
  return TRM_OK;
}

static void self_calls_free(struct trm_calls **calls)
{
  *calls = NULL;
}

static void self_call_begin(struct trm_calls *calls, int owner, void *head, const void *in, size_t in_bytes, void *out,
                            size_t out_bytes, struct trm_request **request)
{
  (void)calls, (void)head, (void)in, (void)in_bytes, (void)out, (void)out_bytes, (void)request;
  self_check_rank("call", owner);
  trm_abort_on_error(trm_error(TRM_FAILED, "call: an owner may not call itself"));
}

/* Not trm_abort, whose hook may be this function. */
static __attribute__((noreturn)) void self_abort(struct trm_comm *comm, int status)
{
  (void)comm;
  exit(status == TRM_OK ? TRM_FAILED : status);
}

static void *self_native(struct trm_comm *comm)
{
  (void)comm;
  return NULL;
}

const struct trm_comm_ops trm_comm_self_ops = {
    .name = "self",
    .barrier = self_barrier,
    .broadcast = self_broadcast,
    .allreduce = self_allreduce,
    .allgather = self_allgather,
    .reduce_scatter = self_reduce_scatter,
    .allreduce_begin = self_allreduce_begin,
    .allgather_begin = self_allgather_begin,
    .reduce_scatter_begin = self_reduce_scatter_begin,
    .send_begin = self_send_begin,
    .receive_begin = self_receive_begin,
    .test = self_test,
    .wait = self_wait,
    .progress = self_progress,
    .wait_until = self_wait_until,
    .wait_at_most = self_wait_at_most,
    .sleep_until = self_sleep_until,
    .split = self_split,
    .split_node = self_split_node,
    .release = self_release,
    .share = self_share,
    .unshare = self_unshare,
    .window_create = self_window_create,
    .window_free = self_window_free,
    .get = self_get,
    .put = self_put,
    .accumulate = self_accumulate,
    .fetch_add = self_fetch_add,
    .flush = self_flush,
    .calls_create = self_calls_create,
    .calls_free = self_calls_free,
    .call_begin = self_call_begin,
    .clock = self_clock,
    .abort = self_abort,
    .native = self_native,
};
