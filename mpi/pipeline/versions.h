/* Weight versions of the schedules without flush, where updates happen while micro-batches are in flight (private to
 * mpi/pipeline). The strategy owns the newest version and changes it in place; older ones are copies.
 *
 *   2bw        batch t uses W(t-1) (Narayanan et al. 2021): the version before the newest until the update of batch t-1
 *              has been made for all earlier batches, here one copy
 *   pipedream  the newest version at a micro-batch's forward pass: a copy per micro-batch in flight (weight stashing,
 *              Narayanan et al. 2019). Without stash: the newest */
#pragma once

#include "train/pipeline.h"

struct versions {
  struct trm_pipeline *pipeline;
  struct trm_device *device; /* from the first run on */
  int count;                 /* of copies: 2bw 1; pipedream with stash and more than one slot: slots */
  float **copy;              /* device, (count) of (model->parameters); NULL until needed */
  int updates;               /* made in this run */
  const float *in_use;       /* device: the version that the model's layers are bound to */
};

void versions_create(struct versions *versions, struct trm_pipeline *pipeline);
int versions_begin(struct versions *versions); /* of a run; allocates memory */
/* Binds the model's layers to the version for this action. */
void versions_use(struct versions *versions, const struct trm_action *action, int batch);
/* 2bw: copies the newest version of the flat elements [low, high), whose passes of the batch to be updated next are
 * done. Must come before their gradients are published: then ranks that share the newest weights may update them. */
void versions_backward_done(struct versions *versions, size_t low, size_t high);
void versions_step(struct versions *versions); /* before an update */
void versions_end(struct versions *versions);  /* binds the layers to the newest version */
/* 2bw: sets the version before the newest; before (model->parameters), host. */
int versions_restore(struct versions *versions, const float *before);
void versions_free(struct versions *versions);
