#include "mpi/async/stragglers.h"

#include "core/status.h"

/* IDLE: workers without batches; DECISIONS: to end computations; MESSAGE: to all, where all share memory. */
enum counter { IDLE, DECISIONS, MESSAGE, COUNTERS };
enum { ALL_IDLE = 1, END = 2 }; /* bits of a message */

int stragglers_create(struct stragglers *g, struct trm_comm *comm, struct trm_comm *node, int owner, int workers)
{
  *g = (struct stragglers){.comm = comm, .workers = workers, .began_s = -1};
  int status = shared_counters_create(&g->counters, comm, node, owner, COUNTERS);
  if (status == TRM_OK && !g->counters.counter) {
    void *memory;
    status = comm->ops->window_create(comm, 1, TRM_INT64, "messages about stragglers", &g->window, &memory);
    g->message = memory;
  }
  return status;
}

void stragglers_free(struct stragglers *g)
{
  if (g->window)
    g->comm->ops->window_free(&g->window);
  shared_counters_free(&g->counters);
}

static int64_t stragglers_message(const struct stragglers *g)
{
  struct shared_counters counters = g->counters;
  return g->message ? trm_counter_get(g->message) : shared_counters_read(&counters, MESSAGE);
}

static void stragglers_tell(struct stragglers *g, int64_t message)
{
  if (!g->window)
    shared_counters_add(&g->counters, MESSAGE, message);
  for (int rank = 0; g->window && rank < g->comm->size; rank++)
    g->comm->ops->fetch_add(g->window, message, rank, 0);
}

bool stragglers_end(const struct stragglers *g)
{
  return stragglers_message(g) & END;
}

void stragglers_begin(struct stragglers *g)
{
  g->began_s = g->comm->ops->clock(g->comm);
}

void stragglers_done(struct stragglers *g, bool whole)
{
  if (whole && g->began_s >= 0) {
    g->gradients_s += g->comm->ops->clock(g->comm) - g->began_s;
    g->gradients++;
  }
  g->whole += whole && g->began_s >= 0;
  g->abandoned += !whole;
  g->began_s = -1;
}

void stragglers_dropped(struct stragglers *g, uint64_t end)
{
  g->left_out = end;
  g->began_s = -1;
}

bool stragglers_leave_out(const struct stragglers *g, uint64_t end)
{
  return end <= g->left_out;
}

static bool stragglers_told(void *context)
{
  return stragglers_message(context) != 0;
}

void stragglers_wait(struct stragglers *g, bool decides)
{
  struct trm_comm *comm = g->comm;
  if (shared_counters_add(&g->counters, IDLE, 1) == g->workers - 1)
    stragglers_tell(g, ALL_IDLE);
  else if (decides && g->gradients > 0 &&
           !comm->ops->wait_at_most(comm, stragglers_told, g,
                                    comm->ops->clock(comm) + 2 * g->gradients_s / (double)g->gradients) &&
           shared_counters_add(&g->counters, DECISIONS, 1) == 0)
    stragglers_tell(g, END);
}

void stragglers_quiesce(struct stragglers *g, uint64_t end, bool able)
{
  if (g->abandoned > 0 && g->whole == 0)
    g->left_out = end;
  g->abandoned = g->whole = 0;
  int32_t ready = able && !stragglers_leave_out(g, end);
  g->comm->ops->allreduce(g->comm, &ready, 1, TRM_INT32, TRM_SUM);
  if (ready == 0)
    g->left_out = 0;
  for (size_t i = 0; i < COUNTERS && g->comm->rank == g->counters.owner; i++)
    shared_counters_add(&g->counters, i, -shared_counters_read(&g->counters, i));
  if (g->message)
    trm_counter_set(g->comm, g->message, 0);
}
