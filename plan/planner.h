/* The planner: all layouts that a job can have, what each takes, and which is best. It runs in one process, without the
 * job's ranks and nodes. The data set is opened for the shape of its samples and the memory that it takes. */
#pragma once

#include "train/device_batch.h"
#include "plan/hybrid.h"
#include "plan/layout.h"

enum { TRM_PLAN_ROUNDS = 5 }; /* measurements of the machine, at most */

struct trm_planned {
  struct trm_layout layout;
  struct trm_layout_memory memory;
  struct trm_layout_time time;
  bool fits; /* memory.total is at most the limit, memory.device what the device has */
};

struct trm_refused {
  struct trm_layout layout;
  char *reason;
};

struct trm_planner {
  struct trm_layout_job job;
  double limit;                   /* bytes of a rank in the host's memory; 0: none */
  struct trm_machine *machine;    /* not owned */
  struct trm_budget budget;
  struct trm_splits splits;
  struct trm_model full_model;
  struct trm_host_batch batch;
  struct trm_device_batch device_batch;
  struct trm_planned *planned;    /* (count) the best first, the others by their time; those that do not fit last */
  int count;
  int equals;                     /* other layouts as good as the best */
  int rounds;                     /* measurements; 0: none */
  double spread;                  /* of the time of the fastest layout: (second shortest - shortest) / shortest */
  struct trm_refused *refused;    /* (refusals) */
  int refusals;
  size_t planned_capacity, refused_capacity;
};

struct trm_planner_request {
  int ranks, nodes;      /* ranks: a multiple of nodes */
  int cores;             /* of a node; 0: as the machine has */
  double limit;          /* bytes of a rank; 0: none */
  bool has_communicated; /* as in struct trm_layout_job */
};

/* Opens the data set and creates the whole model. machine: stays the caller's. TRM_USAGE: the options have no layouts,
 * or contradict one another. To be closed in any case. */
int trm_planner_open(struct trm_planner *planner, const struct trm_options *options, const struct trm_modules *modules,
                     const struct trm_planner_request *request, struct trm_machine *machine);
/* Fills planned and refused. bench: measures what the machine lacks, and adds it; NULL: no measurements. It is measured
 * until two measurements agree within 3 %, or TRM_PLAN_ROUNDS times. Layouts within 5 % of the fastest are equal, for
 * the model's own errors are larger; of these the best has the fewest tensor ranks, then the fewest stages, then the
 * lowest level of parallel.zero. */
int trm_planner_run(struct trm_planner *planner, struct trm_machine_bench *bench);
void trm_planner_close(struct trm_planner *planner);

/* "data 2 x tensor 2, zero 1"; valid until the next call in this thread. */
const char *trm_layout_text(const struct trm_layout *layout);
