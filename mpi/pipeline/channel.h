/* A channel carries activations or gradients from one chunk of the model to the next, one message per micro-batch, in
 * order (private to mpi/pipeline). A few host buffers let receives be posted ahead and sends complete later. */
#pragma once

#include "core/comm.h"
#include "core/device.h"
#include "train/pipeline.h"

enum { CHANNEL_DEPTH = TRM_MESSAGES_IN_FLIGHT };

/* The channels of one chunk, to and from its neighbors in the chain; those of an evaluation come first. */
enum channel_kind { ACTIVATION_IN, ACTIVATION_OUT, GRADIENT_IN, GRADIENT_OUT, CHANNELS };

struct channel {
  struct trm_comm *comm;
  int peer, tag;
  bool open;                    /* false (an end of the chain): all calls do nothing */
  bool receives;
  size_t width;                 /* bytes of a row */
  const size_t *rows;           /* (messages) rows of each, not owned; messages without rows are not sent */
  int messages;                 /* no receives are posted beyond */
  size_t capacity;              /* bytes of each buffer */
  void *buffer[CHANNEL_DEPTH];  /* host */
  struct trm_request *request[CHANNEL_DEPTH];
  double *wait_s, *comm_s;      /* times are added to these */
};

/* comm: the stages. Times waiting and copying are added to the pipeline's wait_s and comm_s. */
void channels_create(struct channel channel[CHANNELS], struct trm_pipeline *pipeline, struct trm_comm *comm, int chunk);
/* Begins a run of messages, and posts the first receives. Of an earlier run only sends may be in flight. */
void channel_begin(struct channel *channel, const size_t *rows, int messages);
/* Sends message `number` from a device array (rows, width), which may be overwritten on return. */
void channel_send(struct channel *channel, struct trm_device *device, const void *from, int number);
/* Waits for message `number` and copies it into a device array (rows, width). Posts a later receive. */
int channel_receive(struct channel *channel, struct trm_device *device, void *to, int number);
void channel_free(struct channel *channel); /* waits for sends */
