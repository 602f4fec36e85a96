#define _GNU_SOURCE
#include "mpi/network.h"

#include <sched.h>
#include <string.h>

#include "core/status.h"
#include "mpi/real.h"
#include "mpi/virtual.h"

/* Where a process is one rank. */
static int network_run_process(const struct trm_options *options, struct trm_comm *world,
                               int (*main)(struct trm_comm *comm, void *context), void *context)
{
  (void)options;
  return main(world, context);
}

static int network_start_mpi(const struct trm_options *options, struct trm_comm **world)
{
  TRM_CHECK(trm_comm_start(NULL, NULL, options->run.singletons, world));
  trm_comm_set_progress(*world, options->parallel.progress);
  return TRM_OK;
}

static int network_start_self(const struct trm_options *options, struct trm_comm **world)
{
  (void)options;
  *world = trm_comm_self();
  return TRM_OK;
}

static void network_stop_self(struct trm_comm *world)
{
  (void)world;
}

static int network_start_virtual(const struct trm_options *options, struct trm_comm **world)
{
  TRM_CHECK(trm_launch_require_single("a run with simulate.workers"));
  return network_start_self(options, world);
}

static int network_run_virtual(const struct trm_options *options, struct trm_comm *world,
                               int (*main)(struct trm_comm *comm, void *context), void *context)
{
  const struct trm_simulate_options *o = &options->simulate;
  const int64_t nodes = o->nodes > 0 ? o->nodes : o->workers;
  cpu_set_t cores;
  (void)world;
  CPU_ZERO(&cores);
  if (sched_getaffinity(0, sizeof cores, &cores) != 0)
    CPU_SET(0, &cores);
  if (o->workers % nodes != 0)
    return trm_error(TRM_USAGE, "simulate.nodes: %lld workers cannot be divided among %lld nodes",
                     (long long)o->workers, (long long)nodes);
  const struct trm_virtual_plan plan = {
    .ranks = (int)o->workers,
    .ranks_per_node = (int)(o->workers / nodes),
    .latency = o->latency,
    .bandwidth = o->bandwidth,
    .node_latency = o->node_latency,
    .node_s_per_byte = o->node_bandwidth > 0 ? 1 / o->node_bandwidth : 0,
    .service = o->service,
    .service_per_byte = o->service_bandwidth > 0 ? 1 / o->service_bandwidth : 0,
    .cores = (int)o->cores,
    .slice = o->slice,
    .threads = !o->gradients ? 0 : o->threads > 0 ? (int)o->threads : CPU_COUNT(&cores),
    .schedule = (uint64_t)o->schedule,
  };
  return trm_virtual_run(&plan, main, context, NULL);
}

static const struct trm_network networks[] = {
  {.name = "mpi", .start = network_start_mpi, .run = network_run_process,
   .encrypt = trm_comm_encrypt, .stop = trm_comm_stop},
  {.name = "self", .start = network_start_self, .run = network_run_process, .stop = network_stop_self},
  {.name = "virtual", .in_one_process = true, .start = network_start_virtual, .run = network_run_virtual,
   .stop = network_stop_self},
};

const struct trm_network *trm_network_find(const char *name)
{
  for (size_t i = 0; i < sizeof networks / sizeof *networks; i++)
    if (strcmp(networks[i].name, name) == 0)
      return &networks[i];
  return NULL;
}
