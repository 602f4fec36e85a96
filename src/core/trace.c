#include "core/trace.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/context.h"
#include "core/document.h"
#include "core/memory.h"
#include "core/status.h"

enum { ROUNDS = 20, TAG = 29000, NAME_BYTES = 24 };

struct event {
  double began, ended; /* seconds, this rank's clock */
  int64_t step;
  uint64_t number;     /* in order of the ends */
  struct trm_trace_ids ids;
  int32_t kind;
  char name[NAME_BYTES];
};

/* A time of this rank's clock, and the offset of rank 0's clock at that time. */
struct clock_reading {
  double time;    /* this rank's clock */
  double skew; /* seconds */
};

struct trm_trace {
  struct trm_comm *comm;
  struct event *ring;    /* (capacity) */
  size_t capacity;
  uint64_t count;        /* events since the start; the newest is at (count - 1) % capacity */
  int64_t step;
  bool ended;            /* trm_trace_end_recording */
  struct clock_reading start;
  double origin;         /* rank 0's clock at the start */
};

static double trace_clock(struct trm_comm *comm)
{
  return comm->ops->clock(comm);
}

static void trace_send(struct trm_comm *comm, int to, const void *data, size_t bytes)
{
  struct trm_request *request = NULL;
  comm->ops->send_begin(comm, data, bytes, TRM_BYTE, to, TAG, &request);
  comm->ops->wait(&request);
}

static void trace_receive(struct trm_comm *comm, int from, void *data, size_t bytes)
{
  struct trm_request *request = NULL;
  comm->ops->receive_begin(comm, data, bytes, TRM_BYTE, from, TAG, &request);
  comm->ops->wait(&request);
}

/* The ranks of a virtual network have one clock, and messages would change its time. */
static bool trace_has_one_clock(const struct trm_comm *comm)
{
  return comm->ops->compute != NULL;
}

/* Measures the skew of this rank's clock: asks rank 0 for its time ROUNDS times and uses the reply with the shortest
 * round trip, assuming that the time was read in its middle (Cristian 1989). Collective. */
static struct clock_reading trace_measure_skew(struct trm_comm *comm)
{
  struct clock_reading best = {trace_clock(comm), 0};
  double shortest = INFINITY, now = 0;
  for (int rank = 1; rank < comm->size && !trace_has_one_clock(comm); rank++) {
    for (int i = 0; i < ROUNDS && comm->rank == 0; i++) {
      trace_receive(comm, rank, &now, sizeof now);
      now = trace_clock(comm);
      trace_send(comm, rank, &now, sizeof now);
    }
    for (int i = 0; i < ROUNDS && comm->rank == rank; i++) {
      const double sent = trace_clock(comm);
      trace_send(comm, 0, &sent, sizeof sent);
      trace_receive(comm, 0, &now, sizeof now);
      const double received = trace_clock(comm);
      if (received - sent < shortest) {
        shortest = received - sent;
        best = (struct clock_reading){(sent + received) / 2, now - (sent + received) / 2};
      }
    }
  }
  return best;
}

void trm_trace_start(struct trm_comm *comm, size_t events)
{
  trm_trace_stop();
  struct trm_trace *trace = trm_alloc(sizeof *trace, "the trace");
  trace->capacity = events ? events : 1;
  trace->ring = trm_alloc(trace->capacity * sizeof *trace->ring, "the trace");
  trace->comm = comm;
  trace->start = trace_measure_skew(comm);
  trace->origin = trace->start.time;
  if (!trace_has_one_clock(comm))
    comm->ops->broadcast(comm, &trace->origin, 1, TRM_DOUBLE, 0);
  trm_rank_current()->trace = trace;
}

bool trm_trace_on(void)
{
  return trm_rank_current()->trace != NULL;
}

void trm_trace_set_step(int64_t step)
{
  struct trm_trace *trace = trm_rank_current()->trace;
  if (trace)
    trace->step = step;
}

void trm_trace_start_regions(struct trm_comm *comm)
{
  trm_rank_current()->regions = comm->ops->region ? comm : NULL;
}

void trm_trace_enter_region(const char *name)
{
  struct trm_comm *comm = trm_rank_current()->regions;
  if (comm)
    comm->ops->region(comm, name, true);
}

void trm_trace_leave_region(const char *name)
{
  struct trm_comm *comm = trm_rank_current()->regions;
  if (comm)
    comm->ops->region(comm, name, false);
}

double trm_trace_begin(const char *name)
{
  const struct trm_trace *trace = trm_rank_current()->trace;
  trm_trace_enter_region(name);
  return trace ? trace_clock(trace->comm) : 0;
}

void trm_trace_add(const char *name, enum trm_trace_kind kind, double began, double ended, struct trm_trace_ids ids)
{
  struct trm_trace *trace = trm_rank_current()->trace;
  if (!trace || trace->ended || (ended <= began && trace_has_one_clock(trace->comm)))
    return;
  struct event *event = &trace->ring[trace->count % trace->capacity];
  *event = (struct event){.began = began, .ended = ended, .step = trace->step, .number = trace->count++, .ids = ids,
                          .kind = (int32_t)kind};
  strncpy(event->name, name, NAME_BYTES - 1);
}

void trm_trace_end(const char *name, enum trm_trace_kind kind, double began, struct trm_trace_ids ids)
{
  const struct trm_trace *trace = trm_rank_current()->trace;
  trm_trace_leave_region(name);
  if (trace)
    trm_trace_add(name, kind, began, trace_clock(trace->comm), ids);
}

void trm_trace_end_recording(void)
{
  struct trm_trace *trace = trm_rank_current()->trace;
  if (trace)
    trace->ended = true;
}

void trm_trace_stop(void)
{
  struct trm_trace *trace = trm_rank_current()->trace;
  if (trace)
    trm_free(trace->ring);
  trm_free(trace);
  trm_rank_current()->trace = NULL;
  trm_rank_current()->regions = NULL;
}

/* -- the file */

/* Orders by start; for equal starts, enclosing events first, which end last. */
static int trace_compare_events(const void *a, const void *b)
{
  const struct event *x = a, *y = b;
  if (x->began != y->began)
    return x->began < y->began ? -1 : 1;
  if (x->ended != y->ended)
    return x->ended > y->ended ? -1 : 1;
  return x->number > y->number ? -1 : x->number < y->number;
}

/* Returns the stored events (*count) in order, in seconds since the start by rank 0's clock. Owned by the caller. */
static struct event *trace_collect_events(const struct trm_trace *trace, const struct clock_reading *end, size_t *count)
{
  const uint64_t stored = trace->count < trace->capacity ? trace->count : trace->capacity;
  struct event *event = trm_alloc(stored * sizeof *event, "the trace");
  const double span = end->time - trace->start.time, drift = span > 0 ? (end->skew - trace->start.skew) / span : 0;
  for (uint64_t i = 0; i < stored; i++) {
    event[i] = trace->ring[(trace->count - stored + i) % trace->capacity];
    double *const times[] = {&event[i].began, &event[i].ended};
    for (int k = 0; k < 2; k++)
      *times[k] += trace->start.skew + drift * (*times[k] - trace->start.time) - trace->origin;
  }
  qsort(event, stored, sizeof *event, trace_compare_events);
  *count = (size_t)stored;
  return event;
}

/* Rounded to nanoseconds, so that nested events stay nested. */
static double trace_microseconds(double seconds)
{
  return (seconds > 0 ? rint(seconds * 1e9) : 0) / 1e3;
}

/* phase: of the Trace Event Format. */
static void trace_begin_event(struct trm_json *json, int rank, const struct event *event, const char *phase,
                              double time)
{
  static const char *const kinds[] = {"compute", "communication", "wait", "flight"};
  fputc('\n', json->stream);
  trm_json_object(json, NULL);
  trm_json_text(json, "name", event->name);
  trm_json_text(json, "cat", kinds[event->kind]);
  trm_json_text(json, "ph", phase);
  trm_json_number(json, "ts", time);
  trm_json_integer(json, "pid", 0);
  trm_json_integer(json, "tid", rank);
}

/* number: of the event among all. A flight is an asynchronous event, two lines with an id; any other is one line. */
static void trace_write_event(struct trm_json *json, int rank, const struct event *event, int64_t number)
{
  const struct {
    const char *name;
    int64_t value;
  } numbers[] = {
    {"step", event->step}, {"micro", event->ids.micro}, {"chunk", event->ids.chunk}, {"layer", event->ids.layer}};
  const double began = trace_microseconds(event->began), ended = trace_microseconds(event->ended);
  const bool flies = event->kind == TRM_TRACE_FLIGHT;
  trace_begin_event(json, rank, event, flies ? "b" : "X", began);
  if (flies)
    trm_json_integer(json, "id", number);
  else
    trm_json_number(json, "dur", ended > began ? rint((ended - began) * 1e3) / 1e3 : 0);
  trm_json_object(json, "args");
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
    if (numbers[i].value >= 0)
      trm_json_integer(json, numbers[i].name, numbers[i].value);
  trm_json_end(json);
  trm_json_end(json);
  if (!flies)
    return;
  trace_begin_event(json, rank, event, "e", ended > began ? ended : began);
  trm_json_integer(json, "id", number);
  trm_json_end(json);
}

/* Names the row of a rank. */
static void trace_write_row(struct trm_json *json, int rank)
{
  char name[32];
  snprintf(name, sizeof name, "rank %d", rank);
  fputc('\n', json->stream);
  trm_json_object(json, NULL);
  trm_json_text(json, "name", "thread_name");
  trm_json_text(json, "ph", "M");
  trm_json_integer(json, "pid", 0);
  trm_json_integer(json, "tid", rank);
  trm_json_object(json, "args");
  trm_json_text(json, "name", name);
  trm_json_end(json);
  trm_json_end(json);
}

/* Writes rank 0's own events and receives those of the others. counts (ranks, 2): events stored, events dropped. */
static void trace_write_file(FILE *stream, struct trm_comm *comm, const struct event *local, const int64_t *counts)
{
  struct trm_json json;
  int64_t number = 0;
  trm_json_open(&json, stream);
  trm_json_object(&json, NULL);
  trm_json_list(&json, "traceEvents");
  for (int rank = 0; rank < comm->size; rank++) {
    const size_t count = (size_t)counts[2 * rank];
    struct event *remote = rank ? trm_alloc(count * sizeof *remote, "the trace") : NULL;
    if (rank && count)
      trace_receive(comm, rank, remote, count * sizeof *remote);
    trace_write_row(&json, rank);
    for (size_t i = 0; i < count; i++)
      trace_write_event(&json, rank, rank ? &remote[i] : &local[i], number++);
    trm_free(remote);
  }
  trm_json_end(&json);
  trm_json_text(&json, "displayTimeUnit", "ms");
  trm_json_object(&json, "otherData");
  trm_json_list(&json, "dropped"); /* per rank: events overwritten in the ring */
  for (int rank = 0; rank < comm->size; rank++)
    trm_json_integer(&json, NULL, counts[2 * rank + 1]);
  trm_json_end(&json);
  trm_json_end(&json);
  trm_json_end(&json);
}

int trm_trace_write(const char *path)
{
  const struct trm_trace *trace = trm_rank_current()->trace;
  if (!trace)
    return TRM_OK;
  struct trm_comm *comm = trace->comm;
  FILE *stream = comm->rank == 0 ? fopen(path, "w") : NULL;
  int status = comm->rank == 0 && !stream ? trm_error(TRM_FAILED, "%s: %s", path, strerror(errno)) : TRM_OK;
  TRM_CHECK(trm_agree(comm, status));
  const struct clock_reading end = trace_measure_skew(comm);
  size_t count;
  struct event *event = trace_collect_events(trace, &end, &count);
  int64_t *counts = trm_alloc(2 * (size_t)comm->size * sizeof *counts, "the trace");
  const int64_t mine[] = {(int64_t)count, (int64_t)(trace->count - count)};
  comm->ops->allgather(comm, mine, counts, 2, TRM_INT64);
  if (comm->rank == 0)
    trace_write_file(stream, comm, event, counts);
  else if (count)
    trace_send(comm, 0, event, count * sizeof *event);
  trm_free(counts);
  trm_free(event);
  if (stream) {
    const bool failed = ferror(stream);
    if (fclose(stream) != 0 || failed)
      status = trm_error(TRM_FAILED, "%s: %s", path, failed ? "the trace could not be written" : strerror(errno));
  }
  return trm_agree(comm, status);
}
