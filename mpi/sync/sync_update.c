/* The updates of synchronous training over shared memory: those of buckets as their sums arrive, or, where the rule
 * needs norms of the whole gradient or of whole tensors, or whole tensors, norms as they arrive and the updates at the end. */
#include "core/status.h"
#include "mpi/sync/sync_private.h"

struct trm_update sync_make_update(const struct trm_strategy *strategy, double rate, double norm_squared)
{
  struct trm_update update = strategy->optimizer->update;
  update.rate = (float)rate;
  update.scale = strategy->optimizer->clip > 0 ? trm_clip_scale(strategy->optimizer, norm_squared) : 1;
  update.step = strategy->updates + 1;
  return update;
}

void sync_states_at(const struct sync *s, size_t at, float *state[TRM_MAX_STATES - 1])
{
  for (int i = 0; i < TRM_MAX_STATES - 1; i++)
    state[i] = s->state[i].data ? s->state[i].data + at : NULL;
}

void sync_update_apply(struct trm_strategy *strategy, const struct trm_update *update, const float *g, size_t at,
                       size_t n)
{
  struct sync *s = strategy->impl;
  float *state[TRM_MAX_STATES - 1];
  sync_states_at(s, at, state);
  trm_bf16 *rounded = strategy->rounded ? strategy->rounded + at : NULL;
  const struct trm_update_interval to = {at, n, strategy->w + at, state, rounded};
  trm_optimizer_apply(strategy->optimizer, strategy->device, update, s->ratios, &to, g);
}

static void update_slice(struct trm_strategy *strategy, const struct trm_update *update, struct interval slice)
{
  sync_update_apply(strategy, update, strategy->g + slice.low, slice.low, slice.high - slice.low);
}

/* Computes the slice's part of the norms of tensors, of the weights and of the rule's direction, which it puts in the
 * gradient's place. */
static void update_tensor_norms(struct trm_strategy *strategy, const struct trm_update *update, struct interval slice)
{
  struct sync *s = strategy->impl;
  const struct trm_optimizer *optimizer = strategy->optimizer;
  const size_t at = slice.low, n = slice.high - at;
  float *g = strategy->g + at, *state[TRM_MAX_STATES - 1];
  sync_states_at(s, at, state);
  const struct trm_update_interval to = {at, n, strategy->w + at, state, NULL};
  trm_optimizer_prepare(optimizer, strategy->device, update, &to, g);
  trm_optimizer_partial_norms(optimizer, strategy->device, SYNC_UNIT, &to, g, s->tensor_norms);
}

/* Copies this rank's part of a tensor's gradient to the tensor's owner in the node, or back. */
static void update_copy_tensor(struct trm_strategy *strategy, struct interval tensor, int owner, bool back)
{
  const struct sync *s = strategy->impl;
  float *const there = owner == s->node->rank ? strategy->g : s->gradients.shared.base[owner];
  for (int b = 0; b < s->buckets && there != strategy->g; b++) {
    const struct interval part = sync_overlap(s->bucket[b].slice, tensor);
    float *const from = back ? there : strategy->g, *const to = back ? strategy->g : there;
    if (part.low < part.high)
      strategy->device->ops->copy(strategy->device, to + part.low, from + part.low,
                                  (part.high - part.low) * sizeof *to);
  }
}

/* The same for all hidden matrices, of which the node's ranks own one after the other. */
static void update_copy_matrices(struct trm_strategy *strategy, bool back)
{
  const struct sync *s = strategy->impl;
  const struct trm_tensor *tensor = strategy->optimizer->tensor;
  for (int t = 0; t < strategy->optimizer->tensors; t++) {
    const int owner = trm_muon_owner(strategy->optimizer, t, s->node->size);
    if (owner >= 0)
      update_copy_tensor(strategy, (struct interval){t ? tensor[t - 1].end : 0, tensor[t].end}, owner, back);
  }
}

/* Muon: puts the directions of hidden matrices in the gradient's place. The elements of another rank's array that hold
 * its part of this rank's slice are read by no other rank: they take the sum. */
static int update_directions(struct trm_strategy *strategy, const struct trm_update *update)
{
  const struct sync *s = strategy->impl;
  const struct trm_optimizer *optimizer = strategy->optimizer;
  update_copy_matrices(strategy, false);
  TRM_CHECK(sync_node_barrier(strategy));
  for (int t = 0; t < optimizer->tensors; t++)
    if (trm_muon_owner(optimizer, t, s->node->size) == s->node->rank)
      trm_muon_direction(optimizer, strategy->device, update, t, s->state[0].data, strategy->g, s->matrices);
  TRM_CHECK(sync_node_barrier(strategy));
  update_copy_matrices(strategy, true);
  return TRM_OK;
}

bool sync_update_is_whole(const struct trm_strategy *strategy)
{
  return ((const struct sync *)strategy->impl)->matrices || strategy->optimizer->clip > 0 ||
         trm_optimizer_has_trust_ratios(strategy->optimizer);
}

void sync_update_bucket(struct trm_strategy *strategy, const struct bucket *bucket)
{
  const struct trm_update update = sync_make_update(strategy, strategy->rate, 0); /* the scale: of no use in norms */
  const char *name = sync_update_is_whole(strategy) ? "norms" : "update";
  const double began = trm_trace_begin(name);
  if (strategy->optimizer->clip > 0)
    sync_clip_add(strategy, bucket->slice);
  else if (trm_optimizer_has_trust_ratios(strategy->optimizer))
    update_tensor_norms(strategy, &update, bucket->slice);
  else if (!sync_update_is_whole(strategy))
    update_slice(strategy, &update, bucket->slice);
  trm_trace_end(name, TRM_TRACE_COMPUTE, began, TRM_TRACE_NO_IDS);
}

int sync_update_whole(struct trm_strategy *strategy)
{
  struct sync *s = strategy->impl;
  const bool clips = strategy->optimizer->clip > 0;
  double norm_squared = 0;
  if (clips)
    TRM_CHECK(sync_clip_norm(strategy, &norm_squared));
  const struct trm_update update = sync_make_update(strategy, strategy->rate, norm_squared);
  if (trm_optimizer_has_trust_ratios(strategy->optimizer)) {
    for (int b = 0; b < s->buckets && clips; b++) /* without clipping they are made already */
      update_tensor_norms(strategy, &update, s->bucket[b].slice);
    TRM_CHECK(sync_node_barrier(strategy));
    sync_ratios(strategy, &update, SYNC_UNIT, s->tensor_norms, s->ratios);
  }
  if (s->matrices)
    TRM_CHECK(update_directions(strategy, &update));
  const double began = trm_trace_begin("update");
  for (int b = 0; b < s->buckets; b++)
    update_slice(strategy, &update, s->bucket[b].slice);
  trm_trace_end("update", TRM_TRACE_COMPUTE, began, TRM_TRACE_NO_IDS);
  return TRM_OK;
}
