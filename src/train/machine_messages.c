/* Messages between two ranks of a node, timed: single ones, and what the ranks of an axis do together. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/axis.h"
#include "core/memory.h"
#include "train/machine.h"

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

/* A low quartile: others at work on the node are not to count. Each round has other values of the arrays, as layers
 * do. */
static double seconds_of(const struct messages *m, meeting *meet, size_t n)
{
  double took[ROUNDS];
  size_t at = 0;
  for (int i = -2; i < ROUNDS; i++, at = at + 2 * n <= FLOATS ? at + n : 0) {
    m->comm->ops->barrier(m->comm);
    const double before = m->comm->ops->clock(m->comm);
    meet(m, m->from + at, m->to + at, n);
    if (i >= 0)
      took[i] = m->comm->ops->clock(m->comm) - before;
  }
  qsort(took, ROUNDS, sizeof *took, by_value);
  return took[ROUNDS / 4];
}

/* Of the pair; found by rank 0. */
static void pair_measure(struct trm_machine *machine, struct trm_comm *pair, struct trm_axis *axis)
{
  static const struct {
    const char *name;
    meeting *meet;
    bool axis;
  } kinds[] = {{"all sum", sum, false},       {"all gather", gather, false},       {"sum scatter", scatter, false},
               {"axis sum", axis_sum, true}, {"axis gather", axis_gather, true}, {"axis scatter", axis_scatter, true}};
  static const size_t sizes[] = {1 << 6, 1 << 12, 1 << 15, 1 << 18, 1 << 21};
  const struct messages m = {.comm = pair, .axis = axis, .from = trm_alloc(FLOATS * sizeof(float), "messages to measure"),
                             .to = trm_alloc(FLOATS * sizeof(float), "messages to measure")};
  memset(m.from, 0, FLOATS * sizeof(float)); /* so that they are memory */
  memset(m.to, 0, FLOATS * sizeof(float));
  const size_t many = 1 << 18;
  machine->message_s = seconds_of(&m, exchange, 4);
  const double large = seconds_of(&m, exchange, many);
  machine->message_bytes_per_s =
    sizeof(float) * (double)many / (large > machine->message_s ? large - machine->message_s : large);
  for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes && (axis->device->host_memory || !kinds[k].axis); i++) {
      struct trm_machine_work work = {.bytes = sizeof(float) * (double)sizes[i]};
      strcpy(work.name, kinds[k].name);
      work.forward_s = seconds_of(&m, kinds[k].meet, sizes[i]);
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
