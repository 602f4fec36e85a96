#define _GNU_SOURCE
#include "cli/planning.h"

#include <sched.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"
#include "kernels/kernels.h"

#define MEASURE_S 2.0 /* for all layers of all layouts */

enum { WAKE_TAG = 17 };

static cpu_set_t planning_affinity(void)
{
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0)
    CPU_SET(0, &set);
  return set;
}

/* The cores that the ranks of a node may use together. */
static int planning_node_cores(struct trm_comm *node)
{
  const cpu_set_t mine = planning_affinity();
  cpu_set_t any = mine, *all = trm_alloc((size_t)node->size * sizeof *all, "processor sets");
  node->ops->allgather(node, &mine, all, sizeof mine, TRM_BYTE);
  for (int i = 0; i < node->size; i++)
    CPU_OR(&any, &any, &all[i]);
  trm_free(all);
  return CPU_COUNT(&any);
}

/* -- the other ranks sleep while rank 0 measures with all cores */

static void planning_wake_others(struct trm_comm *comm)
{
  char byte = 0;
  for (int rank = 1; rank < comm->size; rank++) {
    struct trm_request *request;
    comm->ops->send_begin(comm, &byte, 1, TRM_BYTE, rank, WAKE_TAG, &request);
    comm->ops->wait(&request);
  }
}

static void planning_sleep_until_woken(struct trm_comm *comm)
{
  const struct timespec interval = {.tv_nsec = 2000000};
  char byte;
  struct trm_request *request;
  comm->ops->receive_begin(comm, &byte, 1, TRM_BYTE, 0, WAKE_TAG, &request);
  while (!comm->ops->test(&request))
    nanosleep(&interval, NULL);
}

/* -- planning */

/* Opens one device for each rank that computes at the same time on a node, as far as this process may use the cores; if
 * ranks share cores there, the devices share them, too. */
static int planning_open_devices(struct planning *planning, const struct trm_job *job, int ranks)
{
  const cpu_set_t mine = planning_affinity();
  const int threads = planning->planner.job.threads, cores = planning->planner.job.cores;
  const int slots = cores > threads ? cores / threads : 1, per_slot = (ranks + slots - 1) / slots;
  const int max_slots = CPU_COUNT(&mine) > threads ? CPU_COUNT(&mine) / threads : 1;
  const int count = ranks < max_slots * per_slot ? ranks : max_slots * per_slot;
  planning->device = trm_alloc((size_t)count * sizeof *planning->device, "devices");
  planning->bench = (struct trm_machine_bench){.device = planning->device, .seconds = MEASURE_S};
  for (int i = 0; i < count; i++) {
    TRM_CHECK(trm_device_open(&planning->device[i], job->options.device.name, job->options.device.blas,
                              job->options.device.matmul, 0, threads));
    planning->bench.devices++;
  }
  return TRM_OK;
}

static int planning_run(struct planning *planning, struct trm_job *job, const struct planning_request *request,
                        const struct trm_machine *messages)
{
  struct trm_planner *planner = &planning->planner;
  const cpu_set_t mine = planning_affinity();
  struct trm_machine machine;
  if (request->machine)
    TRM_CHECK(trm_machine_read(&machine, request->machine));
  const int node_ranks = request->ranks / request->nodes;
  const int cores = request->cores ? request->cores : request->machine ? machine.cores : CPU_COUNT(&mine);
  const int given = (int)job->options.parallel.threads, each = cores / (node_ranks > 0 ? node_ranks : 1);
  const struct trm_planner_request inner = {.ranks = request->ranks, .nodes = request->nodes, .cores = cores,
                                            .threads = given ? given : each > 0 ? each : 1, .limit = request->limit,
                                            .has_communicated = messages->messages_measured};
  const int status = trm_planner_open(planner, &job->options, &job->modules, &inner);
  if (request->machine) {
    trm_machine_free(&planner->machine);
    planner->machine = machine;
  }
  TRM_CHECK(status);
  if (request->machine)
    return trm_planner_run(planner, NULL);
  planner->machine.message_latency_s = messages->message_latency_s;
  planner->machine.message_bytes_per_s = messages->message_bytes_per_s;
  planner->machine.messages_measured = messages->messages_measured;
  for (int i = 0; i < messages->works; i++)
    trm_machine_add(&planner->machine, &messages->work[i]);
  TRM_CHECK(planning_open_devices(planning, job, node_ranks));
  TRM_CHECK(trm_planner_run(planner, &planning->bench));
  planning->measured_s = planning->bench.spent;
  return TRM_OK;
}

int planning_open(struct planning *planning, struct trm_job *job, const struct planning_request *request)
{
  struct trm_comm *comm = job->modules.comm;
  struct planning_request resolved = *request;
  struct trm_machine messages;
  *planning = (struct planning){.measured_s = 0};
  trm_machine_create(&messages, 1, 1);
  if (!request->machine) {
    struct trm_comm *node = comm->ops->split_node(comm, TRM_SHARE_NODE);
    resolved.cores = resolved.cores ? resolved.cores : planning_node_cores(node);
    node->ops->release(node);
    trm_machine_measure_messages(&messages, comm, &job->device, job->options.parallel.share);
  }
  int status = TRM_OK;
  if (comm->rank == 0) {
    status = planning_run(planning, job, &resolved, &messages);
    planning_wake_others(comm);
  } else {
    planning_sleep_until_woken(comm);
  }
  trm_machine_free(&messages);
  return trm_agree(comm, status);
}

void planning_close(struct planning *planning)
{
  trm_planner_close(&planning->planner);
  for (int i = 0; i < planning->bench.devices; i++)
    trm_device_close(&planning->device[i]);
  trm_free(planning->device);
  *planning = (struct planning){.measured_s = 0};
}

/* -- parallel.layout=auto */

/* Number of nodes of the job; 0: their numbers of ranks differ. */
static int planning_count_nodes(struct trm_comm *comm, struct trm_comm *node)
{
  int32_t extremes[2] = {node->size, -node->size};
  comm->ops->allreduce(comm, extremes, 2, TRM_INT32, TRM_MAX);
  return extremes[0] == -extremes[1] ? comm->size / node->size : 0;
}

/* The layout that rank 0 broadcasts. */
struct choice {
  int32_t size[TRM_AXES], chunks, zero;
  enum trm_schedule_name schedule;
  char recompute[24];
};

static int planning_pick_best(const struct planning *planning, struct choice *choice)
{
  const struct trm_planner *planner = &planning->planner;
  const struct trm_planned *best = &planner->planned[0];
  if (!best->fits)
    return trm_error(TRM_FAILED,
                     "parallel.layout: none of %d layouts fits a rank's part of the node's memory, %.0f MB; the "
                     "fastest, %s, takes %.0f MB",
                     planner->count, planner->limit / (1 << 20), trm_layout_text(&best->layout),
                     best->memory.total / (1 << 20));
  for (int a = 0; a < TRM_AXES; a++)
    choice->size[a] = best->layout.size[a];
  choice->chunks = best->layout.chunks;
  choice->zero = best->layout.zero;
  choice->schedule = best->layout.schedule;
  snprintf(choice->recompute, sizeof choice->recompute, "%s", best->layout.recompute);
  trm_info("layout: %s, the best of %d: planned %.1f ms a step and %.0f MB a rank (trireme plan lists all)",
           trm_layout_text(&best->layout), planner->count, 1e3 * best->time.step_s, best->memory.total / (1 << 20));
  return TRM_OK;
}

int planning_choose(struct trm_job *job)
{
  struct trm_comm *comm = job->modules.comm, *node = comm->ops->split_node(comm, TRM_SHARE_NODE);
  const int nodes = planning_count_nodes(comm, node), node_ranks = node->size;
  struct planning_request request = {.ranks = comm->size, .nodes = nodes, .cores = planning_node_cores(node)};
  node->ops->release(node);
  if (!nodes)
    return trm_error(TRM_USAGE, "parallel.layout: auto needs nodes with equal numbers of ranks");
  request.limit = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE) / node_ranks;
  struct planning planning;
  struct choice choice = {.chunks = 0};
  int status = planning_open(&planning, job, &request);
  if (status == TRM_OK)
    status = trm_agree(comm, comm->rank == 0 ? planning_pick_best(&planning, &choice) : TRM_OK);
  planning_close(&planning);
  TRM_CHECK(status);
  comm->ops->broadcast(comm, &choice, sizeof choice, TRM_BYTE, 0);
  struct trm_layout layout = {.schedule = choice.schedule, .chunks = choice.chunks, .zero = choice.zero,
                              .recompute = choice.recompute};
  for (int a = 0; a < TRM_AXES; a++)
    layout.size[a] = choice.size[a];
  TRM_CHECK(trm_layout_apply(&job->options, &layout));
  return trm_options_set(&job->options, "parallel.layout", "given"); /* the run's files say which */
}
