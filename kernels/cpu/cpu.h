/* Declarations shared by the files of the CPU device (private to kernels/cpu).
 *
 * How a kernel is built here: a struct of its arguments, a body that works on the half-open interval [low, high) of
 * its items (elements, rows or columns), and a function of the contract that hands both to cpu_for. The body is
 * compiled for several instruction sets (CPU_CLONES) and holds no OpenMP region of its own, so that the compiler
 * vectorizes it as it would any loop.
 *
 * Where the interval is cut depends on the number of threads, so no result may depend on the cut: an element-wise body
 * is free of it by itself, a sum is made of fixed blocks (see each).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/clones.h"
#include "core/device.h"

#define CPU_INLINE static inline __attribute__((always_inline))

/* Below this many units of work (about one streamed float each) waking threads costs more than it saves. */
#define CPU_PARALLEL_WORK 32768
/* Flat arrays are cut at multiples of a page of floats. */
#define CPU_GRANULE 1024
/* Sums of floats run over at most this many terms before they are added up in double. */
#define CPU_BLOCK 1024

/* Sum of n terms in CPU_LANES lanes, the lanes then in a binary tree. The lanes are spelled out, so that the order of
 * additions depends on n alone: not on the width of the processor's registers, the compiler, or where the terms lie. */
#define CPU_LANES 16
CPU_INLINE float cpu_lane_sum(const float *x, size_t n)
{
  float lane[CPU_LANES] = {0};
  size_t i = 0;

  for (; i + CPU_LANES <= n; i += CPU_LANES)
#pragma omp simd
    for (int l = 0; l < CPU_LANES; l++)
      lane[l] += x[i + (size_t)l];
  for (size_t l = 0; i + l < n; l++)
    lane[l] += x[i + l];
  for (int width = CPU_LANES / 2; width > 0; width /= 2)
    for (int l = 0; l < width; l++)
      lane[l] += lane[l + width];
  return lane[0];
}

/* Largest of n >= 1 numbers; a NaN may be passed over. In lanes by hand: not every compiler knows how to do that with a
 * maximum. */
CPU_INLINE float cpu_lane_maximum(const float *x, size_t n)
{
  float maximum = x[0], lane[CPU_LANES];
  size_t i = 0;

  if (n >= CPU_LANES) {
    for (size_t l = 0; l < CPU_LANES; l++)
      lane[l] = x[l];
    for (i = CPU_LANES; i + CPU_LANES <= n; i += CPU_LANES)
#pragma omp simd
      for (int l = 0; l < CPU_LANES; l++)
        lane[l] = x[i + (size_t)l] > lane[l] ? x[i + (size_t)l] : lane[l];
    for (size_t l = 0; l < CPU_LANES; l++)
      maximum = lane[l] > maximum ? lane[l] : maximum;
  }
  for (; i < n; i++)
    maximum = x[i] > maximum ? x[i] : maximum;
  return maximum;
}

struct conv_kernels;

struct cpu_state {
  const struct conv_kernels *conv; /* for this processor (conv.h) */
  void *scratch; /* grows, kept until the device is closed */
  size_t scratch_bytes;
  bool failed;
  char failure[192]; /* the first one, until sync tells it */
};

typedef void cpu_body(const void *arguments, size_t low, size_t high);

/* Calls body on intervals that together are [0, n), each once, cut at multiples of granule; on the device's threads if
 * n items of `work` units each are worth it. */
void cpu_for(const struct trm_device *device, size_t n, size_t granule, double work, cpu_body *body,
             const void *arguments);

/* Memory for the call at hand, not zeroed; the next call of this function may take it away. Outside of parallel
 * regions. */
void *cpu_scratch(struct trm_device *device, size_t bytes);

/* In a body: the number of the thread that runs it, below device->threads. */
int cpu_thread(void);

/* Records a failure for the next sync. Outside parallel regions. */
void cpu_fail(struct trm_device *device, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* -- the kernels of the contract (core/device.h), by file */

/* csr.c */
void cpu_csr_forward(struct trm_device *device, const struct trm_csr *x, const float *w, float *y, size_t n);
void cpu_csr_backward(struct trm_device *device, const struct trm_csr *x, const float *dy, float beta, float *dw,
                      size_t n);

/* sparse_sgd.c */
void cpu_sparse_sgd(struct trm_device *device, const struct trm_sparse_sgd *sgd, const struct trm_sparse_row *row,
                    const float *target, float *w, float *bias, struct trm_sparse_sums *sums, size_t rows);

/* bias.c */
void cpu_bias_add(struct trm_device *device, float *y, const float *bias, size_t b, size_t n);
void cpu_bias_backward(struct trm_device *device, const float *dy, float beta, float *db, size_t b, size_t n);

/* activation.c */
void cpu_activation_forward(struct trm_device *device, enum trm_activation kind, const float *x, float *y, size_t n);
void cpu_activation_backward(struct trm_device *device, enum trm_activation kind, const float *x, const float *y,
                             const float *dy, float *dx, size_t n);

/* dropout.c */
void cpu_dropout(struct trm_device *device, const struct trm_mask *mask, const float *x, float *y, size_t b, size_t f);

/* norm.c */
void cpu_norm_forward(struct trm_device *device, const float *x, const float *gain, const float *bias, float epsilon,
                      float *y, float *mean, float *scale, size_t r, size_t d);
void cpu_norm_backward(struct trm_device *device, const float *x, const float *gain, const float *mean,
                       const float *scale, const float *dy, float *dx, float beta, float *dgain, float *dbias, size_t r,
                       size_t d);

/* embedding.c */
void cpu_embedding_forward(struct trm_device *device, const int32_t *token, const float *w, float *y, size_t r,
                           size_t d, const struct trm_vocab_shard *v);
void cpu_embedding_backward(struct trm_device *device, const int32_t *token, const float *dy, float beta, float *dw,
                            size_t r, size_t d, const struct trm_vocab_shard *v);

/* attention.c */
void cpu_attention_forward(struct trm_device *device, const struct trm_attention *shape, const float *qkv, float *y,
                           float *row);
void cpu_attention_backward(struct trm_device *device, const struct trm_attention *shape, const float *qkv,
                            const float *row, const float *dy, float *dqkv);

/* rotary.c */
void cpu_rotary(struct trm_device *device, const struct trm_attention *shape, float base, bool inverse, float *x);

/* gate.c */
void cpu_swiglu_forward(struct trm_device *device, const float *x, float *y, size_t r, size_t f);
void cpu_swiglu_backward(struct trm_device *device, const float *x, const float *dy, float *dx, size_t r, size_t f);

/* conv.c */
void cpu_conv2d_forward(struct trm_device *device, const struct trm_conv2d *conv, const float *x, const float *w,
                        const float *bias, float *y, size_t b);
void cpu_conv2d_backward_data(struct trm_device *device, const struct trm_conv2d *conv, const float *dy, const float *w,
                              float *dx, size_t b);
void cpu_conv2d_backward_weights(struct trm_device *device, const struct trm_conv2d *conv, const float *x,
                                 const float *dy, float beta, float *dw, float *db, size_t b);

/* pool.c */
void cpu_max_pool_forward(struct trm_device *device, const struct trm_window2d *win, const float *x, float *y,
                          int32_t *argmax, size_t planes);
void cpu_max_pool_backward(struct trm_device *device, const struct trm_window2d *win, const float *dy,
                           const int32_t *argmax, float *dx, size_t planes);
void cpu_avg_pool_forward(struct trm_device *device, const struct trm_window2d *win, const float *x, float *y,
                          size_t planes);
void cpu_avg_pool_backward(struct trm_device *device, const struct trm_window2d *win, const float *dy, float *dx,
                           size_t planes);

/* batch_norm.c */
void cpu_batch_norm_moments(struct trm_device *device, const struct trm_batch_norm *bn, const float *x, float *moments,
                            size_t b);
void cpu_batch_norm_forward(struct trm_device *device, const struct trm_batch_norm *bn, const float *x,
                            const float *mean, const float *square, const float *w, const float *bias, float *y,
                            size_t b);
void cpu_batch_norm_sums(struct trm_device *device, const struct trm_batch_norm *bn, const float *x, const float *mean,
                         const float *square, const float *dy, float *sums, size_t b);
void cpu_batch_norm_backward(struct trm_device *device, const struct trm_batch_norm *bn, const float *x,
                             const float *mean, const float *square, const float *w, const float *dy, const float *sums,
                             float *dx, size_t b);

/* loss.c */
void cpu_softmax_cross_entropy(struct trm_device *device, const float *z, const int32_t *target, float scale,
                               float smoothing, float *loss, float *correct, float *dz, size_t b, size_t c);
void cpu_softmax_shard_stats(struct trm_device *device, const float *z, const int32_t *target,
                             const struct trm_vocab_shard *v, float *stats, size_t b);
void cpu_softmax_shard_gradient(struct trm_device *device, const float *z, const int32_t *target,
                                const struct trm_vocab_shard *v, const float *max, const float *sum, float scale,
                                float smoothing, float *dz, size_t b);
void cpu_mean_squared_error(struct trm_device *device, const float *z, const float *target, float scale, float *loss,
                            float *correct, float *dz, size_t b, size_t f);
void cpu_logistic(struct trm_device *device, const float *z, const float *target, float scale, float *loss,
                  float *correct, float *dz, size_t b);
void cpu_hinge(struct trm_device *device, const float *z, const float *target, float scale, float *loss, float *correct,
               float *dz, size_t b);

/* flat.c */
void cpu_fill(struct trm_device *device, float *to, float value, size_t n);
void cpu_sum(struct trm_device *device, float *to, const float *const *from, int count, size_t n);
double cpu_norm_squared(struct trm_device *device, const float *x, size_t n);

/* update.c */
void cpu_update(struct trm_device *device, const struct trm_update *opt, float *w, const float *g, float *first,
                float *second, size_t n);
void cpu_lamb_direction(struct trm_device *device, const struct trm_update *opt, const float *w, float *g, float *first,
                        float *second, size_t n);
