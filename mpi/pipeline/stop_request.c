#include "mpi/pipeline/stop_request.h"

#include "core/memory.h"

enum { TAG_STOP_REQUEST = 16003 }; /* of batch_losses.c: 16001, 16002 */

static bool stop_request_is_last(const struct stop_request *stop)
{
  return stop->comm->rank == stop->comm->size - 1;
}

static void stop_request_send(struct stop_request *stop, double flag)
{
  struct trm_comm *comm = stop->comm;
  stop->flag[0] = flag;
  stop->sent = true;
  comm->ops->send_begin(comm, stop->flag, 1, TRM_DOUBLE, comm->size - 1, TAG_STOP_REQUEST, stop->request);
}

void stop_request_create(struct stop_request *stop, struct trm_comm *comm)
{
  *stop = (struct stop_request){.comm = comm};
  stop->flag = trm_alloc((size_t)comm->size * sizeof *stop->flag, "the pipeline");
  stop->request = trm_alloc((size_t)comm->size * sizeof *stop->request, "the pipeline");
}

void stop_request_begin(struct stop_request *stop, const struct trm_pipeline_run *run)
{
  struct trm_comm *comm = stop->comm;
  stop->run = run->stop_requested ? run : NULL;
  stop->sent = false;
  for (int s = 0; s < comm->size - 1 && stop->run && stop_request_is_last(stop); s++) {
    stop->flag[s] = 0;
    comm->ops->receive_begin(comm, &stop->flag[s], 1, TRM_DOUBLE, s, TAG_STOP_REQUEST, &stop->request[s]);
  }
}

double stop_request_poll(struct stop_request *stop)
{
  if (!stop->run)
    return 0;
  const bool asked_here = stop->run->stop_requested(stop->run->context);
  if (!stop_request_is_last(stop)) {
    if (asked_here && !stop->sent)
      stop_request_send(stop, 1);
    return asked_here;
  }
  double count = asked_here;
  for (int s = 0; s < stop->comm->size - 1; s++)
    if (stop->comm->ops->test(&stop->request[s]))
      count += stop->flag[s];
  return count;
}

void stop_request_end(struct stop_request *stop)
{
  if (stop->run && !stop_request_is_last(stop) && !stop->sent)
    stop_request_send(stop, 0);
  for (int s = 0; s < stop->comm->size; s++)
    stop->comm->ops->wait(&stop->request[s]);
  stop->run = NULL;
}

void stop_request_free(struct stop_request *stop)
{
  trm_free(stop->flag);
  trm_free(stop->request);
}
