/* Tied weights with copies on several stages: their gradients are added, so that all copies get the same update
 * (private to mpi/pipeline). */
#pragma once

#include "core/comm.h"
#include "nn/model.h"

/* A parameter that other stages have, too. */
struct tied_weight {
  const struct trm_parameter *parameter;
  int copies, self;             /* number of stages that have it; index of this stage among them */
  int *stage;                   /* (copies) ascending */
  float **gradient;             /* device, (copies) of (parameter->count): each stage's */
  float **host;                 /* (copies) the same in host memory: gradient itself, or a buffer */
  struct trm_request **request; /* (2, copies) sends, receives */
};

struct tied {
  struct trm_comm *comm;
  struct tied_weight *weight; /* (weights) ascending in number */
  int weights;
  size_t deferred_from;       /* gradients of flat elements from here on need other stages; SIZE_MAX: none */
};

/* Collective over comm, the stages. Finds the parameters that several stages have. */
int tied_create(struct tied *tied, struct trm_comm *comm, const struct trm_model *model);
/* Before the gradients of a batch: posts the receives; allocates memory in the first call. */
int tied_begin(struct tied *tied, struct trm_device *device);
/* Returns true if a layer of the chunk has such a weight. */
bool tied_in_chunk(const struct tied *tied, const struct trm_layer *layer, const struct trm_chunk *chunk);
/* Called by all stages that have copies. Makes this stage's complete gradients the sums over the stages, added in the
 * same order on all. Adds the time waited to *wait_s. accumulated: the gradients are those of tied_accumulate, and the
 * sums stay in memory for tied_write. */
int tied_allreduce(struct tied *tied, struct trm_device *device, bool accumulated, double *wait_s);

/* For gradients that are released after each micro-batch (trm_param_provider.overwrites_gradient): adds those of the
 * flat interval [low, high) to a buffer, which `first` overwrites, and sets them to 0. */
void tied_accumulate(struct tied *tied, struct trm_device *device, size_t low, size_t high, bool first);
/* Copies the sums of the flat interval [low, high) to their places in g (high - low). */
void tied_write(const struct tied *tied, struct trm_device *device, size_t low, size_t high, float *g);
void tied_free(struct tied *tied, struct trm_device *device);
