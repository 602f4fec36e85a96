#include "mpi/async/call_order.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"

/* A list of numbers. */
struct order_list {
  int64_t *value; /* owned */
  size_t count, capacity;
};

/* Who makes a call, and which. */
struct order_turn {
  int32_t caller, kind;
  double time;
};

struct order_event {
  size_t chunk; /* replica * chunks + chunk */
  int64_t number;
  struct order_turn turn;
};

/* A record that has been read; the ranks of a process share it. */
struct order_record {
  size_t *first;           /* (replicas * chunks + 1) of the calls on each chunk */
  struct order_turn *turn; /* of all calls, by chunk and number */
  struct order_list *parts, *arrivals, *quiesces; /* (ranks) */
  struct order_event *event;                      /* (events) while it is being read */
  size_t events, capacity;
};

struct call_order {
  struct call_order_plan plan;
  struct trm_comm *process;
  char *path;
  FILE *out;                   /* NULL: not recorded */
  struct order_record *record; /* NULL: none is followed */
  size_t part, arrival, quiesce; /* of this rank: that come next */
};

static char *order_path(const char *folder, int rank)
{
  return trm_format("%s/rank-%d.txt", folder, rank);
}

/* -- recording */

static void order_fail_write(const struct call_order *order)
{
  trm_abort_on_error(trm_error(TRM_FAILED, "run.record: %s: cannot write: %s", order->path, strerror(errno)));
}

#define ORDER_WRITE(order, ...)                       \
  do {                                                \
    if ((order)->out && fprintf((order)->out, __VA_ARGS__) < 0) \
      order_fail_write(order);                        \
  } while (0)

static int order_open(struct call_order *order)
{
  struct trm_comm *comm = order->plan.comm;
  int status = TRM_OK;
  if (comm->rank == 0 && mkdir(order->plan.record, 0777) != 0 && errno != EEXIST)
    status = trm_error(TRM_FAILED, "run.record: cannot make folder %s: %s", order->plan.record, strerror(errno));
  TRM_CHECK(trm_agree(comm, status));
  order->path = order_path(order->plan.record, comm->rank);
  order->out = fopen(order->path, "w");
  if (!order->out)
    return trm_error(TRM_FAILED, "run.record: %s: cannot write: %s", order->path, strerror(errno));
  ORDER_WRITE(order, "%s, rank %d\n", order->plan.run, comm->rank);
  return TRM_OK;
}

/* -- reading */

static void order_append(struct order_list *list, int64_t value)
{
  list->value = trm_grow(list->value, &list->capacity, list->count, list->count + 1, sizeof value, "a record");
  list->value[list->count++] = value;
}

static void order_free_record(struct order_record *record, int ranks)
{
  for (int i = 0; i < ranks; i++) {
    trm_free(record->parts[i].value);
    trm_free(record->arrivals[i].value);
    trm_free(record->quiesces[i].value);
  }
  trm_free(record->parts);
  trm_free(record->arrivals);
  trm_free(record->quiesces);
  trm_free(record->event);
  trm_free(record->first);
  trm_free(record->turn);
  trm_free(record);
}

/* One line between the first and "end". Returns false if it is damaged. */
static bool order_read_event(struct order_record *record, const struct call_order_plan *plan, int rank,
                             const char *line)
{
  int64_t value, number;
  size_t chunk;
  int replica, caller, kind, length = -1;
  double time = 0;
  int at = 0;
  if (sscanf(line, "c %d %zu %" SCNd64 " %d %d\n%n", &replica, &chunk, &number, &caller, &kind, &length) == 5) {
    if (plan->timed && sscanf(line + length, "%la\n%n", &time, &at) != 1)
      return false;
    length += at;
    if (replica < 0 || replica >= plan->replicas || chunk >= plan->chunks || number < 0 || caller < 0 ||
        caller >= plan->comm->size)
      return false;
    record->event = trm_grow(record->event, &record->capacity, record->events, record->events + 1,
                             sizeof *record->event, "a record");
    record->event[record->events++] =
      (struct order_event){(size_t)replica * plan->chunks + chunk, number, {caller, kind, time}};
  } else if (sscanf(line, "p %" SCNd64 "\n%n", &value, &length) == 1) {
    order_append(&record->parts[rank], value);
  } else if (sscanf(line, "a %" SCNd64 "\n%n", &value, &length) == 1) {
    order_append(&record->arrivals[rank], value);
  } else if (sscanf(line, "q %" SCNd64 "\n%n", &value, &length) == 1) {
    order_append(&record->quiesces[rank], value);
  }
  return length >= 0 && line[length] == '\0' && line[length - 1] == '\n';
}

static int order_read_lines(struct order_record *record, const struct call_order_plan *plan, int rank, FILE *in,
                            const char *path)
{
  char line[512], *head = trm_format("%s, rank %d\n", plan->run, rank);
  bool is_head = false, ends = false;
  long number = 1;
  if (fgets(line, sizeof line, in))
    is_head = strcmp(line, head) == 0;
  head[strlen(head) - 1] = '\0';
  const int status = is_head ? TRM_OK : trm_error(TRM_USAGE, "simulate.replay: %s: its first line is not \"%s\": the "
                                                  "record of another run", path, head);
  trm_free(head);
  TRM_CHECK(status);
  while (!ends && fgets(line, sizeof line, in)) {
    number++;
    if (strcmp(line, "halt\n") == 0)
      return trm_error(TRM_FAILED, "simulate.replay: %s: the recorded run was stopped before its end: the order of the "
                       "rest is not known", path);
    ends = strcmp(line, "end\n") == 0;
    if (!ends && !order_read_event(record, plan, rank, line))
      return trm_error(TRM_FAILED, "simulate.replay: %s: line %ld is damaged", path, number);
  }
  if (!ends || fgetc(in) != EOF)
    return trm_error(TRM_FAILED, "simulate.replay: %s: the last line is not \"end\": the file is not whole", path);
  return TRM_OK;
}

static int order_read_rank(struct order_record *record, const struct call_order_plan *plan, int rank)
{
  char *path = order_path(plan->replay, rank);
  FILE *in = fopen(path, "r");
  int status = TRM_OK;
  if (!in)
    status = trm_error(TRM_FAILED, "simulate.replay: %s: cannot read: %s", path, strerror(errno));
  else
    status = order_read_lines(record, plan, rank, in, path);
  if (in)
    fclose(in);
  trm_free(path);
  return status;
}

static int order_compare(const void *left, const void *right)
{
  const struct order_event *a = left, *b = right;
  if (a->chunk != b->chunk)
    return a->chunk < b->chunk ? -1 : 1;
  return a->number < b->number ? -1 : a->number > b->number;
}

/* Sorts the calls of all files by chunk. A chunk's must be numbered 0, 1, .. */
static int order_sort(struct order_record *record, const struct call_order_plan *plan)
{
  const size_t chunks = (size_t)plan->replicas * plan->chunks;
  if (record->events > 0)
    qsort(record->event, record->events, sizeof *record->event, order_compare);
  record->first = trm_alloc((chunks + 1) * sizeof *record->first, "a record");
  record->turn = trm_alloc(record->events * sizeof *record->turn, "a record");
  size_t i = 0;
  for (size_t chunk = 0; chunk < chunks; chunk++) {
    record->first[chunk] = i;
    for (; i < record->events && record->event[i].chunk == chunk; i++) {
      record->turn[i] = record->event[i].turn;
      if (record->event[i].number != (int64_t)(i - record->first[chunk]))
        return trm_error(TRM_FAILED, "simulate.replay: %s: damaged: call %zu on chunk %zu of replica %zu is missing, "
                         "or twice there", plan->replay, i - record->first[chunk], chunk % plan->chunks,
                         chunk / plan->chunks);
    }
  }
  record->first[chunks] = i;
  trm_free(record->event);
  record->event = NULL;
  return TRM_OK;
}

/* The first rank of the process reads for all. */
static int order_read(struct call_order *order)
{
  const struct call_order_plan *plan = &order->plan;
  const int ranks = plan->comm->size;
  struct order_record *record = NULL;
  int status = TRM_OK;
  if (order->process->rank == 0) {
    record = trm_alloc(sizeof *record, "a record");
    record->parts = trm_alloc((size_t)ranks * sizeof *record->parts, "a record");
    record->arrivals = trm_alloc((size_t)ranks * sizeof *record->arrivals, "a record");
    record->quiesces = trm_alloc((size_t)ranks * sizeof *record->quiesces, "a record");
    for (int rank = 0; rank < ranks && status == TRM_OK; rank++)
      status = order_read_rank(record, plan, rank);
    if (status == TRM_OK)
      status = order_sort(record, plan);
  }
  order->process->ops->broadcast(order->process, &record, sizeof record, TRM_BYTE, 0);
  order->record = record;
  return status;
}

/* -- creation */

int call_order_create(struct call_order **created, const struct call_order_plan *plan)
{
  const bool records = plan->record && plan->record[0], follows = plan->replay && plan->replay[0];
  *created = NULL;
  if (!records && !follows)
    return TRM_OK;
  struct call_order *order = *created = trm_alloc(sizeof *order, "a record");
  order->plan = *plan;
  order->plan.run = trm_strdup(plan->run);
  order->process = plan->comm->ops->split_node(plan->comm, TRM_SHARE_PROCESS);
  int status = trm_agree(plan->comm, follows ? order_read(order) : TRM_OK);
  if (status == TRM_OK && records)
    status = trm_agree(plan->comm, order_open(order));
  if (status != TRM_OK) {
    call_order_free(order);
    *created = NULL;
  }
  return status;
}

void call_order_free(struct call_order *order)
{
  if (!order)
    return;
  struct trm_comm *comm = order->plan.comm, *process = order->process;
  ORDER_WRITE(order, "end\n");
  if (order->out && fclose(order->out) != 0)
    order_fail_write(order);
  comm->ops->barrier(comm); /* no rank uses the record any more */
  if (order->record && process->rank == 0)
    order_free_record(order->record, comm->size);
  process->ops->release(process);
  trm_free((char *)(uintptr_t)order->plan.run);
  trm_free(order->path);
  trm_free(order);
}

/* -- events */

bool call_order_is_followed(const struct call_order *order)
{
  return order && order->record;
}

bool call_order_may_answer(const struct call_order *order, const struct call_order_call *call)
{
  const struct order_record *record = order->record;
  if (!record)
    return true;
  const size_t at = (size_t)call->replica * order->plan.chunks + call->chunk, first = record->first[at];
  if ((size_t)call->number < record->first[at + 1] - first) {
    const struct order_turn *turn = &record->turn[first + (size_t)call->number];
    return turn->caller == call->caller && turn->kind == call->kind;
  }
  trm_abort_on_error(trm_error(TRM_FAILED, "simulate.replay: the run has departed from %s: rank %d makes call %lld on "
                               "chunk %zu of replica %d, one more than were recorded", order->plan.replay,
                               call->caller, (long long)call->number, call->chunk, call->replica));
  return false;
}

double call_order_time(const struct call_order *order, const struct call_order_call *call, double now)
{
  if (!call_order_is_followed(order))
    return now;
  const struct order_record *record = order->record;
  return record->turn[record->first[(size_t)call->replica * order->plan.chunks + call->chunk] +
                      (size_t)call->number].time;
}

void call_order_answered(struct call_order *order, const struct call_order_call *call)
{
  if (order->plan.timed)
    ORDER_WRITE(order, "c %d %zu %" PRId64 " %d %d %a\n", call->replica, call->chunk, call->number, call->caller,
                call->kind, call->time);
  else
    ORDER_WRITE(order, "c %d %zu %" PRId64 " %d %d\n", call->replica, call->chunk, call->number, call->caller,
                call->kind);
}

/* The next of this rank's values in the record that is followed. */
static int64_t order_next(const struct call_order *order, const struct order_list *lists, size_t *next,
                          const char *what)
{
  const struct call_order_plan *plan = &order->plan;
  const struct order_list *list = &lists[plan->comm->rank];
  if (*next == list->count)
    trm_abort_on_error(trm_error(TRM_FAILED, "simulate.replay: the run has departed from %s: rank %d asks for more "
                                 "than the %zu recorded %s", plan->replay, plan->comm->rank, list->count, what));
  return list->value[(*next)++];
}

int64_t call_order_part(struct call_order *order, int64_t part)
{
  if (call_order_is_followed(order))
    part = order_next(order, order->record->parts, &order->part, "parts of batches");
  if (order)
    ORDER_WRITE(order, "p %" PRId64 "\n", part);
  return part;
}

bool call_order_arrived(struct call_order *order, bool arrived)
{
  if (call_order_is_followed(order))
    arrived = order_next(order, order->record->arrivals, &order->arrival, "arrivals") != 0;
  if (order)
    ORDER_WRITE(order, "a %d\n", arrived);
  return arrived;
}

void call_order_quiesce(struct call_order *order, int64_t calls)
{
  ORDER_WRITE(order, "q %" PRId64 "\n", calls);
  if (order->out && fflush(order->out) != 0)
    order_fail_write(order);
  if (!order->record)
    return;
  const struct call_order_plan *plan = &order->plan;
  const struct order_list *quiesces = &order->record->quiesces[plan->comm->rank];
  const size_t number = order->quiesce++;
  if (number == quiesces->count || quiesces->value[number] != calls)
    trm_abort_on_error(trm_error(TRM_FAILED, "simulate.replay: the run has departed from %s: %lld calls on the chunks "
                                 "of rank %d before quiesce point %zu of %zu, not as many as were recorded",
                                 plan->replay, (long long)calls, plan->comm->rank, number + 1, quiesces->count));
}

void call_order_halt(struct call_order *order)
{
  if (!order)
    return;
  ORDER_WRITE(order, "halt\n");
  if (order->record)
    trm_abort_on_error(trm_error(TRM_FAILED, "simulate.replay: stopped; a run that follows a record leaves no "
                                 "checkpoint when it is stopped"));
}
