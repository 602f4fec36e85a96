#include "mpi/pipeline/batch_losses.h"

#include "core/memory.h"

/* tied.c: 16000; channels: below 2 * TRM_MAX_CHUNKS */
enum { TAG_LOSSES = 16001, TAG_STOP = 16002, TAG_STOP_WITHIN_RUN = 16003 };

void batch_losses_create(struct batch_losses *losses, struct trm_comm *comm)
{
  *losses = (struct batch_losses){.comm = comm};
  losses->sends = trm_alloc((size_t)comm->size * sizeof *losses->sends, "the pipeline");
  losses->flag = trm_alloc((size_t)comm->size * sizeof *losses->flag, "the pipeline");
  losses->flags = trm_alloc((size_t)comm->size * sizeof *losses->flags, "the pipeline");
}

static bool batch_losses_is_last(const struct batch_losses *losses)
{
  return losses->comm->rank == losses->comm->size - 1;
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

void batch_losses_begin(struct batch_losses *losses, const struct trm_pipeline_run *run, struct trm_loss_sums *sums)
{
  struct trm_comm *comm = losses->comm;
  losses->sums = sums;
  sums[0] = (struct trm_loss_sums){.stop_requests = sums[0].stop_requests};
  batch_losses_gather_stops(losses);
  for (int b = 1; b < run->batches; b++)
    sums[b] = sums[0];
  losses->run = run->stop_requested ? run : NULL;
  losses->flag_sent = false;
  for (int s = 0; s < comm->size - 1 && losses->run && batch_losses_is_last(losses); s++) {
    losses->flag[s] = 0;
    comm->ops->receive_begin(comm, &losses->flag[s], 1, TRM_DOUBLE, s, TAG_STOP_WITHIN_RUN, &losses->flags[s]);
  }
}

static void batch_losses_send_flag(struct batch_losses *losses, double flag)
{
  struct trm_comm *comm = losses->comm;
  losses->flag[0] = flag;
  losses->flag_sent = true;
  comm->ops->send_begin(comm, losses->flag, 1, TRM_DOUBLE, comm->size - 1, TAG_STOP_WITHIN_RUN, losses->flags);
}

double batch_losses_poll_stop(struct batch_losses *losses)
{
  if (!losses->run)
    return 0;
  double count = losses->run->stop_requested(losses->run->context);
  if (!batch_losses_is_last(losses)) {
    if (count > 0 && !losses->flag_sent)
      batch_losses_send_flag(losses, 1);
    return count;
  }
  for (int s = 0; s < losses->comm->size - 1; s++)
    if (losses->comm->ops->test(&losses->flags[s]))
      count += losses->flag[s];
  return count;
}

void batch_losses_end(struct batch_losses *losses)
{
  if (losses->run && !batch_losses_is_last(losses) && !losses->flag_sent)
    batch_losses_send_flag(losses, 0);
  for (int s = 0; s < losses->comm->size; s++)
    losses->comm->ops->wait(&losses->flags[s]);
  losses->run = NULL;
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
  trm_free(losses->flag);
  trm_free(losses->flags);
}
