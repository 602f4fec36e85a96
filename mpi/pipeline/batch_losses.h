/* The loss sums of a batch: the last stage computes them, and sends them to all others before any of these has finished
 * the batch (private to mpi/pipeline). */
#pragma once

#include "core/comm.h"
#include "nn/model.h"

struct batch_losses {
  struct trm_comm *comm;
  struct trm_loss_sums *sums; /* (batches) of the run; not owned */
  struct trm_loss_sums message; /* of the latest batch that was sent */
  struct trm_request **sends; /* (stages) */
};

void batch_losses_create(struct batch_losses *losses, struct trm_comm *comm);
/* Collective over comm. sums (batches), not owned: in, stop_requests of [0] is 1 if this stage is asked to stop; out,
 * on the last stage, the number of such stages, in each; all else becomes 0. */
void batch_losses_begin(struct batch_losses *losses, struct trm_loss_sums *sums, int batches);
/* On the last stage, when the sums of the batch are final. */
void batch_losses_send(struct batch_losses *losses, int batch);
/* On all other stages, in the order of the batches. Adds the time waited to *wait_s. */
void batch_losses_receive(struct batch_losses *losses, int batch, double *wait_s);
void batch_losses_free(struct batch_losses *losses); /* waits for sends */
