/* The loss sums of a batch: the last stage counts, and tells all others before any of them is done with the batch (private
 * to mpi/pipeline). */
#ifndef TRM_MPI_PIPELINE_BATCH_LOSSES_H
#define TRM_MPI_PIPELINE_BATCH_LOSSES_H

#include "core/comm.h"
#include "nn/model.h"

struct batch_losses {
  struct trm_comm *comm;
  struct trm_loss_sums *sums;   /* (batches) of the run */
  double *message;              /* (4) on their way to the others */
  struct trm_request **sends; /* (stages) */
};

void batch_losses_create(struct batch_losses *losses, struct trm_comm *comm);
/* Collective. tally (batches): in, stop of [0], whether this stage is asked to; out, on the last stage, how many are;
 * all else 0. Not owned. */
void batch_losses_begin(struct batch_losses *losses, struct trm_loss_sums *sums, int batches);
/* The last stage has all scores of the batch. */
void batch_losses_send(struct batch_losses *losses, int batch);
/* All other stages, in the order of the batches; *wait_s grows. */
void batch_losses_receive(struct batch_losses *losses, int batch, double *wait_s);
void batch_losses_free(struct batch_losses *losses); /* waits for sends */

#endif
