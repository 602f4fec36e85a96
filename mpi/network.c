#include "mpi/network.h"

#include <string.h>

#include "core/status.h"
#include "mpi/real.h"

/* Where a process is one rank. */
static int network_run_process(struct trm_comm *world, int (*main)(struct trm_comm *comm, void *context), void *context)
{
  return main(world, context);
}

static int network_start_mpi(const struct trm_options *options, struct trm_comm **world)
{
  return trm_comm_start(NULL, NULL, options->run.singletons, world);
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

static const struct trm_network networks[] = {
  {.name = "mpi", .start = network_start_mpi, .run = network_run_process, .stop = trm_comm_stop},
  {.name = "self", .start = network_start_self, .run = network_run_process, .stop = network_stop_self},
};

const struct trm_network *trm_network_find(const char *name)
{
  for (size_t i = 0; i < sizeof networks / sizeof *networks; i++)
    if (strcmp(networks[i].name, name) == 0)
      return &networks[i];
  return NULL;
}
