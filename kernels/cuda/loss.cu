/* Losses: for each row the loss, whether the prediction is correct, and the gradient with respect to the scores. */
#include "kernels/cuda/kernel.cuh"

__device__ static float loss_weight(const float *weight, size_t i)
{
  return weight ? weight[i] : 1;
}

/* One block a row. dz may be z: a thread writes elements that it alone reads after the sums. */
template <typename value>
__global__ static void loss_run_softmax(const struct trm_softmax_cross_entropy it, struct cuda_failure *failure)
{
  const size_t row = blockIdx.x, c = it.c;
  const int32_t label = it.target[row];
  const cuda_values<value> z((const value *)it.z + row * it.ld), dz((value *)it.dz + row * it.ld);
  const bool ignored = label == TRM_IGNORE_INDEX;

  if (label < 0 || (size_t)label >= c) {
    if (threadIdx.x == 0) {
      if (!ignored)
        cuda_report(failure, CUDA_BAD_TARGET, row, label, c);
      it.loss[row] = ignored ? 0.0f : NAN;
      if (it.correct)
        it.correct[row] = ignored ? -1 : 0;
    }
    for (size_t j = threadIdx.x; it.dz && j < c; j += blockDim.x)
      dz.set(j, ignored ? 0.0f : NAN);
    return;
  }
  float most = -INFINITY, sum = 0, distance = 0, before = 0;
  for (size_t j = threadIdx.x; j < c; j += blockDim.x)
    most = fmaxf(most, z[j]);
  most = cuda_block_join<cuda_joined_maximum>(most);
  for (size_t j = threadIdx.x; j < c; j += blockDim.x) {
    sum += expf(z[j] - most);
    distance += loss_weight(it.class_weight, j) * (most - z[j]);
    before += j < (size_t)label && z[j] >= most;
  }
  const float score = z[(size_t)label], share = it.smoothing, weight = loss_weight(it.weight, row);
  const float own = (1 - share) * loss_weight(it.class_weight, label), all = own + share; /* weights as on the CPU */
  sum = cuda_block_sum(sum);
  before = cuda_block_sum(before); /* classes before the target that are as large as the largest */
  if (share > 0)
    distance = cuda_block_sum(distance) / (float)c;
  if (threadIdx.x == 0) {
    it.loss[row] = weight * (all * logf(sum) + own * (most - score) + (share > 0 ? share * distance : 0));
    if (it.correct)
      it.correct[row] = score >= most && before == 0 && !isnan(sum);
  }
  __syncthreads(); /* all threads have read the target's score */
  const float scale = weight * it.scale, factor = scale * all / sum, uniform = scale * share / (float)c;
  for (size_t j = threadIdx.x; it.dz && j < c; j += blockDim.x)
    dz.set(j, expf(z[j] - most) * factor - uniform * loss_weight(it.class_weight, j) -
                (j == (size_t)label ? scale * own : 0));
}

void cuda_softmax_cross_entropy(struct trm_device *device, const struct trm_softmax_cross_entropy *call)
{
  CUDA_BY_TYPE(call->type, CUDA_LAUNCH(loss_run_softmax<value>, (unsigned)call->b, cuda_row_threads(call->c), device,
                                       *call, cuda_state_of(device)->failure));
}

/* -- scores sharded by class */

__device__ static bool loss_is_class(int32_t label, size_t low, size_t high)
{
  return label >= 0 && (size_t)label >= low && (size_t)label < high;
}

template <typename value>
__global__ static void loss_run_stats(const struct trm_softmax_shard_stats it, struct cuda_failure *failure)
{
  const size_t row = blockIdx.x, c = it.v.high - it.v.low;
  const int32_t label = it.target[row];
  const cuda_values<value> z((const value *)it.z + row * it.ld);
  const bool valid = label == TRM_IGNORE_INDEX || loss_is_class(label, 0, it.v.total);
  float most = -INFINITY, sum = 0, distance = 0, weights = 0;
  float first = -(float)(c - 1); /* minus the index: the largest is first */

  for (size_t j = threadIdx.x; j < c; j += blockDim.x)
    most = fmaxf(most, z[j]);
  most = cuda_block_join<cuda_joined_maximum>(most);
  for (size_t j = threadIdx.x; j < c; j += blockDim.x) {
    sum += expf(z[j] - most);
    distance += loss_weight(it.class_weight, it.v.low + j) * (most - z[j]);
    weights += loss_weight(it.class_weight, it.v.low + j);
    first = z[j] >= most ? fmaxf(first, -(float)j) : first;
  }
  sum = cuda_block_sum(sum);
  distance = cuda_block_sum(distance);
  weights = cuda_block_sum(weights);
  first = cuda_block_join<cuda_joined_maximum>(first);
  if (threadIdx.x > 0)
    return;
  if (!valid)
    cuda_report(failure, CUDA_BAD_TARGET, row, label, it.v.total);
  float *to = it.stats + row * TRM_SCORES_FIELDS;
  to[TRM_SCORES_MAX] = most;
  to[TRM_SCORES_ARGMAX] = (float)it.v.low - first;
  to[TRM_SCORES_TARGET] = loss_is_class(label, it.v.low, it.v.high) ? z[(size_t)label - it.v.low] : -INFINITY;
  to[TRM_SCORES_DISTANCE] = distance;
  to[TRM_SCORES_WEIGHT] = weights;
  to[TRM_SCORES_SUM] = valid ? sum : NAN;
}

void cuda_softmax_shard_stats(struct trm_device *device, const struct trm_softmax_shard_stats *call)
{
  const size_t c = call->v.high - call->v.low;

  CUDA_BY_TYPE(call->type, CUDA_LAUNCH(loss_run_stats<value>, (unsigned)call->b, cuda_row_threads(c), device, *call,
                                       cuda_state_of(device)->failure));
}

template <typename value> __global__ static void loss_run_gradient(const struct trm_softmax_shard_gradient it)
{
  const size_t c = it.v.high - it.v.low;
  const cuda_values<value> z(it.z), dz(it.dz);

  CUDA_ELEMENTS(i, it.b * c) {
    const size_t row = i / c, column = i % c, class_number = it.v.low + column, at = row * it.ld + column;
    const int32_t label = it.target[row];
    const bool valid = loss_is_class(label, 0, it.v.total);
    const float scale = loss_weight(it.weight, row) * it.scale, share = it.smoothing;
    const float own = (1 - share) * (valid ? loss_weight(it.class_weight, label) : 1);
    const float factor = scale * (own + share) / it.sum[row], uniform = scale * share / (float)it.v.total;

    dz.set(at, label == TRM_IGNORE_INDEX ? 0 : expf(z[at] - it.max[row]) * factor -
                 uniform * loss_weight(it.class_weight, class_number) -
                 (valid && (size_t)label == class_number ? scale * own : 0));
  }
}

void cuda_softmax_shard_gradient(struct trm_device *device, const struct trm_softmax_shard_gradient *call)
{
  CUDA_BY_TYPE(call->type, CUDA_LAUNCH(loss_run_gradient<value>, cuda_blocks(call->b * (call->v.high - call->v.low)),
                                       CUDA_THREADS, device, *call));
}

/* -- targets that are numbers */

enum value_loss { SQUARES, HUBER, BINARY };

template <value_loss kind> __device__ static float loss_of_value(float z, float target, float delta)
{
  const float e = z - target, distance = fabsf(e);

  if (kind == BINARY)
    return (z > 0 ? z : 0) - target * z + log1pf(expf(-fabsf(z)));
  if (kind == HUBER)
    return distance <= delta ? e * e / 2 : delta * (distance - delta / 2);
  return e * e;
}

/* The derivative by z. */
template <value_loss kind> __device__ static float loss_slope(float z, float target, float delta)
{
  const float e = z - target;

  if (kind == BINARY)
    return 1 / (1 + expf(-z)) - target;
  if (kind == HUBER)
    return e > delta ? delta : e < -delta ? -delta : e;
  return 2 * e;
}

template <typename value, value_loss kind> __global__ static void loss_run_values(const struct trm_value_loss it)
{
  const size_t row = blockIdx.x, f = it.f;
  const cuda_values<value> z((const value *)it.z + row * it.ld), dz((value *)it.dz + row * it.ld);
  const float *target = it.target + row * f, factor = it.scale / (float)f;
  float sum = 0, wrong = 0;

  for (size_t j = threadIdx.x; j < f; j += blockDim.x) {
    const float score = z[j], t = target[j];

    sum += loss_of_value<kind>(score, t, it.delta);
    wrong += (score > 0) != (t > 0);
    if (it.dz)
      dz.set(j, factor * loss_slope<kind>(score, t, it.delta));
  }
  sum = cuda_block_sum(sum);
  if (kind == BINARY)
    wrong = cuda_block_sum(wrong);
  if (threadIdx.x > 0)
    return;
  it.loss[row] = sum / (float)f;
  if (it.correct)
    it.correct[row] = kind == BINARY && wrong == 0 && !isnan(sum);
}

template <typename value, value_loss kind>
static void loss_values(struct trm_device *device, const struct trm_value_loss *call)
{
  void (*const run)(const struct trm_value_loss) = loss_run_values<value, kind>;

  CUDA_LAUNCH(run, (unsigned)call->b, cuda_row_threads(call->f), device, *call);
}

void cuda_mean_squared_error(struct trm_device *device, const struct trm_value_loss *call)
{
  CUDA_BY_TYPE(call->type, loss_values<value, SQUARES>(device, call));
}

void cuda_huber(struct trm_device *device, const struct trm_value_loss *call)
{
  CUDA_BY_TYPE(call->type, loss_values<value, HUBER>(device, call));
}

void cuda_binary_cross_entropy(struct trm_device *device, const struct trm_value_loss *call)
{
  CUDA_BY_TYPE(call->type, loss_values<value, BINARY>(device, call));
}

/* One score per row. Predicts its sign, -1 for 0; NaN is never correct. */
template <typename value, bool hinge> __global__ static void loss_run_margin(const struct trm_margin_loss it)
{
  const cuda_values<value> scores(it.z), dz(it.dz);

  CUDA_ELEMENTS(i, it.b) {
    const float z = scores[i], t = it.target[i], margin = t * z;

    if (hinge)
      it.loss[i] = margin >= 1 ? 0 : 1 - margin;
    else
      it.loss[i] = (margin < 0 ? -margin : 0) + log1pf(expf(-fabsf(margin)));
    if (it.correct)
      it.correct[i] = t > 0 ? z > 0 : z <= 0;
    if (it.dz && hinge)
      dz.set(i, margin >= 1 ? 0 : isnan(margin) ? margin : -t * it.scale);
    else if (it.dz)
      dz.set(i, -t * it.scale / (1 + expf(margin)));
  }
}

template <typename value, bool hinge>
static void loss_margin(struct trm_device *device, const struct trm_margin_loss *call)
{
  void (*const run)(const struct trm_margin_loss) = loss_run_margin<value, hinge>;

  CUDA_LAUNCH(run, cuda_blocks(call->b), CUDA_THREADS, device, *call);
}

void cuda_logistic(struct trm_device *device, const struct trm_margin_loss *call)
{
  CUDA_BY_TYPE(call->type, loss_margin<value, false>(device, call));
}

void cuda_hinge(struct trm_device *device, const struct trm_margin_loss *call)
{
  CUDA_BY_TYPE(call->type, loss_margin<value, true>(device, call));
}
