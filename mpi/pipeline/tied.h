/* Weights that several stages hold, because layers of theirs are tied: their gradients are added, so that all copies get
 * the same update (private to mpi/pipeline). */
#ifndef TRM_MPI_PIPELINE_TIED_H
#define TRM_MPI_PIPELINE_TIED_H

#include "core/comm.h"
#include "nn/model.h"

/* One parameter that other stages have, too. */
struct tied_weight {
  const struct trm_parameter *parameter;
  int holders, mine;  /* stages that have it; which of them this one is */
  int *holder;        /* (holders) ascending */
  float **gradient;   /* device, (holders) of parameter->count each */
  float **host;       /* (holders) where the device's memory is not the host's; otherwise gradient */
  struct trm_request **request; /* (2, holders) sends, receives */
};

struct tied {
  struct trm_comm *comm;
  struct tied_weight *weight; /* (weights) ascending in number */
  int weights;
  size_t from;                /* flat elements from here on wait for the others; SIZE_MAX: none */
};

/* Collective. Finds out which parameters there are several times. */
int tied_create(struct tied *tied, struct trm_comm *comm, const struct trm_model *model);
/* Before the gradients of a batch; after create, and when the device is known. */
int tied_begin(struct tied *tied, struct trm_device *device);
/* When this stage's gradients are complete: they become the sums over the stages. *wait_s grows. */
int tied_add(struct tied *tied, struct trm_device *device, double *wait_s);
void tied_free(struct tied *tied, struct trm_device *device);

#endif
