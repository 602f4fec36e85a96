/* One stage's executor of a pipeline schedule (private to mpi/pipeline). executor.c runs single actions, pipeline.c
 * whole batches and evaluations. */
#pragma once

#include "mpi/pipeline/batch_losses.h"
#include "mpi/pipeline/channel.h"
#include "mpi/pipeline/pipeline.h"
#include "mpi/pipeline/tied.h"
#include "mpi/pipeline/versions.h"

struct executor {
  struct trm_pipeline *pipeline;
  struct trm_comm *comm; /* the stages; messages of this pipeline alone */
  struct channel channel[TRM_MAX_CHUNKS][CHANNELS];
  struct tied tied;
  struct versions versions;
  struct batch_losses losses;
  struct trm_device *device;  /* from the first run on */
  struct trm_event marked;    /* of a copy of no bytes: it ends when the calls before it have */
  struct trm_input *input;    /* (slots) set by run->input, for the chunk that reads features or targets */
  struct trm_input rows_only; /* input of all other chunks */
  int slots;

  /* of the run */
  const struct trm_pipeline_run *run;
  size_t *rows;        /* (batches, micros) of each micro-batch */
  uint64_t *first_row; /* (batches, micros) */
  int micros;          /* micro-batches of a batch */
  int batches;         /* that are computed: fewer than the run's once it has been cut short */
  int failed;          /* status of the first update that failed, on all stages */
};

/* Runs one action of training: the pass, and after the last backward pass of a batch its update. Sends to and receives
 * from other stages: all stages run the actions of one schedule. */
int executor_run(struct executor *e, const struct trm_action *action, struct trm_pipeline_event *timing);

void executor_free_mark(struct executor *e);

/* Runs a forward pass; on the last stage adds to *sums. */
int executor_forward(struct executor *e, const struct trm_action *action, struct trm_pipeline_event *timing,
                     struct trm_loss_sums *sums);
