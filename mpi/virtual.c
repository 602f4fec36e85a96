/* The virtual network: a run, and the table of the contract's slots. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"
#include "mpi/virtual_private.h"

static double virtual_clock(struct trm_comm *comm)
{
  return virtual_net_of(comm)->now;
}

double virtual_processor_seconds(clockid_t clock)
{
  struct timespec time = {0};
  clock_gettime(clock, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void virtual_costs(struct trm_comm *comm, struct trm_comm_costs *costs)
{
  const struct virtual_net *net = virtual_net_of(comm);
  const struct trm_virtual_figures *figures = &net->figures;
  *costs = (struct trm_comm_costs){
    .events = figures->events, .switches = figures->switches, .messages = figures->messages, .bytes = figures->bytes,
    .cpu_s = virtual_processor_seconds(CLOCK_PROCESS_CPUTIME_ID) - net->cpu_began,
    .compute_s = net->pool ? virtual_pool_seconds(net->pool) : 0,
    .calls_s = net->timed_calls > 0 ? net->timed_s * (double)net->calls / (double)net->timed_calls : 0,
  };
}

static void virtual_end(int status)
{
  fflush(NULL);
  _exit(status == TRM_OK ? TRM_FAILED : status); /* not exit: other threads may be computing */
}

static void virtual_progress(struct trm_comm *comm)
{
  (void)comm;
}

static __attribute__((noreturn)) void virtual_abort(struct trm_comm *comm, int status)
{
  (void)comm;
  virtual_end(status);
  _exit(TRM_FAILED); /* it does not return; the compiler cannot know */
}

static void *virtual_native(struct trm_comm *comm)
{
  (void)comm;
  return NULL;
}

const struct trm_comm_ops virtual_ops = {
  .name = "virtual",
  .barrier = virtual_barrier,
  .broadcast = virtual_broadcast,
  .allreduce = virtual_allreduce,
  .allgather = virtual_allgather,
  .reduce_scatter = virtual_reduce_scatter,
  .allreduce_begin = virtual_allreduce_begin,
  .allgather_begin = virtual_allgather_begin,
  .reduce_scatter_begin = virtual_reduce_scatter_begin,
  .send_begin = virtual_send_begin,
  .receive_begin = virtual_receive_begin,
  .test = virtual_test,
  .wait = virtual_wait,
  .progress = virtual_progress,
  .wait_until = virtual_wait_until,
  .wait_at_most = virtual_wait_at_most,
  .notify = virtual_notify,
  .sleep_until = virtual_sleep_until_slot,
  .compute = virtual_compute,
  .split = virtual_split,
  .split_node = virtual_split_node,
  .release = virtual_release,
  .share = virtual_share,
  .unshare = virtual_unshare,
  .window_create = virtual_window_create,
  .window_free = virtual_window_free,
  .get = virtual_get,
  .put = virtual_put,
  .accumulate = virtual_accumulate,
  .fetch_add = virtual_fetch_add,
  .flush = virtual_flush,
  .calls_create = virtual_calls_create,
  .calls_free = virtual_calls_free,
  .call_begin = virtual_call_begin,
  .clock = virtual_clock,
  .costs = virtual_costs,
  .abort = virtual_abort,
  .native = virtual_native,
};

static void virtual_run_rank(void *of)
{
  struct virtual_rank *rank = of;
  struct virtual_net *net = rank->net;
  trm_log_set_rank(rank->rank, net->plan.ranks);
  rank->status = net->main(rank->world, net->main_context);
  rank->done = true;
  if (--net->running == 0)
    virtual_resume_at(net, net->now, net->root);
}

static void virtual_create_ranks(struct virtual_net *net)
{
  const int ranks = net->plan.ranks;
  net->rank = trm_alloc((size_t)ranks * sizeof *net->rank, "the ranks of the virtual network");
  net->nodes = (ranks + net->plan.ranks_per_node - 1) / net->plan.ranks_per_node;
  net->node = trm_alloc((size_t)net->nodes * sizeof *net->node, "the nodes of the virtual network");
  struct virtual_group *world = virtual_group_create(net, ranks);
  for (int i = 0; i < ranks; i++) {
    struct virtual_rank *rank = &net->rank[i];
    rank->net = net;
    rank->rank = world->member[i] = i;
    rank->node = i / net->plan.ranks_per_node;
    trm_rank_state_init(&rank->state);
    rank->world = virtual_comm_create(world, i);
  }
  virtual_group_count_nodes(world);
  net->running = ranks;
  virtual_stacks_create(net);
  for (int i = 0; i < ranks; i++)
    net->rank[i].fiber = virtual_fiber_create(net, &net->rank[i], virtual_run_rank, &net->rank[i]);
}

/* The status of the lowest rank that failed, with its message; otherwise that of the run. */
static int virtual_status(const struct virtual_net *net)
{
  for (int i = 0; i < net->plan.ranks; i++) {
    const struct virtual_rank *rank = &net->rank[i];
    if (rank->done && rank->status != TRM_OK)
      return trm_error(rank->status, "%s", virtual_fiber_context(rank->fiber)->error_text);
  }
  return net->running > 0 ? TRM_FAILED : TRM_OK;
}

int trm_virtual_run(const struct trm_virtual_plan *plan, int (*main)(struct trm_comm *world, void *context),
                    void *context, struct trm_virtual_figures *figures)
{
  struct virtual_net *net = trm_alloc(sizeof *net, "the virtual network");
  net->plan = *plan;
  net->main = main;
  net->main_context = context;
  net->random = plan->schedule;
  net->cpu_began = virtual_processor_seconds(CLOCK_PROCESS_CPUTIME_ID);
  net->root = net->current = virtual_fiber_root(net);
  if (plan->threads > 0)
    net->pool = virtual_pool_create(plan->threads - 1);
  trm_set_abort(virtual_end);
  virtual_create_ranks(net);
  virtual_park(net, NULL, NULL); /* until all ranks are done, or wait for one another */
  trm_set_abort(NULL);
  const int status = virtual_status(net);
  net->figures.seconds = net->now;
  if (figures)
    *figures = net->figures;
  virtual_pool_free(net->pool);
  for (int i = 0; i < plan->ranks; i++) {
    virtual_release(net->rank[i].world);
    virtual_fiber_free(net->rank[i].fiber);
  }
  virtual_stacks_free(net);
  virtual_fiber_free(net->root);
  virtual_blocks_free(net);
  trm_free(net->event);
  trm_free(net->node);
  trm_free(net->rank);
  trm_free(net);
  return status;
}
