/* The loss sums of a batch: the last stage computes them, and sends them to all others before any of these has finished
 * the batch. Stop requests go the other way: the last stage adds them to the sums (private to mpi/pipeline).
 *
 * In a run of several batches every other stage sends the last one a flag: 1 when it should stop, or 0 at the end. */
#pragma once

#include "core/comm.h"
#include "nn/model.h"
#include "train/pipeline.h"

struct batch_losses {
  struct trm_comm *comm;
  struct trm_loss_sums *sums;   /* (batches) of the run; not owned */
  struct trm_loss_sums message; /* of the latest batch that was sent */
  struct trm_request **sends;   /* (stages) */
  /* stop requests within a run */
  const struct trm_pipeline_run *run; /* NULL: no stop requests in this run */
  double *flag;                       /* (stages) the last stage: flags received; other stages: [0] the flag sent */
  struct trm_request **flags;         /* (stages) */
  bool flag_sent;
};

void batch_losses_create(struct batch_losses *losses, struct trm_comm *comm);
/* Collective over comm. sums (batches), not owned: in, stop_requests of [0] is 1 if this stage is asked to stop; out,
 * on the last stage, the number of such stages, in each; all else becomes 0. */
void batch_losses_begin(struct batch_losses *losses, const struct trm_pipeline_run *run, struct trm_loss_sums *sums);
/* On the last stage, when the sums of the batch are final. */
void batch_losses_send(struct batch_losses *losses, int batch);
/* On all other stages, in the order of the batches. Adds the time waited to *wait_s. */
void batch_losses_receive(struct batch_losses *losses, int batch, double *wait_s);
/* The number of stages that ask to stop within the run, as far as this stage knows. */
double batch_losses_poll_stop(struct batch_losses *losses);
void batch_losses_end(struct batch_losses *losses); /* of the run: waits for the flags */
void batch_losses_free(struct batch_losses *losses); /* waits for sends */
