/* The sum of a bucket's slice over the nodes, in place in the gradient array of the slice's owner. */
#include "mpi/sync/sync_private.h"

void sync_bucket_sum_begin(struct trm_strategy *strategy, struct bucket *bucket)
{
  struct trm_comm *cross = bucket->cross;
  const size_t n = bucket->slice.high - bucket->slice.low;
  if (cross->size == 1 || n == 0)
    return;
  strategy->wire.bytes += n * sizeof(float);
  cross->ops->allreduce_begin(cross, strategy->g + bucket->slice.low, n, TRM_FLOAT, sync_sum_op(strategy),
                              &bucket->request);
}

bool sync_bucket_sum_test(struct trm_strategy *strategy, struct bucket *bucket)
{
  (void)strategy;
  return bucket->cross->ops->test(&bucket->request);
}

void sync_bucket_sum_wait(struct trm_strategy *strategy, struct bucket *bucket)
{
  (void)strategy;
  bucket->cross->ops->wait(&bucket->request);
}
