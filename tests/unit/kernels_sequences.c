/* Normalization of rows, embedding, attention, rotary positions, swiglu. */
#include <CUnit/CUnit.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "blas/blas.h"
#include "core/memory.h"
#include "core/status.h"
#include "kernels.h"
#include "kernels/cpu/attention.h"
#include "support/pretend_device.h"

static double *doubles(size_t n)
{
  return trm_alloc(n * sizeof(double), "want");
}

/* -- layer norm and RMS norm */

void norm_want(const float *x, const float *gain, const float *bias, const float *dy, double epsilon, bool centred,
               size_t r, size_t d, struct norm_want w)
{
  for (size_t i = 0; i < r; i++) {
    double mean = 0, square = 0, g = 0, gn = 0;

    for (size_t j = 0; j < d && centred; j++)
      mean += x[i * d + j] / (double)d;
    for (size_t j = 0; j < d; j++)
      square += (x[i * d + j] - mean) * (x[i * d + j] - mean) / (double)d;
    const double scale = 1 / sqrt(square + epsilon);
    for (size_t j = 0; j < d; j++) {
      const double n = (x[i * d + j] - mean) * scale, slope = dy[i * d + j];

      w.y[i * d + j] = n * gain[j] + (bias ? bias[j] : 0);
      w.dgain[j] += slope * n;
      w.dbias[j] += slope;
      g += centred ? slope * gain[j] / (double)d : 0;
      gn += slope * gain[j] * n / (double)d;
    }
    for (size_t j = 0; j < d; j++)
      w.dx[i * d + j] = scale * (dy[i * d + j] * gain[j] - g - (x[i * d + j] - mean) * scale * gn);
    w.mean[i] = mean;
    w.scale[i] = scale;
  }
}

static void row_norm_check(struct trm_device *device, size_t r, size_t d, bool centred, bool biased, float offset)
{
  const size_t n = r * d;
  float *x = host_random(n, 1);
  const float *gain = host_random(d, 2), *bias = biased ? host_random(d, 3) : NULL, *dy = host_random(n, 4);
  const float epsilon = 1e-5f;
  double *all = doubles(2 * n + 2 * r + 2 * d);
  const struct norm_want w = {all, all + 2 * n, all + 2 * n + r, all + n, all + 2 * n + 2 * r, all + 2 * n + 2 * r + d};

  for (size_t i = 0; i < n; i++)
    x[i] += offset;
  norm_want(x, gain, bias, dy, epsilon, centred, r, d, w);
  const float *on_x = device_floats(device, x, n), *on_gain = device_floats(device, gain, d);
  const float *on_bias = bias ? device_floats(device, bias, d) : NULL;
  float *y = device_nan(device, n), *mean = centred ? device_nan(device, r) : NULL, *scale = device_nan(device, r);
  const double loss = 4e-7 * (1 + (double)offset); /* cancellation when the mean is subtracted */

  device->ops->norm_forward(device, &(struct trm_norm_forward){
    .x = on_x, .gain = on_gain, .bias = on_bias, .epsilon = epsilon, .y = y, .mean = mean, .scale = scale, .r = r,
    .d = d});
  check_close("norm", read_floats(device, y, n), w.y, n, 4 * loss, 1e-6);
  if (centred)
    check_close("norm: mean", read_floats(device, mean, r), w.mean, r, 1e-7, 2e-7);
  check_close("norm: scale", read_floats(device, scale, r), w.scale, r, 0, 2 * loss + 1e-6);

  float *on_dy = device_floats(device, dy, n), *dx = device_nan(device, n);
  float *dgain = device_nan(device, d), *dbias = biased ? device_nan(device, d) : NULL;
  const double size = sqrt((double)r) + 1, scales = 1 + (r ? w.scale[0] : 0);
  device->ops->norm_backward(device, &(struct trm_norm_backward){
    .x = on_x, .gain = on_gain, .mean = mean, .scale = scale, .dy = on_dy, .dx = dx, .dgain = dgain, .dbias = dbias,
    .r = r, .d = d});
  check_close("norm: dx", read_floats(device, dx, n), w.dx, n, 4 * loss * scales, 2e-6);
  check_close("norm: dgain", read_floats(device, dgain, d), w.dgain, d, 2 * loss * size, 1e-6);
  if (biased)
    check_close("norm: dbias", read_floats(device, dbias, d), w.dbias, d, 4e-7 * size, 1e-6);
  /* dw is added to; dx may be NULL or in place */
  for (size_t j = 0; j < d; j++) {
    w.dgain[j] *= 2;
    w.dbias[j] *= 2;
  }
  device->ops->norm_backward(device, &(struct trm_norm_backward){
    .x = on_x, .gain = on_gain, .mean = mean, .scale = scale, .dy = on_dy, .beta = 1, .dgain = dgain, .dbias = dbias,
    .r = r, .d = d});
  check_close("norm: dgain, added", read_floats(device, dgain, d), w.dgain, d, 4 * loss * size, 1e-6);
  if (biased)
    check_close("norm: dbias, added", read_floats(device, dbias, d), w.dbias, d, 8e-7 * size, 1e-6);
  device->ops->norm_backward(device, &(struct trm_norm_backward){
    .x = on_x, .gain = on_gain, .mean = mean, .scale = scale, .dy = on_dy, .dx = on_dy, .dgain = dgain, .dbias = dbias,
    .r = r, .d = d});
  check_same("norm: dx in place", read_floats(device, on_dy, n), read_floats(device, dx, n), n);
  trm_free(all);
}

void row_norm_reference(struct trm_device *device)
{
  static const size_t shapes[][2] = {{0, 5}, {1, 1}, {3, 17}, {40, 64}, {17, 1000}, {700, 48}, {5000, 7}, {3, 3000}};

  for (size_t s = 0; s < COUNT(shapes); s++)
    for (int kind = 0; kind < 4; kind++)
      row_norm_check(device, shapes[s][0], shapes[s][1], kind % 2 == 0, kind / 2 == 0, 0);
  row_norm_check(device, 20, 100, true, true, 30); /* a mean far from 0: cancellation only */
}

/* -- embedding */

void embedding_reference(struct trm_device *device)
{
  static const size_t shapes[][3] = {{0, 3, 4}, {1, 1, 1}, {50, 17, 7}, {300, 600, 1000}, {2000, 65, 3}, {128, 33, 65}};

  for (size_t s = 0; s < COUNT(shapes); s++) {
    const size_t r = shapes[s][0], d = shapes[s][1], v = shapes[s][2];
    const float *w = host_random(v * d, 1), *dy = host_random(r * d, 2), *there = host_random(v * d, 3);
    int32_t *token = (int32_t *)host_floats(r);
    float *y = host_floats(r * d);
    double *sum = doubles(2 * v * d), *both = sum + v * d;

    for (size_t i = 0; i < r; i++) {
      token[i] = (int32_t)((i * i + i / 7) % (v > 20 ? v - 9 : v)); /* uneven frequencies; some tokens never occur */
      memcpy(y + i * d, w + (size_t)token[i] * d, d * sizeof(*y));
      for (size_t j = 0; j < d; j++)
        sum[(size_t)token[i] * d + j] += dy[i * d + j];
    }
    for (size_t j = 0; j < v * d; j++)
      both[j] = sum[j] + 0.5 * there[j];
    const int32_t *on_token = device_bytes(device, token, r * sizeof(*token));
    const float *on_dy = device_floats(device, dy, r * d);
    float *to = device_nan(device, r * d), *dw = device_nan(device, v * d), *more = device_floats(device, there, v * d);
    const struct trm_vocab_shard all = {0, v, v};
    device->ops->embedding_forward(device, &(struct trm_embedding_forward){
      .token = on_token, .w = device_floats(device, w, v * d), .y = to, .r = r, .d = d, .v = all});
    check_same("embedding", read_floats(device, to, r * d), y, r * d);
    device->ops->embedding_backward(device, &(struct trm_embedding_backward){
      .token = on_token, .dy = on_dy, .dw = dw, .r = r, .d = d, .v = all});
    const double error = 2e-7 * (8 + sqrt((double)r));
    check_close("embedding gradient", read_floats(device, dw, v * d), sum, v * d, error, 2e-7);
    device->ops->embedding_backward(device, &(struct trm_embedding_backward){
      .token = on_token, .dy = on_dy, .beta = 0.5f, .dw = more, .r = r, .d = d, .v = all});
    check_close("embedding gradient, added", read_floats(device, more, v * d), both, v * d, error, 2e-7);
    device->ops->embedding_backward(device, &(struct trm_embedding_backward){
      .token = on_token, .dy = on_dy, .beta = 1, .dw = dw, .r = r, .d = d, .v = all});
    for (size_t j = 0; j < v * d; j++)
      sum[j] *= 2;
    check_close("embedding gradient, twice", read_floats(device, dw, v * d), sum, v * d, 2 * error, 4e-7);
    trm_free(sum);
  }
}

/* A table split into two shards: partial outputs add up to the whole output. */
void embedding_parts(struct trm_device *device)
{
  enum { R = 90, D = 17, V = 23, CUT = 9 };
  static const struct trm_vocab_shard whole = {0, V, V}, parts[] = {{0, CUT, V}, {CUT, V, V}};
  const float *w = device_floats(device, host_random(V * D, 1), V * D);
  const float *dy = device_floats(device, host_random(R * D, 2), R * D);
  float *want = device_nan(device, R * D), *dwant = device_nan(device, V * D), *dw = device_nan(device, V * D);
  int32_t token[R];

  for (size_t i = 0; i < R; i++)
    token[i] = (int32_t)((i * i + i / 7) % V);
  const int32_t *on_token = device_bytes(device, token, sizeof(token));
  device->ops->embedding_forward(device, &(struct trm_embedding_forward){
    .token = on_token, .w = w, .y = want, .r = R, .d = D, .v = whole});
  device->ops->embedding_backward(device, &(struct trm_embedding_backward){
    .token = on_token, .dy = dy, .dw = dwant, .r = R, .d = D, .v = whole});
  for (int k = 0; k < 2; k++) {
    float *y = device_nan(device, R * D), *own = host_floats(R * D);

    device->ops->embedding_forward(device, &(struct trm_embedding_forward){
      .token = on_token, .w = w + parts[k].low * D, .y = y, .r = R, .d = D, .v = parts[k]});
    device->ops->embedding_backward(device, &(struct trm_embedding_backward){
      .token = on_token, .dy = dy, .dw = dw + parts[k].low * D, .r = R, .d = D, .v = parts[k]});
    for (size_t i = 0; i < R; i++)
      if ((token[i] >= CUT) == (k == 1))
        memcpy(own + i * D, read_floats(device, want, R * D) + i * D, D * sizeof(*own));
    check_same("part of an embedding", read_floats(device, y, R * D), own, R * D);
  }
  check_same("gradients of the parts", read_floats(device, dw, V * D), read_floats(device, dwant, V * D), V * D);
  CU_ASSERT_EQUAL(device->ops->sync(device), TRM_OK);
  const int32_t beyond = V;
  float *y = device_nan(device, D);
  device->ops->embedding_forward(device, &(struct trm_embedding_forward){
    .token = device_bytes(device, &beyond, sizeof(beyond)), .w = w, .y = y, .r = 1, .d = D, .v = parts[0]});
  CU_ASSERT_EQUAL(device->ops->sync(device), TRM_FAILED);
  CU_ASSERT_PTR_NOT_NULL(strstr(trm_error_text(), "has 23"));
  CU_ASSERT(isnan(read_floats(device, y, 1)[0]));
}

void embedding_bad_token(struct trm_device *device)
{
  static const int32_t token[] = {2, 3, 0, -1};
  static const struct trm_vocab_shard three = {0, 3, 3};
  const int32_t *on_token = device_bytes(device, token, sizeof(token));
  const float *w = host_random(3 * 5, 1), *dy = device_floats(device, host_random(4 * 5, 2), 4 * 5);
  float *y = device_nan(device, 4 * 5), *dw = device_nan(device, 3 * 5);

  device->ops->embedding_forward(device, &(struct trm_embedding_forward){
    .token = on_token, .w = device_floats(device, w, 3 * 5), .y = y, .r = 4, .d = 5, .v = three});
  CU_ASSERT_EQUAL(device->ops->sync(device), TRM_FAILED);
  CU_ASSERT_PTR_NOT_NULL(strstr(trm_error_text(), "token 1 is 3"));
  CU_ASSERT_PTR_NOT_NULL(strstr(trm_error_text(), "has 3"));
  check_same("what is known is there", read_floats(device, y, 5), w + 10, 5);
  CU_ASSERT(isnan(read_floats(device, y + 5, 1)[0]));
  device->ops->embedding_backward(device, &(struct trm_embedding_backward){
    .token = on_token, .dy = dy, .dw = dw, .r = 4, .d = 5, .v = three});
  for (int j = 0; j < 15; j++)
    CU_ASSERT(isfinite(read_floats(device, dw, 15)[j]));
  CU_ASSERT_EQUAL(device->ops->sync(device), TRM_OK);
}

/* -- attention */

/* y, row and the gradient of one batch, term by term, in double precision. */
static void attention_want(const struct trm_attention *a, const float *qkv, const float *dy, double *y, double *row,
                           double *dqkv)
{
  const size_t e = a->head_dim, d = a->heads * e;
  double *p = doubles(2 * a->t), *dp = p + a->t;

  for (size_t bh = 0; bh < a->b * a->heads; bh++) {
    const size_t head = bh % a->heads * e, first = bh / a->heads * a->t * d, at = 3 * first + head, to = first + head;
    const float *q = qkv + at, *k = q + d, *v = k + d;
    double *dq = dqkv + at, *dk = dq + d, *dv = dk + d;

    for (size_t i = 0; i < a->t; i++) {
      const size_t n = a->causal ? i + 1 : a->t;
      double maximum = -INFINITY, sum = 0, mean = 0;

      for (size_t j = 0; j < n; j++) {
        p[j] = 0;
        for (size_t c = 0; c < e; c++)
          p[j] += (double)q[i * 3 * d + c] * k[j * 3 * d + c] / sqrt((double)e);
        maximum = fmax(maximum, p[j]);
      }
      for (size_t j = 0; j < n; j++)
        sum += p[j] = exp(p[j] - maximum);
      row[2 * (bh * a->t + i)] = maximum;
      row[2 * (bh * a->t + i) + 1] = 1 / sum;
      for (size_t j = 0; j < n; j++) {
        p[j] /= sum;
        dp[j] = 0;
        for (size_t c = 0; c < e; c++) {
          y[to + i * d + c] += p[j] * v[j * 3 * d + c];
          dp[j] += (double)dy[to + i * d + c] * v[j * 3 * d + c];
          dv[j * 3 * d + c] += p[j] * dy[to + i * d + c];
        }
        mean += p[j] * dp[j];
      }
      for (size_t j = 0; j < n; j++)
        for (size_t c = 0; c < e; c++) {
          const double slope = p[j] * (dp[j] - mean) / sqrt((double)e);

          dq[i * 3 * d + c] += slope * k[j * 3 * d + c];
          dk[j * 3 * d + c] += slope * q[i * 3 * d + c];
        }
    }
  }
  trm_free(p);
}

/* Queries from a later one on: the same rows of y and row as of all queries. */
static void attention_check_later(struct trm_device *device, const struct trm_attention *a, const float *on_qkv,
                                  const double *y, const double *row, double error)
{
  const size_t d = a->heads * a->head_dim;

  for (int last = 0; last < 2; last++) {
    struct trm_attention later = *a;
    later.first = last ? a->t - 1 : a->t / 3;
    const size_t first = later.first, left = a->t - first;
    float *to = device_nan(device, a->b * left * d), *on_row = device_nan(device, 2 * a->b * a->heads * left);
    device->ops->attention_forward(device, &(struct trm_attention_forward){
      .shape = later, .qkv = on_qkv, .y = to, .row = on_row});
    for (size_t b = 0; b < a->b; b++)
      check_close("attention: later queries", read_floats(device, to + b * left * d, left * d),
                  y + (b * a->t + first) * d, left * d, error, 2e-6);
    for (size_t h = 0; h < a->b * a->heads; h++)
      check_close("attention: rows of later queries", read_floats(device, on_row + 2 * h * left, 2 * left),
                  row + 2 * (h * a->t + first), 2 * left, error, 1e-4);
  }
}

static void attention_check(struct trm_device *device, const struct trm_attention *a, float size)
{
  const size_t n = a->b * a->t * a->heads * a->head_dim, rows = 2 * a->b * a->t * a->heads;
  float *qkv = host_random(3 * n, 1);
  const float *dy = host_random(n, 2);
  double *y = doubles(4 * n + rows), *dqkv = y + n, *row = dqkv + 3 * n;

  for (size_t i = 0; i < 3 * n; i++)
    qkv[i] *= size;
  attention_want(a, qkv, dy, y, row, dqkv);
  const float *on_qkv = device_floats(device, qkv, 3 * n), *on_dy = device_floats(device, dy, n);
  float *to = device_nan(device, n), *on_row = device_nan(device, rows), *slope = device_nan(device, 3 * n);
  const double error = 1e-6 * (double)size * (1 + (double)(size * size));
  device->ops->attention_forward(device, &(struct trm_attention_forward){
    .shape = *a, .qkv = on_qkv, .y = to, .row = on_row});
  check_close("attention", read_floats(device, to, n), y, n, error, 2e-6);
  check_close("attention: rows", read_floats(device, on_row, rows), row, rows, error, 1e-5 * (double)(1 + size));
  attention_check_later(device, a, on_qkv, y, row, error);
  device->ops->attention_backward(device, &(struct trm_attention_backward){
    .shape = *a, .qkv = on_qkv, .y = to, .row = on_row, .dy = on_dy, .dqkv = slope});
  check_close("attention: gradient", read_floats(device, slope, 3 * n), dqkv, 3 * n, 4 * error, 4e-6);
  trm_free(y);
}

void attention_reference(struct trm_device *device)
{
  static const struct trm_attention shapes[] = {
    {0, 5, 2, 4, true, 0},   {1, 1, 1, 1, true, 0},    {2, 3, 1, 2, true, 0},    {3, 17, 2, 5, true, 0},
    {1, 64, 3, 8, true, 0},  {2, 65, 1, 16, true, 0},  {1, 150, 2, 64, true, 0}, {1, 300, 1, 12, true, 0},
    {2, 70, 3, 8, false, 0}, {1, 129, 2, 3, false, 0}, {2, 131, 2, 48, false, 0}, {1, 75, 2, 80, true, 0}};

  for (size_t s = 0; s < COUNT(shapes); s++) {
    attention_check(device, &shapes[s], 1);
    attention_check(device, &shapes[s], 6); /* large scores: nearly one-hot probabilities */
  }
}

/* Causality: outputs do not depend on later positions, bit for bit. */
void attention_causal(struct trm_device *device)
{
  enum { T = 100, H = 2, E = 16, D = H * E, CUT = 71 };
  const struct trm_attention a = {1, T, H, E, true, 0};
  float *qkv = host_random(T * 3 * D, 1);
  float *y = device_nan(device, T * D), *row = device_nan(device, 2 * H * T);

  device->ops->attention_forward(device, &(struct trm_attention_forward){
    .shape = a, .qkv = device_floats(device, qkv, T * 3 * D), .y = y, .row = row});
  const float *before = read_floats(device, y, CUT * D);
  for (size_t i = CUT * 3 * D; i < T * 3 * D; i++)
    qkv[i] = 1e3f;
  device->ops->attention_forward(device, &(struct trm_attention_forward){
    .shape = a, .qkv = device_floats(device, qkv, T * 3 * D), .y = y, .row = row});
  check_same("attention looks back", read_floats(device, y, CUT * D), before, CUT * D);
}

/* -- attention of values in bfloat16 */

/* Returns n random values on the device, and `widened` the floats that they are. */
static const trm_bf16 *attention_values(struct trm_device *device, size_t n, unsigned seed, float *widened)
{
  trm_bf16 *values = trm_alloc(n * sizeof *values, "test");
  const float *random = host_random(n, seed);

  trm_bf16_narrow(values, random, n);
  trm_bf16_widen(widened, values, n);
  const trm_bf16 *on_device = device_bytes(device, values, n * sizeof *values);
  trm_free(values);
  return on_device;
}

/* Reads n values. */
static const float *attention_read(struct trm_device *device, const trm_bf16 *from, size_t n)
{
  float *widened = host_floats(n);

  trm_bf16_widen(widened, (const trm_bf16 *)read_floats(device, (const float *)from, (n + 1) / 2), n);
  return widened;
}

static double attention_largest(const double *x, size_t n)
{
  double largest = 0;

  for (size_t i = 0; i < n; i++)
    largest = fmax(largest, fabs(x[i]));
  return largest;
}

/* Against double within roundings of the probabilities and their gradients; the last sample alone, and queries from a
 * later one on, have the same bits. */
static void attention_check_bf16(struct trm_device *device, const struct trm_attention *a)
{
  const size_t n = a->b * a->t * a->heads * a->head_dim, rows = 2 * a->b * a->t * a->heads, one = n / a->b;
  const size_t d = a->heads * a->head_dim, last = n - one, last_row = rows - rows / a->b;
  float *qkv = host_floats(3 * n), *dy = host_floats(n);
  double *y = doubles(4 * n + rows), *dqkv = y + n, *row = dqkv + 3 * n;
  const trm_bf16 *on_qkv = attention_values(device, 3 * n, 1, qkv), *on_dy = attention_values(device, n, 2, dy);
  trm_bf16 *to = (trm_bf16 *)device_nan(device, n), *slope = (trm_bf16 *)device_nan(device, 3 * n);
  trm_bf16 *alone = (trm_bf16 *)device_nan(device, n), *slope_alone = (trm_bf16 *)device_nan(device, 3 * n);
  float *on_row = device_nan(device, rows), *row_alone = device_nan(device, rows);
  struct trm_attention sample = *a, later = *a;

  attention_want(a, qkv, dy, y, row, dqkv);
  device->ops->attention_forward(device, &(struct trm_attention_forward){
    .shape = *a, .qkv = on_qkv, .y = to, .row = on_row, .type = TRM_VALUES_BF16});
  device->ops->attention_backward(device, &(struct trm_attention_backward){
    .shape = *a, .qkv = on_qkv, .y = to, .row = on_row, .dy = on_dy, .dqkv = slope, .type = TRM_VALUES_BF16});
  const float *got = attention_read(device, to, n), *got_slope = attention_read(device, slope, 3 * n);
  check_close("attention in bfloat16", got, y, n, 0x1p-8 * attention_largest(y, n), 0x1p-8);
  check_close("attention in bfloat16: rows", read_floats(device, on_row, rows), row, rows, 1e-5, 1e-5);
  check_close("attention in bfloat16: gradient", got_slope, dqkv, 3 * n, 0x1p-7 * attention_largest(dqkv, 3 * n),
              0x1p-8);
  sample.b = 1;
  device->ops->attention_forward(device, &(struct trm_attention_forward){
    .shape = sample, .qkv = on_qkv + 3 * last, .y = alone, .row = row_alone, .type = TRM_VALUES_BF16});
  device->ops->attention_backward(device, &(struct trm_attention_backward){
    .shape = sample, .qkv = on_qkv + 3 * last, .y = to + last, .row = on_row + last_row, .dy = on_dy + last,
    .dqkv = slope_alone, .type = TRM_VALUES_BF16});
  check_same("attention in bfloat16: one sample", attention_read(device, alone, one), got + last, one);
  check_same("attention in bfloat16: its gradient", attention_read(device, slope_alone, 3 * one), got_slope + 3 * last,
             3 * one);
  later.first = a->t / 3;
  if (a->t - later.first > 1) {
    const size_t left = a->t - later.first;

    device->ops->attention_forward(device, &(struct trm_attention_forward){
      .shape = later, .qkv = on_qkv, .y = alone, .row = row_alone, .type = TRM_VALUES_BF16});
    for (size_t b = 0; b < a->b; b++)
      check_same("attention in bfloat16: later queries", attention_read(device, alone, a->b * left * d) + b * left * d,
                 got + (b * a->t + later.first) * d, left * d);
  }
  trm_free(y);
}

static const struct attention_kernels *attention_kind;
static const struct attention_blocks *attention_blocks;

/* Sets what the CPU device, and the one within a pretended device, compute attention with. */
static void attention_set(struct trm_device *device)
{
  struct trm_device *const cpu[] = {trm_device_host(device),
                                    device->host_memory ? device : pretend_device_cpu(device)};
  for (int i = 0; i < 2; i++) {
    struct cpu_state *state = cpu[i]->impl;

    state->attention = attention_kind;
    state->attention_blocks = attention_blocks;
  }
}

static void attention_in_blocks(struct trm_device *device)
{
  static const struct trm_attention shapes[] = {
    {1, 2, 1, 1, true, 0},    {2, 31, 2, 5, true, 0},    {3, 33, 1, 16, true, 0},  {2, 65, 3, 20, true, 0},
    {1, 256, 2, 64, true, 0}, {2, 150, 1, 48, true, 0},  {1, 300, 2, 128, true, 0}, {1, 129, 1, 80, true, 0},
    {2, 70, 3, 8, false, 0},  {1, 128, 2, 32, false, 0}, {2, 131, 2, 64, false, 0}, {1, 161, 1, 128, false, 0}};

  attention_set(device);
  for (size_t s = 0; s < COUNT(shapes); s++)
    attention_check_bf16(device, &shapes[s]);
}

/* Values in bfloat16, and factors if the device's products round them. */
static void attention_of_values(struct trm_device *device)
{
  attention_set(device);
  values_sequences(device);
}

static void attention_one_kind(struct trm_device *device)
{
  attention_set(device);
  attention_reference(device);
  attention_causal(device);
}

void attention_every_processor(void)
{
  if (on_other_device())
    return;
  attention_blocks = NULL;
  for (int k = 0; attention_kernels_table[k]; k++)
    if (attention_kernels_table[k]->supported()) {
      attention_kind = attention_kernels_table[k];
      on_devices(attention_one_kind);
    }
  attention_kind = NULL; /* products by the library */
  on_devices(attention_one_kind);
  on_devices(attention_of_values);
  const struct trm_blas_ops *rounds = trm_blas_find("auto", TRM_MATMUL_BF16);
  for (int k = 0; attention_blocks_table[k]; k++)
    if (attention_blocks_table[k]->supported()) {
      attention_blocks = attention_blocks_table[k];
      on_devices(attention_in_blocks);
      if (rounds && rounds->open(1) == TRM_OK)
        on_devices_with(attention_of_values, rounds);
    }
}

/* -- rotary positions, swiglu */

void rotary_reference(struct trm_device *device)
{
  static const struct trm_attention shapes[] = {
    {0, 5, 2, 4, true, 0}, {1, 1, 1, 2, true, 0}, {2, 7, 3, 6, true, 0}, {3, 300, 2, 64, true, 0},
    {1, 290, 2, 6, true, 289}, {2, 1500, 1, 4, true, 1490}, {2, 9, 1, 4, true, 3}};

  for (size_t s = 0; s < COUNT(shapes); s++) {
    const struct trm_attention *a = &shapes[s];
    const size_t heads = a->heads, half = a->head_dim / 2, left = a->t - a->first;
    const size_t n = a->b * left * 3 * heads * a->head_dim;
    const float *x = host_random(n, 1);
    double *want = doubles(2 * n), *same = want + n;

    for (size_t i = 0; i < n; i++)
      want[i] = same[i] = x[i]; /* v is not rotated */
    for (size_t i = 0; i < a->b * left; i++)
      for (size_t h = 0; h < 2 * heads; h++)
        for (size_t j = 0; j < half; j++) {
          const double angle = (double)(a->first + i % left) * pow(500, -2 * (double)j / (double)a->head_dim);
          const size_t at = (i * 3 * heads + h) * a->head_dim + j;

          want[at] = x[at] * cos(angle) - x[at + half] * sin(angle);
          want[at + half] = x[at + half] * cos(angle) + x[at] * sin(angle);
        }
    float *on_x = device_floats(device, x, n);
    device->ops->rotary(device, &(struct trm_rotary){.shape = *a, .base = 500, .x = on_x});
    check_close("rotary", read_floats(device, on_x, n), want, n, 2e-7, 2e-7);
    device->ops->rotary(device, &(struct trm_rotary){.shape = *a, .base = 500, .inverse = true, .x = on_x});
    check_close("rotary and back", read_floats(device, on_x, n), same, n, 4e-7, 4e-7);
    trm_free(want);
  }
}

void swiglu_reference(struct trm_device *device)
{
  static const size_t shapes[][2] = {{0, 3}, {1, 1}, {3, 17}, {100, 300}};

  for (size_t s = 0; s < COUNT(shapes); s++) {
    const size_t r = shapes[s][0], f = shapes[s][1];
    float *x = host_random(2 * r * f, 1);
    const float *dy = host_random(r * f, 2);
    double *y = doubles(3 * r * f), *dx = y + r * f;

    for (size_t i = 0; i < 2 * r * f; i++)
      x[i] *= 10;
    for (size_t i = 0; i < r * f; i++) {
      const size_t at = i / f * 2 * f + i % f;
      const double a = x[at], b = x[at + f], gate = 1 / (1 + exp(-a));

      y[i] = a * gate * b;
      dx[at] = dy[i] * b * (gate + a * gate * (1 - gate));
      dx[at + f] = dy[i] * a * gate;
    }
    const float *on_x = device_floats(device, x, 2 * r * f), *on_dy = device_floats(device, dy, r * f);
    float *to = device_nan(device, r * f), *slope = device_nan(device, 2 * r * f);
    device->ops->swiglu_forward(device, &(struct trm_swiglu_forward){.x = on_x, .y = to, .r = r, .f = f});
    check_close("swiglu", read_floats(device, to, r * f), y, r * f, 1e-7, 1e-6);
    device->ops->swiglu_backward(device, &(struct trm_swiglu_backward){
      .x = on_x, .dy = on_dy, .dx = slope, .r = r, .f = f});
    check_close("swiglu gradient", read_floats(device, slope, 2 * r * f), dx, 2 * r * f, 4e-6, 1e-6);
    trm_free(y);
  }
}
