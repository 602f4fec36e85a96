/* The channels of one chunk of a stage, to and from its neighbors in the chain (private to mpi/pipeline). */
#pragma once

#include "mpi/pipeline/channel.h"

/* At the ends of the chain some are closed. */
struct chunk_channels {
  struct channel activation_in, activation_out, gradient_in, gradient_out;
};

/* comm: the stages. Times waiting and copying are added to the pipeline's wait_s and comm_s. */
void chunk_channels_create(struct chunk_channels *channels, struct trm_pipeline *pipeline, struct trm_comm *comm,
                           int chunk);
/* Begins a run of messages (channel_begin): activations, and gradients if `backward`. */
void chunk_channels_begin(struct chunk_channels *channels, const size_t *rows, int messages, bool backward);
/* Posts no receives beyond `messages`; those posted already must be among them. */
void chunk_channels_truncate(struct chunk_channels *channels, int messages);
void chunk_channels_free(struct chunk_channels *channels);
