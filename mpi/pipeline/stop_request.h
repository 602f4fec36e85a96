/* Stop requests within a run of many batches (private to mpi/pipeline). The last stage needs them, since it sends the
 * sums of each batch. Every other stage sends it one flag per run: 1 when it is asked to stop, or 0 at the end. */
#pragma once

#include "core/comm.h"
#include "train/pipeline.h"

struct stop_request {
  struct trm_comm *comm;
  const struct trm_pipeline_run *run; /* NULL: no stage requests a stop in this run */
  double *flag;                  /* (stages) the last stage: flags received; other stages: [0] the flag sent */
  struct trm_request **request;  /* (stages) */
  bool sent;
};

void stop_request_create(struct stop_request *stop, struct trm_comm *comm);
void stop_request_begin(struct stop_request *stop, const struct trm_pipeline_run *run);
/* Returns the number of stages that request a stop, as far as this stage knows. */
double stop_request_poll(struct stop_request *stop);
void stop_request_end(struct stop_request *stop);
void stop_request_free(struct stop_request *stop);
