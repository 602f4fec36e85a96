/* Training in lanes (run.lanes): the gradient of a shard of a batch, by passes over its lanes, whose gradients are
 * added in a binary tree. */
#include "core/status.h"
#include "train/trainer.h"

int trainer_lanes_create(struct trainer *t)
{
  struct trainer_lanes *lanes = &t->lanes;
  struct trm_device *device = t->modules->device;
  lanes->count = (int)t->options->run.lanes / t->strategy.batch_shards;
  for (; 1 << lanes->levels < lanes->count; lanes->levels++)
    TRM_CHECK(device->ops->alloc(device, t->model.parameters * sizeof(float), TRM_MEMORY_BUFFERS,
                                 (void **)&lanes->subtree_sum[lanes->levels]));
  return TRM_OK;
}

void trainer_lanes_free(struct trainer *t)
{
  for (int level = 0; level < t->lanes.levels; level++)
    t->modules->device->ops->release(t->modules->device, t->lanes.subtree_sum[level]);
}

/* Adds elements [low, high) of lane `number` (0, 1, ... in order); after the last one g holds the sum. Adds as a binary
 * counter: a 1 bit at `level` of the number means that subtree_sum[level] holds the left sibling. Addition commutes, so
 * right + left has the bits of left + right. */
static void lanes_add(const struct trainer *t, int number, size_t low, size_t high)
{
  struct trm_device *device = t->modules->device;
  float *g = t->arrays.g + low;
  int level = 0;
  for (; number >> level & 1; level++) {
    const float *const pair[2] = {g, t->lanes.subtree_sum[level] + low};
    device->ops->sum(device, &(struct trm_sum){.to = g, .from = pair, .count = 2, .n = high - low});
  }
  if (level < t->lanes.levels)
    device->ops->copy(device, t->lanes.subtree_sum[level] + low, g, (high - low) * sizeof *g);
}

void trainer_lanes_complete(struct trainer *t, size_t low, size_t high)
{
  if (t->lanes.count)
    lanes_add(t, t->lanes.count - 1, low, high);
}

int trainer_lanes_gradient(struct trainer *t, const struct trainer_batch *batch, int shard, bool final,
                           struct trm_loss_sums *sums)
{
  struct trm_pass pass = trainer_pass(t);
  pass.step = trm_staged_arrays_step(&t->arrays);
  pass.reduce = NULL; /* a lane is a pass by itself */
  for (int lane = 0; lane < t->lanes.count; lane++) {
    struct trainer_pass_rows rows;
    pass.weights_kept = lane > 0;
    trainer_pass_rows(t, batch->low, batch->high, shard, (size_t)lane, &rows);
    const bool last = final && lane + 1 == t->lanes.count;
    TRM_CHECK(trainer_forward_backward(t, &rows, &pass, last, sums));
    if (!last)
      lanes_add(t, lane, 0, t->model.parameters);
  }
  return TRM_OK;
}

int trainer_train_lanes(struct trainer *t, const struct trainer_batch *batch, struct trm_loss_sums *sums)
{
  if (!trainer_verify_due(t, batch))
    return trainer_lanes_gradient(t, batch, t->strategy.batch_shard, true, sums);
  TRM_CHECK(trainer_verify_gradient(t, batch, sums));
  return t->verify.failed ? TRM_OK : trainer_gradient_ready(t, 0, t->model.parameters, sums);
}
