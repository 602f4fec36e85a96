/* A step of one rank alone: all of it is begun on the device, and read back once, at its end. The step's numbers are in
 * device memory (strategy->now), so that its calls have the same arguments in every step. */
#include "core/memory.h"
#include "core/status.h"
#include "core/trace.h"
#include "mpi/sync/sync_private.h"

/* Adds the squared norm of the gradient to the step's. On a host device unit by unit, for the bits of any number of
 * ranks. Ranks that hold the other parts of the model wait for one another. */
static void alone_add_norm(struct trm_strategy *strategy)
{
  struct trm_device *device = strategy->device;
  const struct trm_optimizer *optimizer = strategy->optimizer;
  double *const sum = &strategy->now->norm_squared, norm_squared = 0;
  const size_t n = strategy->elements;
  if (device->host_memory)
    for (size_t at = 0; at < n; at += SYNC_UNIT)
      norm_squared += trm_optimizer_norm_squared(optimizer, device, at, n - at < SYNC_UNIT ? n - at : SYNC_UNIT,
                                                 strategy->g + at);
  else
    trm_optimizer_add_norm(optimizer, device, 0, n, strategy->g, sum);
  if (strategy->norm_comm && !device->host_memory)
    device->ops->download(device, &norm_squared, sum, sizeof norm_squared);
  sync_reduce_model_norm(strategy, &norm_squared);
  if (strategy->norm_comm || device->host_memory)
    device->ops->upload(device, sum, &norm_squared, sizeof norm_squared);
}

/* Computes the trust ratios of all tensors; on the host if it has the norms, or other ranks have shards of tensors. */
static void alone_compute_ratios(struct trm_strategy *strategy, struct trm_update update,
                                 const struct trm_update_interval *all)
{
  struct sync *s = strategy->impl;
  struct trm_device *device = strategy->device;
  const struct trm_optimizer *optimizer = strategy->optimizer;
  const size_t tensors = (size_t)optimizer->tensors, unit = device->host_memory ? SYNC_UNIT : SIZE_MAX;
  trm_optimizer_prepare(optimizer, device, &update, all, strategy->g);
  if (!device->host_memory && !strategy->ratio_comm) {
    device->ops->fill(device, (float *)s->device_norms, 0, tensors * sizeof *s->device_norms / sizeof(float));
    trm_optimizer_tensor_norms(optimizer, device, all, strategy->g, s->device_norms);
    device->ops->trust_ratios(device, &(struct trm_trust_ratios){
      .update = update, .trust = optimizer->trust, .norm = s->device_norms[0], .ratio = s->ratios,
      .tensors = tensors});
    return;
  }
  float *ratio = trm_alloc(tensors * sizeof *ratio, "ratios");
  device->ops->download(device, &update.scale, &strategy->now->scale, sizeof update.scale);
  trm_optimizer_partial_norms(optimizer, device, unit, all, strategy->g, s->tensor_norms);
  sync_ratios(strategy, &update, unit, s->tensor_norms, ratio);
  device->ops->upload(device, s->ratios, ratio, tensors * sizeof *ratio);
  trm_free(ratio);
}

/* Waits for the step and adds its sums. */
static int alone_read_sums(struct trm_strategy *strategy, struct trm_loss_sums *sums)
{
  struct trm_device *device = strategy->device;
  struct trm_step step;
  device->ops->download(device, &step, strategy->now, sizeof step);
  sums->loss = step.loss;
  sums->correct = step.correct;
  sums->rows = step.rows;
  return device->ops->sync(device);
}

/* Makes the calls of the update. context: the strategy. */
static int alone_update(void *context)
{
  struct trm_strategy *strategy = context;
  struct sync *s = strategy->impl;
  struct trm_device *device = strategy->device;
  const struct trm_optimizer *optimizer = strategy->optimizer;
  float *state[TRM_MAX_STATES - 1];
  sync_states_at(s, 0, state);
  const struct trm_update_interval all = {0, strategy->elements, strategy->w, state, strategy->rounded};
  const struct trm_update update = trm_optimizer_update_now(optimizer, strategy->now);
  if (optimizer->clip > 0)
    alone_add_norm(strategy);
  device->ops->clip(device, &(struct trm_clip){.step = strategy->now, .limit = optimizer->clip});
  if (trm_optimizer_has_trust_ratios(optimizer))
    alone_compute_ratios(strategy, update, &all);
  for (int t = 0; t < optimizer->tensors && s->matrices; t++)
    if (optimizer->tensor[t].hidden)
      trm_muon_direction(optimizer, device, &update, t, state[0], strategy->g, s->matrices);
  trm_optimizer_apply(optimizer, device, &update, s->ratios, &all, strategy->g);
  return TRM_OK;
}

/* True if the update is calls of the device alone: no other rank has parts of the norms. */
static bool alone_repeats(const struct trm_strategy *strategy)
{
  const struct trm_optimizer *optimizer = strategy->optimizer;
  return !strategy->device->host_memory && !(optimizer->clip > 0 && strategy->norm_comm) &&
         !(trm_optimizer_has_trust_ratios(optimizer) && strategy->ratio_comm);
}

int sync_alone_step(struct trm_strategy *strategy, struct trm_loss_sums *sums)
{
  struct sync *s = strategy->impl;
  const double began = trm_trace_begin("update");
  TRM_CHECK(alone_repeats(strategy) ? trm_recordings_run(&s->updates, strategy->device, &strategy->now,
                                                         sizeof strategy->now, alone_update, strategy)
                                    : alone_update(strategy));
  trm_trace_end("update", TRM_TRACE_COMPUTE, began, TRM_TRACE_NO_IDS);
  TRM_CHECK(alone_read_sums(strategy, sums));
  TRM_CHECK(sync_sum_losses(strategy, strategy->comm, sums)); /* not finite: the update was skipped */
  strategy->updates++;
  return TRM_OK;
}
