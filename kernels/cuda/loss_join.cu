/* The loss of rows whose scores are sharded by class, from the statistics of all shards: a few numbers a row, in double
 * as on the CPU. One thread a row. */
#include "kernels/cuda/kernel.cuh"

__global__ static void loss_run_join(const struct trm_softmax_shard_join it)
{
  CUDA_ELEMENTS(i, it.b) {
    const double smoothing = it.smoothing;
    const int32_t label = it.target[i];
    double most = 0, sum = 0, target = -INFINITY, distance = 0;
    float first = 0;

    for (size_t k = 0; k < it.ranks; k++) {
      const float *at = it.stats + (k * it.b + i) * TRM_SCORES_FIELDS;

      if (k == 0 || at[TRM_SCORES_MAX] > most) { /* ties: the first */
        most = at[TRM_SCORES_MAX];
        first = at[TRM_SCORES_ARGMAX];
      }
      target = fmax(target, (double)at[TRM_SCORES_TARGET]);
    }
    for (size_t k = 0; k < it.ranks; k++) {
      const float *at = it.stats + (k * it.b + i) * TRM_SCORES_FIELDS;
      const double shift = most - at[TRM_SCORES_MAX];

      sum += at[TRM_SCORES_SUM] * exp(-shift);
      distance += at[TRM_SCORES_DISTANCE] + at[TRM_SCORES_WEIGHT] * shift;
    }
    const double spread = smoothing > 0 ? smoothing * distance / (double)it.v.total : 0;
    const bool ignored = label == TRM_IGNORE_INDEX;
    const bool weighs = it.class_weight && label >= 0 && (size_t)label < it.v.total;
    const double weight = it.weight ? it.weight[i] : 1, own = (1 - smoothing) * (weighs ? it.class_weight[label] : 1);

    it.loss[i] = ignored ? 0 : (float)(weight * ((own + smoothing) * log(sum) + own * (most - target) + spread));
    it.correct[i] = ignored ? -1 : !isnan(sum) && first == (float)label;
    it.max[i] = (float)most;
    it.sum[i] = (float)sum;
  }
}

void cuda_softmax_shard_join(struct trm_device *device, const struct trm_softmax_shard_join *call)
{
  CUDA_LAUNCH(loss_run_join, cuda_blocks(call->b), CUDA_THREADS, device, *call);
}
