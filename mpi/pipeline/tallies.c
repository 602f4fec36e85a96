#include "mpi/pipeline/tallies.h"

#include "core/memory.h"

enum { TAG_TALLY = 16001, TAG_STOP = 16002 }; /* ending.c: 16003; channels: below 2 * TRM_MAX_CHUNKS */
enum { SUMS = 4 };

void tallies_create(struct tallies *tallies, struct trm_comm *comm)
{
  *tallies = (struct tallies){.comm = comm};
  tallies->told = trm_alloc((size_t)comm->size * sizeof *tallies->told, "the pipeline");
  tallies->sums = trm_alloc(SUMS * sizeof *tallies->sums, "the pipeline");
}

/* The last stage gets to know who wants to stop. */
static void stops_gather(struct tallies *tallies)
{
  struct trm_comm *comm = tallies->comm;
  const int last = comm->size - 1;
  double stop = tallies->tally[0].stop;
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
    tallies->tally[0].stop += other;
  }
}

void tallies_begin(struct tallies *tallies, struct trm_tally *tally, int batches)
{
  tallies->tally = tally;
  tally[0] = (struct trm_tally){.stop = tally[0].stop};
  stops_gather(tallies);
  for (int b = 1; b < batches; b++)
    tally[b] = tally[0];
}

void tallies_send(struct tallies *tallies, int batch)
{
  struct trm_comm *comm = tallies->comm;
  const struct trm_tally *tally = &tallies->tally[batch];
  for (int s = 0; s < comm->size - 1; s++)
    comm->ops->wait(&tallies->told[s]); /* the one before */
  tallies->sums[0] = tally->loss;
  tallies->sums[1] = tally->correct;
  tallies->sums[2] = tally->rows;
  tallies->sums[3] = tally->stop;
  for (int s = 0; s < comm->size - 1; s++)
    comm->ops->send_begin(comm, tallies->sums, SUMS, TRM_DOUBLE, s, TAG_TALLY, &tallies->told[s]);
}

void tallies_receive(struct tallies *tallies, int batch, double *wait_s)
{
  struct trm_comm *comm = tallies->comm;
  const double *sums = tallies->sums;
  struct trm_request *request;
  const double before = comm->ops->clock(comm);
  comm->ops->receive_begin(comm, tallies->sums, SUMS, TRM_DOUBLE, comm->size - 1, TAG_TALLY, &request);
  comm->ops->wait(&request);
  *wait_s += comm->ops->clock(comm) - before;
  tallies->tally[batch] = (struct trm_tally){.loss = sums[0], .correct = sums[1], .rows = sums[2], .stop = sums[3]};
}

void tallies_free(struct tallies *tallies)
{
  for (int s = 0; s < tallies->comm->size; s++)
    tallies->comm->ops->wait(&tallies->told[s]);
  trm_free(tallies->told);
  trm_free(tallies->sums);
}
