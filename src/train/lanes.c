#include "train/lanes.h"

#include <string.h>

#include "core/status.h"

int trm_lanes_create(struct trm_lanes *lanes, struct trm_device *device, size_t elements, int count)
{
  memset(lanes, 0, sizeof *lanes);
  lanes->device = device;
  lanes->elements = elements;
  lanes->count = count;
  for (; 1 << lanes->levels < count; lanes->levels++)
    TRM_CHECK(device->ops->alloc(device, elements * sizeof(float), TRM_MEMORY_BUFFERS,
                                 (void **)&lanes->subtree_sum[lanes->levels]));
  return TRM_OK;
}

/* Adds as a binary counter: a 1 bit at `level` of the lane's number means that subtree_sum[level] holds the left
 * sibling. Addition commutes, so right + left has the bits of left + right. */
void trm_lanes_add(struct trm_lanes *lanes, int number, float *g)
{
  const struct trm_device_ops *ops = lanes->device->ops;
  int level = 0;
  for (; number >> level & 1; level++) {
    const float *const pair[2] = {g, lanes->subtree_sum[level]};
    ops->sum(lanes->device, g, pair, 2, lanes->elements);
  }
  if (level < lanes->levels)
    ops->copy(lanes->device, lanes->subtree_sum[level], g, lanes->elements * sizeof *g);
}

void trm_lanes_free(struct trm_lanes *lanes)
{
  for (int level = 0; level < lanes->levels; level++)
    lanes->device->ops->release(lanes->device, lanes->subtree_sum[level]);
  memset(lanes, 0, sizeof *lanes);
}
