/* Training in lanes (run.lanes): the gradient of a shard of a batch, by passes over its lanes, whose gradients are
 * added in a binary tree. The passes follow one another, or are made side by side, layer by layer, if a layer sums over
 * the batch: these sums, too, are added in the tree. */
#include "core/memory.h"
#include "core/status.h"
#include "train/trainer.h"

/* Prepares passes side by side. Collective. */
static void lanes_create_side_by_side(struct trainer *t)
{
  struct trainer_lanes *lanes = &t->lanes;
  struct trm_comm *data = t->grid->axis[TRM_AXIS_DATA];
  const size_t count = (size_t)lanes->count;
  lanes->shards = data->ops->split(data, 0, t->strategy.batch_shard);
  lanes->pass = trm_alloc(count * sizeof *lanes->pass, "passes");
  lanes->input = trm_alloc(count * sizeof *lanes->input, "batches");
  lanes->device_batch = trm_alloc(count * sizeof *lanes->device_batch, "batches");
  for (size_t lane = 0; lane < count; lane++)
    trm_device_batch_create(&lanes->device_batch[lane], t->modules->device, &t->model);
  t->model.side_by_side = true;
  t->slots = lanes->count;
}

int trainer_lanes_create(struct trainer *t)
{
  struct trainer_lanes *lanes = &t->lanes;
  struct trm_device *device = t->modules->device;
  lanes->count = (int)t->options->run.lanes / t->strategy.batch_shards;
  if (trainer_passes_reduce(t))
    lanes_create_side_by_side(t);
  for (; 1 << lanes->levels < lanes->count; lanes->levels++)
    TRM_CHECK(device->ops->alloc(device, t->model.parameters * sizeof(float), TRM_MEMORY_BUFFERS,
                                 (void **)&lanes->subtree_sum[lanes->levels]));
  return TRM_OK;
}

void trainer_lanes_free(struct trainer *t)
{
  struct trainer_lanes *lanes = &t->lanes;
  for (int level = 0; level < lanes->levels; level++)
    t->modules->device->ops->release(t->modules->device, lanes->subtree_sum[level]);
  for (int lane = 0; lane < lanes->count && lanes->device_batch; lane++)
    trm_device_batch_free(&lanes->device_batch[lane]);
  if (lanes->shards)
    lanes->shards->ops->release(lanes->shards);
  trm_free(lanes->pass);
  trm_free(lanes->input);
  trm_free(lanes->device_batch);
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

/* -- side by side */

/* The passes' reduce: goes on with the tree over the data ranks. */
static void lanes_reduce(void *context, double *values, size_t n)
{
  struct trainer *t = context;
  struct trm_comm *shards = t->lanes.shards;
  const double began = trainer_clock(t);
  shards->ops->allreduce(shards, values, n, TRM_DOUBLE, TRM_TREE_SUM);
  t->reduce_s += trainer_clock(t) - began;
}

/* Arguments of lanes_lane_ready and lanes_ready. */
struct lanes_gradient {
  struct trainer *t;
  const struct trm_loss_sums *sums;
};

static void lanes_lane_ready(void *context, int lane, size_t low, size_t high)
{
  const struct lanes_gradient *to = context;
  lanes_add(to->t, lane, low, high);
}

static int lanes_ready(void *context, size_t low, size_t high)
{
  const struct lanes_gradient *to = context;
  return trainer_gradient_ready(to->t, low, high, to->sums);
}

/* Computes the gradient of this rank's shard, and hands its intervals to the strategy. */
static int lanes_train_side_by_side(struct trainer *t, const struct trainer_batch *batch, struct trm_loss_sums *sums)
{
  struct trainer_lanes *lanes = &t->lanes;
  struct lanes_gradient to = {t, sums};
  for (int lane = 0; lane < lanes->count; lane++) {
    struct trainer_pass_rows rows;
    struct trm_pass *pass = &lanes->pass[lane];
    trainer_pass_rows(t, batch->low, batch->high, t->strategy.batch_shard, (size_t)lane, &rows);
    TRM_CHECK(t->data->ops->fetch(t->data, rows.epoch, rows.low, rows.high, &t->batch));
    TRM_CHECK(trm_device_batch_upload(&lanes->device_batch[lane], &t->batch, &lanes->input[lane]));
    *pass = trainer_pass(t);
    pass->input = &lanes->input[lane];
    pass->step = trm_staged_arrays_step(&t->arrays);
    pass->first_row = trainer_first_row(t, pass, &rows);
    pass->reduce = lanes_reduce;
  }
  return trm_model_train_lanes(&t->model, lanes->pass, lanes->count,
                               trainer_gradient_scale(t, batch->high - batch->low), sums, lanes_lane_ready,
                               lanes_ready, &to);
}

int trainer_train_lanes(struct trainer *t, const struct trainer_batch *batch, struct trm_loss_sums *sums)
{
  if (t->lanes.pass)
    return lanes_train_side_by_side(t, batch, sums);
  if (!trainer_verify_due(t, batch))
    return trainer_lanes_gradient(t, batch, t->strategy.batch_shard, true, sums);
  TRM_CHECK(trainer_verify_gradient(t, batch, sums));
  return t->verify.failed ? TRM_OK : trainer_gradient_ready(t, 0, t->model.parameters, sums);
}
