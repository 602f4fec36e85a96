/* A channel carries activations or gradients from one chunk of the model to the next, one message per micro-batch, in
 * order (private to mpi/pipeline). A few buffers let receives be posted ahead and sends complete later: a message is
 * sent when it has arrived in its buffer, and a buffer takes another one when its copy to the array is done, by
 * channel_progress. Buffers are host memory, and copies between them and a device with memory of its own run beside the
 * passes; where the communicator takes that memory (trm_comm.device_memory), they are the device's, and copies are its
 * calls: no message goes through the host's memory. */
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
  struct trm_device *device;    /* of the run; NULL before the first one */
  bool direct;                  /* buffers are in the device's memory */
  void *buffer[CHANNEL_DEPTH];
  struct trm_request *request[CHANNEL_DEPTH];
  struct trm_event event[CHANNEL_DEPTH]; /* of the buffer's copy to or from the device */
  int copied; /* messages of the run whose copies have begun */
  int posted; /* messages of the run whose sends or receives have begun */
  double *wait_s, *comm_s;      /* times are added to these */
};

/* comm: the stages. Times waiting and copying are added to the pipeline's wait_s and comm_s. */
void channels_create(struct channel channel[CHANNELS], struct trm_pipeline *pipeline, struct trm_comm *comm, int chunk);
/* Begins a run of messages, and posts the first receives. Of an earlier run only sends may be in flight. Fails if the
 * device has no room for the buffers. end: begins the sends that are left, and waits for all copies. */
int channel_begin(struct channel *channel, struct trm_device *device, const size_t *rows, int messages);
void channel_end(struct channel *channel);
/* Sends message `number` from a device array (rows, width), now or when channel_progress finds that it is in its
 * buffer. Calls that write the array come after channel_protect. */
void channel_send(struct channel *channel, const void *from, int number);
/* Lets later calls of the device come after the copies of messages from the arrays of this slot, of so many. */
void channel_protect(struct channel *channel, int slot, int slots);
/* Waits for message `number`, and begins to copy it into a device array (rows, width), for later calls of the device.
 * A later receive takes the buffer when the copy is done. */
void channel_receive(struct channel *channel, void *to, int number);
/* Begins sends and receives whose buffers are ready. Returns false if a message is not sent yet; all: waits for it. */
bool channel_progress(struct channel *channel, bool all);
bool channel_has_arrived(struct channel *channel, int number); /* receives only; posted */
void channel_free(struct channel *channel); /* waits for sends */
