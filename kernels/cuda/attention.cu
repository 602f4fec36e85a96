/* Attention, forward: each warp has a few queries, and runs over the keys and values with a running maximum and sum
 * (Milakov & Gimelshein 2018). Blocks (T / ROWS, B H). */
#include "kernels/cuda/attention.cuh"

template <typename value> __global__ static void attention_run(const struct trm_attention_forward it)
{
  CUDA_SHARED(float, q, ATTENTION_ROWS *ATTENTION_MOST);
  CUDA_SHARED(float, tile, CUDA_WARP *ATTENTION_PITCH);
  const struct trm_attention *shape = &it.shape;
  const size_t t = shape->t, e = shape->head_dim, head = blockIdx.y, computed = t - shape->first;
  const size_t block = shape->first + blockIdx.x * (size_t)ATTENTION_ROWS;
  const size_t own = block + threadIdx.x / CUDA_WARP * ATTENTION_OWN, lane = threadIdx.x % CUDA_WARP;
  const size_t keys = shape->causal && block + ATTENTION_ROWS < t ? block + ATTENTION_ROWS : t;
  const attention_rows<value> k_rows = attention_head<value>(shape, it.qkv, head, 1);
  const attention_rows<value> v_rows = attention_head<value>(shape, it.qkv, head, 2);
  const attention_rows<value> y_rows = attention_result<value>(shape, it.y, head);
  const float factor = 1.0f / sqrtf((float)e);
  float most[ATTENTION_OWN], total[ATTENTION_OWN], y[ATTENTION_OWN][ATTENTION_SUMS] = {};

  for (int k = 0; k < ATTENTION_OWN; k++) {
    most[k] = -INFINITY;
    total[k] = 0;
  }
  attention_own_rows(attention_head<value>(shape, it.qkv, head, 0), t, e, block, q);
  for (size_t first = 0; first < keys; first += CUDA_WARP) {
    float p[ATTENTION_OWN];

    attention_products(k_rows, t, e, first, q + threadIdx.x / CUDA_WARP * ATTENTION_OWN * e, tile, p);
#pragma unroll
    for (int k = 0; k < ATTENTION_OWN; k++) {
      const bool seen = first + lane < t && (!shape->causal || first + lane <= own + k);
      const float score = seen ? p[k] * factor : -INFINITY;
      const float larger = fmaxf(most[k], cuda_warp_join<cuda_joined_maximum>(score));
      const float shrink = larger == -INFINITY ? 1 : expf(most[k] - larger);

      p[k] = seen ? expf(score - larger) : 0;
      total[k] = total[k] * shrink + cuda_warp_join<cuda_joined_sum>(p[k]);
      most[k] = larger;
#pragma unroll
      for (int j = 0; j < ATTENTION_SUMS; j++)
        y[k][j] *= shrink;
    }
    attention_add_rows(v_rows, t, e, first, p, y);
  }
  for (int k = 0; k < ATTENTION_OWN; k++) {
    if (own + k >= t)
      break;
    const size_t to = own + k - shape->first;

    attention_store(y[k], 1 / total[k], e, y_rows.at + to * y_rows.stride);
    if (lane == 0) {
      it.row[2 * (head * computed + to)] = most[k];
      it.row[2 * (head * computed + to) + 1] = 1 / total[k];
    }
  }
}

void cuda_attention_forward(struct trm_device *device, const struct trm_attention_forward *call)
{
  if (attention_check(device, &call->shape) && !attention_tensor_forward(device, call))
    CUDA_BY_TYPE(call->type,
                 CUDA_LAUNCH(attention_run<value>, attention_grid(&call->shape), ATTENTION_THREADS, device, *call));
}
