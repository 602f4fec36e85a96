/* Fused kernels against double precision: linear layers with bias and activation, sums with dropout and norm. */
#include <CUnit/CUnit.h>
#include <math.h>
#include <stdio.h>

#include "core/memory.h"
#include "core/random.h"
#include "kernels.h"

static double *doubles(size_t n)
{
  return trm_alloc(n * sizeof(double), "want");
}

/* Error of float sums of n terms below 1. */
static double sum_error(size_t n)
{
  return 1e-6 + 1.2e-7 * (double)n;
}

/* to (m, n) = a b, where element (i, t) of a is a[i * ai + t * at], and (t, j) of b is b[t * bt + j * bj]; k terms. */
static void multiply(double *to, size_t m, size_t n, size_t k, const float *a, size_t ai, size_t at, const float *b,
                     size_t bt, size_t bj)
{
  for (size_t i = 0; i < m; i++)
    for (size_t j = 0; j < n; j++) {
      to[i * n + j] = 0;
      for (size_t t = 0; t < k; t++)
        to[i * n + j] += (double)a[i * ai + t * at] * (double)b[t * bt + j * bj];
    }
}

/* (B, N, K) */
static const size_t linear_shape[][3] = {{1, 1, 1}, {3, 17, 5}, {33, 10, 64}, {9, 24, 16}, {70, 65, 131}};

static void linear_forward_check(struct trm_device *device, const size_t *shape, bool biased, int kind)
{
  const size_t b = shape[0], n = shape[1], k = shape[2];
  const float *x = host_random(b * k, 1), *w = host_random(n * k, 2), *bias = host_random(n, 3);
  double *y = doubles(2 * b * n), *z = y + b * n;

  multiply(y, b, n, k, x, k, 1, w, 1, k);
  for (size_t i = 0; i < b * n; i++) {
    y[i] += biased ? (double)bias[i % n] : 0;
    z[i] = kind < 0 ? 0 : activation_value((enum trm_activation)kind, y[i]);
  }
  for (int in_place = 0; in_place < (kind < 0 ? 1 : 2); in_place++) {
    float *on_y = device_nan(device, b * n), *on_z = kind < 0 ? NULL : in_place ? on_y : device_nan(device, b * n);

    device->ops->linear_forward(device, &(struct trm_linear_forward){
      .x = device_floats(device, x, b * k), .w = device_floats(device, w, n * k),
      .bias = biased ? device_floats(device, bias, n) : NULL, .y = on_y, .kind = kind < 0 ? TRM_RELU : kind,
      .z = on_z, .b = b, .n = n, .k = k, .ld = n});
    if (!in_place)
      check_close("linear_forward: y", read_floats(device, on_y, b * n), y, b * n, sum_error(k), 1e-7);
    if (on_z)
      check_close("linear_forward: z", read_floats(device, on_z, b * n), z, b * n, 1.2 * sum_error(k), 5e-7);
  }
  trm_free(y);
}

/* x is the output of an activation of that kind of u; -1: x is any. */
static void linear_backward_check(struct trm_device *device, const size_t *shape, int kind, float beta)
{
  const size_t b = shape[0], n = shape[1], k = shape[2];
  const float *u = host_random(b * k, 1), *w = host_random(n * k, 2), *dy = host_random(b * n, 3);
  const float *before = host_random(n * k, 4), *bias_before = host_random(n, 5);
  const bool reads_input = kind == TRM_GELU || kind == TRM_GELU_TANH || kind == TRM_SILU;
  double *dx = doubles(b * k + n * k + n), *dw = dx + b * k, *db = dw + n * k;
  float *x = host_floats(b * k);

  for (size_t i = 0; i < b * k; i++)
    x[i] = kind < 0 ? u[i] : (float)activation_value((enum trm_activation)kind, u[i]);
  multiply(dx, b, k, n, dy, n, 1, w, k, 1);
  multiply(dw, n, k, b, dy, 1, n, x, k, 1);
  for (size_t i = 0; i < b * k && kind >= 0; i++)
    dx[i] *= activation_slope((enum trm_activation)kind, u[i]);
  for (size_t i = 0; i < n * k; i++)
    dw[i] += beta * before[i];
  for (size_t j = 0; j < n; j++) {
    db[j] = beta * bias_before[j];
    for (size_t i = 0; i < b; i++)
      db[j] += dy[i * n + j];
  }
  for (int all = 0; all < 2; all++) { /* without and with what may be NULL */
    float *on_dw = beta == 0 ? device_nan(device, n * k) : device_floats(device, before, n * k);
    float *on_db = !all ? NULL : beta == 0 ? device_nan(device, n) : device_floats(device, bias_before, n);
    float *on_dx = all ? device_nan(device, b * k) : NULL;

    device->ops->linear_backward(device, &(struct trm_linear_backward){
      .x = device_floats(device, x, b * k), .w = device_floats(device, w, n * k),
      .dy = device_floats(device, dy, b * n), .beta = beta, .dw = on_dw, .db = on_db, .dx = on_dx, .through = kind >= 0,
      .kind = kind < 0 ? TRM_RELU : kind, .u = reads_input ? device_floats(device, u, b * k) : NULL, .b = b, .n = n,
      .k = k, .ld = n});
    check_close("linear_backward: dw", read_floats(device, on_dw, n * k), dw, n * k, sum_error(b), 1e-7);
    if (on_db)
      check_close("linear_backward: db", read_floats(device, on_db, n), db, n, sum_error(b), 2e-7);
    if (on_dx)
      check_close("linear_backward: dx", read_floats(device, on_dx, b * k), dx, b * k, 2 * sum_error(n), 1e-6);
  }
  trm_free(dx);
}

/* Compares with the results of another call, whose sums of n terms may have another order. */
static void check_near(const char *what, const float *got, const float *want, size_t count, size_t n)
{
  double *numbers = doubles(count);

  for (size_t i = 0; i < count; i++)
    numbers[i] = want[i];
  check_close(what, got, numbers, count, sum_error(n), 0);
  trm_free(numbers);
}

/* Rows of y and dy may lie apart; what is between those of y does not change. */
static void linear_apart(struct trm_device *device)
{
  enum { B = 13, N = 21, K = 34, LD = 32 };
  const float *x = device_floats(device, host_random(B * K, 1), B * K), *dense = host_random(B * N, 3);
  const float *w = device_floats(device, host_random(N * K, 2), N * K);
  float *apart = host_random(B * LD, 4), *want = host_floats(B * LD);
  float *y[2] = {device_nan(device, B * N), device_floats(device, apart, B * LD)}, *dw[2], *dx[2];

  for (int i = 0; i < 2; i++)
    device->ops->linear_forward(device, &(struct trm_linear_forward){
      .x = x, .w = w, .y = y[i], .b = B, .n = N, .k = K, .ld = i ? LD : N});
  const float *packed = read_floats(device, y[0], B * N);
  for (size_t i = 0; i < B * LD; i++)
    want[i] = i % LD < N ? packed[i / LD * N + i % LD] : apart[i];
  const float *got = read_floats(device, y[1], B * LD);
  check_near("linear_forward: rows apart", got, want, B * LD, K);
  for (size_t i = 0; i < B; i++)
    check_same("linear_forward: between the rows", got + i * LD + N, apart + i * LD + N, LD - N);
  for (size_t i = 0; i < B * LD; i++)
    apart[i] = i % LD < N ? dense[i / LD * N + i % LD] : NAN;
  for (int i = 0; i < 2; i++) {
    dw[i] = device_nan(device, N * K);
    dx[i] = device_nan(device, B * K);
    device->ops->linear_backward(device, &(struct trm_linear_backward){
      .x = x, .w = w, .dy = i ? device_floats(device, apart, B * LD) : device_floats(device, dense, B * N),
      .dw = dw[i], .dx = dx[i], .b = B, .n = N, .k = K, .ld = i ? LD : N});
  }
  check_near("linear_backward: dw, rows apart", read_floats(device, dw[1], N * K), read_floats(device, dw[0], N * K),
             N * K, B);
  check_near("linear_backward: dx, rows apart", read_floats(device, dx[1], B * K), read_floats(device, dx[0], B * K),
             B * K, N);
}

void fused_linear_reference(struct trm_device *device)
{
  linear_apart(device);
  for (size_t s = 0; s < COUNT(linear_shape); s++)
    for (int kind = -1; kind <= TRM_SILU; kind++) {
      linear_forward_check(device, linear_shape[s], kind % 2 == 0, kind);
      linear_backward_check(device, linear_shape[s], kind, kind % 2 == 0 ? 1 : 0);
    }
}

/* How a call of add_norm_forward differs: where the sum goes, masks of rows of `parts` vectors (0: none), and the norm:
 * layer norm, RMS norm, none. */
enum place { APART, OVER_A, OVER_B };
enum norm_kind { LAYER, RMS, NO_NORM };

static void add_norm_forward_check(struct trm_device *device, size_t r, size_t d, size_t parts, enum place place,
                                   enum norm_kind kind)
{
  const size_t n = r * d, f = (parts ? parts : 1) * d;
  const float *a = host_random(n, 1), *b = host_random(n, 2), *gain = host_random(d, 3), *bias = host_random(d, 4);
  const struct trm_mask mask = {.seed = 9, .stream = 3, .first_row = 12345, .rate = parts ? 0.3f : 0};
  const bool centered = kind == LAYER;
  float *sum = host_floats(n), *on_a = device_floats(device, a, n), *on_b = device_floats(device, b, n);
  float *s = place == OVER_A ? on_a : place == OVER_B ? on_b : device_nan(device, n), *y = device_nan(device, n);
  float *mean = centered ? device_nan(device, r) : NULL, *scale = device_nan(device, r);
  double *all = doubles(3 * n + 2 * r + 2 * d);
  const struct norm_want w = {all, all + 3 * n, all + 3 * n + r, all + n, all + 3 * n + 2 * r,
                              all + 3 * n + 2 * r + d};

  for (size_t i = 0; i < n; i++) {
    const float drawn = trm_random_uniform(mask.seed, TRM_RANDOM_DROPOUT, mask.stream, mask.first_row * f + i);

    sum[i] = a[i] + (drawn < mask.rate ? 0 : b[i] / (1 - mask.rate));
    all[2 * n + i] = sum[i];
  }
  norm_want(sum, gain, centered ? bias : NULL, sum, 1e-5, centered, r, d, w);
  struct trm_add_norm_forward call = {.a = on_a, .b = on_b, .mask = mask, .f = f, .s = s, .norm = {.r = r, .d = d}};
  if (kind != NO_NORM)
    call.norm = (struct trm_norm_forward){
      .gain = device_floats(device, gain, d), .bias = centered ? device_floats(device, bias, d) : NULL,
      .epsilon = 1e-5f, .y = y, .mean = mean, .scale = scale, .r = r, .d = d};
  device->ops->add_norm_forward(device, &call);
  check_close("add_norm_forward: s", read_floats(device, s, n), all + 2 * n, n, 1e-7, 3e-7);
  if (kind != NO_NORM) {
    check_close("add_norm_forward: y", read_floats(device, y, n), w.y, n, 2e-6, 2e-6);
    check_close("add_norm_forward: scale", read_floats(device, scale, r), w.scale, r, 0, 2e-6);
  }
  if (centered)
    check_close("add_norm_forward: mean", read_floats(device, mean, r), w.mean, r, 2e-7, 3e-7);
  trm_free(all);
}

static void add_norm_backward_check(struct trm_device *device, size_t r, size_t d, enum place place, bool centered)
{
  const size_t n = r * d;
  const float *x = host_random(n, 1), *dy = host_random(n, 2), *gain = host_random(d, 3), *other = host_random(n, 4);
  double *all = doubles(2 * n + 2 * r + 2 * d);
  const struct norm_want w = {all, all + 2 * n, all + 2 * n + r, all + n, all + 2 * n + 2 * r, all + 2 * n + 2 * r + d};
  float *mean = host_floats(r), *scale = host_floats(r), *dgain = device_nan(device, d);
  float *dbias = centered ? device_nan(device, d) : NULL, *dx = device_nan(device, n);
  float *on_other = device_floats(device, other, n);
  float *sum = place == OVER_A ? dx : place == OVER_B ? on_other : device_nan(device, n);

  norm_want(x, gain, NULL, dy, 1e-5, centered, r, d, w);
  double largest = 0;
  for (size_t i = 0; i < r; i++) {
    mean[i] = (float)w.mean[i];
    scale[i] = (float)w.scale[i];
    largest = w.scale[i] > largest ? w.scale[i] : largest;
  }
  for (size_t i = 0; i < n; i++)
    w.dx[i] += other[i];
  device->ops->add_norm_backward(device, &(struct trm_add_norm_backward){
    .norm = {.x = device_floats(device, x, n), .dy = device_floats(device, dy, n),
             .gain = device_floats(device, gain, d), .mean = centered ? device_floats(device, mean, r) : NULL,
             .scale = device_floats(device, scale, r), .dx = dx, .dgain = dgain, .dbias = dbias, .r = r, .d = d},
    .other = on_other, .sum = sum});
  const double size = sqrt((double)r) + 1;
  check_close("add_norm_backward: sum", read_floats(device, sum, n), w.dx, n, 2e-6 * (1 + largest), 2e-6);
  check_close("add_norm_backward: dgain", read_floats(device, dgain, d), w.dgain, d, 1e-6 * size, 1e-6);
  if (centered)
    check_close("add_norm_backward: dbias", read_floats(device, dbias, d), w.dbias, d, 4e-7 * size, 1e-6);
  trm_free(all);
}

void fused_add_norm_reference(struct trm_device *device)
{
  static const size_t shapes[][2] = {{1, 1}, {3, 17}, {300, 48}, {6, 1000}};

  for (size_t s = 0; s < COUNT(shapes); s++) {
    const size_t r = shapes[s][0], d = shapes[s][1], parts = r % 2 ? r : r / 2;

    for (enum norm_kind kind = LAYER; kind <= NO_NORM; kind++)
      for (enum place place = APART; place <= OVER_B; place++) {
        add_norm_forward_check(device, r, d, 0, place, kind);
        if (place != OVER_A)
          add_norm_forward_check(device, r, d, place == APART ? 1 : parts, place, kind);
      }
    for (enum place place = APART; place <= OVER_B; place++)
      add_norm_backward_check(device, r, d, place, place != APART);
  }
}
