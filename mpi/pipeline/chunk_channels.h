/* The ends of a stage's chunks: channels to and from the pieces before and after in the chain (private to
 * mpi/pipeline). */
#ifndef TRM_MPI_PIPELINE_CHUNK_CHANNELS_H
#define TRM_MPI_PIPELINE_CHUNK_CHANNELS_H

#include "mpi/pipeline/channel.h"

/* What a chunk gets and gives; the ends of the chain have closed channels. */
struct chunk_channels {
  struct channel activation_in, activation_out, gradient_in, gradient_out;
};

/* comm: of the stages; waiting and copying adds to the pipeline's seconds. */
void chunk_channels_create(struct chunk_channels *channels, struct trm_pipeline *pipeline, struct trm_comm *comm,
                           int chunk);
/* The next messages, as channel_begin takes them: values, and gradients if there is a way back. */
void chunk_channels_begin(struct chunk_channels *channels, const size_t *rows, int messages, bool backward);
/* No more than these messages are awaited; those that are already must be among them. */
void chunk_channels_truncate(struct chunk_channels *channels, int messages);
void chunk_channels_free(struct chunk_channels *channels);

#endif
