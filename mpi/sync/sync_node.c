/* Sums over the ranks of a node, through the memory that they share, and what the ranks tell one another about their
 * progress. */
#include <math.h>

#include "core/memory.h"
#include "core/status.h"
#include "mpi/sync/sync_private.h"

int sync_node_barrier(struct trm_strategy *strategy)
{
  struct trm_comm *node = ((struct sync *)strategy->impl)->node;
  TRM_CHECK(strategy->device->ops->sync(strategy->device));
  const double before = node->ops->clock(node);
  node->ops->barrier(node);
  sync_end_timing(node, before, &strategy->wait_s, "node barrier", TRM_TRACE_WAIT);
  return TRM_OK;
}

/* -- progress */

int sync_node_publish(struct trm_strategy *strategy, enum sync_progress progress, size_t high,
                      const struct trm_loss_sums *sums)
{
  struct sync *s = strategy->impl;
  struct progress_flag *flag = &s->node_shared->progress[s->node->rank];
  TRM_CHECK(strategy->device->ops->sync(strategy->device));
  const int64_t before = (int64_t)(s->steps * strategy->elements), now = before + (int64_t)high;
  if (trm_counter_get(&flag->upto[SYNC_FINAL]) <= before)
    flag->sums = *sums; /* once per step: others may read it after the first change below */
  for (int p = SYNC_FINAL; p <= (int)progress; p++)
    if (trm_counter_get(&flag->upto[p]) < now)
      trm_counter_set(s->node, &flag->upto[p], now);
  return TRM_OK;
}

bool sync_node_has(const struct trm_strategy *strategy, enum sync_progress progress, size_t high)
{
  const struct sync *s = strategy->impl;
  const int64_t required = (int64_t)(s->steps * strategy->elements + high);
  for (int i = 0; i < s->node->size; i++)
    if (trm_counter_get(&s->node_shared->progress[i].upto[progress]) < required)
      return false;
  return true;
}

/* Arguments of sync_node_has, for wait_until. */
struct node_condition {
  const struct trm_strategy *strategy;
  enum sync_progress progress;
  size_t high;
};

static bool node_has(void *context)
{
  const struct node_condition *condition = context;
  return sync_node_has(condition->strategy, condition->progress, condition->high);
}

void sync_node_await(struct trm_strategy *strategy, enum sync_progress progress, size_t high)
{
  struct trm_comm *node = ((struct sync *)strategy->impl)->node;
  struct node_condition condition = {strategy, progress, high};
  if (node_has(&condition))
    return;
  const double before = node->ops->clock(node);
  node->ops->wait_until(node, node_has, &condition);
  sync_end_timing(node, before, &strategy->wait_s, "wait for the node", TRM_TRACE_WAIT);
}

/* -- sums */

/* to (n) = the sum of the elements [at, at + n) of the node's gradients, several arrays. n: at most a block. */
static void node_sum_block(struct trm_strategy *strategy, float *to, size_t at, size_t n)
{
  struct sync *s = strategy->impl;
  for (int i = 0; i < s->node->size; i++)
    s->addends[i] = (const float *)s->gradients.shared.base[i] + at;
  strategy->device->ops->sum(strategy->device, &(struct trm_sum){
    .to = to, .from = s->addends, .count = s->node->size, .n = n});
}

static size_t node_block_size(const struct sync *s, size_t at, size_t high)
{
  return high - at < s->block ? high - at : s->block;
}

void sync_node_sum_slice(struct trm_strategy *strategy, struct interval slice)
{
  struct sync *s = strategy->impl;
  if (s->node->size == 1)
    return;
  for (size_t at = slice.low; at < slice.high; at += s->block) {
    const size_t n = node_block_size(s, at, slice.high);
    node_sum_block(strategy, s->block_sum, at, n);
    strategy->device->ops->copy(strategy->device, strategy->g + at, s->block_sum, n * sizeof(float));
  }
}

static void node_add_losses(struct trm_loss_sums *to, const struct trm_loss_sums *from)
{
  double *const value = (double *)to;
  for (int i = 0; i < TRM_LOSS_SUMS; i++)
    value[i] += ((const double *)from)[i];
}

/* subtree[k] has the sum of 2^k ranks whose right neighbors are to come. */
void sync_node_sum_losses(const struct sync *s, struct trm_loss_sums *sums)
{
  struct trm_loss_sums subtree[32];
  const unsigned ranks = (unsigned)s->node->size;
  int level;
  for (unsigned i = 0; i < ranks; i++) {
    *sums = s->node_shared->progress[i].sums;
    for (level = 0; i >> level & 1; level++)
      node_add_losses(sums, &subtree[level]);
    subtree[level] = *sums;
  }
  for (*sums = (struct trm_loss_sums){0}, level = 0; level < 32; level++)
    if (ranks >> level & 1)
      node_add_losses(sums, &subtree[level]);
}

/* -- the update of one node without others */

/* True if the losses of all ranks of the node are finite. They must have been published. */
static bool node_losses_finite(const struct sync *s)
{
  for (int i = 0; i < s->node->size; i++)
    if (!isfinite(s->node_shared->progress[i].sums.loss))
      return false;
  return true;
}

void sync_node_update(struct trm_strategy *strategy, const struct trm_update *update)
{
  struct sync *s = strategy->impl;
  const int64_t blocks = (int64_t)((strategy->elements + s->block - 1) / s->block);
  const int64_t first = (int64_t)s->steps * blocks;
  for (;;) {
    int64_t taken = trm_counter_get(&s->node_shared->blocks_taken);
    const int64_t next = taken > first ? taken : first; /* a failed step may leave blocks */
    if (next == first + blocks)
      return;
    const size_t at = (size_t)(next - first) * s->block, n = node_block_size(s, at, strategy->elements);
    sync_node_await(strategy, SYNC_RELEASED, at + n);
    if (!node_losses_finite(s))
      return;
    if (!trm_counter_swap(s->node, &s->node_shared->blocks_taken, &taken, next + 1))
      continue; /* taken by another rank */
    node_sum_block(strategy, s->block_sum, at, n);
    sync_update_apply(strategy, update, s->block_sum, at, n);
  }
}
