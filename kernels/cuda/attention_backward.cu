/* Attention, backward, from the saved maximum and sum of each row: the probabilities are computed again. With p the
 * probability of query i and key j, and D_i = dy_i . y_i, the gradient of the score is p (dy_i . v_j - D_i). One kernel
 * has queries of its own and runs over the keys, for dq; the other has keys, for dk and dv. */
#include "kernels/cuda/attention.cuh"

/* One warp a query. */
template <typename value>
__global__ static void attention_save(const struct trm_attention_backward it, attention_saved *saved)
{
  const struct trm_attention *shape = &it.shape;
  const size_t item = (blockIdx.x * (size_t)blockDim.x + threadIdx.x) / CUDA_WARP, t = shape->t;
  float sum = 0;

  if (item >= shape->b * shape->heads * t)
    return;
  const attention_rows<value> y = attention_result<value>(shape, it.y, item / t);
  const attention_rows<value> dy = attention_result<value>(shape, it.dy, item / t);
  const size_t at = item % t * y.stride;
  for (size_t j = threadIdx.x % CUDA_WARP; j < shape->head_dim; j += CUDA_WARP)
    sum += cuda_load(y.at + at + j) * cuda_load(dy.at + at + j);
  sum = cuda_warp_join<cuda_joined_sum>(sum);
  if (threadIdx.x % CUDA_WARP == 0)
    saved[item / t * attention_saved_rows(t) + item % t] = {it.row[2 * item] * ATTENTION_LOG2E -
                                                            log2f(it.row[2 * item + 1]), sum};
}

/* Turns the products q . k and dy . v of a query and a key into the probability and the gradient of q . k. */
__device__ static void attention_gradient(const struct trm_attention *shape, const float *row,
                                          const attention_saved *saved, size_t query, size_t key, float factor,
                                          float *p, float *ds)
{
  const bool seen = query < shape->t && key < shape->t && (!shape->causal || key <= query);
  const float probability = seen ? expf(*p * factor - row[2 * query]) * row[2 * query + 1] : 0;

  *ds = seen ? probability * (*ds - saved[query].dot) * factor : 0;
  *p = probability;
}

/* With own rows a, b and other rows c, d: the scores are a . c, the gradients of the probabilities b . d. Own queries:
 * a = q, b = dy, c = k, d = v, and dq is the sum of ds c. Own keys: a = k, b = v, c = q, d = dy; dk is the sum of ds c,
 * dv that of p d. */
template <typename value, bool keys>
__global__ static void attention_run_gradient(const struct trm_attention_backward it, const attention_saved *saved)
{
  CUDA_SHARED(float, a, ATTENTION_ROWS *ATTENTION_MOST);
  CUDA_SHARED(float, b, ATTENTION_ROWS *ATTENTION_MOST);
  CUDA_SHARED(float, tile, CUDA_WARP *ATTENTION_PITCH);
  const struct trm_attention *shape = &it.shape;
  const size_t t = shape->t, e = shape->head_dim, head = blockIdx.y, block = blockIdx.x * (size_t)ATTENTION_ROWS;
  const size_t warp = threadIdx.x / CUDA_WARP * ATTENTION_OWN, lane = threadIdx.x % CUDA_WARP, own = block + warp;
  const size_t begin = keys && shape->causal ? block / CUDA_WARP * CUDA_WARP : 0;
  const size_t end = !keys && shape->causal && block + ATTENTION_ROWS < t ? block + ATTENTION_ROWS : t;
  const attention_rows<value> q = attention_head<value>(shape, it.qkv, head, 0);
  const attention_rows<value> k = attention_head<value>(shape, it.qkv, head, 1);
  const attention_rows<value> v = attention_head<value>(shape, it.qkv, head, 2);
  const attention_rows<value> dy = attention_result<value>(shape, it.dy, head);
  const attention_rows<value> dqk = attention_head<value>(shape, it.dqkv, head, keys);
  const attention_rows<value> dv = attention_head<value>(shape, it.dqkv, head, 2);
  const attention_rows<value> c = keys ? q : k, d = keys ? dy : v;
  const float factor = 1.0f / sqrtf((float)e);
  float sum[ATTENTION_OWN][ATTENTION_SUMS] = {}, sum_v[keys ? ATTENTION_OWN : 1][ATTENTION_SUMS] = {};

  attention_own_rows(keys ? k : q, t, e, block, a);
  attention_own_rows(keys ? v : dy, t, e, block, b);
  for (size_t first = begin; first < end; first += CUDA_WARP) {
    float p[ATTENTION_OWN], ds[ATTENTION_OWN];

    attention_products(c, t, e, first, a + warp * e, tile, p);
    attention_products(d, t, e, first, b + warp * e, tile, ds);
#pragma unroll
    for (int i = 0; i < ATTENTION_OWN; i++)
      attention_gradient(shape, it.row + 2 * head * t, saved + head * attention_saved_rows(t),
                         keys ? first + lane : own + i, keys ? own + i : first + lane, factor, &p[i], &ds[i]);
    attention_add_rows(c, t, e, first, ds, sum);
    if constexpr (keys)
      attention_add_rows(d, t, e, first, p, sum_v);
  }
#pragma unroll
  for (int i = 0; i < ATTENTION_OWN; i++)
    if (own + i < t) {
      attention_store(sum[i], 1, e, dqk.at + (own + i) * dqk.stride);
      if constexpr (keys)
        attention_store(sum_v[i], 1, e, dv.at + (own + i) * dv.stride);
    }
}

template <typename value>
static void attention_backward(struct trm_device *device, const struct trm_attention_backward *call)
{
  const struct trm_attention *shape = &call->shape;
  const size_t heads = shape->b * shape->heads;
  const unsigned blocks = (unsigned)((heads * shape->t * CUDA_WARP + CUDA_THREADS - 1) / CUDA_THREADS);
  attention_saved *saved =
    (attention_saved *)cuda_scratch(device, heads * attention_saved_rows(shape->t) * sizeof *saved);

  if (!saved)
    return;
  CUDA_LAUNCH(attention_save<value>, blocks, CUDA_THREADS, device, *call, saved);
  if (attention_tensor_backward(device, call, saved))
    return;
  CUDA_LAUNCH((attention_run_gradient<value, false>), attention_grid(shape), ATTENTION_THREADS, device, *call, saved);
  CUDA_LAUNCH((attention_run_gradient<value, true>), attention_grid(shape), ATTENTION_THREADS, device, *call, saved);
}

void cuda_attention_backward(struct trm_device *device, const struct trm_attention_backward *call)
{
  if (attention_check(device, &call->shape))
    CUDA_BY_TYPE(call->type, attention_backward<value>(device, call));
}
