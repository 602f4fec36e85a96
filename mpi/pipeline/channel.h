/* The messages that go from one piece of the chain to the next: one a micro-batch, in order, through a few buffers of
 * the host, so that receives are posted ahead and nobody waits for what it sends (private to mpi/pipeline). */
#ifndef TRM_MPI_PIPELINE_CHANNEL_H
#define TRM_MPI_PIPELINE_CHANNEL_H

#include "core/comm.h"
#include "core/device.h"
#include "train/pipeline.h"

enum { CHANNEL_DEPTH = TRM_MESSAGES_IN_FLIGHT };

struct channel {
  struct trm_comm *comm;
  int peer, tag;
  bool open;              /* there is something to send; false: all calls do nothing */
  bool receives;
  size_t width;           /* floats of a row */
  const size_t *rows;     /* (messages) of each; messages without rows are not sent */
  int messages;
  size_t capacity;            /* floats of each buffer */
  float *buffer[CHANNEL_DEPTH]; /* host */
  struct trm_request *request[CHANNEL_DEPTH];
  double *wait_s, *comm_s; /* seconds are added to these */
};

/* The next messages; nothing of earlier ones is under way but sends. Receives are posted. */
void channel_begin(struct channel *channel, const size_t *rows, int messages);
/* Sends message `number` from a device array; returns as soon as that may be overwritten. */
void channel_send(struct channel *channel, struct trm_device *device, const float *from, int number);
/* Waits for message `number` and brings it into a device array. */
int channel_receive(struct channel *channel, struct trm_device *device, float *to, int number);
void channel_free(struct channel *channel); /* waits for sends */

#endif
