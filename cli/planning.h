/* Planning of a job's layout for `trireme plan` and parallel.layout=auto: rank 0 plans, with devices like the ranks'. */
#pragma once

#include "cli/command.h"
#include "plan/planner.h"

struct planning {
  struct trm_planner planner;
  struct trm_device *device; /* (bench.devices) */
  struct trm_machine_bench bench;
  double measured_s;         /* 0: the machine was read */
};

struct planning_request {
  int ranks, nodes;
  int cores;            /* of a node; 0: as this node */
  double limit;         /* bytes of a rank; 0: none */
  const char *machine;  /* file to read; NULL: measure */
};

/* Collective over the job. Plans on rank 0, which gets the layouts; the other ranks take part in measuring messages and
 * sleep meanwhile. To be closed on all ranks, in any case. */
int planning_open(struct planning *planning, struct trm_job *job, const struct planning_request *request);
void planning_close(struct planning *planning);

/* Collective. Implements parallel.layout=auto: plans for the job's ranks and sets its options to the fastest layout that
 * the memory of the nodes holds. */
int planning_choose(struct trm_job *job);
