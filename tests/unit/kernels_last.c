/* Images that have the channels last: the values of the usual layout, by any number of threads. Both are in the memory
 * of the host. */
#include <CUnit/CUnit.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/bfloat16.h"
#include "core/device_arrays.h"
#include "core/memory.h"
#include "core/random.h"
#include "core/status.h"
#include "kernels.h"
#include "kernels/kernels.h"

enum { MOST_THREADS = 3 };

/* Returns n random values of the type in [-1, 1); the caller frees them. */
static void *last_random(enum trm_value_type type, size_t n, uint32_t stream)
{
  void *values = trm_alloc(n * trm_value_bytes(type), "values");
  for (size_t i = 0; i < n; i++) {
    const float x = 2 * trm_random_uniform(11, TRM_RANDOM_BENCH, stream, i) - 1;
    if (type == TRM_VALUES_F32)
      ((float *)values)[i] = x;
    else
      ((trm_bf16 *)values)[i] = trm_bf16_round(x);
  }
  return values;
}

/* Returns the images (B, R, C) as (B, C, R); the caller frees them. */
static void *last_transposed(const void *from, size_t bytes, size_t b, size_t rows, size_t columns)
{
  char *to = trm_alloc(b * rows * columns * bytes, "values");
  for (size_t i = 0; i < b * rows * columns; i++) {
    const size_t image = i / (rows * columns), row = i / columns % rows, column = i % columns;
    memcpy(to + ((image * columns + column) * rows + row) * bytes, (const char *)from + i * bytes, bytes);
  }
  return to;
}

static double last_value(enum trm_value_type type, const void *values, size_t i)
{
  return (double)(type == TRM_VALUES_F32 ? ((const float *)values)[i] : trm_bf16_value(((const trm_bf16 *)values)[i]));
}

/* error: relative to the largest value; results in bfloat16 may be rounded to a neighbor, too. */
static void last_close(const char *what, enum trm_value_type type, const void *got, const void *want, size_t n,
                       double error)
{
  const double rounding = type == TRM_VALUES_F32 ? 0 : 0x1.01p-7;
  double largest = 0;
  for (size_t i = 0; i < n; i++)
    largest = fmax(largest, fabs(last_value(type, want, i)));
  CU_ASSERT(n == 0 || largest > 0);
  for (size_t i = 0; i < n; i++) {
    const double a = last_value(type, got, i), b = last_value(type, want, i);
    if (!(fabs(a - b) <= error * largest + rounding * fabs(b))) {
      printf("\n  %s: element %zu is %.9g, should be %.9g\n", what, i, a, b);
      CU_FAIL("channels last");
      return;
    }
  }
  CU_PASS("channels last");
}

/* -- convolutions */

struct convolution {
  struct trm_conv2d conv;
  enum trm_value_type type;
  size_t b;
  const void *x, *w, *dy;
  const float *bias;
};

/* Results: y, dx (values), dw, db (floats). */
struct results {
  void *y, *dx;
  float *dw, *db;
};

static size_t convolution_in(const struct convolution *it)
{
  return it->conv.window.in[0] * it->conv.window.in[1];
}

static size_t convolution_out(const struct convolution *it)
{
  return it->conv.window.out[0] * it->conv.window.out[1];
}

static struct results results_alloc(const struct convolution *it)
{
  const size_t bytes = trm_value_bytes(it->type);
  return (struct results){.y = trm_alloc(it->b * it->conv.units * convolution_out(it) * bytes, "y"),
                          .dx = trm_alloc(it->b * it->conv.channels * convolution_in(it) * bytes, "dx"),
                          .dw = trm_alloc(trm_conv2d_weights(&it->conv) * sizeof(float), "dw"),
                          .db = trm_alloc(it->conv.units * sizeof(float), "db")};
}

static void results_free(struct results *results)
{
  trm_free(results->y);
  trm_free(results->dx);
  trm_free(results->dw);
  trm_free(results->db);
}

/* Computes in the layouts that the call's convolution says; the arrays of the call and the results have the usual one.
 * dx may not be computed: images of few channels are the data. */
static struct results convolution_run(struct trm_device *device, const struct convolution *it, bool data)
{
  const size_t bytes = trm_value_bytes(it->type), in = convolution_in(it), out = convolution_out(it);
  const bool x_last = it->conv.x_last, y_last = it->conv.y_last;
  struct results r = results_alloc(it);
  void *x = last_transposed(it->x, bytes, it->b, x_last ? it->conv.channels : 1, x_last ? in : it->conv.channels * in);
  void *dy = last_transposed(it->dy, bytes, it->b, y_last ? it->conv.units : 1, y_last ? out : it->conv.units * out);
  device->ops->conv2d_forward(device, &(struct trm_conv2d_forward){
    .conv = it->conv, .x = x, .w = it->w, .bias = it->bias, .y = r.y, .b = it->b, .type = it->type});
  for (int beta = 0; beta <= 1; beta++)
    device->ops->conv2d_backward(device, &(struct trm_conv2d_backward){
      .conv = it->conv, .x = x, .w = it->w, .dy = dy, .beta = (float)beta, .dw = r.dw, .db = r.db,
      .dx = data ? r.dx : NULL, .b = it->b, .type = it->type});
  trm_free(x);
  trm_free(dy);
  void *y = last_transposed(r.y, bytes, it->b, y_last ? out : 1, y_last ? it->conv.units : it->conv.units * out);
  void *dx = last_transposed(r.dx, bytes, it->b, x_last ? in : 1, x_last ? it->conv.channels : it->conv.channels * in);
  trm_free(r.y);
  trm_free(r.dx);
  r.y = y;
  r.dx = dx;
  return r;
}

/* Returns how far two orders of a sum of n terms may differ, relative to the largest of many such sums: random
 * roundings differ by sqrt(n) 2^-24. */
static double convolution_error(size_t n)
{
  return 4 * sqrt((double)n) * 0x1p-24;
}

static void convolution_compare(const struct convolution *it, const struct results *got, const struct results *want,
                                bool same)
{
  const size_t y = it->b * it->conv.units * convolution_out(it), dx = it->b * it->conv.channels * convolution_in(it);
  const size_t bytes = trm_value_bytes(it->type), dw = trm_conv2d_weights(&it->conv), db = it->conv.units;
  if (same) {
    CU_ASSERT(memcmp(got->y, want->y, y * bytes) == 0);
    CU_ASSERT(memcmp(got->dx, want->dx, dx * bytes) == 0);
    CU_ASSERT(memcmp(got->dw, want->dw, dw * sizeof(float)) == 0);
    CU_ASSERT(memcmp(got->db, want->db, db * sizeof(float)) == 0);
    return;
  }
  const size_t window = it->conv.window.kernel[0] * it->conv.window.kernel[1], positions = it->b * convolution_out(it);
  last_close("y", it->type, got->y, want->y, y, convolution_error(it->conv.channels * window));
  if (last_value(it->type, want->dx, 0) != 0)
    last_close("dx", it->type, got->dx, want->dx, dx, convolution_error(it->conv.units * window));
  last_close("dw", TRM_VALUES_F32, got->dw, want->dw, dw, convolution_error(positions));
  last_close("db", TRM_VALUES_F32, got->db, want->db, db, convolution_error(positions));
}

static const struct {
  size_t b, channels, units, h, w, kernel, stride, pad, groups;
} cases[] = {
  {5, 3, 16, 9, 11, 3, 1, 1, 1},   {2, 1, 32, 12, 12, 5, 1, 0, 1}, {7, 16, 16, 10, 9, 3, 1, 1, 1},
  {4, 32, 64, 9, 9, 3, 2, 1, 1},   {3, 32, 48, 8, 8, 1, 2, 0, 1},  {40, 16, 32, 4, 4, 3, 1, 1, 1},
  {2, 64, 256, 6, 6, 3, 1, 1, 1}, /* the gradient of the weights of parts of the units */
  {1, 256, 16, 34, 33, 3, 1, 1, 1}, {1, 256, 16, 34, 33, 3, 2, 1, 1}, /* on AMX, by parts of an image */
  {3, 48, 80, 13, 11, 5, 2, 2, 1}, {9, 16, 48, 7, 3, 3, 1, 2, 1},  {4, 32, 16, 11, 12, 3, 3, 0, 1},
  {2, 16, 16, 5, 6, 1, 1, 2, 1},
  {3, 4, 6, 7, 8, 3, 1, 1, 2}, /* oneDNN computes no groups here: by way of planes */
};

/* Returns the number of convolutions that were compared. */
static int convolutions_with(int threads, enum trm_value_type type, struct results first[][3])
{
  struct trm_device device;
  int compared = 0;
  CU_ASSERT_EQUAL_FATAL(trm_device_open(&device, "cpu", "auto", TRM_MATMUL_F32, 0, threads), TRM_OK);
  for (size_t i = 0; i < COUNT(cases); i++) {
    const size_t out[2] = {(cases[i].h + 2 * cases[i].pad - cases[i].kernel) / cases[i].stride + 1,
                           (cases[i].w + 2 * cases[i].pad - cases[i].kernel) / cases[i].stride + 1};
    struct convolution it = {
      .conv = {.window = {.kernel = {cases[i].kernel, cases[i].kernel}, .stride = {cases[i].stride, cases[i].stride},
                          .pad = {cases[i].pad, cases[i].pad}, .in = {cases[i].h, cases[i].w}, .out = {out[0], out[1]}},
               .channels = cases[i].channels, .units = cases[i].units, .groups = cases[i].groups},
      .type = type, .b = cases[i].b};
    if (type == TRM_VALUES_BF16 && !(device.ops->channels_last && device.ops->channels_last(&device, type)))
      continue; /* products of other precision */
    const bool data = cases[i].channels > 3;
    void *x = last_random(type, it.b * it.conv.channels * convolution_in(&it), 1);
    void *dy = last_random(type, it.b * it.conv.units * convolution_out(&it), 2);
    void *w = last_random(type, trm_conv2d_weights(&it.conv), 3);
    float *bias = last_random(TRM_VALUES_F32, it.conv.units, 4);
    it.x = x, it.dy = dy, it.w = w, it.bias = bias;
    struct results want = convolution_run(&device, &it, data);
    for (uint32_t layout = 1; layout <= 3; layout++) {
      it.conv.x_last = layout & 1;
      it.conv.y_last = layout >> 1;
      struct results got = convolution_run(&device, &it, data);
      convolution_compare(&it, &got, &want, false);
      if (threads == 1) {
        first[i][layout - 1] = got;
        continue;
      }
      convolution_compare(&it, &got, &first[i][layout - 1], true);
      results_free(&got);
    }
    results_free(&want);
    trm_free(x);
    trm_free(dy);
    trm_free(w);
    trm_free(bias);
    compared++;
  }
  trm_device_close(&device);
  return compared;
}

void last_convolutions(void)
{
  if (on_other_device())
    return;
  for (int type = TRM_VALUES_F32; type <= TRM_VALUES_BF16; type++) {
    struct results first[COUNT(cases)][3] = {{{.y = NULL}}};
    const int compared = convolutions_with(1, (enum trm_value_type)type, first);
    for (int threads = 2; threads <= MOST_THREADS; threads++)
      CU_ASSERT_EQUAL(convolutions_with(threads, (enum trm_value_type)type, first), compared);
    for (size_t i = 0; i < COUNT(cases); i++)
      for (int layout = 0; layout < 3; layout++)
        results_free(&first[i][layout]);
    CU_ASSERT(compared == (int)COUNT(cases) || (type == TRM_VALUES_BF16 && compared == 0));
  }
}

/* -- pooling */

static const struct {
  struct trm_window2d window;
  size_t b, channels;
} pools[] = {
  {{{2, 2}, {2, 2}, {0, 0}, {6, 8}, {3, 4}}, 3, 16},  {{{3, 3}, {2, 2}, {1, 1}, {9, 7}, {5, 4}}, 4, 5},
  {{{8, 8}, {1, 1}, {0, 0}, {8, 8}, {1, 1}}, 5, 64},  {{{1, 1}, {1, 1}, {0, 0}, {1, 1}, {1, 1}}, 2, 1},
  {{{3, 2}, {1, 2}, {1, 0}, {5, 11}, {5, 5}}, 7, 33},
};

/* Runs all calls; results have the usual layout. last: in the other one. */
static void pool_run_all(struct trm_device *device, size_t i, enum trm_value_type type, bool last, const void *x,
                         const void *dy, void *result[4], int32_t **places)
{
  const struct trm_window2d *o = &pools[i].window;
  const size_t in = o->in[0] * o->in[1], out = o->out[0] * o->out[1], b = pools[i].b, c = pools[i].channels;
  const size_t bytes = trm_value_bytes(type), planes = b * c, sizes[4] = {out, in, out, in};
  void *own_x = last_transposed(x, bytes, b, last ? c : 1, last ? in : c * in);
  void *own_dy = last_transposed(dy, bytes, b, last ? c : 1, last ? out : c * out);
  int32_t *argmax = trm_alloc(planes * out * sizeof *argmax, "places");
  void *r[4];
  for (int k = 0; k < 4; k++)
    r[k] = trm_alloc(planes * sizes[k] * bytes, "results");
  device->ops->max_pool_forward(device, &(struct trm_max_pool_forward){
    .window = *o, .x = own_x, .y = r[0], .planes = planes, .last = last ? c : 0, .type = type});
  void *alone = last_transposed(r[0], bytes, 1, 1, planes * out);
  device->ops->max_pool_forward(device, &(struct trm_max_pool_forward){
    .window = *o, .x = own_x, .y = r[0], .argmax = argmax, .planes = planes, .last = last ? c : 0, .type = type});
  CU_ASSERT(memcmp(alone, r[0], planes * out * bytes) == 0);
  device->ops->max_pool_backward(device, &(struct trm_max_pool_backward){
    .window = *o, .dy = own_dy, .argmax = argmax, .dx = r[1], .planes = planes, .last = last ? c : 0, .type = type});
  device->ops->avg_pool_forward(device, &(struct trm_avg_pool_forward){
    .window = *o, .x = own_x, .y = r[2], .planes = planes, .last = last ? c : 0, .type = type});
  device->ops->avg_pool_backward(device, &(struct trm_avg_pool_backward){
    .window = *o, .dy = own_dy, .dx = r[3], .planes = planes, .last = last ? c : 0, .type = type});
  for (int k = 0; k < 4; k++) {
    result[k] = last_transposed(r[k], bytes, b, last ? sizes[k] : 1, last ? c : c * sizes[k]);
    trm_free(r[k]);
  }
  *places = last_transposed(argmax, sizeof *argmax, b, last ? out : 1, last ? c : c * out);
  trm_free(argmax);
  trm_free(alone);
  trm_free(own_x);
  trm_free(own_dy);
}

static void pool_compare(struct trm_device *device, size_t i, enum trm_value_type type)
{
  const struct trm_window2d *o = &pools[i].window;
  const size_t planes = pools[i].b * pools[i].channels, in = planes * o->in[0] * o->in[1],
               out = planes * o->out[0] * o->out[1], sizes[4] = {out, in, out, in};
  void *x = last_random(type, in, 5), *dy = last_random(type, out, 6), *want[4], *got[4];
  int32_t *places[2];
  /* equal values, and NaN: the first place counts */
  memset(x, 0, in / 4 * trm_value_bytes(type));
  if (type == TRM_VALUES_F32)
    ((float *)x)[in / 2] = NAN;
  pool_run_all(device, i, type, false, x, dy, want, &places[0]);
  pool_run_all(device, i, type, true, x, dy, got, &places[1]);
  CU_ASSERT(memcmp(places[0], places[1], out * sizeof *places[0]) == 0);
  for (int k = 0; k < 4; k++) {
    if (k == 2) /* a whole image's mean: in another order */
      for (size_t at = 0; at < out; at++) {
        const double a = last_value(type, got[k], at), b = last_value(type, want[k], at);
        CU_ASSERT((isnan(a) && isnan(b)) || fabs(a - b) <= (type == TRM_VALUES_F32 ? 1e-6 : 0x1p-8));
      }
    else
      CU_ASSERT(memcmp(got[k], want[k], sizes[k] * trm_value_bytes(type)) == 0);
    trm_free(got[k]);
    trm_free(want[k]);
  }
  trm_free(places[0]);
  trm_free(places[1]);
  trm_free(x);
  trm_free(dy);
}

void last_pools(void)
{
  if (on_other_device())
    return;
  for (int threads = 1; threads <= MOST_THREADS; threads++) {
    struct trm_device device;
    CU_ASSERT_EQUAL_FATAL(trm_device_open(&device, "cpu", "auto", TRM_MATMUL_F32, 0, threads), TRM_OK);
    for (size_t i = 0; i < COUNT(pools); i++)
      for (int type = TRM_VALUES_F32; type <= TRM_VALUES_BF16; type++)
        pool_compare(&device, i, (enum trm_value_type)type);
    trm_device_close(&device);
  }
}
