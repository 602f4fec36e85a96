/* A run of many batches that is asked to stop on its way (private to mpi/pipeline). The last stage has to know, for it
 * tells all of a batch; any other sends it one word in a run: when it is asked to, or at the end that it was not. */
#ifndef TRM_MPI_PIPELINE_STOP_REQUEST_H
#define TRM_MPI_PIPELINE_STOP_REQUEST_H

#include "core/comm.h"
#include "train/pipeline.h"

struct stop_request {
  struct trm_comm *comm;
  const struct trm_pipeline_run *run; /* NULL: nobody is asked in this run */
  double *flag;                  /* (stages); the last stage's: what the others have said; else [0]: what is said */
  struct trm_request **request;  /* (stages) */
  bool sent;
};

void stop_request_create(struct stop_request *stop, struct trm_comm *comm);
void stop_request_begin(struct stop_request *stop, const struct trm_pipeline_run *run);
/* How many ask to stop, as far as this stage knows. */
double stop_request_poll(struct stop_request *stop);
void stop_request_end(struct stop_request *stop);
void stop_request_free(struct stop_request *stop);

#endif
