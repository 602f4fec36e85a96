/* Operations of the timed device: each calls the inner device and measures the call. */
#include "kernels/timed_device.h"

#include <time.h>

#include "core/status.h"

const char *const timed_part_name[TIMED_PARTS] = {"products",     "convolution",     "attention", "normalization",
                                                  "element-wise", "embedding, loss", "optimizer", "memory"};

static struct timed_profile *timed_of(struct trm_device *device)
{
  return device->impl;
}

static double timed_clock(void)
{
  struct timespec t;

  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void timed_add(struct trm_device *device, enum timed_part part, double begin, double flop, double floats)
{
  struct timed_sum *sum = &timed_of(device)->sum[part];

  sum->s += timed_clock() - begin;
  sum->flop += flop;
  sum->bytes += sizeof(float) * floats;
}

/* Calls `slot` of the inner device and counts it. flop: multiplications and additions; floats: read and written. */
#define TIMED(part, flop, floats, slot, ...)                     \
  do {                                                           \
    struct trm_device *inner = timed_of(device)->inner;          \
    const double begin = timed_clock();                            \
    inner->ops->slot(inner, __VA_ARGS__);                        \
    timed_add(device, part, begin, (double)(flop), (double)(floats)); \
  } while (0)

static int timed_open(struct trm_device *device, int index, int threads, const struct trm_blas_ops *blas)
{
  (void)device, (void)index, (void)threads, (void)blas;
  return trm_error(TRM_USAGE, "a timed device is made from an open one");
}

static void timed_close(struct trm_device *device)
{
  (void)device;
}

/* -- memory */

static int timed_alloc(struct trm_device *device, size_t bytes, enum trm_memory_use use, void **memory)
{
  struct trm_device *inner = timed_of(device)->inner;

  return inner->ops->alloc(inner, bytes, use, memory);
}

static void timed_release(struct trm_device *device, void *memory)
{
  struct trm_device *inner = timed_of(device)->inner;

  inner->ops->release(inner, memory);
}

static void timed_upload(struct trm_device *device, void *to, const void *host, size_t bytes)
{
  TIMED(TIMED_MEMORY, 0, bytes / 2, upload, to, host, bytes);
}

static void timed_download(struct trm_device *device, void *host, const void *from, size_t bytes)
{
  TIMED(TIMED_MEMORY, 0, bytes / 2, download, host, from, bytes);
}

static void timed_copy(struct trm_device *device, void *to, const void *from, size_t bytes)
{
  TIMED(TIMED_MEMORY, 0, bytes / 2, copy, to, from, bytes);
}

static void timed_fill(struct trm_device *device, float *to, float value, size_t n)
{
  TIMED(TIMED_MEMORY, 0, n, fill, to, value, n);
}

static int timed_sync(struct trm_device *device)
{
  struct trm_device *inner = timed_of(device)->inner;

  return inner->ops->sync(inner);
}

/* -- products */

static void timed_count_product(struct timed_profile *timed, bool ta, bool tb, size_t m, size_t n, size_t k)
{
  for (size_t i = 0; i < timed->products; i++) {
    struct timed_product *p = &timed->product[i];

    if (p->transpose_a == ta && p->transpose_b == tb && p->m == m && p->n == n && p->k == k) {
      p->calls++;
      return;
    }
  }
  if (timed->products < TIMED_MAX_PRODUCTS)
    timed->product[timed->products++] = (struct timed_product){ta, tb, m, n, k, 1};
}

static void timed_gemm(struct trm_device *device, bool transpose_a, bool transpose_b, size_t m, size_t n, size_t k,
                       float alpha, const float *a, size_t lda, const float *b, size_t ldb, float beta, float *c,
                       size_t ldc)
{
  TIMED(TIMED_MATMUL, 2.0 * (double)m * (double)n * (double)k, m * k + k * n + (beta == 0 ? 1 : 2) * m * n, gemm,
        transpose_a, transpose_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
  timed_count_product(timed_of(device), transpose_a, transpose_b, m, n, k);
}

/* The entries of sparse rows are on the device: their operations are not counted. */
static void timed_csr_forward(struct trm_device *device, const struct trm_csr *x, const float *w, float *y, size_t n)
{
  TIMED(TIMED_MATMUL, 0, x->rows * n, csr_forward, x, w, y, n);
}

static void timed_csr_backward(struct trm_device *device, const struct trm_csr *x, const float *dy, float beta,
                               float *dw, size_t n)
{
  TIMED(TIMED_MATMUL, 0, x->rows * n + x->features * n, csr_backward, x, dy, beta, dw, n);
}

static void timed_sparse_sgd(struct trm_device *device, const struct trm_sparse_sgd *params,
                             const struct trm_sparse_row *row, const float *target, float *w, float *bias,
                             struct trm_sparse_sums *sums, size_t rows)
{
  TIMED(TIMED_MATMUL, 0, sums->written, sparse_sgd, params, row, target, w, bias, sums, rows);
}

/* -- rows */

static void timed_bias_add(struct trm_device *device, float *y, const float *bias, size_t b, size_t n)
{
  TIMED(TIMED_ELEMENTWISE, b * n, 2 * b * n, bias_add, y, bias, b, n);
}

static void timed_bias_backward(struct trm_device *device, const float *dy, float beta, float *db, size_t b, size_t n)
{
  TIMED(TIMED_ELEMENTWISE, b * n, b * n, bias_backward, dy, beta, db, b, n);
}

static void timed_activation_forward(struct trm_device *device, enum trm_activation kind, const float *x, float *y,
                                     size_t n)
{
  TIMED(TIMED_ELEMENTWISE, 0, 2 * n, activation_forward, kind, x, y, n);
}

static void timed_activation_backward(struct trm_device *device, enum trm_activation kind, const float *x,
                                      const float *y, const float *dy, float *dx, size_t n)
{
  TIMED(TIMED_ELEMENTWISE, 0, 3 * n, activation_backward, kind, x, y, dy, dx, n);
}

static void timed_dropout(struct trm_device *device, const struct trm_mask *mask, const float *x, float *y, size_t b,
                          size_t f)
{
  TIMED(TIMED_ELEMENTWISE, 0, 2 * b * f, dropout, mask, x, y, b, f);
}

static void timed_norm_forward(struct trm_device *device, const float *x, const float *gain, const float *bias,
                               float epsilon, float *y, float *mean, float *scale, size_t r, size_t d)
{
  TIMED(TIMED_NORMALIZATION, 0, 2 * r * d, norm_forward, x, gain, bias, epsilon, y, mean, scale, r, d);
}

static void timed_norm_backward(struct trm_device *device, const float *x, const float *gain, const float *mean,
                                const float *scale, const float *dy, float *dx, float beta, float *dgain, float *dbias,
                                size_t r, size_t d)
{
  TIMED(TIMED_NORMALIZATION, 0, (dx ? 3 : 2) * r * d, norm_backward, x, gain, mean, scale, dy, dx, beta, dgain, dbias,
        r, d);
}

/* -- sequences */

static void timed_embedding_forward(struct trm_device *device, const int32_t *token, const float *w, float *y, size_t r,
                                    size_t d, const struct trm_vocab_shard *v)
{
  TIMED(TIMED_EMBEDDING_LOSS, 0, 2 * r * d, embedding_forward, token, w, y, r, d, v);
}

static void timed_embedding_backward(struct trm_device *device, const int32_t *token, const float *dy, float beta,
                                     float *dw, size_t r, size_t d, const struct trm_vocab_shard *v)
{
  TIMED(TIMED_EMBEDDING_LOSS, r * d, r * d + (v->high - v->low) * d, embedding_backward, token, dy, beta, dw, r, d, v);
}

/* Returns the operations of one product of attention, (T, E) x (E, T), only the unmasked part if it is causal. */
static double timed_attention_flop(const struct trm_attention *shape)
{
  const double t = (double)shape->t, pairs = shape->causal ? t * (t + 1) / 2 : t * t;

  return 2.0 * (double)shape->b * (double)shape->heads * (double)shape->head_dim * pairs;
}

static void timed_attention_forward(struct trm_device *device, const struct trm_attention *shape, const float *qkv,
                                    float *y, float *row)
{
  const size_t n = shape->b * shape->t * shape->heads * shape->head_dim;

  TIMED(TIMED_ATTENTION, 2 * timed_attention_flop(shape), 4 * n, attention_forward, shape, qkv, y, row);
}

static void timed_attention_backward(struct trm_device *device, const struct trm_attention *shape, const float *qkv,
                                     const float *row, const float *dy, float *dqkv)
{
  const size_t n = shape->b * shape->t * shape->heads * shape->head_dim;

  TIMED(TIMED_ATTENTION, 5 * timed_attention_flop(shape), 7 * n, attention_backward, shape, qkv, row, dy, dqkv);
}

static void timed_rotary(struct trm_device *device, const struct trm_attention *shape, float base, bool back, float *x)
{
  TIMED(TIMED_ELEMENTWISE, 0, 4 * shape->b * shape->t * shape->heads * shape->head_dim, rotary, shape, base, back, x);
}

static void timed_swiglu_forward(struct trm_device *device, const float *x, float *y, size_t r, size_t f)
{
  TIMED(TIMED_ELEMENTWISE, 0, 3 * r * f, swiglu_forward, x, y, r, f);
}

static void timed_swiglu_backward(struct trm_device *device, const float *x, const float *dy, float *dx, size_t r,
                                  size_t f)
{
  TIMED(TIMED_ELEMENTWISE, 0, 5 * r * f, swiglu_backward, x, dy, dx, r, f);
}

/* -- images */

/* Elements of x, of y and of w, and the multiplications and additions of one pass. */
struct timed_conv_size {
  size_t x, y, w;
  double flop;
};

static struct timed_conv_size timed_conv_size(const struct trm_conv2d *conv, size_t b)
{
  const struct trm_window2d *window = &conv->window;
  const size_t out = window->out[0] * window->out[1];
  const size_t w = conv->units * (conv->channels / conv->groups) * window->kernel[0] * window->kernel[1];

  return (struct timed_conv_size){.x = b * conv->channels * window->in[0] * window->in[1],
                                  .y = b * conv->units * out,
                                  .w = w,
                                  .flop = 2.0 * (double)b * (double)out * (double)w};
}

static void timed_conv2d_forward(struct trm_device *device, const struct trm_conv2d *conv, const float *x,
                                 const float *w, const float *bias, float *y, size_t b)
{
  const struct timed_conv_size n = timed_conv_size(conv, b);

  TIMED(TIMED_CONVOLUTION, n.flop, n.x + n.y + n.w, conv2d_forward, conv, x, w, bias, y, b);
}

static void timed_conv2d_backward_data(struct trm_device *device, const struct trm_conv2d *conv, const float *dy,
                                       const float *w, float *dx, size_t b)
{
  const struct timed_conv_size n = timed_conv_size(conv, b);

  TIMED(TIMED_CONVOLUTION, n.flop, n.x + n.y + n.w, conv2d_backward_data, conv, dy, w, dx, b);
}

static void timed_conv2d_backward_weights(struct trm_device *device, const struct trm_conv2d *conv, const float *x,
                                          const float *dy, float beta, float *dw, float *db, size_t b)
{
  const struct timed_conv_size n = timed_conv_size(conv, b);

  TIMED(TIMED_CONVOLUTION, n.flop, n.x + n.y + n.w, conv2d_backward_weights, conv, x, dy, beta, dw, db, b);
}

/* Returns the elements that pooling accesses: both images, and the indices for the maximum. */
static size_t timed_pool_floats(const struct trm_window2d *window, size_t planes, size_t out_arrays)
{
  return planes * (window->in[0] * window->in[1] + out_arrays * window->out[0] * window->out[1]);
}

static void timed_max_pool_forward(struct trm_device *device, const struct trm_window2d *window, const float *x,
                                   float *y, int32_t *at, size_t planes)
{
  TIMED(TIMED_ELEMENTWISE, 0, timed_pool_floats(window, planes, 2), max_pool_forward, window, x, y, at, planes);
}

static void timed_max_pool_backward(struct trm_device *device, const struct trm_window2d *window, const float *dy,
                                    const int32_t *at, float *dx, size_t planes)
{
  TIMED(TIMED_ELEMENTWISE, 0, timed_pool_floats(window, planes, 2), max_pool_backward, window, dy, at, dx, planes);
}

static void timed_avg_pool_forward(struct trm_device *device, const struct trm_window2d *window, const float *x,
                                   float *y, size_t planes)
{
  TIMED(TIMED_ELEMENTWISE, 0, timed_pool_floats(window, planes, 1), avg_pool_forward, window, x, y, planes);
}

static void timed_avg_pool_backward(struct trm_device *device, const struct trm_window2d *window, const float *dy,
                                    float *dx, size_t planes)
{
  TIMED(TIMED_ELEMENTWISE, 0, timed_pool_floats(window, planes, 1), avg_pool_backward, window, dy, dx, planes);
}

static size_t timed_values(const struct trm_batch_norm *norm, size_t b)
{
  return b * norm->channels * norm->size;
}

static void timed_batch_norm_moments(struct trm_device *device, const struct trm_batch_norm *norm, const float *x,
                                     float *moments, size_t b)
{
  TIMED(TIMED_NORMALIZATION, 0, timed_values(norm, b), batch_norm_moments, norm, x, moments, b);
}

static void timed_batch_norm_forward(struct trm_device *device, const struct trm_batch_norm *norm, const float *x,
                                     const float *mean, const float *square, const float *w, const float *bias,
                                     float *y, size_t b)
{
  TIMED(TIMED_NORMALIZATION, 0, 2 * timed_values(norm, b), batch_norm_forward, norm, x, mean, square, w, bias, y, b);
}

static void timed_batch_norm_sums(struct trm_device *device, const struct trm_batch_norm *norm, const float *x,
                                  const float *mean, const float *square, const float *dy, float *sums, size_t b)
{
  TIMED(TIMED_NORMALIZATION, 0, 2 * timed_values(norm, b), batch_norm_sums, norm, x, mean, square, dy, sums, b);
}

static void timed_batch_norm_backward(struct trm_device *device, const struct trm_batch_norm *norm, const float *x,
                                      const float *mean, const float *square, const float *w, const float *dy,
                                      const float *sums, float *dx, size_t b)
{
  TIMED(TIMED_NORMALIZATION, 0, 3 * timed_values(norm, b), batch_norm_backward, norm, x, mean, square, w, dy, sums, dx,
        b);
}

/* -- losses */

static void timed_softmax_cross_entropy(struct trm_device *device, const float *z, const int32_t *target, float scale,
                                        float smoothing, float *loss, float *correct, float *dz, size_t b, size_t c)
{
  TIMED(TIMED_EMBEDDING_LOSS, 0, (dz ? 2 : 1) * b * c, softmax_cross_entropy, z, target, scale, smoothing, loss,
        correct, dz, b, c);
}

static void timed_softmax_shard_stats(struct trm_device *device, const float *z, const int32_t *target,
                               const struct trm_vocab_shard *v, float *part, size_t b)
{
  TIMED(TIMED_EMBEDDING_LOSS, 0, b * (v->high - v->low), softmax_shard_stats, z, target, v, part, b);
}

static void timed_softmax_shard_gradient(struct trm_device *device, const float *z, const int32_t *target,
                                        const struct trm_vocab_shard *v, const float *max, const float *sum,
                                        float scale, float smoothing, float *dz, size_t b)
{
  TIMED(TIMED_EMBEDDING_LOSS, 0, 2 * b * (v->high - v->low), softmax_shard_gradient, z, target, v, max, sum, scale,
        smoothing, dz, b);
}

static void timed_mean_squared_error(struct trm_device *device, const float *z, const float *target, float scale,
                                     float *loss, float *correct, float *dz, size_t b, size_t f)
{
  TIMED(TIMED_EMBEDDING_LOSS, 0, (dz ? 3 : 2) * b * f, mean_squared_error, z, target, scale, loss, correct, dz, b, f);
}

static void timed_logistic(struct trm_device *device, const float *z, const float *target, float scale, float *loss,
                           float *correct, float *dz, size_t b)
{
  TIMED(TIMED_EMBEDDING_LOSS, 0, 3 * b, logistic, z, target, scale, loss, correct, dz, b);
}

static void timed_hinge(struct trm_device *device, const float *z, const float *target, float scale, float *loss,
                        float *correct, float *dz, size_t b)
{
  TIMED(TIMED_EMBEDDING_LOSS, 0, 3 * b, hinge, z, target, scale, loss, correct, dz, b);
}

/* -- flat arrays */

static void timed_sum(struct trm_device *device, float *to, const float *const *from, int arrays, size_t n)
{
  TIMED(TIMED_ELEMENTWISE, (size_t)(arrays - 1) * n, (size_t)(arrays + 1) * n, sum, to, from, arrays, n);
}

static double timed_norm_squared(struct trm_device *device, const float *x, size_t n)
{
  struct trm_device *inner = timed_of(device)->inner;
  const double begin = timed_clock(), square = inner->ops->norm_squared(inner, x, n);

  timed_add(device, TIMED_OPTIMIZER, begin, 0, (double)n);
  return square;
}

static void timed_update(struct trm_device *device, const struct trm_update *update, float *w, const float *g,
                         float *first, float *second, size_t n)
{
  const size_t states = (first != NULL) + (second != NULL);

  TIMED(TIMED_OPTIMIZER, 0, (3 + 2 * states) * n, update, update, w, g, first, second, n);
}

static void timed_lamb_direction(struct trm_device *device, const struct trm_update *update, const float *w, float *g,
                            float *first, float *second, size_t n)
{
  TIMED(TIMED_OPTIMIZER, 0, 7 * n, lamb_direction, update, w, g, first, second, n);
}

static const struct trm_device_ops timed_ops = {
  .name = "timed",
  .open = timed_open,
  .close = timed_close,
  .alloc = timed_alloc,
  .release = timed_release,
  .upload = timed_upload,
  .download = timed_download,
  .copy = timed_copy,
  .fill = timed_fill,
  .sync = timed_sync,
  .gemm = timed_gemm,
  .csr_forward = timed_csr_forward,
  .csr_backward = timed_csr_backward,
  .sparse_sgd = timed_sparse_sgd,
  .bias_add = timed_bias_add,
  .bias_backward = timed_bias_backward,
  .activation_forward = timed_activation_forward,
  .activation_backward = timed_activation_backward,
  .dropout = timed_dropout,
  .norm_forward = timed_norm_forward,
  .norm_backward = timed_norm_backward,
  .embedding_forward = timed_embedding_forward,
  .embedding_backward = timed_embedding_backward,
  .attention_forward = timed_attention_forward,
  .attention_backward = timed_attention_backward,
  .rotary = timed_rotary,
  .swiglu_forward = timed_swiglu_forward,
  .swiglu_backward = timed_swiglu_backward,
  .conv2d_forward = timed_conv2d_forward,
  .conv2d_backward_data = timed_conv2d_backward_data,
  .conv2d_backward_weights = timed_conv2d_backward_weights,
  .max_pool_forward = timed_max_pool_forward,
  .max_pool_backward = timed_max_pool_backward,
  .avg_pool_forward = timed_avg_pool_forward,
  .avg_pool_backward = timed_avg_pool_backward,
  .batch_norm_moments = timed_batch_norm_moments,
  .batch_norm_forward = timed_batch_norm_forward,
  .batch_norm_sums = timed_batch_norm_sums,
  .batch_norm_backward = timed_batch_norm_backward,
  .softmax_cross_entropy = timed_softmax_cross_entropy,
  .softmax_shard_stats = timed_softmax_shard_stats,
  .softmax_shard_gradient = timed_softmax_shard_gradient,
  .mean_squared_error = timed_mean_squared_error,
  .logistic = timed_logistic,
  .hinge = timed_hinge,
  .sum = timed_sum,
  .norm_squared = timed_norm_squared,
  .update = timed_update,
  .lamb_direction = timed_lamb_direction,
};

void timed_device_open(struct trm_device *device, struct timed_profile *timed, struct trm_device *inner)
{
  *device = *inner;
  device->ops = &timed_ops;
  device->impl = timed;
  timed->inner = inner;
}
