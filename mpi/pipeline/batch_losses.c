#include "mpi/pipeline/batch_losses.h"

#include "core/memory.h"

enum { TAG_LOSSES = 16001, TAG_STOP = 16002 }; /* stop_request.c: 16003; channels: below 2 * TRM_MAX_CHUNKS */

void batch_losses_create(struct batch_losses *losses, struct trm_comm *comm)
{
  *losses = (struct batch_losses){.comm = comm};
  losses->sends = trm_alloc((size_t)comm->size * sizeof *losses->sends, "the pipeline");
}

/* Sums the stop requests of all stages on the last stage. */
static void batch_losses_gather_stops(struct batch_losses *losses)
{
  struct trm_comm *comm = losses->comm;
  const int last = comm->size - 1;
  double stop = losses->sums[0].stop_requests;
  struct trm_request *request = NULL;
  if (comm->rank < last) {
    comm->ops->send_begin(comm, &stop, 1, TRM_DOUBLE, last, TAG_STOP, &request);
    comm->ops->wait(&request);
    return;
  }
  for (int s = 0; s < last; s++) {
    double other;
    comm->ops->receive_begin(comm, &other, 1, TRM_DOUBLE, s, TAG_STOP, &request);
    comm->ops->wait(&request);
    losses->sums[0].stop_requests += other;
  }
}

void batch_losses_begin(struct batch_losses *losses, struct trm_loss_sums *sums, int batches)
{
  losses->sums = sums;
  sums[0] = (struct trm_loss_sums){.stop_requests = sums[0].stop_requests};
  batch_losses_gather_stops(losses);
  for (int b = 1; b < batches; b++)
    sums[b] = sums[0];
}

void batch_losses_send(struct batch_losses *losses, int batch)
{
  struct trm_comm *comm = losses->comm;
  for (int s = 0; s < comm->size - 1; s++)
    comm->ops->wait(&losses->sends[s]); /* of the previous batch */
  losses->message = losses->sums[batch];
  for (int s = 0; s < comm->size - 1; s++)
    comm->ops->send_begin(comm, &losses->message, TRM_LOSS_SUMS, TRM_DOUBLE, s, TAG_LOSSES, &losses->sends[s]);
}

void batch_losses_receive(struct batch_losses *losses, int batch, double *wait_s)
{
  struct trm_comm *comm = losses->comm;
  struct trm_request *request;
  const double before = comm->ops->clock(comm);
  comm->ops->receive_begin(comm, &losses->sums[batch], TRM_LOSS_SUMS, TRM_DOUBLE, comm->size - 1, TAG_LOSSES, &request);
  comm->ops->wait(&request);
  *wait_s += comm->ops->clock(comm) - before;
}

void batch_losses_free(struct batch_losses *losses)
{
  for (int s = 0; s < losses->comm->size; s++)
    losses->comm->ops->wait(&losses->sends[s]);
  trm_free(losses->sends);
}
