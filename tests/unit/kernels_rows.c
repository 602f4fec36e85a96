/* Memory, bias and dropout. */
#include <CUnit/CUnit.h>
#include <math.h>
#include <string.h>

#include "core/memory.h"
#include "core/random.h"
#include "core/status.h"
#include "kernels.h"

void memory_moves(struct trm_device *device)
{
  static const size_t sizes[] = {0, 1, 3, 17, 1000, 40003};

  for (size_t s = 0; s < COUNT(sizes); s++) {
    const size_t n = sizes[s];
    const float *x = host_random(n, 1), *zero = host_floats(n);
    float *filled = host_floats(n);
    void *fresh;

    CU_ASSERT_EQUAL_FATAL(device->ops->alloc(device, n * sizeof(float), TRM_MEMORY_BUFFERS, &fresh), TRM_OK);
    CU_ASSERT_PTR_NOT_NULL(fresh);
    CU_ASSERT_EQUAL((uintptr_t)fresh % TRM_ALIGNMENT, 0);
    check_same("fresh memory is zero", read_floats(device, fresh, n), zero, n);
    device->ops->copy(device, fresh, device_floats(device, x, n), n * sizeof(float));
    check_same("up, across and down", read_floats(device, fresh, n), x, n);
    for (size_t i = 0; i < n; i++)
      filled[i] = i + 1 < n ? -2.5f : x[i];
    if (n > 0)
      device->ops->fill(device, fresh, -2.5f, n - 1);
    check_same("fill", read_floats(device, fresh, n), filled, n);
    device->ops->release(device, fresh);
  }
}

void bias_reference(struct trm_device *device)
{
  static const struct {
    size_t b, n;
  } shapes[] = {{0, 3}, {1, 1}, {3, 17}, {17, 1000}, {1000, 3}, {65, 515}, {256, 700}, {5000, 10}};

  for (size_t s = 0; s < COUNT(shapes); s++) {
    const size_t b = shapes[s].b, n = shapes[s].n;
    const float *y = host_random(b * n, 1), *bias = host_random(n, 2);
    double *sum = trm_alloc((b * n + 2 * n) * sizeof(*sum), "want"), *columns = sum + b * n, *both = columns + n;

    for (size_t i = 0; i < b; i++)
      for (size_t j = 0; j < n; j++) {
        sum[i * n + j] = y[i * n + j] + bias[j];
        columns[j] += y[i * n + j];
      }
    for (size_t j = 0; j < n; j++)
      both[j] = columns[j] + 0.5 * bias[j];
    float *to = device_floats(device, y, b * n), *on_bias = device_floats(device, bias, n);
    device->ops->bias_add(device, &(struct trm_bias_add){.y = to, .bias = on_bias, .b = b, .n = n});
    check_close("bias_add", read_floats(device, to, b * n), sum, b * n, 0, 0);

    const float *dy = device_floats(device, y, b * n);
    to = device_nan(device, n);
    device->ops->bias_backward(device, &(struct trm_bias_backward){.dy = dy, .db = to, .b = b, .n = n});
    /* 64 terms in float, then double: much smaller error than b terms in float */
    check_close("bias_backward", read_floats(device, to, n), columns, n, 2e-7 * (8 + sqrt((double)b)), 2e-7);
    device->ops->bias_backward(device, &(struct trm_bias_backward){
      .dy = dy, .beta = 0.5f, .db = on_bias, .b = b, .n = n});
    check_close("bias_backward, added", read_floats(device, on_bias, n), both, n, 2e-7 * (8 + sqrt((double)b)), 2e-7);
    trm_free(sum);
  }
}

void dropout_definition(struct trm_device *device)
{
  static const size_t shapes[][2] = {{0, 5}, {1, 1}, {3, 17}, {7, 3}, {17, 1000}, {50, 257}};
  static const uint64_t firsts[] = {0, 1, 123456789, (uint64_t)1 << 40};
  static const float rates[] = {0, 0.1f, 0.5f, 0.9f};

  for (size_t s = 0; s < COUNT(shapes); s++)
    for (size_t k = 0; k < COUNT(firsts); k++) {
      const size_t b = shapes[s][0], f = shapes[s][1];
      const struct trm_mask mask = {
        .seed = 0x123456789abcdef0u + k, .stream = (uint32_t)s, .first_row = firsts[k], .rate = rates[k]};
      const float *x = host_random(b * f, 1);
      float *want = host_floats(b * f), *on_x = device_floats(device, x, b * f), *to = device_nan(device, b * f);

      for (size_t i = 0; i < b; i++)
        for (size_t j = 0; j < f; j++) {
          const float u = trm_random_uniform(mask.seed, TRM_RANDOM_DROPOUT, mask.stream, (mask.first_row + i) * f + j);

          want[i * f + j] = x[i * f + j] * (u < mask.rate ? 0 : 1 / (1 - mask.rate));
        }
      device->ops->dropout(device, &(struct trm_dropout){.mask = mask, .x = on_x, .y = to, .b = b, .f = f});
      check_same("dropout", read_floats(device, to, b * f), want, b * f);
      device->ops->dropout(device, &(struct trm_dropout){.mask = mask, .x = on_x, .y = on_x, .b = b, .f = f});
      check_same("dropout in place", read_floats(device, on_x, b * f), want, b * f);
    }
  const struct trm_mask mask = {.seed = 1, .stream = 2, .first_row = 3, .rate = 0.5f};
  float *to = device_nan(device, 64);
  device->ops->dropout(device, &(struct trm_dropout){.mask = mask, .x = to, .y = to, .b = 4, .f = 16});
  for (int i = 0; i < 64; i++)
    CU_ASSERT(isnan(read_floats(device, to + i, 1)[0])); /* dropout does not hide a NaN */
}

void dropout_split(struct trm_device *device)
{
  enum { ROWS = 101, FEATURES = 333, HALF = 37 };
  const struct trm_mask whole = {.seed = 77, .stream = 4, .first_row = 1001, .rate = 0.3f};
  struct trm_mask rest = whole;
  float *x = device_floats(device, host_random(ROWS * FEATURES, 1), ROWS * FEATURES);
  float *once = device_nan(device, ROWS * FEATURES), *twice = device_nan(device, ROWS * FEATURES);

  rest.first_row += HALF;
  device->ops->dropout(device, &(struct trm_dropout){.mask = whole, .x = x, .y = once, .b = ROWS, .f = FEATURES});
  device->ops->dropout(device, &(struct trm_dropout){.mask = whole, .x = x, .y = twice, .b = HALF, .f = FEATURES});
  device->ops->dropout(device, &(struct trm_dropout){
    .mask = rest, .x = x + HALF * FEATURES, .y = twice + HALF * FEATURES, .b = ROWS - HALF, .f = FEATURES});
  check_same("dropout in halves", read_floats(device, twice, ROWS * FEATURES),
             read_floats(device, once, ROWS * FEATURES), ROWS * FEATURES);
}

/* Masks of a slice of the features equal those of the whole row. */
void dropout_parts(struct trm_device *device)
{
  enum { ROWS = 23, FEATURES = 333 };
  static const size_t cuts[] = {0, 1, 111, 112, 300, FEATURES};
  const struct trm_mask whole = {.seed = 77, .stream = 4, .first_row = 1001, .rate = 0.3f};
  const float *x = host_random(ROWS * FEATURES, 1);
  float *once = device_nan(device, ROWS * FEATURES);

  device->ops->dropout(device, &(struct trm_dropout){
    .mask = whole, .x = device_floats(device, x, ROWS * FEATURES), .y = once, .b = ROWS, .f = FEATURES});
  const float *want = read_floats(device, once, ROWS * FEATURES);
  for (size_t k = 0; k + 1 < COUNT(cuts); k++) {
    const size_t f = cuts[k + 1] - cuts[k];
    float *own = host_floats(ROWS * f), *part = host_floats(ROWS * f), *y = device_nan(device, ROWS * f);
    struct trm_mask mask = whole;

    for (size_t i = 0; i < ROWS; i++) {
      memcpy(own + i * f, x + i * FEATURES + cuts[k], f * sizeof(*own));
      memcpy(part + i * f, want + i * FEATURES + cuts[k], f * sizeof(*part));
    }
    mask.stride = FEATURES;
    mask.offset = cuts[k];
    device->ops->dropout(device, &(struct trm_dropout){
      .mask = mask, .x = device_floats(device, own, ROWS * f), .y = y, .b = ROWS, .f = f});
    check_same("dropout of a part", read_floats(device, y, ROWS * f), part, ROWS * f);
  }
}
