/* Convolution, pooling and batch normalization. */
#include <CUnit/CUnit.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/memory.h"
#include "core/random.h"
#include "core/status.h"
#include "kernels.h"
#include "kernels/cpu/conv.h"
#include "kernels/cpu/conv_onednn.h"
#include "support/pretend_device.h"

static struct trm_window2d window_of(size_t h, size_t w, size_t kh, size_t kw, size_t sh, size_t sw, size_t ph,
                                     size_t pw)
{
  return (struct trm_window2d){.kernel = {kh, kw},
                               .stride = {sh, sw},
                               .pad = {ph, pw},
                               .in = {h, w},
                               .out = {(h + 2 * ph - kh) / sh + 1, (w + 2 * pw - kw) / sw + 1}};
}

/* -- convolution */

/* Expected results of the three products, and the sums of their terms' magnitudes, to which tolerances are relative. */
struct conv2d_want {
  size_t x, w, y, units;               /* elements */
  double *value[4], *magnitude[4];     /* y, dx, dw, db */
};

/* Sums all products x * w -> y in the order of the definition. */
static void conv2d_terms(const struct trm_conv2d *how, const float *x, const float *w, const float *dy,
                         struct conv2d_want *want)
{
  const struct trm_window2d *o = &how->window;
  const size_t in = how->channels / how->groups, out = how->units / how->groups;
  for (size_t y = 0; y < want->y; y++) {
    const size_t j = y % o->out[1], i = y / o->out[1] % o->out[0], n = y / o->out[1] / o->out[0] % how->units;
    const size_t image = y / o->out[1] / o->out[0] / how->units, first = image * how->channels + n / out * in;
    const double d = (double)dy[y];
    size_t at_w = n * in * o->kernel[0] * o->kernel[1];
    want->value[3][n] += d;
    want->magnitude[3][n] += fabs(d);
    for (size_t c = 0; c < in; c++)
      for (size_t p = 0; p < o->kernel[0]; p++)
        for (size_t q = 0; q < o->kernel[1]; q++, at_w++) {
          const size_t row = i * o->stride[0] + p - o->pad[0], column = j * o->stride[1] + q - o->pad[1];
          if (row >= o->in[0] || column >= o->in[1]) /* unsigned: negative indices too */
            continue;
          const size_t at[3] = {y, ((first + c) * o->in[0] + row) * o->in[1] + column, at_w};
          const double x_at = (double)x[at[1]], w_at = (double)w[at_w], term[3] = {x_at * w_at, d * w_at, d * x_at};
          for (int r = 0; r < 3; r++) {
            want->value[r][at[r]] += term[r];
            want->magnitude[r][at[r]] += fabs(term[r]);
          }
        }
  }
}

/* Tolerance: 6e-7 of the sum of the terms' magnitudes, i.e. ten roundings, however many terms. */
/* rounds: factors may have been rounded to bfloat16, each by 2^-9 at most. */
static void terms_check(const char *what, const struct trm_conv2d *how, const float *got, const double *value,
                        const double *magnitude, size_t n, bool rounds)
{
  const double error = 6e-7 + (rounds ? 0x1.01p-8 : 0);
  for (size_t i = 0; i < n; i++)
    if (!(fabs((double)got[i] - value[i]) <= error * magnitude[i])) {
      const struct trm_window2d *o = &how->window;
      printf("\n  %s: element %zu is %.9g, should be %.9g\n", what, i, (double)got[i], value[i]);
      printf("  C %zu, N %zu, G %zu, %zu x %zu, kernel %zu x %zu, stride %zu, %zu, pad %zu, %zu\n", how->channels,
             how->units, how->groups, o->in[0], o->in[1], o->kernel[0], o->kernel[1], o->stride[0], o->stride[1],
             o->pad[0], o->pad[1]);
      CU_FAIL("convolution");
      return;
    }
  CU_PASS("convolution");
}

/* The last of b images gives the same values by itself: y of x, and dx of dy. */
static void conv2d_alone(struct trm_device *device, const struct trm_conv2d *how, size_t b, const float *w,
                         const float *bias, const struct conv2d_want *want, const float *x, const float *y,
                         const float *dy, const float *dx)
{
  const size_t in = want->x / b, out = want->y / b;
  float *one_y = device_nan(device, out), *one_dx = device_nan(device, in);
  device->ops->conv2d_forward(device, &(struct trm_conv2d_forward){
    .conv = *how, .x = x + (b - 1) * in, .w = w, .bias = bias, .y = one_y, .b = 1});
  device->ops->conv2d_backward(device, &(struct trm_conv2d_backward){
    .conv = *how, .w = w, .dy = dy + (b - 1) * out, .dx = one_dx, .b = 1});
  CU_ASSERT_EQUAL(memcmp(read_floats(device, one_y, out), read_floats(device, y, want->y) + (b - 1) * out,
                         out * sizeof(float)), 0);
  CU_ASSERT_EQUAL(memcmp(read_floats(device, one_dx, in), read_floats(device, dx, want->x) + (b - 1) * in,
                         in * sizeof(float)), 0);
}

static void conv2d_check(struct trm_device *device, const struct trm_conv2d *how, size_t b, bool has_bias)
{
  const struct trm_window2d *o = &how->window;
  struct conv2d_want want = {.x = b * how->channels * o->in[0] * o->in[1],
                             .w = how->units * (how->channels / how->groups) * o->kernel[0] * o->kernel[1],
                             .y = b * how->units * o->out[0] * o->out[1],
                             .units = how->units};
  const size_t sizes[4] = {want.y, want.x, want.w, want.units}, all = want.y + want.x + want.w + want.units;
  const bool rounds = device->blas->matmul == TRM_MATMUL_BF16;
  double *doubles = trm_alloc(2 * all * sizeof(*doubles), "want");
  for (size_t r = 0, at = 0; r < 4; at += 2 * sizes[r++]) {
    want.value[r] = doubles + at;
    want.magnitude[r] = doubles + at + sizes[r];
  }
  const float *x = host_random(want.x, 1), *w = host_random(want.w, 2), *dy = host_random(want.y, 3);
  const float *bias = host_random(want.units, 4);
  conv2d_terms(how, x, w, dy, &want);
  for (size_t y = 0; has_bias && y < want.y; y++) {
    const double value = (double)bias[y / (o->out[0] * o->out[1]) % how->units];
    want.value[0][y] += value;
    want.magnitude[0][y] += fabs(value);
  }
  const float *on_x = device_floats(device, x, want.x), *on_w = device_floats(device, w, want.w);
  const float *on_dy = device_floats(device, dy, want.y), *on_bias = device_floats(device, bias, want.units);
  float *y = device_nan(device, want.y), *dx = device_nan(device, want.x);
  float *dw = device_nan(device, want.w), *db = device_nan(device, want.units);
  device->ops->conv2d_forward(device, &(struct trm_conv2d_forward){
    .conv = *how, .x = on_x, .w = on_w, .bias = has_bias ? on_bias : NULL, .y = y, .b = b});
  terms_check("forward", how, read_floats(device, y, want.y), want.value[0], want.magnitude[0], want.y, rounds);
  device->ops->conv2d_backward(device, &(struct trm_conv2d_backward){
    .conv = *how, .w = on_w, .dy = on_dy, .dx = dx, .b = b});
  terms_check("backward to the data", how, read_floats(device, dx, want.x), want.value[1], want.magnitude[1], want.x,
              rounds);
  if (b > 1)
    conv2d_alone(device, how, b, on_w, has_bias ? on_bias : NULL, &want, on_x, y, on_dy, dx);
  device->ops->conv2d_backward(device, &(struct trm_conv2d_backward){
    .conv = *how, .x = on_x, .dy = on_dy, .dw = dw, .db = has_bias ? db : NULL, .b = b});
  terms_check("backward to the weights", how, read_floats(device, dw, want.w), want.value[2], want.magnitude[2],
              want.w, rounds);
  if (has_bias)
    terms_check("backward to the bias", how, read_floats(device, db, want.units), want.value[3], want.magnitude[3],
                want.units, rounds);

  /* beta = 1: adds to the gradient */
  dw = device_floats(device, w, want.w);
  db = device_floats(device, bias, want.units);
  float *both = device_nan(device, want.x);
  device->ops->conv2d_backward(device, &(struct trm_conv2d_backward){
    .conv = *how, .x = on_x, .w = on_w, .dy = on_dy, .beta = 1, .dw = dw, .db = has_bias ? db : NULL, .dx = both,
    .b = b});
  CU_ASSERT_EQUAL(memcmp(read_floats(device, both, want.x), read_floats(device, dx, want.x), want.x * sizeof *dx), 0);
  for (size_t i = 0; i < want.w; i++) {
    want.value[2][i] += (double)w[i];
    want.magnitude[2][i] += fabs((double)w[i]);
  }
  for (size_t i = 0; i < want.units; i++) {
    want.value[3][i] = has_bias ? want.value[3][i] + (double)bias[i] : (double)bias[i];
    want.magnitude[3][i] += fabs((double)bias[i]);
  }
  terms_check("added to the weights", how, read_floats(device, dw, want.w), want.value[2], want.magnitude[2], want.w,
              rounds);
  terms_check("added to the bias", how, read_floats(device, db, want.units), want.value[3], want.magnitude[3],
              want.units, rounds);
  trm_free(doubles);
}

/* draws channels, units and so on of a random case */
static size_t draw(uint32_t stream, uint64_t *turn, size_t low, size_t high)
{
  return low + (size_t)((double)trm_random_uniform(9, TRM_RANDOM_BENCH, stream, (*turn)++) * (double)(high - low + 1));
}

static void conv2d_drawn(struct trm_device *device, uint32_t cases)
{
  for (uint32_t k = 0; k < cases; k++) {
    uint64_t turn = 0;
    struct trm_conv2d how = {.groups = draw(k, &turn, 0, 3) ? 1 : draw(k, &turn, 2, 3)};
    how.channels = how.groups * draw(k, &turn, 1, 7);
    how.units = how.groups * draw(k, &turn, 1, 18);
    const bool wide = draw(k, &turn, 0, 1), steps = !draw(k, &turn, 0, 2);
    const size_t kh = draw(k, &turn, 1, 5), kw = draw(k, &turn, 1, 5);
    const size_t ph = draw(k, &turn, 0, kh), pw = draw(k, &turn, 0, kw);
    const size_t sh = steps ? draw(k, &turn, 1, 4) : 1, sw = steps ? draw(k, &turn, 1, 4) : 1;
    how.window = window_of(kh + draw(k, &turn, 0, 15), kw + draw(k, &turn, 0, wide ? 40 : 10), kh, kw, sh, sw, ph, pw);
    conv2d_check(device, &how, draw(k, &turn, 1, 3), k % 2);
  }
}

static const struct {
  size_t b, channels, units, groups, h, w, kernel, stride, pad;
} conv2d_cases[] = {
  {2, 3, 16, 1, 32, 32, 3, 1, 1}, {2, 16, 32, 1, 16, 16, 3, 2, 1}, {3, 9, 12, 1, 8, 8, 3, 1, 1},
  {2, 8, 4, 1, 9, 9, 1, 2, 0},    {2, 2, 6, 1, 14, 14, 5, 1, 2},   {3, 6, 16, 1, 14, 14, 5, 1, 0},
  {1, 3, 5, 1, 31, 33, 7, 2, 3},  {2, 6, 6, 6, 7, 7, 3, 1, 1},     {1, 1, 1, 1, 1, 1, 1, 1, 0},
  {40, 4, 8, 1, 2, 2, 1, 1, 0},   {0, 3, 5, 1, 4, 4, 3, 1, 1},     {1, 150, 2, 1, 40, 40, 3, 1, 1}, /* in bands */
  {3, 15, 70, 1, 13, 13, 3, 1, 1}, {4, 40, 66, 2, 15, 15, 3, 2, 1}, {2, 6, 10, 2, 11, 11, 2, 3, 0}, /* several tiles */
  /* with oneDNN: by the library; the gradient of the weights of parts of the batch, of the units, of several images */
  {2, 16, 16, 1, 14, 14, 3, 1, 1}, {35, 16, 48, 1, 5, 5, 3, 1, 1}, {18, 16, 16, 1, 116, 116, 1, 2, 0},
  {3, 32, 256, 1, 7, 7, 3, 2, 1}, {2, 31, 45, 1, 8, 6, 5, 1, 2}, {3, 48, 32, 1, 9, 9, 1, 2, 0},
  {36, 16, 32, 1, 8, 8, 3, 1, 1}, /* both gradients at once, of several images */
};

void conv2d_reference(struct trm_device *device)
{
  for (size_t i = 0; i < COUNT(conv2d_cases); i++) {
    const struct trm_conv2d how = {
      .window = window_of(conv2d_cases[i].h, conv2d_cases[i].w, conv2d_cases[i].kernel, conv2d_cases[i].kernel,
                          conv2d_cases[i].stride, conv2d_cases[i].stride, conv2d_cases[i].pad, conv2d_cases[i].pad),
      .channels = conv2d_cases[i].channels, .units = conv2d_cases[i].units, .groups = conv2d_cases[i].groups};
    conv2d_check(device, &how, conv2d_cases[i].b, i % 2 == 0);
  }
  conv2d_drawn(device, 40);
}

void conv2d_transposed(void)
{
#ifdef HAVE_ONEDNN
#ifdef __x86_64__
  if (!__builtin_cpu_supports("avx2"))
    return;
#endif
  static const size_t sizes[] = {1, 16, 17, 32, 49};
  enum { IMAGES = 2, MOST = IMAGES * 49 * 49 };
  trm_bf16 from[MOST], to[MOST + 1];
  for (size_t i = 0; i < MOST; i++)
    from[i] = (trm_bf16)(i * 40503);
  for (size_t r = 0; r < COUNT(sizes); r++)
    for (size_t c = 0; c < COUNT(sizes); c++) {
      const size_t rows = sizes[r], columns = sizes[c], n = IMAGES * rows * columns;
      size_t wrong = 0;
      to[n] = 4711;
      conv_transpose_bf16(to, from, IMAGES, rows, columns);
      for (size_t i = 0; i < n; i++)
        wrong += to[i / (rows * columns) * rows * columns + i % columns * rows + i / columns % rows] != from[i];
      CU_ASSERT_EQUAL(wrong, 0);
      CU_ASSERT_EQUAL(to[n], 4711);
    }
#endif
}

static const struct conv_kernels *conv2d_kind;

static void conv2d_one_kind(struct trm_device *device)
{
  struct trm_device *const cpu[] = {trm_device_host(device),
                                    device->host_memory ? device : pretend_device_cpu(device)};
  for (int i = 0; i < 2; i++)
    ((struct cpu_state *)cpu[i]->impl)->conv = conv2d_kind;
  conv2d_drawn(device, 40);
}

void conv2d_every_processor(void)
{
  if (on_other_device())
    return;
  int kinds = 0;
  for (int k = 0; conv_kernels_table[k]; k++)
    if (conv_kernels_table[k]->supported()) {
      conv2d_kind = conv_kernels_table[k];
      on_devices(conv2d_one_kind);
      kinds++;
    }
  CU_ASSERT(kinds > 0);
}

/* -- pooling */

static void pool_check(struct trm_device *device, const struct trm_window2d *o, size_t planes)
{
  const size_t in = planes * o->in[0] * o->in[1], out = planes * o->out[0] * o->out[1];
  const float *x = host_random(in, 1), *dy = host_random(out, 2);
  double *most = trm_alloc((2 * out + 2 * in) * sizeof(*most), "want");
  double *mean = most + out, *dx_most = mean + out, *dx_mean = dx_most + in;
  int32_t *at = trm_alloc(2 * out * sizeof(*at), "want"), *got = at + out;
  const double size = (double)(o->kernel[0] * o->kernel[1]);
  for (size_t y = 0; y < out; y++) {
    const size_t j = y % o->out[1], i = y / o->out[1] % o->out[0], plane = y / o->out[1] / o->out[0];
    most[y] = -INFINITY;
    for (size_t k = 0; k < o->kernel[0] * o->kernel[1]; k++) {
      const size_t row = i * o->stride[0] + k / o->kernel[1] - o->pad[0];
      const size_t column = j * o->stride[1] + k % o->kernel[1] - o->pad[1];
      if (row >= o->in[0] || column >= o->in[1])
        continue;
      const size_t place = row * o->in[1] + column;
      const double value = (double)x[plane * o->in[0] * o->in[1] + place];
      mean[y] += value / size;
      dx_mean[plane * o->in[0] * o->in[1] + place] += (double)dy[y] / size;
      if (value > most[y]) {
        most[y] = value;
        at[y] = (int32_t)place;
      }
    }
    dx_most[plane * o->in[0] * o->in[1] + (size_t)at[y]] += (double)dy[y];
  }
  const float *on_x = device_floats(device, x, in), *on_dy = device_floats(device, dy, out);
  float *y = device_nan(device, out), *dx = device_nan(device, in);
  int32_t *on_at = device_bytes(device, got, out * sizeof(*at));
  device->ops->max_pool_forward(device, &(struct trm_max_pool_forward){
    .window = *o, .x = on_x, .y = y, .argmax = on_at, .planes = planes});
  check_close("max pool", read_floats(device, y, out), most, out, 0, 0);
  device->ops->download(device, got, on_at, out * sizeof(*got));
  CU_ASSERT(memcmp(at, got, out * sizeof(*at)) == 0);
  y = device_nan(device, out);
  device->ops->max_pool_forward(device, &(struct trm_max_pool_forward){
    .window = *o, .x = on_x, .y = y, .planes = planes});
  check_close("max pool without places", read_floats(device, y, out), most, out, 0, 0);
  device->ops->max_pool_backward(device, &(struct trm_max_pool_backward){
    .window = *o, .dy = on_dy, .argmax = on_at, .dx = dx, .planes = planes});
  check_close("max pool, backward", read_floats(device, dx, in), dx_most, in, 1e-6, 0);
  y = device_nan(device, out), dx = device_nan(device, in);
  device->ops->avg_pool_forward(device, &(struct trm_avg_pool_forward){
    .window = *o, .x = on_x, .y = y, .planes = planes});
  check_close("average pool", read_floats(device, y, out), mean, out, 4e-7, 0);
  device->ops->avg_pool_backward(device, &(struct trm_avg_pool_backward){
    .window = *o, .dy = on_dy, .dx = dx, .planes = planes});
  check_close("average pool, backward", read_floats(device, dx, in), dx_mean, in, 1e-6, 0);
  trm_free(most);
  trm_free(at);
}

void pool_reference(struct trm_device *device)
{
  const struct trm_window2d windows[] = {
    window_of(28, 28, 2, 2, 2, 2, 0, 0), window_of(7, 9, 2, 2, 2, 2, 0, 0),  window_of(112, 112, 3, 3, 2, 2, 1, 1),
    window_of(8, 8, 8, 8, 1, 1, 0, 0),   window_of(5, 11, 3, 2, 1, 2, 1, 0), window_of(1, 40, 1, 5, 1, 3, 0, 2),
    window_of(6, 6, 3, 3, 3, 3, 0, 0),   window_of(37, 41, 37, 41, 1, 1, 0, 0),
  };
  for (size_t i = 0; i < COUNT(windows); i++) {
    pool_check(device, &windows[i], 1);
    pool_check(device, &windows[i], 7);
  }
  pool_check(device, &windows[0], 300); /* large enough for threads */
}

/* The first of equal values wins, and NaN above all; in the special case for 2 x 2 as in the general one. */
void pool_extremes(struct trm_device *device)
{
  static const float inf = INFINITY;
  const float cases[][4] = {
    {1, 1, 1, 1},     {0, 2, 2, 1},   {0, 1, 2, 2},             {3, NAN, 4, 5},   {NAN, 9, 9, NAN},
    {1, 2, NAN, inf}, {1, 2, 3, NAN}, {-inf, -inf, -inf, -inf}, {inf, NAN, 0, 0}, {0, -0.0f, 0, 0},
  };
  static const int32_t first[] = {0, 1, 2, 1, 0, 2, 3, 0, 1, 0};
  const struct trm_window2d fast = window_of(2, 2, 2, 2, 2, 2, 0, 0), general = window_of(2, 2, 2, 2, 1, 1, 0, 0);
  for (size_t i = 0; i < COUNT(cases); i++)
    for (int k = 0; k < 2; k++) {
      int32_t at = -1;
      int32_t *on_at = device_bytes(device, &at, sizeof(at));
      float *y = device_floats(device, host_random(1, 1), 1);
      device->ops->max_pool_forward(device, &(struct trm_max_pool_forward){
        .window = k ? general : fast, .x = device_floats(device, cases[i], 4), .y = y, .argmax = on_at,
        .planes = 1});
      device->ops->download(device, &at, on_at, sizeof(at));
      CU_ASSERT_EQUAL(at, first[i]);
      check_same("max pool", read_floats(device, y, 1), &cases[i][first[i]], 1);
      device->ops->max_pool_forward(device, &(struct trm_max_pool_forward){
        .window = k ? general : fast, .x = device_floats(device, cases[i], 4), .y = y, .planes = 1});
      check_same("max pool without places", read_floats(device, y, 1), &cases[i][first[i]], 1);
    }
}

/* -- batch normalization */

/* relu behind the norm, and an add between them: y, dy are those of the norm alone; x, w, bias and moments are on the
 * device. */
static void batch_norm_check_relu(struct trm_device *device, const struct trm_batch_norm_forward *norm, const double *y,
                                  const float *dy, double tolerance)
{
  const size_t c = norm->bn.channels, n = norm->b * c * norm->bn.size;
  const float *addend = host_random(n, 5);
  float *dz = host_floats(n), *masked = host_floats(n);
  double *want = trm_alloc(n * sizeof *want, "want");
  struct trm_batch_norm_forward forward = *norm;
  forward.y = device_nan(device, n);
  forward.relu = true;
  for (int added = 0; added < 2; added++) {
    for (size_t i = 0; i < n; i++)
      want[i] = fmax(y[i] + (added ? (double)addend[i] : 0), 0);
    device->ops->batch_norm_forward(device, &forward);
    check_close("forward with relu", read_floats(device, forward.y, n), want, n, 2e-6 * tolerance, 1e-6);
    forward.addend = forward.y = device_floats(device, addend, n); /* in its place */
  }
  for (size_t i = 0; i < n; i++) {
    dz[i] = fabs(y[i]) < 1e-3 ? 0 : dy[i]; /* the sign of such a y may differ between float and double */
    masked[i] = y[i] > 0 ? dz[i] : 0;
  }
  float *sums[2], *dx[2];
  for (int relu = 0; relu < 2; relu++) { /* the same as without relu, of the masked gradient */
    const float *gradient = device_floats(device, relu ? dz : masked, n);
    sums[relu] = device_nan(device, 2 * c);
    dx[relu] = device_nan(device, n);
    device->ops->batch_norm_sums(device, &(struct trm_batch_norm_sums){
      .bn = norm->bn, .x = norm->x, .mean = norm->mean, .square = norm->square, .w = relu ? norm->w : NULL,
      .bias = relu ? norm->bias : NULL, .relu = relu, .dy = gradient, .sums = sums[relu], .b = norm->b});
    device->ops->batch_norm_backward(device, &(struct trm_batch_norm_backward){
      .bn = norm->bn, .x = norm->x, .mean = norm->mean, .square = norm->square, .w = norm->w,
      .bias = relu ? norm->bias : NULL, .relu = relu, .dy = gradient, .sums = sums[relu], .dx = dx[relu],
      .b = norm->b});
  }
  check_same("sums through relu", read_floats(device, sums[1], 2 * c), read_floats(device, sums[0], 2 * c), 2 * c);
  check_same("backward through relu", read_floats(device, dx[1], n), read_floats(device, dx[0], n), n);
  trm_free(want);
}

/* first: the shift of the first sample's values. Where it is another, the squares are less precise by a factor of at
 * most the number of samples. */
static void batch_norm_check_shifted(struct trm_device *device, size_t b, size_t c, size_t s, float shift, float first,
                                     double tolerance)
{
  const size_t n = b * c * s;
  const struct trm_batch_norm how = {.channels = c, .size = s, .count = (double)(b * s), .epsilon = 1e-5f};
  float *x = host_random(n, 1);
  const float *dy = host_random(n, 2), *w = host_random(c, 3), *bias = host_random(c, 4);
  for (size_t i = 0; i < n; i++)
    x[i] += i < c * s ? first : shift;
  double *moments = trm_alloc((4 * c + 2 * n) * sizeof(*moments), "want"), *sums = moments + 2 * c, *y = sums + 2 * c;
  double *dx = y + n;
  for (size_t k = 0; k < c; k++) {
    double mean = 0, square = 0, sum = 0, product = 0;
    for (size_t i = 0; i < b * s; i++)
      mean += (double)x[(i / s * c + k) * s + i % s] / (double)(b * s);
    for (size_t i = 0; i < b * s; i++)
      square += pow((double)x[(i / s * c + k) * s + i % s] - mean, 2);
    const double inverse = 1 / sqrt(square / how.count + (double)how.epsilon);
    for (size_t i = 0; i < b * s; i++) {
      const size_t at = (i / s * c + k) * s + i % s;
      const double z = ((double)x[at] - mean) * inverse;
      y[at] = z * (double)w[k] + (double)bias[k];
      sum += (double)dy[at];
      product += (double)dy[at] * z;
    }
    for (size_t i = 0; i < b * s; i++) {
      const size_t at = (i / s * c + k) * s + i % s;
      const double z = ((double)x[at] - mean) * inverse;
      dx[at] = (double)w[k] * inverse * ((double)dy[at] - sum / how.count - z * product / how.count);
    }
    moments[k] = mean, moments[c + k] = square;
    sums[k] = sum, sums[c + k] = product;
  }
  const float *on_x = device_floats(device, x, n), *on_dy = device_floats(device, dy, n);
  const float *on_w = device_floats(device, w, c), *on_bias = device_floats(device, bias, c);
  float *to = device_nan(device, n), *on_moments = device_nan(device, 2 * c), *on_sums = device_nan(device, 2 * c);
  device->ops->batch_norm_moments(device, &(struct trm_batch_norm_moments){
    .bn = how, .x = on_x, .moments = on_moments, .b = b});
  const double terms = sqrt((double)(b * s));
  const double deviation = sqrt(moments[c] / how.count), samples = first == shift ? 1 : (double)b;
  check_close("mean", read_floats(device, on_moments, c), moments, c, 1e-7 * (1 + deviation), 1e-7);
  check_close("squares", read_floats(device, on_moments + c, c), moments + c, c, 1e-6 * terms * tolerance,
              3e-7 * samples);
  device->ops->batch_norm_forward(device, &(struct trm_batch_norm_forward){
    .bn = how, .x = on_x, .mean = on_moments, .square = on_moments + c, .w = on_w, .bias = on_bias, .y = to, .b = b});
  check_close("forward", read_floats(device, to, n), y, n, 1e-6 * tolerance, 1e-6);
  device->ops->batch_norm_sums(device, &(struct trm_batch_norm_sums){
    .bn = how, .x = on_x, .mean = on_moments, .square = on_moments + c, .dy = on_dy, .sums = on_sums, .b = b});
  check_close("sums", read_floats(device, on_sums, 2 * c), sums, 2 * c, 1e-6 * terms * tolerance, 1e-6);
  device->ops->batch_norm_backward(device, &(struct trm_batch_norm_backward){
    .bn = how, .x = on_x, .mean = on_moments, .square = on_moments + c, .w = on_w, .dy = on_dy, .sums = on_sums,
    .dx = to, .b = b});
  check_close("backward", read_floats(device, to, n), dx, n, 3e-6 * tolerance, 1e-6);

  batch_norm_check_relu(device, &(struct trm_batch_norm_forward){
    .bn = how, .x = on_x, .mean = on_moments, .square = on_moments + c, .w = on_w, .bias = on_bias, .b = b}, y, dy,
    tolerance);

  /* in place */
  float *both = device_floats(device, x, n);
  device->ops->batch_norm_forward(device, &(struct trm_batch_norm_forward){
    .bn = how, .x = both, .mean = on_moments, .square = on_moments + c, .w = on_w, .bias = on_bias, .y = both, .b = b});
  check_close("forward in place", read_floats(device, both, n), y, n, 1e-6 * tolerance, 1e-6);
  both = device_floats(device, dy, n);
  device->ops->batch_norm_backward(device, &(struct trm_batch_norm_backward){
    .bn = how, .x = on_x, .mean = on_moments, .square = on_moments + c, .w = on_w, .dy = both, .sums = on_sums,
    .dx = both, .b = b});
  check_close("backward in place", read_floats(device, both, n), dx, n, 3e-6 * tolerance, 1e-6);
  trm_free(moments);
}

static void batch_norm_check(struct trm_device *device, size_t b, size_t c, size_t s, float shift, double tolerance)
{
  batch_norm_check_shifted(device, b, c, s, shift, shift, tolerance);
}

void batch_norm_reference(struct trm_device *device)
{
  static const size_t shapes[][3] = {{4, 3, 1},    {17, 40, 1},   {2, 5, 7},   {3, 16, 64},
                                     {2, 3, 1025}, {40, 16, 256}, {600, 33, 1}};
  for (size_t i = 0; i < COUNT(shapes); i++)
    batch_norm_check(device, shapes[i][0], shapes[i][1], shapes[i][2], 0, 1);
  /* no rows: sums are 0 */
  const struct trm_batch_norm how = {.channels = 3, .size = 4, .count = 1, .epsilon = 1e-5f};
  float *moments = device_nan(device, 6), *sums = device_nan(device, 6), *none = device_nan(device, 1);
  device->ops->batch_norm_moments(device, &(struct trm_batch_norm_moments){
    .bn = how, .x = none, .moments = moments, .b = 0});
  device->ops->batch_norm_sums(device, &(struct trm_batch_norm_sums){
    .bn = how, .x = none, .mean = moments, .square = moments + 3, .dy = none, .sums = sums, .b = 0});
  check_same("no moments", read_floats(device, moments, 6), host_floats(6), 6);
  check_same("no sums", read_floats(device, sums, 6), host_floats(6), 6);
}

/* A mean of a thousand deviations loses no more precision than float32 inputs imply. */
void batch_norm_large_mean(struct trm_device *device)
{
  batch_norm_check(device, 20, 5, 100, 1000, 100);
  batch_norm_check(device, 300, 20, 1, 1000, 100);
  batch_norm_check_shifted(device, 20, 5, 100, 0, 1000, 100);
}
