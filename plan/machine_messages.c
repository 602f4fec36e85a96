/* Messages between two ranks of a node, timed: single ones, and what the ranks of an axis do together. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/axis.h"
#include "core/memory.h"
#include "plan/machine.h"

enum { ROUNDS = 21, FLOATS = 1 << 22 }; /* of an array: more than the caches hold of two */

/* A piece of work of both ranks on `n` floats. */
struct messages {
  struct trm_comm *comm;
  struct trm_axis *axis;
  float *from, *to; /* (FLOATS) */
};
typedef void meeting(const struct messages *m, float *from, float *to, size_t n);

static void exchange(const struct messages *m, float *from, float *to, size_t n)
{
  struct trm_comm *comm = m->comm;
  struct trm_request *receive, *send;
  const int peer = 1 - comm->rank;
  comm->ops->receive_begin(comm, to, n, TRM_FLOAT, peer, 0, &receive);
  comm->ops->send_begin(comm, from, n, TRM_FLOAT, peer, 0, &send);
  comm->ops->wait(&receive);
  comm->ops->wait(&send);
}

static void sum(const struct messages *m, float *from, float *to, size_t n)
{
  (void)to;
  m->comm->ops->allreduce(m->comm, from, n, TRM_FLOAT, TRM_SUM);
}

static void gather(const struct messages *m, float *from, float *to, size_t n)
{
  m->comm->ops->allgather(m->comm, from, to, n / 2, TRM_FLOAT);
}

static void scatter(const struct messages *m, float *from, float *to, size_t n)
{
  m->comm->ops->reduce_scatter(m->comm, from, to, n / 2, TRM_FLOAT, TRM_SUM);
}

static void axis_sum(const struct messages *m, float *from, float *to, size_t n)
{
  (void)to;
  trm_axis_sum(m->axis, from, n);
}

/* Rows of a value: their parts lie apart. */
static size_t rows_of(size_t n)
{
  return n < 4096 ? 1 : 64;
}

static void axis_gather(const struct messages *m, float *from, float *to, size_t n)
{
  trm_axis_gather(m->axis, from, to, rows_of(n), n / rows_of(n), 1);
}

static void axis_scatter(const struct messages *m, float *from, float *to, size_t n)
{
  trm_axis_scatter_sum(m->axis, from, to, rows_of(n), n / rows_of(n), 1);
}

static int by_value(const void *a, const void *b)
{
  const double one = *(const double *)a, two = *(const double *)b;
  return (one > two) - (one < two);
}

/* A kind of meeting with a value of n floats, and how long it took. */
struct timed {
  const char *name;
  meeting *meet;
  size_t n, at; /* at: where the arrays of the next time are; layers, too, have others each time */
  double took[ROUNDS];
};

static void time_once(const struct messages *m, struct timed *t, int round)
{
  struct trm_comm *comm = m->comm;
  comm->ops->barrier(comm);
  const double before = comm->ops->clock(comm);
  t->meet(m, m->from + t->at, m->to + t->at, t->n);
  if (round >= 0)
    t->took[round] = comm->ops->clock(comm) - before;
  t->at = t->at + 2 * t->n <= FLOATS ? t->at + t->n : 0;
}

/* A low quartile: others at work on the node are not to count. */
static double seconds_of(struct timed *t)
{
  qsort(t->took, ROUNDS, sizeof *t->took, by_value);
  return t->took[ROUNDS / 4];
}

/* Of the pair; found by rank 0. All kinds in each round, so that a bad moment falls on one round of each. */
static void pair_measure(struct trm_machine *machine, struct trm_comm *pair, struct trm_axis *axis)
{
  static const struct {
    const char *name;
    meeting *meet;
  } kinds[] = {{"all sum", sum},       {"all gather", gather},       {"sum scatter", scatter},
               {"axis sum", axis_sum}, {"axis gather", axis_gather}, {"axis scatter", axis_scatter}};
  static const size_t sizes[] = {1 << 6, 1 << 12, 1 << 15, 1 << 18, 1 << 21};
  enum { FEW = 4, MANY = 1 << 18, KINDS = sizeof kinds / sizeof *kinds, SIZES = sizeof sizes / sizeof *sizes };
  const struct messages m = {.comm = pair, .axis = axis,
                             .from = trm_alloc(FLOATS * sizeof(float), "messages to measure"),
                             .to = trm_alloc(FLOATS * sizeof(float), "messages to measure")};
  struct timed timed[2 + KINDS * SIZES] = {{.meet = exchange, .n = FEW}, {.meet = exchange, .n = MANY}};
  int count = 2;
  for (int k = 0; k < KINDS; k++)
    for (int i = 0; i < SIZES && (axis->device->host_memory || strncmp(kinds[k].name, "axis", 4) != 0); i++)
      timed[count++] = (struct timed){.name = kinds[k].name, .meet = kinds[k].meet, .n = sizes[i]};
  memset(m.from, 0, FLOATS * sizeof(float)); /* so that they are memory */
  memset(m.to, 0, FLOATS * sizeof(float));
  for (int round = -2; round < ROUNDS; round++)
    for (int i = 0; i < count; i++)
      time_once(&m, &timed[i], round);
  const double large = seconds_of(&timed[1]);
  machine->message_s = seconds_of(&timed[0]);
  machine->message_bytes_per_s =
    sizeof(float) * (double)MANY / (large > machine->message_s ? large - machine->message_s : large);
  for (int i = 2; i < count; i++) {
    struct trm_machine_work work = {.bytes = sizeof(float) * (double)timed[i].n, .forward_s = seconds_of(&timed[i])};
    strcpy(work.name, timed[i].name);
    trm_machine_add(machine, &work);
  }
  trm_free(m.from);
  trm_free(m.to);
}

void trm_machine_measure_messages(struct trm_machine *machine, struct trm_comm *comm, struct trm_device *device,
                                  const char *domain)
{
  if (comm->size < 2)
    return;
  struct trm_comm *pair = comm->ops->split(comm, comm->rank < 2 ? 0 : -1, comm->rank);
  if (pair) {
    struct trm_axis axis;
    trm_axis_open(&axis, pair, device);
    if (strcmp(domain, "none") != 0)
      trm_axis_share(&axis, domain);
    pair_measure(machine, pair, &axis);
    trm_axis_close(&axis);
    pair->ops->release(pair);
  }
  machine->messages_measured = true;
}
