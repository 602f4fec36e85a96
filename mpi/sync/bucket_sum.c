/* The sum of a bucket's slice over the nodes, in place in the gradient array of the slice's owner: an all-reduce, or
 * the sum of what strategy.compress makes of each node's slice. */
#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"
#include "mpi/sync/sync_private.h"

void sync_bucket_sums_describe(struct trm_strategy *strategy)
{
  const struct sync *s = strategy->impl;
  struct trm_exchange *exchange = &strategy->exchange;
  *exchange = (struct trm_exchange){.ranks = s->cross[0]->size, .period = 1, .parts = 1};
  if (s->compressor)
    compressor_describe(s->compressor, exchange);
  for (int b = 0; b < s->buckets && !s->compressor && sync_has_other_nodes(s); b++)
    exchange->bytes += (double)(s->bucket[b].slice.high - s->bucket[b].slice.low) * sizeof(float);
}

/* On one node no compressor is needed, but for dgc, whose momentum replaces the optimizer's. */
int sync_bucket_sums_create(struct trm_strategy *strategy)
{
  struct sync *s = strategy->impl;
  const enum trm_compress compress = strategy->options->compress;
  if (compress == TRM_COMPRESS_NONE || strategy->replica) /* replicas compress what they exchange */
    return TRM_OK;
  if (!sync_has_other_nodes(s)) {
    if (compress == TRM_COMPRESS_DGC)
      return trm_error(TRM_USAGE, "strategy.compress=dgc: needs several nodes, between which it sends momentum in "
                       "place of gradients; on one node use none, with optim.momentum");
    trm_info("strategy.compress: all ranks are on one node, which sends nothing to others: no effect");
    return TRM_OK;
  }
  struct compress_slice *slice = trm_alloc((size_t)s->buckets * sizeof *slice, "slices of the gradient");
  for (int b = 0; b < s->buckets; b++)
    slice[b] = (struct compress_slice){s->bucket[b].slice.low, s->bucket[b].slice.high, s->bucket[b].cross};
  const int status = compressor_create(&s->compressor, strategy, slice, s->buckets);
  trm_free(slice);
  return status;
}

/* The slice's number for the compressor. */
static int bucket_sum_number(const struct sync *s, const struct bucket *bucket)
{
  return (int)(bucket - s->bucket);
}

void sync_bucket_sum_begin(struct trm_strategy *strategy, struct bucket *bucket)
{
  struct sync *s = strategy->impl;
  struct trm_comm *cross = bucket->cross;
  const size_t n = bucket->slice.high - bucket->slice.low;
  float *const g = strategy->g + bucket->slice.low;
  if (cross->size == 1 || n == 0)
    return;
  if (s->compressor) {
    compressor_begin(s->compressor, bucket_sum_number(s, bucket), g);
    return;
  }
  strategy->wire.bytes += n * sizeof(float);
  cross->ops->allreduce_begin(cross, g, n, TRM_FLOAT, sync_sum_op(strategy), &bucket->request);
}

bool sync_bucket_sum_test(struct trm_strategy *strategy, struct bucket *bucket)
{
  struct sync *s = strategy->impl;
  return s->compressor ? compressor_test(s->compressor, bucket_sum_number(s, bucket))
                       : bucket->cross->ops->test(&bucket->request);
}

void sync_bucket_sum_wait(struct trm_strategy *strategy, struct bucket *bucket)
{
  struct sync *s = strategy->impl;
  if (s->compressor)
    compressor_wait(s->compressor, bucket_sum_number(s, bucket));
  else
    bucket->cross->ops->wait(&bucket->request);
}
