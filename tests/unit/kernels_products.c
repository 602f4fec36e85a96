/* gemm and the products with sparse rows. */
#include <CUnit/CUnit.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>

#include "blas/blas.h"
#include "core/memory.h"
#include "core/status.h"
#include "kernels.h"

struct shape {
  size_t m, n, k;
};

/* Returns the n factors as the device multiplies them: unchanged, or rounded to 8 significant bits, ties to even.
 * Release with trm_free. */
static double *factors(const struct trm_device *device, const float *x, size_t n)
{
  const bool rounds = device->blas->matmul == TRM_MATMUL_BF16;
  double *y = trm_alloc(n * sizeof(*y), "factors");

  for (size_t i = 0; i < n; i++) {
    int exponent;
    const double mantissa = frexp((double)x[i], &exponent);

    y[i] = rounds ? ldexp(nearbyint(ldexp(mantissa, 8)), exponent - 8) : (double)x[i];
  }
  return y;
}

/* One product with leading dimensions larger than the rows; elements between the rows must not change. */
static void gemm_one(struct trm_device *device, struct shape s, bool ta, bool tb, float alpha, float beta, size_t slack)
{
  const size_t lda = (ta ? s.m : s.k) + slack, ldb = (tb ? s.k : s.n) + slack, ldc = s.n + slack;
  const size_t na = (ta ? s.k : s.m) * lda, nb = (tb ? s.n : s.k) * ldb, nc = s.m * ldc;
  const float *a = host_random(na, 1), *b = host_random(nb, 2);
  float *c = host_random(nc, 3);
  double *want = trm_alloc(nc * sizeof(*want), "want"), *p = factors(device, a, na), *q = factors(device, b, nb);
  const size_t q_row = tb ? 1 : ldb, q_column = tb ? ldb : 1;
  char text[96];

  for (size_t i = 0; i < nc; i++)
    want[i] = c[i];
  for (size_t i = 0; i < s.m; i++) {
    double *row = want + i * ldc;

    for (size_t j = 0; j < s.n; j++)
      row[j] = beta == 0 ? 0 : (double)beta * row[j];
    for (size_t t = 0; t < s.k; t++) {
      const double x = (double)alpha * (ta ? p[t * lda + i] : p[i * lda + t]);

      for (size_t j = 0; j < s.n; j++)
        row[j] += x * q[t * q_row + j * q_column];
    }
    if (beta == 0) /* C must not be read */
      for (size_t j = 0; j < s.n; j++)
        c[i * ldc + j] = NAN;
  }
  float *to = device_floats(device, c, nc);
  device->ops->gemm(device, &(struct trm_gemm){
    .transpose_a = ta, .transpose_b = tb, .m = s.m, .n = s.n, .k = s.k, .alpha = alpha,
    .a = device_floats(device, a, na), .lda = lda, .b = device_floats(device, b, nb), .ldb = ldb, .beta = beta, .c = to,
    .ldc = ldc});
  snprintf(text, sizeof(text), "gemm %c%c (%zu, %zu, %zu) alpha %g beta %g", ta ? 'T' : 'N', tb ? 'T' : 'N', s.m, s.n,
           s.k, (double)alpha, (double)beta);
  /* error of float sums of k terms below 1 */
  check_close(text, read_floats(device, to, nc), want, nc, 1e-6 + 1.2e-7 * (double)s.k, 0);
  trm_free(want);
  trm_free(p);
  trm_free(q);
}

/* A library may have different kernels for the whole of C and for the blocks that threads compute: equal bits
 * (on_devices.h), and rows of C against double. */
void gemm_large(struct trm_device *device)
{
  enum { M = 1040, N = 1042, K = 1000, ROW_STEP = 347 };
  const float *a = host_random((size_t)M * K, 1), *b = host_random((size_t)K * N, 2);

  for (int kind = 0; kind < 4; kind++) {
    const bool ta = kind & 1, tb = kind & 2;
    float *to = device_nan(device, (size_t)M * N);

    device->ops->gemm(device, &(struct trm_gemm){
      .transpose_a = ta, .transpose_b = tb, .m = M, .n = N, .k = K, .alpha = 1,
      .a = device_floats(device, a, (size_t)M * K), .lda = ta ? M : K, .b = device_floats(device, b, (size_t)K * N),
      .ldb = tb ? K : N, .c = to, .ldc = N});
    const float *got = read_floats(device, to, (size_t)M * N);
    for (size_t i = 0; i < M; i += ROW_STEP) {
      double want[N] = {0};

      for (size_t t = 0; t < K; t++)
        for (size_t j = 0; j < N; j++)
          want[j] += (double)(ta ? a[t * M + i] : a[i * K + t]) * (double)(tb ? b[j * K + t] : b[t * N + j]);
      check_close("a large product", got + i * N, want, N, 1.2e-4, 0);
    }
  }
}

void gemm_reference(struct trm_device *device)
{
  static const struct shape shapes[] = {{1, 1, 1},   {3, 17, 5},    {17, 3, 1},     {1, 100, 33},  {31, 1, 257},
                                        {10, 43, 64}, {43, 10, 300}, {64, 65, 385}, {43, 100, 784}, {128, 70, 769},
                                        {130, 300, 256}, {75, 310, 500}, {1, 1030, 385}, {1, 31, 16411}};

  for (size_t s = 0; s < COUNT(shapes); s++)
    for (int kind = 0; kind < 4; kind++) {
      gemm_one(device, shapes[s], kind & 1, kind & 2, 1, 0, 0);
      if (s < 7) {
        gemm_one(device, shapes[s], kind & 1, kind & 2, 1, 0, 3);
        gemm_one(device, shapes[s], kind & 1, kind & 2, 0.5f, 1, 0);
        gemm_one(device, shapes[s], kind & 1, kind & 2, 1, -0.25f, 3);
      }
    }
  gemm_one(device, (struct shape){130, 300, 256}, false, true, 1, -0.25f, 3); /* divided among threads */
  for (int kind = 0; kind < 4; kind++) /* rows at odd distances, each used often */
    gemm_one(device, (struct shape){259, 263, 257}, kind & 1, kind & 2, 1, kind == 1 ? -0.25f : 0, 0);
  for (int kind = 0; kind < 4; kind++) /* a long sum, whose order in a library may depend on the extents of C */
    gemm_one(device, (struct shape){128, 160, 2100}, kind & 1, kind & 2, 1, 0, 0);
}

/* -- products of several threads at once, each of them its own */

enum { AT_ONCE = 3, AT_ONCE_ROUNDS = 100, AT_ONCE_SIDE = 64 };

struct at_once {
  const struct trm_blas_ops *blas;
  float a[AT_ONCE_SIDE * AT_ONCE_SIDE], b[AT_ONCE_SIDE * AT_ONCE_SIDE], c[AT_ONCE_SIDE * AT_ONCE_SIDE];
  pthread_t thread;
  int differ; /* products with other bits than the first of their shape */
};

static void at_once_product(struct at_once *it, size_t k)
{
  it->blas->gemm(&(struct trm_gemm){
    .transpose_b = true, .m = AT_ONCE_SIDE, .n = AT_ONCE_SIDE - 1, .k = k, .alpha = 1, .a = it->a, .lda = k, .b = it->b,
    .ldb = k, .c = it->c, .ldc = AT_ONCE_SIDE});
}

static void *at_once_run(void *context)
{
  struct at_once *it = context;
  float first[AT_ONCE_SIDE * AT_ONCE_SIDE];

  for (int i = 0; i < AT_ONCE_ROUNDS; i++) {
    const size_t k = 20 + (size_t)(i / 10);

    at_once_product(it, k);
    if (i % 10 == 0)
      memcpy(first, it->c, sizeof first);
    it->differ += memcmp(first, it->c, sizeof first) != 0;
  }
  return NULL;
}

void gemm_at_once(void)
{
  for (int i = 0; trm_blas_table[i]; i++) {
    struct at_once run[AT_ONCE] = {{.blas = NULL}};

    if (trm_blas_table[i]->open(1) != TRM_OK)
      continue;
    for (int t = 0; t < AT_ONCE; t++) {
      run[t].blas = trm_blas_table[i];
      for (int e = 0; e < AT_ONCE_SIDE * AT_ONCE_SIDE; e++) {
        run[t].a[e] = (float)((e * 37 + t) % 101 - 50) / 50;
        run[t].b[e] = (float)((e * 53 + t) % 103 - 51) / 51;
      }
      CU_ASSERT_FATAL(pthread_create(&run[t].thread, NULL, at_once_run, &run[t]) == 0);
    }
    for (int t = 0; t < AT_ONCE; t++)
      pthread_join(run[t].thread, NULL);
    for (int t = 0; t < AT_ONCE; t++)
      CU_ASSERT_EQUAL(run[t].differ, 0);
  }
}

/* -- products of a thread that gets signals: their handlers run where its stack pointer is */

static volatile sig_atomic_t signals_seen, signals_elsewhere;
static uintptr_t signals_stack;

static void signals_look(int number)
{
  const uintptr_t here = (uintptr_t)__builtin_frame_address(0);
  (void)number;
  signals_seen = 1;
  signals_elsewhere = signals_elsewhere || here > signals_stack || signals_stack - here > 1 << 20;
}

void gemm_under_signals(void)
{
  enum { M = 96, N = 64, K = 784, PRODUCTS = 2000 };
  const struct itimerval often = {.it_interval = {.tv_usec = 100}, .it_value = {.tv_usec = 100}}, never = {{0}, {0}};
  struct sigaction action = {.sa_handler = signals_look, .sa_flags = SA_RESTART}, before;
  float *a = trm_alloc((size_t)(M * K + N * K + 2 * M * N) * sizeof *a, "factors"), *b = a + M * K, *c = b + N * K;

  signals_stack = (uintptr_t)__builtin_frame_address(0);
  for (int i = 0; i < M * K + N * K; i++)
    a[i] = (float)(i % 97 - 48) / 48;
  CU_ASSERT_FATAL(sigaction(SIGALRM, &action, &before) == 0);
  for (int i = 0; trm_blas_table[i]; i++) {
    int differ = 0;

    if (trm_blas_table[i]->open(1) != TRM_OK)
      continue;
    signals_seen = signals_elsewhere = 0;
    CU_ASSERT_FATAL(setitimer(ITIMER_REAL, &often, NULL) == 0);
    for (int n = 0; n < PRODUCTS; n++) {
      float *to = n ? c + M * N : c;

      trm_blas_table[i]->gemm(&(struct trm_gemm){.transpose_b = true, .m = M, .n = N, .k = K, .alpha = 1, .a = a,
                                                 .lda = K, .b = b, .ldb = K, .c = to, .ldc = N});
      differ += n && memcmp(c, to, M * N * sizeof *c) != 0;
    }
    setitimer(ITIMER_REAL, &never, NULL);
    CU_ASSERT(signals_seen && !signals_elsewhere);
    CU_ASSERT_EQUAL(differ, 0);
  }
  sigaction(SIGALRM, &before, NULL);
  trm_free(a);
}

void gemm_empty(struct trm_device *device)
{
  const float *c = host_random(20, 1);
  double want[12];

  for (int m = 0; m < 2; m++) { /* no rows; no columns */
    float *to = device_floats(device, c, 12);

    device->ops->gemm(device, &(struct trm_gemm){
      .m = m ? 3 : 0, .n = m ? 0 : 4, .k = 5, .alpha = 1, .a = device_floats(device, c, m ? 15 : 0), .lda = 5,
      .b = device_floats(device, c, m ? 0 : 20), .ldb = 4, .c = to, .ldc = 4});
    check_same("gemm of nothing", read_floats(device, to, 12), c, 12);
  }
  for (int i = 0; i < 3; i++) { /* no terms: C = beta * C */
    const float beta = (float)i / 2;
    float *to = i == 0 ? device_nan(device, 12) : device_floats(device, c, 12);

    for (int j = 0; j < 12; j++)
      want[j] = i == 0 ? 0 : (double)(beta * c[j]);
    device->ops->gemm(device, &(struct trm_gemm){
      .m = 3, .n = 4, .k = 0, .alpha = 1, .a = device_floats(device, c, 0), .lda = 1, .b = device_floats(device, c, 0),
      .ldb = 4, .beta = beta, .c = to, .ldc = 4});
    check_close("gemm without terms", read_floats(device, to, 12), want, 12, 0, 0);
  }
}

/* A product with the identity matrix is the other factor, rounded. */
void gemm_bfloat16_rounding(struct trm_device *device)
{
  enum { N = 48 };
  const float special[] = {0,        -0.0f,         1,          -1,           1.00390625f, 1.01171875f, 1.0039063f,
                           3.14159f, -1e-30f,       1e30f,      3.38e38f, 65504,      -0.1f,       1.9960938f};
  float *x = host_random(N * N, 4), *unit = host_floats(N * N);

  memcpy(x, special, sizeof(special));
  for (int i = 0; i < N * N; i++)
    unit[i] = i / N == i % N;
  double *want = factors(device, x, N * N);
  for (int side = 0; side < 2; side++) {
    float *on = device_floats(device, x, N * N), *one = device_floats(device, unit, N * N);
    float *to = device_nan(device, N * N);

    device->ops->gemm(device, &(struct trm_gemm){
      .m = N, .n = N, .k = N, .alpha = 1, .a = side ? one : on, .lda = N, .b = side ? on : one, .ldb = N, .c = to,
      .ldc = N});
    check_close("rounded", read_floats(device, to, N * N), want, N * N, 0, 0);
  }
  trm_free(want);
  x[0] = NAN;
  x[N + 1] = INFINITY;
  float *to = device_nan(device, N * N);
  device->ops->gemm(device, &(struct trm_gemm){
    .transpose_b = true, .m = N, .n = N, .k = N, .alpha = 1, .a = device_floats(device, x, N * N), .lda = N,
    .b = device_floats(device, unit, N * N), .ldb = N, .c = to, .ldc = N});
  const float *y = read_floats(device, to, N * N);
  CU_ASSERT(isnan(y[0]) && y[N + 1] == INFINITY && isnan(y[N])); /* 0 times infinity */
}

/* Sparse rows on the host, and the same rows dense. The first row used is not the first row of the arrays. */
struct sparse {
  size_t rows, features, entries;
  int64_t *starts;
  int32_t *columns;
  float *values, *dense;
};

static struct sparse sparse_make(size_t rows, size_t features, double density)
{
  struct sparse x = {rows, features, 0, trm_alloc((rows + 1) * sizeof(int64_t), "starts"),
                     trm_alloc((rows * features + 1) * sizeof(int32_t), "columns"), host_floats(rows * features),
                     host_floats(rows * features)};
  const float *chance = host_random(rows * features, 7), *value = host_random(rows * features, 8);

  x.starts[0] = 1000; /* starts count from the beginning of a shard, the arrays from the first row */
  for (size_t i = 0; i < rows; i++) {
    for (size_t j = 0; j < features; j++)
      if (i % 5 != 3 && chance[i * features + j] < 2 * density - 1) { /* every fifth row is empty */
        x.columns[x.entries] = (int32_t)j;
        x.values[x.entries++] = x.dense[i * features + j] = value[i * features + j];
      }
    x.starts[i + 1] = x.starts[0] + (int64_t)x.entries;
  }
  return x;
}

static void csr_one(struct trm_device *device, size_t rows, size_t features, size_t n, double density)
{
  struct sparse x = sparse_make(rows, features, density);
  const float *w = host_random(n * features, 9), *dy = host_random(rows * n, 10), *old = host_random(n * features, 11);
  double *y = trm_alloc(rows * n * sizeof(*y), "y"), *dw = trm_alloc(n * features * sizeof(*dw), "dw");
  char text[96];
  const struct trm_csr on = {device_bytes(device, x.starts, (rows + 1) * sizeof(int64_t)),
                             device_bytes(device, x.columns, x.entries * sizeof(int32_t)),
                             device_floats(device, x.values, x.entries), rows, features, x.entries};

  snprintf(text, sizeof(text), "csr (%zu, %zu) to %zu", rows, features, n);
  for (size_t i = 0; i < rows; i++)
    for (size_t o = 0; o < n; o++)
      for (size_t j = 0; j < features; j++) {
        y[i * n + o] += (double)x.dense[i * features + j] * w[o * features + j];
        dw[o * features + j] += (double)x.dense[i * features + j] * dy[i * n + o];
      }
  float *to = device_nan(device, rows * n);
  device->ops->csr_forward(device, &(struct trm_csr_forward){
    .x = on, .w = device_floats(device, w, n * features), .y = to, .n = n});
  check_close(text, read_floats(device, to, rows * n), y, rows * n, 1e-6 + 1e-7 * (double)features, 0);

  to = device_nan(device, n * features);
  device->ops->csr_backward(device, &(struct trm_csr_backward){
    .x = on, .dy = device_floats(device, dy, rows * n), .dw = to, .n = n});
  check_close(text, read_floats(device, to, n * features), dw, n * features, 1e-6 + 1e-7 * (double)rows, 0);

  for (size_t i = 0; i < n * features; i++)
    dw[i] += old[i];
  to = device_floats(device, old, n * features);
  device->ops->csr_backward(device, &(struct trm_csr_backward){
    .x = on, .dy = device_floats(device, dy, rows * n), .beta = 1, .dw = to, .n = n});
  check_close(text, read_floats(device, to, n * features), dw, n * features, 1e-6 + 1e-7 * (double)rows, 0);
  trm_free(x.starts);
  trm_free(x.columns);
  trm_free(y);
  trm_free(dw);
}

void csr_reference(struct trm_device *device)
{
  csr_one(device, 0, 5, 1, 0.5);
  csr_one(device, 1, 1, 1, 1);
  csr_one(device, 3, 17, 3, 0.3);
  csr_one(device, 17, 1000, 1, 0.1);
  csr_one(device, 200, 2000, 1, 0.1);
  csr_one(device, 11, 2500, 2, 0.9); /* rows longer than a block of the sum */
  csr_one(device, 200, 500, 10, 0.1);
}
