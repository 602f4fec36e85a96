/* Multi-head self-attention (Vaswani et al. 2017), tiled: a strip is STRIP queries of one head with all the keys that
 * they attend to, so that memory is linear in T. Backward recomputes a strip's probabilities from the saved maximum and
 * sum of each row (Rabe & Staats 2021, Dao et al. 2022). The products of a strip are small and run in one thread. A
 * work item is a strip in forward and a head in backward, since the strips of a head add to the gradients of the same
 * keys and values. So no sum depends on the number of threads. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/math.h"

#define STRIP 64

struct attention {
  const struct trm_attention *shape;
  const struct trm_blas_ops *blas;
  const float *qkv; /* (B, T, 3, H, E) */
  float *y;         /* (B, T, H, E) */
  float *row;       /* (B, H, T, 2): maximum of the scaled scores, 1 / sum of the exponentials */
  const float *dy;  /* (B, T, H, E) */
  float *dqkv;      /* (B, T, 3, H, E) */
  float *scratch;   /* (threads, 2, STRIP, T) */
  size_t strips;    /* per head */
};

/* A strip: its queries, and the keys that they attend to. */
struct strip {
  size_t first, queries, keys;
};

static struct strip attention_strip(const struct trm_attention *shape, size_t number)
{
  const size_t first = number * STRIP, end = shape->t - first < STRIP ? shape->t : first + STRIP;

  return (struct strip){first, end - first, shape->causal ? end : shape->t};
}

/* Returns the number of keys that query i of the strip attends to. */
static size_t attention_keys_seen(const struct trm_attention *shape, const struct strip *strip, size_t i)
{
  return shape->causal ? strip->first + i + 1 : strip->keys;
}

/* Turns s (queries, T) from scaled scores into exponentials, 0 where masked; sets row (queries, 2). */
CPU_CLONES static void attention_strip_exp(const struct trm_attention *shape, const struct strip *strip, float *s,
                                           float *row)
{
  for (size_t i = 0; i < strip->queries; i++, s += shape->t, row += 2) {
    const size_t n = attention_keys_seen(shape, strip, i);
    const float maximum = cpu_lane_maximum(s, n);
    double total = 0;

#pragma omp simd
    for (size_t j = 0; j < n; j++)
      s[j] = math_exp(s[j] - maximum);
    for (size_t low = 0; low < n; low += CPU_BLOCK)
      total += cpu_lane_sum(s + low, n - low < CPU_BLOCK ? n - low : CPU_BLOCK);
    for (size_t j = n; j < strip->keys; j++)
      s[j] = 0;
    row[0] = maximum;
    row[1] = (float)(1 / total);
  }
}

/* Multiplies the strip's rows of y by 1 / sum. */
CPU_CLONES static void attention_strip_scale(const struct trm_attention *shape, const struct strip *strip, float *y,
                                             const float *row)
{
  const size_t e = shape->head_dim, ld = shape->heads * e;

  for (size_t i = 0; i < strip->queries; i++) {
    const float scale = row[2 * i + 1];

#pragma omp simd
    for (size_t j = 0; j < e; j++)
      y[i * ld + j] *= scale;
  }
}

static void attention_forward_body(const void *arguments, size_t low, size_t high)
{
  const struct attention *it = arguments;
  const struct trm_attention *shape = it->shape;
  const size_t e = shape->head_dim, d = shape->heads * e, t = shape->t;
  float *s = it->scratch + (size_t)cpu_thread() * 2 * STRIP * t;

  for (size_t item = low; item < high; item++) {
    const size_t head = item / it->strips, b = head / shape->heads, h = head % shape->heads;
    const struct strip strip = attention_strip(shape, item % it->strips);
    const float *k = it->qkv + b * t * 3 * d + d + h * e, *v = k + d, *q = k - d + strip.first * 3 * d;
    float *y = it->y + (b * t + strip.first) * d + h * e, *row = it->row + 2 * (head * t + strip.first);

    it->blas->gemm(&(struct trm_gemm){
      .transpose_b = true, .m = strip.queries, .n = strip.keys, .k = e, .alpha = 1 / sqrtf((float)e), .a = q,
      .lda = 3 * d, .b = k, .ldb = 3 * d, .c = s, .ldc = t});
    attention_strip_exp(shape, &strip, s, row);
    it->blas->gemm(&(struct trm_gemm){
      .m = strip.queries, .n = e, .k = strip.keys, .alpha = 1, .a = s, .lda = t, .b = v, .ldb = 3 * d, .c = y,
      .ldc = d});
    attention_strip_scale(shape, &strip, y, row);
  }
}

/* Turns p (queries, T) from scaled scores into probabilities, and dp (queries, T) from the gradient of the
 * probabilities into that of the products q k. */
CPU_CLONES static void attention_strip_gradient(const struct trm_attention *shape, const struct strip *strip, float *p,
                                                float *dp, const float *row)
{
  const float factor = 1 / sqrtf((float)shape->head_dim);
  float term[CPU_BLOCK];

  for (size_t i = 0; i < strip->queries; i++, p += shape->t, dp += shape->t, row += 2) {
    const size_t n = attention_keys_seen(shape, strip, i);
    const float maximum = row[0], scale = row[1];
    double total = 0;

    for (size_t low = 0; low < n; low += CPU_BLOCK) {
      const size_t width = n - low < CPU_BLOCK ? n - low : CPU_BLOCK;
      float *prob = p + low;
      const float *dprob = dp + low;

#pragma omp simd
      for (size_t j = 0; j < width; j++) {
        prob[j] = math_exp(prob[j] - maximum) * scale;
        term[j] = prob[j] * dprob[j];
      }
      total += cpu_lane_sum(term, width);
    }
    const float mean = (float)total;
#pragma omp simd
    for (size_t j = 0; j < n; j++)
      dp[j] = p[j] * (dp[j] - mean) * factor;
    for (size_t j = n; j < strip->keys; j++)
      p[j] = dp[j] = 0;
  }
}

static void attention_backward_body(const void *arguments, size_t low, size_t high)
{
  const struct attention *it = arguments;
  const struct trm_attention *shape = it->shape;
  const size_t e = shape->head_dim, d = shape->heads * e, t = shape->t;
  float *p = it->scratch + (size_t)cpu_thread() * 2 * STRIP * t, *dp = p + STRIP * t;

  for (size_t head = low; head < high; head++) {
    const size_t b = head / shape->heads, h = head % shape->heads, at = b * t * 3 * d + h * e;
    const float *q = it->qkv + at, *k = q + d, *v = k + d, *dy = it->dy + b * t * d + h * e;
    float *dq = it->dqkv + at, *dk = dq + d, *dv = dk + d;

    for (size_t number = it->strips; number-- > 0;) { /* the last strip attends to all keys: it overwrites */
      const struct strip strip = attention_strip(shape, number);
      const float *q_strip = q + strip.first * 3 * d, *dy_strip = dy + strip.first * d;
      const float beta = number + 1 == it->strips ? 0 : 1;

      it->blas->gemm(&(struct trm_gemm){
        .transpose_b = true, .m = strip.queries, .n = strip.keys, .k = e, .alpha = 1 / sqrtf((float)e), .a = q_strip,
        .lda = 3 * d, .b = k, .ldb = 3 * d, .c = p, .ldc = t});
      it->blas->gemm(&(struct trm_gemm){
        .transpose_b = true, .m = strip.queries, .n = strip.keys, .k = e, .alpha = 1, .a = dy_strip, .lda = d, .b = v,
        .ldb = 3 * d, .c = dp, .ldc = t});
      attention_strip_gradient(shape, &strip, p, dp, it->row + 2 * (head * t + strip.first));
      it->blas->gemm(&(struct trm_gemm){
        .transpose_a = true, .m = strip.keys, .n = e, .k = strip.queries, .alpha = 1, .a = p, .lda = t, .b = dy_strip,
        .ldb = d, .beta = beta, .c = dv, .ldc = 3 * d});
      it->blas->gemm(&(struct trm_gemm){
        .transpose_a = true, .m = strip.keys, .n = e, .k = strip.queries, .alpha = 1, .a = dp, .lda = t, .b = q_strip,
        .ldb = 3 * d, .beta = beta, .c = dk, .ldc = 3 * d});
      it->blas->gemm(&(struct trm_gemm){
        .m = strip.queries, .n = e, .k = strip.keys, .alpha = 1, .a = dp, .lda = t, .b = k, .ldb = 3 * d,
        .c = dq + strip.first * 3 * d, .ldc = 3 * d});
    }
  }
}

/* Runs a loop with scratch memory; its products stay in the calling thread. */
static void attention_run(struct trm_device *device, struct attention *it, size_t items, size_t strips, cpu_body *body)
{
  const struct trm_attention *shape = it->shape;
  const double work = (double)strips * STRIP * (double)shape->t * (double)shape->head_dim;

  it->blas = device->blas;
  it->scratch = cpu_scratch(device, (size_t)device->threads * 2 * STRIP * shape->t * sizeof(float));
  if (device->blas->set_serial)
    device->blas->set_serial(true);
  cpu_for(device, items, 1, work, body, it);
  if (device->blas->set_serial)
    device->blas->set_serial(false);
}

void cpu_attention_forward(struct trm_device *device, const struct trm_attention_forward *call)
{
  const struct trm_attention *shape = &call->shape;
  struct attention it = {
    .shape = shape, .qkv = call->qkv, .y = call->y, .row = call->row, .strips = (shape->t + STRIP - 1) / STRIP};

  attention_run(device, &it, shape->b * shape->heads * it.strips, 1, attention_forward_body);
}

void cpu_attention_backward(struct trm_device *device, const struct trm_attention_backward *call)
{
  const struct trm_attention *shape = &call->shape;
  struct attention it = {.shape = shape, .qkv = call->qkv, .row = (float *)call->row, .dy = call->dy,
                         .dqkv = call->dqkv, .strips = (shape->t + STRIP - 1) / STRIP};

  attention_run(device, &it, shape->b * shape->heads, it.strips, attention_backward_body);
}
