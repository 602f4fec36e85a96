/* Planning of a job's layout for `trireme plan` and parallel.layout=auto: rank 0 plans, with devices of their kind. */
#pragma once

#include "cli/command.h"
#include "plan/planner.h"

struct planning {
  struct trm_planner planner;
  struct trm_machine machine;
  struct trm_device *device; /* (bench.devices) */
  struct trm_machine_bench bench;
};

/* Collective over the job. Plans on rank 0, which gets the layouts; the other ranks take part in measuring messages and
 * sleep meanwhile. machine: the file to read it from; NULL: it is measured. To be closed on all ranks, in any case. */
int planning_open(struct planning *planning, struct trm_job *job, struct trm_planner_request request,
                  const char *machine);
void planning_close(struct planning *planning);

/* Collective. Implements parallel.layout=auto: plans for the job's ranks and sets its options to the fastest layout
 * that the memory of the nodes holds. */
int planning_choose(struct trm_job *job);

/* Ranks that sleep, and leave the cores to others, until rank 0 wakes those from `first` on. */
void planning_sleep_until_woken(struct trm_comm *comm);
void planning_wake(struct trm_comm *comm, int first);
