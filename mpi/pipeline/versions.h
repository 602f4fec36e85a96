/* Which version of the weights a pass uses, where updates happen while micro-batches are under way (private to
 * mpi/pipeline). The strategy owns the newest ones and changes them in place; older ones are copies.
 *
 *   2bw        of batch t: W(t-1). Until its update that is the version before the newest, for the batches up to t, and
 *              the newest for those behind.
 *   pipedream  the newest when the micro-batch came: a copy for each that is under way. Without stash: the newest. */
#ifndef TRM_MPI_PIPELINE_VERSIONS_H
#define TRM_MPI_PIPELINE_VERSIONS_H

#include "train/pipeline.h"

struct versions {
  struct trm_pipeline *pipeline;
  struct trm_device *device; /* from the first run on */
  int count;       /* copies: 2bw 1, pipedream slots if there is more than one */
  float **copy;    /* device, (count) of (model->parameters); NULL until needed */
  int updates;     /* of the run */
  const float *in_use;
};

void versions_create(struct versions *versions, struct trm_pipeline *pipeline);
int versions_begin(struct versions *versions);
/* Makes the model's passes use what this action is to be computed with. */
void versions_use(struct versions *versions, const struct trm_action *action, int batch);
/* The passes of the batch that is to be updated next are done with the flat elements [low, high). Before anybody knows
 * that its gradients are complete: from then on ranks that share the newest weights may update them. */
void versions_backward_done(struct versions *versions, size_t low, size_t high);
void versions_step(struct versions *versions); /* all is done; the update follows */
void versions_end(struct versions *versions); /* the model uses the newest */
int versions_restore(struct versions *versions, const float *before);
void versions_free(struct versions *versions);

#endif
