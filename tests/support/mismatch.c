/* mismatch DIR: a job whose last rank enters another collective than the others, with the watchdog. It ends the job. */
#include <stdio.h>

#include "core/log.h"
#include "core/status.h"
#include "job/watchdog.h"
#include "mpi/real.h"

int main(int argc, char **argv)
{
  struct trm_comm *world;
  struct trm_options options;
  struct trm_watchdog *watchdog;
  trm_options_default(&options);
  if (argc != 2 || trm_options_set(&options, "run.dir", argv[1]) != TRM_OK || trm_comm_start(NULL, NULL, false, &world))
    return TRM_USAGE;
  options.run.stall_after = 0.5;
  options.run.stall_abort = 1;
  struct trm_comm *node = world->ops->split_node(world, TRM_SHARE_NODE);
  trm_watchdog_start(&watchdog, &options, world);
  float number = 1;
  node->ops->allreduce(node, &number, 1, TRM_FLOAT, TRM_SUM);
  if (world->rank == world->size - 1)
    node->ops->barrier(node);
  else
    node->ops->allreduce(node, &number, 1, TRM_FLOAT, TRM_SUM);
  trm_watchdog_stop(&watchdog);
  node->ops->release(node);
  trm_comm_stop(world);
  return TRM_OK;
}
