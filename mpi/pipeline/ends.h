/* The ends of a stage's chunks: channels to and from the pieces before and after in the chain (private to
 * mpi/pipeline). */
#ifndef TRM_MPI_PIPELINE_ENDS_H
#define TRM_MPI_PIPELINE_ENDS_H

#include "mpi/pipeline/channel.h"

/* What a chunk gets and gives; the ends of the chain have closed channels. */
struct ends {
  struct channel value_in, value_out, gradient_in, gradient_out;
};

/* comm: of the stages; waiting and copying adds to the pipeline's seconds. */
void ends_create(struct ends *ends, struct trm_pipeline *pipeline, struct trm_comm *comm, int chunk);
/* The next messages, as channel_begin takes them: values, and gradients if there is a way back. */
void ends_begin(struct ends *ends, const size_t *rows, int messages, bool backward);
/* No more than these messages are awaited; those that are already must be among them. */
void ends_shorten(struct ends *ends, int messages);
void ends_free(struct ends *ends);

#endif
