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

/* -- sleeping ranks */

void planning_wake(struct trm_comm *comm, int first)
{
  char byte = 0;
  for (int rank = first; rank < comm->size; rank++) {
    struct trm_request *request;
    comm->ops->send_begin(comm, &byte, 1, TRM_BYTE, rank, WAKE_TAG, &request);
    comm->ops->wait(&request);
  }
}

void planning_sleep_until_woken(struct trm_comm *comm)
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
 * ranks share cores there, the devices share them, too. A device with memory of its own is this process's: others share
 * nothing with it. */
static int planning_open_devices(struct planning *planning, struct trm_job *job, int ranks)
{
  if (!job->device.host_memory) {
    planning->bench = (struct trm_machine_bench){.device = &job->device, .devices = 1, .seconds = MEASURE_S};
    return TRM_OK;
  }
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

/* machine: whether it is read from a file. */
static int planning_run(struct planning *planning, struct trm_job *job, const struct trm_planner_request *request,
                        const char *machine)
{
  struct trm_planner *planner = &planning->planner;
  if (machine)
    TRM_CHECK(trm_machine_read(&planning->machine, machine));
  else
    trm_machine_set_device(&planning->machine, &job->device);
  TRM_CHECK(trm_planner_open(planner, &job->options, &job->modules, request, &planning->machine));
  if (machine)
    return trm_planner_run(planner, NULL);
  planning->machine.threads = planner->job.threads;
  TRM_CHECK(planning_open_devices(planning, job, request->ranks / request->nodes));
  return trm_planner_run(planner, &planning->bench);
}

int planning_open(struct planning *planning, struct trm_job *job, struct trm_planner_request request,
                  const char *machine)
{
  struct trm_comm *comm = job->modules.comm;
  *planning = (struct planning){.device = NULL};
  if (!machine) {
    struct trm_comm *node = comm->ops->split_node(comm, TRM_SHARE_NODE);
    request.cores = request.cores ? request.cores : planning_node_cores(node);
    node->ops->release(node);
    trm_machine_create(&planning->machine, request.cores, 1);
    trm_machine_measure_messages(&planning->machine, comm, &job->device, job->options.parallel.share);
    request.has_communicated = planning->machine.messages_measured;
  }
  int status = TRM_OK;
  if (comm->rank == 0) { /* measures with all cores */
    status = planning_run(planning, job, &request, machine);
    planning_wake(comm, 1);
  } else {
    planning_sleep_until_woken(comm);
  }
  return trm_agree(comm, status);
}

void planning_close(struct planning *planning)
{
  trm_planner_close(&planning->planner);
  trm_machine_free(&planning->machine);
  for (int i = 0; planning->device && i < planning->bench.devices; i++)
    trm_device_close(&planning->device[i]);
  trm_free(planning->device);
  *planning = (struct planning){.device = NULL};
}

/* -- parallel.layout=auto */

static int planning_pick_best(const struct planning *planning, struct trm_layout *layout)
{
  const struct trm_planner *planner = &planning->planner;
  const struct trm_planned *best = &planner->planned[0];
  if (!best->fits && best->memory.device > planner->machine->device_bytes)
    return trm_error(TRM_FAILED, "parallel.layout: none of %d layouts fits into the %.0f MB of the device; the "
                     "fastest, %s, takes %.0f MB of it", planner->count, planner->machine->device_bytes / (1 << 20),
                     trm_layout_text(&best->layout), best->memory.device / (1 << 20));
  if (!best->fits)
    return trm_error(TRM_FAILED,
                     "parallel.layout: none of %d layouts fits a rank's part of the node's memory, %.0f MB; the "
                     "fastest, %s, takes %.0f MB",
                     planner->count, planner->limit / (1 << 20), trm_layout_text(&best->layout),
                     best->memory.total / (1 << 20));
  *layout = best->layout;
  trm_info("layout: %s, the best of %d: planned %.1f ms a step and %.0f MB a rank (trireme plan lists all)",
           trm_layout_text(&best->layout), planner->count, 1e3 * best->time.step_s, best->memory.total / (1 << 20));
  return TRM_OK;
}

int planning_choose(struct trm_job *job)
{
  struct trm_comm *comm = job->modules.comm, *node = comm->ops->split_node(comm, TRM_SHARE_NODE);
  int32_t extremes[2] = {node->size, -node->size};
  comm->ops->allreduce(comm, extremes, 2, TRM_INT32, TRM_MAX);
  const struct trm_planner_request request = {
    .ranks = comm->size, .nodes = comm->size / node->size, .cores = planning_node_cores(node),
    .limit = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE) / node->size};
  node->ops->release(node);
  if (extremes[0] != -extremes[1])
    return trm_error(TRM_USAGE, "parallel.layout: auto needs nodes with equal numbers of ranks");
  struct planning planning;
  struct trm_layout layout = {.chunks = 0};
  int status = planning_open(&planning, job, request, NULL);
  if (status == TRM_OK)
    status = trm_agree(comm, comm->rank == 0 ? planning_pick_best(&planning, &layout) : TRM_OK);
  planning_close(&planning);
  TRM_CHECK(status);
  comm->ops->broadcast(comm, &layout, sizeof layout, TRM_BYTE, 0);
  trm_layout_apply(&job->options, &layout);
  TRM_CHECK(trm_options_set(&job->options, "parallel.recompute", layout.recompute));
  return trm_options_set(&job->options, "parallel.layout", "given"); /* the run's files say which */
}
