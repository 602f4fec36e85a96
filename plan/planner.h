/* The planner: all layouts that a job can have, what each takes, and which is the best. One process, no job: the ranks
 * and nodes are imagined, the data set is opened for the shape of its samples and the memory it takes. */
#ifndef TRM_PLAN_PLANNER_H
#define TRM_PLAN_PLANNER_H

#include "train/device_batch.h"
#include "plan/layout.h"

struct trm_planned {
  struct trm_layout layout;
  struct trm_layout_memory memory;
  struct trm_layout_time time;
  bool fits; /* memory.total is not above the limit */
};

struct trm_refused {
  int size[TRM_AXES];
  enum trm_schedule_name schedule;
  char *reason;
};

struct trm_planner {
  struct trm_layout_job job;
  double limit;                   /* bytes a rank may have; 0: any */
  struct trm_machine machine;
  struct trm_budget budget;
  struct trm_dataset *data, *test;
  struct trm_model full_model;
  struct trm_host_batch batch;
  struct trm_device_batch device_batch;
  struct trm_planned *planned;    /* (count) the best first; those that do not fit last */
  int count;
  struct trm_refused *refused;    /* (refusals) */
  int refusals;
};

struct trm_planner_request {
  int ranks, nodes;     /* ranks: a multiple of nodes */
  int cores, threads;   /* of a node, of a rank */
  double limit;
  bool has_communicated;             /* this process has had messages from other ranks */
};

/* Opens the data set, builds the whole model. The machine of the planner is empty: to be read, or measured. TRM_USAGE:
 * the options do not go with layouts, or not together. Close in any case. */
int trm_planner_open(struct trm_planner *planner, const struct trm_options *options, const struct trm_modules *modules,
                     const struct trm_planner_request *request);
/* bench: measures what is missing of the machine; NULL: it has all there is. */
int trm_planner_run(struct trm_planner *planner, struct trm_machine_bench *bench);
void trm_planner_close(struct trm_planner *planner);

/* Makes the options those of the layout. */
int trm_layout_apply(struct trm_options *options, const struct trm_layout *layout);
/* "data 2 x tensor 2, zero 1": valid until the next call of this thread. */
const char *trm_layout_text(const struct trm_layout *layout);

#endif
