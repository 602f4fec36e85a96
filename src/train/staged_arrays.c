#include "train/staged_arrays.h"

#include "core/memory.h"
#include "core/status.h"
#include "train/buckets.h"

enum { STAGED_UPLOAD = 1 << 18 }; /* elements of an interval of the weights, at least */

/* True if the strategy's arrays cannot be in the device's memory. With lanes the host updates the weights of one rank,
 * too: the bits are those of any number of ranks. */
static bool staged_arrays_needed(const struct trm_strategy *strategy)
{
  const char *offload = strategy->parallel->offload;
  const bool on_host = strategy->comm->size > 1 || (offload && offload[0]) || strategy->lanes > 0;
  return !strategy->device->host_memory && (on_host || !strategy->ops->on_device);
}

/* Cuts the weights into the intervals of their upload. */
static void staged_arrays_cut(struct trm_staged_arrays *a)
{
  const struct trm_strategy *strategy = a->strategy;
  const struct trm_bucket_rule rule = {.elements = strategy->elements, .boundary = strategy->boundary,
                                       .boundaries = strategy->boundaries, .min = STAGED_UPLOAD,
                                       .max = strategy->elements, .align = 1};
  struct trm_bucket *cut = trm_buckets_cut(&rule, &a->uploads);
  a->upload = trm_alloc((size_t)a->uploads * sizeof *a->upload, "weights on their way");
  for (int i = 0; i < a->uploads; i++)
    a->upload[i] = (struct trm_staged_interval){.low = cut[i].low, .high = cut[i].high};
  trm_free(cut);
  a->download = trm_alloc(((size_t)strategy->boundaries + 1) * sizeof *a->download, "gradients on their way");
}

static int staged_arrays_alloc(struct trm_staged_arrays *a)
{
  const size_t bytes = a->strategy->elements * sizeof(float);
  if (a->provider)
    return TRM_OK;
  staged_arrays_cut(a);
  a->device->ops->pin(a->device, a->strategy->w, bytes);
  a->device->ops->pin(a->device, a->strategy->g, bytes);
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

/* Waits until no interval is on its way. */
static void staged_arrays_wait(struct trm_device *device, struct trm_staged_interval *interval, int count)
{
  for (int i = 0; i < count; i++)
    device->ops->event_wait(device, &interval[i].event);
}

/* Also after a failure, with copies in flight. */
static void staged_arrays_end(struct trm_device *device, struct trm_staged_interval *interval, int count)
{
  staged_arrays_wait(device, interval, count);
  for (int i = 0; i < count; i++)
    device->ops->event_free(device, &interval[i].event);
  trm_free(interval);
}

void trm_staged_arrays_free(struct trm_staged_arrays *arrays)
{
  struct trm_device *device = arrays->device;
  if (arrays->upload) {
    staged_arrays_end(device, arrays->upload, arrays->uploads);
    staged_arrays_end(device, arrays->download, arrays->strategy->boundaries + 1);
    device->ops->unpin(device, arrays->strategy->w);
    device->ops->unpin(device, arrays->strategy->g);
  }
  if (arrays->staged) {
    device->ops->release(device, arrays->w);
    device->ops->release(device, arrays->g);
    trm_staged_provider_free(&arrays->staged_provider);
  }
  *arrays = (struct trm_staged_arrays){.staged = false};
}

/* Begins to copy the weights; those that passes read first go first. */
static void staged_arrays_begin_load(struct trm_staged_arrays *a, const float *from)
{
  for (int i = a->uploads - 1; i >= 0; i--) {
    struct trm_staged_interval *to = &a->upload[i];
    a->device->ops->upload_begin(a->device, a->w + to->low, from + to->low, (to->high - to->low) * sizeof *from,
                                 &to->event);
    to->awaited = false;
  }
}

void trm_staged_arrays_await(void *context, size_t low, size_t high)
{
  struct trm_staged_arrays *a = context;
  for (int i = 0; i < a->uploads; i++) {
    struct trm_staged_interval *to = &a->upload[i];
    if (to->awaited || to->low >= high || to->high <= low)
      continue;
    a->device->ops->await(a->device, &to->event);
    to->awaited = true;
  }
}

float *trm_staged_arrays_load(struct trm_staged_arrays *arrays, float *from)
{
  if (!arrays->staged || !from)
    return from;
  staged_arrays_wait(arrays->device, arrays->upload, arrays->uploads);
  staged_arrays_begin_load(arrays, from);
  trm_staged_arrays_await(arrays, 0, arrays->strategy->elements);
  staged_arrays_wait(arrays->device, arrays->upload, arrays->uploads);
  return arrays->w;
}

int trm_staged_arrays_begin(struct trm_staged_arrays *arrays)
{
  struct trm_strategy *strategy = arrays->strategy;
  if (arrays->upload) /* of a step that did not end */
    staged_arrays_wait(arrays->device, arrays->upload, arrays->uploads);
  if (strategy->ops->before_forward)
    TRM_CHECK(strategy->ops->before_forward(strategy));
  if (arrays->upload)
    staged_arrays_begin_load(arrays, strategy->w);
  return TRM_OK;
}

/* Passes the intervals that have arrived on the host to the strategy, in their order; all: waits for all. The weights,
 * which the layers above have read, have then been uploaded, and may change. */
static int staged_arrays_land(struct trm_staged_arrays *a, bool all, const struct trm_loss_sums *sums)
{
  struct trm_strategy *strategy = a->strategy;
  for (; a->landed < a->downloads; a->landed++) {
    struct trm_staged_interval *next = &a->download[a->landed];
    if (all)
      a->device->ops->event_wait(a->device, &next->event);
    else if (!a->device->ops->event_done(a->device, &next->event))
      return TRM_OK;
    staged_arrays_wait(a->device, a->upload, a->uploads);
    if (strategy->ops->grad_ready)
      TRM_CHECK(strategy->ops->grad_ready(strategy, next->low, next->high, sums));
  }
  return TRM_OK;
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
  if (low == 0)
    arrays->downloads = arrays->landed = 0;
  struct trm_staged_interval *next = &arrays->download[arrays->downloads++];
  next->low = low;
  next->high = high;
  arrays->device->ops->download_begin(arrays->device, strategy->g + low, arrays->g + low, (high - low) * sizeof(float),
                                      &next->event);
  return staged_arrays_land(arrays, high == strategy->elements, sums);
}

int trm_staged_arrays_gradient(struct trm_staged_arrays *arrays, const float **g)
{
  struct trm_strategy *strategy = arrays->strategy;
  if (arrays->staged)
    arrays->device->ops->download(arrays->device, strategy->g, arrays->g, strategy->elements * sizeof(float));
  *g = strategy->g;
  return arrays->device->ops->sync(arrays->device);
}
