/* The tally of a batch: the last stage counts, and tells all others before any of them is done with the batch (private
 * to mpi/pipeline). */
#ifndef TRM_MPI_PIPELINE_TALLIES_H
#define TRM_MPI_PIPELINE_TALLIES_H

#include "core/comm.h"
#include "nn/model.h"

struct tallies {
  struct trm_comm *comm;
  struct trm_tally *tally;   /* (batches) of the run */
  double *sums;              /* (4) on their way to the others */
  struct trm_request **told; /* (stages) */
};

void tallies_create(struct tallies *tallies, struct trm_comm *comm);
/* Collective. tally (batches): in, stop of [0], whether this stage is asked to; out, on the last stage, how many are;
 * all else 0. Not owned. */
void tallies_begin(struct tallies *tallies, struct trm_tally *tally, int batches);
/* The last stage has all scores of the batch. */
void tallies_send(struct tallies *tallies, int batch);
/* All other stages, in the order of the batches; *wait_s grows. */
void tallies_receive(struct tallies *tallies, int batch, double *wait_s);
void tallies_free(struct tallies *tallies); /* waits for sends */

#endif
