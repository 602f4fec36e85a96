/* Layouts of a job over the grid of its ranks, and the memory, messages and time that each takes.
 *
 * No layout is set up for this. Memory is counted by a dry run of the set-up code (dry_run.h); time follows from the
 * machine's figures (machine.h) and the layers' own counts of operations and bytes. */
#pragma once

#include "train/pipeline_schedule.h"
#include "train/budget.h"
#include "plan/dry_run.h"
#include "plan/machine.h"
#include "train/train.h"

struct trm_layout {
  int size[TRM_AXES];
  enum trm_schedule_name schedule; /* parallel.schedule; not read where there is one stage */
  int chunks;            /* parallel.chunks, of each stage; 1 where the schedule has one */
  int zero;              /* parallel.zero */
  char recompute[24];    /* parallel.recompute */
};

enum trm_layout_part {
  TRM_LAYOUT_PARAMETERS,
  TRM_LAYOUT_GRADIENTS,
  TRM_LAYOUT_STATES,  /* of the optimizer */
  TRM_LAYOUT_ACTIVATIONS,
  TRM_LAYOUT_BUFFERS, /* messages, gathered layers of sharded arrays, partial sums */
  TRM_LAYOUT_DATA,    /* windows of the data set, batches */
  TRM_LAYOUT_PROGRAM, /* code, libraries, threads */
  TRM_LAYOUT_PARTS
};
extern const char *const trm_layout_part_name[TRM_LAYOUT_PARTS];

/* Memory of the rank that needs most, in bytes. */
struct trm_layout_memory {
  double part[TRM_LAYOUT_PARTS]; /* with this rank's shards of node-shared arrays */
  double total;                  /* in the host's memory: the sum of part, less `device` */
  double device;                 /* in memory of the device's own */
  double resident;               /* as the system counts it: with whole node-shared arrays */
};

struct trm_layout_time {
  double step_s;            /* one update, without evaluations and checkpoints */
  double compute_s;         /* of step_s: the passes of the busiest stage, recomputation included */
  double axis_s[TRM_AXES];  /* of step_s: communication by axis; data: the update, too; pipeline: waiting of stages */
  double traffic[TRM_AXES]; /* bytes that a rank receives in a step */
  double between_nodes;     /* bytes of sums that it sends to other nodes or replicas, as a run's summary has them */
};

/* The job to plan. Nothing is owned. */
struct trm_layout_job {
  const struct trm_options *options;
  const struct trm_modules *modules; /* strategy and device are read */
  const struct trm_input_spec *spec; /* of the samples */
  const struct trm_model *full_model;
  const struct trm_machine *machine;
  const struct trm_budget *budget;   /* of this process: the program, and the data set as one rank opens it */
  size_t rows;                       /* samples of the training split */
  int ranks, nodes, threads;         /* threads of a rank */
  int cores;                         /* of a node */
  bool has_communicated;             /* this process has received messages: budget includes MPI's buffers */
};

/* The data axis of a stage. */
struct trm_layout_data_axis {
  int replica_ranks;            /* that sum their gradients in every step: of a replica, or of the axis */
  struct trm_exchange exchange; /* between its nodes or replicas */
};

/* The model parts of a layout, one for each stage, as the last rank of the tensor axis has them: its shards are the
 * largest. */
struct trm_layout_models {
  struct trm_schedule schedule;
  struct trm_model *model; /* (stages) */
  struct trm_layout_data_axis *data; /* (stages) set by trm_layout_memory */
  int stages;
  struct trm_dry_run_device device; /* of the models once they are bound */
};
/* Creates the parts. TRM_USAGE with the reason where the model or the method has no such layout. */
int trm_layout_models_create(struct trm_layout_models *models, const struct trm_layout_job *job,
                             const struct trm_layout *layout);
void trm_layout_models_free(struct trm_layout_models *models);

/* Number of samples in the largest micro-batch of a rank. */
size_t trm_layout_micro_batch_rows(const struct trm_layout_job *job, const struct trm_layout *layout);
/* Number of ranks of the data axis that share a node; 1 if it differs between nodes. */
int trm_layout_node_ranks(const struct trm_layout_job *job, const struct trm_layout *layout);
/* Returns the bytes of gradients of weights tied across stages: one gradient per stage that has them, except for
 * `excluded` ones. */
double trm_layout_tied_bytes(const struct trm_layout_models *models, int stage, int excluded);
/* Sets the options of section parallel to those of the layout, except for parallel.recompute, a text. */
void trm_layout_apply(struct trm_options *options, const struct trm_layout *layout);

/* Counts the memory of a layout and binds the models to dry-run arrays, which sets the layers that recompute.
 * TRM_USAGE: the method cannot run in it. */
int trm_layout_memory(const struct trm_layout_job *job, const struct trm_layout *layout,
                      struct trm_layout_models *models, struct trm_layout_memory *memory);
/* Estimates the time of a step. The models must have been bound by trm_layout_memory. */
void trm_layout_time(const struct trm_layout_job *job, const struct trm_layout *layout,
                     const struct trm_layout_models *models, struct trm_layout_time *time);
