/* Embedding: rows of a table by token; the gradient of a row is the sum over its token's occurrences, in their order.
 * The positions are sorted by token, with equal tokens in their order: each counts those before it. */
#include "kernels/cuda/kernel.cuh"

__device__ static bool embedding_is_known(int32_t token, size_t v)
{
  return token >= 0 && (size_t)token < v;
}

/* Returns whether the token's row is in this shard. */
__device__ static bool embedding_is_local(int32_t token, const struct trm_vocab_shard *v)
{
  return token >= 0 && (size_t)token >= v->low && (size_t)token < v->high;
}

template <typename value>
__global__ static void embedding_run_forward(const struct trm_embedding_forward it, struct cuda_failure *failure)
{
  const size_t row = blockIdx.x;
  const int32_t token = it.token[row];
  const bool known = embedding_is_known(token, it.v.total), local = embedding_is_local(token, &it.v);
  const cuda_values<value> y((value *)it.y + row * it.d);

  if (!known && threadIdx.x == 0)
    cuda_report(failure, CUDA_BAD_TOKEN, row, token, it.v.total);
  for (size_t j = threadIdx.x; j < it.d; j += blockDim.x)
    y.set(j, local ? it.w[((size_t)token - it.v.low) * it.d + j] : known ? 0.0f : NAN);
}

void cuda_embedding_forward(struct trm_device *device, const struct trm_embedding_forward *call)
{
  CUDA_BY_TYPE(call->type, CUDA_LAUNCH(embedding_run_forward<value>, (unsigned)call->r, cuda_row_threads(call->d),
                                       device, *call, cuda_state_of(device)->failure));
}

/* sorted (R): positions by token. Tokens that are not in the shard come last. */
__global__ static void embedding_run_sort(const struct trm_embedding_backward it, int32_t *sorted)
{
  CUDA_SHARED(uint32_t, tile, CUDA_THREADS);
  const size_t i = blockIdx.x * (size_t)CUDA_THREADS + threadIdx.x;
  const uint32_t own = i < it.r && embedding_is_local(it.token[i], &it.v) ? (uint32_t)it.token[i] : UINT32_MAX;
  size_t before = 0;

  for (size_t first = 0; first < it.r; first += CUDA_THREADS) {
    const size_t j = first + threadIdx.x, width = it.r - first < CUDA_THREADS ? it.r - first : (size_t)CUDA_THREADS;

    __syncthreads();
    tile[threadIdx.x] = j < it.r && embedding_is_local(it.token[j], &it.v) ? (uint32_t)it.token[j] : UINT32_MAX;
    __syncthreads();
    for (size_t k = 0; k < width; k++)
      before += tile[k] < own || (tile[k] == own && first + k < i);
  }
  if (i < it.r)
    sorted[before] = (int32_t)i;
}

/* dw = beta * dw */
__global__ static void embedding_run_scale(const struct trm_embedding_backward it)
{
  CUDA_ELEMENTS(i, (it.v.high - it.v.low) * it.d)
    it.dw[i] = it.beta == 0 ? 0 : it.beta * it.dw[i];
}

enum { EMBEDDING_WIDTH = 32, EMBEDDING_ROWS = 8 };

/* The block of the first of equal tokens adds all their rows: thread y the rows y, y + ROWS, .., then those sums. */
template <typename value>
__global__ static void embedding_run_add(const struct trm_embedding_backward it, const int32_t *sorted)
{
  CUDA_SHARED(struct cuda_pair, sums, EMBEDDING_ROWS *EMBEDDING_WIDTH);
  const cuda_values<value> dy(it.dy);
  const size_t first = blockIdx.x, column = blockIdx.y * (size_t)EMBEDDING_WIDTH + threadIdx.x;
  const int32_t token = it.token[sorted[first]];
  struct cuda_pair sum = {0, 0};

  if (!embedding_is_local(token, &it.v) || (first > 0 && it.token[sorted[first - 1]] == token))
    return;
  if (column < it.d)
    for (size_t i = first + threadIdx.y; i < it.r && it.token[sorted[i]] == token; i += EMBEDDING_ROWS)
      cuda_pair_add(&sum, dy[(size_t)sorted[i] * it.d + column]);
  sums[threadIdx.y * EMBEDDING_WIDTH + threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y > 0 || column >= it.d)
    return;
  for (int k = 1; k < EMBEDDING_ROWS; k++) {
    cuda_pair_add(&sum, sums[k * EMBEDDING_WIDTH + threadIdx.x].high);
    sum.low += sums[k * EMBEDDING_WIDTH + threadIdx.x].low;
  }
  const size_t at = ((size_t)token - it.v.low) * it.d + column;
  cuda_pair_add(&sum, it.dw[at]);
  it.dw[at] = cuda_pair_value(sum);
}

void cuda_embedding_backward(struct trm_device *device, const struct trm_embedding_backward *call)
{
  const size_t elements = (call->v.high - call->v.low) * call->d;
  const unsigned columns = (unsigned)((call->d + EMBEDDING_WIDTH - 1) / EMBEDDING_WIDTH);
  int32_t *sorted = (int32_t *)cuda_scratch(device, call->r * sizeof *sorted);

  if (!sorted)
    return;
  if (call->beta != 1)
    CUDA_LAUNCH(embedding_run_scale, cuda_blocks(elements), CUDA_THREADS, device, *call);
  CUDA_LAUNCH(embedding_run_sort, (unsigned)((call->r + CUDA_THREADS - 1) / CUDA_THREADS), CUDA_THREADS, device, *call,
              sorted);
  CUDA_BY_TYPE(call->type, CUDA_LAUNCH(embedding_run_add<value>, dim3((unsigned)call->r, columns),
                                       dim3(EMBEDDING_WIDTH, EMBEDDING_ROWS), device, *call, sorted));
}
