/* Attention, backward, from the saved maximum and sum of each row: the probabilities are computed again. With p the
 * probability of query i and key j, and D_i = dy_i . y_i, the gradient of the score is p (dy_i . v_j - D_i). One kernel
 * has queries of its own and runs over the keys, for dq; the other has keys, for dk and dv. */
#include "kernels/cuda/attention.cuh"

/* dot (B H, T): dy . y. One warp a row. */
template <typename value> __global__ static void attention_run_dots(const struct trm_attention_backward it, float *dot)
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
    dot[item] = sum;
}

/* Turns the products q . k and dy . v of a query and a key into the probability and the gradient of q . k. */
__device__ static void attention_gradient(const struct trm_attention *shape, const float *row, const float *dot,
                                          size_t query, size_t key, float factor, float *p, float *ds)
{
  const bool seen = query < shape->t && key < shape->t && (!shape->causal || key <= query);
  const float probability = seen ? expf(*p * factor - row[2 * query]) * row[2 * query + 1] : 0;

  *ds = seen ? probability * (*ds - dot[query]) * factor : 0;
  *p = probability;
}

template <typename value>
__global__ static void attention_run_queries(const struct trm_attention_backward it, const float *dots)
{
  CUDA_SHARED(float, q, ATTENTION_ROWS *ATTENTION_MOST);
  CUDA_SHARED(float, dy, ATTENTION_ROWS *ATTENTION_MOST);
  CUDA_SHARED(float, tile, CUDA_WARP *ATTENTION_PITCH);
  const struct trm_attention *shape = &it.shape;
  const size_t t = shape->t, e = shape->head_dim, head = blockIdx.y, block = blockIdx.x * (size_t)ATTENTION_ROWS;
  const size_t warp = threadIdx.x / CUDA_WARP * ATTENTION_OWN, lane = threadIdx.x % CUDA_WARP;
  const size_t keys = shape->causal && block + ATTENTION_ROWS < t ? block + ATTENTION_ROWS : t;
  const attention_rows<value> k_rows = attention_head<value>(shape, it.qkv, head, 1);
  const attention_rows<value> v_rows = attention_head<value>(shape, it.qkv, head, 2);
  const attention_rows<value> dq_rows = attention_head<value>(shape, it.dqkv, head, 0);
  const float factor = 1.0f / sqrtf((float)e);
  float dq[ATTENTION_OWN][ATTENTION_SUMS] = {};

  attention_own_rows(attention_head<value>(shape, it.qkv, head, 0), t, e, block, q);
  attention_own_rows(attention_result<value>(shape, it.dy, head), t, e, block, dy);
  for (size_t first = 0; first < keys; first += CUDA_WARP) {
    float p[ATTENTION_OWN], ds[ATTENTION_OWN];

    attention_products(k_rows, t, e, first, q + warp * e, tile, p);
    attention_products(v_rows, t, e, first, dy + warp * e, tile, ds);
#pragma unroll
    for (int k = 0; k < ATTENTION_OWN; k++)
      attention_gradient(shape, it.row + 2 * head * t, dots + head * t, block + warp + k, first + lane, factor, &p[k],
                         &ds[k]);
    attention_add_rows(k_rows, t, e, first, ds, dq);
  }
  for (int k = 0; k < ATTENTION_OWN; k++)
    if (block + warp + k < t)
      attention_store(dq[k], 1, e, dq_rows.at + (block + warp + k) * dq_rows.stride);
}

template <typename value>
__global__ static void attention_run_keys(const struct trm_attention_backward it, const float *dots)
{
  CUDA_SHARED(float, key, ATTENTION_ROWS *ATTENTION_MOST);
  CUDA_SHARED(float, v, ATTENTION_ROWS *ATTENTION_MOST);
  CUDA_SHARED(float, tile, CUDA_WARP *ATTENTION_PITCH);
  const struct trm_attention *shape = &it.shape;
  const size_t t = shape->t, e = shape->head_dim, head = blockIdx.y, block = blockIdx.x * (size_t)ATTENTION_ROWS;
  const size_t warp = threadIdx.x / CUDA_WARP * ATTENTION_OWN, lane = threadIdx.x % CUDA_WARP;
  const attention_rows<value> q_rows = attention_head<value>(shape, it.qkv, head, 0);
  const attention_rows<value> dy_rows = attention_result<value>(shape, it.dy, head);
  const attention_rows<value> dk_rows = attention_head<value>(shape, it.dqkv, head, 1);
  const attention_rows<value> dv_rows = attention_head<value>(shape, it.dqkv, head, 2);
  const float factor = 1.0f / sqrtf((float)e);
  float dk[ATTENTION_OWN][ATTENTION_SUMS] = {}, dv[ATTENTION_OWN][ATTENTION_SUMS] = {};

  attention_own_rows(attention_head<value>(shape, it.qkv, head, 1), t, e, block, key);
  attention_own_rows(attention_head<value>(shape, it.qkv, head, 2), t, e, block, v);
  for (size_t first = shape->causal ? block / CUDA_WARP * CUDA_WARP : 0; first < t; first += CUDA_WARP) {
    float p[ATTENTION_OWN], ds[ATTENTION_OWN];

    attention_products(q_rows, t, e, first, key + warp * e, tile, p);
    attention_products(dy_rows, t, e, first, v + warp * e, tile, ds);
#pragma unroll
    for (int k = 0; k < ATTENTION_OWN; k++)
      attention_gradient(shape, it.row + 2 * head * t, dots + head * t, first + lane, block + warp + k, factor, &p[k],
                         &ds[k]);
    attention_add_rows(q_rows, t, e, first, ds, dk);
    attention_add_rows(dy_rows, t, e, first, p, dv);
  }
  for (int k = 0; k < ATTENTION_OWN; k++)
    if (block + warp + k < t) {
      attention_store(dk[k], 1, e, dk_rows.at + (block + warp + k) * dk_rows.stride);
      attention_store(dv[k], 1, e, dv_rows.at + (block + warp + k) * dv_rows.stride);
    }
}

template <typename value>
static void attention_backward(struct trm_device *device, const struct trm_attention_backward *call)
{
  const size_t rows = call->shape.b * call->shape.heads * call->shape.t;
  const unsigned blocks = (unsigned)((rows * CUDA_WARP + CUDA_THREADS - 1) / CUDA_THREADS);
  float *dots = (float *)cuda_scratch(device, rows * sizeof *dots);

  if (!dots)
    return;
  CUDA_LAUNCH(attention_run_dots<value>, blocks, CUDA_THREADS, device, *call, dots);
  CUDA_LAUNCH(attention_run_queries<value>, attention_grid(&call->shape), ATTENTION_THREADS, device, *call, dots);
  CUDA_LAUNCH(attention_run_keys<value>, attention_grid(&call->shape), ATTENTION_THREADS, device, *call, dots);
}

void cuda_attention_backward(struct trm_device *device, const struct trm_attention_backward *call)
{
  if (attention_check(device, &call->shape))
    CUDA_BY_TYPE(call->type, attention_backward<value>(device, call));
}
