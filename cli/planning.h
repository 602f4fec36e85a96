/* Planning of a job's layout as the commands do it: one rank plans, with devices like the ranks' own. */
#ifndef TRM_CLI_PLANNING_H
#define TRM_CLI_PLANNING_H

#include "cli/job.h"
#include "plan/planner.h"

struct planning {
  struct trm_planner planner;
  struct trm_device *device; /* (bench.devices) */
  struct trm_machine_bench bench;
  double measured_s;         /* 0: the machine was read */
};

struct planning_request {
  int ranks, nodes;
  int cores;            /* of a node; 0: those of this one */
  double limit;         /* bytes a rank, 0: any */
  const char *machine;  /* file to read; NULL: measure */
};

/* Collective over the job's ranks: rank 0 plans, the others help to measure messages and sleep. On rank 0 planning has
 * the layouts; close it on all, in any case. */
int planning_open(struct planning *planning, struct trm_job *job, const struct planning_request *request);
void planning_close(struct planning *planning);

/* parallel.layout=auto: plans for the ranks of the job and makes its options those of the best layout that the nodes'
 * memory holds. Collective. */
int planning_choose(struct trm_job *job);

#endif
