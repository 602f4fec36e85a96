/* Ways to divide a job over its ranks, and what each of them takes: memory, messages, time.
 *
 * Nothing of a layout is set up for this. Memory comes from the code that would take it, with ranks and a device that
 * are not there (dry_run.h); time from figures of the machine (machine.h) and the layers' own counts. */
#ifndef TRM_PLAN_LAYOUT_H
#define TRM_PLAN_LAYOUT_H

#include "train/pipeline_schedule.h"
#include "train/budget.h"
#include "plan/dry_run.h"
#include "plan/machine.h"
#include "train/train.h"

struct trm_layout {
  int size[TRM_AXES];
  enum trm_schedule_name schedule; /* of one stage whatever */
  int chunks;            /* of a stage, as in parallel.chunks; 1: the schedule has one */
  int zero;
  const char *recompute; /* as in parallel.recompute */
};

enum trm_layout_part {
  TRM_LAYOUT_PARAMETERS,
  TRM_LAYOUT_GRADIENTS,
  TRM_LAYOUT_STATES,      /* the optimizer's */
  TRM_LAYOUT_ACTIVATIONS,
  TRM_LAYOUT_BUFFERS,     /* messages, units of sharded arrays, sums */
  TRM_LAYOUT_DATA,        /* windows of the data set, batches */
  TRM_LAYOUT_PROGRAM,     /* code, libraries, threads */
  TRM_LAYOUT_PARTS
};
extern const char *const trm_layout_part_name[TRM_LAYOUT_PARTS];

/* Of the rank that needs most. */
struct trm_layout_memory {
  double part[TRM_LAYOUT_PARTS]; /* bytes; of what the ranks of a node share its part */
  double total;                  /* the sum */
  double resident;               /* what the system counts for the process: shared arrays whole */
};

struct trm_layout_time {
  double step_s;    /* of an update, evaluations and files apart */
  double compute_s; /* of that: passes of the busiest stage, layers recomputed included */
  double axis_s[TRM_AXES];        /* messages and sums by axis, and the update with those of data; pipeline: what the
                                     stages wait for one another */
  double traffic[TRM_AXES];       /* bytes that a rank gets from others in a step */
};

/* What the figures are of. */
struct trm_layout_job {
  const struct trm_options *options;
  const struct trm_modules *modules;     /* strategy, device */
  const struct trm_input_spec *spec; /* of the samples */
  const struct trm_model *full_model;
  const struct trm_machine *machine;
  const struct trm_budget *budget;   /* program, data as opened by one rank */
  size_t rows;                       /* samples there are */
  int ranks, nodes, threads;         /* threads: of a rank */
  int cores;                         /* of a node */
  bool has_communicated;                          /* budget: of a process that has had messages from other ranks */
};

/* The parts of a layout: that of each stage, of the rank with the last place in the tensor axis, which has most. */
struct trm_layout_models {
  struct trm_schedule schedule;
  struct trm_model *model; /* (stages) */
  int stages;
  struct trm_dry_run_device device; /* of the models, once they are bound */
};
/* TRM_USAGE: says why there is no such layout. */
int trm_layout_models_create(struct trm_layout_models *models, const struct trm_layout_job *job,
                             const struct trm_layout *layout);
void trm_layout_models_free(struct trm_layout_models *models);

/* Samples of the largest micro-batch of a rank. */
size_t trm_layout_micro_batch_rows(const struct trm_layout_job *job, const struct trm_layout *layout);
/* Ranks of the data axis that are on one node and can share memory; 1 if nodes have different numbers of them. */
int trm_layout_node_ranks(const struct trm_layout_job *job, const struct trm_layout *layout);
/* Of weights of this stage that others hold, too: the gradients of all that hold them, `besides` of them left out. */
double trm_layout_tied_bytes(const struct trm_layout_models *models, int stage, int excluded);
/* The options of a run with this layout; texts stay theirs. */
struct trm_options trm_layout_options(const struct trm_layout_job *job, const struct trm_layout *layout);

/* Binds the models to arrays that are not there: they know from then on which layers compute again. */
int trm_layout_memory(const struct trm_layout_job *job, const struct trm_layout *layout,
                      struct trm_layout_models *models, struct trm_layout_memory *memory);
/* After memory. */
void trm_layout_time(const struct trm_layout_job *job, const struct trm_layout *layout,
                     const struct trm_layout_models *models, struct trm_layout_time *time);

#endif
