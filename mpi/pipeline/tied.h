/* Weights that several stages hold, because layers of theirs are tied: their gradients are added, so that all copies
 * get the same update (private to mpi/pipeline). */
#ifndef TRM_MPI_PIPELINE_TIED_H
#define TRM_MPI_PIPELINE_TIED_H

#include "core/comm.h"
#include "nn/model.h"

/* One parameter that other stages have, too. */
struct tied_weight {
  const struct trm_parameter *parameter;
  int copies, self;  /* stages that have it; which of them this one is */
  int *stage;        /* (holders) ascending */
  float **gradient;   /* device, (holders) of parameter->count each */
  float **host;       /* (holders) where the device's memory is not the host's; otherwise gradient */
  struct trm_request **request; /* (2, holders) sends, receives */
};

struct tied {
  struct trm_comm *comm;
  struct tied_weight *weight; /* (weights) ascending in number */
  int weights;
  size_t deferred_from;                /* flat elements from here on wait for the others; SIZE_MAX: none */
};

/* Collective. Finds out which parameters there are several times. */
int tied_create(struct tied *tied, struct trm_comm *comm, const struct trm_model *model);
/* Before the gradients of a batch; after create, and when the device is known. */
int tied_begin(struct tied *tied, struct trm_device *device);
/* Does the chunk have such a weight? */
bool tied_in_chunk(const struct tied *tied, const struct trm_layer *layer, const struct trm_chunk *chunk);
/* When this stage's gradients are complete: they become the sums over the stages. *wait_s grows. collected: the
 * gradients are those of tied_accumulate, and the sums go to tied_write alone. */
int tied_allreduce(struct tied *tied, struct trm_device *device, bool accumulated, double *wait_s);

/* For gradients that are given away after each micro-batch (struct trm_param_provider, anew): takes those of the interval
 * [low, high) out of it, leaves 0, and adds them up, anew with the first micro-batch. */
void tied_accumulate(struct tied *tied, struct trm_device *device, size_t low, size_t high, bool first);
/* Brings the sums of the interval to their places in g, where element `low` is the first. */
void tied_write(const struct tied *tied, struct trm_device *device, size_t low, size_t high, float *g);
void tied_free(struct tied *tied, struct trm_device *device);

#endif
