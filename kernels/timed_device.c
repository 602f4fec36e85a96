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

/* -- opening, memory */

static int timed_open(struct trm_device *device, int index, int threads, const struct trm_blas_ops *blas)
{
  (void)device, (void)index, (void)threads, (void)blas;
  return trm_error(TRM_USAGE, "a timed device is made from an open one");
}

static void timed_close(struct trm_device *device)
{
  (void)device;
}

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

static int timed_sync(struct trm_device *device)
{
  struct trm_device *inner = timed_of(device)->inner;

  return inner->ops->sync(inner);
}

/* -- sizes */

/* Returns the operations of one product of attention, (T, E) x (E, T), only the unmasked part if it is causal. */
static double timed_attention_flop(const struct trm_attention *shape)
{
  const double t = (double)shape->t, pairs = shape->causal ? t * (t + 1) / 2 : t * t;

  return 2.0 * (double)shape->b * (double)shape->heads * (double)shape->head_dim * pairs;
}

/* Elements of its result. */
static size_t timed_attention_values(const struct trm_attention *shape)
{
  return shape->b * shape->t * shape->heads * shape->head_dim;
}

static size_t timed_conv_weights(const struct trm_conv2d *conv)
{
  return conv->units * (conv->channels / conv->groups) * conv->window.kernel[0] * conv->window.kernel[1];
}

/* Elements of both images and the weights. */
static size_t timed_conv_floats(const struct trm_conv2d *conv, size_t b)
{
  const size_t *in = conv->window.in, *out = conv->window.out;

  return b * conv->channels * in[0] * in[1] + b * conv->units * out[0] * out[1] + timed_conv_weights(conv);
}

static double timed_conv_flop(const struct trm_conv2d *conv, size_t b)
{
  const size_t *out = conv->window.out;

  return 2.0 * (double)b * (double)(out[0] * out[1]) * (double)timed_conv_weights(conv);
}

/* Returns the elements that pooling accesses: both images, and the indices for the maximum. */
static size_t timed_pool_floats(const struct trm_window2d *window, size_t planes, size_t out_arrays)
{
  return planes * (window->in[0] * window->in[1] + out_arrays * window->out[0] * window->out[1]);
}

static size_t timed_batch_norm_values(const struct trm_batch_norm *norm, size_t b)
{
  return b * norm->channels * norm->size;
}

/* -- the slots that are counted */

/* Defines a slot, which calls that of the inner device and adds to the part: flop (multiplications and additions) and
 * floats (read and written). Then come the slot's arguments and its parameters. */
#define TIMED(slot, part, flop, floats, arguments, ...)                     \
  static void timed_##slot(struct trm_device *device, __VA_ARGS__)          \
  {                                                                         \
    struct trm_device *inner = timed_of(device)->inner;                     \
    const double begin = timed_clock();                                     \
    inner->ops->slot arguments;                                             \
    timed_add(device, TIMED_##part, begin, (double)(flop), (double)(floats)); \
  }

TIMED(upload, MEMORY, 0, bytes / 2, (inner, to, host, bytes), void *to, const void *host, size_t bytes)
TIMED(download, MEMORY, 0, bytes / 2, (inner, host, from, bytes), void *host, const void *from, size_t bytes)
TIMED(copy, MEMORY, 0, bytes / 2, (inner, to, from, bytes), void *to, const void *from, size_t bytes)
TIMED(fill, MEMORY, 0, n, (inner, to, value, n), float *to, float value, size_t n)

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
  struct timed_profile *timed = timed_of(device);
  const double begin = timed_clock();

  timed->inner->ops->gemm(timed->inner, transpose_a, transpose_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
  timed_add(device, TIMED_MATMUL, begin, 2.0 * (double)m * (double)n * (double)k,
            (double)(m * k + k * n + (beta == 0 ? 1 : 2) * m * n));
  timed_count_product(timed, transpose_a, transpose_b, m, n, k);
}

/* The entries of sparse rows are on the device: their operations are not counted. */
TIMED(csr_forward, MATMUL, 0, x->rows * n, (inner, x, w, y, n),
      const struct trm_csr *x, const float *w, float *y, size_t n)
TIMED(csr_backward, MATMUL, 0, x->rows * n + x->features * n, (inner, x, dy, beta, dw, n),
      const struct trm_csr *x, const float *dy, float beta, float *dw, size_t n)
TIMED(sparse_sgd, MATMUL, 0, sums->written, (inner, sgd, row, target, w, bias, sums, rows),
      const struct trm_sparse_sgd *sgd, const struct trm_sparse_row *row, const float *target, float *w, float *bias,
      struct trm_sparse_sums *sums, size_t rows)

TIMED(bias_add, ELEMENTWISE, b * n, 2 * b * n, (inner, y, bias, b, n), float *y, const float *bias, size_t b, size_t n)
TIMED(bias_backward, ELEMENTWISE, b * n, b * n, (inner, dy, beta, db, b, n),
      const float *dy, float beta, float *db, size_t b, size_t n)
TIMED(activation_forward, ELEMENTWISE, 0, 2 * n, (inner, kind, x, y, n),
      enum trm_activation kind, const float *x, float *y, size_t n)
TIMED(activation_backward, ELEMENTWISE, 0, 3 * n, (inner, kind, x, y, dy, dx, n),
      enum trm_activation kind, const float *x, const float *y, const float *dy, float *dx, size_t n)
TIMED(dropout, ELEMENTWISE, 0, 2 * b * f, (inner, mask, x, y, b, f),
      const struct trm_mask *mask, const float *x, float *y, size_t b, size_t f)
TIMED(norm_forward, NORMALIZATION, 0, 2 * r * d, (inner, x, gain, bias, epsilon, y, mean, scale, r, d),
      const float *x, const float *gain, const float *bias, float epsilon, float *y, float *mean, float *scale,
      size_t r, size_t d)
TIMED(norm_backward, NORMALIZATION, 0, (dx ? 3 : 2) * r * d,
      (inner, x, gain, mean, scale, dy, dx, beta, dgain, dbias, r, d),
      const float *x, const float *gain, const float *mean, const float *scale, const float *dy, float *dx,
      float beta, float *dgain, float *dbias, size_t r, size_t d)

TIMED(embedding_forward, EMBEDDING_LOSS, 0, 2 * r * d, (inner, token, w, y, r, d, v),
      const int32_t *token, const float *w, float *y, size_t r, size_t d, const struct trm_vocab_shard *v)
TIMED(embedding_backward, EMBEDDING_LOSS, r * d, r * d + (v->high - v->low) * d, (inner, token, dy, beta, dw, r, d, v),
      const int32_t *token, const float *dy, float beta, float *dw, size_t r, size_t d,
      const struct trm_vocab_shard *v)
TIMED(attention_forward, ATTENTION, 2 * timed_attention_flop(shape), 4 * timed_attention_values(shape),
      (inner, shape, qkv, y, row), const struct trm_attention *shape, const float *qkv, float *y, float *row)
TIMED(attention_backward, ATTENTION, 5 * timed_attention_flop(shape), 7 * timed_attention_values(shape),
      (inner, shape, qkv, row, dy, dqkv),
      const struct trm_attention *shape, const float *qkv, const float *row, const float *dy, float *dqkv)
TIMED(rotary, ELEMENTWISE, 0, 4 * timed_attention_values(shape), (inner, shape, base, inverse, x),
      const struct trm_attention *shape, float base, bool inverse, float *x)
TIMED(swiglu_forward, ELEMENTWISE, 0, 3 * r * f, (inner, x, y, r, f), const float *x, float *y, size_t r, size_t f)
TIMED(swiglu_backward, ELEMENTWISE, 0, 5 * r * f, (inner, x, dy, dx, r, f),
      const float *x, const float *dy, float *dx, size_t r, size_t f)

TIMED(conv2d_forward, CONVOLUTION, timed_conv_flop(conv, b), timed_conv_floats(conv, b),
      (inner, conv, x, w, bias, y, b),
      const struct trm_conv2d *conv, const float *x, const float *w, const float *bias, float *y, size_t b)
TIMED(conv2d_backward_data, CONVOLUTION, timed_conv_flop(conv, b), timed_conv_floats(conv, b),
      (inner, conv, dy, w, dx, b),
      const struct trm_conv2d *conv, const float *dy, const float *w, float *dx, size_t b)
TIMED(conv2d_backward_weights, CONVOLUTION, timed_conv_flop(conv, b), timed_conv_floats(conv, b),
      (inner, conv, x, dy, beta, dw, db, b),
      const struct trm_conv2d *conv, const float *x, const float *dy, float beta, float *dw, float *db, size_t b)
TIMED(max_pool_forward, ELEMENTWISE, 0, timed_pool_floats(win, planes, 2), (inner, win, x, y, argmax, planes),
      const struct trm_window2d *win, const float *x, float *y, int32_t *argmax, size_t planes)
TIMED(max_pool_backward, ELEMENTWISE, 0, timed_pool_floats(win, planes, 2), (inner, win, dy, argmax, dx, planes),
      const struct trm_window2d *win, const float *dy, const int32_t *argmax, float *dx, size_t planes)
TIMED(avg_pool_forward, ELEMENTWISE, 0, timed_pool_floats(win, planes, 1), (inner, win, x, y, planes),
      const struct trm_window2d *win, const float *x, float *y, size_t planes)
TIMED(avg_pool_backward, ELEMENTWISE, 0, timed_pool_floats(win, planes, 1), (inner, win, dy, dx, planes),
      const struct trm_window2d *win, const float *dy, float *dx, size_t planes)

TIMED(batch_norm_moments, NORMALIZATION, 0, timed_batch_norm_values(bn, b), (inner, bn, x, moments, b),
      const struct trm_batch_norm *bn, const float *x, float *moments, size_t b)
TIMED(batch_norm_forward, NORMALIZATION, 0, 2 * timed_batch_norm_values(bn, b),
      (inner, bn, x, mean, square, w, bias, y, b),
      const struct trm_batch_norm *bn, const float *x, const float *mean, const float *square, const float *w,
      const float *bias, float *y, size_t b)
TIMED(batch_norm_sums, NORMALIZATION, 0, 2 * timed_batch_norm_values(bn, b), (inner, bn, x, mean, square, dy, sums, b),
      const struct trm_batch_norm *bn, const float *x, const float *mean, const float *square, const float *dy,
      float *sums, size_t b)
TIMED(batch_norm_backward, NORMALIZATION, 0, 3 * timed_batch_norm_values(bn, b),
      (inner, bn, x, mean, square, w, dy, sums, dx, b),
      const struct trm_batch_norm *bn, const float *x, const float *mean, const float *square, const float *w,
      const float *dy, const float *sums, float *dx, size_t b)

TIMED(softmax_cross_entropy, EMBEDDING_LOSS, 0, (dz ? 2 : 1) * b * c,
      (inner, z, target, scale, smoothing, loss, correct, dz, b, c),
      const float *z, const int32_t *target, float scale, float smoothing, float *loss, float *correct, float *dz,
      size_t b, size_t c)
TIMED(softmax_shard_stats, EMBEDDING_LOSS, 0, b * (v->high - v->low), (inner, z, target, v, stats, b),
      const float *z, const int32_t *target, const struct trm_vocab_shard *v, float *stats, size_t b)
TIMED(softmax_shard_gradient, EMBEDDING_LOSS, 0, 2 * b * (v->high - v->low),
      (inner, z, target, v, max, sum, scale, smoothing, dz, b),
      const float *z, const int32_t *target, const struct trm_vocab_shard *v, const float *max, const float *sum,
      float scale, float smoothing, float *dz, size_t b)
TIMED(mean_squared_error, EMBEDDING_LOSS, 0, (dz ? 3 : 2) * b * f, (inner, z, target, scale, loss, correct, dz, b, f),
      const float *z, const float *target, float scale, float *loss, float *correct, float *dz, size_t b, size_t f)
TIMED(logistic, EMBEDDING_LOSS, 0, 3 * b, (inner, z, target, scale, loss, correct, dz, b),
      const float *z, const float *target, float scale, float *loss, float *correct, float *dz, size_t b)
TIMED(hinge, EMBEDDING_LOSS, 0, 3 * b, (inner, z, target, scale, loss, correct, dz, b),
      const float *z, const float *target, float scale, float *loss, float *correct, float *dz, size_t b)

TIMED(sum, ELEMENTWISE, (size_t)(count - 1) * n, (size_t)(count + 1) * n, (inner, to, from, count, n),
      float *to, const float *const *from, int count, size_t n)
TIMED(update, OPTIMIZER, 0, (3 + 2 * ((first != NULL) + (second != NULL))) * n, (inner, opt, w, g, first, second, n),
      const struct trm_update *opt, float *w, const float *g, float *first, float *second, size_t n)
TIMED(lamb_direction, OPTIMIZER, 0, 7 * n, (inner, opt, w, g, first, second, n),
      const struct trm_update *opt, const float *w, float *g, float *first, float *second, size_t n)

static double timed_norm_squared(struct trm_device *device, const float *x, size_t n)
{
  struct trm_device *inner = timed_of(device)->inner;
  const double begin = timed_clock(), square = inner->ops->norm_squared(inner, x, n);

  timed_add(device, TIMED_OPTIMIZER, begin, 0, (double)n);
  return square;
}

#define TIMED_SLOT(slot) .slot = timed_##slot,
static const struct trm_device_ops timed_ops = {
  .name = "timed",
  .open = timed_open,
  .close = timed_close,
  .alloc = timed_alloc,
  .release = timed_release,
  .upload = timed_upload,
  .download = timed_download,
  .copy = timed_copy,
  .sync = timed_sync,
  TRM_KERNELS(TIMED_SLOT)
};

void timed_device_open(struct trm_device *device, struct timed_profile *timed, struct trm_device *inner)
{
  *device = *inner;
  device->ops = &timed_ops;
  device->impl = timed;
  timed->inner = inner;
}
