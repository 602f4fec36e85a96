/* Operations of the timed device: each calls the inner device and measures the call. */
#include "kernels/timed_device.h"

#include <time.h>

#include "core/device_arrays.h"
#include "core/status.h"
#include "kernels/composed_kernels.h"

const char *const timed_part_name[TIMED_PARTS] = {"products",     "convolution",     "attention", "normalization",
                                                  "element-wise", "embedding, loss", "optimizer", "memory",
                                                  "recorded calls"};

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

static void timed_count(struct trm_device *device, enum timed_part part, double begin, double flop, double bytes)
{
  struct timed_sum *sum = &timed_of(device)->sum[part];

  sum->s += timed_clock() - begin;
  sum->flop += flop;
  sum->bytes += bytes;
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

/* Copies beside the calls take no time of theirs. */
static void timed_upload_begin(struct trm_device *device, void *to, const void *host, size_t bytes,
                               struct trm_event *event)
{
  struct trm_device *inner = timed_of(device)->inner;

  inner->ops->upload_begin(inner, to, host, bytes, event);
}

static void timed_download_begin(struct trm_device *device, void *host, const void *from, size_t bytes,
                                 struct trm_event *event)
{
  struct trm_device *inner = timed_of(device)->inner;

  inner->ops->download_begin(inner, host, from, bytes, event);
}

#define TIMED_EVENT(slot, type)                                          \
  static type timed_##slot(struct trm_device *device, struct trm_event *event) \
  {                                                                      \
    struct trm_device *inner = timed_of(device)->inner;                  \
    return inner->ops->slot(inner, event);                               \
  }
TIMED_EVENT(await, void)
TIMED_EVENT(event_done, bool)
TIMED_EVENT(event_wait, void)
TIMED_EVENT(event_free, void)

static void timed_pin(struct trm_device *device, void *host, size_t bytes)
{
  struct trm_device *inner = timed_of(device)->inner;

  inner->ops->pin(inner, host, bytes);
}

static void timed_unpin(struct trm_device *device, void *host)
{
  struct trm_device *inner = timed_of(device)->inner;

  inner->ops->unpin(inner, host);
}

static int timed_sync(struct trm_device *device)
{
  struct trm_device *inner = timed_of(device)->inner;

  return inner->ops->sync(inner);
}

/* -- recorded calls. They have been counted once, when they were recorded. */

static bool timed_record_begin(struct trm_device *device)
{
  struct trm_device *inner = timed_of(device)->inner;

  return inner->ops->record_begin(inner);
}

static struct trm_recording *timed_record_end(struct trm_device *device)
{
  struct trm_device *inner = timed_of(device)->inner;

  return inner->ops->record_end(inner);
}

static bool timed_replay(struct trm_device *device, struct trm_recording *recording)
{
  struct trm_device *inner = timed_of(device)->inner;
  const double begin = timed_clock();
  const bool made = inner->ops->replay(inner, recording);

  timed_count(device, TIMED_RECORDED, begin, 0, 0);
  return made;
}

static void timed_recording_free(struct trm_device *device, struct trm_recording *recording)
{
  struct trm_device *inner = timed_of(device)->inner;

  inner->ops->recording_free(inner, recording);
}

/* -- multiplications and additions */

static double timed_gemm_flop(const struct trm_gemm *it)
{
  return 2.0 * (double)it->m * (double)it->n * (double)it->k;
}

static double timed_csr_forward_flop(const struct trm_csr_forward *it)
{
  return 2.0 * (double)it->x.entries * (double)it->n;
}

static double timed_csr_backward_flop(const struct trm_csr_backward *it)
{
  return 2.0 * (double)it->x.entries * (double)it->n;
}

/* One product of attention, (T, E) x (E, T), only the unmasked part if it is causal. */
static double timed_attention_flop(const struct trm_attention *shape)
{
  const double t = (double)shape->t, first = (double)shape->first;
  const double pairs = shape->causal ? (t * (t + 1) - first * (first + 1)) / 2 : (t - first) * t;

  return 2.0 * (double)shape->b * (double)shape->heads * (double)shape->head_dim * pairs;
}

static double timed_attention_forward_flop(const struct trm_attention_forward *it)
{
  return 2 * timed_attention_flop(&it->shape);
}

static double timed_attention_backward_flop(const struct trm_attention_backward *it)
{
  return 5 * timed_attention_flop(&it->shape);
}

static double timed_linear_forward_flop(const struct trm_linear_forward *it)
{
  return 2.0 * (double)it->b * (double)it->n * (double)it->k;
}

static double timed_linear_backward_flop(const struct trm_linear_backward *it)
{
  return ((it->dw ? 2.0 : 0.0) + (it->dx ? 2.0 : 0.0)) * (double)it->b * (double)it->n * (double)it->k;
}

static double timed_conv_flop(const struct trm_conv2d *conv, size_t b)
{
  const size_t *out = conv->window.out;

  return 2.0 * (double)b * (double)(out[0] * out[1]) * (double)trm_conv2d_weights(conv);
}

static double timed_conv_forward_flop(const struct trm_conv2d_forward *it)
{
  return timed_conv_flop(&it->conv, it->b);
}

static bool timed_conv2d_fuses(struct trm_device *device, const struct trm_conv2d *conv, enum trm_value_type type)
{
  struct trm_device *inner = timed_of(device)->inner;

  return inner->ops->conv2d_fuses && inner->ops->conv2d_fuses(inner, conv, type);
}

static bool timed_channels_last(struct trm_device *device, enum trm_value_type type)
{
  struct trm_device *inner = timed_of(device)->inner;

  return inner->ops->channels_last && inner->ops->channels_last(inner, type);
}

static void timed_conv2d_fused(struct trm_device *device, const struct trm_conv2d_fused *call)
{
  struct trm_device *inner = timed_of(device)->inner;
  const double begin = timed_clock();

  inner->ops->conv2d_fused(inner, call);
  timed_count(device, TIMED_CONVOLUTION, begin, timed_conv_forward_flop(&call->conv), 0);
}

static double timed_conv_backward_flop(const struct trm_conv2d_backward *it)
{
  return (double)((it->dw != NULL) + (it->dx != NULL)) * timed_conv_flop(&it->conv, it->b);
}

/* Of other kernels they are not counted: memory limits them. */
static double timed_no_flop(const void *it)
{
  (void)it;
  return 0;
}

#define TIMED_FLOP(call)                                                                                             \
  _Generic((call), const struct trm_gemm *: timed_gemm_flop, const struct trm_csr_forward *: timed_csr_forward_flop, \
           const struct trm_csr_backward *: timed_csr_backward_flop,                                                 \
           const struct trm_linear_forward *: timed_linear_forward_flop,                                             \
           const struct trm_linear_backward *: timed_linear_backward_flop,                                           \
           const struct trm_attention_forward *: timed_attention_forward_flop,                                       \
           const struct trm_attention_backward *: timed_attention_backward_flop,                                     \
           const struct trm_conv2d_forward *: timed_conv_forward_flop,                                               \
           const struct trm_conv2d_backward *: timed_conv_backward_flop, default: timed_no_flop)(call)

/* -- the slots that are measured */

#define TIMED_COPY(slot, ...)                                                             \
  static void timed_##slot(struct trm_device *device, __VA_ARGS__)                        \
  {                                                                                       \
    struct trm_device *inner = timed_of(device)->inner;                                   \
    const double begin = timed_clock();                                                   \
    inner->ops->slot(inner, to, from, bytes);                                             \
    timed_count(device, TIMED_MEMORY, begin, 0, 2 * (double)bytes);                         \
  }
TIMED_COPY(upload, void *to, const void *from, size_t bytes)
TIMED_COPY(download, void *to, const void *from, size_t bytes)
TIMED_COPY(copy, void *to, const void *from, size_t bytes)

static void timed_fill(struct trm_device *device, float *to, float value, size_t n)
{
  struct trm_device *inner = timed_of(device)->inner;
  const double begin = timed_clock();

  inner->ops->fill(inner, to, value, n);
  timed_count(device, TIMED_MEMORY, begin, 0, (double)(n * sizeof *to));
}

static void timed_count_product(struct timed_profile *timed, const struct trm_gemm *it)
{
  for (size_t i = 0; i < timed->products; i++) {
    struct timed_product *p = &timed->product[i];

    if (p->transpose_a == it->transpose_a && p->transpose_b == it->transpose_b && p->m == it->m && p->n == it->n &&
        p->k == it->k) {
      p->calls++;
      return;
    }
  }
  if (timed->products < TIMED_MAX_PRODUCTS)
    timed->product[timed->products++] =
      (struct timed_product){it->transpose_a, it->transpose_b, it->m, it->n, it->k, 1};
}

static void timed_count_linear_forward(struct timed_profile *timed, const struct trm_linear_forward *it)
{
  timed_count_product(timed, &(struct trm_gemm){.transpose_b = true, .m = it->b, .n = it->n, .k = it->k});
}

static void timed_count_linear_backward(struct timed_profile *timed, const struct trm_linear_backward *it)
{
  if (it->dw)
    timed_count_product(timed, &(struct trm_gemm){.transpose_a = true, .m = it->n, .n = it->k, .k = it->b});
  if (it->dx)
    timed_count_product(timed, &(struct trm_gemm){.m = it->b, .n = it->k, .k = it->n});
}

static void timed_count_nothing(struct timed_profile *timed, const void *it)
{
  (void)timed, (void)it;
}

#define TIMED_COUNT(timed, call) \
  _Generic((call), const struct trm_gemm *: timed_count_product,       \
           const struct trm_linear_forward *: timed_count_linear_forward,  \
           const struct trm_linear_backward *: timed_count_linear_backward, \
           default: timed_count_nothing)(timed, call)

/* The part of a kernel's time. */
enum {
  PART_gemm = TIMED_MATMUL,
  PART_csr_forward = TIMED_MATMUL,
  PART_csr_backward = TIMED_MATMUL,
  PART_sparse_sgd = TIMED_MATMUL,
  PART_bias_add = TIMED_ELEMENTWISE,
  PART_bias_backward = TIMED_ELEMENTWISE,
  PART_activation_forward = TIMED_ELEMENTWISE,
  PART_activation_backward = TIMED_ELEMENTWISE,
  PART_dropout = TIMED_ELEMENTWISE,
  PART_norm_forward = TIMED_NORMALIZATION,
  PART_norm_backward = TIMED_NORMALIZATION,
  PART_embedding_forward = TIMED_EMBEDDING_LOSS,
  PART_embedding_backward = TIMED_EMBEDDING_LOSS,
  PART_attention_forward = TIMED_ATTENTION,
  PART_attention_backward = TIMED_ATTENTION,
  PART_rotary = TIMED_ELEMENTWISE,
  PART_swiglu_forward = TIMED_ELEMENTWISE,
  PART_swiglu_backward = TIMED_ELEMENTWISE,
  PART_conv2d_forward = TIMED_CONVOLUTION,
  PART_conv2d_backward = TIMED_CONVOLUTION,
  PART_max_pool_forward = TIMED_ELEMENTWISE,
  PART_max_pool_backward = TIMED_ELEMENTWISE,
  PART_avg_pool_forward = TIMED_ELEMENTWISE,
  PART_avg_pool_backward = TIMED_ELEMENTWISE,
  PART_batch_norm_moments = TIMED_NORMALIZATION,
  PART_batch_norm_forward = TIMED_NORMALIZATION,
  PART_batch_norm_sums = TIMED_NORMALIZATION,
  PART_batch_norm_gradients = TIMED_NORMALIZATION,
  PART_batch_norm_backward = TIMED_NORMALIZATION,
  PART_softmax_cross_entropy = TIMED_EMBEDDING_LOSS,
  PART_softmax_shard_stats = TIMED_EMBEDDING_LOSS,
  PART_softmax_shard_join = TIMED_EMBEDDING_LOSS,
  PART_softmax_shard_gradient = TIMED_EMBEDDING_LOSS,
  PART_mean_squared_error = TIMED_EMBEDDING_LOSS,
  PART_huber = TIMED_EMBEDDING_LOSS,
  PART_binary_cross_entropy = TIMED_EMBEDDING_LOSS,
  PART_logistic = TIMED_EMBEDDING_LOSS,
  PART_hinge = TIMED_EMBEDDING_LOSS,
  PART_sum = TIMED_ELEMENTWISE,
  PART_add = TIMED_ELEMENTWISE,
  PART_convert = TIMED_ELEMENTWISE,
  PART_norm_squared = TIMED_OPTIMIZER,
  PART_sum_losses = TIMED_EMBEDDING_LOSS,
  PART_clip = TIMED_OPTIMIZER,
  PART_trust_ratios = TIMED_OPTIMIZER,
  PART_update = TIMED_OPTIMIZER,
  PART_lamb_direction = TIMED_OPTIMIZER,
  PART_linear_forward = TIMED_MATMUL,
  PART_linear_backward = TIMED_MATMUL,
  PART_add_norm_forward = TIMED_NORMALIZATION,
  PART_add_norm_backward = TIMED_NORMALIZATION,
};

#define TIMED_KERNEL(slot, type) TIMED_CALL(timed_##slot, slot, type)
#define TIMED_CALL(name, slot, type)                                                                 \
  static void name(struct trm_device *device, const struct type *call)                               \
  {                                                                                                  \
    struct trm_device *inner = timed_of(device)->inner;                                              \
    struct trm_call_array array[TRM_CALL_ARRAYS];                                                    \
    const double begin = timed_clock();                                                              \
    inner->ops->slot(inner, call);                                                                   \
    timed_count(device, (enum timed_part)PART_##slot, begin, TIMED_FLOP(call),                         \
              (double)trm_call_bytes(array, type##_arrays(call, array)));                            \
    TIMED_COUNT(timed_of(device), call);                                                             \
  }
TRM_KERNELS(TIMED_KERNEL)

/* A fused kernel's time, of its composed form that of each call in it. */
#define TIMED_FUSED_KERNEL(slot, type)                                         \
  TIMED_CALL(timed_fused_##slot, slot, type)                                   \
  static void timed_##slot(struct trm_device *device, const struct type *call) \
  {                                                                            \
    if (timed_of(device)->inner->ops->slot == composed_##slot)                 \
      composed_##slot(device, call);                                           \
    else                                                                       \
      timed_fused_##slot(device, call);                                        \
  }
TRM_FUSED_KERNELS(TIMED_FUSED_KERNEL)

#define TIMED_SLOT(slot, type) .slot = timed_##slot,
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
  .upload_begin = timed_upload_begin,
  .download_begin = timed_download_begin,
  .await = timed_await,
  .event_done = timed_event_done,
  .event_wait = timed_event_wait,
  .event_free = timed_event_free,
  .pin = timed_pin,
  .unpin = timed_unpin,
  .record_begin = timed_record_begin,
  .record_end = timed_record_end,
  .replay = timed_replay,
  .recording_free = timed_recording_free,
  .conv2d_fuses = timed_conv2d_fuses,
  .channels_last = timed_channels_last,
  .conv2d_fused = timed_conv2d_fused,
  TRM_KERNELS(TIMED_SLOT)
  TRM_FUSED_KERNELS(TIMED_SLOT)
};

void timed_device_open(struct trm_device *device, struct timed_profile *timed, struct trm_device *inner)
{
  *device = *inner;
  device->ops = &timed_ops;
  device->impl = timed;
  timed->inner = inner;
  device->graphs = inner->graphs && inner->ops->record_begin;
}
