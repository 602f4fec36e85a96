/* Attention by tensor cores (Dao 2023), forward and backward. Sums have one order for a shape: backward is one kernel
 * for dq and one for dk and dv, each of which computes the scores again, and none adds to another block's sums. */
#include "kernels/cuda/attention_tensor.cuh"

/* -- forward: a block has queries of its own, and runs over keys and values */

/* own: matrices of 16 queries of a warp; with two of them, what is loaded from shared memory is used twice. */
template <int e> struct attention_queries : attention_sizes<e> {
  static constexpr int SIZE = e, OWN = e <= 64 ? 2 : 1, ROWS = ATTENTION_WARPS * OWN * TENSOR_SIDE;
};

#if TENSOR_CORES

/* The softmax of a warp's rows so far. Four lanes have a row, and each of them its part of the sum. */
struct attention_softmax {
  float most[2], total[2]; /* of scores without the factor; rows i / 2 % 2 of a sum's elements i */
};

/* Replaces the scores of a tile by exp(score - maximum so far), and returns in shrink what earlier terms must be
 * multiplied by. factor: of the scores, times log2(e). */
template <int n>
__device__ static void attention_exponentials(tensor_sum score[n], float factor, attention_softmax *so_far,
                                              float shrink[2])
{
#pragma unroll
  for (int r = 0; r < 2; r++) {
    float most = so_far->most[r], total = 0;

#pragma unroll
    for (int j = 0; j < n; j++)
      for (int i = 0; i < 4; i++)
        most = fmaxf(most, score[j].at[4 * (i / 2) + 2 * r + i % 2]);
    most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
    most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
    const float base = most == -INFINITY ? 0 : most * factor;
    shrink[r] = tensor_exp2(so_far->most[r] * factor - base);
#pragma unroll
    for (int j = 0; j < n; j++)
      for (int i = 0; i < 4; i++) {
        float *const x = &score[j].at[4 * (i / 2) + 2 * r + i % 2];

        total += *x = tensor_exp2(fmaf(*x, factor, -base));
      }
    so_far->most[r] = most;
    so_far->total[r] = so_far->total[r] * shrink[r] + total;
  }
}

/* score: that of keys first .. beyond T, or later than the query, becomes -infinity. */
template <int n>
__device__ static void attention_mask(tensor_sum score[n], int query, int first, int t, bool causal)
{
#pragma unroll
  for (int j = 0; j < n; j++)
    for (int i = 0; i < 8; i++) {
      const int key = first + j * TENSOR_SIDE + tensor_column(i);

      if (key >= t || (causal && key > query + tensor_row(i)))
        score[j].at[i] = -INFINITY;
    }
}

/* What a warp computes. */
template <typename sizes> struct attention_warp {
  tensor_factor q[sizes::OWN][sizes::STEPS];
  tensor_sum y[sizes::OWN][sizes::STEPS];
  attention_softmax softmax[sizes::OWN];
};

/* Adds a tile of keys and values, k (OTHERS, PITCH) and v behind it, positions first .., to the results of the queries
 * own .. */
template <typename sizes>
__device__ static void attention_add_tile(attention_warp<sizes> *warp, const cuda_bf16 *k,
                                          int t, bool causal, int own, int first, float factor)
{
  const cuda_bf16 *const v = k + sizes::TILE;
  constexpr int n = sizes::OTHERS / TENSOR_SIDE;
  tensor_sum score[sizes::OWN][n] = {};

#pragma unroll
  for (int s = 0; s < sizes::STEPS; s++)
#pragma unroll
    for (int j = 0; j < n; j++) {
      const tensor_factor keys =
        tensor_load_right_transposed(k + j * TENSOR_SIDE * sizes::PITCH + s * TENSOR_SIDE, sizes::PITCH);

      for (int m = 0; m < sizes::OWN; m++)
        tensor_multiply(&score[m][j], warp->q[m][s], keys);
    }
#pragma unroll
  for (int m = 0; m < sizes::OWN; m++) {
    const int query = own + m * TENSOR_SIDE;
    float shrink[2];

    if (first + sizes::OTHERS > t || (causal && first + sizes::OTHERS > query + 1))
      attention_mask<n>(score[m], query, first, t, causal);
    attention_exponentials<n>(score[m], factor, &warp->softmax[m], shrink);
    for (int s = 0; s < sizes::STEPS; s++)
      for (int i = 0; i < 8; i++)
        warp->y[m][s].at[i] *= shrink[i / 2 % 2];
  }
#pragma unroll
  for (int j = 0; j < n; j++) {
    tensor_factor p[sizes::OWN];

    for (int m = 0; m < sizes::OWN; m++)
      p[m] = tensor_round(score[m][j]);
#pragma unroll
    for (int s = 0; s < sizes::STEPS; s++) {
      const tensor_factor values =
        tensor_load_right(v + j * TENSOR_SIDE * sizes::PITCH + s * TENSOR_SIDE, sizes::PITCH);

      for (int m = 0; m < sizes::OWN; m++)
        tensor_multiply(&warp->y[m][s], p[m], values);
    }
  }
}

/* Stores a warp's results, of the queries own .. */
template <typename sizes>
__device__ static void attention_finish(attention_warp<sizes> *warp, const struct trm_attention_forward &it,
                                        size_t head, int t, int own, float scale)
{
  const struct trm_attention *shape = &it.shape;

#pragma unroll
  for (int m = 0; m < sizes::OWN; m++) {
    const int first = own + m * TENSOR_SIDE;
    float inverse[2];

    for (int r = 0; r < 2; r++) {
      const int query = first + tensor_row(2 * r);
      float total = warp->softmax[m].total[r];

      total += __shfl_xor_sync(0xffffffffu, total, 1);
      total += __shfl_xor_sync(0xffffffffu, total, 2);
      inverse[r] = 1 / total;
      if (query < t && tensor_lane() % 4 == 0) {
        it.row[2 * (head * t + query)] = warp->softmax[m].most[r] * scale;
        it.row[2 * (head * t + query) + 1] = inverse[r];
      }
    }
    attention_store_sums<sizes::SIZE>(warp->y[m], inverse, attention_result<cuda_bf16>(shape, it.y, head), t,
                                      (int)shape->head_dim, first);
  }
}

#endif

/* Blocks (T / ROWS, B H), those with the most keys first. */
template <typename sizes>
__global__ static void __launch_bounds__(ATTENTION_THREADS, 2)
  attention_tensor_run(const struct trm_attention_forward it)
{
#if TENSOR_CORES
  constexpr int e = sizes::SIZE, tile = sizes::TILE, n = sizes::OTHERS;
  CUDA_SHARED(cuda_bf16, tiles, 4 * tile);
  const struct trm_attention *shape = &it.shape;
  const size_t head = blockIdx.y;
  const int t = (int)shape->t, head_dim = (int)shape->head_dim, block = (int)(gridDim.x - 1 - blockIdx.x) * sizes::ROWS;
  const int warp_row = (int)threadIdx.x / CUDA_WARP * sizes::OWN * TENSOR_SIDE, own = block + warp_row;
  const int keys = shape->causal && block + sizes::ROWS < t ? block + sizes::ROWS : t;
  const attention_rows<cuda_bf16> k = attention_head<cuda_bf16>(shape, it.qkv, head, 1);
  const attention_rows<cuda_bf16> v = attention_head<cuda_bf16>(shape, it.qkv, head, 2);
  const float scale = 1.0f / sqrtf((float)shape->head_dim);
  attention_warp<sizes> warp = {};

  static_assert(sizes::ROWS <= 4 * sizes::OTHERS, "the queries pass through the memory of the tiles");
  attention_copy<e, sizes::ROWS>(attention_head<cuda_bf16>(shape, it.qkv, head, 0), t, head_dim, block, tiles);
  tensor_copies_end();
  tensor_copies_wait<0>();
  __syncthreads();
#pragma unroll
  for (int m = 0; m < sizes::OWN; m++) {
    for (int s = 0; s < sizes::STEPS; s++)
      warp.q[m][s] = tensor_load_left(tiles + (warp_row + m * TENSOR_SIDE) * sizes::PITCH + s * TENSOR_SIDE,
                                      sizes::PITCH);
    warp.softmax[m] = {{-INFINITY, -INFINITY}, {0, 0}};
  }
  __syncthreads();
  attention_copy_tile<e>(k, v, t, head_dim, 0, keys, tiles);
  for (int first = 0, stage = 0; first < keys; first += n, stage = 1 - stage) {
    attention_copy_tile<e>(k, v, t, head_dim, first + n, keys, tiles + 2 * (1 - stage) * tile);
    tensor_copies_wait<1>();
    __syncthreads();
    if (!shape->causal || first < own + sizes::OWN * TENSOR_SIDE)
      attention_add_tile(&warp, tiles + 2 * stage * tile, t, shape->causal, own, first, scale * ATTENTION_LOG2E);
    __syncthreads(); /* the tile has been read */
  }
  attention_finish(&warp, it, head, t, own, scale);
#endif
}

template <typename sizes>
static void attention_tensor_launch(struct trm_device *device, const struct trm_attention_forward *call)
{
  const dim3 blocks((unsigned)((call->shape.t + sizes::ROWS - 1) / sizes::ROWS),
                    (unsigned)(call->shape.b * call->shape.heads));

  CUDA_LAUNCH(attention_tensor_run<sizes>, blocks, ATTENTION_THREADS, device, *call);
}

bool attention_tensor_forward(struct trm_device *device, const struct trm_attention_forward *call)
{
  if (call->shape.first > 0 ||
      !attention_by_tensors(device, call->shape, call->type, (uintptr_t)call->qkv | (uintptr_t)call->y))
    return false;
  ATTENTION_BY_SIZE(call->shape.head_dim, attention_tensor_launch<attention_queries<e>>(device, call));
  return true;
}

/* -- backward: with own rows a, b and others c, d of the same kind of product: scores a c^T, gradients of the
 * probabilities b d^T. Queries of its own: a = q, b = dy, c = k, d = v, and dq = ds c. Keys: a = k, b = v, c = q,
 * d = dy, and dk = ds c, dv = p d. */

template <int e> struct attention_own_queries : attention_sizes<e> {
  static constexpr int SIZE = e, ROWS = ATTENTION_WARPS * TENSOR_SIDE;
  static constexpr bool KEYS = false;
};

template <int e> struct attention_own_keys : attention_sizes<e> {
  static constexpr int SIZE = e, ROWS = ATTENTION_WARPS * TENSOR_SIDE;
  static constexpr bool KEYS = true;
};

#if TENSOR_CORES

template <typename sizes> struct attention_warp_gradient {
  tensor_factor a[sizes::STEPS], b[sizes::STEPS];
  tensor_sum first[sizes::STEPS], second[sizes::KEYS ? sizes::STEPS : 1]; /* dq; dk and dv */
};

/* Turns the scores s and the gradients d of the probabilities, of rows own .. and columns other .., into the
 * probabilities and the gradients of the scores. saved: of the queries, which are the rows (keys: the columns). */
template <bool keys>
__device__ static void attention_score_gradients(tensor_sum *s, tensor_sum *d, const attention_saved *saved, int t,
                                                 bool causal, int own, int other, float factor)
{
  const bool diagonal = causal && (keys ? own + TENSOR_SIDE > other + 1 : other + TENSOR_SIDE > own + 1);
  const bool masks = diagonal || other + TENSOR_SIDE > t;

#pragma unroll
  for (int i = 0; i < 8; i++) {
    const attention_saved query = saved[keys ? tensor_column(i) : tensor_row(i)];
    const int row = own + tensor_row(i), column = other + tensor_column(i);
    const bool seen = !masks || (column < t && (!causal || (keys ? row <= column : column <= row)));

    s->at[i] = seen ? tensor_exp2(fmaf(s->at[i], factor, -query.base)) : 0;
    d->at[i] = seen ? s->at[i] * (d->at[i] - query.dot) : 0;
  }
}

/* Adds 16 other positions, rows c and d in shared memory, to the warp's gradients. */
template <typename sizes>
__device__ static void attention_add_others(attention_warp_gradient<sizes> *warp, const cuda_bf16 *c,
                                            const cuda_bf16 *d, const attention_saved *saved, int t, bool causal,
                                            int own, int other, float factor)
{
  tensor_sum p = {}, ds = {};

#pragma unroll
  for (int s = 0; s < sizes::STEPS; s++) {
    tensor_multiply(&p, warp->a[s], tensor_load_right_transposed(c + s * TENSOR_SIDE, sizes::PITCH));
    tensor_multiply(&ds, warp->b[s], tensor_load_right_transposed(d + s * TENSOR_SIDE, sizes::PITCH));
  }
  attention_score_gradients<sizes::KEYS>(&p, &ds, saved, t, causal, own, other, factor);
  const tensor_factor slope = tensor_round(ds), probability = tensor_round(p);
#pragma unroll
  for (int s = 0; s < sizes::STEPS; s++) {
    tensor_multiply(&warp->first[s], slope, tensor_load_right(c + s * TENSOR_SIDE, sizes::PITCH));
    if (sizes::KEYS)
      tensor_multiply(&warp->second[s], probability, tensor_load_right(d + s * TENSOR_SIDE, sizes::PITCH));
  }
}

/* Begins to copy what is saved of queries first .. first + n - 1. */
template <int n> __device__ static void attention_copy_saved(const attention_saved *saved, attention_saved *to)
{
  for (int i = (int)threadIdx.x; i < n / 2; i += ATTENTION_THREADS)
    tensor_copy(to + 2 * i, saved + 2 * i, true);
}

#endif

/* saved: of attention_save. Blocks (T / ROWS, B H), those with the most work first. */
template <typename sizes>
__global__ static void __launch_bounds__(ATTENTION_THREADS, 2)
  attention_tensor_run_gradient(const struct trm_attention_backward it, const attention_saved *saved)
{
#if TENSOR_CORES
  constexpr bool keys = sizes::KEYS;
  constexpr int e = sizes::SIZE, tile = sizes::TILE, n = sizes::OTHERS, rows = sizes::ROWS;
  CUDA_SHARED(cuda_bf16, tiles, 4 * tile);
  CUDA_SHARED(attention_saved, queries, keys ? 2 * n : rows);
  const struct trm_attention *shape = &it.shape;
  const size_t head = blockIdx.y;
  const int t = (int)shape->t, head_dim = (int)shape->head_dim, warp_row = (int)threadIdx.x / CUDA_WARP * TENSOR_SIDE;
  const int block = (int)(keys ? blockIdx.x : gridDim.x - 1 - blockIdx.x) * rows, own = block + warp_row;
  const int begin = keys && shape->causal ? block / n * n : 0;
  const int end = !keys && shape->causal && block + rows < t ? block + rows : t;
  const attention_rows<cuda_bf16> q = attention_head<cuda_bf16>(shape, it.qkv, head, 0);
  const attention_rows<cuda_bf16> k = attention_head<cuda_bf16>(shape, it.qkv, head, 1);
  const attention_rows<cuda_bf16> v = attention_head<cuda_bf16>(shape, it.qkv, head, 2);
  const attention_rows<cuda_bf16> dy = attention_result<cuda_bf16>(shape, it.dy, head);
  const attention_rows<cuda_bf16> c = keys ? q : k, d = keys ? dy : v;
  const float scale = 1.0f / sqrtf((float)shape->head_dim), factors[2] = {scale, scale}, ones[2] = {1, 1};
  attention_warp_gradient<sizes> warp = {};

  static_assert(2 * rows <= 4 * n, "the own rows pass through the memory of the tiles");
  saved += head * attention_saved_rows(t);
  attention_copy<e, rows>(keys ? k : q, t, head_dim, block, tiles);
  attention_copy<e, rows>(keys ? v : dy, t, head_dim, block, tiles + rows * sizes::PITCH);
  if (!keys)
    attention_copy_saved<rows>(saved + block, queries);
  tensor_copies_end();
  tensor_copies_wait<0>();
  __syncthreads();
#pragma unroll
  for (int s = 0; s < sizes::STEPS; s++) {
    warp.a[s] = tensor_load_left(tiles + warp_row * sizes::PITCH + s * TENSOR_SIDE, sizes::PITCH);
    warp.b[s] = tensor_load_left(tiles + (rows + warp_row) * sizes::PITCH + s * TENSOR_SIDE, sizes::PITCH);
  }
  __syncthreads();
  if (keys)
    attention_copy_saved<n>(saved + begin, queries);
  attention_copy_tile<e>(c, d, t, head_dim, begin, end, tiles);
  for (int first = begin, stage = 0; first < end; first += n, stage = 1 - stage) {
    if (keys && first + n < end)
      attention_copy_saved<n>(saved + first + n, queries + (1 - stage) * n);
    attention_copy_tile<e>(c, d, t, head_dim, first + n, end, tiles + 2 * (1 - stage) * tile);
    tensor_copies_wait<1>();
    __syncthreads();
    for (int i = 0; i < n; i += TENSOR_SIDE) {
      const int other = first + i;
      const bool later = keys ? other + TENSOR_SIDE <= own : other >= own + TENSOR_SIDE; /* no query sees a key */
      const cuda_bf16 *const at = tiles + 2 * stage * tile + i * sizes::PITCH;

      if (other < t && !(shape->causal && later))
        attention_add_others(&warp, at, at + tile, keys ? queries + stage * n + i : queries + warp_row, t,
                             shape->causal, own, other, scale * ATTENTION_LOG2E);
    }
    __syncthreads(); /* the tile has been read */
  }
  attention_store_sums<e>(warp.first, factors, attention_head<cuda_bf16>(shape, it.dqkv, head, keys), t, head_dim, own);
  if (keys)
    attention_store_sums<e>(warp.second, ones, attention_head<cuda_bf16>(shape, it.dqkv, head, 2), t, head_dim, own);
#endif
}

template <typename sizes>
static void attention_tensor_launch(struct trm_device *device, const struct trm_attention_backward *call,
                                    const attention_saved *saved)
{
  const dim3 blocks((unsigned)((call->shape.t + sizes::ROWS - 1) / sizes::ROWS),
                    (unsigned)(call->shape.b * call->shape.heads));

  CUDA_LAUNCH(attention_tensor_run_gradient<sizes>, blocks, ATTENTION_THREADS, device, *call, saved);
}

bool attention_tensor_backward(struct trm_device *device, const struct trm_attention_backward *call,
                               const attention_saved *saved)
{
  const uintptr_t addresses = (uintptr_t)call->qkv | (uintptr_t)call->dy | (uintptr_t)call->dqkv;

  if (!attention_by_tensors(device, call->shape, call->type, addresses))
    return false;
  ATTENTION_BY_SIZE(call->shape.head_dim, {
    attention_tensor_launch<attention_own_queries<e>>(device, call, saved);
    attention_tensor_launch<attention_own_keys<e>>(device, call, saved);
  });
  return true;
}
