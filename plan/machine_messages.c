/* Measures messages and collectives between two ranks of a node. */
#include <math.h>
#include <string.h>

#include "core/axis.h"
#include "core/memory.h"
#include "plan/machine.h"

enum { ROUNDS = 21, FLOATS = 1 << 22 }; /* floats per array: two exceed the caches */
#define QUARTILE 0.25 /* the lower one, which is least affected by other processes */

/* The pair of ranks and its arrays. */
struct message_bench {
  struct trm_comm *comm;
  struct trm_axis *axis;
  float *from, *to; /* (FLOATS) */
};
/* An operation of both ranks on n floats. */
typedef void message_operation(const struct message_bench *m, float *from, float *to, size_t n);

static void messages_exchange(const struct message_bench *m, float *from, float *to, size_t n)
{
  struct trm_comm *comm = m->comm;
  struct trm_request *receive, *send;
  const int peer = 1 - comm->rank;
  comm->ops->receive_begin(comm, to, n, TRM_FLOAT, peer, 0, &receive);
  comm->ops->send_begin(comm, from, n, TRM_FLOAT, peer, 0, &send);
  comm->ops->wait(&receive);
  comm->ops->wait(&send);
}

static void messages_allreduce(const struct message_bench *m, float *from, float *to, size_t n)
{
  (void)to;
  m->comm->ops->allreduce(m->comm, from, n, TRM_FLOAT, TRM_SUM);
}

static void messages_allgather(const struct message_bench *m, float *from, float *to, size_t n)
{
  m->comm->ops->allgather(m->comm, from, to, n / 2, TRM_FLOAT);
}

static void messages_reduce_scatter(const struct message_bench *m, float *from, float *to, size_t n)
{
  m->comm->ops->reduce_scatter(m->comm, from, to, n / 2, TRM_FLOAT, TRM_SUM);
}

static void messages_axis_allreduce(const struct message_bench *m, float *from, float *to, size_t n)
{
  (void)to;
  trm_axis_allreduce(m->axis, from, n, TRM_VALUES_F32);
}

/* Rows of a value whose columns are sharded. */
static size_t messages_axis_rows(size_t n)
{
  return n < 4096 ? 1 : 64;
}

static void messages_axis_allgather(const struct message_bench *m, float *from, float *to, size_t n)
{
  trm_axis_allgather(m->axis, from, to, messages_axis_rows(n), n / messages_axis_rows(n), 1, TRM_VALUES_F32);
}

static void messages_axis_reduce_scatter(const struct message_bench *m, float *from, float *to, size_t n)
{
  trm_axis_reduce_scatter(m->axis, from, to, messages_axis_rows(n), n / messages_axis_rows(n), 1, TRM_VALUES_F32);
}

/* One operation on n floats, and its seconds. */
struct timed_operation {
  const char *name;
  message_operation *run;
  size_t n, offset; /* offset: of the arrays of the next round; layers have other arrays each time, too */
  double seconds[ROUNDS];
};

static void messages_time_once(const struct message_bench *m, struct timed_operation *t, int round)
{
  struct trm_comm *comm = m->comm;
  comm->ops->barrier(comm);
  const double before = comm->ops->clock(comm);
  t->run(m, m->from + t->offset, m->to + t->offset, t->n);
  if (round >= 0)
    t->seconds[round] = comm->ops->clock(comm) - before;
  t->offset = t->offset + 2 * t->n <= FLOATS ? t->offset + t->n : 0;
}

/* Measures all operations in each round, so that a disturbance affects one round of each. Collective over the pair. */
static void messages_measure_pair(struct trm_machine *machine, struct trm_comm *pair, struct trm_axis *axis)
{
  static const struct {
    const char *name;
    message_operation *run;
  } kinds[] = {{"all sum", messages_allreduce},          {"all gather", messages_allgather},
               {"sum scatter", messages_reduce_scatter}, {"axis sum", messages_axis_allreduce},
               {"axis gather", messages_axis_allgather}, {"axis scatter", messages_axis_reduce_scatter}};
  static const size_t sizes[] = {1 << 6, 1 << 12, 1 << 15, 1 << 18, 1 << 21};
  enum {
    LATENCY_FLOATS = 4,
    BANDWIDTH_FLOATS = 1 << 18,
    KINDS = sizeof kinds / sizeof *kinds,
    SIZES = sizeof sizes / sizeof *sizes
  };
  const struct message_bench m = {.comm = pair,
                                  .axis = axis,
                                  .from = trm_alloc(FLOATS * sizeof(float), "messages to measure"),
                                  .to = trm_alloc(FLOATS * sizeof(float), "messages to measure")};
  struct timed_operation timed[2 + KINDS * SIZES] = {{.run = messages_exchange, .n = LATENCY_FLOATS},
                                                     {.run = messages_exchange, .n = BANDWIDTH_FLOATS}};
  int count = 2;
  for (int k = 0; k < KINDS; k++)
    for (int i = 0; i < SIZES && (axis->device->host_memory || strncmp(kinds[k].name, "axis", 4) != 0); i++)
      timed[count++] = (struct timed_operation){.name = kinds[k].name, .run = kinds[k].run, .n = sizes[i]};
  memset(m.from, 0, FLOATS * sizeof(float)); /* touches its pages */
  memset(m.to, 0, FLOATS * sizeof(float));
  for (int round = -2; round < ROUNDS; round++)
    for (int i = 0; i < count; i++)
      messages_time_once(&m, &timed[i], round);
  const double large = trm_quantile(timed[1].seconds, ROUNDS, QUARTILE);
  machine->message_latency_s = trm_quantile(timed[0].seconds, ROUNDS, QUARTILE);
  machine->message_bytes_per_s = sizeof(float) * (double)BANDWIDTH_FLOATS /
                                 (large > machine->message_latency_s ? large - machine->message_latency_s : large);
  for (int i = 2; i < count; i++) {
    struct trm_machine_work work = {.bytes = sizeof(float) * (double)timed[i].n,
                                    .forward_s = trm_quantile(timed[i].seconds, ROUNDS, QUARTILE)};
    strcpy(work.name, timed[i].name);
    trm_machine_add(machine, &work);
  }
  trm_free(m.from);
  trm_free(m.to);
}

void trm_machine_measure_messages(struct trm_machine *machine, struct trm_comm *comm, struct trm_device *device,
                                  enum trm_share domain)
{
  if (comm->size < 2)
    return;
  struct trm_comm *pair = comm->ops->split(comm, comm->rank < 2 ? 0 : -1, comm->rank);
  if (pair) {
    struct trm_axis axis;
    trm_axis_open(&axis, pair, device);
    if (domain != TRM_SHARE_NONE)
      trm_axis_share_memory(&axis, domain);
    messages_measure_pair(machine, pair, &axis);
    trm_axis_close(&axis);
    pair->ops->release(pair);
  }
  machine->messages_measured = true;
}
