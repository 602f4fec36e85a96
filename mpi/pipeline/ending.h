/* A run of many batches that is asked to stop on its way (private to mpi/pipeline). The last stage has to know, for it
 * tells all of a batch; any other sends it one word in a run: when it is asked to, or at the end that it was not. */
#ifndef TRM_MPI_PIPELINE_ENDING_H
#define TRM_MPI_PIPELINE_ENDING_H

#include "core/comm.h"
#include "train/pipeline.h"

struct ending {
  struct trm_comm *comm;
  const struct trm_pipeline_run *run; /* NULL: nobody is asked in this run */
  double *word;                  /* (stages); the last stage's: what the others have said; else [0]: what is said */
  struct trm_request **request;  /* (stages) */
  bool said;
};

void ending_create(struct ending *ending, struct trm_comm *comm);
void ending_begin(struct ending *ending, const struct trm_pipeline_run *run);
/* How many ask to stop, as far as this stage knows. */
double ending_asked(struct ending *ending);
void ending_end(struct ending *ending);
void ending_free(struct ending *ending);

#endif
