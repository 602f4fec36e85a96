/* The arrays of passes, between the trainer and the strategy (private to the library). Passes compute on the rank's
 * device. If its memory is not the host's, a strategy that shares arrays with other ranks, or with files, has its own
 * on the host's device beside it: then this module has a copy of the weights on the device, whose intervals are
 * uploaded while the layers before them compute, and the gradient, of which each interval is downloaded as it becomes
 * final, while the layers below compute; sharded parameters are staged layer by layer (staged_provider.h). So every
 * strategy runs with every device, ranks with different ones may train together, and the optimizer's arithmetic is the
 * host's on all of them.
 */
#pragma once

#include "train/staged_provider.h"
#include "train/strategy.h"

/* Elements [low, high) on their way between host and device. */
struct trm_staged_interval {
  size_t low, high;
  bool awaited;           /* later calls of the device come after the copy */
  struct trm_event event; /* of the copy */
};

struct trm_staged_arrays {
  struct trm_strategy *strategy; /* not owned */
  struct trm_device *device;     /* of passes; not owned */
  bool staged;                   /* the strategy's arrays are on the host's device */
  float *w;                      /* device, (elements): if staged, the copy; NULL with a parameter provider */
  float *g;                      /* device, (elements): of passes; NULL with a parameter provider */
  const struct trm_param_provider *provider;   /* of passes; NULL: they use w and g */
  struct trm_staged_provider staged_provider;  /* it, if staged */
  struct trm_staged_interval *upload;   /* (uploads) of the weights, owned */
  struct trm_staged_interval *download; /* (strategy->boundaries + 1) of the gradient, in order, owned */
  int uploads;
  int downloads, landed; /* of this step: begun, passed to the strategy */
};

/* Collective over strategy->comm. Creates the strategy (trm_strategy_create) and the arrays for passes on
 * strategy->device, which becomes the host's device if they are staged. free comes after every outcome, and does not
 * destroy the strategy. */
int trm_staged_arrays_create(struct trm_staged_arrays *arrays, struct trm_strategy *strategy);
void trm_staged_arrays_free(struct trm_staged_arrays *arrays);

/* Returns weights for passes with the values of `from`, an array of the strategy (elements): itself, or the copy, which
 * has them until the next call. NULL with a parameter provider. */
float *trm_staged_arrays_load(struct trm_staged_arrays *arrays, float *from);
/* Before the forward pass of a step: calls slot before_forward and begins to load the weights, for
 * trm_staged_arrays_await. */
int trm_staged_arrays_begin(struct trm_staged_arrays *arrays);
/* Lets later calls of the device come after the upload of elements [low, high) (trm_pass.await_weights). context: the
 * arrays. */
void trm_staged_arrays_await(void *context, size_t low, size_t high);
/* The elements [low, high) of g are final: passes them to the strategy, as slot grad_ready says. If they are staged,
 * this begins the copy to the host and passes those intervals that have arrived; the last call waits for all. */
int trm_staged_arrays_ready(struct trm_staged_arrays *arrays, size_t low, size_t high,
                            const struct trm_loss_sums *sums);

/* Returns the elements of the parts of the gradient that the strategy takes while a layer still computes (slot
 * part_ready): none, 0, of staged arrays. */
static inline size_t trm_staged_arrays_part(const struct trm_staged_arrays *arrays)
{
  return arrays->staged || arrays->provider ? 0 : arrays->strategy->part;
}

/* Sets *g to the gradient of this rank in host memory, (elements), valid until the next pass. Waits for the passes so
 * far. Not with a parameter provider. */
int trm_staged_arrays_gradient(struct trm_staged_arrays *arrays, const float **g);

/* Returns the step in device memory to which passes add their losses (trm_pass.step); NULL: they return them. */
static inline struct trm_step *trm_staged_arrays_step(const struct trm_staged_arrays *arrays)
{
  return arrays->staged ? NULL : arrays->strategy->now;
}
