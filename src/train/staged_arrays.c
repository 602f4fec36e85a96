#include "train/staged_arrays.h"

#include "core/status.h"

/* True if the strategy's arrays cannot be in the device's memory. With lanes the host updates the weights of one rank,
 * too: the bits are those of any number of ranks. */
static bool staged_arrays_needed(const struct trm_strategy *strategy)
{
  const char *offload = strategy->parallel->offload;
  const bool on_host = strategy->comm->size > 1 || (offload && offload[0]) || strategy->lanes > 0;
  return !strategy->device->host_memory && (on_host || !strategy->ops->on_device);
}

static int staged_arrays_alloc(struct trm_staged_arrays *a)
{
  const size_t bytes = a->strategy->elements * sizeof(float);
  if (a->provider)
    return TRM_OK;
  TRM_CHECK(a->device->ops->alloc(a->device, bytes, TRM_MEMORY_WEIGHTS, (void **)&a->w));
  return a->device->ops->alloc(a->device, bytes, TRM_MEMORY_GRADIENTS, (void **)&a->g);
}

int trm_staged_arrays_create(struct trm_staged_arrays *arrays, struct trm_strategy *strategy)
{
  *arrays = (struct trm_staged_arrays){.strategy = strategy, .device = strategy->device};
  strategy->ops = trm_strategy_select(strategy);
  const bool staged = staged_arrays_needed(strategy);
  if (staged) {
    strategy->device = trm_device_host(strategy->device);
    strategy->values = TRM_VALUES_F32; /* passes read a copy of w */
  }
  TRM_CHECK(trm_strategy_create(strategy));
  arrays->staged = staged;
  arrays->g = staged ? NULL : strategy->g;
  arrays->provider = strategy->provider;
  if (staged && strategy->provider) {
    trm_staged_provider_open(&arrays->staged_provider, strategy->provider, arrays->device);
    arrays->provider = &arrays->staged_provider.provider;
  }
  return trm_agree(strategy->comm, staged ? staged_arrays_alloc(arrays) : TRM_OK);
}

void trm_staged_arrays_free(struct trm_staged_arrays *arrays)
{
  if (arrays->staged) {
    arrays->device->ops->event_wait(arrays->device, &arrays->event); /* after a failure */
    arrays->device->ops->event_free(arrays->device, &arrays->event);
    arrays->device->ops->release(arrays->device, arrays->w);
    arrays->device->ops->release(arrays->device, arrays->g);
    trm_staged_provider_free(&arrays->staged_provider);
  }
  *arrays = (struct trm_staged_arrays){.staged = false};
}

float *trm_staged_arrays_load(struct trm_staged_arrays *arrays, float *from)
{
  if (!arrays->staged || !from)
    return from;
  arrays->device->ops->upload(arrays->device, arrays->w, from, arrays->strategy->elements * sizeof *from);
  return arrays->w;
}

int trm_staged_arrays_begin(struct trm_staged_arrays *arrays)
{
  struct trm_strategy *strategy = arrays->strategy;
  if (strategy->ops->before_forward)
    TRM_CHECK(strategy->ops->before_forward(strategy));
  trm_staged_arrays_load(arrays, strategy->w);
  return TRM_OK;
}

/* Waits for the interval that is on its way to the host, and passes it to the strategy. */
static int staged_arrays_land(struct trm_staged_arrays *a, const struct trm_loss_sums *sums)
{
  struct trm_strategy *strategy = a->strategy;
  const size_t low = a->low, high = a->high;
  a->low = a->high = 0;
  a->device->ops->event_wait(a->device, &a->event);
  return low < high && strategy->ops->grad_ready ? strategy->ops->grad_ready(strategy, low, high, sums) : TRM_OK;
}

int trm_staged_arrays_ready(struct trm_staged_arrays *arrays, size_t low, size_t high,
                            const struct trm_loss_sums *sums)
{
  struct trm_strategy *strategy = arrays->strategy;
  if (!arrays->staged || arrays->provider) {
    if (arrays->staged)
      trm_staged_provider_ready(&arrays->staged_provider, low);
    return strategy->ops->grad_ready ? strategy->ops->grad_ready(strategy, low, high, sums) : TRM_OK;
  }
  TRM_CHECK(staged_arrays_land(arrays, sums));
  arrays->device->ops->download_begin(arrays->device, strategy->g + low, arrays->g + low, (high - low) * sizeof(float),
                                      &arrays->event);
  arrays->low = low;
  arrays->high = high;
  return high < strategy->elements ? TRM_OK : staged_arrays_land(arrays, sums);
}
