/* Kernels of bfloat16 values against the same kernels of float32 on the widened values. */
#include <CUnit/CUnit.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/device_arrays.h"
#include "core/memory.h"
#include "kernels.h"

typedef size_t values_arrays(const void *call, struct trm_call_array *array);
typedef void values_run(struct trm_device *device, const void *call);

/* A kernel's call in both types: arrays[0] and call[0] of float32, [1] of bfloat16. */
struct pair {
  const char *name;
  void *call[2];
  struct trm_call_array array[2][TRM_CALL_ARRAYS];
  size_t arrays;
  double tolerance; /* of the largest value of an array; 0: float32's result, rounded */
  size_t terms;     /* of sums whose order is a library's, on a device other than the CPU; 0: the kernel's order */
  bool everywhere;  /* on the CPU, too */
};

/* The error of a library's float32 sum of k terms is below SUM_ERROR * sqrt(k) unit roundoffs of the largest value: the
 * roundings of random terms add up like a random walk, and two orders are compared. A result in bfloat16 is rounded
 * once more. */
#define SUM_ERROR 4
#define ROUNDOFF_F32 0x1p-24
#define ROUNDOFF_BF16 0x1p-8

static bool values_narrow(const struct pair *it, size_t a)
{
  return it->array[0][a].bytes != it->array[1][a].bytes;
}

static trm_bf16 *values_rounded(const float *x, size_t n)
{
  trm_bf16 *y = (trm_bf16 *)host_floats(n / 2 + 1);

  for (size_t i = 0; i < n; i++)
    y[i] = trm_bf16_round(x[i]);
  return y;
}

/* Replaces the host arrays in both calls by device arrays, of which those of values are rounded in the second and equal
 * to that in the first. An array that is two fields' remains one. */
static void values_place(struct trm_device *device, struct pair *it)
{
  const void *host[TRM_CALL_ARRAYS];
  void *placed[2][TRM_CALL_ARRAYS];

  for (size_t a = 0; a < it->arrays; a++) {
    const size_t n = it->array[0][a].bytes / sizeof(float);
    size_t same = 0;

    host[a] = trm_call_pointer(it->call[0], &it->array[0][a]);
    while (host[same] != host[a])
      same++;
    if (same < a) {
      placed[0][a] = placed[0][same];
      placed[1][a] = placed[1][same];
    } else if (values_narrow(it, a)) {
      trm_bf16 *narrow = values_rounded(host[a], n);
      float *wide = host_floats(n);

      for (size_t i = 0; i < n; i++)
        wide[i] = trm_bf16_value(narrow[i]);
      placed[0][a] = device_floats(device, wide, n);
      placed[1][a] = device_bytes(device, narrow, n * sizeof(*narrow));
    } else {
      placed[0][a] = device_bytes(device, host[a], it->array[0][a].bytes);
      placed[1][a] = device_bytes(device, host[a], it->array[0][a].bytes);
    }
  }
  for (int type = 0; type < 2; type++)
    for (size_t a = 0; a < it->arrays; a++)
      trm_call_set_pointer(it->call[type], &it->array[type][a], placed[type][a]);
}

/* Returns the bytes of an array on the device, which go into the digest. */
static void *values_read(struct trm_device *device, const struct pair *it, int type, size_t a)
{
  const size_t bytes = it->array[type][a].bytes;
  void *got = host_floats(bytes / sizeof(float) + 1);

  read_floats(device, trm_call_pointer(it->call[type], &it->array[type][a]), bytes / sizeof(float));
  device->ops->download(device, got, trm_call_pointer(it->call[type], &it->array[type][a]), bytes);
  return got;
}

/* Compares what both calls wrote to array a. */
static void values_compare(struct trm_device *device, const struct pair *it, size_t a)
{
  const size_t n = it->array[0][a].bytes / sizeof(float);
  const float *wide = values_read(device, it, 0, a);
  const void *got = values_read(device, it, 1, a);
  float *widened = host_floats(n), *want = host_floats(n);
  double *near = trm_alloc(n * sizeof(*near), "want"), largest = 0;
  char text[96];

  snprintf(text, sizeof(text), "%s in bfloat16: array %zu", it->name, a);
  for (size_t i = 0; i < n; i++) {
    widened[i] = values_narrow(it, a) ? trm_bf16_value(((const trm_bf16 *)got)[i]) : ((const float *)got)[i];
    want[i] = values_narrow(it, a) ? trm_bf16_value(trm_bf16_round(wide[i])) : wide[i];
    near[i] = wide[i];
    largest = fabs(near[i]) > largest ? fabs(near[i]) : largest;
  }
  if (it->tolerance > 0)
    check_within(text, widened, near, n, it->tolerance * largest, values_narrow(it, a) ? 2 * ROUNDOFF_BF16 : 0);
  else if (it->terms > 0 && (it->everywhere || on_other_device()))
    check_within(text, widened, near, n, SUM_ERROR * ROUNDOFF_F32 * sqrt((double)it->terms) * largest,
                 values_narrow(it, a) ? ROUNDOFF_BF16 : 0);
  else
    check_same(text, widened, want, n);
  trm_free(near);
}

static void values_check(struct trm_device *device, struct pair *it, values_run *run, values_arrays *arrays)
{
  it->arrays = arrays(it->call[0], it->array[0]);
  CU_ASSERT_EQUAL_FATAL(arrays(it->call[1], it->array[1]), it->arrays);
  values_place(device, it);
  run(device, it->call[0]);
  run(device, it->call[1]);
  for (size_t a = 0; a < it->arrays; a++)
    if (it->array[0][a].access & TRM_WRITES)
      values_compare(device, it, a);
}

/* slot_values(device, tolerance, call): a call whose arrays are host arrays of floats. */
#define VALUES(slot, type_name, narrow) VALUES_SUMS(slot, type_name, narrow, 0, false)
/* The same of sums in a library's order: of `terms` terms, on the CPU, too, if it is `everywhere`, which a call `wide`
 * says. */
#define VALUES_SUMS(slot, type_name, narrow, count, on_cpu)                                                  \
  static void slot##_run(struct trm_device *device, const void *call)                                        \
  {                                                                                                          \
    device->ops->slot(device, call);                                                                         \
  }                                                                                                          \
  static size_t slot##_arrays(const void *call, struct trm_call_array *array)                                \
  {                                                                                                          \
    return type_name##_arrays(call, array);                                                                  \
  }                                                                                                          \
  static void slot##_values(struct trm_device *device, double tolerance, struct type_name wide)              \
  {                                                                                                          \
    struct type_name it = wide;                                                                              \
    it.narrow = TRM_VALUES_BF16;                                                                             \
    values_check(device, &(struct pair){                                                                     \
      .name = #slot, .call = {&wide, &it}, .tolerance = tolerance, .terms = (count), .everywhere = (on_cpu)}, \
      slot##_run, slot##_arrays);                                                                            \
  }

/* True if the library for convolutions may compute it in one of the types. */
static bool values_library(const struct trm_conv2d *conv)
{
  return conv->groups == 1 && conv->channels >= 16;
}

/* Returns the elements of a kernel. */
static size_t values_taps(const struct trm_conv2d *conv)
{
  return conv->window.kernel[0] * conv->window.kernel[1];
}

VALUES_SUMS(gemm, trm_gemm, type_ab, wide.k, false)
VALUES(csr_forward, trm_csr_forward, type)
VALUES(csr_backward, trm_csr_backward, type)
VALUES(bias_add, trm_bias_add, type)
VALUES(bias_backward, trm_bias_backward, type)
VALUES(activation_forward, trm_activation_forward, type)
VALUES(activation_backward, trm_activation_backward, type)
VALUES(dropout, trm_dropout, type)
VALUES(norm_forward, trm_norm_forward, type)
VALUES(norm_backward, trm_norm_backward, type)
VALUES(embedding_forward, trm_embedding_forward, type)
VALUES(embedding_backward, trm_embedding_backward, type)
VALUES(attention_forward, trm_attention_forward, type)
VALUES(attention_backward, trm_attention_backward, type)
VALUES(rotary, trm_rotary, type)
VALUES(swiglu_forward, trm_swiglu_forward, type)
VALUES(swiglu_backward, trm_swiglu_backward, type)
VALUES_SUMS(conv2d_forward, trm_conv2d_forward, type, values_taps(&wide.conv) * wide.conv.channels,
            values_library(&wide.conv))
VALUES_SUMS(conv2d_backward, trm_conv2d_backward, type,
            wide.dx ? values_taps(&wide.conv) * wide.conv.units
                    : wide.b * wide.conv.window.out[0] * wide.conv.window.out[1],
            values_library(&wide.conv))
VALUES(max_pool_forward, trm_max_pool_forward, type)
VALUES(max_pool_backward, trm_max_pool_backward, type)
VALUES(avg_pool_forward, trm_avg_pool_forward, type)
VALUES(avg_pool_backward, trm_avg_pool_backward, type)
VALUES(batch_norm_moments, trm_batch_norm_moments, type)
VALUES(batch_norm_forward, trm_batch_norm_forward, type)
VALUES(batch_norm_sums, trm_batch_norm_sums, type)
VALUES(batch_norm_backward, trm_batch_norm_backward, type)
VALUES(softmax_cross_entropy, trm_softmax_cross_entropy, type)
VALUES(softmax_shard_stats, trm_softmax_shard_stats, type)
VALUES(softmax_shard_gradient, trm_softmax_shard_gradient, type)
VALUES(mean_squared_error, trm_value_loss, type)
VALUES(logistic, trm_margin_loss, type)
VALUES(hinge, trm_margin_loss, type)
VALUES(add, trm_add, type)
VALUES(linear_forward, trm_linear_forward, type)
VALUES(linear_backward, trm_linear_backward, type)
VALUES(add_norm_forward, trm_add_norm_forward, norm.type)
VALUES(add_norm_backward, trm_add_norm_backward, norm.type)

/* Rows and columns: fewer and more than a chunk, odd. */
static const size_t values_shape[][2] = {{1, 1}, {3, 17}, {70, 131}, {5, 5003}, {701, 67}};

void values_rows(struct trm_device *device)
{
  for (size_t s = 0; s < COUNT(values_shape); s++) {
    const size_t b = values_shape[s][0], f = values_shape[s][1], n = b * f;
    float *x = host_random(n, 1), *dy = host_random(n, 2), *bias = host_random(f, 3), *to = host_random(n, 4);
    const struct trm_mask mask = {.seed = 5, .stream = 1, .first_row = 77, .rate = 0.3f};
    const struct trm_mask shard = {.seed = 5, .stream = 1, .first_row = 77, .rate = 0.3f, .stride = f + 9, .offset = 5};

    bias_add_values(device, 0, (struct trm_bias_add){.y = x, .bias = bias, .b = b, .n = f});
    bias_backward_values(device, 0, (struct trm_bias_backward){.dy = x, .db = bias, .beta = 1, .b = b, .n = f});
    for (enum trm_activation kind = TRM_RELU; kind <= TRM_SCALE; kind++) {
      activation_forward_values(device, 0, (struct trm_activation_forward){.kind = kind, .slope = 0.1f, .x = x, .y = to, .n = n});
      activation_forward_values(device, 0, (struct trm_activation_forward){.kind = kind, .slope = 0.1f, .x = x, .y = x, .n = n});
      activation_backward_values(device, 0, (struct trm_activation_backward){
        .kind = kind, .slope = 0.1f, .x = x, .y = x, .dy = dy, .dx = kind % 2 ? dy : to, .n = n});
    }
    dropout_values(device, 0, (struct trm_dropout){.mask = mask, .x = x, .y = to, .b = b, .f = f});
    dropout_values(device, 0, (struct trm_dropout){.mask = shard, .x = x, .y = x, .b = b, .f = f});
    for (int rms = 0; rms < 2; rms++) {
      float *mean = rms ? NULL : host_random(b, 5), *scale = host_random(b, 6), *gain = host_random(f, 7);

      norm_forward_values(device, 0, (struct trm_norm_forward){
        .x = x, .gain = gain, .bias = bias, .epsilon = 1e-5f, .y = to, .mean = mean, .scale = scale, .r = b, .d = f});
      norm_backward_values(device, 0, (struct trm_norm_backward){
        .x = x, .dy = dy, .gain = gain, .mean = mean, .scale = scale, .dx = rms ? dy : to, .beta = 1,
        .dgain = host_random(f, 8), .dbias = rms ? NULL : bias, .r = b, .d = f});
    }
    add_values(device, 0, (struct trm_add){.a = x, .b = dy, .y = s % 2 ? x : to, .n = n});
  }
}

/* Values between the composed calls are rounded, or not. */
void values_fused(struct trm_device *device)
{
  static const size_t fused_shape[][3] = {{1, 1, 9}, {3, 17, 9}, {12, 24, 16}, {70, 131, 9}};

  for (size_t s = 0; s < COUNT(fused_shape); s++) {
    const size_t b = fused_shape[s][0], f = fused_shape[s][1], n = b * f, units = fused_shape[s][2];
    float *x = host_random(n, 1), *dy = host_random(n, 2), *w = host_random(units * f, 3);
    float *y = host_random(b * units, 4), *gain = host_random(f, 5), *bias = host_random(f, 6);
    float *mean = host_random(b, 7), *scale = host_random(b, 8);
    const struct trm_mask mask = {.seed = 5, .stream = 1, .first_row = 77, .rate = s % 2 ? 0.3f : 0};

    for (enum trm_activation kind = TRM_RELU; kind <= TRM_SILU; kind++) {
      linear_forward_values(device, 0x1p-7, (struct trm_linear_forward){
        .x = x, .w = w, .bias = host_random(units, 9), .y = y, .kind = kind, .z = kind % 2 ? y : host_floats(b * units),
        .b = b, .n = units, .k = f, .ld = units});
      linear_backward_values(device, 0x1p-7, (struct trm_linear_backward){
        .x = x, .w = w, .dy = y, .beta = 1, .dw = host_random(units * f, 9), .db = host_random(units, 10),
        .dx = host_floats(n), .through = true, .kind = kind, .u = dy, .b = b, .n = units, .k = f,
        .ld = units});
    }
    add_norm_forward_values(device, 0x1p-7, (struct trm_add_norm_forward){
      .a = x, .b = dy, .mask = mask, .f = f, .s = s % 2 ? dy : host_floats(n),
      .norm = {.gain = gain, .bias = bias, .epsilon = 1, .y = host_floats(n), .mean = host_floats(b),
               .scale = host_floats(b), .r = b, .d = f}});
    float *dx = host_floats(n);
    add_norm_backward_values(device, 0x1p-7, (struct trm_add_norm_backward){
      .norm = {.x = x, .dy = dy, .gain = gain, .mean = mean, .scale = scale, .dx = dx, .beta = 1,
               .dgain = host_random(f, 9), .dbias = bias, .r = b, .d = f},
      .other = host_random(n, 10), .sum = dx});
  }
}

void values_losses(struct trm_device *device)
{
  for (size_t s = 0; s < COUNT(values_shape); s++) {
    const size_t b = values_shape[s][0], c = values_shape[s][1], ld = c + s % 2 * 5, n = b * ld;
    float *z = host_random(n, 1), *dz = host_floats(n), *loss = host_floats(b), *correct = host_floats(b);
    float *stats = host_floats(b * TRM_SCORES_FIELDS), *one = host_floats(b), *label = host_random(b, 2);
    int32_t *target = (int32_t *)host_floats(b);
    const struct trm_vocab_shard v = {3, 3 + c, c + 7};

    for (size_t i = 0; i < b; i++) {
      target[i] = i % 5 == 3 ? TRM_IGNORE_INDEX : (int32_t)(i * 7 % c);
      label[i] = label[i] < 0 ? -1 : 1;
      one[i] = 1 + (float)i;
    }
    softmax_cross_entropy_values(device, 0, (struct trm_softmax_cross_entropy){
      .z = z, .target = target, .scale = 0.5f, .smoothing = s % 2 ? 0.1f : 0, .loss = loss, .correct = correct,
      .dz = s % 3 ? dz : z, .b = b, .c = c, .ld = ld});
    softmax_shard_stats_values(device, 0, (struct trm_softmax_shard_stats){
      .z = z, .target = target, .v = v, .stats = stats, .b = b, .ld = ld});
    softmax_shard_gradient_values(device, 0, (struct trm_softmax_shard_gradient){
      .z = z, .target = target, .v = v, .max = one, .sum = one, .scale = 0.5f, .smoothing = 0.1f, .dz = z, .b = b,
      .ld = ld});
    mean_squared_error_values(device, 0, (struct trm_value_loss){
      .z = z, .target = host_random(n, 9), .scale = 3, .loss = loss, .correct = correct, .dz = dz, .b = b, .f = c,
      .ld = ld});
    logistic_values(device, 0, (struct trm_margin_loss){
      .z = z, .target = label, .scale = 2, .loss = loss, .correct = correct, .dz = dz, .b = b});
    hinge_values(device, 0, (struct trm_margin_loss){
      .z = z, .target = label, .scale = 2, .loss = loss, .correct = correct, .dz = dz, .b = b});
  }
}

static void values_attention(struct trm_device *device, struct trm_attention shape)
{
  const size_t n = shape.b * shape.t * shape.heads * shape.head_dim, rows = shape.b * shape.heads * shape.t;
  float *qkv = host_random(3 * n, 1), *y = host_floats(n), *row = host_floats(2 * rows), *dy = host_random(n, 2);
  float *on_y = device_nan(device, n), *on_row = device_nan(device, 2 * rows), *widened = host_floats(3 * n);

  for (size_t i = 0; i < 3 * n; i++)
    widened[i] = trm_bf16_value(trm_bf16_round(qkv[i]));
  attention_forward_values(device, 0x1p-8, (struct trm_attention_forward){
    .shape = shape, .qkv = qkv, .y = y, .row = row});
  /* backward reads what forward saved */
  device->ops->attention_forward(device, &(struct trm_attention_forward){
    .shape = shape, .qkv = device_floats(device, widened, 3 * n), .y = on_y, .row = on_row});
  attention_backward_values(device, 0x1p-7, (struct trm_attention_backward){
    .shape = shape, .qkv = qkv, .y = read_floats(device, on_y, n), .dy = dy,
    .row = read_floats(device, on_row, 2 * rows), .dqkv = host_floats(3 * n)});
  if (shape.head_dim % 2 == 0)
    rotary_values(device, 0, (struct trm_rotary){.shape = shape, .base = 10000, .x = qkv});
}

void values_sequences(struct trm_device *device)
{
  static const struct trm_attention shapes[] = {
    {1, 1, 1, 1, true, 0},   {3, 17, 2, 5, true, 0},    {2, 65, 2, 16, true, 0},   {1, 150, 2, 64, true, 0},
    {2, 70, 3, 8, false, 0}, {1, 130, 1, 32, false, 0}, {1, 70, 2, 80, false, 0}, {1, 90, 1, 128, true, 0}};
  enum { R = 331, D = 77, V = 50 };
  const struct trm_vocab_shard v = {5, 5 + V, 90};
  int32_t *token = (int32_t *)host_floats(R);

  for (size_t s = 0; s < COUNT(shapes); s++)
    values_attention(device, shapes[s]);
  for (int i = 0; i < R; i++)
    token[i] = i * 31 % 90;
  embedding_forward_values(device, 0, (struct trm_embedding_forward){
    .token = token, .w = host_random(V * D, 1), .y = host_floats(R * D), .r = R, .d = D, .v = v});
  embedding_backward_values(device, 0, (struct trm_embedding_backward){
    .token = token, .dy = host_random(R * D, 1), .beta = 1, .dw = host_random(V * D, 2), .r = R, .d = D, .v = v});
  swiglu_forward_values(device, 0, (struct trm_swiglu_forward){
    .x = host_random(2 * R * D, 1), .y = host_floats(R * D), .r = R, .f = D});
  swiglu_backward_values(device, 0, (struct trm_swiglu_backward){
    .x = host_random(2 * R * D, 1), .dy = host_random(R * D, 2), .dx = host_floats(2 * R * D), .r = R, .f = D});
}

static void values_convolution(struct trm_device *device, const struct trm_conv2d *conv, size_t b)
{
  const struct trm_window2d *win = &conv->window;
  const size_t in = b * conv->channels * win->in[0] * win->in[1], w = trm_conv2d_weights(conv);
  const size_t out = b * conv->units * win->out[0] * win->out[1];

  conv2d_forward_values(device, 0, (struct trm_conv2d_forward){
    .conv = *conv, .x = host_random(in, 1), .w = host_random(w, 2), .bias = host_random(conv->units, 3),
    .y = host_floats(out), .b = b});
  conv2d_backward_values(device, 0, (struct trm_conv2d_backward){
    .conv = *conv, .w = host_random(w, 2), .dy = host_random(out, 1), .dx = host_random(in, 4), .b = b});
  conv2d_backward_values(device, 0, (struct trm_conv2d_backward){
    .conv = *conv, .x = host_random(in, 1), .dy = host_random(out, 2), .beta = 1, .dw = host_random(w, 3),
    .db = host_random(conv->units, 4), .b = b});
}

void values_images(struct trm_device *device)
{
  static const struct trm_conv2d conv[] = {
    {{{3, 3}, {1, 1}, {1, 1}, {9, 11}, {9, 11}}, 4, 6, 1, 0, 0},
    {{{3, 3}, {2, 2}, {1, 1}, {9, 20}, {5, 10}}, 4, 10, 2, 0, 0},
    {{{1, 1}, {2, 2}, {0, 0}, {8, 8}, {4, 4}}, 3, 5, 1, 0, 0},
    {{{5, 2}, {3, 1}, {2, 0}, {20, 7}, {7, 6}}, 2, 3, 1, 0, 0},
    {{{3, 3}, {1, 1}, {1, 1}, {40, 40}, {40, 40}}, 3, 17, 1, 0, 0},
    {{{5, 5}, {2, 2}, {2, 2}, {16, 16}, {8, 8}}, 16, 40, 2, 0, 0},
    {{{3, 3}, {1, 1}, {1, 1}, {13, 13}, {13, 13}}, 15, 140, 1, 0, 0},
    {{{3, 3}, {1, 1}, {1, 1}, {7, 7}, {7, 7}}, 32, 48, 1, 0, 0},
    {{{3, 3}, {2, 2}, {1, 1}, {16, 16}, {8, 8}}, 16, 32, 1, 0, 0}};
  static const struct trm_window2d pool[] = {{{2, 2}, {2, 2}, {0, 0}, {10, 12}, {5, 6}},
                                             {{3, 3}, {2, 2}, {1, 1}, {9, 9}, {5, 5}},
                                             {{70, 70}, {1, 1}, {0, 0}, {70, 70}, {1, 1}}};

  for (size_t i = 0; i < COUNT(conv); i++)
    values_convolution(device, &conv[i], 3);
  for (size_t i = 0; i < COUNT(pool); i++) {
    const size_t planes = 7, in = planes * pool[i].in[0] * pool[i].in[1];
    const size_t out = planes * pool[i].out[0] * pool[i].out[1];
    float *x = host_random(in, 1), *dy = host_random(out, 2);
    int32_t *argmax = (int32_t *)host_floats(out);

    max_pool_forward_values(device, 0, (struct trm_max_pool_forward){
      .window = pool[i], .x = x, .y = host_floats(out), .argmax = i % 2 ? argmax : NULL, .planes = planes});
    for (size_t j = 0; j < out; j++)
      argmax[j] = (int32_t)(j * 13 % (in / planes));
    max_pool_backward_values(device, 0, (struct trm_max_pool_backward){
      .window = pool[i], .dy = dy, .argmax = argmax, .dx = x, .planes = planes});
    avg_pool_forward_values(device, 0, (struct trm_avg_pool_forward){
      .window = pool[i], .x = x, .y = host_floats(out), .planes = planes});
    avg_pool_backward_values(device, 0, (struct trm_avg_pool_backward){
      .window = pool[i], .dy = dy, .dx = x, .planes = planes});
  }
}

/* Converts n values in device memory. */
static void *values_converted(struct trm_device *device, const void *from, enum trm_value_type type, size_t n)
{
  void *to = device_nan(device, n);

  device->ops->convert(device, &(struct trm_convert){
    .from = from, .to = to, .n = n, .type_from = type == TRM_VALUES_F32 ? TRM_VALUES_BF16 : TRM_VALUES_F32,
    .type_to = type});
  return to;
}

/* In bfloat16 a norm with an add and relu has the bits of the three calls. */
static void batch_norm_forward_steps(struct trm_device *device, struct trm_batch_norm_forward call)
{
  const size_t c = call.bn.channels, n = call.b * c * call.bn.size;
  const void *addend = values_converted(device, device_floats(device, call.addend, n), TRM_VALUES_BF16, n);
  void *y = device_nan(device, n), *fused = device_nan(device, n);

  call.type = TRM_VALUES_BF16;
  call.x = values_converted(device, device_floats(device, call.x, n), TRM_VALUES_BF16, n);
  call.mean = call.bias = device_floats(device, call.mean, c);
  call.square = device_floats(device, call.square, c);
  call.w = device_floats(device, call.w, c);
  call.addend = addend;
  call.relu = true;
  call.y = fused;
  device->ops->batch_norm_forward(device, &call);
  call.addend = NULL;
  call.relu = false;
  call.y = y;
  device->ops->batch_norm_forward(device, &call);
  device->ops->add(device, &(struct trm_add){.a = y, .b = addend, .y = y, .n = n, .type = TRM_VALUES_BF16});
  device->ops->activation_forward(device, &(struct trm_activation_forward){
    .kind = TRM_RELU, .x = y, .y = y, .n = n, .type = TRM_VALUES_BF16});
  check_same("norm, add and relu", read_floats(device, values_converted(device, fused, TRM_VALUES_F32, n), n),
             read_floats(device, values_converted(device, y, TRM_VALUES_F32, n), n), n);
}

void values_batch_norm(struct trm_device *device)
{
  static const struct trm_batch_norm bn[] = {
    {5, 1, 37, 1e-5f, NULL}, {3, 40, 1480, 1e-5f, NULL}, {2, 2500, 92500, 1e-5f, NULL}};
  const size_t b = 37;

  for (size_t s = 0; s < COUNT(bn); s++) {
    const size_t c = bn[s].channels, n = b * c * bn[s].size;
    float *x = host_random(n, 1), *dy = host_random(n, 2), *mean = host_random(c, 3), *square = host_floats(c);
    float *w = host_random(c, 4), *sums = host_random(2 * c, 5);

    for (size_t i = 0; i < c; i++)
      square[i] = (float)bn[s].count / 3;
    batch_norm_moments_values(device, 0, (struct trm_batch_norm_moments){.bn = bn[s], .x = x, .moments = sums, .b = b});
    batch_norm_forward_values(device, 0, (struct trm_batch_norm_forward){
      .bn = bn[s], .x = x, .mean = mean, .square = square, .w = w, .bias = mean, .y = s % 2 ? x : dy, .b = b});
    batch_norm_forward_values(device, 0, (struct trm_batch_norm_forward){
      .bn = bn[s], .x = x, .mean = mean, .square = square, .w = w, .bias = mean, .relu = true, .y = dy, .b = b});
    batch_norm_forward_steps(device, (struct trm_batch_norm_forward){
      .bn = bn[s], .x = x, .mean = mean, .square = square, .w = w, .bias = mean, .addend = dy, .b = b});
    batch_norm_sums_values(device, 0, (struct trm_batch_norm_sums){
      .bn = bn[s], .x = x, .dy = dy, .mean = mean, .square = square, .sums = sums, .b = b});
    batch_norm_backward_values(device, 0, (struct trm_batch_norm_backward){
      .bn = bn[s], .x = x, .dy = dy, .mean = mean, .square = square, .w = w, .sums = sums,
      .dx = s % 2 ? dy : host_floats(n), .b = b});
    batch_norm_sums_values(device, 0, (struct trm_batch_norm_sums){
      .bn = bn[s], .x = x, .dy = dy, .mean = mean, .square = square, .w = w, .bias = mean, .relu = true, .sums = sums,
      .b = b});
    batch_norm_backward_values(device, 0, (struct trm_batch_norm_backward){
      .bn = bn[s], .x = x, .dy = dy, .mean = mean, .square = square, .w = w, .bias = mean, .relu = true, .sums = sums,
      .dx = s % 2 ? dy : host_floats(n), .b = b});
  }
}

/* C, too: the other call's, rounded, or its neighbour where that is nearly a tie. */
static void gemm_rounded_values(struct trm_device *device, struct trm_gemm wide)
{
  struct trm_gemm it = wide;

  it.type_ab = it.type_c = TRM_VALUES_BF16;
  values_check(device, &(struct pair){.name = "gemm, C rounded", .call = {&wide, &it}, .tolerance = 1e-6}, gemm_run,
               gemm_arrays);
}

/* Products of bfloat16 factors: exact terms, sums in float32; C of either type. */
void values_products(struct trm_device *device)
{
  static const size_t shapes[][3] = {{1, 1, 1}, {3, 17, 5}, {33, 65, 100}, {258, 300, 257}, {4, 6, 0}, {1, 302, 257}};

  for (size_t s = 0; s < COUNT(shapes); s++)
    for (int kind = 0; kind < 12; kind++) { /* 8 to 11: C rounded */
      const size_t m = shapes[s][0], n = shapes[s][1], k = shapes[s][2];
      struct trm_gemm it = {.transpose_a = kind & 1, .transpose_b = kind & 2, .m = m, .n = n, .k = k, .alpha = 1,
                            .beta = kind & 4 ? 1 : 0, .a = host_random(m * k + 1, 1), .b = host_random(k * n + 1, 2),
                            .c = host_random(m * n, 3), .lda = kind & 1 ? m : k, .ldb = kind & 2 ? k : n, .ldc = n};

      if (kind & 8)
        gemm_rounded_values(device, it);
      else
        gemm_values(device, 1e-6 * (1 + sqrt((double)k)), it);
    }
}

/* A linear model of sparse rows. */
void values_sparse(struct trm_device *device)
{
  enum { B = 40, K = 300, N = 3, EACH = 7 };
  int64_t *starts = (int64_t *)host_floats(2 * (B + 1));
  int32_t *columns = (int32_t *)host_floats(B * EACH);

  for (int i = 0; i <= B; i++)
    starts[i] = i * EACH;
  for (int i = 0; i < B * EACH; i++)
    columns[i] = i % EACH * 41 + i % 13;
  const struct trm_csr x = {starts, columns, host_random(B * EACH, 1), B, K, B * EACH};
  csr_forward_values(device, 0, (struct trm_csr_forward){
    .x = x, .w = host_random(N * K, 2), .y = host_floats(B * N), .n = N});
  csr_backward_values(device, 0, (struct trm_csr_backward){
    .x = x, .dy = host_random(B * N, 2), .beta = 1, .dw = host_random(N * K, 3), .n = N});
}

/* Conversions, and the rounded copy of updated weights. */
void values_rounding(struct trm_device *device)
{
  static const float hard[] = {0, -0.0f, 1, 0x1.01p0f, 0x1.03p0f, 0x1.010002p0f, 0x1.fffffep127f, INFINITY, -INFINITY,
                               1e-40f, 0x1p-133f, 0x1.8p-134f};
  static const trm_bf16 rounded[] = {0, 0x8000, 0x3f80, 0x3f80, 0x3f82, 0x3f81, 0x7f80, 0x7f80, 0xff80,
                                     0x0001, 0x0001, 0x0001};
  enum { N = 5003 };
  const float *x = host_random(N, 1);
  trm_bf16 *got = (trm_bf16 *)host_floats(N);

  for (size_t i = 0; i < COUNT(hard); i++) {
    CU_ASSERT_EQUAL(trm_bf16_round(hard[i]), rounded[i]);
    if (trm_bf16_round(hard[i]) != rounded[i])
      printf("\n    %a rounds to %04x, not %04x\n", (double)hard[i], trm_bf16_round(hard[i]), rounded[i]);
  }
  CU_ASSERT(isnan(trm_bf16_value(trm_bf16_round(NAN))) && isnan(trm_bf16_value(trm_bf16_round(-NAN))));
  void *narrow = device_bytes(device, got, N * sizeof(*got));
  float *wide = device_nan(device, N);
  device->ops->convert(device, &(struct trm_convert){
    .from = device_floats(device, x, N), .to = narrow, .n = N, .type_to = TRM_VALUES_BF16});
  device->ops->convert(device, &(struct trm_convert){
    .from = narrow, .to = wide, .n = N, .type_from = TRM_VALUES_BF16});
  float *want = host_floats(N);
  for (int i = 0; i < N; i++)
    want[i] = trm_bf16_value(trm_bf16_round(x[i]));
  check_same("conversion", read_floats(device, wide, N), want, N);

  for (enum trm_update_rule rule = TRM_UPDATE_SGD; rule <= TRM_UPDATE_LAMB; rule++) {
    const struct trm_update update = {.rule = rule, .rate = 0.01f, .scale = 1, .momentum = 0.9f, .beta1 = 0.9f,
                                      .beta2 = 0.999f, .epsilon = 1e-8f, .step = 2};
    float *w[2];

    if (rule == TRM_UPDATE_LAMB)
      continue;
    for (int i = 0; i < 2; i++) {
      w[i] = device_floats(device, x, N);
      device->ops->update(device, &(struct trm_update_arrays){
        .update = update, .w = w[i], .g = device_floats(device, host_random(N, 2), N),
        .first = device_floats(device, host_floats(N), N), .second = device_floats(device, host_floats(N), N),
        .rounded = i ? narrow : NULL, .n = N});
    }
    const float *after = read_floats(device, w[0], N);
    check_same("weights", read_floats(device, w[1], N), after, N);
    device->ops->download(device, got, narrow, N * sizeof(*got));
    for (int i = 0; i < N; i++) {
      want[i] = trm_bf16_value(trm_bf16_round(after[i]));
      if (trm_bf16_value(got[i]) != want[i])
        CU_FAIL("the rounded copy is not that of the weights");
    }
  }
}
